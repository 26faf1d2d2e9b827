use super::*;
use crate::answer::{Answerer, NoAnswer, slot};
use crate::desk::{Caller, Desk, Refused, channel};
use crate::doorbell::{self, Bell, Park};

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

#[test]
fn a_desk_is_a_bounded_queue() {
    for seed in 0..100 {
        let (ringer, _bell) = doorbell::channel(Box::new(Wakes::default()));
        oracle::desk(seed, 300, ringer);
    }
}
