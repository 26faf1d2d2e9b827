//! Outages, and ends that are not clean: each is survived or reported, in bounded time.

mod common;

use std::time::Duration;

use common::{ENDLESS, SECOND, deliver, deliver_all, lawful, scenario};
use xsend_sim::{AppClose, Direction, Link, PeerClose, PeerConfig, PeerEnd, Reader, Stall};
use xsend_tcp::{Outcome, State};

/// Outages below what the retries last are survived, wherever they strike and in whichever direction.
#[test]
fn short_outages_are_survived() {
    for (from, length) in [(0, 20), (0, 1), (1, 30), (1, 300), (2, 3)] {
        for (forward, back) in [(true, false), (false, true), (true, true)] {
            let mut scenario = scenario(3_000_000);
            scenario.link =
                Link::symmetric(Direction { rate_bits: Some(10_000_000), ..Direction::default() });
            let outage = SECOND * from..SECOND * (from + length);
            if forward {
                scenario.link.forward.outages.push(outage.clone());
            }
            if back {
                scenario.link.back.outages.push(outage);
            }
            let report = deliver(&scenario);
            assert!(report.forward.outage + report.back.outage > 0, "the outage met nothing");
        }
    }
}

#[test]
fn repeated_outages_are_survived() {
    deliver_all(0..30, |seed| {
        let mut scenario = scenario(1_000_000);
        scenario.seed = seed;
        let mut rng = xsend_sim::Rng::new(seed).fork(77);
        let outages: Vec<_> = (0..10)
            .map(|i| {
                let from = SECOND * i + rng.up_to(SECOND);
                from..from + rng.up_to(SECOND * 2)
            })
            .collect();
        let direction = Direction { rate_bits: Some(2_000_000), loss: 0.01, outages, ..Direction::default() };
        scenario.link = Link::symmetric(direction);
        scenario
    });
}

/// The line is cut for good: a typed error, after all retries and no later than they allow.
#[test]
fn an_endless_outage_ends_in_an_error() {
    for back_only in [false, true] {
        let mut scenario = scenario(10_000_000);
        scenario.link.back.outages = vec![SECOND / 2..ENDLESS];
        if !back_only {
            scenario.link.forward.outages = vec![SECOND / 2..ENDLESS];
        }
        let report = lawful(&scenario);
        assert_eq!(report.outcome, Some(Outcome::TimedOut));
        assert!(report.delivered < 10_000_000 && report.delivered > 0);
        let at = report.closed_at.expect("it has ended");
        // RFC 9293, 3.8.3: at least 100 s. With 15 doublings up to 120 s, no more than half an hour.
        assert!(at > SECOND * 100 && at < SECOND * 1800, "{at:?}");
    }
}

#[test]
fn a_user_timeout_ends_it_sooner() {
    let mut scenario = scenario(10_000_000);
    scenario.link.forward.outages = vec![SECOND / 2..ENDLESS];
    scenario.tcp.user_timeout = Some(SECOND * 10);
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    let at = report.closed_at.expect("it has ended");
    assert!(at > SECOND * 9 && at < SECOND * 30, "{at:?}");
}

#[test]
fn an_unanswered_connection_attempt_ends_in_an_error() {
    let mut scenario = scenario(1000);
    scenario.link.forward.outages = vec![Duration::ZERO..ENDLESS];
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    assert_eq!(report.established_at, None);
    assert_eq!(report.segments, 1 + u64::from(scenario.tcp.syn_retries));
}

#[test]
fn a_refused_connection_is_reported() {
    let mut scenario = scenario(1000);
    scenario.peer.refuses = true;
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::Refused));
    assert_eq!(report.established_at, None);
}

/// The peer vanishes while its window is shut: probes do not go on for ever.
#[test]
fn a_peer_that_vanishes_behind_a_zero_window_is_given_up() {
    let mut scenario = scenario(500_000);
    scenario.peer.window_bytes = 30_000;
    scenario.peer.reader = Reader { rate: None, stalls: vec![Stall { after_bytes: 0, pause: ENDLESS }] };
    scenario.link.back.outages = vec![SECOND * 20..ENDLESS];
    scenario.time_limit = Duration::from_secs(20_000);
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
}

/// The receiver goes away half way, with a reset or by closing: the sender is told, not left waiting.
#[test]
fn a_receiver_that_leaves_half_way_is_reported() {
    for close in [PeerClose::ResetAt(400_000), PeerClose::AtReceived(400_000)] {
        for loss in [0.0, 0.03] {
            for seed in 0..10 {
                let mut scenario = scenario(1_000_000);
                scenario.seed = seed;
                scenario.peer.close = close;
                scenario.link = Link::symmetric(Direction { loss, ..Direction::default() });
                let report = lawful(&scenario);
                assert_eq!(report.outcome, Some(Outcome::Reset), "seed {seed} {close:?}");
                assert_eq!(report.peer.end, PeerEnd::SentReset);
                assert!(report.delivered >= 400_000 && report.delivered < 1_000_000);
                assert!(report.info.acked_bytes < 1_000_000);
            }
        }
    }
}

/// Data that arrived before the peer's FIN is not lost when the peer leaves.
#[test]
fn what_the_peer_sent_before_it_left_is_delivered() {
    let mut scenario = scenario(1_000_000);
    scenario.peer =
        PeerConfig { bytes: 5_000, close: PeerClose::AtReceived(400_000), ..PeerConfig::default() };
    let report = lawful(&scenario);
    assert_eq!(report.received, 5_000);
    assert!(report.peer_closed);
}

#[test]
fn an_abort_resets_the_peer() {
    for at in [Duration::ZERO, Duration::from_millis(25), SECOND / 10] {
        let mut scenario = scenario(10_000_000);
        scenario.app.close = AppClose::AbortAt(at);
        let report = lawful(&scenario);
        assert_eq!(report.outcome, Some(Outcome::Aborted));
        assert_eq!(report.info.state, State::Closed);
        if report.established_at.is_some() {
            assert_eq!(report.peer.end, PeerEnd::GotReset);
        }
    }
}

/// The last ACK, the FIN, the FIN's ACK: whichever is lost, both ends get over it.
#[test]
fn losses_at_the_very_end_are_survived() {
    deliver_all(0..150, |seed| {
        let mut scenario = scenario(2_000);
        scenario.seed = seed;
        scenario.link = Link::symmetric(Direction { loss: 0.2, ..Direction::default() });
        scenario.tcp.syn_retries = 15;
        // TIME-WAIT must outlast the other side's attempts, or a reset ends what was complete.
        scenario.tcp.max_rto = SECOND * 8;
        scenario.tcp.time_wait = SECOND * 240;
        scenario.peer.close = [PeerClose::AfterRemote, PeerClose::AfterSending][(seed % 2) as usize];
        scenario
    });
}

/// The application is gone, the peer still talks: it gets a reset, and the engine does not wait for ever.
#[test]
fn a_peer_that_talks_to_nobody_is_reset() {
    let mut scenario = scenario(10_000);
    scenario.app.close = AppClose::LeaveAfterWriting;
    scenario.peer.bytes = 3_000_000;
    let report = lawful(&scenario);
    assert_eq!(report.delivered, 10_000);
    assert_eq!(report.peer.end, PeerEnd::GotReset);
    assert!(report.resets > 0);
}

#[test]
fn leaving_a_peer_that_has_nothing_to_say_is_a_clean_end() {
    let mut scenario = scenario(10_000);
    scenario.app.close = AppClose::LeaveAfterWriting;
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::Finished));
    assert_eq!((report.peer.end, report.delivered), (PeerEnd::Clean, 10_000));
}

/// Forged resets, SYNs, FINs and acknowledgments change nothing (RFC 5961).
#[test]
fn an_intruder_achieves_nothing() {
    deliver_all(0..40, |seed| {
        let mut scenario = scenario(200_000);
        scenario.seed = seed;
        scenario.intrusions = Some(Duration::from_millis(3));
        scenario.peer.bytes = if seed & 1 == 0 { 100_000 } else { 0 };
        scenario.peer.timestamps = seed & 2 == 0;
        let loss = if seed & 4 == 0 { 0.0 } else { 0.02 };
        scenario.link = Link::symmetric(Direction { loss, ..Direction::default() });
        scenario
    });
}
