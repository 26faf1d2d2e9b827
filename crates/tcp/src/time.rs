//! Time as the holder sees it.

use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since an epoch that the holder chooses, wide enough for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    nanos: u64,
}

impl Instant {
    /// The epoch itself.
    pub const ZERO: Instant = Instant { nanos: 0 };

    /// The point `nanos` nanoseconds after the epoch.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant { nanos }
    }

    /// The point `millis` milliseconds after the epoch, at most the last one there is.
    #[inline]
    pub const fn from_millis(millis: u64) -> Instant {
        Instant { nanos: millis.saturating_mul(1_000_000) }
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// Microseconds since the epoch, rounded down.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.nanos / 1_000
    }

    /// Milliseconds since the epoch, rounded down.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.nanos / 1_000_000
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    #[inline]
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// The point `duration` later, at most the last one there is.
    #[inline]
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant { nanos: self.nanos.saturating_add(nanos) }
    }
}
