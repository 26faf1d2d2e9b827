//! Asking the kernel for its routing decision.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    netlink::{
        Message, Netlink, NetlinkError,
        attribute::{Attributes, Request, address, family_of},
    },
    uapi::{addr, rt},
};

/// `struct rtmsg`: family, two prefix lengths, TOS, table, protocol, scope, type, flags.
const HEADER_LEN: usize = 12;
/// `struct ifaddrmsg`.
const ADDR_HEADER_LEN: usize = 8;

/// What to route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) destination: IpAddr,
    pub(crate) source: Option<IpAddr>,
    /// The egress interface's index, if it is fixed.
    pub(crate) egress: Option<u32>,
}

/// The kernel's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// To another host.
    Unicast(Unicast),
    /// To this machine.
    Local,
    /// To many.
    NotUnicast,
    /// Something this reads nothing of.
    Other,
}

/// A way to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unicast {
    pub(crate) egress: u32,
    /// The source that the kernel chose; none when it was given, or when there is none to choose.
    pub(crate) source: Option<IpAddr>,
    pub(crate) next_hop: NextHop,
    /// The route's MTU in bytes, learnt or configured.
    pub(crate) mtu: Option<u32>,
}

/// Who gets the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    OnLink,
    /// May be of another family than the destination: IPv4 by an IPv6 gateway, RFC 5549.
    Gateway(IpAddr),
    /// Packets are wrapped in something (MPLS, a tunnel).
    Encapsulated,
}

/// Asks for the decision. No route, and routes that refuse, are refusals of the request (ENETUNREACH, EHOSTUNREACH,
/// EINVAL, EACCES).
pub(crate) fn decide(netlink: &mut Netlink, flow: &Flow) -> Result<Decision, NetlinkError> {
    let action = "find a route";
    let message = netlink.ask(&request(flow, 0), action)?;
    parse(&message, flow.destination)
        .ok_or_else(|| NetlinkError::Malformed { action, detail: "no route in it".into() })
}

/// The way to the destination; none when there is none, or one that refuses, or one that leads to this machine. An
/// egress interface is taken at its word.
pub(crate) fn follow(netlink: &mut Netlink, flow: &Flow) -> Result<Option<Unicast>, NetlinkError> {
    let decided = match decide(netlink, flow) {
        Ok(Decision::Unicast(unicast)) => Some(unicast),
        Ok(_) => None,
        Err(error) if is_no_way(&error) => None,
        Err(error) => return Err(error),
    };
    let elsewhere = |unicast: &Unicast| flow.egress.is_some_and(|egress| egress != unicast.egress);
    match decided {
        Some(unicast) if flow.egress.is_some() => {
            let through = !elsewhere(&unicast) && exists(netlink, flow)?;
            Ok(through.then_some(unicast))
        }
        decided => Ok(decided),
    }
}

/// The kernel's refusals that mean that there is no way: no route, or one that refuses, or no such interface.
fn is_no_way(error: &NetlinkError) -> bool {
    use libc::{EACCES, EAGAIN, EHOSTUNREACH, EINVAL, ENETUNREACH, ENODEV};
    let no_way = [ENETUNREACH, EHOSTUNREACH, EINVAL, EACCES, EAGAIN, ENODEV];
    error.refusal().is_some_and(|errno| no_way.contains(&errno))
}

/// Whether the tables have a route for the flow. Given an egress interface, `decide` alone cannot tell for IPv4: the
/// kernel then assumes that whatever it finds no route for is on the link.
pub(crate) fn exists(netlink: &mut Netlink, flow: &Flow) -> Result<bool, NetlinkError> {
    match netlink.ask(&request(flow, rt::F_FIB_MATCH), "find a route") {
        Ok(_) => Ok(true),
        Err(error) if is_no_way(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The addresses of all interfaces that are of the family of `like`, loopback's not counted.
pub(crate) fn own_addresses(netlink: &mut Netlink, like: IpAddr) -> Result<Vec<IpAddr>, NetlinkError> {
    let mut header = [0; ADDR_HEADER_LEN];
    header[0] = family_of(like);
    let messages = netlink.dump(&Request::new(rt::GETADDR, 0, &header), "list the addresses")?;
    Ok(messages.iter().filter_map(own_address).filter(|address| !address.is_loopback()).collect())
}

/// The addresses of one interface, of both families.
pub(crate) fn addresses_of(netlink: &mut Netlink, index: u32) -> Result<BTreeSet<IpAddr>, NetlinkError> {
    let ask = Request::new(rt::GETADDR, 0, &[0; ADDR_HEADER_LEN]);
    let messages = netlink.dump(&ask, "list the addresses")?;
    let of_interface = messages.iter().filter(|message| address_index(message) == Some(index));
    Ok(of_interface.filter_map(own_address).collect())
}

/// The interface that a message about an address is about.
pub(crate) fn address_index(message: &Message) -> Option<u32> {
    Some(u32::from_ne_bytes(*message.body.get(4..)?.first_chunk()?))
}

/// The address that a message about one is about.
pub(crate) fn own_address(message: &Message) -> Option<IpAddr> {
    let attributes = Attributes::after(&message.body, ADDR_HEADER_LEN);
    // On a point-to-point interface ADDRESS is the peer's and LOCAL is ours.
    attributes.ip(addr::LOCAL).or_else(|| attributes.ip(addr::ADDRESS))
}

fn request(flow: &Flow, flags: u32) -> Request {
    let mut header = [0; HEADER_LEN];
    let bits = if flow.destination.is_ipv4() { 32 } else { 128 };
    header[0] = family_of(flow.destination);
    header[1] = bits;
    header[2] = if flow.source.is_some() { bits } else { 0 };
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(rt::GETROUTE, 0, &header).ip(rt::A_DST, flow.destination);
    if let Some(source) = flow.source {
        request = request.ip(rt::A_SRC, source);
    }
    if let Some(egress) = flow.egress {
        request = request.u32(rt::A_OIF, egress);
    }
    request
}

fn parse(message: &Message, destination: IpAddr) -> Option<Decision> {
    let header: &[u8; HEADER_LEN] = message.body.first_chunk()?;
    let attributes = Attributes::after(&message.body, HEADER_LEN);
    match header[7] {
        rt::TYPE_UNICAST => {}
        rt::TYPE_LOCAL => return Some(Decision::Local),
        rt::TYPE_BROADCAST | rt::TYPE_ANYCAST | rt::TYPE_MULTICAST => return Some(Decision::NotUnicast),
        _ => return Some(Decision::Other),
    }
    let next_hop = if attributes.get(rt::A_ENCAP_TYPE).is_some() {
        NextHop::Encapsulated
    } else {
        // `struct rtvia`: family, address.
        let via = attributes.get(rt::A_VIA).and_then(|via| address(via.get(2..)?));
        match via.or_else(|| attributes.ip(rt::A_GATEWAY)) {
            Some(gateway) if gateway != destination => NextHop::Gateway(gateway),
            _ => NextHop::OnLink,
        }
    };
    Some(Decision::Unicast(Unicast {
        egress: attributes.u32(rt::A_OIF)?,
        source: attributes.ip(rt::A_PREFSRC).filter(|source| !source.is_unspecified()),
        next_hop,
        mtu: attributes.nested(rt::A_METRICS).u32(rt::METRIC_MTU).filter(|mtu| *mtu > 0),
    }))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const DESTINATION: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

    fn answer(kind: u8, attributes: impl FnOnce(Request) -> Request) -> Message {
        let mut header = [0; HEADER_LEN];
        header[0] = 2;
        header[7] = kind;
        let body = attributes(Request::new(0, 0, &header)).body;
        Message { kind: 24, cause: 0, body }
    }

    fn unicast(message: &Message) -> Unicast {
        match parse(message, DESTINATION) {
            Some(Decision::Unicast(unicast)) => unicast,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_route_through_a_gateway_is_read() {
        let metrics = Request::new(0, 0, &[]).u32(rt::METRIC_MTU, 1400).body;
        let read = unicast(&answer(rt::TYPE_UNICAST, |request| {
            request
                .u32(rt::A_OIF, 5)
                .ip(rt::A_GATEWAY, GATEWAY)
                .ip(rt::A_PREFSRC, IpAddr::from([10, 0, 0, 1]))
                .bytes(rt::A_METRICS, &metrics)
        }));
        let source = Some(IpAddr::from([10, 0, 0, 1]));
        let next_hop = NextHop::Gateway(GATEWAY);
        assert_eq!(read, Unicast { egress: 5, source, next_hop, mtu: Some(1400) });
    }

    #[test]
    fn a_route_on_the_link_has_no_gateway() {
        let read = unicast(&answer(rt::TYPE_UNICAST, |request| request.u32(rt::A_OIF, 5)));
        assert_eq!(read, Unicast { egress: 5, source: None, next_hop: NextHop::OnLink, mtu: None });
        let itself = answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).ip(rt::A_GATEWAY, DESTINATION));
        assert_eq!(unicast(&itself).next_hop, NextHop::OnLink);
    }

    #[test]
    fn a_gateway_of_the_other_family_is_read() {
        let gateway: IpAddr = "fe80::1".parse().unwrap();
        let mut via = 10u16.to_ne_bytes().to_vec();
        via.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let read =
            |via: &[u8]| unicast(&answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).bytes(rt::A_VIA, via)));
        assert_eq!(read(&via).next_hop, NextHop::Gateway(gateway));
        assert_eq!(read(&via[..9]).next_hop, NextHop::OnLink, "no address");
    }

    #[test]
    fn an_ipv6_route_of_bytes_is_read() {
        // As the kernel sent it: AF_INET6, /128, unicast; by fe80::1 on interface 3, from 2001:db8::5, MTU 1400.
        let body = vec![
            10, 128, 0, 0, 254, 0, 0, 1, 0, 2, 0, 0, // struct rtmsg
            20, 0, 1, 0, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, // RTA_DST
            8, 0, 4, 0, 3, 0, 0, 0, // RTA_OIF
            20, 0, 5, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // RTA_GATEWAY
            20, 0, 7, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, // RTA_PREFSRC
            12, 0, 8, 0, 8, 0, 2, 0, 0x78, 5, 0, 0, // RTA_METRICS with RTAX_MTU
        ];
        let message = Message { kind: rt::NEWROUTE, cause: 0, body };
        let Some(Decision::Unicast(read)) = parse(&message, "2001:db8:1::9".parse().unwrap()) else {
            panic!()
        };
        let source = Some("2001:db8::5".parse().unwrap());
        let next_hop = NextHop::Gateway("fe80::1".parse().unwrap());
        assert_eq!(read, Unicast { egress: 3, source, next_hop, mtu: Some(1400) });
    }

    #[test]
    fn routes_that_cannot_be_followed_are_told_apart() {
        let wrapped = answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).bytes(rt::A_ENCAP_TYPE, &[1, 0]));
        assert_eq!(unicast(&wrapped).next_hop, NextHop::Encapsulated);
        assert_eq!(parse(&answer(rt::TYPE_LOCAL, |r| r), DESTINATION), Some(Decision::Local));
        assert_eq!(parse(&answer(rt::TYPE_BROADCAST, |r| r), DESTINATION), Some(Decision::NotUnicast));
        assert_eq!(parse(&answer(200, |r| r), DESTINATION), Some(Decision::Other));
    }

    #[test]
    fn an_answer_without_an_interface_is_none() {
        assert_eq!(parse(&answer(rt::TYPE_UNICAST, |r| r), DESTINATION), None);
        assert_eq!(parse(&Message { kind: 24, cause: 0, body: vec![2; 5] }, DESTINATION), None);
    }
}
