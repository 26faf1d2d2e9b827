//! Peers that end a transfer early, or that are not there: exit status 1, one line that says why, the bytes that went,
//! and an interface as it was found.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use xsend_testkit::receiver::{Behaviour, Options};
use xsend_testkit::scene::{DRIVES, Drive, SOON};
use xsend_testkit::{Finished, Pair, Payload, Scene, require_root};

const LEN: u64 = 256 << 20;
const HALF: u64 = 8 << 20;

/// One line on standard error, no stack trace.
#[track_caller]
fn assert_one_line(done: &Finished) {
    assert_eq!(done.code, Some(1), "{done}");
    assert_eq!(done.stderr.trim_end().lines().count(), 1, "not one line: {done}");
    assert!(!done.stderr.contains("panicked"), "{done}");
}

/// Some number in the text from `low` to `high`, with or without a unit behind it.
fn mentions_bytes(text: &str, low: u64, high: u64) -> bool {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse::<u64>().ok())
        .any(|number| (low..=high).contains(&number))
}

fn ends_half_way(behaviour: Behaviour, words: &[&str]) {
    let scene = Scene::new().unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(1, LEN).write_sparse(&file).unwrap();
    for drive in DRIVES {
        let receiver = scene.receiver(behaviour).unwrap();
        let done = scene.send(drive, &[], &file, receiver.addr()).unwrap();
        assert_one_line(&done);
        let text = done.stderr.to_lowercase();
        assert!(words.iter().any(|word| text.contains(word)), "{drive:?}: says none of {words:?}: {done}");
        assert_eq!(receiver.next(SOON).bytes, HALF);
        // What the receiver took was acknowledged or nearly so; no more than the file can have gone.
        assert!(mentions_bytes(&done.stderr, HALF / 2, LEN - 1), "{drive:?}: bytes are not reported: {done}");
        scene.assert_left_as_found();

        // The same as one JSON document, with the bytes in it.
        let done = scene.send(drive, &["--json"], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(1), "{done}");
        let json = done.json();
        let bytes = json["end"]["sum_sent"]["bytes"].as_u64();
        assert!(bytes.is_some_and(|bytes| (HALF / 2..LEN).contains(&bytes)), "{done}");
        assert!(json["error"].as_str().is_some_and(|error| !error.is_empty()), "{done}");
        receiver.next(SOON);
        scene.assert_left_as_found();
    }
}

#[test]
fn a_receiver_that_closes_half_way() {
    require_root!();
    ends_half_way(Behaviour::CloseAfter(HALF), &["reset", "closed"]);
}

#[test]
fn a_receiver_that_resets_half_way() {
    require_root!();
    ends_half_way(Behaviour::ResetAfter(HALF), &["reset"]);
}

/// Sends a small file to where it cannot arrive.
#[track_caller]
fn fails(scene: &Scene, to: SocketAddr, words: &[&str]) {
    let file = scene.scratch.file("payload");
    Payload::new(1, 10_000).write_to(&file).unwrap();
    for drive in DRIVES {
        let done = scene.send(drive, &["--timeout", "3"], &file, to).unwrap();
        assert_one_line(&done);
        let text = done.stderr.to_lowercase();
        assert!(words.iter().any(|word| text.contains(word)), "{drive:?}: says none of {words:?}: {done}");
        scene.assert_left_as_found();
    }
}

#[test]
fn a_refused_port() {
    require_root!();
    let scene = Scene::new().unwrap();
    fails(&scene, scene.pair.receiver_at(9), &["refused"]);
}

#[test]
fn no_neighbour() {
    require_root!();
    let scene = Scene::new().unwrap();
    fails(&scene, scene.pair.absent_neighbour(9000), &["neighbour"]);
}

#[test]
fn no_route() {
    require_root!();
    let scene = Scene::new().unwrap();
    fails(&scene, SocketAddr::from(([203, 0, 113, 1], 9000)), &["route"]);
}

#[test]
fn a_peer_that_answers_nothing_is_given_up_in_time() {
    require_root!();
    let scene = Scene::with(Pair::builder().silent_neighbour()).unwrap();
    fails(
        &scene,
        scene.pair.silent_neighbour(9000),
        &["timed out", "no answer", "timeout", "did not answer"],
    );
}

#[test]
fn a_receiver_that_stalls_for_ever_is_given_up_when_asked() {
    require_root!();
    let scene = Scene::new().unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(1, LEN).write_sparse(&file).unwrap();
    let receiver = scene
        .receiver(Options {
            behaviour: Behaviour::Stall(SOON * 10),
            receive_buffer: Some(16 << 10),
            ..Options::default()
        })
        .unwrap();
    let done = scene.send(Drive::Inline, &["--user-timeout", "2"], &file, receiver.addr()).unwrap();
    assert_one_line(&done);
    scene.assert_left_as_found();
}
