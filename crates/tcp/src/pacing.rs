//! The rate of a connection: it sizes batches and bounds the TX ring's backlog, and spaces batches in time when
//! a largest rate is set.

use core::time::Duration;

use crate::congestion::Congestion;
use crate::{Config, Instant};

/// What one flow may have in the TX ring at most.
const MAX_TSQ_BYTES: u64 = 1 << 20;
/// Segments that a batch, and the TX ring, may hold whatever the rate.
const MIN_BATCH_SEGMENTS: u64 = 2;
/// A batch is this fraction of a second's worth of bytes: about 1 ms, and a shift instead of a division.
const BATCH_SHIFT: u32 = 10;

/// Rate, batch size and, with a largest rate, the time of the next batch.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Payload bytes a second; `u64::MAX` while nothing is known.
    rate: u64,
    max_rate: Option<u64>,
    max_batch_bytes: u64,
    batch_segments: usize,
    /// When the next batch may leave. Stays in the past without a largest rate.
    next: Instant,
}

impl Pacer {
    pub(crate) fn new(config: &Config) -> Pacer {
        Pacer {
            rate: u64::MAX,
            max_rate: config.max_rate.map(|rate| rate.max(1)),
            max_batch_bytes: u64::from(config.max_batch_bytes),
            batch_segments: MIN_BATCH_SEGMENTS as usize,
            next: Instant::ZERO,
        }
    }

    /// Takes over a changed window or round-trip time.
    pub(crate) fn update(&mut self, congestion: &Congestion, smss: u32, srtt: Option<Duration>) {
        // As Linux does: room to double in slow start, room to probe later.
        let percent = if congestion.cwnd() < congestion.ssthresh() / 2 { 200 } else { 120 };
        let window_bytes = u64::from(congestion.cwnd()) * u64::from(smss);
        let rate = match srtt {
            Some(srtt) => {
                let srtt_us = (srtt.as_nanos() as u64 / 1_000).max(1);
                window_bytes.saturating_mul(percent * 10_000) / srtt_us
            }
            None => u64::MAX,
        };
        self.rate = rate.min(self.max_rate.unwrap_or(u64::MAX));
        let batch_bytes = (self.rate >> BATCH_SHIFT).min(self.max_batch_bytes);
        self.batch_segments = (batch_bytes / u64::from(smss)).max(MIN_BATCH_SEGMENTS) as usize;
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Most segments of one batch.
    pub(crate) fn batch_segments(&self) -> usize {
        self.batch_segments
    }

    pub(crate) fn tsq_limit_bytes(&self, smss: u32) -> u32 {
        let least = MIN_BATCH_SEGMENTS * u64::from(smss);
        (self.rate >> BATCH_SHIFT).clamp(least, MAX_TSQ_BYTES.max(least)) as u32
    }

    /// Whether a batch may leave at `now`.
    #[inline]
    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// `bytes` left at `now`. Returns when the next batch may follow, if that is to be waited for.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        let max_rate = self.max_rate?;
        let nanos = u64::from(bytes).saturating_mul(1_000_000_000) / max_rate;
        self.next = self.next.max(now) + Duration::from_nanos(nanos);
        Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(max_rate: Option<u64>, cwnd: u32, srtt_us: u64) -> Pacer {
        let config = Config { max_rate, initial_cwnd_segments: cwnd, ..Config::default() };
        let mut pacer = Pacer::new(&config);
        pacer.update(&Congestion::new(&config), 1000, Some(Duration::from_micros(srtt_us)));
        pacer
    }

    #[test]
    fn the_rate_is_twice_the_window_a_round_trip_in_slow_start() {
        assert_eq!(pacer(None, 10, 1_000).rate(), 2 * 10 * 1000 * 1000);
    }

    #[test]
    fn batches_last_a_millisecond_between_two_segments_and_64_kib() {
        assert_eq!(pacer(None, 10, 1_000).batch_segments(), 19);
        assert_eq!(pacer(None, 10, 100_000).batch_segments(), 2);
        assert_eq!(pacer(None, 1000, 100).batch_segments(), 65);
    }

    #[test]
    fn the_ring_holds_a_millisecond_too_up_to_a_mebibyte() {
        assert_eq!(pacer(None, 10, 100_000).tsq_limit_bytes(1000), 2000);
        assert_eq!(pacer(None, 10, 1_000).tsq_limit_bytes(1000), 19_531);
        assert_eq!(pacer(None, 100_000, 100).tsq_limit_bytes(1000), 1 << 20);
    }

    #[test]
    fn a_largest_rate_spaces_batches() {
        let mut pacer = pacer(Some(1_000_000), 10, 100);
        let now = Instant::from_millis(5);
        assert!(pacer.allows(now));
        assert_eq!(pacer.on_sent(now, 2000), Some(Instant::from_millis(7)));
        assert!(!pacer.allows(now));
        assert!(pacer.allows(Instant::from_millis(7)));
        // Time that passed unused is not made up for.
        assert_eq!(pacer.on_sent(Instant::from_millis(50), 1000), Some(Instant::from_millis(51)));
    }

    #[test]
    fn without_a_largest_rate_nothing_waits() {
        let mut pacer = pacer(None, 10, 100);
        assert_eq!(pacer.on_sent(Instant::from_millis(5), 64_000), None);
        assert!(pacer.allows(Instant::from_millis(5)));
    }
}
