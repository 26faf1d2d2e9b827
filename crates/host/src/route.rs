//! Asking the kernel for its routing decision.

use std::net::Ipv4Addr;

use crate::{
    netlink::{
        Message, Netlink, NetlinkError,
        attribute::{Attributes, Request},
    },
    uapi::{addr, rt},
};

/// `struct rtmsg`: family, two prefix lengths, TOS, table, protocol, scope, type, flags.
const HEADER_LEN: usize = 12;
/// `struct ifaddrmsg`.
const ADDR_HEADER_LEN: usize = 8;
const AF_INET: u8 = libc::AF_INET as u8;

/// What to route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) destination: Ipv4Addr,
    pub(crate) source: Option<Ipv4Addr>,
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
    pub(crate) source: Option<Ipv4Addr>,
    pub(crate) next_hop: NextHop,
    /// The route's MTU in bytes, learnt or configured.
    pub(crate) mtu: Option<u32>,
}

/// Who gets the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    OnLink,
    Gateway(Ipv4Addr),
    /// A gateway of another address family.
    ForeignGateway,
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

/// Whether the tables have a route for the flow. Given an egress interface, `decide` alone cannot tell: the kernel
/// then assumes that whatever it finds no route for is on the link.
pub(crate) fn exists(netlink: &mut Netlink, flow: &Flow) -> Result<bool, NetlinkError> {
    match netlink.ask(&request(flow, rt::F_FIB_MATCH), "find a route") {
        Ok(_) => Ok(true),
        Err(error) => match error.refusal() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// The IPv4 addresses of all interfaces, loopback's not counted.
pub(crate) fn own_addresses(netlink: &mut Netlink) -> Result<Vec<Ipv4Addr>, NetlinkError> {
    let mut header = [0; ADDR_HEADER_LEN];
    header[0] = AF_INET;
    let messages = netlink.dump(&Request::new(rt::GETADDR, 0, &header), "list the addresses")?;
    let own = messages.iter().filter_map(|message| {
        let attributes = Attributes::after(&message.body, ADDR_HEADER_LEN);
        // On a point-to-point interface ADDRESS is the peer's and LOCAL is ours.
        attributes.ipv4(addr::LOCAL).or_else(|| attributes.ipv4(addr::ADDRESS))
    });
    Ok(own.filter(|address| !address.is_loopback()).collect())
}

fn request(flow: &Flow, flags: u32) -> Request {
    let mut header = [0; HEADER_LEN];
    header[0] = AF_INET;
    header[1] = 32;
    header[2] = if flow.source.is_some() { 32 } else { 0 };
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(rt::GETROUTE, 0, &header).ipv4(rt::A_DST, flow.destination);
    if let Some(source) = flow.source {
        request = request.ipv4(rt::A_SRC, source);
    }
    if let Some(egress) = flow.egress {
        request = request.u32(rt::A_OIF, egress);
    }
    request
}

fn parse(message: &Message, destination: Ipv4Addr) -> Option<Decision> {
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
    } else if attributes.get(rt::A_VIA).is_some() {
        NextHop::ForeignGateway
    } else {
        match attributes.ipv4(rt::A_GATEWAY) {
            Some(gateway) if gateway != destination => NextHop::Gateway(gateway),
            _ => NextHop::OnLink,
        }
    };
    Some(Decision::Unicast(Unicast {
        egress: attributes.u32(rt::A_OIF)?,
        source: attributes.ipv4(rt::A_PREFSRC).filter(|source| !source.is_unspecified()),
        next_hop,
        mtu: attributes.nested(rt::A_METRICS).u32(rt::METRIC_MTU).filter(|mtu| *mtu > 0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

    fn answer(kind: u8, attributes: impl FnOnce(Request) -> Request) -> Message {
        let mut header = [0; HEADER_LEN];
        header[0] = AF_INET;
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
                .ipv4(rt::A_GATEWAY, GATEWAY)
                .ipv4(rt::A_PREFSRC, Ipv4Addr::new(10, 0, 0, 1))
                .bytes(rt::A_METRICS, &metrics)
        }));
        let source = Some(Ipv4Addr::new(10, 0, 0, 1));
        let next_hop = NextHop::Gateway(GATEWAY);
        assert_eq!(read, Unicast { egress: 5, source, next_hop, mtu: Some(1400) });
    }

    #[test]
    fn a_route_on_the_link_has_no_gateway() {
        let read = unicast(&answer(rt::TYPE_UNICAST, |request| request.u32(rt::A_OIF, 5)));
        assert_eq!(read, Unicast { egress: 5, source: None, next_hop: NextHop::OnLink, mtu: None });
        let itself = answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).ipv4(rt::A_GATEWAY, DESTINATION));
        assert_eq!(unicast(&itself).next_hop, NextHop::OnLink);
    }

    #[test]
    fn routes_that_cannot_be_followed_are_told_apart() {
        let via = answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).bytes(rt::A_VIA, &[0; 18]));
        assert_eq!(unicast(&via).next_hop, NextHop::ForeignGateway);
        let wrapped = answer(rt::TYPE_UNICAST, |r| r.u32(rt::A_OIF, 5).bytes(rt::A_ENCAP_TYPE, &[1, 0]));
        assert_eq!(unicast(&wrapped).next_hop, NextHop::Encapsulated);
        assert_eq!(parse(&answer(rt::TYPE_LOCAL, |r| r), DESTINATION), Some(Decision::Local));
        assert_eq!(parse(&answer(rt::TYPE_BROADCAST, |r| r), DESTINATION), Some(Decision::NotUnicast));
        assert_eq!(parse(&answer(200, |r| r), DESTINATION), Some(Decision::Other));
    }

    #[test]
    fn an_answer_without_an_interface_is_none() {
        assert_eq!(parse(&answer(rt::TYPE_UNICAST, |r| r), DESTINATION), None);
        assert_eq!(parse(&Message { kind: 24, cause: 0, body: vec![AF_INET; 5] }, DESTINATION), None);
    }
}
