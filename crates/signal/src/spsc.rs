//! A bounded ring between two threads, for things that are moved and never copied: frames, chunks.
//!
//! Each side owns one index and keeps a cached copy of the other's, which it reads again only when the copy
//! says full (or empty). The producer may put many items in and show them with one store. Whatever is still
//! inside when both halves are gone is dropped; a producer left alone can take its items back first, so that
//! no frame is lost with the application thread that held the other end.
//!
//! | letter | where | order | pairs with |
//! |---|---|---|---|
//! | (A) | [`Producer::publish`], the tail | store `Release` | (B) |
//! | (B) | the consumer, reading the tail | load `Acquire` | (A) |
//! | (C) | the consumer, giving slots back by the head | store `Release` | (D) |
//! | (D) | the producer, reading the head | load `Acquire` | (C) |
//! | (E) | either half's drop, after its last index | store `Release` | (F) |
//! | (F) | `is_abandoned` of the other half | load `Acquire` | (E) |
//!
//! Nobody sleeps on a ring. What wakes the other side is its caller's: a doorbell, or a notifier.

use std::mem::MaybeUninit;

use crate::sync::{Arc, AtomicU32, AtomicUsize, CachePadded, Ordering, UnsafeCell};

/// A half that is still held.
const PRESENT: u32 = 0;
/// A half that has been dropped.
const GONE: u32 = 1;

struct Ring<T> {
    /// First item not yet taken. Counts without end (wrapping); written by the consumer only.
    head: CachePadded<AtomicUsize>,
    /// One past the last item shown. Counts without end (wrapping); written by the producer only.
    tail: CachePadded<AtomicUsize>,
    producer: AtomicU32,
    consumer: AtomicU32,
    /// A power of two of slots, at least `capacity`.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Most items at a time.
    capacity: usize,
}

// SAFETY: a slot in head..tail belongs to the consumer and any other to the producer; the indices hand slots
// over with Release and Acquire. Items cross threads, hence `T: Send`; no reference to an item is ever
// shared.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline]
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }

    /// Puts an item into a slot.
    ///
    /// # Safety
    /// The caller is the producer and `index` is outside `head..tail`.
    #[inline]
    unsafe fn write(&self, index: usize, item: T) {
        // SAFETY: by the caller's promise nobody else touches this slot, and it holds no item.
        self.slot(index).with_mut(|slot| unsafe { (*slot).write(item) });
    }

    /// Takes the item out of a slot.
    ///
    /// # Safety
    /// The slot at `index` holds an item, the caller alone may take it, and counts it as taken.
    #[inline]
    unsafe fn read(&self, index: usize) -> T {
        // SAFETY: by the caller's promise the slot is initialised and ours.
        self.slot(index).with(|slot| unsafe { (*slot).assume_init_read() })
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both halves are gone, and the last reference's drop has ordered their stores before this.
        let tail = self.tail.load(Ordering::Relaxed);
        let mut index = self.head.load(Ordering::Relaxed);
        while index != tail {
            // SAFETY: slots in head..tail hold items and nobody else is left to take them.
            drop(unsafe { self.read(index) });
            index = index.wrapping_add(1);
        }
    }
}

/// The half that puts items in.
pub struct Producer<T: Send> {
    ring: Arc<Ring<T>>,
    /// Where the next item goes: ahead of the shared tail by what is staged.
    tail: usize,
    /// The shared tail.
    published: usize,
    /// The head when last read: never ahead of the true one.
    head: usize,
}

/// The half that takes items out.
pub struct Consumer<T: Send> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// The tail when last read: never ahead of the true one.
    tail: usize,
}

/// A ring for at most `capacity` items at a time.
///
/// # Panics
/// When `capacity` is zero or above 2^31.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring_from(capacity, 0)
}

/// A ring whose indices begin at `start`, for tests of the wrap.
pub(crate) fn ring_from<T: Send>(capacity: usize, start: usize) -> (Producer<T>, Consumer<T>) {
    assert!((1..=1 << 31).contains(&capacity), "a ring of {capacity} items");
    let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let ring = Arc::new(Ring {
        head: CachePadded::new(AtomicUsize::new(start)),
        tail: CachePadded::new(AtomicUsize::new(start)),
        producer: AtomicU32::new(PRESENT),
        consumer: AtomicU32::new(PRESENT),
        slots,
        capacity,
    });
    let producer = Producer { ring: ring.clone(), tail: start, published: start, head: start };
    let consumer = Consumer { ring, head: start, tail: start };
    (producer, consumer)
}

impl<T: Send> Producer<T> {
    /// Most items the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity
    }

    /// How many more items fit now, read afresh.
    pub fn room(&mut self) -> usize {
        self.head = self.ring.head.load(Ordering::Acquire); // (D), pairs with (C)
        self.cached_room()
    }

    fn cached_room(&self) -> usize {
        self.ring.capacity - self.tail.wrapping_sub(self.head)
    }

    /// Puts an item in without showing it yet; a full ring gives it back. [`publish`](Self::publish) shows
    /// it.
    #[inline]
    pub fn stage(&mut self, item: T) -> Result<(), T> {
        if self.cached_room() == 0 && self.room() == 0 {
            return Err(item);
        }
        // SAFETY: we are the producer, and there is room: `tail` is outside head..tail.
        unsafe { self.ring.write(self.tail, item) };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// How many items are staged and not yet shown.
    pub fn staged(&self) -> usize {
        self.tail.wrapping_sub(self.published)
    }

    /// Shows all staged items to the consumer, with one store.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.published = self.tail;
            self.ring.tail.store(self.tail, Ordering::Release); // (A), pairs with (B)
        }
    }

    /// Puts one item in and shows it; a full ring gives it back.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        self.stage(item)?;
        self.publish();
        Ok(())
    }

    /// Takes from `items` as many as fit, shows them with one store, and says how many. The iterator is not
    /// asked for an item that would not fit.
    pub fn push_batch(&mut self, items: impl IntoIterator<Item = T>) -> usize {
        let room = self.room();
        let first = self.tail;
        for item in items.into_iter().take(room) {
            // SAFETY: at most `room` items: `tail` is outside head..tail.
            unsafe { self.ring.write(self.tail, item) };
            self.tail = self.tail.wrapping_add(1);
        }
        self.publish();
        self.tail.wrapping_sub(first)
    }

    /// Whether the consumer is gone, for good. Items put in now are dropped with the ring, or
    /// [taken back](Self::take_back).
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.consumer.load(Ordering::Acquire) == GONE // (F), pairs with (E)
    }

    /// Once the consumer is gone: takes back the oldest item that it left, staged ones included. `None` when
    /// there is none, and as long as the consumer lives.
    pub fn take_back(&mut self) -> Option<T> {
        if !self.is_abandoned() {
            return None;
        }
        // The consumer's last store, seen through (F).
        self.head = self.ring.head.load(Ordering::Relaxed);
        if self.head == self.tail {
            return None;
        }
        self.publish(); // so that the shared indices never cross
        // SAFETY: the consumer is gone and (F) has ordered its reads before this; the slot is in head..tail.
        let item = unsafe { self.ring.read(self.head) };
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, Ordering::Relaxed);
        Some(item)
    }
}

impl<T: Send> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
        self.ring.producer.store(GONE, Ordering::Release); // (E), pairs with (F)
    }
}

impl<T: Send> Consumer<T> {
    /// Most items the ring holds.
    pub fn capacity(&self) -> usize {
        self.ring.capacity
    }

    /// How many items are there now, read afresh. More may come, none can go but by [`pop`](Self::pop).
    pub fn len(&mut self) -> usize {
        self.tail = self.ring.tail.load(Ordering::Acquire); // (B), pairs with (A)
        self.tail.wrapping_sub(self.head)
    }

    /// Whether there is no item now, read afresh when the last reading is used up.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.tail && self.len() == 0
    }

    /// Takes the oldest item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the slot is in head..tail, ours to take; the store below counts it as taken.
        let item = unsafe { self.ring.read(self.head) };
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, Ordering::Release); // (C), pairs with (D)
        Some(item)
    }

    /// Takes up to `most` items, oldest first, giving all their slots back with one store. Returns how many.
    pub fn pop_batch(&mut self, most: usize, mut take: impl FnMut(T)) -> usize {
        /// Gives the slots back also when `take` panics: an item taken must not be taken twice.
        struct GiveBack<'a, T: Send>(&'a mut Consumer<T>);
        impl<T: Send> Drop for GiveBack<'_, T> {
            fn drop(&mut self) {
                self.0.ring.head.store(self.0.head, Ordering::Release); // (C), pairs with (D)
            }
        }
        let count = self.len().min(most);
        if count == 0 {
            return 0;
        }
        let batch = GiveBack(self);
        for _ in 0..count {
            // SAFETY: the slot is in head..tail, ours to take; `batch` counts it as taken.
            let item = unsafe { batch.0.ring.read(batch.0.head) };
            batch.0.head = batch.0.head.wrapping_add(1);
            take(item);
        }
        count
    }

    /// Whether the producer is gone, for good. Items it left may still be there: see
    /// [`is_finished`](Self::is_finished).
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.ring.producer.load(Ordering::Acquire) == GONE // (F), pairs with (E)
    }

    /// Whether the producer is gone and every item it left has been taken.
    pub fn is_finished(&mut self) -> bool {
        // In this order: what the producer showed before it went is seen by the second look.
        self.is_abandoned() && self.is_empty()
    }
}

impl<T: Send> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.ring.consumer.store(GONE, Ordering::Release); // (E), pairs with (F)
    }
}
