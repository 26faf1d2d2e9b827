//! Interrupted and killed transfers: what arrived is a prefix, nothing is left on the interface, and nobody else who
//! uses it notices.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use xsend_testkit::receiver::{Behaviour, End, Options, Received};
use xsend_testkit::scene::{DRIVES, Drive, SOON};
use xsend_testkit::{Finished, Pair, Payload, Receiver, Scene, payload, require_root, xdp_program};

const LEN: u64 = 4 << 30;
const MIDDLE: u64 = 16 << 20;

fn large(scene: &Scene) -> PathBuf {
    let file = scene.scratch.file("payload");
    Payload::new(1, LEN).write_sparse(&file).unwrap();
    file
}

/// Slow enough that the end is not reached before a signal is.
fn slow(scene: &Scene) -> Receiver {
    scene.receiver(Behaviour::Slow { chunk: 1 << 20, pause: Duration::from_millis(2) }).unwrap()
}

#[track_caller]
fn assert_prefix(received: &Received, file: &Path) {
    assert!(received.bytes >= MIDDLE && received.bytes < LEN, "{received:?}");
    let prefix = File::open(file).unwrap().take(received.bytes);
    assert_eq!(received.sha256, payload::sha256(prefix).unwrap(), "what arrived is not a prefix of the file");
}

#[track_caller]
fn assert_usable(scene: &Scene) {
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("again");
    let payload = Payload::new(2, 3_000_000);
    payload.write_to(&file).unwrap();
    let done = scene.send(Drive::Inline, &[], &file, receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "the interface is not usable again: {done}");
    assert_eq!(receiver.next(SOON).sha256, payload.sha256());
    scene.assert_left_as_found();
}

fn interrupted_by(signal: Signal, drive: Drive) {
    let scene = Scene::new().unwrap();
    let file = large(&scene);
    let receiver = slow(&scene);
    let send = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
    receiver.wait_for_bytes(MIDDLE, SOON);
    send.signal(signal);
    let done = send.wait(SOON);
    assert_eq!(done.code, Some(130), "{drive:?}: {done}");
    assert!(!done.stderr.contains("panicked"), "{done}");
    scene.assert_left_as_found();
    let received = receiver.next(SOON);
    assert!(matches!(received.end, End::Fin | End::Reset), "{drive:?}: {received:?}");
    assert_prefix(&received, &file);
    assert_usable(&scene);
}

#[test]
fn an_interrupt_in_the_middle_closes_cleanly() {
    require_root!();
    for drive in DRIVES {
        interrupted_by(Signal::SIGINT, drive);
    }
}

#[test]
fn a_termination_in_the_middle_closes_cleanly() {
    require_root!();
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        DRIVES.into_iter().for_each(|drive| interrupted_by(signal, drive));
    }
}

#[test]
fn an_interrupt_while_the_window_is_shut_ends_in_bounded_time() {
    require_root!();
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let file = large(&scene);
        let receiver = scene
            .receiver(Options {
                behaviour: Behaviour::Stall(Duration::from_secs(20)),
                receive_buffer: Some(16 << 10),
                ..Options::default()
            })
            .unwrap();
        let send = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
        thread::sleep(Duration::from_secs(2));
        send.signal(Signal::SIGINT);
        // The FIN cannot be delivered; a reset ends it well before the window opens.
        let done = send.wait(Duration::from_secs(15));
        assert_eq!(done.code, Some(130), "{drive:?}: {done}");
        scene.assert_left_as_found();
        let received = receiver.next(SOON);
        assert_eq!(received.end, End::Reset, "{drive:?}: {received:?}");
    }
}

#[test]
fn an_interrupt_before_the_connection_is_there() {
    require_root!();
    for drive in DRIVES {
        let scene = Scene::with(Pair::builder().silent_neighbour()).unwrap();
        let file = large(&scene);
        let to = scene.pair.silent_neighbour(9000);
        let mut send = scene.start_send(drive, &[], &file, to).unwrap();
        thread::sleep(Duration::from_secs(1));
        assert!(send.is_running(), "ended by itself: {:?}", send.stderr());
        send.signal(Signal::SIGINT);
        let done = send.wait(SOON);
        assert_eq!(done.code, Some(130), "{drive:?}: {done}");
        scene.assert_left_as_found();
    }
}

#[test]
fn a_kill_in_the_middle_leaves_nothing_behind() {
    require_root!();
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let file = large(&scene);
        for _ in 0..3 {
            let receiver = slow(&scene);
            let send = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
            receiver.wait_for_bytes(MIDDLE, SOON);
            scene.assert_undisturbed();
            let (namespace, link) = (&scene.pair.sender, &scene.pair.sender_link);
            assert!(xdp_program(namespace, link).unwrap().is_some(), "no program to be left behind");
            send.signal(Signal::SIGKILL);
            let done = send.wait(SOON);
            assert_eq!(done.signal, Some(9), "{done}");
            // At once: the kernel let go of everything when the process ended.
            scene.assert_left_as_found();
            assert_usable(&scene);
        }
    }
}

/// From before the program has begun to the middle of the transfer.
const MOMENTS_MS: [u64; 14] = [0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 50, 70, 100, 200];

/// Sends the signal at each of the moments; `as_it_should` says whether the program ended so.
fn ended_at_any_moment(signal: Signal, as_it_should: impl Fn(&Finished) -> bool) {
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let file = large(&scene);
        for moment in MOMENTS_MS {
            let receiver = slow(&scene);
            let send = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
            thread::sleep(Duration::from_millis(moment));
            send.signal(signal);
            let done = send.wait(SOON);
            assert!(as_it_should(&done), "{drive:?}, after {moment} ms: {done}");
            scene.assert_left_as_found();
        }
        assert_usable(&scene);
    }
}

#[test]
fn an_interrupt_at_any_moment_leaves_nothing_behind() {
    require_root!();
    ended_at_any_moment(Signal::SIGINT, |done| {
        // Before it has asked for them, a signal does what it does to every program.
        let untouched = done.signal == Some(Signal::SIGINT as i32) && done.stdout.is_empty();
        done.code == Some(130) || untouched
    });
}

#[test]
fn a_kill_at_any_moment_leaves_nothing_behind() {
    require_root!();
    ended_at_any_moment(Signal::SIGKILL, |done| done.signal == Some(Signal::SIGKILL as i32));
}
