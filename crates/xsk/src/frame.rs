//! The move-only token of one UMEM chunk.

use core::num::NonZeroU32;

/// The right to one chunk of a [`Umem`](crate::Umem): neither `Copy` nor `Clone`, eight bytes, `Send`.
///
/// Tokens are made only when a UMEM is, and afterwards only moved. A token that is dropped is a chunk lost
/// until the UMEM goes; [`Ledger::books`](crate::Ledger::books) then still counts it as held.
///
/// A token remembers which UMEM it belongs to, and whether a [`Tail`](crate::Tail) to it is out, so that it can
/// neither be used with another UMEM, nor be filled or lent while another thread may be writing. Where a shared
/// frame ends for its holder and begins for its writer is theirs to keep to: see [`Umem`](crate::Umem).
#[must_use = "a dropped frame is lost to its UMEM"]
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    owner: Owner,
    index: u32,
}

/// Which UMEM a token belongs to (upper 31 bits, never 0) and whether a tail of it is shared (lowest bit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(NonZeroU32);

const SHARED: u32 = 1;
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

impl Owner {
    /// The owner mark of UMEM number `umem`, counted from 1.
    pub(crate) fn new(umem: NonZeroU32) -> Self {
        Self(umem.saturating_mul(TWO))
    }

    pub(crate) fn shared(self) -> Self {
        Self(self.0 | SHARED)
    }

    pub(crate) fn exclusive(self) -> Self {
        Self(NonZeroU32::new(self.0.get() & !SHARED).unwrap_or(self.0))
    }

    pub(crate) fn is_shared(self) -> bool {
        self.0.get() & SHARED != 0
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
        self.owner.is_shared()
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }
}
