//! Why a socket could not be opened.

use core::fmt;
use core::time::Duration;
use std::io;

use crate::config::Mode;

/// Why [`Socket::open`](crate::Socket::open) failed: each message says what, on which interface and queue,
/// and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A value of the configuration cannot be used.
    Config {
        /// The field's name.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such interface in this network namespace.
    NoInterface {
        /// The name that was asked for.
        interface: String,
    },
    /// The interface has no such queue.
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue that was asked for.
        queue: u32,
        /// How many queues receive.
        receive: u32,
        /// How many queues transmit.
        transmit: u32,
    },
    /// Another socket has the queue.
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How long it was tried.
        tried: Duration,
    },
    /// The interface or its driver cannot do what the mode asks for.
    NotSupported {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The mode.
        mode: Mode,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The process lacks a capability.
    NoPrivilege {
        /// What was being done.
        action: &'static str,
        /// The interface.
        interface: String,
        /// The capability's name.
        capability: &'static str,
    },
    /// The memory could not be mapped or registered.
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// Whether huge pages were asked for.
        huge_pages: bool,
        /// The limit on locked memory in bytes, when it was the reason.
        memlock: Option<u64>,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A socket option was refused.
    Option {
        /// The option's name.
        option: &'static str,
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Binding failed for another reason.
    Bind {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The mode.
        mode: Mode,
        /// The kernel's answer.
        error: io::Error,
    },
    /// This kernel has no AF_XDP.
    NoAfXdp {
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field, problem } => write!(f, "cannot open an AF_XDP socket: {field}: {problem}"),
            Self::NoInterface { interface } => {
                write!(f, "no interface {interface:?} in this network namespace; `ip link` lists them")
            }
            Self::NoQueue { interface, queue, receive, transmit } => write!(
                f,
                "{interface} has no queue {queue}: it receives on {receive} and transmits on {transmit} (counted from 0); \
                 choose a queue below {}, or add queues with `ethtool -L {interface}`",
                receive.min(transmit)
            ),
            Self::Busy { interface, queue, tried } => write!(
                f,
                "{interface} queue {queue} is in use by another AF_XDP socket (tried for {} ms); \
                 end the process that has it (`ss --xdp -p` shows it) or choose another queue",
                tried.as_millis()
            ),
            Self::NotSupported { interface, queue, mode, error } => write!(
                f,
                "{interface} queue {queue} cannot be opened in {mode} mode: {error}; {}",
                match mode {
                    Mode::ZeroCopy => "the driver has no AF_XDP zero-copy here: use copy mode",
                    _ => "the interface does not support AF_XDP",
                }
            ),
            Self::NoPrivilege { action, interface, capability } => write!(
                f,
                "{action} on {interface} needs {capability}, which this process does not have; \
                 run as root or grant it with `setcap`"
            ),
            Self::Memory { bytes, huge_pages: true, error, .. } => write!(
                f,
                "cannot map {bytes} bytes of huge pages for the UMEM: {error}; reserve them with `sysctl vm.nr_hugepages={}` \
                 or do without",
                bytes.div_ceil(2 << 20)
            ),
            Self::Memory { bytes, memlock: Some(limit), error, .. } => write!(
                f,
                "cannot register a UMEM of {bytes} bytes: {error}; locked memory is limited to {limit} bytes: \
                 raise it (`ulimit -l`), grant CAP_IPC_LOCK, or use fewer frames"
            ),
            Self::Memory { bytes, error, .. } => {
                write!(f, "cannot map and register a UMEM of {bytes} bytes: {error}; use fewer frames")
            }
            Self::Option { option, interface, queue, error } => {
                write!(f, "{interface} queue {queue}: the kernel refuses {option}: {error}; do without it")
            }
            Self::Bind { interface, queue, mode, error } => write!(
                f,
                "cannot bind an AF_XDP socket to {interface} queue {queue} in {mode} mode: {error}; \
                 is the interface up (`ip link set {interface} up`), and its MTU within what XDP allows?"
            ),
            Self::NoAfXdp { error } => {
                write!(f, "this kernel has no AF_XDP sockets: {error}; it needs CONFIG_XDP_SOCKETS=y")
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSupported { error, .. }
            | Self::Memory { error, .. }
            | Self::Option { error, .. }
            | Self::Bind { error, .. }
            | Self::NoAfXdp { error } => Some(error),
            _ => None,
        }
    }
}
