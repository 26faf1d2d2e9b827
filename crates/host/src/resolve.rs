//! The way to a destination: route, source address, egress interface, next hop and its MAC.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::{Duration, Instant},
};

use xsend_wire::{
    Mac,
    ethernet::{TAG_LEN, Tags},
};

use crate::{
    Hardware, Link, LinkError, NetlinkError, Underlay, UnderlayError,
    neighbour::{self, Neighbour, Standing},
    netlink::{Events, Netlink},
    route::{self, Decision, Flow, NextHop, Unicast},
    uapi::rt,
};

/// Between two looks at what no notification has told of.
const TICK: Duration = Duration::from_millis(100);

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Where to.
    pub destination: IpAddr,
    /// Only through this interface (its name, or its index in digits); none: whichever the route says. A link-local
    /// destination needs it.
    pub interface: Option<&'a str>,
    /// From this address of this machine; none: whichever the route says.
    pub source: Option<IpAddr>,
    /// How long to wait for the next hop to answer.
    pub timeout: Duration,
}

impl Query<'_> {
    /// Long enough for the kernel's three broadcasts or multicasts, one a second.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

    /// A query with nothing fixed but the destination.
    pub fn to(destination: impl Into<IpAddr>) -> Self {
        let destination = destination.into();
        Self { destination, interface: None, source: None, timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// A way to a destination, complete enough to build Ethernet frames for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where to.
    pub destination: IpAddr,
    /// The egress interface: of its MAC are the frames, and its MTU counts.
    pub link: Link,
    /// The device that carries the frames: the egress interface itself, or what is below it if that is a VLAN.
    pub device: Link,
    /// The VLAN tags of the frames on the device, outermost first.
    pub tags: Tags,
    /// The source address to use.
    pub source: IpAddr,
    /// Who gets the frames: the gateway, or the destination itself when it is on the link. An IPv4 destination may have
    /// an IPv6 gateway.
    pub next_hop: IpAddr,
    /// The next hop's hardware address.
    pub next_hop_mac: Mac,
    /// The largest IP packet in bytes for this destination: the smallest of the interface's MTU (IPv6's own where that
    /// is smaller), the route's, a learnt path MTU included, and what the device can carry behind two tags.
    pub mtu: u32,
    /// The query named the interface.
    pub interface_chosen: bool,
    /// The kernel had no entry for the next hop before it was asked here; a [`crate::PathWatch`] made of this path
    /// removes the entry in the end.
    pub neighbour_created: bool,
}

impl Path {
    /// Our end of a connection on this path, with the scope that a link-local address needs.
    pub fn local(&self, port: u16) -> SocketAddr {
        self.end(self.source, port)
    }

    /// The peer's end of a connection on this path, with the scope that a link-local address needs.
    pub fn remote(&self, port: u16) -> SocketAddr {
        self.end(self.destination, port)
    }

    fn end(&self, address: IpAddr, port: u16) -> SocketAddr {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddrV6::new(address, port, 0, self.link.index).into()
            }
            address => SocketAddr::new(address, port),
        }
    }
}

/// What a route that is not a way says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An `unreachable` route.
    Unreachable,
    /// A `blackhole` route.
    Blackhole,
    /// A `prohibit` route.
    Prohibited,
}

/// Why there is no way to a destination.
#[derive(Debug)]
pub enum ResolveError {
    /// The destination is an address of this machine, loopback included.
    ThisMachine {
        /// The destination.
        destination: IpAddr,
    },
    /// The destination is not one host: multicast, broadcast or unspecified.
    NotUnicast {
        /// The destination.
        destination: IpAddr,
    },
    /// The destination means something only together with an interface.
    NeedsInterface {
        /// The destination, of fe80::/10.
        destination: IpAddr,
    },
    /// The source address is of another family than the destination.
    MixedFamilies {
        /// The destination.
        destination: IpAddr,
        /// The source asked for.
        source: IpAddr,
    },
    /// The interface cannot be looked up.
    Link(LinkError),
    /// No device carries the egress interface's frames as they are.
    Underlay(UnderlayError),
    /// No route leads there.
    NoRoute {
        /// The destination.
        destination: IpAddr,
        /// The interface that was asked for.
        interface: Option<String>,
    },
    /// A route leads there that refuses packets.
    Refused {
        /// The destination.
        destination: IpAddr,
        /// How it refuses.
        refusal: Refusal,
    },
    /// The route needs what is not supported: an encapsulation.
    Unsupported {
        /// The destination.
        destination: IpAddr,
        /// The egress interface.
        interface: String,
        /// What the route needs.
        what: &'static str,
    },
    /// The source address is not one of this machine's.
    SourceNotLocal {
        /// The source asked for.
        source: IpAddr,
        /// The addresses that could be used.
        addresses: Vec<IpAddr>,
    },
    /// The egress interface has no address to send from.
    NoSource {
        /// The destination.
        destination: IpAddr,
        /// The interface.
        interface: String,
    },
    /// The egress interface is down, or has no carrier.
    LinkDown {
        /// The interface.
        interface: String,
        /// It is administratively up and lacks only a carrier.
        no_carrier: bool,
    },
    /// The egress interface does not carry Ethernet frames.
    NotEthernet {
        /// The interface.
        interface: String,
    },
    /// The next hop does not answer.
    NoNeighbour {
        /// The next hop.
        next_hop: IpAddr,
        /// The interface asked on.
        interface: String,
        /// How long it was waited for.
        waited: Duration,
        /// The next hop is a gateway, not the destination.
        gateway: bool,
    },
    /// The kernel resolves neighbours only for those with `CAP_NET_ADMIN`.
    NoPrivilege {
        /// The next hop.
        next_hop: IpAddr,
        /// The interface.
        interface: String,
    },
    /// The kernel could not be asked.
    Netlink(NetlinkError),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThisMachine { destination } => write!(
                f,
                "{destination} is an address of this machine: AF_XDP sends only to other hosts; use an ordinary socket"
            ),
            Self::NotUnicast { destination } => {
                write!(f, "{destination} is not the address of one host: TCP needs one")
            }
            Self::NeedsInterface { destination } => {
                write!(f, "{destination} is link-local: name the interface, as in {destination}%eth0")
            }
            Self::MixedFamilies { destination, source } => {
                write!(
                    f,
                    "{source} cannot send to {destination}: one is an IPv4 address, the other an IPv6 address"
                )
            }
            Self::Link(error) => error.fmt(f),
            Self::Underlay(error) => error.fmt(f),
            Self::NoRoute { destination, interface: None } => {
                write!(f, "no route to {destination}: see `ip route get {destination}`")
            }
            Self::NoRoute { destination, interface: Some(interface) } => write!(
                f,
                "no route to {destination} through {interface}: choose another interface, or add one \
                 (`ip route add {destination} dev {interface}`, or via a gateway)"
            ),
            Self::Refused { destination, refusal } => {
                let kind = match refusal {
                    Refusal::Unreachable => "unreachable",
                    Refusal::Blackhole => "blackhole",
                    Refusal::Prohibited => "prohibit",
                };
                write!(f, "the route to {destination} refuses it: it is of type {kind} (see `ip route`)")
            }
            Self::Unsupported { destination, interface, what } => {
                write!(f, "the route to {destination} on {interface} needs {what}, which is not supported")
            }
            Self::SourceNotLocal { source, addresses } if addresses.is_empty() => {
                write!(
                    f,
                    "{source} is not an address of this machine, which has no {} address at all",
                    family(*source)
                )
            }
            Self::SourceNotLocal { source, addresses } => {
                write!(f, "{source} is not an address of this machine; there are:")?;
                addresses.iter().try_for_each(|address| write!(f, " {address}"))
            }
            Self::NoSource { destination, interface } => write!(
                f,
                "{interface} has no {} address to send from: give it one (`ip addr add`), or name a source",
                family(*destination)
            ),
            Self::LinkDown { interface, no_carrier: false } => {
                write!(f, "{interface} is down: `ip link set {interface} up`")
            }
            Self::LinkDown { interface, no_carrier: true } => {
                write!(f, "{interface} has no carrier: is the cable in, and the other end up?")
            }
            Self::NotEthernet { interface } => {
                write!(f, "{interface} does not carry Ethernet frames: choose an Ethernet interface")
            }
            Self::NoNeighbour { next_hop, interface, waited, gateway } => {
                let seconds = waited.as_secs_f64(); // Shown as 3 or 0.25, whichever it is.
                let who = if *gateway { "gateway" } else { "neighbour" };
                write!(
                    f,
                    "no answer from {who} {next_hop} on {interface} in {seconds} s: is the address right and the \
                     host up?"
                )
            }
            Self::NoPrivilege { next_hop, interface } => write!(
                f,
                "may not make the kernel resolve {next_hop} on {interface}: CAP_NET_ADMIN is missing; run as root"
            ),
            Self::Netlink(error) => error.fmt(f),
        }
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

impl std::error::Error for ResolveError {}

impl From<NetlinkError> for ResolveError {
    fn from(error: NetlinkError) -> Self {
        Self::Netlink(error)
    }
}

impl From<LinkError> for ResolveError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Netlink(error) => Self::Netlink(error),
            other => Self::Link(other),
        }
    }
}

/// Finds the way to a destination, and makes the kernel resolve the next hop if it does not know it for certain.
///
/// Blocks for at most `query.timeout` and a few round trips to the kernel. If it fails, the neighbour table is left as
/// found; if it succeeds, an entry that it made stays (see [`Path::neighbour_created`]).
///
/// # Errors
///
/// See [`ResolveError`]. In particular a destination of this machine is refused, and so is one for which the tables have
/// no route through the chosen interface, where the kernel itself would take it to be on the link.
pub fn resolve(query: &Query<'_>) -> Result<Path, ResolveError> {
    let deadline = Instant::now() + query.timeout;
    let mut netlink = Netlink::route()?;
    let mut way = Way::find(&mut netlink, query)?;
    way.link = with_carrier(&mut netlink, way.link, deadline)?;
    let (index, next_hop) = (way.link.index, way.next_hop);
    let mut hop = Hop { index, next_hop, created: false };
    match hop.resolve(&mut netlink, deadline) {
        Ok(Some(mac)) => Ok(way.path(mac, hop.created)),
        refused => {
            if hop.created {
                // The first error is the one worth telling.
                let _ = neighbour::remove(&mut netlink, index, next_hop);
            }
            let (interface, waited, gateway) = (way.link.name, query.timeout, next_hop != way.destination);
            Err(match refused {
                Err(error) if matches!(error.refusal(), Some(libc::EPERM | libc::EACCES)) => {
                    ResolveError::NoPrivilege { next_hop, interface }
                }
                Err(error) => error.into(),
                Ok(_) => ResolveError::NoNeighbour { next_hop, interface, waited, gateway },
            })
        }
    }
}

/// Finds the way back to whoever sent a frame: as [`resolve`], but the next hop's hardware address is taken to be
/// `next_hop_mac`, that of the frame's sender. So nothing is waited for, and the neighbour table is not touched; a
/// [`crate::PathWatch`] of the path makes the kernel resolve the next hop, and tells if that has another address.
///
/// # Errors
///
/// See [`ResolveError`]; [`ResolveError::LinkDown`] also when the carrier is only gone for a moment.
pub fn resolve_back(query: &Query<'_>, next_hop_mac: Mac) -> Result<Path, ResolveError> {
    let mut netlink = Netlink::route()?;
    let mut way = Way::find(&mut netlink, query)?;
    way.link = with_carrier(&mut netlink, way.link, Instant::now())?;
    Ok(way.path(next_hop_mac, false))
}

/// A path, but for the next hop's hardware address.
struct Way {
    destination: IpAddr,
    link: Link,
    underlay: Underlay,
    source: IpAddr,
    next_hop: IpAddr,
    route_mtu: Option<u32>,
    interface_chosen: bool,
}

impl Way {
    fn find(netlink: &mut Netlink, query: &Query<'_>) -> Result<Self, ResolveError> {
        // An IPv4-mapped address stands for the IPv4 one, RFC 4291 2.5.5.2.
        let destination = query.destination.to_canonical();
        let source = query.source.map(|source| source.to_canonical());
        check_ends(destination, source, query.interface.is_some())?;
        let chosen = query.interface.map(Link::by_zone).transpose()?;
        if let Some(source) = source {
            let addresses = route::own_addresses(netlink, destination)?;
            if !addresses.contains(&source) {
                return Err(ResolveError::SourceNotLocal { source, addresses });
            }
        }
        if let Some(link) = &chosen {
            // Before the route is asked for: the kernel finds none on an interface that is down.
            usable(link)?;
        }

        let interface = chosen.as_ref().map(|link| link.name.clone());
        let flow = Flow { destination, source, egress: chosen.as_ref().map(|link| link.index) };
        let unicast = decide(netlink, &flow, interface.as_deref())?;
        let link = match chosen {
            Some(link) if link.index == unicast.egress => link,
            _ => Link::by_index(unicast.egress)?,
        };
        if link.hardware == Hardware::Loopback {
            return Err(ResolveError::ThisMachine { destination });
        }
        usable(&link)?;
        let next_hop = match unicast.next_hop {
            NextHop::OnLink => destination,
            NextHop::Gateway(gateway) => gateway,
            NextHop::Encapsulated => {
                let (interface, what) = (link.name, "an encapsulation");
                return Err(ResolveError::Unsupported { destination, interface, what });
            }
        };
        let Some(source) = source.or(unicast.source) else {
            return Err(ResolveError::NoSource { destination, interface: link.name });
        };
        let underlay = Underlay::of(&link).map_err(ResolveError::Underlay)?;
        if underlay.device.index != link.index {
            usable(&underlay.device)?;
        }
        let (route_mtu, interface_chosen) = (unicast.mtu, interface.is_some());
        Ok(Self { destination, link, underlay, source, next_hop, route_mtu, interface_chosen })
    }

    fn path(self, next_hop_mac: Mac, neighbour_created: bool) -> Path {
        let Self { destination, link, underlay, source, next_hop, route_mtu, interface_chosen } = self;
        let Underlay { device, tags } = underlay;
        let mtu = mtu(link.mtu_towards(destination), device.mtu, &tags, route_mtu);
        Path {
            destination,
            link,
            device,
            tags,
            source,
            next_hop,
            next_hop_mac,
            mtu,
            interface_chosen,
            neighbour_created,
        }
    }
}

/// What can be told of a query without asking the kernel.
fn check_ends(destination: IpAddr, source: Option<IpAddr>, scoped: bool) -> Result<(), ResolveError> {
    if destination.is_loopback() {
        return Err(ResolveError::ThisMachine { destination });
    }
    let broadcast = matches!(destination, IpAddr::V4(address) if address.is_broadcast());
    if destination.is_unspecified() || destination.is_multicast() || broadcast {
        return Err(ResolveError::NotUnicast { destination });
    }
    if matches!(destination, IpAddr::V6(address) if address.is_unicast_link_local()) && !scoped {
        return Err(ResolveError::NeedsInterface { destination });
    }
    match source {
        Some(source) if source.is_ipv4() != destination.is_ipv4() => {
            Err(ResolveError::MixedFamilies { destination, source })
        }
        _ => Ok(()),
    }
}

/// A path's MTU. Ethernet devices carry one tag beyond their MTU (IEEE 802.3 3.2.7); a second one is at its cost.
pub(crate) fn mtu(link: u32, device: u32, tags: &Tags, route: Option<u32>) -> u32 {
    let beyond = tags.as_slice().len().saturating_sub(1) * TAG_LEN;
    let carried = device.saturating_sub(beyond as u32);
    link.min(carried).min(route.unwrap_or(u32::MAX))
}

/// Whether frames can be sent through `link` at all; its carrier may yet come.
fn usable(link: &Link) -> Result<(), ResolveError> {
    let interface = || link.name.clone();
    match link.hardware {
        Hardware::Other(_) => Err(ResolveError::NotEthernet { interface: interface() }),
        _ if !link.up => Err(ResolveError::LinkDown { interface: interface(), no_carrier: false }),
        Hardware::Ethernet | Hardware::Loopback => Ok(()),
    }
}

/// Asks for the route, and gives the kernel's refusals their names.
fn decide(netlink: &mut Netlink, flow: &Flow, interface: Option<&str>) -> Result<Unicast, ResolveError> {
    let destination = flow.destination;
    let no_route = || ResolveError::NoRoute { destination, interface: interface.map(str::to_owned) };
    let refused = |refusal| ResolveError::Refused { destination, refusal };
    let unicast = match route::decide(netlink, flow) {
        Ok(Decision::Unicast(unicast)) => unicast,
        Ok(Decision::Local) => return Err(ResolveError::ThisMachine { destination }),
        Ok(Decision::NotUnicast) => return Err(ResolveError::NotUnicast { destination }),
        Ok(Decision::Other) => return Err(no_route()),
        // The error numbers of the kernel's route types (fib_props in net/ipv4/fib_semantics.c).
        Err(error) => {
            return Err(match error.refusal() {
                Some(libc::ENETUNREACH | libc::EAGAIN) => no_route(),
                Some(libc::EHOSTUNREACH) => refused(Refusal::Unreachable),
                Some(libc::EINVAL) => refused(Refusal::Blackhole),
                Some(libc::EACCES) => refused(Refusal::Prohibited),
                _ => error.into(),
            });
        }
    };
    // IPv6 prefers the interface asked for, and takes another one if there is no route through that.
    let elsewhere = destination.is_ipv6() && flow.egress.is_some_and(|egress| egress != unicast.egress);
    if elsewhere {
        return Err(no_route());
    }
    if flow.egress.is_some() && !route::exists(netlink, flow)? {
        // Perhaps the tables refuse the destination whatever the interface; that says more.
        decide(netlink, &Flow { egress: None, ..*flow }, None)?;
        return Err(no_route());
    }
    Ok(unicast)
}

/// Waits for the carrier: attaching a program makes some drivers reset theirs, and it takes seconds to come back.
fn with_carrier(netlink: &mut Netlink, link: Link, deadline: Instant) -> Result<Link, ResolveError> {
    if link.running {
        return Ok(link);
    }
    let events = Events::subscribe(&[rt::GROUP_LINK])?;
    let mut events = Drained(events);
    loop {
        let index = link.index;
        let seen =
            Link::fetch(netlink, index)?.ok_or(ResolveError::Link(LinkError::NoSuchIndex { index }))?;
        usable(&seen)?;
        if seen.running {
            return Ok(Link { xdp: link.xdp, ..seen });
        }
        if Instant::now() >= deadline {
            return Err(ResolveError::LinkDown { interface: link.name, no_carrier: true });
        }
        events.wait(deadline)?;
    }
}

/// A subscription of which only matters that something happened.
struct Drained(Events);

impl Drained {
    /// Waits for something to happen, for a tick, or for the deadline, and throws away what was told.
    fn wait(&mut self, deadline: Instant) -> Result<(), NetlinkError> {
        self.0.wait(deadline.min(Instant::now() + TICK))?;
        // One datagram: what is left only makes the next wait end at once.
        self.0.take().map(|_| ())
    }
}

/// The next hop while it is being resolved.
struct Hop {
    index: u32,
    next_hop: IpAddr,
    /// The table had no entry, and now has one because of us.
    created: bool,
}

impl Hop {
    /// Makes the kernel resolve the next hop; none when it has not answered by the deadline.
    fn resolve(&mut self, netlink: &mut Netlink, deadline: Instant) -> Result<Option<Mac>, NetlinkError> {
        // Subscribed first: an answer between looking and subscribing would be missed until the next tick.
        let mut events = Drained(Events::subscribe(&[rt::GROUP_NEIGH])?);
        let mut asked_at: Option<Instant> = None;
        loop {
            let entry = neighbour::get(netlink, self.index, self.next_hop)?;
            match entry {
                Some(known) if known.standing() == Standing::Certain => {
                    if let Some(mac) = known.mac() {
                        return Ok(Some(mac));
                    }
                }
                Some(known) if matches!(known.standing(), Standing::Asking | Standing::Verifying) => {}
                // Doubtful, or three questions went unanswered, or it was never asked. Not in a busy loop.
                _ if asked_at.is_none_or(|at| at.elapsed() >= TICK) => {
                    self.ask(netlink, entry.as_ref())?;
                    asked_at = Some(Instant::now());
                }
                _ => {}
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            events.wait(deadline)?;
        }
    }

    fn ask(&mut self, netlink: &mut Netlink, known: Option<&Neighbour>) -> Result<(), NetlinkError> {
        let asked = match known {
            // Asked directly: sure after one round trip, where a mere use waits five seconds before it asks.
            Some(known) if known.standing() == Standing::Doubtful => {
                neighbour::verify(netlink, self.index, self.next_hop, known)
            }
            _ => neighbour::use_entry(netlink, self.index, self.next_hop, known),
        };
        self.created |= known.is_none();
        match asked {
            // It changed between looking and asking: it is looked at again.
            Err(error) if matches!(error.refusal(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use xsend_wire::ethernet::Tag;

    use super::*;

    #[test]
    fn what_is_no_other_host_is_refused_without_asking_the_kernel() {
        let refuse = |address: &str| resolve(&Query::to(address.parse::<IpAddr>().unwrap())).unwrap_err();
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(matches!(refuse(address), ResolveError::ThisMachine { .. }), "{address}");
        }
        for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            assert!(matches!(refuse(address), ResolveError::NotUnicast { .. }), "{address}");
        }
        let error = refuse("fe80::1");
        assert_eq!(error.to_string(), "fe80::1 is link-local: name the interface, as in fe80::1%eth0");
        let source = Some(IpAddr::from([10, 0, 0, 1]));
        let query = Query { source, ..Query::to("2001:db8::1".parse::<IpAddr>().unwrap()) };
        assert!(matches!(resolve(&query).unwrap_err(), ResolveError::MixedFamilies { .. }));
    }

    #[test]
    fn a_second_tag_costs_what_the_device_cannot_carry() {
        let mut tags = Tags::default();
        assert_eq!(mtu(1500, 1500, &tags, None), 1500);
        assert_eq!(mtu(1500, 1500, &tags, Some(1400)), 1400);
        tags.push(Tag { protocol: 0x8100, control: 5 });
        assert_eq!(mtu(1500, 1500, &tags, None), 1500);
        tags.push(Tag { protocol: 0x8100, control: 6 });
        assert_eq!(mtu(1500, 1500, &tags, None), 1496);
        assert_eq!(mtu(1400, 1500, &tags, Some(9000)), 1400);
    }

    #[test]
    fn a_silent_neighbour_is_told_with_where_and_how_long() {
        let error = ResolveError::NoNeighbour {
            next_hop: IpAddr::from([10, 1, 2, 3]),
            interface: "eth0".into(),
            waited: Duration::from_secs(3),
            gateway: false,
        };
        assert_eq!(
            error.to_string(),
            "no answer from neighbour 10.1.2.3 on eth0 in 3 s: is the address right and the host up?"
        );
    }
}
