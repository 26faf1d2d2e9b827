//! The frames that are under way, and the memory they lie in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A frame in a buffer that any frame of the link fits into.
#[derive(Debug)]
pub struct Frame {
    buffer: Box<[u8]>,
    len: usize,
}

impl Frame {
    /// The frame that is the first `len` bytes of `buffer`.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn new(buffer: Box<[u8]>, len: usize) -> Self {
        assert!(len <= buffer.len(), "{len} bytes in a buffer of {}", buffer.len());
        Self { buffer, len }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Box<[u8]> {
        self.buffer
    }
}

/// Buffers of one size: a stack, so that the one used last, which is in the cache, is used next. It grows until its
/// bound; a link that has once carried its load allocates nothing.
#[derive(Debug)]
pub struct Pool {
    free: Vec<Box<[u8]>>,
    size: usize,
    left: usize,
}

impl Pool {
    /// Buffers of `size` bytes, as many as fit into `memory` bytes.
    pub fn new(size: usize, memory: usize) -> Self {
        Self { free: Vec::new(), size, left: memory / size.max(1) }
    }

    /// The bytes a buffer holds.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A buffer with anything in it, or `None` at the bound.
    pub fn take(&mut self) -> Option<Box<[u8]>> {
        self.free.pop().or_else(|| {
            self.left = self.left.checked_sub(1)?;
            Some(vec![0; self.size].into_boxed_slice())
        })
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: Box<[u8]>) {
        debug_assert_eq!(buffer.len(), self.size);
        self.free.push(buffer);
    }
}

#[derive(Debug)]
struct Due {
    at_ns: u64,
    number: u64,
    frame: Frame,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

/// Frames under way, by the time they arrive; those of one moment in the order they came.
#[derive(Debug, Default)]
pub struct UnderWay {
    heap: BinaryHeap<Reverse<Due>>,
    number: u64,
}

impl UnderWay {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds one.
    pub fn push(&mut self, at_ns: u64, frame: Frame) {
        self.heap.push(Reverse(Due { at_ns, number: self.number, frame }));
        self.number += 1;
    }

    /// When the next one arrives.
    pub fn next_at_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(due)| due.at_ns)
    }

    /// The next one, if it has arrived by `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<Frame> {
        if self.next_at_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(byte: u8) -> Frame {
        Frame::new(vec![byte; 4].into_boxed_slice(), 1)
    }

    #[test]
    fn frames_arrive_by_time_and_then_in_order() {
        let mut under_way = UnderWay::default();
        for (at, byte) in [(5, 1), (3, 2), (5, 3), (5, 4), (4, 5)] {
            under_way.push(at, frame(byte));
        }
        assert_eq!(under_way.next_at_ns(), Some(3));
        assert!(under_way.pop(2).is_none());
        let order: Vec<u8> = std::iter::from_fn(|| under_way.pop(5)).map(|frame| frame.bytes()[0]).collect();
        assert_eq!(order, [2, 5, 1, 3, 4]);
        assert!(under_way.is_empty());
    }

    #[test]
    fn a_pool_is_bounded_and_hands_out_the_last_one_first() {
        let mut pool = Pool::new(100, 250);
        let (mut one, two) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        one[0] = 9;
        pool.give(two);
        pool.give(one);
        assert_eq!(pool.take().unwrap()[0], 9);
    }
}
