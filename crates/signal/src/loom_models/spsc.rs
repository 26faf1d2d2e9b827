use super::*;
use crate::spsc;

#[test]
fn items_arrive_whole_and_in_order_through_a_ring_that_wraps() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring_from::<Box<u32>>(2, usize::MAX);
        let sender = thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                match producer.push(Box::new(next)) {
                    Ok(()) => next += 1,
                    Err(_) => thread::yield_now(),
                }
            }
        });
        let mut expected = 0;
        while expected < 3 {
            match consumer.pop() {
                Some(item) => {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        sender.join().unwrap();
        assert!(consumer.is_finished());
    });
}

#[test]
fn a_batch_is_seen_from_its_front() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(2);
        let sender = thread::spawn(move || {
            assert_eq!(producer.push_batch([Box::new(0), Box::new(1)]), 2);
            producer
        });
        let mut expected = 0;
        consumer.pop_batch(2, |item| {
            assert_eq!(*item, expected);
            expected += 1;
        });
        assert!(expected == 0 || expected == 2, "one store shows the whole batch");
        drop(sender.join().unwrap());
    });
}

#[test]
fn the_slots_of_a_batch_come_back_when_it_has_been_read() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(1);
        producer.push(Box::new(0)).unwrap();
        let sender = thread::spawn(move || {
            let _ = producer.push(Box::new(1));
            producer
        });
        let mut expected = 0;
        while consumer.pop_batch(1, |item| {
            assert_eq!(*item, expected);
            expected += 1;
        }) == 1
        {}
        drop(sender.join().unwrap());
    });
}

#[test]
fn a_finished_ring_is_empty() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(2);
        let sender = thread::spawn(move || producer.push(Box::new(7)).unwrap());
        let mut taken = 0;
        while !consumer.is_finished() {
            match consumer.pop() {
                Some(item) => taken += *item,
                None => thread::yield_now(),
            }
        }
        assert_eq!(taken, 7, "what the producer left must be found before the ring counts as finished");
        sender.join().unwrap();
    });
}

/// The end is told after what was only staged has been shown.
#[test]
fn a_producer_that_goes_shows_what_it_had_staged() {
    explore(|| {
        let (mut producer, mut consumer) = spsc::ring::<Box<u32>>(2);
        let sender = thread::spawn(move || producer.stage(Box::new(7)).unwrap());
        let mut taken = 0;
        while !consumer.is_finished() {
            match consumer.pop() {
                Some(item) => taken += *item,
                None => thread::yield_now(),
            }
        }
        assert_eq!(taken, 7, "stale read: the end was seen before the last item");
        sender.join().unwrap();
    });
}

#[test]
fn what_a_vanished_consumer_left_is_taken_back_once() {
    explore(|| {
        let tally = Arc::new(AtomicU32::new(0));
        let (mut producer, mut consumer) = spsc::ring::<Token>(2);
        producer.stage(Token(tally.clone())).ok().unwrap();
        producer.stage(Token(tally.clone())).ok().unwrap();
        producer.publish();
        let receiver = thread::spawn(move || consumer.pop().is_some());
        let mut back = 0;
        while let Some(token) = producer.take_back() {
            drop(token);
            back += 1;
        }
        assert!(receiver.join().unwrap());
        assert!(back <= 1, "the consumer took the other one");
        drop(producer);
        assert_eq!(tally.load(Ordering::Relaxed), 2, "each token is dropped once");
    });
}
