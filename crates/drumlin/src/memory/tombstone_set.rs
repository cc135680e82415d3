//! The range tombstones of a memtable: few, added one write at a time, asked by every get.
//!
//! Place: inside `memtable`. It calls `tombstone_run`, of which it holds a sequence.
//!
//! The ranges of a write are cut into a run before its locks are taken; to publish them, under every key lock, is to put
//! that run behind the others. Runs are joined by [`TombstoneSet::join`], when the locks are free again, so that each is
//! more than twice as large as the next: n ranges make O(log n) runs, and each is copied O(log n) times. Either publishes
//! a new sequence; the old is given to the epoch.
//!
//! Invariants:
//! 1. A published sequence never changes; a reader sees all additions up to some moment.
//! 2. A write is in exactly one run of a sequence, and the runs are in the order of publication.
//! 3. What is not committed is not joined: a reader asks each such write whether its batch is committed.
//!
//! Concurrency: publishing takes turns (a mutex that is held while O(log n) references are copied). Who joins holds it
//! only to put the new run in the place of the old ones, and starts again if they are gone by then: a thread that stops
//! while it joins stops nobody.
//! Readers are lock-free and write nothing shared; while there is no tombstone they do one load.
//! - `published`: Release by `publish` and `join`, Acquire by readers.
//!
//! Complexity: a get asks the newest run first and stops at runs that hold nothing newer than what it has found. Range
//! deletes exclude each other, so LSNs ascend: mostly one run is asked. In any other order the answers are the same, but
//! a get may ask all runs and parts.
//! Bytes: see `tombstone_run`; nested ranges take no more than others.
//!
//! Origin: Bentley and Saxe's logarithmic method, for tombstones.
//! Tests: `tombstone_set_tests.rs`, against each tombstone asked alone, and with threads; leaks and early frees by the
//! address sanitizer.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};

use super::tombstone_run::{ReservedRanges, Run};
use crate::budget::Account;
use crate::iter::{Horizons, Tombstones};
use crate::key::{Comparator, Lsn};
use crate::sync::Mutex;

/// A growing set of range tombstones.
pub(super) struct TombstoneSet {
    /// Never empty, once there is one.
    published: Atomic<Vec<Arc<Run>>>,
    publishing: Mutex<()>,
    /// Of the runs of the present sequence.
    bytes: AtomicUsize,
    /// Charged with every run, until it is freed.
    account: Arc<Account>,
}

impl TombstoneSet {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { published: Atomic::null(), publishing: Mutex::new(()), bytes: AtomicUsize::new(0), account }
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

    /// Prepares the ranges of one write. O(n log n).
    pub(super) fn reserve(&self, comparator: &dyn Comparator, ranges: &[(&[u8], &[u8])]) -> ReservedRanges {
        ReservedRanges::new(comparator, &self.account, ranges)
    }

    /// Makes reserved ranges visible as `lsn`; ones that cover nothing are left out. O(ranges + log n).
    pub(super) fn publish(&self, reserved: ReservedRanges, lsn: Lsn, batch: Option<u32>) {
        if reserved.is_empty() {
            return;
        }
        let run = Arc::new(Run::leaf(reserved, lsn, batch));
        let _turn = self.publishing.lock();
        let guard = epoch::pin();
        self.replace(&guard, |runs| {
            runs.push(run);
            true
        });
    }

    /// Joins runs of which all is committed until there are few. To be called when no lock is held. Amortized O(log n)
    /// copies of a range.
    pub(super) fn join(&self, comparator: &dyn Comparator, committed: impl Fn(u32, Lsn) -> bool) {
        while let Some(runs) = self.read(|runs| runs.to_vec()) {
            let Some(due) = due_to_join(&runs, &committed) else { return };
            let joined = Arc::new(Run::joined(comparator, &self.account, &runs[due.clone()]));
            let _turn = self.publishing.lock();
            let guard = epoch::pin();
            self.replace(&guard, |now| {
                let are_there = now.len() >= due.end
                    && runs[due.clone()]
                        .iter()
                        .zip(&now[due.clone()])
                        .all(|(then, now)| Arc::ptr_eq(then, now));
                if are_there {
                    now.splice(due, [joined]);
                }
                are_there
            });
        }
    }

    /// Publishes the runs as `change` leaves them, unless it says no. Only who has the turn may call it.
    fn replace(&self, guard: &Guard, change: impl FnOnce(&mut Vec<Arc<Run>>) -> bool) {
        let old: Shared<'_, Vec<Arc<Run>>> = self.published.load(Ordering::Relaxed, guard);
        // SAFETY: published sequences are valid, and given to the epoch only below, by who has the
        // turn. Test: readers_see_every_tombstone_while_others_are_added.
        let mut runs = unsafe { old.as_ref() }.cloned().unwrap_or_default();
        if !change(&mut runs) {
            return;
        }
        self.bytes.store(runs.iter().map(|run| run.bytes()).sum(), Ordering::Relaxed);
        self.published.store(Owned::new(runs), Ordering::Release);
        if !old.is_null() {
            // SAFETY: no longer reachable, and nobody else gives it away: this thread has the turn.
            // Test: a_reader_outlives_what_is_added_meanwhile, under the address sanitizer.
            unsafe { guard.defer_destroy(old) };
        }
    }

    /// The newest committed tombstone with LSN < `at` that covers `key`. See the module for what it costs.
    pub(super) fn newest_covering(
        &self,
        comparator: &dyn Comparator,
        key: &[u8],
        at: Lsn,
        committed: impl Fn(u32, Lsn) -> bool,
    ) -> Option<Lsn> {
        let mut best = None;
        self.read(|runs| {
            for run in runs.iter().rev() {
                run.newest_covering(comparator, key, at, &committed, &mut best);
            }
        });
        best
    }

    /// Sets that together hold the newest of each horizon, committed or not; they may hold more. O(log n) if each
    /// horizon's LSNs follow each other.
    pub(super) fn sets(&self, horizons: &Horizons) -> Vec<Arc<Tombstones>> {
        let mut sets = Vec::new();
        self.read(|runs| runs.iter().for_each(|run| run.sets(horizons, &mut sets)));
        sets
    }

    /// Shows the present runs; `None` if there are none.
    fn read<R>(&self, look: impl FnOnce(&[Arc<Run>]) -> R) -> Option<R> {
        if self.is_empty() {
            return None;
        }
        let guard = epoch::pin();
        // SAFETY: a sequence is valid from its publication until after every guard that was pinned
        // while it was reachable. Test: readers_see_every_tombstone_while_others_are_added.
        let runs = unsafe { self.published.load(Ordering::Acquire, &guard).as_ref() };
        runs.map(|runs| look(runs))
    }
}

/// The last committed runs, as far as each is at most twice as large as those behind it together; `None` for one.
fn due_to_join(runs: &[Arc<Run>], committed: &impl Fn(u32, Lsn) -> bool) -> Option<Range<usize>> {
    let end = runs.iter().position(|run| !run.is_committed(committed)).unwrap_or(runs.len());
    let mut start = end.checked_sub(1)?;
    let mut ranges = runs[start].ranges();
    while start > 0 && runs[start - 1].ranges() <= 2 * ranges {
        start -= 1;
        ranges += runs[start].ranges();
    }
    (end - start > 1).then_some(start..end)
}

impl Drop for TombstoneSet {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.published, Atomic::null());
        // SAFETY: `&mut self`: no reader is left, and earlier sequences belong to the epoch.
        // Test: every test of this file, under the address sanitizer (leaks).
        drop(unsafe { last.try_into_owned() });
    }
}

#[cfg(all(test, not(loom)))]
#[path = "tombstone_set_tests.rs"]
mod tests;
