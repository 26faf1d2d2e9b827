//! The chain of extension headers (RFC 8200 section 4), followed up to a bound.

use crate::error::ExtensionFault;
use crate::field::{fixed, prefix};
use crate::{Layer, Malformed};

/// The most extension headers that are followed: hop-by-hop options, destination options, routing, fragment,
/// destination options, which is every one that RFC 8200 4.1 recommends and that is not of IPsec.
pub const MAX_EXTENSION_HEADERS: usize = 5;
/// The most bytes of extension headers that are followed, such a limit being a node's to set (RFC 8883). A
/// routing header of eight addresses takes 136 and leaves 120 to the others.
pub const MAX_EXTENSION_LEN: usize = 256;

pub(crate) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ENCAPSULATING_SECURITY_PAYLOAD: u8 = 50;
const AUTHENTICATION: u8 = 51;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;

const PAD1: u8 = 0;
/// The jumbo payload option (RFC 2675 section 2).
const JUMBO_PAYLOAD: u8 = 0xc2;
/// The two bits of an option's type that say what becomes of the packet if the option is unknown: not zero,
/// and it is to be discarded (RFC 8200 4.2).
const DISCARD_IF_UNKNOWN: u8 = 0b1100_0000;

/// What the extension headers lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// A message of a protocol above IP, which may be cut short to nothing.
    Message {
        /// Its protocol, e.g. [`super::PROTOCOL_TCP`].
        protocol: u8,
        /// Where in the payload of the IPv6 header it starts, in bytes: the length of all extension headers.
        offset: usize,
    },
    /// Nothing that a TCP endpoint without IPsec is to read.
    NotOurs(NotOurs),
}

/// Why a packet that is intact, as far as it was read, is not ours to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// It is one fragment of several. TCP segments are never sent so that they need fragmenting, and routers of
    /// IPv6 do not fragment. A packet that is its own only fragment (RFC 6946) is read like any other.
    Fragment,
    /// A routing header sends it on: its destination is only the next of the stations on its way.
    Routed {
        /// Stations that are left.
        segments_left: u8,
    },
    /// It is authenticated (RFC 4302) or encrypted (RFC 4303): the kernel's business, which has the keys.
    Secured,
    /// It says itself that nothing follows (RFC 8200 4.7).
    Nothing,
}

/// Follows the extension headers at the start of `payload`, which is all that the IPv6 header's payload length
/// covers (or as much of it as an ICMPv6 error quotes), from the one that `next_header` names.
///
/// At most [`MAX_EXTENSION_HEADERS`] headers and [`MAX_EXTENSION_LEN`] bytes are read. Options are skipped
/// where they may be, and where they may not the packet is refused; no ICMPv6 message answers, since it is the
/// kernel that speaks for this host.
///
/// # Errors
///
/// [`Malformed`] if a header is cut short, the chain is not to be followed ([`ExtensionFault`] says why), or
/// the packet is a jumbogram.
#[inline]
pub fn upper(next_header: u8, payload: &[u8]) -> Result<Upper, Malformed> {
    match next_header {
        // Nearly every packet has none.
        super::PROTOCOL_TCP | super::PROTOCOL_ICMPV6 => {
            Ok(Upper::Message { protocol: next_header, offset: 0 })
        }
        first => follow(first, payload),
    }
}

fn follow(first: u8, payload: &[u8]) -> Result<Upper, Malformed> {
    let (mut kind, mut offset, mut headers) = (first, 0, 0);
    // Each turn but the last counts one header.
    loop {
        match kind {
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING | FRAGMENT => {}
            ENCAPSULATING_SECURITY_PAYLOAD | AUTHENTICATION => return Ok(Upper::NotOurs(NotOurs::Secured)),
            NO_NEXT_HEADER => return Ok(Upper::NotOurs(NotOurs::Nothing)),
            protocol => return Ok(Upper::Message { protocol, offset }),
        }
        // RFC 8200 section 4: a next header of zero anywhere but in the IPv6 header is an error.
        if kind == HOP_BY_HOP && headers > 0 {
            return Err(Malformed::Extension(ExtensionFault::HopByHopNotFirst));
        }
        if headers == MAX_EXTENSION_HEADERS {
            return Err(Malformed::Extension(ExtensionFault::TooMany));
        }
        headers += 1;

        // What was added to `offset` was there.
        let rest = &payload[offset..];
        let &[next, units, field_high, field_low, ..] = fixed::<8>(rest, Layer::Extension)?;
        // Length in units of 8 bytes, not counting the first; reserved in a fragment header.
        let len = if kind == FRAGMENT { 8 } else { (usize::from(units) + 1) * 8 };
        if offset + len > MAX_EXTENSION_LEN {
            return Err(Malformed::Extension(ExtensionFault::TooLong));
        }
        let header = prefix(rest, len, Layer::Extension)?;
        match kind {
            // RFC 8200 4.5: an offset of 13 bits, two reserved bits, more fragments.
            FRAGMENT if u16::from_be_bytes([field_high, field_low]) & !0b110 != 0 => {
                return Ok(Upper::NotOurs(NotOurs::Fragment));
            }
            FRAGMENT => {}
            // RFC 8200 4.4: type and segments left. With none left the header is ignored, whatever its type.
            ROUTING if field_low != 0 => {
                return Ok(Upper::NotOurs(NotOurs::Routed { segments_left: field_low }));
            }
            ROUTING => {}
            _ => skip_options(&header[2..])?,
        }
        (kind, offset) = (next, offset + len);
    }
}

/// Looks through the options of a hop-by-hop or destination options header (RFC 8200 4.2), each at least one
/// byte of the header's bounded length.
fn skip_options(mut options: &[u8]) -> Result<(), Malformed> {
    while let &[kind, ref rest @ ..] = options {
        let after = match kind {
            PAD1 => Some(rest),
            JUMBO_PAYLOAD => return Err(Malformed::Jumbogram),
            _ if kind & DISCARD_IF_UNKNOWN != 0 => {
                return Err(Malformed::Extension(ExtensionFault::UnknownOption { kind }));
            }
            _ => rest.split_first().and_then(|(&len, value)| value.get(usize::from(len)..)),
        };
        let Some(after) = after else {
            return Err(Malformed::Extension(ExtensionFault::OptionLength { kind }));
        };
        options = after;
    }
    Ok(())
}
