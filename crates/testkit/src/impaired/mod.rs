//! A link that delays, loses, reorders, duplicates, corrupts, limits and marks: frames go from one veth to another
//! through a process in a namespace of its own, and what happens to each is decided by a seed.
//!
//! ```text
//!  sender's namespace        middle                       receiver's namespace
//!  xs7-0a --- veth --- xs7-0n  impaired  xs7-0f --- veth --- xs7-0b
//!                        forward ->  <- back
//! ```
//!
//! - [`settings`] says what a link is to do, and how that is written on a command line;
//! - [`impairment`] decides over one frame: pure, in whatever time it is told;
//! - [`frame`] changes the bytes: a CE mark, a flipped bit;
//! - [`queue`] keeps the frames under way, and their memory;
//! - [`port`] moves frames in and out of one interface;
//! - [`forwarder`] is the loop around all of it, which the program `impaired` runs;
//! - [`link`] is that program as a test sees it.
//!
//! A test asks for it with [`Builder::impaired`](crate::pair::Builder::impaired), and by hand it is
//! `scripts/netns.sh up --delay 20ms --loss 1%`.
//!
//! # What it carries
//!
//! On the machine this was written on, a second of one core moves 3 to 5 Gbit of 1500-byte frames with their
//! acknowledgements, and 10 Gbit and more of larger ones. Nineteen parts of twenty are the kernel's way in and out, and
//! with a kernel sender also what that does when it gets the acknowledgements, since veth delivers on the core that sends.
//!
//! # What it does not do
//!
//! Frames with a VLAN tag are not carried: the kernel takes the tag off before a packet socket sees the frame. They
//! count as `missed`. Time is that of an ordinary process: a frame is never early, but may be late by as much as it
//! takes to be scheduled.

pub mod counters;
pub mod forwarder;
pub mod frame;
pub mod impairment;
pub mod link;
pub mod port;
pub mod queue;
pub mod settings;
pub(crate) mod wiring;

pub use counters::{Counters, Direction};
pub use link::ImpairedLink;
pub use settings::{BurstLoss, Impairments, Link, Outage, Probability};
