//! Why a frame was refused.

use core::fmt;

/// The header that a [`Malformed`] error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The Ethernet header, VLAN tags included.
    Ethernet,
    /// The IPv4 header.
    Ipv4,
    /// The TCP header.
    Tcp,
    /// The ICMP message.
    Icmp,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ethernet => "Ethernet",
            Layer::Ipv4 => "IPv4",
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
    /// The EtherType says IPv4 and the version field does not.
    Version(u8),
    /// The checksum does not match.
    Checksum(Layer),
    /// A TCP option's length is below two or runs past the header (RFC 9293 3.2, MUST-7).
    OptionLength {
        /// The option's kind.
        kind: u8,
        /// Its declared length in bytes; zero also if the length octet itself is missing.
        declared: u8,
    },
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
            Malformed::Version(version) => write!(f, "IPv4 EtherType with IP version {version}"),
            Malformed::Checksum(layer) => write!(f, "wrong {layer} checksum"),
            Malformed::OptionLength { kind, declared } => {
                write!(f, "TCP option {kind} with impossible length {declared}")
            }
        }
    }
}

impl core::error::Error for Malformed {}
