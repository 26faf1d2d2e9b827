//! AF_XDP sockets for xsend: the UMEM and its frames, the four rings, and the kicks that make the kernel look
//! at them.
//!
//! A *frame* is one chunk of the UMEM, and its ownership is a move-only token, [`Frame`]: whoever holds the
//! token may use the chunk's bytes through [`Umem`]. The transmit ring only *borrows* a frame
//! ([`Socket::push`] takes a reference), so a frame may be acknowledged by TCP while the kernel still reads
//! it. [`Socket::release`] then keeps the token until the kernel completes the frame, and [`Socket::reap`]
//! hands it back. The receive side *takes* tokens ([`Socket::refill`]) and gives them back filled
//! ([`Socket::receive`]). [`Ledger`] is where all of this is written down, one byte a frame.
//!
//! ```text
//!                 push / reap                        refill / receive
//!   TX ring <----- borrows ------ Frame (held) ------- moves -------> fill ring -> RX ring -> Frame (held)
//!                                   |    ^
//!                           release |    | reap, once completed
//!                                   v    |
//!                              released while in the ring
//! ```
//!
//! A thread that owns several queues of an interface opens them as [`Queues`]: one UMEM, and thus one pool of
//! frames, for all of them.
//!
//! # Memory of one chunk
//!
//! ```text
//!   0              256                    256 + header_len                    chunk_bytes
//!   | kernel's XDP | Ethernet..TCP header | payload                            |
//! ```
//!
//! A packet that does not fit goes as a chain of frames ([`Socket::push_chain`]): the first as above, its
//! payload going on at byte 256 of each further one. Received packets come in chunks likewise
//! ([`Received::more`]).
//!
//! Nothing on the data path makes a system call, takes a lock or allocates for a single frame:
//! [`Socket::submit`], [`Socket::reap`] and [`Socket::receive`] work in batches, and [`Socket::kick`] is the
//! one place that enters the kernel.

mod config;
mod error;
mod frame;
mod ledger;
pub mod link;
pub mod privilege;
mod queues;
mod socket;
mod sys;
mod tail;
mod umem;
mod wake;

pub use config::{Mode, SocketConfig};
pub use error::OpenError;
pub use frame::Frame;
pub use ledger::{Books, Completion, Ledger};
pub use queues::Queues;
pub use socket::{
    COPY_CHAIN, Counters, Facts, Health, Kick, ObtainedMode, Push, QueueCounts, Received, Socket, Statistics,
};
pub use tail::Tail;
pub use umem::{PACKET_OFFSET, Umem};
pub use wake::{Wake, WakeFd};
