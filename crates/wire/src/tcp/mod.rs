//! TCP headers (RFC 9293 3.1) with the options that a sender deals in.

mod options;

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

use crate::checksum::Sum;
use crate::field::{fixed, prefix};
use crate::{IpPair, Layer, Malformed};

pub use options::{MAX_OPTIONS_LEN, MAX_SACK_BLOCKS, MAX_WINDOW_SCALE, Options, SackBlocks, Timestamps};

/// Protocol number of TCP, in either family.
pub const PROTOCOL: u8 = 6;
/// Header length without options, in bytes.
pub const MIN_HEADER_LEN: usize = 20;
/// The longest header, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No bit set.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: hand the data to the application.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Whether every bit of `other` is set here.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set here.
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits and those of `other`; `|` for constants.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut separator = "";
        for (_, name) in NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0) {
            write!(f, "{separator}{name}")?;
            separator = "|";
        }
        if separator.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

/// A TCP header. The checksum is not a field: it is verified on the way in and computed on the way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// Sequence number of the first byte (or of the SYN).
    pub seq: u32,
    /// The next sequence number expected; counts only with [`Flags::ACK`].
    pub ack: u32,
    /// The control bits; the four reserved ones are not kept (RFC 9293 3.1: ignored).
    pub flags: Flags,
    /// The window as the field holds it, before scaling.
    pub window: u16,
    /// The urgent pointer; counts only with [`Flags::URG`].
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Reads the header at the start of `segment` and returns it with its length, 20 to 60 bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the segment is shorter than its data offset says, the data offset is below 5, or an
    /// option's length is impossible.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Header, usize), Malformed> {
        let &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, _, _, u0, u1] =
            fixed::<MIN_HEADER_LEN>(segment, Layer::Tcp)?;
        let len = usize::from(offset >> 4) * 4;
        if len < MIN_HEADER_LEN {
            return Err(Malformed::HeaderLength { layer: Layer::Tcp, declared: len });
        }
        let options = Options::parse(&prefix(segment, len, Layer::Tcp)?[MIN_HEADER_LEN..])?;
        let header = Header {
            source: u16::from_be_bytes([s0, s1]),
            destination: u16::from_be_bytes([d0, d1]),
            seq: u32::from_be_bytes([q0, q1, q2, q3]),
            ack: u32::from_be_bytes([a0, a1, a2, a3]),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            urgent: u16::from_be_bytes([u0, u1]),
            options,
        };
        Ok((header, len))
    }

    /// Length on the wire, 20 to 60 bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.encoded_len()
    }

    /// Writes the header to the start of `out`, its checksum field zero, and returns its length.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`Header::header_len`].
    pub fn build(&self, out: &mut [u8]) -> usize {
        let len = self.header_len();
        let out = &mut out[..len];
        out[0..2].copy_from_slice(&self.source.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination.to_be_bytes());
        out[4..8].copy_from_slice(&self.seq.to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.to_be_bytes());
        out[12] = ((len / 4) << 4) as u8;
        out[13] = self.flags.0;
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..18].fill(0);
        out[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.build(&mut out[MIN_HEADER_LEN..]);
        len
    }
}

/// The checksum of `segment`, header and payload with the checksum field zero, between these addresses
/// (RFC 9293 3.1).
///
/// # Panics
///
/// If the segment is longer than 65535 bytes.
pub fn checksum(ip: IpPair, segment: &[u8]) -> u16 {
    let Ok(len) = u16::try_from(segment.len()) else { panic!("segment of {} bytes", segment.len()) };
    ip.pseudo_header(PROTOCOL, u32::from(len)).add(Sum::of(segment)).finish()
}
