//! The other end: a small TCP of the simulator's own, written apart from the engine so that the
//! two cannot share a mistake. It answers a SYN or sends one, receives in and out of order, acknowledges, sends
//! a stream back if told to, and closes.

mod config;
mod receive;
mod send;

use core::time::Duration;

use xsend_tcp::Instant;
use xsend_wire::tcp::{Flags, Header, Options, SackBlocks, Timestamps};

pub use self::config::{PeerClose, PeerConfig, Shrink};
use self::receive::{Arrived, Receive};
use self::send::{Acked, Emission, Send};
use crate::pattern::Pattern;
use crate::rng::Rng;

const TIME_WAIT: Duration = Duration::from_secs(60);

/// A segment that the peer sends.
#[derive(Clone, Debug)]
pub struct PeerSegment {
    /// Everything but the ports.
    pub header: Header,
    /// Its data.
    pub payload: Vec<u8>,
}

/// How the connection ended for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// It has not ended, or never began.
    Open,
    /// Both FINs were exchanged and its own was acknowledged.
    Clean,
    /// The other side reset it.
    GotReset,
    /// It reset the other side (as its configuration told it to, or for data after its close).
    SentReset,
    /// The other side fell silent.
    GaveUp,
}

/// What the peer has seen, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// How it ended.
    pub end: PeerEnd,
    /// Bytes its application has read.
    pub read: u64,
    /// It has read the other side's FIN.
    pub at_end: bool,
    /// The first byte that differed from what was sent.
    pub mismatch_at: Option<u64>,
    /// Bytes received beyond everything it ever offered.
    pub beyond_window: u64,
    /// Segments received without the timestamps that were agreed on.
    pub missing_timestamps: u64,
    /// Segments refused by their timestamp (RFC 7323, 5).
    pub paws_refused: u64,
    /// Segments it sent again.
    pub retransmits: u64,
    /// Times it forgot what it had already reported.
    pub reneged: u64,
    /// Acknowledgments of what it never sent.
    pub bad_acks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Listen,
    SynSent,
    SynReceived,
    Established,
    TimeWait { until: Instant },
    Closed,
}

/// The other end of one connection.
#[derive(Debug)]
pub struct Peer {
    config: PeerConfig,
    rng: Rng,
    phase: Phase,
    receive: Receive,
    send: Send,
    pattern: Pattern,
    /// Agreed on at the handshake.
    timestamps: bool,
    sack: bool,
    scaling: bool,
    scale: u8,
    clock_offset: u32,
    ts_recent: u32,
    last_ack_sent: u64,
    ack_now: bool,
    unacked_segments: u32,
    ack_at: Option<Instant>,
    /// It has taken its window back.
    shrunk: bool,
    /// The application has closed for reading too: later data is answered with a reset.
    deaf: bool,
    facts: PeerFacts,
}

impl Peer {
    /// A listening peer. It expects `incoming` and sends `outgoing`.
    pub fn new(config: PeerConfig, incoming: Pattern, outgoing: Pattern, mut rng: Rng) -> Self {
        let start = Instant::ZERO;
        let receive = Receive::new(0, config.window_bytes, config.reader.clone(), incoming, start);
        let send = Send::new(config.iss, config.bytes, config.ragged, rng.fork(1));
        Self {
            phase: Phase::Listen,
            receive,
            send,
            pattern: outgoing,
            timestamps: false,
            sack: false,
            scaling: false,
            scale: 0,
            clock_offset: rng.next_u64() as u32,
            ts_recent: 0,
            last_ack_sent: 0,
            ack_now: false,
            unacked_segments: 0,
            ack_at: None,
            shrunk: false,
            deaf: false,
            facts: PeerFacts {
                end: PeerEnd::Open,
                read: 0,
                at_end: false,
                mismatch_at: None,
                beyond_window: 0,
                missing_timestamps: 0,
                paws_refused: 0,
                retransmits: 0,
                reneged: 0,
                bad_acks: 0,
            },
            config,
            rng,
        }
    }

    /// Opens the connection itself, unless the other side has done so already.
    pub fn connect(&mut self, now: Instant, out: &mut Vec<PeerSegment>) {
        if self.phase == Phase::Listen {
            self.phase = Phase::SynSent;
            self.respond(now, out);
        }
    }

    /// What it has seen so far.
    pub fn facts(&self) -> PeerFacts {
        PeerFacts {
            read: self.receive.bytes_read(),
            at_end: self.receive.at_end(),
            mismatch_at: self.receive.mismatch_at,
            beyond_window: self.receive.beyond_window,
            retransmits: self.send.retransmits,
            ..self.facts
        }
    }

    /// True when it needs nothing more from the network: closed, or in TIME-WAIT.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::TimeWait { .. })
    }

    /// When [`Peer::tick`] must be called.
    pub fn next_tick(&self) -> Option<Instant> {
        match self.phase {
            Phase::Listen | Phase::Closed => None,
            Phase::TimeWait { until } => Some(until),
            Phase::SynSent | Phase::SynReceived => self.send.timer(),
            Phase::Established => {
                let Self { send, ack_at, receive, .. } = self;
                [send.timer(), *ack_at, receive.reads_at(), receive.released_at()].into_iter().flatten().min()
            }
        }
    }

    /// Does what is due by `now`.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<PeerSegment>) {
        match self.phase {
            Phase::Listen | Phase::Closed => return,
            Phase::TimeWait { until } => {
                if now >= until {
                    self.phase = Phase::Closed;
                }
                return;
            }
            Phase::SynSent | Phase::SynReceived | Phase::Established => {}
        }
        if self.send.timer().is_some_and(|at| at <= now) {
            self.send.on_timer();
            if self.send.gave_up {
                self.end(PeerEnd::GaveUp);
                return;
            }
        }
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_now = true;
        }
        self.respond(now, out);
    }

    /// One verified segment has arrived.
    pub fn arrive(&mut self, now: Instant, header: &Header, payload: &[u8], out: &mut Vec<PeerSegment>) {
        let flags = header.flags;
        match self.phase {
            Phase::Closed => self.answer_stray(header, payload, out),
            Phase::Listen => {
                if flags.contains(Flags::RST) {
                } else if flags.contains(Flags::ACK) || !flags.contains(Flags::SYN) || self.config.refuses {
                    self.answer_stray(header, payload, out);
                } else {
                    self.on_syn(now, header);
                    self.respond(now, out);
                }
            }
            Phase::SynSent => self.on_syn_sent(now, header, payload, out),
            Phase::SynReceived | Phase::Established | Phase::TimeWait { .. } => {
                self.receive.read(now);
                self.on_segment(now, header, payload, out);
                self.respond(now, out);
            }
        }
    }

    /// RFC 9293, 3.10.7.1: no connection here.
    fn answer_stray(&mut self, header: &Header, payload: &[u8], out: &mut Vec<PeerSegment>) {
        if header.flags.contains(Flags::RST) {
            return;
        }
        let taken = payload.len() as u32
            + u32::from(header.flags.contains(Flags::SYN))
            + u32::from(header.flags.contains(Flags::FIN));
        let (seq, ack, flags) = if header.flags.contains(Flags::ACK) {
            (header.ack, 0, Flags::RST)
        } else {
            (0, header.seq.wrapping_add(taken), Flags::RST | Flags::ACK)
        };
        out.push(PeerSegment {
            header: Header { seq, ack, flags, ..Header::default() },
            payload: Vec::new(),
        });
    }

    fn on_syn(&mut self, now: Instant, header: &Header) {
        let options = &header.options;
        let reader = self.config.reader.clone();
        self.receive =
            Receive::new(header.seq, self.config.window_bytes, reader, self.receive.pattern(), now);
        if let Some(timestamps) = options.timestamps.filter(|_| self.config.timestamps) {
            self.timestamps = true;
            self.ts_recent = timestamps.value;
        }
        self.sack = self.config.sack && options.sack_permitted;
        if let (Some(ours), Some(theirs)) = (self.config.window_scale, options.window_scale) {
            self.scaling = true;
            self.scale = ours.min(14);
            self.send.scale = theirs.min(14);
        }
        let mss = options.mss.unwrap_or(536);
        self.send.smss = u64::from(mss) - if self.timestamps { 12 } else { 0 };
        self.phase = Phase::SynReceived;
    }

    /// RFC 9293, 3.10.7.3. What a SYN brings besides is not taken.
    fn on_syn_sent(&mut self, now: Instant, header: &Header, payload: &[u8], out: &mut Vec<PeerSegment>) {
        let flags = header.flags;
        let acknowledges = flags.contains(Flags::ACK);
        if acknowledges && self.send.offset_of(header.ack) != 1 {
            self.answer_stray(header, payload, out);
            return;
        }
        if flags.contains(Flags::RST) {
            if acknowledges {
                self.end(PeerEnd::GotReset);
            }
            return;
        }
        if !flags.contains(Flags::SYN) {
            return;
        }
        self.on_syn(now, header);
        self.receive.edge = u64::from(self.syn_window()) + 1;
        if acknowledges {
            self.on_syn_acknowledged(now, header);
        } else {
            // The SYNs have crossed: ours goes again, with an acknowledgment.
            self.send.next = 0;
        }
        self.respond(now, out);
    }

    /// Our SYN was acknowledged by a SYN, whose window is not scaled (RFC 7323, 2.2).
    fn on_syn_acknowledged(&mut self, now: Instant, header: &Header) {
        let scale = core::mem::take(&mut self.send.scale);
        self.send.on_ack(now, 0, header.ack, header.window, true);
        self.send.scale = scale;
        self.phase = Phase::Established;
        self.ack_now = true;
    }

    /// RFC 7323, 2.2: the window of a SYN is never scaled.
    fn syn_window(&self) -> u16 {
        self.config.window_bytes.min(65_535) as u16
    }

    fn on_segment(&mut self, now: Instant, header: &Header, payload: &[u8], out: &mut Vec<PeerSegment>) {
        let flags = header.flags;
        let start = self.receive.offset_of(header.seq);
        let fin = flags.contains(Flags::FIN);
        let end = start + payload.len() as i64 + i64::from(fin);
        if flags.contains(Flags::SYN) {
            // The SYN again: our SYN-ACK was lost. Later, RFC 5961, 4: a challenge ACK.
            if self.phase == Phase::SynReceived && start == 0 {
                let acknowledges = flags.contains(Flags::ACK) && self.send.offset_of(header.ack) == 1;
                if acknowledges && !flags.contains(Flags::RST) {
                    self.on_syn_acknowledged(now, header);
                } else {
                    self.send.next = 0;
                }
            } else {
                self.ack_now = true;
            }
            return;
        }
        if !flags.contains(Flags::RST) && !self.check_timestamps(header, start) {
            return;
        }
        if !self.acceptable(start, end) {
            if !flags.contains(Flags::RST) {
                self.note_duplicate(start, end);
                self.ack_now = true;
                if let Phase::TimeWait { until } = &mut self.phase {
                    *until = now + TIME_WAIT;
                }
            }
            return;
        }
        if flags.contains(Flags::RST) {
            // RFC 5961, 3.2; RFC 1337: nothing cuts TIME-WAIT short.
            if matches!(self.phase, Phase::TimeWait { .. }) {
            } else if start == self.receive.next as i64 {
                self.end(PeerEnd::GotReset);
            } else {
                self.ack_now = true;
            }
            return;
        }
        if !flags.contains(Flags::ACK) {
            return;
        }
        if self.phase == Phase::SynReceived && self.send.offset_of(header.ack) != 1 {
            self.answer_stray(header, payload, out);
            return;
        }
        let bare = payload.is_empty() && !fin;
        if self.send.on_ack(now, start, header.ack, header.window, bare) == Acked::TooNew {
            self.facts.bad_acks += 1;
            self.ack_now = true;
            return;
        }
        if self.phase == Phase::SynReceived {
            self.phase = Phase::Established;
        }
        if self.deaf && !payload.is_empty() && end > self.receive.next as i64 {
            self.reset(out);
            return;
        }
        self.on_payload(now, start, payload, fin);
    }

    /// RFC 7323, 5.3: false if the segment must be dropped.
    fn check_timestamps(&mut self, header: &Header, start: i64) -> bool {
        if !self.timestamps {
            return true;
        }
        let Some(timestamps) = header.options.timestamps else {
            self.facts.missing_timestamps += 1;
            return false;
        };
        let newer_by = timestamps.value.wrapping_sub(self.ts_recent) as i32;
        if newer_by < 0 {
            self.facts.paws_refused += 1;
            self.ack_now = true;
            return false;
        }
        if start <= self.last_ack_sent as i64 {
            self.ts_recent = timestamps.value;
        }
        true
    }

    /// RFC 9293, 3.10.7.4: some of it lies in the window.
    fn acceptable(&self, start: i64, end: i64) -> bool {
        let (next, edge) = (self.receive.next as i64, self.receive.edge as i64);
        let inside = |at: i64| next <= at && at < edge;
        match (end > start, edge > next) {
            (false, false) => start == next,
            (false, true) => inside(start) || start == edge,
            (true, false) => false,
            (true, true) => inside(start) || inside(end - 1),
        }
    }

    fn note_duplicate(&mut self, start: i64, end: i64) {
        let (start, end) = (start.max(1), end.min(self.receive.next as i64));
        if start < end {
            self.receive.duplicate = Some((start as u64, end as u64));
        }
    }

    fn on_payload(&mut self, now: Instant, start: i64, payload: &[u8], fin: bool) {
        if payload.is_empty() && !fin {
            return;
        }
        let arrived = self.receive.accept(start, payload, fin);
        match arrived {
            Arrived::InOrder if !fin => {
                // RFC 1122, 4.2.3.2: every second full-sized segment, or after a while.
                self.unacked_segments += 1;
                if self.unacked_segments >= 2 {
                    self.ack_now = true;
                } else {
                    self.ack_at.get_or_insert(now + self.config.delayed_ack);
                }
            }
            Arrived::OutOfOrder => {
                self.ack_now = true;
                if self.rng.chance(self.config.reneging) {
                    self.receive.renege();
                    self.facts.reneged += 1;
                }
            }
            Arrived::InOrder | Arrived::FilledGap | Arrived::Old => self.ack_now = true,
        }
    }

    /// The application's turn, then everything that is to be sent.
    fn respond(&mut self, now: Instant, out: &mut Vec<PeerSegment>) {
        match self.phase {
            Phase::Listen | Phase::Closed => return,
            Phase::TimeWait { .. } => {
                if core::mem::take(&mut self.ack_now) {
                    self.acknowledge(now, out);
                }
                return;
            }
            Phase::SynSent | Phase::SynReceived | Phase::Established => {}
        }
        self.receive.read(now);
        self.squeeze(now);
        if self.phase == Phase::Established && self.decide_close(out) == Decided::Reset {
            return;
        }
        // A window that opens is told when it is worth it: RFC 9293, 3.8.6.2.2.
        let gain = self.receive.possible_edge().saturating_sub(self.receive.edge);
        let worth = (2 * self.send.smss).min(self.receive.capacity() / 2).max(1);
        if self.phase == Phase::Established && gain >= worth && !self.receive.finished() {
            self.ack_now = true;
        }
        let mut emissions = Vec::new();
        self.send.emit(now, &mut emissions);
        let special = self.receive.has_gap() || self.receive.duplicate.is_some();
        if self.ack_now && (emissions.is_empty() || special) && self.phase == Phase::Established {
            self.acknowledge(now, out);
        }
        for emission in emissions {
            self.emit(now, emission, out);
        }
        if self.send.finished() && self.receive.finished() {
            self.facts.end = PeerEnd::Clean;
            // The passive closer is done with the ACK of its FIN (RFC 9293, 3.6).
            self.phase = if self.config.close == PeerClose::AfterRemote {
                Phase::Closed
            } else {
                Phase::TimeWait { until: now + TIME_WAIT }
            };
        }
    }

    /// Takes the window back when it is time to, and offers it again later.
    fn squeeze(&mut self, now: Instant) {
        self.receive.release(now);
        let due = self.config.shrink.filter(|shrink| {
            !self.shrunk
                && self.phase == Phase::Established
                && self.receive.bytes_read() >= shrink.after_bytes
        });
        if let Some(shrink) = due {
            self.shrunk = true;
            self.receive.shrink(shrink.left_bytes, now + shrink.pause);
            self.ack_now = true;
        }
    }

    /// Whether the application ends its side now.
    fn decide_close(&mut self, out: &mut Vec<PeerSegment>) -> Decided {
        let read = self.receive.bytes_read();
        match self.config.close {
            PeerClose::AfterRemote => self.send.closing |= self.receive.at_end() && self.send.all_sent(),
            PeerClose::AfterSending => self.send.closing |= self.send.all_sent(),
            PeerClose::AtReceived(bytes) if read >= bytes && !self.deaf => {
                self.deaf = true;
                self.send.cut();
                if self.receive.has_unread() {
                    self.reset(out);
                    return Decided::Reset;
                }
            }
            PeerClose::ResetAt(bytes) if read >= bytes => {
                self.reset(out);
                return Decided::Reset;
            }
            PeerClose::AtReceived(_) | PeerClose::ResetAt(_) => {}
        }
        Decided::Nothing
    }

    fn reset(&mut self, out: &mut Vec<PeerSegment>) {
        let header = Header {
            seq: self.send.seq_of(self.send.max),
            ack: self.receive.seq_of(self.receive.next),
            flags: Flags::RST | Flags::ACK,
            ..Header::default()
        };
        out.push(PeerSegment { header, payload: Vec::new() });
        self.end(PeerEnd::SentReset);
    }

    fn end(&mut self, end: PeerEnd) {
        self.facts.end = end;
        self.phase = Phase::Closed;
    }

    fn emit(&mut self, now: Instant, emission: Emission, out: &mut Vec<PeerSegment>) {
        let mut header = self.header(now);
        let mut payload = Vec::new();
        match emission {
            Emission::Syn => {
                header.flags = Flags::SYN | Flags::ACK;
                header.seq = self.send.seq_of(0);
                header.options.mss = self.config.mss;
                header.options.sack_permitted = self.sack;
                header.options.window_scale = self.scaling.then_some(self.scale);
                header.window = self.syn_window();
                if self.phase == Phase::SynSent {
                    // What it knows, for nothing is agreed on yet.
                    header.flags = Flags::SYN;
                    header.ack = 0;
                    header.options.sack_permitted = self.config.sack;
                    header.options.window_scale = self.config.window_scale;
                    let value = self.clock(now);
                    header.options.timestamps =
                        self.config.timestamps.then_some(Timestamps { value, echo: 0 });
                } else {
                    self.receive.edge = u64::from(header.window) + 1;
                }
            }
            Emission::Data { offset, len } => {
                payload = vec![0; len as usize];
                self.pattern.fill(offset - 1, &mut payload);
                header.seq = self.send.seq_of(offset);
                header.flags = Flags::ACK | Flags::PSH;
            }
            Emission::Fin { offset } => {
                header.seq = self.send.seq_of(offset);
                header.flags = Flags::ACK | Flags::FIN;
            }
        }
        out.push(PeerSegment { header, payload });
    }

    /// A bare ACK with whatever SACK blocks there are.
    fn acknowledge(&mut self, now: Instant, out: &mut Vec<PeerSegment>) {
        let mut header = self.header(now);
        if self.sack {
            let room = if self.timestamps { 3 } else { 4 };
            let mut blocks = self.receive.blocks(room);
            if let Some(duplicate) = self.receive.duplicate.take().filter(|_| self.config.dsack) {
                // RFC 2883, 4: the duplicate first.
                blocks.insert(0, duplicate);
                blocks.truncate(room);
            }
            let mut sack = SackBlocks::default();
            for (start, end) in blocks {
                sack.push(self.receive.seq_of(start), self.receive.seq_of(end));
            }
            header.options.sack = sack;
        }
        self.receive.duplicate = None;
        out.push(PeerSegment { header, payload: Vec::new() });
    }

    /// The part common to all its segments; sending it acknowledges.
    fn header(&mut self, now: Instant) -> Header {
        self.ack_now = false;
        self.ack_at = None;
        self.unacked_segments = 0;
        self.last_ack_sent = self.receive.next;
        let timestamps = self.timestamps.then(|| Timestamps { value: self.clock(now), echo: self.ts_recent });
        Header {
            seq: self.send.seq_of(self.send.next),
            ack: self.receive.seq_of(self.receive.next),
            flags: Flags::ACK,
            window: self.offer(),
            options: Options { timestamps, ..Options::default() },
            ..Header::default()
        }
    }

    /// Its timestamp clock: milliseconds.
    fn clock(&self, now: Instant) -> u32 {
        self.clock_offset.wrapping_add(now.as_nanos().wrapping_div(1_000_000) as u32)
    }

    /// The window field: the offered edge grows in worthwhile steps and never goes back.
    fn offer(&mut self) -> u16 {
        let receive = &mut self.receive;
        let step = self.send.smss.min(receive.capacity() / 2).max(1);
        if receive.possible_edge() >= receive.edge + step {
            receive.edge = receive.possible_edge();
        }
        // Rounded up: rounding down would take back what was offered.
        let window = receive.edge.saturating_sub(receive.next).div_ceil(1 << self.scale).min(65_535);
        receive.edge = receive.next + (window << self.scale);
        window as u16
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Nothing,
    Reset,
}

#[cfg(test)]
mod tests;
