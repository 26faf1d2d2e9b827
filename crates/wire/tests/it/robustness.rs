//! Whatever arrives: no panic, no read beyond the frame, nothing accepted that is damaged.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use xsend_wire::ethernet::{Tag, Tags};
use xsend_wire::icmp::{self, ErrorKind};
use xsend_wire::tcp::{self, Options};
use xsend_wire::{
    ChecksumPolicy, ChecksumState, ExtensionFault, Layer, Malformed, Packet, Template, ethernet, ipv4, ipv6,
    parse,
};

use crate::common::{control, fixed_spec, frame, header, naive_fold, spec, stamp_and_payload};

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
    let _ = ipv6::Header::parse(frame);
    let _ = ipv6::Header::parse_quoted(frame);
    let _ = tcp::Header::parse(frame);
    if let [next_header, payload @ ..] = frame {
        let _ = ipv6::upper(*next_header, payload);
    }
    let _ = Options::parse(frame);
    let any = [0; 4].into();
    let _ = icmp::parse(frame, any, any);
}

/// Sets the frame's checksums right, so that what lies behind them is reached; no-op where there is none.
fn mend(frame: &mut [u8]) {
    let Ok((_, ip_at)) = ethernet::Header::parse(frame) else { return };
    let Some(&[first, ..]) = frame.get(ip_at..) else { return };
    let ip_len = usize::from(first & 15) * 4;
    let Some(ip) = frame.get_mut(ip_at..ip_at + ip_len) else { return };
    if ip_len < 20 {
        return;
    }
    ip[10..12].fill(0);
    let check = !naive_fold(ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let Ok((ip, _)) = ipv4::Header::parse(&frame[ip_at..]) else { return };
    let (total_len, protocol) = (usize::from(ip.total_len), ip.protocol);
    let (source, destination) = (ip.source, ip.destination);
    let message = &mut frame[ip_at + ip_len..ip_at + total_len];
    match protocol {
        6 if message.len() >= 20 => {
            message[16..18].fill(0);
            let check = tcp::checksum(source, destination, message);
            message[16..18].copy_from_slice(&check.to_be_bytes());
        }
        1 if message.len() >= 8 => {
            message[2..4].fill(0);
            let check = !naive_fold(message);
            message[2..4].copy_from_slice(&check.to_be_bytes());
        }
        _ => {}
    }
}

/// Frames of every kind that is understood.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let data = (spec(), stamp_and_payload())
        .prop_map(|(spec, (stamp, payload))| frame(&Template::new(&spec), &stamp, &payload));
    let control = (spec(), header()).prop_map(|(spec, header)| control(&Template::new(&spec), &header, &[]));
    let icmp = (spec(), header(), any::<u16>(), 0u8..16).prop_map(|(spec, header, mtu, code)| {
        let kind =
            if code == 4 { ErrorKind::FragmentationNeeded { mtu } } else { ErrorKind::Unreachable { code } };
        icmp_frame(&crate::common::control(&Template::new(&spec), &header, &[]), kind)
    });
    prop_oneof![data, control, icmp]
}

/// An ICMP error that quotes the IP packet of `frame`.
fn icmp_frame(frame: &[u8], kind: ErrorKind) -> Vec<u8> {
    let (_, ip_at) = ethernet::Header::parse(frame).unwrap();
    let quoted = &frame[ip_at..];
    let mut out = vec![0; 34 + 8 + quoted.len()];
    out[..14].copy_from_slice(&[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0]);
    let ip = ipv4::Header {
        traffic_class: 0xc0,
        total_len: (28 + quoted.len()) as u16,
        identification: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: ipv4::PROTOCOL_ICMP,
        source: [192, 0, 2, 1].into(),
        destination: [10, 0, 0, 1].into(),
        options: &[],
    };
    ip.build(&mut out[14..]);
    icmp::build(&mut out[34..], kind, quoted);
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
    fn mutated_frames(
        mut bytes in any_frame(),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
        cut in any::<Option<Index>>(),
        mended in any::<bool>(),
    ) {
        // Mostly in the headers, which is where the lengths are.
        for (at, value) in changes {
            let at = at.index(bytes.len().min(110));
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
    fn a_frame_cut_anywhere_is_malformed(bytes in any_frame(), cut in any::<Index>()) {
        let cut = &bytes[..cut.index(bytes.len())];
        for policy in POLICIES {
            let truncated = matches!(parse(cut, policy), Err(Malformed::Truncated { .. }));
            prop_assert!(truncated, "{} of {} bytes", cut.len(), bytes.len());
        }
    }

    #[test]
    fn padding_is_ignored(bytes in any_frame(), padding in vec(any::<u8>(), 0..60)) {
        let padded = [&bytes[..], &padding].concat();
        prop_assert_eq!(parse(&padded, ChecksumPolicy::Verify), parse(&bytes, ChecksumPolicy::Verify));
    }

    #[test]
    fn a_flipped_bit_is_never_accepted(bytes in any_frame(), at in any::<Index>(), bit in 0u8..8) {
        let (_, ip_at) = ethernet::Header::parse(&bytes).unwrap();
        let mut damaged = bytes.clone();
        damaged[ip_at + at.index(bytes.len() - ip_at)] ^= 1 << bit;
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
        let tcp_at = if spec.vlan.is_some() { 38 } else { 34 };
        let right = u16::from_be_bytes([bytes[tcp_at + 16], bytes[tcp_at + 17]]);
        let len = (bytes.len() - tcp_at) as u16;
        let partial = naive_fold(
            &[&bytes[tcp_at - 8..tcp_at], &[0, 6], &len.to_be_bytes()].concat(),
        );

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
        ("IPv6", changed(&[(12, 0x86), (13, 0xdd)])),
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
    let unreachable = ErrorKind::Unreachable { code: 1 };
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
fn an_icmp_error_is_never_accepted_with_a_partial_checksum() {
    let segment = control(&Template::new(&fixed_spec(false)), &tcp::Header::default(), &[]);
    let mut error = icmp_frame(&segment, ErrorKind::Unreachable { code: 3 });
    error[36..38].fill(0);
    assert_eq!(parse(&error, ChecksumPolicy::AcceptPartial), Err(Malformed::Checksum(Layer::Icmp)));
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
