//! Who may still be writing into a frame: a frame that its writer pins is not given to anybody else.
//!
//! A writer copies bytes behind the published length of a frame *before* it learns whether the shard has
//! sealed it meanwhile ([`tail`](crate::tail)). So when the shard seals, and for as long after as the writer
//! likes to be suspended, stores may still land behind the sealed length. They do no harm there: nobody sends
//! those bytes. But were the frame acknowledged, freed and lent to another stream meanwhile, they would
//! scribble over somebody else's payload. Hence the rule: **a frame is lent again only when nobody pins it.**
//!
//! A writer pins one frame at a time, before it hands the frame over, and unpins it after its last store:
//! when it moves on to its next frame, when it learns that it lost, when it closes, and when it is dropped.
//! The shard asks [`Pins::of`] before it gives a frame away, and keeps a pinned one aside: at most one a
//! stream. A writer that waits for a frame must have unpinned its last one, else it waits for itself.
//!
//! While it pins a frame, a writer also says how many of its first bytes are settled: it will not store into
//! them again. Whoever holds the frame may read those, and is thereby told from the writer without having to
//! trust a length that came another way.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Pinner::unpin`], after the last store to the frame | store `Release` | (B) |
//! | (B) | [`Pins::of`], before the frame is given to somebody else, or settled bytes are read | load `Acquire` | (A), (C) |
//! | (C) | [`Pinner::settle`], after the stores to the bytes that it settles | store `Release` | (B) |
//!
//! Pinning is a plain store: the ring that carries the frame to the shard publishes it.

use crate::sync::{Arc, AtomicU32, Ordering};

const FREE: u32 = 0;
/// Pinned, and nothing settled; each settled byte adds one.
const PINNED: u32 = 1;

/// Whether a frame may be given to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pin {
    /// Yes: nobody will store into it any more.
    Free,
    /// Not yet: its writer may be storing behind this many settled bytes. Ask again later.
    Held(u32),
}

/// One word a frame, by frame number.
type Words = Arc<Box<[AtomicU32]>>;

/// The half of whoever lends the frames: knows which of them are pinned.
#[derive(Clone)]
pub struct Pins(Words);

/// A writer's half: pins at most one frame at a time.
pub struct Pinner {
    words: Words,
    pinned: Option<u32>,
}

impl Pins {
    /// For frames `0..frames`, none of them pinned.
    pub fn new(frames: u32) -> Self {
        Self(Arc::new((0..frames).map(|_| AtomicU32::new(FREE)).collect()))
    }

    /// The half for one more writer.
    pub fn pinner(&self) -> Pinner {
        Pinner { words: self.0.clone(), pinned: None }
    }

    /// Whether `frame`, which its writer has handed over, may be given away.
    ///
    /// # Panics
    /// When `frame` is not one of `0..frames`.
    #[inline]
    pub fn of(&self, frame: u32) -> Pin {
        // (B), pairs with (A) and (C)
        match self.0[frame as usize].load(Ordering::Acquire) {
            FREE => Pin::Free,
            held => Pin::Held(held - PINNED),
        }
    }
}

impl Pinner {
    /// Pins a frame that nobody else knows yet, with nothing settled, and unpins the one before.
    ///
    /// # Panics
    /// When `frame` is not one of those that the [`Pins`] are for.
    #[inline]
    pub fn pin(&mut self, frame: u32) {
        self.unpin();
        self.words[frame as usize].store(PINNED, Ordering::Relaxed);
        self.pinned = Some(frame);
    }

    /// The frame that is pinned.
    #[inline]
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    /// Says that nothing will be stored into the first `bytes` bytes of the frame, if one is pinned, any more.
    ///
    /// What was settled stays settled: the writer must not say less than it has said of this frame before.
    #[inline]
    pub fn settle(&mut self, bytes: u32) {
        if let Some(frame) = self.pinned {
            let held = bytes.saturating_add(PINNED);
            self.words[frame as usize].store(held, Ordering::Release); // (C), pairs with (B)
        }
    }

    /// Lets go of the frame, if one is pinned: after this nothing may be stored into it.
    #[inline]
    pub fn unpin(&mut self) {
        if let Some(frame) = self.pinned.take() {
            self.words[frame as usize].store(FREE, Ordering::Release); // (A), pairs with (B)
        }
    }
}

impl Drop for Pinner {
    fn drop(&mut self) {
        self.unpin();
    }
}

impl std::fmt::Debug for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pins").field("frames", &self.0.len()).finish()
    }
}

impl std::fmt::Debug for Pinner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pinner").field("pinned", &self.pinned).finish()
    }
}
