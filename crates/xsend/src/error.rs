//! One error a thing that can fail. Each says what failed, where, and what to do next.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use xsend_shard::ConnectFailure;
use xsend_signal::life::State;

/// Why a sender could not be launched.
#[derive(Debug)]
pub enum LaunchError {
    /// The interface cannot be looked up, or is not what a sender needs.
    Link(xsend_host::LinkError),
    /// The interface does not carry Ethernet.
    NotEthernet {
        /// Its name.
        interface: String,
    },
    /// The interface stands above others in a way that frames cannot follow.
    Underlay(xsend_host::UnderlayError),
    /// The interface receives by more queues than can be owned, so that acknowledgements might arrive elsewhere.
    TooManyQueues {
        /// The interface.
        interface: String,
        /// Its number of receive queues.
        queues: u32,
        /// How many could be owned: an AF_XDP queue both receives and sends.
        most: u32,
    },
    /// A setting makes no sense.
    Setting {
        /// Which.
        name: &'static str,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// The AF_XDP socket could not be opened.
    Socket(xsend_xsk::OpenError),
    /// The steering program could not be attached.
    Attach(xsend_steer::AttachError),
    /// The socket could not be entered into the steering program's map.
    Steering(xsend_steer::MapError),
    /// No randomness for sequence numbers.
    Randomness(io::Error),
    /// A descriptor or a thread could not be had.
    Resources(io::Error),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(error) => error.fmt(f),
            Self::NotEthernet { interface } => {
                write!(f, "{interface} carries no Ethernet frames: use a physical interface or a veth")
            }
            Self::Underlay(error) => error.fmt(f),
            Self::TooManyQueues { interface, queues, most } => write!(
                f,
                "{interface} receives by {queues} queues, of which {most} can be owned, since each must send too: make them as many \
                 (ethtool -L {interface} combined {most}, or rx {most} tx {most})"
            ),
            Self::Setting { name, why } => write!(f, "{name}: {why}"),
            Self::Socket(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::Steering(error) => error.fmt(f),
            Self::Randomness(error) => {
                write!(f, "no randomness for sequence numbers from /dev/urandom: {error}")
            }
            Self::Resources(error) => {
                write!(f, "no descriptor or thread left for the sender: {error} (see ulimit -n, -u)")
            }
        }
    }
}

impl std::error::Error for LaunchError {}

/// Why a connection could not be opened.
#[derive(Debug)]
pub enum ConnectError {
    /// The source address is of another family than the peer's.
    MixedFamilies {
        /// Ours.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// The way to the peer leads through an interface that this sender does not own.
    OtherInterface {
        /// The peer.
        remote: SocketAddr,
        /// The interface.
        through: String,
    },
    /// There is no way to the peer, or its next hop does not answer.
    Path(xsend_host::ResolveError),
    /// The local port could not be reserved.
    Port(xsend_host::PortError),
    /// The flow could not be entered into the steering program's map.
    Steering(xsend_steer::MapError),
    /// The next hop cannot be watched.
    Watch(xsend_host::WatchError),
    /// The handshake failed.
    Failed {
        /// Whom we called.
        remote: SocketAddr,
        /// Why.
        failure: ConnectFailure,
    },
    /// The peer did not answer in time.
    TimedOut {
        /// Whom we called.
        remote: SocketAddr,
        /// How long we waited.
        after: Duration,
        /// The interface has queues that the sender was told not to own: the answer may have come by one of them.
        queues_left_out: u32,
    },
    /// Whoever asked no longer wants it.
    Cancelled,
    /// Too many requests wait for the shard.
    Busy,
    /// The shard has ended.
    ShardDead,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixedFamilies { local, remote } => {
                write!(f, "cannot reach {remote} from {local}: one is an IPv4 and the other an IPv6 address")
            }
            Self::OtherInterface { remote, through } => {
                write!(f, "the way to {remote} leads through {through}: open a sender on that interface")
            }
            Self::Path(error) => error.fmt(f),
            Self::Port(error) => error.fmt(f),
            Self::Steering(error) => error.fmt(f),
            Self::Watch(error) => error.fmt(f),
            Self::Failed { remote, failure } => write!(f, "cannot connect to {remote}: {failure}"),
            Self::TimedOut { remote, after, queues_left_out } => {
                write!(f, "cannot connect to {remote}: no answer in {:.1} s; ", after.as_secs_f64())?;
                match queues_left_out {
                    0 => f.write_str("is the host up, and does a firewall on the way drop us?"),
                    left => write!(
                        f,
                        "it may have come by one of the {left} queues that are not owned: own all (no --queues)"
                    ),
                }
            }
            Self::Cancelled => f.write_str("cancelled while connecting"),
            Self::Busy => f.write_str("too many requests wait for the shard: try again"),
            Self::ShardDead => f.write_str(SHARD_DEAD),
        }
    }
}

impl std::error::Error for ConnectError {}

const SHARD_DEAD: &str = "the shard has ended: its thread failed, or the sender was closed";

/// Why bytes can no longer be written, or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The peer reset the connection.
    Reset,
    /// The peer no longer answers.
    TimedOut,
    /// Both ends have closed, or this side has.
    Closed,
    /// This side reset the connection.
    Aborted,
    /// The network says that the peer cannot be reached.
    Unreachable,
    /// The shard has ended.
    ShardDead,
}

impl StreamError {
    pub(crate) fn of(state: State) -> Self {
        match state {
            // The codes are `xsend_shard::outcome_code`'s.
            State::Failed(1 | 2) => Self::Reset,
            State::Failed(3) => Self::TimedOut,
            State::Failed(4) => Self::Unreachable,
            State::Failed(5) => Self::Aborted,
            State::ShardDead => Self::ShardDead,
            _ => Self::Closed,
        }
    }

    fn kind(self) -> io::ErrorKind {
        match self {
            Self::Reset => io::ErrorKind::ConnectionReset,
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::Closed | Self::ShardDead => io::ErrorKind::BrokenPipe,
            Self::Aborted => io::ErrorKind::ConnectionAborted,
            Self::Unreachable => io::ErrorKind::HostUnreachable,
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "connection reset by the peer",
            Self::TimedOut => {
                "nothing was acknowledged for too long: the peer no longer answers, or no longer reads"
            }
            Self::Closed => "the stream is closed",
            Self::Aborted => "the connection was aborted on this side",
            Self::Unreachable => "the network says that the peer cannot be reached",
            Self::ShardDead => SHARD_DEAD,
        })
    }
}

impl std::error::Error for StreamError {}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Why a stream did not end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseError {
    /// It failed before everything was acknowledged.
    Failed {
        /// How.
        error: StreamError,
        /// Bytes that the peer has acknowledged.
        acknowledged: u64,
        /// Bytes that were written.
        written: u64,
    },
    /// The deadline passed before everything was acknowledged. The stream still stands.
    TimedOut {
        /// Bytes that the peer has acknowledged.
        acknowledged: u64,
        /// Bytes that were written.
        written: u64,
    },
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { error, acknowledged, written } => {
                write!(f, "{error}; {acknowledged} of {written} bytes were acknowledged")
            }
            Self::TimedOut { acknowledged, written } => {
                write!(f, "not acknowledged in time: {acknowledged} of {written} bytes, or the FIN, are")
            }
        }
    }
}

impl std::error::Error for CloseError {}
