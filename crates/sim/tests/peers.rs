//! Peers of all kinds over a link that is good or mildly bad: each behaviour by itself.

mod common;

use std::time::Duration;

use common::{deliver, deliver_all};
use xsend_sim::{AppClose, Direction, Link, PeerClose, PeerConfig, Reader, Scenario, Stall};
use xsend_tcp::{Event, Outcome};

fn mild(loss: f64) -> Link {
    Link::symmetric(Direction { loss, ..Direction::default() })
}

fn scenario(bytes: u64, peer: PeerConfig) -> Scenario {
    let mut scenario = Scenario { peer, ..Scenario::default() };
    scenario.app.bytes = bytes;
    scenario
}

/// The sizes around one segment, and the empty stream.
#[test]
fn every_small_size_arrives() {
    for bytes in [0, 1, 2, 1447, 1448, 1449, 2895, 2896, 2897] {
        let report = deliver(&scenario(bytes, PeerConfig::default()));
        assert_eq!(report.delivered, bytes);
        assert_eq!(report.retransmits, 0, "{bytes} bytes over a clean link");
        assert_eq!(report.data_segments, bytes.div_ceil(1448));
    }
}

#[test]
fn events_come_in_order() {
    let report = deliver(&scenario(10_000, PeerConfig::default()));
    // One segment may bring the peer's FIN and the acknowledgment of ours.
    let [Event::Established, one, other, Event::Closed(Outcome::Finished)] = report.events[..] else {
        panic!("{:?}", report.events);
    };
    let between = [one, other];
    assert!(between.contains(&Event::PeerClosed) && between.contains(&Event::FinAcknowledged));
}

#[test]
fn a_peer_without_options_is_served() {
    for (timestamps, sack, window_scale, mss) in [
        (false, true, Some(7), Some(1460)),
        (true, false, Some(7), Some(1460)),
        (true, true, None, Some(1460)),
        (true, true, Some(7), None),
        (false, false, None, None),
    ] {
        let peer = PeerConfig { timestamps, sack, window_scale, mss, ..PeerConfig::default() };
        for loss in [0.0, 0.02] {
            let mut scenario = scenario(200_000, peer.clone());
            scenario.link = mild(loss);
            let report = deliver(&scenario);
            assert_eq!((report.info.timestamps, report.info.sack), (timestamps, sack));
            let smss = u32::from(mss.unwrap_or(536)) - if timestamps { 12 } else { 0 };
            assert_eq!(report.info.smss, smss);
        }
    }
}

/// Options that the engine itself does not offer are not used, whatever the peer knows.
#[test]
fn an_engine_without_options_is_served() {
    deliver_all(0..20, |seed| {
        let mut scenario = scenario(100_000, PeerConfig { bytes: 50_000, ..PeerConfig::default() });
        scenario.seed = seed;
        scenario.link = mild(0.02);
        scenario.tcp.timestamps = seed & 1 == 0;
        scenario.tcp.sack = seed & 2 == 0;
        scenario.tcp.window_scaling = seed & 4 == 0;
        scenario
    });
}

#[test]
fn small_windows_are_respected() {
    for (window_bytes, mss) in [(1, 1460), (10, 1460), (500, 1460), (1000, 1460), (1448, 1460), (4000, 536)] {
        let peer = PeerConfig { window_bytes, mss: Some(mss), window_scale: None, ..PeerConfig::default() };
        let bytes = if window_bytes < 100 { 200 } else { 30_000 };
        for loss in [0.0, 0.05] {
            let mut scenario = scenario(bytes, peer.clone());
            scenario.link = mild(loss);
            let report = deliver(&scenario);
            let fits = window_bytes >= report.info.smss;
            assert!(report.splits > 0 || fits, "nothing was split for a window of {window_bytes}");
        }
    }
}

/// Thirty seconds of zero window: probed, survived, and then finished. The probes are few: they back off.
#[test]
fn a_zero_window_is_outlasted() {
    for pause in [1, 30, 300].map(Duration::from_secs) {
        for after_bytes in [0, 1, 100_000] {
            let stalls = vec![Stall { after_bytes, pause }];
            let reader = Reader { rate: None, stalls };
            let peer = PeerConfig { window_bytes: 50_000, reader, ..PeerConfig::default() };
            let report = deliver(&scenario(300_000, peer));
            assert!(report.delivered_at.is_some_and(|at| at >= pause));
            let probes = report.info.window_probes;
            assert!((1..=15).contains(&probes), "{probes} probes in {pause:?}");
        }
    }
}

/// The ACK that opens the window again is lost: only a probe can find out.
#[test]
fn a_lost_window_update_is_found_by_a_probe() {
    let stalls = vec![Stall { after_bytes: 0, pause: Duration::from_secs(5) }];
    let reader = Reader { rate: None, stalls };
    let peer = PeerConfig { window_bytes: 20_000, reader, ..PeerConfig::default() };
    let mut scenario = scenario(100_000, peer);
    scenario.link.back.outages = vec![Duration::from_millis(4_900)..Duration::from_millis(5_100)];
    let report = deliver(&scenario);
    assert!(report.back.outage > 0, "nothing was lost");
}

#[test]
fn a_slow_reader_is_not_overrun() {
    let reader = Reader { rate: Some(50_000), stalls: Vec::new() };
    let peer = PeerConfig { window_bytes: 10_000, reader, ..PeerConfig::default() };
    deliver_all(0..10, |seed| {
        let mut scenario = scenario(200_000, peer.clone());
        scenario.seed = seed;
        scenario.link = mild(0.01);
        scenario
    });
}

/// The engine's own receive window, small and with a reader that stalls.
#[test]
fn the_engine_receives_as_slowly_as_its_application_reads() {
    deliver_all(0..40, |seed| {
        let peer = PeerConfig { bytes: 150_000, ragged: seed & 1 == 0, ..PeerConfig::default() };
        let mut scenario = scenario(20_000, peer);
        scenario.seed = seed;
        scenario.link = mild(if seed & 2 == 0 { 0.0 } else { 0.03 });
        scenario.tcp.recv_window_bytes = [4_000, 10_000, 70_000][(seed % 3) as usize];
        let pause = Duration::from_secs(7);
        let stalls = vec![Stall { after_bytes: 1, pause }, Stall { after_bytes: 80_000, pause }];
        scenario.app.reader = Reader { rate: (seed & 4 == 0).then_some(100_000), stalls };
        scenario
    });
}

/// A peer that forgets what it had reported must get it again (RFC 2018, 8).
#[test]
fn a_reneging_peer_gets_everything() {
    let reports = deliver_all(0..60, |seed| {
        let peer = PeerConfig { reneging: 0.05, ..PeerConfig::default() };
        let mut scenario = scenario(300_000, peer);
        scenario.seed = seed;
        scenario.link = mild(0.02);
        scenario
    });
    assert!(reports.iter().map(|report| report.peer.reneged).sum::<u64>() > 50);
}

#[test]
fn sequence_numbers_wrap() {
    for before in [1, 2, 1448, 1449, 50_000, 99_999, 100_000, 100_001] {
        for loss in [0.0, 0.03] {
            let mut scenario = scenario(100_000, PeerConfig { bytes: 30_000, ..PeerConfig::default() });
            scenario.iss = Some(0u32.wrapping_sub(before));
            scenario.peer.iss = 0u32.wrapping_sub(before / 4);
            scenario.timestamp_offset = Some(0u32.wrapping_sub(30));
            scenario.link = mild(loss);
            deliver(&scenario);
        }
    }
}

/// Half-close both ways round: the other direction still carries data.
#[test]
fn either_side_may_close_first() {
    for close in [AppClose::AfterWriting, AppClose::AfterPeer] {
        for loss in [0.0, 0.05] {
            let mut scenario = scenario(120_000, PeerConfig { bytes: 60_000, ..PeerConfig::default() });
            scenario.peer.close = PeerClose::AfterSending;
            scenario.app.close = close;
            scenario.app.write_rate = Some(100_000);
            scenario.link = mild(loss);
            deliver(&scenario);
        }
    }
}

/// Both FINs cross on the way.
#[test]
fn both_may_close_at_once() {
    deliver_all(0..60, |seed| {
        let mut scenario = scenario(1000, PeerConfig { bytes: 1000, ..PeerConfig::default() });
        scenario.seed = seed;
        scenario.peer.close = PeerClose::AfterSending;
        scenario.link = mild([0.0, 0.1, 0.2][(seed % 3) as usize]);
        scenario
    });
}

/// A slow pipe: many small segments with silence between.
#[test]
fn a_slow_writer_is_served() {
    for nodelay in [false, true] {
        let mut scenario = scenario(20_000, PeerConfig::default());
        scenario.app.write_rate = Some(10_000);
        scenario.app.ragged = true;
        scenario.tcp.nodelay = nodelay;
        scenario.link = mild(0.02);
        deliver(&scenario);
    }
}
