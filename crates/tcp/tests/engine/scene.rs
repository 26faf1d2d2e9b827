//! A stage for one connection and a scripted peer, in virtual time.
//!
//! Numbers are relative: the SYN of either side is 0, the first byte 1. Both initial numbers lie shortly before
//! 2^32, so every script crosses the wrap.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use xsend_tcp::{Chunk, Config, Connection, Event, Instant, Seed, Transmit, TxRing};
use xsend_wire::tcp::{Flags, Header, Options, SackBlocks, Timestamps};

pub const ISS: u32 = u32::MAX - 1_500;
pub const IRS: u32 = u32::MAX - 700;
/// Distance of the peer's timestamp clock from ours.
const PEER_CLOCK: u32 = 0xffff_ff00;

/// Stands for payload; the number tells frames apart.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(pub u32);

/// A segment as a script writes it, from or to the peer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Segment {
    pub flags: Flags,
    pub seq: Option<u32>,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub len: u32,
    pub sack: Option<Vec<(u32, u32)>>,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: bool,
    pub timestamps: Option<Option<(u32, u32)>>,
    pub retransmission: Option<bool>,
    pub without_frame: bool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.flags)?;
        if let Some(seq) = self.seq {
            write!(f, " seq {}..{}", seq, seq.wrapping_add(self.len))?;
        }
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some(sack) = &self.sack {
            write!(f, " sack {sack:?}")?;
        }
        if self.retransmission == Some(true) {
            write!(f, " again")?;
        }
        Ok(())
    }
}

/// A pure acknowledgment.
pub fn ack(ack: u32) -> Segment {
    Segment { flags: Flags::ACK, ack: Some(ack), ..Segment::default() }
}

/// `len` bytes of payload from `seq` on.
pub fn data(seq: u32, len: u32) -> Segment {
    Segment { flags: Flags::ACK, seq: Some(seq), len, ..Segment::default() }
}

/// A FIN at `seq`.
pub fn fin(seq: u32) -> Segment {
    Segment { flags: Flags::FIN | Flags::ACK, seq: Some(seq), ..Segment::default() }
}

/// A reset at `seq`.
pub fn rst(seq: u32) -> Segment {
    Segment { flags: Flags::RST, seq: Some(seq), ..Segment::default() }
}

/// Our SYN, or the peer's SYN-ACK with the options given by `mss`, `scale` and so on.
pub fn syn() -> Segment {
    Segment { flags: Flags::SYN, seq: Some(0), ..Segment::default() }
}

/// The peer's SYN, with the options of [`syn_ack`].
pub fn peer_syn() -> Segment {
    Segment { flags: Flags::SYN, ack: None, ..syn_ack() }
}

/// The usual SYN-ACK: payload of 1000 bytes a segment with timestamps, SACK, no scaling.
pub fn syn_ack() -> Segment {
    Segment {
        flags: Flags::SYN | Flags::ACK,
        seq: Some(0),
        ack: Some(1),
        mss: Some(1012),
        scale: Some(0),
        sack_permitted: true,
        ..Segment::default()
    }
}

impl Segment {
    pub fn seq(self, seq: u32) -> Segment {
        Segment { seq: Some(seq), ..self }
    }
    pub fn ack(self, ack: u32) -> Segment {
        Segment { ack: Some(ack), flags: self.flags | Flags::ACK, ..self }
    }
    pub fn win(self, window: u16) -> Segment {
        Segment { window: Some(window), ..self }
    }
    pub fn sack(self, blocks: &[(u32, u32)]) -> Segment {
        Segment { sack: Some(blocks.to_vec()), ..self }
    }
    pub fn flags(self, flags: Flags) -> Segment {
        Segment { flags: self.flags | flags, ..self }
    }
    pub fn ts(self, value: u32, echo: u32) -> Segment {
        Segment { timestamps: Some(Some((value, echo))), ..self }
    }
    pub fn no_ts(self) -> Segment {
        Segment { timestamps: Some(None), ..self }
    }
    /// Sent for the second time or later.
    pub fn again(self) -> Segment {
        Segment { retransmission: Some(true), ..self }
    }
    /// The holder has no frame for this payload.
    pub fn without_frame(self) -> Segment {
        Segment { without_frame: true, ..self }
    }
}

/// A TX ring that holds the frames it is told to.
#[derive(Default)]
pub struct Ring(pub RefCell<BTreeSet<u32>>);

impl TxRing<Frame> for Ring {
    fn in_ring(&self, frame: &Frame) -> bool {
        self.0.borrow().contains(&frame.0)
    }
}

pub struct Scene {
    pub conn: Connection<Frame>,
    pub now: Instant,
    pub emitted: VecDeque<(Instant, Segment)>,
    pub events: VecDeque<Event>,
    pub received: VecDeque<Chunk<Frame>>,
    pub freed: Vec<Frame>,
    pub ring: Ring,
    /// Segments a poll may take; unlimited unless set.
    pub budget: usize,
    /// Sizes of the batches so far.
    pub batches: Vec<usize>,
    pub refuse_splits: bool,
    /// What the peer sends unless the script says otherwise.
    pub peer_seq: u32,
    pub peer_ack: u32,
    pub peer_window: u16,
    pub peer_timestamps: bool,
    /// TSval of our newest segment, which the peer echoes.
    pub our_clock: u32,
    frames: u32,
}

impl Scene {
    /// Just connected: the SYN is in `emitted`.
    pub fn connect(config: &Config) -> Scene {
        let mut scene = Scene::with(Connection::connect(config, Self::seed(), Instant::ZERO), config);
        scene.poll();
        scene
    }

    /// The peer's SYN has arrived: the SYN-ACK is in `emitted`.
    pub fn accept(config: &Config, syn: Segment) -> Scene {
        let mut scene = Scene::with(Connection::connect(config, Self::seed(), Instant::ZERO), config);
        let header = scene.header(&syn);
        scene.peer_seq = 1;
        scene.peer_ack = 1;
        scene.conn = Connection::accept(config, &header, Self::seed(), scene.now);
        scene.poll();
        scene
    }

    fn seed() -> Seed {
        Seed { iss: ISS, timestamp_offset: 77 }
    }

    fn with(conn: Connection<Frame>, config: &Config) -> Scene {
        Scene {
            conn,
            now: Instant::ZERO,
            emitted: VecDeque::new(),
            events: VecDeque::new(),
            received: VecDeque::new(),
            freed: Vec::new(),
            ring: Ring::default(),
            budget: usize::MAX,
            batches: Vec::new(),
            refuse_splits: false,
            peer_seq: 0,
            peer_ack: 0,
            peer_window: 64_000,
            peer_timestamps: config.timestamps,
            our_clock: 0,
            frames: 0,
        }
    }

    /// Established at 100 ms, the round-trip time; the ACK of the handshake is taken from `emitted`.
    pub fn established(config: &Config) -> Scene {
        Scene::established_with(config, syn_ack())
    }

    pub fn established_with(config: &Config, syn_ack: Segment) -> Scene {
        let mut scene = Scene::connect(config);
        scene.emitted.clear();
        scene.arrive(100, syn_ack);
        assert_eq!(scene.events.pop_front(), Some(Event::Established));
        scene.expect(100, ack(1));
        scene
    }

    /// Runs to `ms` and lets the peer's segment arrive.
    pub fn arrive(&mut self, ms: u64, segment: Segment) {
        self.run_until(ms);
        self.deliver(segment);
    }

    /// The peer's segment arrives now.
    pub fn deliver(&mut self, segment: Segment) {
        let header = self.header(&segment);
        let seq = header.seq.wrapping_sub(IRS);
        if segment.flags.contains(Flags::ACK) && !segment.flags.contains(Flags::RST) {
            self.peer_ack = segment.ack.unwrap_or(self.peer_ack);
            self.peer_window = header.window;
        }
        // The peer goes on where it left off, unless it was told to be out of order.
        let occupied = segment.len + u32::from(segment.flags.intersects(Flags::SYN | Flags::FIN));
        if seq == self.peer_seq {
            self.peer_seq += occupied;
        }
        let payload = (segment.len > 0 && !segment.without_frame).then(|| Chunk {
            frame: self.frame(),
            offset: seq,
            len: segment.len,
        });
        self.conn.on_segment(self.now, &header, payload, segment.len);
        self.poll();
    }

    /// The header that a script's segment stands for, if it arrives now.
    pub fn header(&mut self, segment: &Segment) -> Header {
        let syn = segment.flags.contains(Flags::SYN);
        let seq = segment.seq.unwrap_or(self.peer_seq);
        let acked = segment.ack.unwrap_or(self.peer_ack);
        let window = segment.window.unwrap_or(self.peer_window);
        let offered = !syn || segment.timestamps.is_some() || segment.mss.is_some();
        let default = (self.now.as_millis() as u32).wrapping_add(PEER_CLOCK);
        let timestamps = match segment.timestamps {
            Some(explicit) => explicit.map(|(value, echo)| Timestamps { value, echo }),
            None if self.peer_timestamps && offered => {
                Some(Timestamps { value: default, echo: self.our_clock })
            }
            None => None,
        };
        if syn {
            self.peer_timestamps &= timestamps.is_some();
        }
        let mut sack = SackBlocks::EMPTY;
        for (left, right) in segment.sack.iter().flatten() {
            sack.push(ISS.wrapping_add(*left), ISS.wrapping_add(*right));
        }
        Header {
            source: 1,
            destination: 2,
            seq: IRS.wrapping_add(seq),
            ack: if segment.flags.contains(Flags::ACK) { ISS.wrapping_add(acked) } else { 0 },
            flags: segment.flags,
            window,
            urgent: 0,
            options: Options {
                mss: segment.mss,
                window_scale: segment.scale,
                sack_permitted: segment.sack_permitted,
                timestamps,
                sack,
            },
        }
    }

    fn frame(&mut self) -> Frame {
        self.frames += 1;
        Frame(self.frames)
    }

    /// Writes segments of these lengths now and returns the first one's frame number.
    pub fn write(&mut self, lens: &[u32]) -> u32 {
        let first = self.frames + 1;
        for &len in lens {
            let frame = self.frame();
            self.conn.on_write(self.now, frame, len, false);
        }
        self.poll();
        first
    }

    pub fn close(&mut self) {
        self.conn.on_close(self.now);
        self.poll();
    }

    pub fn detach(&mut self) {
        self.conn.on_detach(self.now);
        self.poll();
    }

    pub fn abort(&mut self) {
        self.conn.on_abort(self.now);
        self.poll();
    }

    /// The application takes one chunk.
    pub fn read(&mut self) -> Option<(u32, u32)> {
        let chunk = self.received.pop_front()?;
        self.conn.on_consumed(self.now, chunk.len);
        self.poll();
        Some((chunk.offset, chunk.len))
    }

    /// Everything read so far as (start, length), without consuming it.
    pub fn take_received(&mut self) -> Vec<(u32, u32)> {
        self.received.drain(..).map(|chunk| (chunk.offset, chunk.len)).collect()
    }

    /// Polls everything until there is nothing left.
    pub fn poll(&mut self) {
        loop {
            let mut split = false;
            let Some(transmit) = self.conn.poll_transmit(self.now, self.budget, &self.ring) else {
                break;
            };
            match transmit {
                Transmit::Control(control) => {
                    if let Some(timestamps) = control.options.timestamps {
                        self.our_clock = timestamps.value;
                    }
                    let blocks = control.options.sack.iter();
                    let blocks: Vec<_> =
                        blocks.map(|(l, r)| (l.wrapping_sub(IRS), r.wrapping_sub(IRS))).collect();
                    let has_ack = control.flags.contains(Flags::ACK);
                    self.emitted.push_back((
                        self.now,
                        Segment {
                            flags: control.flags,
                            seq: Some(control.seq.wrapping_sub(ISS)),
                            ack: has_ack.then(|| control.ack.wrapping_sub(IRS)),
                            window: Some(control.window),
                            sack: Some(blocks),
                            mss: control.options.mss,
                            scale: control.options.window_scale,
                            sack_permitted: control.options.sack_permitted,
                            timestamps: Some(control.options.timestamps.map(|t| (t.value, t.echo))),
                            ..Segment::default()
                        },
                    ));
                }
                Transmit::Data(batch) => {
                    let (ack, window, again) = (batch.ack, batch.window, batch.retransmission);
                    let timestamps = batch.timestamps;
                    let total = batch.payload_bytes;
                    self.batches.push(batch.len());
                    assert!(batch.len() <= self.budget);
                    let mut next = batch.seq;
                    if let Some(timestamps) = timestamps {
                        self.our_clock = timestamps.value;
                    }
                    for segment in batch.segments() {
                        assert_eq!(segment.seq, next, "a batch is consecutive");
                        next = next.wrapping_add(segment.len);
                        let push = if segment.push { Flags::PSH } else { Flags::NONE };
                        self.emitted.push_back((
                            self.now,
                            Segment {
                                flags: Flags::ACK | push,
                                seq: Some(segment.seq.wrapping_sub(ISS)),
                                ack: Some(ack.wrapping_sub(IRS)),
                                window: Some(window),
                                len: segment.len,
                                timestamps: Some(timestamps.map(|t| (t.value, t.echo))),
                                retransmission: Some(again),
                                ..Segment::default()
                            },
                        ));
                    }
                    let segments = self.batches.last().copied().unwrap_or(0);
                    let bytes = self.emitted.iter().rev().take(segments);
                    assert_eq!(bytes.map(|(_, segment)| segment.len).sum::<u32>(), total);
                }
                Transmit::Split => split = true,
            }
            if split {
                self.frames += 1;
                let (tail, refuse) = (Frame(self.frames), self.refuse_splits);
                self.conn.on_split(|_, head, len| {
                    assert!(0 < head && head < len);
                    (!refuse).then_some(tail)
                });
            }
        }
        while let Some(chunk) = self.conn.poll_received() {
            self.received.push_back(chunk);
        }
        while let Some(event) = self.conn.poll_event() {
            self.events.push_back(event);
        }
        while let Some(frame) = self.conn.poll_freed() {
            self.freed.push(frame);
        }
    }

    /// Lets time pass, with every timer at its moment.
    pub fn run_until(&mut self, ms: u64) {
        let until = Instant::from_millis(ms);
        assert!(self.now <= until, "the script goes back in time: {:?} to {ms} ms", self.now);
        while let Some(due) = self.conn.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.conn.on_timeout(self.now);
            self.poll();
        }
        self.now = until;
    }

    /// The next segment leaves at `ms` and matches in all that `wanted` names.
    #[track_caller]
    pub fn expect(&mut self, ms: u64, wanted: Segment) {
        self.run_until(ms);
        let Some((at, got)) = self.emitted.pop_front() else {
            panic!("expected at {ms} ms: {wanted:?}, but nothing left");
        };
        assert_eq!(at.as_nanos(), ms * 1_000_000, "expected at {ms} ms: {wanted:?}, got {got:?}");
        let data = wanted.len > 0;
        assert_eq!(
            got.flags.without(Flags::PSH),
            wanted.flags.without(Flags::PSH),
            "{got:?}, not {wanted:?}"
        );
        assert_eq!(got.len, wanted.len, "{got:?}, not {wanted:?}");
        for (got_field, wanted_field) in [
            (got.seq, wanted.seq),
            (got.ack, wanted.ack),
            (got.window.map(u32::from), wanted.window.map(u32::from)),
        ] {
            assert!(wanted_field.is_none() || got_field == wanted_field, "{got:?}, not {wanted:?}");
        }
        if wanted.sack.is_some() {
            assert_eq!(got.sack, wanted.sack, "{got:?}");
        }
        if data {
            let again = wanted.retransmission.unwrap_or(false);
            assert_eq!(got.retransmission, Some(again), "{got:?}, not {wanted:?}");
        }
    }

    /// Nothing leaves up to `ms`.
    #[track_caller]
    pub fn expect_nothing(&mut self, ms: u64) {
        self.run_until(ms);
        assert!(self.emitted.is_empty(), "unexpected: {:?}", self.emitted);
    }

    #[track_caller]
    pub fn expect_event(&mut self, event: Event) {
        assert_eq!(self.events.pop_front(), Some(event));
    }

    #[track_caller]
    pub fn expect_no_event(&mut self) {
        assert_eq!(self.events.pop_front(), None);
    }
}

/// `send!(scene at 5 ms, segment)`: the peer's segment arrives.
macro_rules! send {
    ($scene:ident at $ms:literal ms, $($segment:expr),+ $(,)?) => {
        $($scene.arrive($ms, $segment);)+
    };
}

/// `expect!(scene at 5 ms, segment)`: exactly these leave next, at that moment.
macro_rules! expect {
    ($scene:ident at $ms:literal ms, $($segment:expr),+ $(,)?) => {
        $($scene.expect($ms, $segment);)+
    };
}

/// `expect_nothing!(scene until 5 ms)`: nothing leaves up to and at that moment.
macro_rules! expect_nothing {
    ($scene:ident until $ms:literal ms) => {
        $scene.expect_nothing($ms);
    };
}

pub fn plain() -> Config {
    Config { quick_acks: 0, ..Config::default() }
}

pub fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
