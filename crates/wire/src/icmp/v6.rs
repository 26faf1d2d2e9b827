//! The ICMP errors of IPv6: RFC 4443 section 3.

use super::{ErrorKind, FlowTuple, HEADER_LEN, Reason};
use crate::checksum::Sum;
use crate::field::fixed;
use crate::ipv6::{self, PROTOCOL_ICMPV6, Upper};
use crate::{IpPair, Layer, Malformed};

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;

impl Reason {
    /// What a code of IPv6's destination unreachable says (RFC 4443 3.1).
    pub const fn of_ipv6(code: u8) -> Reason {
        match code {
            0 => Reason::Network,
            4 => Reason::Port,
            // Prohibited; the source address fails a policy; the route rejects.
            1 | 5 | 6 => Reason::Prohibited,
            // Beyond the scope of the source address; address unreachable.
            _ => Reason::Host,
        }
    }
}

/// The sum of the pseudo-header of a message of `len` bytes (RFC 4443 2.3).
pub(super) fn pseudo_header(ip: IpPair, len: usize) -> Sum {
    ip.pseudo_header(PROTOCOL_ICMPV6, len as u32)
}

pub(super) fn parse(message: &[u8], ip: IpPair) -> Result<Option<(ErrorKind, FlowTuple)>, Malformed> {
    let &[kind, code, _, _, f0, f1, f2, f3] = fixed::<HEADER_LEN>(message, Layer::Icmp)?;
    if !pseudo_header(ip, message.len()).add(Sum::of(message)).verifies() {
        return Err(Malformed::Checksum(Layer::Icmp));
    }
    let field = u32::from_be_bytes([f0, f1, f2, f3]);
    let kind = match kind {
        DESTINATION_UNREACHABLE => ErrorKind::Unreachable { reason: Reason::of_ipv6(code), code },
        // RFC 4443 3.2: the code is ignored.
        PACKET_TOO_BIG => ErrorKind::PacketTooBig { mtu: field },
        TIME_EXCEEDED => ErrorKind::TimeExceeded { code },
        PARAMETER_PROBLEM => ErrorKind::ParameterProblem { code, pointer: field },
        _ => return Ok(None),
    };
    let packet = &message[HEADER_LEN..];
    let quoted = ipv6::Header::parse_quoted(packet)?;
    // No further than the quoted packet went itself.
    let payload = &packet[ipv6::HEADER_LEN..];
    let payload = &payload[..payload.len().min(usize::from(quoted.payload_len))];
    match ipv6::upper(quoted.next_header, payload)? {
        Upper::Message { protocol: ipv6::PROTOCOL_TCP, offset } => {
            let ip = IpPair::V6 { source: quoted.source, destination: quoted.destination };
            Ok(Some((kind, FlowTuple::read(ip, &payload[offset..])?)))
        }
        Upper::Message { .. } | Upper::NotOurs(_) => Ok(None),
    }
}

/// The header that says `kind`, its checksum zero.
pub(super) fn header(kind: ErrorKind) -> [u8; HEADER_LEN] {
    let (kind, code, field) = match kind {
        ErrorKind::Unreachable { code, .. } => (DESTINATION_UNREACHABLE, code, 0),
        ErrorKind::PacketTooBig { mtu } => (PACKET_TOO_BIG, 0, mtu),
        ErrorKind::TimeExceeded { code } => (TIME_EXCEEDED, code, 0),
        ErrorKind::ParameterProblem { code, pointer } => (PARAMETER_PROBLEM, code, pointer),
    };
    let [f0, f1, f2, f3] = field.to_be_bytes();
    [kind, code, 0, 0, f0, f1, f2, f3]
}
