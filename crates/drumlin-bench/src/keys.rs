//! Keys: how a number becomes one, and which number comes next.
//!
//! Place: `drive` draws from a [`Chooser`] per thread; `workload` says which.
//!
//! 1. Keys sort like their numbers, so that a sequence is in key order and a random number is a random place.
//! 2. The same seed, thread, workload and pass give the same keys, whatever the engine; of the same seed all agree which key is the n-th
//!    of a permutation.
//!
//! Origin: db_bench (big-endian number, filled up with '0'); YCSB (zipfian 0.99, scrambled; latest); cLSM §5 (90 % of the
//! reads in 10 % of the blocks); mixgraph's power law (Cao et al., FAST 2020).

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use crate::permutation::Permutation;

/// Writes the key of `number` over `key`.
pub fn write_key(key: &mut [u8], number: u64) {
    let digits = number.to_be_bytes();
    let length = key.len();
    if length >= 8 {
        key[..8].copy_from_slice(&digits);
        key[8..].fill(b'0');
    } else {
        key.copy_from_slice(&digits[8 - length..]);
    }
}

/// The key of `number`.
pub fn key(number: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    write_key(&mut key, number);
    key
}

/// A number spread over 64 bits; one to one.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How the next key is chosen among the keys there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// In order; each thread has its own part.
    Sequence,
    /// Every one once, in random order; each thread has its own part.
    Permuted,
    /// Any, all alike.
    Uniform,
    /// Zipfian with this exponent, the popular ones spread over the key space.
    Zipfian(f64),
    /// Zipfian, the newest the most popular.
    Latest(f64),
    /// A share of the operations goes to a share of the blocks of this many keys.
    HotBlocks {
        /// Share of the operations.
        operations: f64,
        /// Share of the blocks.
        blocks: f64,
    },
    /// A share of the operations goes to a share of the keys, spread over the key space.
    HotKeys {
        /// Share of the operations.
        operations: f64,
        /// Share of the keys.
        keys: f64,
    },
    /// mixgraph's power law.
    Power,
    /// Of the operations half go to 1.5 % of the keys, 75 % to 10 %, and 2.5 % to a tenth of the keys, of which each is seen
    /// once, until all were. (cLSM §5.2: logs of production.)
    HeavyTail,
}

/// Chooses numbers below a bound that may grow.
pub struct Chooser {
    choice: Choice,
    random: SmallRng,
    zipf: Option<Zipf<f64>>,
    permutation: Permutation,
    next: u64,
    block_keys: u64,
}

/// The parameters of mixgraph's key distribution.
const POWER_A: f64 = 0.002312;
const POWER_B: f64 = 0.3467;

impl Chooser {
    /// A chooser over `0..keys` for one thread of a run with this seed; `first` is where its part of a sequence begins,
    /// `block_keys` how many keys lie in a block. What is drawn at random depends on the workload and the pass, too: gets that drew the
    /// keys of the puts before them, in their order, would find the newest in memory, and those that drew the keys of gets what these
    /// had read.
    pub fn new(
        choice: Choice,
        keys: u64,
        first: u64,
        block_keys: u64,
        seed: u64,
        (workload, pass): (&str, u64),
        thread: u64,
    ) -> Chooser {
        let drawn = workload.bytes().fold(mix(seed) ^ pass, |hash, byte| mix(hash ^ u64::from(byte)));
        let zipf = match choice {
            Choice::Zipfian(exponent) | Choice::Latest(exponent) => {
                Some(Zipf::new(keys.max(1) as f64, exponent).expect("a positive count and exponent"))
            }
            _ => None,
        };
        Chooser {
            choice,
            random: SmallRng::seed_from_u64(mix(drawn).wrapping_add(thread)),
            zipf,
            permutation: Permutation::new(keys.max(1), seed),
            // Of the tenth whose keys are seen once each thread has its own part, too.
            next: if choice == Choice::HeavyTail { first / 10 } else { first },
            block_keys: block_keys.max(1),
        }
    }

    /// The next number below `keys`.
    #[inline]
    pub fn next(&mut self, keys: u64) -> u64 {
        let keys = keys.max(1);
        match self.choice {
            Choice::Sequence => self.step() % keys,
            Choice::Permuted => {
                let at = self.step() % keys;
                self.permutation.at(at)
            }
            Choice::Uniform => self.random.random_range(0..keys),
            Choice::Zipfian(_) => mix(self.rank()) % keys,
            Choice::Latest(_) => keys - 1 - self.rank().min(keys - 1),
            Choice::HotBlocks { operations, blocks } => {
                let total = (keys / self.block_keys).max(1);
                let stride = (1.0 / blocks).max(1.0) as u64;
                let hot = self.random.random_bool(operations);
                let block = if hot {
                    self.random.random_range(0..total.div_ceil(stride)) * stride
                } else {
                    self.random.random_range(0..total)
                };
                (block * self.block_keys + self.random.random_range(0..self.block_keys)).min(keys - 1)
            }
            Choice::HotKeys { operations, keys: share } => {
                let hot = ((keys as f64 * share) as u64).clamp(1, keys);
                if self.random.random_bool(operations) {
                    mix(self.random.random_range(0..hot)) % keys
                } else {
                    self.random.random_range(0..keys)
                }
            }
            Choice::HeavyTail => {
                let part = |share: f64| ((keys as f64 * share) as u64).clamp(1, keys);
                let draw: f64 = self.random.random();
                let rank = match draw {
                    draw if draw < 0.5 => self.random.random_range(0..part(0.015)),
                    draw if draw < 0.75 => self.random.random_range(0..part(0.1)),
                    draw if draw < 0.975 => self.random.random_range(0..part(0.9)),
                    _ => keys - 1 - self.step() % part(0.1),
                };
                self.permutation.at(rank)
            }
            Choice::Power => {
                let u: f64 = self.random.random();
                mix((u / POWER_A).powf(1.0 / POWER_B).ceil() as u64) % keys
            }
        }
    }

    fn step(&mut self) -> u64 {
        let at = self.next;
        self.next += 1;
        at
    }

    fn rank(&mut self) -> u64 {
        self.zipf.as_ref().map_or(0, |zipf| zipf.sample(&mut self.random) as u64 - 1)
    }

    /// The thread's own random numbers, for whatever else is drawn.
    pub fn random(&mut self) -> &mut impl Rng {
        &mut self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn draw(choice: Choice, keys: u64, count: u64) -> HashMap<u64, u64> {
        of_stream(choice, keys, count, ("a", 0))
    }

    fn of_stream(choice: Choice, keys: u64, count: u64, stream: (&str, u64)) -> HashMap<u64, u64> {
        let mut chooser = Chooser::new(choice, keys, 0, 10, 7, stream, 0);
        let mut seen = HashMap::new();
        for _ in 0..count {
            let n = chooser.next(keys);
            assert!(n < keys);
            *seen.entry(n).or_default() += 1;
        }
        seen
    }

    /// The share of draws that the most popular `share` of `keys` got.
    fn popular(seen: &HashMap<u64, u64>, keys: u64, share: f64) -> f64 {
        let mut counts: Vec<u64> = seen.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = counts.iter().take((keys as f64 * share) as usize).sum();
        top as f64 / counts.iter().sum::<u64>() as f64
    }

    #[test]
    fn keys_sort_like_their_numbers() {
        let numbers = [0, 1, 255, 256, 65_535, 1 << 40, u64::MAX];
        for pair in numbers.windows(2) {
            assert!(key(pair[0], 16) < key(pair[1], 16));
            assert!(key(pair[0], 8) < key(pair[1], 8));
        }
        assert_eq!(key(258, 4), [0, 0, 1, 2]);
        assert_eq!(key(1, 10), [0, 0, 0, 0, 0, 0, 0, 1, b'0', b'0']);
    }

    #[test]
    fn a_sequence_meets_every_key_once() {
        for choice in [Choice::Sequence, Choice::Permuted] {
            let seen = draw(choice, 1000, 1000);
            assert!(seen.len() == 1000 && seen.values().all(|n| *n == 1));
        }
    }

    #[test]
    fn uniform_favours_nobody() {
        assert!(popular(&draw(Choice::Uniform, 1000, 100_000), 1000, 0.1) < 0.15);
    }

    #[test]
    fn zipfian_is_as_skewed_as_ycsb_says() {
        // With 1000 keys and 0.99 the first tenth gets about two thirds.
        let share = popular(&draw(Choice::Zipfian(0.99), 1000, 100_000), 1000, 0.1);
        assert!((0.6..0.85).contains(&share), "{share}");
        let latest = draw(Choice::Latest(0.99), 1000, 100_000);
        assert!(latest[&999] > latest[&998] && latest[&998] > latest.get(&100).copied().unwrap_or(0));
    }

    #[test]
    fn hot_shares_are_what_they_say() {
        let hot = draw(Choice::HotKeys { operations: 0.98, keys: 0.02 }, 10_000, 200_000);
        let share = popular(&hot, 10_000, 0.02);
        assert!((0.97..0.995).contains(&share), "{share}");
        let blocks = draw(Choice::HotBlocks { operations: 0.9, blocks: 0.1 }, 10_000, 200_000);
        let in_hot: u64 = blocks.iter().filter(|(n, _)| (*n / 10) % 10 == 0).map(|(_, count)| count).sum();
        assert!((180_000..184_500).contains(&in_hot), "{in_hot}");
    }

    #[test]
    fn the_heavy_tail_is_as_heavy_as_the_logs() {
        let seen = draw(Choice::HeavyTail, 100_000, 200_000);
        let few = popular(&seen, 100_000, 0.015);
        let tenth = popular(&seen, 100_000, 0.1);
        assert!((0.5..0.56).contains(&few) && (0.75..0.85).contains(&tenth), "{few} {tenth}");
        let once = seen.values().filter(|count| **count == 1).count();
        assert!(once * 10 > seen.len(), "{once} of {}", seen.len());
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_workload_others() {
        for choice in [Choice::Uniform, Choice::Zipfian(0.99), Choice::Power] {
            assert_eq!(draw(choice, 500, 1000), draw(choice, 500, 1000));
            assert_ne!(draw(choice, 500, 1000), of_stream(choice, 500, 1000, ("b", 0)));
            assert_ne!(draw(choice, 500, 1000), of_stream(choice, 500, 1000, ("a", 1)));
        }
    }
}
