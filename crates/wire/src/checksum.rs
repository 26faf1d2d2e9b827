//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), and a copy that sums on the way.

use core::fmt;

/// A ones'-complement sum on its way to becoming a checksum: 32 bits with end-around carry, not yet folded
/// to 16 and not yet complemented.
///
/// Bytes are summed in the machine's own order and swapped once, in [`Sum::finish`], which RFC 1071 2(B)
/// shows to be the same. The raw value is therefore good inside one process only.
///
/// Two sums are equal if they give the same checksum.
#[derive(Clone, Copy, Default)]
pub struct Sum(u32);

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `bytes`; an odd last byte counts as if a zero followed (RFC 1071 section 1).
    ///
    /// Exact up to 16 GiB, far beyond any packet.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        // Each half of a 64-bit word goes to a sum of its own: no carry to look after and nothing that waits
        // for its neighbour, so the compiler turns the loop into vector code.
        let (mut low, mut high) = (0, 0);
        let (words, mut tail) = bytes.as_chunks::<8>();
        for &word in words {
            let word = u64::from_ne_bytes(word);
            low += word & 0xffff_ffff;
            high += word >> 32;
        }
        if let Some((&word, rest)) = tail.split_first_chunk() {
            low += u64::from(u32::from_ne_bytes(word));
            tail = rest;
        }
        if let Some((&half, rest)) = tail.split_first_chunk() {
            low += u64::from(u16::from_ne_bytes(half));
            tail = rest;
        }
        if let &[byte] = tail {
            low += u64::from(u16::from_ne_bytes([byte, 0]));
        }
        Sum::from_wide(low + high)
    }

    /// The sum of two runs of bytes that both start at an even offset of what is being checksummed.
    #[inline]
    #[must_use]
    #[allow(clippy::should_implement_trait)] // Only half of what `+` would promise: both offsets must be even.
    pub const fn add(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        // No second carry can come of this: two u32 that overflow leave at most 2^32 - 2.
        Sum(sum + carry as u32)
    }

    /// Adds the sum of a run of bytes that starts at an odd offset: its bytes change places (RFC 1071 2(B)).
    #[inline]
    #[must_use]
    pub const fn add_at_odd(self, other: Sum) -> Sum {
        // Rotating by a byte multiplies by 256 modulo 2^32 - 1, hence modulo 2^16 - 1 too: the byte swap
        // of RFC 1071, without folding first.
        self.add(Sum(other.0.rotate_left(8)))
    }

    /// Adds the sum of a run of bytes that starts `offset` bytes into what `self` is the sum of.
    #[inline]
    #[must_use]
    pub const fn add_at(self, offset: usize, other: Sum) -> Sum {
        if offset.is_multiple_of(2) { self.add(other) } else { self.add_at_odd(other) }
    }

    /// Adds one 16-bit field, given as a number.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, value: u16) -> Sum {
        self.add(Sum(value.to_be() as u32))
    }

    /// Adds one 32-bit field that starts at an even offset, given as a number.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, value: u32) -> Sum {
        self.add(Sum(value.to_be()))
    }

    /// Folded to 16 bits, in network order as a number, not complemented: what a checksum field holds while
    /// its computation is left to the hardware.
    ///
    /// Zero only if every byte summed was zero; otherwise a sum of zero reads 0xffff.
    #[inline]
    pub const fn fold(self) -> u16 {
        let once = (self.0 & 0xffff) + (self.0 >> 16);
        let twice = (once & 0xffff) + (once >> 16);
        u16::from_be(twice as u16)
    }

    /// The checksum: folded and complemented. Zero stays zero, as TCP and IPv4 want it (only UDP does not).
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// Whether this, the sum of a message *with* its checksum, shows the message to be intact.
    #[inline]
    pub const fn verifies(self) -> bool {
        self.fold() == 0xffff
    }

    /// The accumulator, to be carried through a plain integer and back by [`Sum::from_raw`].
    #[inline]
    pub const fn to_raw(self) -> u32 {
        self.0
    }

    /// The sum that [`Sum::to_raw`] gave; every value is valid.
    #[inline]
    pub const fn from_raw(raw: u32) -> Sum {
        Sum(raw)
    }

    /// From a wide sum of native-order 16- or 32-bit words.
    #[inline]
    pub(crate) const fn from_wide(wide: u64) -> Sum {
        Sum(wide as u32).add(Sum((wide >> 32) as u32))
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Sum) -> bool {
        self.fold() == other.fold()
    }
}

impl Eq for Sum {}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({:#06x})", self.fold())
    }
}

/// Bytes copied before they are summed: they stay in the first-level cache in between.
const PIECE: usize = 4096;

/// Copies `src` to `dst` and returns the sum of the bytes, reading them from memory once.
///
/// What is summed is the copy, so that sum and copy agree even if `src` is a mapping of something that
/// another process changes.
///
/// # Panics
///
/// If the lengths differ.
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    assert_eq!(dst.len(), src.len(), "copy_and_sum: destination and source differ in length");
    let mut sum = Sum::ZERO;
    for (to, from) in dst.chunks_mut(PIECE).zip(src.chunks(PIECE)) {
        to.copy_from_slice(from);
        // Every piece but the last is of even length, so each starts at an even offset.
        sum = sum.add(Sum::of(to));
    }
    sum
}

/// The checksum `check` of a message after one of its 16-bit fields changed from `old` to `new`: RFC 1624,
/// equation 3.
///
/// Equal to a recomputation, except that a message that has become all zeroes gets 0x0000 and not 0xffff;
/// both verify.
#[inline]
pub const fn update16(check: u16, old: u16, new: u16) -> u16 {
    // HC' = ~(~HC + ~m + m')
    let sum = !check as u32 + !old as u32 + new as u32;
    let once = (sum & 0xffff) + (sum >> 16);
    !(((once & 0xffff) + (once >> 16)) as u16)
}
