//! An observer at the engine's door. It knows only what crossed it, keeps books of its own, and notes
//! each breach of a rule that no sender may break, whatever the network does.
//!
//! Offsets are 64 bits wide and count from the initial sequence numbers: 0 is the SYN.

use core::time::Duration;
use std::collections::BTreeMap;

use xsend_tcp::Instant;
use xsend_wire::tcp::{Flags, Header};

use crate::intruder::View;
use crate::pattern::Pattern;

/// Breaches kept in words; more are only counted.
const KEPT: usize = 16;

/// What the observer must know beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) iss: u32,
    pub(crate) pattern: Pattern,
    /// The engine's configured MSS: payload and options.
    pub(crate) mss: u32,
    /// It knows timestamps.
    pub(crate) timestamps: bool,
    pub(crate) min_rto: Duration,
    pub(crate) initial_window_segments: u32,
    pub(crate) recv_window_bytes: u32,
    /// The least wait between the same bytes with nothing heard between, without which it is an early
    /// retransmission. Off while the ring holds frames back.
    pub(crate) ack_promptness: bool,
}

/// The observer.
#[derive(Debug)]
pub(crate) struct Audit {
    rules: Rules,
    peer: Option<PeerSide>,
    our_scale: u8,
    /// The furthest sent (exclusive).
    sent_max: u64,
    fin_at: Option<u64>,
    /// When each piece last left, by its start; with its end.
    last_sent: BTreeMap<u64, (u64, Instant)>,
    heard_at: Instant,
    /// When a retransmission last had the retransmission timer's patience.
    timed_out_at: Option<Instant>,
    /// Anything but a SYN has come from the peer.
    answered: bool,
    acked: u64,
    /// The longest payload that has arrived.
    largest_payload: u32,
    last_ack: u64,
    last_edge: u64,
    last_timestamp: Option<u32>,
    owes_since: Option<Instant>,
    pub(crate) retransmits: u64,
    pub(crate) data_segments: u64,
    pub(crate) resets: u64,
    pub(crate) breaches: Vec<String>,
    pub(crate) breach_count: u64,
}

/// What the peer's segments have said and brought, as far as they reached the engine.
#[derive(Debug)]
struct PeerSide {
    isn: u32,
    smss: u32,
    scale: u8,
    timestamps: Option<(u32, u32)>,
    edge: u64,
    received: Intervals,
}

impl Audit {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            peer: None,
            our_scale: 0,
            sent_max: 0,
            fin_at: None,
            last_sent: BTreeMap::new(),
            heard_at: Instant::ZERO,
            timed_out_at: None,
            answered: false,
            acked: 0,
            largest_payload: 0,
            last_ack: 0,
            last_edge: 0,
            last_timestamp: None,
            owes_since: None,
            retransmits: 0,
            data_segments: 0,
            resets: 0,
            breaches: Vec::new(),
            breach_count: 0,
        }
    }

    pub(crate) fn breach(&mut self, now: Instant, what: String) {
        self.breach_count += 1;
        if self.breaches.len() < KEPT {
            let micros = now.as_nanos() / 1000;
            self.breaches.push(format!("at {}.{:06} s: {what}", micros / 1_000_000, micros % 1_000_000));
        }
    }

    /// Something happened that may justify a retransmission.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// The engine's SYN-ACK left without a record: a cookie. `scale` is that of its windows, none if none is agreed on.
    pub(crate) fn resume(&mut self, iss: u32, scale: Option<u8>) {
        self.rules.iss = iss;
        self.sent_max = 1;
        self.our_scale = scale.unwrap_or(0);
        self.agree_on_scaling(scale.is_some());
    }

    fn agree_on_scaling(&mut self, agreed: bool) {
        if let Some(peer) = self.peer.as_mut().filter(|_| !agreed) {
            peer.scale = 0;
        }
    }

    /// The engine says that its segments carry no more than this from now on.
    pub(crate) fn shrink(&mut self, smss: u32) {
        if let Some(peer) = &mut self.peer {
            peer.smss = peer.smss.min(smss);
        }
    }

    /// What an eavesdropper would know of the connection; `None` before the handshake.
    pub(crate) fn view(&self) -> Option<View> {
        let peer = self.peer.as_ref()?;
        Some(View {
            expected_seq: peer.isn.wrapping_add(peer.received.contiguous() as u32),
            sent_max: self.rules.iss.wrapping_add(self.sent_max as u32),
            timestamp: peer.timestamps.map(|(_, newest)| newest),
        })
    }

    fn offset(&self, seq: u32) -> i64 {
        let near = self.rules.iss.wrapping_add(self.sent_max as u32);
        self.sent_max as i64 + i64::from(seq.wrapping_sub(near) as i32)
    }

    /// An intact segment has reached the engine.
    pub(crate) fn got(&mut self, now: Instant, header: &Header, payload_len: usize) {
        self.heard(now);
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            return;
        }
        // Either a SYN-ACK, or the SYN of a peer that opens the connection.
        if flags.contains(Flags::SYN) && self.peer.is_none() {
            let options = &header.options;
            let mss = u32::from(options.mss.unwrap_or(536)).min(self.rules.mss);
            let timestamps = options.timestamps.filter(|_| self.rules.timestamps);
            self.peer = Some(PeerSide {
                isn: header.seq,
                smss: mss - if timestamps.is_some() { 12 } else { 0 },
                scale: options.window_scale.unwrap_or(0).min(14),
                timestamps: timestamps.map(|timestamps| (timestamps.value, timestamps.value)),
                edge: u64::from(header.window) + 1,
                received: Intervals::default(),
            });
            if options.window_scale.is_none() {
                self.our_scale = 0;
            }
        }
        self.answered |= !flags.contains(Flags::SYN);
        let acked = self.offset(header.ack).max(0) as u64;
        let Some(peer) = &mut self.peer else { return };
        if flags.contains(Flags::ACK) && acked <= self.sent_max {
            let scale = if flags.contains(Flags::SYN) { 0 } else { peer.scale };
            peer.edge = peer.edge.max(acked + (u64::from(header.window) << scale));
            self.acked = self.acked.max(acked);
            while let Some(entry) = self.last_sent.first_entry().filter(|entry| entry.get().0 <= self.acked) {
                entry.remove();
            }
        }
        let mut fresh = true;
        if let (Some((_, newest)), Some(timestamps)) = (&mut peer.timestamps, header.options.timestamps) {
            fresh = timestamps.value.wrapping_sub(*newest) as i32 >= 0;
            if fresh {
                *newest = timestamps.value;
            }
        }
        self.largest_payload = self.largest_payload.max(payload_len as u32);
        let start = peer.offset(header.seq);
        let taken = payload_len as i64
            + i64::from(flags.contains(Flags::SYN))
            + i64::from(flags.contains(Flags::FIN));
        if taken > 0 && start + taken > 0 {
            peer.received.add(start.max(0) as u64, (start + taken) as u64);
        }
        // Whatever continues the stream within the window must be acknowledged soon; with an older
        // timestamp than others it may be refused (RFC 7323, 5.3).
        let continues = start <= self.last_ack as i64 && start + taken > self.last_ack as i64;
        if continues && fresh && start + taken <= self.last_edge as i64 {
            self.owes_since.get_or_insert(now);
        }
    }

    /// The engine sends a segment.
    pub(crate) fn sent(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            self.resets += 1;
            return;
        }
        if flags.contains(Flags::SYN) {
            self.our_scale = header.options.window_scale.unwrap_or(0);
            if flags.contains(Flags::ACK) {
                self.agree_on_scaling(header.options.window_scale.is_some());
            }
        }
        self.check_sequence(now, header, payload);
        self.check_acknowledgment(now, header);
        self.check_timestamps(now, header);
    }

    fn check_sequence(&mut self, now: Instant, header: &Header, payload: &[u8]) {
        let flags = header.flags;
        let start = self.offset(header.seq);
        let fin = flags.contains(Flags::FIN);
        let control = u64::from(fin) + u64::from(flags.contains(Flags::SYN));
        let taken = payload.len() as u64 + control;
        if start < 0 || start as u64 > self.sent_max {
            self.breach(now, format!("sequence {start} where {} is next", self.sent_max));
            return;
        }
        let start = start as u64;
        if taken == 0 {
            return;
        }
        let end = start + taken;
        if control > 0 && !payload.is_empty() {
            self.breach(now, format!("{flags:?} with {} bytes of data", payload.len()));
        }
        if fin && *self.fin_at.get_or_insert(start) != start {
            self.breach(now, format!("FIN at {start}, before that at {:?}", self.fin_at));
        }
        if self.fin_at.is_some_and(|fin_at| end > fin_at + 1) {
            self.breach(now, format!("data up to {end} behind the FIN at {:?}", self.fin_at));
        }
        self.check_repetition(now, start, end);
        if !payload.is_empty() {
            self.check_data(now, start, payload);
        }
        self.sent_max = self.sent_max.max(end);
    }

    /// The same bytes again, with nothing heard since they last left, is a time-out: RFC 6298, 2.4.
    fn check_repetition(&mut self, now: Instant, start: u64, end: u64) {
        let last = self.last_sent.range(..=start).next_back().map(|(_, &last)| last);
        if let Some((_, at)) = last.filter(|&(last_end, _)| last_end > start) {
            let waited = now.saturating_since(at);
            let provoked = self.heard_at >= at || self.timed_out_at.is_some_and(|time| time >= at);
            if waited >= self.rules.min_rto {
                // One timer runs for all: once it has, everything outstanding may go again.
                self.timed_out_at = Some(now);
            } else if !provoked {
                self.breach(now, format!("{start}..{end} again after {waited:?} of silence"));
            }
        }
        if start < self.sent_max {
            self.retransmits += 1;
        }
        self.last_sent.insert(start, (end, now));
    }

    fn check_data(&mut self, now: Instant, start: u64, payload: &[u8]) {
        self.data_segments += 1;
        let end = start + payload.len() as u64;
        let Some(peer) = &self.peer else {
            self.breach(now, "data before the handshake".to_owned());
            return;
        };
        let (edge, smss) = (peer.edge, peer.smss);
        if end > edge {
            self.breach(now, format!("data up to {end}, the peer's window ends at {edge}"));
        }
        if payload.len() > smss as usize {
            self.breach(now, format!("{} bytes of data, the limit is {smss}", payload.len()));
        }
        let initial = u64::from(self.rules.initial_window_segments) * u64::from(smss);
        if !self.answered && end > initial + 1 {
            self.breach(now, format!("data up to {end} before any answer, the initial window is {initial}"));
        }
        if let Some(wrong) = self.rules.pattern.mismatch(start - 1, payload) {
            self.breach(now, format!("wrong byte at {wrong} in {start}..{end}"));
        }
    }

    fn check_acknowledgment(&mut self, now: Instant, header: &Header) {
        let Some(peer) = &self.peer else {
            if header.flags.contains(Flags::ACK) {
                self.breach(now, "ACK before the peer's SYN".to_owned());
            }
            return;
        };
        if !header.flags.contains(Flags::ACK) {
            if !header.flags.contains(Flags::SYN) {
                self.breach(now, "no ACK flag".to_owned());
            }
            return;
        }
        let ack = peer.offset(header.ack).max(0) as u64;
        let contiguous = peer.received.contiguous();
        let mut faults = Vec::new();
        if ack > contiguous {
            faults.push(format!("acknowledges {ack}, only {contiguous} has arrived"));
        }
        if ack < self.last_ack {
            faults.push(format!("acknowledges {ack} after {}", self.last_ack));
        }
        for (left, right) in header.options.sack.iter() {
            let (left, right) = (peer.offset(left), peer.offset(right));
            if left >= right || left < 0 || !peer.received.contains(left as u64, right as u64) {
                faults.push(format!("SACK block {left}..{right} was not received"));
            }
        }
        let scale = if header.flags.contains(Flags::SYN) { 0 } else { self.our_scale };
        let offered = u64::from(header.window) << scale;
        // A window is rounded to its scale: an edge may seem to step back by less than one unit.
        let edge = ack + offered;
        let unit = 1 << self.our_scale;
        if edge + unit <= self.last_edge {
            faults.push(format!("takes its window's edge back from {} to {edge}", self.last_edge));
        }
        // RFC 9293, 3.8.6.2.2: no crumbs, unless the field cannot hold more. (Half of it, because the
        // engine may have refused the longest.)
        let gain = edge.saturating_sub(self.last_edge);
        let worthwhile = u64::from(self.largest_payload.min(self.rules.recv_window_bytes / 2));
        if gain >= unit && gain + unit <= worthwhile / 2 && header.window < u16::MAX {
            faults.push(format!("opens its window by {gain} bytes, {worthwhile} would be worth it"));
        }
        if offered > u64::from(self.rules.recv_window_bytes) + unit {
            faults.push(format!("offers {offered} bytes, its buffer has {}", self.rules.recv_window_bytes));
        }
        if ack > self.last_ack {
            // RFC 1122, 4.2.3.2: less than half a second.
            let waited = self.owes_since.take().map(|since| now.saturating_since(since));
            let limit = Duration::from_millis(500);
            if let Some(waited) = waited.filter(|&waited| self.rules.ack_promptness && waited >= limit) {
                faults.push(format!("acknowledges after {waited:?}"));
            }
        }
        self.last_ack = self.last_ack.max(ack);
        self.last_edge = self.last_edge.max(edge);
        for fault in faults {
            self.breach(now, fault);
        }
    }

    fn check_timestamps(&mut self, now: Instant, header: &Header) {
        let Some(peer) = &self.peer else { return };
        let Some((oldest, newest)) = peer.timestamps else {
            if header.options.timestamps.is_some() {
                self.breach(now, "timestamps although the peer sends none".to_owned());
            }
            return;
        };
        let Some(timestamps) = header.options.timestamps else {
            self.breach(now, "no timestamps although they were agreed on".to_owned());
            return;
        };
        let echoed = timestamps.echo;
        if (echoed.wrapping_sub(oldest) as i32) < 0 || (newest.wrapping_sub(echoed) as i32) < 0 {
            self.breach(now, format!("echoes {echoed}, the peer sent {oldest} to {newest}"));
        }
        if self.last_timestamp.is_some_and(|last| (timestamps.value.wrapping_sub(last) as i32) < 0) {
            self.breach(now, format!("timestamp {} after {:?}", timestamps.value, self.last_timestamp));
        }
        self.last_timestamp = Some(timestamps.value);
    }
}

impl PeerSide {
    fn offset(&self, seq: u32) -> i64 {
        let near = self.received.contiguous();
        near as i64 + i64::from(seq.wrapping_sub(self.isn.wrapping_add(near as u32)) as i32)
    }
}

/// A set of offsets as disjoint, non-adjacent ranges.
#[derive(Debug, Default)]
struct Intervals {
    ranges: BTreeMap<u64, u64>,
}

impl Intervals {
    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&left, &right)) = self.ranges.range(..=end).next_back().filter(|&(_, &r)| r >= start)
        {
            start = start.min(left);
            end = end.max(right);
            self.ranges.remove(&left);
        }
        self.ranges.insert(start, end);
    }

    fn contains(&self, start: u64, end: u64) -> bool {
        self.ranges.range(..=start).next_back().is_some_and(|(_, &right)| right >= end)
    }

    /// The end of what has arrived without a gap from the SYN on.
    fn contiguous(&self) -> u64 {
        self.ranges.first_key_value().filter(|&(&left, _)| left == 0).map_or(0, |(_, &right)| right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_merge() {
        let mut set = Intervals::default();
        for (start, end) in [(10, 20), (30, 40), (0, 5), (20, 30), (4, 6)] {
            set.add(start, end);
        }
        assert_eq!(set.ranges, BTreeMap::from([(0, 6), (10, 40)]));
        assert_eq!(set.contiguous(), 6);
        assert!(set.contains(10, 40) && set.contains(12, 13) && !set.contains(5, 11));
    }
}
