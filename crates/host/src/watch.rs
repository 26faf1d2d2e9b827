//! Watching a path while it is in use.

use std::{
    fmt,
    net::Ipv4Addr,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use xsend_wire::Mac;

use crate::{
    Link, NetlinkError, Path,
    link::Header,
    neighbour::{self, Neighbour},
    netlink::{Events, Message, Netlink, Notice},
    uapi::{link as attr, rt},
};

/// Between two looks at whether the kernel still knows the next hop for certain.
const REFRESH: Duration = Duration::from_secs(2);
/// At least this long between two requests to resolve a next hop that is lost: each is up to three broadcasts.
const REFRESH_LOST: Duration = Duration::from_millis(250);
/// Datagrams taken in by one `poll`: a storm of events on other interfaces must not keep the caller.
const DATAGRAMS_MAX: usize = 1024;

/// What may change about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathState {
    /// The next hop's hardware address, the last one known.
    pub next_hop_mac: Mac,
    /// The kernel does not think that the next hop is dead.
    pub reachable: bool,
    /// The interface exists.
    pub present: bool,
    /// The interface is administratively up.
    pub up: bool,
    /// The interface is up and has a carrier.
    pub running: bool,
    /// The interface's MTU in bytes (the route's may be smaller).
    pub mtu: u32,
    /// The interface's own hardware address.
    pub mac: Mac,
}

/// One thing that changed, with its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The next hop has another hardware address.
    NextHopMac(Mac),
    /// The next hop stopped answering the kernel, or answers again.
    Reachable(bool),
    /// The interface went away for good (an index is not used again).
    LinkGone,
    /// The interface was taken up or down.
    Up(bool),
    /// The interface's carrier came or went.
    Running(bool),
    /// The interface has another MTU, in bytes.
    Mtu(u32),
    /// The interface has another hardware address.
    Mac(Mac),
}

/// Why a path can no longer be watched.
#[derive(Debug)]
pub struct WatchError {
    /// The interface.
    pub interface: String,
    /// The reason.
    pub error: NetlinkError,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost sight of {}: {}", self.interface, self.error)
    }
}

impl std::error::Error for WatchError {}

/// Keeps a path's next hop fresh in the kernel's table, and tells what changes.
///
/// The kernel sees nothing of what AF_XDP sends, so it would let the entry go stale and never learn that the next hop
/// moved or died. Each [`poll`](Self::poll) that is due (every two seconds) tells it that the entry is in use; it then
/// verifies it by its own rules (`net.ipv4.neigh.*`). If `poll` is not called for a while, the entry ages, nothing else.
///
/// When dropped, an entry that this or [`resolve`](crate::resolve) made is removed again. A killed process leaves an
/// ordinary entry, which the kernel forgets by itself.
#[derive(Debug)]
pub struct NeighbourWatch {
    interface: String,
    index: u32,
    next_hop: Ipv4Addr,
    events: Events,
    netlink: Netlink,
    state: PathState,
    /// What is known may be out of date: read everything anew.
    stale: bool,
    /// The entry is ours to remove.
    created: bool,
    refresh_at: Instant,
    refreshed_at: Option<Instant>,
}

impl NeighbourWatch {
    /// Watches `path`, in the namespace of the calling thread; may then be moved to another thread.
    ///
    /// What changed since the path was resolved is told by the first `poll`.
    pub fn new(path: &Path) -> Result<Self, WatchError> {
        let interface = path.link.name.clone();
        let sockets = Events::subscribe(&[rt::GROUP_LINK, rt::GROUP_NEIGH])
            .and_then(|events| Ok((events, Netlink::route()?)));
        let (events, netlink) = match sockets {
            Ok(sockets) => sockets,
            Err(error) => return Err(WatchError { interface, error }),
        };
        let state = PathState {
            next_hop_mac: path.next_hop_mac,
            reachable: true,
            present: true,
            up: path.link.up,
            running: path.link.running,
            mtu: path.link.mtu,
            mac: path.link.mac,
        };
        Ok(Self {
            interface,
            index: path.link.index,
            next_hop: path.next_hop,
            events,
            netlink,
            state,
            stale: true,
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
            self.take_in()?;
            if self.stale {
                self.read_anew()?;
            }
            if Instant::now() >= self.refresh_at {
                self.refresh()?;
            }
            if self.state != before || Instant::now() >= deadline {
                return Ok(());
            }
            self.events.wait(deadline.min(self.refresh_at))?;
        }
    }

    /// Takes in the events that are waiting.
    fn take_in(&mut self) -> Result<(), NetlinkError> {
        for _ in 0..DATAGRAMS_MAX {
            match self.events.take()? {
                Notice::Messages(messages) => messages.iter().for_each(|message| self.on_message(message)),
                Notice::Nothing => break,
                Notice::Lost => self.stale = true,
            }
        }
        Ok(())
    }

    fn on_message(&mut self, message: &Message) {
        match message.kind {
            rt::NEWLINK | rt::DELLINK => {
                let Some(header) = Header::parse(&message.body) else { return };
                // What a bridge says about its port has the port's index too.
                if header.index == self.index && header.family == 0 {
                    self.on_link(message.kind, header, &message.body);
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
            _ => {}
        }
    }

    fn on_link(&mut self, kind: u16, header: Header, body: &[u8]) {
        if kind == rt::DELLINK {
            self.on_link_gone();
            return;
        }
        let attributes = Header::attributes(body);
        self.state.up = header.up();
        self.state.running = header.running();
        self.state.mtu = attributes.u32(attr::MTU).unwrap_or(self.state.mtu);
        self.state.mac = attributes.mac(attr::ADDRESS).unwrap_or(self.state.mac);
    }

    fn on_link_gone(&mut self) {
        self.state.present = false;
        self.state.up = false;
        self.state.running = false;
    }

    fn on_neighbour(&mut self, entry: Option<Neighbour>) {
        match entry {
            Some(entry) if entry.mac().is_some() => {
                self.state.next_hop_mac = entry.mac().unwrap_or(self.state.next_hop_mac);
                self.state.reachable = true;
            }
            Some(entry) if entry.failed() => {
                self.state.reachable = false;
                self.refresh_soon();
            }
            // Being asked for again: whether it is reachable is not known better than before.
            Some(_) => {}
            // Removed, which says nothing about the neighbour.
            None => self.refresh_soon(),
        }
    }

    fn refresh_soon(&mut self) {
        let soonest = self.refreshed_at.map_or_else(Instant::now, |at| at + REFRESH_LOST);
        self.refresh_at = self.refresh_at.min(soonest);
    }

    fn read_anew(&mut self) -> Result<(), NetlinkError> {
        match Link::fetch(&mut self.netlink, self.index)? {
            Some(link) => {
                let Link { up, running, mtu, mac, .. } = link;
                self.state = PathState { present: true, up, running, mtu, mac, ..self.state };
            }
            None => self.on_link_gone(),
        }
        let entry = neighbour::get(&mut self.netlink, self.index, self.next_hop)?;
        self.on_neighbour(entry);
        self.stale = false;
        Ok(())
    }

    /// Tells the kernel that the next hop is in use.
    fn refresh(&mut self) -> Result<(), NetlinkError> {
        let now = Instant::now();
        self.refreshed_at = Some(now);
        self.refresh_at = now + REFRESH;
        if !self.state.up {
            // The kernel keeps no neighbours on an interface that is down.
            return Ok(());
        }
        let entry = neighbour::get(&mut self.netlink, self.index, self.next_hop)?;
        if entry.is_some() {
            self.on_neighbour(entry);
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
}

impl Drop for NeighbourWatch {
    fn drop(&mut self) {
        if self.created && self.state.present {
            // Nothing can be done about a failure, and the kernel forgets the entry by itself.
            let _ = neighbour::remove(&mut self.netlink, self.index, self.next_hop);
        }
    }
}

impl AsFd for NeighbourWatch {
    /// Readable when there may be something to `poll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn changes(before: PathState, after: PathState) -> Vec<Change> {
    let PathState { next_hop_mac, reachable, present, up, running, mtu, mac } = after;
    let told = [
        (before.next_hop_mac != next_hop_mac, Change::NextHopMac(next_hop_mac)),
        (before.reachable != reachable, Change::Reachable(reachable)),
        (before.present && !present, Change::LinkGone),
        (before.up != up, Change::Up(up)),
        (before.running != running, Change::Running(running)),
        (before.mtu != mtu, Change::Mtu(mtu)),
        (before.mac != mac, Change::Mac(mac)),
    ];
    told.into_iter().filter_map(|(changed, change)| changed.then_some(change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let before = PathState {
            next_hop_mac: Mac([2, 0, 0, 0, 0, 1]),
            reachable: true,
            present: true,
            up: true,
            running: true,
            mtu: 1500,
            mac: Mac([2, 0, 0, 0, 0, 2]),
        };
        assert_eq!(changes(before, before), []);
        let after = PathState { mtu: 1400, running: false, ..before };
        assert_eq!(changes(before, after), [Change::Running(false), Change::Mtu(1400)]);
        let gone = PathState { present: false, up: false, running: false, ..before };
        assert_eq!(changes(before, gone), [Change::LinkGone, Change::Up(false), Change::Running(false)]);
    }
}
