//! The writer's right to a frame whose end may still grow.

use std::sync::Arc;

use crate::frame::Owner;
use crate::umem::Umem;

/// The right to write payload bytes behind the published length of a frame that somebody else holds.
///
/// Made by [`Umem::share_tail`]. The holder of the frame reads the bytes up to the length that was published
/// to it (through a word with Release and Acquire, which is not this crate's business); the holder of the
/// tail writes only behind that length. Dropping the tail gives the right up, after which [`Umem::reclaim`]
/// makes the frame exclusive again.
#[derive(Debug)]
#[must_use = "dropping a tail gives up the right to append"]
pub struct Tail {
    owner: Owner,
    index: u32,
    start: u32,
    capacity: u32,
    /// Counts this tail against its frame; its drop is what `Umem::reclaim` waits for.
    _right: Arc<()>,
}

impl Tail {
    pub(crate) fn new(owner: Owner, index: u32, start: u32, capacity: u32, right: Arc<()>) -> Self {
        Self { owner, index, start, capacity, _right: right }
    }

    /// The number of the frame this is the tail of.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Payload bytes that fit in the frame, the published ones included.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Writes `bytes` at payload byte `offset` with `copy`, which gets the destination and the source,
    /// equally long, and whose answer (a checksum, as a rule) is handed back.
    ///
    /// `offset` must be at or behind the published length: the frame's holder may be reading everything
    /// before it.
    ///
    /// # Panics
    /// When `umem` is not this tail's, or when `offset + bytes.len()` exceeds [`capacity`](Self::capacity).
    #[inline]
    pub fn write_at<R>(
        &mut self,
        umem: &Umem,
        offset: u32,
        bytes: &[u8],
        copy: impl FnOnce(&mut [u8], &[u8]) -> R,
    ) -> R {
        copy(self.room_mut(umem, offset, bytes.len()), bytes)
    }

    /// The `len` payload bytes from `offset` on, to be filled in place (a `read(2)`, for instance).
    ///
    /// The same rule and the same panics as for [`write_at`](Self::write_at).
    #[inline]
    pub fn room_mut<'a>(&'a mut self, umem: &'a Umem, offset: u32, len: usize) -> &'a mut [u8] {
        assert!(self.owner == umem.owner(), "a tail used with another UMEM");
        let end = (offset as usize).saturating_add(len);
        assert!(end <= self.capacity as usize, "{end} bytes do not fit in a tail of {}", self.capacity);
        // SAFETY: `share_tail` made one tail for this frame and bounded `start + capacity` by the chunk. The
        // range lies behind the published length by this function's rule, so that no slice of the frame's
        // holder covers it: exclusive access (`payload_mut`, the fill ring, another tail) is refused while
        // this tail lives.
        unsafe { umem.bytes_mut(self.index, self.start + offset, len) }
    }
}
