//! Network interfaces, as rtnetlink reports them.

use std::{fmt, net::IpAddr, path::Path};

use xsend_wire::{
    Mac,
    ethernet::{TPID_CUSTOMER, Tag},
};

use crate::{
    NetlinkError,
    netlink::{
        Message, Netlink,
        attribute::{Attributes, Request},
    },
    uapi::{link as attr, rt},
};

/// `struct ifinfomsg`: family, padding, hardware type, index, flags, change mask.
const HEADER_LEN: usize = 16;

/// One network interface of the calling thread's namespace, as it was when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique within the namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Hardware address; all zero when the interface has none of six bytes.
    pub mac: Mac,
    /// Largest IP packet in bytes that the interface sends (Ethernet header not counted).
    pub mtu: u32,
    /// The largest IPv6 packet in bytes, where IPv6 is on; smaller than `mtu` where a router advertised less.
    pub ipv6_mtu: Option<u32>,
    /// Administratively up (`ip link set up`).
    pub up: bool,
    /// Up and with a carrier: frames given to it leave. (The carrier itself, not the operational state, which follows it
    /// by up to a second.)
    pub running: bool,
    /// What kind of frames the interface carries.
    pub hardware: Hardware,
    /// The kind of a virtual interface (`veth`, `bridge`, `vlan`, ...), none for a physical one.
    pub kind: Option<String>,
    /// The driver's name; for a virtual interface the same as `kind`.
    pub driver: Option<String>,
    /// Receive queues allocated by the driver: an upper bound of those in use (see [`crate::Channels`]).
    pub rx_queues: u32,
    /// Transmit queues allocated by the driver.
    pub tx_queues: u32,
    /// What makes the interface a VLAN of another one, none when it is none.
    pub vlan: Option<Vlan>,
    /// The index of the bridge, bond or VRF that the interface belongs to.
    pub master: Option<u32>,
    /// The XDP program that runs on the interface.
    pub xdp: Option<XdpProgram>,
}

/// A VLAN sub-interface's place in the interface below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The tag that its frames have, without a priority.
    pub tag: Tag,
    /// The index of the interface that carries it; none when that is in another network namespace.
    pub lower: Option<u32>,
}

/// The link layer of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// Ethernet framing.
    Ethernet,
    /// The loopback interface.
    Loopback,
    /// Anything else, with its `ARPHRD_*` number.
    Other(u16),
}

/// An XDP program attached to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// The kernel's number for the program.
    pub id: u32,
    /// The program's name, where the caller may read it (needs `CAP_SYS_ADMIN`).
    pub name: Option<String>,
    /// Where it runs.
    pub mode: XdpMode,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the generic receive path, after an skb was made.
    Generic,
    /// On the device.
    Offloaded,
}

/// Why an interface could not be looked up.
#[derive(Debug)]
pub enum LinkError {
    /// There is no interface of this name.
    NotFound {
        /// The name asked for.
        interface: String,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// There is no interface of this index.
    NoSuchIndex {
        /// The index asked for.
        index: u32,
    },
    /// The kernel could not be asked.
    Netlink(NetlinkError),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { interface, existing } if existing.is_empty() => {
                write!(f, "there is no interface {interface:?} in this network namespace, nor any other")
            }
            Self::NotFound { interface, existing } => {
                write!(f, "there is no interface {interface:?}; there are: {}", existing.join(", "))
            }
            Self::NoSuchIndex { index } => {
                write!(
                    f,
                    "the interface with index {index} is gone; was it removed, or moved to another namespace?"
                )
            }
            Self::Netlink(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<NetlinkError> for LinkError {
    fn from(error: NetlinkError) -> Self {
        Self::Netlink(error)
    }
}

impl Link {
    /// Every interface of the namespace, by index.
    pub fn all() -> Result<Vec<Self>, LinkError> {
        let mut links = list(&mut Netlink::route()?)?;
        links.iter_mut().for_each(Self::name_program);
        Ok(links)
    }

    /// The interface called `interface`. A missing one is an error that names those that exist.
    pub fn by_name(interface: &str) -> Result<Self, LinkError> {
        let mut netlink = Netlink::route()?;
        // The kernel has another error for a name that no interface can have.
        let known = if (1..=attr::NAME_MAX).contains(&interface.len()) {
            fetch(&mut netlink, &query(0).string(attr::IFNAME, interface))?
        } else {
            None
        };
        match known {
            Some(mut link) => {
                link.name_program();
                Ok(link)
            }
            None => {
                let existing = list(&mut netlink)?.into_iter().map(|link| link.name).collect();
                Err(LinkError::NotFound { interface: interface.to_owned(), existing })
            }
        }
    }

    /// The interface called `zone`, or with that index if it is a number and no name: the part behind the `%` of a scoped
    /// address (RFC 4007 11.2).
    pub fn by_zone(zone: &str) -> Result<Self, LinkError> {
        match (Self::by_name(zone), zone.parse()) {
            (Err(LinkError::NotFound { .. }), Ok(index)) => Self::by_index(index),
            (found, _) => found,
        }
    }

    /// The largest packet of the family of `address`, in bytes.
    pub fn mtu_towards(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(_) => self.mtu,
            IpAddr::V6(_) => self.ipv6_mtu.map_or(self.mtu, |mtu| mtu.min(self.mtu)),
        }
    }

    /// The interface with this index.
    pub fn by_index(index: u32) -> Result<Self, LinkError> {
        let mut link = Self::fetch(&mut Netlink::route()?, index)?.ok_or(LinkError::NoSuchIndex { index })?;
        link.name_program();
        Ok(link)
    }

    /// The interface with this index, without the name of its XDP program; none when there is none.
    pub(crate) fn fetch(netlink: &mut Netlink, index: u32) -> Result<Option<Self>, NetlinkError> {
        fetch(netlink, &query(index))
    }

    /// Reads an RTM_NEWLINK message; none for what is not one, or has no name.
    fn parse(message: &Message) -> Option<Self> {
        if message.kind != rt::NEWLINK {
            return None;
        }
        let header = Header::parse(&message.body)?;
        let attributes = Attributes::after(&message.body, HEADER_LEN);
        let info = attributes.nested(attr::LINKINFO);
        let kind = info.string(attr::INFO_KIND);
        let vlan = if kind.as_deref() == Some("vlan") { vlan(attributes, info) } else { None };
        Some(Self {
            index: header.index,
            name: attributes.string(attr::IFNAME)?,
            mac: attributes.mac(attr::ADDRESS).unwrap_or_default(),
            mtu: attributes.u32(attr::MTU).unwrap_or(0),
            ipv6_mtu: ipv6_mtu(attributes),
            up: header.up(),
            running: header.running(),
            hardware: header.hardware,
            driver: driver(attributes).or_else(|| kind.clone()),
            kind,
            rx_queues: attributes.u32(attr::NUM_RX_QUEUES).unwrap_or(1),
            tx_queues: attributes.u32(attr::NUM_TX_QUEUES).unwrap_or(1),
            vlan,
            master: attributes.u32(attr::MASTER),
            xdp: xdp(attributes.nested(attr::XDP)),
        })
    }

    fn name_program(&mut self) {
        if let Some(program) = &mut self.xdp {
            program.name = program_name(program.id);
        }
    }
}

/// The names of all interfaces, by index.
pub fn links() -> Result<Vec<String>, LinkError> {
    let links = list(&mut Netlink::route()?)?;
    Ok(links.into_iter().map(|link| link.name).collect())
}

/// The fixed part of a link message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// AF_UNSPEC, or AF_BRIDGE for what a bridge says about its port.
    pub(crate) family: u8,
    pub(crate) hardware: Hardware,
    pub(crate) index: u32,
    flags: u32,
}

impl Header {
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = body.first_chunk()?;
        let [family, _, t0, t1, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
        let hardware = match u16::from_ne_bytes([t0, t1]) {
            attr::ARPHRD_ETHER => Hardware::Ethernet,
            attr::ARPHRD_LOOPBACK => Hardware::Loopback,
            other => Hardware::Other(other),
        };
        let index = u32::from_ne_bytes([i0, i1, i2, i3]);
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        Some(Self { family, hardware, index, flags })
    }

    pub(crate) fn up(self) -> bool {
        self.flags & attr::FLAG_UP != 0
    }

    pub(crate) fn running(self) -> bool {
        self.up() && self.flags & attr::FLAG_LOWER_UP != 0
    }

    pub(crate) fn attributes(body: &[u8]) -> Attributes<'_> {
        Attributes::after(body, HEADER_LEN)
    }
}

fn query(index: u32) -> Request {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    // Counters and virtual functions make the answer long, and nobody here reads them.
    Request::new(rt::GETLINK, 0, &header).u32(attr::EXT_MASK, rt::EXT_FILTER_SKIP_STATS)
}

fn fetch(netlink: &mut Netlink, query: &Request) -> Result<Option<Link>, NetlinkError> {
    let action = "look up the interface";
    match netlink.ask(query, action) {
        Ok(message) => {
            let unreadable = || NetlinkError::Malformed { action, detail: "no interface in it".into() };
            Link::parse(&message).ok_or_else(unreadable).map(Some)
        }
        Err(error) if error.refusal() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

fn list(netlink: &mut Netlink) -> Result<Vec<Link>, NetlinkError> {
    let messages = netlink.dump(&query(0), "list the interfaces")?;
    let mut links: Vec<Link> = messages.iter().filter_map(Link::parse).collect();
    links.sort_by_key(|link| link.index);
    Ok(links)
}

/// IPv6's MTU of the interface, an element of its settings.
pub(crate) fn ipv6_mtu(attributes: Attributes<'_>) -> Option<u32> {
    let settings = attributes.nested(attr::AF_SPEC).nested(libc::AF_INET6 as u16).get(attr::INET6_CONF)?;
    let at = attr::INET6_CONF_MTU * size_of::<u32>();
    let mtu = u32::from_ne_bytes(*settings.get(at..)?.first_chunk()?);
    (mtu > 0).then_some(mtu)
}

/// The tag of a VLAN sub-interface and the interface below it.
fn vlan(attributes: Attributes<'_>, info: Attributes<'_>) -> Option<Vlan> {
    let data = info.nested(attr::INFO_DATA);
    let tag = Tag {
        // Before it could be chosen it was 802.1Q's.
        protocol: data.be16(attr::VLAN_PROTOCOL).unwrap_or(TPID_CUSTOMER),
        control: data.u16(attr::VLAN_ID)?,
    };
    // An index in another namespace says nothing in this one.
    let foreign = attributes.get(attr::LINK_NETNSID).is_some();
    let lower = attributes.u32(attr::LINK).filter(|index| *index != 0 && !foreign);
    Some(Vlan { tag, lower })
}

/// The program that sees frames first: the driver's before the generic one; one on the device only if alone.
fn xdp(attributes: Attributes<'_>) -> Option<XdpProgram> {
    let program = |attribute, mode| {
        let id = attributes.u32(attribute).filter(|id| *id != 0)?;
        Some(XdpProgram { id, name: None, mode })
    };
    program(attr::XDP_DRV_PROG_ID, XdpMode::Native)
        .or_else(|| program(attr::XDP_SKB_PROG_ID, XdpMode::Generic))
        .or_else(|| program(attr::XDP_HW_PROG_ID, XdpMode::Offloaded))
}

/// The driver bound to the parent device. /sys/bus, unlike /sys/class/net, is the same in every network namespace.
fn driver(attributes: Attributes<'_>) -> Option<String> {
    let bus = attributes.string(attr::PARENT_DEV_BUS_NAME)?;
    let device = attributes.string(attr::PARENT_DEV_NAME)?;
    let plain = |name: &str| !name.is_empty() && name != ".." && !name.contains('/');
    if !plain(&bus) || !plain(&device) {
        return None;
    }
    let link = Path::new("/sys/bus").join(bus).join("devices").join(device).join("driver");
    let driver = std::fs::read_link(link).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// The name of a loaded program, for those who may read it.
fn program_name(id: u32) -> Option<String> {
    let program = libbpf_rs::query::ProgInfoIter::default().find(|program| program.id == id)?;
    let name = program.name.to_string_lossy().into_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, hardware: u16, flags: u32, attributes: impl FnOnce(Request) -> Request) -> Message {
        let mut header = [0; HEADER_LEN];
        header[2..4].copy_from_slice(&hardware.to_ne_bytes());
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        header[8..12].copy_from_slice(&flags.to_ne_bytes());
        let request = attributes(Request::new(kind, 0, &header));
        Message { kind, cause: 0, body: request.body }
    }

    #[test]
    fn a_link_message_is_read() {
        let info = Request::new(0, 0, &[]).string(attr::INFO_KIND, "veth").body;
        let xdp = Request::new(0, 0, &[]).u32(attr::XDP_SKB_PROG_ID, 33).body;
        let settings: Vec<u8> = [1u32, 64, 1400, 1].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let ipv6 = Request::new(0, 0, &[]).bytes(attr::INET6_CONF, &settings).body;
        let families = Request::new(0, 0, &[]).bytes(libc::AF_INET6 as u16, &ipv6).body;
        let read = Link::parse(&message(rt::NEWLINK, 1, 0x1_0043, |request| {
            request
                .string(attr::IFNAME, "veth0")
                .u32(attr::MTU, 1500)
                .bytes(attr::ADDRESS, &[2, 0, 0, 0, 0, 1])
                .bytes(attr::LINKINFO, &info)
                .u32(attr::NUM_RX_QUEUES, 4)
                // A veth's peer, which is no interface below it.
                .u32(attr::LINK, 6)
                .u32(attr::MASTER, 4)
                .u32(attr::NUM_TX_QUEUES, 8)
                .bytes(attr::XDP, &xdp)
                .bytes(attr::AF_SPEC, &families)
                .bytes(60_000 & 0x3fff, &[1; 40])
        }))
        .unwrap();
        assert_eq!(
            read,
            Link {
                index: 7,
                name: "veth0".into(),
                mac: Mac([2, 0, 0, 0, 0, 1]),
                mtu: 1500,
                ipv6_mtu: Some(1400),
                up: true,
                running: true,
                hardware: Hardware::Ethernet,
                kind: Some("veth".into()),
                driver: Some("veth".into()),
                rx_queues: 4,
                tx_queues: 8,
                vlan: None,
                master: Some(4),
                xdp: Some(XdpProgram { id: 33, name: None, mode: XdpMode::Generic }),
            }
        );
    }

    #[test]
    fn a_vlan_tells_its_tag_and_the_interface_below() {
        let read = |data: Request, more: fn(Request) -> Request| {
            let info =
                Request::new(0, 0, &[]).string(attr::INFO_KIND, "vlan").bytes(attr::INFO_DATA, &data.body);
            let message = message(rt::NEWLINK, 1, 0, |request| {
                let named = request.string(attr::IFNAME, "eth0.10").u32(attr::LINK, 2);
                more(named.bytes(attr::LINKINFO, &info.body))
            });
            Link::parse(&message).unwrap().vlan
        };
        let id = || Request::new(0, 0, &[]).bytes(attr::VLAN_ID, &10u16.to_ne_bytes());
        let service = id().bytes(attr::VLAN_PROTOCOL, &[0x88, 0xa8]);
        let tag = |protocol| Tag { protocol, control: 10 };
        assert_eq!(read(id(), |r| r), Some(Vlan { tag: tag(0x8100), lower: Some(2) }));
        assert_eq!(read(service, |r| r), Some(Vlan { tag: tag(0x88a8), lower: Some(2) }));
        let elsewhere = read(id(), |r| r.u32(attr::LINK_NETNSID, 0));
        assert_eq!(elsewhere, Some(Vlan { tag: tag(0x8100), lower: None }));
        assert_eq!(read(Request::new(0, 0, &[]), |r| r), None, "no identifier");
    }

    #[test]
    fn a_link_that_is_down_or_has_no_carrier_is_not_running() {
        let read = |flags| {
            let link =
                Link::parse(&message(rt::NEWLINK, 65534, flags, |r| r.string(attr::IFNAME, "t"))).unwrap();
            assert_eq!((link.mac, link.hardware), (Mac([0; 6]), Hardware::Other(65534)));
            (link.up, link.running)
        };
        assert_eq!(read(0), (false, false));
        assert_eq!(read(attr::FLAG_UP), (true, false));
        assert_eq!(read(attr::FLAG_LOWER_UP), (false, false));
        assert_eq!(read(attr::FLAG_UP | attr::FLAG_LOWER_UP), (true, true));
    }

    #[test]
    fn what_is_not_a_link_is_none() {
        assert_eq!(Link::parse(&message(rt::NEWNEIGH, 1, 0, |r| r.string(attr::IFNAME, "x"))), None);
        assert_eq!(Link::parse(&message(rt::NEWLINK, 1, 0, |r| r)), None, "no name");
        assert_eq!(Link::parse(&Message { kind: rt::NEWLINK, cause: 0, body: vec![0; 15] }), None, "cut");
    }

    #[test]
    fn the_drivers_program_comes_before_the_generic_one() {
        let both = Request::new(0, 0, &[]).u32(attr::XDP_SKB_PROG_ID, 1).u32(attr::XDP_DRV_PROG_ID, 2).body;
        assert_eq!(xdp(Attributes::of(&both)).unwrap().mode, XdpMode::Native);
        assert_eq!(xdp(Attributes::of(&[])), None);
    }

    #[test]
    fn a_missing_interface_is_told_with_those_that_exist() {
        let error =
            LinkError::NotFound { interface: "eth9".into(), existing: vec!["lo".into(), "eth0".into()] };
        assert_eq!(error.to_string(), "there is no interface \"eth9\"; there are: lo, eth0");
    }
}
