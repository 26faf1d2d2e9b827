//! The answer to a command: one slot, filled once, and a sleep until it is.
//!
//! A command that wants an answer carries an [`Answerer`], whose [`Pending`] half waits. Not the data path:
//! each slot is allocated. Nobody waits for an answer that cannot come: an answerer that is dropped without
//! answering, by a shard's panic or with the [desk](crate::desk) it lay on, says so.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Answerer::answer`] | compare-and-swap `Release` | (B) |
//! | (B) | [`Pending::wait`], before the answer is taken | load `Acquire` | (A) |
//! | wait (A) | [`Pending::wait`] | `fence(SeqCst)` | wait (B) |
//! | wait (B) | [`Answerer::answer`], and its drop | `fence(SeqCst)` | wait (A) |

use std::time::Instant;

use crate::sync::{Arc, AtomicU32, Ordering, UnsafeCell};
use crate::wait::{self, Sleeper, Waker};

/// No answer yet.
const EMPTY: u32 = 0;
/// The answer is in the slot.
const ANSWERED: u32 = 1;
/// The answerer was dropped: no answer will come.
const UNANSWERED: u32 = 2;
/// The asker is gone: nobody wants an answer.
const ABANDONED: u32 = 3;

struct Slot<A> {
    state: AtomicU32,
    /// The answerer's while EMPTY; the asker's once ANSWERED; the answerer's again once ABANDONED.
    answer: UnsafeCell<Option<A>>,
}

// SAFETY: `state` says whose `answer` is, see there; it changes hands with Release and Acquire. `A: Send`
// because the answer crosses threads; it is never shared.
unsafe impl<A: Send> Send for Slot<A> {}
// SAFETY: as above.
unsafe impl<A: Send> Sync for Slot<A> {}

/// Why a wait for an answer ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The deadline passed; the answer may still come, and may be waited for again.
    TimedOut,
    /// The shard ended, or dropped the request.
    ShardDead,
    /// The answer has been taken before.
    Taken,
}

/// The shard's half of one answer.
#[must_use = "dropping it tells the asker that no answer will come"]
pub struct Answerer<A: Send> {
    slot: Arc<Slot<A>>,
    waker: Waker,
}

/// The asker's half of one answer.
pub struct Pending<A: Send> {
    slot: Arc<Slot<A>>,
    sleeper: Sleeper,
}

/// A slot for one answer.
pub fn slot<A: Send>() -> (Answerer<A>, Pending<A>) {
    let slot = Arc::new(Slot { state: AtomicU32::new(EMPTY), answer: UnsafeCell::new(None) });
    let (sleeper, waker) = wait::pair();
    (Answerer { slot: slot.clone(), waker }, Pending { slot, sleeper })
}

impl<A: Send> Answerer<A> {
    /// Answers, and wakes the asker.
    ///
    /// # Errors
    /// The answer itself, when the asker is gone: undo what it stands for.
    pub fn answer(self, answer: A) -> Result<(), A> {
        let Slot { state, answer: cell } = &*self.slot;
        // SAFETY: EMPTY or ABANDONED, as only we leave EMPTY otherwise: either way the cell is ours.
        cell.with_mut(|cell| unsafe { *cell = Some(answer) });
        // (A), pairs with (B). An asker that went before this never touched the cell: nothing to acquire from
        // it.
        match state.compare_exchange(EMPTY, ANSWERED, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                self.waker.notify();
                Ok(())
            }
            Err(_) => {
                // SAFETY: ABANDONED: nobody else will touch the cell.
                let answer = cell.with_mut(|cell| unsafe { (*cell).take() });
                answer.map_or(Ok(()), Err)
            }
        }
    }

    /// Whether the asker is gone already: the work can be saved.
    pub fn is_abandoned(&self) -> bool {
        self.slot.state.load(Ordering::Relaxed) == ABANDONED
    }
}

impl<A: Send> Drop for Answerer<A> {
    fn drop(&mut self) {
        // After an answer, or after the asker's end, this changes nothing. Relaxed: no answer carries nothing.
        let unanswered =
            self.slot.state.compare_exchange(EMPTY, UNANSWERED, Ordering::Relaxed, Ordering::Relaxed);
        if unanswered.is_ok() {
            self.waker.notify();
        }
    }
}

impl<A: Send> Pending<A> {
    /// Sleeps until the answer is there, or cannot come any more, or the deadline passes.
    ///
    /// # Errors
    /// [`NoAnswer`] says why there is none.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<A, NoAnswer> {
        let Self { slot, sleeper } = self;
        sleeper.wait(deadline, || look(slot)).unwrap_or(Err(NoAnswer::TimedOut))
    }

    /// The answer, if it is there; `None` while it may still come.
    pub fn try_take(&mut self) -> Option<Result<A, NoAnswer>> {
        look(&self.slot)
    }
}

fn look<A>(slot: &Slot<A>) -> Option<Result<A, NoAnswer>> {
    // (B), pairs with (A)
    match slot.state.load(Ordering::Acquire) {
        ANSWERED => {
            // SAFETY: once ANSWERED the cell is the asker's, whose only half calls this.
            let answer = slot.answer.with_mut(|cell| unsafe { (*cell).take() });
            Some(answer.ok_or(NoAnswer::Taken))
        }
        UNANSWERED => Some(Err(NoAnswer::ShardDead)),
        _ => None,
    }
}

impl<A: Send> Drop for Pending<A> {
    fn drop(&mut self) {
        // An answer that is there is dropped with the slot, by whoever lets go last.
        let _ = self.slot.state.compare_exchange(EMPTY, ABANDONED, Ordering::Relaxed, Ordering::Relaxed);
    }
}
