//! Both families arrive whole, on clean links and on bad ones.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::{DRIVES, SOON};
use xsend_testkit::{Impairments, Link, Pair, Payload, Probability, Receiver, Scene, require_root};

/// Sends `len` bytes to each address of the receiver, both ways driven.
#[track_caller]
fn arrives_whole(scene: &Scene, len: u64) {
    let pair = &scene.pair;
    let addresses: [IpAddr; 2] = [pair.receiver_addr, pair.receiver_addr_v6.unwrap()];
    let file = scene.scratch.file("payload");
    for (seed, (to, drive)) in
        addresses.into_iter().flat_map(|to| DRIVES.map(|drive| (to, drive))).enumerate()
    {
        let receiver = Receiver::start(&pair.receiver, to, Behaviour::Drain).unwrap();
        let payload = Payload::new(seed as u64, len);
        payload.write_to(&file).unwrap();
        let done = scene.send(drive, &["--json"], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "to {to}, {drive:?}: {done}");
        let received = receiver.next(SOON);
        assert_eq!(received.end, End::Fin, "to {to}, {drive:?}");
        assert_eq!(received.sha256, payload.sha256(), "to {to}, {drive:?}");
    }
    scene.assert_left_as_found();
}

#[test]
fn both_families_arrive_whole() {
    require_root!();
    let scene = Scene::with(Pair::over(Link::both(Impairments::default()))).unwrap();
    arrives_whole(&scene, 3_000_001);
}

#[test]
fn both_families_arrive_whole_over_a_link_that_loses_doubles_reorders_and_corrupts() {
    require_root!();
    let often = |percent: f64| Probability::percent(percent);
    let bad = Impairments {
        delay: Duration::from_millis(2),
        loss: often(1.0),
        reorder: often(1.0),
        duplicate: often(1.0),
        corrupt: often(0.5),
        ..Impairments::default()
    };
    let scene = Scene::with(Pair::over(Link::both(bad).seed(7))).unwrap();
    arrives_whole(&scene, 1_000_001);
}
