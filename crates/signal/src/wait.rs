//! Going to sleep without missing the reason to wake: the edge below every wait of an application thread.
//!
//! A [`Sleeper`] and its [`Waker`]s share one word. The sleeper announces itself, *then* looks once more for
//! what it waits for, then sleeps; the waker publishes, *then* looks whether anybody has announced himself.
//! Each side stores one word and loads the other's: store buffering. Without a full fence between the two on
//! **both** sides, each may read the value from before the other's store, and the sleeper sleeps past the
//! event.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Sleeper::wait`], between announcing and looking | `fence(SeqCst)` | (B) |
//! | (B) | [`Waker::notify`], between what was published and looking | `fence(SeqCst)` | (A) |

use std::time::Instant;

use crate::life::State;
use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, Parker, Unparker, fence};

/// Nobody sleeps on this word, or whoever does has been woken.
const AWAKE: u32 = 0;
/// The sleeper sleeps, or will unless its last look finds something.
const WAITING: u32 = 1;

/// How a wait for write space or for received data ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Waited {
    /// What was waited for is there.
    Ready,
    /// The deadline passed first.
    TimedOut,
    /// It can no longer come: the stream is over, or over in this direction, in this state.
    Ended(State),
}

/// What a notification did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// A sleeper was there and has been woken (a system call).
    Woke,
    /// Nobody was waiting.
    Quiet,
}

/// The half that sleeps; it belongs to one application thread at a time.
pub(crate) struct Sleeper {
    word: Arc<CachePadded<AtomicU32>>,
    parker: Parker,
}

/// The half that wakes. Clones are for the several events that may end one sleep.
#[derive(Clone)]
pub(crate) struct Waker {
    word: Arc<CachePadded<AtomicU32>>,
    unparker: Unparker,
}

/// The two halves of one wait.
pub(crate) fn pair() -> (Sleeper, Waker) {
    let word = Arc::new(CachePadded::new(AtomicU32::new(AWAKE)));
    let parker = Parker::new();
    let unparker = parker.unparker().clone();
    (Sleeper { word: word.clone(), parker }, Waker { word, unparker })
}

impl Sleeper {
    /// Sleeps until `look` finds something or the deadline passes (`None`: no deadline).
    ///
    /// `look` runs at least once, also after the deadline, and may run any number of times.
    pub(crate) fn wait<R>(
        &mut self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        // The cheap look: most waits find that the event has already come.
        if let Some(found) = look() {
            return Some(found);
        }
        loop {
            self.word.store(WAITING, Ordering::Relaxed);
            fence(Ordering::SeqCst); // (A), pairs with (B)
            if let Some(found) = look() {
                self.word.store(AWAKE, Ordering::Relaxed);
                return Some(found);
            }
            match deadline {
                None => self.parker.park(),
                Some(at) => {
                    self.parker.park_deadline(at);
                    if Instant::now() >= at {
                        self.word.store(AWAKE, Ordering::Relaxed);
                        return look();
                    }
                }
            }
            // Woken, or an unpark of an earlier wait came late: announce and look again.
        }
    }
}

impl Waker {
    /// Wakes the sleeper if there is one. Call it after whatever its `look` reads has been stored.
    #[inline]
    pub(crate) fn notify(&self) -> Notified {
        fence(Ordering::SeqCst); // (B), pairs with (A)
        if self.word.load(Ordering::Relaxed) == AWAKE {
            return Notified::Quiet;
        }
        self.wake()
    }

    #[cold]
    fn wake(&self) -> Notified {
        // A compare-and-swap: of several wakers one pays for the system call, and an announcement that was
        // taken down meanwhile is left alone, so that this never stores over the next one.
        if self.word.compare_exchange(WAITING, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Notified::Quiet;
        }
        self.unparker.unpark();
        Notified::Woke
    }
}
