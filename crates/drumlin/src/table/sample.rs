//! A sample of a table's keys: how many of the versions in several tables are overwritten or deleted, without reading any.
//!
//! Place: a writer of keys behind their places takes one, the manifest keeps it, the trie's policy compares those of a pile.
//!
//! Every table samples by the same hash: the keys whose hashes are lowest. So a key that is in the samples of two tables is seen to
//! be in both; and of all keys below the lowest of the samples' highest hashes, every table's versions are known.
//!
//! Error: with n keys below that one, a share of s is off by the root of s (1 - s) / n; n is [`KEYS_MAX`] where the tables are of
//! like size and hold other keys.
//! Concurrency: a value. Tests: below. Origin: the k minimum values of Bar-Yossef et al.; LSM-trie §2.4.3 samples the garbage of its
//! last level by reading.

use std::collections::BinaryHeap;

/// Keys of a sample, at most: the deletes among them are told by as many bits.
const KEYS_MAX: usize = 64;

/// The keys of a table whose hashes are lowest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sample {
    /// Ascending.
    hashes: Box<[u32]>,
    /// A bit each: the newest version of the key is a delete.
    deletes: u64,
}

impl Sample {
    /// As numbers, to be stored: the deletes, then the hashes, each as its distance from the one before.
    pub fn numbers(&self) -> Vec<u64> {
        let mut before = 0;
        let distances =
            self.hashes.iter().map(|hash| u64::from(hash - std::mem::replace(&mut before, *hash)));
        [self.deletes].into_iter().chain(distances).collect()
    }

    /// What was stored; `None` if it cannot have been.
    pub fn from_numbers(numbers: &[u64]) -> Option<Sample> {
        let (deletes, distances) = numbers.split_first()?;
        let mut hash = 0u32;
        let mut next = |distance: &u64| {
            hash = hash.checked_add(u32::try_from(*distance).ok()?)?;
            Some(hash)
        };
        let hashes: Option<Box<[u32]>> = distances.iter().map(&mut next).collect();
        let hashes = hashes.filter(|hashes| hashes.len() <= KEYS_MAX)?;
        Some(Sample { hashes, deletes: *deletes })
    }

    /// A sample of keys by their hashes, each with whether its newest version is a delete.
    #[cfg(test)]
    pub fn of(keys: impl Iterator<Item = (u64, bool)>) -> Sample {
        let mut sampler = Sampler::default();
        keys.for_each(|(hash, is_delete)| sampler.add(hash, is_delete));
        sampler.finish()
    }

    /// One as a table would have that holds about so many of so many keys, each with the same chance; `random` gives numbers from 0 to
    /// 1. Of tables with the same keys, those whose samples have a hash in common have the key.
    pub fn drawn(keys: f64, entries: f64, mut random: impl FnMut() -> f64) -> Sample {
        let absent = (1.0 - entries / keys).clamp(0.0, 1.0);
        let mut key = -1.0;
        let mut next = || {
            // So many are not there before the next that is.
            let passed = if absent > 0.0 { (random().ln() / absent.ln()).floor() } else { 0.0 };
            key += 1.0 + passed;
            (key < keys).then(|| (key / keys * (1u64 << 32) as f64) as u32)
        };
        Sample { hashes: std::iter::from_fn(&mut next).take(KEYS_MAX).collect(), deletes: 0 }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Up to here all keys of the table are in the sample.
    fn is_whole_to(&self) -> u32 {
        if self.hashes.len() < KEYS_MAX { u32::MAX } else { self.hashes.last().copied().unwrap_or(u32::MAX) }
    }

    /// The share of the keys of tables that lie over one another, the newer first, that is of no use where nothing lies below them:
    /// an older version, or a delete. `None` if a table has no sample.
    pub fn garbage(samples: &[&Sample]) -> Option<f64> {
        let to = samples.iter().map(|sample| sample.is_whole_to()).min()?;
        if samples.iter().any(|sample| sample.is_empty()) {
            return None;
        }
        // Of each hash the newest first.
        let keys = |(age, sample): (usize, &&Sample)| -> Vec<(u32, usize, bool)> {
            let within = sample.hashes.iter().enumerate().take_while(|(_, hash)| **hash <= to);
            within.map(|(n, hash)| (*hash, age, sample.deletes >> n & 1 != 0)).collect()
        };
        let mut seen: Vec<(u32, usize, bool)> = samples.iter().enumerate().flat_map(keys).collect();
        seen.sort_unstable();
        let newest = seen.chunk_by(|a, b| a.0 == b.0).map(|versions| versions[0]);
        let live = newest.filter(|(_, _, is_delete)| !is_delete).count();
        (!seen.is_empty()).then(|| 1.0 - live as f64 / seen.len() as f64)
    }
}

/// Takes a sample while a table is written.
#[derive(Default)]
pub(super) struct Sampler {
    /// The highest first; with the bit of a delete.
    lowest: BinaryHeap<(u32, bool)>,
}

impl Sampler {
    /// A key came, with its newest version.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, is_delete: bool) {
        let hash = (hash >> 32) as u32;
        if self.lowest.len() < KEYS_MAX {
            self.lowest.push((hash, is_delete));
        } else if let Some(mut highest) = self.lowest.peek_mut()
            && hash < highest.0
        {
            *highest = (hash, is_delete);
        }
    }

    pub(super) fn finish(self) -> Sample {
        let sorted = self.lowest.into_sorted_vec();
        let bit = |(n, (_, is_delete)): (usize, &(u32, bool))| u64::from(*is_delete) << n;
        let deletes = sorted.iter().enumerate().map(bit).sum();
        Sample { hashes: sorted.into_iter().map(|(hash, _)| hash).collect(), deletes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::key::KeyHasher;

    fn sample(keys: impl Iterator<Item = u64>, is_delete: impl Fn(u64) -> bool) -> Sample {
        let hasher = KeyHasher::new(3);
        let mut sampler = Sampler::default();
        keys.for_each(|key| sampler.add(hasher.hash(&key.to_be_bytes()), is_delete(key)));
        sampler.finish()
    }

    #[test]
    fn samples_come_back() {
        for keys in [0, 1, 63, 64, 1000] {
            let sample = sample(0..keys, |key| key % 3 == 0);
            assert_eq!(Sample::from_numbers(&sample.numbers()), Some(sample.clone()), "{keys} keys");
            assert_eq!(sample.hashes.len(), keys.min(64) as usize);
        }
        assert_eq!(Sample::from_numbers(&[]), None);
        assert_eq!(Sample::from_numbers(&[0, 1 << 32]), None);
        assert_eq!(Sample::from_numbers(&[0, u64::from(u32::MAX), 1]), None);
        assert_eq!(Sample::from_numbers(&[1; 66]), None);
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let puts = sample(0..20, |_| false);
        let mixed = sample(10..30, |key| key < 15);
        let share = Sample::garbage;
        assert_eq!(share(&[&puts]), Some(0.0));
        // Of 40 versions 15 puts and 5 deletes of the newer, 10 of the older are live: 25 are.
        assert_eq!(share(&[&mixed, &puts]), Some(1.0 - 25.0 / 40.0));
        // The other way round the deletes are garbage, too, and all older ones of 10 to 19.
        assert_eq!(share(&[&puts, &mixed]), Some(1.0 - 30.0 / 40.0));
        assert_eq!(share(&[&puts, &Sample::default()]), None);
        assert_eq!(share(&[]), None);
    }

    #[test]
    fn drawn_samples_have_as_much_in_common_as_their_tables_would() {
        let mut dice = Dice(7);
        let mut random = || (dice.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
        for part in [0.001, 0.1, 0.5, 1.0] {
            // Two tables, each with this part of all keys: in the mean the same part of one's are in the other, too.
            let mut garbage = 0.0;
            for _ in 0..200 {
                let [a, b] = [(); 2].map(|()| Sample::drawn(1e6, part * 1e6, &mut random));
                garbage += Sample::garbage(&[&a, &b]).expect("samples") / 200.0;
            }
            assert!((garbage - part / 2.0).abs() < 0.02, "{part}: {garbage}");
        }
        assert_eq!(Sample::drawn(3.0, 3.0, random).numbers().len(), 4);
    }

    #[test]
    fn of_many_keys_the_share_is_about_right() {
        let mut dice = Dice(5);
        for part in [0, 10, 50, 90, 100] {
            let mut off = 0.0;
            for round in 0..20 {
                let base = round << 32;
                let old = sample(base..base + 10_000, |_| false);
                // `part` percent of the newer's keys are those of the older one.
                let newer =
                    (0..10_000).map(|n| if dice.below(100) < part { base + n } else { base + 20_000 + n });
                let share = Sample::garbage(&[&sample(newer, |_| false), &old]).expect("samples");
                off += share - part as f64 / 200.0;
            }
            assert!((off / 20.0).abs() < 0.05, "{part} %: off by {}", off / 20.0);
        }
    }
}
