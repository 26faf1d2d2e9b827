//! The simulator's source of chance: xoshiro256++, seeded through SplitMix64.
//!
//! Everything random in a run is drawn from one seed through [`Rng::fork`], so that each part has a
//! stream of its own: more draws in one part do not shift the fate of frames in another.

use core::time::Duration;

/// A small, fast, seeded generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose whole future follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = core::array::from_fn(|_| split_mix(&mut counter));
        Self { state }
    }

    /// An independent generator for the part of the simulation named by `part`.
    pub fn fork(&self, part: u64) -> Self {
        let mut counter = part;
        Self::new(self.state[0] ^ self.state[2].rotate_left(23) ^ split_mix(&mut counter))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`; 0 when `bound` is 0. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True with the given probability. Draws whatever the probability is, so that changing one
    /// probability leaves the other decisions of a run as they were.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are all that an f64 holds: the comparison is exact and the same on every machine.
        ((self.next_u64() >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < probability
    }

    /// A fraction in `low..high`.
    pub fn fraction(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.next_u64() >> 11) as f64) * (1.0 / (1u64 << 53) as f64)
    }

    /// A duration in `0..=limit`.
    pub fn up_to(&mut self, limit: Duration) -> Duration {
        Duration::from_nanos(self.between(0, limit.as_nanos() as u64))
    }

    /// One of `choices`.
    pub fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        const { assert!(N > 0, "nothing to pick from") };
        choices[self.below(N as u64) as usize]
    }
}

/// SplitMix64: spreads any seed, 0 included, over the whole state.
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *counter;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published reference for the state 1, 2, 3, 4.
    #[test]
    fn follows_the_reference() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: [u64; 4] = core::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn same_seed_same_numbers_and_forks_differ() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        let (mut c, mut d) = (a.fork(1), a.fork(2));
        assert!((0..100).any(|_| c.next_u64() != d.next_u64()));
    }

    #[test]
    fn stays_in_range_and_hits_the_odds() {
        let mut rng = Rng::new(3);
        assert!((0..10_000).all(|_| (5..=9).contains(&rng.between(5, 9))));
        assert_eq!(rng.below(0), 0);
        let hits = (0..100_000).filter(|_| rng.chance(0.1)).count();
        assert!((9_000..11_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !rng.chance(0.0)) && (0..1000).all(|_| rng.chance(1.0)));
    }
}
