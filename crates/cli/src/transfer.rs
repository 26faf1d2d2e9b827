//! The only file that talks to the library: one connection over AF_XDP, whichever thread drives it.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xsend::{
    Builder, CloseError, ConnectOptions, Direction, Drive, Info, Inline, Launched, Mode, Sender, ShardStats,
    Stream, Tap, Writable,
};
use xsend_host::{PathWatch, Query};

use crate::args::{ModeArg, PathArgs};
use crate::figures::{Figures, ShardFigures};
use crate::pcapng::{Capture, Way};
use crate::problem::Problem;
use crate::report::Settings;
use crate::signals::Interrupts;
use crate::units::Queues;

/// A connection that failed; the text says why and what to do.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl Broken {
    /// For whatever the library says.
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of an attempt to move bytes from a source into frames.
#[derive(Debug)]
pub(crate) enum Moved {
    /// This many bytes are in frames, on their way.
    Bytes(usize),
    /// The source has ended; this many bytes were still moved.
    End(usize),
    /// No frame was free in time: the peer or the path is slow.
    NoRoom,
    /// The source failed.
    Unreadable(io::Error),
}

/// One connection. Every call drives the shard if no thread of its own does, and none waits past its deadline.
pub(crate) trait Carrier {
    /// Reads at most `most` bytes once there is room for what was read before, and writes what fits.
    fn send_from(&mut self, source: &mut dyn Read, most: usize, deadline: Instant) -> Result<Moved, Broken>;
    /// Keeps the connection going while there is nothing to send: until `source` can be read, or the deadline.
    fn attend(&mut self, source: BorrowedFd<'_>, deadline: Instant) -> Result<(), Broken>;
    /// Holds partial segments back.
    fn cork(&mut self);
    /// No longer.
    fn uncork(&mut self);
    /// FIN after everything queued; true once all of it, FIN included, is acknowledged.
    fn close(&mut self, deadline: Instant) -> Result<bool, Broken>;
    /// RST now.
    fn abort(&mut self);
    /// What was counted so far.
    fn figures(&mut self) -> Figures;
    /// The library's effective settings.
    fn settings(&self) -> Settings;
    /// Our address and the peer's.
    fn endpoints(&self) -> (SocketAddr, SocketAddr);
    /// Gives the queues back, and leaves the interface as it was found.
    fn leave(self: Box<Self>, deadline: Instant);
}

/// Everything needed to connect.
pub(crate) struct Plan<'a> {
    /// Interface to send through.
    pub(crate) interface: &'a str,
    /// What was asked for.
    pub(crate) path: &'a PathArgs,
    /// The peer.
    pub(crate) peer: SocketAddr,
    /// How long the handshake may take.
    pub(crate) timeout: Duration,
    /// Where frames are noted.
    pub(crate) capture: Option<Capture>,
}

/// The interface of the route to `peer`, whose next hop must answer within `timeout`.
pub(crate) fn interface_towards(
    peer: &SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<String, Problem> {
    let zone = match peer {
        SocketAddr::V6(peer) if peer.scope_id() != 0 => Some(peer.scope_id().to_string()),
        _ => None,
    };
    let query = Query { interface: zone.as_deref(), source, timeout, ..Query::to(peer.ip()) };
    let path = xsend_host::resolve(&query).map_err(|error| Problem::failed(error.to_string()))?;
    // A watch removes the neighbour entry that the question made, once it is dropped: the library asks for itself.
    drop(PathWatch::new(&path));
    Ok(path.link.name)
}

/// Opens the interface's queues and connects.
pub(crate) fn connect(plan: &Plan<'_>, interrupts: &Interrupts) -> Result<Box<dyn Carrier>, Problem> {
    let cancelled = || interrupts.requested();
    let failed = |error: &dyn fmt::Display| Problem::failed(error.to_string());
    let peer = plan.peer;
    let options = ConnectOptions {
        timeout: plan.timeout,
        source: plan.path.source,
        nodelay: plan.path.nodelay,
        ..ConnectOptions::default()
    };
    if plan.path.threaded {
        let sender = builder(plan).launch().map_err(|error| failed(&error))?;
        let stream = sender.connect_unless(peer, &options, cancelled).map_err(|error| failed(&error))?;
        Ok(Box::new(Session::<Launched>::new(
            sender,
            stream,
            Ways { idle: wait_for, end: Sender::<Launched>::close },
        )))
    } else {
        let sender = builder(plan).inline().map_err(|error| failed(&error))?;
        let stream = sender.connect_unless(peer, &options, cancelled).map_err(|error| failed(&error))?;
        Ok(Box::new(Session::<Inline>::new(
            sender,
            stream,
            Ways { idle: turn_for, end: Sender::<Inline>::close },
        )))
    }
}

/// Opens and closes the queues, for their settings or the reason that it cannot be had.
pub(crate) fn try_queues(
    interface: &str,
    queues: Option<&Queues>,
    mode: ModeArg,
    generic: bool,
) -> Result<Settings, String> {
    let mut builder = Sender::builder(interface).mode(library_mode(mode)).generic(generic);
    if let Some(queues) = queues {
        builder = builder.queues(queues.0.iter().copied());
    }
    let sender = builder.inline().map_err(|error| error.to_string())?;
    let settings = settings_of(sender.settings());
    sender.close(Instant::now());
    Ok(settings)
}

fn builder(plan: &Plan<'_>) -> Builder {
    let path = plan.path;
    // A buffer that large is refused by name; one cut to size would not be what was asked for.
    let bytes = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
    let mut builder = Sender::builder(plan.interface)
        .mode(library_mode(path.mode))
        .generic(path.generic)
        .huge_pages(path.huge_pages);
    if let Some(queues) = &path.queues {
        builder = builder.queues(queues.0.iter().copied());
    }
    if let Some(core) = path.cores {
        builder = builder.core(core);
    }
    if let Some(mss) = path.mss {
        builder = builder.mss(mss);
    }
    if let Some(size) = path.sndbuf {
        builder = builder.sndbuf(bytes(size));
    }
    if let Some(size) = path.notsent_lowat {
        builder = builder.notsent_lowat(bytes(size));
    }
    if let Some(bits) = path.max_rate {
        builder = builder.max_rate(bits);
    }
    if let Some(micros) = path.busy_poll {
        builder = builder.busy_poll_us(micros);
    }
    if let Some(timeout) = path.user_timeout {
        builder = builder.user_timeout(timeout);
    }
    if let Some(capture) = plan.capture.clone() {
        builder = builder.tap(Box::new(Tapped { capture, epoch_ns: None }));
    }
    builder
}

fn library_mode(mode: ModeArg) -> Mode {
    match mode {
        ModeArg::Auto => Mode::Auto,
        ModeArg::ZeroCopy => Mode::ZeroCopy,
        ModeArg::Copy => Mode::Copy,
    }
}

fn settings_of(pairs: &[(&'static str, String)]) -> Settings {
    let mut settings = Settings::default();
    for (key, value) in pairs {
        settings.set(*key, value);
    }
    settings
}

/// Frames on their way into the capture.
struct Tapped {
    capture: Capture,
    /// The shard's clock starts with it; this is when that was, since 1970.
    epoch_ns: Option<u64>,
}

impl Tap for Tapped {
    fn frame(&mut self, direction: Direction, time_ns: u64, bytes: &[u8]) {
        let way = match direction {
            Direction::Sent => Way::Outbound,
            Direction::Received => Way::Inbound,
        };
        let epoch_ns = *self.epoch_ns.get_or_insert_with(|| unix_ns().saturating_sub(time_ns));
        self.capture.frame(way, epoch_ns.saturating_add(time_ns), bytes);
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What differs between the two ways to drive a shard.
struct Ways<D: Drive> {
    /// Lets time pass until the descriptor can be read, or the deadline.
    idle: fn(&Sender<D>, BorrowedFd<'_>, Instant),
    /// Ends the sender.
    end: fn(Sender<D>, Instant),
}

/// A shard with a thread of its own needs nothing from us meanwhile.
fn wait_for(_: &Sender<Launched>, source: BorrowedFd<'_>, deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    let timeout = PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX));
    // Whether it is readable, and whether poll failed, is found out by whoever asks next.
    let _ = poll(&mut [PollFd::new(source, PollFlags::POLLIN)], timeout);
}

/// Without one, the shard is turned; it sleeps on its own socket, so that the source is looked at now and then.
fn turn_for(sender: &Sender<Inline>, source: BorrowedFd<'_>, deadline: Instant) {
    let mut step = FIRST_LOOK;
    loop {
        let now = Instant::now();
        let readable = poll(&mut [PollFd::new(source, PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0);
        if readable || now >= deadline {
            return;
        }
        sender.drive(deadline.min(now + step));
        step = (step * 2).min(LAST_LOOK);
    }
}

/// A source that was just busy is looked at again soon, one that idles more and more seldom.
const FIRST_LOOK: Duration = Duration::from_micros(250);
const LAST_LOOK: Duration = Duration::from_millis(8);

/// How long the peer's FIN is waited for after ours was acknowledged, so that it does not meet a port that is closed already.
const LINGER: Duration = Duration::from_secs(1);

/// About how much is read at once: small enough to stay in the cache until it is written.
const PIECE_BYTES: usize = 128 * 1024;

/// Bytes from the peer are thrown away in pieces of this size.
const DISCARD_BYTES: usize = 16 * 1024;

struct Session<D: Drive> {
    sender: Sender<D>,
    stream: Stream<D>,
    ways: Ways<D>,
    /// What is read goes through here. It costs less than reading straight into frames: one long copy by the kernel, and a second
    /// one out of the cache that sums the bytes as well, instead of 90 short ones and a pass to sum.
    piece: Box<[u8]>,
    /// The bytes of `piece` that were read and not yet written.
    carry: Range<usize>,
    discard: Box<[u8]>,
    received_bytes: u64,
    /// The last answers: a connection that is over gives none.
    info: Option<Info>,
    shard: Option<ShardStats>,
    closed: bool,
}

impl<D: Drive> Session<D> {
    fn new(sender: Sender<D>, stream: Stream<D>, ways: Ways<D>) -> Self {
        // Whole segments, so that a file leaves no tails in between.
        let segments = (PIECE_BYTES / stream.segment_bytes()).max(1);
        let piece = vec![0; segments * stream.segment_bytes()].into();
        let (carry, discard) = (0..0, vec![0; DISCARD_BYTES].into());
        let (info, shard) = (stream.info(), sender.stats());
        Self { sender, stream, ways, piece, carry, discard, received_bytes: 0, info, shard, closed: false }
    }

    /// A peer that talks must not wait for ever to be heard: it might stop reading. At most one piece, at most until
    /// the deadline; true when the peer has no more to say.
    fn discard(&mut self, deadline: Instant) -> bool {
        match self.stream.read_until(&mut self.discard, Some(deadline)) {
            Ok(Some(0)) => true,
            Ok(Some(count)) => {
                self.received_bytes += count as u64;
                false
            }
            Ok(None) => false,
            // Writing and closing say so better.
            Err(_) => true,
        }
    }

    /// Writes what was read, waiting for room at most until the deadline; false when it did not suffice.
    fn write_carry(&mut self, deadline: Instant) -> Result<bool, Broken> {
        while !self.carry.is_empty() {
            let count = self.stream.try_write(&self.piece[self.carry.clone()]).map_err(Broken::new)?;
            self.carry.start += count;
            if count == 0
                && self.stream.wait_writable(Some(deadline)).map_err(Broken::new)? == Writable::TimedOut
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A source that remembers why it stopped, since the library reports its errors and the peer's alike.
struct Observed<'a> {
    source: &'a mut dyn Read,
    error: Option<io::Error>,
    ended: bool,
}

impl Observed<'_> {
    fn note(&mut self, asked: usize, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(0) if asked > 0 => {
                self.ended = true;
                Ok(0)
            }
            Ok(count) => Ok(count),
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }
}

impl Read for Observed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.source.read(buffer);
        self.note(buffer.len(), result)
    }
}

impl<D: Drive> Carrier for Session<D> {
    fn send_from(&mut self, source: &mut dyn Read, most: usize, deadline: Instant) -> Result<Moved, Broken> {
        self.discard(Instant::now());
        if !self.write_carry(deadline)? {
            return Ok(Moved::NoRoom);
        }
        let mut observed = Observed { source, error: None, ended: false };
        let most = most.min(self.piece.len());
        let result = observed.read(&mut self.piece[..most]);
        self.carry = 0..*result.as_ref().unwrap_or(&0);
        let Observed { error, ended, .. } = observed;
        self.write_carry(Instant::now())?;
        match (result, error) {
            (Ok(count), _) if ended => Ok(Moved::End(count)),
            (Ok(count), _) => Ok(Moved::Bytes(count)),
            // A pipe that somebody set non-blocking, or a signal: look again later.
            (Err(_), Some(error))
                if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
            {
                Ok(Moved::Bytes(0))
            }
            (Err(_), Some(error)) => Ok(Moved::Unreadable(error)),
            (Err(error), None) => Err(Broken::new(error)),
        }
    }

    fn attend(&mut self, source: BorrowedFd<'_>, deadline: Instant) -> Result<(), Broken> {
        self.discard(Instant::now());
        (self.ways.idle)(&self.sender, source, deadline);
        // Says whether the connection still stands; nothing is waited for.
        self.stream.wait_writable(Some(Instant::now())).map(|_| ()).map_err(Broken::new)
    }

    fn cork(&mut self) {
        self.stream.cork();
    }

    fn uncork(&mut self) {
        self.stream.uncork();
    }

    fn close(&mut self, deadline: Instant) -> Result<bool, Broken> {
        self.discard(Instant::now());
        if !self.write_carry(deadline)? {
            return Ok(false);
        }
        match self.stream.close(Some(deadline)) {
            Ok(()) => {
                self.closed = true;
                Ok(true)
            }
            Err(CloseError::TimedOut { .. }) => Ok(false),
            Err(CloseError::Failed { error, .. }) => Err(Broken::new(error)),
        }
    }

    fn abort(&mut self) {
        // Fails when there is no shard any more, and hence no connection.
        let _ = self.stream.abort();
    }

    fn figures(&mut self) -> Figures {
        self.info = self.stream.info().or_else(|| self.info.take());
        self.shard = self.sender.stats().or(self.shard);
        let stream = self.stream.stats();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut figures = Figures {
            sent_bytes: stream.sent,
            acked_bytes: stream.acknowledged,
            received_bytes: self.received_bytes,
            ..Figures::default()
        };
        if let Some(info) = &self.info {
            figures.retransmits = info.retransmitted_segments;
            figures.spurious_retransmits = Some(info.duplicates_reported);
            figures.smss = info.smss;
            figures.cwnd_bytes = u64::from(info.cwnd) * u64::from(info.smss);
            figures.peer_window_bytes = info.snd_wnd;
            figures.srtt_us = info.srtt.map(micros);
            figures.rttvar_us = info.srtt.map(|_| micros(info.rttvar));
            figures.rtt_min_us = info.min_rtt.map(micros);
        }
        if let Some(shard) = &self.shard {
            figures.shard = shard_figures(shard);
        }
        figures.shard.corked_writes = stream.corked_writes;
        figures.shard.mode = self.settings().get("mode").unwrap_or_default().to_owned();
        figures
    }

    fn settings(&self) -> Settings {
        settings_of(self.sender.settings())
    }

    fn endpoints(&self) -> (SocketAddr, SocketAddr) {
        (self.stream.local_addr(), self.stream.peer_addr())
    }

    fn leave(mut self: Box<Self>, deadline: Instant) {
        if self.closed {
            let until = deadline.min(Instant::now() + LINGER);
            while Instant::now() < until && !self.discard(until) {}
        }
        let Self { sender, stream, ways, .. } = *self;
        drop(stream);
        (ways.end)(sender, deadline);
    }
}

fn shard_figures(stats: &ShardStats) -> ShardFigures {
    ShardFigures {
        frames: stats.frames,
        kicks: stats.kicks,
        completions: stats.completions,
        ring_full: stats.ring_full,
        tsq_throttled: stats.tsq_throttled,
        lost_cork_wakeups: stats.lost_cork_wakeups,
        path_mtu: (stats.path_mtu_refusals, stats.path_mtu_reported),
        tx_invalid_descs: stats.tx_invalid_descs,
        wakeups: stats.wakeups,
        rx_frames: stats.rx_frames,
        rx_partial_checksums: stats.rx_partial_checksums,
        rx_malformed: stats.rx_malformed,
        quarantined: stats.quarantined,
        local_drops: stats.local_drops,
        ..ShardFigures::default()
    }
}
