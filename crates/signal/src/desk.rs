//! Commands for a shard, from any number of threads.
//!
//! A command goes through a bounded queue into the shard's [`Desk`], and the bell is rung. Not the data path.
//! A desk that is dropped, also by a panic, drops all that lies on it, and a command that arrives at that
//! very moment is dropped too (`bounded.rs`): whoever waits for its [answer](crate::answer) is told that
//! there will be none.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | bounded (A) | [`Caller::call`], between the push and GONE | `fence(SeqCst)` | bounded (B) |
//! | bounded (B) | [`Desk`]'s drop, between GONE and clearing | `fence(SeqCst)` | bounded (A) |
//!
//! The bell's orders are in [`doorbell`](crate::doorbell).

use crate::bounded::{self, NotSent, Receiver, Sender, Sent};
use crate::doorbell::Ringer;

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
    sender: Sender<C>,
    bell: Ringer,
}

/// The shard's half.
pub struct Desk<C: Send>(Receiver<C>);

/// A queue for at most `capacity` commands, whose arrivals ring `bell`.
///
/// # Panics
/// When `capacity` is zero.
pub fn channel<C: Send>(capacity: usize, bell: Ringer) -> (Caller<C>, Desk<C>) {
    let (sender, receiver) = bounded::channel(capacity);
    (Caller { sender, bell }, Desk(receiver))
}

impl<C: Send> Clone for Caller<C> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<C: Send> Caller<C> {
    /// Hands a command to the shard and rings.
    ///
    /// # Errors
    /// [`Refused`], with the command, when the queue is full or the shard has ended. A shard that ends
    /// after this returns drops the command.
    pub fn call(&self, command: C) -> Result<(), Refused<C>> {
        match self.sender.send(command) {
            Ok(Sent::Waiting) => {
                self.bell.ring();
                Ok(())
            }
            Ok(Sent::Dropped) => Ok(()),
            Err(NotSent::Full(command)) => Err(Refused::Full(command)),
            Err(NotSent::Gone(command)) => Err(Refused::ShardDead(command)),
        }
    }
}

impl<C: Send> Desk<C> {
    /// The oldest command.
    pub fn take(&mut self) -> Option<C> {
        self.0.take()
    }

    /// Whether no command waits: part of the shard's last look before it sleeps.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
