//! Ethernet II headers with up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use core::fmt;

use crate::field::fixed;
use crate::{Layer, Malformed};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// Tag protocol of a customer VLAN tag (802.1Q).
pub const TPID_CUSTOMER: u16 = 0x8100;
/// Tag protocol of a service VLAN tag (802.1ad, "QinQ").
pub const TPID_SERVICE: u16 = 0x88a8;

/// Header length without tags, in bytes.
pub const HEADER_LEN: usize = 14;
/// Length of one VLAN tag, in bytes.
pub const TAG_LEN: usize = 4;
/// The most VLAN tags that are read; a frame with more has a VLAN tag as its EtherType.
pub const MAX_TAGS: usize = 2;

/// An Ethernet hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether this is a group address, the broadcast address included.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// [`TPID_CUSTOMER`] or [`TPID_SERVICE`].
    pub protocol: u16,
    /// Priority (3 bits), drop eligible (1 bit), VLAN identifier (12 bits).
    pub control: u16,
}

impl Tag {
    /// An 802.1Q tag, which is what a VLAN sub-interface adds unless it was told otherwise.
    pub const fn customer(control: u16) -> Tag {
        Tag { protocol: TPID_CUSTOMER, control }
    }

    /// An 802.1ad tag, the outer one of two.
    pub const fn service(control: u16) -> Tag {
        Tag { protocol: TPID_SERVICE, control }
    }

    /// The VLAN identifier, 0 to 4095.
    pub const fn vlan(self) -> u16 {
        self.control & 0x0fff
    }
}

/// The VLAN tags of a frame, outermost first; at most [`MAX_TAGS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    tags: [Tag; MAX_TAGS],
    len: u8,
}

impl Tags {
    /// No tag.
    pub const NONE: Tags = Tags { tags: [Tag { protocol: 0, control: 0 }; MAX_TAGS], len: 0 };

    /// One tag.
    pub const fn one(tag: Tag) -> Tags {
        Tags { tags: [tag, Tag { protocol: 0, control: 0 }], len: 1 }
    }

    /// Two tags.
    pub const fn two(outer: Tag, inner: Tag) -> Tags {
        Tags { tags: [outer, inner], len: 2 }
    }

    /// Whether the frame is on the same VLANs: the same identifiers under the same protocols, whatever the
    /// priorities.
    pub fn same_vlans(&self, other: &Tags) -> bool {
        let vlans = |tags: &Tags| tags.tags.map(|tag| (tag.protocol, tag.vlan()));
        self.len == other.len && vlans(self) == vlans(other)
    }

    /// Adds a tag on the inside; `false` and no change if there are [`MAX_TAGS`] already.
    pub fn push(&mut self, tag: Tag) -> bool {
        let Some(slot) = self.tags.get_mut(usize::from(self.len)) else { return false };
        *slot = tag;
        self.len += 1;
        true
    }

    /// Length on the wire, 0 to 8 bytes.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        TAG_LEN * self.len as usize
    }

    /// The tags, outermost first.
    #[inline]
    pub fn as_slice(&self) -> &[Tag] {
        &self.tags[..usize::from(self.len)]
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Where the frame goes.
    pub destination: Mac,
    /// Where it comes from.
    pub source: Mac,
    /// Its VLAN tags, outermost first.
    pub tags: Tags,
    /// What follows; below 0x0600 it is an 802.3 length.
    pub ethertype: u16,
}

impl Header {
    /// Reads the header at the start of `frame` and returns it with its length, 14 to 22 bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] if the frame ends inside the header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Header, usize), Malformed> {
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] =
            fixed::<HEADER_LEN>(frame, Layer::Ethernet)?;
        let mut ethertype = u16::from_be_bytes([t0, t1]);
        let mut tags = Tags::default();
        let mut len = HEADER_LEN;
        while matches!(ethertype, TPID_CUSTOMER | TPID_SERVICE) && usize::from(tags.len) < MAX_TAGS {
            let Some(&[c0, c1, t0, t1]) = frame.get(len..).and_then(<[u8]>::first_chunk) else {
                let needed = len + TAG_LEN;
                return Err(Malformed::Truncated { layer: Layer::Ethernet, needed, found: frame.len() });
            };
            tags.push(Tag { protocol: ethertype, control: u16::from_be_bytes([c0, c1]) });
            ethertype = u16::from_be_bytes([t0, t1]);
            len += TAG_LEN;
        }
        let destination = Mac([d0, d1, d2, d3, d4, d5]);
        let source = Mac([s0, s1, s2, s3, s4, s5]);
        Ok((Header { destination, source, tags, ethertype }, len))
    }

    /// Length on the wire, 14 to 22 bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.tags.wire_len()
    }

    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`Header::header_len`].
    pub fn build(&self, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&self.destination.0);
        out[6..12].copy_from_slice(&self.source.0);
        let mut at = 12;
        for tag in self.tags.as_slice() {
            out[at..at + 2].copy_from_slice(&tag.protocol.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&tag.control.to_be_bytes());
            at += TAG_LEN;
        }
        out[at..at + 2].copy_from_slice(&self.ethertype.to_be_bytes());
        at + 2
    }
}
