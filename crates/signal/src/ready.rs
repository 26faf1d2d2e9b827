//! Which streams want their shard's attention: one bit each, so that a turn does not have to ask them all.
//!
//! The application publishes its work (frames in a ring), marks its stream, and rings the
//! [doorbell](crate::doorbell). The shard collects all marks, 64 to a load.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Mark::mark`], the stream's bit | fetch-or `Release` | (B) |
//! | (B) | [`Collector::collect`], taking the bits | swap `Acquire` | (A) |
//!
//! A mark set again after the shard took it is found by the next collection; its frames may by then have been
//! taken with the earlier one, so a collected stream may have nothing to give.

use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};

const BITS: u32 = u64::BITS;

struct Bits(Box<[CachePadded<AtomicU64>]>);

/// The shard's half: collects the marks.
pub struct Collector(Arc<Bits>);

/// A stream's half: sets one mark.
pub struct Mark {
    bits: Arc<Bits>,
    slot: u32,
}

/// A set of `slots` marks, none of them set.
pub fn set(slots: u32) -> Collector {
    let words = slots.div_ceil(BITS).max(1);
    let word = || CachePadded::new(AtomicU64::new(0));
    Collector(Arc::new(Bits((0..words).map(|_| word()).collect())))
}

impl Collector {
    /// How many slots there are: the number asked for, rounded up to a multiple of 64.
    pub fn slots(&self) -> u32 {
        self.0.0.len() as u32 * BITS
    }

    /// The right to mark `slot`. One stream a slot: the shard hands slots out.
    ///
    /// # Panics
    /// When `slot` is not below [`slots`](Self::slots).
    pub fn mark(&self, slot: u32) -> Mark {
        assert!(slot < self.slots(), "slot {slot} of a ready set of {}", self.slots());
        Mark { bits: self.0.clone(), slot }
    }

    /// Whether any mark is set: the shard's last look before it sleeps.
    pub fn any(&self) -> bool {
        self.0.0.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes every mark and calls `visit` with its slot, in ascending order. Returns how many there were.
    pub fn collect(&mut self, mut visit: impl FnMut(u32)) -> usize {
        let mut found = 0;
        for (index, word) in self.0.0.iter().enumerate() {
            // A look before the exchange: an idle set stays shared in everybody's cache.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut taken = word.swap(0, Ordering::Acquire); // (B), pairs with (A)
            while taken != 0 {
                visit(index as u32 * BITS + taken.trailing_zeros());
                taken &= taken - 1;
                found += 1;
            }
        }
        found
    }
}

impl Mark {
    /// The slot this marks.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Says that this stream has published something. Ring the doorbell afterwards.
    #[inline]
    pub fn mark(&self) {
        let bit = 1 << (self.slot % BITS);
        self.bits.0[(self.slot / BITS) as usize].fetch_or(bit, Ordering::Release); // (A), pairs with (B)
    }
}
