//! IPv6 headers (RFC 8200) and the extension headers between them and a message.

mod extension;

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::field::fixed;
use crate::{Layer, Malformed, tcp};

pub use extension::{MAX_EXTENSION_HEADERS, MAX_EXTENSION_LEN, NotOurs, Upper, upper};

/// Length of the header without extensions, in bytes.
pub const HEADER_LEN: usize = 40;
/// The MTU that every IPv6 link has at least, in bytes (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1280;
/// Next-header number of TCP.
pub const PROTOCOL_TCP: u8 = tcp::PROTOCOL;
/// Next-header number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;

/// The bits of a flow label (RFC 6437).
const FLOW_LABEL: u32 = 0x000f_ffff;

/// An IPv6 header without its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// DSCP (upper six bits, RFC 2474) and ECN (lower two, RFC 3168).
    pub traffic_class: u8,
    /// The flow label, 20 bits (RFC 6437): one value for all packets of a flow, zero if there is none. Bits
    /// above are not written.
    pub flow_label: u32,
    /// Length of what follows this header, extension headers included, in bytes.
    pub payload_len: u16,
    /// What follows, e.g. [`PROTOCOL_TCP`] or an extension header.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// The sender's address.
    pub source: Ipv6Addr,
    /// The receiver's address.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Reads the header at the start of `packet`.
    ///
    /// The payload is `packet[HEADER_LEN..][..payload_len]`, both bounds checked here; what lies behind is
    /// padding of the link.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the packet is shorter than it declares, is not version 6, or is a jumbogram.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Header, Malformed> {
        let header = Header::parse_quoted(packet)?;
        // RFC 2675 section 3. No hop-by-hop header fits no bytes, so nothing else looks like this.
        if header.payload_len == 0 && header.next_header == extension::HOP_BY_HOP {
            return Err(Malformed::Jumbogram);
        }
        let needed = HEADER_LEN + usize::from(header.payload_len);
        if needed > packet.len() {
            return Err(Malformed::Truncated { layer: Layer::Ipv6, needed, found: packet.len() });
        }
        Ok(header)
    }

    /// Reads the header of a packet that an ICMPv6 error quotes: the payload may be cut short.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the header itself is cut short or is not version 6.
    #[inline]
    pub fn parse_quoted(packet: &[u8]) -> Result<Header, Malformed> {
        let bytes = fixed::<HEADER_LEN>(packet, Layer::Ipv6)?;
        let &[v0, v1, v2, v3, l0, l1, next_header, hop_limit, ref addresses @ ..] = bytes;
        let source = *fixed::<16>(&addresses[..16], Layer::Ipv6)?;
        let destination = *fixed::<16>(&addresses[16..], Layer::Ipv6)?;
        let first = u32::from_be_bytes([v0, v1, v2, v3]);
        let version = (first >> 28) as u8;
        if version != 6 {
            return Err(Malformed::Version { layer: Layer::Ipv6, found: version });
        }
        Ok(Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & FLOW_LABEL,
            payload_len: u16::from_be_bytes([l0, l1]),
            next_header,
            hop_limit,
            source: Ipv6Addr::from(source),
            destination: Ipv6Addr::from(destination),
        })
    }

    /// The ECN field (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class & 0b11
    }

    /// Writes the header to the start of `out` and returns its length, [`HEADER_LEN`].
    ///
    /// # Panics
    ///
    /// If `out` is shorter than that.
    pub fn build(&self, out: &mut [u8]) -> usize {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL;
        let out = &mut out[..HEADER_LEN];
        out[0..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..40].copy_from_slice(&self.destination.octets());
        HEADER_LEN
    }
}

/// The sum of the pseudo-header that upper-layer checksums cover (RFC 8200 8.1): addresses, the length in
/// bytes of the upper-layer header and its payload, and its protocol number, which the last extension header
/// names. With a routing header the destination is the final one: that of the IPv6 header once no segments
/// are left.
#[inline]
pub fn pseudo_header(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    Sum::of(&source.octets()).add(Sum::of(&destination.octets())).add_u32(len).add_u16(u16::from(protocol))
}
