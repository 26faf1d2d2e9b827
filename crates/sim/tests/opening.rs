//! Every way in which a connection comes about, in bad weather and good.

mod common;

use std::time::Duration;

use common::{ENDLESS, bad_weather, deliver, deliver_all, lawful, odd_peer, some_bytes};
use xsend_sim::{AppClose, Direction, Link, Open, PeerClose, PeerEnd, Rng, Scenario};
use xsend_tcp::{Config, Event, Outcome, TimeOutCause};

/// Both ways, in bad weather, to any kind of peer; both ends try to connect for as long as it takes.
fn bad(seed: u64, open: Open) -> Scenario {
    let (mut scenario, mut rng) = bad_weather(seed);
    if rng.chance(0.5) {
        scenario.peer = odd_peer(&mut rng);
    }
    scenario.app.bytes = some_bytes(&mut rng, 150_000);
    scenario.peer.bytes = some_bytes(&mut rng, 60_000);
    scenario.peer.close = rng.pick([PeerClose::AfterRemote, PeerClose::AfterSending]);
    scenario.tcp.timestamps = rng.chance(0.8);
    scenario.tcp.sack = rng.chance(0.8);
    scenario.tcp.window_scaling = rng.chance(0.8);
    (scenario.tcp.syn_retries, scenario.tcp.syn_ack_retries) = (12, 12);
    scenario.open = open;
    scenario
}

#[test]
fn the_peer_opens_in_bad_weather() {
    let reports = deliver_all(0..300, |seed| bad(seed, Open::Peer));
    let lost: u64 = reports.iter().map(|report| report.forward.lost + report.back.lost).sum();
    assert!(lost > 500, "{lost}");
    assert!(reports.iter().all(|report| report.events.first() == Some(&Event::Established)));
}

#[test]
fn the_peer_opens_to_a_cookie_in_bad_weather() {
    deliver_all(10_000..10_300, |seed| {
        let mut scenario = bad(seed, Open::PeerToCookie);
        // Whoever connects to a cookie has to speak first.
        scenario.peer.bytes += 1;
        scenario
    });
}

#[test]
fn both_open_at_once_in_bad_weather() {
    let reports = deliver_all(20_000..20_300, |seed| {
        let mut rng = Rng::new(seed).fork(0x51);
        let mut scenario = bad(seed, Open::Engine);
        let delay = scenario.link.forward.delay.min(scenario.link.back.delay);
        scenario.open = Open::Both(rng.up_to(delay));
        scenario
    });
    assert!(reports.iter().all(|report| report.established_at.is_some()));
}

/// Loss so heavy that nearly every handshake needs several attempts, duplication and reordering so common that old
/// SYNs arrive late.
#[test]
fn handshakes_survive_what_they_can() {
    for (open, from) in [(Open::Peer, 0), (Open::Both(Duration::from_millis(3)), 1000)] {
        deliver_all(from..from + 200, |seed| {
            let direction = Direction {
                loss: 0.3,
                duplicate: 0.4,
                reorder: 0.5,
                reorder_delay: Duration::from_secs(2),
                ..Direction::default()
            };
            let mut scenario =
                Scenario { seed, open, link: Link::symmetric(direction), ..Scenario::default() };
            scenario.app.bytes = 5_000;
            scenario.peer.bytes = 5_000;
            (scenario.tcp.syn_retries, scenario.tcp.syn_ack_retries) = (20, 20);
            (scenario.tcp.retries, scenario.tcp.max_rto) = (40, Duration::from_secs(8));
            // TIME-WAIT must outlast the other side's attempts, or a reset ends what was complete.
            scenario.tcp.time_wait = Duration::from_secs(400);
            scenario.peer.close = [PeerClose::AfterRemote, PeerClose::AfterSending][(seed % 2) as usize];
            scenario
        });
    }
}

#[test]
fn what_was_agreed_on_is_the_same_whoever_opens() {
    for open in [Open::Engine, Open::Peer, Open::PeerToCookie, Open::Both(Duration::from_millis(1))] {
        for (timestamps, sack, scale) in [(true, true, Some(5)), (true, false, None), (true, true, None)] {
            let mut scenario = Scenario { open, ..Scenario::default() };
            scenario.peer.bytes = 50_000;
            scenario.peer.timestamps = timestamps;
            scenario.peer.sack = sack;
            scenario.peer.window_scale = scale;
            let report = deliver(&scenario);
            let info = report.info;
            assert_eq!((info.timestamps, info.sack, info.smss), (timestamps, sack, 1448), "{open:?}");
            assert_eq!(info.snd_wscale, scale.unwrap_or(0), "{open:?}");
            assert_eq!(info.rcv_wscale > 0, scale.is_some(), "{open:?}");
        }
    }
}

/// Both ways at once over one link, each with all that the link carries: acknowledgments ride on data.
#[test]
fn both_ways_at_full_rate() {
    for open in [Open::Engine, Open::Peer] {
        let direction = Direction {
            rate_bits: Some(50_000_000),
            delay: Duration::from_millis(5),
            ..Direction::default()
        };
        let mut scenario = Scenario { open, link: Link::symmetric(direction), ..Scenario::default() };
        scenario.app.bytes = 10_000_000;
        scenario.peer.bytes = 10_000_000;
        scenario.peer.close = PeerClose::AfterSending;
        // Twice what the link holds, so that no queue overflows.
        (scenario.tcp.recv_window_bytes, scenario.peer.window_bytes) = (125_000, 125_000);
        let report = deliver(&scenario);
        assert_eq!(report.retransmits, 0);
        let possible = 50e6 / 8.0 * 1448.0 / 1514.0;
        assert!(report.goodput() > 0.85 * possible, "{} of {possible} to the peer", report.goodput());
        // Every second segment of the peer's is acknowledged; most of that rides on data.
        let bare = report.segments - report.data_segments;
        assert!(bare < report.data_segments / 4, "{bare} of {} segments bare", report.segments);
        let closed = report.closed_at.expect("it is over");
        assert!(closed.as_secs_f64() < 1.3 * 10e6 / possible, "{closed:?} for both directions");
    }
}

#[test]
fn both_ways_byte_exact_under_loss() {
    deliver_all(30_000..30_100, |seed| {
        let mut rng = Rng::new(seed).fork(0xd0);
        let direction = Direction { loss: rng.fraction(0.0, 0.05), ..Direction::default() };
        let open = rng.pick([Open::Engine, Open::Peer, Open::Both(Duration::ZERO)]);
        let mut scenario = Scenario { seed, open, link: Link::symmetric(direction), ..Scenario::default() };
        scenario.app.bytes = 400_000;
        scenario.peer.bytes = 400_000;
        scenario.peer.ragged = rng.chance(0.3);
        scenario.tcp.recv_window_bytes = rng.pick([20_000, 131_072, 1 << 20]);
        scenario.app.close = rng.pick([AppClose::AfterWriting, AppClose::AfterPeer]);
        scenario.peer.close = PeerClose::AfterSending;
        scenario
    });
}

/// The peer's SYN arrives, and nothing else ever does: no connection is left behind, and nobody was told of one.
#[test]
fn an_accepted_syn_whose_sender_vanishes_is_given_up() {
    let mut scenario = Scenario { open: Open::Peer, ..Scenario::default() };
    scenario.link.back.outages = vec![Duration::from_micros(1)..ENDLESS];
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    assert_eq!(report.time_out.map(|why| why.cause), Some(TimeOutCause::Handshake));
    assert_eq!(report.established_at, None);
    assert_eq!(report.peer.end, PeerEnd::Open, "its acknowledgment is what was lost");
    let at = report.closed_at.expect("given up");
    assert!(at <= Duration::from_secs(64), "{at:?}");
}

/// The engine's answer never arrives: SYN-ACKs are as many as the configuration says, and one more for each SYN.
#[test]
fn unanswered_syn_acks_are_bounded() {
    let mut scenario = Scenario { open: Open::Peer, ..Scenario::default() };
    scenario.tcp = Config { syn_ack_retries: 2, ..Config::default() };
    scenario.link.forward.outages = vec![Duration::ZERO..ENDLESS];
    let report = lawful(&scenario);
    assert_eq!(report.outcome, Some(Outcome::TimedOut));
    let syns = report.back.entered;
    assert!((3..=2 + syns).contains(&report.segments), "{} answer {syns}", report.segments);
}
