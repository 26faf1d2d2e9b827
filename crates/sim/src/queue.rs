//! What happens next: events ordered by their virtual time, those of one instant by their order of entry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xsend_tcp::Instant;

/// Events that wait for their time. Equal times come out in the order in which they were put in, so
/// a run never depends on how a heap breaks ties.
#[derive(Debug)]
pub struct EventQueue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    entered: u64,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0 }
    }

    /// Puts `event` in, to happen at `at`.
    pub fn push(&mut self, at: Instant, event: T) {
        let order = self.entered;
        self.entered += 1;
        self.heap.push(Reverse(Entry { at, order, event }));
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event if its time has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry.event)
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    order: u64,
    event: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
