//! Two engines over a link that loses, delays, reorders and duplicates: whatever it does short of losing all,
//! every byte arrives, both ways, and both ends close.
//!
//! Either both connect at once, so that their SYNs cross, or one listens and accepts, with a memory of the SYN or by a
//! cookie.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use xsend_tcp::{
    Chunk, Config, Connection, Event, Heard, Instant, NoRing, Outcome, Seed, State, Transmit, cookie_syn_ack,
    listen,
};
use xsend_wire::tcp::{Flags, Header, Options};

/// A small generator (SplitMix64): the link's whims.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The byte at `position` of the stream that `side` sends.
fn byte(side: usize, position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ (position >> 16) as u8 ^ side as u8
}

/// How an end comes by its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Actively,
    Passively,
    ByCookie,
}

const SECRET: [u8; 16] = [7; 16];

fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + side as u8], 1 + side as u16))
}

struct End {
    /// While it listens: a connection that is over.
    conn: Connection<Box<[u8]>>,
    listens: Option<Opens>,
    config: Config,
    side: usize,
    /// Bytes to write, and written.
    total: u64,
    written: u64,
    received: u64,
    held: u32,
    slow_reader: bool,
    outcome: Option<Outcome>,
    peer_closed: bool,
    closed: bool,
}

impl End {
    fn new(side: usize, config: &Config, opens: Opens, total: u64, slow_reader: bool) -> End {
        let mut conn = Connection::connect(config, Self::seed(side), Instant::ZERO);
        let listens = (opens != Opens::Actively).then_some(opens);
        if listens.is_some() {
            conn.on_abort(Instant::ZERO);
            while conn.poll_event().is_some() {}
        }
        End {
            conn,
            listens,
            config: config.clone(),
            side,
            total,
            written: 0,
            received: 0,
            held: 0,
            slow_reader,
            outcome: None,
            peer_closed: false,
            closed: false,
        }
    }

    fn seed(side: usize) -> Seed {
        Seed { iss: u32::MAX - 5000 * side as u32 - 7, timestamp_offset: u32::MAX - 3 }
    }

    /// A segment arrives while this end listens. Says whether the connection is to have it.
    fn listen(&mut self, now: Instant, header: &Header, len: u32, answer: &mut Option<Header>) -> bool {
        let Some(opens) = self.listens else { return true };
        let (local, remote) = (address(self.side), address(1 - self.side));
        match (listen(header, len), opens) {
            (Heard::Request, Opens::ByCookie) => {
                let syn_ack = cookie_syn_ack(&self.config, &SECRET, local, remote, header, now);
                *answer = Some(syn_ack.header(1, 2));
                return false;
            }
            (Heard::Request, _) => {
                self.conn = Connection::accept(&self.config, header, Self::seed(self.side), now);
                self.listens = None;
                return false;
            }
            (Heard::Acknowledgment(_), Opens::ByCookie) => {
                let found = Connection::from_cookie(&self.config, &SECRET, local, remote, header, now);
                let Some(conn) = found else { return false };
                self.conn = conn;
                self.listens = None;
            }
            (Heard::Acknowledgment(_) | Heard::Nothing, _) => return false,
        }
        true
    }

    /// The application writes what fits a small buffer, and closes behind its last byte.
    fn write(&mut self, now: Instant, random: &mut Random) {
        if self.listens.is_some() {
            return;
        }
        while self.written < self.total && self.written - self.conn.acked_bytes() < 100_000 {
            let full = u64::from(self.conn.smss());
            let len = if random.chance(80) { full } else { 1 + random.below(full) };
            let len = len.min(self.total - self.written);
            let frame: Box<[u8]> = (self.written..self.written + len).map(|at| byte(self.side, at)).collect();
            self.written += len;
            self.conn.on_write(now, frame, len as u32, random.chance(10));
        }
        if self.written == self.total && !self.closed {
            self.closed = true;
            self.conn.on_close(now);
        }
    }

    fn read(&mut self, now: Instant, random: &mut Random) {
        while let Some(Chunk { frame, offset, len }) = self.conn.poll_received() {
            for got in &frame[offset as usize..(offset + len) as usize] {
                assert_eq!(*got, byte(1 - self.side, self.received), "byte {} is wrong", self.received);
                self.received += 1;
            }
            self.held += len;
        }
        if self.held > 0 && (!self.slow_reader || random.chance(20)) {
            self.conn.on_consumed(now, self.held);
            self.held = 0;
        }
    }

    fn is_over(&self) -> bool {
        self.outcome.is_some() && matches!(self.conn.state(), State::Closed | State::TimeWait)
    }
}

struct Link {
    loss: u64,
    reorder: u64,
    duplicate: u64,
    delay: Duration,
    in_flight: BTreeMap<(Instant, u64), (usize, Header, Vec<u8>)>,
    sent: u64,
}

impl Link {
    fn send(&mut self, now: Instant, to: usize, header: Header, payload: &[u8], random: &mut Random) {
        let copies = if random.chance(self.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            if random.chance(self.loss) {
                continue;
            }
            let extra = if random.chance(self.reorder) { random.below(30_000) } else { random.below(100) };
            self.sent += 1;
            let at = now + self.delay + Duration::from_micros(extra);
            self.in_flight.insert((at, self.sent), (to, header, payload.to_vec()));
        }
    }
}

fn transmit(end: &mut End, now: Instant, link: &mut Link, random: &mut Random) {
    let to = 1 - end.side;
    loop {
        let budget = 1 + random.below(40) as usize;
        match end.conn.poll_transmit(now, budget, &NoRing) {
            None => break,
            Some(Transmit::Control(control)) => link.send(now, to, control.header(1, 2), &[], random),
            Some(Transmit::Data(batch)) => {
                let options = Options { timestamps: batch.timestamps, ..Options::default() };
                let (ack, window) = (batch.ack, batch.window);
                for segment in batch.segments() {
                    let header = Header {
                        source: 1,
                        destination: 2,
                        seq: segment.seq,
                        ack,
                        flags: Flags::ACK,
                        window,
                        urgent: 0,
                        options,
                    };
                    assert_eq!(segment.len as usize, segment.frame.len());
                    link.send(now, to, header, segment.frame, random);
                }
            }
            Some(Transmit::Split) => {
                let grant = random.chance(90);
                end.conn.on_split(|frame, head, len| {
                    assert_eq!(len as usize, frame.len());
                    if !grant {
                        return None;
                    }
                    let (left, right) = frame.split_at(head as usize);
                    let (left, right) = (left.into(), right.into());
                    *frame = left;
                    Some(right)
                });
            }
        }
    }
}

/// Runs both ends to their end and returns the virtual time it took.
fn run(mut ends: [End; 2], mut link: Link, mut random: Random) -> Duration {
    let mut now = Instant::ZERO;
    for _ in 0..2_000_000 {
        for end in &mut ends {
            end.write(now, &mut random);
            transmit(end, now, &mut link, &mut random);
            end.read(now, &mut random);
            transmit(end, now, &mut link, &mut random);
            while let Some(event) = end.conn.poll_event() {
                match event {
                    Event::PeerClosed => end.peer_closed = true,
                    Event::Closed(outcome) => end.outcome = Some(outcome),
                    _ => {}
                }
            }
            while end.conn.poll_freed().is_some() {}
        }
        if ends.iter().all(End::is_over) {
            for end in &ends {
                assert_eq!(end.outcome, Some(Outcome::Finished));
                assert!(end.peer_closed);
                assert_eq!(end.received, ends[1 - end.side].total, "side {}", end.side);
                assert_eq!(end.conn.acked_bytes(), end.total);
                assert_eq!(end.conn.in_flight_segments(), 0);
            }
            return now.saturating_since(Instant::ZERO);
        }
        let arrival = link.in_flight.keys().next().map(|(at, _)| *at);
        let timeout = ends.iter().filter_map(|end| end.conn.poll_timeout()).min();
        let reads = ends.iter().any(|end| end.held > 0).then(|| now + Duration::from_millis(5));
        let next = [arrival, timeout, reads].into_iter().flatten().min();
        let Some(next) = next else {
            panic!("dead-lock at {now:?}: {:?} {:?}", ends[0].conn.info(), ends[1].conn.info());
        };
        now = now.max(next);
        while let Some(entry) = link.in_flight.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, header, payload) = entry.remove();
            let len = payload.len() as u32;
            let mut answer = None;
            let known = ends[to].listen(now, &header, len, &mut answer);
            if let Some(answer) = answer {
                link.send(now, 1 - to, answer, &[], &mut random);
            }
            if !known {
                continue;
            }
            let chunk = (len > 0).then(|| Chunk { frame: payload.into_boxed_slice(), offset: 0, len });
            ends[to].conn.on_segment(now, &header, chunk, len);
        }
        for end in &mut ends {
            if end.conn.poll_timeout().is_some_and(|due| due <= now) {
                end.conn.on_timeout(now);
            }
        }
    }
    panic!("not over after {now:?}: {:?} {:?}", ends[0].conn.info(), ends[1].conn.info());
}

fn config(timestamps: bool, sack: bool, window: u32, mss: u16, max_rate: Option<u64>) -> Config {
    Config {
        timestamps,
        sack,
        recv_window_bytes: window,
        mss,
        max_rate,
        // The handshake is not what is tested here.
        syn_retries: 30,
        syn_ack_retries: 30,
        retries: 30,
        // Under heavy loss an end may still be repeating its FIN when the other has forgotten the connection.
        time_wait: Duration::from_secs(100_000),
        max_out_of_order_chunks: 24,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_and_both_ends_close(
        seed: u64,
        loss in prop_oneof![Just(0u64), 1..10u64, 10..35u64],
        reorder in prop_oneof![Just(0u64), 1..40u64],
        duplicate in prop_oneof![Just(0u64), 1..20u64],
        delay_us in prop_oneof![10..1000u64, 1000..100_000u64],
        totals in (0..150_000u64, 0..150_000u64),
        options in (any::<(bool, bool)>(), any::<(bool, bool)>()),
        windows in (prop_oneof![300..5000u32, Just(131_072u32)], prop_oneof![300..5000u32, Just(1u32 << 20)]),
        mss in (100..1461u16, 100..1461u16),
        slow in any::<(bool, bool)>(),
        max_rate in prop::option::of(100_000..10_000_000u64),
        opens in prop_oneof![Just(Opens::Actively), Just(Opens::Passively), Just(Opens::ByCookie)],
    ) {
        // Tiny windows over a bad link take for ever in virtual time: send less.
        let bound = |total: u64, window: u32| if window < 5000 { total / 20 } else { total };
        let a = config(options.0.0, options.0.1, windows.0, mss.0, max_rate);
        let b = config(options.1.0, options.1.1, windows.1, mss.1, None);
        let ends = [
            // Whoever connects to a cookie has to speak first.
            End::new(0, &a, Opens::Actively, bound(totals.0, windows.1) + 1, slow.0),
            End::new(1, &b, opens, bound(totals.1, windows.0), slow.1),
        ];
        let delay = Duration::from_micros(delay_us);
        let link = Link { loss, reorder, duplicate, delay, in_flight: BTreeMap::new(), sent: 0 };
        run(ends, link, Random(seed));
    }
}

#[test]
fn a_clean_link_needs_no_retransmission() {
    let config = config(true, true, 1 << 20, 1460, None);
    let ends = [
        End::new(0, &config, Opens::Actively, 3_000_000, false),
        End::new(1, &config, Opens::Passively, 3_000_000, false),
    ];
    let delay = Duration::from_millis(10);
    let link = Link { loss: 0, reorder: 0, duplicate: 0, delay, in_flight: BTreeMap::new(), sent: 0 };
    run(ends, link, Random(1));
}
