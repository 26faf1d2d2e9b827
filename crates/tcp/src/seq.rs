//! Sequence numbers without wrap.

use core::ops::{Add, AddAssign};

/// A position in one direction of a connection: the 32-bit number of the wire with the wraps counted above it.
///
/// Inside the engine nothing wraps, so order is plain order; only [`Seq::wire`] and [`Seq::nearest`] know of
/// arithmetic modulo 2^32 (RFC 9293 3.4). 2^64 bytes outlast any connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(u64);

impl Seq {
    /// The first position of a connection. It starts one lap up, so that a number from just before it still
    /// has a place.
    pub(crate) const fn start(wire: u32) -> Seq {
        Seq((1 << 32) | wire as u64)
    }

    /// The number as a header carries it.
    #[inline]
    pub(crate) const fn wire(self) -> u32 {
        self.0 as u32
    }

    /// The position nearest to this one that a header's `wire` can mean; windows are at most 2^30 bytes, so
    /// whatever is genuine is less than half a lap away.
    #[inline]
    pub(crate) const fn nearest(self, wire: u32) -> Seq {
        let distance = wire.wrapping_sub(self.wire()) as i32;
        Seq(self.0.wrapping_add_signed(distance as i64))
    }

    /// Bytes from `earlier` to here; zero if `earlier` is further on.
    #[inline]
    pub(crate) const fn since(self, earlier: Seq) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position `bytes` before this one.
    #[inline]
    pub(crate) const fn back(self, bytes: u64) -> Seq {
        Seq(self.0.saturating_sub(bytes))
    }
}

impl Add<u64> for Seq {
    type Output = Seq;

    #[inline]
    fn add(self, bytes: u64) -> Seq {
        Seq(self.0 + bytes)
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    #[inline]
    fn add(self, bytes: u32) -> Seq {
        Seq(self.0 + u64::from(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        self.0 += u64::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let before = Seq::start(u32::MAX - 1);
        let after = before + 4u32;
        assert_eq!(after.wire(), 2);
        assert!(after > before);
        assert_eq!(after.since(before), 4);
        assert_eq!(before.nearest(2), after);
        assert_eq!(after.nearest(u32::MAX - 1), before);
    }

    #[test]
    fn nearest_reaches_half_a_lap_either_way() {
        let here = Seq::start(0);
        assert_eq!(here.nearest(0x7fff_ffff), here + 0x7fff_ffffu32);
        assert_eq!(here.nearest(0x8000_0001), here.back(0x7fff_ffff));
    }
}
