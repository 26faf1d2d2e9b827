//! A device without a NIC, for tests and benchmarks: what is pushed is shown to a [`Wire`], and completes when the device is told to.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use xsend_xsk::{Books, Completion, Frame, Kick, Ledger, Received, Umem};

use crate::device::Device;

/// The other end of a [`MemoryDevice`].
pub trait Wire {
    /// A frame was sent. Whatever is given to `reply` will be received.
    fn carry(&mut self, frame: &[u8], reply: &mut dyn FnMut(&[u8]));
}

/// When sent frames complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completing {
    /// With the kick that sends them.
    AtKick,
    /// Not before this is set to something else.
    Never,
}

/// One queue in ordinary memory.
pub struct MemoryDevice<W> {
    /// The other end.
    pub wire: W,
    /// When sent frames complete; may be changed at any time.
    pub completing: Completing,
    /// How many kicks, counted from the next one, find the device dropping a frame.
    pub dropping: u32,
    umem: Umem,
    ledger: Ledger,
    ring: usize,
    staged: usize,
    submitted: VecDeque<u32>,
    completed: VecDeque<u32>,
    fill: VecDeque<u32>,
    fill_ring: usize,
    received: VecDeque<Received>,
    kicks: u64,
    /// Frames that arrived while the fill ring was dry.
    pub missed: u64,
}

impl<W: Wire> MemoryDevice<W> {
    /// A device over this memory with a transmit ring and a fill ring of these many entries.
    pub fn new(umem: &Umem, ring: usize, fill_ring: usize, wire: W) -> Self {
        Self {
            wire,
            completing: Completing::AtKick,
            dropping: 0,
            umem: umem.clone(),
            ledger: Ledger::new(umem),
            ring,
            staged: 0,
            submitted: VecDeque::with_capacity(ring),
            completed: VecDeque::with_capacity(ring),
            fill: VecDeque::with_capacity(fill_ring),
            fill_ring,
            received: VecDeque::with_capacity(fill_ring),
            kicks: 0,
            missed: 0,
        }
    }

    /// Has the device receive a frame.
    pub fn inject(&mut self, bytes: &[u8]) {
        let Self { umem, ledger, fill, received, missed, .. } = self;
        receive(umem, ledger, fill, received, missed, bytes);
    }
}

fn receive(
    umem: &Umem,
    ledger: &mut Ledger,
    fill: &mut VecDeque<u32>,
    received: &mut VecDeque<Received>,
    missed: &mut u64,
    bytes: &[u8],
) {
    let Some(mut frame) = fill.pop_front().and_then(|index| ledger.leave_fill(index)) else {
        *missed += 1;
        return;
    };
    umem.payload_mut(&mut frame, 0)[..bytes.len()].copy_from_slice(bytes);
    let (offset, len) = (xsend_xsk::PACKET_OFFSET, bytes.len() as u32);
    received.push_back(Received { frame, offset, len, more: false });
}

impl<W: Wire> Device for MemoryDevice<W> {
    fn places(&self) -> usize {
        1
    }

    fn tx_room(&mut self, _place: usize) -> usize {
        self.ring - (self.staged + self.submitted.len() + self.completed.len()).min(self.ring)
    }

    fn push(&mut self, _place: usize, frame: &Frame, len: u32) {
        let entered = self.ledger.enter_ring(frame);
        debug_assert!(entered, "frame {} pushed twice", frame.index());
        self.staged += 1;
        self.submitted.push_back(frame.index());
        let Self { wire, umem, ledger, fill, received, missed, .. } = self;
        wire.carry(umem.packet(frame, len), &mut |reply| {
            receive(umem, ledger, fill, received, missed, reply)
        });
    }

    fn submit(&mut self) -> usize {
        std::mem::take(&mut self.staged)
    }

    fn kick(&mut self, _place: usize, _now_ns: u64) -> Kick {
        self.kicks += 1;
        if self.completing == Completing::Never {
            return Kick::Sent;
        }
        if self.dropping > 0 {
            self.dropping -= 1;
            if let Some(index) = self.submitted.pop_front() {
                self.completed.push_back(index);
                return Kick::Dropped(index);
            }
        }
        self.completed.extend(self.submitted.drain(..));
        Kick::Sent
    }

    fn kicks(&self) -> u64 {
        self.kicks
    }

    fn invalid_descriptors(&self) -> u64 {
        0
    }

    fn next_kick_ns(&self) -> Option<u64> {
        None
    }

    fn reap(&mut self, mut on: impl FnMut(u32, Option<Frame>)) -> usize {
        let count = self.completed.len();
        for index in self.completed.drain(..) {
            match self.ledger.complete(index) {
                Completion::Held => on(index, None),
                Completion::Returned(frame) => on(index, Some(frame)),
                Completion::Unknown => {}
            }
        }
        count
    }

    fn release(&mut self, frame: Frame) -> Option<Frame> {
        self.ledger.release(frame)
    }

    fn in_ring(&self, frame: &Frame) -> bool {
        self.ledger.in_ring(frame)
    }

    fn quarantine(&mut self, frame: Frame) {
        self.ledger.quarantine(frame);
    }

    fn receive(&mut self, mut on: impl FnMut(usize, Received)) -> usize {
        let count = self.received.len();
        self.received.drain(..).for_each(|received| on(0, received));
        count
    }

    fn refill(&mut self, _place: usize, frame: Frame) -> Result<(), Frame> {
        if self.fill.len() >= self.fill_ring {
            return Err(frame);
        }
        let index = frame.index();
        self.ledger.enter_fill(frame)?;
        self.fill.push_back(index);
        Ok(())
    }

    fn books(&self) -> Books {
        // What waits to be received is still the device's.
        let waiting = self.received.len() as u32;
        let books = self.ledger.books();
        Books { held: books.held - waiting, fill: books.fill + waiting, ..books }
    }

    fn wait(&mut self, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }
}
