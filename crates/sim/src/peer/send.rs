//! The peer's sending half: deliberately plain. Slow start, halving, three duplicate ACKs, go-back-N
//! after a time-out (RFC 5681 and 6298 without refinements); one timer for all of it, zero-window
//! probes included.
//!
//! Offsets are 64 bits wide: 0 is its SYN, byte `n` of its stream is `n + 1`, then comes its FIN.

use core::time::Duration;

use xsend_tcp::Instant;

use crate::rng::Rng;

const MIN_RTO: Duration = Duration::from_millis(300);
const MAX_RTO: Duration = Duration::from_secs(20);
/// Time-outs in a row, with no sign of life between, after which it gives up.
const MAX_RETRIES: u32 = 20;

/// One segment that is to leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emission {
    Syn,
    Data { offset: u64, len: u64 },
    Fin { offset: u64 },
}

/// What an acknowledgment was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acked {
    /// It acknowledges what was never sent.
    TooNew,
    /// Fine: new, old or duplicate.
    Fine,
}

#[derive(Debug)]
pub(super) struct Send {
    iss: u32,
    /// Bytes that the application sends in all.
    total: u64,
    /// The application has closed: a FIN follows the last byte.
    pub(super) closing: bool,
    ragged: bool,
    rng: Rng,
    /// The first unacknowledged offset.
    pub(super) una: u64,
    /// The next to be sent; goes back to `una` at a time-out.
    pub(super) next: u64,
    /// The furthest ever sent (exclusive).
    pub(super) max: u64,
    edge: u64,
    /// Sequence offset and acknowledgment of the segment that last set the window (RFC 9293, 3.10.7.4).
    window_from: (i64, u64),
    pub(super) scale: u8,
    pub(super) smss: u64,
    cwnd: u64,
    ssthresh: u64,
    duplicate_acks: u32,
    recover: Option<u64>,
    again: bool,
    timing: Option<(u64, Instant)>,
    srtt: Option<Duration>,
    backoff: u32,
    retries: u32,
    timer: Option<Instant>,
    forced: bool,
    pub(super) gave_up: bool,
    pub(super) retransmits: u64,
}

impl Send {
    pub(super) fn new(iss: u32, total: u64, ragged: bool, rng: Rng) -> Self {
        Self {
            iss,
            total,
            closing: false,
            ragged,
            rng,
            una: 0,
            next: 0,
            max: 0,
            edge: 1,
            window_from: (0, 0),
            scale: 0,
            smss: 536,
            cwnd: 10 * 1460,
            ssthresh: u64::MAX,
            duplicate_acks: 0,
            recover: None,
            again: false,
            timing: None,
            srtt: None,
            backoff: 0,
            retries: 0,
            timer: None,
            forced: false,
            gave_up: false,
            retransmits: 0,
        }
    }

    pub(super) fn seq_of(&self, offset: u64) -> u32 {
        self.iss.wrapping_add(offset as u32)
    }

    /// The offset of an acknowledgment number, below zero if it lies before the SYN.
    pub(super) fn offset_of(&self, ack: u32) -> i64 {
        self.una as i64 + i64::from(ack.wrapping_sub(self.seq_of(self.una)) as i32)
    }

    /// Nothing may follow what was already sent; FIN comes next.
    pub(super) fn cut(&mut self) {
        self.total = self.total.min(self.max.saturating_sub(1));
        self.closing = true;
    }

    pub(super) fn all_sent(&self) -> bool {
        self.max > self.total
    }

    fn fin_offset(&self) -> u64 {
        self.total + 1
    }

    /// True once the FIN was acknowledged.
    pub(super) fn finished(&self) -> bool {
        self.closing && self.una == self.fin_offset() + 1
    }

    pub(super) fn timer(&self) -> Option<Instant> {
        self.timer
    }

    /// An acceptable segment's ACK and window; `seq` is its offset, `bare` says that it carried
    /// neither data nor FIN.
    pub(super) fn on_ack(&mut self, now: Instant, seq: i64, ack: u32, window: u16, bare: bool) -> Acked {
        let offset = self.offset_of(ack);
        if offset > self.max as i64 {
            return Acked::TooNew;
        }
        self.retries = 0;
        if offset < self.una as i64 {
            return Acked::Fine;
        }
        let offset = offset as u64;
        let edge = offset + (u64::from(window) << self.scale);
        let same_window = edge == self.edge;
        if seq > self.window_from.0 || (seq == self.window_from.0 && offset >= self.window_from.1) {
            self.window_from = (seq, offset);
            if self.edge <= self.una && edge > self.una {
                // The window was shut: what probed it was refused and must go again.
                self.next = self.una;
                self.backoff = 0;
                self.timer = None;
            }
            self.edge = edge;
        }
        if offset > self.una {
            self.advance(now, offset);
        } else if bare && same_window && self.next > self.una {
            self.duplicate_acks += 1;
            if self.duplicate_acks == 3 && self.recover.is_none() {
                self.ssthresh = ((self.next - self.una) / 2).max(2 * self.smss);
                self.cwnd = self.ssthresh;
                self.recover = Some(self.max);
                self.again = true;
            }
        }
        Acked::Fine
    }

    fn advance(&mut self, now: Instant, offset: u64) {
        let acked = offset - self.una;
        if let Some((_, sent_at)) = self.timing.take_if(|(end, _)| *end <= offset) {
            let sample = now.saturating_since(sent_at);
            self.srtt = Some(self.srtt.map_or(sample, |srtt| (srtt * 7 + sample) / 8));
        }
        self.una = offset;
        self.next = self.next.max(offset);
        self.duplicate_acks = 0;
        self.backoff = 0;
        self.timer = None;
        match self.recover {
            Some(recover) if offset < recover => self.again = true,
            Some(_) => self.recover = None,
            None if self.cwnd < self.ssthresh => self.cwnd += acked.min(2 * self.smss),
            None => self.cwnd += (self.smss * self.smss / self.cwnd).max(1),
        }
    }

    /// The timer has run out: everything unacknowledged counts as lost, or the window is probed.
    pub(super) fn on_timer(&mut self) {
        self.timer = None;
        self.retries += 1;
        if self.retries > MAX_RETRIES {
            self.gave_up = true;
            return;
        }
        self.backoff += 1;
        self.ssthresh = ((self.next - self.una) / 2).max(2 * self.smss);
        self.cwnd = self.smss;
        self.recover = None;
        self.duplicate_acks = 0;
        self.timing = None;
        self.next = self.una;
        self.forced = true;
    }

    /// What leaves now.
    pub(super) fn emit(&mut self, now: Instant, out: &mut Vec<Emission>) {
        if self.una == 0 {
            if self.next == 0 {
                out.push(Emission::Syn);
                self.retransmits += u64::from(self.max > 0);
                (self.next, self.max) = (1, 1);
            }
            self.arm(now);
            return;
        }
        if core::mem::take(&mut self.again) && self.next > self.una {
            self.timing = None;
            let resumed = core::mem::replace(&mut self.next, self.una);
            self.emit_one(now, true, out);
            self.next = self.next.max(resumed);
        }
        let forced = core::mem::take(&mut self.forced);
        if forced {
            self.emit_one(now, true, out);
        }
        while self.emit_one(now, false, out) {}
        self.arm(now);
    }

    /// One more segment, if the windows allow it or it is `forced`.
    fn emit_one(&mut self, now: Instant, forced: bool, out: &mut Vec<Emission>) -> bool {
        let limit = self.edge.min(self.una + self.cwnd);
        let room = limit.saturating_sub(self.next).max(u64::from(forced));
        let left = (self.total + 1).saturating_sub(self.next);
        if left == 0 {
            if !self.closing || self.next != self.fin_offset() || room == 0 {
                return false;
            }
            out.push(Emission::Fin { offset: self.next });
            self.sent(now, 1);
            return true;
        }
        let mut len = self.smss.min(left).min(room);
        if self.ragged && len > 0 {
            len = self.rng.between(1, len);
        } else if len < self.smss.min(left) && self.next > self.una && !forced {
            // Silly-window avoidance: RFC 9293, 3.8.6.2.1.
            return false;
        }
        if len == 0 {
            return false;
        }
        out.push(Emission::Data { offset: self.next, len });
        self.sent(now, len);
        true
    }

    fn sent(&mut self, now: Instant, len: u64) {
        self.next += len;
        if self.next > self.max {
            if self.timing.is_none() {
                self.timing = Some((self.next, now));
            }
            self.max = self.next;
        } else {
            self.retransmits += 1;
        }
    }

    /// The timer runs while anything is unacknowledged, and while the window keeps data back.
    fn arm(&mut self, now: Instant) {
        let waits = self.next <= self.total || (self.closing && self.next == self.fin_offset());
        if self.next == self.una && !waits {
            self.timer = None;
        } else if self.timer.is_none() {
            let rto = self.srtt.map_or(Duration::from_secs(1), |srtt| (srtt * 3).max(MIN_RTO));
            self.timer = Some(now + (rto * (1 << self.backoff.min(8))).min(MAX_RTO));
        }
    }
}
