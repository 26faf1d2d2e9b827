//! One received frame, read and verified from end to end.

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::{Layer, Malformed, ethernet, icmp, ipv4, tcp};

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

/// The two addresses of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPair {
    /// The sender's.
    pub source: IpAddr,
    /// The receiver's.
    pub destination: IpAddr,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A whole TCP segment.
    Tcp {
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
    /// Anything else that is intact as far as it was read: another protocol, a fragment, an ICMP message that
    /// is no error of a TCP flow.
    Other,
}

/// Reads and verifies one frame, from its Ethernet header to its last byte of payload. Bytes behind the IPv4
/// total length are the link's padding and are ignored.
///
/// # Errors
///
/// [`Malformed`] if a length does not fit, or a checksum is wrong under `policy`.
#[inline]
pub fn parse(frame: &[u8], policy: ChecksumPolicy) -> Result<Packet<'_>, Malformed> {
    let (ethernet, ethernet_len) = ethernet::Header::parse(frame)?;
    if ethernet.ethertype != ethernet::ETHERTYPE_IPV4 {
        return Ok(Packet::Other);
    }
    let packet = &frame[ethernet_len..];
    let (ip, ip_len) = ipv4::Header::parse(packet)?;
    if ip.is_fragment() {
        return Ok(Packet::Other);
    }
    let message = &packet[ip_len..usize::from(ip.total_len)];
    match ip.protocol {
        ipv4::PROTOCOL_TCP => {
            let (header, header_len) = tcp::Header::parse(message)?;
            Ok(Packet::Tcp {
                checksum: verify(&ip, message, policy)?,
                ip: IpPair { source: IpAddr::V4(ip.source), destination: IpAddr::V4(ip.destination) },
                ecn: ip.ecn(),
                header,
                payload_offset: ethernet_len + ip_len + header_len,
                payload: &message[header_len..],
            })
        }
        ipv4::PROTOCOL_ICMP => {
            let error = icmp::parse(message, IpAddr::V4(ip.source), IpAddr::V4(ip.destination))?;
            Ok(error.map_or(Packet::Other, Packet::Icmp))
        }
        _ => Ok(Packet::Other),
    }
}

/// Checks the checksum of a TCP segment, which has a whole header.
#[inline]
fn verify(ip: &ipv4::Header<'_>, segment: &[u8], policy: ChecksumPolicy) -> Result<ChecksumState, Malformed> {
    // No longer than the IPv4 total length, a u16.
    let pseudo = ipv4::pseudo_header(ip.source, ip.destination, ipv4::PROTOCOL_TCP, segment.len() as u16);
    if pseudo.add(Sum::of(segment)).verifies() {
        return Ok(ChecksumState::Verified);
    }
    let found = u16::from_be_bytes([segment[16], segment[17]]);
    match policy {
        ChecksumPolicy::AcceptPartial if found == pseudo.fold() => Ok(ChecksumState::Partial),
        _ => Err(Malformed::Checksum(Layer::Tcp)),
    }
}
