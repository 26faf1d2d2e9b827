//! What happened in each second: bounded, however long the transfer runs.

use std::time::Duration;

use crate::figures::Figures;

/// Intervals kept; when there would be more, pairs are joined and the period doubles.
const MAX_INTERVALS: usize = 3600;

/// One stretch of the transfer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Since the connection was established.
    pub(crate) start: Duration,
    /// See `start`.
    pub(crate) end: Duration,
    /// Stream bytes first put on the wire.
    pub(crate) bytes: u64,
    /// Segments sent again.
    pub(crate) retransmits: u64,
    /// Congestion window at its end.
    pub(crate) cwnd_bytes: u64,
    /// Smoothed round trip at its end.
    pub(crate) srtt_us: Option<u64>,
    /// Its variation.
    pub(crate) rttvar_us: Option<u64>,
}

/// The intervals so far.
#[derive(Debug)]
pub(crate) struct Intervals {
    period: Duration,
    done: Vec<Interval>,
    start: Duration,
    sent_bytes: u64,
    retransmits: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            done: Vec::new(),
            start: Duration::ZERO,
            sent_bytes: 0,
            retransmits: 0,
        }
    }
}

impl Intervals {
    /// Whether `tick` has something to note; asked often, so it is one comparison.
    pub(crate) fn is_due(&self, elapsed: Duration) -> bool {
        elapsed >= self.start + self.period
    }

    /// Ends an interval if it is time.
    pub(crate) fn tick(&mut self, elapsed: Duration, figures: &Figures) {
        if self.is_due(elapsed) {
            self.end(elapsed, figures);
        }
    }

    /// Ends the last one, if anything is in it.
    pub(crate) fn finish(mut self, elapsed: Duration, figures: &Figures) -> Vec<Interval> {
        if elapsed > self.start && (figures.sent_bytes > self.sent_bytes || self.done.is_empty()) {
            self.end(elapsed, figures);
        }
        self.done
    }

    fn end(&mut self, elapsed: Duration, figures: &Figures) {
        if self.done.len() >= MAX_INTERVALS {
            self.halve();
        }
        self.done.push(Interval {
            start: self.start,
            end: elapsed,
            bytes: figures.sent_bytes.saturating_sub(self.sent_bytes),
            retransmits: figures.retransmits.saturating_sub(self.retransmits),
            cwnd_bytes: figures.cwnd_bytes,
            srtt_us: figures.srtt_us,
            rttvar_us: figures.rttvar_us,
        });
        self.start = elapsed;
        self.sent_bytes = figures.sent_bytes;
        self.retransmits = figures.retransmits;
    }

    fn halve(&mut self) {
        let joined = self.done.chunks(2).filter_map(|pair| {
            let (first, last) = (pair.first()?, pair.last()?);
            Some(Interval {
                start: first.start,
                bytes: pair.iter().map(|interval| interval.bytes).sum(),
                retransmits: pair.iter().map(|interval| interval.retransmits).sum(),
                ..last.clone()
            })
        });
        self.done = joined.collect();
        self.period *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: u64) -> Figures {
        Figures { sent_bytes: bytes, retransmits: bytes / 10, ..Figures::default() }
    }

    #[test]
    fn intervals_cover_the_transfer_without_gaps() {
        let mut log = Intervals::default();
        for tenth in 1..=25u32 {
            log.tick(Duration::from_millis(100) * tenth, &sent(u64::from(tenth) * 100));
        }
        let all = log.finish(Duration::from_millis(2500), &sent(2500));
        assert_eq!(all.iter().map(|i| i.bytes).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!(all.iter().map(|i| i.retransmits).sum::<u64>(), 250);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
    }

    #[test]
    fn a_short_transfer_has_one() {
        let all = Intervals::default().finish(Duration::from_millis(3), &sent(0));
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_long_transfer_stays_bounded_and_loses_nothing() {
        let mut log = Intervals::default();
        let seconds = 20_000u32;
        for second in 1..=seconds {
            log.tick(Duration::from_secs(1) * second, &sent(u64::from(second)));
        }
        let all = log.finish(Duration::from_secs(1) * (seconds + 1), &sent(u64::from(seconds) + 5));
        assert!(all.len() <= MAX_INTERVALS + 1);
        assert_eq!(all.iter().map(|i| i.bytes).sum::<u64>(), u64::from(seconds) + 5);
        assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
