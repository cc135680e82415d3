//! The range tombstones of a memtable: few, added one at a time, asked by every get.
//!
//! Place: inside `memtable`. It calls `iter::Tombstones`, one immutable list per run.
//!
//! The set is a sequence of *runs*, each at least twice as large as the next. A new tombstone
//! becomes a run of one; runs of equal size are joined at once, so n tombstones make O(log n) runs
//! and each is copied O(log n) times. An addition publishes a new sequence; the old is given to the
//! epoch. Tombstones that are part of a batch are merged like the others; each run remembers which
//! LSNs came with a batch, so that a reader can ask whether the batch is committed.
//!
//! Invariants:
//! 1. A published sequence never changes; a reader sees all additions up to some moment.
//! 2. A tombstone is in exactly one run of a sequence.
//!
//! Concurrency: additions take turns (a mutex that is free if callers take turns themselves).
//! Readers are lock-free and write nothing shared; while there is no tombstone they do one load.
//! - `published`: Release by `add`, Acquire by readers.
//!
//! Origin: Bentley and Saxe's logarithmic method, for tombstones.
//! Tests: below, against each tombstone asked alone, and with threads; leaks and early frees by the
//! address sanitizer.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_epoch::{self as epoch, Atomic, Owned};

use crate::budget::Account;
use crate::iter::{RangeTombstone, Tombstones};
use crate::key::{Comparator, Lsn};
use crate::sync::Mutex;

/// A growing set of range tombstones.
pub(super) struct TombstoneSet {
    published: Atomic<Sequence>,
    adding: Mutex<()>,
    bytes: AtomicUsize,
    /// Charged with `bytes`.
    account: Arc<Account>,
}

/// What a reader sees.
struct Sequence {
    /// Largest first; never empty.
    runs: Vec<Arc<Run>>,
}

struct Run {
    /// As they were added.
    tombstones: Vec<RangeTombstone>,
    /// The same, cut for look-ups.
    fragments: Tombstones,
    /// (LSN, slot) of those that came with a batch, by LSN.
    batches: Vec<(Lsn, u32)>,
}

impl Run {
    fn new(
        comparator: &dyn Comparator,
        tombstones: Vec<RangeTombstone>,
        mut batches: Vec<(Lsn, u32)>,
    ) -> Self {
        batches.sort_unstable();
        batches.dedup();
        Self { fragments: Tombstones::build(comparator, tombstones.clone()), tombstones, batches }
    }

    fn heap_bytes(&self) -> usize {
        let keys: usize = self.tombstones.iter().map(|t| t.start.len() + t.end.len()).sum();
        self.tombstones.len() * size_of::<RangeTombstone>()
            + keys
            + self.fragments.heap_bytes()
            + self.batches.len() * size_of::<(Lsn, u32)>()
    }

    /// The newest committed tombstone with LSN < `at` that covers `key`.
    fn newest_covering(
        &self,
        comparator: &dyn Comparator,
        key: &[u8],
        at: Lsn,
        committed: &impl Fn(u32, Lsn) -> bool,
    ) -> Option<Lsn> {
        let mut below = at;
        loop {
            let lsn = self.fragments.newest_covering(comparator, key, below)?;
            let batch = self.batches.binary_search_by_key(&lsn, |&(lsn, _)| lsn);
            if batch.is_err() || batch.is_ok_and(|index| committed(self.batches[index].1, lsn)) {
                return Some(lsn);
            }
            below = lsn;
        }
    }
}

impl TombstoneSet {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { published: Atomic::null(), adding: Mutex::new(()), bytes: AtomicUsize::new(0), account }
    }

    /// True if none was added. One load.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // SAFETY: only compared with null, never followed.
        let guard = unsafe { epoch::unprotected() };
        self.published.load(Ordering::Acquire, guard).is_null()
    }

    /// Bytes held, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Adds a tombstone; one that covers nothing is left out. Amortized O(log² n).
    pub(super) fn add(&self, comparator: &dyn Comparator, tombstone: RangeTombstone, batch: Option<u32>) {
        if comparator.compare(&tombstone.start, &tombstone.end).is_ge() {
            return;
        }
        let _turn = self.adding.lock();
        let guard = epoch::pin();
        let old = self.published.load(Ordering::Relaxed, &guard);
        // SAFETY: published sequences are valid, and given to the epoch only below, by who has the
        // turn. Test: readers_see_every_tombstone_while_others_are_added.
        let mut runs = unsafe { old.as_ref() }.map_or_else(Vec::new, |sequence| sequence.runs.clone());
        let mut batches: Vec<(Lsn, u32)> = batch.map(|slot| (tombstone.lsn, slot)).into_iter().collect();
        let mut tombstones = vec![tombstone];
        while let Some(run) = runs.pop_if(|run| run.tombstones.len() <= tombstones.len()) {
            tombstones.extend_from_slice(&run.tombstones);
            batches.extend_from_slice(&run.batches);
        }
        runs.push(Arc::new(Run::new(comparator, tombstones, batches)));
        let bytes = runs.iter().map(|run| run.heap_bytes()).sum();
        self.account.add(bytes);
        self.account.give_back(self.bytes.swap(bytes, Ordering::Relaxed));
        self.published.store(Owned::new(Sequence { runs }), Ordering::Release);
        if !old.is_null() {
            // SAFETY: no longer reachable, and nobody else gives it away: this thread has the turn.
            // Test: a_reader_outlives_what_is_added_meanwhile, under the address sanitizer.
            unsafe { guard.defer_destroy(old) };
        }
    }

    /// The newest committed tombstone with LSN < `at` that covers `key`. O(log² n).
    pub(super) fn newest_covering(
        &self,
        comparator: &dyn Comparator,
        key: &[u8],
        at: Lsn,
        committed: impl Fn(u32, Lsn) -> bool,
    ) -> Option<Lsn> {
        self.read(|runs| {
            runs.iter().filter_map(|run| run.newest_covering(comparator, key, at, &committed)).max()
        })
        .flatten()
    }

    /// Those with LSN < `at`, committed or not, in one list. O(n log n).
    pub(super) fn below(&self, comparator: &dyn Comparator, at: Lsn) -> Tombstones {
        let all = |runs: &[Arc<Run>]| {
            let tombstones = runs.iter().flat_map(|run| run.tombstones.iter());
            tombstones.filter(|tombstone| tombstone.lsn < at).cloned().collect()
        };
        self.read(all).map_or(Tombstones::EMPTY, |tombstones| Tombstones::build(comparator, tombstones))
    }

    /// Shows the present runs; `None` if there are none.
    fn read<R>(&self, look: impl FnOnce(&[Arc<Run>]) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        let guard = epoch::pin();
        // SAFETY: a sequence is valid from its publication until after every guard that was pinned
        // while it was reachable. Test: readers_see_every_tombstone_while_others_are_added.
        let sequence = unsafe { self.published.load(Ordering::Acquire, &guard).as_ref() };
        sequence.map(|sequence| look(&sequence.runs))
    }
}

impl Drop for TombstoneSet {
    fn drop(&mut self) {
        self.account.give_back(self.bytes());
        let last = std::mem::replace(&mut self.published, Atomic::null());
        // SAFETY: `&mut self`: no reader is left, and earlier sequences belong to the epoch.
        // Test: every test below, under the address sanitizer (leaks).
        drop(unsafe { last.try_into_owned() });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::Bytewise;

    fn tombstone(start: u8, end: u8, lsn: u64) -> RangeTombstone {
        RangeTombstone { start: vec![start], end: vec![end], lsn: Lsn(lsn) }
    }

    #[test]
    fn a_set_answers_as_its_tombstones_would_one_by_one() {
        let set = TombstoneSet::new(Arc::default());
        assert!(set.is_empty());
        let mut all = Vec::new();
        let committed = |slot: u32, _: Lsn| slot.is_multiple_of(2);
        for i in 0..if cfg!(miri) { 12u64 } else { 70 } {
            let (start, end) = ((i * 37 % 200) as u8, (i * 37 % 200 + i * 11 % 50) as u8);
            let batch = (i % 3 == 0).then_some((i % 5) as u32);
            let lsn = 10 + i * 7 % 64 * 2;
            set.add(&Bytewise, tombstone(start, end, lsn), batch);
            all.push((tombstone(start, end, lsn), batch));
            for key in (0..=255u8).step_by(7) {
                for at in [0, 11, 60, 100, u64::MAX] {
                    let expected = all
                        .iter()
                        .filter(|(t, batch)| {
                            t.start[0] <= key
                                && key < t.end[0]
                                && t.lsn < Lsn(at)
                                && batch.is_none_or(|slot| committed(slot, t.lsn))
                        })
                        .map(|(t, _)| t.lsn)
                        .max();
                    assert_eq!(set.newest_covering(&Bytewise, &[key], Lsn(at), committed), expected);
                }
            }
            let known = |at: u64| {
                let tombstones = all.iter().map(|(t, _)| t.clone()).filter(|t| t.lsn < Lsn(at));
                Tombstones::build(&Bytewise, tombstones.collect())
            };
            assert_eq!(set.below(&Bytewise, Lsn(80)), known(80));
            assert_eq!(set.below(&Bytewise, Lsn::MAX), known(u64::MAX));
        }
        assert!(!set.is_empty());
        assert!(set.bytes() > 0);
    }

    #[test]
    fn a_tombstone_that_covers_nothing_leaves_the_set_empty() {
        let set = TombstoneSet::new(Arc::default());
        set.add(&Bytewise, tombstone(5, 5, 1), None);
        set.add(&Bytewise, tombstone(6, 5, 2), None);
        assert!(set.is_empty());
        assert_eq!(set.bytes(), 0);
    }

    #[test]
    fn a_reader_outlives_what_is_added_meanwhile() {
        let set = TombstoneSet::new(Arc::default());
        for lsn in 1..6 {
            set.add(&Bytewise, tombstone(0, 10, lsn), Some(0));
        }
        let asked = std::cell::Cell::new(0u64);
        // Each question comes while the reader is inside the runs; the answer replaces them all.
        let lsn = set.newest_covering(&Bytewise, &[5], Lsn::MAX, |_, lsn| {
            asked.set(asked.get() + 1);
            for more in 0..20 {
                set.add(&Bytewise, tombstone(0, 10, 100 * asked.get() + more), None);
            }
            lsn == Lsn(1)
        });
        assert_eq!(lsn, Some(Lsn(1)), "what is added meanwhile is not seen");
        assert_eq!(asked.get(), 5);
        assert_eq!(set.newest_covering(&Bytewise, &[5], Lsn::MAX, |_, _| true), Some(Lsn(519)));
    }

    #[test]
    fn n_tombstones_make_few_runs() {
        let set = TombstoneSet::new(Arc::default());
        for i in 0..100 {
            set.add(&Bytewise, tombstone(i, i + 1, u64::from(i)), None);
            let runs = set.read(<[_]>::len);
            assert!(runs.is_some_and(|runs| runs <= 1 + (i + 1).ilog2() as usize), "{runs:?} after {i}");
        }
    }

    #[test]
    fn readers_see_every_tombstone_while_others_are_added() {
        let set = TombstoneSet::new(Arc::default());
        let count = if cfg!(miri) { 8 } else { 200u8 };
        let added = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let known = added.load(Ordering::Acquire);
                        for key in 0..known {
                            let lsn = set.newest_covering(&Bytewise, &[key as u8], Lsn::MAX, |_, _| true);
                            assert_eq!(lsn, Some(Lsn(key + 1)));
                        }
                        assert!(set.below(&Bytewise, Lsn::MAX).len() as u64 >= known);
                        if known == u64::from(count) {
                            return;
                        }
                    }
                });
            }
            for key in 0..count {
                set.add(&Bytewise, tombstone(key, key + 1, u64::from(key) + 1), Some(0));
                added.store(u64::from(key) + 1, Ordering::Release);
            }
        });
    }
}
