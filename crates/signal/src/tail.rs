//! The frame that may still grow: appending behind what is published, against sealing for transmission.
//!
//! Length, flags and running checksum of a frame are **one** 64-bit word, so they are never seen apart. The
//! writer copies bytes behind the published length, then publishes the new length and sum with one
//! compare-and-swap. The shard, when it wants to send the frame as it is, sets SEALED with one fetch-or. If
//! the shard was first, the compare-and-swap fails, what the writer copied was never part of the frame, and
//! it copies those bytes again into its next one.
//!
//! # When a sealed frame may be used again
//!
//! The writer copies *before* it learns that it lost. So at the moment when the shard seals, and for as long
//! after as the writer likes to be suspended, stores may still land behind the sealed length. They do no harm
//! there: nobody sends those bytes. But were the frame acknowledged, freed and lent to another stream
//! meanwhile, they would scribble over somebody else's payload. Hence the rule: **a frame sealed by the shard
//! may be recycled only after its writer has moved on to its next frame, or closed.** The writer says so in
//! the same word: LEFT is set when it [opens](Writer::open) another frame, when it learns that it
//! [lost](Sealed), when it seals the frame itself, when it [leaves](Writer::leave), and when it is dropped.
//! The shard asks [`Tails::recycle`] before it gives a frame away, and keeps the frame aside on
//! [`Recycle::WriterInside`]: at most one frame a stream. A writer that waits for a frame must have left its
//! last one, else it waits for itself; one that lost has.
//!
//! # The orders
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Writer::append`], new length and sum over bytes just copied | compare-and-swap `Release` | (B) |
//! | (B) | [`Tails::seal`] and [`Tails::read`], before the bytes are read | fetch-or / load `Acquire` | (A) |
//! | (C) | [`Writer::leave`] and its kin, after the last store to the frame | fetch-or `Release` | (D) |
//! | (D) | [`Tails::recycle`], before the frame is given to somebody else | load `Acquire` | (C) |
//!
//! The writer learns nothing from the shard through this word but that it lost, so its failed
//! compare-and-swap may be relaxed; the frame itself comes and goes through rings. Opening is a plain store:
//! the ring that carries the frame to the shard publishes it.

use crate::sync::{Arc, AtomicU64, Ordering};

const SEALED: u64 = 1 << 16;
const MORE: u64 = 1 << 17;
const PUSH: u64 = 1 << 18;
const LEFT: u64 = 1 << 19;
const SUM_SHIFT: u32 = 32;

/// What is published of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Payload bytes that belong to the frame.
    pub len: u16,
    /// Nothing will be appended any more.
    pub sealed: bool,
    /// The writer has said that more follows (`MSG_MORE`, cork): do not send this frame while it may grow.
    pub more: bool,
    /// The last byte ends a write: send with PSH.
    pub push: bool,
    /// Checksum accumulator over the `len` bytes.
    pub sum: u32,
}

impl Word {
    fn pack(self) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        u64::from(self.len)
            | flag(self.sealed, SEALED)
            | flag(self.more, MORE)
            | flag(self.push, PUSH)
            | u64::from(self.sum) << SUM_SHIFT
    }

    fn unpack(word: u64) -> Self {
        Self {
            len: word as u16,
            sealed: word & SEALED != 0,
            more: word & MORE != 0,
            push: word & PUSH != 0,
            sum: (word >> SUM_SHIFT) as u32,
        }
    }
}

/// Whether a frame may be given to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recycle {
    /// Yes: sealed, and its writer will not touch it again.
    Free,
    /// Not yet: its writer may still be copying behind the published length. Ask again after it has moved on.
    WriterInside,
}

/// The shard sealed the frame first: it keeps this word, and the bytes copied behind it belong into the next
/// frame. The writer has left the frame.
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
    /// Words for frames `0..frames`, all of them [free](Recycle::Free).
    pub fn new(frames: u32) -> Self {
        Self(Arc::new((0..frames).map(|_| AtomicU64::new(SEALED | LEFT)).collect()))
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

    /// Whether a frame that is sent, acknowledged and completed may be lent again.
    #[inline]
    pub fn recycle(&self, frame: u32) -> Recycle {
        let word = self.0[frame as usize].load(Ordering::Acquire); // (D), pairs with (C)
        if word & (SEALED | LEFT) == SEALED | LEFT { Recycle::Free } else { Recycle::WriterInside }
    }
}

impl Writer {
    /// Begins a frame that the shard has not seen yet, empty and open, and leaves the one before.
    #[inline]
    pub fn open(&mut self, frame: u32) {
        self.leave();
        self.words[frame as usize].store(0, Ordering::Relaxed);
        self.open = Some(Open { frame, word: 0 });
    }

    /// Publishes a frame that was filled in private and will not grow, and leaves the one before. This is
    /// the bulk path: one plain store, made visible by the ring that carries the frame.
    #[inline]
    pub fn fill(&mut self, frame: u32, word: Word) {
        self.leave();
        self.words[frame as usize].store(word.pack() | SEALED | LEFT, Ordering::Relaxed);
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
    /// written. With `next.sealed` the frame is done and left.
    ///
    /// # Errors
    /// [`Sealed`] when the shard sealed the frame first, or when no frame is open.
    #[inline]
    pub fn append(&mut self, next: Word) -> Result<(), Sealed> {
        let Some(Open { frame, word }) = self.open else {
            return Err(Sealed(Word { sealed: true, ..Word::default() }));
        };
        debug_assert!(next.len >= Word::unpack(word).len, "a published byte cannot be taken back");
        let next = if next.sealed { next.pack() | LEFT } else { next.pack() };
        let cell = &self.words[frame as usize];
        // (A), pairs with (B); with LEFT also (C), pairs with (D)
        match cell.compare_exchange(word, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                self.open = (next & SEALED == 0).then_some(Open { frame, word: next });
                Ok(())
            }
            Err(sealed) => {
                self.leave();
                Err(Sealed(Word::unpack(sealed)))
            }
        }
    }

    /// Stops writing the current frame, if any, without sealing it: the shard will. After this nothing
    /// may be stored into its payload.
    #[inline]
    pub fn leave(&mut self) {
        if let Some(Open { frame, .. }) = self.open.take() {
            self.words[frame as usize].fetch_or(LEFT, Ordering::Release); // (C), pairs with (D)
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.leave();
    }
}
