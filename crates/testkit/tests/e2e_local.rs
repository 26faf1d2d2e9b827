//! What is wrong at this end: one line that says what and what to do, the status that scripts rely on, and an interface
//! as it was found.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::scene::{DRIVES, Drive, SOON};
use xsend_testkit::{
    Finished, Pair, Payload, Process, Scene, link, require_root, xsend_binary, xsend_command,
};

#[track_caller]
fn assert_one_line(done: &Finished, words: &[&str]) {
    assert_eq!(done.code, Some(1), "{done}");
    assert_eq!(done.stderr.trim_end().lines().count(), 1, "not one line: {done}");
    assert!(!done.stderr.contains("panicked"), "{done}");
    let text = done.stderr.to_lowercase();
    assert!(
        words.iter().all(|word| text.contains(&word.to_lowercase())),
        "says not all of {words:?}: {done}"
    );
}

fn small(scene: &Scene) -> std::path::PathBuf {
    let file = scene.scratch.file("small");
    Payload::new(1, 10_000).write_to(&file).unwrap();
    file
}

#[test]
fn an_interface_that_is_not_there_names_those_that_are() {
    require_root!();
    let scene = Scene::new().unwrap();
    let to = scene.pair.receiver_at(9000);
    let done = scene.send(Drive::Inline, &["--iface", "nosuch0"], small(&scene), to).unwrap();
    assert_one_line(&done, &["nosuch0", &scene.pair.sender_link]);
    scene.assert_left_as_found();
}

#[test]
fn a_queue_that_is_not_there_tells_how_many_are() {
    require_root!();
    let scene = Scene::new().unwrap();
    let to = scene.pair.receiver_at(9000);
    let done = scene.send(Drive::Inline, &["--queues", "7"], small(&scene), to).unwrap();
    assert_one_line(&done, &["queue", "7", "1", &scene.pair.sender_link]);
    scene.assert_left_as_found();
}

#[test]
fn an_interface_that_receives_by_more_queues_than_it_sends_is_refused_with_the_cure() {
    require_root!();
    let scene = Scene::with(Pair::builder().queues(2)).unwrap();
    let link = &scene.pair.sender_link;
    let to = scene.pair.receiver_at(9000);
    // The carrier goes for a moment when the queues change.
    let up = format!("ip link show {link} | grep -q 'state UP'");
    let change = |tx| {
        scene
            .pair
            .sender
            .shell(&format!("ethtool -L {link} tx {tx}; timeout 5 sh -c \"until {up}; do sleep 0.01; done\""))
    };
    change(1).unwrap();
    let done = scene.send(Drive::Inline, &[], small(&scene), to).unwrap();
    assert_one_line(&done, &["2 queues", "ethtool -L", "rx 1 tx 1", link]);
    change(2).unwrap();
    scene.assert_left_as_found();
}

#[test]
fn a_queue_in_use_is_refused_and_its_user_is_not_harmed() {
    require_root!();
    const LEN: u64 = 64 << 20;
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let receiver =
            scene.receiver(Behaviour::Slow { chunk: 256 << 10, pause: Duration::from_millis(10) }).unwrap();
        let file = scene.scratch.file("payload");
        let payload = Payload::new(1, LEN);
        payload.write_to(&file).unwrap();
        let mut first = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
        receiver.wait_for_bytes(1, SOON);

        let second = scene.send(drive, &[], small(&scene), receiver.addr()).unwrap();
        assert_one_line(&second, &[&scene.pair.sender_link]);
        let text = second.stderr.to_lowercase();
        assert!(text.contains("in use by another xsend"), "{second}");

        assert!(first.is_running(), "the first ended before the second tried: the test shows nothing");
        let done = first.wait(SOON);
        assert_eq!(done.code, Some(0), "{done}");
        let received = receiver.next(SOON);
        assert_eq!((received.end, received.sha256), (End::Fin, payload.sha256()));
        scene.assert_left_as_found();
    }
}

#[test]
fn somebody_elses_xdp_program_is_named_and_left_alone() {
    require_root!();
    let scene = Scene::new().unwrap();
    let (namespace, link) = (&scene.pair.sender, scene.pair.sender_link.as_str());
    link::attach_foreign_program(namespace, link, &scene.scratch).unwrap();
    let theirs = link::xdp_program(namespace, link).unwrap();
    let to = scene.pair.receiver_at(9000);
    let done = scene.send(Drive::Inline, &[], small(&scene), to).unwrap();
    assert_one_line(&done, &[link, "xdp_pass_all"]);
    assert_eq!(link::xdp_program(namespace, link).unwrap(), theirs);
    scene.assert_undisturbed();
    namespace.ip(&format!("link set dev {link} xdp off")).unwrap();
    scene.assert_left_as_found();
}

#[test]
fn wrong_usage_has_its_own_status() {
    let run = |words: &[&str]| {
        let mut command = Command::new(xsend_binary());
        command.args(words);
        Process::spawn(command).unwrap().wait(SOON)
    };
    for words in [
        &["send"][..],
        &["send", "file"],
        &["send", "file", "198.18.0.2"],
        &["send", "file", "198.18.0.2:0x1"],
        &["send", "file", "198.18.0.2:65536"],
        &["send", "--mode", "fast", "file", "198.18.0.2:9000"],
        &["send", "--max-rate", "very", "file", "198.18.0.2:9000"],
        &["send", "--no-such-option", "file", "198.18.0.2:9000"],
        &["no-such-command"],
        &["sink"],
    ] {
        let done = run(words);
        assert_eq!(done.code, Some(2), "{words:?}: {done}");
        assert!(!done.stderr.contains("panicked"), "{done}");
    }
    for command in ["send", "sink", "doctor"] {
        let done = run(&[command, "--help"]);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(done.stdout.trim_start().starts_with("Example"), "help begins with an example: {done}");
    }
}

#[test]
fn an_unknown_host_and_a_file_that_is_not_there() {
    require_root!();
    let scene = Scene::new().unwrap();
    let mut command = scene.xsend(&["send"]);
    command.arg(small(&scene)).arg("no-such-host.invalid:9000");
    assert_one_line(&Process::spawn(command).unwrap().wait(SOON), &["no-such-host.invalid"]);

    let to = scene.pair.receiver_at(9000);
    let done = scene.send(Drive::Inline, &[], "/no/such/file", to).unwrap();
    assert_one_line(&done, &["/no/such/file"]);
    let done = scene.send(Drive::Inline, &[], scene.scratch.path(), to).unwrap();
    assert_one_line(&done, &[&scene.scratch.path().to_string_lossy()]);
    scene.assert_left_as_found();
}

#[test]
fn a_file_that_shrinks_while_it_is_sent() {
    require_root!();
    const LEN: u64 = 512 << 20;
    for drive in DRIVES {
        let scene = Scene::new().unwrap();
        let receiver =
            scene.receiver(Behaviour::Slow { chunk: 64 << 10, pause: Duration::from_millis(5) }).unwrap();
        let file = scene.scratch.file("payload");
        Payload::new(1, LEN).write_sparse(&file).unwrap();
        let send = scene.start_send(drive, &[], &file, receiver.addr()).unwrap();
        receiver.wait_for_bytes(1 << 20, SOON);
        File::options().write(true).open(&file).unwrap().set_len(1 << 20).unwrap();
        let done = send.wait(SOON);
        assert_one_line(&done, &[&file.to_string_lossy()]);
        scene.assert_left_as_found();
    }
}

#[test]
fn without_privilege_the_missing_capability_is_named() {
    require_root!();
    let scene = Scene::new().unwrap();
    // Where everybody may execute it.
    let program = scene.scratch.file("xsend");
    fs::copy(xsend_binary(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scene.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = scene.pair.sender.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&program).arg("send").arg(small(&scene)).arg(scene.pair.receiver_at(9000).to_string());
    let done = Process::spawn(command).unwrap().wait(SOON);
    assert_one_line(&done, &["CAP_"]);
    scene.assert_left_as_found();
}

#[test]
fn the_doctor_looks_and_touches_nothing() {
    require_root!();
    let scene = Scene::new().unwrap();
    let doctor = |words: &[&str]| {
        let mut command = xsend_command(&scene.pair.sender);
        command.arg("doctor").args(words);
        Process::spawn(command).unwrap().wait(SOON)
    };
    let (link, host) = (scene.pair.sender_link.as_str(), scene.pair.receiver_addr.to_string());
    let well = doctor(&["--iface", link, &host]);
    assert_eq!(well.code, Some(0), "{well}");
    assert!(well.stdout.contains(link), "{well}");
    scene.assert_left_as_found();
    doctor(&["--iface", link, "--json"]).json();
    scene.assert_left_as_found();
    let ill = doctor(&["--iface", "nosuch0"]);
    assert_eq!(ill.code, Some(1), "{ill}");
    scene.assert_left_as_found();
}

#[test]
fn a_rate_that_was_asked_for_is_not_exceeded() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = scene.scratch.file("payload");
    Payload::new(1, 10 << 20).write_sparse(&file).unwrap();
    let done = scene.send(Drive::Inline, &["--max-rate", "40M"], &file, receiver.addr()).unwrap();
    assert_eq!(done.code, Some(0), "{done}");
    // 10 MiB at 40 Mbit/s take 2.1 s; a first window and the rounding may come for free.
    assert!(done.elapsed > Duration::from_millis(1500), "{done}");
    assert_eq!(receiver.next(SOON).bytes, 10 << 20);
    scene.assert_left_as_found();
}

#[test]
fn one_after_the_other_without_a_pause() {
    require_root!();
    let scene = Scene::new().unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let file = small(&scene);
    for round in 0..5 {
        let done = scene.send(DRIVES[round % 2], &[], &file, receiver.addr()).unwrap();
        assert_eq!(done.code, Some(0), "round {round}: {done}");
        assert_eq!(receiver.next(SOON).bytes, 10_000, "round {round}");
    }
    thread::sleep(Duration::from_millis(10));
    scene.assert_left_as_found();
}
