//! Autocork against completion: holding back a small frame while earlier ones are still in the TX ring.
//!
//! A writer with a small tail and frames in flight may leave the bell alone: the next completion will send
//! the tail, by then perhaps full. The writer sets THROTTLED, *then* reads in-flight again; the shard, on
//! completion, subtracts from in-flight, *then* tests THROTTLED. This is store buffering: without a full
//! fence on **both** sides the writer may still read the old in-flight while the shard reads the old
//! THROTTLED, the last completion passes, and the tail lies there until the peer's delayed ACK happens to
//! rescue it, 40 ms later. Neither x86 nor Release/Acquire prevents that.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Writer::throttle`], between THROTTLED and in-flight | `fence(SeqCst)` | (B) |
//! | (B) | [`Shard::complete`], between in-flight and THROTTLED | `fence(SeqCst)` | (A) |
//! | (C) | [`Writer::throttle`], THROTTLED itself | store `Release` | (D) |
//! | (D) | [`Shard::take_throttled`] | compare-and-swap `Acquire` | (C) |
//!
//! (C) and (D) see to it that the shard which releases a cork finds what the writer had published before it
//! corked.
//!
//! THROTTLED has a second step, CORKED, taken only after in-flight was read and found above zero. The
//! protocol's promise is that no shard ever sees CORKED with nothing in flight; [`Shard::audit`] looks, and
//! counts a lost wake-up if it does. (THROTTLED with nothing in flight proves nothing: the writer may be
//! about to look.)

use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, fence};

/// The writer rings for itself.
const CLEAR: u32 = 0;
/// The writer means to cork, and has yet to look at in-flight.
const THROTTLED: u32 = 1;
/// The writer has looked, and relies on a completion.
const CORKED: u32 = 2;

struct Cork {
    /// Frames of this stream in the TX ring. Written by the shard only.
    in_flight: CachePadded<AtomicU32>,
    throttled: CachePadded<AtomicU32>,
}

/// What a writer that would like to cork has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Throttled {
    /// Nothing: a completion will come, and will send what is published.
    Corked,
    /// Nothing is in flight: ring the doorbell now.
    Clear,
}

/// What a shard has to do about a stream whose frames completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Completion {
    /// The writer corked: take what it published, and send it.
    ReleaseCorked,
    /// Nobody waits for this.
    Quiet,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Audit {
    /// All is well.
    Sound,
    /// A corked stream with nothing in flight: its wake-up was lost. It has been counted and released: take
    /// what was published, and send it.
    LostWakeup,
}

/// The application's half.
pub struct Writer(Arc<Cork>);

/// The shard's half.
pub struct Shard {
    cork: Arc<Cork>,
    in_flight: u32,
    lost_wakeups: u64,
}

/// The two halves for one stream, nothing in flight, not corked.
pub fn channel() -> (Writer, Shard) {
    let cork = Arc::new(Cork {
        in_flight: CachePadded::new(AtomicU32::new(0)),
        throttled: CachePadded::new(AtomicU32::new(CLEAR)),
    });
    (Writer(cork.clone()), Shard { cork, in_flight: 0, lost_wakeups: 0 })
}

impl Writer {
    /// Frames of this stream in the TX ring, as last seen: a hint whether corking is worth a try.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Corks, if a completion is sure to come. Call it after publishing what is to be held back.
    #[inline]
    pub fn throttle(&mut self) -> Throttled {
        let Cork { in_flight, throttled } = &*self.0;
        throttled.store(THROTTLED, Ordering::Release); // (C), pairs with (D)
        fence(Ordering::SeqCst); // (A), pairs with (B)
        if in_flight.load(Ordering::Relaxed) == 0 {
            self.uncork();
            return Throttled::Clear;
        }
        // Failure means that a completion has taken THROTTLED already: the shard is on it.
        let _ = throttled.compare_exchange(THROTTLED, CORKED, Ordering::Relaxed, Ordering::Relaxed);
        Throttled::Corked
    }

    /// Takes the cork out, when the writer rings for all that is published anyway.
    #[inline]
    pub fn uncork(&mut self) {
        let throttled = &self.0.throttled;
        let seen = throttled.load(Ordering::Relaxed);
        if seen != CLEAR {
            // Failure means that the shard has taken it out meanwhile.
            let _ = throttled.compare_exchange(seen, CLEAR, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Shard {
    /// Frames of this stream in the TX ring.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// `frames` more were put into the TX ring.
    #[inline]
    pub fn submitted(&mut self, frames: u32) {
        self.in_flight += frames;
        self.cork.in_flight.store(self.in_flight, Ordering::Relaxed);
    }

    /// `frames` have left the TX ring. Once a stream a reap, with their number: each call costs a fence.
    ///
    /// # Panics
    /// In debug builds, when more complete than were submitted.
    #[inline]
    pub fn complete(&mut self, frames: u32) -> Completion {
        debug_assert!(frames <= self.in_flight, "{frames} completed, {} in flight", self.in_flight);
        self.in_flight = self.in_flight.saturating_sub(frames);
        self.cork.in_flight.store(self.in_flight, Ordering::Relaxed);
        fence(Ordering::SeqCst); // (B), pairs with (A)
        self.take_throttled()
    }

    /// Takes the cork out if there is one, whatever is in flight: the shard is about to send what is
    /// published.
    #[inline]
    pub fn take_throttled(&mut self) -> Completion {
        let throttled = &self.cork.throttled;
        let mut seen = throttled.load(Ordering::Relaxed);
        // A compare-and-swap, not a store: it takes a cork together with all that was published before it. A
        // store could wipe out a cork set since the load, whose bytes this shard has not seen. Each retry is
        // one step of the writer.
        while seen != CLEAR {
            // (D), pairs with (C)
            match throttled.compare_exchange(seen, CLEAR, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Completion::ReleaseCorked,
                Err(now) => seen = now,
            }
        }
        Completion::Quiet
    }

    /// Whether the writer has corked, or is about to: what is published may wait for a completion, if one is sure to come.
    #[inline]
    pub fn is_throttled(&self) -> bool {
        self.cork.throttled.load(Ordering::Relaxed) != CLEAR
    }

    /// Looks for a lost wake-up: corked for certain, and nothing in flight whose completion would release it.
    #[inline]
    pub fn audit(&mut self) -> Audit {
        if self.in_flight > 0 || self.cork.throttled.load(Ordering::Relaxed) != CORKED {
            return Audit::Sound;
        }
        match self.take_throttled() {
            Completion::Quiet => Audit::Sound,
            Completion::ReleaseCorked => {
                self.lost_wakeups += 1;
                Audit::LostWakeup
            }
        }
    }

    /// A fault that the protocol does not have: frames complete, and nobody tests THROTTLED.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight = 0;
        self.cork.in_flight.store(0, Ordering::Relaxed);
    }

    /// Lost wake-ups that audits have found. Anything but zero is a fault of the protocol.
    pub fn lost_wakeups(&self) -> u64 {
        self.lost_wakeups
    }
}
