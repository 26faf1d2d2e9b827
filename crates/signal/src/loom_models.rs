//! Models of each edge, explored by loom: every interleaving (up to a bound on preemptions) and every value
//! that a weak load may return. A thread left asleep is a deadlock, which loom reports; a torn or early read
//! of a cell is a race, likewise.
//!
//! Each file has the models of the edge of that name; `transmit` composes them as a stream and its shard do,
//! `progress` ends each side at every step, and `oracle` compares random operations with a `VecDeque`.

use loom::thread;

use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell};

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
mod oracle;
mod pin;
mod progress;
mod ready;
mod sanity;
mod snapshot;
mod space;
mod spsc;
mod tail;
mod transmit;

/// Preemptions explored: known store-buffering faults need two.
const QUICK: usize = 3;
/// With `XSEND_LOOM=deep`.
const DEEP: usize = 5;

/// Explores `model`.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_to(QUICK, DEEP, model);
}

/// Explores a model of several threads or many steps, one preemption less deep; two less with `XSEND_LOOM=deep`,
/// because with four, two offerers and a sleeper run into a broken assertion of loom 0.7.3's own
/// (`match_rmw_to_stores`, two stores of one modification order).
fn explore_large(model: impl Fn() + Sync + Send + 'static) {
    explore_to(QUICK - 1, DEEP - 2, model);
}

fn explore_to(quick: usize, deep: usize, model: impl Fn() + Sync + Send + 'static) {
    let is_deep = std::env::var_os("XSEND_LOOM").is_some_and(|bounds| bounds == "deep");
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if is_deep { deep } else { quick });
    builder.max_branches = if is_deep { 200_000 } else { 20_000 };
    builder.check(model);
}

/// A stand-in for the eventfd: a token that a model can look at.
struct Eventfd(Arc<AtomicU32>);

impl crate::doorbell::Wake for Eventfd {
    fn wake(&self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

/// A bell that nobody looks at.
fn bell() -> crate::doorbell::Ringer {
    crate::doorbell::channel(Box::new(Eventfd(Arc::new(AtomicU32::new(0))))).0
}

/// A frame of two bytes whose every access loom checks.
struct Payload([UnsafeCell<u8>; 2]);

// SAFETY: loom checks at run time that no two accesses race.
unsafe impl Sync for Payload {}
// SAFETY: as above.
unsafe impl Send for Payload {}

impl Payload {
    fn new() -> Arc<Self> {
        Arc::new(Self([UnsafeCell::new(0), UnsafeCell::new(0)]))
    }

    fn write(&self, at: usize, value: u8) {
        // SAFETY: loom checks that nobody else accesses it.
        self.0[at].with_mut(|byte| unsafe { *byte = value });
    }

    fn sum(&self, len: u16) -> u32 {
        // SAFETY: loom checks that nobody else writes it.
        self.0.iter().take(len.into()).map(|byte| byte.with(|byte| u32::from(unsafe { *byte }))).sum()
    }
}

/// Counts its drop.
struct Token(Arc<AtomicU32>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
