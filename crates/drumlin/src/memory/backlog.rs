//! Which slots of the hash tier hold what is not in the list: notes by those who put it there, for those who move it on.
//!
//! Place: `two_tier` notes and moves. Notes of each part of the order (`splits`) are kept apart, and in each part those of each
//! thread, as good as.
//!
//! Invariants:
//! 1. What was noted in a part before a [`Backlog::due`] began is given by it, or was done before: also where another thread
//!    that drew its place in the list earlier has not written it yet. Only what follows such a place is given again and again.
//! 2. Notes are kept, done or not, until all of it goes: there is one for each version that went into the list, at most,
//!    and one for each slot.
//!
//! Concurrency: any thread may call anything; what is due is given to all who ask. A place in a list is drawn by `fetch_add`,
//! written with Release, read with Acquire; one that reads as 0 is not written yet. `done` is Release, for those who find
//! nothing left and walk the list (Acquire).
//! Tests: below, `two_tier_tests`, `loom_tests`.

use std::sync::{Arc, OnceLock};

use crate::budget::Account;
use crate::pages::{PageVec, zeroed_words};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::local;
use super::splits::Splits;

/// Notes of a list's first array; each further one has twice as many as the one before.
const FIRST: u64 = if cfg!(loom) { 2 } else { 64 };
const ARRAYS: usize = if cfg!(loom) { 2 } else { 26 };
/// With so many notes of one list more, its part is worth a walk through the memtable's list.
const WORTH: u64 = 1024;

/// Notes of one part and one shard of threads.
#[derive(Default)]
struct List {
    /// Places drawn.
    drawn: AtomicU64,
    /// All places below are done.
    done: AtomicU64,
    arrays: [OnceLock<PageVec<AtomicU64>>; ARRAYS],
    /// Makes the model checker try every order of accesses: see `loom_shadow`.
    #[cfg(loom)]
    witness: AtomicU64,
}

impl List {
    /// Which array a place is in, and where.
    fn locate(place: u64) -> (usize, usize) {
        let log2 = (place / FIRST + 1).ilog2();
        (log2 as usize, (place - ((1 << log2) - 1) * FIRST) as usize)
    }

    #[inline(always)]
    fn drawn(&self) -> &AtomicU64 {
        #[cfg(loom)]
        self.witness.fetch_add(1, Ordering::Relaxed);
        &self.drawn
    }

    /// The place that it got, and the bytes that it took.
    fn note(&self, position: u32) -> (u64, usize) {
        let place = self.drawn().fetch_add(1, Ordering::Relaxed);
        let (array, at) = Self::locate(place);
        let mut taken = 0;
        if self.arrays[array].get().is_none() {
            // Not `get_or_init`: nobody waits until another's is made. Whoever comes second drops his.
            let count = (FIRST << array) as usize;
            if self.arrays[array].set(zeroed_words(count)).is_ok() {
                taken = count * size_of::<AtomicU64>();
            }
        }
        if let Some(notes) = self.arrays[array].get() {
            notes[at].store(u64::from(position) + 1, Ordering::Release);
        }
        (place, taken)
    }

    /// The position noted at a place, if that is written.
    fn at(&self, place: u64) -> Option<u32> {
        let (array, at) = Self::locate(place);
        let note = self.arrays[array].get()?[at].load(Ordering::Acquire);
        note.checked_sub(1).map(|position| position as u32)
    }
}

type Lists = Box<[OnceLock<Box<CachePadded<List>>>]>;

/// See the module.
pub(super) struct Backlog {
    splits: Arc<Splits>,
    /// A power of two.
    shards: usize,
    /// Those of the first part, then those of the next; each made with its first note, the whole with the first of all.
    lists: OnceLock<Lists>,
    /// All that it has.
    bytes: AtomicUsize,
    account: Arc<Account>,
}

/// How far a call of [`Backlog::due`] looked, shard by shard: all below was given or done.
#[must_use = "what was seen to is done"]
pub(super) struct Due {
    part: usize,
    ends: Vec<u64>,
}

impl Backlog {
    pub(super) fn new(splits: Arc<Splits>, shards: usize, account: Arc<Account>) -> Backlog {
        let shards = shards.next_power_of_two();
        let backlog = Backlog { splits, shards, lists: OnceLock::new(), bytes: AtomicUsize::new(0), account };
        if cfg!(loom) {
            // The checker knows nothing of `OnceLock`, and takes what another thread made there for unpublished.
            backlog.make_lists();
            for list in backlog.lists.get().into_iter().flatten() {
                let made: Box<CachePadded<List>> = Box::default();
                made.arrays
                    .iter()
                    .enumerate()
                    .for_each(|(n, array)| _ = array.set(zeroed_words((FIRST << n) as usize)));
                let _ = list.set(made);
            }
        }
        backlog
    }

    #[cold]
    fn make_lists(&self) {
        let lists: Lists = (0..self.splits.parts() * self.shards).map(|_| OnceLock::new()).collect();
        let bytes = size_of_val(&*lists);
        if self.lists.set(lists).is_ok() {
            self.took(bytes);
        }
    }

    fn took(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.account.add(bytes);
    }

    pub(super) fn splits(&self) -> &Splits {
        &self.splits
    }

    /// The lists of all shards, as far as they are there.
    fn of_part(&self, part: usize) -> impl Iterator<Item = Option<&List>> {
        let all = self.lists.get().map_or(&[][..], |lists| &lists[part * self.shards..][..self.shards]);
        all.iter().map(|list| list.get().map(|list| &***list))
    }

    /// Notes a slot that turned fresh, for a version of `key`. True now and then: there is enough in its part to be sorted. O(log
    /// parts); allocates now and then.
    #[inline]
    pub(super) fn note(&self, key: &[u8], position: u32) -> bool {
        let shard = local::thread_number() as usize & (self.shards - 1);
        if self.lists.get().is_none() {
            self.make_lists();
        }
        let Some(lists) = self.lists.get() else { return false };
        let place = &lists[self.splits.part_of(key) * self.shards + shard];
        if place.get().is_none() && place.set(Box::default()).is_ok() {
            self.took(size_of::<CachePadded<List>>());
        }
        let (at, taken) = place.get().map_or((0, 0), |list| list.note(position));
        if taken > 0 {
            self.took(taken);
        }
        at % WORTH == WORTH - 1
    }

    /// True if there is enough in a part to be sorted.
    pub(super) fn is_worth_sorting(&self, part: usize) -> bool {
        self.left(part) as u64 >= WORTH
    }

    /// Notes of a part that are not done: none that was made before the call is left out. O(shards).
    #[inline]
    pub(super) fn left(&self, part: usize) -> usize {
        // In this order: what is noted in between counts as left.
        let left = |list: &List| {
            let done = list.done.load(Ordering::Acquire);
            (list.drawn().load(Ordering::Relaxed) - done) as usize
        };
        self.of_part(part).flatten().map(left).sum()
    }

    /// True if nothing was ever noted. One load.
    pub(super) fn is_empty(&self) -> bool {
        !cfg!(loom) && self.lists.get().is_none()
    }

    /// Appends to `positions` what was noted in a part and is not done.
    pub(super) fn due(&self, part: usize, positions: &mut Vec<u32>) -> Due {
        let mut look = |list: &List| {
            let done = list.done.load(Ordering::Acquire);
            let mut all_before = done;
            for place in done..list.drawn().load(Ordering::Relaxed) {
                if let Some(position) = list.at(place) {
                    positions.push(position);
                    all_before += u64::from(all_before == place);
                }
            }
            all_before
        };
        Due { part, ends: self.of_part(part).map(|list| list.map_or(0, &mut look)).collect() }
    }

    /// What a [`Backlog::due`] gave was seen to.
    pub(super) fn done(&self, Due { part, ends }: Due) {
        for (list, end) in self.of_part(part).zip(ends) {
            if let Some(list) = list {
                list.done.fetch_max(end, Ordering::Release);
            }
        }
    }

    /// Bytes of all notes. O(1).
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.account.give_back(self.bytes());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_follow_one_another_through_the_arrays() {
        let mut expected = (0, 0);
        for place in 0..FIRST * 100 {
            assert_eq!(List::locate(place), expected);
            expected.1 += 1;
            if expected.1 == (FIRST << expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn each_note_is_given_to_all_who_ask_until_it_is_done() {
        let account = Arc::<Account>::default();
        let backlog = Backlog::new(Arc::default(), 2, Arc::clone(&account));
        let each: u32 = if cfg!(miri) { 300 } else { 20_000 };
        let ask = || {
            let mut positions = Vec::new();
            let due = backlog.due(0, &mut positions);
            (positions, due)
        };
        let mut seen = std::thread::scope(|scope| {
            for thread in 0..4 {
                let backlog = &backlog;
                scope.spawn(move || (0..each).for_each(|n| _ = backlog.note(b"", thread * each + n)));
            }
            let movers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    for _ in 0..50 {
                        let (positions, due) = ask();
                        seen.extend(positions);
                        backlog.done(due);
                        std::thread::yield_now();
                    }
                    seen
                })
            });
            movers.map(|mover| mover.join().expect("it asks")).concat()
        });
        let (positions, due) = ask();
        assert_eq!((ask().0.len(), backlog.left(0)), (positions.len(), positions.len()));
        seen.extend(positions);
        backlog.done(due);
        assert_eq!((ask().0, backlog.left(0)), (vec![], 0));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (0..4 * each).collect::<Vec<_>>());
        assert_eq!(account.bytes(), backlog.bytes());
    }

    /// A thread that stands still between drawing its place and writing it holds up nobody's note.
    #[test]
    fn a_note_that_is_late_is_given_when_it_is_there() {
        let backlog = Backlog::new(Arc::default(), 1, Arc::default());
        let ask = || {
            let mut positions = Vec::new();
            backlog.done(backlog.due(0, &mut positions));
            (positions, backlog.left(0))
        };
        backlog.note(b"", 1);
        let list = || backlog.lists.get().and_then(|lists| lists[0].get()).expect("it was noted in");
        list().drawn.fetch_add(1, Ordering::Relaxed);
        backlog.note(b"", 3);
        assert_eq!(ask(), (vec![1, 3], 2));
        assert_eq!(ask(), (vec![3], 2));
        list().arrays[0].get().expect("it was noted in")[1].store(3, Ordering::Release);
        assert_eq!(ask(), (vec![2, 3], 0));
    }

    #[test]
    fn what_is_noted_in_one_part_is_not_due_in_another() {
        let backlog = Backlog::new(Arc::new(Splits::of_top_bits(1)), 1, Arc::default());
        backlog.note(b"a", 1);
        backlog.note(b"\xff", 2);
        let mut positions = Vec::new();
        backlog.done(backlog.due(1, &mut positions));
        assert_eq!((positions, backlog.left(0), backlog.left(1)), (vec![2], 1, 0));
    }
}
