//! Child processes that never outlive the test, with their output kept and every wait bounded.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fmt};

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::Namespace;

const POLL: Duration = Duration::from_millis(2);

/// The built `xsend`: what `XSEND_BIN` names, or the one in the target folder this test was built into.
///
/// # Panics
/// When there is none, with what to do.
pub fn xsend_binary() -> PathBuf {
    binary("xsend", "XSEND_BIN", "xsend-cli")
}

/// A program of this workspace, found as [`xsend_binary`] is.
pub fn binary(name: &str, variable: &str, package: &str) -> PathBuf {
    if let Some(path) = env::var_os(variable) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{variable} names {}, which is not a file", path.display());
        return path;
    }
    // target/PROFILE/deps/TEST -> target/PROFILE/NAME
    let path = env::current_exe()
        .ok()
        .and_then(|test| Some(test.parent()?.parent()?.join(name)))
        .filter(|path| path.is_file());
    path.unwrap_or_else(|| {
        panic!(
            "no {name} next to this test: run `cargo build -p {package}` first, or set {variable} to its path"
        )
    })
}

/// `xsend` in a namespace, arguments to follow.
pub fn xsend_command(namespace: &Namespace) -> Command {
    namespace.command(&xsend_binary().to_string_lossy())
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Finished {
    /// The command line.
    pub command: String,
    /// Its exit status, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Everything it wrote to standard output.
    pub stdout: String,
    /// Everything it wrote to standard error.
    pub stderr: String,
    /// From its start to its end.
    pub elapsed: Duration,
}

impl Finished {
    /// Standard output as one JSON document and nothing else.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(e) => panic!("standard output is not one JSON document ({e})\n{self}"),
        }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, code, signal, stdout, stderr, elapsed } = self;
        writeln!(f, "{command}\nexit {code:?}, signal {signal:?}, after {elapsed:?}")?;
        write!(f, "--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

type Captured = Arc<Mutex<Vec<u8>>>;

/// A running child. Dropping it kills it, by its own process id, and reaps it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    command: String,
    started: Instant,
    readers: Vec<JoinHandle<()>>,
    stdout: Captured,
    stderr: Captured,
}

impl Process {
    /// Starts it with nothing on its standard input.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null());
        Self::start(command)
    }

    /// Starts it with a pipe as its standard input, which [`Process::stdin`] gives out.
    pub fn spawn_piped(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::piped());
        Self::start(command)
    }

    fn start(mut command: Command) -> io::Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let text = format!("{command:?}");
        let mut child =
            command.spawn().map_err(|e| io::Error::new(e.kind(), format!("cannot start {text}: {e}")))?;
        let (stdout, stderr) = (Captured::default(), Captured::default());
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            readers.push(collect(pipe, Arc::clone(&stdout)));
        }
        if let Some(pipe) = child.stderr.take() {
            readers.push(collect(pipe, Arc::clone(&stderr)));
        }
        Ok(Self { child, command: text, started: Instant::now(), readers, stdout, stderr })
    }

    /// The write end of its standard input; once only. Dropping it ends the input.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal; one that has just ended is not an error.
    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child is not reaped yet, so the id is still its own.
            let _ = signal::kill(Pid::from_raw(pid), signal);
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// Waits until `done` holds for what it wrote to standard output and standard error.
    ///
    /// # Panics
    /// When it does not within `timeout`, or the process ends first.
    #[track_caller]
    pub fn wait_for_output(&mut self, timeout: Duration, done: impl Fn(&str, &str) -> bool) {
        let deadline = Instant::now() + timeout;
        loop {
            let running = self.is_running();
            let (stdout, stderr) = (self.stdout(), self.stderr());
            if done(&stdout, &stderr) {
                return;
            }
            let command = &self.command;
            assert!(running, "{command}\nended too early\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
            let late = Instant::now() >= deadline;
            assert!(!late, "{command}\nsays nothing awaited\n--- stdout\n{stdout}\n--- stderr\n{stderr}");
            thread::sleep(POLL);
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended after `timeout`: it is killed and what it said is shown.
    #[track_caller]
    pub fn wait(mut self, timeout: Duration) -> Finished {
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return self.finished(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(None) => {
                    let _ = self.child.kill();
                    let (stdout, stderr) = (self.stdout(), self.stderr());
                    let command = &self.command;
                    panic!(
                        "{command}\nstill runs after {timeout:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
                    );
                }
                Err(e) => panic!("cannot wait for {}: {e}", self.command),
            }
        }
    }

    fn finished(&mut self, status: std::process::ExitStatus) -> Finished {
        let elapsed = self.started.elapsed();
        // A grandchild may hold the pipes open: what has come by then is what there is.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        Finished {
            command: self.command.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            elapsed,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static, into: Captured) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(n @ 1..) = pipe.read(&mut buffer) {
            into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..n]);
        }
    })
}

fn text(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn sh(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn tells_status_and_output() {
        let done = Process::spawn(sh("echo out; echo err >&2; exit 3")).unwrap().wait(SOON);
        assert_eq!((done.code, done.signal), (Some(3), None));
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn feeds_standard_input_and_sees_output_while_running() {
        let mut cat = Process::spawn_piped(Command::new("cat")).unwrap();
        let mut stdin = cat.stdin().unwrap();
        stdin.write_all(b"hello").unwrap();
        cat.wait_for_output(SOON, |stdout, _| stdout == "hello");
        drop(stdin);
        assert_eq!(cat.wait(SOON).code, Some(0));
    }

    #[test]
    fn a_signal_is_told_from_a_status() {
        let process = Process::spawn(sh("exec sleep 60")).unwrap();
        process.signal(Signal::SIGTERM);
        let done = process.wait(SOON);
        assert_eq!((done.code, done.signal), (None, Some(15)));
    }

    #[test]
    fn does_not_outlive_its_guard() {
        let process = Process::spawn(sh("exec sleep 60")).unwrap();
        let proc = format!("/proc/{}", process.id());
        assert!(Path::new(&proc).exists());
        drop(process);
        assert!(!Path::new(&proc).exists());
    }

    #[test]
    #[should_panic(expected = "still runs after")]
    fn a_wait_is_bounded() {
        Process::spawn(sh("exec sleep 60")).unwrap().wait(Duration::from_millis(50));
    }
}
