//! Watching a path: its interface, its next hop, its source address and its route.

use std::{
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use xsend_wire::{Mac, ethernet::Tags};

use super::{Change, LinkState, REFRESH, Route, WatchError, link::LinkTrack, take_in};
use crate::{
    NetlinkError, Path,
    neighbour::{self, Neighbour},
    netlink::{Events, Message, Netlink},
    resolve,
    route::{self, Flow, NextHop},
    uapi::rt,
};

/// At least this long between two requests to resolve a next hop that is lost: each is up to three broadcasts.
const REFRESH_LOST: Duration = Duration::from_millis(250);
/// At least this long between two looks at the route: a table of a million routes changes often, and mostly elsewhere.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What may change about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathState {
    /// The egress interface.
    pub link: LinkState,
    /// The largest IP packet in bytes, as [`Path::mtu`].
    pub mtu: u32,
    /// The next hop's hardware address, the last one known.
    pub next_hop_mac: Mac,
    /// The kernel has a hardware address for the next hop.
    pub next_hop_known: bool,
    /// The kernel does not think that the next hop is dead.
    pub reachable: bool,
    /// The source address is one of this machine's.
    pub source_present: bool,
    /// Which way the kernel would send now; none: no way.
    pub route: Option<Route>,
}

/// Keeps a path's next hop fresh in the kernel's table, and tells what changes about the path.
///
/// The kernel sees nothing of what AF_XDP sends, so it would let the entry go stale and never learn that the next hop
/// moved or died. Each [`poll`](Self::poll) that is due (every two seconds) tells it that the entry is in use; it then
/// verifies it by its own rules (`net.ipv4.neigh.*`, `net.ipv6.neigh.*`). If `poll` is not called for a while, the entry
/// ages, nothing else.
///
/// When dropped, an entry that this or [`resolve`](crate::resolve) made is removed again. A killed process leaves an
/// ordinary entry, which the kernel forgets by itself.
#[derive(Debug)]
pub struct PathWatch {
    interface: String,
    index: u32,
    next_hop: IpAddr,
    flow: Flow,
    tags: Tags,
    events: Events,
    netlink: Netlink,
    link: LinkTrack,
    /// The device below, if that is another one.
    below: Option<LinkTrack>,
    route_mtu: Option<u32>,
    state: PathState,
    /// What is known may be out of date: read everything anew.
    stale: bool,
    /// The addresses may have changed.
    source_stale: bool,
    /// When to look at the route again, since it may have changed.
    look_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// The entry is ours to remove.
    created: bool,
    refresh_at: Instant,
    refreshed_at: Option<Instant>,
}

impl PathWatch {
    /// Watches `path`, in the namespace of the calling thread; may then be moved to another thread.
    ///
    /// What changed since the path was resolved is told by the first `poll`.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn new(path: &Path) -> Result<Self, WatchError> {
        let interface = path.link.name.clone();
        let groups = match path.destination {
            IpAddr::V4(_) => [rt::GROUP_LINK, rt::GROUP_NEIGH, rt::GROUP_IPV4_ADDRESS, rt::GROUP_IPV4_ROUTE],
            IpAddr::V6(_) => [rt::GROUP_LINK, rt::GROUP_NEIGH, rt::GROUP_IPV6_ADDRESS, rt::GROUP_IPV6_ROUTE],
        };
        let sockets = Events::subscribe(&groups).and_then(|events| Ok((events, Netlink::route()?)));
        let (events, netlink) = match sockets {
            Ok(sockets) => sockets,
            Err(error) => return Err(WatchError { interface, error }),
        };
        let link = LinkTrack::new(&path.link);
        let state = PathState {
            link: link.state,
            mtu: path.mtu,
            next_hop_mac: path.next_hop_mac,
            next_hop_known: true,
            reachable: true,
            source_present: true,
            route: Some(Route { egress: path.link.index, next_hop: path.next_hop }),
        };
        Ok(Self {
            interface,
            index: path.link.index,
            next_hop: path.next_hop,
            flow: Flow {
                destination: path.destination,
                source: Some(path.source),
                egress: path.interface_chosen.then_some(path.link.index),
            },
            tags: path.tags,
            events,
            netlink,
            link,
            below: (path.device.index != path.link.index).then(|| LinkTrack::new(&path.device)),
            route_mtu: None,
            state,
            stale: true,
            source_stale: false,
            look_at: None,
            looked_at: None,
            created: path.neighbour_created,
            refresh_at: Instant::now(),
            refreshed_at: None,
        })
    }

    /// The state as of the last `poll`.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// Takes in what happened, waiting at most `wait` (zero: not at all) for something to happen, and asks the kernel
    /// to verify the next hop if that is due. At most one change of each kind, the newest; empty when nothing changed.
    ///
    /// # Errors
    ///
    /// When the kernel can no longer be asked, or no longer lets this process refresh neighbours. What is wrong with the
    /// path itself (interface gone or down, next hop silent) is a change, not an error.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Change>, WatchError> {
        let before = self.state;
        match self.poll_until(Instant::now() + wait, before) {
            Ok(()) => Ok(changes(before, self.state)),
            Err(error) => Err(WatchError { interface: self.interface.clone(), error }),
        }
    }

    fn poll_until(&mut self, deadline: Instant, before: PathState) -> Result<(), NetlinkError> {
        loop {
            self.stale |= take_in(self, |watch| &mut watch.events, Self::on_message)?;
            if self.stale {
                self.read_anew()?;
            }
            if Instant::now() >= self.refresh_at {
                self.refresh()?;
            }
            if self.source_stale {
                self.look_for_source()?;
            }
            if self.look_at.is_some_and(|at| Instant::now() >= at) {
                self.look_at_route()?;
            }
            self.settle();
            if self.state != before || Instant::now() >= deadline {
                return Ok(());
            }
            let next = self.look_at.map_or(self.refresh_at, |at| at.min(self.refresh_at));
            self.events.wait(deadline.min(next))?;
        }
    }

    fn on_message(&mut self, message: &Message) {
        match message.kind {
            rt::NEWLINK | rt::DELLINK => {
                if self.link.on_message(message) {
                    // IPv4 routes go with their interface, and nobody tells.
                    self.look_soon();
                }
                if let Some(below) = &mut self.below {
                    below.on_message(message);
                }
            }
            rt::NEWNEIGH | rt::DELNEIGH => {
                let ours = neighbour::parse(message)
                    .filter(|(index, address, _)| *index == self.index && *address == self.next_hop);
                let Some((_, _, entry)) = ours else { return };
                // An entry that somebody removes is made to fail first, which says nothing about the neighbour.
                let removed = message.kind == rt::DELNEIGH || (entry.failed() && message.cause != 0);
                self.on_neighbour((!removed).then_some(entry));
            }
            rt::NEWADDR | rt::DELADDR => {
                self.source_stale |= route::own_address(message) == self.flow.source;
                self.look_soon();
            }
            rt::NEWROUTE | rt::DELROUTE => self.look_soon(),
            _ => {}
        }
    }

    fn on_neighbour(&mut self, entry: Option<Neighbour>) {
        let mac = entry.as_ref().and_then(Neighbour::mac);
        self.state.next_hop_known = mac.is_some();
        match (entry, mac) {
            (_, Some(mac)) => {
                self.state.next_hop_mac = mac;
                self.state.reachable = true;
            }
            (Some(entry), None) if entry.failed() => {
                self.state.reachable = false;
                self.refresh_soon();
            }
            // Being asked for again: whether it is reachable is not known better than before.
            (Some(_), None) => {}
            // Removed, which says nothing about the neighbour.
            (None, None) => self.refresh_soon(),
        }
    }

    fn refresh_soon(&mut self) {
        let soonest = self.refreshed_at.map_or_else(Instant::now, |at| at + REFRESH_LOST);
        self.refresh_at = self.refresh_at.min(soonest);
    }

    fn look_soon(&mut self) {
        let soonest = self.looked_at.map_or_else(Instant::now, |at| at + LOOK_AGAIN);
        self.look_at = Some(self.look_at.map_or(soonest, |at| at.min(soonest)));
    }

    fn read_anew(&mut self) -> Result<(), NetlinkError> {
        self.link.read_anew(&mut self.netlink)?;
        if let Some(below) = &mut self.below {
            below.read_anew(&mut self.netlink)?;
        }
        let entry = neighbour::get(&mut self.netlink, self.index, self.next_hop)?;
        self.on_neighbour(entry);
        self.source_stale = true;
        self.look_at = Some(Instant::now());
        self.stale = false;
        Ok(())
    }

    /// Tells the kernel that the next hop is in use, and sees to it that the route is looked at.
    fn refresh(&mut self) -> Result<(), NetlinkError> {
        let now = Instant::now();
        self.refreshed_at = Some(now);
        self.refresh_at = now + REFRESH;
        if !self.link.state.up {
            // The kernel keeps no neighbours on an interface that is down.
            return Ok(());
        }
        // Not everything that changes a route is told: rules, and what the kernel learns of a path's MTU.
        self.look_soon();
        let entry = neighbour::get(&mut self.netlink, self.index, self.next_hop)?;
        if entry.is_some() {
            self.on_neighbour(entry);
        } else {
            self.state.next_hop_known = false;
        }
        match neighbour::use_entry(&mut self.netlink, self.index, self.next_hop, entry.as_ref()) {
            Ok(()) => self.created |= entry.is_none(),
            Err(error) => match error.refusal() {
                // Would fail forever, and the next hop's moving would go unnoticed.
                Some(libc::EPERM | libc::EACCES) | None => return Err(error),
                // The interface or the entry went away in between, which an event tells.
                Some(_) => {}
            },
        }
        Ok(())
    }

    fn look_for_source(&mut self) -> Result<(), NetlinkError> {
        self.source_stale = false;
        let own = route::own_addresses(&mut self.netlink, self.flow.destination)?;
        self.state.source_present = self.flow.source.is_some_and(|source| own.contains(&source));
        Ok(())
    }

    fn look_at_route(&mut self) -> Result<(), NetlinkError> {
        self.look_at = None;
        self.looked_at = Some(Instant::now());
        // Without its source the kernel refuses the question, which says nothing about the route.
        if !self.link.state.present || !self.state.source_present {
            return Ok(());
        }
        let unicast = route::follow(&mut self.netlink, &self.flow)?;
        if let Some(unicast) = unicast {
            self.route_mtu = unicast.mtu;
        }
        self.state.route = unicast.and_then(|unicast| {
            let next_hop = match unicast.next_hop {
                NextHop::OnLink => self.flow.destination,
                NextHop::Gateway(gateway) => gateway,
                NextHop::Encapsulated => return None,
            };
            Some(Route { egress: unicast.egress, next_hop })
        });
        Ok(())
    }

    /// Works out what follows from the rest.
    fn settle(&mut self) {
        let Self { link: LinkTrack { state: link, .. }, .. } = self;
        self.state.link = *link;
        if !link.present {
            self.state.route = None;
            self.look_at = None;
            return;
        }
        let of_link = match self.flow.destination {
            IpAddr::V4(_) => link.mtu,
            IpAddr::V6(_) => link.ipv6_mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        };
        let of_device = self.below.as_ref().map_or(link.mtu, |below| below.state.mtu);
        self.state.mtu = resolve::mtu(of_link, of_device, &self.tags, self.route_mtu);
    }
}

impl Drop for PathWatch {
    fn drop(&mut self) {
        if self.created && self.link.state.present {
            // Nothing can be done about a failure, and the kernel forgets the entry by itself.
            let _ = neighbour::remove(&mut self.netlink, self.index, self.next_hop);
        }
    }
}

impl AsFd for PathWatch {
    /// Readable when there may be something to `poll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn changes(before: PathState, after: PathState) -> Vec<Change> {
    let PathState { link, mtu, next_hop_mac, next_hop_known, reachable, source_present, route } = after;
    let told = [
        (before.mtu != mtu, Change::Mtu(mtu)),
        (before.next_hop_mac != next_hop_mac, Change::NextHopMac(next_hop_mac)),
        (before.next_hop_known != next_hop_known, Change::NextHopKnown(next_hop_known)),
        (before.reachable != reachable, Change::Reachable(reachable)),
        (before.source_present != source_present, Change::Source(source_present)),
        (before.route != route, Change::Route(route)),
    ];
    let told = told.into_iter().filter_map(|(changed, change)| changed.then_some(change));
    LinkState::changes(before.link, link).chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let link = LinkState {
            present: true,
            up: true,
            running: true,
            mtu: 1500,
            ipv6_mtu: None,
            mac: Mac([2, 0, 0, 0, 0, 2]),
        };
        let before = PathState {
            link,
            mtu: 1500,
            next_hop_mac: Mac([2, 0, 0, 0, 0, 1]),
            next_hop_known: true,
            reachable: true,
            source_present: true,
            route: Some(Route { egress: 7, next_hop: IpAddr::from([10, 0, 0, 1]) }),
        };
        assert_eq!(changes(before, before), []);
        let after = PathState { mtu: 1400, link: LinkState { running: false, ..link }, ..before };
        assert_eq!(changes(before, after), [Change::Running(false), Change::Mtu(1400)]);
        let gone = PathState { route: None, source_present: false, ..before };
        assert_eq!(changes(before, gone), [Change::Source(false), Change::Route(None)]);
    }
}
