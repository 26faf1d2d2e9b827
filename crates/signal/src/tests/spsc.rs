use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::spsc::{ring, ring_from};

#[test]
fn a_full_ring_gives_the_item_back() {
    let (mut producer, mut consumer) = ring(3);
    assert_eq!(producer.capacity(), 3, "the bound is what was asked for, not the next power of two");
    for item in 0..3 {
        assert_eq!(producer.push(item), Ok(()));
    }
    assert_eq!(producer.push(3), Err(3));
    assert_eq!(producer.room(), 0);
    assert_eq!(consumer.pop(), Some(0));
    assert_eq!(producer.push(3), Ok(()));
    assert_eq!(consumer.len(), 3);
}

#[test]
fn staged_items_are_shown_by_publish_and_not_before() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.stage(1), Ok(()));
    assert_eq!(producer.stage(2), Ok(()));
    assert_eq!(producer.staged(), 2);
    assert_eq!(consumer.pop(), None);
    producer.publish();
    assert_eq!(producer.staged(), 0);
    assert_eq!(consumer.pop(), Some(1));
    assert_eq!(consumer.pop(), Some(2));
    assert_eq!(consumer.pop(), None);
}

#[test]
fn a_batch_takes_what_fits_and_leaves_the_rest_in_the_iterator() {
    let (mut producer, mut consumer) = ring(4);
    let mut items = 0..10;
    assert_eq!(producer.push_batch(&mut items), 4);
    assert_eq!(items.next(), Some(4), "an item that does not fit must not be lost");
    let mut taken = Vec::new();
    assert_eq!(consumer.pop_batch(3, |item| taken.push(item)), 3);
    assert_eq!(consumer.pop_batch(3, |item| taken.push(item)), 1);
    assert_eq!(consumer.pop_batch(3, |item| taken.push(item)), 0);
    assert_eq!(taken, [0, 1, 2, 3]);
}

#[test]
fn each_half_learns_that_the_other_is_gone() {
    let (mut producer, mut consumer) = ring(2);
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    producer.push(1).unwrap();
    producer.stage(2).unwrap();
    drop(producer);
    assert!(consumer.is_abandoned());
    assert!(!consumer.is_finished(), "two items are left, one of them only staged");
    assert_eq!((consumer.pop(), consumer.pop()), (Some(1), Some(2)));
    assert!(consumer.is_finished());

    let (producer, consumer) = ring::<u32>(2);
    drop(consumer);
    assert!(producer.is_abandoned());
}

#[test]
fn a_producer_takes_back_only_from_a_consumer_that_is_gone() {
    let (mut producer, mut consumer) = ring(4);
    assert_eq!(producer.push_batch(0..3), 3);
    producer.stage(3).unwrap();
    assert_eq!(producer.take_back(), None);
    assert_eq!(consumer.pop(), Some(0));
    drop(consumer);
    let back: Vec<_> = std::iter::from_fn(|| producer.take_back()).collect();
    assert_eq!(back, [1, 2, 3]);
    assert_eq!(producer.room(), 4);
}

#[test]
fn every_item_is_dropped_exactly_once_whoever_goes_first() {
    for producer_first in [true, false] {
        for taken in 0..=5 {
            for back in 0..=3 {
                let drops = Drops::default();
                let (mut producer, mut consumer) = ring_from(8, usize::MAX - 2);
                for _ in 0..5 {
                    assert!(producer.push(drops.value()).is_ok());
                }
                assert!(producer.stage(drops.value()).is_ok());
                for _ in 0..taken {
                    assert!(consumer.pop().is_some());
                }
                assert_eq!(drops.get(), taken);
                if producer_first {
                    drop(producer);
                    drop(consumer);
                } else {
                    drop(consumer);
                    for _ in 0..back {
                        producer.take_back();
                    }
                    drop(producer);
                }
                assert_eq!(drops.get(), 6, "producer first: {producer_first}, {taken} taken, {back} back");
            }
        }
    }
}

#[test]
fn an_item_whose_taker_panics_is_not_taken_twice() {
    let drops = Drops::default();
    let (mut producer, mut consumer) = ring(4);
    for _ in 0..3 {
        assert!(producer.push(drops.value()).is_ok());
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        consumer.pop_batch(3, |item| {
            drop(item);
            assert!(drops.get() < 2, "the second one");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(drops.get(), 2);
    assert_eq!(consumer.len(), 1);
    drop((producer, consumer));
    assert_eq!(drops.get(), 3);
}

#[test]
#[should_panic(expected = "a ring of 0 items")]
fn a_ring_holds_something() {
    let _ = ring::<u32>(0);
}

#[test]
fn a_ring_is_a_bounded_queue() {
    (0..400).for_each(|seed| oracle::spsc(seed, 500));
}
