//! Frames as Linux 6.18 sent them over a veth pair (complete checksums) and over the loopback device (partial
//! ones), and ours beside them.

use std::net::IpAddr;

use xsend_wire::icmp::{ErrorKind, FlowTuple, IcmpError};
use xsend_wire::tcp::{Flags, Header, Options, Timestamps};
use xsend_wire::{
    ChecksumPolicy, ChecksumState, Layer, Mac, Malformed, Packet, Template, TemplateSpec, parse,
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

#[test]
fn a_handshake_and_some_data() {
    let (header, payload, checksum) = tcp(&bytes(SYN), ChecksumPolicy::Verify);
    assert_eq!((header, payload.len(), checksum), (syn(), 0, ChecksumState::Verified));

    let (header, _, _) = tcp(&bytes(SYN_ACK), ChecksumPolicy::Verify);
    assert_eq!((header.flags, header.ack), (Flags::SYN | Flags::ACK, 0x83df_faad));
    assert_eq!(header.options.window_scale, Some(10));
    assert_eq!(format!("{:?}", header.flags), "SYN|ACK");

    let (header, payload, _) = tcp(&bytes(ACK), ChecksumPolicy::Verify);
    let timestamps = Some(Timestamps { value: 0x2225_b685, echo: 0x0549_5264 });
    assert_eq!(header.options, Options { timestamps, ..Options::default() });
    assert!(payload.is_empty());

    let (header, payload, _) = tcp(&bytes(DATA), ChecksumPolicy::Verify);
    assert_eq!((header.flags, payload.as_slice()), (Flags::ACK | Flags::PSH, &b"pong!"[..]));
}

#[test]
fn a_refusal() {
    let (header, _, _) = tcp(&bytes(REFUSED), ChecksumPolicy::Verify);
    assert_eq!((header.flags, header.source, header.window), (Flags::RST | Flags::ACK, 5999, 0));
    assert_eq!(header.options, Options::default());
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
        kind: ErrorKind::Unreachable { code: 1 },
        reporter: IpAddr::from([10, 9, 9, 2]),
        recipient: IpAddr::from([10, 9, 9, 1]),
        quoted,
    };
    assert_eq!(parse(&bytes(HOST_UNREACHABLE), ChecksumPolicy::Verify), Ok(Packet::Icmp(error)));
}

#[test]
fn a_partial_checksum() {
    let frame = bytes(PARTIAL_DATA);
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(Malformed::Checksum(Layer::Tcp)));
    let (_, payload, checksum) = tcp(&frame, ChecksumPolicy::AcceptPartial);
    assert_eq!((payload.as_slice(), checksum), (&b"odd"[..], ChecksumState::Partial));
}

/// Options in the same order with the same padding: a SYN of ours looks like one of Linux's.
#[test]
fn our_syn_is_linux_s_syn() {
    let template = Template::new(&TemplateSpec {
        source_mac: Mac([0x72, 0xe1, 0xd3, 0xba, 0x3d, 0x38]),
        destination_mac: Mac([0x72, 0xcc, 0x87, 0x5c, 0xfd, 0xe5]),
        vlan: None,
        source: "10.9.9.1:40001".parse().unwrap(),
        destination: "10.9.9.2:5001".parse().unwrap(),
        timestamps: true,
        traffic_class: 0,
    });
    let mut theirs = bytes(SYN);
    // Linux numbers its SYNs, we do not; and so the IPv4 checksum differs.
    theirs[18..20].fill(0);
    let ours = control(&template, &syn(), &[]);
    theirs[24..26].copy_from_slice(&ours[24..26]);
    assert_eq!(ours, theirs);
}
