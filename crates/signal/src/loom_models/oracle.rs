//! Random operations, with loom's atomics and, from two threads, in every interleaving.

use std::collections::VecDeque;

use super::*;
use crate::oracle::{self, Random};
use crate::{lend, spsc};

#[test]
fn on_one_thread_the_queues_do_what_a_deque_does() {
    for seed in 0..40 {
        explore(move || {
            oracle::spsc(seed, 30);
            oracle::lend(seed, 30);
            oracle::desk(seed, 30, bell());
        });
    }
}

/// What one thread puts in, the other gets, in the order in which a `VecDeque` would give it.
#[test]
fn on_two_threads_a_ring_gives_what_was_put_in() {
    for seed in 0..12 {
        explore(move || {
            let mut random = Random::new(seed);
            let (mut producer, mut consumer) = spsc::ring_from(1 + random.below(2) as usize, usize::MAX);
            let sender = thread::spawn(move || {
                let mut put = VecDeque::new();
                for item in 0..3_u64 {
                    match random.below(4) {
                        0 => put.extend(producer.stage(item).is_ok().then_some(item)),
                        1 => {
                            let fitted = producer.push_batch([item, item + 10]);
                            put.extend([item, item + 10].into_iter().take(fitted));
                        }
                        _ => put.extend(producer.push(item).is_ok().then_some(item)),
                    }
                }
                // With the half goes whatever it had not shown.
                put
            });
            let mut random = Random::new(!seed);
            let mut got = Vec::new();
            for _ in 0..2 {
                match random.below(2) {
                    0 => got.extend(consumer.pop()),
                    _ => drop(consumer.pop_batch(2, |item| got.push(item))),
                }
            }
            let put = sender.join().unwrap();
            while let Some(item) = consumer.pop() {
                got.push(item);
            }
            assert!(got.into_iter().eq(put), "another order, or another item");
        });
    }
}

/// Lent items are claimed or taken back, each once, each side seeing them in the order in which they were lent.
#[test]
fn on_two_threads_every_lent_item_has_one_owner() {
    for seed in 0..12 {
        explore(move || {
            let mut random = Random::new(seed);
            let (mut lender, mut borrower) = lend::ring(1 + random.below(2) as usize);
            let app = thread::spawn(move || {
                let mut random = Random::new(!seed);
                let mut claimed = Vec::new();
                for _ in 0..2 {
                    borrower.claim(1 + random.below(2) as usize, |item| claimed.push(item));
                }
                (claimed, borrower)
            });
            let (mut lent, mut back) = (VecDeque::new(), Vec::new());
            for item in 0..4_u64 {
                match random.below(4) {
                    0 => drop(lender.take_back(1 + random.below(2) as usize, |item| back.push(item))),
                    _ => lent.extend(lender.stage(item).is_ok().then_some(item)),
                }
                lender.publish();
            }
            let (mut claimed, mut borrower) = app.join().unwrap();
            borrower.claim(usize::MAX, |item| claimed.push(item));
            assert!(claimed.is_sorted() && back.is_sorted());
            let mut all = [claimed, back].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(lent), "an item has two owners, or none");
        });
    }
}
