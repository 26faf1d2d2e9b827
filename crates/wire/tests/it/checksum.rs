//! Sums against naive arithmetic.

use proptest::collection::vec;
use proptest::prelude::*;
use xsend_wire::checksum::{Sum, copy_and_sum, update16};

use crate::common::naive_fold;

/// Bytes without a pattern that a misplaced lane could hide in.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn rfc_1071_example() {
    // RFC 1071 section 3.
    let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.fold(), 0xddf2);
    assert_eq!(sum.finish(), !0xddf2);
    assert!(!sum.verifies());
}

#[test]
fn rfc_1624_example() {
    // RFC 1624 section 4: the case that RFC 1141 got wrong.
    assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn no_bytes_and_zero_bytes() {
    assert_eq!(Sum::ZERO.finish(), 0xffff);
    assert_eq!(Sum::of(&[]).finish(), 0xffff);
    assert_eq!(Sum::of(&[0; 100]).finish(), 0xffff);
    assert_eq!(Sum::of(&[0xff; 2]).finish(), 0x0000);
}

#[test]
fn saturated_sums_do_not_lose_a_carry() {
    for len in [1, 2, 3, 63, 64, 65, 4096, 4097, 1 << 20, (1 << 20) + 1] {
        let bytes = vec![0xff; len];
        assert_eq!(Sum::of(&bytes).fold(), naive_fold(&bytes), "{len} bytes");
    }
    let all = Sum::from_raw(u32::MAX);
    assert_eq!(all.add(all).fold(), 0xffff);
    assert_eq!(all.add_at_odd(all).add(Sum::from_raw(1)).fold(), u16::from_be(1));
}

#[test]
fn copy_and_sum_equals_naive_at_every_length_and_alignment() {
    let noise = noise(4096 + 64);
    let mut to = vec![0u8; 4096 + 64];
    for len in 0..=4096 {
        for from_at in 0..16 {
            // Every difference of alignments comes up for each length.
            let to_at = (from_at * 7 + len) % 16;
            let from = &noise[from_at..from_at + len];
            to.fill(0x55);
            let sum = copy_and_sum(&mut to[to_at..to_at + len], from);
            assert_eq!(sum.fold(), naive_fold(from), "{len} bytes from {from_at} to {to_at}");
            assert_eq!(&to[to_at..to_at + len], from);
            assert!(to[..to_at].iter().chain(&to[to_at + len..]).all(|&byte| byte == 0x55));
        }
    }
}

#[test]
fn copy_and_sum_equals_naive_across_its_pieces() {
    let noise = noise(3 * 4096 + 100);
    let mut to = noise.clone();
    for len in (4090..4110).chain(8180..8200).chain([3 * 4096 - 1, 3 * 4096, 3 * 4096 + 99]) {
        to.fill(0);
        let sum = copy_and_sum(&mut to[..len], &noise[..len]);
        assert_eq!(sum.fold(), naive_fold(&noise[..len]), "{len} bytes");
        assert_eq!(to[..len], noise[..len]);
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn copy_and_sum_refuses_different_lengths() {
    let _ = copy_and_sum(&mut [0; 3], &[0; 4]);
}

proptest! {
    #[test]
    fn parts_add_up_wherever_they_are_cut(bytes in vec(any::<u8>(), 0..400), cuts in vec(0usize..400, 0..12)) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut sum = Sum::ZERO;
        for pair in cuts.windows(2) {
            sum = sum.add_at(pair[0], Sum::of(&bytes[pair[0]..pair[1]]));
        }
        prop_assert_eq!(sum.fold(), naive_fold(&bytes));
        prop_assert_eq!(sum, Sum::of(&bytes));
    }

    #[test]
    fn one_odd_part(head in vec(any::<u8>(), 0..100), tail in vec(any::<u8>(), 0..100)) {
        let whole = [head.as_slice(), &tail].concat();
        let (head_sum, tail_sum) = (Sum::of(&head), Sum::of(&tail));
        let sum = if head.len() % 2 == 0 { head_sum.add(tail_sum) } else { head_sum.add_at_odd(tail_sum) };
        prop_assert_eq!(sum.finish(), !naive_fold(&whole));
    }

    #[test]
    fn every_raw_value_is_a_sum(a in any::<u32>(), b in any::<u32>()) {
        prop_assert_eq!(Sum::from_raw(a).to_raw(), a);
        let bytes = [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        prop_assert_eq!(Sum::from_raw(a).add(Sum::from_raw(b)).fold(), naive_fold(&bytes));
        let shifted = [&a.to_ne_bytes()[..], &[0], &b.to_ne_bytes()].concat();
        prop_assert_eq!(Sum::from_raw(a).add_at_odd(Sum::from_raw(b)).fold(), naive_fold(&shifted));
    }

    #[test]
    fn fields_count_like_their_bytes(a in any::<u16>(), b in any::<u32>()) {
        let bytes = [&a.to_be_bytes()[..], &b.to_be_bytes()].concat();
        prop_assert_eq!(Sum::ZERO.add_u16(a).add_u32(b).fold(), naive_fold(&bytes));
    }

    #[test]
    fn a_message_with_its_checksum_verifies(mut bytes in vec(any::<u8>(), 2..200)) {
        bytes[..2].fill(0);
        let check = Sum::of(&bytes).finish();
        bytes[..2].copy_from_slice(&check.to_be_bytes());
        prop_assert!(Sum::of(&bytes).verifies());
        // Any single changed byte shows: the weakest promise a checksum makes.
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            prop_assert!(!Sum::of(&bytes).verifies());
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn update_equals_recomputation(
        mut bytes in vec(any::<u8>(), 2..100),
        at in 0usize..49,
        new in prop_oneof![any::<u16>(), Just(0), Just(0xffff)],
        old in prop_oneof![any::<u16>(), Just(0), Just(0xffff)],
    ) {
        let at = 2 * at.min(bytes.len() / 2 - 1);
        bytes[at..at + 2].copy_from_slice(&old.to_be_bytes());
        let check = Sum::of(&bytes).finish();
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let updated = update16(check, old, new);
        if bytes.iter().any(|&byte| byte != 0) {
            prop_assert_eq!(updated, Sum::of(&bytes).finish());
        } else {
            // The one message whose sum is a true zero: both forms of its checksum verify.
            prop_assert!(updated == 0 || updated == 0xffff);
        }
    }
}
