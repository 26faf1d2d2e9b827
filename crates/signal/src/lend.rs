//! Frames lent to a stream, until it claims them or its shard takes them back.
//!
//! A ring with one half that puts items in, the [`Lender`], and two ways out: the [`Borrower`] claims items
//! from the front, a batch at a time, and the lender takes them back from the same end, from a borrower that
//! idles. Whoever moves the head with a compare-and-swap owns the items that it passed; the other finds out
//! and looks again. So the writer's path costs one compare-and-swap a batch, and nothing when nobody takes
//! anything back.
//!
//! A claimed item is read *after* the head was moved past it, when the lender already counts it as gone. So
//! the borrower says separately how far it has read, and the lender writes into a slot again only when the
//! reading of it has ended.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Lender::publish`], the tail | store `Release` | (B) |
//! | (B) | the borrower, reading the tail | load `Acquire` | (A) |
//! | (C) | [`Borrower::claim`], how far it has read | store `Release` | (D) |
//! | (D) | the lender, before it reuses slots | load `Acquire` | (C) |
//!
//! The head itself carries nothing: a compare-and-swap on it only says who was first, and may be relaxed. It
//! counts in 64 bits and never comes to the same value twice. Neither half needs to know whether the other is
//! still there: the lender of a borrower that is gone takes everything back.

use crate::slots::{Slots, read, write};
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};

struct Ring<T> {
    /// First item that nobody owns yet. Moved by either half, with a compare-and-swap.
    head: CachePadded<AtomicU64>,
    /// One past the last item shown. Written by the lender only.
    tail: CachePadded<AtomicU64>,
    /// Where the borrower's last claim ended, once its items have been read. Written by the borrower only.
    read: CachePadded<AtomicU64>,
    slots: Slots<T>,
    /// Most items at a time.
    capacity: u64,
}

// SAFETY: a slot in head..tail is read by whoever moves the head past it, once; the slots below the head are
// written by the lender after their reading has ended, see `Lender::refresh`. Items cross threads, hence
// `T: Send`; no reference to an item is ever shared.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both halves are gone, and the last reference's drop has ordered their stores before this.
        let tail = self.tail.load(Ordering::Relaxed);
        for index in self.head.load(Ordering::Relaxed)..tail {
            // SAFETY: slots in head..tail hold items and nobody else is left to take them.
            drop(unsafe { read(self.slots.at(index as usize)) });
        }
    }
}

/// The shard's half: lends, and takes back.
pub struct Lender<T: Send> {
    ring: Arc<Ring<T>>,
    /// Where the next item goes: ahead of the shared tail by what is staged.
    tail: u64,
    /// The shared tail.
    published: u64,
    /// All reading below this has ended: never ahead of the head.
    floor: u64,
    /// What the last taking back took, joined with those just before it: from here ...
    back_from: u64,
    /// ... to here.
    back_to: u64,
}

/// The application's half: claims.
pub struct Borrower<T: Send> {
    ring: Arc<Ring<T>>,
    /// The tail when last read: never ahead of the true one.
    tail: u64,
}

/// A ring for at most `capacity` items at a time.
///
/// # Panics
/// When `capacity` is zero or above 2^31.
pub fn ring<T: Send>(capacity: usize) -> (Lender<T>, Borrower<T>) {
    let ring = Arc::new(Ring {
        head: CachePadded::new(AtomicU64::new(0)),
        tail: CachePadded::new(AtomicU64::new(0)),
        read: CachePadded::new(AtomicU64::new(0)),
        slots: Slots::new(capacity),
        capacity: capacity as u64,
    });
    let lender = Lender { ring: ring.clone(), tail: 0, published: 0, floor: 0, back_from: 0, back_to: 0 };
    (lender, Borrower { ring, tail: 0 })
}

impl<T: Send> Lender<T> {
    /// Most items the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity as usize
    }

    /// How many items nobody has claimed, staged ones included. Only claims and taking back make it less.
    pub fn outstanding(&self) -> usize {
        (self.tail - self.ring.head.load(Ordering::Relaxed)) as usize
    }

    /// How many more items fit now, read afresh.
    pub fn room(&mut self) -> usize {
        self.refresh();
        self.cached_room() as usize
    }

    fn cached_room(&self) -> u64 {
        self.ring.capacity - (self.tail - self.floor)
    }

    /// Finds out below which position all reading has ended.
    ///
    /// The borrower has read up to the end of its last finished claim. That claim was its last, and none is
    /// under way, if nothing but our own taking back lies between its end and the head.
    fn refresh(&mut self) {
        // Before the head: a claim that comes between the two loads makes the head larger, and nothing more.
        let read = self.ring.read.load(Ordering::Acquire); // (D), pairs with (C)
        let head = self.ring.head.load(Ordering::Relaxed);
        let claims_end = if head == self.back_to { self.back_from } else { head };
        if read == claims_end {
            self.floor = head;
        }
    }

    /// Puts an item in without showing it yet; a full ring gives it back. [`publish`](Self::publish) shows
    /// it.
    #[inline]
    pub fn stage(&mut self, item: T) -> Result<(), T> {
        if self.cached_room() == 0 && self.room() == 0 {
            return Err(item);
        }
        // SAFETY: we are the lender, and there is room above the floor.
        unsafe { write(self.ring.slots.at(self.tail as usize), item) };
        self.tail += 1;
        Ok(())
    }

    /// Shows all staged items to the borrower, with one store. Then notify it, if it may be waiting.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.published = self.tail;
            self.ring.tail.store(self.tail, Ordering::Release); // (A), pairs with (B)
        }
    }

    /// Takes up to `most` items back, those lent first, unless the borrower claims them meanwhile. Returns
    /// how many. What is staged is shown first.
    ///
    /// # Panics
    /// When `take` does; what it has not seen of those taken is then lost.
    pub fn take_back(&mut self, most: usize, mut take: impl FnMut(T)) -> usize {
        self.publish();
        let head = &self.ring.head;
        let mut from = head.load(Ordering::Relaxed);
        loop {
            let to = self.tail.min(from.saturating_add(most as u64));
            if from == to {
                return 0;
            }
            // Each retry is one claim of the borrower's, and it cannot claim more than was lent.
            match head.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    if from != self.back_to {
                        self.back_from = from;
                    }
                    self.back_to = to;
                    // SAFETY: the head was moved past these by us, and `from..to` takes each once.
                    (from..to).for_each(|index| take(unsafe { read(self.ring.slots.at(index as usize)) }));
                    return (to - from) as usize;
                }
                Err(now) => from = now,
            }
        }
    }
}

impl<T: Send> Drop for Lender<T> {
    fn drop(&mut self) {
        // So that the ring, or the borrower, finds what was only staged.
        self.publish();
    }
}

impl<T: Send> Borrower<T> {
    /// Claims up to `most` items, oldest first, and gives them to `take`. Returns how many.
    ///
    /// # Panics
    /// When `take` does; the items of the claim that it has not seen are then lost. Their slots come back with
    /// the next claim.
    #[inline]
    pub fn claim(&mut self, most: usize, mut take: impl FnMut(T)) -> usize {
        let ring = &*self.ring;
        let mut from = ring.head.load(Ordering::Relaxed);
        loop {
            // Not only when nothing seems left: a claim should get what it asks for, if it is there.
            if self.tail.saturating_sub(from) < most as u64 {
                self.tail = ring.tail.load(Ordering::Acquire); // (B), pairs with (A)
            }
            let to = self.tail.min(from.saturating_add(most as u64));
            if from >= to {
                return 0;
            }
            // Each retry is one taking back by the lender.
            match ring.head.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: the head was moved past these by us, and `from..to` takes each once.
                    (from..to).for_each(|index| take(unsafe { read(ring.slots.at(index as usize)) }));
                    ring.read.store(to, Ordering::Release); // (C), pairs with (D)
                    return (to - from) as usize;
                }
                Err(now) => from = now,
            }
        }
    }

    /// Whether nothing could be claimed now.
    pub fn is_empty(&mut self) -> bool {
        let head = self.ring.head.load(Ordering::Relaxed);
        if self.tail <= head {
            self.tail = self.ring.tail.load(Ordering::Acquire); // (B), pairs with (A)
        }
        self.tail <= head
    }
}
