//! A bounded ring between two threads, for things that are moved and never copied: frames, chunks.
//!
//! Each side owns one index and keeps a cached copy of the other's, which it reads again only when the copy
//! says full (or empty): the line it lies in is the other side's, and to look at it costs a transfer between
//! cores. The producer may put many items in and show them with one store, the consumer takes many and gives
//! their slots back with one; a batch is at most two runs of slots that lie side by side, which the compiler
//! copies as vectors where items are plain. Whatever is still inside when both halves are gone is dropped; a
//! producer left alone can take its items back first, so that no frame is lost with the application thread
//! that held the other end.
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

use crate::slots::{Slots, read, read_run, write};
use crate::sync::{Arc, AtomicU32, AtomicUsize, CachePadded, Ordering};

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
    slots: Slots<T>,
    /// Most items at a time.
    capacity: usize,
}

// SAFETY: a slot in head..tail belongs to the consumer and any other to the producer; the indices hand slots
// over with Release and Acquire. Items cross threads, hence `T: Send`; no reference to an item is ever
// shared.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both halves are gone, and the last reference's drop has ordered their stores before this.
        let tail = self.tail.load(Ordering::Relaxed);
        let mut index = self.head.load(Ordering::Relaxed);
        while index != tail {
            // SAFETY: slots in head..tail hold items and nobody else is left to take them.
            drop(unsafe { read(self.slots.at(index)) });
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
    let ring = Arc::new(Ring {
        head: CachePadded::new(AtomicUsize::new(start)),
        tail: CachePadded::new(AtomicUsize::new(start)),
        producer: AtomicU32::new(PRESENT),
        consumer: AtomicU32::new(PRESENT),
        slots: Slots::new(capacity),
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
        unsafe { write(self.ring.slots.at(self.tail), item) };
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
    #[inline]
    pub fn push_batch(&mut self, items: impl IntoIterator<Item = T>) -> usize {
        /// Counts what was written also when the iterator panics: those items are staged.
        struct Written<'a> {
            tail: &'a mut usize,
            count: usize,
        }
        impl Drop for Written<'_> {
            fn drop(&mut self) {
                *self.tail = self.tail.wrapping_add(self.count);
            }
        }
        let first = self.tail;
        let mut items = items.into_iter();
        let wanted = items.size_hint().1.unwrap_or(usize::MAX);
        let room = match self.cached_room() {
            enough if enough >= wanted => enough,
            _ => self.room(),
        };
        let mut runs = self.ring.slots.runs(self.tail, room);
        if wanted <= runs[0].len() {
            // All in one run: the iterator is then walked by value, and a slice's can be copied whole.
            runs = [&[], runs[0]];
        }
        let mut written = Written { tail: &mut self.tail, count: 0 };
        for (slot, item) in runs[0].iter().zip(&mut items) {
            // SAFETY: we are the producer, and the runs are the `room` slots behind the tail.
            unsafe { write(slot, item) };
            written.count += 1;
        }
        if written.count == runs[0].len() {
            for (slot, item) in runs[1].iter().zip(items) {
                // SAFETY: as above, and every slot before this run has been written.
                unsafe { write(slot, item) };
                written.count += 1;
            }
        }
        drop(written);
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
        let item = unsafe { read(self.ring.slots.at(self.head)) };
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

/// Gives the slots of a batch back, also when taking it panics: an item taken must not be taken twice.
struct GiveBack<'a> {
    shared: &'a AtomicUsize,
    head: &'a mut usize,
    taken: usize,
}

impl Drop for GiveBack<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.head = self.head.wrapping_add(self.taken);
        self.shared.store(*self.head, Ordering::Release); // (C), pairs with (D)
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
        let item = unsafe { read(self.ring.slots.at(self.head)) };
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, Ordering::Release); // (C), pairs with (D)
        Some(item)
    }

    /// How many items to take when `most` are wanted. Reads the tail afresh only if the last reading has fewer.
    #[inline]
    fn available(&mut self, most: usize) -> usize {
        match self.tail.wrapping_sub(self.head) {
            enough if enough >= most => most,
            _ => self.len().min(most),
        }
    }

    /// Takes up to `most` items, oldest first, giving all their slots back with one store. Returns how many.
    #[inline]
    pub fn pop_batch(&mut self, most: usize, mut take: impl FnMut(T)) -> usize {
        let count = self.available(most);
        if count == 0 {
            return 0;
        }
        let runs = self.ring.slots.runs(self.head, count);
        let mut batch = GiveBack { shared: &self.ring.head, head: &mut self.head, taken: 0 };
        for run in runs {
            for slot in run {
                // SAFETY: the slot is in head..tail, ours to take; `batch` counts it as taken.
                let item = unsafe { read(slot) };
                batch.taken += 1;
                take(item);
            }
        }
        count
    }

    /// Takes up to `most` items, oldest first, to the end of `into`, giving all their slots back with one
    /// store. Returns how many. Whole runs are copied: the fastest way to take many. Allocates only when `into`
    /// has no room for what there is.
    #[inline]
    pub fn pop_into(&mut self, most: usize, into: &mut Vec<T>) -> usize {
        let count = self.available(most);
        if count == 0 {
            return 0;
        }
        into.reserve(count);
        let runs = self.ring.slots.runs(self.head, count);
        let mut batch = GiveBack { shared: &self.ring.head, head: &mut self.head, taken: 0 };
        let (first, rest) = into.spare_capacity_mut().split_at_mut(runs[0].len());
        // SAFETY: the slots are in head..tail, ours to take; `batch` counts them below, and nothing panics before.
        unsafe { read_run(runs[0], first) };
        if !runs[1].is_empty() {
            // SAFETY: as above.
            unsafe { read_run(runs[1], rest) };
        }
        batch.taken = count;
        // SAFETY: `count` places behind the length were reserved and have been written.
        unsafe { into.set_len(into.len() + count) };
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

#[cfg(all(test, not(loom)))]
mod batch_tests {
    use std::collections::VecDeque;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::oracle::Random;

    #[test]
    fn a_batch_is_taken_behind_what_the_vector_holds() {
        let (mut producer, mut consumer) = ring_from(5, usize::MAX - 2);
        assert_eq!(producer.push_batch(1..=5), 5);
        let mut into = vec![0];
        assert_eq!(consumer.pop_into(0, &mut into), 0);
        assert_eq!(consumer.pop_into(4, &mut into), 4);
        assert_eq!(consumer.pop_into(4, &mut into), 1);
        assert_eq!(consumer.pop_into(4, &mut into), 0);
        assert_eq!(into, [0, 1, 2, 3, 4, 5]);
        assert_eq!(producer.room(), 5, "the slots came back");
    }

    #[test]
    fn what_an_iterator_gave_before_it_panicked_is_staged() {
        let items = Arc::new(());
        let (mut producer, mut consumer) = ring_from(4, usize::MAX - 1);
        let panics = (0..4).map(|n| {
            assert!(n < 3, "the fourth one");
            items.clone()
        });
        assert!(catch_unwind(AssertUnwindSafe(|| producer.push_batch(panics))).is_err());
        assert_eq!((producer.staged(), consumer.len(), Arc::strong_count(&items)), (3, 0, 4));
        producer.publish();
        assert_eq!(consumer.len(), 3);
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&items), 1, "each was dropped, once");
    }

    /// Iterators that say too much, all there is, or nothing about their length, over every place of the wrap.
    #[test]
    fn batches_do_what_a_bounded_queue_does() {
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let capacity = 1 + random.below(9) as usize;
            let (mut producer, mut consumer) = ring_from(capacity, usize::MAX - random.below(40) as usize);
            let mut oracle = VecDeque::new();
            for first in 0..300_u64 {
                let room = capacity - oracle.len();
                let wanted: Vec<u64> = (first..first + random.below(12)).collect();
                let pushed = match random.below(3) {
                    0 => producer.push_batch(wanted.iter().copied()),
                    1 => producer.push_batch((first..first + 30).filter(|item| wanted.contains(item))),
                    _ => {
                        let mut left = wanted.iter().copied();
                        producer.push_batch(std::iter::from_fn(|| left.next()))
                    }
                };
                assert_eq!(pushed, wanted.len().min(room), "capacity {capacity}, seed {seed}");
                oracle.extend(&wanted[..pushed]);

                let most = random.below(12) as usize;
                let expected: Vec<u64> = oracle.drain(..most.min(oracle.len())).collect();
                let mut taken = Vec::new();
                let count = match random.below(2) {
                    0 => consumer.pop_into(most, &mut taken),
                    _ => consumer.pop_batch(most, |item| taken.push(item)),
                };
                assert_eq!((count, taken), (expected.len(), expected));
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_batches {
    use loom::thread;

    use super::*;

    /// The producer knows the head only from before the first batch was taken, and has to look again.
    #[test]
    fn batches_arrive_whole_through_a_ring_that_wraps() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (mut producer, mut consumer) = ring_from::<Box<u32>>(2, usize::MAX);
            let sender = thread::spawn(move || {
                let mut next = 0;
                while next < 3 {
                    next += producer.push_batch((next..3).map(Box::new)) as u32;
                    thread::yield_now();
                }
            });
            let mut taken = Vec::new();
            while taken.len() < 3 {
                consumer.pop_into(2, &mut taken);
                thread::yield_now();
            }
            assert!(taken.into_iter().map(|item| *item).eq(0..3));
            sender.join().unwrap();
        });
    }
}
