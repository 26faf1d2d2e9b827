//! ICMP errors (RFC 792, RFC 1191) that quote a TCP segment.

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::field::fixed;
use crate::{Layer, Malformed, ipv4};

/// Length of an ICMP error's own header, in bytes; the quoted packet follows.
pub const HEADER_LEN: usize = 8;

const DESTINATION_UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const FRAGMENTATION_NEEDED: u8 = 4;

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Destination unreachable, any code but "fragmentation needed".
    Unreachable {
        /// 0 network, 1 host, 2 protocol, 3 port; 5 to 15 as RFC 1122 3.2.2.1 and RFC 1812 5.2.7.1 list them.
        code: u8,
    },
    /// The packet did not fit the next link and must not be fragmented (RFC 1191).
    FragmentationNeeded {
        /// MTU of that link in bytes; zero from routers older than RFC 1191.
        mtu: u16,
    },
    /// The time to live ran out.
    TimeExceeded {
        /// 0 on the way, 1 during reassembly.
        code: u8,
    },
    /// A field of the header is wrong.
    ParameterProblem {
        /// 0: the pointer says which; 1: an option is missing; 2: a length is wrong.
        code: u8,
        /// Offset of that field in the quoted packet, in bytes.
        pointer: u8,
    },
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

/// Reads the ICMP message of an IP packet; `None` if it is intact and does not concern a TCP flow: no error,
/// a redirect, a source quench (RFC 6633: ignored), a quotation of another protocol or of a later fragment.
///
/// # Errors
///
/// [`Malformed`] if the message is too short, its checksum is wrong, or the quoted headers are cut short
/// before the eight bytes of TCP that RFC 792 guarantees.
pub fn parse(message: &[u8], reporter: IpAddr, recipient: IpAddr) -> Result<Option<IcmpError>, Malformed> {
    let &[kind, code, _, _, pointer, _, m0, m1] = fixed::<HEADER_LEN>(message, Layer::Icmp)?;
    if !Sum::of(message).verifies() {
        return Err(Malformed::Checksum(Layer::Icmp));
    }
    let kind = match (kind, code) {
        (DESTINATION_UNREACHABLE, FRAGMENTATION_NEEDED) => {
            ErrorKind::FragmentationNeeded { mtu: u16::from_be_bytes([m0, m1]) }
        }
        (DESTINATION_UNREACHABLE, code) => ErrorKind::Unreachable { code },
        (TIME_EXCEEDED, code) => ErrorKind::TimeExceeded { code },
        (PARAMETER_PROBLEM, code) => ErrorKind::ParameterProblem { code, pointer },
        _ => return Ok(None),
    };
    let packet = &message[HEADER_LEN..];
    let (ip, ip_len) = ipv4::Header::parse_quoted(packet)?;
    if ip.protocol != ipv4::PROTOCOL_TCP || ip.fragment_offset != 0 {
        return Ok(None);
    }
    let &[s0, s1, d0, d1, q0, q1, q2, q3] = fixed::<8>(&packet[ip_len..], Layer::Tcp)?;
    let quoted = FlowTuple {
        source: IpAddr::V4(ip.source),
        destination: IpAddr::V4(ip.destination),
        source_port: u16::from_be_bytes([s0, s1]),
        destination_port: u16::from_be_bytes([d0, d1]),
        seq: u32::from_be_bytes([q0, q1, q2, q3]),
    };
    Ok(Some(IcmpError { kind, reporter, recipient, quoted }))
}

/// Writes the ICMP message that reports `kind` about the IP packet that starts with `quoted` (its header and
/// at least eight bytes more) and returns its length.
///
/// # Panics
///
/// If `out` is shorter than [`HEADER_LEN`] and `quoted` together.
pub fn build(out: &mut [u8], kind: ErrorKind, quoted: &[u8]) -> usize {
    let len = HEADER_LEN + quoted.len();
    let out = &mut out[..len];
    let (kind, code, pointer, mtu) = match kind {
        ErrorKind::Unreachable { code } => (DESTINATION_UNREACHABLE, code, 0, 0),
        ErrorKind::FragmentationNeeded { mtu } => (DESTINATION_UNREACHABLE, FRAGMENTATION_NEEDED, 0, mtu),
        ErrorKind::TimeExceeded { code } => (TIME_EXCEEDED, code, 0, 0),
        ErrorKind::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer, 0),
    };
    let [m0, m1] = mtu.to_be_bytes();
    out[..HEADER_LEN].copy_from_slice(&[kind, code, 0, 0, pointer, 0, m0, m1]);
    out[HEADER_LEN..].copy_from_slice(quoted);
    let check = Sum::of(out).finish();
    out[2..4].copy_from_slice(&check.to_be_bytes());
    len
}
