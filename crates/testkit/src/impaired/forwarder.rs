//! The loop that the program `impaired` runs: frames in, a verdict over each, frames out when their time has come.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use std::{array, mem, thread};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl::set_timerslack;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::unistd::read;

use crate::impaired::frame;
use crate::impaired::impairment::{Impairment, Verdict};
use crate::impaired::port::{BATCH, Port, Sent};
use crate::impaired::queue::{Frame, Pool, UnderWay};
use crate::impaired::settings::OPTIONS;
use crate::impaired::{Counters, Direction, Link};
use crate::names;

/// Ethernet and one VLAN tag more than the MTU.
const FRAME_OVERHEAD: usize = 18;

/// How late a frame may be for the sake of the next ones.
const TIMER_SLACK_NS: u64 = 30_000;

/// How long after an interface had no room it is tried again.
const RETRY_NS: u64 = 50_000;

/// Longer than any command with all its outages.
const LONGEST_COMMAND: usize = 16 << 10;

/// How often, and after what pause, frames are looked for that the kernel has counted already.
const COUNTING_TRIES: u32 = 20;
const COUNTING_PAUSE: Duration = Duration::from_micros(500);

/// Batches taken from one interface before the other is looked at.
const TURNS: usize = 4;

/// What `impaired` was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface towards the sender.
    pub near: String,
    /// The interface towards the receiver.
    pub far: String,
    /// What the link does.
    pub link: Link,
    /// The MTU of both interfaces; longer frames are dropped.
    pub mtu: u32,
    /// Most bytes of frames under way.
    pub memory: usize,
    /// Multicast and broadcast frames pass at once and unharmed, and do not count in the sequence that the seed is about:
    /// the kernel sends them when it likes.
    pub spare_multicast: bool,
    /// Commands come on standard input, and its end is the end.
    pub controlled: bool,
    /// Namespaces to remove when standard input ends without the command `end`: their maker has died.
    pub orphans: Vec<String>,
}

/// The text of `impaired --help`.
pub fn help() -> String {
    let mut text = "\
impaired [OPTIONS] NEAR FAR

Moves frames between two interfaces of its network namespace, and delays, loses, reorders, duplicates, corrupts, limits
and marks them on the way. Says `ready` on standard error; SIGTERM or SIGINT ends it, and then it prints what it counted
as JSON.

From NEAR to FAR and back alike:
"
    .to_owned();
    for (name, what) in OPTIONS {
        text += &format!("  --{name} {what}\n");
    }
    text += "\
  --back-OPTION ...   any of these, from FAR to NEAR alone

  --seed N            what is random depends on it and on the sequence of frames alone (0)
  --mtu BYTES         of both interfaces (1500)
  --spare-multicast   passes multicast and broadcast frames at once and unharmed, outside the sequence
  --memory BYTES      most that may be under way (268435456)
  --control           takes commands on standard input, a line each, answers each with a line of counters, and ends with
                      standard input: `cut`, `mend`, `counters`, `end`, and `link OPTIONS`, to go on as another link
  --orphan NAME       a namespace of xsend's tests to remove when standard input ends without `end`
";
    text
}

/// What the words on the command line say; `None` where they ask for help.
///
/// # Errors
/// In words, when they say nothing sensible.
pub fn parse(words: &[String]) -> Result<Option<Options>, String> {
    let (link, rest) = link_from(words)?;
    let mut options = Options {
        near: String::new(),
        far: String::new(),
        link,
        mtu: 1500,
        memory: 256 << 20,
        spare_multicast: false,
        controlled: false,
        orphans: Vec::new(),
    };
    let mut plain = Vec::new();
    let mut rest = rest.into_iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "-h" | "--help" => return Ok(None),
            "--spare-multicast" => options.spare_multicast = true,
            "--control" => options.controlled = true,
            "--mtu" => options.mtu = number("--mtu", &value()?, 68, 65_535)? as u32,
            "--memory" => options.memory = number("--memory", &value()?, 1 << 20, 1 << 40)? as usize,
            "--orphan" => options.orphans.push(value()?),
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            _ => plain.push(word),
        }
    }
    let foreign = options.orphans.iter().find(|name| names::owner(name).is_none());
    if let Some(name) = foreign {
        return Err(format!("{name} is no namespace of xsend's tests"));
    }
    let wanted = || "two interfaces are needed: NEAR FAR".to_owned();
    [options.near, options.far] = plain.try_into().map_err(|_| wanted())?;
    Ok(Some(options))
}

/// The link that the words describe, and the words that are about something else.
///
/// # Errors
/// In words, when an option of the link has a value that is none.
pub fn link_from(words: &[String]) -> Result<(Link, Vec<String>), String> {
    let (mut link, mut back, mut rest) = (Link::default(), Vec::new(), Vec::new());
    let known = |name: &str| OPTIONS.iter().any(|(option, _)| *option == name);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").unwrap_or_default();
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        if name == "seed" {
            link.seed = number(word, value()?, 0, u64::MAX)?;
        } else if let Some(name) = name.strip_prefix("back-").filter(|name| known(name)) {
            back.push((word, name, value()?));
        } else if known(name) {
            let value = value()?;
            let told = |e| format!("{word}: {e}");
            link.forward.set(name, value).map_err(told)?;
            link.back.set(name, value).map_err(told)?;
        } else {
            rest.push(word.clone());
        }
    }
    // Last, so that it does not matter what was said first.
    for (word, name, value) in back {
        link.back.set(name, value).map_err(|e| format!("{word}: {e}"))?;
    }
    Ok((link, rest))
}

/// The link that a line describes that says nothing else.
fn link_alone(line: &str) -> Result<Link, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match link_from(&words)? {
        (link, rest) if rest.is_empty() => Ok(link),
        (_, rest) => Err(format!("{} does not belong to a link", rest.join(" "))),
    }
}

fn number(option: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option} {text}: not a number from {least} to {most}"))
}

/// Runs the link until it is told to end, and returns what it counted.
///
/// # Errors
/// When an interface is not there or cannot be used; the message names it.
pub fn run(options: &Options) -> io::Result<Counters> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    // A frame of a gigabit link is due every 12 us: a little late they leave several at once, for a third less CPU.
    set_timerslack(TIMER_SLACK_NS)?;
    let mut forwarder = Forwarder::open(options)?;
    // Nobody may be there to read it: then standard input says so too, and there is something to clean up.
    let _ = writeln!(io::stderr(), "ready");
    let stdin = io::stdin();
    let mut control = Control::default();
    let end = loop {
        let wake = forwarder.wait(&signals, options.controlled.then(|| stdin.as_fd()))?;
        if wake.signal && signals.read_signal()?.is_some() && !options.controlled {
            // Under control, a signal to the whole process group must not end the link before its maker has ended.
            break End::Told;
        }
        if wake.control
            && let Some(end) = control.read(stdin.as_fd(), &mut forwarder)?
        {
            break end;
        }
        forwarder.turn()?;
    };
    if end == End::Orphaned {
        for name in &options.orphans {
            let _ = names::remove_namespace(name);
        }
    }
    forwarder.counters()
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Told,
    Orphaned,
}

/// Commands on standard input.
#[derive(Debug, Default)]
struct Control {
    line: Vec<u8>,
}

impl Control {
    fn read(&mut self, stdin: BorrowedFd<'_>, forwarder: &mut Forwarder) -> io::Result<Option<End>> {
        let mut bytes = [0; 256];
        let count = read(stdin, &mut bytes)?;
        if count == 0 {
            return Ok(Some(End::Orphaned));
        }
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                if self.line.len() == LONGEST_COMMAND {
                    return Err(io::Error::other(format!("a command of more than {LONGEST_COMMAND} bytes")));
                }
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&mem::take(&mut self.line)).into_owned();
            let (command, words) = line.split_once(' ').unwrap_or((&line, ""));
            match command {
                "cut" => forwarder.set_cut(true),
                "mend" => forwarder.set_cut(false),
                "counters" => {}
                "end" => return Ok(Some(End::Told)),
                "link" => forwarder.restart(&link_alone(words).map_err(io::Error::other)?),
                _ => return Err(io::Error::other(format!("unknown command {line:?}"))),
            }
            let _ = writeln!(io::stdout(), "{}", forwarder.counters()?.to_json());
        }
        Ok(None)
    }
}

/// What there is to do besides frames.
#[derive(Clone, Copy, Debug, Default)]
struct Wake {
    signal: bool,
    control: bool,
}

/// The way from one port to the other.
#[derive(Debug)]
struct Lane {
    impairment: Impairment,
    spare_multicast: bool,
    under_way: UnderWay,
    /// Frames whose time has come, on their way into the port. Nothing is ever allocated for it but at first.
    outbox: VecDeque<Frame>,
    /// What came of the last attempt to send.
    state: Outgoing,
    /// What the impairment does not know of.
    counters: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outgoing {
    Free,
    /// Until `poll` says that there is room.
    Full,
    /// Until a time.
    Refused {
        until_ns: u64,
    },
}

impl Lane {
    fn new(impairment: Impairment, spare_multicast: bool) -> Self {
        Self {
            impairment,
            spare_multicast,
            under_way: UnderWay::default(),
            outbox: VecDeque::with_capacity(BATCH),
            state: Outgoing::Free,
            counters: Direction::default(),
        }
    }

    /// When there is something to send.
    fn wakes_at_ns(&self) -> Option<u64> {
        match self.state {
            Outgoing::Full => None,
            Outgoing::Refused { until_ns } => Some(until_ns),
            Outgoing::Free if !self.outbox.is_empty() => Some(0),
            Outgoing::Free => self.under_way.next_at_ns(),
        }
    }

    /// Takes what has come at `from`, and says whether there may be more.
    fn receive(&mut self, from: &mut Port, hold: &mut Hold, clock: Instant) -> io::Result<bool> {
        let count = from.receive(&mut hold.buffers, &mut hold.lengths)?;
        let now_ns = nanos_since(clock);
        for at in 0..count {
            let len = hold.lengths[at];
            if len > hold.pool.size() {
                self.counters.oversized += 1;
                self.counters.offered += 1;
                self.counters.offered_bytes += len as u64;
                continue;
            }
            let bytes = &mut hold.buffers[at][..len];
            // IEEE 802.3 3.2.3: the lowest bit of the first byte of the destination.
            if self.spare_multicast && bytes.first().is_some_and(|first| first & 1 != 0) {
                self.counters.spared += 1;
                self.counters.offered += 1;
                self.counters.offered_bytes += len as u64;
                self.carry(hold, at, now_ns, false);
                continue;
            }
            match self.impairment.offer(now_ns, len, frame::ecn(bytes)) {
                Verdict::Lost => {}
                Verdict::Carried { at_ns, twice, marked, corrupted } => {
                    if marked {
                        frame::mark(bytes);
                    }
                    if let Some(random) = corrupted {
                        self.counters.corrupted += u64::from(frame::corrupt(bytes, random));
                    }
                    self.carry(hold, at, at_ns, twice);
                }
            }
        }
        Ok(count == BATCH)
    }

    /// Puts a received frame on its way, and another buffer where it lay.
    fn carry(&mut self, hold: &mut Hold, at: usize, at_ns: u64, twice: bool) {
        let len = hold.lengths[at];
        let Some(fresh) = hold.pool.take() else {
            self.counters.no_memory += 1;
            return;
        };
        let buffer = mem::replace(&mut hold.buffers[at], fresh);
        let copy = if twice { hold.pool.take() } else { None };
        let copy = copy.map(|mut copy| {
            copy[..len].copy_from_slice(&buffer[..len]);
            Frame::new(copy, len)
        });
        self.under_way.push(at_ns, Frame::new(buffer, len));
        if let Some(copy) = copy {
            self.counters.duplicated += 1;
            self.under_way.push(at_ns, copy);
        }
    }

    /// Sends what is due into `to`.
    fn send(&mut self, to: &mut Port, pool: &mut Pool, now_ns: u64) {
        if let Outgoing::Refused { until_ns } = self.state
            && until_ns <= now_ns
        {
            self.state = Outgoing::Free;
        }
        while self.state == Outgoing::Free {
            while self.outbox.len() < BATCH
                && let Some(frame) = self.under_way.pop(now_ns)
            {
                self.outbox.push_back(frame);
            }
            if self.outbox.is_empty() {
                return;
            }
            match to.send(self.outbox.iter()) {
                Sent::Frames(count) => {
                    for frame in self.outbox.drain(..count) {
                        self.counters.sent += 1;
                        self.counters.sent_bytes += frame.bytes().len() as u64;
                        pool.give(frame.into_buffer());
                    }
                }
                Sent::Full => self.state = Outgoing::Full,
                Sent::Refused => self.state = Outgoing::Refused { until_ns: now_ns + RETRY_NS },
                Sent::Failed => {
                    self.counters.send_failed += 1;
                    if let Some(frame) = self.outbox.pop_front() {
                        pool.give(frame.into_buffer());
                    }
                }
            }
        }
    }

    /// All there is to tell of this way, `to` being where it goes out.
    fn counters(&self, missed: u64, to: &Port) -> Direction {
        let Direction { offered, offered_bytes, oversized, no_memory, corrupted, duplicated, .. } =
            self.counters;
        let Direction { spared, sent, sent_bytes, send_failed, .. } = self.counters;
        let decided = *self.impairment.counters();
        Direction {
            offered: decided.offered + offered,
            offered_bytes: decided.offered_bytes + offered_bytes,
            oversized,
            spared,
            no_memory,
            corrupted,
            duplicated,
            sent,
            sent_bytes,
            send_failed,
            under_way: (self.under_way.len() + self.outbox.len()) as u64,
            missed,
            device_dropped: to.device_dropped(),
            ..decided
        }
    }
}

/// The buffers that frames are received into, and where more come from.
#[derive(Debug)]
struct Hold {
    buffers: [Box<[u8]>; BATCH],
    lengths: [usize; BATCH],
    pool: Pool,
}

#[derive(Debug)]
struct Forwarder {
    clock: Instant,
    near: Port,
    far: Port,
    forward: Lane,
    back: Lane,
    hold: Hold,
    /// A port had more than was taken: not to sleep now.
    busy: bool,
}

impl Forwarder {
    fn open(options: &Options) -> io::Result<Self> {
        let Options { near, far, link, mtu, memory, spare_multicast, .. } = options;
        let size = *mtu as usize + FRAME_OVERHEAD;
        Ok(Self {
            near: Port::open(near, *mtu)?,
            far: Port::open(far, *mtu)?,
            forward: Lane::new(Impairment::new(link.forward.clone(), link.seed), *spare_multicast),
            back: Lane::new(Impairment::new(link.back.clone(), back_seed(link)), *spare_multicast),
            hold: Hold {
                buffers: array::from_fn(|_| vec![0; size].into_boxed_slice()),
                lengths: [0; BATCH],
                pool: Pool::new(size, *memory),
            },
            busy: false,
            clock: Instant::now(),
        })
    }

    fn restart(&mut self, link: &Link) {
        let now_ns = nanos_since(self.clock);
        self.forward.impairment.restart(link.forward.clone(), link.seed, now_ns);
        self.back.impairment.restart(link.back.clone(), back_seed(link), now_ns);
    }

    fn set_cut(&mut self, cut: bool) {
        self.forward.impairment.set_cut(cut);
        self.back.impairment.set_cut(cut);
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self, signals: &SignalFd, stdin: Option<BorrowedFd<'_>>) -> io::Result<Wake> {
        let timeout =
            self.timeout_ns().map(|ns| TimeSpec::nanoseconds(i64::try_from(ns).unwrap_or(i64::MAX)));
        let events = |lane: &Lane| match lane.state {
            Outgoing::Full => PollFlags::POLLIN | PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        };
        // The way back goes out at the near port.
        let mut polled = [
            PollFd::new(self.near.as_fd(), events(&self.back)),
            PollFd::new(self.far.as_fd(), events(&self.forward)),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(stdin.unwrap_or(signals.as_fd()), PollFlags::POLLIN),
        ];
        let count = if stdin.is_some() { 4 } else { 3 };
        match ppoll(&mut polled[..count], timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let told = |at: usize| polled[at].revents().unwrap_or(PollFlags::empty());
        let room = [told(0), told(1)].map(|events| events.contains(PollFlags::POLLOUT));
        let wake = Wake { signal: !told(2).is_empty(), control: count == 4 && !told(3).is_empty() };
        for (lane, room) in [&mut self.back, &mut self.forward].into_iter().zip(room) {
            if room {
                lane.state = Outgoing::Free;
            }
        }
        Ok(wake)
    }

    /// Until the next frame is due, or `None`.
    fn timeout_ns(&self) -> Option<u64> {
        if self.busy {
            return Some(0);
        }
        let wakes = [self.forward.wakes_at_ns(), self.back.wakes_at_ns()];
        wakes.into_iter().flatten().min().map(|at_ns| at_ns.saturating_sub(nanos_since(self.clock)))
    }

    fn turn(&mut self) -> io::Result<()> {
        let Self { clock, near, far, forward, back, hold, busy } = self;
        *busy = false;
        for (lane, from) in [(&mut *forward, &mut *near), (&mut *back, &mut *far)] {
            let mut turns = 0;
            while lane.receive(from, hold, *clock)? {
                turns += 1;
                if turns == TURNS {
                    *busy = true;
                    break;
                }
            }
        }
        let now_ns = nanos_since(*clock);
        forward.send(far, &mut hold.pool, now_ns);
        back.send(near, &mut hold.pool, now_ns);
        Ok(())
    }

    /// All there is to tell. The kernel counts a frame before this process can have it, so those that it counts now
    /// are waited for: what has not come then is missed.
    fn counters(&mut self) -> io::Result<Counters> {
        let arrived = [self.near.arrived(), self.far.arrived()];
        let missed = |this: &Self| {
            [arrived[0].saturating_sub(this.near.received()), arrived[1].saturating_sub(this.far.received())]
        };
        let mut tries = 0;
        while missed(self) != [0, 0] && tries < COUNTING_TRIES {
            self.turn()?;
            if !self.busy {
                thread::sleep(COUNTING_PAUSE);
                tries += 1;
            }
        }
        let [near_missed, far_missed] = missed(self);
        Ok(Counters {
            forward: self.forward.counters(near_missed, &self.far),
            back: self.back.counters(far_missed, &self.near),
        })
    }
}

/// Directions that are alike must not lose the same frames.
fn back_seed(link: &Link) -> u64 {
    link.seed ^ 0x6261_636b
}

fn nanos_since(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn plain_options_are_for_both_ways_and_back_ones_win_wherever_they_stand() {
        let line =
            "--back-loss 0 --loss 1% --delay 5ms n --mtu 9000 --back-rate 1m f --seed 7 --orphan xs1-2a";
        let options = parse(&words(line)).unwrap().unwrap();
        assert_eq!((options.near.as_str(), options.far.as_str(), options.mtu), ("n", "f", 9000));
        assert_eq!((options.link.seed, options.controlled), (7, false));
        assert_eq!(options.orphans, ["xs1-2a"]);
        let Link { forward, back, .. } = options.link;
        assert_eq!((forward.delay, back.delay), (Duration::from_millis(5), Duration::from_millis(5)));
        assert_eq!((forward.loss.share(), back.loss.share()), (0.01, 0.0));
        assert_eq!((forward.rate, back.rate), (0, 1_000_000));
    }

    #[test]
    fn wrong_usage_is_told() {
        for line in [
            "",
            "n",
            "n f x",
            "n f --loss",
            "n f --loss 2",
            "n f --back-loss x",
            "n f --what",
            "n f --mtu 70000",
            "n f --seed -1",
            "n f --orphan eth0",
        ] {
            assert!(parse(&words(line)).is_err(), "{line:?}");
        }
        assert_eq!(parse(&words("n --help")), Ok(None));
    }

    #[test]
    fn the_help_names_every_option() {
        let help = help();
        for (name, _) in OPTIONS {
            assert!(help.contains(&format!("--{name} ")), "{name}");
        }
    }
}
