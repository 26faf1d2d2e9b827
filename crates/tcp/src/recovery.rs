//! Where loss recovery stands (RFC 6675, RFC 6582, RFC 6298).

use crate::seq::Seq;

/// RFC 5681 3.2, RFC 6675 section 2.
pub(crate) const DUP_THRESH: u32 = 3;

/// Two copies of a segment that leave this many time-outs apart are told apart: an acknowledgment within
/// [`DISTINCT_WITHIN`] of the second one is the second one's. Karn's rule would go on doubting, and keep the
/// back-off, for as long as old segments are repaired: hours, on a bad path without timestamps.
pub(crate) const DISTINCT_AFTER: u32 = 16;
/// See [`DISTINCT_AFTER`].
pub(crate) const DISTINCT_WITHIN: u32 = 4;

/// What is being repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Open,
    /// Fast recovery, until everything before `point` is acknowledged (RFC 6675 RecoveryPoint).
    Recovery {
        /// Behind what was sent when the loss was detected.
        point: Seq,
        /// The one rescue retransmission was used (RFC 6675 NextSeg rule 4).
        rescued: bool,
    },
    /// Slow start after a time-out, until everything before `point` is acknowledged.
    Loss {
        /// Behind what was sent when the timer expired.
        point: Seq,
    },
}

/// Phase and what detects the next loss for a peer without SACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// Duplicate acknowledgments in a row; counted only without SACK.
    pub(crate) duplicates: u32,
    /// Segments that these prove to have left the network.
    pub(crate) arrived: u32,
    /// The next retransmission does not wait for the pipe to drain (RFC 6675 section 5 step 4.3).
    pub(crate) forced: bool,
}

impl Recovery {
    pub(crate) fn new() -> Recovery {
        Recovery { phase: Phase::Open, duplicates: 0, arrived: 0, forced: false }
    }

    pub(crate) fn enter_recovery(&mut self, point: Seq) {
        self.phase = Phase::Recovery { point, rescued: false };
        self.forced = true;
    }

    pub(crate) fn enter_loss(&mut self, point: Seq) {
        *self = Recovery { phase: Phase::Loss { point }, ..Recovery::new() };
    }

    /// Without SACK: a duplicate acknowledgment arrived while `missing` segments are outstanding and not
    /// believed lost.
    pub(crate) fn on_duplicate(&mut self, missing: u32) {
        self.duplicates = self.duplicates.saturating_add(1);
        self.arrived = self.arrived.saturating_add(1).min(missing);
    }

    /// Without SACK: `acknowledged` segments were acknowledged. One of them filled the hole, the others are those
    /// that the duplicates told of.
    pub(crate) fn on_advance(&mut self, acknowledged: u32) {
        self.duplicates = 0;
        self.arrived = match self.phase {
            Phase::Recovery { .. } => self.arrived.saturating_sub(acknowledged.saturating_sub(1)),
            Phase::Open | Phase::Loss { .. } => 0,
        };
    }

    /// Leaves the phase if `snd_una` has passed its end. Returns the phase left.
    pub(crate) fn leave(&mut self, snd_una: Seq) -> Option<Phase> {
        match self.phase {
            Phase::Recovery { point, .. } | Phase::Loss { point } if snd_una >= point => {
                let left = self.phase;
                *self = Recovery::new();
                Some(left)
            }
            _ => None,
        }
    }
}
