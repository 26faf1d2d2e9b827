use super::*;
use crate::lend;

#[test]
fn items_arrive_whole_in_order_through_a_ring_that_wraps() {
    explore(|| {
        let (mut lender, mut borrower) = lend::ring::<Box<u32>>(2);
        let shard = thread::spawn(move || {
            let mut next = 0;
            while next < 3 {
                match lender.stage(Box::new(next)) {
                    Ok(()) => next += 1,
                    Err(_) => thread::yield_now(),
                }
                lender.publish();
            }
        });
        let mut expected = 0;
        while expected < 3 {
            let claimed = borrower.claim(2, |item| {
                assert_eq!(*item, expected);
                expected += 1;
            });
            if claimed == 0 {
                thread::yield_now();
            }
        }
        shard.join().unwrap();
    });
}

/// The shard takes back while the app claims, and uses the slots again at once.
#[test]
fn an_item_is_claimed_or_taken_back_never_both() {
    explore(|| {
        let (mut lender, mut borrower) = lend::ring::<Box<u32>>(2);
        for item in 0..2 {
            lender.stage(Box::new(item)).unwrap();
        }
        lender.publish();
        let app = thread::spawn(move || {
            let mut claimed = Vec::new();
            for _ in 0..2 {
                borrower.claim(1, |item| claimed.push(*item));
            }
            (claimed, borrower)
        });
        let mut taken = Vec::new();
        lender.take_back(1, |item| taken.push(*item));
        let mut lent = 2;
        while lent < 4 && lender.stage(Box::new(lent)).is_ok() {
            lent += 1;
        }
        lender.publish();
        let (claimed, mut borrower) = app.join().unwrap();
        assert!(claimed.is_sorted() && taken.is_sorted());
        let mut all = [claimed, taken].concat();
        borrower.claim(9, |item| all.push(*item));
        all.sort_unstable();
        assert!(all.into_iter().eq(0..lent), "each item has one owner");
    });
}

#[test]
fn all_that_a_vanished_borrower_left_comes_back() {
    explore(|| {
        let tally = Arc::new(AtomicU32::new(0));
        let (mut lender, mut borrower) = lend::ring::<Token>(2);
        for _ in 0..2 {
            lender.stage(Token(tally.clone())).ok().unwrap();
        }
        lender.publish();
        let app = thread::spawn(move || borrower.claim(1, drop));
        let before = lender.take_back(9, drop);
        let claimed = app.join().unwrap();
        let after = lender.take_back(9, drop);
        assert_eq!(before + claimed + after, 2);
        assert_eq!(tally.load(Ordering::Relaxed), 2, "each item is dropped once");
        assert_eq!((lender.room(), lender.outstanding()), (2, 0), "every slot is free again");
    });
}

#[test]
fn what_nobody_took_is_dropped_with_the_ring() {
    explore(|| {
        let tally = Arc::new(AtomicU32::new(0));
        let (mut lender, mut borrower) = lend::ring::<Token>(2);
        for _ in 0..2 {
            lender.stage(Token(tally.clone())).ok().unwrap();
        }
        let shard = thread::spawn(move || drop(lender));
        borrower.claim(1, drop);
        drop(borrower);
        shard.join().unwrap();
        assert_eq!(tally.load(Ordering::Relaxed), 2);
    });
}
