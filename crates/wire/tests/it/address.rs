//! Pairs of addresses.

use std::net::IpAddr;

use proptest::prelude::*;
use xsend_wire::{IpPair, MixedFamilies};

use crate::common::{FAMILIES, ip_pair_v4, ip_pair_v6, naive_fold, octets};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

proptest! {
    #[test]
    fn pseudo_headers(v4 in ip_pair_v4(), v6 in ip_pair_v6(), protocol in any::<u8>(), len in any::<u16>()) {
        // RFC 9293 3.1 and RFC 8200 8.1, as they are drawn.
        let of = |ip: IpPair| [octets(ip.source()), octets(ip.destination())].concat();
        let drawn = [&of(v4)[..], &[0, protocol], &len.to_be_bytes()].concat();
        prop_assert_eq!(v4.pseudo_header(protocol, len.into()).fold(), naive_fold(&drawn));
        let drawn = [&of(v6)[..], &u32::from(len).to_be_bytes(), &[0, 0, 0, protocol]].concat();
        prop_assert_eq!(v6.pseudo_header(protocol, len.into()).fold(), naive_fold(&drawn));
    }

    #[test]
    fn there_and_back(ip in prop_oneof![ip_pair_v4(), ip_pair_v6()]) {
        let back = ip.reversed();
        prop_assert_eq!((back.source(), back.destination()), (ip.destination(), ip.source()));
        prop_assert_eq!(back.reversed(), ip);
    }
}

#[test]
fn pairs_are_of_one_family() {
    let (v4, v6) = (address("10.0.0.1"), address("2001:db8::1"));
    assert_eq!(IpPair::new(v4, address("10.0.0.2")), Ok(FAMILIES[0]));
    assert_eq!(IpPair::new(v6, address("2001:db8::2")), Ok(FAMILIES[1]));
    // RFC 4291 2.5.5.2.
    assert_eq!(IpPair::new(address("::ffff:10.0.0.1"), address("10.0.0.2")), Ok(FAMILIES[0]));
    let mixed = MixedFamilies { source: v4, destination: v6 };
    assert_eq!(IpPair::new(v4, v6), Err(mixed));
    assert_eq!(
        mixed.to_string(),
        "no packet goes from 10.0.0.1 to 2001:db8::1: choose two addresses of one family"
    );
}
