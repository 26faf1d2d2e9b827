//! The queues under comparison, each by the ways to move a whole batch through it.
//!
//! All have room for [`CAPACITY`] items, and all wait in the same manner: by spinning.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use xsend_benches::BATCH;
use xsend_signal::spsc;

/// Five batches and a bit, as a stream's ring holds with the default send buffer.
pub const CAPACITY: usize = 256;

/// Says of a [`Receiver`] that it takes into an array.
macro_rules! in_an_array {
    () => {
        type Into = Batch;

        fn into() -> Batch {
            [0; BATCH]
        }
    };
}

/// A whole batch, in an array.
pub type Batch = [u32; BATCH];

/// Puts a whole batch in.
pub trait Sender: Send {
    /// Returns when all of it is in.
    fn send(&mut self, batch: &[u32]);
}

/// Takes a whole batch out.
pub trait Receiver: Send {
    /// What a batch is taken into.
    type Into: AsRef<[u32]>;

    /// Something to take batches into, again and again.
    fn into() -> Self::Into;

    /// Returns when `into` holds a whole batch, and nothing of the last.
    fn receive(&mut self, into: &mut Self::Into);
}

/// Offers what is left until all is in. `offer` says how much it took.
#[inline]
fn until_sent(batch: &[u32], mut offer: impl FnMut(&[u32]) -> usize) {
    let mut left = batch;
    loop {
        left = &left[offer(left)..];
        if left.is_empty() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// Fetches into what is empty until all is there. `fetch` says how much it brought.
#[inline]
fn until_received(into: &mut Batch, mut fetch: impl FnMut(&mut [u32]) -> usize) {
    let mut left = &mut into[..];
    loop {
        let count = fetch(left);
        left = &mut left[count..];
        if left.is_empty() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// `spsc` by batches: in from an iterator, out into a vector.
pub struct Batches<E>(E);

pub fn batches() -> (Batches<spsc::Producer<u32>>, Batches<spsc::Consumer<u32>>) {
    let (producer, consumer) = spsc::ring(CAPACITY);
    (Batches(producer), Batches(consumer))
}

impl Sender for Batches<spsc::Producer<u32>> {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| self.0.push_batch(left.iter().copied()));
    }
}

impl Receiver for Batches<spsc::Consumer<u32>> {
    type Into = Vec<u32>;

    fn into() -> Vec<u32> {
        Vec::with_capacity(BATCH)
    }

    #[inline]
    fn receive(&mut self, into: &mut Vec<u32>) {
        into.clear();
        loop {
            self.0.pop_into(BATCH - into.len(), into);
            if into.len() == BATCH {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// `spsc` by batches: in from an iterator, out to a closure.
pub struct Visited(spsc::Consumer<u32>);

pub fn visited() -> (Batches<spsc::Producer<u32>>, Visited) {
    let (producer, consumer) = spsc::ring(CAPACITY);
    (Batches(producer), Visited(consumer))
}

impl Receiver for Visited {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| {
            let most = left.len();
            let mut places = left.iter_mut();
            self.0.pop_batch(most, |item| {
                if let Some(place) = places.next() {
                    *place = item;
                }
            })
        });
    }
}

/// `spsc`, staged one by one and shown at once; taken one by one. So a stream hands its frames to the shard.
pub struct Staged<E>(E);

pub fn staged() -> (Staged<spsc::Producer<u32>>, Staged<spsc::Consumer<u32>>) {
    let (producer, consumer) = spsc::ring(CAPACITY);
    (Staged(producer), Staged(consumer))
}

impl Sender for Staged<spsc::Producer<u32>> {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| {
            let count = left.iter().take_while(|&&item| self.0.stage(item).is_ok()).count();
            self.0.publish();
            count
        });
    }
}

impl Receiver for Staged<spsc::Consumer<u32>> {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| fill(left, || self.0.pop()));
    }
}

/// `rtrb` by chunks, for items of any kind.
pub struct Chunks<E>(E);

pub fn chunks() -> (Chunks<rtrb::Producer<u32>>, Chunks<rtrb::Consumer<u32>>) {
    let (producer, consumer) = rtrb::RingBuffer::new(CAPACITY);
    (Chunks(producer), Chunks(consumer))
}

impl Sender for Chunks<rtrb::Producer<u32>> {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| match self.0.write_chunk_uninit(left.len()) {
            Ok(chunk) => chunk.fill_from_iter(left.iter().copied()),
            Err(_) => 0,
        });
    }
}

impl Receiver for Chunks<rtrb::Consumer<u32>> {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| match self.0.read_chunk(left.len()) {
            Ok(chunk) => {
                let count = chunk.len();
                for (slot, item) in left.iter_mut().zip(chunk) {
                    *slot = item;
                }
                count
            }
            Err(_) => 0,
        });
    }
}

/// `rtrb` by slices, which it has for items that may be copied.
pub struct Slices<E>(E);

pub fn slices() -> (Slices<rtrb::Producer<u32>>, Slices<rtrb::Consumer<u32>>) {
    let (producer, consumer) = rtrb::RingBuffer::new(CAPACITY);
    (Slices(producer), Slices(consumer))
}

impl Sender for Slices<rtrb::Producer<u32>> {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| self.0.push_entire_slice(left).map_or(0, |()| left.len()));
    }
}

impl Receiver for Slices<rtrb::Consumer<u32>> {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| self.0.pop_entire_slice(left).map_or(0, |()| left.len()));
    }
}

/// `rtrb`, one by one.
pub struct OneByOne<E>(E);

pub fn one_by_one() -> (OneByOne<rtrb::Producer<u32>>, OneByOne<rtrb::Consumer<u32>>) {
    let (producer, consumer) = rtrb::RingBuffer::new(CAPACITY);
    (OneByOne(producer), OneByOne(consumer))
}

impl Sender for OneByOne<rtrb::Producer<u32>> {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| left.iter().take_while(|&&item| self.0.push(item).is_ok()).count());
    }
}

impl Receiver for OneByOne<rtrb::Consumer<u32>> {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| fill(left, || self.0.pop().ok()));
    }
}

/// crossbeam's `ArrayQueue`, which has one way only.
pub struct Shared(Arc<ArrayQueue<u32>>);

pub fn array_queue() -> (Shared, Shared) {
    let queue = Arc::new(ArrayQueue::new(CAPACITY));
    (Shared(queue.clone()), Shared(queue))
}

impl Sender for Shared {
    #[inline]
    fn send(&mut self, batch: &[u32]) {
        until_sent(batch, |left| left.iter().take_while(|&&item| self.0.push(item).is_ok()).count());
    }
}

impl Receiver for Shared {
    in_an_array!();

    #[inline]
    fn receive(&mut self, into: &mut Batch) {
        until_received(into, |left| fill(left, || self.0.pop()));
    }
}

/// Takes one by one until there is none, or `into` is full. Says how many.
#[inline]
fn fill(into: &mut [u32], mut pop: impl FnMut() -> Option<u32>) -> usize {
    let mut count = 0;
    for slot in into {
        let Some(item) = pop() else { break };
        *slot = item;
        count += 1;
    }
    count
}
