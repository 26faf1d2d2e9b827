//! Connections that peers have opened, on their way from the shards to whoever accepts them.
//!
//! Any shard may have one to [offer](Offerer::offer); one listener [accepts](Acceptor::accept). The queue is
//! bounded, which is the listener's backlog. What lies in it when the listener goes is dropped, also what is
//! offered at that very moment (`bounded.rs`); when the last shard goes, the listener finds what was offered
//! before, and then the end.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Offerer`]'s drop, one offerer less | fetch-sub `Release` | (B) |
//! | (B) | [`Acceptor::accept`], the number of offerers, before the last look | load `Acquire` | (A) |
//! | wait (A) | [`Acceptor::accept`] | `fence(SeqCst)` | wait (B) |
//! | wait (B) | [`Offerer::offer`], and its drop | `fence(SeqCst)` | wait (A) |
//! | bounded (A) | [`Offerer::offer`], between the push and GONE | `fence(SeqCst)` | bounded (B) |
//! | bounded (B) | [`Acceptor`]'s drop, between GONE and clearing | `fence(SeqCst)` | bounded (A) |

use std::time::Instant;

use crate::bounded::{self, NotSent, Receiver, Sender, Sent};
use crate::sync::{Arc, AtomicU32, CachePadded, Ordering};
use crate::wait::{self, Sleeper, Waker};

/// Why an offer was not taken; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// The backlog is full: the peer will try again.
    Full(T),
    /// Nobody listens any more.
    ListenerGone(T),
}

/// How a wait for a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Accepted<T> {
    /// Here is one.
    Ready(T),
    /// The deadline passed first.
    TimedOut,
    /// Every shard has ended: none will come any more.
    ShardsDead,
}

/// A shard's half; each shard holds a clone.
pub struct Offerer<T: Send> {
    sender: Sender<T>,
    waker: Waker,
    offerers: Arc<CachePadded<AtomicU32>>,
}

/// The listener's half.
pub struct Acceptor<T: Send> {
    receiver: Receiver<T>,
    sleeper: Sleeper,
    offerers: Arc<CachePadded<AtomicU32>>,
}

/// A backlog of at most `capacity` connections.
///
/// # Panics
/// When `capacity` is zero.
pub fn channel<T: Send>(capacity: usize) -> (Offerer<T>, Acceptor<T>) {
    let (sender, receiver) = bounded::channel(capacity);
    let (sleeper, waker) = wait::pair();
    let offerers = Arc::new(CachePadded::new(AtomicU32::new(1)));
    (Offerer { sender, waker, offerers: offerers.clone() }, Acceptor { receiver, sleeper, offerers })
}

impl<T: Send> Clone for Offerer<T> {
    fn clone(&self) -> Self {
        // Relaxed: who clones holds one, so that the count cannot come to nothing meanwhile.
        self.offerers.fetch_add(1, Ordering::Relaxed);
        Self { sender: self.sender.clone(), waker: self.waker.clone(), offerers: self.offerers.clone() }
    }
}

impl<T: Send> Offerer<T> {
    /// Puts a connection into the backlog and wakes the listener if it waits.
    ///
    /// # Errors
    /// [`Refused`], with the connection. A listener that goes after this returns drops it.
    pub fn offer(&self, connection: T) -> Result<(), Refused<T>> {
        match self.sender.send(connection) {
            Ok(Sent::Waiting) => {
                self.waker.notify();
                Ok(())
            }
            Ok(Sent::Dropped) => Ok(()),
            Err(NotSent::Full(connection)) => Err(Refused::Full(connection)),
            Err(NotSent::Gone(connection)) => Err(Refused::ListenerGone(connection)),
        }
    }
}

impl<T: Send> Drop for Offerer<T> {
    fn drop(&mut self) {
        self.offerers.fetch_sub(1, Ordering::Release); // (A), pairs with (B)
        self.waker.notify();
    }
}

impl<T: Send> Acceptor<T> {
    /// Sleeps until a connection is there, or none can come any more, or the deadline passes (`None`: no
    /// deadline).
    pub fn accept(&mut self, deadline: Option<Instant>) -> Accepted<T> {
        let Self { receiver, sleeper, offerers } = self;
        sleeper.wait(deadline, || look(receiver, offerers)).unwrap_or(Accepted::TimedOut)
    }

    /// The oldest connection, or the end; `None` while one may still come.
    pub fn try_accept(&mut self) -> Option<Accepted<T>> {
        look(&mut self.receiver, &self.offerers)
    }
}

fn look<T: Send>(receiver: &mut Receiver<T>, offerers: &AtomicU32) -> Option<Accepted<T>> {
    // The number first: what its last offerer left is then seen.
    let left = offerers.load(Ordering::Acquire); // (B), pairs with (A)
    match receiver.take() {
        Some(connection) => Some(Accepted::Ready(connection)),
        None if left == 0 => Some(Accepted::ShardsDead),
        None => None,
    }
}
