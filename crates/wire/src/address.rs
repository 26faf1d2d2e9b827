//! The two addresses of an IP packet, of either family.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::{ipv4, ipv6};

/// The two addresses of an IP packet. That they are of one family is in the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpPair {
    /// Of an IPv4 packet.
    V4 {
        /// The sender's.
        source: Ipv4Addr,
        /// The receiver's.
        destination: Ipv4Addr,
    },
    /// Of an IPv6 packet.
    V6 {
        /// The sender's.
        source: Ipv6Addr,
        /// The receiver's.
        destination: Ipv6Addr,
    },
}

impl IpPair {
    /// Pairs two addresses. IPv4-mapped ones (RFC 4291 2.5.5.2) stand for IPv4 addresses: they do not belong on
    /// the wire.
    ///
    /// # Errors
    ///
    /// [`MixedFamilies`] if one is of IPv4 and the other of IPv6.
    pub fn new(source: IpAddr, destination: IpAddr) -> Result<IpPair, MixedFamilies> {
        match (source.to_canonical(), destination.to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(IpPair::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(IpPair::V6 { source, destination }),
            (source, destination) => Err(MixedFamilies { source, destination }),
        }
    }

    /// The sender's address.
    #[inline]
    pub const fn source(self) -> IpAddr {
        match self {
            IpPair::V4 { source, .. } => IpAddr::V4(source),
            IpPair::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The receiver's address.
    #[inline]
    pub const fn destination(self) -> IpAddr {
        match self {
            IpPair::V4 { destination, .. } => IpAddr::V4(destination),
            IpPair::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// The addresses of an answer.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> IpPair {
        match self {
            IpPair::V4 { source, destination } => IpPair::V4 { source: destination, destination: source },
            IpPair::V6 { source, destination } => IpPair::V6 { source: destination, destination: source },
        }
    }

    /// Length in bytes of the IP header that a [`crate::Template`] writes between these addresses: 20 or 40.
    /// The MTU less this and the TCP header is the largest segment.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            IpPair::V4 { .. } => ipv4::MIN_HEADER_LEN,
            IpPair::V6 { .. } => ipv6::HEADER_LEN,
        }
    }

    /// The sum of the pseudo-header that the checksum of a message covers (RFC 9293 3.1 for IPv4, RFC 8200 8.1
    /// for IPv6): these addresses, its protocol, and its length in bytes, which is at most 65535.
    #[inline]
    pub fn pseudo_header(self, protocol: u8, len: u32) -> Sum {
        match self {
            IpPair::V4 { source, destination } => ipv4::pseudo_header(source, destination, protocol, len),
            IpPair::V6 { source, destination } => ipv6::pseudo_header(source, destination, protocol, len),
        }
    }
}

/// Two addresses of which one is of IPv4 and the other of IPv6: no packet goes from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedFamilies {
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
}

impl fmt::Display for MixedFamilies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MixedFamilies { source, destination } = self;
        write!(f, "no packet goes from {source} to {destination}: choose two addresses of one family")
    }
}

impl core::error::Error for MixedFamilies {}
