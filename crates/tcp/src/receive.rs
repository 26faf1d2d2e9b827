//! The receiving half: reassembly, the window offered, SACK blocks.

use alloc::collections::VecDeque;

use xsend_wire::tcp::SackBlocks;

use crate::Chunk;
use crate::config::Config;
use crate::seq::Seq;

/// Most SACK blocks remembered; four fit a header without timestamps.
const MAX_BLOCKS: usize = 4;
/// The largest window, and thus buffer (RFC 7323 2.3).
const MAX_WINDOW: u32 = 1 << 30;

/// Estimate of the peer's segment size before a larger one is seen (RFC 9293 3.7.1).
const LEAST_SEGMENT: u32 = 536;
/// No IP packet carries more.
const MAX_SEGMENT: u32 = 0xffff;

/// What became of a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Next in sequence, nothing held behind it.
    InOrder,
    /// Next in sequence while later data waits: a gap is filled, perhaps in part.
    FilledGap,
    /// Held until what is missing before it arrives.
    OutOfOrder,
    /// All of it was here already.
    Duplicate,
    /// There was no room for it.
    Refused,
}

/// Reassembly and the window.
#[derive(Debug)]
pub(crate) struct Receiver<F> {
    pub(crate) rcv_nxt: Seq,
    /// The right edge of the window as last offered; it never moves back (RFC 9293 3.8.6).
    rcv_adv: Seq,
    pub(crate) wscale: u8,
    buffer_bytes: u32,
    /// Bytes in sequence that the application has not consumed.
    unconsumed_bytes: u64,
    received_bytes: u64,
    /// Largest payload seen: an estimate of the peer's segment size.
    largest_payload: u32,
    ready: VecDeque<Chunk<F>>,
    /// Chunks behind gaps, in sequence, without overlap.
    out_of_order: VecDeque<(Seq, Chunk<F>)>,
    max_out_of_order: usize,
    /// Ranges held out of order, the most recently changed first (RFC 2018 section 4).
    blocks: [(Seq, Seq); MAX_BLOCKS],
    block_count: usize,
    /// A range that arrived twice, to be told once (RFC 2883).
    duplicate: Option<(Seq, Seq)>,
    /// Where the peer's FIN is, once it was seen.
    fin: Option<Seq>,
}

impl<F> Receiver<F> {
    pub(crate) fn new(config: &Config) -> Receiver<F> {
        let buffer_bytes = config.recv_window_bytes.clamp(1, MAX_WINDOW);
        // Window scaling may be refused later.
        let wscale = window_scale(buffer_bytes);
        Receiver {
            rcv_nxt: Seq::default(),
            rcv_adv: Seq::default(),
            wscale,
            buffer_bytes,
            unconsumed_bytes: 0,
            received_bytes: 0,
            largest_payload: LEAST_SEGMENT,
            ready: VecDeque::new(),
            out_of_order: VecDeque::new(),
            max_out_of_order: config.max_out_of_order_chunks,
            blocks: [(Seq::default(), Seq::default()); MAX_BLOCKS],
            block_count: 0,
            duplicate: None,
            fin: None,
        }
    }

    /// The peer's SYN has the number `irs`. `syn_window` bytes were offered with ours, which is never scaled.
    pub(crate) fn start(&mut self, irs: Seq, scaling: bool) {
        self.rcv_nxt = irs + 1u32;
        self.rcv_adv = self.rcv_nxt + u64::from(self.syn_window());
        if !scaling {
            self.wscale = 0;
        }
    }

    /// The window field of a SYN (RFC 7323 2.2: not scaled).
    pub(crate) fn syn_window(&self) -> u16 {
        self.buffer_bytes.min(0xffff) as u16
    }

    pub(crate) fn right_edge(&self) -> Seq {
        self.rcv_adv
    }

    pub(crate) fn window(&self) -> u64 {
        self.rcv_adv.since(self.rcv_nxt)
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Estimate of the peer's segment size in bytes.
    pub(crate) fn segment_size(&self) -> u32 {
        self.largest_payload
    }

    pub(crate) fn pop_ready(&mut self) -> Option<Chunk<F>> {
        self.ready.pop_front()
    }

    /// Takes the payload of an acceptable segment. Frames not kept go to `freed`.
    pub(crate) fn insert(&mut self, mut seq: Seq, mut chunk: Chunk<F>, freed: &mut VecDeque<F>) -> Arrival {
        self.largest_payload = self.largest_payload.max(chunk.len).min(MAX_SEGMENT);
        let limit = self.fin.map_or(self.rcv_adv, |fin| fin.min(self.rcv_adv));
        let end = seq + chunk.len;
        if seq < self.rcv_nxt {
            self.duplicate = Some((seq, end.min(self.rcv_nxt)));
        }
        if end <= self.rcv_nxt || chunk.len == 0 {
            freed.push_back(chunk.frame);
            return Arrival::Duplicate;
        }
        if seq.max(self.rcv_nxt) >= limit {
            freed.push_back(chunk.frame);
            return Arrival::Refused;
        }
        trim_front(&mut seq, &mut chunk, self.rcv_nxt);
        trim_back(seq, &mut chunk, limit);
        if seq > self.rcv_nxt {
            return self.insert_out_of_order(seq, chunk, freed);
        }
        self.deliver(chunk);
        if self.out_of_order.is_empty() {
            return Arrival::InOrder;
        }
        self.close_gap(freed);
        Arrival::FilledGap
    }

    fn deliver(&mut self, chunk: Chunk<F>) {
        self.rcv_nxt += chunk.len;
        self.received_bytes += u64::from(chunk.len);
        self.unconsumed_bytes += u64::from(chunk.len);
        self.ready.push_back(chunk);
    }

    /// Delivers what has become next in sequence.
    fn close_gap(&mut self, freed: &mut VecDeque<F>) {
        while self.out_of_order.front().is_some_and(|(seq, _)| *seq <= self.rcv_nxt) {
            let Some((mut seq, mut chunk)) = self.out_of_order.pop_front() else { break };
            if seq + chunk.len <= self.rcv_nxt {
                freed.push_back(chunk.frame);
                continue;
            }
            trim_front(&mut seq, &mut chunk, self.rcv_nxt);
            self.deliver(chunk);
        }
        let rcv_nxt = self.rcv_nxt;
        self.keep_blocks(|block| (block.1 > rcv_nxt).then_some(block));
    }

    fn insert_out_of_order(&mut self, mut seq: Seq, mut chunk: Chunk<F>, freed: &mut VecDeque<F>) -> Arrival {
        let end = seq + chunk.len;
        let at = self.out_of_order.partition_point(|(other, _)| *other <= seq);
        if let Some((before, held)) = at.checked_sub(1).map(|at| &self.out_of_order[at]) {
            let held_end = *before + held.len;
            if held_end >= end {
                self.duplicate = Some((seq, end));
                self.note_block(seq, end);
                freed.push_back(chunk.frame);
                return Arrival::Duplicate;
            }
            trim_front(&mut seq, &mut chunk, held_end);
        }
        // What the new chunk covers whole it replaces; from one it meets it keeps its distance. What is lost
        // that way the peer sends again.
        while self.out_of_order.get(at).is_some_and(|(other, held)| *other + held.len <= end) {
            if let Some((_, held)) = self.out_of_order.remove(at) {
                freed.push_back(held.frame);
            }
        }
        if let Some((next, _)) = self.out_of_order.get(at) {
            trim_back(seq, &mut chunk, *next);
        }
        if chunk.len == 0 {
            self.duplicate = Some((end.back(1), end));
            freed.push_back(chunk.frame);
            return Arrival::Duplicate;
        }
        if self.out_of_order.len() >= self.max_out_of_order {
            freed.push_back(chunk.frame);
            return Arrival::Refused;
        }
        self.note_block(seq, seq + chunk.len);
        self.out_of_order.insert(at, (seq, chunk));
        Arrival::OutOfOrder
    }

    /// The bytes from `left` up to `right` are held; the block they belong to goes first (RFC 2018 section 4).
    fn note_block(&mut self, mut left: Seq, mut right: Seq) {
        let mut kept = 0;
        for at in 0..self.block_count {
            let block = self.blocks[at];
            if block.0 <= right && left <= block.1 {
                (left, right) = (left.min(block.0), right.max(block.1));
            } else {
                self.blocks[kept] = block;
                kept += 1;
            }
        }
        kept = kept.min(MAX_BLOCKS - 1);
        self.blocks.copy_within(..kept, 1);
        self.blocks[0] = (left, right);
        self.block_count = kept + 1;
    }

    /// The blocks for an acknowledgment, at most `room`; a duplicate is told only once.
    pub(crate) fn take_blocks(&mut self, room: usize) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        let duplicate = self.duplicate.take();
        let held = &self.blocks[..self.block_count];
        for (left, right) in duplicate.iter().chain(held).take(room) {
            blocks.push(left.wire(), right.wire());
        }
        blocks
    }

    /// Whether an acknowledgment would have blocks to carry.
    pub(crate) fn has_blocks(&self) -> bool {
        self.block_count > 0 || self.duplicate.is_some()
    }

    /// A FIN at `seq` came with an acceptable segment. Nothing lies behind it.
    pub(crate) fn note_fin(&mut self, seq: Seq, freed: &mut VecDeque<F>) {
        if self.fin.is_some() || seq < self.rcv_nxt || seq > self.rcv_adv {
            return;
        }
        self.fin = Some(seq);
        while self.out_of_order.back().is_some_and(|(start, _)| *start >= seq) {
            freed.extend(self.out_of_order.pop_back().map(|(_, chunk)| chunk.frame));
        }
        if let Some((start, chunk)) = self.out_of_order.back_mut() {
            trim_back(*start, chunk, seq);
        }
        self.keep_blocks(|(left, right)| (left < seq).then(|| (left, right.min(seq))));
    }

    /// Changes the blocks, or drops them.
    fn keep_blocks(&mut self, keep: impl Fn((Seq, Seq)) -> Option<(Seq, Seq)>) {
        let mut kept = 0;
        for at in 0..self.block_count {
            if let Some(block) = keep(self.blocks[at]) {
                self.blocks[kept] = block;
                kept += 1;
            }
        }
        self.block_count = kept;
    }

    /// Takes the FIN if everything before it arrived; `true` once.
    pub(crate) fn reach_fin(&mut self, freed: &mut VecDeque<F>) -> bool {
        if self.fin != Some(self.rcv_nxt) {
            return false;
        }
        self.rcv_nxt += 1;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt);
        self.discard_out_of_order(freed);
        true
    }

    /// Gives up what is held out of order.
    pub(crate) fn discard_out_of_order(&mut self, freed: &mut VecDeque<F>) {
        freed.extend(self.out_of_order.drain(..).map(|(_, chunk)| chunk.frame));
        self.block_count = 0;
        self.duplicate = None;
    }

    /// The application consumed `bytes`.
    pub(crate) fn consume(&mut self, bytes: u32) {
        self.unconsumed_bytes = self.unconsumed_bytes.saturating_sub(u64::from(bytes));
    }

    fn free_bytes(&self) -> u64 {
        u64::from(self.buffer_bytes).saturating_sub(self.unconsumed_bytes)
    }

    /// The least by which the window opens: a segment, or half of a small buffer (RFC 9293 3.8.6.2.2).
    fn least_opening(&self) -> u64 {
        u64::from(self.largest_payload).min(u64::from(self.buffer_bytes / 2)).max(1)
    }

    /// The window field of a segment that leaves now, which thereby offers it.
    #[inline]
    pub(crate) fn offer(&mut self) -> u16 {
        let (offered, free) = (self.window(), self.free_bytes());
        let window = if free >= offered + self.least_opening() { free } else { offered };
        let mut field = window >> self.wscale;
        // Rounding must not take back a part of what was offered.
        if field << self.wscale < offered {
            field += 1;
        }
        let field = field.min(0xffff);
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + (field << self.wscale));
        field as u16
    }

    /// Whether the window could open so far that the peer should be told unasked: twice what it knows of, and
    /// not by crumbs.
    pub(crate) fn should_announce(&self) -> bool {
        let (offered, free) = (self.window(), self.free_bytes());
        let worthwhile = (2 * self.least_opening()).min(u64::from(self.buffer_bytes).div_ceil(2));
        free >= 2 * offered && free >= offered + worthwhile
    }

    /// Panics if the books do not balance.
    #[cfg(debug_assertions)]
    pub(crate) fn check_invariants(&self) {
        assert!(self.rcv_nxt <= self.rcv_adv);
        assert!(self.out_of_order.len() <= self.max_out_of_order);
        assert!(self.block_count <= MAX_BLOCKS);
        let mut end = self.rcv_nxt;
        for (seq, chunk) in &self.out_of_order {
            assert!(*seq >= end && chunk.len > 0, "chunks held out of order overlap");
            assert!(*seq > self.rcv_nxt, "what is next in sequence is not held back");
            end = *seq + chunk.len;
        }
        assert!(end <= self.rcv_adv);
        for (left, right) in &self.blocks[..self.block_count] {
            assert!(self.rcv_nxt < *left && left < right && *right <= end);
        }
    }
}

/// The smallest shift that lets the window field tell the whole of a buffer (RFC 7323 2.3).
pub(crate) fn window_scale(buffer_bytes: u32) -> u8 {
    let buffer_bytes = buffer_bytes.clamp(1, MAX_WINDOW);
    (0..14).find(|shift| buffer_bytes >> shift <= 0xffff).unwrap_or(14)
}

/// Cuts off what lies before `from`.
fn trim_front<F>(seq: &mut Seq, chunk: &mut Chunk<F>, from: Seq) {
    let cut = from.since(*seq).min(u64::from(chunk.len)) as u32;
    *seq += cut;
    chunk.offset = chunk.offset.wrapping_add(cut);
    chunk.len -= cut;
}

/// Cuts off what lies at `to` and beyond.
fn trim_back<F>(seq: Seq, chunk: &mut Chunk<F>, to: Seq) {
    chunk.len = u64::from(chunk.len).min(to.since(seq)) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn receiver(buffer: u32, chunks: usize) -> Receiver<usize> {
        let config = Config {
            recv_window_bytes: buffer,
            max_out_of_order_chunks: chunks,
            window_scaling: false,
            ..Config::default()
        };
        let mut receiver = Receiver::new(&config);
        receiver.start(Seq::start(u32::MAX - 20), false);
        receiver
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        /// Against a map of bytes: what is delivered was sent, in order, once; what the blocks say is held is held;
        /// every frame comes out exactly once.
        #[test]
        fn reassembly_agrees_with_a_map_of_bytes(
            segments in prop::collection::vec((0..300u32, 1..60u32), 1..80),
            fin in prop::option::of(0..300u32),
            chunks in 0..12usize,
            consume: bool,
        ) {
            let mut receiver = receiver(200, chunks);
            let start = receiver.rcv_nxt;
            let mut freed = VecDeque::new();
            let mut out = Vec::new();
            let mut arrived = [false; 1000];
            let mut delivered = 0u32;
            for (frame, (at, len)) in segments.iter().enumerate() {
                if let (true, Some(fin)) = (frame == segments.len() / 2, fin) {
                    receiver.note_fin(start + fin, &mut freed);
                }
                let edge = receiver.right_edge().since(start) as u32;
                for byte in *at..(*at + *len).min(edge) {
                    arrived[byte as usize] = true;
                }
                // The chunk's offset is its position, so that what is cut off shows.
                let chunk = Chunk { frame, offset: *at, len: *len };
                receiver.insert(start + *at, chunk, &mut freed);
                #[cfg(debug_assertions)]
                receiver.check_invariants();
                while let Some(chunk) = receiver.pop_ready() {
                    prop_assert_eq!(chunk.offset, delivered);
                    delivered += chunk.len;
                    out.push(chunk.frame);
                    if consume {
                        receiver.consume(chunk.len);
                    }
                }
                for (left, right) in receiver.take_blocks(4).iter().skip(1) {
                    let from = start.nearest(left).since(start) as usize;
                    let to = start.nearest(right).since(start) as usize;
                    prop_assert!(arrived[from..to].iter().all(|arrived| *arrived));
                }
                prop_assert!(arrived[..delivered as usize].iter().all(|arrived| *arrived));
                let reached = receiver.reach_fin(&mut freed);
                if reached {
                    prop_assert_eq!(Some(delivered), fin);
                    break;
                }
                if chunks > 0 {
                    // What is next in sequence is never held back.
                    let held = arrived[..edge as usize].iter().take_while(|arrived| **arrived).count() as u32;
                    let held = fin.map_or(held, |fin| held.min(fin));
                    prop_assert!(delivered <= held || fin.is_some());
                }
                receiver.offer();
            }
            receiver.discard_out_of_order(&mut freed);
            out.extend(freed);
            out.sort_unstable();
            out.dedup();
            let given = out.len();
            prop_assert!(given <= segments.len());
            prop_assert_eq!(&out[..], &(0..given).collect::<Vec<_>>()[..]);
        }
    }

    #[test]
    fn the_scale_is_the_smallest_that_tells_the_whole_buffer() {
        for (buffer, scale) in [(1, 0), (65_535, 0), (65_536, 1), (6 << 20, 7), (1 << 30, 14), (u32::MAX, 14)]
        {
            let config = Config { recv_window_bytes: buffer, ..Config::default() };
            let mut receiver = Receiver::<()>::new(&config);
            receiver.start(Seq::start(0), true);
            assert!(receiver.wscale.abs_diff(scale) <= 1, "{buffer}: {}", receiver.wscale);
            receiver.offer();
            assert!(receiver.window() <= 1 << 30);
        }
    }
}
