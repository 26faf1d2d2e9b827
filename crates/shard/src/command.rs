//! What application threads ask of a shard, and what it answers.

use core::fmt;

use xsend_signal::answer::Answerer;
use xsend_tcp::{Info, Instant, Outcome};
use xsend_wire::TemplateSpec;

use crate::config::Stats;
use crate::shard::Housekeeper;
use crate::stream::Opened;
use crate::table::{Ends, FlowId};

/// One request. Each is handled once, in order of arrival, after the frames that were published before it.
pub enum Command {
    /// Open a connection.
    Connect(Box<Connect>),
    /// No more will be written: FIN after everything filled.
    Shutdown(FlowId),
    /// Reset the connection now.
    Abort(FlowId),
    /// Nagle's algorithm off (`true`) or on.
    SetNodelay(FlowId, bool),
    /// What the engine knows of a flow; unanswered when there is no such flow any more.
    Info(FlowId, Answerer<Info>),
    /// Ask this one now and then what has changed, for as long as the shard lives.
    Watch(Box<dyn Housekeeper>),
    /// The shard's counters.
    Stats(Answerer<Stats>),
    /// End the shard: as soon as nothing waits to be acknowledged, or at this time by resetting what does.
    Stop(Instant),
}

/// A connection to open.
pub struct Connect {
    /// Both ends.
    pub ends: Ends,
    /// The headers of its segments; whether they carry timestamps is decided by the handshake.
    pub headers: TemplateSpec,
    /// The engine's settings.
    pub config: xsend_tcp::Config,
    /// Whatever must live as long as the flow does, TIME-WAIT included: its steering entry, its port. Dropped when the shard
    /// forgets the flow.
    pub lease: Box<dyn Send>,
    /// Told once the handshake is over, or cannot succeed.
    pub answer: Answerer<Result<Opened, ConnectFailure>>,
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The shard holds as many flows as it may.
    TooManyFlows,
    /// A flow between these ends exists.
    InUse,
    /// The frames of this shard cannot hold a segment of the negotiated size.
    SegmentTooLarge,
    /// The handshake ended like this.
    Ended(Outcome),
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyFlows => f.write_str(
                "the sender holds as many connections as its frames suffice for (give it more frames)",
            ),
            Self::InUse => {
                f.write_str("a flow between these addresses and ports exists (use another source port)")
            }
            Self::SegmentTooLarge => {
                f.write_str("a segment does not fit in a frame (use larger chunks or a smaller MSS)")
            }
            Self::Ended(outcome) => write!(f, "{}", describe(*outcome)),
        }
    }
}

/// An outcome, for people.
pub fn describe(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Finished => "closed by both ends",
        Outcome::Refused => "refused by the peer: nothing listens on that port",
        Outcome::Reset => "reset by the peer",
        Outcome::TimedOut => "the peer no longer answers",
        Outcome::Unreachable(_) => "the network says that the peer cannot be reached",
        Outcome::Aborted => "aborted on this side",
        _ => "ended",
    }
}

/// The codes by which [`xsend_signal::life::State::Failed`] says how a stream ended.
pub fn outcome_code(outcome: Outcome) -> u16 {
    match outcome {
        Outcome::Finished => 0,
        Outcome::Refused => 1,
        Outcome::Reset => 2,
        Outcome::TimedOut => 3,
        Outcome::Unreachable(_) => 4,
        Outcome::Aborted => 5,
        _ => 6,
    }
}
