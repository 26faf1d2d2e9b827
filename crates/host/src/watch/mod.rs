//! Watching what a sender relies on, while it relies on it.
//!
//! A watch is told by the kernel (netlink notifications), and besides looks every two seconds at what the kernel does
//! not tell. It is polled, and tells what changed since the last poll. A poll that does not wait takes some round trips
//! to the kernel at most, each as long as somebody holds the kernel's configuration lock, and bounded.

mod device;
mod link;
mod path;

use std::{fmt, net::IpAddr, time::Duration};

use xsend_wire::Mac;

use crate::{
    NetlinkError, Queues,
    netlink::{Events, Message, Notice},
};

pub use device::{DeviceState, DeviceWatch};
pub use link::LinkState;
pub use path::{PathState, PathWatch};

/// Between two looks at what is not told.
const REFRESH: Duration = Duration::from_secs(2);
/// Datagrams taken in by one `poll`: a storm of events on other interfaces must not keep the caller.
const DATAGRAMS_MAX: usize = 1024;

/// Gives `on` what waits in a watch's subscription; whether something was lost, so that all must be read anew.
fn take_in<W>(
    watch: &mut W,
    events: impl Fn(&mut W) -> &mut Events,
    on: impl Fn(&mut W, &Message),
) -> Result<bool, NetlinkError> {
    let mut lost = false;
    for _ in 0..DATAGRAMS_MAX {
        match events(watch).take()? {
            Notice::Messages(messages) => messages.iter().for_each(|message| on(watch, message)),
            Notice::Nothing => break,
            Notice::Lost => lost = true,
        }
    }
    Ok(lost)
}

/// Where the frames of a path go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of the egress interface.
    pub egress: u32,
    /// Who gets the frames: the gateway, or the destination itself when it is on the link.
    pub next_hop: IpAddr,
}

/// One thing that changed, with its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The interface went away for good (an index is not used again), or into another namespace.
    LinkGone,
    /// The interface was taken up or down.
    Up(bool),
    /// The interface's carrier came or went.
    Running(bool),
    /// The path's MTU is another one, in bytes; of a device, the interface's.
    Mtu(u32),
    /// The interface has another hardware address.
    Mac(Mac),
    /// The next hop has another hardware address.
    NextHopMac(Mac),
    /// The kernel's entry for the next hop went (somebody removed it, or the link went down), or is back. It says nothing
    /// about the next hop: the last hardware address is still the best there is, and is being asked for.
    NextHopKnown(bool),
    /// The next hop stopped answering the kernel, or answers again.
    Reachable(bool),
    /// The path's source address is no longer one of this machine's, or is again.
    Source(bool),
    /// The destination is now reached another way, or not at all; [`resolve`](crate::resolve) again.
    Route(Option<Route>),
    /// The device has another number of queues in use.
    Queues(Queues),
    /// The interface lost an address, or got one.
    Address {
        /// The address.
        address: IpAddr,
        /// It is there now.
        present: bool,
    },
}

/// Why something can no longer be watched.
#[derive(Debug)]
pub struct WatchError {
    /// The interface.
    pub interface: String,
    /// The reason.
    pub error: NetlinkError,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost sight of {}: {}", self.interface, self.error)
    }
}

impl std::error::Error for WatchError {}
