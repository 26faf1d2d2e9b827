//! The one clock that a sender reads, once a turn.

use std::time::Instant;

/// Nanoseconds since the sender was launched, for the engine; and the same as the system's own instants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Instant::now() }
    }

    #[inline]
    pub(crate) fn now(&self) -> xsend_tcp::Instant {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, instant: Instant) -> xsend_tcp::Instant {
        let elapsed = instant.saturating_duration_since(self.base).as_nanos();
        xsend_tcp::Instant::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}
