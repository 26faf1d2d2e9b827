//! Steering: the XDP program that hands our flows' frames to our sockets and leaves everything else to the
//! kernel.
//!
//! [`Steer`] loads `bpf/steer.bpf.c`, attaches it to one interface and owns its maps. A frame belongs to us
//! when it is TCP over IPv4 (up to two VLAN tags, options allowed, no fragment) and its addresses and ports
//! are those of a flow or a listener that was added, or when it is an ICMP error that quotes one of our
//! flows. It then goes to the socket of the queue it came in by; if there is none, it is dropped and counted,
//! never passed: the kernel would answer a connection it does not know with RST. All other frames pass
//! untouched.
//!
//! The program is attached through a BPF link, which lives as long as [`Steer`] does and dies with the
//! process.

mod error;
mod keys;
mod program;

use core::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

pub use error::{AttachError, MapError};

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

/// What the program did with the frames of its interface so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of our flows that went to one of our sockets.
    pub steered: u64,
    /// Frames left to the kernel.
    pub passed: u64,
    /// Frames left to the kernel because their IPv4, TCP or ICMP header is cut short or impossible.
    pub malformed: u64,
    /// Frames of our flows that came in by a queue without a socket of ours, and were dropped.
    pub unowned: u64,
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

/// Present, as the value of an entry whose key says all.
const PRESENT: [u8; 4] = 1u32.to_ne_bytes();

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
    /// queue: the kernel drops what is redirected to a socket of another one.
    ///
    /// # Errors
    /// [`MapError::NoQueue`], or the kernel's refusal.
    pub fn add_socket(&self, queue: u32, fd: BorrowedFd<'_>) -> Result<(), MapError> {
        self.check_queue(queue)?;
        let value = fd.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|error| refused("enter a socket into the XSKMAP", &error))
    }

    /// Drops and counts our frames that come in by `queue` from now on. Removing what is not there is no
    /// error.
    ///
    /// # Errors
    /// [`MapError::NoQueue`], or the kernel's refusal.
    pub fn remove_socket(&self, queue: u32) -> Result<(), MapError> {
        self.check_queue(queue)?;
        remove(&self.sockets, &queue.to_ne_bytes(), "remove a socket from the XSKMAP")
    }

    /// Steers the flow between `local` (ours) and `remote`. Adding it twice is no error.
    ///
    /// # Errors
    /// [`MapError::Full`], or the kernel's refusal.
    pub fn add_flow(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), MapError> {
        add(&self.flows, &keys::flow(local, remote), local, MAX_FLOWS)
    }

    /// Leaves the flow to the kernel again. Removing what is not there is no error.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_flow(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), MapError> {
        remove(&self.flows, &keys::flow(local, remote), "stop steering a flow")
    }

    /// Steers all TCP to `local`, whoever sends it. Adding it twice is no error.
    ///
    /// # Errors
    /// [`MapError::Full`], or the kernel's refusal.
    pub fn add_listener(&self, local: SocketAddr) -> Result<(), MapError> {
        add(&self.listeners, &keys::listener(local), local, MAX_LISTENERS)
    }

    /// Leaves TCP to `local` to the kernel again, flows that were added excepted. Removing what is not there
    /// is no error.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_listener(&self, local: SocketAddr) -> Result<(), MapError> {
        remove(&self.listeners, &keys::listener(local), "stop steering a listener")
    }

    /// Sums the counts of all processors.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn counts(&self) -> Result<Counts, MapError> {
        // The order of `enum outcome` in the program.
        Ok(Counts {
            steered: self.count(0)?,
            passed: self.count(1)?,
            malformed: self.count(2)?,
            unowned: self.count(3)?,
        })
    }

    fn count(&self, outcome: u32) -> Result<u64, MapError> {
        let values = self
            .counts
            .lookup_percpu(&outcome.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| refused("read the counts", &error))?
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

fn add(map: &MapHandle, key: &[u8], local: SocketAddr, limit: u32) -> Result<(), MapError> {
    map.update(key, &PRESENT, MapFlags::ANY).map_err(|error| {
        // libbpf-rs shows the errno only in its words. E2BIG is a full hash map, bpf(2).
        if error.to_string().contains("(os error 7)") {
            MapError::Full { local, limit }
        } else {
            refused("steer an address", &error)
        }
    })
}

fn remove(map: &MapHandle, key: &[u8], action: &'static str) -> Result<(), MapError> {
    match map.delete(key) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(refused(action, &error)),
        _ => Ok(()),
    }
}

fn refused(action: &'static str, error: &libbpf_rs::Error) -> MapError {
    MapError::Kernel { action, error: format!("{error:#}") }
}
