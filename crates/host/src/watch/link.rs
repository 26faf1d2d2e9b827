//! What may change about an interface.

use xsend_wire::Mac;

use super::Change;
use crate::{
    Link, NetlinkError,
    link::{Header, ipv6_mtu},
    netlink::{Message, Netlink},
    uapi::{link as attr, rt},
};

/// What may change about an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The interface exists.
    pub present: bool,
    /// The interface is administratively up.
    pub up: bool,
    /// The interface is up and has a carrier.
    pub running: bool,
    /// The interface's MTU in bytes.
    pub mtu: u32,
    /// IPv6's MTU of the interface in bytes, where IPv6 is on.
    pub ipv6_mtu: Option<u32>,
    /// The interface's own hardware address.
    pub mac: Mac,
}

impl LinkState {
    /// What differs between two states, MTUs aside.
    pub(super) fn changes(before: Self, after: Self) -> impl Iterator<Item = Change> {
        let told = [
            (before.present && !after.present, Change::LinkGone),
            (before.up != after.up, Change::Up(after.up)),
            (before.running != after.running, Change::Running(after.running)),
            (before.mac != after.mac, Change::Mac(after.mac)),
        ];
        told.into_iter().filter_map(|(changed, change)| changed.then_some(change))
    }
}

/// Keeps the state of one interface up to date.
#[derive(Debug)]
pub(super) struct LinkTrack {
    index: u32,
    pub(super) state: LinkState,
}

impl LinkTrack {
    pub(super) fn new(link: &Link) -> Self {
        Self { index: link.index, state: Self::state_of(link) }
    }

    fn state_of(link: &Link) -> LinkState {
        let Link { up, running, mtu, ipv6_mtu, mac, .. } = *link;
        LinkState { present: true, up, running, mtu, ipv6_mtu, mac }
    }

    /// Takes in what the kernel tells; whether it was about this interface.
    pub(super) fn on_message(&mut self, message: &Message) -> bool {
        if !matches!(message.kind, rt::NEWLINK | rt::DELLINK) {
            return false;
        }
        let Some(header) = Header::parse(&message.body) else { return false };
        // What a bridge says about its port has the port's index too.
        if header.index != self.index || header.family != 0 {
            return false;
        }
        if message.kind == rt::DELLINK {
            self.gone();
            return true;
        }
        let attributes = Header::attributes(&message.body);
        let LinkState { mtu, ipv6_mtu: before, mac, .. } = self.state;
        self.state = LinkState {
            present: self.state.present,
            up: header.up(),
            running: header.running(),
            mtu: attributes.u32(attr::MTU).unwrap_or(mtu),
            ipv6_mtu: ipv6_mtu(attributes).or(before),
            mac: attributes.mac(attr::ADDRESS).unwrap_or(mac),
        };
        true
    }

    pub(super) fn read_anew(&mut self, netlink: &mut Netlink) -> Result<(), NetlinkError> {
        match Link::fetch(netlink, self.index)? {
            Some(link) => self.state = Self::state_of(&link),
            None => self.gone(),
        }
        Ok(())
    }

    fn gone(&mut self) {
        self.state.present = false;
        self.state.up = false;
        self.state.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::Request;

    fn track() -> LinkTrack {
        let state = LinkState {
            present: true,
            up: true,
            running: true,
            mtu: 1500,
            ipv6_mtu: None,
            mac: Mac([2, 0, 0, 0, 0, 2]),
        };
        LinkTrack { index: 7, state }
    }

    fn message(kind: u16, family: u8, index: u32, flags: u32) -> Message {
        let mut header = vec![family, 0, 1, 0];
        header.extend(index.to_ne_bytes());
        header.extend(flags.to_ne_bytes());
        header.extend([0; 4]);
        Message { kind, cause: 0, body: Request::new(0, 0, &header).u32(attr::MTU, 1400).body }
    }

    #[test]
    fn only_what_is_said_about_the_interface_itself_counts() {
        let mut track = track();
        assert!(!track.on_message(&message(rt::NEWLINK, 0, 8, 0)), "another one");
        assert!(!track.on_message(&message(rt::NEWLINK, libc::AF_BRIDGE as u8, 7, 0)), "as a bridge's port");
        assert!(!track.on_message(&message(rt::NEWNEIGH, 0, 7, 0)));
        assert_eq!(track.state, self::track().state);
        assert!(track.on_message(&message(rt::NEWLINK, 0, 7, attr::FLAG_UP)));
        let expected = LinkState { running: false, mtu: 1400, ..self::track().state };
        assert_eq!(track.state, expected);
    }

    #[test]
    fn what_differs_is_told() {
        let before = track().state;
        assert_eq!(LinkState::changes(before, before).count(), 0);
        let mut track = track();
        assert!(track.on_message(&message(rt::DELLINK, 0, 7, attr::FLAG_UP)));
        let told: Vec<_> = LinkState::changes(before, track.state).collect();
        assert_eq!(told, [Change::LinkGone, Change::Up(false), Change::Running(false)]);
    }
}
