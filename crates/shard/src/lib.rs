//! The per-core loop: it joins the TCP engine, headers, signalling and the queues of a NIC.
//!
//! [`Shard::turn`] is the map of the program. Its steps are in files of their own: `ingress` (received frames into the
//! engine), `intake` (filled frames and commands from applications), `emit` (engine, headers, TX ring, kick), `flow` (what one
//! flow has to say to its application), and `port` (the device and its frames).
//!
//! A shard is single-threaded; what application threads share with it is in [`StreamEnd`] and [`Handle`], every part of which is
//! a protocol of `xsend-signal`.

#![forbid(unsafe_code)]

mod afxdp;
mod agenda;
mod command;
mod config;
mod device;
mod emit;
mod flow;
mod ingress;
mod intake;
pub mod memory;
mod port;
mod shard;
mod stream;
mod table;

pub use afxdp::AfXdp;
pub use command::{Command, Connect, ConnectFailure, describe, outcome_code};
pub use config::{Config, Stats};
pub use device::Device;
pub use port::{Direction, Tap};
pub use shard::{Change, Handle, Housekeeper, Parts, Progress, Shard};
pub use stream::{Opened, ReceivedBytes, StreamEnd};
pub use table::{Ends, FlowId};
