//! IPv6: extension headers, what passes, and errors by ICMPv6.

use xsend_steer::{AttachMode, Counts, Flow, Listener, ListenerLease, Vlans};

use crate::common::{FAR_MAC, NEAR_MAC, icmp, tcp_header};
use crate::lab::{End, OURS, TCP, UDP, at, expect_counts, flow, judged};

const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

const NEAR6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const FAR6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

fn flow6() -> Flow {
    Flow { local: at("[fd77::1]:40000"), remote: at("[fd77::2]:80"), vlans: Vlans::NONE }
}

/// An IPv6 packet of `protocol` behind extension headers, each with its number and bytes (the first is overwritten with
/// the number of the header that follows).
fn packet(from: [u8; 16], to: [u8; 16], chain: &[(u8, Vec<u8>)], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![];
    for (i, (_, bytes)) in chain.iter().enumerate() {
        let mut bytes = bytes.clone();
        bytes[0] = chain.get(i + 1).map_or(protocol, |(number, _)| *number);
        body.extend(bytes);
    }
    body.extend(payload);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([chain.first().map_or(protocol, |(number, _)| *number), 64]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(body);
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&NEAR_MAC[..], &FAR_MAC, &[0x86, 0xdd], packet].concat()
}

/// A segment of the far end's behind these extension headers.
fn tcp(chain: &[(u8, Vec<u8>)], ports: (u16, u16)) -> Vec<u8> {
    ethernet(&packet(FAR6, NEAR6, chain, TCP, &[tcp_header(ports).as_slice(), b"data"].concat()))
}

/// Options of `len` bytes in all, a multiple of 8, filled with one PadN.
fn options(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[1] = (len / 8 - 1) as u8;
    bytes[2] = 1;
    bytes[3] = (len - 4) as u8;
    bytes
}

/// A routing header with so many segments left.
fn routing(segments_left: u8) -> Vec<u8> {
    vec![0, 0, 253, segments_left, 0, 0, 0, 0]
}

fn fragment(offset_and_more: u16) -> Vec<u8> {
    let [high, low] = offset_and_more.to_be_bytes();
    vec![0, 0, high, low, 0, 0, 0, 9]
}

#[test]
fn our_flow_is_steered_behind_as_many_extension_headers_as_are_read() {
    for mode in [AttachMode::Native, AttachMode::Generic] {
        judged(1, mode, flow6(), |_, steer, near, far| {
            let chains = [
                vec![],
                vec![(HOP_BY_HOP, options(8))],
                vec![(DESTINATION, options(16))],
                vec![(ROUTING, routing(0))],
                vec![(HOP_BY_HOP, options(128))],
                vec![
                    (HOP_BY_HOP, options(8)),
                    (DESTINATION, options(24)),
                    (ROUTING, routing(0)),
                    (DESTINATION, options(88)),
                ],
            ];
            let packets = chains.map(|chain| tcp(&chain, OURS));
            send_all(far, &packets);
            assert_eq!(near.receive(packets.len()), packets);
            expect_counts(steer, Counts { steered: 6, ..Counts::default() });
        });
    }
}

#[test]
fn longer_chains_fragments_and_strangers_pass() {
    judged(1, AttachMode::Native, flow6(), |_, steer, near, far| {
        let five = vec![(DESTINATION, options(8)); 5];
        send_all(
            far,
            &[
                tcp(&five, OURS),
                tcp(&[(HOP_BY_HOP, options(136))], OURS),
                tcp(&[(HOP_BY_HOP, options(72)), (DESTINATION, options(64))], OURS),
            ],
        );
        expect_counts(steer, Counts { chained: 3, ..Counts::default() });
        send_all(
            far,
            &[
                tcp(&[(FRAGMENT, fragment(1))], OURS),
                tcp(&[(HOP_BY_HOP, options(8)), (FRAGMENT, fragment(8))], OURS),
                // An atomic fragment, RFC 6946: whole, and still the kernel's.
                tcp(&[(FRAGMENT, fragment(0))], OURS),
            ],
        );
        expect_counts(steer, Counts { chained: 3, fragmented: 3, ..Counts::default() });
        let other = [&FAR6[..15], &[3]].concat().try_into().unwrap();
        let passed = [
            tcp(&[], (80, 40001)),
            tcp(&[], (81, 40000)),
            tcp(&[(ROUTING, routing(1))], OURS),
            tcp(&[(AUTHENTICATION, vec![0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])], OURS),
            ethernet(&packet(other, NEAR6, &[], TCP, &tcp_header(OURS))),
            ethernet(&packet(FAR6, NEAR6, &[], UDP, &tcp_header(OURS))),
            ethernet(&packet(FAR6, NEAR6, &[], ICMPV6, &icmp(128, 0, b"echo"))),
            // Neighbour solicitations are the kernel's.
            ethernet(&packet(FAR6, NEAR6, &[], ICMPV6, &icmp(135, 0, &NEAR6))),
        ];
        send_all(far, &passed);
        let passed = passed.len() as u64;
        expect_counts(steer, Counts { chained: 3, fragmented: 3, passed, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn impossible_headers_are_counted_and_passed() {
    judged(1, AttachMode::Native, flow6(), |_, steer, near, far| {
        let whole = tcp(&[], OURS);
        let changed = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            packet
        };
        let optional = tcp(&[(HOP_BY_HOP, options(16))], OURS);
        let malformed = [
            whole[..14 + 39].to_vec(),              // half a header
            changed(14, 0x45),                      // version 4 under IPv6's type
            changed(14 + 5, 19),                    // a payload shorter than its TCP header
            whole[..14 + 40 + 19].to_vec(),         // half a TCP header
            changed(14 + 40 + 12, 0x40),            // a TCP header of four words
            changed(14 + 40 + 12, 0xf0),            // one longer than its packet
            optional[..14 + 40 + 7].to_vec(),       // half an extension header
            optional[..14 + 40 + 16 + 19].to_vec(), // half a TCP header behind one
            ethernet(&packet(FAR6, NEAR6, &[], ICMPV6, &icmp(2, 0, &[0x60; 39]))), // half a quotation
            ethernet(&packet(FAR6, NEAR6, &[], ICMPV6, &icmp(2, 0, &[0x45; 60]))), // one of IPv4
        ];
        send_all(far, &malformed);
        expect_counts(steer, Counts { malformed: malformed.len() as u64, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn an_icmpv6_error_about_our_flow_is_ours() {
    judged(1, AttachMode::Native, flow6(), |_, steer, near, far| {
        let quote = |from, to, ports| packet(from, to, &[], TCP, &tcp_header(ports));
        let error = |kind, quoted: &[u8]| ethernet(&packet(FAR6, NEAR6, &[], ICMPV6, &icmp(kind, 0, quoted)));
        let ours = [1, 2, 3, 4].map(|kind| error(kind, &quote(NEAR6, FAR6, (40000, 80))));
        send_all(far, &ours);
        assert_eq!(near.receive(ours.len()), ours);
        let passed = [
            error(2, &quote(NEAR6, FAR6, (40001, 80))),
            // A quotation from the other side is none of our packets.
            error(2, &quote(FAR6, NEAR6, (80, 40000))),
            error(100, &quote(NEAR6, FAR6, (40000, 80))),
            error(2, &packet(NEAR6, FAR6, &[], UDP, &tcp_header((40000, 80)))),
        ];
        send_all(far, &passed);
        expect_counts(steer, Counts { quoted: 4, passed: 4, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn the_families_do_not_meet() {
    // Somebody else's segment whose IPv6 addresses are those of our IPv4 flow, in both ways of writing them.
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, last];
        let padded = |last| [10, 77, 0, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        send_all(
            far,
            &[
                ethernet(&packet(mapped(2), mapped(1), &[], TCP, &tcp_header(OURS))),
                ethernet(&packet(padded(2), padded(1), &[], TCP, &tcp_header(OURS))),
            ],
        );
        expect_counts(steer, Counts { passed: 2, ..Counts::default() });
        assert_eq!(near.socket.receive(|_| ()), 0);
    });
}

#[test]
fn listeners_of_one_family_leave_the_other_alone() {
    judged(1, AttachMode::Native, flow(), |_, steer, near, far| {
        let any4 = Listener { local: at("0.0.0.0:9000"), vlans: Vlans::NONE };
        let _held = ListenerLease::take(steer, any4).unwrap();
        send_all(far, &[tcp(&[], (1234, 9000))]);
        expect_counts(steer, Counts { passed: 1, ..Counts::default() });
        let any6 = Listener { local: at("[::]:9000"), vlans: Vlans::NONE };
        let _held = ListenerLease::take(steer, any6).unwrap();
        let segment = tcp(&[(HOP_BY_HOP, options(8))], (1234, 9000));
        far.send(&segment);
        assert_eq!(near.receive(1), [segment]);
        expect_counts(steer, Counts { passed: 1, listened: 1, ..Counts::default() });
    });
}

fn send_all(far: &mut End, packets: &[Vec<u8>]) {
    packets.iter().for_each(|packet| far.send(packet));
}
