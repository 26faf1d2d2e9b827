//! Segments in: which may be believed (RFC 9293 3.10.7.4, RFC 5961, RFC 7323), and what they carry.

use xsend_wire::tcp::{Flags, Header};

use super::{Connection, Outcome, State};
use crate::receive::Arrival;
use crate::seq::Seq;
use crate::{Chunk, Instant};

impl<F> Connection<F> {
    /// One segment of this connection arrived. `payload` is its payload of `payload_len` bytes, or `None` if there
    /// is none or the holder could not keep it; the peer then sends it again. A frame the engine does not keep
    /// comes back by [`Connection::poll_freed`].
    pub fn on_segment(&mut self, now: Instant, header: &Header, payload: Option<Chunk<F>>, payload_len: u32) {
        self.counters.segments_in += 1;
        match self.state {
            State::SynSent => self.on_syn_sent(now, header, payload, payload_len),
            State::Closed => {
                // RFC 9293 3.10.7.1, as long as the holder keeps us.
                self.refuse(payload);
                let answerable = header.flags.contains(Flags::ACK) && !header.flags.contains(Flags::RST);
                if answerable && self.timers.lingers() {
                    self.answer_with_reset(header.ack);
                }
            }
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.on_synchronized(now, header, payload, payload_len),
        }
        self.check_invariants();
    }

    /// The checks of RFC 9293 3.10.7.4 in their order, with those of RFC 7323 5.3 before them.
    fn on_synchronized(
        &mut self,
        now: Instant,
        header: &Header,
        payload: Option<Chunk<F>>,
        payload_len: u32,
    ) {
        let flags = header.flags;
        let rst = flags.contains(Flags::RST);
        let fin = flags.contains(Flags::FIN);
        let rcv_nxt = self.receiver.rcv_nxt;
        let mut seq = rcv_nxt.nearest(header.seq);
        let mut syn = flags.contains(Flags::SYN);
        let mut header = header;
        let unscaled;
        if self.state == State::SynReceived && syn && !rst && seq + 1u32 == rcv_nxt {
            if !flags.contains(Flags::ACK) {
                // The peer's SYN again: our SYN-ACK was lost. RFC 9293 3.10.7.4 answers with a bare ACK, which is no
                // use to a peer in SYN-SENT; as in Linux it gets the SYN-ACK.
                self.pending.syn |= self.may_answer(now);
                return self.refuse(payload);
            }
            if !self.passive && payload_len == 0 {
                // The peer's SYN crossed ours, and this is its answer (RFC 9293 figure 8): as good as an ACK.
                (seq, syn) = (rcv_nxt, false);
                self.acks.demand();
                // But for its window, which is not scaled (RFC 7323 2.2).
                unscaled = Header { window: header.window >> self.snd_wscale, ..*header };
                header = &unscaled;
            }
        }
        let end = seq + payload_len + u32::from(syn) + u32::from(fin);
        // Whether this is more than an acknowledgment or a SYN: then an answer cannot start a loop.
        let occupies = payload_len > 0 || fin;

        // RFC 7323 5.3 R1. A segment without the option is let through, as in Linux: there are boxes that strip
        // it, and refusing would cut the connection where RFC 7323 3.2 only wants to be sure.
        if let Some(option) = header.options.timestamps.filter(|_| self.timestamps && !rst)
            && self.clock.rejects(option.value, now)
        {
            self.counters.paws_rejected += 1;
            self.answer(now, occupies);
            return self.refuse(payload);
        }

        // First: the sequence number. A segment is let in if it touches what is expected: one that ends there (an
        // answered retransmission) or starts at the window's end (an ACK from a peer that filled it, a probe of
        // a shut window) still has an acknowledgment to tell; what it carries is trimmed later.
        if seq > self.receiver.right_edge() || end < rcv_nxt {
            self.counters.unacceptable += 1;
            if !rst {
                self.answer(now, occupies);
            }
            return self.refuse(payload);
        }

        // Second: RST. RFC 5961 3.2: only exactly where it is expected, otherwise the peer is asked.
        if rst {
            self.refuse(payload);
            if seq == rcv_nxt {
                self.on_reset();
            } else {
                self.challenge(now);
            }
            return;
        }

        // Fourth: SYN. RFC 5961 4.2: the peer is asked, also in SYN-RECEIVED, where RFC 9293 3.10.7.4 would believe
        // it: if it has started afresh it answers with a reset, and its next SYN finds us listening.
        if syn {
            self.challenge(now);
            return self.refuse(payload);
        }

        // Fifth: ACK.
        if !flags.contains(Flags::ACK) || !self.is_believable(now, header) {
            return self.refuse(payload);
        }
        if let Some(option) = header.options.timestamps.filter(|_| self.timestamps) {
            self.clock.take(option.value, now, seq, self.acks.last_sent);
        }
        let ack = self.snd_una.nearest(header.ack);
        if ack >= self.snd_una {
            self.on_ack(now, header, seq, ack, occupies);
        }
        match self.state {
            State::Closed => self.refuse(payload),
            State::TimeWait => self.on_time_wait(now, fin, occupies, payload),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.on_contents(now, header, seq, payload, payload_len),
        }
    }

    /// Whether the acknowledgment number can come from the peer. In SYN-RECEIVED it may complete the handshake.
    fn is_believable(&mut self, now: Instant, header: &Header) -> bool {
        let ack = self.snd_una.nearest(header.ack);
        if self.state == State::SynReceived {
            if ack <= self.snd_una || ack > self.snd_nxt {
                self.answer_with_reset(header.ack);
                return false;
            }
            self.establish(now, ack, &header.options);
            return true;
        }
        // RFC 5961 5.2: neither of what was never sent, nor older than the largest window.
        if ack > self.snd_nxt || ack + self.max_snd_wnd < self.snd_una {
            self.counters.unacceptable += 1;
            self.challenge(now);
            return false;
        }
        true
    }

    /// A valid reset.
    fn on_reset(&mut self) {
        match self.state {
            State::SynReceived => self.terminate(Outcome::Refused),
            // RFC 1337: a reset, perhaps of an old duplicate's making, must not cut TIME-WAIT short.
            State::TimeWait | State::Closed | State::SynSent => {}
            // RFC 9293 3.10.7.4 reports no reset here: both ends have closed, and the peer, its TIME-WAIT over or
            // none kept, only does not know our FIN any more. Not so while it still owes an acknowledgment of data.
            State::Closing | State::LastAck if self.only_fin_in_flight() => {
                self.terminate(Outcome::Finished);
            }
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.terminate(Outcome::Reset),
        }
    }

    /// RFC 9293 3.10.7.4, eighth, TIME-WAIT: only a retransmitted FIN, whose acknowledgment was lost, has a
    /// meaning.
    fn on_time_wait(&mut self, now: Instant, fin: bool, occupies: bool, payload: Option<Chunk<F>>) {
        self.refuse(payload);
        if fin {
            self.timers.linger = Some(now + self.config.time_wait);
        }
        if occupies {
            self.acks.demand();
        }
    }

    /// Seventh and eighth: payload and FIN of an acceptable segment whose payload starts at `seq`.
    pub(super) fn on_contents(
        &mut self,
        now: Instant,
        header: &Header,
        seq: Seq,
        payload: Option<Chunk<F>>,
        payload_len: u32,
    ) {
        let fin = header.flags.contains(Flags::FIN);
        let fin_seq = seq + payload_len;
        if payload_len > 0 {
            self.on_payload(now, seq, payload, payload_len);
        } else {
            self.refuse(payload);
        }
        if !fin || self.state == State::Closed {
            return;
        }
        // A FIN ahead of missing data, or one that comes again, is answered at once.
        self.acks.demand();
        if self.state.receives() {
            self.receiver.note_fin(fin_seq, &mut self.freed);
        }
        self.reach_fin(now);
    }

    fn reach_fin(&mut self, now: Instant) {
        if self.state.receives() && self.receiver.reach_fin(&mut self.freed) {
            self.on_peer_fin(now);
        }
    }

    fn on_payload(&mut self, now: Instant, seq: Seq, payload: Option<Chunk<F>>, payload_len: u32) {
        let fresh = seq + payload_len > self.receiver.rcv_nxt;
        if !self.state.receives() {
            self.acks.demand();
            return self.refuse(payload);
        }
        if self.detached && fresh {
            self.refuse(payload);
            // RFC 9293 3.6.1: nobody will read this. A reset while our own data is on its way could destroy it at
            // the peer, so until that is acknowledged the peer's data just stays unacknowledged.
            if self.state == State::FinWait2 {
                self.send_reset();
                self.terminate(Outcome::Aborted);
            }
            return;
        }
        let Some(chunk) = payload else {
            self.counters.payload_refused += 1;
            return self.acks.demand();
        };
        debug_assert_eq!(chunk.len, payload_len);
        match self.receiver.insert(seq, chunk, &mut self.freed) {
            Arrival::InOrder => {
                let (rcv_nxt, size) = (self.receiver.rcv_nxt, self.receiver.segment_size());
                if let Some(deadline) = self.acks.on_data(now, rcv_nxt, size) {
                    self.timers.ack = Some(deadline);
                }
            }
            // RFC 5681 4.2: at once, so that the peer's loss recovery gets going and gets on.
            Arrival::FilledGap | Arrival::OutOfOrder | Arrival::Duplicate => self.acks.demand(),
            Arrival::Refused => {
                self.counters.payload_refused += 1;
                self.acks.demand();
            }
        }
        self.reach_fin(now);
    }

    /// Answers an unacceptable segment with an acknowledgment. One that carries nothing may be the other half of
    /// a loop of such answers, so those are limited.
    fn answer(&mut self, now: Instant, occupies: bool) {
        if occupies {
            self.acks.demand();
        } else {
            self.challenge(now);
        }
    }

    /// Asks the peer where it stands, at most once an interval (RFC 5961 section 7).
    fn challenge(&mut self, now: Instant) {
        if self.may_answer(now) {
            self.counters.challenge_acks += 1;
            self.pending.challenge = true;
        }
    }

    /// Whether one more segment may be answered that others could send in any number; counts it as answered.
    fn may_answer(&mut self, now: Instant) -> bool {
        let interval = self.config.challenge_ack_interval;
        if self.challenged_at.is_some_and(|at| now.saturating_since(at) < interval) {
            return false;
        }
        self.challenged_at = Some(now);
        true
    }

    /// Gives a frame back.
    pub(super) fn refuse(&mut self, payload: Option<Chunk<F>>) {
        if let Some(chunk) = payload {
            self.freed.push_back(chunk.frame);
        }
    }
}
