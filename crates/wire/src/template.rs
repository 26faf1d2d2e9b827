//! The headers of one flow, built once and patched for each segment.

use core::net::SocketAddrV4;

use crate::checksum::Sum;
use crate::ethernet::{self, Mac, Tag, Tags};
use crate::ipv4;
use crate::tcp::{self, Flags, Timestamps};

const TCP_LEN: usize = tcp::MIN_HEADER_LEN;
/// Ethernet, IPv4 and TCP headers with nothing optional.
const PLAIN_LEN: usize = ethernet::HEADER_LEN + ipv4::MIN_HEADER_LEN + TCP_LEN;
/// NOP NOP timestamps.
const TIMESTAMPS_LEN: usize = 12;
/// The longest template: one VLAN tag, timestamps.
const MAX_LEN: usize = PLAIN_LEN + ethernet::TAG_LEN + TIMESTAMPS_LEN;

/// NOP, NOP, kind 8, length 10 (RFC 7323 appendix A).
const NOP_NOP_TIMESTAMPS: u32 = 0x0101_080a;
/// Four NOPs.
const NOPS: u32 = 0x0101_0101;

/// Time to live of every packet sent, as Linux has it.
const TTL: u8 = 64;

/// What a [`Template`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateSpec {
    /// Our interface's address.
    pub source_mac: Mac,
    /// The next hop's.
    pub destination_mac: Mac,
    /// Tag control information of an 802.1Q tag: VLAN identifier in the lower 12 bits, priority above.
    pub vlan: Option<u16>,
    /// Our address and port.
    pub source: SocketAddrV4,
    /// The peer's address and port.
    pub destination: SocketAddrV4,
    /// Whether data segments carry the timestamps option.
    pub timestamps: bool,
    /// DSCP (upper six bits) and ECN (lower two) of data segments.
    pub traffic_class: u8,
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
    /// Length of the payload in bytes, at most 65535 less the IPv4 and TCP headers.
    pub payload_len: u16,
    /// Sum of the payload.
    pub payload_sum: Sum,
    /// IPv4 identification; of no meaning as packets are sent with DF (RFC 6864 4.1).
    pub ip_id: u16,
}

/// The headers of one flow's data segments: Ethernet, perhaps a VLAN tag, IPv4 (DF, TTL 64), TCP, perhaps
/// NOP NOP timestamps.
#[derive(Clone, Debug)]
pub struct Template {
    /// The headers, zero where a stamp writes.
    bytes: [u8; MAX_LEN],
    shape: Shape,
    /// Sum of the IPv4 header with total length, identification and checksum zero.
    ip_sum: Sum,
    /// Sum of the pseudo-header and the TCP header with everything zero that a stamp writes.
    tcp_sum: Sum,
    spec: TemplateSpec,
}

/// Which optional parts a template has: each shape gets code of its own, with every offset a constant.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Plain,
    Timestamps,
    Vlan,
    VlanTimestamps,
}

impl Template {
    /// The template of a flow.
    pub fn new(spec: &TemplateSpec) -> Template {
        let shape = match (spec.vlan.is_some(), spec.timestamps) {
            (false, false) => Shape::Plain,
            (false, true) => Shape::Timestamps,
            (true, false) => Shape::Vlan,
            (true, true) => Shape::VlanTimestamps,
        };
        let mut bytes = [0; MAX_LEN];
        let ip_at = ethernet_header(spec).build(&mut bytes);
        let tcp_at = ip_at + ipv4_header(spec, 0, spec.traffic_class).build(&mut bytes[ip_at..]);
        // The checksum is for a stamp to write, and it is the complement of the sum of all the rest.
        bytes[ip_at + 10..ip_at + 12].fill(0);
        let ip_sum = Sum::of(&bytes[ip_at..tcp_at]);
        let tcp_len = TCP_LEN + if spec.timestamps { TIMESTAMPS_LEN } else { 0 };
        let tcp = &mut bytes[tcp_at..tcp_at + tcp_len];
        tcp[0..2].copy_from_slice(&spec.source.port().to_be_bytes());
        tcp[2..4].copy_from_slice(&spec.destination.port().to_be_bytes());
        tcp[12] = ((tcp_len / 4) << 4) as u8;
        let pseudo = ipv4::pseudo_header(*spec.source.ip(), *spec.destination.ip(), ipv4::PROTOCOL_TCP, 0);
        let tcp_sum = pseudo.add(Sum::of(tcp));
        Template { bytes, shape, ip_sum, tcp_sum, spec: *spec }
    }

    /// Bytes that [`Template::stamp`] writes: 54 or 66, and 4 more with a VLAN tag.
    #[inline]
    pub fn header_len(&self) -> usize {
        match self.shape {
            Shape::Plain => PLAIN_LEN,
            Shape::Timestamps => PLAIN_LEN + TIMESTAMPS_LEN,
            Shape::Vlan => PLAIN_LEN + ethernet::TAG_LEN,
            Shape::VlanTimestamps => PLAIN_LEN + ethernet::TAG_LEN + TIMESTAMPS_LEN,
        }
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
        const VLAN: usize = ethernet::TAG_LEN;
        match self.shape {
            Shape::Timestamps => self.stamp_as::<{ PLAIN_LEN + TIMESTAMPS_LEN }, 0>(out, stamp),
            Shape::Plain => self.stamp_as::<PLAIN_LEN, 0>(out, stamp),
            Shape::VlanTimestamps => self.stamp_as::<{ PLAIN_LEN + VLAN + TIMESTAMPS_LEN }, VLAN>(out, stamp),
            Shape::Vlan => self.stamp_as::<{ PLAIN_LEN + VLAN }, VLAN>(out, stamp),
        }
    }

    /// [`Template::stamp`] for headers of `LEN` bytes, of which `VLAN` are a VLAN tag.
    #[inline(always)]
    fn stamp_as<const LEN: usize, const VLAN: usize>(&self, out: &mut [u8], stamp: &Stamp) {
        let ip = ethernet::HEADER_LEN + VLAN;
        let tcp = ip + ipv4::MIN_HEADER_LEN;
        let out = &mut out[..LEN];
        out.copy_from_slice(&self.bytes[..LEN]);

        debug_assert!(
            usize::from(stamp.payload_len) <= usize::from(u16::MAX) - (LEN - ip),
            "payload too long"
        );
        let total_len = ((LEN - ip) as u16).wrapping_add(stamp.payload_len);
        out[ip + 2..ip + 4].copy_from_slice(&total_len.to_be_bytes());
        out[ip + 4..ip + 6].copy_from_slice(&stamp.ip_id.to_be_bytes());
        let check = self.ip_sum.add_u16(total_len).add_u16(stamp.ip_id).finish();
        out[ip + 10..ip + 12].copy_from_slice(&check.to_be_bytes());

        // 32-bit words into a 64-bit sum: a dozen of them cannot overflow it, and carries wait until the end.
        let word = |value: u32| u64::from(value.to_be());
        let mut sum = u64::from(self.tcp_sum.to_raw()) + u64::from(stamp.payload_sum.to_raw());
        out[tcp + 4..tcp + 8].copy_from_slice(&stamp.seq.to_be_bytes());
        out[tcp + 8..tcp + 12].copy_from_slice(&stamp.ack.to_be_bytes());
        sum += word(stamp.seq) + word(stamp.ack);
        // Data offset (constant), control bits, window.
        out[tcp + 13] = stamp.flags.0;
        out[tcp + 14..tcp + 16].copy_from_slice(&stamp.window.to_be_bytes());
        sum += word(u32::from(stamp.flags.0) << 16 | u32::from(stamp.window));
        // The pseudo-header's length: the lower half of a word whose upper half is zero.
        sum += word(u32::from(total_len.wrapping_sub(ipv4::MIN_HEADER_LEN as u16)));
        if LEN == tcp + TCP_LEN + TIMESTAMPS_LEN {
            let words = match stamp.timestamps {
                Some(Timestamps { value, echo }) => [NOP_NOP_TIMESTAMPS, value, echo],
                None => [NOPS; 3],
            };
            for (at, value) in words.into_iter().enumerate() {
                let at = tcp + TCP_LEN + 4 * at;
                out[at..at + 4].copy_from_slice(&value.to_be_bytes());
                sum += word(value);
            }
        }
        out[tcp + 16..tcp + 18].copy_from_slice(&Sum::from_wide(sum).finish().to_be_bytes());
    }

    /// Writes a whole control segment (SYN, pure ACK, FIN, RST, window probe) with any options and returns
    /// the frame's length. The ports of `header` are ignored, the template's are written. Never ECN-capable
    /// (RFC 3168 6.1.1, 6.1.4, 6.1.6), and its IPv4 identification is zero (RFC 6864 4.1).
    ///
    /// # Panics
    ///
    /// If `out` is too short, or the packet would be longer than 65535 bytes.
    pub fn control(&self, out: &mut [u8], header: &tcp::Header, payload: &[u8]) -> usize {
        let spec = &self.spec;
        let header =
            tcp::Header { source: spec.source.port(), destination: spec.destination.port(), ..*header };
        let header_len = header.header_len();
        let segment_len = header_len + payload.len();
        let total_len = u16::try_from(ipv4::MIN_HEADER_LEN + segment_len);
        let Ok(total_len) = total_len else { panic!("control: {} bytes of payload", payload.len()) };

        let ip_at = ethernet_header(spec).build(out);
        let not_ect = spec.traffic_class & !0b11;
        let tcp_at = ip_at + ipv4_header(spec, total_len, not_ect).build(&mut out[ip_at..]);
        let segment = &mut out[tcp_at..tcp_at + segment_len];
        header.build(segment);
        segment[header_len..].copy_from_slice(payload);
        let check = tcp::checksum(*spec.source.ip(), *spec.destination.ip(), segment);
        segment[16..18].copy_from_slice(&check.to_be_bytes());
        tcp_at + segment_len
    }
}

fn ethernet_header(spec: &TemplateSpec) -> ethernet::Header {
    let mut tags = Tags::default();
    if let Some(control) = spec.vlan {
        tags.push(Tag { protocol: ethernet::TPID_CUSTOMER, control });
    }
    ethernet::Header {
        destination: spec.destination_mac,
        source: spec.source_mac,
        tags,
        ethertype: ethernet::ETHERTYPE_IPV4,
    }
}

fn ipv4_header(spec: &TemplateSpec, total_len: u16, traffic_class: u8) -> ipv4::Header<'static> {
    ipv4::Header {
        traffic_class,
        total_len,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: TTL,
        protocol: ipv4::PROTOCOL_TCP,
        source: *spec.source.ip(),
        destination: *spec.destination.ip(),
        options: &[],
    }
}
