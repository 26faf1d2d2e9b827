//! Who has which frame: one byte a frame.

use crate::frame::{Frame, Owner};
use crate::umem::Umem;

/// What a completed transmit descriptor meant.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a returned frame would be lost"]
pub enum Completion {
    /// The frame's token is still with somebody; only the ring has given it back.
    Held,
    /// The token had been [released](Ledger::release) (or quarantined) while in the ring, and comes back now.
    Returned(Frame),
    /// No frame with this number was in the ring.
    Unknown,
}

/// The state of every frame of one UMEM, as one device sees it. [`Socket`](crate::Socket) keeps one; so does
/// a device made for tests.
#[derive(Debug)]
pub struct Ledger {
    owner: Owner,
    states: Box<[u8]>,
    in_ring: u32,
    in_fill: u32,
}

/// Where a frame's token is (two bits).
const PLACE: u8 = 0b0011;
/// Outside: with the application, the engine, or in a pool.
const HELD: u8 = 0;
/// In the fill or receive ring.
const FILL: u8 = 1;
/// Put aside for good.
const QUARANTINED: u8 = 2;
/// Given back while in the transmit ring; comes out with its completion.
const RELEASED: u8 = 3;
/// The transmit ring borrows the frame.
const IN_RING: u8 = 0b0100;
/// The token was marked shared when it was released or quarantined.
const SHARED: u8 = 0b1000;

impl Ledger {
    /// A ledger in which every frame is held and none is in a ring.
    pub fn new(umem: &Umem) -> Self {
        let states = vec![HELD; umem.frames() as usize].into_boxed_slice();
        Self { owner: umem.owner(), states, in_ring: 0, in_fill: 0 }
    }

    /// Notes that the transmit ring borrows `frame`. `false`, and nothing changes, when it already does.
    #[inline]
    #[must_use]
    pub fn enter_ring(&mut self, frame: &Frame) -> bool {
        let state = self.state_mut(frame);
        if *state & IN_RING != 0 {
            return false;
        }
        *state |= IN_RING;
        self.in_ring += 1;
        true
    }

    /// Undoes [`enter_ring`](Self::enter_ring) for a frame that the kernel was not told of and whose token is
    /// still out; no other frame changes.
    pub(crate) fn retract(&mut self, index: u32) {
        if let Some(state) = self.states.get_mut(index as usize).filter(|state| **state == HELD | IN_RING) {
            *state = HELD;
            self.in_ring -= 1;
        }
    }

    /// Whether the transmit ring borrows `frame`.
    #[inline]
    pub fn in_ring(&self, frame: &Frame) -> bool {
        self.check(frame);
        self.states[frame.index() as usize] & IN_RING != 0
    }

    /// Frames that the transmit ring borrows now.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.in_ring
    }

    /// Frames in the fill and receive rings now.
    #[inline]
    pub fn in_fill(&self) -> u32 {
        self.in_fill
    }

    /// Notes that the kernel has given frame number `index` back. A number it should not have said is
    /// answered with [`Completion::Unknown`] and changes nothing.
    #[inline]
    pub fn complete(&mut self, index: u32) -> Completion {
        let Some(state) = self.states.get_mut(index as usize).filter(|state| **state & IN_RING != 0) else {
            return Completion::Unknown;
        };
        *state &= !IN_RING;
        self.in_ring -= 1;
        if *state & PLACE == HELD {
            return Completion::Held;
        }
        Completion::Returned(self.hand_out(index))
    }

    /// Takes a token that nobody needs any more: gives it back at once when the ring does not borrow it, else
    /// keeps it until [`complete`](Self::complete) returns it.
    #[inline]
    pub fn release(&mut self, frame: Frame) -> Option<Frame> {
        if !self.in_ring(&frame) {
            return Some(frame);
        }
        self.put_away(frame, RELEASED);
        None
    }

    /// Puts a frame aside for good: one that a driver never gave back. Should its completion come after all,
    /// it returns to use through [`complete`](Self::complete).
    pub fn quarantine(&mut self, frame: Frame) {
        self.put_away(frame, QUARANTINED);
    }

    /// Takes a token for the fill ring; gives it back when the transmit ring still borrows it or its tail is
    /// shared.
    #[inline]
    pub fn enter_fill(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.in_ring(&frame) || frame.is_shared() {
            return Err(frame);
        }
        self.put_away(frame, FILL);
        self.in_fill += 1;
        Ok(())
    }

    /// Takes frame number `index` out of the receive ring; `None` when it was not in there.
    #[inline]
    #[must_use = "a received frame would be lost"]
    pub fn leave_fill(&mut self, index: u32) -> Option<Frame> {
        let state = self.states.get(index as usize)?;
        if *state & PLACE != FILL {
            return None;
        }
        self.in_fill -= 1;
        Some(self.hand_out(index))
    }

    /// Counts every frame by where it is. Walks all frames: for checks, not for the data path.
    pub fn books(&self) -> Books {
        let mut books = Books { total: self.states.len() as u32, ..Books::default() };
        for state in &self.states {
            let in_ring = state & IN_RING != 0;
            match state & PLACE {
                HELD if in_ring => books.held_in_ring += 1,
                HELD => books.held += 1,
                FILL => books.fill += 1,
                RELEASED => books.released_in_ring += 1,
                _ => books.quarantined += 1,
            }
        }
        books
    }

    fn put_away(&mut self, frame: Frame, place: u8) {
        let shared = if frame.is_shared() { SHARED } else { 0 };
        let state = self.state_mut(&frame);
        debug_assert_eq!(*state & PLACE, HELD, "frame {} was not out", frame.index());
        *state = (*state & IN_RING) | shared | place;
    }

    fn hand_out(&mut self, index: u32) -> Frame {
        let state = &mut self.states[index as usize];
        // Behind which header it was shared was not kept: behind none, then, so that none is written until the
        // frame was reclaimed.
        let owner = if *state & SHARED != 0 { self.owner.shared_behind(0) } else { self.owner };
        *state = (*state & IN_RING) | HELD;
        Frame::new(owner, index)
    }

    #[inline]
    fn check(&self, frame: &Frame) {
        assert!(frame.owner().exclusive() == self.owner, "a frame of another UMEM");
    }

    #[inline]
    fn state_mut(&mut self, frame: &Frame) -> &mut u8 {
        self.check(frame);
        &mut self.states[frame.index() as usize]
    }
}

/// How many frames are where. All but `total` add up to `total`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Books {
    /// Frames of the UMEM.
    pub total: u32,
    /// Tokens that are out, the frame in no ring.
    pub held: u32,
    /// Tokens that are out while the transmit ring borrows the frame.
    pub held_in_ring: u32,
    /// Released, and waiting for the completion.
    pub released_in_ring: u32,
    /// In the fill or receive ring.
    pub fill: u32,
    /// Put aside.
    pub quarantined: u32,
}

impl Books {
    /// Tokens that are out, in the ring or not.
    pub fn tokens_out(&self) -> u32 {
        self.held + self.held_in_ring
    }

    /// Frames that the transmit ring borrows and that are not quarantined.
    pub fn in_ring(&self) -> u32 {
        self.held_in_ring + self.released_in_ring
    }
}

#[cfg(test)]
mod tests;
