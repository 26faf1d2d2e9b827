//! What a run has shown.

use core::fmt;
use core::time::Duration;

use xsend_tcp::{Event, Info, Outcome, TimeOut};

use crate::link::Fates;
use crate::peer::{PeerEnd, PeerFacts};

/// Why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends are through with the connection.
    Done,
    /// The time limit has passed.
    OutOfTime,
    /// Nothing is on its way and no timer runs, but the connection is not over.
    Deadlock,
    /// Too much happened, in one instant or in all.
    Livelock,
}

/// The result of a run. Times are since its start.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario's seed.
    pub seed: u64,
    /// Why the run stopped.
    pub ending: Ending,
    /// How the connection ended for the engine's application, if it did.
    pub outcome: Option<Outcome>,
    /// What the engine waited for in vain, if that is the outcome.
    pub time_out: Option<TimeOut>,
    /// When the engine's handshake was over.
    pub established_at: Option<Duration>,
    /// Bytes that the peer's application has read.
    pub delivered: u64,
    /// When it had read the last byte that the scenario sends.
    pub delivered_at: Option<Duration>,
    /// Bytes that the engine's application has read.
    pub received: u64,
    /// The engine's application was told of the peer's FIN.
    pub peer_closed: bool,
    /// When the engine told the outcome.
    pub closed_at: Option<Duration>,
    /// When the run stopped.
    pub finished_at: Duration,
    /// Segments the engine sent, whatever they carried.
    pub segments: u64,
    /// Data segments among them.
    pub data_segments: u64,
    /// Segments that it sent again, FIN and SYN included.
    pub retransmits: u64,
    /// Resets that it sent.
    pub resets: u64,
    /// Batches of data that it sent.
    pub batches: u64,
    /// Times that it asked for a split.
    pub splits: u64,
    /// Frames that were given up in the ring and replaced.
    pub frames_replaced: u64,
    /// Payload frames that the engine was given.
    pub frames_given: u64,
    /// Those that never came back.
    pub frames_missing: u64,
    /// Frames that were too long for the path.
    pub too_long: u64,
    /// What the engine says of itself at the end.
    pub info: Info,
    /// What it told its holder, in order.
    pub events: Vec<Event>,
    /// What the peer has seen.
    pub peer: PeerFacts,
    /// Fates on the way to the peer.
    pub forward: Fates,
    /// Fates on the way back.
    pub back: Fates,
    /// Breaches of TCP's rules by the engine, the first few in words.
    pub breaches: Vec<String>,
    /// How many there were.
    pub breach_count: u64,
    /// A fingerprint of every frame and its time: equal for equal runs.
    pub trace_hash: u64,
    /// The last lines of the run in words, if they were asked for.
    pub trace: Vec<String>,
}

impl Report {
    /// Bytes a second that the peer's application read, from the handshake to the last byte; 0 if
    /// not everything was delivered.
    pub fn goodput(&self) -> f64 {
        match (self.established_at, self.delivered_at) {
            (Some(from), Some(to)) if to > from => self.delivered as f64 / (to - from).as_secs_f64(),
            _ => 0.0,
        }
    }

    /// What is wrong in any run, however it ends: broken rules, wrong bytes, lost frames, no end.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.breaches.clone();
        if self.breach_count > self.breaches.len() as u64 {
            faults.push(format!("{} breaches in all", self.breach_count));
        }
        if self.ending != Ending::Done {
            faults.push(format!("the run ended with {:?}", self.ending));
        }
        if let Some(at) = self.peer.mismatch_at {
            faults.push(format!("the peer received a wrong byte at {at}"));
        }
        if self.peer.beyond_window > 0 {
            faults.push(format!("{} bytes beyond the peer's window", self.peer.beyond_window));
        }
        if self.peer.missing_timestamps > 0 {
            faults.push(format!("{} segments without timestamps", self.peer.missing_timestamps));
        }
        if self.peer.bad_acks > 0 {
            faults.push(format!("{} acknowledgments of what was not sent", self.peer.bad_acks));
        }
        if self.frames_missing > 0 {
            faults.push(format!("{} of {} frames never came back", self.frames_missing, self.frames_given));
        }
        faults
    }

    /// What is wrong in a run that should have delivered `bytes` and `back` bytes and closed cleanly.
    pub(crate) fn faults_of_delivery(&self, bytes: u64, back: u64) -> Vec<String> {
        let mut faults = self.faults();
        if self.outcome != Some(Outcome::Finished) {
            faults.push(format!("the engine's outcome is {:?}", self.outcome));
        }
        if self.peer.end != PeerEnd::Clean || !self.peer.at_end {
            faults.push(format!("the peer ended with {:?}, at its end: {}", self.peer.end, self.peer.at_end));
        }
        if self.delivered != bytes {
            faults.push(format!("{} of {bytes} bytes delivered", self.delivered));
        }
        if self.received != back {
            faults.push(format!("{} of {back} bytes received", self.received));
        }
        if !self.peer_closed {
            faults.push("the engine was not told of the peer's FIN".to_owned());
        }
        if self.resets > 0 {
            faults.push(format!("{} resets sent", self.resets));
        }
        faults
    }
}

/// A run that was not as it should be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was wrong.
    pub faults: Vec<String>,
    /// The scenario, to run it again.
    pub scenario: String,
    /// The run, with its last lines in words.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}:", self.report.seed)?;
        for fault in &self.faults {
            writeln!(f, "  * {fault}")?;
        }
        writeln!(f, "the last lines of its trace:")?;
        for line in &self.report.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "the engine: {:?}", self.report.info)?;
        writeln!(f, "the peer: {:?}", self.report.peer)?;
        writeln!(f, "the link: {:?} {:?}", self.report.forward, self.report.back)?;
        write!(f, "{}", self.scenario)
    }
}

impl core::error::Error for Failure {}
