//! What holds for every run: sameness, rates that follow from the link, frames that come back.

mod common;

use std::time::Duration;

use common::{bad_weather, deliver, deliver_all, lawful, odd_ring};
use xsend_sim::{Direction, Link, Scenario};

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..10 {
        let (scenario, _) = bad_weather(seed);
        let (one, two) = (scenario.run(), scenario.run());
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        assert_eq!((one.finished_at, one.info), (two.finished_at, two.info), "seed {seed}");
        // Being watched changes nothing.
        assert_eq!(one.trace_hash, scenario.run_traced(1000).trace_hash, "seed {seed}");
        let other = Scenario { seed: seed + 1, ..scenario.clone() };
        assert_ne!(one.trace_hash, other.run().trace_hash, "seed {seed}");
    }
}

/// Without loss the link is filled, or the window is: goodput is what the smaller of them allows.
#[test]
fn a_clean_link_is_filled() {
    let base = |rate_bits: u64, rtt: Duration, window_bytes: u32, bytes: u64| {
        let direction = Direction {
            rate_bits: Some(rate_bits),
            delay: rtt / 2,
            queue_bytes: 64 << 20,
            ..Direction::default()
        };
        let mut scenario = Scenario { link: Link::symmetric(direction), ..Scenario::default() };
        scenario.app.bytes = bytes;
        scenario.app.send_buffer_bytes = 64 << 20;
        scenario.peer.window_bytes = window_bytes;
        scenario
    };
    // The link is the limit: 1448 of every 1514 bytes are payload.
    let report = deliver(&base(100_000_000, Duration::from_millis(20), 4 << 20, 20_000_000));
    let possible = 100e6 / 8.0 * 1448.0 / 1514.0;
    assert!(report.goodput() > 0.85 * possible, "{} of {possible}", report.goodput());
    assert!(report.goodput() <= 1.01 * possible);
    assert_eq!(report.retransmits, 0);
    // The window is the limit.
    let rtt = Duration::from_millis(50);
    let report = deliver(&base(1_000_000_000, rtt, 200_000, 10_000_000));
    let possible = 200_000.0 / rtt.as_secs_f64();
    assert!(report.goodput() > 0.75 * possible, "{} of {possible}", report.goodput());
    assert!(report.goodput() <= 1.01 * possible);
    assert_eq!(report.retransmits, 0);
}

/// A little loss costs something, more loss costs more, and SACK does better than its absence.
#[test]
fn loss_costs_goodput_and_sack_saves_some() {
    let goodput = |loss: f64, sack: bool| -> f64 {
        let mut scenario = Scenario::default();
        scenario.app.bytes = 3_000_000;
        scenario.link.forward.loss = loss;
        scenario.peer.sack = sack;
        let reports = deliver_all(0..8, |seed| Scenario { seed, ..scenario.clone() });
        reports.iter().map(|report| report.goodput()).sum()
    };
    let (clean, little, much) = (goodput(0.0, true), goodput(0.001, true), goodput(0.03, true));
    assert!(clean > little && little > 1.5 * much, "{clean} {little} {much}");
    let without = goodput(0.03, false);
    assert!(much > without, "{much} with SACK, {without} without");
}

/// Each lost segment is sent again about once: recovery does not flood.
#[test]
fn retransmissions_match_losses() {
    let reports = deliver_all(0..20, |seed| {
        let mut scenario = Scenario { seed, ..Scenario::default() };
        scenario.app.bytes = 2_000_000;
        scenario.link.forward.loss = 0.01;
        scenario.link.forward.queue_bytes = 8 << 20;
        scenario
    });
    let lost: u64 = reports.iter().map(|report| report.forward.lost).sum();
    let again: u64 = reports.iter().map(|report| report.retransmits).sum();
    assert!(again >= lost, "{again} sent again, {lost} lost");
    assert!(again < 2 * lost, "{again} sent again, {lost} lost");
}

/// A single loss amid a stream is noticed by what follows it and repaired without a time-out, once.
#[test]
fn a_single_loss_is_repaired_without_a_time_out() {
    for sack in [true, false] {
        for timestamps in [true, false] {
            let mut scenario = Scenario::default();
            scenario.app.bytes = 2_000_000;
            scenario.link.forward.queue_bytes = 8 << 20;
            scenario.peer.sack = sack;
            scenario.peer.timestamps = timestamps;
            scenario.link.forward.drop_frames = vec![150];
            let report = deliver(&scenario);
            assert_eq!((report.forward.lost, report.retransmits), (1, 1), "sack {sack}");
            assert_eq!((report.info.timeouts, report.info.recoveries), (0, 1), "sack {sack}");
        }
    }
}

/// Neither a small ring nor late completions break anything; a frame in the ring is never sent again.
#[test]
fn late_completions_delay_and_nothing_else() {
    let reports = deliver_all(0..60, |seed| {
        let mut rng = xsend_sim::Rng::new(seed).fork(5);
        let mut scenario = Scenario { seed, ring: odd_ring(&mut rng), ..Scenario::default() };
        scenario.app.bytes = 200_000;
        scenario.link.forward.loss = 0.02;
        scenario.ring.hold = 0.02;
        scenario
    });
    assert!(reports.iter().all(|report| report.frames_given > 0));
}

/// A driver that never completes some frames: copies take their place, and everything arrives.
#[test]
fn stuck_frames_are_replaced() {
    let reports = deliver_all(0..30, |seed| {
        let mut scenario = Scenario { seed, ..Scenario::default() };
        scenario.app.bytes = 300_000;
        scenario.link.forward.loss = 0.03;
        scenario.ring.stuck = 0.03;
        scenario
    });
    assert!(reports.iter().map(|report| report.frames_replaced).sum::<u64>() > 5);
}

/// The sender's frames come back also when the run ends badly.
#[test]
fn frames_come_back_from_a_failed_connection() {
    for seed in 0..20 {
        let (mut scenario, mut rng) = bad_weather(seed);
        scenario.app.bytes = 5_000_000;
        let cut = rng.up_to(Duration::from_secs(3));
        scenario.link.forward.outages = vec![cut..Duration::from_secs(1 << 32)];
        scenario.peer.bytes = 500_000;
        let report = lawful(&scenario);
        assert_eq!(report.frames_missing, 0);
        assert!(report.outcome.is_some());
    }
}
