//! The scoreboard: which sent segments arrived, which are lost, which are to be sent again (RFC 2018, RFC
//! 6675).
//!
//! No acknowledgment, however hostile, makes it walk over the whole flight again and again. Runs of sacked
//! segments are skipped by union-find with path halving; the border below which everything unsacked is lost,
//! and the one below which everything lost was sent again, only move forward between two time-outs. So the cost
//! is one binary search a new block plus a near-constant amount for each segment that changes state.

use xsend_wire::tcp::SackBlocks;

use crate::queue::{Delivery, Record, SendQueue, mark};
use crate::seq::Seq;

impl<F> SendQueue<F> {
    /// Takes the SACK blocks of an acknowledgment of `snd_una`; nothing beyond `snd_nxt` was sent.
    pub(crate) fn sack(&mut self, blocks: &SackBlocks, snd_una: Seq, snd_nxt: Seq) -> Delivery {
        let mut delivery = Delivery::default();
        let mut seen = SackBlocks::EMPTY;
        let mut first = (snd_una, snd_una);
        for (at, (left, right)) in blocks.iter().enumerate() {
            let range = (snd_una.nearest(left), snd_una.nearest(right));
            if at == 0 {
                first = range;
            }
            if range.0 >= range.1 || range.1 > snd_nxt {
                // Never sent: a liar, or an old connection's.
                continue;
            }
            if range.0 < snd_una {
                // RFC 2883 section 4.1.1: a first block below the acknowledgment tells of a duplicate.
                delivery.duplicate |= at == 0;
                continue;
            }
            if at == 1 {
                // RFC 2883 section 4.2: so does a first block inside the second one.
                delivery.duplicate |= range.0 <= first.0 && first.1 <= range.1;
            }
            if !self.seen_blocks.as_slice().contains(&(left, right)) {
                self.sack_range(range.0, range.1, &mut delivery);
            }
            seen.push(left, right);
        }
        self.seen_blocks = seen;
        delivery
    }

    /// The peer holds the bytes from `left` up to `right`. A segment held in part counts as missing.
    fn sack_range(&mut self, left: Seq, right: Seq, delivery: &mut Delivery) {
        let slot = self.records.partition_point(|record| record.seq < left);
        let mut position = (self.base + slot as u64).max(self.una);
        loop {
            position = self.skip_sacked(position);
            if position >= self.nxt || self.at(position).end() > right {
                return;
            }
            self.mark_sacked(position, delivery);
            position += 1;
        }
    }

    /// The first record from `position` on that is not sacked, or one at or past `nxt`.
    fn skip_sacked(&mut self, mut position: u64) -> u64 {
        while position < self.nxt {
            let record = self.at(position);
            if record.marks & mark::SACKED == 0 {
                break;
            }
            let next = position + u64::from(record.sacked_run);
            if next < self.nxt && self.at(next).marks & mark::SACKED != 0 {
                // Path halving: the next search from here skips both runs.
                let longer = self.at(next).sacked_run;
                self.at_mut(position).sacked_run += longer;
            }
            position = next;
        }
        position
    }

    fn mark_sacked(&mut self, position: u64, delivery: &mut Delivery) {
        let record = self.at_mut(position);
        let before = record.marks;
        record.marks = before & !(mark::LOST | mark::RETRANSMITTED) | mark::SACKED;
        record.sacked_run = 1;
        let (after, sent_at) = (record.marks, record.sent_at);
        self.counts.remove(before);
        self.counts.add(after);
        let in_network = before & (mark::LOST | mark::RETRANSMITTED) != mark::LOST;
        delivery.delivered += u32::from(in_network);
        if before & mark::AMBIGUOUS == 0 {
            let oldest = delivery.sent_at.map_or(sent_at, |oldest| oldest.min(sent_at));
            delivery.sent_at = Some(oldest);
        }
        let [first, second, third] = &mut self.highest_sacked;
        if position > *first {
            (*first, *second, *third) = (position, *first, *second);
        } else if position > *second {
            (*second, *third) = (position, *second);
        } else if position > *third {
            *third = position;
        }
    }

    /// Marks as lost what RFC 6675 section 4, IsLost, says is: each segment with DupThresh = 3 sacked segments
    /// above it. (The sender knows its segments, so it need not infer them from bytes as the RFC must.)
    pub(crate) fn detect_losses(&mut self) {
        let third = self.highest_sacked[2];
        if third > self.lost_end {
            self.mark_lost_before(third);
        }
    }

    /// The first unacknowledged segment is lost: what three duplicate acknowledgments, or a partial one in
    /// recovery, mean without SACK (RFC 6582 3.2).
    pub(crate) fn mark_first_lost(&mut self) {
        if self.una < self.nxt && self.lost_end <= self.una {
            self.mark_lost_before(self.una + 1);
        }
    }

    fn mark_lost_before(&mut self, end: u64) {
        let mut position = self.lost_end.max(self.una);
        loop {
            position = self.skip_sacked(position);
            if position >= end {
                break;
            }
            let record = self.at_mut(position);
            let before = record.marks;
            record.marks |= mark::LOST;
            let after = record.marks;
            self.counts.remove(before);
            self.counts.add(after);
            position += 1;
        }
        self.lost_end = end;
    }

    /// The path carries no segment longer than `smss`: those in flight are lost, whatever was believed of their
    /// copies, and with them, since what is lost is a prefix, the unsacked ones before the last of them. Returns
    /// whether there are any. Costs a walk over the flight.
    pub(crate) fn mark_oversized_lost(&mut self, smss: u32) -> bool {
        let too_long = |record: &Record<F>| record.len > smss && record.marks & mark::SACKED == 0;
        let (from, to) = (self.slot(self.una), self.slot(self.nxt));
        let Some(last) = self.records.range(from..to).rposition(too_long) else { return false };
        let end = self.una + last as u64 + 1;
        for record in self.records.range_mut(from..=from + last) {
            let before = record.marks;
            if before & mark::SACKED == 0 {
                record.marks |= mark::LOST;
            }
            if record.len > smss {
                record.marks &= !mark::RETRANSMITTED;
            }
            self.counts.remove(before);
            self.counts.add(record.marks);
        }
        self.lost_end = self.lost_end.max(end);
        self.rexmit = self.una;
        true
    }

    /// The retransmission timer expired: nothing is believed to be in the network any more (RFC 6675 section
    /// 5.1). Returns whether the peer turned out to have reneged.
    pub(crate) fn mark_all_lost(&mut self) -> bool {
        // RFC 2018 section 8: the peer may drop what it sacked. Only then is the first unacknowledged segment
        // a sacked one, for otherwise it would have been acknowledged.
        let reneged = self.una < self.nxt && self.at(self.una).marks & mark::SACKED != 0;
        if reneged {
            self.forget_sacks();
        }
        let (from, to) = (self.slot(self.una), self.slot(self.nxt));
        for record in self.records.range_mut(from..to) {
            if reneged {
                record.marks &= !mark::SACKED;
            }
            record.marks &= !mark::RETRANSMITTED;
            if record.marks & mark::SACKED == 0 {
                record.marks |= mark::LOST;
            }
        }
        let sacked = if reneged { 0 } else { self.counts.sacked };
        let lost = self.in_flight() - sacked;
        self.counts = crate::queue::Counts { sacked, lost, waiting: lost, retransmitted: 0 };
        self.lost_end = self.nxt;
        self.rexmit = self.una;
        reneged
    }

    pub(crate) fn forget_sacks(&mut self) {
        self.highest_sacked = [0; 3];
        self.seen_blocks = SackBlocks::EMPTY;
    }

    /// RFC 6675 NextSeg rule 1: the first segment that is lost and was not sent again.
    #[inline]
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        if self.counts.waiting == 0 {
            return None;
        }
        self.rexmit = self.rexmit.max(self.una);
        while self.rexmit < self.lost_end {
            let marks = self.at(self.rexmit).marks;
            if marks & (mark::LOST | mark::RETRANSMITTED) == mark::LOST {
                return Some(self.rexmit);
            }
            self.rexmit = if marks & mark::SACKED != 0 {
                self.skip_sacked(self.rexmit).min(self.lost_end)
            } else {
                self.rexmit + 1
            };
        }
        None
    }

    /// RFC 6675 NextSeg rule 3: the first segment not yet believed lost that has a sacked one above it.
    pub(crate) fn next_early(&mut self) -> Option<u64> {
        let mut position = self.early.max(self.lost_end).max(self.una);
        while position < self.highest_sacked[0] {
            position = self.skip_sacked(position);
            if position >= self.highest_sacked[0] {
                break;
            }
            if self.at(position).marks & mark::RETRANSMITTED == 0 {
                self.early = position;
                return Some(position);
            }
            position += 1;
        }
        self.early = position;
        None
    }

    /// RFC 6675 NextSeg rule 4: the last outstanding segment, if it is not sacked and was not sent again.
    pub(crate) fn last_outstanding(&self) -> Option<u64> {
        let last = self.nxt - 1;
        let fresh = last >= self.una
            && self.at(last).marks & (mark::SACKED | mark::RETRANSMITTED) == 0
            && last > self.highest_sacked[0];
        fresh.then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Bounds;
    use crate::{Instant, NoRing};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use core::time::Duration;
    use proptest::prelude::*;

    const LEN: u64 = 10;
    const DISTINCT_AFTER: Duration = Duration::from_secs(1);

    fn start() -> Seq {
        Seq::start(u32::MAX - 95)
    }

    fn at(segment: u64) -> Seq {
        start() + segment * LEN
    }

    fn bounds(segments: usize) -> Bounds {
        let window_end = start() + (1u64 << 30);
        Bounds { segments, bytes: 1 << 20, window_end, longest: LEN as u32 }
    }

    fn queue(segments: usize, sent: usize) -> SendQueue<usize> {
        let mut queue = SendQueue::new(start());
        for frame in 0..segments {
            queue.push(frame, LEN as u32, false);
        }
        queue.send_unsent(Instant::ZERO, bounds(sent));
        queue
    }

    fn blocks(ranges: &[(u64, u64)]) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        for (left, right) in ranges {
            blocks.push(at(*left).wire(), at(*right).wire());
        }
        blocks
    }

    /// The same, said naively.
    #[derive(Default)]
    struct Model {
        una: u64,
        nxt: u64,
        sacked: BTreeSet<u64>,
        lost: BTreeSet<u64>,
        again: BTreeSet<u64>,
    }

    impl Model {
        fn sack(&mut self, left: u64, right: u64) {
            if left >= self.una && left < right && right <= self.nxt {
                for segment in left..right {
                    self.sacked.insert(segment);
                    self.lost.remove(&segment);
                    self.again.remove(&segment);
                }
            }
            // RFC 6675 IsLost
            for segment in self.una..self.nxt {
                if !self.sacked.contains(&segment) && self.sacked.range(segment..).count() >= 3 {
                    self.lost.insert(segment);
                }
            }
        }

        fn pipe(&self) -> u64 {
            (self.una..self.nxt)
                .map(|segment| {
                    let sacked = self.sacked.contains(&segment);
                    u64::from(!sacked && !self.lost.contains(&segment))
                        + u64::from(self.again.contains(&segment))
                })
                .sum()
        }

        fn next_lost(&self) -> Option<u64> {
            self.lost.iter().copied().find(|segment| !self.again.contains(segment))
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send(u8),
        Sack(Vec<(u8, u8)>),
        Acknowledge(u8),
        Retransmit(u8),
        Early,
        Timeout,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..20u8).prop_map(Step::Send),
            8 => prop::collection::vec((0..60u8, 1..12u8), 1..5).prop_map(Step::Sack),
            2 => (0..10u8).prop_map(Step::Acknowledge),
            4 => (1..8u8).prop_map(Step::Retransmit),
            1 => Just(Step::Early),
            1 => Just(Step::Timeout),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn the_scoreboard_agrees_with_its_definition(steps in prop::collection::vec(step(), 1..80)) {
            let mut queue = queue(2000, 1);
            let mut model = Model { nxt: 1, ..Model::default() };
            for step in steps {
                match step {
                    Step::Send(count) => {
                        queue.send_unsent(Instant::ZERO, bounds(count.into()));
                        model.nxt += u64::from(count);
                    }
                    Step::Sack(ranges) => {
                        let ranges: Vec<_> = ranges
                            .iter()
                            .map(|(from, len)| {
                                let left = model.una + u64::from(*from);
                                (left, left + u64::from(*len))
                            })
                            .collect();
                        queue.sack(&blocks(&ranges), at(model.una), at(model.nxt));
                        queue.detect_losses();
                        for (left, right) in ranges {
                            model.sack(left, right);
                        }
                    }
                    Step::Acknowledge(count) => {
                        let una = (model.una + u64::from(count)).min(model.nxt);
                        let delivery = queue.acknowledge(at(una));
                        prop_assert_eq!(u64::from(delivery.acknowledged), una - model.una);
                        model.una = una;
                        for set in [&mut model.sacked, &mut model.lost, &mut model.again] {
                            *set = set.split_off(&una);
                        }
                    }
                    Step::Retransmit(count) => {
                        for _ in 0..count {
                            let next = queue.next_lost();
                            prop_assert_eq!(next.map(|position| position - 1), model.next_lost());
                            let Some(position) = next else { break };
                            let run = queue.retransmit(Instant::ZERO, position, bounds(1), DISTINCT_AFTER, &NoRing);
                            prop_assert_eq!(run.segments, 1);
                            model.again.insert(position - 1);
                        }
                    }
                    Step::Early => {
                        let wanted = (model.una..model.nxt).find(|segment| {
                            !model.sacked.contains(segment)
                                && !model.lost.contains(segment)
                                && !model.again.contains(segment)
                                && model.sacked.range(segment..).next().is_some()
                        });
                        let early = queue.next_early();
                        prop_assert_eq!(early.map(|position| position - 1), wanted);
                        if let Some(position) = early {
                            queue.retransmit(Instant::ZERO, position, bounds(1), DISTINCT_AFTER, &NoRing);
                            model.again.insert(position - 1);
                        }
                    }
                    Step::Timeout => {
                        let reneged = queue.mark_all_lost();
                        prop_assert_eq!(reneged, model.sacked.contains(&model.una));
                        if reneged {
                            model.sacked.clear();
                        }
                        model.again.clear();
                        model.lost =
                            (model.una..model.nxt).filter(|segment| !model.sacked.contains(segment)).collect();
                    }
                }
                prop_assert_eq!(u64::from(queue.pipe()), model.pipe());
                prop_assert_eq!(queue.counts.sacked as usize, model.sacked.len());
                prop_assert_eq!(queue.counts.lost as usize, model.lost.len());
                #[cfg(debug_assertions)]
                queue.check_invariants(true);
            }
        }
    }

    #[test]
    fn a_run_of_consecutive_lost_segments_is_one_batch() {
        let mut queue = queue(20, 20);
        queue.sack(&blocks(&[(4, 6), (9, 13)]), at(0), at(20));
        queue.detect_losses();
        let first = queue.next_lost().unwrap();
        let run = queue.retransmit(Instant::ZERO, first, bounds(100), DISTINCT_AFTER, &NoRing);
        assert_eq!((run.first - 1, run.segments), (0, 4));
        let first = queue.next_lost().unwrap();
        let run = queue.retransmit(Instant::ZERO, first, bounds(100), DISTINCT_AFTER, &NoRing);
        assert_eq!((run.first - 1, run.segments), (6, 3));
        assert_eq!(queue.next_lost(), None);
    }

    /// Each acknowledgment tells of one more segment of a large flight: the whole must not cost the square of it.
    #[test]
    fn sacking_a_large_flight_segment_by_segment_is_not_quadratic() {
        const FLIGHT: u64 = 100_000;
        let mut queue = queue(FLIGHT as usize, FLIGHT as usize);
        for segment in 1..FLIGHT {
            // The first block grows, the second is the odd one far away: both are new each time.
            let ranges = [(1, segment + 1), (FLIGHT - 1, FLIGHT)];
            queue.sack(&blocks(&ranges), at(0), at(FLIGHT));
            queue.detect_losses();
        }
        assert_eq!(u64::from(queue.counts.sacked), FLIGHT - 1);
        assert_eq!(queue.next_lost(), Some(1));
    }
}
