//! The real device: AF_XDP sockets on one or more queues of an interface, and the descriptor that wakes whoever sleeps on them.

use core::time::Duration;
use std::io;

use xsend_signal::doorbell::Wake;
use xsend_xsk::{Books, Frame, Kick, Push, Queues, Received, WakeFd};

use crate::device::Device;

/// AF_XDP queues, for a shard that may be woken by other threads.
pub struct AfXdp {
    queues: Queues,
    bell: WakeFd,
}

/// Wakes a shard that sleeps in [`AfXdp`]'s wait.
struct RingBell(WakeFd);

impl Wake for RingBell {
    fn wake(&self) {
        self.0.ring();
    }
}

impl AfXdp {
    /// Wraps bound queues.
    ///
    /// # Errors
    /// When the process has no file descriptor left for the eventfd.
    pub fn new(queues: Queues) -> io::Result<(Self, Box<dyn Wake>)> {
        let bell = WakeFd::new()?;
        let wake = Box::new(RingBell(bell.clone()));
        Ok((Self { queues, bell }, wake))
    }

    /// The queues, for their facts and statistics.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl Device for AfXdp {
    #[inline]
    fn places(&self) -> usize {
        self.queues.len()
    }

    #[inline]
    fn tx_room(&mut self, place: usize) -> usize {
        self.queues.tx_room(place)
    }

    #[inline]
    fn push(&mut self, place: usize, frame: &Frame, len: u32) {
        let pushed = self.queues.push(place, frame, len);
        debug_assert_eq!(pushed, Push::Staged, "frame {} pushed without room, or twice", frame.index());
    }

    #[inline]
    fn submit(&mut self) -> usize {
        self.queues.submit()
    }

    #[inline]
    fn kick(&mut self, place: usize, now_ns: u64) -> Kick {
        self.queues.kick(place, now_ns)
    }

    fn kicks(&self) -> u64 {
        self.queues.places().map(|place| self.queues.socket(place).counters().kicks).sum()
    }

    fn invalid_descriptors(&self) -> u64 {
        // A kernel that cannot say so has none to tell of.
        let of = |place| {
            self.queues.socket(place).statistics().map_or(0, |statistics| statistics.tx_invalid_descs)
        };
        self.queues.places().map(of).sum()
    }

    fn next_kick_ns(&self) -> Option<u64> {
        self.queues.next_kick_at()
    }

    #[inline]
    fn reap(&mut self, on: impl FnMut(u32, Option<Frame>)) -> usize {
        self.queues.reap(on)
    }

    #[inline]
    fn release(&mut self, frame: Frame) -> Option<Frame> {
        self.queues.release(frame)
    }

    #[inline]
    fn in_ring(&self, frame: &Frame) -> bool {
        self.queues.in_ring(frame)
    }

    fn quarantine(&mut self, frame: Frame) {
        self.queues.quarantine(frame);
    }

    #[inline]
    fn receive(&mut self, on: impl FnMut(usize, Received)) -> usize {
        self.queues.receive(on)
    }

    #[inline]
    fn refill(&mut self, place: usize, frame: Frame) -> Result<(), Frame> {
        self.queues.refill(place, frame)
    }

    fn books(&self) -> Books {
        self.queues.books()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let wake = self.queues.wait(Some(self.bell.as_fd()), timeout)?;
        if wake.rung {
            self.bell.drain();
        }
        Ok(())
    }
}
