//! Every protocol by which threads of xsend speak to each other, and the only crate that names an atomic.
//!
//! An application thread and its shard share no lock. What crosses between them is the list below and nothing
//! else; each entry is one small type in a file of its own, split into two halves, and a half has one owner.
//! No operation on the data path locks, allocates, or makes a system call, except to wake somebody who
//! sleeps.
//!
//! # The table
//!
//! Letters are those of the file, and the code carries nothing but letters: `cork A/B` means that the
//! operation marked `(A)` in `cork.rs` pairs with the one marked `(B)`. *Fences* means that this is store
//! buffering, see below; all other pairs are Release and Acquire.
//!
//! | edge | pairs | | without it |
//! |---|---|---|---|
//! | frames lent -> app | [`lend`] A/B | | the app claims a frame number from the last lap: a frame owned twice |
//! | frames lent: slots reused | [`lend`] C/D | | the shard writes over a token that is still being read out |
//! | frames filled -> shard; frames read -> shard | [`spsc`] A/B | | the shard takes a slot whose contents have not arrived |
//! | the same: slots reused | [`spsc`] C/D | | the producer overwrites an item that is still being read out |
//! | the same: a half is gone | [`spsc`] E/F | | what it left behind is missed, or taken while it is still at it: frames lost, or owned twice |
//! | bytes appended, then sealed | [`tail`] A/B | | a segment leaves with a length and checksum for bytes that are not in the frame yet: the peer drops it |
//! | writer gone, frame lent again | [`pin`] A/B | | a slow writer scribbles into a frame that carries somebody else's payload |
//! | bytes settled, then read | [`pin`] C/B | | bytes are read that are still being stored |
//! | bytes settled, then read while the frame grows | [`pin`] C/B | | bytes are read that are still being stored |
//! | autocork against completion | [`cork`] A/B | fences | both sides rely on the other: a small write waits for the peer's delayed ACK, 40 ms |
//! | what was corked | [`cork`] C/D | | the completion releases the cork and does not find the bytes behind it |
//! | doorbell against park | [`doorbell`] A/B | fences | a write lies before a sleeping shard until some timer or packet wakes it |
//! | ready marks | [`ready`] A/B | | the shard takes the mark, and does not find the frames |
//! | write space: positions | [`space`] A/B | | a writer sees an acknowledgement but not the frames lent after it, or acknowledges beyond what was sent |
//! | any wait of an app against its event | `wait` A/B | fences | the app sleeps with space, bytes, a connection or an answer at hand, or past the end of its stream |
//! | received bytes -> app | [`inbox`], by `spsc` A/B | | as above |
//! | consumed against a shut window | [`inbox`] A/B | fences | reader and shard each rely on the other: the window stays shut until the peer probes |
//! | consumed count | [`inbox`] C/D | | the shard opens the window for frames that have not come back yet |
//! | connect, options, close, abort -> shard | [`desk`], by `bounded` A/B | fences | a command lands on a desk that nobody clears: its asker waits for ever |
//! | their answers | [`answer`] A/B | | the asker takes an answer that has not arrived |
//! | accepted connections -> listener | [`backlog`], by `bounded` A/B | fences | a connection lies where nobody will accept or reset it |
//! | the last shard of a listener | [`backlog`] A/B | | the listener sees the end before the last connections, and loses them |
//! | shard -> shard | [`handover`], by `spsc` and `doorbell` | | as above |
//! | error or death of a shard -> its streams | [`life`] A/B | | the reader sees the end of the stream before its last bytes, and loses them |
//! | statistics, routes, neighbours: the words | [`snapshot`] B/C | | a version promises words that are not there yet |
//! | the same: torn reads | [`snapshot`] A/D | | half of one value is read together with half of the next, as one |
//! | rings against the kernel's need-wakeup flag | [`kick`] A | fence | frames lie in the ring until the tail timer |
//!
//! # Store buffering
//!
//! The edges marked *fences* have the same shape: each side stores one word, then loads the word that the
//! other stores. Every processor, x86 among them, may perform such a load before the store has left its store
//! buffer, so both may read the old value and conclude that the other will act. Release and Acquire do not
//! forbid it. A full fence between store and load does, if **both** sides have one.
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
//! come, a desk and a backlog by clearing themselves.
//!
//! # Model checking
//!
//! `sync.rs` is the one switch between the machine's atomics and loom's. `scripts/loom.sh` explores the models
//! of each edge and of their composition; `scripts/loom.sh --mutants` weakens each fence and each ordering of
//! this crate in turn, and loom must find the fault. `docs/memory-ordering.md` has the verdicts.

mod bounded;
mod slots;
mod sync;
mod wait;

pub mod answer;
pub mod backlog;
pub mod cork;
pub mod desk;
pub mod doorbell;
pub mod handover;
pub mod inbox;
pub mod kick;
pub mod lend;
pub mod life;
pub mod pin;
pub mod ready;
pub mod snapshot;
pub mod space;
pub mod spsc;
pub mod tail;

pub use wait::{Notified, Waited};

#[cfg(test)]
#[cfg(loom)]
mod loom_models;
#[cfg(test)]
mod oracle;
#[cfg(test)]
#[cfg(not(loom))]
mod stress;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
