//! `xsend sink`: a plain kernel-socket receiver.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use socket2::{SockRef, TcpKeepalive};

use crate::args::SinkArgs;
use crate::json;
use crate::problem::{Exit, Problem};
use crate::report::{self, Settings, bits_per_second};
use crate::signals::{GRACE, Interrupts};
use crate::usage::CpuTime;

mod receive;
mod store;

use receive::Received;
use store::Store;

/// Connections served at the same time; others wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 256;

/// Connections described in the JSON document; later ones are counted in the sums only.
const MAX_DESCRIBED: usize = 10_000;

/// Time between two looks at the signals.
const PATIENCE_MS: u16 = 100;

/// Runs the command.
pub(crate) fn run(args: &SinkArgs) -> Result<Exit, Problem> {
    let interrupts = Interrupts::install()?;
    interrupts.cooperate(GRACE, None);
    let listener = TcpListener::bind(args.listen).map_err(|error| cannot_listen(args.listen, &error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(args.listen, &error))?;
    let settings = settings(args, address);
    announce(args, address, &settings)?;
    let mut service = Service::new(args);
    let ending = service.serve(listener, &interrupts);
    if args.output.json {
        json::print(&service.document(address, &settings, ending.as_ref().err()))?;
    }
    match ending? {
        Exit::Done if service.failed > 0 => Err(Problem::failed(service.why_failed())),
        exit => Ok(exit),
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Problem {
    Problem::failed(format!("cannot listen on {address}: {error}"))
}

fn settings(args: &SinkArgs, address: SocketAddr) -> Settings {
    let mut settings = Settings::default();
    settings.set("listening", address);
    settings.set_some("out", args.out.as_ref().map(|path| path.display()));
    let hashing = match (args.sha256, args.out.is_some() || args.memory.is_some()) {
        (false, _) => "none",
        (true, false) => "while-receiving",
        (true, true) => "afterwards",
    };
    settings.set("hashing", hashing);
    settings.set_some("memory", args.memory);
    settings.set("once", args.once);
    settings.set_some("bytes", args.bytes);
    settings
}

/// The chosen port must be known before anything comes; in JSON it is part of the document too.
fn announce(args: &SinkArgs, address: SocketAddr, settings: &Settings) -> Result<(), Problem> {
    if args.output.quiet {
        Ok(())
    } else if args.output.json {
        report::complain(&format!("listening={address}"));
        Ok(())
    } else {
        report::print(&settings.to_text())
    }
}

/// One connection that ended.
struct Finished {
    number: u64,
    peer: SocketAddr,
    received: Received,
    sha256: Option<String>,
    /// Why it does not count.
    error: Option<String>,
}

/// Accepts, receives and sums up.
struct Service<'a> {
    args: &'a SinkArgs,
    cpu: CpuTime,
    connections: u64,
    failed: u64,
    /// Connections that a signal cut off.
    unfinished: usize,
    first_error: Option<String>,
    bytes: u64,
    /// From the first byte of all to the last FIN of all.
    span: Option<(Instant, Instant)>,
    described: Vec<Value>,
}

impl<'a> Service<'a> {
    fn new(args: &'a SinkArgs) -> Self {
        Self {
            args,
            cpu: CpuTime::now(),
            connections: 0,
            failed: 0,
            unfinished: 0,
            first_error: None,
            bytes: 0,
            span: None,
            described: Vec::new(),
        }
    }

    /// Until a signal, or the end of the only connection.
    fn serve(&mut self, listener: TcpListener, interrupts: &Interrupts) -> Result<Exit, Problem> {
        let cannot = |error| Problem::failed(format!("cannot accept connections: {error}"));
        listener.set_nonblocking(true).map_err(cannot)?;
        let mut listener = Some(listener);
        let (done, finished) = mpsc::channel();
        let mut active = 0usize;
        loop {
            // After a signal, what is just ending still counts; what goes on is cut off.
            let ending = interrupts.requested();
            let wait = ending && active > 0 || listener.is_none();
            while let Some(one) = next_finished(&finished, wait) {
                active = active.saturating_sub(1);
                self.note(&one)?;
                if self.args.once && !ending {
                    return Ok(Exit::Done);
                }
                if active == 0 {
                    break;
                }
            }
            if ending {
                self.unfinished = active;
                return Ok(Exit::Interrupted);
            }
            let Some(socket) = &listener else { continue };
            if active >= MAX_CONNECTIONS {
                thread::sleep(Duration::from_millis(u64::from(PATIENCE_MS)));
                continue;
            }
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            // While connections are open, look for their ends more often than for new ones.
            let _ = poll(&mut fds, PollTimeout::from(if active > 0 { 5 } else { PATIENCE_MS }));
            match socket.accept() {
                Ok((stream, peer)) => {
                    active += 1;
                    self.connections += 1;
                    // A sender that is killed sends neither FIN nor RST. Without this its connection would wait for ever.
                    let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
                    let store = self.store(self.connections)?;
                    spawn(stream, peer, self.connections, store, self.args.bytes, done.clone())?;
                    if self.args.once {
                        listener = None;
                    }
                }
                Err(error) => accept_again(&error)?,
            }
        }
    }

    fn store(&self, number: u64) -> Result<Store, Problem> {
        let args = self.args;
        match (&args.out, args.memory) {
            (Some(path), _) => {
                let path = numbered(path, number);
                Store::file(&path, args.sha256)
                    .map_err(|error| Problem::failed(format!("cannot write '{}': {error}", path.display())))
            }
            (None, Some(limit)) => Ok(Store::memory(limit, args.bytes)),
            (None, None) => Ok(Store::stream(args.sha256)),
        }
    }

    fn note(&mut self, one: &Finished) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(one.received.bytes);
        if let Some((first, last)) = one.received.span {
            let (start, end) = self.span.unwrap_or((first, last));
            self.span = Some((start.min(first), end.max(last)));
        }
        if let Some(error) = &one.error {
            self.failed += 1;
            self.first_error.get_or_insert_with(|| error.clone());
        }
        if self.args.output.json {
            if self.described.len() < MAX_DESCRIBED {
                self.described.push(one.describe());
            }
            return Ok(());
        }
        if self.args.output.quiet { Ok(()) } else { report::print(&one.line()) }
    }

    fn why_failed(&self) -> String {
        let first = self.first_error.as_deref().unwrap_or("a connection failed");
        if self.failed > 1 {
            format!("{} connections failed, the first: {first}", self.failed)
        } else {
            first.to_owned()
        }
    }

    fn document(&self, address: SocketAddr, settings: &Settings, problem: Option<&Problem>) -> Value {
        let elapsed = self.span.map_or(Duration::ZERO, |(first, last)| last.saturating_duration_since(first));
        let cpu = CpuTime::now() - self.cpu;
        let sha256 = self.described.last().and_then(|stream| stream.get("sha256")).cloned();
        let mut document = json!({
            "start": {
                "listening_on": { "host": address.ip().to_string(), "port": address.port() },
                "version": json::version(),
                "timestamp": json::timestamp(),
                "xsend": { "settings": json::settings(settings) },
            },
            "intervals": [],
            "end": {
                "streams": self.described,
                "sum_received": json::sum(self.bytes, elapsed, false),
                "cpu_utilization_percent": json::utilization(cpu, elapsed),
                "xsend": {
                    "connections": self.connections,
                    "failed": self.failed,
                    "unfinished": self.unfinished,
                    "sha256": sha256,
                    "cpu_seconds": cpu.total().as_secs_f64(),
                    "cpu_seconds_per_gib": json::per_gib(cpu, self.bytes),
                },
            },
        });
        let error = problem.map(ToString::to_string).or_else(|| self.first_error.clone());
        if let Some(error) = error {
            json::extend(&mut document, json!({ "error": error }));
        }
        document
    }
}

/// A connection that ended; waits a little for one when there is nothing else to wait for.
fn next_finished(finished: &Receiver<Finished>, wait: bool) -> Option<Finished> {
    if wait {
        finished.recv_timeout(Duration::from_millis(u64::from(PATIENCE_MS))).ok()
    } else {
        finished.try_recv().ok()
    }
}

/// A peer that says nothing for 10 s is asked, three times 5 s apart, whether it is still there.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// A peer that gave up before it was accepted is no reason to stop serving; too few descriptors for long would be.
fn accept_again(error: &std::io::Error) -> Result<(), Problem> {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    match error.kind() {
        WouldBlock | Interrupted | ConnectionAborted | ConnectionReset => Ok(()),
        _ => Err(Problem::failed(format!("cannot accept connections: {error}"))),
    }
}

fn spawn(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    number: u64,
    store: Store,
    expected: Option<u64>,
    done: Sender<Finished>,
) -> Result<(), Problem> {
    let body = move || {
        // Nobody listens any more only when the process is about to end.
        let _ = done.send(serve_one(stream, peer, number, store, expected));
    };
    match thread::Builder::new().name(format!("connection-{number}")).spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(Problem::failed(format!("cannot start a thread for connection {number}: {error}"))),
    }
}

fn serve_one(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    number: u64,
    mut store: Store,
    expected: Option<u64>,
) -> Finished {
    let received = receive::receive(&stream, &mut store);
    // Our FIN goes out before the hashing, which may take a while.
    drop(stream);
    let mut error = received.error.clone();
    let sha256 = store.finish().unwrap_or_else(|failure| {
        error.get_or_insert(failure);
        None
    });
    if let (None, Some(expected)) = (&error, expected.filter(|&expected| expected != received.bytes)) {
        error = Some(format!("expected {expected} bytes, received {}", received.bytes));
    }
    let error = error.map(|why| format!("connection {number} from {peer}: {why}"));
    Finished { number, peer, received, sha256, error }
}

impl Finished {
    fn line(&self) -> String {
        let Self { number, peer, received, .. } = self;
        let elapsed = received.elapsed();
        let mut line = format!(
            "connection={number} peer={peer} bytes={} seconds={:.6} bits_per_second={:.0} rate={}",
            received.bytes,
            elapsed.as_secs_f64(),
            bits_per_second(received.bytes, elapsed),
            report::rate(bits_per_second(received.bytes, elapsed)).replace(' ', ""),
        );
        if let Some(sha256) = &self.sha256 {
            line.push_str(&format!(" sha256={sha256}"));
        }
        if self.error.is_some() {
            line.push_str(" failed=true");
        }
        line.push('\n');
        line
    }

    fn describe(&self) -> Value {
        let mut receiver = json::sum(self.received.bytes, self.received.elapsed(), false);
        json::extend(&mut receiver, json!({ "socket": self.number }));
        let mut described = json!({
            "receiver": receiver,
            "peer": { "host": self.peer.ip().to_string(), "port": self.peer.port() },
        });
        if let Some(sha256) = &self.sha256 {
            json::extend(&mut described, json!({ "sha256": sha256 }));
        }
        if let Some(error) = &self.error {
            json::extend(&mut described, json!({ "error": error }));
        }
        described
    }
}

/// The first connection writes FILE itself, the second FILE.2.
fn numbered(path: &Path, number: u64) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests;
