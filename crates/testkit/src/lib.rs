//! Props for the tests of xsend: network namespaces joined by veth, a plain kernel receiver that behaves well or
//! badly on demand, deterministic payloads, guarded child processes, and checks that an interface was left as it
//! was found.
//!
//! Nothing here is part of what people install: the other crates use it as a dev-dependency only. It has two binaries:
//! `kernel-send` is the kernel's own TCP sender that the demonstration compares with, and `impaired` is the link of
//! [`impaired`] that delays, loses, reorders and so on, for tests and by hand.
//!
//! # What a test looks like
//!
//! ```no_run
//! use std::time::Duration;
//! use xsend_testkit::{Pair, Receiver, receiver, require_root, xsend_command};
//!
//! # fn main() -> std::io::Result<()> {
//! require_root!(Ok(()));
//! let pair = Pair::builder().build()?;
//! let receiver = Receiver::start(&pair.receiver, pair.receiver_addr, receiver::Options::default())?;
//! let mut send = xsend_command(&pair.sender);
//! send.arg("send").arg("/etc/hostname").arg(receiver.addr().to_string());
//! let done = xsend_testkit::Process::spawn(send)?.wait(Duration::from_secs(10));
//! assert_eq!(done.code, Some(0), "{done}");
//! # Ok(())
//! # }
//! ```
//!
//! Every name made here carries the process id of its maker (`xs<pid>-<n>a`), so tests may run side by side, and
//! what a killed run left behind is recognised and removed by the next one, and nothing else is.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod bystander;
pub mod capture;
pub mod impaired;
pub mod link;
pub mod names;
pub mod namespace;
pub mod pair;
pub mod payload;
pub mod privilege;
pub mod process;
pub mod receiver;
pub mod scene;
pub mod scratch;

mod shell;

pub use bystander::Bystander;
pub use impaired::{ImpairedLink, Impairments, Link, Probability};
pub use link::{InterfaceState, assert_no_xdp_program, xdp_program};
pub use namespace::Namespace;
pub use pair::{Builder, Pair};
pub use payload::Payload;
pub use process::{Finished, Process, xsend_binary, xsend_command};
pub use receiver::Receiver;
pub use scene::Scene;
pub use scratch::Scratch;
