//! What leaves now.

use core::time::Duration;

use xsend_wire::tcp::{Flags, Options, SackBlocks};

use super::{Connection, Fin, State};
use crate::congestion::Limit;
use crate::delayed_ack::Due;
use crate::queue::{Bounds, Run, mark};
use crate::recovery::{DISTINCT_AFTER, Phase};
use crate::seq::Seq;
use crate::{Batch, Control, Instant, Transmit, TxRing};

/// What [`Connection::choose`] decided.
enum Choice {
    /// These segments, already accounted as sent.
    Run {
        run: Run,
        retransmission: bool,
    },
    Split(Split),
    Nothing,
}

/// A segment is longer than what may be sent of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    position: u64,
    head_len: u32,
}

impl<F> Connection<F> {
    /// What to send now: at most `budget_segments` segments. To be called until it returns `None`.
    #[inline]
    pub fn poll_transmit<'a>(
        &'a mut self,
        now: Instant,
        budget_segments: usize,
        ring: &impl TxRing<F>,
    ) -> Option<Transmit<'a, F>> {
        if budget_segments == 0 {
            return None;
        }
        if let Some(control) = self.urgent(now) {
            return Some(Transmit::Control(control));
        }
        match if self.state.sends() { self.choose(now, budget_segments, ring) } else { Choice::Nothing } {
            Choice::Run { run, retransmission } => {
                return Some(Transmit::Data(self.batch(now, run, retransmission)));
            }
            Choice::Split(split) => {
                self.split = Some(split);
                return Some(Transmit::Split);
            }
            Choice::Nothing => {}
        }
        let control = self.trailing(now);
        debug_assert!(
            control.is_some()
                || !self.state.sends()
                || !self.queue.has_unsent()
                || self.timers.retransmit.is_some()
                || self.timers.pace.is_some(),
            "what waits has a timer"
        );
        control.map(Transmit::Control)
    }

    /// A control segment that is due whatever data waits for: a reset, a SYN, an acknowledgment. For a flow that has
    /// used up its share of the TX ring, so that the data it receives is acknowledged all the same; there is no need
    /// to call it where [`Connection::poll_transmit`] is called with a budget.
    pub fn poll_control(&mut self, now: Instant) -> Option<Control> {
        self.urgent(now).or_else(|| (self.acks.due == Due::Now).then(|| self.acknowledgment(now)))
    }

    /// Answers [`Transmit::Split`]. `split(frame, head_len, len)` is to leave the first `head_len` of the frame's
    /// `len` bytes where they are and return another frame with the rest, or `None` if there is no frame for it
    /// now; then the rest of this round goes without that segment, and the next round asks again.
    pub fn on_split(&mut self, split: impl FnOnce(&mut F, u32, u32) -> Option<F>) {
        let Some(Split { position, head_len }) = self.split.take() else { return };
        if position < self.queue.una || position >= self.queue.end() {
            return;
        }
        let record = self.queue.at_mut(position);
        // It may have been acknowledged since, or reported as received.
        if head_len >= record.len || record.marks & mark::SACKED != 0 {
            return;
        }
        match split(&mut record.frame, head_len, record.len) {
            Some(tail) => self.queue.split(position, head_len, tail),
            None => self.split_refused = true,
        }
        self.check_invariants();
    }

    /// Segments that must be sent again have waited too long for the TX ring to give back their frames.
    /// `replace(frame, len)` is called for each segment to be sent again; it may put a copy in the place of a
    /// frame that is stuck.
    pub fn on_stuck(&mut self, mut replace: impl FnMut(&mut F, u32)) {
        if !core::mem::take(&mut self.blocked_on_ring) {
            return;
        }
        let (from, to) = (self.queue.slot(self.queue.una), self.queue.slot(self.queue.nxt));
        for record in self.queue.records.range_mut(from..to) {
            if record.marks & (mark::LOST | mark::RETRANSMITTED) == mark::LOST {
                replace(&mut record.frame, record.len);
            }
        }
    }

    /// Whether a last segment of `len` bytes, though small, should be sealed and queued now: everything queued is
    /// sent, and congestion window, peer's window, pacing and the Nagle algorithm (or NODELAY) let it go. If not,
    /// the tail may stay open and grow.
    ///
    /// With nothing in flight the peer's window is not asked: only a queued segment is probed for.
    pub fn may_send_tail(&self, now: Instant, len: u32) -> bool {
        let open = self.fin == Fin::Open && matches!(self.state, State::Established | State::CloseWait);
        if !open || self.queue.has_unsent() || !self.pacer.allows(now) {
            return false;
        }
        if !self.in_flight() {
            return true;
        }
        let fits = self.queue.counts.waiting == 0
            && self.pipe() < self.congestion.cwnd()
            && self.snd_nxt + len <= self.window_end();
        // RFC 9293 3.7.4, in Minshall's form, which Linux has too: only an unacknowledged small segment holds
        // a small one back.
        fits && (self.nodelay || len >= self.smss || self.snd_sml <= self.snd_una)
    }

    /// Control segments that go before data.
    #[inline]
    fn urgent(&mut self, now: Instant) -> Option<Control> {
        if let Some(mut reset) = self.pending.reset.take() {
            if self.timestamps && reset.flags.contains(Flags::ACK) {
                reset.options.timestamps = Some(self.clock.option(now));
            }
            return Some(reset);
        }
        if core::mem::take(&mut self.pending.syn) {
            return Some(self.syn(now));
        }
        // Data carries no SACK blocks, and a retransmission not the number a challenge is answered with.
        let blocks = self.acks.due == Due::Now && self.sack && self.receiver.has_blocks();
        (core::mem::take(&mut self.pending.challenge) || blocks).then(|| self.acknowledgment(now))
    }

    /// Control segments that are spared if data carries what they would, or that follow all data.
    fn trailing(&mut self, now: Instant) -> Option<Control> {
        if let Some(fin) = self.fin_segment(now) {
            return Some(fin);
        }
        if self.pending.probe || self.pending.keep_alive {
            // An old number, which the peer answers with an acknowledgment, as Linux probes: it needs no byte of
            // data, which would have to be split off, and that peers answer which RFC 9293 3.8.4 worries about.
            self.counters.window_probes += u64::from(self.pending.probe);
            self.counters.keep_alive_probes += u64::from(self.pending.keep_alive);
            (self.pending.probe, self.pending.keep_alive) = (false, false);
            let seq = self.snd_una.back(1).wire();
            return Some(Control { seq, ..self.acknowledgment(now) });
        }
        (self.acks.due == Due::Now).then(|| self.acknowledgment(now))
    }

    /// A pure acknowledgment.
    fn acknowledgment(&mut self, now: Instant) -> Control {
        let timestamps = self.timestamps.then(|| self.clock.option(now));
        let sack = if self.sack {
            self.receiver.take_blocks(if self.timestamps { 3 } else { 4 })
        } else {
            SackBlocks::EMPTY
        };
        let seq = self.acceptable_seq().wire();
        let window = self.offer();
        let ack = self.receiver.rcv_nxt.wire();
        let options = Options { timestamps, sack, ..Options::default() };
        Control { seq, ack, flags: Flags::ACK, window, options }
    }

    /// The number of a segment that carries nothing: where the peer took its window back, one beyond it would not be
    /// acceptable.
    pub(super) fn acceptable_seq(&self) -> Seq {
        self.snd_nxt.min(self.window_end().max(self.snd_una))
    }

    /// A segment leaves that acknowledges all that was received: returns its window.
    #[inline]
    fn offer(&mut self) -> u16 {
        self.acks.on_sent(self.receiver.rcv_nxt);
        self.timers.ack = None;
        self.receiver.offer()
    }

    /// The FIN, once everything before it was sent. It obeys the peer's window but not the congestion window.
    fn fin_segment(&mut self, now: Instant) -> Option<Control> {
        if !self.state.sends() || self.queue.has_unsent() || self.queue.counts.waiting > 0 {
            return None;
        }
        match self.fin {
            Fin::Queued if self.snd_nxt < self.window_end() => {
                self.fin = Fin::Sent { lost: false };
                let started = !self.in_flight();
                self.snd_nxt += 1;
                self.start_flight(now, started);
            }
            Fin::Queued => {
                self.arm_probe(now);
                return None;
            }
            Fin::Sent { lost: true } => self.fin = Fin::Sent { lost: false },
            Fin::Open | Fin::Sent { lost: false } | Fin::Acknowledged => return None,
        }
        let seq = self.snd_nxt.back(1).wire();
        Some(Control { seq, flags: Flags::FIN | Flags::ACK, ..self.acknowledgment(now) })
    }

    /// Something new is in flight; `first` if nothing was before.
    #[inline]
    fn start_flight(&mut self, now: Instant, first: bool) {
        if first {
            // RFC 6298 5.1. Until now the timer may have been that of window probes.
            (self.probes, self.retries) = (0, 0);
            self.waiting_since = now;
            self.arm_retransmit(now);
        }
    }

    /// Decides which data leaves and accounts for it: NextSeg of RFC 6675 section 4, under the congestion window
    /// and the peer's.
    #[inline]
    fn choose(&mut self, now: Instant, budget: usize, ring: &impl TxRing<F>) -> Choice {
        self.blocked_on_ring = false;
        if !self.pacer.allows(now) {
            return Choice::Nothing;
        }
        let room = self.congestion.cwnd().saturating_sub(self.pipe());
        // Rule 1
        if let Some(first) = self.queue.next_lost() {
            return self.choose_lost(now, first, budget, room, ring);
        }
        // Rule 2
        match self.choose_unsent(now, budget, room) {
            Choice::Nothing => {}
            choice => return choice,
        }
        match self.recovery.phase {
            Phase::Recovery { rescued, .. } if self.sack && room > 0 => self.choose_early(now, rescued, ring),
            Phase::Recovery { .. } | Phase::Open | Phase::Loss { .. } => Choice::Nothing,
        }
    }

    /// Segments from `first` on that were lost.
    fn choose_lost(
        &mut self,
        now: Instant,
        first: u64,
        budget: usize,
        room: u32,
        ring: &impl TxRing<F>,
    ) -> Choice {
        // RFC 6675 section 5 step 4.3: the first retransmission does not wait for the pipe to drain.
        let least = u32::from(self.recovery.forced || self.pipe() == 0);
        let room = room.max(least);
        if room == 0 {
            self.note_visit(Limit::Window);
            return Choice::Nothing;
        }
        // RFC 9293 3.8.6: where the peer took its window back only the first segment is sent again, as a probe.
        if first > self.queue.una && self.queue.at(first).seq >= self.window_end() {
            return Choice::Nothing;
        }
        if let Some(choice) = self.split_oversized(first, ring) {
            return choice;
        }
        let bounds = self.bounds(budget, room);
        let run = self.queue.retransmit(now, first, bounds, self.distinct_after(), ring);
        if run.segments == 0 {
            self.blocked_on_ring = true;
            return Choice::Nothing;
        }
        self.recovery.forced = false;
        self.retransmitted(now, run)
    }

    /// A segment cut before the path's MTU shrank is not sent again whole (RFC 1191 6.4). The bytes of one that
    /// is still in the TX ring stay where they are.
    fn split_oversized(&mut self, position: u64, ring: &impl TxRing<F>) -> Option<Choice> {
        let record = self.queue.at(position);
        if record.len <= self.smss {
            return None;
        }
        if ring.in_ring(&record.frame) {
            self.blocked_on_ring = true;
            return Some(Choice::Nothing);
        }
        if core::mem::take(&mut self.split_refused) {
            return Some(Choice::Nothing);
        }
        Some(Choice::Split(Split { position, head_len: self.smss }))
    }

    /// RFC 6675 NextSeg rules 3 and 4: with nothing better to send, a segment that is not believed lost yet.
    fn choose_early(&mut self, now: Instant, rescued: bool, ring: &impl TxRing<F>) -> Choice {
        let early = self.queue.next_early();
        let rescue = early.is_none() && !rescued;
        // The one rescue is not for a segment that just left and could not be acknowledged yet.
        let round_trip = self.rtt.srtt().unwrap_or_default();
        let overdue =
            |position: &u64| rescue && now.saturating_since(self.queue.at(*position).sent_at) >= round_trip;
        let Some(first) = early.or_else(|| self.queue.last_outstanding().filter(overdue)) else {
            return Choice::Nothing;
        };
        if self.queue.at(first).seq >= self.window_end() {
            return Choice::Nothing;
        }
        if let Some(choice) = self.split_oversized(first, ring) {
            return choice;
        }
        let run = self.queue.retransmit(now, first, self.bounds(1, 1), self.distinct_after(), ring);
        if run.segments == 0 {
            self.blocked_on_ring = true;
            return Choice::Nothing;
        }
        if let (true, Phase::Recovery { rescued, .. }) = (rescue, &mut self.recovery.phase) {
            *rescued = true;
        }
        self.retransmitted(now, run)
    }

    /// Accounts for a run that is sent again.
    fn retransmitted(&mut self, now: Instant, run: Run) -> Choice {
        self.counters.retransmitted_segments += run.segments as u64;
        self.counters.retransmitted_bytes += u64::from(run.bytes);
        if run.first == self.queue.una {
            // The timer counts from the copy that it stands for.
            self.arm_retransmit(now);
        }
        self.account(now, run);
        Choice::Run { run, retransmission: true }
    }

    /// Segments that were never sent.
    #[inline]
    fn choose_unsent(&mut self, now: Instant, budget: usize, room: u32) -> Choice {
        let Some(head) = self.queue.first_unsent() else { return Choice::Nothing };
        let whole = head.len;
        let Some(len) = self.length_to_send(whole) else {
            self.note_visit(Limit::Other);
            self.arm_probe(now);
            return Choice::Nothing;
        };
        if room == 0 && self.pipe() > 0 {
            self.note_visit(Limit::Window);
            return Choice::Nothing;
        }
        if len < whole {
            if core::mem::take(&mut self.split_refused) {
                self.arm_probe(now);
                return Choice::Nothing;
            }
            return Choice::Split(Split { position: self.queue.nxt, head_len: len });
        }
        let first = !self.in_flight();
        let room = if first { self.room_after_idling(now) } else { room };
        let run = self.queue.send_unsent(now, self.bounds(budget, room.max(1)));
        self.sws_override = false;
        self.snd_nxt += run.bytes;
        if let Some(end) = run.small_end {
            self.snd_sml = end;
        }
        self.start_flight(now, first);
        let full = self.pipe() >= self.congestion.cwnd();
        self.note_visit(if full { Limit::Window } else { Limit::Other });
        self.account(now, run);
        Choice::Run { run, retransmission: false }
    }

    /// How much of the first unsent segment, `whole` bytes long, the peer's window lets out: the segment, a part
    /// worth sending, or nothing (sender's SWS avoidance, RFC 9293 3.8.6.2.1).
    #[inline]
    fn length_to_send(&self, whole: u32) -> Option<u32> {
        let len = whole.min(self.smss);
        let usable = self.window_end().since(self.snd_nxt);
        if u64::from(len) <= usable {
            return Some(len);
        }
        let worthwhile = usable.saturating_mul(2) >= self.max_snd_wnd || self.sws_override;
        (usable > 0 && worthwhile).then_some(usable as u32)
    }

    /// The congestion window's room when nothing is in flight, after what idleness takes (RFC 5681 4.1).
    fn room_after_idling(&mut self, now: Instant) -> u32 {
        if self.config.slow_start_after_idle && self.recovery.phase == Phase::Open {
            let idle = now.saturating_since(self.sent_at);
            self.congestion.on_idle(idle, self.rtt.rto(0));
        }
        self.congestion.cwnd()
    }

    /// How far apart two copies are sent to be told apart.
    fn distinct_after(&self) -> Duration {
        self.rtt.rto(0) * DISTINCT_AFTER
    }

    fn bounds(&self, budget: usize, room: u32) -> Bounds {
        Bounds {
            segments: budget.min(room as usize).min(self.pacer.batch_segments()),
            bytes: u64::from(self.config.max_batch_bytes),
            window_end: self.window_end(),
            longest: self.smss,
        }
    }

    #[inline]
    fn note_visit(&mut self, limit: Limit) {
        self.congestion.on_visit(limit, self.queue.in_flight(), self.snd_una, self.snd_nxt);
    }

    /// Accounts for a run, new or not.
    #[inline]
    fn account(&mut self, now: Instant, run: Run) {
        self.sent_at = now;
        self.counters.segments_out += run.segments as u64;
        if let Some(next) = self.pacer.on_sent(now, run.bytes) {
            self.timers.pace = Some(next);
        }
    }

    #[inline]
    fn batch(&mut self, now: Instant, run: Run, retransmission: bool) -> Batch<'_, F> {
        let timestamps = self.timestamps.then(|| self.clock.option(now));
        let window = self.offer();
        Batch {
            seq: self.queue.at(run.first).seq.wire(),
            ack: self.receiver.rcv_nxt.wire(),
            window,
            timestamps,
            retransmission,
            payload_bytes: run.bytes,
            records: self.queue.records_of(run),
        }
    }
}
