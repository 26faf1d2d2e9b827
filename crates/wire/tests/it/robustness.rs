//! Whatever arrives: no panic, no read beyond the frame, nothing accepted that is damaged.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use xsend_wire::ethernet::{Tag, Tags};
use xsend_wire::icmp::{self, ErrorKind, Reason};
use xsend_wire::ipv6::Upper;
use xsend_wire::tcp::{self, Options};
use xsend_wire::{
    ChecksumPolicy, ChecksumState, ExtensionFault, IpPair, Layer, Malformed, Packet, Template, TemplateSpec,
    ethernet, ipv4, ipv6, parse,
};

use crate::common::{
    FAMILIES, control, extension, fixed_spec, fixed_spec_v6, frame, header, ip_pair_v6, naive_fold, octets,
    spec, spec_of, stamp_and_payload, with_extensions,
};

const POLICIES: [ChecksumPolicy; 2] = [ChecksumPolicy::Verify, ChecksumPolicy::AcceptPartial];

/// Reads with everything there is and checks what holds for any result.
fn read(frame: &[u8]) {
    for policy in POLICIES {
        if let Ok(Packet::Tcp { payload_offset, payload, header, .. }) = parse(frame, policy) {
            assert_eq!(&frame[payload_offset..payload_offset + payload.len()], payload);
            assert!(header.options.window_scale.unwrap_or(0) <= 14);
        }
    }
    let _ = ethernet::Header::parse(frame);
    let _ = ipv4::Header::parse(frame);
    let _ = ipv4::Header::parse_quoted(frame);
    let _ = tcp::Header::parse(frame);
    let _ = Options::parse(frame);
    let _ = ipv6::Header::parse(frame);
    let _ = ipv6::Header::parse_quoted(frame);
    for family in FAMILIES {
        let _ = icmp::parse(frame, family);
    }
    if let [next_header, payload @ ..] = frame {
        match ipv6::upper(*next_header, payload) {
            Ok(Upper::Message { offset, .. }) => {
                assert!(offset <= payload.len() && offset <= ipv6::MAX_EXTENSION_LEN);
            }
            Ok(Upper::NotOurs(_)) | Err(_) => {}
        }
    }
}

/// Sets the frame's checksums right, so that what lies behind them is reached; no-op where there is none.
fn mend(frame: &mut [u8]) {
    let Ok((ethernet, ip_at)) = ethernet::Header::parse(frame) else { return };
    let packet = &mut frame[ip_at..];
    let found = match ethernet.ethertype {
        ethernet::ETHERTYPE_IPV4 => mend_ipv4(packet),
        ethernet::ETHERTYPE_IPV6 => upper_of_ipv6(packet),
        _ => None,
    };
    let Some((ip, protocol, message)) = found else { return };
    match (protocol, ip) {
        (6, _) if message.len() >= 20 => {
            message[16..18].fill(0);
            let check = tcp::checksum(ip, message);
            message[16..18].copy_from_slice(&check.to_be_bytes());
        }
        (1, IpPair::V4 { .. }) | (58, IpPair::V6 { .. }) if message.len() >= 8 => {
            message[2..4].fill(0);
            let pseudo = match ip {
                IpPair::V4 { .. } => 0,
                IpPair::V6 { .. } => naive_pseudo(ip, 58, message.len()),
            };
            let check = !naive_fold(&[&pseudo.to_be_bytes(), &*message].concat());
            message[2..4].copy_from_slice(&check.to_be_bytes());
        }
        _ => {}
    }
}

/// The sum of the pseudo-header, field by field as the RFCs draw it.
fn naive_pseudo(ip: IpPair, protocol: u8, len: usize) -> u16 {
    let len = u32::try_from(len).unwrap().to_be_bytes();
    let addresses = [octets(ip.source()), octets(ip.destination())].concat();
    match ip {
        IpPair::V4 { .. } => naive_fold(&[&addresses[..], &[0, protocol], &len[2..]].concat()),
        IpPair::V6 { .. } => naive_fold(&[&addresses[..], &len, &[0, 0, 0, protocol]].concat()),
    }
}

fn mend_ipv4(packet: &mut [u8]) -> Option<(IpPair, u8, &mut [u8])> {
    let ip_len = usize::from(*packet.first()? & 15) * 4;
    let header = packet.get_mut(..ip_len).filter(|header| header.len() >= 20)?;
    header[10..12].fill(0);
    let check = !naive_fold(header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    let (header, _) = ipv4::Header::parse(packet).ok()?;
    let (total_len, protocol) = (usize::from(header.total_len), header.protocol);
    let ip = IpPair::V4 { source: header.source, destination: header.destination };
    Some((ip, protocol, &mut packet[ip_len..total_len]))
}

fn upper_of_ipv6(packet: &mut [u8]) -> Option<(IpPair, u8, &mut [u8])> {
    let header = ipv6::Header::parse(packet).ok()?;
    let payload = &mut packet[40..40 + usize::from(header.payload_len)];
    let Ok(Upper::Message { protocol, offset }) = ipv6::upper(header.next_header, payload) else {
        return None;
    };
    let ip = IpPair::V6 { source: header.source, destination: header.destination };
    Some((ip, protocol, &mut payload[offset..]))
}

/// Frames of every kind that is understood.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let data = (spec(), stamp_and_payload())
        .prop_map(|(spec, (stamp, payload))| frame(&Template::new(&spec), &stamp, &payload));
    let control = (spec(), header()).prop_map(|(spec, header)| control(&Template::new(&spec), &header, &[]));
    let icmp = (spec(), header(), any::<u16>(), 0u8..16).prop_map(|(spec, header, mtu, code)| {
        let kind = match code {
            4 => ErrorKind::PacketTooBig { mtu: mtu.into() },
            code => ErrorKind::Unreachable { reason: Reason::Host, code },
        };
        icmp_frame(&crate::common::control(&Template::new(&spec), &header, &[]), kind)
    });
    prop_oneof![data, control, icmp]
}

/// The same, and frames of IPv6 with extension headers that lead to a segment.
fn any_frame_or_chain() -> impl Strategy<Value = Vec<u8>> {
    let chained = (spec_of(ip_pair_v6()), header(), vec(extension(), 0..=5)).prop_map(
        |(spec, header, mut extensions)| {
            // Hop-by-hop options, if any, come first, and once.
            extensions.sort_by_key(|(kind, _)| *kind != 0);
            extensions.dedup_by_key(|(kind, bytes)| if *kind == 0 { 1000 } else { bytes.as_ptr() as usize });
            with_extensions(&control(&Template::new(&spec), &header, b"chained"), &extensions)
        },
    );
    prop_oneof![2 => any_frame(), 1 => chained]
}

/// A frame with the IP header of the other direction of `frame`'s, and `message` with its checksum wrong.
fn answer_frame(frame: &[u8], protocol: [u8; 2], message: &[u8]) -> Vec<u8> {
    let (ethernet, ip_at) = ethernet::Header::parse(frame).unwrap();
    let mut out = vec![0; 54 + message.len()];
    let (ip_len, ethertype) = match ethernet.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            let header = ipv4::Header {
                traffic_class: 0xc0,
                total_len: (20 + message.len()) as u16,
                identification: 1,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: protocol[0],
                source: [192, 0, 2, 1].into(),
                destination: ipv4::Header::parse(&frame[ip_at..]).unwrap().0.source,
                options: &[],
            };
            (header.build(&mut out[14..]), [8, 0])
        }
        _ => {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 7,
                payload_len: message.len() as u16,
                next_header: protocol[1],
                hop_limit: 64,
                source: "2001:db8::99".parse().unwrap(),
                destination: ipv6::Header::parse(&frame[ip_at..]).unwrap().source,
            };
            (header.build(&mut out[14..]), [0x86, 0xdd])
        }
    };
    out[..12].copy_from_slice(&[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4]);
    out[12..14].copy_from_slice(&ethertype);
    out.truncate(14 + ip_len);
    out.extend_from_slice(message);
    out
}

/// An ICMP error that quotes the IP packet of `frame`.
fn icmp_frame(frame: &[u8], kind: ErrorKind) -> Vec<u8> {
    let (ethernet, ip_at) = ethernet::Header::parse(frame).unwrap();
    let quoted = &frame[ip_at..];
    let mut message = vec![0; 8 + quoted.len()];
    let family = FAMILIES[usize::from(ethernet.ethertype == ethernet::ETHERTYPE_IPV6)];
    icmp::build(&mut message, family, kind, quoted);
    let mut out = answer_frame(frame, [1, 58], &message);
    mend(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_plausible_start(
        mut bytes in vec(any::<u8>(), 34..200),
        protocol in prop_oneof![Just(1u8), Just(6)],
        words in 5u8..=15,
        total_len in prop_oneof![Just(None), (0u16..100).prop_map(Some)],
    ) {
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14] = 0x40 | words;
        let total_len = total_len.unwrap_or((bytes.len() - 14) as u16);
        bytes[16..18].copy_from_slice(&total_len.to_be_bytes());
        bytes[20..22].fill(0);
        bytes[23] = protocol;
        mend(&mut bytes);
        read(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_plausible_ipv6_header(
        mut bytes in vec(any::<u8>(), 54..400),
        kinds in vec(prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(6), Just(58)], 1..8),
        units in vec(0u8..4, 8),
        payload_len in prop_oneof![Just(None), (0u16..400).prop_map(Some)],
    ) {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes[14] = 0x60;
        let payload_len = payload_len.unwrap_or((bytes.len() - 54) as u16);
        bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
        // A chain of headers of which each begins plausibly.
        let (mut next, mut at) = (20, 54);
        for (&kind, &units) in kinds.iter().zip(&units) {
            bytes[next] = kind;
            if at + 8 > bytes.len() {
                break;
            }
            bytes[at + 1] = units;
            if kind == 44 || kind == 43 {
                bytes[at + 2..at + 4].fill(0);
            }
            next = at;
            at += if kind == 44 { 8 } else { 8 * (usize::from(units) + 1) };
        }
        mend(&mut bytes);
        read(&bytes);
    }

    #[test]
    fn mutated_frames(
        mut bytes in any_frame_or_chain(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
        cut in any::<Option<Index>>(),
        mended in any::<bool>(),
    ) {
        // Mostly in the headers, which is where the lengths are.
        for (at, value) in changes {
            let at = at.index(bytes.len().min(150));
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if mended {
            mend(&mut bytes);
        }
        read(&bytes);
    }

    #[test]
    fn a_frame_cut_anywhere_is_malformed(bytes in any_frame_or_chain(), cut in any::<Index>()) {
        let cut = &bytes[..cut.index(bytes.len())];
        for policy in POLICIES {
            let truncated = matches!(parse(cut, policy), Err(Malformed::Truncated { .. }));
            prop_assert!(truncated, "{} of {} bytes", cut.len(), bytes.len());
        }
    }

    #[test]
    fn padding_is_ignored(bytes in any_frame_or_chain(), padding in vec(any::<u8>(), 0..60)) {
        let padded = [&bytes[..], &padding].concat();
        prop_assert_eq!(parse(&padded, ChecksumPolicy::Verify), parse(&bytes, ChecksumPolicy::Verify));
    }

    #[test]
    fn a_flipped_bit_is_never_accepted(bytes in any_frame(), at in any::<Index>(), bit in 0u8..8) {
        let (ethernet, ip_at) = ethernet::Header::parse(&bytes).unwrap();
        // No checksum covers the first half of an IPv6 header; the addresses are in the pseudo-header.
        let from = ip_at + if ethernet.ethertype == ethernet::ETHERTYPE_IPV6 { 8 } else { 0 };
        let mut damaged = bytes.clone();
        damaged[from + at.index(bytes.len() - from)] ^= 1 << bit;
        prop_assert!(parse(&damaged, ChecksumPolicy::Verify).is_err());
    }

    #[test]
    fn partial_checksums_are_accepted_in_exactly_that_form(
        spec in spec(),
        (stamp, payload) in stamp_and_payload(),
        field in any::<u16>(),
    ) {
        let mut bytes = frame(&Template::new(&spec), &stamp, &payload);
        let intact = bytes.clone();
        let whole = parse(&intact, ChecksumPolicy::Verify).unwrap();
        let tcp_at = 14 + spec.tags.wire_len() + spec.ip.header_len();
        let right = u16::from_be_bytes([bytes[tcp_at + 16], bytes[tcp_at + 17]]);
        let partial = naive_pseudo(spec.ip, 6, bytes.len() - tcp_at);

        // Random, and the near misses: complemented, zero, one off, byte order.
        let near = [field, partial, !partial, 0, 0xffff, partial.wrapping_add(1), partial.swap_bytes(), right, !right];
        for field in near {
            bytes[tcp_at + 16..tcp_at + 18].copy_from_slice(&field.to_be_bytes());
            // 0x0000 and 0xffff are the same number, so both verify where one does.
            let correct = field == right || (field == 0xffff && right == 0);
            let strict = parse(&bytes, ChecksumPolicy::Verify);
            let lenient = parse(&bytes, ChecksumPolicy::AcceptPartial);
            if correct {
                prop_assert_eq!(strict, Ok(whole));
                prop_assert_eq!(lenient, Ok(whole));
            } else if field == partial {
                prop_assert_eq!(strict, Err(Malformed::Checksum(Layer::Tcp)));
                let Ok(Packet::Tcp { checksum, payload: read, .. }) = lenient else {
                    return Err(TestCaseError::fail(format!("{lenient:?}")));
                };
                prop_assert_eq!(checksum, ChecksumState::Partial);
                prop_assert_eq!(read, &payload[..]);
            } else {
                prop_assert_eq!(strict, Err(Malformed::Checksum(Layer::Tcp)));
                prop_assert_eq!(lenient, Err(Malformed::Checksum(Layer::Tcp)));
            }
        }
    }

    #[test]
    fn option_lists_never_read_beyond_their_end(bytes in vec(any::<u8>(), 0..=40)) {
        if let Ok(options) = Options::parse(&bytes) {
            // What follows the end of the list is padding and changes nothing.
            let longer = [&bytes[..], &[0, 2, 4, 5, 180]].concat();
            prop_assert_eq!(Options::parse(&longer), Ok(options));
        }
    }
}

#[test]
fn malformed_option_lists() {
    let declared = |kind, declared| Err(Malformed::OptionLength { kind, declared });
    assert_eq!(Options::parse(&[2, 0, 5, 180]), declared(2, 0));
    assert_eq!(Options::parse(&[254, 1]), declared(254, 1));
    assert_eq!(Options::parse(&[1, 8]), declared(8, 0));
    assert_eq!(Options::parse(&[1, 8, 10, 0]), declared(8, 10));
    assert_eq!(Options::parse(&[5, 255, 0, 0]), declared(5, 255));
}

#[test]
fn options_that_are_skipped() {
    let mss = Options { mss: Some(1460), ..Options::default() };
    // Unknown (MD5, experimental), empty, and known kinds with a length that is not theirs.
    assert_eq!(Options::parse(&[19, 4, 9, 9, 254, 2, 2, 4, 5, 180]), Ok(mss));
    assert_eq!(Options::parse(&[2, 4, 5, 180, 2, 3, 7, 3, 4, 1, 1, 4, 3, 9, 8, 3, 1]), Ok(mss));
    assert_eq!(Options::parse(&[5, 9, 0, 0, 0, 0, 0, 0, 0, 2, 4, 5, 180]), Ok(mss));
    // Nothing counts behind the end of the list, not even a broken option.
    assert_eq!(Options::parse(&[2, 4, 5, 180, 0, 3, 0, 8]), Ok(mss));
    // The last of two counts.
    assert_eq!(Options::parse(&[2, 4, 1, 1, 2, 4, 5, 180]), Ok(mss));
}

#[test]
fn a_window_shift_above_14_reads_as_14() {
    // RFC 7323 2.3.
    for (shift, read) in [(0, 0), (14, 14), (15, 14), (255, 14)] {
        assert_eq!(Options::parse(&[3, 3, shift]).unwrap().window_scale, Some(read));
    }
    let mut out = [0; 4];
    let options = Options { window_scale: Some(200), ..Options::default() };
    assert_eq!(options.build(&mut out), 4);
    assert_eq!(out, [1, 3, 3, 14]);
}

#[test]
fn lengths_that_cannot_be() {
    let template = Template::new(&fixed_spec(true));
    let good = control(&template, &tcp::Header::default(), b"xyz");
    let broken = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        mend(&mut bytes);
        parse(&bytes, ChecksumPolicy::AcceptPartial).unwrap_err()
    };
    assert_eq!(broken(14, 0x65), Malformed::Version { layer: Layer::Ipv4, found: 6 });
    assert_eq!(broken(14, 0x44), Malformed::HeaderLength { layer: Layer::Ipv4, declared: 16 });
    assert_eq!(broken(17, 19), Malformed::HeaderLength { layer: Layer::Ipv4, declared: 19 });
    assert_eq!(broken(17, 44), Malformed::Truncated { layer: Layer::Ipv4, needed: 44, found: 43 });
    assert_eq!(broken(17, 39), Malformed::Truncated { layer: Layer::Tcp, needed: 20, found: 19 });
    assert_eq!(broken(46, 0x40), Malformed::HeaderLength { layer: Layer::Tcp, declared: 16 });
    assert_eq!(broken(46, 0x60), Malformed::Truncated { layer: Layer::Tcp, needed: 24, found: 23 });
}

#[test]
fn a_total_length_that_ends_inside_the_ip_options() {
    let mut bytes = [0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x46;
    bytes[23] = 6;
    for total_len in 0..24 {
        bytes[17] = total_len;
        let declared = usize::from(total_len);
        let error = Malformed::HeaderLength { layer: Layer::Ipv4, declared };
        assert_eq!(parse(&bytes, ChecksumPolicy::Verify), Err(error));
    }
}

#[test]
fn what_is_none_of_our_business() {
    let template = Template::new(&fixed_spec(false));
    let good = control(&template, &tcp::Header::default(), b"xyz");
    let changed = |changes: &[(usize, u8)]| {
        let mut bytes = good.clone();
        for &(at, value) in changes {
            bytes[at] = value;
        }
        mend(&mut bytes);
        bytes
    };
    for (what, bytes) in [
        ("UDP", changed(&[(23, 17)])),
        ("a first fragment", changed(&[(20, 0x20)])),
        ("a later fragment", changed(&[(21, 1)])),
        ("ARP", changed(&[(12, 8), (13, 6)])),
        ("ICMPv6 in IPv4", changed(&[(23, 58)])),
        ("802.3", changed(&[(12, 0), (13, 43)])),
    ] {
        assert_eq!(parse(&bytes, ChecksumPolicy::Verify), Ok(Packet::Other), "{what}");
    }
    // A third VLAN tag is one too many.
    let tags = [0x81, 0, 0, 1].repeat(3);
    let tagged = [&good[..12], &tags, &good[12..]].concat();
    assert_eq!(parse(&tagged, ChecksumPolicy::Verify), Ok(Packet::Other));
    let tagged = [&good[..12], &tags[..8], &good[12..]].concat();
    assert!(matches!(parse(&tagged, ChecksumPolicy::Verify), Ok(Packet::Tcp { payload: b"xyz", .. })));
}

#[test]
fn the_same_vlans_whatever_the_priority() {
    let (outer, inner) = (Tag::service(0x2009), Tag::customer(0xf007));
    let same = |a: Tags, b: Tags| a.same_vlans(&b);
    assert!(same(Tags::one(Tag::customer(7)), Tags::one(inner)));
    assert!(same(Tags::two(Tag::service(9), inner), Tags::two(outer, inner)));
    assert!(!same(Tags::one(Tag::customer(8)), Tags::one(inner)));
    assert!(!same(Tags::one(Tag::service(7)), Tags::one(inner)));
    assert!(!same(Tags::NONE, Tags::one(Tag::customer(0))));
    assert!(!same(Tags::two(outer, inner), Tags::one(outer)));
}

#[test]
fn icmp_messages_that_concern_no_tcp_flow() {
    let template = Template::new(&fixed_spec(false));
    let segment = control(&template, &tcp::Header::default(), &[]);
    let unreachable = ErrorKind::Unreachable { reason: Reason::Host, code: 1 };
    let error = icmp_frame(&segment, unreachable);
    assert!(matches!(parse(&error, ChecksumPolicy::Verify), Ok(Packet::Icmp(_))));

    let changed = |at: usize, value: u8| {
        let mut bytes = error.clone();
        bytes[at] = value;
        mend(&mut bytes);
        match parse(&bytes, ChecksumPolicy::Verify)? {
            Packet::Tcp { .. } => panic!("a TCP segment"),
            Packet::Icmp(error) => Ok(Some(error)),
            Packet::Other => Ok(None),
        }
    };
    for kind in [0, 4, 5, 8, 13] {
        assert_eq!(changed(34, kind), Ok(None), "type {kind}");
    }
    // The quoted packet: UDP, a later fragment.
    assert_eq!(changed(42 + 9, 17), Ok(None));
    assert_eq!(changed(42 + 7, 1), Ok(None));
    // A router on the way has changed TTL and checksum of what it quotes; it is not ours to mind.
    assert!(matches!(changed(42 + 8, 1), Ok(Some(_))));
    assert_eq!(changed(42, 0x55), Err(Malformed::Version { layer: Layer::Ipv4, found: 5 }));
    assert_eq!(changed(42, 0x44), Err(Malformed::HeaderLength { layer: Layer::Ipv4, declared: 16 }));
    // Seven bytes of the quoted segment are one too few (RFC 792).
    let mut short = error[..42 + 27].to_vec();
    short[17] = 55;
    mend(&mut short);
    let truncated = Malformed::Truncated { layer: Layer::Tcp, needed: 8, found: 7 };
    assert_eq!(parse(&short, ChecksumPolicy::Verify), Err(truncated));
}

#[test]
fn icmpv6_messages_that_concern_no_tcp_flow() {
    let segment = control(&Template::new(&fixed_spec_v6(false)), &tcp::Header::default(), &[]);
    let error = icmp_frame(&segment, ErrorKind::PacketTooBig { mtu: 1280 });
    assert!(matches!(parse(&error, ChecksumPolicy::Verify), Ok(Packet::Icmp(_))));

    let (message, quoted) = (54, 62);
    let read = |bytes: &[u8]| match parse(bytes, ChecksumPolicy::Verify)? {
        Packet::Tcp { .. } => panic!("a TCP segment"),
        Packet::Icmp(error) => Ok(Some(error)),
        Packet::Other => Ok(None),
    };
    let changed = |at: usize, value: u8| {
        let mut bytes = error.clone();
        bytes[at] = value;
        mend(&mut bytes);
        read(&bytes)
    };
    // Reserved, an unassigned error, echo, neighbour discovery, redirect.
    for kind in [0, 5, 100, 127, 128, 129, 135, 136, 137] {
        assert_eq!(changed(message, kind), Ok(None), "type {kind}");
    }
    // RFC 4443 3.2: whatever the code.
    assert_eq!(changed(message + 1, 9), read(&error));
    // The quoted packet: UDP, no next header, IPsec; its hop limit is not ours to mind.
    for next_header in [17, 59, 50, 51, 58, 1] {
        assert_eq!(changed(quoted + 6, next_header), Ok(None), "next header {next_header}");
    }
    assert!(matches!(changed(quoted + 7, 1), Ok(Some(_))));
    let version = Malformed::Version { layer: Layer::Ipv6, found: 5 };
    assert_eq!(changed(quoted, 0x50), Err(version));
    // Seven bytes of the quoted segment are one too few, whether the quotation or the packet ends there.
    let truncated = Malformed::Truncated { layer: Layer::Tcp, needed: 8, found: 7 };
    assert_eq!(changed(quoted + 5, 7), Err(truncated));
    let mut short = error[..quoted + 47].to_vec();
    short[19] = 55;
    mend(&mut short);
    assert_eq!(read(&short), Err(truncated));
    // ICMP of IPv4 in a packet of IPv6.
    assert_eq!(changed(20, 1), Ok(None));
}

#[test]
fn quoted_extension_headers_are_followed_within_the_same_bounds() {
    let segment = control(&Template::new(&fixed_spec_v6(false)), &tcp::Header::default(), &[]);
    let kind = ErrorKind::TimeExceeded { code: 0 };
    let options = || (60, vec![0, 0, 1, 4, 0, 0, 0, 0]);
    let quoting = |extensions: &[(u8, Vec<u8>)]| {
        let error = icmp_frame(&with_extensions(&segment, extensions), kind);
        parse(&error, ChecksumPolicy::Verify).map(|packet| match packet {
            Packet::Icmp(error) => Some(error.quoted),
            Packet::Other => None,
            Packet::Tcp { .. } => panic!("a TCP segment"),
        })
    };
    let plain = quoting(&[]);
    assert!(matches!(plain, Ok(Some(_))));
    let five = [options(), options(), options(), options(), options()];
    assert_eq!(quoting(&five), plain);
    let six = [&five[..], &[options()]].concat();
    assert_eq!(quoting(&six), Err(Malformed::Extension(ExtensionFault::TooMany)));
    // Some fragment of several, and a segment that had still somewhere else to go.
    assert_eq!(quoting(&[(44, vec![0, 0, 0, 1, 0, 0, 0, 0])]), Ok(None));
    assert_eq!(quoting(&[(43, vec![0, 0, 4, 1, 0, 0, 0, 0])]), Ok(None));
}

#[test]
fn an_icmp_error_is_never_accepted_with_a_partial_checksum() {
    for (spec, at) in [(fixed_spec(false), 36), (fixed_spec_v6(false), 56)] {
        let segment = control(&Template::new(&spec), &tcp::Header::default(), &[]);
        let mut error = icmp_frame(&segment, ErrorKind::Unreachable { reason: Reason::Port, code: 3 });
        let partial = naive_pseudo(spec.ip, 58, error.len() - at + 2);
        for field in [0, partial] {
            error[at..at + 2].copy_from_slice(&field.to_be_bytes());
            assert_eq!(parse(&error, ChecksumPolicy::AcceptPartial), Err(Malformed::Checksum(Layer::Icmp)));
        }
    }
}

#[test]
fn reasons_of_both_families() {
    // Every code of RFC 792, RFC 1122 3.2.2.1 and RFC 1812 5.2.7.1, and every one of RFC 4443 3.1.
    use Reason::{Host, Network, Port, Prohibited, Protocol};
    let v4 = [Network, Host, Protocol, Port, Host, Network, Network, Host];
    assert_eq!(core::array::from_fn(|code| Reason::of_ipv4(code as u8)), v4);
    let v4 = [Host, Prohibited, Prohibited, Network, Host, Prohibited, Host, Host];
    assert_eq!(core::array::from_fn(|code| Reason::of_ipv4(code as u8 + 8)), v4);
    let v6 = [Network, Prohibited, Host, Host, Port, Prohibited, Prohibited, Host];
    assert_eq!(core::array::from_fn(|code| Reason::of_ipv6(code as u8)), v6);
}

/// A segment is told with the VLANs it came on, so that a flow can refuse those of another.
#[test]
fn segments_come_with_their_tags() {
    let (outer, inner) = (Tag::service(0x2009), Tag::customer(0xf007));
    for tags in [Tags::NONE, Tags::one(inner), Tags::two(outer, inner)] {
        for spec in [fixed_spec(true), fixed_spec_v6(true)] {
            let spec = TemplateSpec { tags, ..spec };
            let frame = control(&Template::new(&spec), &tcp::Header::default(), b"x");
            let parsed = parse(&frame, ChecksumPolicy::Verify);
            assert!(matches!(parsed, Ok(Packet::Tcp { tags: read, .. }) if read == tags), "{parsed:?}");
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let errors = [
        Malformed::Truncated { layer: Layer::Tcp, needed: 20, found: 3 },
        Malformed::HeaderLength { layer: Layer::Ipv4, declared: 16 },
        Malformed::Version { layer: Layer::Ipv4, found: 6 },
        Malformed::Checksum(Layer::Icmp),
        Malformed::OptionLength { kind: 8, declared: 1 },
        Malformed::Jumbogram,
        Malformed::Truncated { layer: Layer::Extension, needed: 8, found: 3 },
        Malformed::Extension(ExtensionFault::TooMany),
        Malformed::Extension(ExtensionFault::TooLong),
        Malformed::Extension(ExtensionFault::HopByHopNotFirst),
        Malformed::Extension(ExtensionFault::UnknownOption { kind: 0xc9 }),
        Malformed::Extension(ExtensionFault::OptionLength { kind: 5 }),
    ];
    let said = errors.map(|error| error.to_string());
    assert_eq!(
        said,
        [
            "TCP header or packet cut short: 20 bytes needed, 3 found",
            "IPv4 length field is impossibly small: 16 bytes",
            "IPv4 header with IP version 6",
            "wrong ICMP checksum",
            "TCP option 8 with impossible length 1",
            "IPv6 jumbogram",
            "IPv6 extension header or packet cut short: 8 bytes needed, 3 found",
            "IPv6 extension headers refused: more than 5",
            "IPv6 extension headers refused: longer than 256 bytes",
            "IPv6 extension headers refused: hop-by-hop options behind another header",
            "IPv6 extension headers refused: unknown option 0xc9",
            "IPv6 extension headers refused: option 0x05 runs past its header",
        ]
    );
}
