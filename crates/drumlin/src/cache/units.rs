//! Which units of a chunk are taken: a bit each, taken in runs by one thread at a time, given back by any.
//!
//! Place: in the head of every chunk of `slab`.
//!
//! Invariants:
//! 1. A unit is in at most one run that was taken and not given back.
//! 2. `free` counts the clear bits; too few while runs are being given back, never too many, and never below nothing.
//!
//! Concurrency: `take` is called under the slab's mutex, so bits are set by one thread at a time; anybody clears those of
//! a run that is its own.
//! - bits: cleared with Release by who gives a run back, loaded with Acquire by `take`: what was read of the run's bytes
//!   lies before what the next owner writes there. Set with Relaxed: nobody else sets, and who clears a run got it from
//!   who set it.
//! - `free`: Relaxed, a hint.
//!
//! Tests: below; `loom_tests`: weakened to Relaxed, either of the two fails.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Units of a word.
const WORD_UNITS: usize = 64;

/// `WORDS` x 64 units; see the module.
#[repr(C)]
pub(super) struct Units<const WORDS: usize> {
    words: [AtomicU64; WORDS],
    free: AtomicUsize,
}

/// The bits of `from..to` that lie in `word`.
#[inline]
fn mask(word: usize, from: usize, to: usize) -> u64 {
    let first = from.max(word * WORD_UNITS) - word * WORD_UNITS;
    let end = to.min((word + 1) * WORD_UNITS) - word * WORD_UNITS;
    (u64::MAX >> (WORD_UNITS - (end - first))) << first
}

impl<const WORDS: usize> Units<WORDS> {
    /// All free but the first `taken`.
    pub(super) fn new(taken: usize) -> Self {
        let units = Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            free: AtomicUsize::new(WORDS * WORD_UNITS),
        };
        units.set(0, taken);
        units
    }

    /// Units that are free, about.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes the first run of `count` from `from` on; where it begins. One caller at a time. O(words), or, of runs longer than a
    /// word, O(units / count), at most.
    pub(super) fn take(&self, from: usize, count: usize) -> Option<usize> {
        if self.free() < count {
            return None;
        }
        let at = if count <= WORD_UNITS { self.short_run(from, count) } else { self.long_run(from, count) }?;
        self.set(at, at + count);
        Some(at)
    }

    /// The first free run of `count`, no more than a word has, from `from` on. A full cache has few of them: each word is looked at
    /// once, with the one behind it.
    fn short_run(&self, from: usize, count: usize) -> Option<usize> {
        let free = |word: usize| self.words.get(word).map_or(0, |taken| !taken.load(Ordering::Acquire));
        let first = from / WORD_UNITS;
        let mut here = free(first) & (u64::MAX << (from % WORD_UNITS));
        for word in first..WORDS {
            let behind = free(word + 1);
            if here != 0 {
                // A bit for each unit with which `length` free ones begin.
                let mut begins = u128::from(behind) << WORD_UNITS | u128::from(here);
                let mut length = 1;
                while length < count {
                    let more = length.min(count - length);
                    begins &= begins >> more;
                    length += more;
                }
                if begins as u64 != 0 {
                    return Some(word * WORD_UNITS + begins.trailing_zeros() as usize);
                }
            }
            here = behind;
        }
        None
    }

    fn long_run(&self, from: usize, count: usize) -> Option<usize> {
        let mut at = from;
        while at + count <= WORDS * WORD_UNITS {
            match self.last_taken(at, at + count) {
                Some(taken) => at = taken + 1,
                None => return Some(at),
            }
        }
        None
    }

    /// The last unit of `from..to` that is taken.
    #[inline]
    fn last_taken(&self, from: usize, to: usize) -> Option<usize> {
        (from / WORD_UNITS..=(to - 1) / WORD_UNITS).rev().find_map(|word| {
            let taken = self.words[word].load(Ordering::Acquire) & mask(word, from, to);
            Some(word * WORD_UNITS + taken.checked_ilog2()? as usize)
        })
    }

    fn set(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        for word in from / WORD_UNITS..=(to - 1) / WORD_UNITS {
            self.words[word].fetch_or(mask(word, from, to), Ordering::Relaxed);
        }
        self.free.fetch_sub(to - from, Ordering::Relaxed);
    }

    /// Gives the run of `count` at `from` back.
    pub(super) fn give_back(&self, from: usize, count: usize) {
        let to = from + count;
        for word in from / WORD_UNITS..=(to - 1) / WORD_UNITS {
            // Release: the run's bytes were read before whoever takes it next writes them.
            self.words[word].fetch_and(!mask(word, from, to), Ordering::Release);
        }
        self.free.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Against a plain array of flags.
    #[test]
    fn runs_do_not_overlap_and_what_is_free_is_found() {
        const UNITS: usize = 192;
        let units = Units::<3>::new(5);
        let mut flags = [false; UNITS];
        flags[..5].fill(true);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut word = 7u64;
        let mut random = |below: usize| {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (word >> 33) as usize % below
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            if random(3) > 0 || runs.is_empty() {
                let most = if random(4) == 0 { 130 } else { 20 };
                let (from, count) = (random(UNITS), 1 + random(most));
                let wanted = (from..(UNITS + 1).saturating_sub(count))
                    .find(|&at| flags[at..at + count].iter().all(|taken| !taken));
                assert_eq!(units.take(from, count), wanted, "{count} from {from} on");
                match wanted {
                    Some(at) => {
                        flags[at..at + count].fill(true);
                        runs.push((at, count));
                    }
                    None => refused += 1,
                }
            } else {
                let (at, count) = runs.swap_remove(random(runs.len()));
                units.give_back(at, count);
                flags[at..at + count].fill(false);
            }
            assert_eq!(units.free(), flags.iter().filter(|taken| !**taken).count());
        }
        assert!(refused > 100);
    }
}
