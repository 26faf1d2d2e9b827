//! The maps' keys, byte for byte as `struct flow` and `struct listener` of the program lay them out.

use std::net::{IpAddr, SocketAddr};

const FAMILY_V4: u16 = 4;
const FAMILY_V6: u16 = 6;

/// Local address, remote address, local port, remote port, all in the network's byte order; and their family.
pub(crate) fn flow(local: SocketAddr, remote: SocketAddr) -> [u8; 40] {
    let (local_address, family) = address(local);
    let (remote_address, _) = address(remote);
    let mut key = [0; 40];
    key[..16].copy_from_slice(&local_address);
    key[16..32].copy_from_slice(&remote_address);
    key[32..34].copy_from_slice(&local.port().to_be_bytes());
    key[34..36].copy_from_slice(&remote.port().to_be_bytes());
    key[36..].copy_from_slice(&u32::from(family).to_ne_bytes());
    key
}

/// Local address and port in the network's byte order, and their family.
pub(crate) fn listener(local: SocketAddr) -> [u8; 20] {
    let (local_address, family) = address(local);
    let mut key = [0; 20];
    key[..16].copy_from_slice(&local_address);
    key[16..18].copy_from_slice(&local.port().to_be_bytes());
    key[18..].copy_from_slice(&family.to_ne_bytes());
    key
}

/// An IPv4 address comes first, with zeroes behind it, also if it is given as an IPv6 one (RFC 4291 2.5.5.2).
fn address(of: SocketAddr) -> ([u8; 16], u16) {
    match of.ip().to_canonical() {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, FAMILY_V4)
        }
        IpAddr::V6(address) => (address.octets(), FAMILY_V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_flow_is_two_addresses_and_two_ports_in_network_order_and_a_family() {
        let key = flow(at("10.1.2.3:258"), at("192.0.2.9:65534"));
        assert_eq!(key[..16], [10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(key[16..32], [192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(key[32..36], [1, 2, 0xff, 0xfe]);
        assert_eq!(key[36..], 4u32.to_ne_bytes());
        assert_eq!(flow(at("[::ffff:10.1.2.3]:258"), at("[::ffff:192.0.2.9]:65534")), key);
    }

    #[test]
    fn an_ipv6_address_stands_as_it_is() {
        let key = listener(at("[2001:db8::7]:80"));
        assert_eq!(key[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(key[15..18], [7, 0, 80]);
        assert_eq!(key[18..], 6u16.to_ne_bytes());
    }

    #[test]
    fn the_families_any_addresses_differ() {
        assert_ne!(listener(at("0.0.0.0:80")), listener(at("[::]:80")));
        // 10.1.2.3 with zeroes behind it is also an IPv6 address.
        assert_ne!(listener(at("10.1.2.3:80")), listener(at("[a01:203::]:80")));
    }
}
