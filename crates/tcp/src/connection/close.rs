//! Every way to end: FIN, RST, TIME-WAIT, ICMP.

use xsend_wire::tcp::{Flags, Header, Options};

use super::{Connection, Fin, Outcome, Pending, State, Unreachable};
use crate::connection::timers::Timers;
use crate::delayed_ack::Due;
use crate::{Control, Instant};

impl<F> Connection<F> {
    /// The application writes no more: a FIN follows what is queued, also if the handshake is not over yet. The
    /// application may still read.
    pub fn on_close(&mut self, now: Instant) {
        let _ = now;
        if self.fin == Fin::Open {
            match self.state {
                // RFC 9293 3.10.4 would delete the connection in SYN-SENT; but then what was queued is lost.
                State::SynSent | State::SynReceived => self.fin = Fin::Queued,
                State::Established => {
                    self.fin = Fin::Queued;
                    self.state = State::FinWait1;
                }
                State::CloseWait => {
                    self.fin = Fin::Queued;
                    self.state = State::LastAck;
                }
                State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
                | State::TimeWait
                | State::Closed => {}
            }
        }
        self.check_invariants();
    }

    /// The application is gone: it neither writes nor reads any more. Like [`Connection::on_close`], but once all
    /// that was sent is acknowledged, new data from the peer is answered with a reset (RFC 9293 3.6.1) and
    /// FIN-WAIT-2 ends after [`Config::fin_wait_2`](crate::Config::fin_wait_2).
    pub fn on_detach(&mut self, now: Instant) {
        self.detached = true;
        self.on_close(now);
        if self.state == State::FinWait2 && !self.timers.lingers() {
            self.timers.linger = Some(now + self.config.fin_wait_2);
        }
    }

    /// Resets the connection now. Nothing queued is sent any more.
    pub fn on_abort(&mut self, now: Instant) {
        match self.state {
            State::Closed => {}
            // RFC 9293 3.10.5: the peer knows of nothing that had to be reset.
            State::SynSent => self.terminate(Outcome::Aborted),
            State::TimeWait => self.end_time_wait(),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {
                let in_flight = self.in_flight();
                let rto = self.rtt.rto(0);
                self.send_reset();
                self.terminate(Outcome::Aborted);
                if in_flight {
                    // The peer may miss data before the reset, which then is not exactly where it expects it, and
                    // answers with a challenge (RFC 5961 3.2): stay to repeat the reset.
                    self.timers.linger = Some(now + rto);
                }
            }
        }
        self.check_invariants();
    }

    /// An ICMP error arrived that quotes one of our segments, which began at `quoted_seq`.
    ///
    /// It ends a connection only while the handshake lasts: later nobody can tell a forged error from a true one,
    /// nor a lasting condition from a passing one (RFC 1122 4.2.3.9, RFC 5461 section 4, RFC 5927 section 6). It is
    /// remembered, and told by [`Connection::time_out`] should the connection end that way.
    pub fn on_unreachable(&mut self, now: Instant, kind: Unreachable, quoted_seq: u32) {
        let quoted = self.snd_una.nearest(quoted_seq);
        // RFC 5927 4.1: it must quote something in flight.
        if quoted < self.snd_una || quoted >= self.snd_nxt {
            return;
        }
        // RFC 1122 4.2.3.9: an unreachable host may be reachable again in a moment.
        let hard = match kind {
            Unreachable::Host => false,
            Unreachable::Port | Unreachable::Protocol | Unreachable::Prohibited => true,
        };
        match self.state {
            // RFC 5461 4.1: whoever connects wants to know at once, and may have other addresses to try. So does Linux.
            State::SynSent => self.terminate(Outcome::Unreachable(kind)),
            State::SynReceived if hard => self.terminate(Outcome::Unreachable(kind)),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {
                self.counters.soft_errors += 1;
                self.soft_error = Some((kind, now));
            }
        }
        self.check_invariants();
    }

    /// In TIME-WAIT: whether `syn`, of the same addresses and ports, can only be that of a new connection. If so this
    /// one may be forgotten at once, and the new one begin with the initial sequence number returned, which lies
    /// beyond all that this one has sent. Otherwise the SYN may be an old duplicate, and
    /// [`Connection::on_segment`] answers it (RFC 9293 3.6.1, RFC 6191 section 2).
    pub fn reopens(&self, now: Instant, syn: &Header) -> Option<u32> {
        /// What the new connection's numbers keep clear of the old one's, as Linux does: no window without scaling
        /// reaches as far.
        const CLEAR: u32 = 0xffff + 2;
        if self.state != State::TimeWait || !crate::is_request(syn) {
            return None;
        }
        let beyond = self.receiver.rcv_nxt.nearest(syn.seq) > self.receiver.rcv_nxt;
        let new = match syn.options.timestamps.filter(|_| self.timestamps) {
            Some(option) => {
                self.clock.is_newer(option.value) || beyond && !self.clock.rejects(option.value, now)
            }
            None => beyond,
        };
        new.then(|| self.snd_nxt.wire().wrapping_add(CLEAR))
    }

    /// The peer's FIN is next in sequence (RFC 9293 3.10.7.4, eighth).
    pub(super) fn on_peer_fin(&mut self, now: Instant) {
        self.events.peer_closed = true;
        self.acks.demand();
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            State::SynSent
            | State::SynReceived
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {}
        }
    }

    /// Our FIN was acknowledged (RFC 9293 3.10.7.4, fifth).
    pub(super) fn on_fin_acknowledged(&mut self, now: Instant) {
        self.fin = Fin::Acknowledged;
        self.events.fin_acknowledged = true;
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.detached {
                    self.timers.linger = Some(now + self.config.fin_wait_2);
                }
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.terminate(Outcome::Finished),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait2
            | State::CloseWait
            | State::TimeWait
            | State::Closed => {}
        }
    }

    /// RFC 9293 3.6.1. The application need not wait for the end of this state.
    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.retransmit = None;
        self.timers.keep_alive = None;
        self.timers.linger = Some(now + self.config.time_wait);
        self.events.closed = Some(Outcome::Finished);
    }

    /// Twice the MSL passed.
    pub(super) fn end_time_wait(&mut self) {
        self.state = State::Closed;
        self.fall_silent();
    }

    /// Ends the connection now. A reset that waits still leaves.
    pub(super) fn terminate(&mut self, outcome: Outcome) {
        debug_assert!(self.state != State::Closed && self.state != State::TimeWait);
        self.state = State::Closed;
        self.events.closed = Some(outcome);
        self.queue.give_up();
        self.receiver.discard_out_of_order(&mut self.freed);
        self.fall_silent();
    }

    fn fall_silent(&mut self) {
        self.timers = Timers::default();
        self.acks.due = Due::Never;
        self.pending = Pending { reset: self.pending.reset, ..Pending::default() };
        self.split = None;
        self.sws_override = false;
        self.blocked_on_ring = false;
    }

    /// Queues a reset that the peer accepts if it has received everything that its window let in.
    pub(super) fn send_reset(&mut self) {
        self.pending.reset = Some(Control {
            seq: self.acceptable_seq().wire(),
            ack: self.receiver.rcv_nxt.wire(),
            flags: Flags::RST | Flags::ACK,
            window: 0,
            options: Options::default(),
        });
    }

    /// Queues the answer to a segment that acknowledges what this connection never sent (RFC 9293 3.5.2): a reset
    /// where the sender of that segment expects it. It does not end this connection.
    pub(super) fn answer_with_reset(&mut self, acknowledged: u32) {
        self.pending.reset = Some(Control {
            seq: acknowledged,
            ack: 0,
            flags: Flags::RST,
            window: 0,
            options: Options::default(),
        });
    }
}
