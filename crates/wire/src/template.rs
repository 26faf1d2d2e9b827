//! The headers of one flow, built once and patched for each segment.

use crate::IpPair;
use crate::checksum::Sum;
use crate::ethernet::{self, HEADER_LEN as ETHERNET, Mac, TAG_LEN as TAG, Tags};
use crate::ipv4::{self, MIN_HEADER_LEN as IPV4};
use crate::ipv6::{self, HEADER_LEN as IPV6};
use crate::tcp::{self, Flags, MIN_HEADER_LEN as TCP, Timestamps};

/// NOP NOP timestamps.
const STAMPS: usize = 12;

/// NOP, NOP, kind 8, length 10 (RFC 7323 appendix A).
const NOP_NOP_TIMESTAMPS: u32 = 0x0101_080a;
/// Four NOPs.
const NOPS: u32 = 0x0101_0101;

/// Time to live, or hop limit, of every packet sent, as Linux has it.
const HOPS: u8 = 64;

/// What a [`Template`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateSpec {
    /// Our interface's address.
    pub source_mac: Mac,
    /// The next hop's.
    pub destination_mac: Mac,
    /// The VLAN tags, with their priorities.
    pub tags: Tags,
    /// Our address and the peer's.
    pub ip: IpPair,
    /// Our port.
    pub source_port: u16,
    /// The peer's port.
    pub destination_port: u16,
    /// Whether data segments carry the timestamps option.
    pub timestamps: bool,
    /// DSCP (upper six bits) and ECN (lower two) of data segments.
    pub traffic_class: u8,
    /// The flow label of IPv6, 20 bits: the same for every packet of the flow, and hard to guess (RFC 6437
    /// section 3). Of no meaning for IPv4.
    pub flow_label: u32,
}

/// What differs from one data segment of a flow to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Sequence number of the first payload byte.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The window as the field holds it, scaled.
    pub window: u16,
    /// Control bits.
    pub flags: Flags,
    /// Timestamps; for templates with timestamps.
    pub timestamps: Option<Timestamps>,
    /// Length of the payload in bytes, at most 65535 less the TCP header and, for IPv4, the IP header.
    pub payload_len: u16,
    /// Sum of the payload.
    pub payload_sum: Sum,
    /// IPv4 identification; of no meaning as packets are sent with DF (RFC 6864 4.1). IPv6 has none.
    pub ip_id: u16,
}

/// The headers of one flow's data segments: Ethernet, up to two VLAN tags, IPv4 (DF, TTL 64) or IPv6 (hop limit
/// 64), TCP, perhaps NOP NOP timestamps.
#[derive(Clone, Debug)]
pub struct Template {
    /// The headers, zero where a stamp writes.
    bytes: [u8; Template::MAX_LEN],
    shape: Shape,
    header_len: u8,
    /// Sum of the IPv4 header with total length, identification and checksum zero. IPv6 has no such checksum.
    ip_sum: Sum,
    /// Sum of the pseudo-header and the TCP header with everything zero that a stamp writes.
    tcp_sum: Sum,
    spec: TemplateSpec,
}

/// Family, number of tags and timestamps of a template: each shape gets code of its own, with every offset a
/// constant.
#[derive(Clone, Copy, Debug)]
enum Shape {
    V4,
    V4Timestamps,
    V4Tag,
    V4TagTimestamps,
    V4Tags,
    V4TagsTimestamps,
    V6,
    V6Timestamps,
    V6Tag,
    V6TagTimestamps,
    V6Tags,
    V6TagsTimestamps,
}

impl Shape {
    fn of(spec: &TemplateSpec) -> Shape {
        match (spec.ip, spec.tags.as_slice().len(), spec.timestamps) {
            (IpPair::V4 { .. }, 0, false) => Shape::V4,
            (IpPair::V4 { .. }, 0, true) => Shape::V4Timestamps,
            (IpPair::V4 { .. }, 1, false) => Shape::V4Tag,
            (IpPair::V4 { .. }, 1, true) => Shape::V4TagTimestamps,
            (IpPair::V4 { .. }, _, false) => Shape::V4Tags,
            (IpPair::V4 { .. }, _, true) => Shape::V4TagsTimestamps,
            (IpPair::V6 { .. }, 0, false) => Shape::V6,
            (IpPair::V6 { .. }, 0, true) => Shape::V6Timestamps,
            (IpPair::V6 { .. }, 1, false) => Shape::V6Tag,
            (IpPair::V6 { .. }, 1, true) => Shape::V6TagTimestamps,
            (IpPair::V6 { .. }, _, false) => Shape::V6Tags,
            (IpPair::V6 { .. }, _, true) => Shape::V6TagsTimestamps,
        }
    }
}

impl Template {
    /// The longest headers of a data segment, in bytes: two VLAN tags, IPv6, timestamps.
    pub const MAX_LEN: usize = ETHERNET + 2 * TAG + IPV6 + TCP + STAMPS;

    /// The template of a flow.
    pub fn new(spec: &TemplateSpec) -> Template {
        let mut bytes = [0; Template::MAX_LEN];
        let ip_at = ethernet_header(spec).build(&mut bytes);
        let tcp_at = ip_at + build_ip(spec, 0, spec.traffic_class, &mut bytes[ip_at..]);
        let mut ip_sum = Sum::ZERO;
        if let IpPair::V4 { .. } = spec.ip {
            // Both are for a stamp to write: the total length, and the checksum, which is the complement of the
            // sum of all the rest.
            bytes[ip_at + 2..ip_at + 4].fill(0);
            bytes[ip_at + 10..ip_at + 12].fill(0);
            ip_sum = Sum::of(&bytes[ip_at..tcp_at]);
        }
        let tcp_len = TCP + if spec.timestamps { STAMPS } else { 0 };
        let tcp = &mut bytes[tcp_at..tcp_at + tcp_len];
        tcp[0..2].copy_from_slice(&spec.source_port.to_be_bytes());
        tcp[2..4].copy_from_slice(&spec.destination_port.to_be_bytes());
        tcp[12] = ((tcp_len / 4) << 4) as u8;
        let tcp_sum = spec.ip.pseudo_header(tcp::PROTOCOL, 0).add(Sum::of(tcp));
        let header_len = (tcp_at + tcp_len) as u8;
        Template { bytes, shape: Shape::of(spec), header_len, ip_sum, tcp_sum, spec: *spec }
    }

    /// Bytes that [`Template::stamp`] writes, which is where the payload belongs: 54 with IPv4 or 74 with IPv6,
    /// 4 more for each VLAN tag, 12 more with timestamps.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header_len)
    }

    /// What the template was made of, with the next hop of the last [`Template::set_destination_mac`].
    pub fn spec(&self) -> &TemplateSpec {
        &self.spec
    }

    /// Sends what follows to another next hop.
    pub fn set_destination_mac(&mut self, mac: Mac) {
        self.spec.destination_mac = mac;
        self.bytes[..6].copy_from_slice(&mac.0);
    }

    /// Writes the headers of one data segment to the first [`Template::header_len`] bytes of `out`, in
    /// constant time: the payload is not read, its sum is given.
    ///
    /// The header's length is fixed. Where a template with timestamps is stamped without any, NOPs fill their
    /// place; one without timestamps ignores those of the stamp.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than the headers.
    #[inline]
    pub fn stamp(&self, out: &mut [u8], stamp: &Stamp) {
        // The only place that asks for the shape.
        match self.shape {
            Shape::V4Timestamps => self.stamp_v4::<{ ETHERNET }, STAMPS>(out, stamp),
            Shape::V4 => self.stamp_v4::<{ ETHERNET }, 0>(out, stamp),
            Shape::V4TagTimestamps => self.stamp_v4::<{ ETHERNET + TAG }, STAMPS>(out, stamp),
            Shape::V4Tag => self.stamp_v4::<{ ETHERNET + TAG }, 0>(out, stamp),
            Shape::V4TagsTimestamps => self.stamp_v4::<{ ETHERNET + 2 * TAG }, STAMPS>(out, stamp),
            Shape::V4Tags => self.stamp_v4::<{ ETHERNET + 2 * TAG }, 0>(out, stamp),
            Shape::V6Timestamps => self.stamp_v6::<{ ETHERNET }, STAMPS>(out, stamp),
            Shape::V6 => self.stamp_v6::<{ ETHERNET }, 0>(out, stamp),
            Shape::V6TagTimestamps => self.stamp_v6::<{ ETHERNET + TAG }, STAMPS>(out, stamp),
            Shape::V6Tag => self.stamp_v6::<{ ETHERNET + TAG }, 0>(out, stamp),
            Shape::V6TagsTimestamps => self.stamp_v6::<{ ETHERNET + 2 * TAG }, STAMPS>(out, stamp),
            Shape::V6Tags => self.stamp_v6::<{ ETHERNET + 2 * TAG }, 0>(out, stamp),
        }
    }

    /// [`Template::stamp`] for an IPv4 header at `IP` and `OPTIONS` bytes of TCP options.
    #[inline(always)]
    fn stamp_v4<const IP: usize, const OPTIONS: usize>(&self, out: &mut [u8], stamp: &Stamp) {
        let tcp = IP + IPV4;
        let out = &mut out[..tcp + TCP + OPTIONS];
        out.copy_from_slice(&self.bytes[..tcp + TCP + OPTIONS]);

        let headers = (IPV4 + TCP + OPTIONS) as u16;
        debug_assert!(stamp.payload_len <= u16::MAX - headers, "payload too long");
        let total_len = headers.wrapping_add(stamp.payload_len);
        out[IP + 2..IP + 4].copy_from_slice(&total_len.to_be_bytes());
        out[IP + 4..IP + 6].copy_from_slice(&stamp.ip_id.to_be_bytes());
        let check = self.ip_sum.add_u16(total_len).add_u16(stamp.ip_id).finish();
        out[IP + 10..IP + 12].copy_from_slice(&check.to_be_bytes());
        self.stamp_tcp::<OPTIONS>(&mut out[tcp..], total_len.wrapping_sub(IPV4 as u16), stamp);
    }

    /// [`Template::stamp`] for an IPv6 header at `IP` and `OPTIONS` bytes of TCP options.
    #[inline(always)]
    fn stamp_v6<const IP: usize, const OPTIONS: usize>(&self, out: &mut [u8], stamp: &Stamp) {
        let tcp = IP + IPV6;
        let out = &mut out[..tcp + TCP + OPTIONS];
        out.copy_from_slice(&self.bytes[..tcp + TCP + OPTIONS]);

        let headers = (TCP + OPTIONS) as u16;
        debug_assert!(stamp.payload_len <= u16::MAX - headers, "payload too long");
        let payload_len = headers.wrapping_add(stamp.payload_len);
        out[IP + 4..IP + 6].copy_from_slice(&payload_len.to_be_bytes());
        self.stamp_tcp::<OPTIONS>(&mut out[tcp..], payload_len, stamp);
    }

    /// Patches the TCP header `tcp` of a segment of `segment_len` bytes.
    #[inline(always)]
    fn stamp_tcp<const OPTIONS: usize>(&self, tcp: &mut [u8], segment_len: u16, stamp: &Stamp) {
        // 32-bit words into a 64-bit sum: a dozen of them cannot overflow it, and carries wait until the end.
        let word = |value: u32| u64::from(value.to_be());
        let mut sum = u64::from(self.tcp_sum.to_raw()) + u64::from(stamp.payload_sum.to_raw());
        tcp[4..8].copy_from_slice(&stamp.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&stamp.ack.to_be_bytes());
        sum += word(stamp.seq) + word(stamp.ack);
        // Data offset (constant), control bits, window.
        tcp[13] = stamp.flags.0;
        tcp[14..16].copy_from_slice(&stamp.window.to_be_bytes());
        sum += word(u32::from(stamp.flags.0) << 16 | u32::from(stamp.window));
        // The pseudo-header's length: of either family the lower half of a word whose upper half is zero.
        sum += word(u32::from(segment_len));
        if OPTIONS == STAMPS {
            let words = match stamp.timestamps {
                Some(Timestamps { value, echo }) => [NOP_NOP_TIMESTAMPS, value, echo],
                None => [NOPS; 3],
            };
            for (at, value) in words.into_iter().enumerate() {
                let at = TCP + 4 * at;
                tcp[at..at + 4].copy_from_slice(&value.to_be_bytes());
                sum += word(value);
            }
        }
        tcp[16..18].copy_from_slice(&Sum::from_wide(sum).finish().to_be_bytes());
    }

    /// Writes a whole control segment (SYN, pure ACK, FIN, RST, window probe) with any options and returns
    /// the frame's length. The ports of `header` are ignored, the template's are written. Never ECN-capable
    /// (RFC 3168 6.1.1, 6.1.4, 6.1.6), and its IPv4 identification is zero (RFC 6864 4.1).
    ///
    /// # Panics
    ///
    /// If `out` is too short, or the IP header's length field cannot hold the segment.
    pub fn control(&self, out: &mut [u8], header: &tcp::Header, payload: &[u8]) -> usize {
        let spec = &self.spec;
        let header = tcp::Header { source: spec.source_port, destination: spec.destination_port, ..*header };
        let header_len = header.header_len();
        let segment_len = header_len + payload.len();

        let ip_at = ethernet_header(spec).build(out);
        let not_ect = spec.traffic_class & !0b11;
        let tcp_at = ip_at + build_ip(spec, segment_len, not_ect, &mut out[ip_at..]);
        let segment = &mut out[tcp_at..tcp_at + segment_len];
        header.build(segment);
        segment[header_len..].copy_from_slice(payload);
        let check = tcp::checksum(spec.ip, segment);
        segment[16..18].copy_from_slice(&check.to_be_bytes());
        tcp_at + segment_len
    }
}

fn ethernet_header(spec: &TemplateSpec) -> ethernet::Header {
    ethernet::Header {
        destination: spec.destination_mac,
        source: spec.source_mac,
        tags: spec.tags,
        ethertype: match spec.ip {
            IpPair::V4 { .. } => ethernet::ETHERTYPE_IPV4,
            IpPair::V6 { .. } => ethernet::ETHERTYPE_IPV6,
        },
    }
}

/// Writes the IP header of a segment of `segment_len` bytes and returns its length.
fn build_ip(spec: &TemplateSpec, segment_len: usize, traffic_class: u8, out: &mut [u8]) -> usize {
    match spec.ip {
        IpPair::V4 { source, destination } => ipv4::Header {
            traffic_class,
            total_len: length_field(IPV4 + segment_len),
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: HOPS,
            protocol: ipv4::PROTOCOL_TCP,
            source,
            destination,
            options: &[],
        }
        .build(out),
        IpPair::V6 { source, destination } => ipv6::Header {
            traffic_class,
            flow_label: spec.flow_label,
            payload_len: length_field(segment_len),
            next_header: ipv6::PROTOCOL_TCP,
            hop_limit: HOPS,
            source,
            destination,
        }
        .build(out),
    }
}

fn length_field(len: usize) -> u16 {
    let Ok(field) = u16::try_from(len) else { panic!("IP length field cannot hold {len} bytes") };
    field
}
