//! The UMEM: one stretch of memory cut into equal chunks, and the ways to look at a chunk's bytes.

use core::any::Any;
use core::num::NonZeroU32;
use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::{Frame, LONGEST_SHARED_HEADER, MOST_NUMBERS, Owner};
use crate::tail::Tail;
use xsend_signal::pin::{Pin, Pins};

/// Where a packet starts in its chunk, in bytes: the room the kernel keeps for XDP programs.
pub const PACKET_OFFSET: u32 = 256;

/// The smallest chunk the kernel accepts, in bytes.
pub(crate) const SMALLEST_CHUNK: u32 = 2048;
/// The largest chunk the kernel accepts: one page.
pub(crate) const LARGEST_CHUNK: u32 = 4096;

/// A handle to the memory of a UMEM; clones refer to the same memory and may be used from any thread.
///
/// Every access needs the frame's token, so two threads cannot reach the same chunk except through a
/// [`Tail`], and then not the same bytes of it: the tail writes behind what it has settled, the token's holder
/// reads no further. All methods panic when handed a token of another UMEM, or a range that leaves the chunk or
/// what is settled of it: these are mistakes of the calling program, which no peer and no kernel can provoke.
#[derive(Clone, Debug)]
pub struct Umem {
    base: NonNull<u8>,
    chunk_shift: u32,
    frames: u32,
    owner: Owner,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Which frames a [`Tail`] may still be writing to, and behind which byte.
    pins: Pins,
    /// What `base` in [`Umem`] points into: xsk-rs's mapping, or [`Heap`]. Only kept alive.
    _memory: Box<dyn Any + Send + Sync>,
}

/// Ordinary memory, for devices that are not AF_XDP.
#[derive(Debug)]
struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this very layout, and is freed here only.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is reached only through tokens (`Frame`, `Tail`), which cannot be duplicated, and of
// which a `Frame` reaches only what the `Tail` to it does not, so accesses from several threads never overlap;
// the owner of the memory (`xsk_rs::Umem`, or plain heap memory) is not tied to a thread.
unsafe impl Send for Umem {}
// SAFETY: as above; `&Umem` gives no access without a token.
unsafe impl Sync for Umem {}
// SAFETY: heap memory is not tied to a thread, and `Heap` itself gives no access to it.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Umem {
    /// Memory without a socket, for devices that are not AF_XDP and for benchmarks: needs no privilege.
    ///
    /// `frames` chunks of `chunk_bytes` (2048 or 4096), zeroed; the tokens come in ascending order.
    ///
    /// # Panics
    /// When `frames` is 0 or `chunk_bytes` is not one of the two sizes.
    pub fn in_memory(frames: u32, chunk_bytes: u32) -> (Self, Vec<Frame>) {
        assert!(frames > 0, "a UMEM without frames");
        assert!(
            chunk_bytes == SMALLEST_CHUNK || chunk_bytes == LARGEST_CHUNK,
            "chunks are {SMALLEST_CHUNK} or {LARGEST_CHUNK} bytes, not {chunk_bytes}"
        );
        let bytes = frames as usize * chunk_bytes as usize;
        let Ok(layout) = Layout::from_size_align(bytes, LARGEST_CHUNK as usize) else {
            panic!("a UMEM of {bytes} bytes does not fit in memory");
        };
        // SAFETY: the layout's size is not zero: both factors were checked above.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(raw) else { handle_alloc_error(layout) };
        Self::assemble(base, frames, chunk_bytes, Box::new(Heap { base, layout }))
    }

    /// Wraps memory that xsk-rs has mapped and registered. `base` is where chunk 0 begins.
    pub(crate) fn mapped(
        base: NonNull<u8>,
        frames: u32,
        chunk_bytes: u32,
        umem: xsk_rs::Umem,
    ) -> (Self, Vec<Frame>) {
        Self::assemble(base, frames, chunk_bytes, Box::new(umem))
    }

    fn assemble(
        base: NonNull<u8>,
        frames: u32,
        chunk_bytes: u32,
        memory: Box<dyn Any + Send + Sync>,
    ) -> (Self, Vec<Frame>) {
        let owner = Owner::new(next_number());
        let shared = Arc::new(Shared { pins: Pins::new(frames), _memory: memory });
        let umem = Self { base, chunk_shift: chunk_bytes.trailing_zeros(), frames, owner, shared };
        (umem, (0..frames).map(|index| Frame::new(owner, index)).collect())
    }

    /// Bytes in a chunk, a power of two.
    #[inline]
    pub fn chunk_bytes(&self) -> u32 {
        1 << self.chunk_shift
    }

    /// Number of chunks.
    #[inline]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes a packet may have in one chunk, headers included: `chunk_bytes - PACKET_OFFSET`.
    #[inline]
    pub fn packet_room(&self) -> u32 {
        self.chunk_bytes() - PACKET_OFFSET
    }

    /// The first `len` bytes of the packet that is to be sent, headers first.
    ///
    /// # Panics
    /// As [`received`](Self::received).
    #[inline]
    pub fn packet<'a>(&'a self, frame: &'a Frame, len: u32) -> &'a [u8] {
        self.received(frame, PACKET_OFFSET, len)
    }

    /// `len` bytes at `offset` from the chunk's start: what [`Received`](crate::Received) describes.
    ///
    /// # Panics
    /// Also when the frame's tail is shared and the bytes go past what its writer has
    /// [settled](Tail::settle).
    #[inline]
    pub fn received<'a>(&'a self, frame: &'a Frame, offset: u32, len: u32) -> &'a [u8] {
        self.check_any(frame);
        if let Some(header_len) = frame.owner().shared_header() {
            self.check_settled(frame.index(), header_len, offset.saturating_add(len));
        }
        // SAFETY: the token is this UMEM's, and borrowed for as long as the slice, so nobody holds it
        // mutably. If its tail is shared, the bytes lie before those that the tail's holder may write: it was
        // just checked that they are settled, and they stay so.
        unsafe { self.bytes(frame.index(), offset, len as usize) }
    }

    /// The packet's first `len` bytes, `[256, 256 + len)`, to write headers into. Allowed while the frame's
    /// tail is shared.
    ///
    /// # Panics
    /// Also when the frame's tail is shared and `len` exceeds the length of the header that it begins behind.
    #[inline]
    pub fn header_mut<'a>(&'a self, frame: &'a mut Frame, len: usize) -> &'a mut [u8] {
        self.check_any(frame);
        if let Some(room) = frame.owner().shared_header() {
            assert!(len <= room as usize, "a header of {len} bytes in a frame shared behind {room}");
        }
        // SAFETY: the token is this UMEM's and borrowed mutably for as long as the slice; a shared tail
        // starts behind the header, as was just checked.
        unsafe { self.bytes_mut(frame.index(), PACKET_OFFSET, len) }
    }

    /// Payload bytes `range` behind a header of `header_len` bytes.
    ///
    /// # Panics
    /// As [`received`](Self::received).
    #[inline]
    pub fn payload<'a>(&'a self, frame: &'a Frame, header_len: usize, range: Range<u32>) -> &'a [u8] {
        let start = self.payload_start(header_len).saturating_add(range.start);
        self.received(frame, start, range.len() as u32)
    }

    /// All payload room behind a header of `header_len` bytes, up to the chunk's end.
    ///
    /// The caller keeps to itself not to write into a frame that is still in the transmit ring
    /// ([`Socket::in_ring`](crate::Socket::in_ring)): the kernel would send the new bytes.
    ///
    /// # Panics
    /// Also when the frame's tail is shared: see [`reclaim`](Self::reclaim).
    #[inline]
    pub fn payload_mut<'a>(&'a self, frame: &'a mut Frame, header_len: usize) -> &'a mut [u8] {
        assert!(frame.owner() == self.owner, "a frame of another UMEM, or one whose tail is shared");
        let start = self.payload_start(header_len);
        let len = self.chunk_bytes().saturating_sub(start) as usize;
        // SAFETY: the token is this UMEM's, no tail of it is out, and it is borrowed mutably for as long as
        // the slice.
        unsafe { self.bytes_mut(frame.index(), start, len) }
    }

    /// A tail that has no frame yet, for one more writer.
    pub fn tail(&self) -> Tail {
        Tail::new(self.clone(), self.shared.pins.pinner())
    }

    /// Marks a frame as shared; also says where its payload starts.
    pub(crate) fn share(&self, frame: Frame, header_len: usize, capacity: u32) -> (Frame, u32) {
        assert!(frame.owner() == self.owner, "a frame of another UMEM, or one whose tail is shared");
        assert!(header_len <= LONGEST_SHARED_HEADER, "a header of {header_len} bytes before a tail");
        let start = self.payload_start(header_len);
        assert!(capacity <= self.chunk_bytes().saturating_sub(start), "a tail longer than its chunk");
        (Frame::new(self.owner.shared_behind(header_len), frame.index()), start)
    }

    /// Makes a frame exclusive again once its [`Tail`] has left it; until then gives it back as it is.
    ///
    /// A frame that was not shared comes back at once, so that this may be called on any frame before it is
    /// lent again.
    #[inline]
    pub fn reclaim(&self, frame: Frame) -> Result<Frame, Frame> {
        self.check_any(&frame);
        if !frame.is_shared() {
            return Ok(frame);
        }
        match self.shared.pins.of(frame.index()) {
            Pin::Free => Ok(Frame::new(self.owner, frame.index())),
            Pin::Held(_) => Err(frame),
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The chunk that contains UMEM address `addr`, and the offset in it; `None` when it lies outside.
    #[inline]
    pub(crate) fn locate(&self, addr: usize) -> Option<(u32, u32)> {
        let index = u32::try_from(addr >> self.chunk_shift).ok()?;
        let offset = addr as u32 & (self.chunk_bytes() - 1);
        (index < self.frames).then_some((index, offset))
    }

    #[inline]
    fn check_any(&self, frame: &Frame) {
        assert!(frame.owner().exclusive() == self.owner, "a frame of another UMEM");
    }

    /// Off the fast path: of a frame whose tail is shared the shard as a rule writes the header only.
    #[cold]
    fn check_settled(&self, index: u32, header_len: u32, end: u32) {
        if let Pin::Held(settled) = self.shared.pins.of(index) {
            let most = PACKET_OFFSET + header_len + settled;
            assert!(end <= most, "bytes up to {end} of a frame whose writer has settled those up to {most}");
        }
    }

    #[inline]
    fn payload_start(&self, header_len: usize) -> u32 {
        assert!(header_len <= self.packet_room() as usize, "a header longer than its chunk");
        PACKET_OFFSET + header_len as u32
    }

    /// # Safety
    /// `index` is a frame of this UMEM, and for the lifetime of the slice nobody writes these bytes. The
    /// bounds are checked here.
    #[inline]
    unsafe fn bytes(&self, index: u32, offset: u32, len: usize) -> &[u8] {
        // SAFETY: `at` has checked that the range lies in the memory, which lives as long as `self`; the
        // caller vouches for the rest.
        unsafe { core::slice::from_raw_parts(self.at(index, offset, len), len) }
    }

    /// # Safety
    /// `index` is a frame of this UMEM, and for the lifetime of the slice nobody else reads or writes these
    /// bytes. The bounds are checked here.
    #[inline]
    #[allow(clippy::mut_from_ref)] // exclusiveness comes from the token, not from the handle
    pub(crate) unsafe fn bytes_mut(&self, index: u32, offset: u32, len: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { core::slice::from_raw_parts_mut(self.at(index, offset, len), len) }
    }

    #[inline]
    fn at(&self, index: u32, offset: u32, len: usize) -> *mut u8 {
        let end = (offset as usize).saturating_add(len);
        assert!(end <= self.chunk_bytes() as usize, "bytes {offset}..{end} leave the chunk");
        debug_assert!(index < self.frames);
        let start = ((index as usize) << self.chunk_shift) + offset as usize;
        // SAFETY: `index < frames` holds for every token of this UMEM, and the offset stays in the chunk, so
        // that the pointer stays inside (or one past the end of) the memory that `base` starts.
        unsafe { self.base.as_ptr().add(start) }
    }
}

/// Numbers the UMEMs of this process, so that a token can be told from another UMEM's. Called when one is
/// made, never on the data path.
fn next_number() -> NonZeroU32 {
    static LAST: Mutex<u32> = Mutex::new(0);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = *last % MOST_NUMBERS + 1;
    NonZeroU32::new(*last).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests;
