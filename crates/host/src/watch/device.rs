//! Watching a device: its state, its queues and its addresses.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{Change, LinkState, REFRESH, WatchError, link::LinkTrack, take_in};
use crate::{
    Device, Link, NetlinkError, Queues,
    netlink::{
        Events, Message, Netlink,
        attribute::Attributes,
        generic::{self, group},
    },
    route,
    uapi::{ethtool, rt},
};

/// What may change about a device, its addresses aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// The interface.
    pub link: LinkState,
    /// Queues in use.
    pub queues: Queues,
}

/// Tells what changes about a device that sockets and a program are attached to.
#[derive(Debug)]
pub struct DeviceWatch {
    interface: String,
    index: u32,
    events: Events,
    netlink: Netlink,
    /// Changed settings, and the number of their family; none where this kernel does not tell.
    settings: Option<(Events, u16)>,
    generic: Netlink,
    link: LinkTrack,
    queues: Queues,
    addresses: BTreeSet<IpAddr>,
    /// What is known may be out of date: read everything anew.
    stale: bool,
    queues_stale: bool,
    addresses_stale: bool,
    refresh_at: Instant,
}

impl DeviceWatch {
    /// Watches the device behind `link`, in the namespace of the calling thread; may then be moved to another thread.
    ///
    /// What changed about the interface since `link` was read is told by the first `poll`; queues and addresses are those
    /// of now.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn new(link: &Link) -> Result<Self, WatchError> {
        Self::open(link).map_err(|error| WatchError { interface: link.name.clone(), error })
    }

    fn open(link: &Link) -> Result<Self, NetlinkError> {
        let groups = [rt::GROUP_LINK, rt::GROUP_IPV4_ADDRESS, rt::GROUP_IPV6_ADDRESS];
        let events = Events::subscribe(&groups)?;
        let mut netlink = Netlink::route()?;
        let mut generic = Netlink::generic()?;
        let settings = match group(&mut generic, ethtool::FAMILY, ethtool::GROUP_MONITOR)? {
            Some((family, group)) => Some((Events::subscribe_generic(group)?, family)),
            None => None,
        };
        // A device that is gone already has neither, and the first poll tells so.
        let queues = match Device::ask_queues(&mut generic, link.index) {
            Ok(device) => device.queues_of(link),
            Err(error) if error.refusal() == Some(libc::ENODEV) => Queues::default(),
            Err(error) => return Err(error),
        };
        let addresses = route::addresses_of(&mut netlink, link.index)?;
        Ok(Self {
            interface: link.name.clone(),
            index: link.index,
            events,
            netlink,
            settings,
            generic,
            link: LinkTrack::new(link),
            queues,
            addresses,
            stale: true,
            queues_stale: false,
            addresses_stale: false,
            refresh_at: Instant::now() + REFRESH,
        })
    }

    /// The state as of the last `poll`.
    pub fn state(&self) -> DeviceState {
        DeviceState { link: self.link.state, queues: self.queues }
    }

    /// The interface's addresses of both families as of the last `poll`.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// Takes in what happened, waiting at most `wait` (zero: not at all) for something to happen. At most one change of
    /// each kind, the newest, and one for each address; empty when nothing changed.
    ///
    /// # Errors
    ///
    /// When the kernel can no longer be asked.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<Change>, WatchError> {
        let before = self.state();
        let addresses = self.addresses.clone();
        match self.poll_until(Instant::now() + wait, before, &addresses) {
            Ok(()) => Ok(changes(before, self.state(), &addresses, &self.addresses)),
            Err(error) => Err(WatchError { interface: self.interface.clone(), error }),
        }
    }

    fn poll_until(
        &mut self,
        deadline: Instant,
        before: DeviceState,
        addresses: &BTreeSet<IpAddr>,
    ) -> Result<(), NetlinkError> {
        loop {
            self.stale |= take_in(self, |watch| &mut watch.events, Self::on_message)?;
            self.take_in_settings()?;
            let now = Instant::now();
            if now >= self.refresh_at {
                // Not every driver's change of its queues is told.
                self.queues_stale = true;
                self.refresh_at = now + REFRESH;
            }
            self.read()?;
            if self.state() != before || self.addresses != *addresses || now >= deadline {
                return Ok(());
            }
            let next = deadline.min(self.refresh_at);
            match &self.settings {
                Some((settings, _)) => Events::wait_either(&self.events, settings, next)?,
                None => self.events.wait(next)?,
            };
        }
    }

    fn on_message(&mut self, message: &Message) {
        match message.kind {
            // A driver that starts anew may have other queues.
            rt::NEWLINK | rt::DELLINK => self.queues_stale |= self.link.on_message(message),
            rt::NEWADDR | rt::DELADDR => {
                self.addresses_stale |= route::address_index(message) == Some(self.index);
            }
            _ => {}
        }
    }

    /// Takes in what is told of settings.
    fn take_in_settings(&mut self) -> Result<(), NetlinkError> {
        let Self { settings, index, queues_stale, .. } = self;
        let Some((events, family)) = settings else { return Ok(()) };
        let lost = take_in(
            &mut (events, &mut *queues_stale),
            |(events, _)| events,
            |(_, stale), message| **stale |= is_channels_change(message, *family, *index),
        )?;
        *queues_stale |= lost;
        Ok(())
    }

    /// Reads anew what may be out of date.
    fn read(&mut self) -> Result<(), NetlinkError> {
        if self.stale {
            self.link.read_anew(&mut self.netlink)?;
            self.stale = false;
            self.queues_stale = true;
            self.addresses_stale = true;
        }
        if self.queues_stale && self.link.state.present {
            self.read_queues()?;
        }
        self.queues_stale = false;
        if self.addresses_stale {
            self.addresses = route::addresses_of(&mut self.netlink, self.index)?;
            self.addresses_stale = false;
        }
        Ok(())
    }

    fn read_queues(&mut self) -> Result<(), NetlinkError> {
        let device = match Device::ask_queues(&mut self.generic, self.index) {
            Ok(device) => device,
            // Removed in between, which an event tells.
            Err(error) if error.refusal() == Some(libc::ENODEV) => return Ok(()),
            Err(error) => return Err(error),
        };
        // What was allocated does not change: where nobody counts, the first answer stands.
        if let Some(queues) = device.queues_told() {
            self.queues = queues;
        }
        Ok(())
    }
}

/// Whether a message of ethtool's tells that the device's channels were changed.
fn is_channels_change(message: &Message, family: u16, index: u32) -> bool {
    let header = || Attributes::after(&message.body, generic::HEADER_LEN).nested(ethtool::HEADER);
    message.kind == family
        && message.body.first() == Some(&ethtool::CHANNELS_NTF)
        && header().u32(ethtool::HEADER_DEV_INDEX) == Some(index)
}

fn changes(
    before: DeviceState,
    after: DeviceState,
    had: &BTreeSet<IpAddr>,
    has: &BTreeSet<IpAddr>,
) -> Vec<Change> {
    let told = [
        (before.link.mtu != after.link.mtu, Change::Mtu(after.link.mtu)),
        (before.queues != after.queues, Change::Queues(after.queues)),
    ];
    let told = told.into_iter().filter_map(|(changed, change)| changed.then_some(change));
    let gone = had.difference(has).map(|address| Change::Address { address: *address, present: false });
    let come = has.difference(had).map(|address| Change::Address { address: *address, present: true });
    LinkState::changes(before.link, after.link).chain(told).chain(gone).chain(come).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::Request;

    #[test]
    fn a_change_of_channels_is_recognised() {
        let told = |command, index| {
            let request =
                generic::request(21, command).nested_u32(ethtool::HEADER, ethtool::HEADER_DEV_INDEX, index);
            Message { kind: 21, cause: 0, body: request.body }
        };
        assert!(is_channels_change(&told(ethtool::CHANNELS_NTF, 7), 21, 7));
        assert!(!is_channels_change(&told(ethtool::CHANNELS_NTF, 8), 21, 7), "another device");
        assert!(!is_channels_change(&told(ethtool::CHANNELS_NTF + 2, 7), 21, 7), "another setting");
        assert!(!is_channels_change(&told(ethtool::CHANNELS_NTF, 7), 22, 7), "another family");
        let empty = Message { kind: 21, cause: 0, body: Request::new(0, 0, &[]).body };
        assert!(!is_channels_change(&empty, 21, 7));
    }
}
