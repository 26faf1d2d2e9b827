//! The send queue: every segment from the oldest unacknowledged one to the newest written one.
//!
//! One ring holds all of them, in sequence; three positions divide it:
//!
//! ```text
//!   base          una                     nxt              end
//!    | acknowledged | sent, not acknowledged | never sent    |
//!    | (to be freed)| (the scoreboard)       |               |
//! ```
//!
//! Positions count records since the connection began, so that they stay valid while records leave at the front.

use alloc::collections::{VecDeque, vec_deque};
use core::time::Duration;

use crate::seq::Seq;
use crate::{Instant, SegmentOut, TxRing};

/// What is known of one sent segment; see [`Record::marks`].
pub(crate) mod mark {
    /// The peer holds it out of order.
    pub(crate) const SACKED: u8 = 1;
    /// Its first copy is believed lost, or every copy after a time-out.
    pub(crate) const LOST: u8 = 2;
    /// A retransmitted copy is believed to be in the network.
    pub(crate) const RETRANSMITTED: u8 = 4;
    /// It was retransmitted at some time, so it gives no round-trip time (Karn).
    pub(crate) const AMBIGUOUS: u8 = 8;
    /// Its last byte ends a write that asked to be pushed. Not part of the scoreboard.
    pub(crate) const PUSH: u8 = 16;
    /// With [`AMBIGUOUS`]: its last copy left so long after the one before that an acknowledgment soon after it
    /// can be taken for that copy's.
    pub(crate) const DISTINCT: u8 = 32;
    /// All but [`PUSH`].
    pub(crate) const SCOREBOARD: u8 = SACKED | LOST | RETRANSMITTED | AMBIGUOUS | DISTINCT;
}

/// One segment.
#[derive(Debug)]
pub(crate) struct Record<F> {
    pub(crate) frame: F,
    /// Of its first byte.
    pub(crate) seq: Seq,
    /// When it was last sent.
    pub(crate) sent_at: Instant,
    /// Payload bytes, at least one.
    pub(crate) len: u32,
    /// With [`mark::SACKED`]: this many records from here on are known to be sacked, at least one.
    pub(crate) sacked_run: u32,
    pub(crate) marks: u8,
}

impl<F> Record<F> {
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len
    }

    #[inline]
    pub(crate) fn segment(&mut self) -> SegmentOut<'_, F> {
        let push = self.marks & mark::PUSH != 0;
        SegmentOut { seq: self.seq.wire(), frame: &mut self.frame, len: self.len, push }
    }
}

/// Segments between `una` and `nxt` by their marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    /// Lost and not retransmitted since.
    pub(crate) waiting: u32,
    pub(crate) retransmitted: u32,
}

impl Counts {
    /// A segment with these marks joins the count.
    #[inline]
    pub(crate) fn add(&mut self, marks: u8) {
        self.sacked += u32::from(marks & mark::SACKED != 0);
        self.lost += u32::from(marks & mark::LOST != 0);
        self.waiting += u32::from(marks & (mark::LOST | mark::RETRANSMITTED) == mark::LOST);
        self.retransmitted += u32::from(marks & mark::RETRANSMITTED != 0);
    }

    /// A segment with these marks leaves the count.
    #[inline]
    pub(crate) fn remove(&mut self, marks: u8) {
        self.sacked -= u32::from(marks & mark::SACKED != 0);
        self.lost -= u32::from(marks & mark::LOST != 0);
        self.waiting -= u32::from(marks & (mark::LOST | mark::RETRANSMITTED) == mark::LOST);
        self.retransmitted -= u32::from(marks & mark::RETRANSMITTED != 0);
    }
}

/// What an acknowledgment did to the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Segments acknowledged cumulatively.
    pub(crate) acknowledged: u32,
    /// Segments that left the network by this acknowledgment: neither known before to have arrived nor believed
    /// lost.
    pub(crate) delivered: u32,
    /// When the oldest segment among them that was never retransmitted was sent.
    pub(crate) sent_at: Option<Instant>,
    /// A retransmitted segment is among the acknowledged ones, and which copy arrived cannot be told (Karn).
    pub(crate) ambiguous: bool,
    /// When the oldest segment among them whose last copy is [`mark::DISTINCT`] was sent again.
    pub(crate) resent_at: Option<Instant>,
    /// The peer told of a segment that it received twice (RFC 2883).
    pub(crate) duplicate: bool,
}

/// A run of records that leave as one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) segments: usize,
    pub(crate) bytes: u32,
    /// End of the last segment shorter than [`Bounds::longest`].
    pub(crate) small_end: Option<Seq>,
}

/// Bounds of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) segments: usize,
    pub(crate) bytes: u64,
    /// Where the peer's window ends.
    pub(crate) window_end: Seq,
    /// The longest segment that the path carries, in bytes of payload.
    pub(crate) longest: u32,
}

/// The ring and its scoreboard; the scoreboard's methods are in `scoreboard.rs`.
#[derive(Debug)]
pub(crate) struct SendQueue<F> {
    pub(crate) records: VecDeque<Record<F>>,
    pub(crate) base: u64,
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    /// Where the next written byte goes.
    pub(crate) end_seq: Seq,
    pub(crate) counts: Counts,
    /// The three highest sacked records, the highest first; zero for none (RFC 6675 DupThresh).
    pub(crate) highest_sacked: [u64; 3],
    /// Every record before it is sacked or was marked lost.
    pub(crate) lost_end: u64,
    /// No record before it waits for its retransmission.
    pub(crate) rexmit: u64,
    /// Where the search for segments of RFC 6675 NextSeg rule 3 goes on.
    pub(crate) early: u64,
    /// The SACK blocks of the last acknowledgment: most come again with the next.
    pub(crate) seen_blocks: xsend_wire::tcp::SackBlocks,
}

impl<F> SendQueue<F> {
    /// An empty queue whose first byte will have the number `seq`.
    pub(crate) fn new(seq: Seq) -> SendQueue<F> {
        SendQueue {
            records: VecDeque::new(),
            // Not zero, which means "none" in `highest_sacked`.
            base: 1,
            una: 1,
            nxt: 1,
            end_seq: seq,
            counts: Counts::default(),
            highest_sacked: [0; 3],
            lost_end: 1,
            rexmit: 1,
            early: 1,
            seen_blocks: xsend_wire::tcp::SackBlocks::EMPTY,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, position: u64) -> usize {
        (position - self.base) as usize
    }

    #[inline]
    pub(crate) fn at(&self, position: u64) -> &Record<F> {
        &self.records[(position - self.base) as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, position: u64) -> &mut Record<F> {
        &mut self.records[(position - self.base) as usize]
    }

    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// Segments sent and not acknowledged.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        (self.nxt - self.una) as u32
    }

    /// Segments believed to be in the network (RFC 6675 section 4, SetPipe, in segments).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        let Counts { sacked, lost, waiting: _, retransmitted } = self.counts;
        self.in_flight() - sacked - lost + retransmitted
    }

    /// Number of the first byte that was never sent.
    #[inline]
    pub(crate) fn nxt_seq(&self) -> Seq {
        if self.nxt < self.end() { self.at(self.nxt).seq } else { self.end_seq }
    }

    /// Number of the first byte of the first segment that is not acknowledged whole.
    pub(crate) fn una_seq(&self) -> Seq {
        self.records.get(self.slot(self.una)).map_or(self.end_seq, |record| record.seq)
    }

    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.nxt < self.end()
    }

    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.end_seq.since(self.nxt_seq())
    }

    /// The first segment that was never sent.
    #[inline]
    pub(crate) fn first_unsent(&self) -> Option<&Record<F>> {
        self.records.get(self.slot(self.nxt))
    }

    /// Appends a segment.
    pub(crate) fn push(&mut self, frame: F, len: u32, push: bool) {
        debug_assert!(len > 0);
        let marks = if push { mark::PUSH } else { 0 };
        let (seq, sent_at) = (self.end_seq, Instant::ZERO);
        self.records.push_back(Record { frame, seq, sent_at, len, sacked_run: 0, marks });
        self.end_seq += len;
    }

    /// Shortens a segment that is not sacked to `head_len` and puts `tail`, which holds the rest, behind it. Of a
    /// sent segment both parts have the same fate.
    pub(crate) fn split(&mut self, position: u64, head_len: u32, tail: F) {
        let slot = self.slot(position);
        let Some(head) = self.records.get_mut(slot) else { return };
        debug_assert!(0 < head_len && head_len < head.len && head.marks & mark::SACKED == 0);
        let rest = Record {
            frame: tail,
            seq: head.seq + head_len,
            sent_at: head.sent_at,
            len: head.len - head_len,
            sacked_run: 0,
            marks: head.marks,
        };
        head.len = head_len;
        head.marks &= !mark::PUSH;
        if position < self.nxt {
            self.nxt += 1;
            self.counts.add(rest.marks);
        }
        self.records.insert(slot + 1, rest);
        // What lies behind has moved by one.
        let [first, second, third] = &mut self.highest_sacked;
        for known in [first, second, third, &mut self.lost_end, &mut self.rexmit, &mut self.early] {
            if *known > position {
                *known += 1;
            }
        }
    }

    /// The records from `slot` on, in the two pieces of the ring: plain slices make tight loops.
    #[inline]
    fn pieces_from(&mut self, slot: usize) -> [&mut [Record<F>]; 2] {
        let (front, back) = self.records.as_mut_slices();
        match slot.checked_sub(front.len()) {
            None => [&mut front[slot..], back],
            Some(slot) => [&mut [], &mut back[slot..]],
        }
    }

    /// Sends as many unsent segments as `bounds` allow. At least one must be allowed.
    #[inline]
    pub(crate) fn send_unsent(&mut self, now: Instant, bounds: Bounds) -> Run {
        let first = self.nxt;
        let start = self.nxt_seq();
        // The windows and the batch size in one number.
        let limit = bounds.window_end.min(start + bounds.bytes);
        let mut left = bounds.segments;
        let mut end = start;
        let mut small_end = None;
        'run: for piece in self.pieces_from(self.slot(first)) {
            for record in piece {
                let over = record.end() > limit || record.len > bounds.longest;
                if left == 0 || over && left < bounds.segments {
                    break 'run;
                }
                record.sent_at = now;
                left -= 1;
                end = record.end();
                if record.len < bounds.longest {
                    small_end = Some(end);
                }
            }
        }
        let segments = bounds.segments - left;
        self.nxt += segments as u64;
        Run { first, segments, bytes: end.since(start) as u32, small_end }
    }

    /// Sends again what waits from `first` on, as far as it is consecutive and `bounds` and the ring allow; none
    /// if the ring holds the first one. Copies that leave `distinct_after` or more after the one before are
    /// [`mark::DISTINCT`].
    pub(crate) fn retransmit(
        &mut self,
        now: Instant,
        first: u64,
        bounds: Bounds,
        distinct_after: Duration,
        ring: &impl TxRing<F>,
    ) -> Run {
        let mut run = Run { first, segments: 0, bytes: 0, small_end: None };
        let (from, to) = (self.slot(first), self.slot(self.nxt));
        for record in self.records.range_mut(from..to) {
            let bytes = u64::from(run.bytes) + u64::from(record.len);
            // The first one was chosen by the caller; the rest must wait for retransmission themselves.
            let more = record.marks & (mark::LOST | mark::RETRANSMITTED) == mark::LOST
                && bytes <= bounds.bytes
                && record.len <= bounds.longest
                && record.seq < bounds.window_end;
            if run.segments == bounds.segments || run.segments > 0 && !more || ring.in_ring(&record.frame) {
                break;
            }
            let before = record.marks;
            record.marks |= mark::RETRANSMITTED | mark::AMBIGUOUS;
            record.marks &= !mark::DISTINCT;
            if now.saturating_since(record.sent_at) >= distinct_after {
                record.marks |= mark::DISTINCT;
            }
            record.sent_at = now;
            self.counts.remove(before);
            self.counts.add(record.marks);
            run.segments += 1;
            run.bytes = bytes as u32;
        }
        run
    }

    /// The records of `run`.
    #[inline]
    pub(crate) fn records_of(&mut self, run: Run) -> vec_deque::IterMut<'_, Record<F>> {
        let slot = self.slot(run.first);
        self.records.range_mut(slot..slot + run.segments)
    }

    /// Takes `ack` as the cumulative acknowledgment. A segment acknowledged in part stays whole: the peer
    /// trims what it has.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: Seq) -> Delivery {
        let mut delivery = Delivery::default();
        let (from, to) = (self.slot(self.una), self.slot(self.nxt));
        for record in self.records.range(from..to) {
            if record.end() > ack {
                break;
            }
            delivery.acknowledged += 1;
            let marks = record.marks & mark::SCOREBOARD;
            if marks == 0 {
                delivery.delivered += 1;
                delivery.sent_at.get_or_insert(record.sent_at);
                continue;
            }
            self.counts.remove(marks);
            if marks & mark::DISTINCT != 0 {
                delivery.resent_at.get_or_insert(record.sent_at);
            } else {
                delivery.ambiguous |= marks & mark::AMBIGUOUS != 0;
            }
            let in_network = marks & mark::RETRANSMITTED != 0;
            delivery.delivered += u32::from(in_network);
        }
        self.una += u64::from(delivery.acknowledged);
        delivery
    }

    /// The frame of a segment that was acknowledged.
    #[inline]
    pub(crate) fn pop_freed(&mut self) -> Option<F> {
        if self.base == self.una {
            return None;
        }
        self.base += 1;
        self.records.pop_front().map(|record| record.frame)
    }

    /// Gives up everything: all frames are to be freed.
    pub(crate) fn give_up(&mut self) {
        self.una = self.end();
        self.nxt = self.una;
        self.counts = Counts::default();
        self.forget_sacks();
        (self.lost_end, self.rexmit, self.early) = (self.una, self.una, self.una);
    }

    /// Panics if the books do not balance. Costs a walk over the queue.
    #[cfg(debug_assertions)]
    pub(crate) fn check_invariants(&self, whole: bool) {
        assert!(self.base <= self.una && self.una <= self.nxt && self.nxt <= self.end());
        assert!(self.rexmit <= self.lost_end.max(self.una));
        let Counts { sacked, lost, waiting, retransmitted } = self.counts;
        assert!(sacked + lost <= self.in_flight() && waiting <= lost && retransmitted <= self.in_flight());
        if !whole {
            return;
        }
        let mut counts = Counts::default();
        let mut seq = None;
        for (position, record) in (self.base..).zip(&self.records) {
            assert!(record.len > 0);
            assert_eq!(seq.unwrap_or(record.seq), record.seq, "the queue has no holes");
            seq = Some(record.end());
            if position < self.una {
                continue;
            }
            let marks = record.marks & mark::SCOREBOARD;
            if position >= self.nxt {
                assert_eq!(marks, 0, "nothing is known of an unsent segment");
                continue;
            }
            counts.add(marks);
            if marks & mark::SACKED != 0 {
                assert_eq!(marks & (mark::LOST | mark::RETRANSMITTED), 0);
            } else {
                let lost = marks & mark::LOST != 0;
                assert_eq!(lost, position < self.lost_end, "lost is what lies before lost_end");
                let waits = lost && marks & mark::RETRANSMITTED == 0;
                assert!(!waits || position >= self.rexmit, "what waits is found again");
            }
        }
        assert_eq!(counts, self.counts);
        assert_eq!(seq.unwrap_or(self.end_seq), self.end_seq);
    }
}
