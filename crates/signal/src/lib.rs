//! Every protocol by which threads of xsend speak to each other, and the only crate that names an atomic.
//!
//! An application thread and its shard share no lock. What crosses between them is the list below and nothing
//! else; each entry is one small type in a file of its own, split into two halves, and a half has one owner.
//! No operation on the data path locks, allocates, or makes a system call, except to wake somebody who
//! sleeps.
//!
//! # What breaks without it
//!
//! Letters are those of the file. `A/B` means: the operation lettered (A) pairs with the one lettered (B).
//!
//! | edge | file | pairs | without it |
//! |---|---|---|---|
//! | items shown to the consumer | [`spsc`] | A/B | the consumer takes a slot whose contents have not arrived: a frame number from the last lap, owned twice |
//! | slots given back to the producer | [`spsc`] | C/D | the producer overwrites an item that is still being read out |
//! | a half is gone | [`spsc`] | E/F | what it left behind is missed, or taken while it is still at it: frames lost, or owned twice |
//! | bytes appended, then sealed | [`tail`] | A/B | a segment leaves with a length and checksum for bytes that are not in the frame yet: the peer drops it |
//! | writer gone, frame lent again | [`tail`] | C/D | a slow writer scribbles into a frame that carries somebody else's payload |
//! | autocork against completion | [`cork`] | A/B | both sides rely on the other: a small write waits for the peer's delayed ACK, 40 ms |
//! | what was corked | [`cork`] | C/D | the completion releases the cork and does not find the bytes behind it |
//! | doorbell against park | [`doorbell`] | A/B | a write lies before a sleeping shard until some timer or packet wakes it |
//! | ready marks | [`ready`] | A/B | the shard takes the mark, and does not find the frames |
//! | progress counters | [`space`] | A/B | a writer sees an acknowledgement but not the frames lent after it, or acknowledges beyond what was sent |
//! | wait for space against notify | [`space`] | wait A/B | the writer sleeps with space at hand: the transfer stops |
//! | wait for data against delivery | [`inbox`] | wait A/B | the reader sleeps with bytes at hand |
//! | consumed against a shut window | [`inbox`] | A/B | reader and shard each rely on the other: the window stays shut until the peer probes |
//! | consumed count | [`inbox`] | C/D | the shard opens the window for frames that have not come back yet |
//! | command against the shard's end | [`request`] | A/B | a command lands on a desk that nobody clears: its asker waits for ever |
//! | the answer | [`request`] | C/D | the asker takes an answer that has not arrived |
//! | state of a stream | [`life`] | A/B | the reader sees the end of the stream before its last bytes, and loses them |
//! | end of a stream against any wait | [`life`] | wait A/B | a thread sleeps past an error, a close, or the death of its shard |
//! | words of a snapshot | [`snapshot`] | B/C | a version promises words that are not there yet |
//! | torn snapshots | [`snapshot`] | A/D | half of one value is read together with half of the next, as one |
//!
//! # Store buffering
//!
//! Five of these edges (`cork A/B`, `doorbell A/B`, `inbox A/B`, `request A/B` and `wait A/B`, the last under
//! [`space`], [`inbox`], [`life`] and answers alike) have the same shape: each side stores one word, then
//! loads the word that the other stores. Every processor, x86 among them, may perform such a load before the
//! store has left its store buffer, so both may read the old value and conclude that the other will act.
//! Release and Acquire do not forbid it. A full fence between store and load does, if **both** sides have
//! one.
//!
//! So accesses here are as weak as is right, and where store buffering must be excluded there is an explicit
//! `fence(SeqCst)`. No access is SeqCst: the fence stands where the reader should look, and it is the form
//! that loom models. In some places the fence follows a locked instruction, and would be redundant on x86 for
//! that reason; each is on a path where one instruction more is not felt, and is needed elsewhere.
//!
//! # Waiting
//!
//! Application threads sleep on a parker, with deadlines; a shard sleeps in `poll(2)`, and its bell wakes it
//! through [`doorbell::Wake`]. Waiters of a stream are made from its [`life::Owner`], so that there is none
//! the end of the stream would not wake. A shard that ends, also by a panic, drops its halves, and each of
//! them says so: a ring that it is abandoned, a life that the shard is dead, an answerer that no answer will
//! come, a desk by clearing itself.
//!
//! # Model checking
//!
//! `sync.rs` is the one switch between the machine's atomics and loom's. The models of each edge run with
//! `RUSTFLAGS='--cfg loom' cargo test -p xsend-signal --release --lib loom`; beside each store-buffering edge
//! stands a copy of the protocol whose fences can be left out, and loom must find the fault in it.

mod sync;
mod wait;

pub mod cork;
pub mod doorbell;
pub mod inbox;
pub mod life;
pub mod ready;
pub mod request;
pub mod snapshot;
pub mod space;
pub mod spsc;
pub mod tail;

pub use wait::{Notified, Waited};

/// A full barrier: every store before it is visible before any load after it is done.
///
/// (P) For what is shared with the kernel instead of with another thread: a ring's producer index is stored, then its need-wakeup flag is
/// loaded; the kernel sets the flag, then looks at the index again. Without a StoreLoad barrier on this side both may see the old
/// value, and the frames wait for a kick that never comes.
#[inline]
pub fn store_load_fence() {
    sync::fence(sync::Ordering::SeqCst); // (P), pairs with the kernel's
}

#[cfg(test)]
#[cfg(loom)]
mod loom_models;
#[cfg(test)]
#[cfg(not(loom))]
mod stress;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
