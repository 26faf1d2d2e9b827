//! Steering: the XDP program that hands our flows' frames to our sockets and leaves everything else to the
//! kernel.
//!
//! [`Steer`] loads `bpf/steer.bpf.c`, attaches it to one interface and owns its maps. A frame belongs to us
//! when it is TCP over IPv4 (options allowed) or IPv6 (up to four extension headers), no fragment, in at most two
//! VLAN tags, and its addresses and ports are those of a [`Flow`] or [`Listener`] that is held; or when it is an
//! ICMP error that quotes a segment that we sent from there. It then goes to the socket of the queue it came in by;
//! if there is none, it is dropped and counted, never passed: the kernel would answer a connection it does not know
//! with RST. All other frames pass untouched.
//!
//! A flow is steered while its [`FlowLease`] lives, a listener while its [`ListenerLease`] does.
//!
//! The program is attached through a BPF link, which lives as long as [`Steer`] does and dies with the
//! process.

mod error;
mod holder;
mod keys;
mod lease;
mod program;
mod vlans;

use core::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

pub use error::{AttachError, MapError};
pub use holder::Holder;
pub use lease::{Flow, FlowLease, Listener, ListenerLease};
pub use vlans::Vlans;

/// Flows that can be steered at a time.
pub const MAX_FLOWS: u32 = 65_536;
/// Listeners that can be steered at a time.
pub const MAX_LISTENERS: u32 = 1024;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttachMode {
    /// In the driver, before the kernel allocates anything for the frame.
    #[default]
    Native,
    /// In the network stack: slower, works with every driver. Only ever used when asked for.
    Generic,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// What the program did with the frames of its interface so far. Each frame is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments of our flows that went to one of our sockets.
    pub steered: u64,
    /// Segments to a listener, of none of our flows, that went to one of our sockets.
    pub listened: u64,
    /// ICMP errors about our segments that went to one of our sockets.
    pub quoted: u64,
    /// Frames of ours that came in by a queue without a socket of ours, and were dropped.
    pub unowned: u64,
    /// Frames left to the kernel: nothing of ours.
    pub passed: u64,
    /// IP fragments left to the kernel, whoever's.
    pub fragmented: u64,
    /// IPv6 packets left to the kernel because they have more than four extension headers, or more than 128 bytes of
    /// them.
    pub chained: u64,
    /// Frames left to the kernel that have the addresses and ports of ours, but are in another VLAN.
    pub other_vlan: u64,
    /// Frames left to the kernel because their IP, TCP or ICMP header is cut short or impossible.
    pub malformed: u64,
}

/// The attached program and its maps. All methods take `&self` and may be called from any thread; none is for
/// the data path.
#[derive(Debug)]
pub struct Steer {
    /// The BPF link: closing it detaches the program. First, so that frames are steered to nobody's socket no
    /// longer than need be.
    _link: OwnedFd,
    flows: MapHandle,
    listeners: MapHandle,
    sockets: MapHandle,
    counts: MapHandle,
    queues: u32,
}

impl Steer {
    /// Loads the program and attaches it to `interface` of the calling thread's network namespace, for
    /// `queues` queues.
    ///
    /// # Errors
    /// [`AttachError`]: another program is attached, the driver has no native XDP, a capability is missing,
    /// and so on.
    pub fn attach(interface: &str, mode: AttachMode, queues: u32) -> Result<Self, AttachError> {
        let loaded = program::load(interface, queues)?;
        let link = program::attach(interface, mode, loaded.program.as_fd())?;
        let program::Loaded { flows, listeners, sockets, counts, .. } = loaded;
        Ok(Self { _link: link, flows, listeners, sockets, counts, queues })
    }

    /// Sends our frames that come in by `queue` to the AF_XDP socket `fd`, which must be bound to that very
    /// queue: the kernel drops what is redirected to a socket of another one. Each queue has one socket at most, the
    /// last one added; a socket that is closed is out at once.
    ///
    /// # Errors
    /// [`MapError::NoQueue`], or the kernel's refusal.
    pub fn add_socket(&self, queue: u32, fd: BorrowedFd<'_>) -> Result<(), MapError> {
        self.check_queue(queue)?;
        let value = fd.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|error| refused(format!("enter a socket for queue {queue} into the XSKMAP"), &error))
    }

    /// Drops and counts our frames that come in by `queue` from now on. Removing what is not there is no
    /// error.
    ///
    /// # Errors
    /// [`MapError::NoQueue`], or the kernel's refusal.
    pub fn remove_socket(&self, queue: u32) -> Result<(), MapError> {
        self.check_queue(queue)?;
        remove(&self.sockets, &queue.to_ne_bytes())
            .map_err(|error| refused(format!("remove the socket for queue {queue} from the XSKMAP"), &error))
    }

    fn add_flow(&self, key: &[u8], local: SocketAddr, vlans: Vlans) -> Result<(), MapError> {
        add(&self.flows, key, vlans, local, MAX_FLOWS)
    }

    fn remove_flow(&self, key: &[u8]) -> libbpf_rs::Result<()> {
        remove(&self.flows, key)
    }

    fn add_listener(&self, key: &[u8], local: SocketAddr, vlans: Vlans) -> Result<(), MapError> {
        add(&self.listeners, key, vlans, local, MAX_LISTENERS)
    }

    fn remove_listener(&self, key: &[u8]) -> libbpf_rs::Result<()> {
        remove(&self.listeners, key)
    }

    /// Sums the counts of all processors.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn counts(&self) -> Result<Counts, MapError> {
        // The order of `enum outcome` in the program.
        Ok(Counts {
            steered: self.count(0)?,
            listened: self.count(1)?,
            quoted: self.count(2)?,
            unowned: self.count(3)?,
            passed: self.count(4)?,
            fragmented: self.count(5)?,
            chained: self.count(6)?,
            other_vlan: self.count(7)?,
            malformed: self.count(8)?,
        })
    }

    fn count(&self, outcome: u32) -> Result<u64, MapError> {
        let values = self
            .counts
            .lookup_percpu(&outcome.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| refused("read the counts".to_owned(), &error))?
            .unwrap_or_default();
        Ok(values
            .iter()
            .filter_map(|value| value.first_chunk())
            .map(|value| u64::from_ne_bytes(*value))
            .sum())
    }

    fn check_queue(&self, queue: u32) -> Result<(), MapError> {
        if queue < self.queues { Ok(()) } else { Err(MapError::NoQueue { queue, queues: self.queues }) }
    }
}

fn add(map: &MapHandle, key: &[u8], vlans: Vlans, local: SocketAddr, limit: u32) -> Result<(), MapError> {
    map.update(key, &vlans.value(), MapFlags::NO_EXIST).map_err(|error| {
        if error.kind() == ErrorKind::AlreadyExists {
            return MapError::Taken { local };
        }
        // libbpf-rs shows the errno only in its words. E2BIG is a full hash map, bpf(2).
        if error.to_string().contains("(os error 7)") {
            MapError::Full { local, limit }
        } else {
            refused(format!("steer {local}"), &error)
        }
    })
}

/// Removing what is not there is no error.
fn remove(map: &MapHandle, key: &[u8]) -> libbpf_rs::Result<()> {
    match map.delete(key) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn refused(action: String, error: &libbpf_rs::Error) -> MapError {
    MapError::Kernel { action, error: format!("{error:#}") }
}
