//! The engine's end: drives a [`Connection`] by its contract, as a shard would, with an application
//! that writes and reads, a TX ring, and books of every frame that went in.

mod config;
mod stranger;

use std::collections::BTreeSet;

use core::time::Duration;
use xsend_tcp::{
    Batch, Chunk, Config, Connection, Event, Instant, Outcome, Seed, TimeOut, TooBig, Transmit, Unreachable,
};
use xsend_wire::icmp::{ErrorKind, Reason};
use xsend_wire::tcp::{Flags, Header, Options, Timestamps};
use xsend_wire::{Stamp, checksum};

pub use self::config::{AppClose, AppConfig, Open};
use self::stranger::Listening;
use crate::audit::Audit;
use crate::codec::Codec;
use crate::intruder::Intruder;
use crate::pattern::Pattern;
use crate::reader::Reading;
use crate::ring::{FRAME_HEADROOM, Fate, Ring, frame_number};
use crate::rng::Rng;
use crate::trace::{Seen, Trace};

/// IPv4 and TCP headers without options, in bytes.
const IP_TCP_HEADERS: u16 = 40;

/// Rounds of polling that one input may cause before it counts as a live-lock.
const MAX_ROUNDS: usize = 100_000;

/// A frame on its way out of the engine's end.
#[derive(Debug)]
pub(crate) enum Output {
    /// Onto the link.
    Frame(Vec<u8>),
    /// To be told at this time: the ring has completed a frame.
    Completion { at: Instant, number: Option<u64>, len: u64 },
    /// To be told at this time: the ring will never complete a frame.
    GiveUp { at: Instant, len: u64 },
}

/// Every payload frame that the engine was given, until it came back.
#[derive(Debug, Default)]
pub(crate) struct Books {
    out: BTreeSet<u64>,
    pub(crate) given: u64,
}

impl Books {
    fn give(&mut self, payload: &[u8]) -> Box<[u8]> {
        let number = self.given;
        self.given += 1;
        self.out.insert(number);
        [&number.to_le_bytes()[..], payload].concat().into()
    }

    fn take_back(&mut self, frame: &[u8]) -> bool {
        self.out.remove(&frame_number(frame))
    }

    pub(crate) fn missing(&self) -> u64 {
        self.out.len() as u64
    }
}

/// The engine's end of the link.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// While it listens: one that is over.
    pub(crate) connection: Connection<Box<[u8]>>,
    listening: Option<Listening>,
    codec: Codec,
    ring: Ring,
    pub(crate) books: Books,
    pub(crate) audit: Audit,
    app: AppConfig,
    rng: Rng,
    pattern: Pattern,
    incoming: Pattern,
    reading: Reading,
    /// Bytes received in order that the application has not read.
    unread: u64,
    received: u64,
    written: u64,
    write_ready_at: Instant,
    closed: bool,
    peer_closed: bool,
    blocked_since: Option<Instant>,
    pub(crate) established_at: Option<Instant>,
    pub(crate) closed_at: Option<(Instant, Outcome)>,
    pub(crate) events: Vec<Event>,
    pub(crate) splits: u64,
    pub(crate) frames_replaced: u64,
    pub(crate) batches: u64,
}

/// What an endpoint is made of.
pub(crate) struct EndpointParts {
    pub(crate) config: Config,
    pub(crate) seed: Seed,
    pub(crate) open: Open,
    pub(crate) app: AppConfig,
    pub(crate) ring: Ring,
    pub(crate) audit: Audit,
    pub(crate) rng: Rng,
    pub(crate) outgoing: Pattern,
    pub(crate) incoming: Pattern,
}

impl Endpoint {
    pub(crate) fn new(parts: EndpointParts, now: Instant) -> Self {
        let mut connection = Connection::connect(&parts.config, parts.seed, now);
        let listening = match parts.open {
            Open::Engine | Open::Both(_) => None,
            Open::Peer | Open::PeerToCookie => {
                connection.on_abort(now);
                while connection.poll_event().is_some() {}
                let by_cookie = parts.open == Open::PeerToCookie;
                Some(Listening { config: parts.config, seed: parts.seed, by_cookie })
            }
        };
        Self {
            connection,
            listening,
            codec: Codec::engine(false),
            ring: parts.ring,
            books: Books::default(),
            audit: parts.audit,
            reading: Reading::new(parts.app.reader.clone(), now),
            app: parts.app,
            rng: parts.rng,
            pattern: parts.outgoing,
            incoming: parts.incoming,
            unread: 0,
            received: 0,
            written: 0,
            write_ready_at: now,
            closed: false,
            peer_closed: false,
            blocked_since: None,
            established_at: None,
            closed_at: None,
            events: Vec::new(),
            splits: 0,
            frames_replaced: 0,
            batches: 0,
        }
    }

    /// Why it gave up, if it did.
    pub(crate) fn time_out(&self) -> Option<TimeOut> {
        self.connection.time_out()
    }

    /// Bytes that its application has read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.reading.read
    }

    pub(crate) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// When [`Endpoint::tick`] must be called.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let stuck = self.blocked_since.map(|since| since + self.ring.config.stuck_after);
        let write = (self.may_write() && self.room() > 0).then_some(self.write_ready_at);
        let abort = match self.app.close {
            AppClose::AbortAt(after) if !self.closed => Some(Instant::ZERO + after),
            _ => None,
        };
        let read = self.reading.next_at(self.unread);
        [self.connection.poll_timeout(), stuck, write, abort, read].into_iter().flatten().min()
    }

    /// Does what is due by `now`.
    pub(crate) fn tick(&mut self, now: Instant, trace: &mut Trace, out: &mut Vec<Output>) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            trace.note(now, || "engine: on_timeout".to_owned());
            self.connection.on_timeout(now);
        }
        if self.blocked_since.is_some_and(|since| since + self.ring.config.stuck_after <= now) {
            self.replace_stuck(now);
        }
        if let AppClose::AbortAt(after) = self.app.close
            && !self.closed
            && now >= Instant::ZERO + after
        {
            self.closed = true;
            self.connection.on_abort(now);
        }
        self.pump(now, trace, out);
    }

    /// A frame has come off the link.
    pub(crate) fn arrive(&mut self, now: Instant, frame: &[u8], trace: &mut Trace, out: &mut Vec<Output>) {
        let Some((header, payload)) = self.codec.decode(frame) else {
            trace.frame(now, Seen::Damaged, frame);
            trace.note(now, || "engine: refused a damaged frame".to_owned());
            return;
        };
        trace.segment(now, Seen::EngineGot, &header, payload.len());
        if self.listening.is_some() {
            let known = self.listen(now, &header, payload.len(), trace, out);
            if !known {
                self.pump(now, trace, out);
                return;
            }
        } else if self.connection.is_finished() {
            self.answer_stray(now, &header, payload.len(), trace, out);
            return;
        }
        self.audit.got(now, &header, payload.len());
        let chunk = self.chunk(payload);
        self.connection.on_segment(now, &header, chunk, payload.len() as u32);
        self.pump(now, trace, out);
    }

    /// An ICMP error has reached the engine's host, true or forged.
    pub(crate) fn icmp(
        &mut self,
        now: Instant,
        kind: ErrorKind,
        seq: u32,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) {
        trace.note(now, || format!("engine: ICMP {kind:?}"));
        let unreachable = match kind {
            ErrorKind::PacketTooBig { mtu } => {
                let mss = mtu.checked_sub(IP_TCP_HEADERS.into()).map(|mss| mss.min(u16::MAX.into()) as u16);
                let verdict = self.connection.on_packet_too_big(now, mss, seq);
                if verdict == TooBig::Obeyed {
                    self.audit.heard(now);
                }
                None
            }
            ErrorKind::Unreachable { reason: Reason::Protocol, .. } => Some(Unreachable::Protocol),
            ErrorKind::Unreachable { reason: Reason::Port, .. } => Some(Unreachable::Port),
            ErrorKind::Unreachable { reason: Reason::Prohibited, .. } => Some(Unreachable::Prohibited),
            ErrorKind::Unreachable { .. } | ErrorKind::TimeExceeded { .. } => Some(Unreachable::Host),
            ErrorKind::ParameterProblem { .. } => None,
        };
        if let Some(kind) = unreachable {
            self.connection.on_unreachable(now, kind, seq);
        }
        self.pump(now, trace, out);
    }

    /// The device's MTU has become smaller.
    pub(crate) fn device_mtu(&mut self, now: Instant, mtu: u16, trace: &mut Trace, out: &mut Vec<Output>) {
        trace.note(now, || format!("engine: the device's MTU is {mtu}"));
        let mss = mtu.saturating_sub(IP_TCP_HEADERS);
        self.connection.on_mtu(now, mss);
        if let Some(Listening { config, .. }) = &mut self.listening {
            config.mss = config.mss.min(mss);
        }
        self.pump(now, trace, out);
    }

    /// A payload in a frame of its own.
    fn chunk(&mut self, payload: &[u8]) -> Option<Chunk<Box<[u8]>>> {
        let (offset, len) = (FRAME_HEADROOM as u32, payload.len() as u32);
        (len > 0).then(|| Chunk { frame: self.books.give(payload), offset, len })
    }

    /// A forged segment, written to look like the peer's, reaches the engine. The auditor does not
    /// hear of it: it justifies nothing that the engine does but an answer.
    pub(crate) fn forged(
        &mut self,
        now: Instant,
        intruder: &mut Intruder,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) {
        if self.established_at.is_none() || self.connection.is_finished() {
            return;
        }
        let Some(view) = self.audit.view() else { return };
        if let Some((kind, seq)) = intruder.forge_icmp(view) {
            return self.icmp(now, kind, seq, trace, out);
        }
        let (header, payload) = intruder.forge(view);
        trace.note(now, || "an intruder's".to_owned());
        trace.segment(now, Seen::EngineGot, &header, payload.len());
        let chunk = self.chunk(payload);
        self.connection.on_segment(now, &header, chunk, payload.len() as u32);
        self.pump(now, trace, out);
    }

    /// The ring has completed a frame.
    pub(crate) fn completed(
        &mut self,
        now: Instant,
        number: Option<u64>,
        len: u64,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) {
        self.ring.complete(number, len);
        self.pump(now, trace, out);
    }

    /// The ring will not complete a frame.
    pub(crate) fn gave_up(&mut self, now: Instant, len: u64, trace: &mut Trace, out: &mut Vec<Output>) {
        self.ring.give_up(len);
        self.pump(now, trace, out);
    }

    /// Everything that follows from an input, until nothing more does.
    pub(crate) fn pump(&mut self, now: Instant, trace: &mut Trace, out: &mut Vec<Output>) {
        for _ in 0..MAX_ROUNDS {
            let mut progress = self.write(now);
            progress |= self.transmit(now, trace, out);
            progress |= self.receive(now);
            progress |= self.take_events(now, trace);
            while let Some(frame) = self.connection.poll_freed() {
                if !self.books.take_back(&frame) {
                    let number = frame_number(&frame);
                    self.audit.breach(now, format!("frame {number} came back twice"));
                }
            }
            if !progress {
                self.watch_ring(now);
                return;
            }
        }
        self.audit.breach(now, format!("still busy after {MAX_ROUNDS} rounds of polling"));
    }

    fn watch_ring(&mut self, now: Instant) {
        if self.connection.blocked_on_ring() {
            self.blocked_since.get_or_insert(now);
        } else {
            self.blocked_since = None;
        }
    }

    fn may_write(&self) -> bool {
        self.established_at.is_some()
            && self.closed_at.is_none()
            && self.written < self.app.bytes
            && !self.closed
    }

    /// Room in the send buffer; the last write may exceed it by less than a segment.
    fn room(&self) -> u64 {
        self.app.send_buffer_bytes.saturating_sub(self.written.saturating_sub(self.connection.acked_bytes()))
    }

    /// The application writes what it can, and closes when it is done.
    fn write(&mut self, now: Instant) -> bool {
        let mut progress = false;
        let smss = u64::from(self.connection.smss());
        while self.may_write() && self.room() > 0 && now >= self.write_ready_at {
            let mut len = smss.min(self.app.bytes - self.written);
            if self.app.ragged {
                len = self.rng.between(1, len);
            }
            let mut payload = vec![0; len as usize];
            self.pattern.fill(self.written, &mut payload);
            self.written += len;
            if let Some(rate) = self.app.write_rate {
                self.write_ready_at = now + Duration::from_nanos((len * 1_000_000_000).div_ceil(rate.max(1)));
            }
            let push = self.written == self.app.bytes;
            let frame = self.books.give(&payload);
            self.connection.on_write(now, frame, len as u32, push);
            progress = true;
        }
        let done = self.established_at.is_some() && self.written == self.app.bytes;
        let close = match self.app.close {
            AppClose::AfterWriting | AppClose::LeaveAfterWriting => done,
            AppClose::AfterPeer => done && self.peer_closed,
            AppClose::AbortAt(_) => false,
        };
        if close && !self.closed && self.closed_at.is_none() {
            self.closed = true;
            match self.app.close {
                AppClose::LeaveAfterWriting => self.connection.on_detach(now),
                _ => self.connection.on_close(now),
            }
            progress = true;
        }
        progress
    }

    /// Segments that the ring may take now: its room, and what TSQ leaves to this flow.
    fn budget(&self) -> usize {
        let limit = u64::from(self.connection.tsq_limit_bytes());
        let credit =
            limit.saturating_sub(self.ring.bytes()).div_ceil(u64::from(self.connection.smss().max(1)));
        self.ring.room().min(credit as usize)
    }

    fn transmit(&mut self, now: Instant, trace: &mut Trace, out: &mut Vec<Output>) -> bool {
        let mut progress = false;
        while self.ring.room() > 0 {
            let budget = self.budget();
            let mut segments = Vec::new();
            let mut split = false;
            if budget == 0 {
                // Its share of the ring is used up, by data: acknowledgments need not wait for that.
                let Some(control) = self.connection.poll_control(now) else { break };
                self.submit(now, vec![(None, control.header(0, 0), Vec::new())], trace, out);
                progress = true;
                continue;
            }
            match self.connection.poll_transmit(now, budget, &self.ring) {
                None => break,
                Some(Transmit::Split) => split = true,
                Some(Transmit::Control(control)) => {
                    let header = control.header(0, 0);
                    segments.push((None, header, Vec::new()));
                }
                Some(Transmit::Data(batch)) => {
                    self.batches += 1;
                    if let Err(fault) = unpack(batch, budget, &mut segments) {
                        self.audit.breach(now, fault);
                    }
                }
            }
            progress = true;
            if split {
                self.split();
            }
            let dropped = self.submit(now, segments, trace, out);
            if dropped {
                self.audit.heard(now);
                self.connection.on_local_drop(now);
            }
        }
        progress
    }

    /// Puts segments into the ring and on the link; true if the device dropped any.
    fn submit(
        &mut self,
        now: Instant,
        segments: Vec<Outgoing>,
        trace: &mut Trace,
        out: &mut Vec<Output>,
    ) -> bool {
        let mut dropped = false;
        for (number, header, payload) in segments {
            if number.is_some_and(|number| self.ring.holds(number)) {
                self.audit.breach(now, format!("frame {number:?} sent again while in the ring"));
            }
            self.audit.sent(now, &header, &payload);
            trace.segment(now, Seen::EngineSent, &header, payload.len());
            let frame = if number.is_some() {
                let Header { seq, ack, window, flags, .. } = header;
                let timestamps: Option<Timestamps> = header.options.timestamps;
                let stamp = Stamp {
                    seq,
                    ack,
                    window,
                    flags,
                    timestamps,
                    payload_len: payload.len() as u16,
                    payload_sum: checksum::Sum::of(&payload),
                    ip_id: 0,
                };
                self.codec.data(stamp, &payload)
            } else {
                self.codec.control(&header, &payload)
            };
            let len = frame.len() as u64;
            let submitted = self.ring.submit(now, number, len);
            if submitted.sent {
                out.push(Output::Frame(frame));
            } else {
                dropped = true;
                trace.note(now, || "device: dropped it".to_owned());
            }
            out.push(match submitted.fate {
                Fate::Completes { at } => Output::Completion { at, number, len },
                Fate::Stuck { until } => Output::GiveUp { at: until, len },
            });
        }
        dropped
    }

    fn split(&mut self) {
        self.splits += 1;
        let books = &mut self.books;
        self.connection.on_split(|frame, head_len, len| {
            let tail = FRAME_HEADROOM + head_len as usize..FRAME_HEADROOM + len as usize;
            Some(books.give(&frame[tail]))
        });
    }

    /// Frames that the ring will not give back are replaced by copies.
    fn replace_stuck(&mut self, now: Instant) {
        self.blocked_since = None;
        self.audit.heard(now);
        let Self { connection, books, ring, frames_replaced, .. } = self;
        connection.on_stuck(|frame, len| {
            let number = frame_number(frame);
            if ring.holds(number) {
                let copy = books.give(&frame[FRAME_HEADROOM..FRAME_HEADROOM + len as usize]);
                books.take_back(frame);
                *frame = copy;
                *frames_replaced += 1;
            }
        });
    }

    /// Takes what is in order; the application reads what it will.
    fn receive(&mut self, now: Instant) -> bool {
        while let Some(chunk) = self.connection.poll_received() {
            let from = chunk.offset as usize;
            let bytes = &chunk.frame[from..from + chunk.len as usize];
            if let Some(wrong) = self.incoming.mismatch(self.received, bytes) {
                self.audit.breach(now, format!("delivers a wrong byte at {wrong}"));
            }
            self.received += u64::from(chunk.len);
            self.unread += u64::from(chunk.len);
            if !self.books.take_back(&chunk.frame) {
                self.audit.breach(now, "delivers a frame twice".to_owned());
            }
        }
        let taken = self.reading.take(now, self.unread);
        self.unread -= taken;
        if taken > 0 {
            self.connection.on_consumed(now, taken as u32);
        }
        taken > 0
    }

    fn take_events(&mut self, now: Instant, trace: &mut Trace) -> bool {
        let mut progress = false;
        while let Some(event) = self.connection.poll_event() {
            trace.note(now, || format!("engine: {event:?}"));
            if self.closed_at.is_some() {
                self.audit.breach(now, format!("{event:?} after the last event"));
            }
            match event {
                Event::Established => {
                    self.established_at = Some(now);
                    self.codec = Codec::engine(self.connection.data_header_len() > 20);
                    let timestamps = self.connection.info().timestamps;
                    let expected = if timestamps { 32 } else { 20 };
                    if self.connection.data_header_len() != expected {
                        self.audit.breach(now, "header length and timestamps disagree".to_owned());
                    }
                }
                Event::SegmentSize(smss) => self.audit.shrink(smss),
                Event::PeerClosed => self.peer_closed = true,
                Event::Closed(outcome) => self.closed_at = Some((now, outcome)),
                _ => {}
            }
            if self.events.contains(&event) {
                self.audit.breach(now, format!("{event:?} told twice"));
            }
            self.events.push(event);
            progress = true;
        }
        progress
    }
}

/// A segment that leaves: the number of its payload's frame, its header, its payload.
type Outgoing = (Option<u64>, Header, Vec<u8>);

/// The segments of a batch, which must be consecutive, within the budget, and add up.
fn unpack(batch: Batch<'_, Box<[u8]>>, budget: usize, segments: &mut Vec<Outgoing>) -> Result<(), String> {
    let Batch { seq, ack, window, timestamps, payload_bytes, .. } = batch;
    let len = batch.len();
    if len > budget {
        return Err(format!("{len} segments, the budget was {budget}"));
    }
    let mut next = seq;
    for segment in batch.segments() {
        if segment.seq != next {
            return Err(format!("a batch has {} after {next}", segment.seq));
        }
        next = segment.seq.wrapping_add(segment.len);
        let push = if segment.push { Flags::PSH } else { Flags::NONE };
        let options = Options { timestamps, ..Options::default() };
        let flags = Flags::ACK | push;
        let header = Header { seq: segment.seq, ack, flags, window, options, ..Header::default() };
        let payload = &segment.frame[FRAME_HEADROOM..FRAME_HEADROOM + segment.len as usize];
        segments.push((Some(frame_number(segment.frame)), header, payload.to_vec()));
    }
    let bytes = next.wrapping_sub(seq);
    if bytes == payload_bytes && bytes <= 65_536 {
        Ok(())
    } else {
        Err(format!("a batch of {bytes} bytes claims {payload_bytes}"))
    }
}
