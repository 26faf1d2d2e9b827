//! The writer's right to a frame whose end may still grow.

use xsend_signal::pin::Pinner;

use crate::frame::Frame;
use crate::umem::Umem;

/// The right to write payload bytes behind the published length of a frame that somebody else holds: one such
/// frame at a time, each pinned for as long as it may be written.
///
/// Made once a stream, by [`Umem::tail`]. The holder of the frame reads the bytes up to the length that was
/// published to it (through a word with Release and Acquire, which is not this crate's business); the holder
/// of the tail writes only behind that length. When the tail leaves the frame, or is dropped,
/// [`Umem::reclaim`] makes the frame exclusive again.
#[derive(Debug)]
pub struct Tail {
    umem: Umem,
    pinner: Pinner,
    start: u32,
    capacity: u32,
}

impl Tail {
    pub(crate) fn new(umem: Umem, pinner: Pinner) -> Self {
        Self { umem, pinner, start: 0, capacity: 0 }
    }

    /// Shares a frame that nobody else knows yet, and leaves the one before: the frame's holder may read and
    /// send what is published, while this tail writes behind it, up to `capacity` payload bytes after a
    /// header of `header_len`.
    ///
    /// Until the tail leaves it and it is [reclaimed](Umem::reclaim), the frame is marked shared and refused
    /// for everything that needs it whole: [`Umem::payload_mut`], the fill ring, a second tail.
    ///
    /// # Panics
    /// When the frame is another UMEM's or shared already, or `capacity` exceeds the chunk.
    pub fn open(&mut self, frame: Frame, header_len: usize, capacity: u32) -> Frame {
        let (frame, start) = self.umem.share(frame, header_len, capacity);
        self.pinner.pin(frame.index());
        (self.start, self.capacity) = (start, capacity);
        frame
    }

    /// The number of the frame this is the tail of, if of any.
    #[inline]
    pub fn index(&self) -> Option<u32> {
        self.pinner.pinned()
    }

    /// Payload bytes that fit in the frame, the published ones included; 0 without a frame.
    #[inline]
    pub fn capacity(&self) -> u32 {
        if self.pinner.pinned().is_some() { self.capacity } else { 0 }
    }

    /// Gives the right up: nothing can be written to the frame any more.
    #[inline]
    pub fn leave(&mut self) {
        self.pinner.unpin();
    }

    /// Writes `bytes` at payload byte `offset` with `copy`, which gets the destination and the source,
    /// equally long, and whose answer (a checksum, as a rule) is handed back.
    ///
    /// `offset` must be at or behind the published length: the frame's holder may be reading everything
    /// before it.
    ///
    /// # Panics
    /// When there is no frame, or `offset + bytes.len()` exceeds [`capacity`](Self::capacity).
    #[inline]
    pub fn write_at<R>(&mut self, offset: u32, bytes: &[u8], copy: impl FnOnce(&mut [u8], &[u8]) -> R) -> R {
        copy(self.room_mut(offset, bytes.len()), bytes)
    }

    /// The `len` payload bytes from `offset` on, to be filled in place (a `read(2)`, for instance).
    ///
    /// The same rule and the same panics as for [`write_at`](Self::write_at).
    #[inline]
    pub fn room_mut(&mut self, offset: u32, len: usize) -> &mut [u8] {
        let Some(index) = self.pinner.pinned() else { panic!("a tail without a frame") };
        let end = (offset as usize).saturating_add(len);
        assert!(end <= self.capacity as usize, "{end} bytes do not fit in a tail of {}", self.capacity);
        // SAFETY: `open` made this the only tail of the frame and bounded `start + capacity` by the chunk.
        // The range lies behind the published length by this function's rule, so that no slice of the
        // frame's holder covers it: exclusive access (`payload_mut`, the fill ring, another tail) is refused
        // while the frame is pinned, which it is until this tail leaves it.
        unsafe { self.umem.bytes_mut(index, self.start + offset, len) }
    }
}
