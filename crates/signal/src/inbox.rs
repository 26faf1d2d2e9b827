//! Received bytes on their way to the application, and the window's way back.
//!
//! Chunks go through a ring. The reader counts what it consumed; the shard reads that count to open the
//! window, in its own time, with one exception: when it has *shut* the window, the peer will send nothing
//! that would make the shard look again, so the reader that makes room must ring. The shard sets SHUT, *then*
//! reads consumed again; the reader stores consumed, *then* tests SHUT: store buffering, full fences on both
//! sides. So is the reader's sleep (`wait.rs`).
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Reader::consume`], between consumed and SHUT | `fence(SeqCst)` | (B) |
//! | (B) | [`Deliverer::shut`], between SHUT and consumed | `fence(SeqCst)` | (A) |
//! | (C) | [`Reader::consume`], the count | store `Release` | (D) |
//! | (D) | [`Deliverer::consumed`] | load `Acquire` | (C) |
//! | wait (A) | [`Reader::wait_data`] | `fence(SeqCst)` | wait (B) |
//! | wait (B) | [`Deliverer::notify`] | `fence(SeqCst)` | wait (A) |
//!
//! By (C) and (D), a shard that sees a count also sees the frames that the reader gave back before counting
//! them.

use std::time::Instant;

use crate::life::{Owner, View};
use crate::spsc::{self, Consumer, Producer};
use crate::sync::{Arc, AtomicU32, AtomicU64, CachePadded, Ordering, fence};
use crate::wait::{Notified, Sleeper, Waited, Waker};

/// The window is open, or the reader has already been told to ring.
const OPEN: u32 = 0;
/// The shard relies on the reader to ring when it has made room.
const SHUT: u32 = 1;

struct Window {
    /// Bytes the application has taken. Written by the reader only.
    consumed: CachePadded<AtomicU64>,
    shut: CachePadded<AtomicU32>,
}

/// What the shard finds when it shuts the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Shut {
    /// It is shut: the reader will ring when it consumes.
    Shut,
    /// The reader has consumed meanwhile; the window stays open, with this count.
    Reopened(u64),
}

/// What the reader has to do after it consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Consumed {
    /// Nothing: the shard looks by itself.
    Quiet,
    /// Ring the doorbell: the window was shut, and the peer waits for the update.
    WindowWasShut,
}

/// The shard's half.
pub struct Deliverer<T: Send> {
    ring: Producer<T>,
    window: Arc<Window>,
    waker: Waker,
}

/// The application's half.
pub struct Reader<T: Send> {
    ring: Consumer<T>,
    window: Arc<Window>,
    consumed: u64,
    sleeper: Sleeper,
    life: View,
}

/// The two halves for the stream that `life` belongs to, with room for `capacity` chunks. The life ends every
/// wait.
///
/// # Panics
/// As [`spsc::ring`].
pub fn channel<T: Send>(capacity: usize, life: &mut Owner) -> (Deliverer<T>, Reader<T>) {
    let (producer, consumer) = spsc::ring(capacity);
    let window = Arc::new(Window {
        consumed: CachePadded::new(AtomicU64::new(0)),
        shut: CachePadded::new(AtomicU32::new(OPEN)),
    });
    let (sleeper, waker) = life.waiter();
    let deliverer = Deliverer { ring: producer, window: window.clone(), waker };
    (deliverer, Reader { ring: consumer, window, consumed: 0, sleeper, life: life.view() })
}

impl<T: Send> Deliverer<T> {
    /// The ring itself: push, publish, room, take back what a vanished reader left. Notify after publishing.
    pub fn ring(&mut self) -> &mut Producer<T> {
        &mut self.ring
    }

    /// Hands over one chunk; a full ring gives it back. Then [`notify`](Self::notify), once a turn.
    #[inline]
    pub fn push(&mut self, chunk: T) -> Result<(), T> {
        self.ring.push(chunk)
    }

    /// Wakes the reader if it waits.
    #[inline]
    pub fn notify(&mut self) -> Notified {
        self.waker.notify()
    }

    /// Bytes the application has consumed since the beginning.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.window.consumed.load(Ordering::Acquire) // (D), pairs with (C)
    }

    /// Asks the reader to ring when it consumes, because the window is (all but) shut: to be called before
    /// such a window is advertised, with the count it was computed from.
    pub fn shut(&mut self, seen: u64) -> Shut {
        self.window.shut.store(SHUT, Ordering::Relaxed);
        fence(Ordering::SeqCst); // (B), pairs with (A)
        let consumed = self.consumed();
        if consumed == seen {
            return Shut::Shut;
        }
        self.window.shut.store(OPEN, Ordering::Relaxed);
        Shut::Reopened(consumed)
    }

    /// Whether the reader is gone: nobody will consume any more.
    pub fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }
}

impl<T: Send> Reader<T> {
    /// The oldest chunk.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.ring.pop()
    }

    /// Chunks waiting now.
    pub fn len(&mut self) -> usize {
        self.ring.len()
    }

    /// Whether no chunk is waiting now.
    pub fn is_empty(&mut self) -> bool {
        self.ring.is_empty()
    }

    /// Counts `bytes` as taken. Give their frames back first.
    #[inline]
    pub fn consume(&mut self, bytes: u64) -> Consumed {
        let Window { consumed, shut } = &*self.window;
        self.consumed += bytes;
        consumed.store(self.consumed, Ordering::Release); // (C), pairs with (D)
        fence(Ordering::SeqCst); // (A), pairs with (B)
        if shut.load(Ordering::Relaxed) == SHUT
            && shut.compare_exchange(SHUT, OPEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return Consumed::WindowWasShut;
        }
        Consumed::Quiet
    }

    /// Sleeps until a chunk is there, or nothing more will come, or the deadline passes. Chunks come before
    /// the end: what arrived ahead of a FIN, or of an error, can still be read.
    pub fn wait_data(&mut self, deadline: Option<Instant>) -> Waited {
        let Self { ring, sleeper, life, .. } = self;
        let look = || {
            // The state first: the chunks that came before it are then seen.
            let state = life.state();
            if !ring.is_empty() {
                Some(Waited::Ready)
            } else if state.ends_reading() {
                Some(Waited::Ended(state))
            } else {
                None
            }
        };
        sleeper.wait(deadline, look).unwrap_or(Waited::TimedOut)
    }
}
