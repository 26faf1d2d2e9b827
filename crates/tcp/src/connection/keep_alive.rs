//! Whether a silent peer is still there (RFC 9293 3.8.4).

use core::time::Duration;

use super::{Connection, Fin, State, TimeOutCause};
use crate::{Instant, KeepAlive};

/// A shorter time than this between two looks at the peer only costs.
const LEAST: Duration = Duration::from_millis(1);

/// What is known of the peer's silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    /// When an acceptable acknowledgment last arrived.
    pub(super) heard_at: Instant,
    /// When the peer was last asked.
    asked_at: Instant,
    /// Questions in a row without an answer.
    asked: u32,
}

impl Silence {
    pub(super) fn new(now: Instant) -> Silence {
        Silence { heard_at: now, asked_at: Instant::ZERO, asked: 0 }
    }
}

impl<F> Connection<F> {
    /// Turns keep-alive on or off. Questions that were not answered under the old settings do not count against the
    /// new ones; the silence so far does.
    pub fn set_keep_alive(&mut self, now: Instant, keep_alive: Option<KeepAlive>) {
        self.config.keep_alive = keep_alive;
        self.timers.keep_alive = None;
        self.silence.asked = 0;
        self.start_keep_alive(now);
        self.check_invariants();
    }

    /// Starts the timer, if keep-alive is on and the handshake is over. It is not moved by each segment that
    /// arrives: when it expires it looks how long the silence has really lasted.
    pub(super) fn start_keep_alive(&mut self, now: Instant) {
        if let Some(keep_alive) = self.config.keep_alive.filter(|_| self.is_watched()) {
            self.timers.keep_alive = Some(now.max(self.silence.heard_at + keep_alive.idle.max(LEAST)));
        }
    }

    /// Whether the state is one in which the peer may fall silent without a timer that notices.
    fn is_watched(&self) -> bool {
        match self.state {
            State::Established
            | State::CloseWait
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck => true,
            State::SynSent | State::SynReceived | State::TimeWait | State::Closed => false,
        }
    }

    /// The timer expired.
    pub(super) fn on_keep_alive_timeout(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive.filter(|_| self.is_watched()) else { return };
        let idle = keep_alive.idle.max(LEAST);
        if self.silence.heard_at >= self.silence.asked_at {
            self.silence.asked = 0;
        }
        // RFC 9293 3.8.4: only while nothing is outstanding; else retransmissions or window probes do the asking.
        if self.in_flight() || self.queue.has_unsent() || self.fin == Fin::Queued {
            self.silence.asked = 0;
            self.timers.keep_alive = Some(now + idle);
            return;
        }
        let silent = now.saturating_since(self.silence.heard_at);
        if silent < idle {
            self.timers.keep_alive = Some(self.silence.heard_at + idle);
            return;
        }
        // As in Linux, a user timeout replaces the number of probes; one unanswered probe is never enough.
        let (cause, over) = match self.config.user_timeout {
            Some(timeout) => (TimeOutCause::UserTimeout, self.silence.asked > 0 && silent >= timeout),
            None => (TimeOutCause::KeepAlive, self.silence.asked >= keep_alive.probes.max(1)),
        };
        if over {
            return self.give_up(cause);
        }
        self.silence.asked += 1;
        self.silence.asked_at = now;
        self.pending.keep_alive = true;
        self.timers.keep_alive = Some(now + keep_alive.interval.max(LEAST));
    }
}
