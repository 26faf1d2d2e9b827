//! Commands for a shard, from any number of threads, and the answers.
//!
//! A command goes through a bounded queue into the shard's [`Desk`], and the bell is rung. A command that
//! wants an answer carries an [`Answerer`], whose [`Pending`] half waits. Not the data path: a request
//! allocates its slot.
//!
//! Nobody waits for an answer that cannot come. An answerer dropped without answering says so; a desk that is
//! dropped, also by a panic, drops all that lies on it; and a caller whose command landed on a desk that was
//! just being dropped finds out and clears it away itself. The last is store buffering: push, *then* look
//! whether the desk is gone; mark it gone, *then* clear it.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Caller::call`], between the push and GONE | `fence(SeqCst)` | (B) |
//! | (B) | [`Desk`]'s drop, between GONE and clearing | `fence(SeqCst)` | (A) |
//! | (C) | [`Answerer::answer`] | compare-and-swap `Release` | (D) |
//! | (D) | [`Pending::wait`], before the answer is taken | load `Acquire` | (C) |
//!
//! The queue's own orders are crossbeam's (`ArrayQueue`); the bell's are in [`doorbell`](crate::doorbell),
//! the sleep's in `wait.rs`.

use std::time::Instant;

use crate::doorbell::Ringer;
use crate::sync::{Arc, ArrayQueue, AtomicU32, CachePadded, Ordering, UnsafeCell, fence};
use crate::wait::{self, Sleeper, Waker};

/// The shard serves.
const STAFFED: u32 = 0;
/// The desk has been dropped.
const DESK_GONE: u32 = 1;

struct Office<C> {
    queue: ArrayQueue<C>,
    desk: CachePadded<AtomicU32>,
}

impl<C> Office<C> {
    /// Drops every command that lies here. Their answerers say that no answer will come.
    fn clear(&self) {
        while self.queue.pop().is_some() {}
    }
}

/// Why a command was not taken; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<C> {
    /// As many commands as the queue holds are waiting already.
    Full(C),
    /// The shard has ended.
    ShardDead(C),
}

/// The application's half; every handle of the shard holds a clone.
pub struct Caller<C: Send> {
    office: Arc<Office<C>>,
    bell: Ringer,
}

/// The shard's half.
pub struct Desk<C: Send>(Arc<Office<C>>);

/// A queue for at most `capacity` commands, whose arrivals ring `bell`.
///
/// # Panics
/// When `capacity` is zero.
pub fn channel<C: Send>(capacity: usize, bell: Ringer) -> (Caller<C>, Desk<C>) {
    let office = Arc::new(Office {
        queue: ArrayQueue::new(capacity),
        desk: CachePadded::new(AtomicU32::new(STAFFED)),
    });
    (Caller { office: office.clone(), bell }, Desk(office))
}

impl<C: Send> Clone for Caller<C> {
    fn clone(&self) -> Self {
        Self { office: self.office.clone(), bell: self.bell.clone() }
    }
}

impl<C: Send> Caller<C> {
    /// Hands a command to the shard and rings.
    ///
    /// # Errors
    /// [`Refused`], with the command, when the queue is full or the shard has ended. A shard that ends
    /// after this returns drops the command.
    pub fn call(&self, command: C) -> Result<(), Refused<C>> {
        let Office { queue, desk } = &*self.office;
        if desk.load(Ordering::Relaxed) == DESK_GONE {
            return Err(Refused::ShardDead(command));
        }
        queue.push(command).map_err(Refused::Full)?;
        fence(Ordering::SeqCst); // (A), pairs with (B)
        if desk.load(Ordering::Relaxed) == DESK_GONE {
            self.office.clear();
            return Ok(());
        }
        self.bell.ring();
        Ok(())
    }
}

impl<C: Send> Desk<C> {
    /// The oldest command.
    pub fn take(&mut self) -> Option<C> {
        self.0.queue.pop()
    }

    /// Whether no command waits: part of the shard's last look before it sleeps.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }
}

impl<C: Send> Drop for Desk<C> {
    fn drop(&mut self) {
        self.0.desk.store(DESK_GONE, Ordering::Relaxed);
        fence(Ordering::SeqCst); // (B), pairs with (A)
        self.0.clear();
    }
}

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
        // (C), pairs with (D). An asker that went before this never touched the cell: nothing to acquire from
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
    // (D), pairs with (C)
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
