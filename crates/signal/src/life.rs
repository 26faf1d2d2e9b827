//! Whether a stream lives: one word, written by its shard, that ends every wait.
//!
//! The shard holds the [`Owner`]; the application holds a [`Watch`] and any number of [`View`]s. Every waiter
//! of a stream ([`space`](crate::space), [`inbox`](crate::inbox), the watch itself) is made *from* the owner,
//! which keeps a waker for each: a waiter that an error, a close or the death of the shard would not wake
//! cannot be built. An owner that is dropped before its stream is over, also by a panic, leaves
//! [`State::ShardDead`] behind and wakes them all.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Owner::set`], the new state | store `Release` | (B) |
//! | (B) | [`View::state`] | load `Acquire` | (A) |
//!
//! Whoever sees a state sees all that the shard did before it: a reader that sees [`State::PeerClosed`] finds
//! in its inbox every byte that came before the peer's FIN. The waking is the edge of `wait.rs`.

use std::time::Instant;

use crate::sync::{Arc, AtomicU32, CachePadded, Ordering};
use crate::wait::{self, Sleeper, Waker};

/// Where a stream stands, as its shard last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The handshake is under way.
    Connecting,
    /// Bytes may flow both ways.
    Open,
    /// The peer has sent FIN: nothing more will be received, writing goes on.
    PeerClosed,
    /// Over, in order: all that was written and the FIN are acknowledged, and the peer has closed too.
    Closed,
    /// Over, by an error; the code is the caller's own.
    Failed(u16),
    /// Over: the shard ended without ending the stream.
    ShardDead,
}

impl State {
    /// Nothing comes after this state.
    pub fn is_over(self) -> bool {
        matches!(self, State::Closed | State::Failed(_) | State::ShardDead)
    }

    /// Nothing will be received any more beyond what is already in the inbox.
    pub fn ends_reading(self) -> bool {
        self.is_over() || self == State::PeerClosed
    }

    /// Nothing can be written any more.
    pub fn ends_writing(self) -> bool {
        self.is_over()
    }

    fn to_word(self) -> u32 {
        match self {
            State::Connecting => 0,
            State::Open => 1,
            State::PeerClosed => 2,
            State::Closed => 3,
            State::ShardDead => 4,
            State::Failed(code) => 5 | u32::from(code) << 16,
        }
    }

    fn from_word(word: u32) -> Self {
        match word & 0xffff {
            0 => State::Connecting,
            1 => State::Open,
            2 => State::PeerClosed,
            3 => State::Closed,
            4 => State::ShardDead,
            _ => State::Failed((word >> 16) as u16),
        }
    }
}

/// What became of a state given to [`Owner::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// It is the state now, and every waiter has been woken to see it.
    Changed,
    /// It already was the state; nobody was woken.
    Unchanged,
    /// The stream was over before: the first end is the one that counts.
    AlreadyOver,
}

/// The shard's half: says where the stream stands.
pub struct Owner {
    view: View,
    state: State,
    waiters: Vec<Waker>,
}

/// The application's half that can wait for a state.
pub struct Watch {
    view: View,
    sleeper: Sleeper,
}

/// Reads the state from anywhere, without waiting.
#[derive(Clone)]
pub struct View(Arc<CachePadded<AtomicU32>>);

/// A life in its first state.
pub fn begin(state: State) -> (Owner, Watch) {
    let view = View(Arc::new(CachePadded::new(AtomicU32::new(state.to_word()))));
    let mut owner = Owner { view, state, waiters: Vec::new() };
    let watch = owner.watch();
    (owner, watch)
}

impl Owner {
    /// Another watch on this life, for another thread to wait with. Not for the data path: it
    /// allocates, and the owner keeps its waker for as long as itself.
    pub fn watch(&mut self) -> Watch {
        let (sleeper, _) = self.waiter();
        Watch { view: self.view.clone(), sleeper }
    }

    /// The state last set.
    pub fn state(&self) -> State {
        self.state
    }

    /// Moves the stream to `state` and wakes everybody who waits on it. A stream that is over stays as it
    /// ended.
    pub fn set(&mut self, state: State) -> Set {
        if self.state.is_over() {
            return Set::AlreadyOver;
        }
        if self.state == state {
            return Set::Unchanged;
        }
        self.state = state;
        self.view.0.store(state.to_word(), Ordering::Release); // (A), pairs with (B)
        for waiter in &self.waiters {
            waiter.notify();
        }
        Set::Changed
    }

    /// A view for a type that waits, or only looks.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// The halves of a wait that this life will end.
    pub(crate) fn waiter(&mut self) -> (Sleeper, Waker) {
        let (sleeper, waker) = wait::pair();
        self.waiters.push(waker.clone());
        (sleeper, waker)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Runs while a panic unwinds the shard, too. A stream that is over keeps its own end.
        self.set(State::ShardDead);
    }
}

impl View {
    /// The state, and with it all that the shard did before setting it.
    #[inline]
    pub fn state(&self) -> State {
        State::from_word(self.0.load(Ordering::Acquire)) // (B), pairs with (A)
    }
}

impl Watch {
    /// The state now.
    pub fn state(&self) -> State {
        self.view.state()
    }

    /// A view of the same life.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Sleeps until the state satisfies `until` or the stream is over, whichever comes first, and says
    /// which state that was; `None` when the deadline passed first.
    #[must_use]
    pub fn wait(&mut self, deadline: Option<Instant>, mut until: impl FnMut(State) -> bool) -> Option<State> {
        let view = &self.view;
        self.sleeper.wait(deadline, || {
            let state = view.state();
            (state.is_over() || until(state)).then_some(state)
        })
    }
}
