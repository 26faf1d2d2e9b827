//! A path that narrows, a window taken back, a liar between, silence: each is survived, or ends in a typed error in
//! bounded time.

mod common;

use std::time::Duration;

use common::{ENDLESS, SECOND, deliver, deliver_all, lawful, scenario};
use xsend_sim::{
    AppClose, Direction, Link, Narrows, Open, PeerClose, Reader, Rng, Scenario, Shrink, Stall, Told,
};
use xsend_tcp::{Event, KeepAlive, Outcome, TimeOut, TimeOutCause};

/// From the start or half way, with loss or without, told by whomever: the rest arrives in smaller segments.
#[test]
fn a_path_that_narrows_gets_smaller_segments() {
    for told in [Told::ByRouter, Told::ByOldRouter, Told::ByDevice] {
        let reports = deliver_all(0..60, |seed| {
            let mut rng = Rng::new(seed).fork(0x177);
            let mut scenario = scenario(1_500_000);
            scenario.seed = seed;
            let at = rng.pick([0, 30, 60, 100, 150]);
            scenario.narrows = Some(Narrows {
                at: Duration::from_millis(at),
                mtu: rng.pick([1499, 1492, 1280, 1006, 800]),
                told,
            });
            scenario.peer.sack = rng.chance(0.7);
            scenario.peer.timestamps = rng.chance(0.7);
            scenario.peer.bytes = rng.pick([0, 100_000]);
            scenario.open = rng.pick([Open::Engine, Open::Peer]);
            let loss = rng.pick([0.0, 0.0, 0.01, 0.05]);
            scenario.link = Link::symmetric(Direction { loss, ..Direction::default() });
            scenario
        });
        for report in &reports {
            let shrunk = report.events.iter().any(|event| matches!(event, Event::SegmentSize(_)));
            // What the device tells before the handshake is just what there is.
            assert!(shrunk || told == Told::ByDevice, "seed {}: {:?}", report.seed, report.events);
            assert!(report.info.smss < 1460, "seed {}", report.seed);
        }
        assert!(told == Told::ByDevice || reports.iter().all(|report| report.too_long > 0));
        assert!(reports.iter().map(|report| report.splits).sum::<u64>() > 100);
    }
}

/// It costs no congestion window: what is dropped for its size says nothing of the path's load.
#[test]
fn a_narrow_path_known_from_the_first_segment_costs_no_window() {
    let mut scenario = scenario(500_000);
    scenario.link.forward.queue_bytes = 8 << 20;
    scenario.narrows = Some(Narrows { at: Duration::ZERO, mtu: 1000, told: Told::ByRouter });
    let report = deliver(&scenario);
    assert_eq!((report.info.timeouts, report.info.recoveries), (0, 0));
    assert_eq!((report.info.smss, report.info.too_big_obeyed), (1000 - 52, 1));
    assert_eq!(report.info.ssthresh, u32::MAX);
    assert_eq!(report.too_long, 10, "the initial window, and nothing after it");
}

/// Half way it takes one time-out to believe the router, since larger segments got through before, and no more.
#[test]
fn a_path_that_narrows_half_way_costs_one_time_out() {
    let mut scenario = scenario(3_000_000);
    scenario.link.forward.queue_bytes = 8 << 20;
    scenario.narrows = Some(Narrows { at: Duration::from_millis(150), mtu: 1000, told: Told::ByRouter });
    let report = deliver(&scenario);
    assert_eq!((report.info.timeouts, report.info.recoveries), (1, 0));
    assert_eq!(report.info.ssthresh, u32::MAX);
    assert_eq!(report.info.smss, 1000 - 52);
}

/// The path carries less than the least that is believed: the transfer fails, in bounded time.
#[test]
fn a_path_too_narrow_for_anything_ends_in_an_error() {
    let mut scenario = scenario(100_000);
    scenario.narrows = Some(Narrows { at: Duration::ZERO, mtu: 300, told: Told::ByRouter });
    scenario.tcp.user_timeout = Some(SECOND * 20);
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    assert_eq!(report.time_out.map(|why| why.cause), Some(TimeOutCause::UserTimeout));
    assert!(report.closed_at.is_some_and(|at| at < SECOND * 40));
}

/// The window's edge moves back over data in flight (RFC 9293, 3.8.6): what was dropped goes again when there is room.
#[test]
fn a_window_taken_back_is_survived() {
    let reports = deliver_all(0..120, |seed| {
        let mut rng = Rng::new(seed).fork(0x5a);
        let mut scenario = scenario(600_000);
        scenario.seed = seed;
        scenario.peer.window_bytes = rng.pick([20_000, 100_000, 1 << 20]);
        scenario.peer.sack = rng.chance(0.7);
        scenario.peer.shrink = Some(Shrink {
            after_bytes: rng.below(400_000),
            left_bytes: rng.pick([0, 0, 1, 700, 5_000]),
            pause: Duration::from_millis(rng.pick([50, 1_000, 30_000])),
        });
        scenario.peer.bytes = rng.pick([0, 50_000]);
        let loss = rng.pick([0.0, 0.0, 0.02]);
        scenario.link = Link::symmetric(Direction { loss, ..Direction::default() });
        scenario
    });
    assert!(reports.iter().filter(|report| report.retransmits > 0).count() > 30);
}

/// Taken back for good, but answering every probe: only a user timeout ends it, and that on time.
#[test]
fn a_window_taken_back_for_good_ends_with_the_user_timeout() {
    for left_bytes in [0, 100] {
        let mut scenario = scenario(600_000);
        scenario.peer.shrink = Some(Shrink { after_bytes: 100_000, left_bytes, pause: ENDLESS });
        scenario.tcp.user_timeout = Some(SECOND * 60);
        let report = lawful(&scenario);
        assert_eq!(report.outcome, Some(Outcome::TimedOut));
        assert_eq!(report.time_out.map(|why| why.cause), Some(TimeOutCause::UserTimeout));
        let at = report.closed_at.expect("it has ended");
        assert!(at > SECOND * 55 && at < SECOND * 130, "{at:?}");
    }
}

/// A zero window that stays shut though every probe is answered.
#[test]
fn a_window_that_stays_shut_ends_with_the_user_timeout() {
    let mut scenario = scenario(500_000);
    scenario.peer.window_bytes = 30_000;
    scenario.peer.reader = Reader { rate: None, stalls: vec![Stall { after_bytes: 0, pause: ENDLESS }] };
    scenario.tcp.user_timeout = Some(SECOND * 60);
    let report = lawful(&scenario);
    assert_eq!(report.time_out.map(|why| why.cause), Some(TimeOutCause::UserTimeout));
    let at = report.closed_at.expect("it has ended");
    assert!(at > SECOND * 55 && at < SECOND * 70, "{at:?}");
}

/// Reneging at every chance, under loss, whoever opened and whatever else goes on (RFC 2018, 8).
#[test]
fn a_peer_that_forgets_at_every_chance_gets_everything() {
    let reports = deliver_all(0..60, |seed| {
        let mut scenario = scenario(100_000);
        scenario.seed = seed;
        scenario.peer.reneging = 0.5;
        scenario.peer.bytes = if seed & 1 == 0 { 30_000 } else { 0 };
        scenario.open = if seed & 2 == 0 { Open::Engine } else { Open::Peer };
        scenario.link = Link::symmetric(Direction { loss: 0.03, ..Direction::default() });
        scenario
    });
    assert!(reports.iter().map(|report| report.peer.reneged).sum::<u64>() > 200);
    assert!(reports.iter().map(|report| report.info.renegings).sum::<u64>() > 10);
}

/// Forged segments and ICMP errors, out of window, on connections that the peer opened too (RFC 5961, RFC 5927).
#[test]
fn forgeries_achieve_nothing_whoever_opened() {
    let reports = deliver_all(0..90, |seed| {
        let mut scenario = scenario(200_000);
        scenario.seed = seed;
        scenario.intrusions = Some(Duration::from_millis(2));
        scenario.open = [Open::Engine, Open::Peer, Open::Both(Duration::from_millis(5))][(seed % 3) as usize];
        scenario.peer.bytes = if seed & 1 == 0 { 100_000 } else { 0 };
        scenario.peer.timestamps = seed & 2 == 0;
        let loss = if seed & 4 == 0 { 0.0 } else { 0.02 };
        scenario.link = Link::symmetric(Direction { loss, ..Direction::default() });
        scenario
    });
    for report in &reports {
        let info = report.info;
        assert_eq!((info.too_big_obeyed, info.soft_errors), (0, 0), "seed {}", report.seed);
        // At most one each half a second (RFC 5961 section 7), and one at the start.
        let challenges = 2 + 2 * report.finished_at.as_secs();
        assert!(info.challenge_acks <= challenges, "{} in {:?}", info.challenge_acks, report.finished_at);
    }
    assert!(reports.iter().map(|report| report.info.too_big_ignored).sum::<u64>() > 50);
    assert!(reports.iter().map(|report| report.info.challenge_acks).sum::<u64>() > 50);
}

/// Both ends have said what they had to, and stay open.
fn idle() -> Scenario {
    let mut scenario = scenario(10_000);
    scenario.app.close = AppClose::AfterPeer;
    scenario.peer.bytes = 10_000;
    scenario.peer.close = PeerClose::ResetAt(u64::MAX);
    scenario.time_limit = SECOND * 100_000;
    scenario
}

#[test]
fn a_peer_that_vanishes_while_nothing_is_said_is_found_out_by_keep_alive() {
    for (open, user_timeout) in [(Open::Engine, None), (Open::Peer, None), (Open::Engine, Some(SECOND * 100))]
    {
        let mut scenario = idle();
        scenario.open = open;
        scenario.tcp.keep_alive = Some(KeepAlive { idle: SECOND * 60, interval: SECOND * 5, probes: 4 });
        scenario.tcp.user_timeout = user_timeout;
        let outage = SECOND * 1000..ENDLESS;
        (scenario.link.forward.outages, scenario.link.back.outages) = (vec![outage.clone()], vec![outage]);
        let report = lawful(&scenario);
        assert_eq!(report.outcome, Some(Outcome::TimedOut));
        let cause = if user_timeout.is_some() { TimeOutCause::UserTimeout } else { TimeOutCause::KeepAlive };
        assert_eq!(report.time_out, Some(TimeOut { cause, soft_error: None }));
        // Answered each time before that, and then no longer than it takes.
        let at = report.closed_at.expect("it has ended");
        assert!(at > SECOND * 1000 && at <= SECOND * (1000 + 61 + 100), "{at:?}");
        assert!((16..40).contains(&report.info.keep_alive_probes), "{}", report.info.keep_alive_probes);
    }
}

/// Linux's times: two hours, then nine probes 75 s apart.
#[test]
fn keep_alive_by_default_takes_two_hours_and_eleven_minutes() {
    let mut scenario = idle();
    scenario.tcp.keep_alive = Some(KeepAlive::default());
    scenario.link.forward.outages = vec![SECOND * 10..ENDLESS];
    let report = lawful(&scenario);
    let at = report.closed_at.expect("it has ended");
    assert!(at >= SECOND * (7200 + 9 * 75) && at < SECOND * (7210 + 9 * 75), "{at:?}");
}

/// Keep-alive neither ends nor disturbs a connection whose peer is there, however bad the line.
#[test]
fn keep_alive_harms_nobody() {
    deliver_all(0..40, |seed| {
        let mut scenario = scenario(20_000);
        scenario.seed = seed;
        scenario.app.write_rate = Some(1_000);
        scenario.tcp.keep_alive = Some(KeepAlive {
            idle: Duration::from_millis(300),
            interval: Duration::from_millis(200),
            probes: 20,
        });
        scenario.peer.bytes = 5_000;
        scenario.link = Link::symmetric(Direction { loss: 0.1, ..Direction::default() });
        scenario
    });
}

/// The line is cut in the midst of data both ways, for good: an error, its cause, and every frame back.
#[test]
fn a_peer_that_vanishes_in_the_midst_of_it_is_reported() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed).fork(0xfa);
        let mut scenario = scenario(20_000_000);
        scenario.seed = seed;
        scenario.peer.bytes = 20_000_000;
        scenario.open = rng.pick([Open::Engine, Open::Peer]);
        scenario.tcp.user_timeout = Some(SECOND * 30);
        let outage = Duration::from_millis(100) + rng.up_to(SECOND)..ENDLESS;
        (scenario.link.forward.outages, scenario.link.back.outages) = (vec![outage.clone()], vec![outage]);
        let report = lawful(&scenario);
        assert_eq!(report.outcome, Some(Outcome::TimedOut), "seed {seed}");
        assert_eq!(report.time_out.map(|why| why.cause), Some(TimeOutCause::UserTimeout));
        assert_eq!(report.frames_missing, 0);
        assert!(report.closed_at.is_some_and(|at| at < SECOND * 40), "{:?}", report.closed_at);
    }
}
