//! The writer's right to a frame whose end may still grow.

use xsend_signal::pin::Pinner;

use crate::frame::Frame;
use crate::umem::Umem;

/// The right to write payload bytes behind the published length of a frame that somebody else holds: one such
/// frame at a time, each pinned for as long as it may be written.
///
/// Made once a stream, by [`Umem::tail`]. What the tail has written is *settled*: it can be read by the holder
/// of the frame, and not be written again. How much of it belongs to the packet is said elsewhere, and is not
/// this crate's business. When the tail leaves the frame, or is dropped, [`Umem::reclaim`] makes the frame
/// exclusive again.
#[derive(Debug)]
pub struct Tail {
    umem: Umem,
    pinner: Pinner,
    start: u32,
    capacity: u32,
    /// What is settled of the frame, in payload bytes; at most `capacity`.
    settled: u32,
}

impl Tail {
    pub(crate) fn new(umem: Umem, pinner: Pinner) -> Self {
        Self { umem, pinner, start: 0, capacity: 0, settled: 0 }
    }

    /// Shares a frame that nobody else knows yet, and leaves the one before: the frame's holder may read and
    /// send what is settled, which is nothing yet, while this tail writes behind it, up to `capacity` payload
    /// bytes after a header of `header_len`.
    ///
    /// Until the tail leaves it and it is [reclaimed](Umem::reclaim), the frame is marked shared and refused
    /// for everything that needs it whole: [`Umem::payload_mut`], the fill ring, a second tail.
    ///
    /// # Panics
    /// When the frame is another UMEM's or shared already, `capacity` exceeds the chunk, or `header_len` 254.
    pub fn open(&mut self, frame: Frame, header_len: usize, capacity: u32) -> Frame {
        let (frame, start) = self.umem.share(frame, header_len, capacity);
        self.pinner.pin(frame.index());
        (self.start, self.capacity, self.settled) = (start, capacity, 0);
        frame
    }

    /// The number of the frame this is the tail of, if of any.
    #[inline]
    pub fn index(&self) -> Option<u32> {
        self.pinner.pinned()
    }

    /// Payload bytes that fit in the frame, the settled ones included; 0 without a frame.
    #[inline]
    pub fn capacity(&self) -> u32 {
        if self.pinner.pinned().is_some() { self.capacity } else { 0 }
    }

    /// Gives the right up: nothing can be written to the frame any more.
    #[inline]
    pub fn leave(&mut self) {
        self.pinner.unpin();
    }

    /// Gives the first `len` payload bytes to the frame's holder, to read: for a frame that was filled before
    /// it was shared. [`write_at`](Self::write_at) settles by itself. Nothing is ever unsettled.
    ///
    /// # Panics
    /// When `len` exceeds [`capacity`](Self::capacity).
    #[inline]
    pub fn settle(&mut self, len: u32) {
        assert!(len <= self.capacity(), "{len} bytes do not fit in a tail of {}", self.capacity());
        if len > self.settled {
            self.settled = len;
            self.pinner.settle(len);
        }
    }

    /// Writes `bytes` at payload byte `offset` with `copy`, which gets the destination and the source,
    /// equally long, and whose answer (a checksum, as a rule) is handed back. Everything up to the end of
    /// `bytes` is settled then.
    ///
    /// # Panics
    /// When there is no frame, `offset` lies before the end of what is settled (the frame's holder may be
    /// reading that), or `offset + bytes.len()` exceeds [`capacity`](Self::capacity).
    #[inline]
    pub fn write_at<R>(&mut self, offset: u32, bytes: &[u8], copy: impl FnOnce(&mut [u8], &[u8]) -> R) -> R {
        let Some(index) = self.pinner.pinned() else { panic!("a tail without a frame") };
        let end = (offset as usize).saturating_add(bytes.len());
        assert!(end <= self.capacity as usize, "{end} bytes do not fit in a tail of {}", self.capacity);
        assert!(offset >= self.settled, "byte {offset} is written after {} were settled", self.settled);
        // SAFETY: `open` made this the only tail of the frame and bounded `start + capacity` by the chunk.
        // The range lies behind what is settled, and so no slice of the frame's holder covers it: those end
        // there, or before `start`; exclusive access (`payload_mut`, the fill ring, another tail) is refused
        // while the frame is pinned, which it is until this tail leaves it.
        let room = unsafe { self.umem.bytes_mut(index, self.start + offset, bytes.len()) };
        let answer = copy(room, bytes);
        self.settle(end as u32);
        answer
    }
}
