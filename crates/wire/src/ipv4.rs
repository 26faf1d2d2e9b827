//! IPv4 headers (RFC 791, RFC 6864).

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::field::{fixed, prefix};
use crate::{Layer, Malformed, tcp};

/// Header length without options, in bytes.
pub const MIN_HEADER_LEN: usize = 20;
/// The longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = tcp::PROTOCOL;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// An IPv4 header. Options are carried as the bytes they are and never interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// DSCP (upper six bits, RFC 2474) and ECN (lower two, RFC 3168).
    pub traffic_class: u8,
    /// Length of header and payload in bytes; on parsing checked to be at least the header's.
    pub total_len: u16,
    /// Identification, meaningful only for fragments (RFC 6864).
    pub identification: u16,
    /// Routers must not fragment this packet.
    pub dont_fragment: bool,
    /// More fragments follow this one.
    pub more_fragments: bool,
    /// Where this fragment's payload belongs, in units of 8 bytes; 13 bits.
    pub fragment_offset: u16,
    /// Hops left.
    pub ttl: u8,
    /// What the payload is, e.g. [`PROTOCOL_TCP`].
    pub protocol: u8,
    /// The sender's address.
    pub source: Ipv4Addr,
    /// The receiver's address.
    pub destination: Ipv4Addr,
    /// The options, padding included: at most 40 bytes, a multiple of 4.
    pub options: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads and verifies the header at the start of `packet`, and returns it with its length.
    ///
    /// The payload is `packet[header_len..total_len]`, both bounds checked here; what lies behind is padding
    /// of the link.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the packet is shorter than it declares, declares less than its header, is not version
    /// 4, or has a wrong header checksum.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<(Header<'a>, usize), Malformed> {
        let (header, header_len) = Header::parse_quoted(packet)?;
        let total_len = usize::from(header.total_len);
        if total_len > packet.len() {
            return Err(Malformed::Truncated { layer: Layer::Ipv4, needed: total_len, found: packet.len() });
        }
        if !Sum::of(prefix(packet, header_len, Layer::Ipv4)?).verifies() {
            return Err(Malformed::Checksum(Layer::Ipv4));
        }
        Ok((header, header_len))
    }

    /// Reads the header of a packet that an ICMP error quotes: the payload may be cut short, and routers on
    /// the way have changed TTL and checksum, so neither is checked.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the header itself is cut short or inconsistent.
    #[inline]
    pub fn parse_quoted(packet: &'a [u8]) -> Result<(Header<'a>, usize), Malformed> {
        let &[
            first,
            traffic_class,
            l0,
            l1,
            i0,
            i1,
            f0,
            f1,
            ttl,
            protocol,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ] = fixed::<MIN_HEADER_LEN>(packet, Layer::Ipv4)?;
        if first >> 4 != 4 {
            return Err(Malformed::Version { layer: Layer::Ipv4, found: first >> 4 });
        }
        let header_len = usize::from(first & 0x0f) * 4;
        if header_len < MIN_HEADER_LEN {
            return Err(Malformed::HeaderLength { layer: Layer::Ipv4, declared: header_len });
        }
        let options = &prefix(packet, header_len, Layer::Ipv4)?[MIN_HEADER_LEN..];
        let total_len = u16::from_be_bytes([l0, l1]);
        if usize::from(total_len) < header_len {
            return Err(Malformed::HeaderLength { layer: Layer::Ipv4, declared: usize::from(total_len) });
        }
        let fragment = u16::from_be_bytes([f0, f1]);
        let header = Header {
            traffic_class,
            total_len,
            identification: u16::from_be_bytes([i0, i1]),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: fragment & OFFSET_MASK,
            ttl,
            protocol,
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
            options,
        };
        Ok((header, header_len))
    }

    /// Length on the wire: 20 to 60 bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// Whether this is only part of a packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The ECN field (RFC 3168 section 5): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.traffic_class & 0b11
    }

    /// Writes the header with its checksum to the start of `out` and returns its length.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than the header, or the options are longer than 40 bytes or no multiple of 4.
    pub fn build(&self, out: &mut [u8]) -> usize {
        let len = self.header_len();
        assert!(
            len <= MAX_HEADER_LEN && len.is_multiple_of(4),
            "IPv4 options: at most 40 bytes, whole words"
        );
        let out = &mut out[..len];
        let mut fragment = self.fragment_offset & OFFSET_MASK;
        fragment |= if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        fragment |= if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        out[0] = 0x40 | (len / 4) as u8;
        out[1] = self.traffic_class;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&fragment.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
        out[20..].copy_from_slice(self.options);
        let check = Sum::of(out).finish();
        out[10..12].copy_from_slice(&check.to_be_bytes());
        len
    }
}

/// The sum of the pseudo-header that TCP's checksum covers (RFC 9293 3.1): addresses, protocol and the length
/// in bytes of TCP header and payload, at most 65535.
#[inline]
pub fn pseudo_header(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    Sum::ZERO
        .add_u32(source.to_bits())
        .add_u32(destination.to_bits())
        .add_u16(u16::from(protocol))
        // The field has 16 bits; those above are zero, and add nothing.
        .add_u32(len)
}
