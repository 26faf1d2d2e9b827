use super::*;
use crate::lend::ring;

#[test]
fn items_are_claimed_in_the_order_they_were_lent() {
    let (mut lender, mut borrower) = ring(3);
    for item in 0..3 {
        assert_eq!(lender.stage(item), Ok(()));
    }
    assert_eq!(lender.stage(3), Err(3));
    assert!(borrower.is_empty(), "staged is not shown");
    lender.publish();
    let mut claimed = Vec::new();
    assert_eq!(borrower.claim(2, |item| claimed.push(item)), 2);
    assert_eq!(lender.outstanding(), 1);
    assert_eq!(borrower.claim(2, |item| claimed.push(item)), 1);
    assert_eq!(borrower.claim(2, |item| claimed.push(item)), 0);
    assert_eq!(claimed, [0, 1, 2]);
    assert_eq!(lender.room(), 3);
}

#[test]
fn all_can_be_taken_back_and_lent_again_though_nobody_claims() {
    let (mut lender, mut borrower) = ring(4);
    for round in 0..10 {
        for item in 0..4 {
            assert_eq!(lender.stage(4 * round + item), Ok(()), "round {round}");
        }
        let mut back = Vec::new();
        assert_eq!(lender.take_back(3, |item| back.push(item)), 3);
        assert_eq!(lender.take_back(3, |item| back.push(item)), 1);
        assert!(back.into_iter().eq(4 * round..4 * round + 4));
    }
    assert_eq!(borrower.claim(1, |_| ()), 0);
}

#[test]
fn slots_taken_back_on_both_sides_of_a_claim_are_used_again() {
    let (mut lender, mut borrower) = ring(4);
    (0..4).for_each(|item| lender.stage(item).unwrap());
    assert_eq!(lender.take_back(1, |item| assert_eq!(item, 0)), 1);
    assert_eq!(borrower.claim(1, |item| assert_eq!(item, 1)), 1);
    assert_eq!(lender.take_back(1, |item| assert_eq!(item, 2)), 1);
    assert_eq!(lender.room(), 3);
    (4..7).for_each(|item| lender.stage(item).unwrap());
    lender.publish();
    let mut claimed = Vec::new();
    borrower.claim(9, |item| claimed.push(item));
    assert_eq!(claimed, [3, 4, 5, 6]);
}

#[test]
fn what_is_left_is_dropped_once() {
    let drops = Drops::default();
    let (mut lender, mut borrower) = ring(4);
    (0..4).for_each(|_| assert!(lender.stage(drops.value()).is_ok()));
    lender.take_back(1, drop);
    borrower.claim(1, drop);
    assert_eq!(drops.get(), 2);
    drop(lender);
    drop(borrower);
    assert_eq!(drops.get(), 4);
}

#[test]
fn a_ring_is_a_bounded_queue_with_two_ways_out() {
    (0..400).for_each(|seed| oracle::lend(seed, 500));
}
