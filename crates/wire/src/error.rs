//! Why a frame was refused.

use core::fmt;

use crate::ipv6::{MAX_EXTENSION_HEADERS, MAX_EXTENSION_LEN};

/// The header that a [`Malformed`] error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The Ethernet header, VLAN tags included.
    Ethernet,
    /// The IPv4 header.
    Ipv4,
    /// The IPv6 header.
    Ipv6,
    /// An extension header of IPv6.
    Extension,
    /// The TCP header.
    Tcp,
    /// The ICMP message, of IPv4 or IPv6.
    Icmp,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ethernet => "Ethernet",
            Layer::Ipv4 => "IPv4",
            Layer::Ipv6 => "IPv6",
            Layer::Extension => "IPv6 extension",
            Layer::Tcp => "TCP",
            Layer::Icmp => "ICMP",
        })
    }
}

/// What is wrong with a frame. Such a frame is to be counted and dropped, as the stack of any host would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the header, or the length it declares, does.
    Truncated {
        /// The header that is cut short.
        layer: Layer,
        /// Bytes that were needed.
        needed: usize,
        /// Bytes that were there.
        found: usize,
    },
    /// A length field is smaller than the least that its header allows.
    HeaderLength {
        /// The header that declares it.
        layer: Layer,
        /// The declared length in bytes.
        declared: usize,
    },
    /// The version field is not that of the header it is in.
    Version {
        /// The header that it should be: [`Layer::Ipv4`] or [`Layer::Ipv6`].
        layer: Layer,
        /// The version that the field holds.
        found: u8,
    },
    /// The checksum does not match.
    Checksum(Layer),
    /// A TCP option's length is below two or runs past the header (RFC 9293 3.2, MUST-7).
    OptionLength {
        /// The option's kind.
        kind: u8,
        /// Its declared length in bytes; zero also if the length octet itself is missing.
        declared: u8,
    },
    /// An IPv6 packet that declares more than 65535 bytes (RFC 2675). No link carries one.
    Jumbogram,
    /// A chain of IPv6 extension headers that is not followed to its end.
    Extension(ExtensionFault),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Malformed::Truncated { layer, needed, found } => {
                write!(f, "{layer} header or packet cut short: {needed} bytes needed, {found} found")
            }
            Malformed::HeaderLength { layer, declared } => {
                write!(f, "{layer} length field is impossibly small: {declared} bytes")
            }
            Malformed::Version { layer, found } => write!(f, "{layer} header with IP version {found}"),
            Malformed::Checksum(layer) => write!(f, "wrong {layer} checksum"),
            Malformed::OptionLength { kind, declared } => {
                write!(f, "TCP option {kind} with impossible length {declared}")
            }
            Malformed::Jumbogram => f.write_str("IPv6 jumbogram"),
            Malformed::Extension(fault) => write!(f, "IPv6 extension headers refused: {fault}"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Why a chain of IPv6 extension headers is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionFault {
    /// There are more than [`MAX_EXTENSION_HEADERS`].
    TooMany,
    /// They are longer than [`MAX_EXTENSION_LEN`] bytes together.
    TooLong,
    /// Hop-by-hop options follow another header (RFC 8200 section 4).
    HopByHopNotFirst,
    /// An option is unknown here and wants the packet discarded where it is (RFC 8200 4.2).
    UnknownOption {
        /// The option's type.
        kind: u8,
    },
    /// An option's length is missing, or runs past its header.
    OptionLength {
        /// The option's type.
        kind: u8,
    },
}

impl fmt::Display for ExtensionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ExtensionFault::TooMany => write!(f, "more than {MAX_EXTENSION_HEADERS}"),
            ExtensionFault::TooLong => write!(f, "longer than {MAX_EXTENSION_LEN} bytes"),
            ExtensionFault::HopByHopNotFirst => f.write_str("hop-by-hop options behind another header"),
            ExtensionFault::UnknownOption { kind } => write!(f, "unknown option {kind:#04x}"),
            ExtensionFault::OptionLength { kind } => write!(f, "option {kind:#04x} runs past its header"),
        }
    }
}
