//! The ICMP errors of IPv4: RFC 792, RFC 1122 3.2.2, RFC 1191, RFC 1812 5.2.7.

use super::{ErrorKind, FlowTuple, HEADER_LEN, Reason};
use crate::checksum::Sum;
use crate::field::fixed;
use crate::{IpPair, Layer, Malformed, ipv4};

const DESTINATION_UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;
const FRAGMENTATION_NEEDED: u8 = 4;

impl Reason {
    /// What a code of IPv4's destination unreachable says (RFC 792, RFC 1122 3.2.2.1, RFC 1812 5.2.7.1).
    pub const fn of_ipv4(code: u8) -> Reason {
        match code {
            // Net; source route failed; net unknown; for this type of service.
            0 | 5 | 6 | 11 => Reason::Network,
            2 => Reason::Protocol,
            3 => Reason::Port,
            // Net, host, communication administratively prohibited.
            9 | 10 | 13 => Reason::Prohibited,
            _ => Reason::Host,
        }
    }
}

pub(super) fn parse(message: &[u8]) -> Result<Option<(ErrorKind, FlowTuple)>, Malformed> {
    let &[kind, code, _, _, pointer, _, m0, m1] = fixed::<HEADER_LEN>(message, Layer::Icmp)?;
    if !Sum::of(message).verifies() {
        return Err(Malformed::Checksum(Layer::Icmp));
    }
    let kind = match (kind, code) {
        (DESTINATION_UNREACHABLE, FRAGMENTATION_NEEDED) => {
            ErrorKind::PacketTooBig { mtu: u32::from(u16::from_be_bytes([m0, m1])) }
        }
        (DESTINATION_UNREACHABLE, code) => ErrorKind::Unreachable { reason: Reason::of_ipv4(code), code },
        (TIME_EXCEEDED, code) => ErrorKind::TimeExceeded { code },
        (PARAMETER_PROBLEM, code) => ErrorKind::ParameterProblem { code, pointer: u32::from(pointer) },
        _ => return Ok(None),
    };
    let packet = &message[HEADER_LEN..];
    let (ip, ip_len) = ipv4::Header::parse_quoted(packet)?;
    if ip.protocol != ipv4::PROTOCOL_TCP || ip.fragment_offset != 0 {
        return Ok(None);
    }
    let ip = IpPair::V4 { source: ip.source, destination: ip.destination };
    Ok(Some((kind, FlowTuple::read(ip, &packet[ip_len..])?)))
}

/// The header that says `kind`, its checksum zero.
pub(super) fn header(kind: ErrorKind) -> [u8; HEADER_LEN] {
    let (kind, code, pointer, mtu) = match kind {
        ErrorKind::Unreachable { code, .. } => (DESTINATION_UNREACHABLE, code, 0, 0),
        ErrorKind::PacketTooBig { mtu } => (DESTINATION_UNREACHABLE, FRAGMENTATION_NEEDED, 0, mtu as u16),
        ErrorKind::TimeExceeded { code } => (TIME_EXCEEDED, code, 0, 0),
        ErrorKind::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer as u8, 0),
    };
    let [m0, m1] = mtu.to_be_bytes();
    [kind, code, 0, 0, pointer, 0, m0, m1]
}
