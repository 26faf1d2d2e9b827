//! ICMP errors that quote a TCP segment, of IPv4 (RFC 792, RFC 1191) and of IPv6 (RFC 4443), in one form.

mod v4;
mod v6;

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::field::fixed;
use crate::{IpPair, Layer, Malformed};

/// Length of an ICMP error's own header, in bytes; the quoted packet follows.
pub const HEADER_LEN: usize = 8;

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Destination unreachable, any code but "fragmentation needed".
    Unreachable {
        /// What the code says, in either family.
        reason: Reason,
        /// The code as it is in the message, for a report: its meaning depends on the family.
        code: u8,
    },
    /// The packet did not fit the next link and is not fragmented on the way: "fragmentation needed" of IPv4
    /// (RFC 1191), "packet too big" of IPv6.
    PacketTooBig {
        /// MTU of that link in bytes, as reported: zero from IPv4 routers older than RFC 1191; below 1280 it is
        /// not to be believed of IPv6 (RFC 8201 section 4).
        mtu: u32,
    },
    /// The time to live ran out, or the hop limit.
    TimeExceeded {
        /// 0 on the way, 1 during reassembly.
        code: u8,
    },
    /// A field of the header is wrong.
    ParameterProblem {
        /// IPv4: 0, the pointer says which; 1, an option is missing; 2, a length is wrong. IPv6: 0, a field is
        /// wrong; 1, a next header is not known; 2, an option is not known.
        code: u8,
        /// Offset of that field in the quoted packet, in bytes.
        pointer: u32,
    },
}

/// Why a destination is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no way to its network, or none that the packet may take.
    Network,
    /// The host does not answer on its link, or cannot be reached from the source.
    Host,
    /// The host does not speak TCP.
    Protocol,
    /// Nobody listens at the port.
    Port,
    /// An administrator forbids it.
    Prohibited,
}

/// The flow that an ICMP error is about, as its sender wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTuple {
    /// Source address of the quoted segment.
    pub source: IpAddr,
    /// Destination address of the quoted segment.
    pub destination: IpAddr,
    /// Source port of the quoted segment.
    pub source_port: u16,
    /// Destination port of the quoted segment.
    pub destination_port: u16,
    /// Sequence number of the quoted segment: RFC 5927 4.1 wants it to be in flight.
    pub seq: u32,
}

impl FlowTuple {
    /// From the quoted addresses and as much as there is of the quoted segment. Its first eight bytes must be
    /// there: a report without a sequence number could not be checked, and both families quote more.
    fn read(ip: IpPair, segment: &[u8]) -> Result<FlowTuple, Malformed> {
        let &[s0, s1, d0, d1, q0, q1, q2, q3] = fixed::<8>(segment, Layer::Tcp)?;
        Ok(FlowTuple {
            source: ip.source(),
            destination: ip.destination(),
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            seq: u32::from_be_bytes([q0, q1, q2, q3]),
        })
    }
}

/// An ICMP error that quotes a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What it says.
    pub kind: ErrorKind,
    /// Who says so.
    pub reporter: IpAddr,
    /// Whom it was sent to: the source of the quoted segment, if nobody on the way is lying.
    pub recipient: IpAddr,
    /// About which segment.
    pub quoted: FlowTuple,
}

/// Reads the ICMP message of an IP packet between `ip`, ICMPv6 if those are addresses of IPv6. `None` if it is
/// intact and does not concern a TCP flow: no error, a redirect, a source quench (RFC 6633: ignored), a
/// quotation of another protocol, of a later fragment, or of what [`crate::ipv6::NotOurs`] lists.
///
/// # Errors
///
/// [`Malformed`] if the message is too short, its checksum is wrong, or the quoted headers are inconsistent or
/// cut short before the eight bytes of TCP that RFC 792 and RFC 4443 section 3 both guarantee. The quoted
/// extension headers of IPv6 are followed within the bounds of [`crate::ipv6::upper`].
pub fn parse(message: &[u8], ip: IpPair) -> Result<Option<IcmpError>, Malformed> {
    let read = match ip {
        IpPair::V4 { .. } => v4::parse(message)?,
        IpPair::V6 { .. } => v6::parse(message, ip)?,
    };
    let (reporter, recipient) = (ip.source(), ip.destination());
    Ok(read.map(|(kind, quoted)| IcmpError { kind, reporter, recipient, quoted }))
}

/// Writes the ICMP message that reports `kind` about the IP packet that starts with `quoted` (its headers and
/// at least eight bytes more), to be sent between `ip`, and returns its length. Of an unreachable destination
/// the code is written and the reason not looked at. What does not fit a field of the family is cut: an MTU or
/// a pointer of IPv4 to its lower 16 or 8 bits.
///
/// # Panics
///
/// If `out` is shorter than [`HEADER_LEN`] and `quoted` together.
pub fn build(out: &mut [u8], ip: IpPair, kind: ErrorKind, quoted: &[u8]) -> usize {
    let len = HEADER_LEN + quoted.len();
    let out = &mut out[..len];
    let (header, pseudo) = match ip {
        IpPair::V4 { .. } => (v4::header(kind), Sum::ZERO),
        IpPair::V6 { .. } => (v6::header(kind), v6::pseudo_header(ip, len)),
    };
    out[..HEADER_LEN].copy_from_slice(&header);
    out[HEADER_LEN..].copy_from_slice(quoted);
    let check = pseudo.add(Sum::of(out)).finish();
    out[2..4].copy_from_slice(&check.to_be_bytes());
    len
}
