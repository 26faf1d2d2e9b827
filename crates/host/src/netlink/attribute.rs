//! Attributes: reading those that are known and skipping all others, and building requests.
//!
//! A reader asks for the attributes that it needs and ignores the rest, so that what a newer kernel adds, or lengthens,
//! is never an error.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NlaBuffer, NlasIterator};
use xsend_wire::Mac;

/// A list of attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The attributes that follow `header_len` bytes of a message's own header; none when the body is too short.
    pub(crate) fn after(body: &'a [u8], header_len: usize) -> Self {
        Self(body.get(header_len..).unwrap_or_default())
    }

    /// Number and value of each, up to the first whose length makes no sense.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(|attribute| {
            let attribute = attribute.ok()?;
            let (kind, len) = (attribute.kind(), usize::from(attribute.length()));
            // `into_inner` gives what is left of the list, which the attribute begins.
            let value = attribute.into_inner().get(netlink_packet_core::NLA_HEADER_SIZE..len)?;
            Some((kind, value))
        })
    }

    /// The value of the first attribute of this number.
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find_map(|(k, value)| (k == kind).then_some(value))
    }

    pub(crate) fn u16(self, kind: u16) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.get(kind)?.first_chunk()?))
    }

    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.get(kind)?.first_chunk()?))
    }

    pub(crate) fn u64(self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.get(kind)?.first_chunk()?))
    }

    /// An attribute that may be four bytes or eight (the kernel shortens such numbers where they fit).
    pub(crate) fn uint(self, kind: u16) -> Option<u64> {
        self.u64(kind).or_else(|| self.u32(kind).map(u64::from))
    }

    /// A number in the network's byte order.
    pub(crate) fn be16(self, kind: u16) -> Option<u16> {
        Some(u16::from_be_bytes(*self.get(kind)?.first_chunk()?))
    }

    /// An address, whose length tells its family.
    pub(crate) fn ip(self, kind: u16) -> Option<IpAddr> {
        address(self.get(kind)?)
    }

    /// A hardware address of six bytes; one of another length is none.
    pub(crate) fn mac(self, kind: u16) -> Option<Mac> {
        Some(Mac(self.get(kind)?.try_into().ok()?))
    }

    /// A string, up to its terminating zero.
    pub(crate) fn string(self, kind: u16) -> Option<String> {
        let bytes = self.get(kind)?;
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    /// The attributes inside of an attribute; an empty list when it is missing.
    pub(crate) fn nested(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    /// The attributes inside of `value`.
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Self(value)
    }
}

/// A request under construction: the family's own header, then attributes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: u16,
    /// Flags besides NLM_F_REQUEST and those that the way of asking implies.
    pub(crate) flags: u16,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        Self { kind, flags, body: header.to_vec() }
    }

    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        append(&mut self.body, kind, value.to_vec());
        self
    }

    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(crate) fn ip(self, kind: u16, value: IpAddr) -> Self {
        match value {
            IpAddr::V4(value) => self.bytes(kind, &value.octets()),
            IpAddr::V6(value) => self.bytes(kind, &value.octets()),
        }
    }

    pub(crate) fn string(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// An attribute that holds one attribute of four bytes.
    pub(crate) fn nested_u32(self, outer: u16, inner: u16, value: u32) -> Self {
        let mut nest = Vec::new();
        append(&mut nest, inner, value.to_ne_bytes().to_vec());
        self.bytes(outer | NLA_F_NESTED, &nest)
    }
}

/// Reads an address of four bytes or of sixteen.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?));
    let v6 = || Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?));
    v4().or_else(v6)
}

/// AF_INET or AF_INET6, as the headers of messages have it.
pub(crate) fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn append(to: &mut Vec<u8>, kind: u16, value: Vec<u8>) {
    let attribute = DefaultNla::new(kind, value);
    let start = to.len();
    to.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut to[start..]);
    debug_assert!(NlaBuffer::new_checked(&to[start..]).is_ok(), "an attribute is shorter than 64 KiB");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let request = Request::new(18, 0, &[9; 16])
            .string(3, "veth0")
            .u32(4, 9000)
            .ip(1, IpAddr::from([10, 1, 2, 3]))
            .ip(2, IpAddr::from([7; 16]))
            .bytes(7, &[2, 0, 0, 0, 0, 7])
            .nested_u32(40, 2, 77);
        assert_eq!(request.body.len() % 4, 0, "attributes are padded to four bytes");
        let attributes = Attributes::after(&request.body, 16);
        assert_eq!(attributes.string(3).as_deref(), Some("veth0"));
        assert_eq!(attributes.u32(4), Some(9000));
        assert_eq!(attributes.ip(1), Some(IpAddr::from([10, 1, 2, 3])));
        assert_eq!(attributes.ip(2), Some(IpAddr::from([7; 16])));
        assert_eq!(attributes.mac(7), Some(Mac([2, 0, 0, 0, 0, 7])));
        assert_eq!(attributes.nested(40).u32(2), Some(77), "the nested flag is not part of the number");
        assert_eq!(attributes.get(99), None);
        assert_eq!(attributes.nested(99).u32(2), None);
    }

    #[test]
    fn a_value_that_is_too_short_is_none() {
        let request = Request::new(0, 0, &[]).bytes(1, &[1, 2]).bytes(2, &[1, 2, 3]);
        let attributes = Attributes::of(&request.body);
        assert_eq!(attributes.u32(1), None);
        assert_eq!(attributes.u64(1), None);
        assert_eq!(attributes.u16(1), Some(u16::from_ne_bytes([1, 2])));
        assert_eq!(attributes.be16(1), Some(0x0102));
        assert_eq!(attributes.ip(2), None);
        assert_eq!(attributes.mac(2), None);
    }

    #[test]
    fn numbers_of_either_length_are_read() {
        let request = Request::new(0, 0, &[]).u32(1, 5).bytes(2, &(1u64 << 40).to_ne_bytes());
        let attributes = Attributes::of(&request.body);
        assert_eq!(attributes.uint(1), Some(5));
        assert_eq!(attributes.uint(2), Some(1 << 40));
    }

    #[test]
    fn reading_ends_at_a_length_that_makes_no_sense() {
        let mut bytes = Request::new(0, 0, &[]).u32(1, 5).u32(2, 6).body;
        bytes[8] = 200; // The second attribute claims more than there is.
        let attributes = Attributes::of(&bytes);
        assert_eq!(attributes.u32(1), Some(5));
        assert_eq!(attributes.u32(2), None);
        bytes[8] = 3; // Shorter than its own header.
        assert_eq!(Attributes::of(&bytes).iter().count(), 1);
        assert_eq!(Attributes::after(&bytes, 4096).iter().count(), 0);
        for len in 0..bytes.len() {
            let _ = Attributes::of(&bytes[..len]).iter().count();
        }
    }

    #[test]
    fn a_string_ends_at_its_zero_or_at_the_attribute() {
        let request = Request::new(0, 0, &[]).bytes(1, b"ab\0cd").bytes(2, b"abc").bytes(3, b"");
        let attributes = Attributes::of(&request.body);
        assert_eq!(attributes.string(1).as_deref(), Some("ab"));
        assert_eq!(attributes.string(2).as_deref(), Some("abc"));
        assert_eq!(attributes.string(3).as_deref(), Some(""));
    }
}
