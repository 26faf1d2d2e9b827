//! The timestamps option of one connection (RFC 7323).

use core::time::Duration;

use xsend_wire::tcp::Timestamps;

use crate::Instant;
use crate::seq::Seq;

/// RFC 7323 5.5: after this time of silence the peer's clock may have wrapped.
const STALE_AFTER: Duration = Duration::from_secs(24 * 24 * 3600);

/// Our clock and what is known of the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: u32,
    started: Instant,
    /// TS.Recent (RFC 7323 4.3).
    recent: Option<(u32, Instant)>,
}

impl Clock {
    pub(crate) fn new(offset: u32, now: Instant) -> Clock {
        Clock { offset, started: now, recent: None }
    }

    /// TSval: milliseconds, the tick that RFC 7323 5.4 recommends.
    #[inline]
    pub(crate) fn value(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// The option of a segment that leaves now.
    #[inline]
    pub(crate) fn option(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.value(now), echo: self.recent.map_or(0, |(value, _)| value) }
    }

    /// RFC 7323 5.3 R1: whether a segment with this TSval is an old duplicate.
    #[inline]
    pub(crate) fn rejects(&self, value: u32, now: Instant) -> bool {
        let Some((recent, at)) = self.recent else { return false };
        before(value, recent) && now.saturating_since(at) < STALE_AFTER
    }

    /// Whether this TSval is newer than all of this connection's.
    pub(crate) fn is_newer(&self, value: u32) -> bool {
        self.recent.is_some_and(|(recent, _)| before(recent, value))
    }

    /// RFC 7323 4.3 (2): takes the TSval of an acceptable segment at `seq`, unless it lies beyond what was last
    /// acknowledged; then the earliest segment that an acknowledgment covers is the one to be echoed.
    #[inline]
    pub(crate) fn take(&mut self, value: u32, now: Instant, seq: Seq, last_ack_sent: Seq) {
        if seq > last_ack_sent {
            return;
        }
        match self.recent {
            Some((recent, at)) if before(value, recent) && now.saturating_since(at) < STALE_AFTER => {}
            _ => self.recent = Some((value, now)),
        }
    }

    /// Round-trip time by the echo of an acknowledgment; `None` if it cannot be one of our values.
    pub(crate) fn round_trip(&self, echo: u32, now: Instant) -> Option<Duration> {
        let ticks = self.value(now).wrapping_sub(echo);
        let age = now.saturating_since(self.started).as_millis();
        (echo != 0 && u128::from(ticks) <= age).then(|| Duration::from_millis(u64::from(ticks.max(1))))
    }
}

/// Order of timestamps (RFC 7323 5.2).
#[inline]
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_ticks_milliseconds_from_its_offset() {
        let clock = Clock::new(u32::MAX, Instant::ZERO);
        assert_eq!(clock.value(Instant::from_millis(0)), u32::MAX);
        assert_eq!(clock.value(Instant::from_millis(3)), 2);
    }

    #[test]
    fn old_values_are_rejected_across_the_wrap_and_not_for_ever() {
        let mut clock = Clock::new(0, Instant::ZERO);
        let seq = Seq::start(0);
        assert!(!clock.rejects(5, Instant::ZERO), "nothing is known yet");
        clock.take(2, Instant::ZERO, seq, seq);
        assert!(clock.rejects(u32::MAX, Instant::ZERO));
        assert!(!clock.rejects(2, Instant::ZERO));
        assert!(!clock.rejects(u32::MAX, Instant::ZERO + STALE_AFTER));
    }

    #[test]
    fn the_value_of_a_segment_beyond_the_last_acknowledgment_is_not_echoed() {
        let mut clock = Clock::new(0, Instant::ZERO);
        let seq = Seq::start(100);
        clock.take(7, Instant::ZERO, seq, seq);
        clock.take(9, Instant::ZERO, seq + 1u32, seq);
        assert_eq!(clock.option(Instant::ZERO).echo, 7);
        clock.take(6, Instant::ZERO, seq, seq);
        assert_eq!(clock.option(Instant::ZERO).echo, 7);
    }

    #[test]
    fn an_echo_older_than_the_connection_is_no_measurement() {
        let start = Instant::from_millis(1000);
        let clock = Clock::new(50, start);
        let now = Instant::from_millis(1030);
        assert_eq!(clock.round_trip(clock.value(start), now), Some(Duration::from_millis(30)));
        assert_eq!(clock.round_trip(clock.value(now), now), Some(Duration::from_millis(1)));
        assert_eq!(clock.round_trip(clock.value(start).wrapping_sub(1), now), None);
        assert_eq!(clock.round_trip(clock.value(now) + 1, now), None);
        assert_eq!(clock.round_trip(0, now), None);
    }
}
