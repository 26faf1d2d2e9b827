//! The way to a destination: route, source address, egress interface, next hop and its MAC.

use std::{
    fmt,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use xsend_wire::Mac;

use crate::{
    Hardware, Link, LinkError, NetlinkError,
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
    pub destination: Ipv4Addr,
    /// Only through this interface; none: whichever the route says.
    pub interface: Option<&'a str>,
    /// From this address of this machine; none: whichever the route says.
    pub source: Option<Ipv4Addr>,
    /// How long to wait for the next hop to answer.
    pub timeout: Duration,
}

impl Query<'_> {
    /// Long enough for the kernel's three broadcasts, one a second.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

    /// A query with nothing fixed but the destination.
    pub fn to(destination: Ipv4Addr) -> Self {
        Self { destination, interface: None, source: None, timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// A way to a destination, complete enough to build Ethernet frames for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where to.
    pub destination: Ipv4Addr,
    /// The egress interface.
    pub link: Link,
    /// The source address to use.
    pub source: Ipv4Addr,
    /// Who gets the frames: the gateway, or the destination itself when it is on the link.
    pub next_hop: Ipv4Addr,
    /// The next hop's hardware address.
    pub next_hop_mac: Mac,
    /// The largest IP packet in bytes for this destination: the smaller of the interface's and the route's MTU,
    /// a learnt path MTU included.
    pub mtu: u32,
    /// The kernel had no entry for the next hop before it was asked here; a [`crate::NeighbourWatch`] made of this
    /// path removes the entry in the end.
    pub neighbour_created: bool,
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
        destination: Ipv4Addr,
    },
    /// The destination is not one host: multicast, broadcast or unspecified.
    NotUnicast {
        /// The destination.
        destination: Ipv4Addr,
    },
    /// The interface cannot be looked up.
    Link(LinkError),
    /// No route leads there.
    NoRoute {
        /// The destination.
        destination: Ipv4Addr,
        /// The interface that was asked for.
        interface: Option<String>,
    },
    /// A route leads there that refuses packets.
    Refused {
        /// The destination.
        destination: Ipv4Addr,
        /// How it refuses.
        refusal: Refusal,
    },
    /// The route needs what is not supported: an IPv6 gateway or an encapsulation.
    Unsupported {
        /// The destination.
        destination: Ipv4Addr,
        /// The egress interface.
        interface: String,
        /// What the route needs.
        what: &'static str,
    },
    /// The source address is not one of this machine's.
    SourceNotLocal {
        /// The source asked for.
        source: Ipv4Addr,
        /// The addresses that could be used.
        addresses: Vec<Ipv4Addr>,
    },
    /// The egress interface has no address to send from.
    NoSource {
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
        next_hop: Ipv4Addr,
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
        next_hop: Ipv4Addr,
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
            Self::Link(error) => error.fmt(f),
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
                write!(f, "{source} is not an address of this machine, which has no IPv4 address at all")
            }
            Self::SourceNotLocal { source, addresses } => {
                write!(f, "{source} is not an address of this machine; there are:")?;
                addresses.iter().try_for_each(|address| write!(f, " {address}"))
            }
            Self::NoSource { interface } => write!(
                f,
                "{interface} has no IPv4 address to send from: give it one (`ip addr add`), or name a source"
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
    let destination = query.destination;
    if destination.is_loopback() {
        return Err(ResolveError::ThisMachine { destination });
    }
    if destination.is_unspecified() || destination.is_multicast() || destination.is_broadcast() {
        return Err(ResolveError::NotUnicast { destination });
    }
    let deadline = Instant::now() + query.timeout;
    let mut netlink = Netlink::route()?;
    let chosen = query.interface.map(Link::by_name).transpose()?;
    if let Some(source) = query.source {
        let addresses = route::own_addresses(&mut netlink)?;
        if !addresses.contains(&source) {
            return Err(ResolveError::SourceNotLocal { source, addresses });
        }
    }
    if let Some(link) = &chosen {
        // Before the route is asked for: the kernel finds none on an interface that is down.
        usable(link)?;
    }

    let flow = Flow { destination, source: query.source, egress: chosen.as_ref().map(|link| link.index) };
    let unicast = decide(&mut netlink, &flow, query.interface)?;
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
        NextHop::ForeignGateway => return Err(unsupported(destination, link.name, "an IPv6 gateway")),
        NextHop::Encapsulated => return Err(unsupported(destination, link.name, "an encapsulation")),
    };
    let Some(source) = query.source.or(unicast.source) else {
        return Err(ResolveError::NoSource { interface: link.name });
    };

    let link = with_carrier(&mut netlink, link, deadline)?;
    let mut hop = Hop { index: link.index, next_hop, created: false };
    match hop.resolve(&mut netlink, deadline) {
        Ok(Some(next_hop_mac)) => {
            let mtu = unicast.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
            let neighbour_created = hop.created;
            Ok(Path { destination, link, source, next_hop, next_hop_mac, mtu, neighbour_created })
        }
        refused => {
            if hop.created {
                // The first error is the one worth telling.
                let _ = neighbour::remove(&mut netlink, link.index, next_hop);
            }
            let (interface, waited, gateway) = (link.name, query.timeout, next_hop != destination);
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

fn unsupported(destination: Ipv4Addr, interface: String, what: &'static str) -> ResolveError {
    ResolveError::Unsupported { destination, interface, what }
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
    next_hop: Ipv4Addr,
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
    use super::*;

    #[test]
    fn what_is_no_other_host_is_refused_without_asking_the_kernel() {
        let refuse = |address: [u8; 4]| resolve(&Query::to(address.into())).unwrap_err();
        assert!(matches!(refuse([127, 0, 0, 1]), ResolveError::ThisMachine { .. }));
        for address in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
            assert!(matches!(refuse(address), ResolveError::NotUnicast { .. }), "{address:?}");
        }
    }

    #[test]
    fn a_silent_neighbour_is_told_with_where_and_how_long() {
        let error = ResolveError::NoNeighbour {
            next_hop: Ipv4Addr::new(10, 1, 2, 3),
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
