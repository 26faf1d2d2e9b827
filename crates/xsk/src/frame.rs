//! The move-only token of one UMEM chunk.

use core::num::NonZeroU32;

/// The right to one chunk of a [`Umem`](crate::Umem): neither `Copy` nor `Clone`, eight bytes, `Send`.
///
/// Tokens are made only when a UMEM is, and afterwards only moved. A token that is dropped is a chunk lost
/// until the UMEM goes; [`Ledger::books`](crate::Ledger::books) then still counts it as held.
///
/// A token remembers which UMEM it belongs to, and whether a [`Tail`](crate::Tail) to it is out and behind how
/// long a header, so that it can neither be used with another UMEM, nor be filled or lent while another thread
/// may be writing, nor have its header written over the tail's bytes.
#[must_use = "a dropped frame is lost to its UMEM"]
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    owner: Owner,
    index: u32,
}

/// Which UMEM a token belongs to (upper 24 bits, never 0), and what is shared of it (lowest 8 bits): 0 for
/// nothing, else one more than the length of the header that the tail begins behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(NonZeroU32);

const NUMBER_SHIFT: u32 = 8;
const SHARED: u32 = (1 << NUMBER_SHIFT) - 1;
/// The highest number that a UMEM can have.
pub(crate) const MOST_NUMBERS: u32 = u32::MAX >> NUMBER_SHIFT;
/// The longest header that a frame can be shared behind, in bytes; Ethernet, IP and TCP have less than half.
pub(crate) const LONGEST_SHARED_HEADER: usize = SHARED as usize - 1;

impl Owner {
    /// The owner mark of UMEM number `umem`, `1..=MOST_NUMBERS`.
    pub(crate) fn new(umem: NonZeroU32) -> Self {
        debug_assert!(umem.get() <= MOST_NUMBERS);
        Self(umem.saturating_mul(NonZeroU32::MIN.saturating_add(SHARED)))
    }

    /// The mark of a frame whose tail begins behind a header of `header_len`, at most
    /// [`LONGEST_SHARED_HEADER`].
    pub(crate) fn shared_behind(self, header_len: usize) -> Self {
        debug_assert!(header_len <= LONGEST_SHARED_HEADER);
        Self(self.exclusive().0 | (header_len as u32 + 1))
    }

    /// The header's length, if the tail is shared.
    #[inline]
    pub(crate) fn shared_header(self) -> Option<u32> {
        (self.0.get() & SHARED).checked_sub(1)
    }

    pub(crate) fn exclusive(self) -> Self {
        Self(NonZeroU32::new(self.0.get() & !SHARED).unwrap_or(self.0))
    }
}

impl Frame {
    pub(crate) fn new(owner: Owner, index: u32) -> Self {
        Self { owner, index }
    }

    /// The chunk's number in its UMEM, `0..frames`.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether a [`Tail`](crate::Tail) to this frame was given out and the frame not yet
    /// [reclaimed](crate::Umem::reclaim).
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.owner.shared_header().is_some()
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }
}
