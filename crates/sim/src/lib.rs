//! A network in virtual time: the TCP engine on one end of a bad link, a peer that shares no code with
//! it on the other, and an auditor at the engine's door.
//!
//! A [`Scenario`] says what happens; [`Scenario::run`] lets it happen and returns a [`Report`]. All
//! chance comes from the scenario's seed and no clock is read, so the same scenario gives the same run,
//! to the byte, on every machine.
//!
//! ```
//! use xsend_sim::{Direction, Link, Scenario};
//!
//! let lossy = Direction { loss: 0.02, reorder: 0.05, ..Direction::default() };
//! let report = Scenario { seed: 7, link: Link::symmetric(lossy), ..Scenario::default() }
//!     .deliver()
//!     .unwrap_or_else(|failure| panic!("{failure}"));
//! assert_eq!(report.delivered, 100_000);
//! ```
//!
//! What crosses the link is whole Ethernet frames: segments are written by `xsend-wire`, damaged bit by
//! bit, and must pass every checksum on the other side. The [`Peer`] is a TCP of its own, and the auditor
//! knows only what went in and out of the engine: each checks the engine from another side.

mod audit;
mod codec;
mod endpoint;
mod intruder;
mod link;
mod pattern;
mod peer;
mod queue;
mod reader;
mod report;
mod ring;
mod rng;
mod scenario;
mod trace;

pub use codec::{ENGINE, PEER};
pub use endpoint::{AppClose, AppConfig, Open};
pub use link::{Direction, Fates, Link};
pub use pattern::Pattern;
pub use peer::{Peer, PeerClose, PeerConfig, PeerEnd, PeerFacts, PeerSegment, Shrink};
pub use queue::EventQueue;
pub use reader::{Reader, Stall};
pub use report::{Ending, Failure, Report};
pub use ring::RingConfig;
pub use rng::Rng;
pub use scenario::{Narrows, Scenario, Told};
