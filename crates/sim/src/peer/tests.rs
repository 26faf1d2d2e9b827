//! The peer by itself: segment by segment, and against another of its kind over a bad link, so that
//! a failure of the engine's tests is known not to be the peer's.

use super::*;
use crate::codec::Codec;
use crate::link::{Direction, Pipe};
use crate::queue::EventQueue;

const ISS: u32 = u32::MAX - 500;

/// A peer with which the handshake is done, and the stream it expects.
struct Rig {
    peer: Peer,
    pattern: Pattern,
    ack: u32,
}

impl Rig {
    fn new(config: PeerConfig) -> Self {
        let pattern = Pattern::new(1);
        let ack = config.iss.wrapping_add(1);
        let mut rig = Self { peer: Peer::new(config, pattern, Pattern::new(2), Rng::new(0)), pattern, ack };
        let options =
            Options { mss: Some(1000), window_scale: Some(7), sack_permitted: true, ..Options::default() };
        let syn = Header { seq: ISS, flags: Flags::SYN, window: 65_535, options, ..Header::default() };
        let replies = rig.arrive(0, syn, &[]);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].header.flags, Flags::SYN | Flags::ACK);
        assert_eq!(replies[0].header.ack, ISS.wrapping_add(1));
        rig.data(0, 0, 0);
        rig
    }

    fn arrive(&mut self, millis: u64, header: Header, payload: &[u8]) -> Vec<PeerSegment> {
        let mut out = Vec::new();
        self.peer.arrive(Instant::from_millis(millis), &header, payload, &mut out);
        out
    }

    fn data(&mut self, millis: u64, from: u64, until: u64) -> Vec<PeerSegment> {
        let mut payload = vec![0; (until - from) as usize];
        self.pattern.fill(from, &mut payload);
        let seq = ISS.wrapping_add(1 + from as u32);
        let header = Header { seq, ack: self.ack, flags: Flags::ACK, window: 1000, ..Header::default() };
        self.arrive(millis, header, &payload)
    }

    fn blocks(&self, segment: &PeerSegment) -> Vec<(u32, u32)> {
        let relative = |seq: u32| seq.wrapping_sub(ISS.wrapping_add(1));
        segment.header.options.sack.iter().map(|(left, right)| (relative(left), relative(right))).collect()
    }
}

fn acked(segment: &PeerSegment) -> u32 {
    segment.header.ack.wrapping_sub(ISS.wrapping_add(1))
}

#[test]
fn delays_every_second_acknowledgment_by_forty_milliseconds() {
    let mut rig = Rig::new(PeerConfig::default());
    assert!(rig.data(10, 0, 100).is_empty());
    assert_eq!(rig.peer.next_tick(), Some(Instant::from_millis(50)));
    let replies = rig.data(11, 100, 200);
    assert_eq!(replies.len(), 1);
    assert_eq!(acked(&replies[0]), 200);
    assert!(rig.data(20, 200, 300).is_empty());
    let mut out = Vec::new();
    rig.peer.tick(Instant::from_millis(60), &mut out);
    assert_eq!(out.iter().map(acked).collect::<Vec<_>>(), [300]);
}

#[test]
fn reports_gaps_the_latest_first_and_duplicates_once() {
    let mut rig = Rig::new(PeerConfig::default());
    let reply = rig.data(1, 1000, 2000).remove(0);
    assert_eq!((acked(&reply), rig.blocks(&reply)), (0, vec![(1000, 2000)]));
    let reply = rig.data(2, 3000, 4000).remove(0);
    assert_eq!(rig.blocks(&reply), [(3000, 4000), (1000, 2000)]);
    let reply = rig.data(3, 1500, 2500).remove(0);
    assert_eq!(rig.blocks(&reply), [(1000, 2500), (3000, 4000)]);
    let reply = rig.data(4, 3000, 4000).remove(0);
    assert_eq!(rig.blocks(&reply), [(3000, 4000), (3000, 4000), (1000, 2500)]);
    let reply = rig.data(5, 0, 1000).remove(0);
    assert_eq!((acked(&reply), rig.blocks(&reply)), (2500, vec![(3000, 4000)]));
    let reply = rig.data(6, 2500, 3000).remove(0);
    assert_eq!((acked(&reply), rig.blocks(&reply)), (4000, vec![]));
    let reply = rig.data(7, 0, 1000).remove(0);
    assert_eq!((acked(&reply), rig.blocks(&reply)), (4000, vec![(0, 1000)]));
    assert_eq!(rig.peer.facts().mismatch_at, None);
    assert_eq!(rig.peer.facts().read, 4000);
}

#[test]
fn shuts_its_window_and_opens_it_again() {
    let stall = crate::Stall { after_bytes: 0, pause: Duration::from_millis(100) };
    let mut rig = Rig::new(PeerConfig {
        window_bytes: 2000,
        window_scale: None,
        reader: crate::Reader { rate: None, stalls: vec![stall] },
        ..PeerConfig::default()
    });
    rig.data(1, 0, 1000);
    let reply = rig.data(2, 1000, 2000).remove(0);
    assert_eq!((acked(&reply), reply.header.window), (2000, 0));
    let reply = rig.data(3, 2000, 2001).remove(0);
    assert_eq!((acked(&reply), reply.header.window), (2000, 0));
    assert_eq!(rig.peer.next_tick(), Some(Instant::from_millis(100)));
    let mut out = Vec::new();
    rig.peer.tick(Instant::from_millis(100), &mut out);
    assert_eq!(out.iter().map(|s| (acked(s), s.header.window)).collect::<Vec<_>>(), [(2000, 2000)]);
}

#[test]
fn sends_again_what_is_not_acknowledged() {
    let mut rig = Rig::new(PeerConfig { bytes: 1500, ..PeerConfig::default() });
    // The handshake's ACK has set off both segments; none is acknowledged.
    let timer = rig.peer.next_tick().expect("a timer runs");
    let mut out = Vec::new();
    rig.peer.tick(timer, &mut out);
    assert_eq!(out.iter().map(|s| s.payload.len()).collect::<Vec<_>>(), [1000]);
    rig.ack = rig.ack.wrapping_add(1000);
    let replies = rig.data(timer.as_millis() + 1, 0, 0);
    assert_eq!(replies.iter().map(|s| s.payload.len()).collect::<Vec<_>>(), [500]);
    assert_eq!(rig.peer.facts().retransmits, 2);
}

#[test]
fn resets_only_for_an_exact_reset() {
    let mut rig = Rig::new(PeerConfig::default());
    let reset =
        |offset: u32| Header { seq: ISS.wrapping_add(1 + offset), flags: Flags::RST, ..Header::default() };
    let replies = rig.arrive(1, reset(5), &[]);
    assert_eq!(replies.len(), 1, "a challenge ACK");
    assert_eq!(rig.peer.facts().end, PeerEnd::Open);
    assert!(rig.arrive(2, reset(0), &[]).is_empty());
    assert_eq!(rig.peer.facts().end, PeerEnd::GotReset);
}

/// Two peers; the first is made to open actively, by hand.
struct Duel {
    now: Instant,
    queue: EventQueue<(usize, Vec<u8>)>,
    peers: [Peer; 2],
    codecs: [Codec; 2],
    pipes: [Pipe; 2],
    established: bool,
}

impl Duel {
    fn new(seed: u64, direction: &Direction, configs: [PeerConfig; 2]) -> Self {
        let rng = Rng::new(seed);
        let (a, b) = (Pattern::new(seed), Pattern::new(!seed));
        let [first, second] = configs;
        let mut active = Peer::new(first, b, a, rng.fork(1));
        active.timestamps = active.config.timestamps;
        active.phase = Phase::SynReceived;
        Self {
            now: Instant::ZERO,
            queue: EventQueue::new(),
            peers: [active, Peer::new(second, a, b, rng.fork(2))],
            codecs: [Codec::engine(false), Codec::peer()],
            pipes: [Pipe::new(direction.clone(), rng.fork(3)), Pipe::new(direction.clone(), rng.fork(4))],
            established: false,
        }
    }

    /// The active end's handshake: the SYN as a passive peer would not send it, and its answer.
    fn shake(&mut self, header: &Header, out: &mut Vec<PeerSegment>) {
        let peer = &mut self.peers[0];
        if !header.flags.contains(Flags::SYN) {
            return;
        }
        peer.on_syn(self.now, header);
        peer.receive.edge = u64::from(peer.config.window_bytes.min(65_535)) + 1;
        // The window of a SYN is not scaled.
        let scale = core::mem::take(&mut peer.send.scale);
        peer.send.on_ack(self.now, 0, header.ack, header.window, false);
        peer.send.scale = scale;
        peer.phase = Phase::Established;
        peer.ack_now = true;
        peer.respond(self.now, out);
        self.established = true;
    }

    fn send(&mut self, from: usize, segments: Vec<PeerSegment>) {
        for PeerSegment { mut header, payload } in segments {
            if from == 0 && header.flags.contains(Flags::SYN) {
                header.flags = Flags::SYN;
                let config = &self.peers[0].config;
                header.options.sack_permitted = config.sack;
                header.options.window_scale = config.window_scale;
            }
            let frame = self.codecs[from].control(&header, &payload);
            let queue = &mut self.queue;
            self.pipes[from].enter(self.now, frame, |at, frame| queue.push(at, (1 - from, frame)));
        }
    }

    /// Until both are done.
    fn run(&mut self) {
        let mut out = Vec::new();
        self.peers[0].respond(self.now, &mut out);
        self.send(0, out);
        while !self.peers.iter().all(Peer::is_done) {
            let ticks = [self.peers[0].next_tick(), self.peers[1].next_tick()];
            let at = [self.queue.next_at(), ticks[0], ticks[1]].into_iter().flatten().min();
            self.now = self.now.max(at.expect("something goes on"));
            assert!(self.now < Instant::from_millis(10_000_000), "no end");
            let mut out = Vec::new();
            if let Some((to, frame)) = self.queue.pop_due(self.now) {
                let Some((header, payload)) = self.codecs[to].decode(&frame) else { continue };
                if to == 0 && !self.established {
                    self.shake(&header, &mut out);
                } else {
                    self.peers[to].arrive(self.now, &header, payload, &mut out);
                }
                self.send(to, out);
            } else {
                let due = usize::from(ticks[0].is_none_or(|at| at > self.now));
                self.peers[due].tick(self.now, &mut out);
                self.send(due, out);
            }
        }
    }
}

#[test]
fn two_of_its_kind_understand_each_other_in_bad_weather() {
    let mut lost = 0;
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let direction = Direction {
            loss: rng.fraction(0.0, 0.1),
            reorder: rng.pick([0.0, 0.1]),
            duplicate: rng.pick([0.0, 0.05]),
            corrupt: rng.pick([0.0, 0.01]),
            ..Direction::default()
        };
        let configs: [PeerConfig; 2] = core::array::from_fn(|i| PeerConfig {
            timestamps: seed & 1 == 0,
            sack: rng.chance(0.5),
            window_scale: rng.pick([None, Some(0), Some(7)]),
            window_bytes: rng.pick([1000, 10_000, 1 << 20]),
            reneging: rng.pick([0.0, 0.1]),
            ragged: rng.chance(0.5),
            bytes: rng.below(100_000),
            close: if i == 0 { PeerClose::AfterSending } else { PeerClose::AfterRemote },
            iss: rng.next_u64() as u32 | 0xffff_0000,
            ..PeerConfig::default()
        });
        let sent = configs.each_ref().map(|config| config.bytes);
        let mut duel = Duel::new(seed, &direction, configs);
        duel.run();
        for (i, peer) in duel.peers.iter().enumerate() {
            let facts = peer.facts();
            assert_eq!(facts.mismatch_at, None, "seed {seed}");
            assert_eq!(facts.read, sent[1 - i], "seed {seed}");
            assert_eq!((facts.end, facts.at_end), (PeerEnd::Clean, true), "seed {seed}");
            assert_eq!((facts.beyond_window, facts.bad_acks), (0, 0), "seed {seed} peer {i}: {facts:?}");
        }
        lost += duel.pipes[0].fates.lost + duel.pipes[1].fates.lost;
    }
    assert!(lost > 1000);
}
