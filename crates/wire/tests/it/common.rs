//! Strategies and helpers that several files share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use xsend_wire::checksum::Sum;
use xsend_wire::ethernet::{TPID_CUSTOMER, TPID_SERVICE, Tag, Tags};
use xsend_wire::tcp::{self, Flags, Options, SackBlocks, Timestamps};
use xsend_wire::{IpPair, Mac, Stamp, Template, TemplateSpec};

/// The Internet checksum as RFC 1071 section 1 words it: big-endian 16-bit words, an odd byte padded with zero.
pub fn naive_fold(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

pub fn ip_pair_v4() -> impl Strategy<Value = IpPair> {
    any::<(u32, u32)>().prop_map(|(source, destination)| IpPair::V4 {
        source: Ipv4Addr::from_bits(source),
        destination: Ipv4Addr::from_bits(destination),
    })
}

pub fn ip_pair_v6() -> impl Strategy<Value = IpPair> {
    any::<(u128, u128)>().prop_map(|(source, destination)| IpPair::V6 {
        source: Ipv6Addr::from_bits(source),
        destination: Ipv6Addr::from_bits(destination),
    })
}

/// An address as the bytes of the wire.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Up to two tags of either protocol.
pub fn tags() -> impl Strategy<Value = Tags> {
    vec((prop_oneof![Just(TPID_CUSTOMER), Just(TPID_SERVICE)], any::<u16>()), 0..=2).prop_map(|list| {
        let mut tags = Tags::NONE;
        for (protocol, control) in list {
            assert!(tags.push(Tag { protocol, control }));
        }
        tags
    })
}

pub fn timestamps() -> impl Strategy<Value = Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo })
}

pub fn sack_blocks(most: usize) -> impl Strategy<Value = SackBlocks> {
    vec(any::<(u32, u32)>(), 0..=most).prop_map(|blocks| {
        let mut sack = SackBlocks::EMPTY;
        for (left, right) in blocks {
            assert!(sack.push(left, right));
        }
        sack
    })
}

pub fn options() -> impl Strategy<Value = Options> {
    let scale = option::of(0u8..=14);
    (option::of(any::<u16>()), scale, any::<bool>(), option::of(timestamps()), sack_blocks(4)).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, sack)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack,
        },
    )
}

pub fn header() -> impl Strategy<Value = tcp::Header> {
    let fields = any::<(u16, u16, u32, u32, u8, u16, u16)>();
    (fields, options()).prop_map(|((source, destination, seq, ack, flags, window, urgent), options)| {
        tcp::Header { source, destination, seq, ack, flags: Flags(flags), window, urgent, options }
    })
}

/// A flow of either family.
pub fn spec() -> impl Strategy<Value = TemplateSpec> {
    prop_oneof![spec_of(ip_pair_v4()), spec_of(ip_pair_v6())]
}

pub fn spec_of(ip: impl Strategy<Value = IpPair>) -> impl Strategy<Value = TemplateSpec> {
    let rest = (any::<(u16, u16)>(), any::<bool>(), any::<u8>(), 0u32..1 << 20);
    (mac(), mac(), tags(), ip, rest).prop_map(
        |(source_mac, destination_mac, tags, ip, (ports, timestamps, traffic_class, flow_label))| {
            TemplateSpec {
                source_mac,
                destination_mac,
                tags,
                ip,
                source_port: ports.0,
                destination_port: ports.1,
                timestamps,
                traffic_class,
                flow_label,
            }
        },
    )
}

/// A stamp for `payload`, with timestamps.
pub fn stamp(payload: Vec<u8>) -> impl Strategy<Value = (Stamp, Vec<u8>)> {
    (any::<(u32, u32, u16, u8, u16)>(), timestamps()).prop_map(
        move |((seq, ack, window, flags, ip_id), timestamps)| {
            let stamp = Stamp {
                seq,
                ack,
                window,
                flags: Flags(flags),
                timestamps: Some(timestamps),
                payload_len: payload.len() as u16,
                payload_sum: Sum::of(&payload),
                ip_id,
            };
            (stamp, payload.clone())
        },
    )
}

pub fn stamp_and_payload() -> impl Strategy<Value = (Stamp, Vec<u8>)> {
    vec(any::<u8>(), 0..1600).prop_flat_map(stamp)
}

/// A whole frame: stamped headers and payload.
pub fn frame(template: &Template, stamp: &Stamp, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xaa; template.header_len()];
    template.stamp(&mut frame, stamp);
    frame.extend_from_slice(payload);
    frame
}

/// A control frame.
pub fn control(template: &Template, header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xaa; 200 + payload.len()];
    let len = template.control(&mut frame, header, payload);
    frame.truncate(len);
    frame
}

/// The two families, for tests that try both.
pub const FAMILIES: [IpPair; 2] = [
    IpPair::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) },
    IpPair::V6 {
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    },
];

/// A fixed flow of IPv4, for tests that vary something else.
pub fn fixed_spec(timestamps: bool) -> TemplateSpec {
    TemplateSpec {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags: Tags::NONE,
        ip: FAMILIES[0],
        source_port: 40001,
        destination_port: 5001,
        timestamps,
        traffic_class: 0,
        flow_label: 0,
    }
}

/// The same flow of IPv6.
pub fn fixed_spec_v6(timestamps: bool) -> TemplateSpec {
    TemplateSpec { ip: FAMILIES[1], flow_label: 0xabcde, ..fixed_spec(timestamps) }
}

/// An extension header of IPv6 that is followed: its kind, and its bytes but for the next header, whose place is
/// zero.
pub fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let options =
        (prop_oneof![Just(0u8), Just(60)], vec(any::<u8>(), 4), 0u8..3).prop_map(|(kind, value, units)| {
            // An unknown option that may be skipped, and padding.
            let mut bytes = vec![0, units, 0x1e, 4];
            bytes.extend_from_slice(&value);
            for _ in 0..units {
                bytes.extend_from_slice(&[1, 6, 0, 0, 0, 0, 0, 0]);
            }
            (kind, bytes)
        });
    let routing = (any::<u8>(), 0u8..3).prop_map(|(kind, units)| {
        let mut bytes = vec![0x77; 8 + 8 * usize::from(units)];
        bytes[..4].copy_from_slice(&[0, units, kind, 0]);
        (43, bytes)
    });
    let fragment = any::<[u8; 4]>().prop_map(|id| (44, [&[0, 0, 0, 0], &id[..]].concat()));
    prop_oneof![2 => options, 1 => routing, 1 => fragment]
}

/// A frame of IPv6 without extension headers, with these put in.
pub fn with_extensions(frame: &[u8], extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let (_, ip_at) = xsend_wire::ethernet::Header::parse(frame).unwrap();
    let (mut out, rest) = (frame[..ip_at + 40].to_vec(), &frame[ip_at + 40..]);
    let (mut next, last) = (ip_at + 6, out[ip_at + 6]);
    for (kind, bytes) in extensions {
        out[next] = *kind;
        next = out.len();
        out.extend_from_slice(bytes);
    }
    out[next] = last;
    out.extend_from_slice(rest);
    let payload_len = (out.len() - ip_at - 40) as u16;
    out[ip_at + 4..ip_at + 6].copy_from_slice(&payload_len.to_be_bytes());
    out
}

/// The TCP header that a stamp stands for.
pub fn stamped_header(spec: &TemplateSpec, stamp: &Stamp) -> tcp::Header {
    tcp::Header {
        source: spec.source_port,
        destination: spec.destination_port,
        seq: stamp.seq,
        ack: stamp.ack,
        flags: stamp.flags,
        window: stamp.window,
        urgent: 0,
        options: Options { timestamps: stamp.timestamps.filter(|_| spec.timestamps), ..Options::default() },
    }
}
