//! The kernel's neighbour tables (ARP for IPv4, neighbour discovery for IPv6): reading an entry, and making the kernel resolve or verify one.
//!
//! The kernel forgets neighbours that it does not itself talk to, and it never sees what is sent past it. `NTF_USE` tells
//! it that an entry is in use: an unknown neighbour is then asked for by broadcast or multicast, a stale one is verified. That is
//! preferred to `NTF_EXT_MANAGED`, with which the kernel would repeat it by itself, because that flag outlives a process
//! that is killed, while an entry that is merely used ages like any other.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_CREATE;
use xsend_wire::Mac;

use crate::{
    netlink::{
        Message, Netlink, NetlinkError,
        attribute::{Attributes, Request, family_of},
    },
    uapi::{neigh, rt},
};

/// `struct ndmsg`: family, padding, interface index, state, flags, type.
const HEADER_LEN: usize = 12;

/// What the kernel thinks of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Known for certain: verified lately, or configured.
    Certain,
    /// Known, but not verified lately; may be on its way to be (DELAY), or not.
    Doubtful,
    /// Known, and being verified.
    Verifying,
    /// Unknown, and being asked for.
    Asking,
    /// Unknown: no answer, or never asked for.
    Unknown,
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    state: u16,
    flags: u8,
    ext_flags: u32,
    mac: Option<Mac>,
}

impl Neighbour {
    /// The hardware address, while the kernel would use it.
    pub(crate) fn mac(&self) -> Option<Mac> {
        match self.standing() {
            Standing::Certain | Standing::Doubtful | Standing::Verifying => self.mac,
            Standing::Asking | Standing::Unknown => None,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.state {
            neigh::STATE_REACHABLE | neigh::STATE_NOARP | neigh::STATE_PERMANENT => Standing::Certain,
            neigh::STATE_STALE | neigh::STATE_DELAY => Standing::Doubtful,
            neigh::STATE_PROBE => Standing::Verifying,
            neigh::STATE_INCOMPLETE => Standing::Asking,
            _ => Standing::Unknown,
        }
    }

    /// The kernel asked and got no answer.
    pub(crate) fn failed(&self) -> bool {
        self.state == neigh::STATE_FAILED
    }

    /// Somebody takes care of the entry: it is none of ours to remove.
    fn is_kept_by_others(&self) -> bool {
        self.state & (neigh::STATE_PERMANENT | neigh::STATE_NOARP) != 0
            || self.flags & neigh::FLAG_EXT_LEARNED != 0
            || self.ext_flags & neigh::EXT_MANAGED != 0
    }
}

/// Reads a neighbour message: interface index, address, entry. None for other families and what cannot be read.
pub(crate) fn parse(message: &Message) -> Option<(u32, IpAddr, Neighbour)> {
    let header: &[u8; HEADER_LEN] = message.body.first_chunk()?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *header;
    if !matches!(message.kind, rt::NEWNEIGH | rt::DELNEIGH) {
        return None;
    }
    let attributes = Attributes::after(&message.body, HEADER_LEN);
    let entry = Neighbour {
        state: u16::from_ne_bytes([s0, s1]),
        flags,
        ext_flags: attributes.u32(neigh::FLAGS_EXT).unwrap_or(0),
        mac: attributes.mac(neigh::LLADDR),
    };
    // What a bridge says about its table has addresses of other kinds.
    let address = attributes.ip(neigh::DST).filter(|address| family_of(*address) == family)?;
    Some((u32::from_ne_bytes([i0, i1, i2, i3]), address, entry))
}

/// The entry of `address` on the interface `index`; none when there is none.
pub(crate) fn get(
    netlink: &mut Netlink,
    index: u32,
    address: IpAddr,
) -> Result<Option<Neighbour>, NetlinkError> {
    let ask = request(rt::GETNEIGH, 0, index, address, 0, 0);
    match netlink.ask(&ask, "look up the neighbour") {
        Ok(message) => Ok(parse(&message).map(|(_, _, entry)| entry)),
        // No entry, and since some version also no interface.
        Err(error) if matches!(error.refusal(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Tells the kernel that the neighbour is in use: it resolves an unknown one, and verifies a doubtful one in a while.
///
/// `known` is the entry as last seen. One that is certain by configuration must not be used: the kernel would take the
/// use for a change of its state and forget that it is permanent.
pub(crate) fn use_entry(
    netlink: &mut Netlink,
    index: u32,
    address: IpAddr,
    known: Option<&Neighbour>,
) -> Result<(), NetlinkError> {
    if known.is_some_and(|entry| entry.standing() == Standing::Certain) {
        return Ok(());
    }
    let create = if known.is_none() { NLM_F_CREATE } else { 0 };
    let ask = request(rt::NEWNEIGH, create, index, address, 0, neigh::FLAG_USE | kept(known));
    netlink.tell(&keep_flags(ask, known), "make the kernel resolve the neighbour")
}

/// Makes the kernel verify a known neighbour now, by asking it directly, instead of some seconds after its next use.
/// EINVAL if it is no longer known.
pub(crate) fn verify(
    netlink: &mut Netlink,
    index: u32,
    address: IpAddr,
    known: &Neighbour,
) -> Result<(), NetlinkError> {
    // Without a hardware address the kernel keeps the one it has, which may be newer than `known`.
    let ask = request(rt::NEWNEIGH, 0, index, address, neigh::STATE_PROBE, kept(Some(known)));
    netlink.tell(&keep_flags(ask, Some(known)), "make the kernel verify the neighbour")
}

/// Removes the entry, unless somebody else has come to keep it.
pub(crate) fn remove(netlink: &mut Netlink, index: u32, address: IpAddr) -> Result<(), NetlinkError> {
    match get(netlink, index, address)? {
        Some(entry) if !entry.is_kept_by_others() => {
            let ask = request(rt::DELNEIGH, 0, index, address, 0, 0);
            netlink.tell(&ask, "remove the neighbour")
        }
        _ => Ok(()),
    }
}

/// Flags that the kernel takes away from an entry if an update does not repeat them.
fn kept(known: Option<&Neighbour>) -> u8 {
    known.map_or(0, |entry| entry.flags & (neigh::FLAG_EXT_LEARNED | neigh::FLAG_ROUTER))
}

fn keep_flags(request: Request, known: Option<&Neighbour>) -> Request {
    match known.map_or(0, |entry| entry.ext_flags & (neigh::EXT_MANAGED | neigh::EXT_VALIDATED)) {
        0 => request,
        flags => request.u32(neigh::FLAGS_EXT, flags),
    }
}

fn request(kind: u16, netlink_flags: u16, index: u32, address: IpAddr, state: u16, flags: u8) -> Request {
    let mut header = [0; HEADER_LEN];
    header[0] = family_of(address);
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = flags;
    Request::new(kind, netlink_flags, &header).ip(neigh::DST, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)),
        IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7)),
    ];

    fn entry(state: u16) -> Neighbour {
        Neighbour { state, flags: 0, ext_flags: 0, mac: Some(Mac([2, 0, 0, 0, 0, 1])) }
    }

    #[test]
    fn a_neighbour_message_is_read() {
        for expected in ADDRESSES {
            let built = request(rt::NEWNEIGH, 0, 9, expected, neigh::STATE_STALE, neigh::FLAG_ROUTER)
                .bytes(neigh::LLADDR, &[2, 0, 0, 0, 0, 1])
                .u32(neigh::FLAGS_EXT, neigh::EXT_MANAGED);
            let message = Message { kind: rt::NEWNEIGH, cause: 0, body: built.body.clone() };
            let (index, address, read) = parse(&message).unwrap();
            assert_eq!((index, address), (9, expected));
            assert_eq!(read.mac(), Some(Mac([2, 0, 0, 0, 0, 1])));
            assert_eq!(read.standing(), Standing::Doubtful);
            assert!(read.is_kept_by_others(), "managed");
            assert_eq!(parse(&Message { kind: rt::NEWLINK, cause: 0, body: built.body.clone() }), None);
            let mut other_family = built.body;
            other_family[0] = libc::AF_BRIDGE as u8;
            assert_eq!(parse(&Message { kind: rt::NEWNEIGH, cause: 0, body: other_family }), None);
        }
        assert_eq!(parse(&Message { kind: rt::NEWNEIGH, cause: 0, body: vec![2; 11] }), None);
    }

    #[test]
    fn a_neighbour_message_of_bytes_is_read() {
        // As the kernel sent it: AF_INET6, interface 3, REACHABLE, router; fe80::1 at 52:54:00:12:34:56.
        let body = vec![
            10, 0, 0, 0, 3, 0, 0, 0, 0x02, 0, 0x80, 1, // struct ndmsg
            20, 0, 1, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // NDA_DST
            10, 0, 2, 0, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 0, 0, // NDA_LLADDR, padded
        ];
        let (index, address, read) = parse(&Message { kind: rt::NEWNEIGH, cause: 0, body }).unwrap();
        assert_eq!((index, address), (3, "fe80::1".parse().unwrap()));
        assert_eq!(
            (read.mac(), read.standing()),
            (Some(Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56])), Standing::Certain)
        );
    }

    #[test]
    fn an_address_counts_only_while_the_kernel_would_use_it() {
        for state in [
            neigh::STATE_REACHABLE,
            neigh::STATE_STALE,
            neigh::STATE_DELAY,
            neigh::STATE_PROBE,
            neigh::STATE_NOARP,
            neigh::STATE_PERMANENT,
        ] {
            assert!(entry(state).mac().is_some(), "state {state:#x}");
        }
        for state in [0, neigh::STATE_INCOMPLETE, neigh::STATE_FAILED] {
            assert_eq!(entry(state).mac(), None, "state {state:#x}");
        }
    }

    #[test]
    fn an_entry_somebody_keeps_is_not_removed() {
        assert!(entry(neigh::STATE_PERMANENT).is_kept_by_others());
        assert!(!entry(neigh::STATE_REACHABLE).is_kept_by_others());
        let learned = Neighbour { flags: neigh::FLAG_EXT_LEARNED, ..entry(neigh::STATE_REACHABLE) };
        assert!(learned.is_kept_by_others());
    }

    #[test]
    fn an_update_repeats_the_flags_that_it_must_not_take_away() {
        let known = Neighbour {
            flags: neigh::FLAG_EXT_LEARNED | neigh::FLAG_USE,
            ext_flags: neigh::EXT_MANAGED | 1 << 30,
            ..entry(neigh::STATE_STALE)
        };
        assert_eq!(kept(Some(&known)), neigh::FLAG_EXT_LEARNED);
        let built = keep_flags(Request::new(0, 0, &[]), Some(&known));
        assert_eq!(Attributes::of(&built.body).u32(neigh::FLAGS_EXT), Some(neigh::EXT_MANAGED));
        assert!(keep_flags(Request::new(0, 0, &[]), None).body.is_empty());
    }
}
