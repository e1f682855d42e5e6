//! One seed per test, printed, so that a failed run can be repeated.

use std::{
    collections::hash_map::RandomState,
    env,
    hash::{BuildHasher, Hasher},
};

/// The seed of this run: `GRISTMILL_SEED` (decimal, or hexadecimal after `0x`) if set, else a fresh one. Prints it.
///
/// # Panics
/// When `GRISTMILL_SEED` is set to something that is not such a number: a run that silently took another seed would
/// not be the repetition that was asked for.
#[track_caller]
pub fn seed() -> u64 {
    let seed = match env::var("GRISTMILL_SEED") {
        Ok(text) => match parse(&text) {
            Some(seed) => seed,
            None => panic!("GRISTMILL_SEED: expected a number up to 2^64 - 1, decimal or 0x…, got {text:?}"),
        },
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    eprintln!("seed: repeat this run with GRISTMILL_SEED={seed:#x}");
    seed
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// SplitMix64: small, and the same sequence for a seed on every machine and in every version. Not for secrets.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of u64.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound` (0 for a bound of 0). Its bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items, none of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// An independent generator, for a thread or an actor of its own.
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[rng.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
    }

    #[test]
    fn shuffle_keeps_the_items() {
        let mut items: Vec<u32> = (0..50).collect();
        SplitMix64::new(9).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn reads_both_notations() {
        assert_eq!(parse("255"), Some(255));
        assert_eq!(parse("0xff"), Some(255));
        assert_eq!(parse("ff"), None);
        assert_eq!(parse(""), None);
    }
}
