//! A value of `N` words that one thread writes whenever it likes and any thread reads whole: a seqlock.
//!
//! For what changes seldom or is read seldom: statistics out of a shard; routes, neighbours and link state
//! into one. The writer never waits. A reader that meets a write in progress, or is overtaken by one, tries
//! again.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Publisher::publish`], after the odd version, before the words | `fence(Release)` | (D) |
//! | (B) | [`Publisher::publish`], the even version, after the words | store `Release` | (C) |
//! | (C) | [`Reader::try_read`], the version before the words | load `Acquire` | (B) |
//! | (D) | [`Reader::try_read`], after the words, before the second version | `fence(Acquire)` | (A) |
//!
//! By (B) and (C) a reader that starts from a version sees all of its words. By (A) and (D) a reader that saw
//! any word of a later write also sees that write's version, and knows that what it has is torn.

use crate::sync::{Arc, AtomicU64, CachePadded, Ordering, fence, spin_loop};

struct Cell<const N: usize> {
    /// Even: stable. Odd: being written.
    version: AtomicU64,
    words: [AtomicU64; N],
}

/// The half that writes.
pub struct Publisher<const N: usize> {
    cell: Arc<CachePadded<Cell<N>>>,
    version: u64,
}

/// A half that reads; clones read for themselves.
#[derive(Clone)]
pub struct Reader<const N: usize> {
    cell: Arc<CachePadded<Cell<N>>>,
    /// The version of the last value this reader took by [`changed`](Reader::changed).
    seen: u64,
}

/// A snapshot that begins as `words`, which no reader has seen as a change.
pub fn channel<const N: usize>(words: [u64; N]) -> (Publisher<N>, Reader<N>) {
    let cell =
        Arc::new(CachePadded::new(Cell { version: AtomicU64::new(2), words: words.map(AtomicU64::new) }));
    (Publisher { cell: cell.clone(), version: 2 }, Reader { cell, seen: 0 })
}

impl<const N: usize> Publisher<N> {
    /// Makes `words` the value, in `N` + 2 stores.
    #[inline]
    pub fn publish(&mut self, words: &[u64; N]) {
        let cell = &**self.cell;
        cell.version.store(self.version + 1, Ordering::Relaxed);
        fence(Ordering::Release); // (A), pairs with (D)
        for (to, from) in cell.words.iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        self.version += 2;
        cell.version.store(self.version, Ordering::Release); // (B), pairs with (C)
    }
}

impl<const N: usize> Reader<N> {
    /// The value, or `None` when a write got in the way. Never waits.
    #[inline]
    pub fn try_read(&self) -> Option<[u64; N]> {
        self.try_versioned().map(|(_, words)| words)
    }

    /// The value. Tries again for as long as writes get in the way: not for a shard.
    pub fn read(&self) -> [u64; N] {
        loop {
            if let Some(words) = self.try_read() {
                return words;
            }
            spin_loop();
        }
    }

    /// The value, if it is another than this last returned; costs one load when it is not. `None` also when a
    /// write got in the way: ask again in the next turn.
    #[inline]
    pub fn changed(&mut self) -> Option<[u64; N]> {
        if self.cell.version.load(Ordering::Relaxed) == self.seen {
            return None;
        }
        let (version, words) = self.try_versioned()?;
        self.seen = version;
        Some(words)
    }

    fn try_versioned(&self) -> Option<(u64, [u64; N])> {
        let cell = &**self.cell;
        let before = cell.version.load(Ordering::Acquire); // (C), pairs with (B)
        if before % 2 == 1 {
            return None;
        }
        let words = std::array::from_fn(|at| cell.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire); // (D), pairs with (A)
        (cell.version.load(Ordering::Relaxed) == before).then_some((before, words))
    }
}
