//! A bounded queue from several threads to one that may end, below [`desk`](crate::desk) and
//! [`backlog`](crate::backlog).
//!
//! Nothing is left in the queue of a receiver that is gone (unless dropping one item panics: then those behind
//! it stay until the last sender goes). The receiver marks itself gone, *then* clears the
//! queue; a sender pushes, *then* looks whether the receiver is gone, and clears the queue itself if it is.
//! That is store buffering: without a full fence on **both** sides the sender may miss the mark and the
//! receiver the item, and whoever waits for what the item stands for waits for ever.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Sender::send`], between the push and GONE | `fence(SeqCst)` | (B) |
//! | (B) | [`Receiver`]'s drop, between GONE and clearing | `fence(SeqCst)` | (A) |
//!
//! The queue's own orders are crossbeam's (`ArrayQueue`). Waking the receiver is the caller's.

use crate::sync::{Arc, ArrayQueue, AtomicU32, CachePadded, Ordering, fence};

/// The receiver serves.
const SERVING: u32 = 0;
/// The receiver has been dropped.
const GONE: u32 = 1;

struct Shared<T> {
    queue: ArrayQueue<T>,
    receiver: CachePadded<AtomicU32>,
}

impl<T> Shared<T> {
    /// Drops everything that lies here.
    fn clear(&self) {
        while self.queue.pop().is_some() {}
    }
}

/// Why an item was not taken; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent<T> {
    Full(T),
    Gone(T),
}

/// What became of an item that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    /// It lies there: wake the receiver.
    Waiting,
    /// The receiver ended meanwhile, and everything was dropped.
    Dropped,
}

pub(crate) struct Sender<T: Send>(Arc<Shared<T>>);

pub(crate) struct Receiver<T: Send>(Arc<Shared<T>>);

/// A queue for at most `capacity` items.
///
/// # Panics
/// When `capacity` is zero.
pub(crate) fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(capacity),
        receiver: CachePadded::new(AtomicU32::new(SERVING)),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T: Send> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send> Sender<T> {
    pub(crate) fn send(&self, item: T) -> Result<Sent, NotSent<T>> {
        let Shared { queue, receiver } = &*self.0;
        if receiver.load(Ordering::Relaxed) == GONE {
            return Err(NotSent::Gone(item));
        }
        queue.push(item).map_err(NotSent::Full)?;
        fence(Ordering::SeqCst); // (A), pairs with (B)
        if receiver.load(Ordering::Relaxed) == GONE {
            self.0.clear();
            return Ok(Sent::Dropped);
        }
        Ok(Sent::Waiting)
    }
}

impl<T: Send> Receiver<T> {
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.queue.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver.store(GONE, Ordering::Relaxed);
        fence(Ordering::SeqCst); // (B), pairs with (A)
        self.0.clear();
    }
}
