use super::*;
use crate::doorbell::{Park, Rung, channel};
use crate::ready;

#[test]
fn a_shard_that_is_awake_costs_no_wake_up() {
    let wakes = Wakes::default();
    let (ringer, mut bell) = channel(Box::new(wakes.clone()));
    assert_eq!(ringer.ring(), Rung::Awake);
    assert_eq!(bell.park(|| true), Park::Stay);
    assert_eq!(ringer.ring(), Rung::Awake);
    assert_eq!(wakes.count(), 0);
}

#[test]
fn a_sleeping_shard_is_woken_once_by_however_many() {
    let wakes = Wakes::default();
    let (ringer, mut bell) = channel(Box::new(wakes.clone()));
    for sleeps in 1..=3 {
        assert_eq!(bell.park(|| false), Park::Sleep);
        assert_eq!(ringer.ring(), Rung::Woke);
        assert_eq!(ringer.clone().ring(), Rung::Awake);
        bell.awake();
        assert_eq!(wakes.count(), sleeps);
    }
}

#[test]
fn a_shard_that_wakes_by_itself_is_not_woken() {
    let wakes = Wakes::default();
    let (ringer, mut bell) = channel(Box::new(wakes.clone()));
    bell.prepare_park();
    bell.awake();
    assert_eq!(ringer.ring(), Rung::Awake);
    assert_eq!(wakes.count(), 0);
}

#[test]
fn marks_are_collected_once_in_order() {
    let mut collector = ready::set(130);
    assert_eq!(collector.slots(), 192);
    let marks: Vec<_> = [129, 0, 63, 64].map(|slot| collector.mark(slot)).into();
    assert!(!collector.any());
    for mark in &marks {
        mark.mark();
    }
    marks[0].mark();
    assert!(collector.any());
    let mut found = Vec::new();
    assert_eq!(collector.collect(|slot| found.push(slot)), 4);
    assert_eq!(found, [0, 63, 64, 129]);
    assert!(!collector.any());
    assert_eq!(collector.collect(|slot| panic!("{slot} twice")), 0);
}

#[test]
#[should_panic(expected = "slot 64 of a ready set of 64")]
fn a_mark_has_a_slot() {
    let _ = ready::set(1).mark(64);
}
