//! A shard over memory, a virtual clock, and a peer that receives in order and acknowledges.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::SocketAddr;
use std::time::Duration;

use xsend_shard::memory::{MemoryDevice, Wire};
use xsend_shard::{
    Command, Config, Connect, ConnectFailure, Ends, Handle, Opened, Parts, Progress, Shard, StreamEnd,
};
use xsend_signal::answer::{self, Pending};
use xsend_signal::doorbell::Wake;
use xsend_signal::tail::{Marks, Word};
use xsend_tcp::Instant;
use xsend_wire::checksum::{Sum, copy_and_sum};
use xsend_wire::ethernet::Tags;
use xsend_wire::tcp::{Flags, Header, Options};
use xsend_wire::{ChecksumPolicy, IpPair, Mac, Packet, Template, TemplateSpec};
use xsend_xsk::{Frame, Umem};

pub const OURS: &str = "10.0.0.1:40000";
pub const THEIRS: &str = "10.0.0.2:9000";

pub fn headers(source: &str, destination: &str) -> TemplateSpec {
    let [source, destination] = [source, destination].map(|text| text.parse::<SocketAddr>().unwrap());
    TemplateSpec {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        tags: Tags::NONE,
        ip: IpPair::new(source.ip(), destination.ip()).unwrap(),
        source_port: source.port(),
        destination_port: destination.port(),
        timestamps: false,
        traffic_class: 0,
        flow_label: 0,
    }
}

/// What the peer's answers look like, to be changed while a test runs.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Acknowledge every so many segments (a FIN at once).
    pub every: u32,
    /// The window offered, in bytes, unscaled.
    pub window: u16,
    /// Do not answer at all.
    pub silent: bool,
    /// Close when the other side has closed.
    pub closes: bool,
    /// Forget this many of the next data segments.
    pub lose: u32,
}

impl Default for Manners {
    fn default() -> Self {
        Self { every: 1, window: 65_535, silent: false, closes: true, lose: 0 }
    }
}

/// A receiver of one flow: in order only, no SACK, no timestamps, no allocation once `received` has its capacity.
pub struct Peer {
    template: Template,
    pub manners: Manners,
    pub received: Vec<u8>,
    pub segments: u64,
    pub resets: u64,
    pub bad: u64,
    rcv_nxt: u32,
    snd_nxt: u32,
    unacked: u32,
    keep: bool,
    next: u8,
}

impl Peer {
    pub fn new(keep: bool) -> Self {
        Self {
            template: Template::new(&headers(THEIRS, OURS)),
            manners: Manners::default(),
            received: Vec::new(),
            segments: 0,
            resets: 0,
            bad: 0,
            rcv_nxt: 0,
            snd_nxt: 1000,
            unacked: 0,
            keep,
            next: 0,
        }
    }

    pub fn header(&self, flags: Flags) -> Header {
        Header {
            source: 9000,
            destination: 40000,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags,
            window: self.manners.window,
            urgent: 0,
            options: Options::default(),
        }
    }

    /// A segment from this peer.
    pub fn segment(&self, flags: Flags, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 2048];
        let len = self.template.control(&mut out, &self.header(flags), payload);
        out.truncate(len);
        out
    }

    /// The peer sends bytes of its own.
    pub fn say(&mut self, payload: &[u8]) -> Vec<u8> {
        let segment = self.segment(Flags::ACK | Flags::PSH, payload);
        self.snd_nxt = self.snd_nxt.wrapping_add(payload.len() as u32);
        segment
    }

    fn answer(&mut self, flags: Flags, options: Options, reply: &mut dyn FnMut(&[u8])) {
        let mut out = [0; 128];
        let header = Header { options, ..self.header(flags) };
        let len = self.template.control(&mut out, &header, &[]);
        reply(&out[..len]);
        self.unacked = 0;
        if flags.intersects(Flags::SYN | Flags::FIN) {
            self.snd_nxt = self.snd_nxt.wrapping_add(1);
        }
    }
}

impl Wire for Peer {
    fn carry(&mut self, frame: &[u8], reply: &mut dyn FnMut(&[u8])) {
        let Ok(Packet::Tcp { header, payload, .. }) = xsend_wire::parse(frame, ChecksumPolicy::Verify) else {
            self.bad += 1;
            return;
        };
        self.segments += 1;
        if header.flags.contains(Flags::RST) {
            self.resets += 1;
            return;
        }
        if self.manners.silent {
            return;
        }
        if header.flags.contains(Flags::SYN) {
            self.rcv_nxt = header.seq.wrapping_add(1);
            let options = Options { mss: Some(1460), ..Options::default() };
            self.answer(Flags::SYN | Flags::ACK, options, reply);
            return;
        }
        if !payload.is_empty() {
            if self.manners.lose > 0 {
                self.manners.lose -= 1;
                return;
            }
            if header.seq != self.rcv_nxt {
                self.answer(Flags::ACK, Options::default(), reply);
                return;
            }
            self.rcv_nxt = self.rcv_nxt.wrapping_add(payload.len() as u32);
            if self.keep {
                self.received.extend_from_slice(payload);
            }
            self.unacked += 1;
        }
        if header.flags.contains(Flags::FIN) && header.seq.wrapping_add(payload.len() as u32) == self.rcv_nxt
        {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            let fin = if self.manners.closes { Flags::FIN | Flags::ACK } else { Flags::ACK };
            self.answer(fin, Options::default(), reply);
        } else if self.unacked >= self.manners.every {
            self.answer(Flags::ACK, Options::default(), reply);
        }
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// A shard, and the test as its only application.
pub struct World {
    pub shard: Shard<MemoryDevice<Peer>>,
    pub handle: Handle,
    pub now: Instant,
    pub umem: Umem,
}

impl World {
    pub fn new(config: Config, frames: u32, keep: bool) -> Self {
        let (umem, tokens) = Umem::in_memory(frames, 2048);
        let device = MemoryDevice::new(&umem, 1024, 256, Peer::new(keep));
        let (shard, handle) = Shard::new(Parts {
            device,
            umem: umem.clone(),
            frames: tokens,
            config,
            secret: [7; 16],
            wake: Box::new(Nobody),
            tap: None,
        });
        Self { shard, handle, now: Instant::from_nanos(1_000_000_000), umem }
    }

    pub fn peer(&mut self) -> &mut Peer {
        &mut self.shard.device_mut().wire
    }

    pub fn turn(&mut self) {
        self.now = self.now + Duration::from_micros(20);
        self.shard.turn(self.now);
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + Duration::from_micros(20);
            if self.shard.turn(self.now) == Progress::Idle {
                let next = self.shard.next_deadline().unwrap_or(end).min(end);
                self.now = self.now.max(next);
            }
        }
        self.turn();
    }

    pub fn request(&mut self, lease: Box<dyn Send>) -> Pending<Result<Opened, ConnectFailure>> {
        let (answer, pending) = answer::slot();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let connect = Connect {
            ends: Ends { local: address(OURS), remote: address(THEIRS) },
            headers: headers(OURS, THEIRS),
            config: xsend_tcp::Config { time_wait: Duration::from_secs(1), ..Default::default() },
            lease,
            answer,
        };
        assert!(self.handle.caller.call(Command::Connect(Box::new(connect))).is_ok());
        pending
    }

    pub fn connect(&mut self) -> Opened {
        let mut pending = self.request(Box::new(()));
        for _ in 0..10 {
            self.turn();
        }
        pending.try_take().expect("an answer").expect("a stream").expect("a connection")
    }

    pub fn balanced(&self) -> bool {
        self.shard.books_balance()
    }
}

/// A frame that the stream was lent, if there is one.
pub fn claim(stream: &mut StreamEnd) -> Option<Frame> {
    let mut claimed = None;
    stream.lent.claim(1, |frame| claimed = Some(frame));
    claimed
}

/// Fills one frame with `bytes`, sealed; says whether there was one.
pub fn write_full(stream: &mut StreamEnd, bytes: &[u8]) -> bool {
    let Some(mut frame) = claim(stream) else { return false };
    let room = &mut stream.umem.payload_mut(&mut frame, stream.header_len)[..bytes.len()];
    let sum = copy_and_sum(room, bytes);
    let word = Word { len: bytes.len() as u16, marks: Marks::SEALED, sum: sum.to_raw() };
    stream.words.fill(frame.index(), word);
    assert!(stream.filled.push(frame).is_ok());
    true
}

/// Opens a tail with `bytes`, marked `MORE` or `PUSH`.
pub fn write_tail(stream: &mut StreamEnd, bytes: &[u8], marks: Marks) {
    let frame = claim(stream).expect("a frame");
    let frame = stream.tail.open(frame, stream.header_len, stream.smss);
    stream.words.open(frame.index());
    let sum = stream.tail.write_at(0, bytes, copy_and_sum);
    assert!(stream.words.append(Word { len: bytes.len() as u16, marks, sum: sum.to_raw() }).is_ok());
    assert!(stream.filled.push(frame).is_ok());
}

/// Appends to a tail; `false` when the shard has sealed it.
pub fn append(stream: &mut StreamEnd, bytes: &[u8]) -> bool {
    let Some(word) = stream.words.published() else { return false };
    let sum = stream.tail.write_at(u32::from(word.len), bytes, copy_and_sum);
    let sum = Sum::from_raw(word.sum).add_at(usize::from(word.len), sum).to_raw();
    stream.words.append(Word { len: word.len + bytes.len() as u16, sum, ..word }).is_ok()
}
