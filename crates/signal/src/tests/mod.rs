//! What each half does on its own thread, one rule a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

mod cork;
mod doorbell;
mod inbox;
mod life;
mod request;
mod snapshot;
mod space;
mod spsc;
mod tail;

/// A xorshift generator: the same operations for the same seed, everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// An eventfd that counts.
#[derive(Clone, Default)]
pub(crate) struct Wakes(Arc<AtomicU32>);

impl Wakes {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl crate::doorbell::Wake for Wakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A deadline that has passed: a wait with it looks, and never sleeps.
fn at_once() -> Option<Instant> {
    Some(Instant::now())
}

/// A deadline that only a hang would reach.
pub(crate) fn not_for_ever() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Counts the values that were dropped.
#[derive(Clone, Default)]
struct Drops(Arc<AtomicU32>);

impl Drops {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn value(&self) -> Counted {
        Counted(self.clone())
    }
}

/// A value that is counted when it is dropped.
struct Counted(Drops);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}
