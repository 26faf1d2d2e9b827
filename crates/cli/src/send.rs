//! `xsend send`: files and standard input, in order, over one connection.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use crate::args::SendArgs;
use crate::figures::Figures;
use crate::intervals::{Interval, Intervals};
use crate::json;
use crate::pcapng::Capture;
use crate::problem::{Exit, Problem};
use crate::progress::Progress;
use crate::report::{self, Settings, bits_per_second};
use crate::signals::{CLOSE_WITHIN, GRACE, Interrupts};
use crate::source::Source;
use crate::transfer::{self, Broken, Carrier, Moved, Plan};
use crate::usage::CpuTime;

/// Bytes moved between two looks at the clock, the signals and the terminal.
const CHUNK: usize = 256 * 1024;

/// Longest wait for the connection between two such looks.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long giving the queues back may take.
const LEAVE_WITHIN: Duration = Duration::from_millis(1500);

/// Why the sending stopped before the end.
#[derive(Debug)]
enum Stop {
    /// A signal came.
    Interrupted,
    /// What is to be sent cannot be read.
    Source(Problem),
    /// The connection failed.
    Broken(Broken),
}

/// All there is to report, gathered as it becomes known.
#[derive(Default)]
struct Record {
    settings: Settings,
    wanted: Option<u64>,
    endpoints: Option<(SocketAddr, SocketAddr)>,
    intervals: Vec<Interval>,
    figures: Figures,
    elapsed: Duration,
    cpu: CpuTime,
    capture: Option<Result<u64, String>>,
}

/// Runs the command.
pub(crate) fn run(args: &SendArgs) -> Result<Exit, Problem> {
    let mut record = Record::default();
    let result = transfer(args, &mut record);
    let error = result.as_ref().err().map(ToString::to_string);
    let reported = report(args, &record, error);
    result?;
    reported?;
    Ok(Exit::Done)
}

fn transfer(args: &SendArgs, record: &mut Record) -> Result<(), Problem> {
    let sources = args.sources.iter().map(|path| Source::check(path)).collect::<Result<Vec<_>, _>>()?;
    record.wanted = sources.iter().map(Source::size).try_fold(0u64, |sum, size| sum.checked_add(size?));
    let interrupts = Interrupts::install()?;
    let peer = args.target.resolve()?;
    let interface = match &args.path.iface {
        Some(name) => name.clone(),
        None => transfer::interface_towards(&peer, args.path.source, args.timeout)?,
    };
    let capture = capture(args, &interface)?;
    // The search for the next hop is not given up half way; the handshake is. A second signal waits for neither.
    interrupts.cooperate(args.timeout + GRACE, capture.clone());
    let plan = Plan {
        interface: &interface,
        path: &args.path,
        peer,
        timeout: args.timeout,
        capture: capture.clone(),
    };
    let carrier = transfer::connect(&plan, &interrupts);
    interrupts.cooperate(GRACE, capture.clone());
    let result = match carrier {
        Ok(carrier) => converse(carrier, sources, &interrupts, args, record),
        Err(_) if interrupts.requested() => {
            Err(Problem::interrupted("interrupted before the connection was established"))
        }
        Err(problem) => Err(problem),
    };
    record.capture = capture.map(|capture| capture.finish().map_err(|error| error.to_string()));
    result
}

fn capture(args: &SendArgs, interface: &str) -> Result<Option<Capture>, Problem> {
    let Some(path) = &args.path.pcap else { return Ok(None) };
    match Capture::create(path, interface) {
        Ok(capture) => Ok(Some(capture)),
        Err(error) => Err(Problem::failed(format!("cannot write the capture '{}': {error}", path.display()))),
    }
}

/// Notes the effective settings: ours, then the library's.
fn describe(args: &SendArgs, carrier: &dyn Carrier, record: &mut Record) {
    let (local, peer) = carrier.endpoints();
    record.endpoints = Some((local, peer));
    let settings = &mut record.settings;
    let names: Vec<_> = args.sources.iter().map(|path| path.display().to_string()).collect();
    settings.set("sources", names.join(" "));
    settings.set_some("bytes", record.wanted);
    settings.set("target", &args.target);
    settings.set("local", local);
    settings.set("peer", peer);
    settings.set("threaded", args.path.threaded);
    settings.set("cork", args.path.cork);
    settings.set("timeout_s", args.timeout.as_secs_f64());
    settings.set("nodelay", args.path.nodelay);
    settings.set("huge_pages", args.path.huge_pages);
    settings.set_some("busy_poll_us", args.path.busy_poll);
    settings.set_some("user_timeout_s", args.path.user_timeout.map(|timeout| timeout.as_secs_f64()));
    settings.set_some("pcap", args.path.pcap.as_ref().map(|path| path.display()));
    for (key, value) in carrier.settings().iter() {
        settings.set(key, value);
    }
}

/// Everything between the handshake and the last acknowledgement, and giving the queues back.
fn converse(
    mut carrier: Box<dyn Carrier>,
    sources: Vec<Source>,
    interrupts: &Interrupts,
    args: &SendArgs,
    record: &mut Record,
) -> Result<(), Problem> {
    describe(args, carrier.as_ref(), record);
    // Whether the settings can be printed is known when they are; the transfer is what was asked for.
    let described = if args.output.json || args.output.quiet {
        Ok(())
    } else {
        report::print(&record.settings.to_text())
    };
    let progress = Progress::new(record.wanted, !args.output.quiet);
    let cpu = CpuTime::now();
    let mut watch = Watch {
        started: Instant::now(),
        interrupts,
        progress,
        intervals: Intervals::default(),
        warned: false,
    };
    if args.path.cork {
        carrier.cork();
    }
    let sent = pump(carrier.as_mut(), sources, &mut watch);
    carrier.uncork();
    let result = sent.and_then(|()| close(carrier.as_mut(), &mut watch));
    record.elapsed = watch.started.elapsed();
    record.cpu = CpuTime::now() - cpu;
    if let Err(stop) = &result {
        give_up(carrier.as_mut(), stop);
    }
    record.figures = carrier.figures();
    watch.progress.clear();
    record.intervals = watch.intervals.finish(record.elapsed, &record.figures);
    carrier.leave(Instant::now() + LEAVE_WITHIN);
    result.map_err(|stop| stop.explain(&record.figures))?;
    described
}

/// What is looked at between two chunks.
struct Watch<'a> {
    started: Instant,
    interrupts: &'a Interrupts,
    progress: Progress,
    intervals: Intervals,
    /// The warning about the path was given.
    warned: bool,
}

impl Watch<'_> {
    fn look(&mut self, carrier: &mut dyn Carrier) -> Result<(), Stop> {
        let elapsed = self.started.elapsed();
        if self.progress.is_due(elapsed) || self.intervals.is_due(elapsed) {
            let figures = carrier.figures();
            self.progress.draw(elapsed, &figures);
            self.intervals.tick(elapsed, &figures);
            self.warn_of_path(figures.shard.path_mtu, carrier.endpoints().1);
        }
        if self.interrupts.requested() { Err(Stop::Interrupted) } else { Ok(()) }
    }
}

impl Watch<'_> {
    /// A path narrower than the interface swallows every full segment, without an end: say so, once.
    fn warn_of_path(&mut self, (refusals, mtu): (u64, u64), peer: SocketAddr) {
        if refusals == 0 || std::mem::replace(&mut self.warned, true) {
            return;
        }
        self.progress.clear();
        // The IP header and TCP's without options.
        let headers = if peer.is_ipv6() { 60 } else { 40 };
        let cure = if mtu > headers {
            format!("it passes {mtu} bytes: use --mss {}, or ip route ... mtu {mtu}", mtu - headers)
        } else {
            "use a smaller --mss".to_owned()
        };
        report::complain(&format!("a router on the way refuses our packets as too large; {cure}"));
    }
}

fn pump(carrier: &mut dyn Carrier, sources: Vec<Source>, watch: &mut Watch<'_>) -> Result<(), Stop> {
    for source in sources {
        let mut reading = source.start().map_err(Stop::Source)?;
        loop {
            watch.look(carrier)?;
            let most = reading.allowance(CHUNK);
            if most == 0 {
                break;
            }
            let deadline = Instant::now() + PATIENCE;
            if !reading.is_ready() {
                carrier.attend(reading.as_fd(), deadline).map_err(Stop::Broken)?;
                continue;
            }
            match carrier.send_from(&mut reading, most, deadline).map_err(Stop::Broken)? {
                Moved::Bytes(count) => reading.took(count),
                Moved::NoRoom => {}
                Moved::End(count) => {
                    reading.took(count);
                    reading.ended().map_err(Stop::Source)?;
                    break;
                }
                Moved::Unreadable(error) => return Err(Stop::Source(reading.unreadable(&error))),
            }
        }
    }
    Ok(())
}

/// FIN, and no end of patience: a receiver may keep its window shut for as long as it likes.
fn close(carrier: &mut dyn Carrier, watch: &mut Watch<'_>) -> Result<(), Stop> {
    while !carrier.close(Instant::now() + PATIENCE).map_err(Stop::Broken)? {
        watch.look(carrier)?;
    }
    Ok(())
}

/// What was taken from the sources still arrives, with a FIN behind it, if that takes a bounded time; then RST.
fn give_up(carrier: &mut dyn Carrier, stop: &Stop) {
    let closed = match stop {
        Stop::Broken(_) => false,
        Stop::Interrupted | Stop::Source(_) => {
            let deadline = Instant::now() + CLOSE_WITHIN;
            loop {
                match carrier.close(deadline.min(Instant::now() + PATIENCE)) {
                    Ok(true) => break true,
                    Ok(false) if Instant::now() < deadline => {}
                    Ok(false) | Err(_) => break false,
                }
            }
        }
    };
    if !closed {
        carrier.abort();
    }
}

impl Stop {
    fn explain(self, figures: &Figures) -> Problem {
        let Figures { sent_bytes, acked_bytes, .. } = figures;
        let so_far = format!("{acked_bytes} bytes acknowledged of {sent_bytes} sent");
        match self {
            Self::Interrupted => Problem::interrupted(format!("interrupted: {so_far}")),
            Self::Source(problem) => Problem::failed(format!("{problem}; {so_far}")),
            Self::Broken(broken) => Problem::failed(format!("{broken}; {so_far}")),
        }
    }
}

fn report(args: &SendArgs, record: &Record, error: Option<String>) -> Result<(), Problem> {
    if let (Some(Err(why)), Some(path)) = (&record.capture, &args.path.pcap) {
        report::complain(&format!("warning: the capture '{}' is incomplete: {why}", path.display()));
    }
    if args.output.json {
        let sent = json::Sent {
            target: (args.target.host.to_string(), args.target.port),
            endpoints: record.endpoints,
            settings: &record.settings,
            intervals: &record.intervals,
            figures: &record.figures,
            elapsed: record.elapsed,
            cpu: record.cpu,
            error,
            wanted: record.wanted,
            capture: record.capture.clone(),
        };
        return json::print(&sent.document());
    }
    if args.output.quiet || error.is_some() {
        return Ok(());
    }
    report::print(&summary(record))
}

fn summary(record: &Record) -> String {
    let Record { figures, elapsed, cpu, .. } = record;
    let rate = report::rate(bits_per_second(figures.acked_bytes, *elapsed));
    let mut line = format!(
        "sent {} ({} bytes) in {:.3} s: {rate}, {} retransmissions, {:.2} CPU s",
        report::bytes(figures.acked_bytes),
        figures.acked_bytes,
        elapsed.as_secs_f64(),
        figures.retransmits,
        cpu.total().as_secs_f64(),
    );
    if let Some(seconds) = json::per_gib(*cpu, figures.acked_bytes) {
        line.push_str(&format!(" ({seconds:.2} a GiB)"));
    }
    if let Some(frames) = figures.shard.frames_per_kick() {
        line.push_str(&format!(", {frames:.1} frames a kick"));
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Read, Write as _};
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    use super::*;

    /// Keeps what is sent, in place of a network.
    #[derive(Default)]
    struct Memory {
        bytes: Vec<u8>,
        /// Moves at most this much at once.
        appetite: usize,
        /// Calls that find no room before each that does.
        stalls: usize,
        stalled: usize,
        /// Fails after this many bytes.
        breaks_after: Option<usize>,
        /// Closes after this many calls; never if none.
        closes_after: Option<usize>,
        closed: bool,
        aborted: bool,
        attended: usize,
        /// Runs before each move.
        between: Option<Box<dyn FnMut(usize)>>,
    }

    impl Memory {
        fn new() -> Self {
            Self { appetite: usize::MAX, closes_after: Some(0), ..Self::default() }
        }
    }

    impl Carrier for Memory {
        fn send_from(&mut self, source: &mut dyn Read, most: usize, _: Instant) -> Result<Moved, Broken> {
            if self.stalled < self.stalls {
                self.stalled += 1;
                return Ok(Moved::NoRoom);
            }
            self.stalled = 0;
            if self.breaks_after.is_some_and(|after| self.bytes.len() >= after) {
                return Err(Broken::new("the peer reset the connection"));
            }
            if let Some(between) = &mut self.between {
                between(self.bytes.len());
            }
            let mut buffer = vec![0; most.min(self.appetite)];
            match source.read(&mut buffer) {
                Ok(0) => Ok(Moved::End(0)),
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    Ok(Moved::Bytes(count))
                }
                Err(error) => Ok(Moved::Unreadable(error)),
            }
        }
        fn attend(&mut self, _: BorrowedFd<'_>, _: Instant) -> Result<(), Broken> {
            self.attended += 1;
            std::thread::yield_now();
            Ok(())
        }
        fn cork(&mut self) {}
        fn uncork(&mut self) {}
        fn close(&mut self, deadline: Instant) -> Result<bool, Broken> {
            match &mut self.closes_after {
                Some(0) => self.closed = true,
                Some(left) => *left -= 1,
                None => std::thread::sleep(deadline.saturating_duration_since(Instant::now())),
            }
            Ok(self.closed)
        }
        fn abort(&mut self) {
            self.aborted = true;
        }
        fn figures(&mut self) -> Figures {
            let count = self.bytes.len() as u64;
            Figures { sent_bytes: count, acked_bytes: count, ..Figures::default() }
        }
        fn settings(&self) -> Settings {
            Settings::default()
        }
        fn endpoints(&self) -> (SocketAddr, SocketAddr) {
            (([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into())
        }
        fn leave(self: Box<Self>, _: Instant) {}
    }

    fn watch(interrupts: &Interrupts) -> Watch<'_> {
        let progress = Progress::new(None, false);
        Watch {
            started: Instant::now(),
            interrupts,
            progress,
            intervals: Intervals::default(),
            warned: false,
        }
    }

    fn send(carrier: &mut Memory, paths: &[&Path], interrupts: &Interrupts) -> Result<(), Stop> {
        let sources = paths.iter().map(|path| Source::check(path).unwrap()).collect();
        let mut watch = watch(interrupts);
        pump(carrier, sources, &mut watch)?;
        close(carrier, &mut watch)
    }

    #[test]
    fn files_arrive_in_order_whatever_the_peer_takes() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two, none) =
            (directory.path().join("1"), directory.path().join("2"), directory.path().join("0"));
        let content: Vec<u8> = (0..700_001u32).map(|i| (i * 7) as u8).collect();
        fs::write(&one, &content).unwrap();
        fs::write(&two, b"tail").unwrap();
        fs::write(&none, b"").unwrap();
        for (appetite, stalls) in [(usize::MAX, 0), (1449, 1), (100_000, 3)] {
            let mut carrier = Memory { appetite, stalls, closes_after: Some(2), ..Memory::new() };
            send(&mut carrier, &[&one, &none, &two], &Interrupts::never()).unwrap();
            assert!(carrier.bytes == [&content[..], b"tail"].concat());
            assert!(carrier.closed && !carrier.aborted);
        }
    }

    #[test]
    fn a_file_that_shrinks_is_reported_with_what_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shrinking");
        fs::write(&path, vec![1; 10_000]).unwrap();
        let shrink = path.clone();
        let mut carrier = Memory { appetite: 1000, ..Memory::new() };
        carrier.between = Some(Box::new(move |sent| {
            if sent == 3000 {
                File::options().write(true).open(&shrink).unwrap().set_len(3500).unwrap();
            }
        }));
        let stop = send(&mut carrier, &[&path], &Interrupts::never()).unwrap_err();
        give_up(&mut carrier, &stop);
        assert!(carrier.closed && !carrier.aborted, "what was read arrives, with a FIN");
        let problem = stop.explain(&carrier.figures());
        let text = problem.to_string();
        assert!(text.contains("shrank") && text.contains("3500 bytes acknowledged"), "{text}");
        assert_eq!(problem.exit, Exit::Failed);
    }

    #[test]
    fn a_file_that_goes_away_between_two_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("1"), directory.path().join("2"));
        fs::write(&one, b"one").unwrap();
        fs::write(&two, b"two").unwrap();
        let sources = [&one, &two].map(|path| Source::check(path).unwrap()).into();
        fs::remove_file(&two).unwrap();
        let mut carrier = Memory::new();
        let interrupts = Interrupts::never();
        let stop = pump(&mut carrier, sources, &mut watch(&interrupts)).unwrap_err();
        assert!(matches!(stop, Stop::Source(_)));
        assert_eq!(carrier.bytes, b"one");
    }

    #[test]
    fn a_slow_pipe_is_waited_for_while_the_connection_is_kept_going() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let source = Source::check(Path::new(&path)).unwrap();
        drop(reader);
        let feeder = std::thread::spawn(move || {
            for part in [&b"slow "[..], b"pipe"] {
                std::thread::sleep(Duration::from_millis(20));
                writer.write_all(part).unwrap();
            }
        });
        let mut carrier = Memory::new();
        let interrupts = Interrupts::never();
        pump(&mut carrier, vec![source], &mut watch(&interrupts)).unwrap();
        feeder.join().unwrap();
        assert_eq!(carrier.bytes, b"slow pipe");
        assert!(carrier.attended > 0);
    }

    #[test]
    fn a_broken_connection_is_aborted_and_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![1; 10_000]).unwrap();
        let mut carrier = Memory { appetite: 1000, breaks_after: Some(4000), ..Memory::new() };
        let stop = send(&mut carrier, &[file.path()], &Interrupts::never()).unwrap_err();
        give_up(&mut carrier, &stop);
        assert!(carrier.aborted);
        let text = stop.explain(&carrier.figures()).to_string();
        assert_eq!(text, "the peer reset the connection; 4000 bytes acknowledged of 4000 sent");
    }

    #[test]
    fn a_signal_closes_cleanly() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![1; 10_000]).unwrap();
        let mut carrier = Memory { closes_after: Some(3), ..Memory::new() };
        let stop = send(&mut carrier, &[file.path()], &Interrupts::after(1)).unwrap_err();
        assert!(matches!(stop, Stop::Interrupted));
        give_up(&mut carrier, &stop);
        assert!(carrier.closed && !carrier.aborted);
        assert_eq!(stop.explain(&carrier.figures()).exit, Exit::Interrupted);
    }

    #[test]
    fn a_peer_that_does_not_let_us_close_gets_a_reset() {
        let mut carrier = Memory { closes_after: None, ..Memory::new() };
        give_up(&mut carrier, &Stop::Interrupted);
        assert!(carrier.aborted && !carrier.closed);
    }
}
