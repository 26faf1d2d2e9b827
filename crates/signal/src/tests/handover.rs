use super::*;
use crate::doorbell::{self, Park, Rung};
use crate::handover::{Refused, channel};

#[test]
fn items_are_shown_by_one_ring_a_turn() {
    let wakes = Wakes::default();
    let (ringer, mut bell) = doorbell::channel(Box::new(wakes.clone()));
    let (mut giver, mut taker) = channel(2, ringer);
    assert_eq!(giver.ring(), None, "nothing handed over, nobody woken");
    assert_eq!(giver.hand_over(1), Ok(()));
    assert_eq!(giver.hand_over(2), Ok(()));
    assert_eq!(giver.hand_over(3), Err(Refused::Full(3)));
    assert_eq!(bell.park(|| !taker.is_empty()), Park::Sleep);
    assert_eq!(giver.ring(), Some(Rung::Woke));
    assert_eq!((taker.take(), taker.take(), taker.take(), wakes.count()), (Some(1), Some(2), None, 1));
    assert!(!taker.is_finished());
    drop(giver);
    assert!(taker.is_finished());
}

#[test]
fn a_dead_shard_gives_back_what_it_did_not_take() {
    let (ringer, _bell) = doorbell::channel(Box::new(Wakes::default()));
    let (mut giver, taker) = channel(4, ringer);
    giver.hand_over(1).unwrap();
    giver.ring();
    assert_eq!(giver.take_back(), None, "it lives");
    drop(taker);
    assert_eq!(giver.hand_over(2), Err(Refused::ShardDead(2)));
    assert_eq!((giver.take_back(), giver.take_back()), (Some(1), None));
}
