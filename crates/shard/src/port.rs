//! A device together with its frames: who has which, and the ways a segment gets in and out.

use std::collections::VecDeque;

use xsend_signal::tail::Tails;
use xsend_tcp::{Instant, TxRing};
use xsend_wire::checksum::Sum;
use xsend_xsk::{Frame, Kick, Umem};

use crate::config::Stats;
use crate::device::Device;
use crate::table::FlowId;

/// What the engine's queues hold: a frame and, for what is to be sent, the sum of its payload.
#[derive(Debug)]
pub struct Payload {
    pub(crate) frame: Frame,
    pub(crate) sum: Sum,
    pub(crate) way: Way,
}

/// Which way a payload goes, for the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// Sees every frame that a shard sends or receives: the built-in capture, as no tool of the host can see AF_XDP traffic.
pub trait Tap: Send {
    /// A whole Ethernet frame, without its checksum. `time_ns` is the shard's clock at the turn it went through.
    fn frame(&mut self, direction: Direction, time_ns: u64, bytes: &[u8]);
}

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From us.
    Sent,
    /// To us.
    Received,
}

/// Whose frame is in the TX ring, and how much it counts against that flow's share.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) flow: FlowId,
    pub(crate) bytes: u32,
}

pub(crate) struct Port<D> {
    pub(crate) device: D,
    pub(crate) umem: Umem,
    pub(crate) tails: Tails,
    /// Free frames. A stack: the frame freed last is the one most likely to be still in the cache.
    pool: Vec<Frame>,
    /// Freed frames that a writer may still be copying into; see [`Port::recycle`].
    limbo: VecDeque<Frame>,
    in_flight: Box<[Option<InFlight>]>,
    pub(crate) stats: Stats,
    pub(crate) tap: Option<Box<dyn Tap>>,
    /// Frames just taken from a stream: empty between calls, kept for its memory.
    pub(crate) filled: Vec<Frame>,
    /// Frames staged in this turn, by place.
    staged: Box<[usize]>,
    /// A flow that was to be lent a frame in this turn, and found only those that are kept for others.
    pub(crate) pressed: Option<FlowId>,
}

/// The engine's question whether a segment may be sent again yet.
pub(crate) struct Ring<'a, D>(pub(crate) &'a D);

impl<D: Device> TxRing<Payload> for Ring<'_, D> {
    #[inline]
    fn in_ring(&self, payload: &Payload) -> bool {
        self.0.in_ring(&payload.frame)
    }
}

impl<D: Device> Port<D> {
    pub(crate) fn new(device: D, umem: Umem, frames: Vec<Frame>, tap: Option<Box<dyn Tap>>) -> Self {
        let total = umem.frames();
        let mut pool = frames;
        // The stack hands out from its end: let that be the lowest frames.
        pool.reverse();
        let staged = vec![0; device.places()].into_boxed_slice();
        let mut port = Self {
            device,
            tails: Tails::new(total),
            limbo: VecDeque::with_capacity(total as usize),
            filled: Vec::with_capacity(total as usize),
            in_flight: vec![None; total as usize].into_boxed_slice(),
            umem,
            pool,
            stats: Stats::default(),
            tap,
            staged,
            pressed: None,
        };
        port.top_up();
        port
    }

    /// Free frames.
    pub(crate) fn free(&self) -> usize {
        self.pool.len()
    }

    /// Frames that wait for a writer to move on.
    pub(crate) fn in_limbo(&self) -> usize {
        self.limbo.len()
    }

    /// A free frame, the hottest one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Frame> {
        self.pool.pop()
    }

    /// Takes back a frame that nobody needs any more, wherever it still is: one that the TX ring holds comes back with its
    /// completion.
    #[inline]
    pub(crate) fn give_back(&mut self, frame: Frame) {
        if let Some(frame) = self.device.release(frame) {
            self.recycle(frame);
        }
    }

    /// A frame goes back on the stack only when no writer can be inside it: the shard may have sealed it while its writer was
    /// copying behind the published length, and those bytes must not land in somebody else's segment.
    #[inline]
    fn recycle(&mut self, frame: Frame) {
        match self.umem.reclaim(frame) {
            Ok(frame) => self.pool.push(frame),
            Err(frame) => self.limbo.push_back(frame),
        }
    }

    /// Looks whether the writers of frames in limbo have moved on: a few a turn, in rotation.
    pub(crate) fn look_into_limbo(&mut self) {
        for _ in 0..self.limbo.len().min(8) {
            let Some(frame) = self.limbo.pop_front() else { return };
            self.recycle(frame);
        }
    }

    /// How many more frames fit in this queue's TX ring.
    #[inline]
    pub(crate) fn tx_room(&mut self, place: usize) -> usize {
        self.device.tx_room(place)
    }

    /// Stages a frame whose first `len` bytes are a whole packet of `flow`.
    #[inline]
    pub(crate) fn push(&mut self, now: Instant, place: usize, frame: &Frame, len: u32, flow: FlowId) {
        self.in_flight[frame.index() as usize] = Some(InFlight { flow, bytes: len });
        self.capture(now, Direction::Sent, frame, xsend_xsk::PACKET_OFFSET, len);
        self.device.push(place, frame, len);
        self.staged[place] += 1;
    }

    /// Builds a packet in a frame of its own and stages it. Says whether there was a frame and room for it.
    pub(crate) fn push_control(
        &mut self,
        now: Instant,
        place: usize,
        flow: FlowId,
        build: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        if self.tx_room(place) == 0 {
            self.stats.ring_full += 1;
            return false;
        }
        let Some(mut frame) = self.take() else {
            self.stats.control_starved += 1;
            return false;
        };
        let len = build(self.umem.payload_mut(&mut frame, 0));
        self.push(now, place, &frame, len as u32, flow);
        // Nobody keeps a control segment: a lost one is rebuilt, not repeated.
        self.give_back(frame);
        true
    }

    #[inline]
    fn capture(&mut self, now: Instant, direction: Direction, frame: &Frame, offset: u32, len: u32) {
        if let Some(tap) = &mut self.tap {
            tap.frame(direction, now.as_nanos(), self.umem.received(frame, offset, len));
        }
    }

    /// Shows a received frame to the tap.
    #[inline]
    pub(crate) fn capture_received(&mut self, now: Instant, frame: &Frame, offset: u32, len: u32) {
        self.capture(now, Direction::Received, frame, offset, len);
    }

    /// Step (5): takes completions and tells `on` whose frame it was, before the frame is lent again.
    pub(crate) fn reap(&mut self, mut on: impl FnMut(InFlight)) -> usize {
        let Self { device, in_flight, umem, pool, limbo, .. } = self;
        let completed = device.reap(|index, frame| {
            if let Some(entry) = in_flight.get_mut(index as usize).and_then(Option::take) {
                on(entry);
            }
            if let Some(frame) = frame {
                match umem.reclaim(frame) {
                    Ok(frame) => pool.push(frame),
                    Err(frame) => limbo.push_back(frame),
                }
            }
        });
        self.stats.completions += completed as u64;
        completed
    }

    /// Sets aside a frame the driver never gave back. It no longer counts against its flow.
    pub(crate) fn quarantine(&mut self, frame: Frame) -> Option<InFlight> {
        let entry = self.in_flight[frame.index() as usize].take();
        self.device.quarantine(frame);
        self.stats.quarantined += 1;
        entry
    }

    /// Step (4): everything staged goes out under one submit and one kick a queue. Tells `on` whose frame the device reported as
    /// dropped, if it did: a completion never means delivered.
    pub(crate) fn flush(&mut self, now: Instant, mut on: impl FnMut(FlowId)) {
        if self.staged.iter().any(|staged| *staged > 0) {
            self.stats.frames += self.device.submit() as u64;
        }
        let due = self.device.next_kick_ns().is_some_and(|at| at <= now.as_nanos());
        for place in 0..self.staged.len() {
            let staged = core::mem::take(&mut self.staged[place]);
            // Kicks follow work: an idle kick only steals time from the receiver.
            if (staged > 0 || due)
                && let Some(flow) = self.kick(place, now)
            {
                on(flow);
            }
        }
    }

    /// Kicks one queue; says whose frame was dropped, if one was.
    ///
    /// After a drop the rest stays in the ring until the next turn, or the device's own timer: whatever is full downstream needs a
    /// moment, and pushing on would only have it drop more.
    fn kick(&mut self, place: usize, now: Instant) -> Option<FlowId> {
        match self.device.kick(place, now.as_nanos()) {
            Kick::NotNeeded | Kick::Sent => {}
            Kick::Again => self.stats.kick_again += 1,
            Kick::Dropped(index) => {
                self.stats.local_drops += 1;
                return self.in_flight.get(index as usize).copied().flatten().map(|entry| entry.flow);
            }
            Kick::Down | Kick::Gone | Kick::Failed(_) => self.stats.kick_failed += 1,
        }
        None
    }

    /// Keeps every fill ring full, so that an acknowledgement never finds it dry.
    pub(crate) fn top_up(&mut self) {
        for place in 0..self.staged.len() {
            while let Some(frame) = self.take() {
                if let Err(frame) = self.device.refill(place, frame) {
                    self.pool.push(frame);
                    break;
                }
            }
        }
    }
}
