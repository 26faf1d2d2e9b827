//! Models of each edge, explored by loom: every interleaving (up to a bound on preemptions) and every value
//! that a weak load may return. A thread left asleep is a deadlock, which loom reports; a torn or early read
//! of a cell is a race, likewise.

use loom::thread;

use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell};

mod mutants;

/// Explores `model`, three preemptions deep: known store-buffering faults need two.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(model);
}

mod spsc {
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

    struct Token(Arc<AtomicU32>);

    impl Drop for Token {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

mod tail {
    use super::*;
    use crate::tail::{Recycle, Tails, Word};

    /// A frame of two bytes whose every access loom checks.
    struct Payload([UnsafeCell<u8>; 2]);

    // SAFETY: loom checks at run time that no two accesses race.
    unsafe impl Sync for Payload {}
    // SAFETY: as above.
    unsafe impl Send for Payload {}

    impl Payload {
        fn new() -> Arc<Self> {
            Arc::new(Self([UnsafeCell::new(0), UnsafeCell::new(0)]))
        }

        fn write(&self, at: usize, value: u8) {
            // SAFETY: loom checks that nobody else accesses it.
            self.0[at].with_mut(|byte| unsafe { *byte = value });
        }

        fn sum(&self, len: u16) -> u32 {
            // SAFETY: loom checks that nobody else writes it.
            self.0.iter().take(len.into()).map(|byte| byte.with(|byte| u32::from(unsafe { *byte }))).sum()
        }
    }

    #[test]
    fn a_sealed_frame_holds_the_bytes_that_its_word_says() {
        explore(|| {
            let tails = Tails::new(1);
            let payload = Payload::new();
            let mut writer = tails.writer();
            writer.open(0);
            let bytes = payload.clone();
            let appender = thread::spawn(move || {
                bytes.write(0, 3);
                let first = writer.append(Word { len: 1, sum: 3, ..Word::default() });
                if first.is_ok() {
                    bytes.write(1, 4);
                    return writer.append(Word { len: 2, sum: 7, ..Word::default() }).map(|()| 2);
                }
                first.map(|()| 1)
            });
            let sealed = tails.seal(0);
            assert!(sealed.sealed);
            assert_eq!(payload.sum(sealed.len), sealed.sum);
            match appender.join().unwrap() {
                Ok(len) => assert_eq!(tails.read(0).len, len),
                Err(lost) => assert_eq!(lost.0, sealed, "the writer learns what the shard took"),
            }
        });
    }

    #[test]
    fn an_open_frame_can_be_read_up_to_its_length() {
        explore(|| {
            let tails = Tails::new(1);
            let payload = Payload::new();
            let mut writer = tails.writer();
            writer.open(0);
            let bytes = payload.clone();
            let appender = thread::spawn(move || {
                bytes.write(0, 3);
                writer.append(Word { len: 1, sum: 3, ..Word::default() }).unwrap();
                bytes.write(1, 4);
                writer.append(Word { len: 2, sum: 7, ..Word::default() }).unwrap();
            });
            let word = tails.read(0);
            assert_eq!(payload.sum(word.len), word.sum);
            appender.join().unwrap();
        });
    }

    #[test]
    fn a_recycled_frame_is_not_scribbled_into() {
        explore(|| {
            let tails = Tails::new(2);
            let payload = Payload::new();
            let mut writer = tails.writer();
            writer.open(0);
            let bytes = payload.clone();
            let appender = thread::spawn(move || {
                bytes.write(1, 4);
                if writer.append(Word { len: 2, sum: 4, ..Word::default() }).is_ok() {
                    writer.open(1);
                }
            });
            let _ = tails.seal(0);
            if tails.recycle(0) == Recycle::Free {
                // Somebody else's payload: a race with the writer's copy, if it were still at it.
                payload.write(1, 9);
            }
            appender.join().unwrap();
            assert_eq!(tails.recycle(0), Recycle::Free, "a writer that lost, moved on or closed has left");
        });
    }

    #[test]
    fn a_writer_that_seals_hands_the_frame_over_whole() {
        explore(|| {
            let tails = Tails::new(1);
            let payload = Payload::new();
            let mut writer = tails.writer();
            writer.open(0);
            let bytes = payload.clone();
            let appender = thread::spawn(move || {
                bytes.write(0, 5);
                let _ = writer.append(Word { len: 1, sum: 5, sealed: true, ..Word::default() });
            });
            if tails.read(0).sealed {
                assert_eq!(tails.recycle(0), Recycle::Free);
                payload.write(0, 9);
            }
            appender.join().unwrap();
        });
    }
}

mod cork {
    use super::*;
    use crate::cork::{self, Audit, Completion, Throttled};

    #[test]
    fn a_cork_is_released_by_the_last_completion() {
        explore(|| {
            let published = Arc::new(AtomicU32::new(0));
            let (mut writer, mut shard) = cork::channel();
            shard.submitted(1);
            let bytes = published.clone();
            let app = thread::spawn(move || {
                bytes.store(1, Ordering::Relaxed);
                writer.throttle()
            });
            let completion = shard.complete(1);
            let found = published.load(Ordering::Relaxed);
            let audit = shard.audit();
            let throttled = app.join().unwrap();
            if throttled == Throttled::Corked {
                assert_eq!(completion, Completion::ReleaseCorked, "lost wake-up");
                assert_eq!(found, 1, "released without the bytes behind the cork");
            }
            assert_eq!(audit, Audit::Sound);
            assert_eq!(shard.audit(), Audit::Sound);
            assert_eq!(shard.lost_wakeups(), 0);
        });
    }

    #[test]
    fn a_second_cork_is_not_wiped_out_by_the_release_of_the_first() {
        explore(|| {
            let published = Arc::new(AtomicU32::new(0));
            let (mut writer, mut shard) = cork::channel();
            shard.submitted(2);
            let bytes = published.clone();
            let app = thread::spawn(move || {
                bytes.store(1, Ordering::Relaxed);
                let _ = writer.throttle();
                writer.uncork();
                bytes.store(2, Ordering::Relaxed);
                writer.throttle()
            });
            let mut found = 0;
            for _ in 0..2 {
                if shard.complete(1) == Completion::ReleaseCorked {
                    found = published.load(Ordering::Relaxed);
                }
            }
            if app.join().unwrap() == Throttled::Corked {
                assert_eq!(found, 2, "the second cork was lost with the first");
            }
            assert_eq!(shard.audit(), Audit::Sound);
        });
    }
}

/// A stand-in for the eventfd: a token that a model can look at.
struct Eventfd(Arc<AtomicU32>);

impl crate::doorbell::Wake for Eventfd {
    fn wake(&self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

mod doorbell {
    use super::*;
    use crate::doorbell::{self, Park, Rung};

    #[test]
    fn work_is_seen_or_the_shard_is_woken() {
        explore(|| {
            let eventfd = Arc::new(AtomicU32::new(0));
            let work = Arc::new(AtomicU32::new(0));
            let (ringer, mut bell) = doorbell::channel(Box::new(Eventfd(eventfd.clone())));
            let published = work.clone();
            let app = thread::spawn(move || {
                published.store(1, Ordering::Release);
                ringer.ring()
            });
            let park = bell.park(|| work.load(Ordering::Acquire) == 1);
            let rung = app.join().unwrap();
            if park == Park::Sleep {
                assert_eq!(rung, Rung::Woke, "the shard sleeps over published work");
                assert_eq!(eventfd.load(Ordering::Relaxed), 1);
            }
        });
    }

    #[test]
    fn of_two_ringers_one_wakes_and_none_is_missed() {
        explore(|| {
            let eventfd = Arc::new(AtomicU32::new(0));
            let work = Arc::new(AtomicU32::new(0));
            let (ringer, mut bell) = doorbell::channel(Box::new(Eventfd(eventfd.clone())));
            let ring = |bit: u32| {
                let (ringer, work) = (ringer.clone(), work.clone());
                thread::spawn(move || {
                    work.fetch_or(bit, Ordering::Release);
                    ringer.ring()
                })
            };
            let apps = [ring(1), ring(2)];
            let mut seen = 0;
            let park = bell.park(|| {
                seen = work.load(Ordering::Acquire);
                seen != 0
            });
            let woken =
                apps.map(|app| app.join().unwrap()).iter().filter(|rung| **rung == Rung::Woke).count();
            if park == Park::Sleep {
                assert_eq!(woken, 1, "one of two ringers pays for the system call");
            }
        });
    }
}

mod ready {
    use super::*;
    use crate::ready;

    #[test]
    fn a_collected_mark_shows_what_came_before_it_and_none_is_lost() {
        explore(|| {
            let mut collector = ready::set(1);
            let mark = collector.mark(5);
            let frames = Arc::new(AtomicU32::new(0));
            let published = frames.clone();
            let app = thread::spawn(move || {
                for frame in 1..=2 {
                    published.store(frame, Ordering::Relaxed);
                    mark.mark();
                }
            });
            let mut seen = 0;
            while seen < 2 {
                let marked = collector.collect(|slot| {
                    assert_eq!(slot, 5);
                    let now = frames.load(Ordering::Relaxed);
                    assert!(now > 0, "marked before the frames arrived");
                    seen = now;
                });
                if marked == 0 {
                    thread::yield_now();
                }
            }
            app.join().unwrap();
        });
    }
}

mod space {
    use super::*;
    use crate::life::{self, State};
    use crate::wait::Waited;
    use crate::{space, spsc};

    #[test]
    fn a_writer_is_woken_when_snd_nxt_advances() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut notifier, mut waiter) = space::channel(&mut owner);
            let app = thread::spawn(move || waiter.wait(None, |progress| progress.sent == 1));
            notifier.sent(1);
            notifier.notify();
            assert_eq!(app.join().unwrap(), Waited::Ready);
        });
    }

    #[test]
    fn a_writer_is_woken_when_snd_una_advances_and_finds_the_frame() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut notifier, mut waiter) = space::channel(&mut owner);
            let (mut lend, mut lent) = spsc::ring::<Box<u32>>(1);
            let app = thread::spawn(move || {
                let waited = waiter.wait(None, |_| !lent.is_empty());
                (waited, lent.pop().is_some(), waiter.progress())
            });
            notifier.sent(1);
            notifier.acked(1);
            lend.push(Box::new(1)).unwrap();
            notifier.notify();
            let (waited, frame, progress) = app.join().unwrap();
            assert_eq!(waited, Waited::Ready);
            assert!(frame);
            assert_eq!(progress.acked, 1, "the frame was lent after the acknowledgement");
        });
    }

    #[test]
    fn acknowledged_is_never_seen_ahead_of_sent() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut notifier, waiter) = space::channel(&mut owner);
            let app = thread::spawn(move || waiter.progress());
            notifier.sent(1);
            notifier.acked(1);
            notifier.sent(2);
            let progress = app.join().unwrap();
            assert!(progress.acked <= progress.sent, "{progress:?}");
        });
    }

    #[test]
    fn two_waits_in_a_row_are_both_woken() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut notifier, mut waiter) = space::channel(&mut owner);
            let app = thread::spawn(move || {
                let first = waiter.wait(None, |progress| progress.sent >= 1);
                let second = waiter.wait(None, |progress| progress.sent >= 2);
                (first, second)
            });
            for sent in 1..=2 {
                notifier.sent(sent);
                notifier.notify();
            }
            assert_eq!(app.join().unwrap(), (Waited::Ready, Waited::Ready));
        });
    }
}

mod life {
    use super::*;
    use crate::life::{self, State};
    use crate::wait::Waited;
    use crate::{inbox, space};

    #[test]
    fn the_death_of_a_shard_ends_every_wait() {
        explore(|| {
            let (mut owner, mut watch) = life::begin(State::Open);
            let (notifier, mut writer) = space::channel(&mut owner);
            let app = thread::spawn(move || writer.wait(None, |_| false));
            let shard = thread::spawn(move || {
                drop(owner);
                drop(notifier);
            });
            assert_eq!(watch.wait(None, |_| false), Some(State::ShardDead));
            assert_eq!(app.join().unwrap(), Waited::Ended(State::ShardDead));
            shard.join().unwrap();
        });
    }

    #[test]
    fn the_first_end_is_the_one_that_counts() {
        explore(|| {
            let (mut owner, mut watch) = life::begin(State::Connecting);
            let shard = thread::spawn(move || {
                owner.set(State::Open);
                owner.set(State::Failed(7));
                owner.set(State::Closed);
            });
            assert_eq!(watch.wait(None, |_| false), Some(State::Failed(7)));
            shard.join().unwrap();
        });
    }

    #[test]
    fn the_bytes_before_a_fin_are_read_before_the_end() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
            let app = thread::spawn(move || {
                let mut bytes = 0;
                loop {
                    match reader.wait(None) {
                        Waited::Ready => bytes += *reader.pop().unwrap(),
                        ended => return (bytes, ended),
                    }
                }
            });
            deliverer.push(Box::new(3)).unwrap();
            owner.set(State::PeerClosed);
            assert_eq!(app.join().unwrap(), (3, Waited::Ended(State::PeerClosed)));
        });
    }
}

mod inbox {
    use super::*;
    use crate::inbox::{self, Consumed, Shut};
    use crate::life::{self, State};
    use crate::spsc;
    use crate::wait::Waited;

    #[test]
    fn a_reader_is_woken_by_a_delivery() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(2, &mut owner);
            let app = thread::spawn(move || (reader.wait(None), reader.pop()));
            deliverer.push(Box::new(3)).unwrap();
            deliverer.notify();
            assert_eq!(app.join().unwrap(), (Waited::Ready, Some(Box::new(3))));
        });
    }

    #[test]
    fn a_shut_window_is_reopened_by_one_side_or_the_other() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (mut deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
            let app = thread::spawn(move || reader.consume(1));
            let shut = deliverer.shut(0);
            let consumed = app.join().unwrap();
            if shut == Shut::Shut {
                assert_eq!(consumed, Consumed::WindowWasShut, "nobody opens the window");
            }
        });
    }

    #[test]
    fn frames_are_back_before_their_bytes_count_as_consumed() {
        explore(|| {
            let (mut owner, _watch) = life::begin(State::Open);
            let (deliverer, mut reader) = inbox::channel::<Box<u32>>(1, &mut owner);
            let (mut give_back, mut returned) = spsc::ring::<Box<u32>>(1);
            let app = thread::spawn(move || {
                give_back.push(Box::new(1)).unwrap();
                let _ = reader.consume(1);
            });
            if deliverer.consumed() == 1 {
                assert!(returned.pop().is_some());
            }
            app.join().unwrap();
        });
    }
}

mod request {
    use super::*;
    use crate::doorbell;
    use crate::request::{self, Answerer, NoAnswer, Refused};

    fn bell() -> doorbell::Ringer {
        doorbell::channel(Box::new(Eventfd(Arc::new(AtomicU32::new(0))))).0
    }

    #[test]
    fn an_answer_arrives_whole() {
        explore(|| {
            let (answerer, mut pending) = request::slot::<Box<u32>>();
            let shard = thread::spawn(move || answerer.answer(Box::new(9)));
            assert_eq!(pending.wait(None), Ok(Box::new(9)));
            assert_eq!(shard.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_dropped_answerer_ends_the_wait() {
        explore(|| {
            let (answerer, mut pending) = request::slot::<Box<u32>>();
            let shard = thread::spawn(move || drop(answerer));
            assert_eq!(pending.wait(None), Err(NoAnswer::ShardDead));
            shard.join().unwrap();
        });
    }

    #[test]
    fn an_answer_to_an_asker_that_goes_is_given_back_or_dropped_once() {
        explore(|| {
            let (answerer, mut pending) = request::slot::<Arc<u32>>();
            let answer = Arc::new(9);
            let copy = answer.clone();
            let shard = thread::spawn(move || answerer.answer(copy).is_err());
            let taken = pending.try_take();
            drop(pending);
            let given_back = shard.join().unwrap();
            assert!(taken.is_none() || !given_back, "both sides have it");
        });
    }

    #[test]
    fn no_asker_waits_on_a_desk_that_is_gone() {
        explore(|| {
            let (caller, desk) = request::channel::<Answerer<u32>>(1, bell());
            let shard = thread::spawn(move || drop(desk));
            let (answerer, mut pending) = request::slot();
            match caller.call(answerer) {
                Ok(()) => assert_eq!(pending.wait(None), Err(NoAnswer::ShardDead)),
                Err(Refused::ShardDead(_)) => {}
                Err(Refused::Full(_)) => panic!("an empty queue is not full"),
            }
            shard.join().unwrap();
        });
    }

    #[test]
    fn two_callers_are_both_served() {
        explore(|| {
            let (caller, mut desk) = request::channel::<u32>(2, bell());
            let callers = [1, 2].map(|command| {
                let caller = caller.clone();
                thread::spawn(move || caller.call(command).unwrap())
            });
            let mut sum = 0;
            while sum < 3 {
                match desk.take() {
                    Some(command) => sum += command,
                    None => thread::yield_now(),
                }
            }
            assert_eq!(sum, 3);
            for caller in callers {
                caller.join().unwrap();
            }
        });
    }
}

mod snapshot {
    use super::*;
    use crate::snapshot;

    #[test]
    fn a_snapshot_is_never_torn() {
        explore(|| {
            let (mut publisher, mut reader) = snapshot::channel([0, 0]);
            let shard = thread::spawn(move || {
                publisher.publish(&[1, 10]);
                publisher.publish(&[2, 20]);
            });
            let mut last = 0;
            for _ in 0..2 {
                if let Some([a, b]) = reader.changed() {
                    assert_eq!(a * 10, b, "torn");
                    assert!(a >= last, "back in time");
                    last = a;
                }
            }
            shard.join().unwrap();
            assert_eq!(reader.read(), [2, 20]);
        });
    }

    #[test]
    fn a_version_shows_its_words() {
        explore(|| {
            let (mut publisher, mut reader) = snapshot::channel([0]);
            assert_eq!(reader.changed(), Some([0]));
            let shard = thread::spawn(move || publisher.publish(&[1]));
            if let Some(words) = reader.changed() {
                assert_eq!(words, [1], "a changed version with the old words");
            }
            shard.join().unwrap();
        });
    }
}

/// What the orders other than the fences are for: loom must be able to see the difference.
mod sanity {
    use super::*;

    #[test]
    #[should_panic(expected = "early")]
    fn loom_finds_a_relaxed_publication() {
        explore(|| {
            let data = Arc::new(AtomicU64::new(0));
            let ready = Arc::new(AtomicU64::new(0));
            let (d, r) = (data.clone(), ready.clone());
            let writer = thread::spawn(move || {
                d.store(1, Ordering::Relaxed);
                r.store(1, Ordering::Relaxed);
            });
            if ready.load(Ordering::Relaxed) == 1 {
                assert_eq!(data.load(Ordering::Relaxed), 1, "early");
            }
            writer.join().unwrap();
        });
    }
}
