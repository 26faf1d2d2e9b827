use super::*;
use crate::doorbell::{self, Park, Rung};
use crate::handover::{self, Refused};

#[test]
fn what_is_handed_over_is_found_or_the_taker_is_woken() {
    explore(|| {
        let eventfd = Arc::new(AtomicU32::new(0));
        let (ringer, mut bell) = doorbell::channel(Box::new(Eventfd(eventfd.clone())));
        let (mut giver, mut taker) = handover::channel::<Box<u32>>(2, ringer);
        let other = thread::spawn(move || {
            giver.hand_over(Box::new(1)).unwrap();
            giver.hand_over(Box::new(2)).unwrap();
            (giver.ring(), giver)
        });
        let park = bell.park(|| !taker.is_empty());
        let (rung, giver) = other.join().unwrap();
        if park == Park::Sleep {
            assert_eq!(rung, Some(Rung::Woke), "lost wake-up: the taker sleeps over what was handed over");
        }
        assert_eq!((taker.take(), taker.take()), (Some(Box::new(1)), Some(Box::new(2))));
        drop(giver);
        assert!(taker.is_finished());
    });
}

#[test]
fn what_a_dead_shard_did_not_take_comes_back_or_is_dropped_once() {
    explore(|| {
        let tally = Arc::new(AtomicU32::new(0));
        let (mut giver, mut taker) = handover::channel::<Token>(1, bell());
        let other = thread::spawn(move || taker.take().is_some());
        let handed = match giver.hand_over(Token(tally.clone())) {
            Ok(()) => giver.ring().is_some(),
            Err(Refused::ShardDead(item)) => {
                drop(item);
                false
            }
            Err(Refused::Full(_)) => panic!("an empty ring is not full"),
        };
        let taken = other.join().unwrap();
        let back = giver.take_back().is_some();
        assert_eq!(
            u32::from(handed),
            u32::from(taken) + u32::from(back),
            "taken or back, if it was handed over"
        );
        drop(giver);
        assert_eq!(tally.load(Ordering::Relaxed), 1, "dropped once");
    });
}
