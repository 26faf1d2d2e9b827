//! The kernel's sender that the demonstration compares with sends the whole file and tells the truth about it.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::time::Duration;

use xsend_testkit::receiver::{Behaviour, End};
use xsend_testkit::{Pair, Payload, Process, Receiver, Scratch, require_root};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn sends_a_file_both_ways() {
    require_root!();
    let pair = Pair::builder().build().unwrap();
    let scratch = Scratch::new().unwrap();
    let receiver = Receiver::start(&pair.receiver, pair.receiver_addr, Behaviour::Drain).unwrap();
    for (how, len) in [("--write", 1_234_567), ("--sendfile", 1_234_567), ("--write", 0), ("--sendfile", 0)] {
        let payload = Payload::new(1, len);
        let file = scratch.file("payload");
        payload.write_to(&file).unwrap();
        let mut command = pair.sender.command(env!("CARGO_BIN_EXE_kernel-send"));
        command.args(["--congestion", "cubic", how]).arg(&file).arg(receiver.addr().to_string());
        let done = Process::spawn(command).unwrap().wait(SOON);
        assert_eq!(done.code, Some(0), "{done}");
        let told = done.json();
        assert_eq!(
            (told["bytes"].as_u64(), told["congestion"].as_str()),
            (Some(len), Some("cubic")),
            "{done}"
        );
        let received = receiver.next(SOON);
        assert_eq!(
            (received.bytes, received.end, received.sha256),
            (len, End::Fin, payload.sha256()),
            "{how}"
        );
    }
}

#[test]
fn failures_and_wrong_usage_have_their_own_status() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernel-send"));
        command.args(args);
        Process::spawn(command).unwrap().wait(SOON)
    };
    assert_eq!(run(&["/etc/passwd"]).code, Some(2));
    let missing = run(&["/no/such/file", "127.0.0.1:1"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("/no/such/file"), "{missing}");
}
