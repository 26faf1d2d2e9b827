//! The peer's receiving half: what has arrived, what may still arrive, what the application has read.
//!
//! Offsets count from the other side's initial sequence number: 0 is its SYN, byte `n` of its stream
//! is `n + 1`. They are 64 bits wide and never wrap; only the header's fields do.

use std::collections::{BTreeMap, VecDeque};

use xsend_tcp::Instant;

use crate::pattern::Pattern;
use crate::reader::{Reader, Reading};

/// What an arriving payload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Nothing new in it.
    Old,
    /// It continued the stream, and no gap is left.
    InOrder,
    /// It continued the stream and met data that waited behind a gap, or other gaps remain.
    FilledGap,
    /// It lies behind a gap.
    OutOfOrder,
}

#[derive(Debug)]
pub(super) struct Receive {
    irs: u32,
    /// The next offset expected in order.
    pub(super) next: u64,
    /// The offered offset (exclusive). It moves back only in [`Receive::shrink`].
    pub(super) edge: u64,
    /// The furthest offset offered before it moved back.
    offered_once: u64,
    /// Until when, and at which offset, a window taken back stays where it is.
    held: Option<(Instant, u64)>,
    capacity: u64,
    /// Pieces beyond `next`, by offset; they do not overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// An offset inside each block that was touched, the latest first: the order of SACK blocks.
    touched: VecDeque<u64>,
    /// The last duplicate, to be reported once (RFC 2883).
    pub(super) duplicate: Option<(u64, u64)>,
    unread: VecDeque<u8>,
    pub(super) fin_at: Option<u64>,
    pub(super) mismatch_at: Option<u64>,
    pattern: Pattern,
    reading: Reading,
    /// Bytes that arrived beyond everything ever offered.
    pub(super) beyond_window: u64,
}

impl Receive {
    pub(super) fn new(irs: u32, capacity: u32, reader: Reader, pattern: Pattern, now: Instant) -> Self {
        Self {
            irs,
            next: 1,
            edge: 1,
            offered_once: 1,
            held: None,
            capacity: u64::from(capacity),
            pieces: BTreeMap::new(),
            touched: VecDeque::new(),
            duplicate: None,
            unread: VecDeque::new(),
            fin_at: None,
            mismatch_at: None,
            pattern,
            reading: Reading::new(reader, now),
            beyond_window: 0,
        }
    }

    /// The offset of a sequence number: the one within 2^31 of what is expected next; below zero if
    /// it lies before the SYN.
    pub(super) fn offset_of(&self, seq: u32) -> i64 {
        let distance = seq.wrapping_sub(self.seq_of(self.next)) as i32;
        self.next as i64 + i64::from(distance)
    }

    pub(super) fn seq_of(&self, offset: u64) -> u32 {
        self.irs.wrapping_add(offset as u32)
    }

    pub(super) fn has_gap(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// True once everything up to and with the FIN has arrived.
    pub(super) fn finished(&self) -> bool {
        self.fin_at.is_some_and(|fin| self.next > fin)
    }

    /// True once the application has read up to the FIN.
    pub(super) fn at_end(&self) -> bool {
        self.finished() && self.unread.is_empty()
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Takes the payload of an acceptable segment, cut to the window, and its FIN.
    pub(super) fn accept(&mut self, start: i64, payload: &[u8], fin: bool) -> Arrived {
        let end = start + payload.len() as i64;
        let offered = self.edge.max(self.offered_once) as i64;
        if end > offered {
            self.beyond_window += (end - offered.max(start)) as u64;
        }
        if fin && end >= self.next as i64 && end <= self.edge as i64 && self.fin_at.is_none() {
            self.fin_at = Some(end as u64);
        }
        let from = start.max(self.next as i64);
        let until = end.min(self.edge as i64);
        let behind_gap = from > self.next as i64;
        let had_gap = self.has_gap();
        let old_part = start.max(1)..end.min(self.next as i64);
        if !old_part.is_empty() {
            self.duplicate = Some((old_part.start as u64, old_part.end as u64));
        }
        let before = self.next;
        let mut stored = false;
        if from < until {
            let part = &payload[(from - start) as usize..(until - start) as usize];
            stored = self.store(from as u64, part);
            if behind_gap {
                self.touched.push_front(from as u64);
                self.touched.truncate(64);
                if !stored {
                    self.duplicate = Some((from as u64, until as u64));
                }
            }
        }
        self.advance();
        if self.next > before {
            if had_gap { Arrived::FilledGap } else { Arrived::InOrder }
        } else if behind_gap && (stored || payload.is_empty()) {
            Arrived::OutOfOrder
        } else {
            Arrived::Old
        }
    }

    /// Stores what is not there yet; true if anything was new.
    fn store(&mut self, start: u64, bytes: &[u8]) -> bool {
        let end = start + bytes.len() as u64;
        let mut at = start;
        let mut stored = false;
        while at < end {
            let covered = self.pieces.range(..=at).next_back().map(|(s, piece)| s + piece.len() as u64);
            if let Some(covered) = covered.filter(|&covered| covered > at) {
                at = covered;
                continue;
            }
            let next = self.pieces.range(at..).next().map_or(end, |(&s, _)| s.min(end));
            self.pieces.insert(at, bytes[(at - start) as usize..(next - start) as usize].to_vec());
            stored = true;
            at = next;
        }
        stored
    }

    /// Moves what has become contiguous to the reader's buffer, checking each byte as it comes.
    fn advance(&mut self) {
        while let Some(piece) = self.pieces.remove(&self.next) {
            if self.mismatch_at.is_none() {
                self.mismatch_at = self.pattern.mismatch(self.next - 1, &piece);
            }
            self.next += piece.len() as u64;
            self.unread.extend(piece);
        }
        if self.fin_at == Some(self.next) {
            self.next += 1;
        }
        let next = self.next;
        self.touched.retain(|&offset| offset > next);
    }

    /// Forgets what arrived out of order, although it was reported.
    pub(super) fn renege(&mut self) {
        self.pieces.clear();
        self.touched.clear();
        if self.fin_at.is_some_and(|fin| fin > self.next) {
            self.fin_at = None;
        }
    }

    /// The SACK blocks, the most recently touched first, each once; RFC 2018, 4.
    pub(super) fn blocks(&self, limit: usize) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&start, piece) in &self.pieces {
            let end = start + piece.len() as u64;
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        let mut blocks = Vec::new();
        for &offset in &self.touched {
            let found = ranges.iter().find(|(start, end)| (*start..*end).contains(&offset));
            if let Some(&block) = found.filter(|&block| !blocks.contains(block)) {
                blocks.push(block);
            }
            if blocks.len() == limit {
                break;
            }
        }
        blocks
    }

    /// The application reads what it will by now.
    pub(super) fn read(&mut self, now: Instant) {
        let taken = self.reading.take(now, self.unread.len() as u64);
        self.unread.drain(..taken as usize);
    }

    /// Bytes that the application has read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.reading.read
    }

    /// When the application will read next, if it has something to read.
    pub(super) fn reads_at(&self) -> Option<Instant> {
        self.reading.next_at(self.unread.len() as u64)
    }

    /// The edge that the buffer allows now.
    pub(super) fn possible_edge(&self) -> u64 {
        let edge = self.reading.read + self.capacity + 1;
        self.held.map_or(edge, |(_, held)| edge.min(held))
    }

    /// Takes back all of the window but `left` bytes until `until`.
    pub(super) fn shrink(&mut self, left: u32, until: Instant) {
        self.offered_once = self.edge;
        self.edge = self.edge.min(self.next + u64::from(left));
        self.held = Some((until, self.edge));
    }

    /// Offers again what the buffer allows, if it is time.
    pub(super) fn release(&mut self, now: Instant) {
        self.held = self.held.filter(|(until, _)| now < *until);
    }

    /// When that is.
    pub(super) fn released_at(&self) -> Option<Instant> {
        self.held.map(|(until, _)| until)
    }

    pub(super) fn pattern(&self) -> Pattern {
        self.pattern
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }
}
