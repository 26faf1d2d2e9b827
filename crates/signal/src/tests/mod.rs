//! What each half does on its own thread, one rule a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::oracle;

mod answer;
mod backlog;
mod cork;
mod desk;
mod doorbell;
mod handover;
mod inbox;
mod kick;
mod lend;
mod life;
mod pin;
mod ready;
mod snapshot;
mod space;
mod spsc;
mod tail;

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
