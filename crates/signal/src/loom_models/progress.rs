//! No waiter sleeps past an error, a close, or the death of the other side: each side ends at every one of its
//! steps, and the other still comes to an end. A waiter left asleep is a deadlock, which loom reports.

use super::*;
use crate::answer::{self, NoAnswer};
use crate::backlog::{self, Accepted};
use crate::desk;
use crate::doorbell::{self, Park};
use crate::life::{self, State};
use crate::wait::Waited;
use crate::{handover, inbox, lend, space};

/// Runs `model` for every number of steps up to `steps` after which a side ends.
fn at_every_step(steps: usize, model: fn(usize)) {
    for ends_after in 0..=steps {
        explore(move || model(ends_after));
    }
}

/// Does the first `count` of `steps`; what they own goes with them.
fn first<S>(count: usize, state: &mut S, steps: &[fn(&mut S)]) {
    steps.iter().take(count).for_each(|step| step(state));
}

#[test]
fn a_writer_is_woken_wherever_its_shard_ends() {
    at_every_step(5, |ends_after| {
        let (owner, _watch) = life::begin(State::Open);
        let mut owner = Some(owner);
        let (notifier, mut waiter) = space::channel(owner.as_mut().unwrap());
        let (lender, mut borrower) = lend::ring::<u32>(1);
        let app = thread::spawn(move || {
            loop {
                match waiter.wait_space(None, |_| !borrower.is_empty()) {
                    Waited::Ready => assert_eq!(borrower.claim(1, |_| ()), 1),
                    ended => return ended,
                }
            }
        });
        let mut shard = (notifier, lender, owner.take().unwrap());
        first(
            ends_after,
            &mut shard,
            &[
                |(notifier, ..)| notifier.sent(1),
                |(notifier, ..)| notifier.acked(1),
                |(_, lender, _)| lender.stage(0).unwrap(),
                |(_, lender, _)| lender.publish(),
                |(notifier, ..)| {
                    notifier.notify();
                },
            ],
        );
        drop(shard);
        assert_eq!(app.join().unwrap(), Waited::Ended(State::ShardDead));
    });
}

#[test]
fn a_writer_is_woken_by_an_error_at_any_step() {
    at_every_step(3, |ends_after| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (notifier, mut waiter) = space::channel(&mut owner);
        let app = thread::spawn(move || waiter.wait_space(None, |_| false));
        let mut shard = (notifier, owner);
        first(
            ends_after,
            &mut shard,
            &[
                |(notifier, _)| notifier.sent(1),
                |(notifier, _)| notifier.acked(1),
                |(notifier, _)| {
                    notifier.notify();
                },
            ],
        );
        shard.1.set(State::Failed(104));
        assert_eq!(app.join().unwrap(), Waited::Ended(State::Failed(104)));
    });
}

#[test]
fn a_reader_is_woken_wherever_its_shard_ends_and_reads_what_came_before() {
    at_every_step(5, |ends_after| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (deliverer, mut reader) = inbox::channel::<u64>(1, &mut owner);
        let app = thread::spawn(move || {
            let mut bytes = 0;
            loop {
                match reader.wait_data(None) {
                    Waited::Ready => {
                        bytes += reader.pop().unwrap();
                        let _ = reader.consume(bytes);
                    }
                    ended => return (bytes, ended),
                }
            }
        });
        let mut shard = (deliverer, owner);
        first(
            ends_after,
            &mut shard,
            &[
                |(deliverer, _)| deliverer.push(3).unwrap(),
                |(deliverer, _)| {
                    deliverer.notify();
                },
                |(deliverer, _)| {
                    let _ = deliverer.shut(0);
                },
                |(_, owner)| {
                    owner.set(State::PeerClosed);
                },
                |(_, owner)| {
                    owner.set(State::Closed);
                },
            ],
        );
        drop(shard);
        let end = match ends_after {
            0..=3 => State::ShardDead,
            // The reader may see the FIN, or already what came after it.
            _ => State::PeerClosed,
        };
        let (bytes, ended) = app.join().unwrap();
        assert_eq!(bytes, if ends_after == 0 { 0 } else { 3 }, "bytes that came before the end were lost");
        let Waited::Ended(state) = ended else { panic!("{ended:?}") };
        assert!(state == end || (ends_after > 3 && state.is_over()), "{state:?} after {ends_after} steps");
    });
}

#[test]
fn a_shard_notices_a_reader_that_ends_at_any_step() {
    at_every_step(2, |ends_after| {
        let (mut owner, _watch) = life::begin(State::Open);
        let (mut deliverer, reader) = inbox::channel::<u64>(1, &mut owner);
        deliverer.push(1).unwrap();
        let (ringer, mut door) = doorbell::channel(Box::new(Eventfd(Arc::new(AtomicU32::new(0)))));
        let app = thread::spawn(move || {
            let mut reader = reader;
            first(
                ends_after,
                &mut reader,
                &[
                    |reader| {
                        assert_eq!(reader.pop(), Some(1));
                    },
                    |reader| {
                        let _ = reader.consume(1);
                    },
                ],
            );
            drop(reader);
            // As a stream does, after its halves are gone.
            ringer.ring()
        });
        let _ = deliverer.shut(0);
        let park = door.park(|| deliverer.is_abandoned());
        let rung = app.join().unwrap();
        if park == Park::Sleep {
            assert_eq!(
                rung,
                doorbell::Rung::Woke,
                "lost wake-up: nobody tells the shard that its reader is gone"
            );
        }
        assert!(deliverer.is_abandoned());
    });
}

#[test]
fn an_asker_is_woken_wherever_the_shard_ends() {
    type Shard = (Option<desk::Desk<answer::Answerer<u32>>>, Option<answer::Answerer<u32>>);
    at_every_step(3, |ends_after| {
        let (caller, desk) = desk::channel::<answer::Answerer<u32>>(1, bell());
        let shard = thread::spawn(move || {
            let mut shard: Shard = (Some(desk), None);
            first(
                ends_after,
                &mut shard,
                &[
                    |(desk, in_hand)| *in_hand = desk.as_mut().unwrap().take(),
                    |(desk, _)| *desk = None,
                    |(_, in_hand)| {
                        if let Some(answerer) = in_hand.take() {
                            answerer.answer(5).unwrap();
                        }
                    },
                ],
            );
            drop(shard);
        });
        let (answerer, mut pending) = answer::slot();
        match caller.call(answerer) {
            Ok(()) => match pending.wait(None) {
                Ok(answer) => assert_eq!((answer, ends_after), (5, 3)),
                Err(why) => assert_eq!(why, NoAnswer::ShardDead),
            },
            Err(desk::Refused::ShardDead(_)) => {}
            Err(desk::Refused::Full(_)) => panic!("an empty queue is not full"),
        }
        shard.join().unwrap();
    });
}

#[test]
fn a_shard_is_not_held_up_by_an_asker_that_ends_at_any_step() {
    type Asker =
        (Option<answer::Answerer<Token>>, answer::Pending<Token>, desk::Caller<answer::Answerer<Token>>);
    at_every_step(2, |ends_after| {
        let tally = Arc::new(AtomicU32::new(0));
        let (caller, mut desk) = desk::channel::<answer::Answerer<Token>>(1, bell());
        let app = thread::spawn(move || {
            let (answerer, pending) = answer::slot();
            let mut asker: Asker = (Some(answerer), pending, caller);
            first(
                ends_after,
                &mut asker,
                &[
                    |(answerer, _, caller)| caller.call(answerer.take().unwrap()).ok().unwrap(),
                    |(_, pending, _)| drop(pending.try_take()),
                ],
            );
        });
        let mut made = 0;
        if let Some(answerer) = desk.take() {
            made = 1;
            drop(answerer.answer(Token(tally.clone())));
        }
        app.join().unwrap();
        drop(desk);
        assert_eq!(tally.load(Ordering::Relaxed), made, "an answer that was made is dropped once");
    });
}

#[test]
fn a_listener_is_woken_wherever_its_last_shard_ends() {
    at_every_step(2, |ends_after| {
        let (offerer, mut acceptor) = backlog::channel::<u32>(2);
        let shard = thread::spawn(move || {
            let mut shard = offerer;
            first(
                ends_after,
                &mut shard,
                &[|offerer| offerer.offer(1).unwrap(), |offerer| offerer.offer(2).unwrap()],
            );
        });
        let mut accepted = 0;
        loop {
            match acceptor.accept(None) {
                Accepted::Ready(_) => accepted += 1,
                Accepted::ShardsDead => break,
                Accepted::TimedOut => unreachable!(),
            }
        }
        assert_eq!(accepted, ends_after, "stale read: the end was seen before the last connection");
        shard.join().unwrap();
    });
}

#[test]
fn a_shard_learns_that_its_neighbour_ended_at_any_step() {
    at_every_step(1, |ends_after| {
        let tally = Arc::new(AtomicU32::new(0));
        let (mut giver, mut taker) = handover::channel::<Token>(2, bell());
        giver.hand_over(Token(tally.clone())).ok().unwrap();
        giver.ring();
        let neighbour = thread::spawn(move || {
            if ends_after == 1 {
                assert!(taker.take().is_some());
            }
        });
        let refused = giver.hand_over(Token(tally.clone())).is_err();
        giver.ring();
        neighbour.join().unwrap();
        let mut back = 0;
        while giver.take_back().is_some() {
            back += 1;
        }
        assert_eq!(back + ends_after + usize::from(refused), 2);
        assert_eq!(tally.load(Ordering::Relaxed), 2, "each item is dropped once");
        assert!(matches!(giver.hand_over(Token(tally)), Err(handover::Refused::ShardDead(_))));
    });
}

#[test]
fn a_taker_is_woken_wherever_its_giver_ends() {
    type Given = handover::Giver<u32>;
    at_every_step(2, |ends_after| {
        let (ringer, mut door) = doorbell::channel(Box::new(Eventfd(Arc::new(AtomicU32::new(0)))));
        let eventfd = ringer.clone();
        let (giver, mut taker) = handover::channel::<u32>(2, ringer);
        let other = thread::spawn(move || {
            let mut giver: Given = giver;
            first(
                ends_after,
                &mut giver,
                &[
                    |giver| giver.hand_over(1).unwrap(),
                    |giver| {
                        giver.ring();
                    },
                ],
            );
        });
        let park = door.park(|| !taker.is_empty() || taker.is_finished());
        other.join().unwrap();
        if park == Park::Sleep {
            // Whoever was woken is awake: another ring finds nobody to wake.
            assert_eq!(
                eventfd.ring(),
                doorbell::Rung::Awake,
                "lost wake-up: the taker sleeps past its giver"
            );
        }
        assert_eq!(taker.take().is_some(), ends_after > 0, "what was handed over is shown");
        assert!(taker.is_finished());
    });
}

#[test]
fn a_watcher_sees_the_end_wherever_the_owner_goes() {
    at_every_step(3, |ends_after| {
        let (owner, mut watch) = life::begin(State::Connecting);
        let shard = thread::spawn(move || {
            let mut owner = owner;
            first(
                ends_after,
                &mut owner,
                &[
                    |owner| {
                        owner.set(State::Open);
                    },
                    |owner| {
                        owner.set(State::PeerClosed);
                    },
                    |owner| {
                        owner.set(State::Closed);
                    },
                ],
            );
        });
        let end = if ends_after == 3 { State::Closed } else { State::ShardDead };
        assert_eq!(watch.wait(None, |_| false), Some(end));
        shard.join().unwrap();
    });
}
