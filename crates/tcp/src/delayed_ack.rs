//! When received data is acknowledged (RFC 5681 4.2, RFC 9293 3.8.6.3).

use core::time::Duration;

use crate::seq::Seq;
use crate::{Config, Instant};

/// What an acknowledgment waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Due {
    /// There is nothing to acknowledge.
    #[default]
    Never,
    /// A timer, more data, or a segment of ours that carries it.
    Delayed,
    /// It leaves with the next segment, alone if there is none.
    Now,
}

/// The delayed-acknowledgment policy.
#[derive(Clone, Debug)]
pub(crate) struct Acks {
    pub(crate) due: Due,
    /// The acknowledgment number last sent.
    pub(crate) last_sent: Seq,
    /// Acknowledgments that are not to be delayed, so that a starting sender's window grows.
    quick: u32,
    /// How long the next one is delayed: it follows the time between segments.
    delay: Duration,
    delay_min: Duration,
    delay_max: Duration,
    last_data_at: Option<Instant>,
}

/// RFC 9293 3.8.6.3: a delay must be less than this.
const MAX_DELAY: Duration = Duration::from_millis(500);

impl Acks {
    pub(crate) fn new(config: &Config) -> Acks {
        let delay_max = config.delayed_ack_max.min(MAX_DELAY);
        let delay_min = config.delayed_ack_min.min(delay_max);
        Acks {
            due: Due::Never,
            last_sent: Seq::default(),
            quick: config.quick_acks,
            delay: delay_min,
            delay_min,
            delay_max,
            last_data_at: None,
        }
    }

    /// An acknowledgment leaves at once.
    pub(crate) fn demand(&mut self) {
        self.due = Due::Now;
    }

    /// Data arrived in sequence, up to `rcv_nxt`; the peer's segments carry up to `segment_size` bytes. Returns
    /// when the timer is due if it is to be started.
    pub(crate) fn on_data(&mut self, now: Instant, rcv_nxt: Seq, segment_size: u32) -> Option<Instant> {
        self.follow(now);
        let more_than_one = rcv_nxt.since(self.last_sent) > u64::from(segment_size);
        if self.quick > 0 || more_than_one {
            self.due = Due::Now;
        }
        if self.due != Due::Never {
            return None;
        }
        self.due = Due::Delayed;
        Some(now + self.delay)
    }

    /// Adapts the delay to the time between segments: a sender that pauses longer than the delay gains nothing
    /// from it, one that is quicker can be waited for.
    fn follow(&mut self, now: Instant) {
        if let Some(last) = self.last_data_at {
            let gap = now.saturating_since(last);
            if gap < self.delay {
                self.delay = (self.delay / 2 + gap).clamp(self.delay_min, self.delay_max);
            } else if gap > self.delay_max {
                self.delay = self.delay_min;
            }
        }
        self.last_data_at = Some(now);
    }

    /// The timer expired.
    pub(crate) fn on_timeout(&mut self) {
        if self.due == Due::Delayed {
            self.due = Due::Now;
        }
    }

    /// A segment left that acknowledges up to `rcv_nxt`.
    #[inline]
    pub(crate) fn on_sent(&mut self, rcv_nxt: Seq) {
        if self.due != Due::Never {
            self.quick = self.quick.saturating_sub(1);
            self.due = Due::Never;
        }
        self.last_sent = rcv_nxt;
    }
}
