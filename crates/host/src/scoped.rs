//! Addresses that need an interface to mean something.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use crate::uapi::link::NAME_MAX;

/// An address and, where that is link-local, the interface that it belongs to: `fe80::1%eth0` (RFC 4007 11).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopedAddr {
    /// The address.
    pub address: IpAddr,
    /// The interface's name, or its index in digits; none when the address does not need one, or none was given.
    pub zone: Option<String>,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopedAddrError {
    /// What stands before the `%`, or all of it, is no IP address.
    NotAnAddress {
        /// The text.
        text: String,
    },
    /// What stands behind the `%` can be no interface's name.
    NotAZone {
        /// The text.
        text: String,
    },
    /// Only link-local IPv6 addresses belong to an interface.
    NeedsNoZone {
        /// The text.
        text: String,
    },
}

impl fmt::Display for ScopedAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnAddress { text } => {
                write!(f, "{text:?} is not an IP address (10.0.0.2, 2001:db8::2, fe80::2%eth0)")
            }
            Self::NotAZone { text } => write!(f, "{text:?} names no interface behind the %"),
            Self::NeedsNoZone { text } => {
                write!(
                    f,
                    "{text:?} names an interface, which only a link-local IPv6 address (fe80::...) does"
                )
            }
        }
    }
}

impl std::error::Error for ScopedAddrError {}

impl FromStr for ScopedAddr {
    type Err = ScopedAddrError;

    fn from_str(text: &str) -> Result<Self, ScopedAddrError> {
        let (address, zone) = match text.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| ScopedAddrError::NotAnAddress { text: text.to_owned() })?;
        let Some(zone) = zone else { return Ok(Self { address, zone: None }) };
        let IpAddr::V6(v6) = address else {
            return Err(ScopedAddrError::NeedsNoZone { text: text.to_owned() });
        };
        if !is_link_local(v6) {
            return Err(ScopedAddrError::NeedsNoZone { text: text.to_owned() });
        }
        let possible = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | '%');
        if !(1..=NAME_MAX).contains(&zone.len()) || !zone.chars().all(possible) {
            return Err(ScopedAddrError::NotAZone { text: text.to_owned() });
        }
        Ok(Self { address, zone: Some(zone.to_owned()) })
    }
}

impl From<IpAddr> for ScopedAddr {
    fn from(address: IpAddr) -> Self {
        Self { address, zone: None }
    }
}

impl fmt::Display for ScopedAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        self.zone.as_deref().map_or(Ok(()), |zone| write!(f, "%{zone}"))
    }
}

/// Whether the address means something only together with an interface: fe80::/10, RFC 4291 2.5.6.
pub(crate) fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["10.1.2.3", "2001:db8::7", "fe80::1%eth0", "fe80::1%eth0.10", "fe80::1%3", "fe80::1"] {
            assert_eq!(text.parse::<ScopedAddr>().unwrap().to_string(), text);
        }
        let read: ScopedAddr = "fe80::1%eth0".parse().unwrap();
        assert_eq!((read.address, read.zone.as_deref()), ("fe80::1".parse().unwrap(), Some("eth0")));
    }

    #[test]
    fn what_is_no_scoped_address_is_told_apart() {
        let refuse = |text: &str| text.parse::<ScopedAddr>().unwrap_err();
        for text in ["", "host", "10.1.2", "%eth0", "fe80::1::2%eth0"] {
            assert!(matches!(refuse(text), ScopedAddrError::NotAnAddress { .. }), "{text}");
        }
        for text in ["fe80::1%", "fe80::1%a b", "fe80::1%a/b", "fe80::1%a%b", "fe80::1%0123456789abcdef"] {
            assert!(matches!(refuse(text), ScopedAddrError::NotAZone { .. }), "{text}");
        }
        for text in ["10.1.2.3%eth0", "2001:db8::7%eth0"] {
            assert!(matches!(refuse(text), ScopedAddrError::NeedsNoZone { .. }), "{text}");
        }
    }
}
