//! One received frame, read and verified from end to end.

use crate::checksum::Sum;
use crate::ethernet::{self, Tags};
use crate::ipv6::{self, Upper};
use crate::{IpPair, Layer, Malformed, icmp, ipv4, tcp};

/// Which TCP checksums are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Only complete and correct ones.
    #[default]
    Verify,
    /// Also a checksum field that holds exactly the folded sum of the pseudo-header: what a kernel that leaves
    /// the rest to its network card puts on a virtual link, where no card follows. Such a payload is *not*
    /// protected.
    AcceptPartial,
}

/// How an accepted TCP checksum was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// Complete and correct.
    Verified,
    /// The pseudo-header's sum only; see [`ChecksumPolicy::AcceptPartial`].
    Partial,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A whole TCP segment.
    Tcp {
        /// The VLAN it came on: a flow takes no segment from another than its own.
        tags: Tags,
        /// From whom to whom.
        ip: IpPair,
        /// The ECN field (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
        ecn: u8,
        /// The TCP header.
        header: tcp::Header,
        /// Where in the frame the payload starts, in bytes.
        payload_offset: usize,
        /// The payload, without any padding of the link.
        payload: &'a [u8],
        /// How its checksum was found.
        checksum: ChecksumState,
    },
    /// An ICMP error about a TCP flow.
    Icmp(icmp::IcmpError),
    /// Anything else that is intact as far as it was read: another protocol, a fragment, what
    /// [`ipv6::NotOurs`] lists, an ICMP message that is no error of a TCP flow.
    Other,
}

/// Reads and verifies one frame, from its Ethernet header to its last byte of payload. Bytes behind the length
/// that the IP header declares are the link's padding and are ignored.
///
/// # Errors
///
/// [`Malformed`] if a length does not fit, a checksum is wrong under `policy`, or IPv6 extension headers are
/// refused.
#[inline]
pub fn parse(frame: &[u8], policy: ChecksumPolicy) -> Result<Packet<'_>, Malformed> {
    let (ethernet, ethernet_len) = ethernet::Header::parse(frame)?;
    let packet = &frame[ethernet_len..];
    let found = match ethernet.ethertype {
        ethernet::ETHERTYPE_IPV4 => ipv4_message(packet)?,
        ethernet::ETHERTYPE_IPV6 => ipv6_message(packet)?,
        _ => None,
    };
    let Some(Message { ip, ecn, protocol, offset, bytes }) = found else { return Ok(Packet::Other) };
    match (protocol, ip) {
        (tcp::PROTOCOL, _) => {
            let (header, header_len) = tcp::Header::parse(bytes)?;
            Ok(Packet::Tcp {
                tags: ethernet.tags,
                checksum: verify(ip, bytes, policy)?,
                ip,
                ecn,
                header,
                payload_offset: ethernet_len + offset + header_len,
                payload: &bytes[header_len..],
            })
        }
        (ipv4::PROTOCOL_ICMP, IpPair::V4 { .. }) | (ipv6::PROTOCOL_ICMPV6, IpPair::V6 { .. }) => {
            Ok(icmp::parse(bytes, ip)?.map_or(Packet::Other, Packet::Icmp))
        }
        _ => Ok(Packet::Other),
    }
}

/// The message that an IP packet carries, whole.
struct Message<'a> {
    ip: IpPair,
    ecn: u8,
    protocol: u8,
    /// Where in the packet it starts.
    offset: usize,
    bytes: &'a [u8],
}

/// `None` for a fragment.
#[inline]
fn ipv4_message(packet: &[u8]) -> Result<Option<Message<'_>>, Malformed> {
    let (header, offset) = ipv4::Header::parse(packet)?;
    if header.is_fragment() {
        return Ok(None);
    }
    Ok(Some(Message {
        ip: IpPair::V4 { source: header.source, destination: header.destination },
        ecn: header.ecn(),
        protocol: header.protocol,
        offset,
        bytes: &packet[offset..usize::from(header.total_len)],
    }))
}

/// `None` for what [`ipv6::NotOurs`] lists.
#[inline]
fn ipv6_message(packet: &[u8]) -> Result<Option<Message<'_>>, Malformed> {
    let header = ipv6::Header::parse(packet)?;
    let payload = &packet[ipv6::HEADER_LEN..][..usize::from(header.payload_len)];
    let Upper::Message { protocol, offset } = ipv6::upper(header.next_header, payload)? else {
        return Ok(None);
    };
    Ok(Some(Message {
        ip: IpPair::V6 { source: header.source, destination: header.destination },
        ecn: header.ecn(),
        protocol,
        offset: ipv6::HEADER_LEN + offset,
        bytes: &payload[offset..],
    }))
}

/// Checks the checksum of a TCP segment, which has a whole header and is no longer than an IP packet.
#[inline]
fn verify(ip: IpPair, segment: &[u8], policy: ChecksumPolicy) -> Result<ChecksumState, Malformed> {
    let pseudo = ip.pseudo_header(tcp::PROTOCOL, segment.len() as u32);
    if pseudo.add(Sum::of(segment)).verifies() {
        return Ok(ChecksumState::Verified);
    }
    let found = u16::from_be_bytes([segment[16], segment[17]]);
    match policy {
        ChecksumPolicy::AcceptPartial if found == pseudo.fold() => Ok(ChecksumState::Partial),
        _ => Err(Malformed::Checksum(Layer::Tcp)),
    }
}
