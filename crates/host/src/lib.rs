//! What the kernel knows and a sender that bypasses it must ask: links, routes, next hops, local ports,
//! privileges, and what a device can do.
//!
//! | question | answered by |
//! |---|---|
//! | which interfaces are there, and what do they carry | [`Link`], [`links`] |
//! | which device carries this interface's frames, with which VLAN tags | [`Underlay`] |
//! | which way to this address: source, egress interface, next hop and its MAC, MTU | [`resolve`] |
//! | did any of that change while it is in use | [`PathWatch`] |
//! | a local port that nothing else will take | [`PortReservation`] |
//! | is this process allowed to open AF_XDP sockets | [`Privileges`] |
//! | queues, rings, offloads and XDP abilities of a device | [`Device`] |
//! | did its state, its queues or its addresses change while it is in use | [`DeviceWatch`] |
//!
//! Every answer concerns the network namespace of the calling thread: netlink sockets are opened by the thread that
//! asks and belong to its namespace from then on. `/sys/class/net` is never read, because it shows the namespace
//! that was current when sysfs was mounted. Every call is bounded in time.

#![forbid(unsafe_code)]

mod device;
mod link;
mod neighbour;
mod netlink;
mod port;
mod privilege;
mod resolve;
mod route;
mod uapi;
mod underlay;
mod watch;

pub use device::{Channels, Device, DeviceError, Offloads, Queues, Rings, XdpFeatures};
pub use link::{Hardware, Link, LinkError, Vlan, XdpMode, XdpProgram, links};
pub use netlink::NetlinkError;
pub use port::{PortError, PortReservation};
pub use privilege::{Capability, Memlock, PrivilegeError, Privileges};
pub use resolve::{Path, Query, Refusal, ResolveError, resolve, resolve_back};
pub use underlay::{Underlay, UnderlayError};
pub use watch::{Change, DeviceState, DeviceWatch, LinkState, PathState, PathWatch, Route, WatchError};
