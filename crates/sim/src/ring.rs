//! A model of the TX ring: a frame given to it leaves at once and is completed later, in order.

use core::time::Duration;
use std::collections::BTreeSet;

use xsend_tcp::{Instant, TxRing};

use crate::rng::Rng;

/// Bytes in front of the payload of each frame: its number.
pub(crate) const FRAME_HEADROOM: usize = 8;

/// The number that a frame carries.
pub(crate) fn frame_number(frame: &[u8]) -> u64 {
    frame.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

/// Properties of the TX ring.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Frames that it holds, completed ones excluded.
    pub slots: usize,
    /// From submission to completion, at least.
    pub completion: Duration,
    /// Up to this much more.
    pub completion_jitter: Duration,
    /// The chance that a frame's completion takes `held` more. Completions are in order, so that those
    /// behind it wait as well.
    pub hold: f64,
    /// How much longer a held frame takes.
    pub held: Duration,
    /// The chance that a frame is never completed: its slot is gone, and after `stuck_after` its bytes
    /// do not count any more as queued.
    pub stuck: f64,
    /// The chance that the device completes a frame without sending it, and says so.
    pub local_drop: f64,
    /// How long a retransmission waits for the ring before its frame is given up as stuck.
    pub stuck_after: Duration,
}

impl Default for RingConfig {
    /// 2048 slots, completed after 20 us.
    fn default() -> Self {
        Self {
            slots: 2048,
            completion: Duration::from_micros(20),
            completion_jitter: Duration::ZERO,
            hold: 0.0,
            held: Duration::from_millis(500),
            stuck: 0.0,
            local_drop: 0.0,
            stuck_after: Duration::from_secs(1),
        }
    }
}

/// What submitting a frame led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    /// It goes out on the link.
    pub(crate) sent: bool,
    /// What becomes of it in the ring.
    pub(crate) fate: Fate,
}

/// How a frame leaves the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is completed.
    Completes { at: Instant },
    /// It is never completed, and at this time given up.
    Stuck { until: Instant },
}

/// The ring at work.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) config: RingConfig,
    rng: Rng,
    used: usize,
    bytes: u64,
    held: BTreeSet<u64>,
    last_completion: Instant,
}

impl Ring {
    pub(crate) fn new(config: RingConfig, rng: Rng) -> Self {
        Self { config, rng, used: 0, bytes: 0, held: BTreeSet::new(), last_completion: Instant::ZERO }
    }

    /// Slots free.
    pub(crate) fn room(&self) -> usize {
        self.config.slots.saturating_sub(self.used)
    }

    /// Bytes submitted and not completed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the frame of this number is in the ring.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.held.contains(&number)
    }

    /// Takes a frame of `len` bytes; `number` names the payload's frame if it has one.
    pub(crate) fn submit(&mut self, now: Instant, number: Option<u64>, len: u64) -> Submitted {
        self.used += 1;
        self.bytes += len;
        self.held.extend(number);
        let jitter = self.rng.up_to(self.config.completion_jitter);
        let held = self.rng.chance(self.config.hold);
        let stuck = self.rng.chance(self.config.stuck);
        let sent = !self.rng.chance(self.config.local_drop);
        // Losing control frames' slots as well would only make the ring smaller.
        if stuck && number.is_some() {
            return Submitted { sent, fate: Fate::Stuck { until: now + self.config.stuck_after } };
        }
        let extra = if held { self.config.held } else { Duration::ZERO };
        let at = (now + self.config.completion + jitter + extra).max(self.last_completion);
        self.last_completion = at;
        Submitted { sent, fate: Fate::Completes { at } }
    }

    /// A submitted frame is completed.
    pub(crate) fn complete(&mut self, number: Option<u64>, len: u64) {
        self.used -= 1;
        self.bytes -= len;
        if let Some(number) = number {
            self.held.remove(&number);
        }
    }

    /// A stuck frame of `len` bytes is given up: its bytes count no more, its slot stays lost.
    pub(crate) fn give_up(&mut self, len: u64) {
        self.bytes -= len;
    }
}

impl TxRing<Box<[u8]>> for Ring {
    fn in_ring(&self, frame: &Box<[u8]>) -> bool {
        self.holds(frame_number(frame))
    }
}
