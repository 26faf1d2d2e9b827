//! What a frame costs in system calls, and that no lock is waited for: counted by strace over a whole transfer.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use xsend_testkit::receiver::Behaviour;
use xsend_testkit::scene::{Drive, SOON};
use xsend_testkit::{Namespace, Payload, Process, Scene, require_root, xsend_binary};

/// Calls by name, from the table that `strace -c` writes: time, seconds, usecs/call, calls, errors (may be empty), name.
fn counted(table: &str) -> HashMap<String, u64> {
    let row = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let calls = words.get(3)?.parse().ok()?;
        Some(((*words.last()?).to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}

#[test]
fn a_frame_costs_a_fraction_of_a_system_call_and_waits_for_no_lock() {
    require_root!();
    const LEN: u64 = 64 << 20;
    let scene = Scene::without_bystander(xsend_testkit::Pair::builder()).unwrap();
    let receiver = scene.receiver(Behaviour::Drain).unwrap();
    let (file, table) = (scene.scratch.file("payload"), scene.scratch.file("calls"));
    let payload = Payload::new(1, LEN);
    payload.write_to(&file).unwrap();
    let sender: &Namespace = &scene.pair.sender;
    let mut command = sender.command("strace");
    command.args(["-f", "-c", "-o"]).arg(&table).arg(xsend_binary());
    command
        .args(["send", "--json"])
        .args(Drive::Inline.options())
        .arg(&file)
        .arg(receiver.addr().to_string());
    let done = Process::spawn(command).unwrap().wait(SOON);
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(receiver.next(SOON).sha256, payload.sha256());

    let calls = counted(&std::fs::read_to_string(&table).unwrap());
    let sum: u64 = calls.iter().filter(|(name, _)| *name != "total").map(|(_, count)| count).sum();
    let frames = done.json()["end"]["xsend"]["frames"].as_u64().unwrap();
    let count = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert!(frames >= LEN / 1448, "{frames} frames");
    assert!(count("sendto") > 0, "strace saw nothing: {calls:?}");
    // The sleeps of a slow machine (ppoll) are no cost of a frame.
    let busy = sum - count("ppoll") - count("poll");
    assert!(busy * 8 < frames, "{busy} calls for {frames} frames: {calls:?}");
    // A lock that had to be waited for, or a thread that had to be woken, would be a futex.
    assert!(count("futex") < 32, "{calls:?}");
    scene.assert_left_as_found();
}
