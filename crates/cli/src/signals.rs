//! SIGINT, SIGTERM and SIGHUP: the first asks the command to end well, the second ends it at once.
//!
//! Nothing but closing descriptors is needed to leave the interface as it was found (the XDP program hangs on a BPF
//! link), so ending at once is always safe; ending well is for the peer, who gets its FIN.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::pcapng::Capture;
use crate::problem::{Exit, Problem};
use crate::report;

/// How long a command may take to end well after the first signal; then the process ends by itself.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How long a connection may take to close with its FIN acknowledged, of that.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Shared {
    /// Someone asks `requested` at least this often and ends soon after; until then the first signal ends the process.
    cooperating: Option<Duration>,
    capture: Option<Capture>,
}

/// Says whether a signal came.
pub(crate) struct Interrupts {
    requests: Receiver<()>,
    seen: Cell<bool>,
    shared: Arc<Mutex<Shared>>,
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

impl Interrupts {
    /// Takes over the three signals, but no SIGHUP that whoever started this process has it ignore (`nohup`).
    pub(crate) fn install() -> Result<Self, Problem> {
        let cannot = |error| Problem::failed(format!("cannot handle signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(cannot)?;
        if !is_ignored(SIGHUP) {
            signals.add_signal(SIGHUP).map_err(cannot)?;
        }
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (request, requests) = mpsc::channel();
        let theirs = Arc::clone(&shared);
        let body = move || {
            let mut came = 0u32;
            for _ in signals.forever() {
                came = came.saturating_add(1);
                let Some(grace) = cooperating(&theirs) else { end_now(&theirs) };
                if came > 1 || request.send(()).is_err() {
                    end_now(&theirs);
                }
                let theirs = Arc::clone(&theirs);
                thread::spawn(move || {
                    thread::sleep(grace);
                    end_now(&theirs);
                });
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(body).map_err(cannot)?;
        Ok(Self { requests, seen: Cell::new(false), shared })
    }

    /// For tests: no signal ever comes.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::after(0)
    }

    /// For tests: as if a signal had come, if `count` is not 0.
    #[cfg(test)]
    pub(crate) fn after(count: usize) -> Self {
        let (request, requests) = mpsc::channel();
        for _ in 0..count {
            request.send(()).unwrap();
        }
        Self::from_channel(requests)
    }

    /// For tests: a message is a signal.
    #[cfg(test)]
    pub(crate) fn from_channel(requests: Receiver<()>) -> Self {
        Self { requests, seen: Cell::new(false), shared: Arc::default() }
    }

    /// From now on the first signal is answered by whoever asks `requested`. If the process has not ended `grace` after
    /// it, it is ended, and the capture flushed.
    pub(crate) fn cooperate(&self, grace: Duration, capture: Option<Capture>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = Shared { cooperating: Some(grace), capture };
    }

    /// Whether a signal came; stays true.
    pub(crate) fn requested(&self) -> bool {
        if !self.seen.get() && self.requests.try_recv().is_ok() {
            self.seen.set(true);
        }
        self.seen.get()
    }
}

fn cooperating(shared: &Mutex<Shared>) -> Option<Duration> {
    shared.lock().unwrap_or_else(PoisonError::into_inner).cooperating
}

fn end_now(shared: &Mutex<Shared>) -> ! {
    let capture = shared.lock().unwrap_or_else(PoisonError::into_inner).capture.clone();
    if let Some(capture) = capture {
        capture.flush_now();
    }
    if std::io::stderr().is_terminal() {
        report::complain("interrupted");
    }
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
