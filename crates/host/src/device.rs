//! What a device can do: queues, rings, offloads (ethtool netlink) and XDP abilities (netdev netlink).

use std::fmt;

use crate::{
    Link, NetlinkError,
    netlink::{
        Netlink,
        attribute::{Attributes, Request},
        generic,
    },
    uapi::{ethtool, netdev},
};

/// Facts about a device; each is none when the driver or the kernel does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Queues in use, and as many as there could be.
    pub channels: Option<Channels>,
    /// Queues in use as the network stack counts them (Linux 6.8 and later, while the interface is up).
    pub queues: Option<Queues>,
    /// Descriptor rings.
    pub rings: Option<Rings>,
    /// Offloads that matter to a sender and to whoever it is compared with.
    pub offloads: Option<Offloads>,
    /// What the driver does for XDP and AF_XDP (Linux 6.3 and later).
    pub xdp: Option<XdpFeatures>,
}

/// Numbers of queues. A combined channel is a receive and a transmit queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive-only queues in use.
    pub rx: u32,
    /// Transmit-only queues in use.
    pub tx: u32,
    /// Combined queues in use.
    pub combined: u32,
    /// Most receive-only queues possible.
    pub rx_max: u32,
    /// Most transmit-only queues possible.
    pub tx_max: u32,
    /// Most combined queues possible.
    pub combined_max: u32,
}

/// Queues in use, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
}

/// Descriptors per ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Receive ring, in use.
    pub rx: u32,
    /// Transmit ring, in use.
    pub tx: u32,
    /// Receive ring, at most.
    pub rx_max: u32,
    /// Transmit ring, at most.
    pub tx_max: u32,
}

/// Offloads in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The device (or the virtual device's peer) cuts TCP segments itself.
    pub tso: bool,
    /// The kernel cuts TCP segments late, in software.
    pub gso: bool,
    /// The kernel joins received segments.
    pub gro: bool,
    /// The device fills in TCP checksums of IPv4 packets that it sends.
    pub tx_checksum: bool,
    /// The device verifies checksums of what it receives.
    pub rx_checksum: bool,
}

/// What a driver does for XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Runs XDP programs in the driver.
    pub basic: bool,
    /// Does XDP_REDIRECT.
    pub redirect: bool,
    /// Accepts frames redirected to it.
    pub redirect_target: bool,
    /// Shares packet memory with an AF_XDP socket: zero-copy mode works.
    pub zero_copy: bool,
    /// Runs XDP programs on the device.
    pub offload: bool,
    /// Receives frames of several buffers.
    pub rx_multi_buffer: bool,
    /// Accepts redirected frames of several buffers.
    pub redirect_target_multi_buffer: bool,
    /// Most descriptors of one frame in zero-copy mode, 1 where multi-buffer is not done.
    pub zero_copy_max_segments: Option<u32>,
    /// Fills in checksums of AF_XDP frames that ask for it.
    pub tx_checksum: bool,
    /// Reports the transmit time of AF_XDP frames that ask for it.
    pub tx_timestamp: bool,
}

/// Why the device could not be asked at all.
#[derive(Debug)]
pub struct DeviceError {
    /// The interface.
    pub interface: String,
    /// The reason.
    pub error: NetlinkError,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot learn what {} can do: {}", self.interface, self.error)
    }
}

impl std::error::Error for DeviceError {}

impl Channels {
    /// Queues in use that receive.
    pub fn receiving(&self) -> u32 {
        self.rx.saturating_add(self.combined)
    }

    /// Queues in use that transmit.
    pub fn transmitting(&self) -> u32 {
        self.tx.saturating_add(self.combined)
    }
}

impl Device {
    /// Asks the kernel about the device behind `link`. What the driver or the kernel does not know is none, no error.
    pub fn of(link: &Link) -> Result<Self, DeviceError> {
        Self::ask(link.index).map_err(|error| DeviceError { interface: link.name.clone(), error })
    }

    /// The queues in use of the device behind `link`: what the driver says, or else the network stack, or else as many as
    /// were allocated.
    pub fn queues_of(&self, link: &Link) -> Queues {
        self.queues_told().unwrap_or(Queues { rx: link.rx_queues, tx: link.tx_queues })
    }

    /// The queues in use, as far as anybody counts them.
    pub(crate) fn queues_told(&self) -> Option<Queues> {
        let by_driver = self.channels.map(|c| Queues { rx: c.receiving(), tx: c.transmitting() });
        // Some drivers answer and leave out what they have.
        by_driver.filter(|queues| queues.rx > 0).or(self.queues)
    }

    /// Only what says how many queues there are.
    pub(crate) fn ask_queues(netlink: &mut Netlink, index: u32) -> Result<Self, NetlinkError> {
        let mut device = Self::default();
        if let Some(family) = generic::family(netlink, ethtool::FAMILY)? {
            let ask = ethtool_request(family, ethtool::CHANNELS_GET, index);
            device.channels = fetch(netlink, &ask, "ask the driver")?.map(|body| channels(attributes(&body)));
        }
        if device.queues_told().is_none()
            && let Some(family) = generic::family(netlink, netdev::FAMILY)?
        {
            device.queues = ask_queues(netlink, family, index)?;
        }
        Ok(device)
    }

    fn ask(index: u32) -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::generic()?;
        let mut device = Self::default();
        if let Some(family) = generic::family(&mut netlink, ethtool::FAMILY)? {
            let mut get =
                |command| fetch(&mut netlink, &ethtool_request(family, command, index), "ask the driver");
            device.channels = get(ethtool::CHANNELS_GET)?.map(|body| channels(attributes(&body)));
            device.rings = get(ethtool::RINGS_GET)?.map(|body| rings(attributes(&body)));
            device.offloads = get(ethtool::FEATURES_GET)?.map(|body| offloads(attributes(&body)));
        }
        if let Some(family) = generic::family(&mut netlink, netdev::FAMILY)? {
            let request = generic::request(family, netdev::DEV_GET).u32(netdev::IFINDEX, index);
            device.xdp = fetch(&mut netlink, &request, "ask for XDP features")?
                .map(|body| xdp_features(attributes(&body)));
            device.queues = ask_queues(&mut netlink, family, index)?;
        }
        Ok(device)
    }
}

fn ethtool_request(family: u16, command: u8, index: u32) -> Request {
    generic::request(family, command).nested_u32(ethtool::HEADER, ethtool::HEADER_DEV_INDEX, index)
}

/// Counts the queues that the network stack lists; none when this kernel cannot list them, or the interface is down.
fn ask_queues(netlink: &mut Netlink, family: u16, index: u32) -> Result<Option<Queues>, NetlinkError> {
    let ask = generic::request(family, netdev::QUEUE_GET).u32(netdev::QUEUE_IFINDEX, index);
    match netlink.dump(&ask, "list the queues") {
        Ok(messages) => Ok(count_queues(messages.iter().map(|message| attributes(&message.body)))),
        // Kernels before the list's.
        Err(error) if matches!(error.refusal(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn count_queues<'a>(listed: impl Iterator<Item = Attributes<'a>>) -> Option<Queues> {
    let mut queues = Queues::default();
    for queue in listed {
        match queue.u32(netdev::QUEUE_TYPE) {
            Some(netdev::QUEUE_TYPE_RX) => queues.rx += 1,
            Some(netdev::QUEUE_TYPE_TX) => queues.tx += 1,
            _ => {}
        }
    }
    (queues != Queues::default()).then_some(queues)
}

/// The answer's body; none when the driver has none, or the kernel lacks the question.
fn fetch(
    netlink: &mut Netlink,
    request: &Request,
    action: &'static str,
) -> Result<Option<Vec<u8>>, NetlinkError> {
    match netlink.ask(request, action) {
        Ok(message) => Ok(Some(message.body)),
        Err(error) if matches!(error.refusal(), Some(libc::EOPNOTSUPP)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn attributes(body: &[u8]) -> Attributes<'_> {
    Attributes::after(body, generic::HEADER_LEN)
}

/// The kernel leaves out the kinds of queue that a driver has none of.
fn channels(attributes: Attributes<'_>) -> Channels {
    let count = |kind| attributes.u32(kind).unwrap_or(0);
    Channels {
        rx: count(ethtool::CHANNELS_RX),
        tx: count(ethtool::CHANNELS_TX),
        combined: count(ethtool::CHANNELS_COMBINED),
        rx_max: count(ethtool::CHANNELS_RX_MAX),
        tx_max: count(ethtool::CHANNELS_TX_MAX),
        combined_max: count(ethtool::CHANNELS_COMBINED_MAX),
    }
}

fn rings(attributes: Attributes<'_>) -> Rings {
    let count = |kind| attributes.u32(kind).unwrap_or(0);
    Rings {
        rx: count(ethtool::RINGS_RX),
        tx: count(ethtool::RINGS_TX),
        rx_max: count(ethtool::RINGS_RX_MAX),
        tx_max: count(ethtool::RINGS_TX_MAX),
    }
}

/// The features in force come as a list of the names of those that are on.
fn offloads(attributes: Attributes<'_>) -> Offloads {
    let mut offloads = Offloads::default();
    let bits = attributes.nested(ethtool::FEATURES_ACTIVE).nested(ethtool::BITSET_BITS);
    for (_, bit) in bits.iter().filter(|(kind, _)| *kind == ethtool::BITSET_BITS_BIT) {
        match Attributes::of(bit).string(ethtool::BITSET_BIT_NAME).as_deref() {
            Some("tx-tcp-segmentation") => offloads.tso = true,
            Some("tx-generic-segmentation") => offloads.gso = true,
            Some("rx-gro") => offloads.gro = true,
            Some("tx-checksum-ipv4" | "tx-checksum-ip-generic") => offloads.tx_checksum = true,
            Some("rx-checksum") => offloads.rx_checksum = true,
            _ => {}
        }
    }
    offloads
}

fn xdp_features(attributes: Attributes<'_>) -> XdpFeatures {
    let xdp = attributes.uint(netdev::XDP_FEATURES).unwrap_or(0);
    let xsk = attributes.uint(netdev::XSK_FEATURES).unwrap_or(0);
    XdpFeatures {
        basic: xdp & netdev::XDP_BASIC != 0,
        redirect: xdp & netdev::XDP_REDIRECT != 0,
        redirect_target: xdp & netdev::XDP_NDO_XMIT != 0,
        zero_copy: xdp & netdev::XDP_XSK_ZEROCOPY != 0,
        offload: xdp & netdev::XDP_HW_OFFLOAD != 0,
        rx_multi_buffer: xdp & netdev::XDP_RX_SG != 0,
        redirect_target_multi_buffer: xdp & netdev::XDP_NDO_XMIT_SG != 0,
        zero_copy_max_segments: attributes.u32(netdev::XDP_ZC_MAX_SEGS),
        tx_checksum: xsk & netdev::XSK_TX_CHECKSUM != 0,
        tx_timestamp: xsk & netdev::XSK_TX_TIMESTAMP != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_in_force_are_read_from_the_names_that_are_on() {
        let bit = |name: &str| Request::new(0, 0, &[]).u32(1, 3).string(ethtool::BITSET_BIT_NAME, name).body;
        let bits = Request::new(0, 0, &[])
            .bytes(ethtool::BITSET_BITS_BIT, &bit("tx-checksum-ip-generic"))
            .bytes(ethtool::BITSET_BITS_BIT, &bit("rx-gro"))
            .bytes(ethtool::BITSET_BITS_BIT, &bit("something-new"))
            .body;
        let set = Request::new(0, 0, &[]).u32(2, 64).bytes(ethtool::BITSET_BITS, &bits).body;
        let answer = Request::new(0, 0, &[]).bytes(ethtool::FEATURES_ACTIVE, &set).body;
        let read = offloads(Attributes::of(&answer));
        assert_eq!(read, Offloads { tx_checksum: true, gro: true, ..Offloads::default() });
        assert_eq!(offloads(Attributes::of(&[])), Offloads::default());
    }

    #[test]
    fn xdp_features_are_read_from_their_bits() {
        let bits = netdev::XDP_BASIC | netdev::XDP_XSK_ZEROCOPY;
        let answer = Request::new(0, 0, &[])
            .bytes(netdev::XDP_FEATURES, &bits.to_ne_bytes())
            .u32(netdev::XDP_ZC_MAX_SEGS, 8)
            .bytes(netdev::XSK_FEATURES, &netdev::XSK_TX_CHECKSUM.to_ne_bytes())
            .body;
        let read = xdp_features(Attributes::of(&answer));
        let expected = XdpFeatures {
            basic: true,
            zero_copy: true,
            zero_copy_max_segments: Some(8),
            tx_checksum: true,
            ..XdpFeatures::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn listed_queues_are_counted_by_direction() {
        let queue = |kind| Request::new(0, 0, &[]).u32(netdev::QUEUE_TYPE, kind).body;
        let listed = [0, 1, 0, 0, 9].map(queue);
        let count = |listed: &[Vec<u8>]| count_queues(listed.iter().map(|body| Attributes::of(body)));
        assert_eq!(count(&listed), Some(Queues { rx: 3, tx: 1 }));
        assert_eq!(count(&[]), None, "the interface is down");
    }

    #[test]
    fn a_driver_that_counts_no_receive_queue_leaves_it_to_the_network_stack() {
        let stack = Queues { rx: 3, tx: 1 };
        let told = |rx, queues| {
            let channels = Some(Channels { rx, tx: 1, ..Channels::default() });
            Device { channels, queues, ..Device::default() }.queues_told()
        };
        assert_eq!(told(2, Some(stack)), Some(Queues { rx: 2, tx: 1 }));
        assert_eq!(told(0, Some(stack)), Some(stack));
        assert_eq!(told(0, None), None);
    }

    #[test]
    fn combined_channels_receive_and_transmit() {
        let answer =
            Request::new(0, 0, &[]).u32(ethtool::CHANNELS_COMBINED, 4).u32(ethtool::CHANNELS_TX, 2).body;
        let read = channels(Attributes::of(&answer));
        assert_eq!((read.receiving(), read.transmitting()), (4, 6));
    }
}
