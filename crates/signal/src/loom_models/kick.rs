//! The kernel's side of a ring: what a driver does with it, reduced to its indices and the flag.

use super::*;
use crate::kick::{Wakeup, after_submit};
use crate::sync::fence;

/// When a driver sets the need-wakeup flag.
#[derive(Clone, Copy)]
enum Habit {
    /// Before its last look at the ring, with a barrier between.
    FlagThenLook,
    /// After it.
    LookThenFlag,
}

struct Ring {
    producer: AtomicU32,
    consumer: AtomicU32,
    need_wakeup: AtomicU32,
    descriptor: UnsafeCell<u32>,
}

// SAFETY: loom checks that the descriptor's accesses do not race.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(0),
            consumer: AtomicU32::new(0),
            need_wakeup: AtomicU32::new(0),
            descriptor: UnsafeCell::new(0),
        })
    }

    /// One frame, whole before its index.
    fn submit(&self) {
        // SAFETY: the slot is the producer's until the index is stored.
        self.descriptor.with_mut(|slot| unsafe { *slot = 7 });
        self.producer.store(1, Ordering::Release);
    }

    fn flag(&self) -> bool {
        self.need_wakeup.load(Ordering::Relaxed) == 1
    }

    /// Frames submitted and not taken, as the consumer's index has it.
    fn waiting(&self) -> bool {
        self.consumer.load(Ordering::Acquire) == 0
    }

    /// The driver looks, and takes the frame if it is there.
    fn look(&self) -> bool {
        if self.producer.load(Ordering::Acquire) == 0 {
            return false;
        }
        // SAFETY: the index says that the slot is the consumer's.
        assert_eq!(self.descriptor.with(|slot| unsafe { *slot }), 7, "a descriptor that has not arrived");
        self.consumer.store(1, Ordering::Release);
        true
    }

    /// A poll of the driver's that finds nothing more to do and goes.
    fn poll_and_go(&self, habit: Habit) -> bool {
        match habit {
            Habit::FlagThenLook => {
                self.need_wakeup.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst); // pairs with kick (A)
                self.look()
            }
            Habit::LookThenFlag => {
                let took = self.look();
                self.need_wakeup.store(1, Ordering::Relaxed);
                took
            }
        }
    }
}

#[test]
fn a_driver_that_sets_its_flag_first_finds_the_frame_or_is_kicked() {
    explore(|| {
        let ring = Ring::new();
        let kernel = ring.clone();
        let driver = thread::spawn(move || kernel.poll_and_go(Habit::FlagThenLook));
        ring.submit();
        let kicked = after_submit(|| ring.flag()) == Wakeup::Needed;
        let took = driver.join().unwrap();
        assert!(took || kicked, "lost wake-up: a frame lies in the ring of a driver that has gone");
    });
}

/// No barrier helps against this habit: it is what the tail timer is for.
#[test]
#[should_panic(expected = "lost wake-up")]
fn a_driver_that_sets_its_flag_last_can_be_missed() {
    explore(|| {
        let ring = Ring::new();
        let kernel = ring.clone();
        let driver = thread::spawn(move || kernel.poll_and_go(Habit::LookThenFlag));
        ring.submit();
        let kicked = after_submit(|| ring.flag()) == Wakeup::Needed;
        let took = driver.join().unwrap();
        assert!(took || kicked, "lost wake-up: a frame lies in the ring of a driver that has gone");
    });
}

/// The timer comes at any time after the flag was found down, and kicks whatever the flag says by then.
#[test]
fn the_tail_timer_rescues_a_frame_from_either_habit() {
    for habit in [Habit::FlagThenLook, Habit::LookThenFlag] {
        explore(move || {
            let ring = Ring::new();
            let kernel = ring.clone();
            let driver = thread::spawn(move || kernel.poll_and_go(habit));
            ring.submit();
            let mut kicked = after_submit(|| ring.flag()) == Wakeup::Needed;
            if !kicked {
                kicked = ring.waiting();
            }
            let took = driver.join().unwrap();
            assert!(took || kicked, "the tail timer found nothing waiting, and nobody has taken the frame");
        });
    }
}
