//! Copies of the store-buffering edges whose fences can be left out, one at a time: loom must accept each
//! with both fences, and must find the lost wake-up with either missing. A fence whose mutant survives is
//! either useless, or not looked at by the model.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::thread;

use super::explore;
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, fence};

/// Which of a pair's two fences stand.
#[derive(Clone, Copy)]
struct Fences {
    app: bool,
    shard: bool,
}

impl Fences {
    fn app(self) {
        if self.app {
            fence(Ordering::SeqCst);
        }
    }

    fn shard(self) {
        if self.shard {
            fence(Ordering::SeqCst);
        }
    }
}

/// Explores `protocol` with both fences, then without the one, without the other, and without either.
fn fences_are_needed(protocol: fn(Fences)) {
    explore(move || protocol(Fences { app: true, shard: true }));
    for (app, shard) in [(false, true), (true, false), (false, false)] {
        let explored = catch_unwind(AssertUnwindSafe(|| explore(move || protocol(Fences { app, shard }))));
        assert!(explored.is_err(), "loom accepts the mutant with app fence: {app}, shard fence: {shard}");
    }
}

#[test]
fn cork_needs_both_fences() {
    fences_are_needed(|fences| {
        const CLEAR: u32 = 0;
        const THROTTLED: u32 = 1;
        const CORKED: u32 = 2;
        let in_flight = Arc::new(AtomicU32::new(1));
        let throttled = Arc::new(AtomicU32::new(CLEAR));
        let (flying, cork) = (in_flight.clone(), throttled.clone());
        let app = thread::spawn(move || {
            cork.swap(THROTTLED, Ordering::Release);
            fences.app();
            if flying.load(Ordering::Relaxed) == 0 {
                let _ = cork.compare_exchange(THROTTLED, CLEAR, Ordering::Relaxed, Ordering::Relaxed);
                return false;
            }
            let _ = cork.compare_exchange(THROTTLED, CORKED, Ordering::Relaxed, Ordering::Relaxed);
            true
        });
        in_flight.store(0, Ordering::Relaxed);
        fences.shard();
        let mut seen = throttled.load(Ordering::Relaxed);
        let mut released = false;
        while seen != CLEAR && !released {
            match throttled.compare_exchange(seen, CLEAR, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => released = true,
                Err(now) => seen = now,
            }
        }
        let corked = app.join().unwrap();
        assert!(!corked || released, "lost wake-up");
    });
}

#[test]
fn doorbell_needs_both_fences() {
    fences_are_needed(|fences| {
        const AWAKE: u32 = 0;
        const SLEEPING: u32 = 1;
        let work = Arc::new(AtomicU32::new(0));
        let door = Arc::new(AtomicU32::new(AWAKE));
        let (published, word) = (work.clone(), door.clone());
        let app = thread::spawn(move || {
            published.store(1, Ordering::Release);
            fences.app();
            word.load(Ordering::Relaxed) == SLEEPING
                && word.compare_exchange(SLEEPING, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        door.store(SLEEPING, Ordering::Relaxed);
        fences.shard();
        let sleeps = work.load(Ordering::Acquire) == 0;
        let woken = app.join().unwrap();
        assert!(!sleeps || woken, "the shard sleeps over published work");
    });
}

/// Write space, received data, the end of a stream and answers all wait like this.
#[test]
fn space_needs_both_fences() {
    fences_are_needed(|fences| {
        const AWAKE: u32 = 0;
        const WAITING: u32 = 1;
        let sent = Arc::new(AtomicU64::new(0));
        let nospace = Arc::new(AtomicU32::new(AWAKE));
        let (position, word) = (sent.clone(), nospace.clone());
        let app = thread::spawn(move || {
            word.store(WAITING, Ordering::Relaxed);
            fences.app();
            if position.load(Ordering::Acquire) == 1 {
                word.store(AWAKE, Ordering::Relaxed);
                return false;
            }
            true
        });
        sent.store(1, Ordering::Release);
        fences.shard();
        let woken = nospace.load(Ordering::Relaxed) == WAITING
            && nospace.compare_exchange(WAITING, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let sleeps = app.join().unwrap();
        assert!(!sleeps || woken, "the writer sleeps with space at hand");
    });
}

#[test]
fn window_needs_both_fences() {
    fences_are_needed(|fences| {
        const OPEN: u32 = 0;
        const SHUT: u32 = 1;
        let consumed = Arc::new(AtomicU64::new(0));
        let window = Arc::new(AtomicU32::new(OPEN));
        let (count, shut) = (consumed.clone(), window.clone());
        let app = thread::spawn(move || {
            count.store(1, Ordering::Release);
            fences.app();
            shut.load(Ordering::Relaxed) == SHUT
                && shut.compare_exchange(SHUT, OPEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        window.store(SHUT, Ordering::Relaxed);
        fences.shard();
        let stays_shut = consumed.load(Ordering::Acquire) == 0;
        let rings = app.join().unwrap();
        assert!(!stays_shut || rings, "nobody opens the window");
    });
}

/// The queue is reduced to one slot, taken by an exchange.
#[test]
fn desk_needs_both_fences() {
    fences_are_needed(|fences| {
        const STAFFED: u32 = 0;
        const GONE: u32 = 1;
        let queue = Arc::new(AtomicU32::new(0));
        let desk = Arc::new(AtomicU32::new(STAFFED));
        let (slot, state) = (queue.clone(), desk.clone());
        let app = thread::spawn(move || {
            slot.store(1, Ordering::Release);
            fences.app();
            state.load(Ordering::Relaxed) == GONE
        });
        desk.store(GONE, Ordering::Relaxed);
        fences.shard();
        let cleared_by_desk = queue.load(Ordering::Acquire) == 1;
        let cleared_by_caller = app.join().unwrap();
        assert!(cleared_by_desk || cleared_by_caller, "the command lies there for ever");
    });
}
