//! What an acknowledgment does: the window, the send queue, the round-trip time, loss recovery.

use xsend_wire::tcp::Header;

use super::{Connection, Fin};
use crate::Instant;
use crate::queue::Delivery;
use crate::recovery::{DISTINCT_WITHIN, DUP_THRESH, Phase};
use crate::seq::Seq;

impl<F> Connection<F> {
    /// Takes an acknowledgment of `ack`, between `snd_una` and `snd_nxt`, in a segment at `seq`.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Instant, header: &Header, seq: Seq, ack: Seq, occupies: bool) {
        self.silence.heard_at = now;
        let in_flight = self.in_flight();
        let advanced = ack > self.snd_una;
        let window = u64::from(header.window) << self.snd_wscale;
        let same_window = window == self.snd_wnd;
        self.update_window(seq, ack, window, advanced);
        if !in_flight {
            // An answer to a window probe is a sign of life (RFC 9293 3.8.6.1). It does not end the user timeout, which
            // counts what remains untransmitted behind a shut window as well, as Linux's does.
            self.retries = 0;
            if self.probes == 0 {
                self.waiting_since = now;
            }
            return;
        }
        let mut delivery = if advanced { self.queue.acknowledge(ack) } else { Delivery::default() };
        self.snd_una = ack;
        if self.sack && !header.options.sack.is_empty() {
            let sacked = self.queue.sack(&header.options.sack, ack, self.snd_nxt);
            self.counters.duplicates_reported += u64::from(sacked.duplicate);
            delivery.delivered += sacked.delivered;
            delivery.sent_at = delivery.sent_at.or(sacked.sent_at);
        }
        self.measure(now, header, advanced, &delivery);
        // RFC 5681 section 2.
        let duplicate = !advanced && !occupies && same_window;
        self.recover(advanced, duplicate, &delivery);
        if advanced {
            self.retries = 0;
            self.waiting_since = now;
            // RFC 6298 5.2, 5.3
            if self.in_flight() {
                self.arm_retransmit(now);
            } else {
                self.timers.retransmit = None;
            }
        } else if self.snd_wnd == 0 {
            // The peer took its window back while data was in flight. It answers, so it is there: the data is
            // offered again for as long as it takes (RFC 9293 3.8.6), or the user timeout allows.
            self.retries = 0;
        }
        if delivery.acknowledged > 0 || delivery.delivered > 0 {
            self.update_pacing();
        }
        if !self.in_flight() && matches!(self.fin, Fin::Sent { .. }) {
            self.on_fin_acknowledged(now);
        }
    }

    /// RFC 9293 3.10.7.4, fifth: segments that come late must not bring an old window back.
    #[inline]
    fn update_window(&mut self, seq: Seq, ack: Seq, window: u64, advanced: bool) {
        let newer = self.snd_wl1 < seq || self.snd_wl1 == seq && self.snd_wl2 <= ack;
        if newer || advanced {
            self.snd_wnd = window;
            self.max_snd_wnd = self.max_snd_wnd.max(window);
            (self.snd_wl1, self.snd_wl2) = (seq, ack);
        }
    }

    /// Takes a round-trip time, if this acknowledgment tells one without doubt.
    #[inline]
    fn measure(&mut self, now: Instant, header: &Header, advanced: bool, delivery: &Delivery) {
        let rtt = match delivery.resent_at.or(delivery.sent_at) {
            // Karn: where a retransmitted segment is among the acknowledged ones, the others may have waited for
            // it at the receiver.
            Some(sent_at) if !delivery.ambiguous => {
                let rtt = now.saturating_since(sent_at);
                let trusted = delivery.resent_at.is_none() || rtt <= self.rtt.rto(0) * DISTINCT_WITHIN;
                trusted.then_some(rtt)
            }
            // RFC 7323 4.1: the echo tells which copy arrived. But when it arrived twice, for its acknowledgment was
            // lost, the answer to the second copy still echoes the first, and tells of our time-out rather than of
            // the path. If the path did become that slow, the back-off holds until a new segment proves it.
            _ if advanced && self.timestamps => {
                let echo = header.options.timestamps.map(|option| option.echo);
                let rtt = echo.and_then(|echo| self.clock.round_trip(echo, now));
                rtt.filter(|rtt| *rtt < self.rtt.rto(0))
            }
            _ => None,
        };
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, self.snd_una, self.snd_nxt);
            // The back-off stays until there is a measurement (Karn; RFC 6298 section 5).
            self.backoff = 0;
        }
    }

    /// Moves loss recovery on (RFC 6675 section 5, RFC 6582 3.2).
    #[inline]
    fn recover(&mut self, advanced: bool, duplicate: bool, delivery: &Delivery) {
        if self.sack {
            self.queue.detect_losses();
        } else if advanced {
            self.recovery.on_advance(delivery.acknowledged);
        } else if duplicate && !matches!(self.recovery.phase, Phase::Loss { .. }) {
            let missing = self.queue.in_flight() - self.queue.counts.lost;
            self.recovery.on_duplicate(missing);
        }
        let left = if advanced { self.recovery.leave(self.snd_una) } else { None };
        let recovered = matches!(left, Some(Phase::Recovery { .. }));
        if recovered {
            self.congestion.on_recovered();
        }
        match self.recovery.phase {
            Phase::Open => {
                let detected = if self.sack {
                    self.queue.counts.lost > 0
                } else {
                    self.recovery.duplicates >= DUP_THRESH && self.queue.in_flight() > 0
                };
                if detected {
                    self.enter_recovery();
                } else if !recovered {
                    self.congestion.on_delivered(delivery.delivered);
                }
            }
            Phase::Recovery { .. } => {
                // RFC 6582 3.2 step 3: a partial acknowledgment tells of the next hole, which is filled at once.
                if advanced && !self.sack {
                    self.queue.mark_first_lost();
                    self.recovery.forced = true;
                }
            }
            Phase::Loss { .. } => self.congestion.on_delivered(delivery.delivered),
        }
    }

    /// RFC 6675 section 5 step 4, RFC 6582 3.2 step 2.
    fn enter_recovery(&mut self) {
        self.counters.recoveries += 1;
        if !self.sack {
            self.queue.mark_first_lost();
        }
        self.congestion.on_loss(self.queue.in_flight());
        self.recovery.enter_recovery(self.snd_nxt);
    }

    pub(super) fn update_pacing(&mut self) {
        self.pacer.update(&self.congestion, self.smss, self.rtt.srtt());
    }
}
