//! When the kernel has to be asked to send, and what it may answer.

use super::{ObtainedMode, Socket};
use crate::sys;
use xsend_signal::kick::{Wakeup, after_submit};

/// What a [`Socket::kick`](crate::Socket::kick) came to. None of them is fatal by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Kick {
    /// Nothing waits in the ring, or the kernel is at it already.
    NotNeeded,
    /// The kernel has taken what was in the ring, or promised to.
    Sent,
    /// The kernel takes no more for now (EAGAIN, ENOBUFS): the send buffer, the device's queue or the
    /// completion ring is full. Reap, and kick again at [`next_kick_at`](crate::Socket::next_kick_at) or
    /// after the next submission.
    Again,
    /// The device completed a frame without sending it (EBUSY): the frame with this number, as far as the
    /// ring's index tells. More may wait: kick again.
    Dropped(u32),
    /// The interface is down (ENETDOWN): frames stay in the ring.
    Down,
    /// The queue or the device is gone (ENXIO, ENODEV): nothing will be sent any more.
    Gone,
    /// Another errno.
    Failed(i32),
}

/// How long frames may wait in the ring after a kick that was not made, or did not take them, before they are
/// kicked all the same: drivers differ in when they set the need-wakeup flag.
const TAIL_NS: u64 = 50_000;
/// The same for frames that the device has taken and not completed (zero-copy: some drivers look for
/// completions only when kicked).
const COMPLETION_NS: u64 = 1_000_000;
/// The same while the link is down.
const DOWN_NS: u64 = 10_000_000;

/// What is known about the transmit ring between kicks.
#[derive(Debug)]
pub(super) struct Kicker {
    /// Frame numbers in the order they went into the ring, so that the last one the kernel took has a name.
    order: Box<[u32]>,
    /// Descriptors submitted so far, wrapping as the ring's own index does.
    produced: u32,
    /// Frames the kernel completed as dropped, but has not yet moved its index past.
    unpublished: u32,
    /// Something was submitted (or left over by an answer that asks for another kick) since the last kick.
    fresh: bool,
    next_at: Option<u64>,
}

impl Kicker {
    /// For a ring of `entries`, a power of two.
    pub(super) fn new(entries: u32) -> Self {
        let order = vec![0; entries as usize].into_boxed_slice();
        Self { order, produced: 0, unpublished: 0, fresh: false, next_at: None }
    }

    /// Notes the frame that will be submitted `ahead` entries from now.
    #[inline]
    pub(super) fn note(&mut self, ahead: u32, frame: u32) {
        let slot = self.slot(self.produced.wrapping_add(ahead));
        self.order[slot] = frame;
    }

    pub(super) fn submitted(&mut self, count: u32) {
        self.produced = self.produced.wrapping_add(count);
        self.fresh = true;
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.next_at
    }

    fn slot(&self, position: u32) -> usize {
        position as usize & (self.order.len() - 1)
    }

    fn due(&self, now_ns: u64) -> bool {
        self.next_at.is_some_and(|at| now_ns >= at)
    }

    /// The frame that the kernel has just dropped, when `before` and then `after` frames waited in the ring
    /// as its index has it.
    ///
    /// A kick that sent something before it dropped moves the index past both; one that dropped its first
    /// frame leaves the index where it was until a later kick.
    fn dropped(&mut self, before: u32, after: u32) -> u32 {
        let consumed = self.produced.wrapping_sub(after);
        let position = if after == before {
            self.unpublished += 1;
            consumed.wrapping_add(self.unpublished)
        } else {
            self.unpublished = 0;
            consumed
        };
        self.order[self.slot(position.wrapping_sub(1))]
    }

    /// After a kick that left `waiting` frames in the ring.
    fn settle(&mut self, now_ns: u64, waiting: u32, again: bool) {
        self.fresh = again && waiting > 0;
        self.next_at = (waiting > 0).then(|| now_ns.saturating_add(TAIL_NS));
    }
}

impl Socket {
    pub(super) fn kick_tx(&mut self, now_ns: u64) -> Kick {
        let waiting = self.waiting();
        if waiting == 0 {
            return self.kick_for_completions(now_ns);
        }
        let due = self.kicker.due(now_ns);
        if !self.kicker.fresh && !due {
            return Kick::NotNeeded;
        }
        // The producer index was stored by `submit`. A driver that misses it is what the tail timer is for.
        if self.need_wakeup && !due && after_submit(|| self.tx.needs_wakeup()) == Wakeup::NotNeeded {
            self.kicker.settle(now_ns, waiting, false);
            return Kick::NotNeeded;
        }
        if !self.kicker.fresh {
            self.counters.tail_kicks += 1;
        }
        self.kick_until_taken(now_ns, waiting)
    }

    /// Kicks for as long as the kernel says "again" and yet takes frames: copy mode sends a bounded number
    /// with one call.
    fn kick_until_taken(&mut self, now_ns: u64, mut waiting: u32) -> Kick {
        let fd = self.raw_fd();
        loop {
            self.counters.kicks += 1;
            let answer = sys::kick_tx(fd);
            let left = self.waiting();
            match answer {
                Ok(()) => {
                    self.kicker.unpublished = 0;
                    self.kicker.settle(now_ns, left, false);
                    return Kick::Sent;
                }
                // Every turn takes a frame at least, so the ring's size bounds the turns.
                Err(libc::EAGAIN | libc::ENOBUFS) if left < waiting => {
                    self.kicker.unpublished = 0;
                    waiting = left;
                }
                Err(libc::EAGAIN | libc::ENOBUFS) => {
                    self.counters.refused += 1;
                    self.kicker.settle(now_ns, left, false);
                    return Kick::Again;
                }
                Err(libc::EBUSY) => {
                    self.counters.dropped += 1;
                    let frame = self.kicker.dropped(waiting, left);
                    self.kicker.settle(now_ns, left, true);
                    return Kick::Dropped(frame);
                }
                Err(errno) => return self.kick_failed(now_ns, errno),
            }
        }
    }

    fn kick_failed(&mut self, now_ns: u64, errno: i32) -> Kick {
        self.kicker.fresh = false;
        self.kicker.next_at = Some(now_ns.saturating_add(DOWN_NS));
        match errno {
            libc::ENETDOWN => {
                self.counters.down += 1;
                Kick::Down
            }
            libc::ENXIO | libc::ENODEV => Kick::Gone,
            errno => Kick::Failed(errno),
        }
    }

    /// Nothing waits. In zero-copy mode the device may still have to be told to hand back what it has sent.
    fn kick_for_completions(&mut self, now_ns: u64) -> Kick {
        self.kicker.fresh = false;
        if self.facts.mode == ObtainedMode::Copy || self.ledger.in_flight() == 0 {
            self.kicker.next_at = None;
            return Kick::NotNeeded;
        }
        let due = self.kicker.due(now_ns);
        if due || self.kicker.next_at.is_none() {
            self.kicker.next_at = Some(now_ns.saturating_add(COMPLETION_NS));
        }
        if !due {
            return Kick::NotNeeded;
        }
        self.counters.tail_kicks += 1;
        self.counters.kicks += 1;
        match sys::kick_tx(self.raw_fd()) {
            Ok(()) => Kick::Sent,
            Err(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY) => Kick::Again,
            Err(errno) => self.kick_failed(now_ns, errno),
        }
    }

    /// Frames in the ring that the kernel has not taken, as its index has it.
    fn waiting(&mut self) -> u32 {
        self.sizes.tx - self.tx.nb_free_exact()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_behind_frames_that_were_sent_is_the_last_one_taken() {
        let mut kicker = Kicker::new(8);
        (0..6).for_each(|i| kicker.note(i, 100 + i));
        kicker.submitted(6);
        assert_eq!(kicker.dropped(6, 3), 102);
    }

    #[test]
    fn drops_that_do_not_move_the_index_are_told_apart() {
        let mut kicker = Kicker::new(8);
        (0..3).for_each(|i| kicker.note(i, 100 + i));
        kicker.submitted(3);
        assert_eq!([kicker.dropped(3, 3), kicker.dropped(3, 3), kicker.dropped(3, 3)], [100, 101, 102]);
        // The kernel's index catches up: the next drop is counted from there.
        (0..2).for_each(|i| kicker.note(i, 200 + i));
        kicker.submitted(2);
        assert_eq!(kicker.dropped(5, 1), 200);
    }

    #[test]
    fn frame_numbers_survive_the_wrap_of_the_index() {
        let mut kicker = Kicker::new(4);
        kicker.produced = u32::MAX - 1;
        (0..4).for_each(|i| kicker.note(i, 10 + i));
        kicker.submitted(4);
        assert_eq!(kicker.dropped(4, 0), 13);
    }

    #[test]
    fn frames_left_waiting_arm_the_tail_timer_and_an_empty_ring_disarms_it() {
        let mut kicker = Kicker::new(4);
        kicker.submitted(1);
        kicker.settle(1_000, 1, false);
        assert_eq!(kicker.next_at(), Some(1_000 + TAIL_NS));
        assert!(!kicker.due(1_000 + TAIL_NS - 1));
        assert!(kicker.due(1_000 + TAIL_NS));
        kicker.settle(2_000, 0, true);
        assert_eq!(kicker.next_at(), None);
        assert!(!kicker.fresh);
    }
}
