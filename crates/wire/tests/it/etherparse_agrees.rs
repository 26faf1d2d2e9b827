//! What we write, etherparse reads identically, and the other way round.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions,
    Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions, LinkHeader,
    NetHeaders, PacketBuilder, PacketHeaders, SingleVlanHeader, TcpHeader, TcpOptionElement, TransportHeader,
    VlanHeader, VlanId, VlanPcp, icmpv4,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use xsend_wire::ethernet::{self, Tag, Tags};
use xsend_wire::icmp::{self, ErrorKind, Reason};
use xsend_wire::tcp::{self, Flags, Options, SackBlocks, Timestamps};
use xsend_wire::{ChecksumPolicy, ChecksumState, IpPair, Mac, Packet, Template, ipv4, ipv6, parse};

use crate::common::{
    self, control, frame, ip_pair_v4, ip_pair_v6, mac, octets, spec, spec_of, stamp_and_payload,
};

/// The header as etherparse understands it, in our words. Panics on an option that etherparse does not accept.
fn translate(theirs: &TcpHeader) -> tcp::Header {
    let bits = [
        (theirs.fin, Flags::FIN),
        (theirs.syn, Flags::SYN),
        (theirs.rst, Flags::RST),
        (theirs.psh, Flags::PSH),
        (theirs.ack, Flags::ACK),
        (theirs.urg, Flags::URG),
        (theirs.ece, Flags::ECE),
        (theirs.cwr, Flags::CWR),
    ];
    let mut flags = Flags::NONE;
    for (_, flag) in bits.into_iter().filter(|(set, _)| *set) {
        flags |= flag;
    }
    let mut options = Options::default();
    for element in theirs.options_iterator() {
        match element.unwrap() {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
            TcpOptionElement::WindowScale(shift) => options.window_scale = Some(shift),
            TcpOptionElement::SelectiveAcknowledgementPermitted => options.sack_permitted = true,
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                options.sack = SackBlocks::EMPTY;
                for (left, right) in std::iter::once(first).chain(rest.into_iter().flatten()) {
                    assert!(options.sack.push(left, right));
                }
            }
            TcpOptionElement::Timestamp(value, echo) => {
                options.timestamps = Some(Timestamps { value, echo });
            }
        }
    }
    tcp::Header {
        source: theirs.source_port,
        destination: theirs.destination_port,
        seq: theirs.sequence_number,
        ack: theirs.acknowledgment_number,
        flags,
        window: theirs.window_size,
        urgent: theirs.urgent_pointer,
        options,
    }
}

/// Reads a frame of ours with etherparse, checks every checksum, and returns what it says.
fn read(frame: &[u8]) -> (LinkHeader, Vec<u16>, NetHeaders, TcpHeader, Vec<u8>) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let control = |vlan: SingleVlanHeader| {
        u16::from(vlan.pcp.value()) << 13
            | u16::from(vlan.drop_eligible_indicator) << 12
            | vlan.vlan_id.value()
    };
    let tags = match packet.vlan() {
        None => vec![],
        Some(VlanHeader::Single(vlan)) => vec![control(vlan)],
        Some(VlanHeader::Double(vlans)) => vec![control(vlans.outer), control(vlans.inner)],
    };
    let Some(TransportHeader::Tcp(tcp)) = packet.transport else { panic!("no TCP") };
    let payload = packet.payload.slice().to_vec();
    let net = packet.net.unwrap();
    match &net {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(ip, &payload).unwrap());
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(tcp.checksum, tcp.calc_checksum_ipv6(ip, &payload).unwrap());
        }
        NetHeaders::Arp(_) => panic!("ARP"),
    }
    (packet.link.unwrap(), tags, net, tcp, payload)
}

fn flagged(theirs: &mut TcpHeader, flags: Flags) {
    theirs.fin = flags.contains(Flags::FIN);
    theirs.syn = flags.contains(Flags::SYN);
    theirs.rst = flags.contains(Flags::RST);
    theirs.psh = flags.contains(Flags::PSH);
    theirs.ack = flags.contains(Flags::ACK);
    theirs.urg = flags.contains(Flags::URG);
    theirs.ece = flags.contains(Flags::ECE);
    theirs.cwr = flags.contains(Flags::CWR);
}

/// Option lists of etherparse that fit a header, in any order and number.
fn their_options() -> impl Strategy<Value = Vec<TcpOptionElement>> {
    let rest = any::<(Option<(u32, u32)>, Option<(u32, u32)>)>();
    let sack = (any::<(u32, u32)>(), rest).prop_map(|(first, (second, third))| {
        // Etherparse leaves gaps out; we compare with what it writes.
        TcpOptionElement::SelectiveAcknowledgement(first, [second, second.and(third), None])
    });
    let element = prop_oneof![
        Just(TcpOptionElement::Noop),
        any::<u16>().prop_map(TcpOptionElement::MaximumSegmentSize),
        (0u8..=14).prop_map(TcpOptionElement::WindowScale),
        Just(TcpOptionElement::SelectiveAcknowledgementPermitted),
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOptionElement::Timestamp(value, echo)),
        sack,
    ];
    vec(element, 0..8)
        .prop_filter("fits", |elements| etherparse::TcpOptions::try_from_elements(elements).is_ok())
}

/// What follows the two length bytes of a hop-by-hop or destination options header: options that may be
/// skipped, padded to whole units of eight bytes.
fn padded() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec((0u8..0x40, vec(any::<u8>(), 0..10)), 0..3)).prop_map(|options| {
        let mut bytes = Vec::new();
        for (kind, value) in options? {
            if kind == 0 {
                bytes.push(0);
            } else {
                bytes.extend_from_slice(&[kind, value.len() as u8]);
                bytes.extend_from_slice(&value);
            }
        }
        match (8 - (bytes.len() + 2) % 8) % 8 {
            0 => {}
            1 => bytes.push(0),
            gap => {
                bytes.extend_from_slice(&[1, gap as u8 - 2]);
                bytes.resize(bytes.len() + gap - 2, 0);
            }
        }
        Some(bytes)
    })
}

proptest! {
    #[test]
    fn stamped_frames(spec in spec(), (stamp, payload) in stamp_and_payload()) {
        let frame = frame(&Template::new(&spec), &stamp, &payload);
        let (link, tags, ip, theirs, their_payload) = read(&frame);

        let LinkHeader::Ethernet2(link) = link else { return Err(TestCaseError::fail("no Ethernet")) };
        prop_assert_eq!((link.source, link.destination), (spec.source_mac.0, spec.destination_mac.0));
        let controls: Vec<_> = spec.tags.as_slice().iter().map(|tag| tag.control).collect();
        prop_assert_eq!(tags, controls);

        let (source, destination) = (octets(spec.ip.source()), octets(spec.ip.destination()));
        match ip {
            NetHeaders::Ipv4(ip, _) => {
                prop_assert_eq!((&ip.source[..], &ip.destination[..]), (&source[..], &destination[..]));
                prop_assert_eq!(ip.dscp.value() << 2 | ip.ecn.value(), spec.traffic_class);
                prop_assert!(ip.dont_fragment && !ip.more_fragments && ip.fragment_offset.value() == 0);
                prop_assert_eq!((ip.identification, ip.time_to_live), (stamp.ip_id, 64));
                prop_assert_eq!(ip.protocol, IpNumber::TCP);
            }
            NetHeaders::Ipv6(ip, extensions) => {
                prop_assert_eq!((&ip.source[..], &ip.destination[..]), (&source[..], &destination[..]));
                prop_assert_eq!(ip.traffic_class, spec.traffic_class);
                prop_assert_eq!((ip.flow_label.value(), ip.hop_limit), (spec.flow_label, 64));
                prop_assert_eq!(ip.next_header, IpNumber::TCP);
                prop_assert!(extensions.is_empty());
            }
            NetHeaders::Arp(_) => prop_assert!(false, "ARP"),
        }
        prop_assert_eq!(translate(&theirs), common::stamped_header(&spec, &stamp));
        prop_assert_eq!(their_payload, payload);
    }

    #[test]
    fn control_frames(spec in spec(), header in common::header(), payload in vec(any::<u8>(), 0..50)) {
        let frame = control(&Template::new(&spec), &header, &payload);
        let (_, _, _, theirs, their_payload) = read(&frame);
        let mut expected = tcp::Header {
            source: spec.source_port,
            destination: spec.destination_port,
            ..header
        };
        // Blocks that find no room are left out, the last first.
        let room = 40 - (Options { sack: SackBlocks::EMPTY, ..header.options }).encoded_len();
        let fit = header.options.sack.len().min((room - 4) / 8);
        expected.options.sack = SackBlocks::EMPTY;
        for (left, right) in header.options.sack.iter().take(fit) {
            expected.options.sack.push(left, right);
        }
        prop_assert_eq!(translate(&theirs), expected);
        prop_assert_eq!(&their_payload, &payload);

        // And we read back what we wrote.
        let parsed = parse(&frame, ChecksumPolicy::Verify);
        let Ok(Packet::Tcp { header: read, payload: read_payload, .. }) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!(read, expected);
        prop_assert_eq!(read_payload, &payload[..]);
    }

    #[test]
    fn frames_of_etherparse(
        macs in any::<([u8; 6], [u8; 6])>(),
        vlans in vec((0u16..4096, 0u8..8), 0..=2),
        addresses in any::<([u8; 4], [u8; 4])>(),
        (dscp, ecn, ttl) in (0u8..64, 0u8..4, any::<u8>()),
        ip_options in vec(any::<[u8; 4]>(), 0..=10),
        (ports, seq, ack, flags, window, urgent) in any::<((u16, u16), u32, u32, u8, u16, u16)>(),
        elements in their_options(),
        payload in vec(any::<u8>(), 0..300),
        padding in vec(any::<u8>(), 0..40),
    ) {
        let mut theirs = TcpHeader::new(ports.0, ports.1, seq, window);
        theirs.acknowledgment_number = ack;
        theirs.urgent_pointer = urgent;
        flagged(&mut theirs, Flags(flags));
        theirs.set_options(&elements).unwrap();
        let mut ip = Ipv4Header::new(0, ttl, IpNumber::TCP, addresses.0, addresses.1).unwrap();
        ip.dscp = dscp.try_into().unwrap();
        ip.ecn = ecn.try_into().unwrap();
        ip.options = ip_options.concat().as_slice().try_into().unwrap();
        ip.set_payload_len(theirs.header_len() + payload.len()).unwrap();
        let ip_len = ip.header_len();

        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2(macs.0, macs.1);
        let vlan_id = |at: usize| VlanId::try_new(vlans[at].0).unwrap();
        let builder = match vlans.len() {
            0 => builder.ip(IpHeaders::Ipv4(ip, Default::default())),
            1 => builder.single_vlan(vlan_id(0)).ip(IpHeaders::Ipv4(ip, Default::default())),
            _ => builder
                .double_vlan(vlan_id(0), vlan_id(1))
                .ip(IpHeaders::Ipv4(ip, Default::default())),
        };
        builder.tcp_header(theirs.clone()).write(&mut frame, &payload).unwrap();
        frame.extend_from_slice(&padding);

        let parsed = parse(&frame, ChecksumPolicy::Verify);
        let Ok(Packet::Tcp { tags, ip, ecn: read_ecn, header, payload_offset, payload: read, checksum }) = parsed
        else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        let read_vlans: Vec<_> = tags.as_slice().iter().map(|tag| tag.vlan()).collect();
        prop_assert_eq!(read_vlans, vlans.iter().map(|&(vlan, _)| vlan).collect::<Vec<_>>());
        prop_assert_eq!(ip.source(), IpAddr::from(addresses.0));
        prop_assert_eq!(ip.destination(), IpAddr::from(addresses.1));
        prop_assert_eq!(read_ecn, ecn);
        prop_assert_eq!(header, translate(&theirs));
        prop_assert_eq!(read, &payload[..]);
        prop_assert_eq!(payload_offset, 14 + 4 * vlans.len() + ip_len + theirs.header_len());
        prop_assert_eq!(&frame[payload_offset..payload_offset + payload.len()], &payload[..]);
        prop_assert_eq!(checksum, ChecksumState::Verified);
    }

    #[test]
    fn ethernet_headers(
        (source, destination) in (mac(), mac()),
        tags in vec((prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>()), 0..=2),
        ethertype in any::<u16>().prop_filter("no tag", |&t| !matches!(t, 0x8100 | 0x88a8)),
    ) {
        let mut header = ethernet::Header { destination, source, tags: Tags::default(), ethertype };
        for &(protocol, control) in &tags {
            let pushed = header.tags.push(Tag { protocol, control });
            prop_assert!(pushed);
        }
        let mut bytes = [0; 22];
        let len = header.build(&mut bytes);
        prop_assert_eq!(len, header.header_len());
        prop_assert_eq!(ethernet::Header::parse(&bytes[..len]), Ok((header, len)));

        let (theirs, mut rest) = etherparse::Ethernet2Header::from_slice(&bytes[..len]).unwrap();
        prop_assert_eq!((Mac(theirs.source), Mac(theirs.destination)), (source, destination));
        let mut next = theirs.ether_type.0;
        for &(protocol, control) in &tags {
            prop_assert_eq!(next, protocol);
            let (vlan, after) = SingleVlanHeader::from_slice(rest).unwrap();
            prop_assert_eq!(vlan.vlan_id.value(), control & 0xfff);
            prop_assert_eq!(vlan.pcp, VlanPcp::try_new((control >> 13) as u8).unwrap());
            prop_assert_eq!(vlan.drop_eligible_indicator, control & 0x1000 != 0);
            (next, rest) = (vlan.ether_type.0, after);
        }
        prop_assert_eq!(next, ethertype);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn ipv4_headers(
        (traffic_class, identification, ttl, protocol) in any::<(u8, u16, u8, u8)>(),
        (dont_fragment, more_fragments, fragment_offset) in (any::<bool>(), any::<bool>(), 0u16..0x2000),
        (source, destination) in any::<(u32, u32)>(),
        options in vec(any::<[u8; 4]>(), 0..=10).prop_map(|words| words.concat()),
        payload_len in 0usize..50,
    ) {
        let header = ipv4::Header {
            traffic_class,
            total_len: (20 + options.len() + payload_len) as u16,
            identification,
            dont_fragment,
            more_fragments,
            fragment_offset,
            ttl,
            protocol,
            source: Ipv4Addr::from_bits(source),
            destination: Ipv4Addr::from_bits(destination),
            options: &options,
        };
        let mut bytes = vec![0; 200];
        let len = header.build(&mut bytes);
        prop_assert_eq!(len, header.header_len());
        prop_assert_eq!(ipv4::Header::parse(&bytes), Ok((header, len)));
        prop_assert_eq!(header.is_fragment(), more_fragments || fragment_offset != 0);

        let (theirs, _) = Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
        prop_assert_eq!(theirs.dscp.value() << 2 | theirs.ecn.value(), traffic_class);
        prop_assert_eq!(theirs.total_len, header.total_len);
        prop_assert_eq!(theirs.identification, identification);
        prop_assert_eq!((theirs.dont_fragment, theirs.more_fragments), (dont_fragment, more_fragments));
        prop_assert_eq!(theirs.fragment_offset.value(), fragment_offset);
        prop_assert_eq!((theirs.time_to_live, theirs.protocol.0), (ttl, protocol));
        prop_assert_eq!((theirs.source, theirs.destination), (header.source.octets(), header.destination.octets()));
        prop_assert_eq!(&theirs.options[..], &options[..]);
        prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..len]);
    }

    #[test]
    fn icmp_errors(
        kind in prop_oneof![
            (0u8..16).prop_filter("its own kind", |&code| code != 4).prop_map(|code| ErrorKind::Unreachable { reason: Reason::of_ipv4(code), code }),
            any::<u16>().prop_map(|mtu| ErrorKind::PacketTooBig { mtu: u32::from(mtu) }),
            (0u8..2).prop_map(|code| ErrorKind::TimeExceeded { code }),
            any::<u8>().prop_map(|pointer| ErrorKind::ParameterProblem { code: 0, pointer: u32::from(pointer) }),
        ],
        spec in spec_of(ip_pair_v4()),
        (stamp, payload) in stamp_and_payload(),
        quoted_len in 28usize..600,
    ) {
        let IpPair::V4 { source, .. } = spec.ip else { unreachable!() };
        let frame = frame(&Template::new(&spec), &stamp, &payload);
        let ip_at = 14 + spec.tags.wire_len();
        let quoted = &frame[ip_at..][..quoted_len.min(frame.len() - ip_at)];
        let mut message = vec![0; 700];
        let len = icmp::build(&mut message, spec.ip, kind, quoted);
        message.truncate(len);

        let (theirs, their_payload) = Icmpv4Header::from_slice(&message).unwrap();
        prop_assert_eq!(theirs.checksum, theirs.icmp_type.calc_checksum(their_payload));
        prop_assert_eq!(their_payload, quoted);
        let their_kind = match theirs.icmp_type.clone() {
            Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu,
            }) => ErrorKind::PacketTooBig { mtu: u32::from(next_hop_mtu) },
            Icmpv4Type::DestinationUnreachable(header) => {
                let code = header.code_u8();
                ErrorKind::Unreachable { reason: Reason::of_ipv4(code), code }
            }
            Icmpv4Type::TimeExceeded(code) => ErrorKind::TimeExceeded { code: code.code_u8() },
            Icmpv4Type::ParameterProblem(icmpv4::ParameterProblemHeader::PointerIndicatesError(pointer)) => {
                ErrorKind::ParameterProblem { code: 0, pointer: u32::from(pointer) }
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(their_kind, kind);

        // In a frame of etherparse's, read by us.
        let mut whole = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([192, 0, 2, 1], source.octets(), 60)
            .icmpv4(theirs.icmp_type)
            .write(&mut whole, quoted)
            .unwrap();
        let parsed = parse(&whole, ChecksumPolicy::Verify);
        let Ok(Packet::Icmp(error)) = parsed else { return Err(TestCaseError::fail(format!("{parsed:?}"))) };
        prop_assert_eq!(error.kind, kind);
        prop_assert_eq!(error.reporter, IpAddr::from([192, 0, 2, 1]));
        prop_assert_eq!(error.recipient, spec.ip.source());
        prop_assert_eq!(error.quoted.source, spec.ip.source());
        prop_assert_eq!(error.quoted.destination, spec.ip.destination());
        prop_assert_eq!(error.quoted.source_port, spec.source_port);
        prop_assert_eq!(error.quoted.destination_port, spec.destination_port);
        prop_assert_eq!(error.quoted.seq, stamp.seq);
    }

    #[test]
    fn frames_of_etherparse_with_extension_headers(
        ip in ip_pair_v6(),
        (traffic_class, flow_label, hop_limit) in (any::<u8>(), 0u32..1 << 20, any::<u8>()),
        (hop_by_hop, destination, last) in (padded(), padded(), padded()),
        routing in option::of((any::<u8>(), 0usize..3)),
        fragment in option::of(any::<u32>()),
        (ports, seq, flags) in any::<((u16, u16), u32, u8)>(),
        payload in vec(any::<u8>(), 0..300),
        padding in vec(any::<u8>(), 0..40),
    ) {
        let mut theirs = TcpHeader::new(ports.0, ports.1, seq, 17);
        flagged(&mut theirs, Flags(flags));
        let raw = |payload: &Vec<u8>| Ipv6RawExtHeader::new_raw(IpNumber::TCP, payload).unwrap();
        // A header of whole addresses, none of which is left to be visited.
        let routing = routing.map(|(kind, addresses)| {
            [&[kind, 0, 0, 0, 0, 0][..], &vec![0x20; 16 * addresses]].concat()
        });
        let mut extensions = Ipv6Extensions {
            hop_by_hop_options: hop_by_hop.as_ref().map(raw),
            destination_options: destination.as_ref().map(raw),
            routing: routing.as_ref().map(|routing| Ipv6RoutingExtensions {
                routing: raw(routing),
                final_destination_options: last.as_ref().map(raw),
            }),
            fragment: fragment
                .map(|id| Ipv6FragmentHeader::new(IpNumber::TCP, 0u16.try_into().unwrap(), false, id)),
            auth: None,
        };
        let next_header = extensions.set_next_headers(IpNumber::TCP);
        let header = Ipv6Header {
            traffic_class,
            flow_label: Ipv6FlowLabel::try_new(flow_label).unwrap(),
            payload_length: (extensions.header_len() + theirs.header_len() + payload.len()) as u16,
            next_header,
            hop_limit,
            source: octets(ip.source()).try_into().unwrap(),
            destination: octets(ip.destination()).try_into().unwrap(),
        };
        let extensions_len = extensions.header_len();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ip(IpHeaders::Ipv6(header, extensions))
            .tcp_header(theirs.clone())
            .write(&mut frame, &payload)
            .unwrap();
        frame.extend_from_slice(&padding);

        let parsed = parse(&frame, ChecksumPolicy::Verify);
        let Ok(Packet::Tcp { ip: read_ip, ecn, header, payload_offset, payload: read, checksum, .. }) = parsed
        else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!((read_ip, ecn), (ip, traffic_class & 3));
        prop_assert_eq!(header, translate(&theirs));
        prop_assert_eq!(read, &payload[..]);
        prop_assert_eq!(payload_offset, 14 + 40 + extensions_len + theirs.header_len());
        prop_assert_eq!(checksum, ChecksumState::Verified);
    }

    #[test]
    fn ipv6_headers(
        (traffic_class, flow_label, hop_limit, next_header) in (any::<u8>(), 0u32..1 << 20, any::<u8>(), 1u8..),
        (source, destination) in any::<(u128, u128)>(),
        payload_len in 0u16..60,
    ) {
        let header = ipv6::Header {
            traffic_class,
            flow_label,
            payload_len,
            next_header,
            hop_limit,
            source: Ipv6Addr::from_bits(source),
            destination: Ipv6Addr::from_bits(destination),
        };
        let mut bytes = [0; 100];
        prop_assert_eq!(header.build(&mut bytes), ipv6::HEADER_LEN);
        prop_assert_eq!(ipv6::Header::parse(&bytes), Ok(header));
        prop_assert_eq!(header.ecn(), traffic_class & 3);
        // Bits above the label's twenty go nowhere.
        let mut other = [0; 40];
        ipv6::Header { flow_label: flow_label | 0xfff0_0000, ..header }.build(&mut other);
        prop_assert_eq!(&other[..], &bytes[..40]);

        let (theirs, _) = Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!((theirs.traffic_class, theirs.flow_label.value()), (traffic_class, flow_label));
        prop_assert_eq!((theirs.payload_length, theirs.next_header.0), (payload_len, next_header));
        prop_assert_eq!(theirs.hop_limit, hop_limit);
        prop_assert_eq!((theirs.source, theirs.destination), (header.source.octets(), header.destination.octets()));
        prop_assert_eq!(&theirs.to_bytes()[..], &bytes[..40]);
    }

    #[test]
    fn icmpv6_errors(
        kind in prop_oneof![
            (0u8..7).prop_map(|code| ErrorKind::Unreachable { reason: Reason::of_ipv6(code), code }),
            any::<u32>().prop_map(|mtu| ErrorKind::PacketTooBig { mtu }),
            (0u8..2).prop_map(|code| ErrorKind::TimeExceeded { code }),
            (0u8..3, any::<u32>()).prop_map(|(code, pointer)| ErrorKind::ParameterProblem { code, pointer }),
        ],
        spec in spec_of(ip_pair_v6()),
        reporter in any::<u128>(),
        (stamp, payload) in stamp_and_payload(),
        quoted_len in 48usize..1232,
    ) {
        let IpPair::V6 { source, .. } = spec.ip else { unreachable!() };
        let reporter = Ipv6Addr::from_bits(reporter);
        let segment = frame(&Template::new(&spec), &stamp, &payload);
        let ip_at = 14 + spec.tags.wire_len();
        let quoted = &segment[ip_at..][..quoted_len.min(segment.len() - ip_at)];
        let mut message = vec![0; 1300];
        let len = icmp::build(&mut message, IpPair::V6 { source: reporter, destination: source }, kind, quoted);
        message.truncate(len);

        let (theirs, their_payload) = Icmpv6Header::from_slice(&message).unwrap();
        let check = theirs.icmp_type.calc_checksum(reporter.octets(), source.octets(), their_payload).unwrap();
        prop_assert_eq!(theirs.checksum, check);
        prop_assert_eq!(their_payload, quoted);
        let understood = match (&theirs.icmp_type, kind) {
            (Icmpv6Type::DestinationUnreachable(theirs), ErrorKind::Unreachable { code, .. }) => {
                theirs.code_u8() == code
            }
            (Icmpv6Type::PacketTooBig { mtu: theirs }, ErrorKind::PacketTooBig { mtu }) => *theirs == mtu,
            (Icmpv6Type::TimeExceeded(theirs), ErrorKind::TimeExceeded { code }) => theirs.code_u8() == code,
            (Icmpv6Type::ParameterProblem(theirs), ErrorKind::ParameterProblem { code, pointer }) => {
                (theirs.code.code_u8(), theirs.pointer) == (code, pointer)
            }
            _ => false,
        };
        prop_assert!(understood, "{:?}", theirs.icmp_type);

        // In a frame of etherparse's, read by us.
        let mut whole = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6(reporter.octets(), source.octets(), 60)
            .icmpv6(theirs.icmp_type)
            .write(&mut whole, quoted)
            .unwrap();
        let parsed = parse(&whole, ChecksumPolicy::Verify);
        let Ok(Packet::Icmp(error)) = parsed else { return Err(TestCaseError::fail(format!("{parsed:?}"))) };
        prop_assert_eq!(error.kind, kind);
        prop_assert_eq!((error.reporter, error.recipient), (reporter.into(), source.into()));
        prop_assert_eq!((error.quoted.source, error.quoted.destination), (source.into(), spec.ip.destination()));
        prop_assert_eq!(error.quoted.source_port, spec.source_port);
        prop_assert_eq!(error.quoted.destination_port, spec.destination_port);
        prop_assert_eq!(error.quoted.seq, stamp.seq);
    }
}
