//! Deadlines, and what is done when they pass.

use super::{Connection, Fin, Outcome, State, TimeOut, TimeOutCause};
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
    /// Of the next look at how long the peer has been silent.
    pub(super) keep_alive: Option<Instant>,
}

impl Timers {
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        let Timers { retransmit, ack, linger, pace, keep_alive } = *self;
        [retransmit, ack, linger, pace, keep_alive].into_iter().flatten().min()
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
        if take_due(&mut self.timers.keep_alive, now) {
            self.on_keep_alive_timeout(now);
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

    /// Whether the peer had chances enough to answer: after `retries` of them it is `cause` that ended the wait.
    fn exhausted(&self, now: Instant, retries: u32, cause: TimeOutCause) -> Option<TimeOutCause> {
        let waited = now.saturating_since(self.waiting_since);
        if self.config.user_timeout.is_some_and(|timeout| waited >= timeout) {
            return Some(TimeOutCause::UserTimeout);
        }
        (self.retries >= retries).then_some(cause)
    }

    /// The peer answers no more. A reset tells it, should it be there after all (RFC 9293 3.8.3, 3.10.8).
    pub(super) fn give_up(&mut self, cause: TimeOutCause) {
        if !matches!(self.state, State::SynSent | State::SynReceived) {
            self.send_reset();
        }
        // RFC 1122 4.2.3.9: what ICMP said while the peer was silent may be the reason. What it said before the peer
        // last answered is not.
        let soft_error = self.soft_error.filter(|(_, at)| *at >= self.waiting_since).map(|(kind, _)| kind);
        self.time_out = Some(TimeOut { cause, soft_error });
        self.terminate(Outcome::TimedOut);
    }

    fn on_syn_timeout(&mut self, now: Instant) {
        let retries = if self.passive { self.config.syn_ack_retries } else { self.config.syn_retries };
        if let Some(cause) = self.exhausted(now, retries, TimeOutCause::Handshake) {
            return self.give_up(cause);
        }
        self.retries += 1;
        self.backoff += 1;
        self.pending.syn = true;
        self.arm_retransmit(now);
    }

    /// RFC 6298 5.4 to 5.6, RFC 5681 3.1.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        if let Some(cause) = self.exhausted(now, self.config.retries, TimeOutCause::Retransmissions) {
            return self.give_up(cause);
        }
        let repeated = self.retries > 0;
        self.retries += 1;
        self.backoff = self.backoff.saturating_add(1);
        self.counters.timeouts += 1;
        let segments = self.queue.in_flight();
        let too_big = self.believe_too_big();
        if segments > 0 {
            self.counters.renegings += u64::from(self.queue.mark_all_lost());
            // RFC 8201 5.4: a segment that was too large for the path is no sign of congestion.
            if !too_big {
                self.congestion.on_timeout(segments, repeated);
            }
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
        if let Some(cause) = self.exhausted(now, self.config.retries, TimeOutCause::WindowProbes) {
            return self.give_up(cause);
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
