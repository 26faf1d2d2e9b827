//! TCP at line rate from user space.
//!
//! A [`Sender`] owns an interface's queues through AF_XDP and runs a whole TCP transmit engine on them; the receiver is any ordinary TCP
//! stack. A [`Stream`] is what a connected socket would be: `std::io::Write` and `Read`, with writes that go into the very
//! memory the device sends from.
//!
//! ```no_run
//! use std::io::Write;
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sender = xsend::Sender::builder("eth0").inline()?;
//! let mut stream = sender.connect("192.0.2.7:9000".parse()?)?;
//! stream.write_all(b"hello")?;
//! stream.close(Some(Instant::now() + Duration::from_secs(10)))?;
//! # Ok(())
//! # }
//! ```
//!
//! There are two ways to run, with one code behind them: [`Builder::launch`] gives the shard a pinned thread of its own;
//! [`Builder::inline`] has the application's own thread turn it, so that a sender on one core pays for no second thread.
//!
//! Follow a byte: [`Stream::write`](std::io::Write::write) copies it into a frame (`stream/write.rs`); the shard's `intake` takes the frame,
//! `emit` asks the engine, stamps the header and fills the TX ring; `reap` and `ingress` bring completions and
//! acknowledgements back (`xsend-shard`).

#![forbid(unsafe_code)]

mod builder;
mod clock;
mod drive;
mod error;
mod sender;
mod stream;

pub use builder::Builder;
pub use drive::{Drive, Inline, Launched};
pub use error::{CloseError, ConnectError, LaunchError, StreamError};
pub use sender::{ConnectOptions, Sender};
pub use stream::{Reservation, Stream, StreamStats, Writable};

pub use xsend_host as host;
pub use xsend_shard::{ConnectFailure, Direction, Stats as ShardStats, Tap};
pub use xsend_steer::Counts as SteeringCounts;
pub use xsend_tcp::{Info, State as TcpState};
pub use xsend_xsk::Mode;
