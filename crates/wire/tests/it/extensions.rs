//! Chains of IPv6 extension headers: which are followed, which are not, and why.

use proptest::collection::vec;
use proptest::prelude::*;
use xsend_wire::ipv6::{self, MAX_EXTENSION_HEADERS, MAX_EXTENSION_LEN, NotOurs, Upper, upper};
use xsend_wire::{ChecksumPolicy, ExtensionFault, Layer, Malformed, Packet, Template, parse, tcp};

use crate::common::{control, extension, fixed_spec_v6, with_extensions};

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

/// A segment of IPv6 with these headers in front.
fn chained(extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let template = Template::new(&fixed_spec_v6(true));
    with_extensions(&control(&template, &tcp::Header::default(), b"xyz"), extensions)
}

fn outcome(extensions: &[(u8, Vec<u8>)]) -> Result<Upper, Malformed> {
    let frame = chained(extensions);
    let header = ipv6::Header::parse(&frame[14..]).unwrap();
    let read = upper(header.next_header, &frame[54..]);
    // The whole frame fares as its chain does.
    match (read, parse(&frame, ChecksumPolicy::Verify)) {
        (Ok(Upper::Message { offset, .. }), Ok(Packet::Tcp { payload: b"xyz", payload_offset, .. })) => {
            assert_eq!(payload_offset, 54 + offset + 20);
        }
        (Ok(Upper::Message { protocol, .. }), Ok(Packet::Other)) => assert_ne!(protocol, TCP),
        (Ok(Upper::NotOurs(_)), Ok(Packet::Other)) => {}
        (Err(chain), Err(frame)) => assert_eq!(chain, frame),
        (chain, frame) => panic!("{chain:?} but {frame:?}"),
    }
    read
}

fn fault(fault: ExtensionFault) -> Result<Upper, Malformed> {
    Err(Malformed::Extension(fault))
}

fn segment_at(offset: usize) -> Result<Upper, Malformed> {
    Ok(Upper::Message { protocol: TCP, offset })
}

fn not_ours(why: NotOurs) -> Result<Upper, Malformed> {
    Ok(Upper::NotOurs(why))
}

/// A header of options with nothing but padding, `len` bytes long.
fn padding(kind: u8, len: usize) -> (u8, Vec<u8>) {
    let mut bytes = vec![0; len];
    bytes[1] = (len / 8 - 1) as u8;
    (kind, bytes)
}

proptest! {
    #[test]
    fn what_may_be_skipped_is_skipped(mut extensions in vec(extension(), 0..=MAX_EXTENSION_HEADERS)) {
        // Any order, any number of times, but for hop-by-hop options.
        for (kind, _) in extensions.iter_mut().skip(1).filter(|(kind, _)| *kind == HOP_BY_HOP) {
            *kind = OPTIONS;
        }
        let offset = extensions.iter().map(|(_, bytes)| bytes.len()).sum();
        prop_assert_eq!(outcome(&extensions), segment_at(offset));
    }

    #[test]
    fn a_chain_cut_anywhere_is_truncated(extensions in vec(extension(), 1..=MAX_EXTENSION_HEADERS)) {
        prop_assume!(extensions.iter().skip(1).all(|(kind, _)| *kind != HOP_BY_HOP));
        let frame = chained(&extensions);
        let chain_len: usize = extensions.iter().map(|(_, bytes)| bytes.len()).sum();
        for len in 0..chain_len {
            // The payload length goes along, so that only the chain is cut short.
            let mut cut = frame[..54 + len].to_vec();
            cut[18..20].copy_from_slice(&(len as u16).to_be_bytes());
            let read = parse(&cut, ChecksumPolicy::Verify);
            let truncated = matches!(read, Err(Malformed::Truncated { layer: Layer::Extension, .. }));
            let jumbo = len == 0 && extensions[0].0 == HOP_BY_HOP && read == Err(Malformed::Jumbogram);
            prop_assert!(truncated || jumbo, "{len} of {chain_len}: {read:?}");
        }
    }

    #[test]
    fn whatever_the_bytes_the_bounds_hold(first in any::<u8>(), bytes in vec(any::<u8>(), 0..600)) {
        if let Ok(Upper::Message { offset, .. }) = upper(first, &bytes) {
            prop_assert!(offset <= MAX_EXTENSION_LEN.min(bytes.len()));
        }
        // No more than that is looked at: what lies behind changes nothing.
        let most = &bytes[..bytes.len().min(MAX_EXTENSION_LEN + 8)];
        prop_assert_eq!(upper(first, most), upper(first, &bytes));
    }
}

/// RFC 8200 appendix A: options of 1-, 2-, 4- and 8-byte fields, aligned by padding. Their types there are X and
/// Y; 0x1e and 0x3e are for experiments (RFC 4727).
#[test]
fn rfc_8200_appendix_a() {
    let x = [0x1e, 12, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8];
    let y = [0x3e, 7, 1, 1, 2, 1, 2, 3, 4];
    let header = |parts: &[&[u8]]| {
        let bytes = parts.concat();
        assert_eq!(bytes.len() % 8, 0);
        bytes
    };
    for bytes in [
        header(&[&[0, 1], &x]),
        header(&[&[0, 1], &[0], &y, &[1, 2, 0, 0]]),
        header(&[&[0, 3], &x, &[1, 1, 0], &y, &[1, 2, 0, 0]]),
        header(&[&[0, 3], &[0], &y, &[1, 4, 0, 0, 0, 0], &x]),
    ] {
        for kind in [HOP_BY_HOP, OPTIONS] {
            assert_eq!(outcome(&[(kind, bytes.clone())]), segment_at(bytes.len()));
        }
    }
}

/// RFC 8200 4.1: the order recommended, everything but IPsec in it.
#[test]
fn the_recommended_order() {
    let chain = [
        padding(HOP_BY_HOP, 8),
        padding(OPTIONS, 16),
        (ROUTING, vec![0, 0, 4, 0, 0, 0, 0, 0]),
        (FRAGMENT, vec![0, 0, 0, 0, 1, 2, 3, 4]),
        padding(OPTIONS, 8),
    ];
    assert_eq!(chain.len(), MAX_EXTENSION_HEADERS);
    assert_eq!(outcome(&chain), segment_at(48));
}

#[test]
fn long_chains_are_refused() {
    let short = vec![padding(OPTIONS, 8); MAX_EXTENSION_HEADERS + 1];
    assert_eq!(outcome(&short[1..]), segment_at(8 * MAX_EXTENSION_HEADERS));
    assert_eq!(outcome(&short), fault(ExtensionFault::TooMany));
    // However many follow, and whatever they are.
    for kind in [OPTIONS, ROUTING, FRAGMENT] {
        let many = vec![(kind, vec![0; 8]); 100];
        assert_eq!(outcome(&many), fault(ExtensionFault::TooMany));
    }

    assert_eq!(outcome(&[padding(OPTIONS, MAX_EXTENSION_LEN)]), segment_at(MAX_EXTENSION_LEN));
    let longer = [padding(OPTIONS, MAX_EXTENSION_LEN), padding(OPTIONS, 8)];
    assert_eq!(outcome(&longer), fault(ExtensionFault::TooLong));
    assert_eq!(outcome(&[padding(OPTIONS, MAX_EXTENSION_LEN + 8)]), fault(ExtensionFault::TooLong));
    // The longest that a header can declare, whether its bytes are there or not.
    assert_eq!(outcome(&[padding(OPTIONS, 2048)]), fault(ExtensionFault::TooLong));
    assert_eq!(upper(OPTIONS, &[TCP, 255, 0, 0, 0, 0, 0, 0]), fault(ExtensionFault::TooLong));
}

#[test]
fn fragments() {
    let fragment = |high, low| (FRAGMENT, vec![0, 0, high, low, 0, 0, 0, 9]);
    // RFC 6946: the first and the last in one. The reserved bits are ignored (RFC 8200 4.5).
    assert_eq!(outcome(&[fragment(0, 0)]), segment_at(8));
    assert_eq!(outcome(&[fragment(0, 0b110)]), segment_at(8));
    assert_eq!(outcome(&[(FRAGMENT, vec![0, 255, 0, 0, 0, 0, 0, 9])]), segment_at(8));
    // More follow; it is a later one; it is the last.
    for (high, low) in [(0, 1), (0, 8), (0, 9), (0x80, 0), (0xff, 0xf9)] {
        assert_eq!(outcome(&[fragment(high, low)]), not_ours(NotOurs::Fragment));
    }
}

#[test]
fn routing_headers() {
    for kind in [0, 2, 3, 4, 253] {
        let routing = |segments_left| (ROUTING, vec![0, 0, kind, segments_left, 0, 0, 0, 0]);
        // RFC 8200 4.4, RFC 5095 section 3: ignored when no segments are left, even of type 0.
        assert_eq!(outcome(&[routing(0)]), segment_at(8));
        assert_eq!(outcome(&[routing(1)]), not_ours(NotOurs::Routed { segments_left: 1 }));
        assert_eq!(outcome(&[routing(255)]), not_ours(NotOurs::Routed { segments_left: 255 }));
    }
}

#[test]
fn what_is_behind_ipsec_or_nothing_is_not_ours() {
    for (kind, why) in [(50, NotOurs::Secured), (51, NotOurs::Secured), (59, NotOurs::Nothing)] {
        assert_eq!(outcome(&[(kind, vec![0; 24])]), not_ours(why));
        assert_eq!(outcome(&[padding(HOP_BY_HOP, 8), (kind, vec![0; 24])]), not_ours(why));
        // The number says it; no byte is read.
        assert_eq!(upper(kind, &[]), not_ours(why));
    }
    // Other protocols are simply that.
    for protocol in [17, 41, 58, 135, 139, 253] {
        let read = upper(OPTIONS, &[protocol, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read, Ok(Upper::Message { protocol, offset: 8 }));
    }
}

#[test]
fn hop_by_hop_options_come_first_or_not_at_all() {
    let refused = fault(ExtensionFault::HopByHopNotFirst);
    assert_eq!(outcome(&[padding(OPTIONS, 8), padding(HOP_BY_HOP, 8)]), refused);
    assert_eq!(outcome(&[padding(HOP_BY_HOP, 8), padding(HOP_BY_HOP, 8)]), refused);
}

#[test]
fn options() {
    for kind in [HOP_BY_HOP, OPTIONS] {
        let one = |option: [u8; 6]| outcome(&[(kind, [&[0, 0], &option[..]].concat())]);
        // Router alert (RFC 2711) and any other whose upper bits let it be skipped.
        assert_eq!(one([5, 2, 0, 0, 1, 0]), segment_at(8));
        assert_eq!(one([0x3f, 4, 9, 9, 9, 9]), segment_at(8));
        // RFC 8200 4.2: discard, discard and report, discard and report unless multicast. The home address
        // option (RFC 6275 6.3) is among them: it would change the source address.
        for option in [0x40, 0x8a, 0xc9, 0xff] {
            assert_eq!(one([option, 4, 0, 0, 0, 0]), fault(ExtensionFault::UnknownOption { kind: option }));
            assert_eq!(one([1, 2, 0, 0, option, 0]), fault(ExtensionFault::UnknownOption { kind: option }));
        }
        // A length that runs past the header, or is missing.
        assert_eq!(one([5, 5, 0, 0, 0, 0]), fault(ExtensionFault::OptionLength { kind: 5 }));
        assert_eq!(one([1, 255, 0, 0, 0, 0]), fault(ExtensionFault::OptionLength { kind: 1 }));
        assert_eq!(one([0, 0, 0, 0, 0, 5]), fault(ExtensionFault::OptionLength { kind: 5 }));
        assert_eq!(one([0, 0, 0, 0, 5, 0]), segment_at(8));
    }
}

#[test]
fn jumbograms() {
    // RFC 2675 section 2: a payload length of zero, and the option with the true one.
    let jumbo = (HOP_BY_HOP, vec![0, 0, 0xc2, 4, 0, 1, 0, 0]);
    let mut frame = chained(std::slice::from_ref(&jumbo));
    // Section 3: an error also where the payload length is not zero.
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(Malformed::Jumbogram));
    assert_eq!(upper(HOP_BY_HOP, &jumbo.1), Err(Malformed::Jumbogram));
    frame[18..20].fill(0);
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(Malformed::Jumbogram));
}

#[test]
fn payloads_of_nothing() {
    let mut frame = chained(&[]);
    frame[18..20].fill(0);
    let truncated = |layer, needed, found| Err(Malformed::Truncated { layer, needed, found });
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), truncated(Layer::Tcp, 20, 0));
    frame[20] = OPTIONS;
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), truncated(Layer::Extension, 8, 0));
    frame[20] = 58;
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), truncated(Layer::Icmp, 8, 0));
    frame[20] = 59;
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Ok(Packet::Other));
}

#[test]
fn lengths_that_cannot_be() {
    let mut frame = chained(&[]);
    let len = frame.len() - 14;
    frame[18..20].copy_from_slice(&(len as u16 - 40 + 1).to_be_bytes());
    let truncated = Malformed::Truncated { layer: Layer::Ipv6, needed: len + 1, found: len };
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(truncated));
    frame[14] = 0x45;
    let version = Malformed::Version { layer: Layer::Ipv6, found: 4 };
    assert_eq!(parse(&frame, ChecksumPolicy::Verify), Err(version));
}
