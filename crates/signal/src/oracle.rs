//! Random operations on a queue, beside a `VecDeque` that says what they should have done. The same for the
//! same seed, on the machine's atomics and on loom's.

use std::collections::VecDeque;

use crate::doorbell::Ringer;
use crate::{desk, lend, spsc};

/// A xorshift generator: the same operations for the same seed, everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// `steps` operations on an [`spsc`] ring of up to nine items, across the wrap of its indices.
pub(crate) fn spsc(seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let capacity = 1 + random.below(9) as usize;
    let start = usize::MAX - random.below(steps / 10 + 3) as usize;
    let (mut producer, mut consumer) = spsc::ring_from(capacity, start);
    let (mut shown, mut staged) = (VecDeque::new(), Vec::new());
    for item in 0..steps {
        let room = capacity - shown.len() - staged.len();
        let expected = if room > 0 { Ok(()) } else { Err(item) };
        match random.below(8) {
            0 | 1 => {
                assert_eq!(producer.push(item), expected);
                if room > 0 {
                    shown.extend(staged.drain(..));
                    shown.push_back(item);
                }
            }
            2 => {
                assert_eq!(producer.stage(item), expected);
                staged.extend((room > 0).then_some(item));
            }
            3 => {
                producer.publish();
                shown.extend(staged.drain(..));
            }
            4 => {
                let count = random.below(6) as usize;
                assert_eq!(producer.push_batch((0..count).map(|n| n as u64)), count.min(room));
                shown.extend(staged.drain(..));
                shown.extend((0..count.min(room)).map(|n| n as u64));
            }
            5 => {
                let most = random.below(6) as usize;
                let mut taken = Vec::new();
                consumer.pop_batch(most, |item| taken.push(item));
                assert_eq!(taken, shown.drain(..most.min(shown.len())).collect::<Vec<_>>());
            }
            6 => assert_eq!((consumer.len(), producer.room()), (shown.len(), room)),
            _ => assert_eq!(consumer.pop(), shown.pop_front()),
        }
        assert_eq!(producer.staged(), staged.len());
    }
}

/// `steps` operations on a [`lend`] ring of up to nine items.
pub(crate) fn lend(seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    let capacity = 1 + random.below(9) as usize;
    let (mut lender, mut borrower) = lend::ring(capacity);
    let (mut shown, mut staged) = (VecDeque::new(), Vec::new());
    for item in 0..steps {
        let room = capacity - shown.len() - staged.len();
        let most = random.below(6) as usize;
        match random.below(7) {
            0..=2 => {
                assert_eq!(lender.stage(item), if room > 0 { Ok(()) } else { Err(item) });
                staged.extend((room > 0).then_some(item));
            }
            3 => {
                lender.publish();
                shown.extend(staged.drain(..));
            }
            4 => {
                shown.extend(staged.drain(..));
                let mut back = Vec::new();
                lender.take_back(most, |item| back.push(item));
                assert_eq!(back, shown.drain(..most.min(shown.len())).collect::<Vec<_>>());
            }
            5 => assert_eq!((lender.room(), borrower.is_empty()), (room, shown.is_empty())),
            _ => {
                let mut claimed = Vec::new();
                borrower.claim(most, |item| claimed.push(item));
                assert_eq!(claimed, shown.drain(..most.min(shown.len())).collect::<Vec<_>>());
            }
        }
        assert_eq!(lender.outstanding(), shown.len() + staged.len());
    }
}

/// `steps` operations on a [`desk`] of up to nine commands.
pub(crate) fn desk(seed: u64, steps: u64, bell: Ringer) {
    let mut random = Random::new(seed);
    let capacity = 1 + random.below(9) as usize;
    let (caller, mut desk) = desk::channel(capacity, bell);
    let mut waiting = VecDeque::new();
    for command in 0..steps {
        if random.below(2) == 0 {
            let full = waiting.len() == capacity;
            assert_eq!(caller.call(command), if full { Err(desk::Refused::Full(command)) } else { Ok(()) });
            waiting.extend((!full).then_some(command));
        } else {
            assert_eq!(desk.take(), waiting.pop_front());
        }
        assert_eq!(desk.is_empty(), waiting.is_empty());
    }
}
