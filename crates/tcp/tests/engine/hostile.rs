//! Whatever comes, in whatever order: no panic, no frame lost or given twice, no wait without a timer.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use xsend_tcp::{
    Chunk, Config, Connection, Instant, KeepAlive, Seed, State, TooBig, Transmit, TxRing, Unreachable,
};
use xsend_wire::tcp::{Flags, Header, Options, SackBlocks, Timestamps};

use crate::scene::{Frame, IRS, ISS};

#[derive(Clone, Debug)]
enum Input {
    Segment(Wild),
    /// Milliseconds pass, timers or not.
    Pass(u16),
    /// The next timer expires.
    Timeout,
    Write(u16),
    Close,
    Detach,
    Abort,
    Consume(u16),
    Unreachable(i16),
    TooBig(u16, i16),
    Mtu(u16),
    KeepAlive(Option<u16>),
    UserTimeout(Option<u16>),
    Control,
    LocalDrop,
    Stuck,
    Nodelay(bool),
    /// The TX ring holds frames whose number has this remainder modulo 4.
    Ring(Option<u8>),
    Budget(u8),
    RefuseSplits(bool),
}

/// A segment with numbers close to where something happens.
#[derive(Clone, Debug)]
struct Wild {
    flags: u8,
    /// From the next byte expected, or from the start if `old`.
    seq: i32,
    ack: i32,
    old: bool,
    window: u16,
    len: u16,
    frame: bool,
    blocks: Vec<(i32, i32)>,
    timestamps: Option<(i16, i16)>,
    mss: Option<u16>,
    scale: Option<u8>,
    permitted: bool,
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![
        5 => Just(0),
        5 => -3..4i32,
        5 => (-20..20i32).prop_map(|n| n * 1000),
        2 => -70_000..70_000i32,
        1 => any::<i32>(),
    ]
}

fn wild() -> impl Strategy<Value = Wild> {
    let flags = prop_oneof![
        20 => Just(Flags::ACK.0),
        3 => Just((Flags::ACK | Flags::FIN).0),
        3 => Just((Flags::ACK | Flags::SYN).0),
        1 => Just(Flags::SYN.0),
        1 => any::<u8>().prop_map(|flags| flags & !Flags::RST.0),
        1 => any::<u8>(),
    ];
    let blocks = prop::collection::vec((near(), near()), 0..5);
    let len = prop_oneof![4 => Just(0u16), 4 => 1..1500u16, 1 => any::<u16>()];
    let window = prop_oneof![2 => Just(0u16), 2 => 0..3000u16, 6 => Just(64_000u16), 1 => any::<u16>()];
    (
        (flags, near(), near(), prop::bool::weighted(0.1), window, len),
        (prop::bool::weighted(0.9), blocks, prop::option::weighted(0.9, (-3..4i16, -3..4i16))),
        (prop::option::of(any::<u16>()), prop::option::of(any::<u8>()), any::<bool>()),
    )
        .prop_map(
            |((flags, seq, ack, old, window, len), (frame, blocks, timestamps), (mss, scale, permitted))| {
                Wild { flags, seq, ack, old, window, len, frame, blocks, timestamps, mss, scale, permitted }
            },
        )
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        30 => wild().prop_map(Input::Segment),
        6 => (0..500u16).prop_map(Input::Pass),
        8 => Just(Input::Timeout),
        20 => prop_oneof![4 => Just(1000u16), 1 => 0..2000u16].prop_map(Input::Write),
        1 => Just(Input::Close),
        1 => prop::bool::weighted(0.2).prop_map(|detach| if detach { Input::Detach } else { Input::Close }),
        1 => prop::bool::weighted(0.1).prop_map(|abort| if abort { Input::Abort } else { Input::LocalDrop }),
        3 => (0..3000u16).prop_map(Input::Consume),
        1 => any::<i16>().prop_map(Input::Unreachable),
        3 => (200..1100u16, -50..3000i16).prop_map(|(mss, at)| Input::TooBig(mss, at)),
        1 => prop::bool::weighted(0.1).prop_map(|low| Input::Mtu(if low { 300 } else { 900 })),
        1 => prop::option::of(any::<u16>()).prop_map(Input::KeepAlive),
        1 => prop::option::weighted(0.1, 1000..60_000u16).prop_map(Input::UserTimeout),
        1 => Just(Input::Control),
        1 => Just(Input::Stuck),
        1 => any::<bool>().prop_map(Input::Nodelay),
        2 => prop::option::of(0..4u8).prop_map(Input::Ring),
        2 => (0..12u8).prop_map(Input::Budget),
        1 => any::<bool>().prop_map(Input::RefuseSplits),
    ]
}

#[derive(Default)]
struct Ring(Cell<Option<u8>>);

impl TxRing<Frame> for Ring {
    fn in_ring(&self, frame: &Frame) -> bool {
        self.0.get().is_some_and(|held| frame.0 % 4 == u32::from(held))
    }
}

struct Stage {
    conn: Connection<Frame>,
    now: Instant,
    ring: Ring,
    budget: usize,
    refuse_splits: bool,
    next_frame: u32,
    /// Frames that the engine has.
    lent: BTreeSet<u32>,
}

impl Stage {
    fn lend(&mut self) -> Frame {
        self.next_frame += 1;
        self.lent.insert(self.next_frame);
        Frame(self.next_frame)
    }

    fn take_back(&mut self, frame: Frame) {
        assert!(self.lent.remove(&frame.0), "frame {} came back twice", frame.0);
    }

    fn segment(&mut self, wild: &Wild) {
        let acked = self.conn.acked_bytes() as u32 + 1;
        let received = self.conn.info().received_bytes as u32 + 1;
        let (seq, ack) = if wild.old { (0, 0) } else { (received, acked) };
        let mut sack = SackBlocks::EMPTY;
        for (left, right) in &wild.blocks {
            let at = |distance: &i32| ISS.wrapping_add(acked).wrapping_add_signed(*distance);
            sack.push(at(left), at(right));
        }
        let clock = self.now.as_millis() as u32;
        let header = Header {
            source: 1,
            destination: 2,
            seq: IRS.wrapping_add(seq).wrapping_add_signed(wild.seq),
            ack: ISS.wrapping_add(ack).wrapping_add_signed(wild.ack),
            flags: Flags(wild.flags),
            window: wild.window,
            urgent: 0,
            options: Options {
                mss: wild.mss,
                window_scale: wild.scale,
                sack_permitted: wild.permitted,
                timestamps: wild.timestamps.map(|(value, echo)| Timestamps {
                    value: clock.wrapping_add_signed(value.into()),
                    echo: clock.wrapping_add(77).wrapping_add_signed(echo.into()),
                }),
                sack,
            },
        };
        let len = u32::from(wild.len);
        let payload = (len > 0 && wild.frame).then(|| Chunk { frame: self.lend(), offset: 0, len });
        self.conn.on_segment(self.now, &header, payload, len);
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Segment(wild) => self.segment(wild),
            Input::Pass(ms) => {
                self.now = self.now + Duration::from_millis((*ms).into());
                self.conn.on_timeout(self.now);
            }
            Input::Timeout => {
                if let Some(due) = self.conn.poll_timeout() {
                    self.now = self.now.max(due);
                    self.conn.on_timeout(self.now);
                }
            }
            Input::Write(len) => {
                let frame = self.lend();
                self.conn.on_write(self.now, frame, u32::from(*len), len % 7 == 0);
            }
            Input::Close => self.conn.on_close(self.now),
            Input::Detach => self.conn.on_detach(self.now),
            Input::Abort => self.conn.on_abort(self.now),
            Input::Consume(bytes) => self.conn.on_consumed(self.now, u32::from(*bytes)),
            Input::Unreachable(distance) => {
                let seq = ISS.wrapping_add_signed(i32::from(*distance));
                self.conn.on_unreachable(self.now, Unreachable::Host, seq);
            }
            Input::TooBig(mss, distance) => {
                let acked = self.conn.acked_bytes() as u32 + 1;
                let seq = ISS.wrapping_add(acked).wrapping_add_signed(i32::from(*distance));
                let before = self.conn.smss();
                let verdict = self.conn.on_packet_too_big(self.now, Some(*mss), seq);
                assert_eq!(verdict == TooBig::Obeyed, self.conn.smss() < before);
                assert!(self.conn.smss() >= before.min(536 - 12));
            }
            Input::Mtu(mss) => self.conn.on_mtu(self.now, *mss),
            Input::KeepAlive(ms) => {
                let every = |ms: &u16| Duration::from_millis(u64::from(*ms));
                let keep_alive =
                    ms.as_ref().map(|ms| KeepAlive { idle: every(ms), interval: every(ms), probes: 3 });
                self.conn.set_keep_alive(self.now, keep_alive);
            }
            Input::UserTimeout(ms) => {
                self.conn.set_user_timeout(ms.map(|ms| Duration::from_millis(u64::from(ms))));
            }
            Input::Control => {
                let _ = self.conn.poll_control(self.now);
            }
            Input::LocalDrop => self.conn.on_local_drop(self.now),
            Input::Stuck => {
                let (lent, next_frame) = (&mut self.lent, &mut self.next_frame);
                self.conn.on_stuck(|frame, len| {
                    assert!(len > 0);
                    lent.remove(&frame.0);
                    *next_frame += 1;
                    lent.insert(*next_frame);
                    *frame = Frame(*next_frame);
                });
            }
            Input::Nodelay(nodelay) => self.conn.set_nodelay(*nodelay),
            Input::Ring(held) => self.ring.0.set(*held),
            Input::Budget(budget) => self.budget = usize::from(*budget),
            Input::RefuseSplits(refuse) => self.refuse_splits = *refuse,
        }
        self.poll();
    }

    fn poll(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "polling does not end");
            let mut split = false;
            let smss = self.conn.smss();
            match self.conn.poll_transmit(self.now, self.budget, &self.ring) {
                None => break,
                Some(Transmit::Control(control)) => assert!(control.header(1, 2).header_len() <= 60),
                Some(Transmit::Data(batch)) => {
                    assert!(batch.len() >= 1 && batch.len() <= self.budget);
                    let again = batch.retransmission;
                    let longest = smss;
                    let mut next = batch.seq;
                    for segment in batch.segments() {
                        assert_eq!(segment.seq, next);
                        assert!(segment.len > 0 && segment.len <= longest);
                        assert!(self.lent.contains(&segment.frame.0));
                        assert!(!again || !self.ring.in_ring(segment.frame), "rewritten in the ring");
                        next = next.wrapping_add(segment.len);
                    }
                }
                Some(Transmit::Split) => split = true,
            }
            if split {
                let tail = self.lend();
                let number = tail.0;
                let refuse = self.refuse_splits;
                let mut used = false;
                self.conn.on_split(|_, head, len| {
                    assert!(0 < head && head < len);
                    used = !refuse;
                    (!refuse).then_some(tail)
                });
                if !used {
                    self.lent.remove(&number);
                }
            }
        }
        while let Some(chunk) = self.conn.poll_received() {
            assert!(chunk.len > 0 && chunk.offset < 0x1_0000);
            self.take_back(chunk.frame);
        }
        while self.conn.poll_event().is_some() {}
        while let Some(frame) = self.conn.poll_freed() {
            self.take_back(frame);
        }
        let waits = self.conn.in_flight_segments() > 0
            || self.conn.notsent_bytes() > 0 && self.conn.state() != State::SynSent && self.budget > 0;
        assert!(
            !waits || self.conn.poll_timeout().is_some() || self.conn.state() == State::Closed,
            "data waits and no timer runs: {:?}",
            self.conn.info()
        );
        let info = self.conn.info();
        assert!(info.pipe <= info.in_flight_segments * 2);
        assert!(info.acked_bytes <= info.sent_bytes);
        let outstanding = info.sent_bytes > info.acked_bytes && info.state != State::Closed;
        assert_eq!(outstanding, info.in_flight_segments > 0);
        let _ = self.conn.may_send_tail(self.now, 100);
        let _ = self.conn.tsq_limit_bytes();
    }
}

/// Where a connection starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Connecting,
    Accepting,
    Established,
}

fn run(config: &Config, start: Start, inputs: &[Input]) {
    let seed = Seed { iss: ISS, timestamp_offset: 77 };
    let now = Instant::from_millis(5);
    let conn = if start == Start::Accepting {
        let options = Options {
            mss: Some(1012),
            window_scale: Some(3),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..Options::default()
        };
        let syn = Header { seq: IRS, flags: Flags::SYN, window: 64_000, options, ..Header::default() };
        Connection::accept(config, &syn, seed, now)
    } else {
        Connection::connect(config, seed, now)
    };
    let mut stage = Stage {
        conn,
        now,
        ring: Ring::default(),
        budget: usize::MAX,
        refuse_splits: false,
        next_frame: 0,
        lent: BTreeSet::new(),
    };
    stage.poll();
    if start == Start::Established {
        let syn_ack = Wild {
            flags: (Flags::SYN | Flags::ACK).0,
            seq: -1,
            ack: 0,
            old: false,
            window: 64_000,
            len: 0,
            frame: false,
            blocks: Vec::new(),
            timestamps: Some((0, 0)),
            mss: Some(1012),
            scale: Some(3),
            permitted: true,
        };
        stage.input(&Input::Segment(syn_ack));
        assert_eq!(stage.conn.state(), State::Established);
    }
    for input in inputs {
        stage.input(input);
    }
    // In the end everything comes back.
    stage.budget = usize::MAX;
    stage.input(&Input::Abort);
    assert!(stage.lent.is_empty(), "frames lost: {:?}", stage.lent);
    stage.input(&Input::Timeout);
    assert!(stage.conn.is_finished());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_established_connection_survives_anything(
        inputs in prop::collection::vec(input(), 1..200),
        timestamps: bool,
        sack: bool,
        tiny: bool,
        user_timeout in prop::option::weighted(0.2, 1..100_000u64),
        max_rate in prop::option::weighted(0.2, 1..10_000_000u64),
    ) {
        let config = Config {
            timestamps,
            sack,
            recv_window_bytes: if tiny { 2000 } else { 131_072 },
            max_out_of_order_chunks: if tiny { 2 } else { 256 },
            user_timeout: user_timeout.map(Duration::from_millis),
            max_rate,
            ..Config::default()
        };
        run(&config, Start::Established, &inputs);
    }

    #[test]
    fn so_does_one_that_is_opening(inputs in prop::collection::vec(input(), 1..60)) {
        run(&Config::default(), Start::Connecting, &inputs);
    }

    #[test]
    fn so_does_one_that_the_peer_opens(inputs in prop::collection::vec(input(), 1..60)) {
        run(&Config::default(), Start::Accepting, &inputs);
    }
}
