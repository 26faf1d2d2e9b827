//! A file arrives whole, whatever its size, at receivers that are not ours and at `xsend sink`, and the interface is
//! left as it was found.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::{DRIVES, Drive, SOON, wait_for_listener};
use xsend_testkit::{Pair, Payload, Process, Scene, payload, require_root, xsend_command};

const PORT: u16 = 9000;

/// The payload of a full segment at MTU 1500 with timestamps is 1448 bytes.
const SIZES: [u64; 8] = [0, 1, 1447, 1448, 1449, 2 * 1448, 65_536, 1_000_003];

#[test]
fn files_around_a_segments_size_arrive_whole() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    for (number, (len, drive)) in SIZES.iter().flat_map(|len| DRIVES.map(|drive| (*len, drive))).enumerate() {
        let payload = Payload::new(number as u64, len);
        let file = scene.scratch.file("payload");
        payload.write_to(&file).unwrap();
        let done = scene.send(drive, &["--json"], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "{len} bytes, {drive:?}: {done}");
        assert_eq!(done.json()["end"]["sum_sent"]["bytes"].as_u64(), Some(len), "{done}");
        let received = receiver.next(SOON);
        assert_eq!((received.bytes, &received.end), (len, &End::Fin), "{len} bytes, {drive:?}");
        assert_eq!(received.sha256, payload.sha256(), "{len} bytes, {drive:?}");
        scene.assert_left_as_found();
    }
}

#[test]
fn a_larger_file_arrives_whole_both_ways_driven() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    let payload = Payload::new(64, 64 << 20);
    payload.write_to(&file).unwrap();
    for drive in DRIVES {
        let done = scene.send(drive, &["--json"], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "{drive:?}: {done}");
        let json = done.json();
        assert_eq!(json["end"]["sum_sent"]["bytes"].as_u64(), Some(64 << 20), "{done}");
        let ours = &json["end"]["xsend"];
        let frames = ours["frames"].as_u64().unwrap_or(0);
        assert!(frames >= (64 << 20) / 1448, "fewer frames than segments: {done}");
        // Receivers ask for none of this to be lost: nothing here drops frames but a full receive queue.
        assert_eq!(ours["lost_cork_wakeups"].as_u64(), Some(0), "{done}");
        let received = receiver.next(SOON);
        assert_eq!((received.bytes, &received.end), (64 << 20, &End::Fin), "{drive:?}");
        assert_eq!(received.sha256, payload.sha256(), "{drive:?}");
        scene.assert_left_as_found();
    }
}

#[test]
fn several_files_are_one_stream_in_their_order() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    // Each ends in a segment that is not full, the next begins behind it while that may still grow.
    let lens: [&[u64]; 3] = [&[100_001, 77], &[1, 1447, 1449, 5000, 0, 200_000, 3], &[77; 12]];
    for (lens, options) in
        lens.iter().flat_map(|lens| [&[][..], &["--cork"], &["--nodelay"]].map(|o| (lens, o)))
    {
        let files: Vec<_> = (0..lens.len()).map(|n| scene.scratch.file(&format!("part-{n}"))).collect();
        for (number, (file, len)) in files.iter().zip(*lens).enumerate() {
            Payload::new(number as u64, *len).write_to(file).unwrap();
        }
        let whole: Vec<u8> = files.iter().flat_map(|file| fs::read(file).unwrap()).collect();
        for drive in DRIVES {
            let mut command = scene.xsend(&["send"]);
            command.args(drive.options()).args(options).args(&files).arg(receiver.addr().to_string());
            let done = Process::spawn(command).unwrap().wait(SOON);
            assert_eq!(done.code, Some(0), "{done}");
            let received = receiver.next(SOON);
            assert_eq!(received.bytes, whole.len() as u64, "{done}");
            assert_eq!(received.sha256, payload::sha256(&whole[..]).unwrap(), "{done}");
        }
    }
    scene.assert_left_as_found();
}

#[test]
fn the_result_begins_with_the_effective_settings() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(1, 10_000).write_to(&file).unwrap();
    let done = scene.send(Drive::Inline, &[], &file, receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    let first = done.stdout.lines().next().unwrap_or("");
    assert!(first.split_whitespace().next().is_some_and(|word| word.contains('=')), "{done}");
    assert!(done.stdout.contains(&scene.pair.sender_link), "the interface is a setting: {done}");
    // Standard error is no terminal here: no progress bar.
    assert_eq!(done.stderr, "", "{done}");

    let quiet = scene.send(Drive::Inline, &["--quiet"], &file, receiver.addr()).unwrap();
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "", ""), "{quiet}");
    scene.assert_left_as_found();
}

#[test]
fn jumbo_and_small_links_and_a_router_are_no_obstacle() {
    require_root!();
    let builders = [
        ("MTU 1280", Pair::builder().mtu(1280)),
        ("MTU 576", Pair::builder().mtu(576)),
        ("a router, MTU 1300 behind it", Pair::builder().behind_router(1300)),
        ("segmentation offload left on", Pair::builder().segmentation_offload()),
        ("softirq polling at the receiver", Pair::builder().softirq_napi()),
        ("whole checksums", Pair::builder().whole_checksums()),
    ];
    for (what, builder) in builders {
        let scene = Scene::with(builder).unwrap();
        let receiver = scene.receiver(Behaviour::Drain).unwrap();
        let file = scene.scratch.file("payload");
        let payload = Payload::new(9, 3_000_001);
        payload.write_to(&file).unwrap();
        let done = scene.send(Drive::Inline, &[], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "{what}: {done}");
        assert_eq!(receiver.next(SOON).sha256, payload.sha256(), "{what}");
        scene.assert_left_as_found();
    }
}

#[test]
fn a_path_narrower_than_the_peer_says_is_warned_of_with_the_cure() {
    require_root!();
    let scene = Scene::with(Pair::builder().behind_router(1300)).unwrap();
    // A receiver behind a narrow link that does not know it: it announces the MSS of an ordinary Ethernet.
    let receiver_side = &scene.pair.receiver;
    let route = receiver_side.shell("ip -o route show default").unwrap();
    receiver_side.shell(&format!("ip route replace {} advmss 1460", route.trim())).unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    let payload = Payload::new(9, 100_000);
    payload.write_to(&file).unwrap();
    let mut sending = scene.start_send(Drive::Inline, &[], &file, receiver.addr()).unwrap();
    sending.wait_for_output(SOON, |_, stderr| stderr.contains("too large") && stderr.contains("--mss 1260"));
    sending.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(sending.wait(SOON).code, Some(130));
    let _ = receiver.next(SOON);
    let done = scene.send(Drive::Inline, &["--mss", "1260"], &file, receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(receiver.next(SOON).sha256, payload.sha256());
    scene.assert_left_as_found();
}

/// Starts a receiver that is not ours with `COPY` standing for the file it writes, sends to it, compares.
fn arrives_at(receiver: &str) {
    let scene = Scene::new().unwrap();
    let (file, copy) = (scene.scratch.file("payload"), scene.scratch.file("copy"));
    for (seed, len) in [(1, 8 << 20), (2, 0), (3, 1449)] {
        let payload = Payload::new(seed, len);
        payload.write_to(&file).unwrap();
        let line = receiver.replace("COPY", &copy.to_string_lossy()).replace("PORT", &PORT.to_string());
        let mut command = scene.pair.receiver.command("sh");
        command.arg("-c").arg(&line);
        let process = Process::spawn(command).unwrap();
        wait_for_listener(&scene.pair.receiver, PORT);
        let done = scene.send(Drive::Inline, &[], &file, scene.pair.receiver_at(PORT)).unwrap();
        assert_eq!(done.code, Some(0), "{done}");
        let ended = process.wait(SOON);
        assert_eq!(ended.code, Some(0), "{ended}");
        assert_eq!(fs::metadata(&copy).unwrap().len(), len, "{receiver}");
        assert_eq!(payload::sha256_file(&copy).unwrap(), payload.sha256(), "{receiver}");
        scene.assert_left_as_found();
        fs::remove_file(&copy).unwrap();
    }
}

/// Whether a program that a test needs is there; a missing one is a failure where nothing may be skipped.
fn have(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    let required = std::env::var("XSEND_E2E_REQUIRED").is_ok_and(|value| value == "1");
    assert!(found || !required, "needs {program}, and XSEND_E2E_REQUIRED=1 forbids to skip it");
    if !found {
        eprintln!("SKIPPED: needs {program}");
    }
    found
}

#[test]
fn a_file_arrives_at_nc() {
    require_root!();
    if have("nc") {
        arrives_at("exec nc -l PORT > COPY");
    }
}

#[test]
fn a_file_arrives_at_socat() {
    require_root!();
    if have("socat") {
        arrives_at("exec socat -u TCP4-LISTEN:PORT,reuseaddr OPEN:COPY,creat,trunc");
    }
}

#[test]
fn a_file_arrives_at_a_python_socket() {
    require_root!();
    if have("python3") {
        arrives_at(
            r#"exec python3 -c '
import socket
listener = socket.create_server(("", PORT))
connection, _ = listener.accept()
with open("COPY", "wb") as copy:
    while data := connection.recv(65536):
        copy.write(data)
connection.close()
'"#,
        );
    }
}

#[test]
fn a_file_arrives_at_our_own_sink() {
    require_root!();
    let scene = Scene::new().unwrap();
    let (file, copy) = (scene.scratch.file("payload"), scene.scratch.file("copy"));
    let payload = Payload::new(4, 8 << 20);
    payload.write_to(&file).unwrap();
    let listen = scene.pair.receiver_at(PORT).to_string();
    let sink = |options: &[&OsStr]| {
        let mut command = xsend_command(&scene.pair.receiver);
        command.args(["sink", "--listen", &listen, "--once", "--json"]).args(options);
        let sink = Process::spawn(command).unwrap();
        wait_for_listener(&scene.pair.receiver, PORT);
        sink
    };
    let hashing = sink(&[OsStr::new("--sha256")]);
    let done = scene.send(Drive::Inline, &[], &file, scene.pair.receiver_at(PORT)).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    let ended = hashing.wait(SOON);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.json().to_string().contains(&payload.sha256()), "{ended}");
    assert_eq!(ended.json()["end"]["sum_received"]["bytes"].as_u64(), Some(8 << 20), "{ended}");

    let writing = sink(&[OsStr::new("--out"), copy.as_os_str()]);
    let done = scene.send(Drive::Threaded, &[], &file, scene.pair.receiver_at(PORT)).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    let ended = writing.wait(SOON);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(payload::sha256_file(&copy).unwrap(), payload.sha256());
    scene.assert_left_as_found();
}

#[test]
fn two_transfers_on_two_links_do_not_meet() {
    require_root!();
    let scenes = [Scene::new().unwrap(), Scene::new().unwrap()];
    let start = |seed: u64, scene: &Scene| {
        let receiver = scene.receiver(Behaviour::Drain).unwrap();
        let file = scene.scratch.file("payload");
        Payload::new(seed, 32 << 20).write_to(&file).unwrap();
        let drive = DRIVES[seed as usize % 2];
        let send = scene.start_send(drive, &[], AsRef::<Path>::as_ref(&file), receiver.addr()).unwrap();
        (receiver, send)
    };
    let running = [start(0, &scenes[0]), start(1, &scenes[1])];
    for (seed, (receiver, send)) in running.into_iter().enumerate() {
        let done = send.wait(SOON);
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(receiver.next(SOON).sha256, Payload::new(seed as u64, 32 << 20).sha256());
    }
    for scene in &scenes {
        scene.assert_left_as_found();
    }
}
