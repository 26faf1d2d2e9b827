//! The command as people start it: statuses, what goes to which stream, and signals. Nothing here needs privileges.

// A test that cannot go on fails by its panic, also in what tests share.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn xsend(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xsend"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    xsend(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn one_line(output: &Output, code: i32, word: &str) {
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains(word), "{complaint}");
}

/// A sink that listens; ended with the test whatever happens.
struct Sink {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Sink {
    /// In text the address is the first setting, in JSON it goes to stderr.
    fn start(options: &[&str]) -> Self {
        let mut command = xsend(&["sink", "--listen", "127.0.0.1:0"]);
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        if options.contains(&"--json") {
            let mut stderr = BufReader::new(child.stderr.take().unwrap());
            stderr.read_line(&mut line).unwrap();
            child.stderr = Some(stderr.into_inner());
        } else {
            stdout.read_line(&mut line).unwrap();
        }
        let (_, address) = line.trim().split_once("listening=").unwrap();
        Self { address: address.parse().unwrap(), child, stdout }
    }

    fn send(&self, bytes: &[u8]) {
        TcpStream::connect(self.address).unwrap().write_all(bytes).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    one_line(&run(&["send", "file", "host:70000"]), 2, "out of range");
    one_line(&run(&["send", "file", "::1"]), 2, "[ADDRESS]:PORT");
    one_line(&run(&["send", "file", "host:9", "--queues", "3-0"]), 2, "runs backwards");
    one_line(&run(&["send", "--nonsense", "file", "host:9"]), 2, "--nonsense");
    one_line(&run(&["sink"]), 2, "--listen");
    one_line(&run(&["doctor"]), 2, "--iface");
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn what_cannot_be_sent_is_one_line_and_status_1() {
    one_line(&run(&["send", "/no/such/file", "127.0.0.1:9"]), 1, "/no/such/file");
    one_line(&run(&["send", "/tmp", "127.0.0.1:9"]), 1, "is a directory");
    one_line(&run(&["send", "/proc/self/mem", "no-such-host.invalid:9"]), 1, "no-such-host.invalid");
}

#[test]
fn a_failure_is_one_json_document_too() {
    let output = run(&["send", "--json", "/no/such/file", "127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().contains("/no/such/file"));
    assert_eq!(document.pointer("/end/sum_sent/bytes"), Some(&Value::from(0)));
}

#[test]
fn this_machine_is_no_destination() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = run(&["send", &file.path().to_string_lossy(), "127.0.0.1:9"]);
    one_line(&output, 1, "127.0.0.1");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    for words in [&["--help"][..], &["send", "--help"], &["doctor", "--iface", "lo"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = xsend(words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
        assert!(output.status.code().is_some_and(|code| code <= 1), "{words:?}: {:?}", output.status);
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = xsend(&["sink", "--listen", "127.0.0.1:0"]).stdout(full).output().unwrap();
    one_line(&output, 1, "standard output");
}

#[test]
fn the_sink_prints_settings_then_what_came() {
    let sink = Sink::start(&["--once", "--sha256"]);
    sink.send(b"abc");
    let (code, rest) = sink.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.starts_with("hashing="), "{rest}");
    let last = rest.lines().last().unwrap();
    assert!(last.contains(" bytes=3 "), "{last}");
    assert!(
        last.ends_with("sha256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        "{last}"
    );
}

#[test]
fn the_sink_fails_when_less_comes_than_expected() {
    let sink = Sink::start(&["--once", "--bytes", "1k"]);
    sink.send(&[0; 999]);
    let (code, rest) = sink.end();
    assert_eq!(code, Some(1), "{rest}");
    assert!(rest.contains("failed=true"), "{rest}");
}

#[test]
fn an_interrupted_sink_tells_what_came_and_ends_with_130() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let sink = Sink::start(&["--json"]);
        sink.send(b"first");
        // The sink closes once it has everything.
        let mut second = TcpStream::connect(sink.address).unwrap();
        second.write_all(b"second").unwrap();
        second.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
        sink.signal(signal);
        let (code, rest) = sink.end();
        assert_eq!(code, Some(130), "{rest}");
        let document: Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(document.pointer("/end/xsend/connections"), Some(&Value::from(2)), "{rest}");
        assert_eq!(document.pointer("/end/sum_received/bytes"), Some(&Value::from(11)), "{rest}");
    }
}

#[test]
fn a_port_in_use_is_told() {
    let sink = Sink::start(&["--once"]);
    let output = run(&["sink", "--listen", &sink.address.to_string()]);
    one_line(&output, 1, &sink.address.to_string());
}

#[test]
fn the_doctor_says_why_loopback_will_not_do() {
    let output = run(&["doctor", "--iface", "lo"]);
    assert_eq!(output.status.code(), Some(1));
    let out = text(&output.stdout);
    assert!(out.starts_with("interface=lo\n"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("FAIL") && line.contains("loopback")), "{out}");
    let output = run(&["doctor", "--iface", "lo", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document.pointer("/end/send_would_work"), Some(&Value::from(false)));
    assert!(document["checks"].as_array().unwrap().iter().any(|check| check["name"] == "link"));
}

#[test]
fn the_doctor_names_the_interfaces_that_exist() {
    one_line(&run(&["doctor", "--quiet", "--iface", "nosuch0"]), 1, "lo");
}
