//! What takes its time: five gigabytes, past the end of the sequence space, and a window that stays shut.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::thread;
use std::time::Duration;

use xsend_testkit::receiver::{Behaviour, End, Options};
use xsend_testkit::scene::{DRIVES, Drive, SOON};
use xsend_testkit::{Payload, Process, Scene, capture, payload, require_root};

#[test]
fn five_gigabytes_pass_the_end_of_the_sequence_space() {
    require_root!();
    const LEN: u64 = 5 << 30;
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(5, LEN).write_sparse(&file).unwrap();
    let send = scene.start_send(Drive::Inline, &["--json"], &file, receiver.addr()).unwrap();
    let expected = payload::sha256_file(&file).unwrap();
    // Even a tenth of the usual rate is done by then.
    let done = send.wait(Duration::from_secs(300));
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(done.json()["end"]["sum_sent"]["bytes"].as_u64(), Some(LEN), "{done}");
    let received = receiver.next(SOON);
    assert_eq!((received.bytes, received.end, received.sha256), (LEN, End::Fin, expected));
    scene.assert_left_as_found();
}

/// Longer than any retransmission time-out would forgive if probing were taken for loss, and real time: the peer is
/// the kernel, which has no other clock.
const SHUT: Duration = Duration::from_secs(30);

#[test]
fn a_window_shut_for_thirty_seconds_is_waited_out() {
    require_root!();
    const LEN: u64 = 2 << 20;
    // Side by side: the time is the same for both.
    thread::scope(|scope| {
        for drive in DRIVES {
            scope.spawn(move || {
                let scene = Scene::new().unwrap();
                let receiver = scene
                    .receiver(Options {
                        behaviour: Behaviour::Stall(SHUT),
                        receive_buffer: Some(16 << 10),
                        ..Options::default()
                    })
                    .unwrap();
                let (file, pcap) = (scene.scratch.file("payload"), scene.scratch.file("frames.pcapng"));
                let payload = Payload::new(30, LEN);
                payload.write_to(&file).unwrap();
                let options = ["--pcap", &pcap.to_string_lossy()];
                let done =
                    scene.start_send(drive, &options, &file, receiver.addr()).unwrap().wait(SHUT + SOON);
                assert_eq!(done.code, Some(0), "{drive:?}: {done}");
                assert!(done.elapsed >= SHUT, "ended before the receiver read anything: {done}");
                let received = receiver.next(SOON);
                assert_eq!(
                    (received.bytes, received.end, received.sha256),
                    (LEN, End::Fin, payload.sha256())
                );
                scene.assert_left_as_found();

                // It was the window, and it was asked again and again, further and further apart: RFC 9293 3.8.6.1.
                let shut = capture::matching(&pcap, "tcp.analysis.zero_window").unwrap();
                assert!(shut.len() >= 3, "{drive:?}: the window was shut {} times", shut.len());
            });
        }
    });
}

#[test]
fn a_slow_pipe_is_sent_as_it_comes() {
    require_root!();
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let receiver = scene.receiver(Behaviour::Drain).unwrap();
        let command = scene.send_command(drive, &[], "-".as_ref(), receiver.addr());
        let mut send = Process::spawn_piped(command).unwrap();
        let mut stdin = send.stdin().unwrap();
        let payload = Payload::new(11, u64::MAX);
        let mut sent = 0;
        // A byte, a little, a segment, more than a pipe holds; each arrives while the pipe stays open.
        for len in [1_u64, 10, 1448, 1449, 200_000, 3] {
            let mut bytes = vec![0; len as usize];
            payload.fill(sent, &mut bytes);
            stdin.write_all(&bytes).unwrap();
            sent += len;
            receiver.wait_for_bytes(sent, SOON);
            thread::sleep(Duration::from_millis(300));
        }
        // And small pieces at a pace.
        for _ in 0..200 {
            let mut bytes = [0; 997];
            payload.fill(sent, &mut bytes);
            stdin.write_all(&bytes).unwrap();
            sent += 997;
            thread::sleep(Duration::from_millis(5));
        }
        drop(stdin);
        let done = send.wait(SOON);
        assert_eq!(done.code, Some(0), "{drive:?}: {done}");
        let received = receiver.next(SOON);
        let expected = Payload::new(11, sent).sha256();
        assert_eq!((received.bytes, received.end, received.sha256), (sent, End::Fin, expected), "{drive:?}");
        scene.assert_left_as_found();
    }
}

#[test]
fn an_empty_pipe_is_an_empty_stream() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    // Standard input is /dev/null.
    let done = scene.send(Drive::Inline, &[], "-", receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    let received = receiver.next(SOON);
    assert_eq!((received.bytes, received.end), (0, End::Fin));
    scene.assert_left_as_found();
}
