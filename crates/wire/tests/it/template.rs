//! The template against headers built field by field.

use proptest::prelude::*;
use xsend_wire::checksum::Sum;
use xsend_wire::ethernet::{Mac, Tag, Tags};
use xsend_wire::tcp::{self, Flags, Options, Timestamps};
use xsend_wire::{
    ChecksumPolicy, ChecksumState, IpPair, Packet, Stamp, Template, TemplateSpec, ipv4, ipv6, parse,
};

use crate::common::{
    FAMILIES, control, fixed_spec, fixed_spec_v6, frame, spec, stamp_and_payload, stamped_header,
};

/// The same frame, each header by its own `build`.
fn by_hand(spec: &TemplateSpec, stamp: &Stamp, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&spec.destination_mac.0);
    frame.extend_from_slice(&spec.source_mac.0);
    for tag in spec.tags.as_slice() {
        frame.extend_from_slice(&tag.protocol.to_be_bytes());
        frame.extend_from_slice(&tag.control.to_be_bytes());
    }

    let mut segment = [0; 60];
    let header_len = stamped_header(spec, stamp).build(&mut segment);
    let mut segment = [&segment[..header_len], payload].concat();
    let check = tcp::checksum(spec.ip, &segment);
    segment[16..18].copy_from_slice(&check.to_be_bytes());

    let mut ip_bytes = [0; 40];
    let (ethertype, ip_len) = match spec.ip {
        IpPair::V4 { source, destination } => {
            let header = ipv4::Header {
                traffic_class: spec.traffic_class,
                total_len: 20 + segment.len() as u16,
                identification: stamp.ip_id,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: 6,
                source,
                destination,
                options: &[],
            };
            ([0x08, 0x00], header.build(&mut ip_bytes))
        }
        IpPair::V6 { source, destination } => {
            let header = ipv6::Header {
                traffic_class: spec.traffic_class,
                flow_label: spec.flow_label,
                payload_len: segment.len() as u16,
                next_header: 6,
                hop_limit: 64,
                source,
                destination,
            };
            ([0x86, 0xdd], header.build(&mut ip_bytes))
        }
    };
    assert_eq!(ip_len, spec.ip.header_len());
    [frame.as_slice(), &ethertype, &ip_bytes[..ip_len], &segment].concat()
}

proptest! {
    #[test]
    fn a_stamp_equals_headers_built_by_hand(spec in spec(), (stamp, payload) in stamp_and_payload()) {
        let template = Template::new(&spec);
        prop_assert_eq!(frame(&template, &stamp, &payload), by_hand(&spec, &stamp, &payload));
    }

    #[test]
    fn a_stamp_touches_the_headers_only(spec in spec(), (stamp, _) in stamp_and_payload()) {
        let template = Template::new(&spec);
        let len = template.header_len();
        let mut out = [0x5a; 160];
        template.stamp(&mut out, &stamp);
        prop_assert!(out[len..].iter().all(|&byte| byte == 0x5a));
        // What was there before leaves no trace.
        let mut other = vec![0xff; len];
        template.stamp(&mut other, &stamp);
        prop_assert_eq!(&out[..len], &other[..]);
    }

    #[test]
    fn another_next_hop(spec in spec(), mac in crate::common::mac(), (stamp, payload) in stamp_and_payload()) {
        let mut template = Template::new(&spec);
        template.set_destination_mac(mac);
        let spec = TemplateSpec { destination_mac: mac, ..spec };
        prop_assert_eq!(template.spec(), &spec);
        prop_assert_eq!(frame(&template, &stamp, &payload), by_hand(&spec, &stamp, &payload));
        let header = stamped_header(&spec, &stamp);
        let fresh = Template::new(&spec);
        prop_assert_eq!(control(&template, &header, &[]), control(&fresh, &header, &[]));
    }

    #[test]
    fn control_and_stamp_agree(mut spec in spec(), (stamp, payload) in stamp_and_payload()) {
        spec.traffic_class &= !0b11;
        let stamp = Stamp { ip_id: 0, ..stamp };
        let template = Template::new(&spec);
        let mut header = stamped_header(&spec, &stamp);
        // Not the header's to say.
        (header.source, header.destination) = (1, 2);
        prop_assert_eq!(control(&template, &header, &payload), frame(&template, &stamp, &payload));
    }

    #[test]
    fn control_segments_are_never_ecn_capable(spec in spec(), header in crate::common::header()) {
        let frame = control(&Template::new(&spec), &header, &[]);
        let Ok(Packet::Tcp { ecn, .. }) = parse(&frame, ChecksumPolicy::Verify) else {
            return Err(TestCaseError::fail("no TCP segment"));
        };
        prop_assert_eq!(ecn, 0);
    }

    #[test]
    fn missing_timestamps_leave_a_sound_segment(spec in spec(), (stamp, payload) in stamp_and_payload()) {
        let spec = TemplateSpec { timestamps: true, ..spec };
        let frame = frame(&Template::new(&spec), &Stamp { timestamps: None, ..stamp }, &payload);
        let Ok(Packet::Tcp { header, payload: read, checksum, .. }) = parse(&frame, ChecksumPolicy::Verify) else {
            return Err(TestCaseError::fail("no TCP segment"));
        };
        prop_assert_eq!(header.options, Options::default());
        let nops = &frame[frame.len() - payload.len() - 12..frame.len() - payload.len()];
        prop_assert_eq!(nops, &[1; 12]);
        prop_assert_eq!((read, checksum), (&payload[..], ChecksumState::Verified));
    }
}

#[test]
fn header_lengths() {
    let tag = Tag::customer(7);
    for (tags, len) in [(Tags::NONE, 54), (Tags::one(tag), 58), (Tags::two(Tag::service(9), tag), 62)] {
        for (timestamps, more) in [(false, 0), (true, 12)] {
            let v4 = TemplateSpec { tags, ..fixed_spec(timestamps) };
            assert_eq!(Template::new(&v4).header_len(), len + more);
            let v6 = TemplateSpec { tags, ..fixed_spec_v6(timestamps) };
            assert_eq!(Template::new(&v6).header_len(), len + 20 + more);
        }
    }
    let most = TemplateSpec { tags: Tags::two(tag, tag), ..fixed_spec_v6(true) };
    assert_eq!(Template::new(&most).header_len(), Template::MAX_LEN);
}

/// Every value that the payload's sum can take, hence every value of the checksum: those that fold to 0x0000
/// and 0xffff among them.
#[test]
fn every_payload_sum() {
    for (timestamps, ip) in [false, true].into_iter().flat_map(|with| FAMILIES.map(|ip| (with, ip))) {
        let spec = TemplateSpec { ip, ..fixed_spec(timestamps) };
        let check_at = 14 + ip.header_len() + 16;
        let template = Template::new(&spec);
        let mut seen_zero = 0;
        for value in 0..=u16::MAX {
            let payload = value.to_be_bytes();
            let stamp = Stamp {
                seq: 0xffff_ffff,
                ack: 1,
                window: 0xffff,
                flags: Flags::ACK | Flags::PSH,
                timestamps: Some(Timestamps { value: 3, echo: 0 }),
                payload_len: 2,
                payload_sum: Sum::of(&payload),
                ip_id: value,
            };
            let frame = frame(&template, &stamp, &payload);
            assert_eq!(frame, by_hand(&spec, &stamp, &payload), "payload {value:#06x}");
            let parsed = parse(&frame, ChecksumPolicy::Verify);
            assert!(matches!(parsed, Ok(Packet::Tcp { checksum: ChecksumState::Verified, .. })));
            let check = u16::from_be_bytes([frame[check_at], frame[check_at + 1]]);
            // RFC 9293 3.1 has no rule like UDP's: zero is a checksum like any other, and since the sum of
            // the pseudo-header is not zero, 0xffff never comes up.
            assert_ne!(check, 0xffff);
            seen_zero += u32::from(check == 0);
        }
        // 0x0000 and 0xffff, as payloads, are the same number.
        assert!((1..=2).contains(&seen_zero), "{seen_zero} checksums of zero");
    }
}

/// Any sum that adds up to the payload's serves, folded or not, however it was put together.
#[test]
fn the_form_of_the_payload_sum_does_not_matter() {
    let template = Template::new(&fixed_spec(true));
    let payload = [0xff; 1447];
    let whole = Stamp { payload_len: 1447, payload_sum: Sum::of(&payload), ..Stamp::default() };
    let split = Sum::of(&payload[..701]).add_at(701, Sum::of(&payload[701..]));
    let folded = Sum::ZERO.add_u16(split.fold());
    for payload_sum in [split, folded, Sum::from_raw(split.to_raw())] {
        let stamp = Stamp { payload_sum, ..whole };
        assert_eq!(frame(&template, &stamp, &payload), frame(&template, &whole, &payload));
    }
}

#[test]
fn the_longest_packet() {
    // The length field of IPv4 counts the IP header, that of IPv6 does not.
    for (spec, headers) in [(fixed_spec(true), 52), (fixed_spec_v6(true), 32)] {
        let template = Template::new(&spec);
        let payload = vec![0xa5; 65535 - headers];
        let stamp = Stamp {
            timestamps: Some(Timestamps::default()),
            payload_len: payload.len() as u16,
            payload_sum: Sum::of(&payload),
            ..Stamp::default()
        };
        let frame = frame(&template, &stamp, &payload);
        assert_eq!(frame, by_hand(&spec, &stamp, &payload));
        let parsed = parse(&frame, ChecksumPolicy::Verify);
        assert!(matches!(parsed, Ok(Packet::Tcp { payload: read, .. }) if read == &payload[..]));
    }
}

#[test]
fn mac_addresses_read_well() {
    assert_eq!(Mac([0x02, 0, 0xab, 0xcd, 0xef, 1]).to_string(), "02:00:ab:cd:ef:01");
    assert!(Mac::BROADCAST.is_multicast());
    assert!(!Mac([2, 0, 0, 0, 0, 1]).is_multicast());
}
