//! A Bloom filter over the keys of a memtable, which grows with it: most gets of keys that it does not hold end here.
//!
//! Place: `memtable` adds a key before its version comes into the list; `db::lookup` asks before it searches.
//!
//! Nobody knows beforehand how many keys a memtable gets, and one of a quiet keyspace is to cost little. So there are up to
//! [`ARRAYS`] of them, each [`GROWTH`] times as large as the one before: a key is added to the last, and sought in all.
//! All bits of a key lie in one word, so that a key is one atomic operation and an array one cache line.
//!
//! Invariants:
//! 1. A key whose version is in the list is known, from before it was.
//! 2. A bit that is set stays set, and an array that is there stays there and keeps its place.
//! 3. An array that is added takes at most half of what memory has left: where that is short, more keys share what is there.
//!
//! Concurrency: bits are set and read Relaxed. Whoever sees a version in the list, or knows of it, does so by its link (Release),
//! before which the same thread set the bits, or saw them set: so it sees them too. Who does not see them might as well have come
//! before the write. Arrays are published before any bit is set in them; while a thread makes one, the others add to the last
//! there is. `added` is a hint.
//!
//! Complexity: O(log keys), but only the last array is in no cache: a miss, mostly. 2 to 17 bytes a key, 4 at most if it
//! was known how many there are.
//! Origin: sLSM §2.3 (a Bloom filter for each run in memory); Putze et al., *Cache-, Hash- and Space-Efficient Bloom Filters*;
//! arrays that follow one another are as in Almeida et al., *Scalable Bloom Filters*.
//! Tests: below, `memtable_tests`, `loom_tests`.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, prefetch};

use super::arrays::Arrays;
use super::pool::{Pool, Words};

/// Words of the first array.
const FIRST: usize = if cfg!(loom) { 1 } else { 64 };
/// Arrays, at most: the last holds 537 million keys.
const ARRAYS: usize = if cfg!(loom) { 1 } else { 8 };
/// So many times as large as the one before is an array.
const GROWTH: usize = 8;
/// Keys for each word of an array until there is a next one: about one of 200 others passes for known.
const KEYS_PER_WORD: u64 = 4;
/// Bits of a word that are set for a key.
const PROBES: u32 = 5;
/// Keys ahead whose words are loaded already, where many are added.
const AHEAD: usize = 16;
/// One key of so many is counted.
const COUNTED_OF: u64 = 16;

struct Array {
    words: Words,
}

impl Array {
    fn new(words: usize, pool: &Arc<Pool>) -> Array {
        Array { words: Words::new(words, pool) }
    }

    #[inline]
    fn word(&self, hash: u64) -> &AtomicU64 {
        // The low bits; `mask` takes the high ones.
        &self.words[hash as usize & (self.words.len() - 1)]
    }
}

/// See the module.
pub(super) struct KeyFilter {
    arrays: Arrays<Array, ARRAYS>,
    /// Keys that were counted.
    added: CachePadded<AtomicU64>,
    pool: Arc<Pool>,
}

/// The bits of a key.
#[inline]
fn mask(hash: u64) -> u64 {
    (0..PROBES).fold(0, |mask, probe| mask | 1 << (hash >> (64 - 6 * (probe + 1)) & 63))
}

/// By bits that choose neither the word nor, of it, the mask.
#[inline]
fn is_counted(hash: u64) -> bool {
    (hash >> 30).is_multiple_of(COUNTED_OF)
}

impl KeyFilter {
    /// Of no key.
    pub(super) fn new(pool: Arc<Pool>) -> KeyFilter {
        let arrays = Arrays::new(Array::new(FIRST, &pool));
        KeyFilter { arrays, added: CachePadded::new(AtomicU64::new(0)), pool }
    }

    /// Starts to load what the other functions look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.arrays.iter().for_each(|array| prefetch(array.word(hash)));
    }

    /// False only if no key of this hash was added.
    #[inline]
    pub(super) fn may_know(&self, hash: u64) -> bool {
        let mask = mask(hash);
        self.arrays.iter().any(|array| array.word(hash).load(Ordering::Relaxed) & mask == mask)
    }

    /// Adds a key.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        if self.may_know(hash) {
            return;
        }
        let Some(last) = self.arrays.iter().last() else { return };
        last.word(hash).fetch_or(mask(hash), Ordering::Relaxed);
        self.count(hash);
    }

    /// Makes room for so many keys more, in one array.
    pub(super) fn make_room(&self, count: usize) {
        let all = self.added.load(Ordering::Relaxed) * COUNTED_OF + count as u64;
        let words = all.div_ceil(KEYS_PER_WORD).next_power_of_two() as usize;
        if self.arrays.iter().map(|array| array.words.len()).sum::<usize>() < words {
            self.grow(self.arrays.iter().count(), words);
        }
    }

    /// Adds keys, for which [room was made](KeyFilter::make_room), where nobody else knows the filter: without an atomic
    /// operation, which would wait for the one before.
    pub(super) fn add_all(&self, hashes: &[u64]) {
        let Some(last) = self.arrays.iter().last() else { return };
        let mut counted = 0;
        for (at, &hash) in hashes.iter().enumerate() {
            if let Some(&soon) = hashes.get(at + AHEAD) {
                prefetch(last.word(soon));
            }
            let word = last.word(hash);
            word.store(word.load(Ordering::Relaxed) | mask(hash), Ordering::Relaxed);
            counted += u64::from(is_counted(hash));
        }
        // The array is of their size: what comes later may need another.
        self.added.fetch_add(counted, Ordering::Relaxed);
    }

    /// A key was added.
    #[inline]
    fn count(&self, hash: u64) {
        if is_counted(hash) {
            let added = self.added.fetch_add(1, Ordering::Relaxed) + 1;
            // One walk: others may add an array meanwhile, and two are not to follow from one that was seen.
            let (mut there, mut words, mut last) = (0, 0, 0);
            for array in self.arrays.iter() {
                last = array.words.len();
                (there, words) = (there + 1, words + last);
            }
            if added * COUNTED_OF >= words as u64 * KEYS_PER_WORD {
                self.grow(there, last * GROWTH);
            }
        }
    }

    /// Adds the array behind the first `there`, unless somebody does so already: of so many words, or of fewer if that would take
    /// more than half of what memory has left, but of more than the one before.
    fn grow(&self, there: usize, words: usize) {
        let room = self.pool.room() / 2 / size_of::<AtomicU64>();
        // Powers of two, all of them.
        let words = words.min(1 << room.max(1).ilog2());
        if self.arrays.iter().last().is_none_or(|last| last.words.len() < words) {
            self.arrays.add(there, || Array::new(words, &self.pool));
        }
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> usize {
        self.arrays.iter().map(|array| array.words.len() * size_of::<AtomicU64>()).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::KeyHasher;

    fn hash(n: u64) -> u64 {
        KeyHasher::new(7).hash(&n.to_le_bytes())
    }

    #[test]
    fn what_was_added_is_known_and_few_others_are() {
        let pool = Arc::<Pool>::default();
        let filter = KeyFilter::new(Arc::clone(&pool));
        let count = if cfg!(miri) { 3_000 } else { 300_000 };
        for n in 0..count {
            filter.add(hash(n));
            let asked = n / 2;
            assert!(filter.may_know(hash(n)) && filter.may_know(hash(asked)));
        }
        assert!((0..count).all(|n| filter.may_know(hash(n))));
        let wrong = (count..2 * count).filter(|&n| filter.may_know(hash(n))).count() as f64 / count as f64;
        assert!(wrong < 0.03, "{wrong} of others are");
        let per_key = filter.bytes() as f64 / count as f64;
        assert!(per_key < 17.0, "{per_key} bytes a key");
        assert_eq!(pool.bytes(), filter.bytes());
        drop(filter);
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn it_grows_with_its_keys_and_not_with_their_versions() {
        let filter = KeyFilter::new(Arc::default());
        for _ in 0..50 {
            (0..100).for_each(|n| filter.add(hash(n)));
        }
        assert_eq!(filter.arrays.iter().count(), 1);
        let mut sizes = Vec::new();
        for n in 0..100_000 {
            filter.add(hash(n));
            sizes.push(filter.arrays.iter().count());
        }
        assert!(sizes.is_sorted() && sizes[150] == 1 && sizes[10_000] == 3, "{}", sizes[10_000]);
        assert_eq!(sizes.last(), Some(&4));
    }

    #[test]
    fn what_is_added_at_once_has_an_array_of_its_size() {
        let known =
            |filter: &KeyFilter, of: std::ops::Range<u64>| of.filter(|&n| filter.may_know(hash(n))).count();
        for count in [0, 10, 1000, 100_000] {
            let filter = KeyFilter::new(Arc::default());
            filter.make_room(count as usize);
            filter.add_all(&(0..count).map(hash).collect::<Vec<u64>>());
            assert_eq!(known(&filter, 0..count), count as usize);
            assert!(known(&filter, count..2 * count) <= count as usize / 50 + 2);
            assert!(filter.bytes() <= 512 + 4 * count as usize, "{} bytes", filter.bytes());
            (count..3 * count).for_each(|n| filter.add(hash(n)));
            assert_eq!(known(&filter, 0..3 * count), 3 * count as usize);
            assert!(known(&filter, 3 * count..4 * count) <= count as usize / 25 + 2);
        }
    }

    /// Regression: keys are counted by chance, and those that fill their array to the last word had one eight times as
    /// large added that none of them is in.
    #[test]
    fn what_is_added_at_once_adds_no_array_behind_its_own() {
        for seed in 0..16 {
            let hasher = KeyHasher::new(seed);
            let filter = KeyFilter::new(Arc::default());
            let hashes: Vec<u64> = (0..1u64 << 14).map(|n| hasher.hash(&n.to_le_bytes())).collect();
            filter.make_room(hashes.len());
            filter.add_all(&hashes);
            assert_eq!(filter.arrays.iter().count(), 2, "seed {seed}");
        }
    }

    /// Regression: a flush that sorted a hash had the filter take as much as it liked, where memory was full already.
    #[test]
    fn it_takes_no_more_than_half_of_what_memory_has_left() {
        let pool = Arc::new(Pool::new(1 << 20));
        let charge = pool.account().charge(900 << 10);
        let filter = KeyFilter::new(Arc::clone(&pool));
        (0..100_000).for_each(|n| filter.add(hash(n)));
        assert!(pool.bytes() <= 1 << 20 && filter.bytes() > 16 << 10, "{} {}", pool.bytes(), filter.bytes());
        assert!((0..100_000).all(|n| filter.may_know(hash(n))));
        drop(charge);
        (100_000..200_000).for_each(|n| filter.add(hash(n)));
        assert!(filter.bytes() > 256 << 10, "it grows again: {}", filter.bytes());
    }

    /// Regression: of two threads that found an array full, the second looked where the first had added one already.
    #[test]
    fn two_who_found_the_same_array_full_add_one() {
        let filter = KeyFilter::new(Arc::default());
        filter.grow(1, FIRST * GROWTH);
        filter.grow(1, FIRST * GROWTH);
        assert_eq!(filter.arrays.iter().count(), 2);
    }

    #[test]
    fn threads_that_add_at_once_lose_nothing() {
        let filter = KeyFilter::new(Arc::default());
        let each = if cfg!(miri) { 500 } else { 50_000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let filter = &filter;
                scope.spawn(move || {
                    for n in (0..each).map(|n| n * 4 + thread) {
                        filter.add(hash(n));
                        assert!(filter.may_know(hash(n)));
                    }
                });
            }
        });
        assert!((0..4 * each).all(|n| filter.may_know(hash(n))));
    }
}
