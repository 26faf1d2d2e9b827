//! The real device: one AF_XDP socket and the descriptor that wakes whoever sleeps on it.

use core::time::Duration;
use std::io;

use xsend_signal::doorbell::Wake;
use xsend_xsk::{Books, Frame, Kick, Push, Received, Socket, WakeFd};

use crate::device::Device;

/// An AF_XDP socket, for a shard that may be woken by other threads.
pub struct AfXdp {
    socket: Socket,
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
    /// Wraps a bound socket.
    ///
    /// # Errors
    /// When the process has no file descriptor left for the eventfd.
    pub fn new(socket: Socket) -> io::Result<(Self, Box<dyn Wake>)> {
        let bell = WakeFd::new()?;
        let wake = Box::new(RingBell(bell.clone()));
        Ok((Self { socket, bell }, wake))
    }

    /// The socket, for its facts and statistics.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Device for AfXdp {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.socket.tx_room()
    }

    #[inline]
    fn push(&mut self, frame: &Frame, len: u32) {
        let pushed = self.socket.push(frame, len);
        debug_assert_eq!(pushed, Push::Staged, "frame {} pushed without room, or twice", frame.index());
    }

    #[inline]
    fn submit(&mut self) -> usize {
        self.socket.submit()
    }

    #[inline]
    fn kick(&mut self, now_ns: u64) -> Kick {
        self.socket.kick(now_ns)
    }

    fn kicks(&self) -> u64 {
        self.socket.counters().kicks
    }

    fn invalid_descriptors(&self) -> u64 {
        // A kernel that cannot say so has none to tell of.
        self.socket.statistics().map_or(0, |statistics| statistics.tx_invalid_descs)
    }

    fn next_kick_ns(&self) -> Option<u64> {
        self.socket.next_kick_at()
    }

    #[inline]
    fn reap(&mut self, on: impl FnMut(u32, Option<Frame>)) -> usize {
        self.socket.reap(on)
    }

    #[inline]
    fn release(&mut self, frame: Frame) -> Option<Frame> {
        self.socket.release(frame)
    }

    #[inline]
    fn in_ring(&self, frame: &Frame) -> bool {
        self.socket.in_ring(frame)
    }

    fn quarantine(&mut self, frame: Frame) {
        self.socket.quarantine(frame);
    }

    #[inline]
    fn receive(&mut self, on: impl FnMut(Received)) -> usize {
        self.socket.receive(on)
    }

    #[inline]
    fn refill(&mut self, frame: Frame) -> Result<(), Frame> {
        self.socket.refill(frame)
    }

    fn books(&self) -> Books {
        self.socket.books()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let wake = self.socket.wait(Some(self.bell.as_fd()), timeout)?;
        if wake.rung {
            self.bell.drain();
        }
        Ok(())
    }
}
