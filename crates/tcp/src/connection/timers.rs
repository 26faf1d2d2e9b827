//! Deadlines, and what is done when they pass.

use super::{Connection, Fin, Outcome, State};
use crate::Instant;

/// One deadline for each purpose.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Of the SYN, of data and FIN in flight (RFC 6298), or, with nothing in flight, of the window probe.
    pub(super) retransmit: Option<Instant>,
    /// Of a delayed acknowledgment.
    pub(super) ack: Option<Instant>,
    /// Of a state that ends by itself: TIME-WAIT, FIN-WAIT-2 without an application, CLOSED while resets may
    /// have to be repeated.
    pub(super) linger: Option<Instant>,
    /// Of the next paced batch.
    pub(super) pace: Option<Instant>,
}

impl Timers {
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        let Timers { retransmit, ack, linger, pace } = *self;
        [retransmit, ack, linger, pace].into_iter().flatten().min()
    }

    pub(super) fn lingers(&self) -> bool {
        self.linger.is_some()
    }
}

/// Clears `timer` if it is due.
fn take_due(timer: &mut Option<Instant>, now: Instant) -> bool {
    timer.take_if(|deadline| *deadline <= now).is_some()
}

impl<F> Connection<F> {
    /// Time passed; to be called at or after [`Connection::poll_timeout`]. Called early it does nothing.
    pub fn on_timeout(&mut self, now: Instant) {
        take_due(&mut self.timers.pace, now);
        if take_due(&mut self.timers.ack, now) {
            self.acks.on_timeout();
        }
        if take_due(&mut self.timers.linger, now) {
            self.on_linger_timeout();
        }
        if take_due(&mut self.timers.retransmit, now) {
            match self.state {
                State::SynSent | State::SynReceived => self.on_syn_timeout(now),
                State::TimeWait | State::Closed => {}
                State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::Closing
                | State::LastAck => {
                    if self.in_flight() {
                        self.on_retransmission_timeout(now);
                    } else {
                        self.on_probe_timeout(now);
                    }
                }
            }
        }
        self.check_invariants();
    }

    /// Starts or restarts the retransmission timer (RFC 6298 5.1, 5.3).
    pub(super) fn arm_retransmit(&mut self, now: Instant) {
        self.arm(now, self.backoff);
    }

    /// Starts the probe timer, unless a timer runs, if something waits for the peer's window (RFC 9293 3.8.6.1).
    /// Only with nothing in flight: otherwise acknowledgments come, or the retransmission timer ends the wait.
    pub(super) fn arm_probe(&mut self, now: Instant) {
        let waits = self.queue.has_unsent() || self.fin == Fin::Queued;
        if waits && !self.in_flight() && self.timers.retransmit.is_none() {
            if self.probes == 0 && self.retries == 0 {
                self.waiting_since = now;
            }
            self.arm(now, self.probes);
        }
    }

    fn arm(&mut self, now: Instant, backoff: u32) {
        let mut deadline = now + self.rtt.rto(backoff);
        if let Some(user_timeout) = self.config.user_timeout {
            deadline = deadline.min(self.waiting_since + user_timeout);
        }
        self.timers.retransmit = Some(deadline);
    }

    /// Whether the peer had chances enough to answer.
    fn is_exhausted(&self, now: Instant, retries: u32) -> bool {
        let waited = now.saturating_since(self.waiting_since);
        self.retries >= retries || self.config.user_timeout.is_some_and(|timeout| waited >= timeout)
    }

    fn on_syn_timeout(&mut self, now: Instant) {
        if self.is_exhausted(now, self.config.syn_retries) {
            return self.terminate(Outcome::TimedOut);
        }
        self.retries += 1;
        self.backoff += 1;
        self.pending.syn = true;
        self.arm_retransmit(now);
    }

    /// RFC 6298 5.4 to 5.6, RFC 5681 3.1.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        if self.is_exhausted(now, self.config.retries) {
            self.send_reset();
            return self.terminate(Outcome::TimedOut);
        }
        let repeated = self.retries > 0;
        self.retries += 1;
        self.backoff = self.backoff.saturating_add(1);
        self.counters.timeouts += 1;
        let segments = self.queue.in_flight();
        if segments > 0 {
            self.counters.renegings += u64::from(self.queue.mark_all_lost());
            self.congestion.on_timeout(segments, repeated);
            self.recovery.enter_loss(self.snd_nxt);
            self.update_pacing();
        }
        if let Fin::Sent { lost } = &mut self.fin {
            *lost = true;
        }
        self.arm_retransmit(now);
    }

    /// The window has been shut, or all but shut, for a time-out (RFC 9293 3.8.6.1 and, for the override timer,
    /// 3.8.6.2.1).
    fn on_probe_timeout(&mut self, now: Instant) {
        if !self.queue.has_unsent() && self.fin != Fin::Queued {
            return;
        }
        if self.is_exhausted(now, self.config.retries) {
            self.send_reset();
            return self.terminate(Outcome::TimedOut);
        }
        self.retries += 1;
        self.probes = self.probes.saturating_add(1);
        if self.queue.has_unsent() && self.window_end() > self.snd_nxt {
            self.sws_override = true;
        } else {
            self.pending.probe = true;
        }
        self.arm(now, self.probes);
    }

    fn on_linger_timeout(&mut self) {
        match self.state {
            // All that was sent arrived, and nobody waits for what does not come.
            State::FinWait2 => self.terminate(Outcome::Finished),
            State::TimeWait => self.end_time_wait(),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::Closed => {}
        }
    }
}
