//! A run from its description to its report.

use core::time::Duration;

use xsend_tcp::{Config, Instant, Seed};
use xsend_wire::icmp::ErrorKind;
use xsend_wire::{IpPair, ethernet, icmp};

use crate::audit::{Audit, Rules};
use crate::codec::{Codec, ENGINE, PEER};
use crate::endpoint::{AppConfig, Endpoint, EndpointParts, Open, Output};
use crate::intruder::Intruder;
use crate::link::{Link, Pipe};
use crate::pattern::Pattern;
use crate::peer::{Peer, PeerConfig, PeerSegment};
use crate::queue::EventQueue;
use crate::report::{Ending, Failure, Report};
use crate::ring::{Ring, RingConfig};
use crate::rng::Rng;
use crate::trace::{Seen, Trace};

/// Happenings in one instant above which a run is stopped.
const MAX_STEPS_AN_INSTANT: u32 = 200_000;
/// Happenings in all above which a run is stopped: far more than any scenario needs.
const MAX_STEPS: u64 = 20_000_000;
/// What a router quotes of a packet: the IP header and eight bytes (RFC 792).
const QUOTED: usize = 28;
/// The addresses of an ICMP error, whoever reports it.
const REPORT: IpPair = IpPair::V4 { source: *PEER.ip(), destination: *ENGINE.ip() };
/// Lines of a failed run's trace that are shown.
const SHOWN_LINES: usize = 120;

/// Frames above a size are dropped from some time on.
#[derive(Clone, Copy, Debug)]
pub struct Narrows {
    /// From this time since the start.
    pub at: Duration,
    /// The largest IP packet that still passes, in bytes.
    pub mtu: u16,
    /// Who says so.
    pub told: Told,
}

/// How the engine gets to know that a packet is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A router says so of each packet that it drops, with its MTU (RFC 1191).
    ByRouter,
    /// A router says so, but not its MTU, as before RFC 1191.
    ByOldRouter,
    /// It is the engine's own device: it is known at once.
    ByDevice,
}

/// A run: everything that happens in it follows from these fields.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The source of all chance.
    pub seed: u64,
    /// The link.
    pub link: Link,
    /// When the path becomes narrower.
    pub narrows: Option<Narrows>,
    /// Who opens the connection.
    pub open: Open,
    /// The engine's configuration.
    pub tcp: Config,
    /// The engine's initial sequence number; drawn from the seed if `None`.
    pub iss: Option<u32>,
    /// Where the engine's timestamp clock starts; drawn from the seed if `None`.
    pub timestamp_offset: Option<u32>,
    /// The application above the engine.
    pub app: AppConfig,
    /// The TX ring.
    pub ring: RingConfig,
    /// The peer.
    pub peer: PeerConfig,
    /// How often an intruder, who knows the connection's numbers, sends the engine a segment that it
    /// must not fall for; `None` for never.
    pub intrusions: Option<Duration>,
    /// The virtual time after which the run counts as failed.
    pub time_limit: Duration,
}

impl Default for Scenario {
    /// 100 kB over a clean link to a friendly peer, within an hour.
    fn default() -> Self {
        Self {
            seed: 0,
            link: Link::default(),
            narrows: None,
            open: Open::default(),
            tcp: Config::default(),
            iss: None,
            timestamp_offset: None,
            app: AppConfig::default(),
            ring: RingConfig::default(),
            peer: PeerConfig::default(),
            intrusions: None,
            time_limit: Duration::from_secs(3600),
        }
    }
}

impl Scenario {
    /// Runs it.
    pub fn run(&self) -> Report {
        World::new(self, 0).run()
    }

    /// Runs it and keeps the last `lines` lines of its trace in words.
    pub fn run_traced(&self, lines: usize) -> Report {
        World::new(self, lines).run()
    }

    /// Runs it; everything must arrive, both ways, and both ends must close cleanly.
    ///
    /// # Errors
    ///
    /// What was wrong, with the trace of a second, identical run.
    pub fn deliver(&self) -> Result<Report, Box<Failure>> {
        self.check(|report| report.faults_of_delivery(self.app.bytes, self.peer.bytes))
    }

    /// Runs it; whatever the outcome, no rule may be broken and nothing may be lost.
    ///
    /// # Errors
    ///
    /// What was wrong, with the trace of a second, identical run.
    pub fn lawful(&self) -> Result<Report, Box<Failure>> {
        self.check(Report::faults)
    }

    fn check(&self, faults: impl Fn(&Report) -> Vec<String>) -> Result<Report, Box<Failure>> {
        let report = self.run();
        let faults = faults(&report);
        if faults.is_empty() {
            return Ok(report);
        }
        let report = self.run_traced(SHOWN_LINES);
        Err(Box::new(Failure { faults, scenario: format!("{self:?}"), report }))
    }
}

#[derive(Debug)]
enum Happening {
    ToPeer(Vec<u8>),
    ToEngine(Vec<u8>),
    Completed {
        number: Option<u64>,
        len: u64,
    },
    GivenUp {
        len: u64,
    },
    Intrusion,
    /// An ICMP message.
    Icmp(Vec<u8>),
    DeviceMtu(u16),
    PeerConnects,
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    queue: EventQueue<Happening>,
    engine: Endpoint,
    peer: Peer,
    peer_codec: Codec,
    forward: Pipe,
    back: Pipe,
    intruder: Intruder,
    trace: Trace,
    segments: u64,
    too_long: u64,
    delivered_at: Option<Instant>,
    outputs: Vec<Output>,
    replies: Vec<PeerSegment>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, lines: usize) -> Self {
        let start = Instant::ZERO;
        let mut rng = Rng::new(scenario.seed);
        let iss = scenario.iss.unwrap_or(rng.next_u64() as u32);
        let timestamp_offset = scenario.timestamp_offset.unwrap_or(rng.next_u64() as u32);
        let outgoing = Pattern::new(rng.next_u64());
        let incoming = Pattern::new(rng.next_u64());
        let audit = Audit::new(Rules {
            iss,
            pattern: outgoing,
            mss: u32::from(scenario.tcp.mss),
            timestamps: scenario.tcp.timestamps,
            min_rto: scenario.tcp.min_rto,
            initial_window_segments: scenario.tcp.initial_cwnd_segments,
            recv_window_bytes: scenario.tcp.recv_window_bytes,
            ack_promptness: scenario.ring.hold == 0.0 && scenario.ring.stuck == 0.0,
        });
        let parts = EndpointParts {
            config: scenario.tcp.clone(),
            seed: Seed { iss, timestamp_offset },
            open: scenario.open,
            app: scenario.app.clone(),
            ring: Ring::new(scenario.ring.clone(), rng.fork(1)),
            audit,
            rng: rng.fork(2),
            outgoing,
            incoming,
        };
        let mut trace = Trace::new(lines);
        trace.set_bases(iss, scenario.peer.iss);
        Self {
            scenario,
            now: start,
            queue: EventQueue::new(),
            engine: Endpoint::new(parts, start),
            peer: Peer::new(scenario.peer.clone(), outgoing, incoming, rng.fork(3)),
            peer_codec: Codec::peer(),
            forward: Pipe::new(scenario.link.forward.clone(), rng.fork(4)),
            back: Pipe::new(scenario.link.back.clone(), rng.fork(5)),
            intruder: Intruder::new(rng.fork(6)),
            trace,
            segments: 0,
            too_long: 0,
            delivered_at: None,
            outputs: Vec::new(),
            replies: Vec::new(),
        }
    }

    fn run(mut self) -> Report {
        let limit = Instant::ZERO + self.scenario.time_limit;
        let (mut steps, mut steps_in_all) = (0, 0);
        if let Some(every) = self.scenario.intrusions {
            self.queue.push(self.now + every, Happening::Intrusion);
        }
        if let Some(Narrows { at, mtu, told: Told::ByDevice }) = self.scenario.narrows {
            self.queue.push(self.now + at, Happening::DeviceMtu(mtu));
        }
        match self.scenario.open {
            Open::Engine => {}
            Open::Peer | Open::PeerToCookie => self.peer.connect(self.now, &mut self.replies),
            Open::Both(later) => self.queue.push(self.now + later, Happening::PeerConnects),
        }
        self.engine.pump(self.now, &mut self.trace, &mut self.outputs);
        let ending = loop {
            self.flush();
            if self.engine.connection.is_finished() && self.peer.is_done() {
                break Ending::Done;
            }
            let engine_at = self.engine.next_at();
            let peer_at = self.peer.next_tick();
            let Some(at) = [self.queue.next_at(), engine_at, peer_at].into_iter().flatten().min() else {
                // A peer that never heard of the connection, or of its end, has nothing to do.
                break if self.engine.connection.is_finished() { Ending::Done } else { Ending::Deadlock };
            };
            if at > limit {
                break Ending::OutOfTime;
            }
            steps = if at > self.now { 0 } else { steps + 1 };
            steps_in_all += 1;
            if steps > MAX_STEPS_AN_INSTANT || steps_in_all > MAX_STEPS {
                break Ending::Livelock;
            }
            self.now = self.now.max(at);
            self.step(engine_at);
        };
        self.report(ending)
    }

    /// One happening: what arrives goes before what is merely due.
    fn step(&mut self, engine_at: Option<Instant>) {
        let now = self.now;
        let Self { engine, trace, outputs, .. } = self;
        match self.queue.pop_due(now) {
            Some(Happening::ToEngine(frame)) => {
                trace.frame(now, Seen::EngineGot, &frame);
                engine.arrive(now, &frame, trace, outputs);
            }
            Some(Happening::Completed { number, len }) => engine.completed(now, number, len, trace, outputs),
            Some(Happening::GivenUp { len }) => engine.gave_up(now, len, trace, outputs),
            Some(Happening::Intrusion) => {
                engine.forged(now, &mut self.intruder, trace, outputs);
                if let Some(every) = self.scenario.intrusions {
                    self.queue.push(now + every.max(Duration::from_micros(1)), Happening::Intrusion);
                }
            }
            Some(Happening::Icmp(message)) => {
                if let Ok(Some(error)) = icmp::parse(&message, REPORT) {
                    engine.icmp(now, error.kind, error.quoted.seq, trace, outputs);
                }
            }
            Some(Happening::DeviceMtu(mtu)) => engine.device_mtu(now, mtu, trace, outputs),
            Some(Happening::PeerConnects) => self.peer.connect(now, &mut self.replies),
            Some(Happening::ToPeer(frame)) => {
                trace.frame(now, Seen::PeerGot, &frame);
                match self.peer_codec.decode(&frame) {
                    Some((header, payload)) => {
                        trace.segment(now, Seen::PeerGot, &header, payload.len());
                        self.peer.arrive(now, &header, payload, &mut self.replies);
                    }
                    None => trace.note(now, || "peer: refused a damaged frame".to_owned()),
                }
            }
            None if engine_at.is_some_and(|at| at <= now) => engine.tick(now, trace, outputs),
            None => self.peer.tick(now, &mut self.replies),
        }
        if self.delivered_at.is_none() && self.peer.facts().read >= self.scenario.app.bytes {
            self.delivered_at = Some(now);
        }
    }

    /// Puts what both ends have sent on the link.
    fn flush(&mut self) {
        let now = self.now;
        let since_start = now.saturating_since(Instant::ZERO);
        let narrows = self.scenario.narrows.filter(|narrows| narrows.at <= since_start);
        let delay = self.scenario.link.back.delay;
        let Self { queue, forward, back, trace, .. } = self;
        for output in self.outputs.drain(..) {
            match output {
                Output::Completion { at, number, len } => {
                    queue.push(at, Happening::Completed { number, len })
                }
                Output::GiveUp { at, len } => queue.push(at, Happening::GivenUp { len }),
                Output::Frame(frame) => {
                    self.segments += 1;
                    trace.frame(now, Seen::EngineSent, &frame);
                    let packet = &frame[ethernet::HEADER_LEN..];
                    if let Some(Narrows { mtu, told, .. }) =
                        narrows.filter(|narrows| packet.len() > usize::from(narrows.mtu))
                    {
                        self.too_long += 1;
                        let mtu = if told == Told::ByRouter { mtu } else { 0 };
                        if told != Told::ByDevice {
                            let mut message = vec![0; icmp::HEADER_LEN + QUOTED];
                            let kind = ErrorKind::PacketTooBig { mtu: mtu.into() };
                            icmp::build(&mut message, REPORT, kind, &packet[..QUOTED]);
                            queue.push(now + delay, Happening::Icmp(message));
                        }
                        continue;
                    }
                    forward.enter(now, frame, |at, frame| queue.push(at, Happening::ToPeer(frame)));
                }
            }
        }
        for PeerSegment { header, payload } in self.replies.drain(..) {
            trace.segment(now, Seen::PeerSent, &header, payload.len());
            let frame = self.peer_codec.control(&header, &payload);
            trace.frame(now, Seen::PeerSent, &frame);
            back.enter(now, frame, |at, frame| queue.push(at, Happening::ToEngine(frame)));
        }
    }

    fn report(self, ending: Ending) -> Report {
        let Self { mut engine, peer, .. } = self;
        let info = engine.connection.info();
        // No measurement can be below what the link takes; a timestamp's tick is 1 ms.
        let least = self.scenario.link.forward.delay + self.scenario.link.back.delay;
        if let Some(rtt) = info.min_rtt.filter(|&rtt| rtt + Duration::from_millis(1) < least) {
            engine
                .audit
                .breach(self.now, format!("believes in a round trip of {rtt:?}, the least is {least:?}"));
        }
        let since_start = |at: Instant| at.saturating_since(Instant::ZERO);
        let peer = peer.facts();
        Report {
            seed: self.scenario.seed,
            ending,
            time_out: engine.time_out(),
            outcome: engine.closed_at.map(|(_, outcome)| outcome),
            established_at: engine.established_at.map(since_start),
            delivered: peer.read,
            delivered_at: self.delivered_at.map(since_start),
            received: engine.bytes_read(),
            peer_closed: engine.peer_closed(),
            closed_at: engine.closed_at.map(|(at, _)| since_start(at)),
            finished_at: since_start(self.now),
            segments: self.segments,
            data_segments: engine.audit.data_segments,
            retransmits: engine.audit.retransmits,
            resets: engine.audit.resets,
            batches: engine.batches,
            splits: engine.splits,
            frames_replaced: engine.frames_replaced,
            frames_given: engine.books.given,
            frames_missing: engine.books.missing(),
            too_long: self.too_long,
            info,
            events: engine.events,
            peer,
            forward: self.forward.fates,
            back: self.back.fates,
            breaches: engine.audit.breaches,
            breach_count: engine.audit.breach_count,
            trace_hash: self.trace.hash(),
            trace: self.trace.into_lines(),
        }
    }
}
