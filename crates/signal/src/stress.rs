//! Each protocol between two real threads, for a bounded number of rounds. What loom explores in the small,
//! this repeats on the machine at hand, at its own speed and with its own reordering.
//!
//! Edges that could lose a wake-up are run in rounds: both threads leave a barrier together, do one step
//! each, meet again, and compare what each concluded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::oracle::Random;
use crate::tests::{Wakes, not_for_ever};
use crate::{
    Waited, answer, backlog, cork, desk, doorbell, inbox, lend, life, pin, ready, snapshot, space, spsc, tail,
};

/// Lets two threads leave together, as nearly as two processors can.
#[derive(Clone, Default)]
struct Meeting(Arc<AtomicU32>);

impl Meeting {
    fn meet(&self) {
        let met = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        let everybody = met.next_multiple_of(2);
        let mut turns = 0;
        while self.0.load(Ordering::Acquire) < everybody {
            patience(&mut turns);
        }
    }
}

/// Spins a little, then lets others run: these tests also run on one processor.
fn patience(turns: &mut u32) {
    *turns += 1;
    if *turns < 200 {
        std::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// Runs `rounds` of two steps against each other and gives both outcomes of each to `judge`.
fn rounds<A: Send + 'static, B: Send + 'static>(
    rounds: u32,
    mut app: impl FnMut(u32) -> A + Send + 'static,
    mut shard: impl FnMut(u32) -> B,
    mut judge: impl FnMut(u32, A, B),
) {
    let (results, outcomes) = std::sync::mpsc::channel();
    let meeting = Meeting::default();
    let other = meeting.clone();
    let thread = thread::spawn(move || {
        for round in 0..rounds {
            other.meet();
            let outcome = app(round);
            other.meet();
            results.send(outcome).unwrap();
        }
    });
    for round in 0..rounds {
        meeting.meet();
        let outcome = shard(round);
        meeting.meet();
        judge(round, outcomes.recv().unwrap(), outcome);
    }
    thread.join().unwrap();
}

#[test]
fn spsc_moves_boxes_in_order() {
    const ITEMS: u64 = 300_000;
    let (mut producer, mut consumer) = spsc::ring(61);
    let sender = thread::spawn(move || {
        let mut random = Random::new(1);
        let (mut next, mut turns) = (0, 0);
        while next < ITEMS {
            let before = next;
            if random.below(2) == 0 {
                let wanted = random.below(40).min(ITEMS - next);
                next += producer.push_batch((next..next + wanted).map(Box::new)) as u64;
            } else if producer.stage(Box::new(next)).is_ok() {
                next += 1;
            }
            if random.below(3) == 0 || next == before {
                producer.publish();
            }
            if next == before {
                patience(&mut turns);
            } else {
                turns = 0;
            }
        }
    });
    let mut random = Random::new(2);
    let (mut expected, mut turns) = (0, 0);
    while !consumer.is_finished() {
        let before = expected;
        if random.below(2) == 0 {
            consumer.pop_batch(random.below(50) as usize, |item| {
                assert_eq!(*item, expected);
                expected += 1;
            });
        } else if let Some(item) = consumer.pop() {
            assert_eq!(*item, expected);
            expected += 1;
        }
        if expected == before {
            patience(&mut turns);
        } else {
            turns = 0;
        }
    }
    assert_eq!(expected, ITEMS);
    sender.join().unwrap();
}

/// Frames of eight bytes go round: lent by a ring, written while the shard seals them, recycled by the rule.
/// The shard marks what it recycles and finds its mark when it lends the frame again.
#[test]
fn tail_frames_hold_what_their_words_say_and_nobody_scribbles() {
    const FRAMES: usize = 4;
    const LEN: usize = 8;
    const BYTES: u32 = 200_000;
    const MARK: u8 = 0xee;

    let memory: Arc<Vec<[AtomicU8; LEN]>> = Arc::new((0..FRAMES).map(|_| Default::default()).collect());
    let tails = tail::Tails::new(FRAMES as u32);
    let pins = pin::Pins::new(FRAMES as u32);
    let (mut writer, mut pinner) = (tails.writer(), pins.pinner());
    let (mut lend, mut lent) = spsc::ring::<u32>(FRAMES);
    let (mut hand_in, mut handed_in) = spsc::ring::<u32>(FRAMES);

    let payload = memory.clone();
    let app = thread::spawn(move || {
        let mut written = 0_u32;
        let mut turns = 0;
        while written < BYTES {
            let Some(frame) = writer.current() else {
                pinner.unpin();
                if let Some(frame) = lent.pop() {
                    pinner.pin(frame);
                    writer.open(frame);
                    hand_in.push(frame).unwrap();
                } else {
                    patience(&mut turns);
                }
                continue;
            };
            let word = writer.published().unwrap();
            let value = written as u8 & 0x7f;
            payload[frame as usize][usize::from(word.len)].store(value, Ordering::Relaxed);
            let len = word.len + 1;
            let next = tail::Word {
                len,
                sum: word.sum + u32::from(value),
                marks: tail::Marks::SEALED.when(usize::from(len) == LEN),
            };
            // A loser writes the same byte again, into its next frame.
            if writer.append(next).is_ok() {
                written += 1;
            }
        }
    });

    let mut random = Random::new(3);
    for frame in 0..FRAMES as u32 {
        memory[frame as usize].iter().for_each(|byte| byte.store(MARK, Ordering::Relaxed));
        lend.push(frame).unwrap();
    }
    let (mut received, mut turns) = (0_u32, 0);
    let mut aside = Vec::new();
    while received < BYTES {
        if let Some(frame) = handed_in.pop() {
            for _ in 0..random.below(60) {
                std::hint::spin_loop();
            }
            let word = tails.seal(frame);
            let bytes = memory[frame as usize].iter().take(word.len.into());
            let mut sum = 0;
            for byte in bytes {
                let byte = byte.load(Ordering::Relaxed);
                assert_eq!(byte, received as u8 & 0x7f, "byte {received} of the stream");
                sum += u32::from(byte);
                received += 1;
            }
            assert_eq!(sum, word.sum);
            aside.push(frame);
        } else {
            patience(&mut turns);
        }
        aside.retain(|&frame| {
            if pins.of(frame) != pin::Pin::Free {
                return true;
            }
            memory[frame as usize].iter().for_each(|byte| byte.store(MARK, Ordering::Relaxed));
            for _ in 0..random.below(60) {
                std::hint::spin_loop();
            }
            for byte in &memory[frame as usize] {
                assert_eq!(byte.load(Ordering::Relaxed), MARK, "somebody still wrote into a recycled frame");
            }
            lend.push(frame).unwrap();
            false
        });
    }
    app.join().unwrap();
}

#[test]
fn cork_loses_no_wake_up() {
    let published = Arc::new(AtomicU32::new(0));
    let (mut writer, shard) = cork::channel();
    let shard = std::cell::RefCell::new(shard);
    shard.borrow_mut().submitted(1);
    let bytes = published.clone();
    rounds(
        40_000,
        move |round| {
            bytes.store(round + 1, Ordering::Relaxed);
            writer.throttle()
        },
        |_| (shard.borrow_mut().complete(1), published.load(Ordering::Relaxed)),
        |round, throttled, (completion, found)| {
            if throttled == cork::Throttled::Corked {
                assert_eq!(completion, cork::Completion::ReleaseCorked, "round {round}: lost wake-up");
                assert_eq!(found, round + 1, "round {round}: released without its bytes");
            }
            let mut shard = shard.borrow_mut();
            assert_eq!(shard.audit(), cork::Audit::Sound);
            let _ = shard.take_throttled();
            shard.submitted(1);
        },
    );
    assert_eq!(shard.borrow().lost_wakeups(), 0);
}

#[test]
fn doorbell_leaves_no_work_before_a_sleeping_shard() {
    let work = Arc::new(AtomicU32::new(0));
    let wakes = Wakes::default();
    let (ringer, bell) = doorbell::channel(Box::new(wakes.clone()));
    let bell = std::cell::RefCell::new(bell);
    let published = work.clone();
    rounds(
        40_000,
        move |round| {
            published.store(round + 1, Ordering::Release);
            ringer.ring()
        },
        |round| bell.borrow_mut().park(|| work.load(Ordering::Acquire) == round + 1),
        |round, rung, park| {
            if park == doorbell::Park::Sleep {
                assert_eq!(rung, doorbell::Rung::Woke, "round {round}: the shard sleeps over published work");
            }
            bell.borrow_mut().awake();
        },
    );
    assert!(wakes.count() <= 40_000);
}

#[test]
fn ready_marks_are_never_lost() {
    const SLOTS: u32 = 100;
    const MARKS: u32 = 100_000;
    let mut collector = ready::set(SLOTS);
    let counts: Arc<Vec<AtomicU32>> = Arc::new((0..SLOTS).map(|_| AtomicU32::new(0)).collect());
    let marks: Vec<_> = (0..SLOTS).map(|slot| collector.mark(slot)).collect();
    let published = counts.clone();
    let app = thread::spawn(move || {
        let mut random = Random::new(4);
        for _ in 0..MARKS {
            let mark = &marks[random.below(u64::from(SLOTS)) as usize];
            published[mark.slot() as usize].fetch_add(1, Ordering::Relaxed);
            mark.mark();
        }
    });
    let mut seen = vec![0; SLOTS as usize];
    let mut turns = 0;
    while seen.iter().sum::<u32>() < MARKS {
        let found = collector.collect(|slot| {
            seen[slot as usize] = counts[slot as usize].load(Ordering::Relaxed);
        });
        if found == 0 {
            assert!(turns < 50_000_000, "a mark was lost: {} of {MARKS}", seen.iter().sum::<u32>());
            patience(&mut turns);
        } else {
            turns = 0;
        }
    }
    app.join().unwrap();
}

/// The writer sleeps for every step, and each step comes from the one or from the other place.
#[test]
fn space_wakes_the_writer_for_every_step() {
    const STEPS: u64 = 20_000;
    let (mut owner, mut watch) = life::begin(life::State::Open);
    let (mut notifier, mut waiter) = space::channel(&mut owner);
    let (mut ask, mut asked) = spsc::ring::<u64>(1);
    let app = thread::spawn(move || {
        for step in 1..=STEPS {
            ask.push(step).unwrap();
            let waited = waiter.wait_space(not_for_ever(), |progress| progress.sent + progress.acked == step);
            assert_eq!(waited, Waited::Ready, "step {step}");
        }
        // Only now may the shard end: an end that comes before the last step was seen would count for more.
        ask.push(STEPS + 1).unwrap();
        waiter.wait_space(not_for_ever(), |_| false)
    });
    let (mut sent, mut acked, mut turns) = (0, 0, 0);
    while sent + acked < STEPS {
        match asked.pop() {
            Some(_) if sent > acked => {
                acked += 1;
                notifier.acked(acked);
                notifier.notify();
            }
            Some(_) => {
                sent += 1;
                notifier.sent(sent);
                notifier.notify();
            }
            None => patience(&mut turns),
        }
    }
    while asked.pop().is_none() {
        patience(&mut turns);
    }
    drop(owner);
    assert_eq!(app.join().unwrap(), Waited::Ended(life::State::ShardDead));
    assert_eq!(watch.wait(None, |_| false), Some(life::State::ShardDead));
}

/// A small inbox between a shard that shuts its window when the inbox is full, then relies on the reader to
/// ring, and a reader that sleeps whenever it is empty.
#[test]
fn inbox_delivers_everything_through_shut_windows() {
    const CHUNKS: u64 = 50_000;
    let rings = Arc::new(AtomicU64::new(0));
    let (mut owner, _watch) = life::begin(life::State::Open);
    let (mut deliverer, mut reader) = inbox::channel::<Box<u64>>(4, &mut owner);
    let bell = rings.clone();
    let app = thread::spawn(move || {
        let mut expected = 0;
        loop {
            match reader.wait_data(not_for_ever()) {
                Waited::Ready => {}
                ended => return (expected, ended),
            }
            while let Some(chunk) = reader.pop() {
                assert_eq!(*chunk, expected);
                expected += 1;
                if reader.consume(1) == inbox::Consumed::WindowWasShut {
                    bell.fetch_add(1, Ordering::Release);
                }
            }
        }
    });
    let (mut next, mut heard) = (0, 0);
    while next < CHUNKS {
        match deliverer.push(Box::new(next)) {
            Ok(()) => {
                next += 1;
                deliverer.notify();
            }
            Err(_) => {
                // What `consumed` says decides whether to sleep; the ring's room may already be ahead of it.
                let seen = deliverer.consumed();
                if next - seen >= 4 && deliverer.shut(seen) == inbox::Shut::Shut {
                    let mut turns = 0;
                    while rings.load(Ordering::Acquire) == heard {
                        assert!(turns < 50_000_000, "nobody opens the window");
                        patience(&mut turns);
                    }
                    heard += 1;
                }
            }
        }
    }
    owner.set(life::State::PeerClosed);
    assert_eq!(app.join().unwrap(), (CHUNKS, Waited::Ended(life::State::PeerClosed)));
}

/// Two threads ask; the shard answers for a while, then ends with commands on its desk and answers in its
/// hand.
#[test]
fn desk_leaves_nobody_waiting() {
    for served in [0, 1, 500, 5_000] {
        let (ringer, _bell) = doorbell::channel(Box::new(Wakes::default()));
        let (caller, mut desk) = desk::channel::<(u64, answer::Answerer<u64>)>(8, ringer);
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let caller = caller.clone();
                thread::spawn(move || {
                    let mut answered = 0;
                    loop {
                        let (answerer, mut pending) = answer::slot();
                        match caller.call((answered, answerer)) {
                            Ok(()) => {}
                            Err(desk::Refused::ShardDead(_)) => return answered,
                            Err(desk::Refused::Full(_)) => panic!("two askers fill a desk of eight"),
                        }
                        match pending.wait(not_for_ever()) {
                            Ok(answer) => {
                                assert_eq!(answer, answered + 1);
                                answered = answer;
                            }
                            Err(why) => {
                                assert_eq!(why, answer::NoAnswer::ShardDead);
                                return answered;
                            }
                        }
                    }
                })
            })
            .collect();
        let mut turns = 0;
        for _ in 0..served {
            let (number, answerer) = loop {
                match desk.take() {
                    Some(command) => break command,
                    None => patience(&mut turns),
                }
            };
            assert_eq!(answerer.answer(number + 1), Ok(()));
        }
        drop(desk);
        assert_eq!(askers.into_iter().map(|asker| asker.join().unwrap()).sum::<u64>(), served);
    }
}

#[test]
fn snapshot_is_read_whole_and_forwards_only() {
    const WRITES: u64 = 100_000;
    let (mut publisher, reader) = snapshot::channel([0; 6]);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = reader.clone();
            thread::spawn(move || {
                let (mut last, mut turns) = (0, 0);
                while last < WRITES {
                    let Some(words) = reader.changed() else {
                        patience(&mut turns);
                        continue;
                    };
                    for (at, word) in words.iter().enumerate() {
                        assert_eq!(*word, words[0] * (at as u64 + 1), "torn: {words:?}");
                    }
                    assert!(words[0] >= last, "back in time");
                    last = words[0];
                }
            })
        })
        .collect();
    for value in 1..=WRITES {
        publisher.publish(&std::array::from_fn(|at| value * (at as u64 + 1)));
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn life_ends_a_wait_whenever_it_comes() {
    for round in 0..2_000_u32 {
        let (mut owner, mut watch) = life::begin(life::State::Open);
        let (_notifier, mut waiter) = space::channel(&mut owner);
        let writer = thread::spawn(move || waiter.wait_space(not_for_ever(), |_| false));
        for _ in 0..round % 400 {
            std::hint::spin_loop();
        }
        let end = life::State::Failed(round as u16);
        owner.set(end);
        assert_eq!(watch.wait(not_for_ever(), |_| false), Some(end));
        assert_eq!(writer.join().unwrap(), Waited::Ended(end));
    }
}

/// A shard lends, takes back, and lends again, while the writer claims batches of any size.
#[test]
fn lend_gives_every_item_one_owner() {
    const ITEMS: u64 = 300_000;
    let (mut lender, mut borrower) = lend::ring::<Box<u64>>(13);
    let done = Arc::new(AtomicU32::new(0));
    let ended = done.clone();
    let app = thread::spawn(move || {
        let mut random = Random::new(5);
        let (mut claimed, mut last, mut turns) = (0, 0, 0);
        loop {
            let over = ended.load(Ordering::Acquire) == 1;
            let got = borrower.claim(1 + random.below(7) as usize, |item| {
                assert!(*item > last, "{item} after {last}");
                last = *item;
                claimed += *item;
            });
            match got {
                0 if over => return claimed,
                0 => patience(&mut turns),
                _ => turns = 0,
            }
        }
    });
    let mut random = Random::new(6);
    let (mut next, mut back, mut turns) = (0, 0, 0);
    while next < ITEMS {
        match random.below(8) {
            0 => drop(lender.take_back(random.below(9) as usize, |item| back += *item)),
            1 => lender.publish(),
            _ if lender.stage(Box::new(next + 1)).is_ok() => next += 1,
            _ => {
                lender.publish();
                patience(&mut turns);
            }
        }
    }
    lender.publish();
    done.store(1, Ordering::Release);
    let claimed = app.join().unwrap();
    assert_eq!(claimed + back, ITEMS * (ITEMS + 1) / 2);
}

/// Two shards offer, one after the other ends, and the listener sleeps between.
#[test]
fn backlog_gives_the_listener_every_connection_and_then_the_end() {
    const EACH: u64 = 20_000;
    let (offerer, mut acceptor) = backlog::channel::<Box<u64>>(8);
    let shards: Vec<_> = [0, 1_000_000]
        .map(|first| {
            let offerer = offerer.clone();
            thread::spawn(move || {
                let mut turns = 0;
                for connection in first..first + EACH {
                    let mut offered = Box::new(connection);
                    while let Err(refused) = offerer.offer(offered) {
                        let backlog::Refused::Full(again) = refused else { panic!("the listener is there") };
                        offered = again;
                        patience(&mut turns);
                    }
                }
            })
        })
        .into();
    drop(offerer);
    let mut sum = 0;
    loop {
        match acceptor.accept(not_for_ever()) {
            backlog::Accepted::Ready(connection) => sum += *connection,
            end => {
                assert_eq!(end, backlog::Accepted::ShardsDead);
                break;
            }
        }
    }
    assert_eq!(sum, EACH * (EACH - 1) + EACH * 1_000_000);
    for shard in shards {
        shard.join().unwrap();
    }
}
