//! When each flow next wants to be looked at.
//!
//! Timers are re-armed lazily: a flow whose deadline moved later keeps its old entry, and is asked again when that one
//! comes up. In the steady state, where every acknowledgement moves the retransmission timer, nothing is touched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xsend_tcp::Instant;

use crate::table::FlowId;

pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Instant, FlowId)>>,
}

impl Agenda {
    pub(crate) fn new(flows: usize) -> Self {
        // A flow has one live entry, and at most a few stale ones that have not come up yet.
        Self { heap: BinaryHeap::with_capacity(flows * 4) }
    }

    pub(crate) fn add(&mut self, at: Instant, flow: FlowId) {
        self.heap.push(Reverse((at, flow)));
    }

    /// The next flow whose time has come.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Instant, FlowId)> {
        let Reverse((at, flow)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some((at, flow))
    }

    /// The earliest entry, which may be stale: then waking for it is harmless.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
