//! What one shard has for another: a flow placed by its SYN-ACK, a stray acknowledgement, an ICMP error.
//!
//! A ring for each pair of shards, and the taker's bell. Nothing is lost in it unseen: a full ring, or a taker
//! that is gone, gives the item back; a giver that goes, also by a panic, shows what it had handed over, and
//! rings.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | spsc (A) | [`Giver::ring`], what was handed over | store `Release` | spsc (B) |
//! | spsc (B) | [`Taker::take`] | load `Acquire` | spsc (A) |
//! | doorbell (A) | [`Giver::ring`], after the items were shown | `fence(SeqCst)` | doorbell (B) |
//! | doorbell (B) | the taking shard's park, before its last look | `fence(SeqCst)` | doorbell (A) |
//!
//! All orders are those of [`spsc`] and [`doorbell`](crate::doorbell).

use crate::doorbell::{Ringer, Rung};
use crate::spsc::{self, Consumer, Producer};

/// Why an item was not taken; it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// The taker has not kept up.
    Full(T),
    /// The taking shard has ended.
    ShardDead(T),
}

/// The half of the shard that hands over.
pub struct Giver<T: Send> {
    ring: Producer<T>,
    /// Declared after the ring, whose drop shows what was not shown yet, and says that the giver is gone.
    bell: LastRing,
}

/// Rings once more when it is dropped: the taker may sleep, and should learn that its giver is gone.
struct LastRing(Ringer);

impl Drop for LastRing {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// The half of the shard that takes.
pub struct Taker<T: Send>(Consumer<T>);

/// A ring for at most `capacity` items, whose arrivals ring the taker's `bell`.
///
/// # Panics
/// As [`spsc::ring`].
pub fn channel<T: Send>(capacity: usize, bell: Ringer) -> (Giver<T>, Taker<T>) {
    let (producer, consumer) = spsc::ring(capacity);
    (Giver { ring: producer, bell: LastRing(bell) }, Taker(consumer))
}

impl<T: Send> Giver<T> {
    /// Hands an item over. It is shown, with all others of this turn, by [`ring`](Self::ring).
    ///
    /// # Errors
    /// [`Refused`], with the item.
    #[inline]
    pub fn hand_over(&mut self, item: T) -> Result<(), Refused<T>> {
        if self.ring.is_abandoned() {
            return Err(Refused::ShardDead(item));
        }
        self.ring.stage(item).map_err(Refused::Full)
    }

    /// Shows what was handed over and rings, once a turn. `None` when there was nothing.
    #[inline]
    pub fn ring(&mut self) -> Option<Rung> {
        if self.ring.staged() == 0 {
            return None;
        }
        self.ring.publish();
        Some(self.bell.0.ring())
    }

    /// Once the taker is gone: the oldest item that it left. `None` when there is none, and as long as it
    /// lives.
    pub fn take_back(&mut self) -> Option<T> {
        self.ring.take_back()
    }
}

impl<T: Send> Taker<T> {
    /// The oldest item.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Whether nothing waits: part of the shard's last look before it sleeps.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.0.is_empty()
    }

    /// Whether the giver is gone and everything it left has been taken.
    pub fn is_finished(&mut self) -> bool {
        self.0.is_finished()
    }
}
