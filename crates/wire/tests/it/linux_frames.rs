//! Frames as Linux 6.18 sent them over a veth pair (complete checksums) and over the loopback device (partial
//! ones), and ours beside them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xsend_wire::ethernet::Tags;
use xsend_wire::icmp::{ErrorKind, FlowTuple, IcmpError, Reason};
use xsend_wire::tcp::{Flags, Header, Options, Timestamps};
use xsend_wire::{
    ChecksumPolicy, ChecksumState, IpPair, Layer, Mac, Malformed, Packet, Template, TemplateSpec, parse,
};

use crate::common::control;

const SYN: &str = "72cc875cfde572e1d3ba3d3808004500003c82924000400692150a0909010a0909029c41138983dffaac\
    00000000a002faf01ff60000020405b40402080a2225b685000000000103030a";
const SYN_ACK: &str = "72e1d3ba3d3872cc875cfde508004500003c00004000400614a80a0909020a09090113899c41b0eb2367\
    83dffaada012fe88f04c0000020405b40402080a054952642225b6850103030a";
const ACK: &str = "72cc875cfde572e1d3ba3d38080045000034829340004006921c0a0909010a0909029c41138983dffaad\
    b0eb23688010003f1d6600000101080a2225b68505495264";
const DATA: &str = "72e1d3ba3d3872cc875cfde5080045000039835f40004006914b0a0909020a09090113899c41b0eb2368\
    83dffab0801800401d7e00000101080a054952642225b685706f6e6721";
const REFUSED: &str = "72e1d3ba3d3872cc875cfde508004500002800004000400614bc0a0909020a090901176fcbe800000000\
    42b353895014000010280000";
const HOST_UNREACHABLE: &str = "72e1d3ba3d3872cc875cfde5080045c000585feb00004001f3e50a0909020a09090103011a85\
    000000004500003c9ffa400040067d6a0a0909010a4d0001817000504016d5c800000000a002faf09c010000020405b4\
    0402080ac498377b000000000103030a";
const PARTIAL_DATA: &str = "000000000000000000000000080045100037\
    3da440004006ff0a7f0000017f0000019c4113891a650c175b78f3cc80180040fe2b00000101080a42e9cc588c3235186f6464";

const SYN_V6: &str = "026e1d8bf9e83e92ccf30c9386dd600c988d0028064020010db800090000000000000000000120010db800\
    0900000000000000000002a59c13892f3f22b100000000a002fd2002360000020405a00402080a71b2706b00000000010303\
    0a";
const SYN_ACK_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600e89530028064020010db800090000000000000000000220010d\
    b80009000000000000000000011389a59cf9f634ba2f3f22b2a012fb0468d60000020405a00402080ab202bab671b2706b01\
    03030a";
const DATA_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600e89530025064020010db800090000000000000000000220010db80\
    009000000000000000000011389a59cf9f634bb2f3f22b28018003f924100000101080ab202bae871b2706b706f6e6721";
const REFUSED_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600de8120014064020010db800090000000000000000000220010d\
    b8000900000000000000000001176fa6c000000000724c2e7150140000f55c0000";
const PARTIAL_SYN_ACK_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600d0a7f0028064020010db80009000000000000000000\
    0220010db800090000000000000000000113898fb222f9d3cbb6309579a012fb045bb50000020405a00402080ae50fe3e5e4\
    a8be6a0103030a";
const PARTIAL_DATA_V6: &str = "026e1d8bf9e83e92ccf30c9386dd600d05c30023064020010db80009000000000000000000012\
    0010db80009000000000000000000028fb21389b630957922f9d3d1801800405bb000000101080ae4a8be80e50fe3fb6f646\
    4";
const PROHIBITED_V6: &str = "3e92ccf30c93026e1d8bf9e886dd60013a0f00583a4020010db8000900000000000000000002200\
    10db800090000000000000000000101015f1400000000600ddd890028064020010db800090000000000000000000120010db\
    8006600000000000000000001c8360050d167db4e00000000a002fd20f5760000020405a00402080a79a10ab800000000010\
    3030a";
const NO_ROUTE_V6: &str = "3e92ccf30c93026e1d8bf9e886dd60055e3800583a4020010db800090000000000000000000220010\
    db800090000000000000000000101006479000000006003d82f0028064020010db800090000000000000000000120010db80\
    05500000000000000000001993a0050f696f8b000000000a002fd202c1d0000020405a00402080a2221180e0000000001030\
    30a";
const HOP_LIMIT_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600e292000583a4020010db80009000000000000000000022001\
    0db800090000000000000000000103008134000000006001b9b50028060120010db800090000000000000000000120010db8\
    007700000000000000000009d6940050ed20dc2c00000000a002fd209b360000020405a00402080a6a464945000000000103\
    030a";
const UNREACHABLE_V6: &str = "3e92ccf30c93026e1d8bf9e886dd600d783c00583a4020010db800090000000000000000000220\
    010db80009000000000000000000010103589800000000600ee4030028063f20010db800090000000000000000000120010d\
    b800770000000000000000000998d800505afecfae00000000a002fd20be740000020405a00402080a75a3f7060000000001\
    03030a";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn tcp(frame: &[u8], policy: ChecksumPolicy) -> (Header, Vec<u8>, ChecksumState) {
    let Ok(Packet::Tcp { header, payload, checksum, .. }) = parse(frame, policy) else {
        panic!("no TCP segment: {:?}", parse(frame, policy));
    };
    (header, payload.to_vec(), checksum)
}

fn syn() -> Header {
    let options = Options {
        mss: Some(1460),
        window_scale: Some(10),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 0x2225_b685, echo: 0 }),
        ..Options::default()
    };
    Header {
        source: 40001,
        destination: 5001,
        seq: 0x83df_faac,
        flags: Flags::SYN,
        window: 64240,
        options,
        ..Header::default()
    }
}

fn v6(last: &str) -> Ipv6Addr {
    format!("2001:db8:{last}").parse().unwrap()
}

fn syn_v6() -> Header {
    let timestamps = Some(Timestamps { value: 0x71b2_706b, echo: 0 });
    let options = Options { mss: Some(1440), timestamps, ..syn().options };
    Header { source: 0xa59c, seq: 0x2f3f_22b1, window: 64800, options, ..syn() }
}

#[test]
fn a_handshake_and_some_data() {
    for (syn, [ours, theirs, data]) in
        [(syn(), [SYN, SYN_ACK, DATA]), (syn_v6(), [SYN_V6, SYN_ACK_V6, DATA_V6])]
    {
        let (header, payload, checksum) = tcp(&bytes(ours), ChecksumPolicy::Verify);
        assert_eq!((header, payload.len(), checksum), (syn, 0, ChecksumState::Verified));

        let (header, _, _) = tcp(&bytes(theirs), ChecksumPolicy::Verify);
        assert_eq!((header.flags, header.ack), (Flags::SYN | Flags::ACK, syn.seq + 1));
        assert_eq!(header.options.window_scale, Some(10));
        assert_eq!(format!("{:?}", header.flags), "SYN|ACK");

        let (header, payload, _) = tcp(&bytes(data), ChecksumPolicy::Verify);
        assert_eq!((header.flags, payload.as_slice()), (Flags::ACK | Flags::PSH, &b"pong!"[..]));
    }
}

#[test]
fn a_bare_acknowledgement() {
    let (header, payload, _) = tcp(&bytes(ACK), ChecksumPolicy::Verify);
    let timestamps = Some(Timestamps { value: 0x2225_b685, echo: 0x0549_5264 });
    assert_eq!(header.options, Options { timestamps, ..Options::default() });
    assert!(payload.is_empty());
}

#[test]
fn a_refusal() {
    for refused in [REFUSED, REFUSED_V6] {
        let (header, _, _) = tcp(&bytes(refused), ChecksumPolicy::Verify);
        assert_eq!((header.flags, header.source, header.window), (Flags::RST | Flags::ACK, 5999, 0));
        assert_eq!(header.options, Options::default());
    }
}

#[test]
fn an_unreachable_host() {
    let quoted = FlowTuple {
        source: IpAddr::from([10, 9, 9, 1]),
        destination: IpAddr::from([10, 77, 0, 1]),
        source_port: 33136,
        destination_port: 80,
        seq: 0x4016_d5c8,
    };
    let error = IcmpError {
        kind: ErrorKind::Unreachable { reason: Reason::Host, code: 1 },
        reporter: IpAddr::from([10, 9, 9, 2]),
        recipient: IpAddr::from([10, 9, 9, 1]),
        quoted,
    };
    assert_eq!(parse(&bytes(HOST_UNREACHABLE), ChecksumPolicy::Verify), Ok(Packet::Icmp(error)));
}

#[test]
fn partial_checksums() {
    for (frame, expected) in
        [(PARTIAL_DATA, &b"odd"[..]), (PARTIAL_SYN_ACK_V6, &b""[..]), (PARTIAL_DATA_V6, &b"odd"[..])]
    {
        let frame = bytes(frame);
        assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(Malformed::Checksum(Layer::Tcp)));
        let (_, payload, checksum) = tcp(&frame, ChecksumPolicy::AcceptPartial);
        assert_eq!((payload.as_slice(), checksum), (expected, ChecksumState::Partial));
    }
}

/// Options in the same order with the same padding: a SYN of ours looks like one of Linux's.
#[test]
fn our_syn_is_linux_s_syn() {
    let template = Template::new(&TemplateSpec {
        source_mac: Mac([0x72, 0xe1, 0xd3, 0xba, 0x3d, 0x38]),
        destination_mac: Mac([0x72, 0xcc, 0x87, 0x5c, 0xfd, 0xe5]),
        tags: Tags::NONE,
        ip: IpPair::V4 { source: Ipv4Addr::new(10, 9, 9, 1), destination: Ipv4Addr::new(10, 9, 9, 2) },
        source_port: 40001,
        destination_port: 5001,
        timestamps: true,
        traffic_class: 0,
        flow_label: 0,
    });
    let mut theirs = bytes(SYN);
    // Linux numbers its SYNs, we do not; and so the IPv4 checksum differs.
    theirs[18..20].fill(0);
    let ours = control(&template, &syn(), &[]);
    theirs[24..26].copy_from_slice(&ours[24..26]);
    assert_eq!(ours, theirs);
}

#[test]
fn errors_about_segments_over_ipv6() {
    let prohibited = ErrorKind::Unreachable { reason: Reason::Prohibited, code: 1 };
    let no_route = ErrorKind::Unreachable { reason: Reason::Network, code: 0 };
    let nobody = ErrorKind::Unreachable { reason: Reason::Host, code: 3 };
    let expired = ErrorKind::TimeExceeded { code: 0 };
    for (frame, kind, destination, source_port, seq) in [
        (PROHIBITED_V6, prohibited, v6("66::1"), 0xc836, 0xd167_db4e),
        (NO_ROUTE_V6, no_route, v6("55::1"), 0x993a, 0xf696_f8b0),
        (HOP_LIMIT_V6, expired, v6("77::9"), 0xd694, 0xed20_dc2c),
        (UNREACHABLE_V6, nobody, v6("77::9"), 0x98d8, 0x5afe_cfae),
    ] {
        let quoted = FlowTuple {
            source: v6("9::1").into(),
            destination: destination.into(),
            source_port,
            destination_port: 80,
            seq,
        };
        let (reporter, recipient) = (v6("9::2").into(), v6("9::1").into());
        let error = IcmpError { kind, reporter, recipient, quoted };
        assert_eq!(parse(&bytes(frame), ChecksumPolicy::Verify), Ok(Packet::Icmp(error)));
    }
}

#[test]
fn our_syn_is_linux_s_syn_over_ipv6() {
    let template = Template::new(&TemplateSpec {
        source_mac: Mac([0x3e, 0x92, 0xcc, 0xf3, 0x0c, 0x93]),
        destination_mac: Mac([0x02, 0x6e, 0x1d, 0x8b, 0xf9, 0xe8]),
        tags: Tags::NONE,
        ip: IpPair::V6 { source: v6("9::1"), destination: v6("9::2") },
        source_port: 0xa59c,
        destination_port: 5001,
        timestamps: true,
        traffic_class: 0,
        flow_label: 0xc988d,
    });
    assert_eq!(control(&template, &syn_v6(), &[]), bytes(SYN_V6));
}
