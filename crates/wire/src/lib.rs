//! Frames as they are on the wire: Ethernet with up to two VLAN tags, IPv4 and IPv6, TCP and the ICMP errors
//! that concern a TCP flow.
//!
//! * [`parse`] reads one received frame from end to end, verifies its checksums and lends out the payload.
//! * [`Template`] writes the headers of one flow: built once at the handshake, then patched for each segment
//!   in constant time, whatever the payload's length.
//! * [`checksum`] sums while it copies, so a payload is read exactly once.
//!
//! The modules [`ethernet`], [`ipv4`], [`ipv6`], [`tcp`] and [`icmp`] each read and write one header. What is
//! told apart by the family of its addresses alone takes or gives an [`IpPair`].
//!
//! No function that reads panics, whatever the bytes: what does not fit is [`Malformed`]. Functions that write
//! panic if the caller's buffer is too short, which is a bug of the caller. Nothing allocates.

#![no_std]
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;

mod address;
mod error;
mod field;
mod packet;
mod template;

pub use address::{IpPair, MixedFamilies};
pub use error::{ExtensionFault, Layer, Malformed};
pub use ethernet::Mac;
pub use packet::{ChecksumPolicy, ChecksumState, Packet, parse};
pub use template::{Stamp, Template, TemplateSpec};
