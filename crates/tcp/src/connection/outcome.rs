//! What a connection tells its holder: events, how it ended, and why.

/// An ICMP error that concerns a connection, other than a segment too large for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreachable {
    /// The network or the host, or the packet's life ended on the way: may be transient (RFC 1122 4.2.3.9).
    Host,
    /// The port.
    Port,
    /// The protocol.
    Protocol,
    /// Forbidden by an administrator on the way.
    Prohibited,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Both ends closed, and every byte of ours was acknowledged. (If the peer has forgotten the connection by then
    /// it may be a reset that acknowledges our FIN; if the application is [gone](crate::Connection::on_detach) the
    /// peer need not have closed.)
    Finished,
    /// The peer refused the connection, or took back the one it had asked for.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer answered no more; [`Connection::time_out`](crate::Connection::time_out) says what was waited for.
    TimedOut,
    /// The connection could not be made: an ICMP error answered the SYN or the SYN-ACK.
    Unreachable(Unreachable),
    /// We reset the connection.
    Aborted,
}

/// What was waited for in vain when a connection ended with [`Outcome::TimedOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeOutCause {
    /// The answer to our SYN or SYN-ACK, for as many retransmissions as are configured (RFC 9293 3.8.3).
    Handshake,
    /// An acknowledgment of data or FIN, for as many retransmissions as are configured (RFC 9293 3.8.3).
    Retransmissions,
    /// An answer to probes of a shut window (RFC 9293 3.8.6.1).
    WindowProbes,
    /// An answer to keep-alive probes (RFC 9293 3.8.4).
    KeepAlive,
    /// Any of these, for as long as the user timeout is (RFC 9293 3.9.1, RFC 5482).
    UserTimeout,
}

/// Why a connection ended with [`Outcome::TimedOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimeOut {
    /// What was waited for.
    pub cause: TimeOutCause,
    /// The last ICMP error that arrived during that wait: it may say why nobody answered (RFC 1122 4.2.3.9).
    pub soft_error: Option<Unreachable>,
}

/// What the holder must know, told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is over: [`Connection::data_header_len`](crate::Connection::data_header_len) is fixed, and
    /// [`Connection::smss`](crate::Connection::smss) can only shrink.
    Established,
    /// The path carries less than it did: segments written from now on hold at most this many bytes, the new
    /// [`Connection::smss`](crate::Connection::smss). Longer ones that are queued already are split by
    /// [`Transmit::Split`](crate::Transmit::Split). Told again each time it shrinks.
    SegmentSize(u32),
    /// The peer's FIN was reached: after what [`poll_received`](crate::Connection::poll_received) still holds nothing
    /// more comes.
    PeerClosed,
    /// Our FIN was acknowledged, and so was every byte before it.
    FinAcknowledged,
    /// The connection is over for the application. The last event.
    Closed(Outcome),
}
