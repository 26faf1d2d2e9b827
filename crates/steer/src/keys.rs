//! The maps' keys, byte for byte as `struct flow` and `struct listener` of the program lay them out.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Local address, remote address, local port, remote port, all in the network's byte order.
pub(crate) fn flow(local: SocketAddr, remote: SocketAddr) -> [u8; 36] {
    let mut key = [0; 36];
    key[..16].copy_from_slice(&mapped(local).octets());
    key[16..32].copy_from_slice(&mapped(remote).octets());
    key[32..34].copy_from_slice(&local.port().to_be_bytes());
    key[34..].copy_from_slice(&remote.port().to_be_bytes());
    key
}

/// Local address and port in the network's byte order, and two bytes of padding.
pub(crate) fn listener(local: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&mapped(local).octets());
    key[16..18].copy_from_slice(&local.port().to_be_bytes());
    key
}

/// IPv4 addresses as `::ffff:a.b.c.d` (RFC 4291 2.5.5.2).
fn mapped(address: SocketAddr) -> Ipv6Addr {
    match address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_flow_is_two_mapped_addresses_and_two_ports_in_network_order() {
        let key = flow(at("10.1.2.3:258"), at("192.0.2.9:65534"));
        assert_eq!(key[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(key[16..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9]);
        assert_eq!(key[32..], [1, 2, 0xff, 0xfe]);
    }

    #[test]
    fn an_ipv6_address_stands_as_it_is() {
        let key = listener(at("[2001:db8::7]:80"));
        assert_eq!(key[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(key[15..], [7, 0, 80, 0, 0]);
    }
}
