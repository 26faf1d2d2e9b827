//! From an interface down to the device that carries its frames.

use std::fmt;

use xsend_wire::ethernet::Tags;

use crate::{Link, LinkError};

/// The Ethernet device that carries an interface's frames, and the VLAN tags that they have on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// The device: where AF_XDP sockets and programs belong.
    pub device: Link,
    /// The tags, outermost first, their priorities 0; none when the interface is the device itself.
    pub tags: Tags,
}

/// Why an interface's frames cannot be handed to a device.
#[derive(Debug)]
pub enum UnderlayError {
    /// The interface spreads or bridges frames over others, by rules that only the kernel follows.
    Upper {
        /// The interface.
        interface: String,
        /// Its kind: `bridge`, `bond`, `macvlan`, ...
        kind: String,
    },
    /// The interface is a VLAN in a VLAN in a VLAN.
    TooManyTags {
        /// The interface asked for.
        interface: String,
    },
    /// The interface below is in another network namespace.
    Elsewhere {
        /// The interface above it.
        interface: String,
    },
    /// The interface below cannot be looked up.
    Link(LinkError),
}

impl fmt::Display for UnderlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upper { interface, kind }
                if matches!(kind.as_str(), "bridge" | "bond" | "team" | "vrf") =>
            {
                write!(
                    f,
                    "{interface} is a {kind}, which only the kernel can send through: use an interface that is not part \
                     of it (`ip link show master {interface}` lists its parts)"
                )
            }
            Self::Upper { interface, kind } => write!(
                f,
                "{interface} is a {kind}, which only the kernel can send through: use the interface below it \
                 (`ip link show {interface}` names it behind the @)"
            ),
            Self::TooManyTags { interface } => {
                write!(
                    f,
                    "frames of {interface} have more than two VLAN tags: use an interface with two or fewer"
                )
            }
            Self::Elsewhere { interface } => write!(
                f,
                "the interface that carries {interface} is in another network namespace: run there, or move \
                 {interface} to it"
            ),
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for UnderlayError {}

/// Kinds of interfaces that are no device themselves; what they do with a frame is up to the kernel.
const UPPER: [&str; 10] =
    ["bridge", "bond", "team", "vrf", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "hsr"];

impl Underlay {
    /// Goes down from `link`: through its VLANs, if it is one, to the device.
    ///
    /// # Errors
    ///
    /// See [`UnderlayError`].
    pub fn of(link: &Link) -> Result<Self, UnderlayError> {
        descend(link, Link::by_index)
    }
}

fn descend(
    link: &Link,
    mut lower: impl FnMut(u32) -> Result<Link, LinkError>,
) -> Result<Underlay, UnderlayError> {
    let mut device = link.clone();
    let mut innermost_first = Vec::new();
    while let Some(vlan) = device.vlan {
        if innermost_first.len() == xsend_wire::ethernet::MAX_TAGS {
            return Err(UnderlayError::TooManyTags { interface: link.name.clone() });
        }
        innermost_first.push(vlan.tag);
        let Some(index) = vlan.lower else {
            return Err(UnderlayError::Elsewhere { interface: device.name });
        };
        device = lower(index).map_err(UnderlayError::Link)?;
    }
    if let Some(kind) = device.kind.as_deref().filter(|kind| UPPER.contains(kind)) {
        let kind = kind.to_owned();
        return Err(UnderlayError::Upper { interface: device.name, kind });
    }
    let mut tags = Tags::default();
    for tag in innermost_first.into_iter().rev() {
        tags.push(tag);
    }
    Ok(Underlay { device, tags })
}

#[cfg(test)]
mod tests {
    use xsend_wire::{Mac, ethernet::Tag};

    use super::*;
    use crate::{Hardware, Vlan};

    fn link(index: u32, name: &str, kind: Option<&str>, vlan: Option<Vlan>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mac: Mac::default(),
            mtu: 1500,
            ipv6_mtu: None,
            up: true,
            running: true,
            hardware: Hardware::Ethernet,
            kind: kind.map(str::to_owned),
            driver: None,
            rx_queues: 1,
            tx_queues: 1,
            vlan,
            master: None,
            xdp: None,
        }
    }

    fn vlan(index: u32, id: u16, lower: Option<u32>) -> Link {
        let tag = Tag { protocol: 0x8100, control: id };
        link(index, &format!("vlan{id}"), Some("vlan"), Some(Vlan { tag, lower }))
    }

    fn down(from: &Link, all: &[Link]) -> Result<Underlay, UnderlayError> {
        descend(from, |index| {
            all.iter().find(|link| link.index == index).cloned().ok_or(LinkError::NoSuchIndex { index })
        })
    }

    #[test]
    fn a_device_carries_its_own_frames_untagged() {
        let eth = link(2, "eth0", None, None);
        assert_eq!(down(&eth, &[]).unwrap(), Underlay { device: eth, tags: Tags::default() });
    }

    #[test]
    fn tags_stand_outermost_first() {
        let eth = link(2, "eth0", None, None);
        let (outer, inner) = (vlan(3, 5, Some(2)), vlan(4, 10, Some(3)));
        let all = [eth.clone(), outer.clone(), inner.clone()];
        let ids = |link| {
            let Underlay { device, tags } = down(link, &all).unwrap();
            assert_eq!(device, eth);
            tags.as_slice().iter().map(|tag| tag.vlan()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&outer), [5]);
        assert_eq!(ids(&inner), [5, 10]);
    }

    #[test]
    fn what_cannot_be_descended_is_told() {
        let bond = link(2, "bond0", Some("bond"), None);
        let error = down(&vlan(3, 5, Some(2)), std::slice::from_ref(&bond)).unwrap_err();
        assert!(
            matches!(&error, UnderlayError::Upper { interface, kind } if interface == "bond0" && kind == "bond")
        );
        assert!(error.to_string().contains("`ip link show master bond0`"), "{error}");
        let error = down(&link(2, "mv0", Some("macvlan"), None), &[]).unwrap_err();
        assert!(error.to_string().contains("mv0 is a macvlan"), "{error}");
        let error = down(&vlan(3, 5, None), &[]).unwrap_err();
        assert!(matches!(error, UnderlayError::Elsewhere { .. }), "{error}");
        let error = down(&vlan(3, 5, Some(9)), &[]).unwrap_err();
        assert!(matches!(error, UnderlayError::Link(LinkError::NoSuchIndex { index: 9 })), "{error}");
        // In a circle, which the kernel does not allow: bounded all the same.
        let error = down(&vlan(3, 5, Some(3)), &[vlan(3, 5, Some(3))]).unwrap_err();
        assert!(matches!(error, UnderlayError::TooManyTags { .. }), "{error}");
    }
}
