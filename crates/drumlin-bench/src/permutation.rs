//! A permutation of the first n numbers, made of its seed alone.
//!
//! Place: `keys` draws from it where every key is to come once, in random order.
//!
//! 1. [`Permutation::at`] is one to one on `0..n`.
//!
//! Complexity: O(1), four rounds and at most four tries on average. Origin: a Feistel network, walked until it is in range.

/// Rounds of the network.
const ROUNDS: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    /// Bits of one half.
    half: u32,
    seed: u64,
}

impl Permutation {
    /// A permutation of `0..count`.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Permutation { count, half: bits.div_ceil(2).max(1), seed }
    }

    /// Where `number` goes; it must be below the count.
    pub fn at(&self, number: u64) -> u64 {
        debug_assert!(number < self.count);
        let mut at = number;
        loop {
            at = self.once(at);
            if at < self.count {
                return at;
            }
        }
    }

    fn once(&self, number: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..ROUNDS {
            let mixed = super::keys::mix(right ^ (self.seed.wrapping_add(round) << 32)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_and_not_in_order() {
        for count in [1, 2, 3, 10, 1000, 4096, 100_003] {
            let permutation = Permutation::new(count, 7);
            let mut all: Vec<u64> = (0..count).map(|n| permutation.at(n)).collect();
            let rising = all.windows(2).filter(|pair| pair[0] < pair[1]).count() as u64;
            assert!(count < 1000 || (count * 2 / 5..count * 3 / 5).contains(&rising), "{rising} of {count}");
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..count), "{count}");
        }
        let other = Permutation::new(1000, 8);
        assert!((0..1000).any(|n| other.at(n) != Permutation::new(1000, 7).at(n)));
    }
}
