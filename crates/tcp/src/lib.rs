//! A TCP engine that performs no I/O (sans-IO).
//!
//! A [`Connection`] is a state machine. What happened goes in through its `on_*` methods, each with the time at
//! which it happened; what is to be done comes out of its `poll_*` methods. It has no clock, no randomness and
//! no buffers of its own: the same inputs give the same outputs, to the byte. Payload is held in *frames* of a
//! type `F` chosen by the holder (a UMEM frame, a boxed slice); the engine moves frames but never looks inside.
//!
//! # The loop
//!
//! After each input, and each time the TX ring has gained room, poll in this order until nothing is left:
//!
//! 1. [`Connection::poll_transmit`]: what leaves now, a batch of consecutive data segments or one control segment;
//! 2. [`Connection::poll_received`]: payload in order, for the application;
//! 3. [`Connection::poll_event`]: changes the holder must know of, each told once;
//! 4. [`Connection::poll_freed`]: frames the engine needs no longer;
//! 5. [`Connection::poll_timeout`]: when [`Connection::on_timeout`] is due.
//!
//! ```
//! use xsend_tcp::{Config, Connection, Instant, NoRing, Seed, Transmit};
//!
//! let seed = Seed { iss: 1, timestamp_offset: 2 };
//! let now = Instant::from_millis(0);
//! let mut connection: Connection<Box<[u8]>> = Connection::connect(&Config::default(), seed, now);
//! while let Some(transmit) = connection.poll_transmit(now, 64, &NoRing) {
//!     match transmit {
//!         Transmit::Control(control) => println!("SYN: {:?}", control.header(40_000, 5001)),
//!         Transmit::Data(batch) => println!("{} segments from {}", batch.len(), batch.seq),
//!         Transmit::Split => connection.on_split(|frame, head_len, _| {
//!             let mut bytes = std::mem::take(frame).into_vec();
//!             let tail = bytes.split_off(head_len as usize);
//!             *frame = bytes.into();
//!             Some(tail.into())
//!         }),
//!     }
//! }
//! assert_eq!(connection.poll_timeout(), Some(Instant::from_millis(1000)));
//! ```
//!
//! # Units and names
//!
//! Names are those of the RFCs. The congestion window, the slow-start threshold and the pipe count *segments*,
//! as Linux counts them: one segment is one frame, one descriptor and one packet in a router's queue, whatever
//! its length. Everything else counts bytes; a unit that is neither is in the name.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod congestion;
mod connection;
mod cookie;
mod delayed_ack;
mod info;
mod isn;
mod listen;
mod pacing;
mod queue;
mod receive;
mod recovery;
mod rtt;
mod scoreboard;
mod seq;
mod time;
mod timestamps;
mod transmit;

pub use config::{Algorithm, Config, KeepAlive, Seed};
pub use connection::{Connection, Event, Outcome, State, TimeOut, TimeOutCause, TooBig, Unreachable};
pub use cookie::cookie_syn_ack;
pub use info::Info;
pub use isn::{initial_sequence, timestamp_offset};
pub(crate) use listen::is_request;
pub use listen::{Heard, listen, reset_for};
pub use time::Instant;
pub use transmit::{Batch, Control, NoRing, SegmentOut, Segments, Transmit, TxRing};

/// Payload in a frame: the `len` bytes from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<F> {
    /// What holds the bytes.
    pub frame: F,
    /// Where the payload starts, in bytes from wherever the holder counts from; the engine only adds to it.
    pub offset: u32,
    /// Payload length in bytes.
    pub len: u32,
}
