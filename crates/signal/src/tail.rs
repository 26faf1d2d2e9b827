//! The frame that may still grow: appending behind what is published, against sealing for transmission.
//!
//! Length, flags and running checksum of a frame are **one** 64-bit word, so they are never seen apart. The
//! writer copies bytes behind the published length, then publishes the new length and sum with one
//! compare-and-swap. The shard, when it wants to send the frame as it is, sets SEALED with one fetch-or. If
//! the shard was first, the compare-and-swap fails, what the writer copied was never part of the frame, and
//! it copies those bytes again into its next one.
//!
//! The writer copies before it learns that it lost, so the frame must not go to anybody else as long as the
//! writer may be at it: that is [`pin`](crate::pin)'s business.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Writer::append`], new length and sum over bytes just copied | compare-and-swap `Release` | (B) |
//! | (B) | [`Tails::seal`] and [`Tails::read`], before the bytes are read | fetch-or / load `Acquire` | (A) |
//!
//! The writer learns nothing from the shard through this word but that it lost, so its failed
//! compare-and-swap may be relaxed; the frame itself comes and goes through rings. Opening is a plain store:
//! the ring that carries the frame to the shard publishes it.

use crate::sync::{Arc, AtomicU64, Ordering};

/// Bits 0 to 15 are the length, 16 to 18 the marks, 32 to 63 the sum.
const MARKS_SHIFT: u32 = 16;
const SEALED: u64 = (Marks::SEALED.0 as u64) << MARKS_SHIFT;
const SUM_SHIFT: u32 = 32;

/// What is said of a frame besides its length: any of three marks, joined by `|`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Nothing will be appended any more.
    pub const SEALED: Self = Self(1);
    /// The writer has said that more follows (`MSG_MORE`, cork): do not send this frame while it may grow.
    pub const MORE: Self = Self(2);
    /// The last byte ends a write: send with PSH.
    pub const PUSH: Self = Self(4);

    /// Whether all of `marks` are set.
    #[inline]
    pub const fn has(self, marks: Self) -> bool {
        self.0 & marks.0 == marks.0
    }

    /// These without `marks`.
    #[inline]
    #[must_use]
    pub const fn without(self, marks: Self) -> Self {
        Self(self.0 & !marks.0)
    }

    /// These, or none of them.
    #[inline]
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl std::ops::BitOr for Marks {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [(Self::SEALED, "SEALED"), (Self::MORE, "MORE"), (Self::PUSH, "PUSH")];
        f.debug_set().entries(names.iter().filter(|(mark, _)| self.has(*mark)).map(|(_, name)| name)).finish()
    }
}

/// What is published of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Payload bytes that belong to the frame.
    pub len: u16,
    /// What else is to be known of it.
    pub marks: Marks,
    /// Checksum accumulator over the `len` bytes.
    pub sum: u32,
}

impl Word {
    fn pack(self) -> u64 {
        u64::from(self.len) | u64::from(self.marks.0) << MARKS_SHIFT | u64::from(self.sum) << SUM_SHIFT
    }

    fn unpack(word: u64) -> Self {
        Self { len: word as u16, marks: Marks((word >> MARKS_SHIFT) as u8), sum: (word >> SUM_SHIFT) as u32 }
    }
}

/// The shard sealed the frame first: it keeps this word, and the bytes copied behind it belong into the next
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed(pub Word);

/// One word a frame, by frame number.
type Words = Arc<Box<[AtomicU64]>>;

/// The shard's half: the words of all its frames, by frame number.
pub struct Tails(Words);

/// A stream's half: writes at most one frame at a time.
pub struct Writer {
    words: Words,
    open: Option<Open>,
}

/// The frame being written and the word last published for it, which only the shard's SEALED can have
/// changed.
#[derive(Clone, Copy)]
struct Open {
    frame: u32,
    word: u64,
}

impl Tails {
    /// Words for frames `0..frames`, all of them empty and sealed.
    pub fn new(frames: u32) -> Self {
        Self(Arc::new((0..frames).map(|_| AtomicU64::new(SEALED)).collect()))
    }

    /// The half for one more stream.
    pub fn writer(&self) -> Writer {
        Writer { words: self.0.clone(), open: None }
    }

    /// Seals a frame as it is and returns what it holds. Sealing twice changes nothing.
    ///
    /// # Panics
    /// When `frame` is not one of `0..frames`; so do all methods that take a frame.
    #[inline]
    pub fn seal(&self, frame: u32) -> Word {
        let before = self.0[frame as usize].fetch_or(SEALED, Ordering::Acquire); // (B), pairs with (A)
        Word::unpack(before | SEALED)
    }

    /// What is published of a frame now.
    #[inline]
    pub fn read(&self, frame: u32) -> Word {
        Word::unpack(self.0[frame as usize].load(Ordering::Acquire)) // (B), pairs with (A)
    }
}

impl Writer {
    /// Begins a frame that the shard has not seen yet, empty and open, and leaves the one before.
    #[inline]
    pub fn open(&mut self, frame: u32) {
        self.words[frame as usize].store(0, Ordering::Relaxed);
        self.open = Some(Open { frame, word: 0 });
    }

    /// Publishes a frame that was filled in private and will not grow, and leaves the one before. This is
    /// the bulk path: one plain store, made visible by the ring that carries the frame.
    #[inline]
    pub fn fill(&mut self, frame: u32, word: Word) {
        self.open = None;
        self.words[frame as usize].store(word.pack() | SEALED, Ordering::Relaxed);
    }

    /// The frame being written.
    pub fn current(&self) -> Option<u32> {
        self.open.map(|open| open.frame)
    }

    /// What this writer last published of the frame being written.
    pub fn published(&self) -> Option<Word> {
        self.open.map(|open| Word::unpack(open.word))
    }

    /// Publishes `next` for the frame being written, whose bytes behind the published length have been
    /// written. With [`Marks::SEALED`] the frame is done.
    ///
    /// # Errors
    /// [`Sealed`] when the shard sealed the frame first, or when no frame is open.
    #[inline]
    pub fn append(&mut self, next: Word) -> Result<(), Sealed> {
        let Some(Open { frame, word }) = self.open else {
            return Err(Sealed(Word { marks: Marks::SEALED, ..Word::default() }));
        };
        debug_assert!(next.len >= Word::unpack(word).len, "a published byte cannot be taken back");
        let next = next.pack();
        let cell = &self.words[frame as usize];
        // (A), pairs with (B)
        match cell.compare_exchange(word, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                self.open = (next & SEALED == 0).then_some(Open { frame, word: next });
                Ok(())
            }
            Err(sealed) => {
                self.open = None;
                Err(Sealed(Word::unpack(sealed)))
            }
        }
    }

    /// Appends no more to the current frame, if there is one, without sealing it: the shard will.
    #[inline]
    pub fn leave(&mut self) {
        self.open = None;
    }
}
