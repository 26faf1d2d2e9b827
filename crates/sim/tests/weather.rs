//! Random bad weather, many seeds: loss from 0.1 to 10 % each way, reordering, duplication, corruption.
//! Every run must deliver every byte and close cleanly.

mod common;

use std::time::Duration;

use common::{bad_weather, deliver_all, odd_peer, odd_ring, some_bytes};
use xsend_sim::{AppClose, PeerClose, Reader, Stall};

/// That the weather was bad is part of the claim.
#[test]
fn one_way_in_bad_weather() {
    let reports = deliver_all(0..600, |seed| bad_weather(seed).0);
    let total = |count: fn(&xsend_sim::Fates) -> u64| -> u64 {
        reports.iter().map(|report| count(&report.forward) + count(&report.back)).sum()
    };
    assert!(total(|fates| fates.lost) > 1000);
    assert!(total(|fates| fates.reordered) > 1000);
    assert!(total(|fates| fates.duplicated) > 500);
    assert!(total(|fates| fates.corrupted) > 100);
    assert!(total(|fates| fates.overflowed) > 10);
    assert!(reports.iter().map(|report| report.retransmits).sum::<u64>() > 1000);
}

#[test]
fn both_ways_in_bad_weather() {
    deliver_all(1000..1500, |seed| {
        let (mut scenario, mut rng) = bad_weather(seed);
        scenario.peer.bytes = some_bytes(&mut rng, 200_000);
        scenario.peer.ragged = rng.chance(0.5);
        scenario.peer.close = rng.pick([PeerClose::AfterRemote, PeerClose::AfterSending]);
        scenario.app.close = match scenario.peer.close {
            PeerClose::AfterSending => rng.pick([AppClose::AfterWriting, AppClose::AfterPeer]),
            _ => AppClose::AfterWriting,
        };
        scenario.tcp.recv_window_bytes = rng.pick([8_000, 65_535, 131_072, 1 << 20]);
        scenario
    });
}

#[test]
fn to_odd_peers_in_bad_weather() {
    deliver_all(2000..2500, |seed| {
        let (mut scenario, mut rng) = bad_weather(seed);
        scenario.peer = odd_peer(&mut rng);
        scenario.app.bytes = some_bytes(&mut rng, 100_000);
        scenario.app.ragged = rng.chance(0.3);
        if rng.chance(0.5) {
            scenario.peer.bytes = some_bytes(&mut rng, 50_000);
        }
        if rng.chance(0.5) {
            let pause = Duration::from_millis(rng.pick([100, 2_000, 20_000]));
            let after_bytes = rng.below(scenario.app.bytes + 1);
            let rate = rng.chance(0.3).then_some(1 << 20);
            scenario.peer.reader = Reader { rate, stalls: vec![Stall { after_bytes, pause }] };
        }
        scenario
    });
}

#[test]
fn through_odd_rings_in_bad_weather() {
    deliver_all(3000..3400, |seed| {
        let (mut scenario, mut rng) = bad_weather(seed);
        scenario.ring = odd_ring(&mut rng);
        scenario.app.send_buffer_bytes = rng.pick([3_000, 50_000, 4 << 20]);
        if rng.chance(0.3) {
            scenario.peer = odd_peer(&mut rng);
        }
        if rng.chance(0.5) {
            scenario.peer.bytes = some_bytes(&mut rng, 50_000);
        }
        scenario
    });
}
