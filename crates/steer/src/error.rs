//! Why steering could not be set up or changed.

use core::fmt;
use std::io;
use std::net::SocketAddr;

use crate::{AttachMode, Holder};

/// Why [`Steer::attach`](crate::Steer::attach) failed: each message says what, on which interface, and what
/// to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such interface in this network namespace.
    NoInterface {
        /// The name that was asked for.
        interface: String,
    },
    /// The interface already carries an XDP program.
    AlreadyAttached {
        /// The interface.
        interface: String,
        /// The program's id, as `bpftool prog` shows it.
        id: u32,
        /// The program's name, when the kernel tells.
        name: Option<String>,
        /// The process that holds it, when it can be found.
        holder: Option<Holder>,
    },
    /// The driver has no native XDP, or not with the features that are on.
    NotNative {
        /// The interface.
        interface: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The process lacks capabilities.
    NoPrivilege {
        /// The interface.
        interface: String,
        /// What is missing, for instance "CAP_BPF and CAP_NET_ADMIN".
        missing: String,
    },
    /// The kernel refused the program or its maps.
    Load {
        /// The interface.
        interface: String,
        /// What was being done.
        action: &'static str,
        /// The answer, with the verifier's words if it had any.
        error: String,
    },
    /// The driver refused the program for its present settings, or something else went wrong.
    Attach {
        /// The interface.
        interface: String,
        /// The mode that was asked for.
        mode: AttachMode,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface { interface } => {
                write!(f, "no interface {interface:?} in this network namespace; `ip link` lists them")
            }
            Self::AlreadyAttached { interface, id, name, holder } => {
                in_use(f, interface, *id, name.as_deref(), holder.as_ref())
            }
            Self::NotNative { interface, error } => write!(
                f,
                "{interface} takes no XDP program in native mode ({error}): its driver has none, or a feature stands in the way \
                 (try ethtool -K {interface} rx-gro-hw off lro off); ask for generic mode (--generic), which is slower, or use another \
                 interface"
            ),
            Self::NoPrivilege { interface, missing } => write!(
                f,
                "attaching an XDP program to {interface} needs {missing}, which this process does not have; \
                 run as root or grant it with `setcap`"
            ),
            Self::Load { interface, action, error } => write!(
                f,
                "cannot {action} for {interface}: {error}; it needs Linux 5.18 or later, built with CONFIG_BPF_SYSCALL and \
                 CONFIG_XDP_SOCKETS"
            ),
            Self::Attach { interface, error, .. } if error.kind() == io::ErrorKind::StorageFull => write!(
                f,
                "cannot attach the XDP program to {interface}: its peer has more transmit queues than it has receive \
                 queues; reduce the peer's (ethtool -L PEER tx 1, in the peer's namespace)"
            ),
            Self::Attach { interface, mode, error } => write!(
                f,
                "cannot attach the XDP program to {interface} in {mode} mode: {error}; \
                 the kernel log may say why (MTU too large, too few queues, an offload that XDP excludes)"
            ),
        }
    }
}

fn in_use(
    f: &mut fmt::Formatter<'_>,
    interface: &str,
    id: u32,
    name: Option<&str>,
    holder: Option<&Holder>,
) -> fmt::Result {
    match (name, holder) {
        (Some("xsend_steer"), Some(holder)) if holder.pid == std::process::id() => write!(
            f,
            "{interface} is in use by another sender of this very process {} (its program xsend_steer has id {id}): one \
             at a time; close that sender first",
            holder.pid
        ),
        (Some("xsend_steer"), Some(holder)) => write!(
            f,
            "{interface} is in use by another xsend, {holder} (its program xsend_steer has id {id}): one at a time; wait \
             for it or end it"
        ),
        (Some("xsend_steer"), None) => write!(
            f,
            "{interface} is in use by another xsend (its program xsend_steer has id {id}; its process cannot be found \
             from here): one at a time; wait for it or end it"
        ),
        (name, Some(holder)) => write!(
            f,
            "{interface} already carries an XDP program: {} (id {id}), held by {holder}; end that process",
            name.unwrap_or("of unknown name")
        ),
        (name, None) => write!(
            f,
            "{interface} already carries an XDP program: {} (id {id}), held by no process that can be found; detach it \
             with `ip link set {interface} xdp off` (`bpftool link` if it is held by a pinned link)",
            name.unwrap_or("of unknown name")
        ),
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotNative { error, .. } | Self::Attach { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Why a flow, a listener or a socket could not be added or removed, or counts not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The map of flows or listeners is full.
    Full {
        /// The local address.
        local: SocketAddr,
        /// How many entries it holds.
        limit: u32,
    },
    /// The flow or listener is steered already.
    Taken {
        /// The local address.
        local: SocketAddr,
    },
    /// One end of the flow has an IPv4 address and the other an IPv6 address.
    MixedFamilies {
        /// The local address.
        local: SocketAddr,
        /// The remote address.
        remote: SocketAddr,
    },
    /// The queue number is not below the number of queues that were announced at attach.
    NoQueue {
        /// The queue.
        queue: u32,
        /// Number of queues.
        queues: u32,
    },
    /// The kernel refused for another reason.
    Kernel {
        /// What was being done, and to which address or queue.
        action: String,
        /// The kernel's answer.
        error: String,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { local, limit } => {
                write!(f, "cannot steer {local}: all {limit} entries are taken; close some connections first")
            }
            Self::Taken { local } => {
                write!(
                    f,
                    "cannot steer {local}: it is steered already; use another port, or close what has it"
                )
            }
            Self::MixedFamilies { local, remote } => {
                write!(f, "cannot steer {local} to {remote}: both ends must have addresses of one family")
            }
            Self::NoQueue { queue, queues } => {
                write!(f, "cannot steer to queue {queue}: the interface has {queues} (counted from 0)")
            }
            Self::Kernel { action, error } => write!(f, "cannot {action}: {error}"),
        }
    }
}

impl std::error::Error for MapError {}
