use super::*;
use crate::doorbell::{self, Bell, Park};
use crate::request::{Answerer, Caller, Desk, NoAnswer, Refused, channel, slot};

fn desk<C: Send>(capacity: usize) -> (Caller<C>, Desk<C>, Bell, Wakes) {
    let wakes = Wakes::default();
    let (ringer, bell) = doorbell::channel(Box::new(wakes.clone()));
    let (caller, desk) = channel(capacity, ringer);
    (caller, desk, bell, wakes)
}

#[test]
fn commands_come_in_order_and_ring() {
    let (caller, mut desk, mut bell, wakes) = desk(2);
    assert_eq!(bell.park(|| !desk.is_empty()), Park::Sleep);
    assert_eq!(caller.call(1), Ok(()));
    assert_eq!(wakes.count(), 1);
    assert_eq!(bell.park(|| !desk.is_empty()), Park::Stay);
    assert_eq!(caller.clone().call(2), Ok(()));
    assert_eq!(caller.call(3), Err(Refused::Full(3)));
    assert_eq!((desk.take(), desk.take(), desk.take()), (Some(1), Some(2), None));
}

#[test]
fn an_answer_is_taken_once() {
    let (answerer, mut pending) = slot();
    assert_eq!(pending.try_take(), None);
    assert_eq!(pending.wait(at_once()), Err(NoAnswer::TimedOut));
    assert_eq!(answerer.answer("yes"), Ok(()));
    assert_eq!(pending.wait(None), Ok("yes"));
    assert_eq!(pending.wait(None), Err(NoAnswer::Taken));
}

#[test]
fn an_answer_nobody_wants_comes_back() {
    let (answerer, pending) = slot();
    assert!(!answerer.is_abandoned());
    drop(pending);
    assert!(answerer.is_abandoned());
    assert_eq!(answerer.answer("a stream that must be closed"), Err("a stream that must be closed"));
}

#[test]
fn an_answer_that_nobody_takes_is_dropped_once() {
    let drops = Drops::default();
    let (answerer, pending) = slot();
    assert!(answerer.answer(drops.value()).is_ok());
    assert_eq!(drops.get(), 0);
    drop(pending);
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_shard_that_ends_ends_the_wait_of_every_asker() {
    let (caller, mut shard, _bell, _) = desk::<Answerer<u32>>(4);
    let (lying, mut first) = slot();
    let (taken, mut second) = slot();
    assert!(caller.call(taken).is_ok());
    let in_hand = shard.take();
    assert!(in_hand.is_some());
    assert!(caller.call(lying).is_ok());
    drop(shard);
    assert_eq!(first.wait(not_for_ever()), Err(NoAnswer::ShardDead));
    drop(in_hand);
    assert_eq!(second.wait(not_for_ever()), Err(NoAnswer::ShardDead));
    let (late, _pending) = slot();
    assert!(matches!(caller.call(late), Err(Refused::ShardDead(_))));
}
