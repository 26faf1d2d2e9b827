//! What we write, etherparse reads identically, and the other way round.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::{
    Icmpv4Header, Icmpv4Type, IpNumber, Ipv4Header, LinkHeader, NetHeaders, PacketBuilder, PacketHeaders,
    SingleVlanHeader, TcpHeader, TcpOptionElement, TransportHeader, VlanHeader, VlanId, VlanPcp, icmpv4,
};
use proptest::collection::vec;
use proptest::prelude::*;
use xsend_wire::ethernet::{self, Tag, Tags};
use xsend_wire::icmp::{self, ErrorKind};
use xsend_wire::tcp::{self, Flags, Options, SackBlocks, Timestamps};
use xsend_wire::{ChecksumPolicy, ChecksumState, Mac, Packet, Template, ipv4, parse};

use crate::common::{self, control, frame, mac, spec, stamp_and_payload};

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
fn read(frame: &[u8]) -> (LinkHeader, Vec<VlanHeader>, Ipv4Header, TcpHeader, Vec<u8>) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let vlans = packet.vlan().into_iter().collect();
    let Some(NetHeaders::Ipv4(ip, _)) = packet.net else { panic!("no IPv4") };
    let Some(TransportHeader::Tcp(tcp)) = packet.transport else { panic!("no TCP") };
    let payload = packet.payload.slice().to_vec();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, &payload).unwrap());
    (packet.link.unwrap(), vlans, ip, tcp, payload)
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

proptest! {
    #[test]
    fn stamped_frames(spec in spec(), (stamp, payload) in stamp_and_payload()) {
        let frame = frame(&Template::new(&spec), &stamp, &payload);
        let (link, vlans, ip, theirs, their_payload) = read(&frame);

        let LinkHeader::Ethernet2(link) = link else { return Err(TestCaseError::fail("no Ethernet")) };
        prop_assert_eq!((link.source, link.destination), (spec.source_mac.0, spec.destination_mac.0));
        let tag = vlans.first().map(|vlan| {
            let VlanHeader::Single(vlan) = vlan else { panic!("two tags") };
            u16::from(vlan.pcp.value()) << 13
                | u16::from(vlan.drop_eligible_indicator) << 12
                | vlan.vlan_id.value()
        });
        prop_assert_eq!(tag, spec.vlan);

        prop_assert_eq!((ip.source, ip.destination), (spec.source.ip().octets(), spec.destination.ip().octets()));
        prop_assert_eq!((ip.dscp.value(), ip.ecn.value()), (spec.traffic_class >> 2, spec.traffic_class & 3));
        prop_assert_eq!((ip.dont_fragment, ip.more_fragments, ip.fragment_offset.value()), (true, false, 0));
        prop_assert_eq!((ip.identification, ip.time_to_live, ip.protocol), (stamp.ip_id, 64, IpNumber::TCP));
        let expected = tcp::Header {
            source: spec.source.port(),
            destination: spec.destination.port(),
            seq: stamp.seq,
            ack: stamp.ack,
            flags: stamp.flags,
            window: stamp.window,
            urgent: 0,
            options: Options { timestamps: stamp.timestamps.filter(|_| spec.timestamps), ..Options::default() },
        };
        prop_assert_eq!(translate(&theirs), expected);
        prop_assert_eq!(their_payload, payload);
    }

    #[test]
    fn control_frames(spec in spec(), header in common::header(), payload in vec(any::<u8>(), 0..50)) {
        let frame = control(&Template::new(&spec), &header, &payload);
        let (_, _, _, theirs, their_payload) = read(&frame);
        let mut expected = tcp::Header {
            source: spec.source.port(),
            destination: spec.destination.port(),
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
            0 => builder.ip(etherparse::IpHeaders::Ipv4(ip, Default::default())),
            1 => builder.single_vlan(vlan_id(0)).ip(etherparse::IpHeaders::Ipv4(ip, Default::default())),
            _ => builder
                .double_vlan(vlan_id(0), vlan_id(1))
                .ip(etherparse::IpHeaders::Ipv4(ip, Default::default())),
        };
        builder.tcp_header(theirs.clone()).write(&mut frame, &payload).unwrap();
        frame.extend_from_slice(&padding);

        let parsed = parse(&frame, ChecksumPolicy::Verify);
        let Ok(Packet::Tcp { ip, ecn: read_ecn, header, payload_offset, payload: read, checksum }) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!(ip.source, IpAddr::from(addresses.0));
        prop_assert_eq!(ip.destination, IpAddr::from(addresses.1));
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
            (0u8..16).prop_filter("its own kind", |&code| code != 4).prop_map(|code| ErrorKind::Unreachable { code }),
            any::<u16>().prop_map(|mtu| ErrorKind::FragmentationNeeded { mtu }),
            (0u8..2).prop_map(|code| ErrorKind::TimeExceeded { code }),
            any::<u8>().prop_map(|pointer| ErrorKind::ParameterProblem { code: 0, pointer }),
        ],
        spec in spec(),
        (stamp, payload) in stamp_and_payload(),
        quoted_len in 28usize..600,
    ) {
        let frame = frame(&Template::new(&spec), &stamp, &payload);
        let ip_at = if spec.vlan.is_some() { 18 } else { 14 };
        let quoted = &frame[ip_at..][..quoted_len.min(frame.len() - ip_at)];
        let mut message = vec![0; 700];
        let len = icmp::build(&mut message, kind, quoted);
        message.truncate(len);

        let (theirs, their_payload) = Icmpv4Header::from_slice(&message).unwrap();
        prop_assert_eq!(theirs.checksum, theirs.icmp_type.calc_checksum(their_payload));
        prop_assert_eq!(their_payload, quoted);
        let their_kind = match theirs.icmp_type.clone() {
            Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu,
            }) => ErrorKind::FragmentationNeeded { mtu: next_hop_mtu },
            Icmpv4Type::DestinationUnreachable(header) => ErrorKind::Unreachable { code: header.code_u8() },
            Icmpv4Type::TimeExceeded(code) => ErrorKind::TimeExceeded { code: code.code_u8() },
            Icmpv4Type::ParameterProblem(icmpv4::ParameterProblemHeader::PointerIndicatesError(pointer)) => {
                ErrorKind::ParameterProblem { code: 0, pointer }
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(their_kind, kind);

        // In a frame of etherparse's, read by us.
        let mut whole = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([192, 0, 2, 1], spec.source.ip().octets(), 60)
            .icmpv4(theirs.icmp_type)
            .write(&mut whole, quoted)
            .unwrap();
        let parsed = parse(&whole, ChecksumPolicy::Verify);
        let Ok(Packet::Icmp(error)) = parsed else { return Err(TestCaseError::fail(format!("{parsed:?}"))) };
        prop_assert_eq!(error.kind, kind);
        prop_assert_eq!(error.reporter, IpAddr::from([192, 0, 2, 1]));
        prop_assert_eq!(error.recipient, IpAddr::V4(*spec.source.ip()));
        prop_assert_eq!(error.quoted.source, IpAddr::V4(*spec.source.ip()));
        prop_assert_eq!(error.quoted.destination, IpAddr::V4(*spec.destination.ip()));
        prop_assert_eq!(error.quoted.source_port, spec.source.port());
        prop_assert_eq!(error.quoted.destination_port, spec.destination.port());
        prop_assert_eq!(error.quoted.seq, stamp.seq);
    }
}
