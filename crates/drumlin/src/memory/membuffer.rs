//! The hash tier: for most keys of a memtable their newest version, found by the key's hash in one line of cache.
//!
//! Place: `two_tier` puts versions here and takes them on to the list; it alone knows what a slot's node is.
//!
//! A bucket is a line of eight slots, a slot one word: 16 bits of the hash, a state, and the unit of the node. There is no lock
//! and no header: a slot changes by one compare-and-swap, whoever changes it.
//! ```text
//! bits 48-63  the upper bits of the key's hash
//!      32-33  state: 1 fresh, 2 claimed, 3 sorted
//!       0-31  unit of the node; all of the word is 0 if nobody has the slot
//! ```
//! - *fresh*: the version is here only. The next version of the key takes its place.
//! - *claimed*: the mover is putting it into the list.
//! - *sorted*: it is in the list, too. The slot shows the way to it, and may be taken for another key.
//!
//! Nobody knows beforehand how many keys a memtable gets, so there are up to [`ARRAYS`] arrays of buckets: a few lines, for one
//! that gets hardly any; [`SECOND`] times as many; then each [`GROWTH`] times as large as the one before, up to [`LEAP`] times
//! if so many keys are expected, or as there is room for. Expected are as many as the memtable before had; once there are more, as
//! many as the memtable will have when its bytes are as many as may be. A key is put into the last, and sought in all: so of two arrays that
//! are too large for the processor's caches each costs every put a miss.
//!
//! Invariants:
//! 1. A key has one slot or none. (Who puts a key into a slot holds the key's lock, and has looked for it before.)
//! 2. A slot goes from nobody's to fresh, from any state to fresh, from fresh to claimed to sorted, and nowhere else. So one
//!    that is fresh stays its key's until it was sorted.
//! 3. An array that is there stays there, and positions name slots for good.
//! 4. An array that is added takes at most half of what memory has left.
//!
//! Concurrency: any thread may call anything. Slots: Release by who puts a node there, Acquire by who looks, so whoever
//! sees a unit sees the node's bytes. Waits for nobody; a failed compare-and-swap is the caller's to try again. `taken` is a
//! hint. A reader that finds no slot of a key looks into the list next: a slot is taken from a key only once its version is
//! there.
//!
//! Complexity: O(arrays), of which all but the last one or two are small; one miss, mostly.
//! Origin: FloDB §4.1 and its table (CLHT, David et al., *Asynchronized Concurrency*): buckets of a cache line, updated in place.
//! Slots of one word, which leave the version itself in the arena, are ours.
//! Tests: `two_tier_tests`, `loom_tests`.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{CachePadded, prefetch};

use super::arrays::Arrays;
use super::pool::{Pool, Words};

/// Slots of a bucket: a line.
pub(super) const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
/// Buckets of the first array.
const FIRST: usize = if cfg!(loom) { 1 } else { 16 };
/// Arrays, at most.
const ARRAYS: usize = if cfg!(loom) { 1 } else { 10 };
/// So many times as large as the first array is the second.
const SECOND: usize = 64;
/// So many times as large as the one before is any other ...
const GROWTH: usize = 4;
/// ... or, where more keys are expected, so many times: what was busy once may be so no more.
const LEAP: usize = 32;
/// Of the slots of an array, in percent: so many are taken when the next one is made.
const FILL_PERCENT: usize = 70;
/// One key of so many is counted.
const COUNTED_OF: u64 = 16;

const UNIT_BITS: u32 = 32;
const TAG_SHIFT: u32 = 48;
const STATE_MASK: u64 = 3 << UNIT_BITS;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A version that is nowhere else.
    Fresh = 1,
    /// A version that is being put into the list.
    Claimed = 2,
    /// A version that is in the list.
    Sorted = 3,
}

/// A slot's word as it was seen; not nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    fn fresh(hash: u64, unit: u32) -> Word {
        Word(hash >> TAG_SHIFT << TAG_SHIFT | (State::Fresh as u64) << UNIT_BITS | u64::from(unit))
    }

    pub(super) fn with(self, state: State) -> Word {
        Word(self.0 & !STATE_MASK | (state as u64) << UNIT_BITS)
    }

    /// The node.
    #[inline]
    pub(super) fn unit(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn is(self, state: State) -> bool {
        self.0 & STATE_MASK == (state as u64) << UNIT_BITS
    }
}

/// A slot, and its name.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    word: &'a AtomicU64,
    position: u32,
    /// Makes the model checker try every order of accesses: see `loom_shadow`.
    #[cfg(loom)]
    witness: &'a AtomicU64,
}

impl Slot<'_> {
    /// What names it in [`Membuffer::slot`].
    #[inline]
    pub(super) fn position(self) -> u32 {
        self.position
    }

    /// Starts to load it.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch(self.word);
    }

    /// What it holds now.
    #[inline]
    pub(super) fn load(self) -> Option<Word> {
        let word = self.word().load(Ordering::Acquire);
        (word != 0).then_some(Word(word))
    }

    #[inline(always)]
    fn word(&self) -> &AtomicU64 {
        #[cfg(loom)]
        self.witness.fetch_add(1, Ordering::Relaxed);
        self.word
    }

    /// Puts another node of the same key where `seen` was. False if it is not there any more.
    #[inline]
    pub(super) fn replace(self, seen: Word, unit: u32) -> bool {
        self.swap(seen, Word::fresh(seen.0, unit))
    }

    /// Gives what is there another state. False if it is not there any more.
    #[inline]
    pub(super) fn turn(self, seen: Word, state: State) -> bool {
        self.swap(seen, seen.with(state))
    }

    #[inline]
    fn swap(self, seen: Word, next: Word) -> bool {
        // Release: whoever finds the node here finds its bytes. A node that only changes state was published before; the
        // Release of `claimed` to `sorted` is for those who then find the slot taken, and look into the list.
        self.swap_words(seen.0, next.0)
    }

    #[inline]
    fn swap_words(self, seen: u64, next: u64) -> bool {
        self.word().compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

struct Array {
    words: Words,
    /// The position of its first slot.
    first: u32,
    /// Keys that were counted.
    taken: CachePadded<AtomicU64>,
    #[cfg(loom)]
    witness: AtomicU64,
}

impl Array {
    fn new(buckets: usize, first: u32, pool: &Arc<Pool>) -> Array {
        let count = buckets * WAYS;
        Array {
            words: Words::new(count, pool),
            first,
            taken: CachePadded::new(AtomicU64::new(0)),
            #[cfg(loom)]
            witness: AtomicU64::new(0),
        }
    }

    fn slot(&self, at: usize) -> Slot<'_> {
        Slot {
            word: &self.words[at],
            position: self.first + at as u32,
            #[cfg(loom)]
            witness: &self.witness,
        }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.words.len() / WAYS - 1)
    }

    #[inline]
    fn slots(&self, hash: u64) -> impl Iterator<Item = Slot<'_>> {
        let first = self.bucket(hash) * WAYS;
        (first..first + WAYS).map(|at| self.slot(at))
    }

    fn is_full(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) * COUNTED_OF;
        taken * 100 >= (self.words.len() * FILL_PERCENT) as u64
    }
}

/// See the module.
pub(super) struct Membuffer {
    arrays: Arrays<Array, ARRAYS>,
    /// Keys that there will be, it is said.
    expected: usize,
    /// Bytes that all arrays may have.
    bytes_max: usize,
    pool: Arc<Pool>,
}

impl Membuffer {
    /// An empty one, which may get so many keys, and with at most `bytes_max` bytes, a few buckets apart.
    pub(super) fn new(expected: usize, bytes_max: usize, pool: Arc<Pool>) -> Membuffer {
        let arrays = Arrays::new(Array::new(FIRST, 0, &pool));
        Membuffer { arrays, expected, bytes_max, pool }
    }

    /// Starts to load what a look-up reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.arrays.iter().for_each(|array| prefetch(&raw const array.words[array.bucket(hash) * WAYS]));
    }

    /// The slot of the key of this hash for whose node `is_it` is true, and what it holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(Slot<'_>, Word)> {
        for array in self.arrays.iter() {
            for slot in array.slots(hash) {
                let word = slot.word().load(Ordering::Acquire);
                if word != 0 && (word ^ hash) >> TAG_SHIFT == 0 && is_it(word as u32) {
                    return Some((slot, Word(word)));
                }
            }
        }
        None
    }

    /// True if a slot may be that of a key of this hash.
    #[inline]
    pub(super) fn may_know(&self, hash: u64) -> bool {
        self.find(hash, |_| true).is_some()
    }

    /// Takes a slot for a key that has none: one that nobody has, or one whose version is in the list. `None` if there is
    /// neither.
    pub(super) fn take(&self, hash: u64, unit: u32) -> Option<Slot<'_>> {
        let array = self.arrays.iter().last()?;
        let fresh = Word::fresh(hash, unit);
        let free = array
            .slots(hash)
            .find(|slot| slot.word().load(Ordering::Relaxed) == 0 && slot.swap_words(0, fresh.0));
        let count = || {
            if (hash >> UNIT_BITS).is_multiple_of(COUNTED_OF) {
                array.taken.fetch_add(1, Ordering::Relaxed);
            }
        };
        if free.is_some() {
            count();
            return free;
        }
        let sorted = array.slots(hash).find(|slot| {
            // Acquire with the swap: what the next key does here comes after the list has what is driven out.
            let seen = slot.word().load(Ordering::Relaxed);
            Word(seen).is(State::Sorted) && slot.swap_words(seen, fresh.0)
        });
        if sorted.is_none() {
            // Who finds no room says so: of few keys the counted ones may be too few for ever.
            count();
        }
        sorted
    }

    /// Adds an array if the last one is full and there may be a larger one. It may allocate. `foretell`: how many keys there
    /// will be in the end, of how many there are; asked if there are as many as were expected.
    #[inline]
    pub(super) fn grow_if_due(&self, foretell: impl FnOnce(usize) -> usize) {
        if self.arrays.iter().last().is_some_and(Array::is_full) {
            self.grow(foretell);
        }
    }

    #[cold]
    fn grow(&self, foretell: impl FnOnce(usize) -> usize) {
        // One walk: others may add an array meanwhile, and two are not to follow from one that was seen.
        let (mut there, mut slots, mut last) = (0, 0, 0);
        for array in self.arrays.iter() {
            last = array.words.len();
            (there, slots) = (there + 1, slots + last);
        }
        // Of what memory has left a half: it is taken at once, and writers are not stopped for it.
        let left = self.pool.room() / 2 / size_of::<AtomicU64>();
        let room = (self.bytes_max / size_of::<AtomicU64>()).saturating_sub(slots).min(left);
        // Powers of two, all of them. Where there is no room, every write comes here.
        let most = 1 << room.max(1).ilog2();
        if most < last {
            return;
        }
        let wanted = match there {
            1 => last * SECOND,
            _ => {
                let keys = self.keys();
                let expected = if keys < self.expected { self.expected } else { foretell(keys) };
                (expected.saturating_mul(100) / FILL_PERCENT)
                    .clamp(last * GROWTH, last * LEAP)
                    .next_power_of_two()
            }
        };
        let next = wanted.min(most);
        self.arrays.add(there, || Array::new(next / WAYS, slots as u32, &self.pool));
    }

    /// The slot of this position.
    pub(super) fn slot(&self, position: u32) -> Slot<'_> {
        let array = self.arrays.iter().filter(|array| array.first <= position).last();
        let array = array.expect("a position names a slot of an array that is there");
        array.slot((position - array.first) as usize)
    }

    /// Keys that there were slots for, or none; about.
    pub(super) fn keys(&self) -> usize {
        self.arrays.iter().map(|array| (array.taken.load(Ordering::Relaxed) * COUNTED_OF) as usize).sum()
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> usize {
        self.arrays.iter().map(|array| array.words.len() * size_of::<AtomicU64>()).sum()
    }
}
