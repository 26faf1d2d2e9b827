//! What a shard needs of its NIC queues, and nothing more: AF_XDP sockets have it, and so have the devices that tests
//! and benchmarks make up.

use core::time::Duration;
use std::io;

use xsend_xsk::{Books, Frame, Kick, Received};

/// Transmit and receive queues over one pool of frames, which are borrowed to transmit and moved to receive.
///
/// A queue is named by its *place*, `0..places()`.
pub trait Device {
    /// How many queues there are, at least one. A constant.
    fn places(&self) -> usize;
    /// How many more frames can be pushed to this queue before its ring is full.
    fn tx_room(&mut self, place: usize) -> usize;
    /// Stages a frame's first `len` bytes (from its packet offset) for transmission on this queue. The frame stays the
    /// caller's, who must not write to it before it has come back through [`Device::reap`]. There must be room.
    fn push(&mut self, place: usize, frame: &Frame, len: u32);
    /// Publishes everything staged, with one reserve and one submit a queue. Says how many frames that were.
    fn submit(&mut self) -> usize;
    /// Tells this queue that there is something to send, if it needs telling.
    fn kick(&mut self, place: usize, now_ns: u64) -> Kick;
    /// System calls made so far to have frames sent.
    fn kicks(&self) -> u64;
    /// Descriptors the kernel could not use since the start: completed, but never sent. Costs a system call.
    fn invalid_descriptors(&self) -> u64;
    /// When the first queue is to be kicked again though nothing new was submitted, as drivers differ in when they ask
    /// for it. Kicking those that need not is cheap.
    fn next_kick_ns(&self) -> Option<u64>;
    /// Takes completions: the frame's number and, where it had been released meanwhile, the frame itself.
    fn reap(&mut self, on: impl FnMut(u32, Option<Frame>)) -> usize;
    /// Gives up a frame. It comes back at once when the device does not hold it, else out of [`Device::reap`].
    fn release(&mut self, frame: Frame) -> Option<Frame>;
    /// Whether the device still holds the frame.
    fn in_ring(&self, frame: &Frame) -> bool;
    /// Sets aside a frame that the device holds and will not give back.
    fn quarantine(&mut self, frame: Frame);
    /// Takes received frames, at most a batch a queue; `on` gets the queue's place with each.
    fn receive(&mut self, on: impl FnMut(usize, Received)) -> usize;
    /// Gives this queue a frame to receive into; it comes back when the queue has enough.
    fn refill(&mut self, place: usize, frame: Frame) -> Result<(), Frame>;
    /// Where the frames are, as the device sees it.
    fn books(&self) -> Books;
    /// Sleeps until something is received, somebody wakes the shard, or the time is over.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}
