//! Strategies and helpers that several files share.

use std::net::{Ipv4Addr, SocketAddrV4};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use xsend_wire::checksum::Sum;
use xsend_wire::tcp::{self, Flags, Options, SackBlocks, Timestamps};
use xsend_wire::{Mac, Stamp, Template, TemplateSpec};

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

pub fn socket() -> impl Strategy<Value = SocketAddrV4> {
    (any::<u32>(), any::<u16>())
        .prop_map(|(address, port)| SocketAddrV4::new(Ipv4Addr::from_bits(address), port))
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

pub fn spec() -> impl Strategy<Value = TemplateSpec> {
    let rest = (option::of(any::<u16>()), any::<bool>(), any::<u8>());
    (mac(), mac(), socket(), socket(), rest).prop_map(
        |(source_mac, destination_mac, source, destination, (vlan, timestamps, traffic_class))| {
            TemplateSpec { source_mac, destination_mac, vlan, source, destination, timestamps, traffic_class }
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

/// A fixed flow, for tests that vary something else.
pub fn fixed_spec(timestamps: bool) -> TemplateSpec {
    TemplateSpec {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        source: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 40001),
        destination: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 5001),
        timestamps,
        traffic_class: 0,
    }
}
