//! What of the inputs of a flush or compaction must be kept, version by version.
//!
//! Place: `job` and `flush` ask a [`Retention`]'s [`Walk`] for each version of the merged inputs, and the
//! [`Retention`] itself for the range tombstones of each output. Pure: no file, no clock, no lock.
//!
//! A read at S sees of a key the newest version v with LSN < S, unless a range tombstone T that covers the
//! key has v < T < S. The *horizon* of an LSN (`iter::Horizons`) is the smallest S of snapshots ∪ {MAX} above it. Reads
//! happen at those S only, since whoever reads at another bound holds the tables it started with, or reads above every LSN
//! in them.
//!
//! Invariants:
//! 1. A version is kept iff it is the newest of its key in its horizon, and no tombstone of the same horizon
//!    that covers the key is newer. (The newest version below a later S is in a later horizon or is this
//!    one; and what hides it at its own S hides it at every later S.)
//! 2. Of the tombstones that cover a key the newest of each horizon is kept. The others are left out from the start, when
//!    the tombstones of the inputs are joined.
//! 3. A delete, or a range tombstone, is dropped beyond that only if it is in the lowest horizon (all that it hides
//!    among the inputs is dropped with it) and no deeper level may hold its key, or any key of its fragment.
//! 4. Hence at every S of snapshots ∪ {MAX}, every key reads as before, whatever lies above or below, given that
//!    whatever lies below is older and within `deeper`.
//!
//! The caller promises: the walk visits versions in internal order, each once; whatever may hold an older version
//! of a key of the inputs is either an input or within `deeper`; every snapshot that is registered later
//! reads above all LSNs of the inputs.
//!
//! Complexity: a version costs one key comparison, and O(log snapshots) if there are any; fragments and
//! deeper spans are passed once. No allocation per version. n tombstones take O(n (1 + snapshots)) memory.
//! Concurrency: a `Retention` is shared by the threads of a job; a `Walk` belongs to one.
//! Origin: cLSM §3.2.1 (keep what some active snapshot reads); range tombstones and the rule for deletes are ours:
//! CooLSM's wording of the rule is inverted, sLSM has no snapshots.
//! Tests: `retain_tests.rs` (every small history, and random ones over several levels).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::iter::{Horizons, Tombstones};
use crate::key::{ComparatorRef, Kind, Lsn};
use crate::layout::KeySpans;

/// What becomes of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some read needs it.
    Keep,
    /// A newer version of its key serves every read that could see it.
    Shadowed,
    /// A range tombstone hides it from every read.
    Covered,
    /// A delete with nothing left to hide.
    Spent,
}

/// The rules of one job: its snapshots, its tombstones, and what lies below it.
pub struct Retention {
    comparator: ComparatorRef,
    horizons: Horizons,
    tombstones: Tombstones,
    deeper: KeySpans,
}

impl Retention {
    /// `snapshots`: the bounds of all live snapshots, in any order. `tombstones`: of all inputs together.
    /// `deeper`: where data that is older than the inputs, and no input, may lie.
    pub fn new(
        comparator: ComparatorRef,
        snapshots: Vec<Lsn>,
        tombstones: &[Arc<Tombstones>],
        deeper: KeySpans,
    ) -> Retention {
        let horizons = Horizons::of_snapshots(snapshots);
        let tombstones = Tombstones::join(&*comparator, tombstones, &horizons, (None, None));
        Retention { comparator, horizons, tombstones, deeper }
    }

    /// Bytes held for the tombstones, about.
    pub fn heap_bytes(&self) -> usize {
        self.tombstones.heap_bytes()
    }

    /// The smallest S of snapshots ∪ {MAX} above `lsn`, by number; 0 is the lowest horizon.
    #[inline]
    fn horizon(&self, lsn: Lsn) -> usize {
        if self.horizons.is_one() { 0 } else { self.horizons.of(lsn) }
    }

    /// Starts at the first key not before `start`.
    pub fn walk(&self, start: Option<&[u8]>) -> Walk<'_> {
        let comparator = &*self.comparator;
        Walk {
            rules: self,
            started: false,
            key: Vec::new(),
            horizon: 0,
            is_first: false,
            fragment: start.map_or(0, |s| self.tombstones.first_behind(comparator, s)),
            covered: false,
            deeper: start.map_or(0, |s| self.deeper.first_from(comparator, s)),
        }
    }

    /// The tombstones to be kept, within [start, end); `None` is unbounded.
    pub fn tombstones(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Tombstones {
        let comparator = &*self.comparator;
        let mut kept = Tombstones::EMPTY;
        let first = start.map_or(0, |s| self.tombstones.first_behind(comparator, s));
        for fragment in (first..self.tombstones.fragments()).map(|n| self.tombstones.fragment(n)) {
            if end.is_some_and(|e| comparator.compare(fragment.start, e) != Ordering::Less) {
                break;
            }
            let first = start.filter(|s| comparator.compare(fragment.start, s) == Ordering::Less);
            let last = end.filter(|e| comparator.compare(fragment.end, e) == Ordering::Greater);
            let (first, last) = (first.unwrap_or(fragment.start), last.unwrap_or(fragment.end));
            kept.push(first, last, self.needed_of(fragment.lsns, first, last));
        }
        kept.shrink();
        kept
    }

    /// What of `lsns`, newest first, must be kept of a fragment [start, end).
    fn needed_of<'a>(&self, lsns: &'a [Lsn], start: &[u8], end: &[u8]) -> &'a [Lsn] {
        match lsns.split_last() {
            Some((&oldest, newer))
                if self.horizon(oldest) == 0
                    && !self.deeper.overlaps_range(&*self.comparator, start, end) =>
            {
                newer
            }
            _ => lsns,
        }
    }

    /// True if no read can see any version within [start, end] with LSN in [min_lsn, max_lsn], because
    /// tombstones of the inputs hide them all. Then a table of that span need not be read.
    pub fn hides(&self, start: &[u8], end: &[u8], min_lsn: Lsn, max_lsn: Lsn) -> bool {
        let comparator = &*self.comparator;
        let horizon = self.horizon(min_lsn);
        let first = self.tombstones.first_behind(comparator, start);
        let mut reached = start;
        for fragment in (first..self.tombstones.fragments()).map(|n| self.tombstones.fragment(n)) {
            if comparator.compare(fragment.start, reached) == Ordering::Greater
                || !fragment.lsns.iter().any(|&lsn| lsn > max_lsn && self.horizon(lsn) == horizon)
            {
                return false;
            }
            if comparator.compare(end, fragment.end) == Ordering::Less {
                return true;
            }
            reached = fragment.end;
        }
        false
    }
}

/// One pass over versions in internal order.
pub struct Walk<'a> {
    rules: &'a Retention,
    /// True once a version was seen; `key` and `horizon` are the last one's.
    started: bool,
    key: Vec<u8>,
    horizon: usize,
    is_first: bool,
    /// The first fragment that does not end before `key`, and whether it covers `key`.
    fragment: usize,
    covered: bool,
    /// The first deeper span that does not end before the last delete's key.
    deeper: usize,
}

impl Walk<'_> {
    /// Decides on the next version.
    #[inline]
    pub fn judge(&mut self, key: &[u8], lsn: Lsn, kind: Kind) -> Verdict {
        let horizon = self.rules.horizon(lsn);
        self.is_first = !self.started || self.key != key;
        if !self.is_first {
            if horizon == self.horizon {
                return Verdict::Shadowed;
            }
        } else {
            self.enter(key);
        }
        self.horizon = horizon;
        if self.covered && self.is_hidden(lsn) {
            return Verdict::Covered;
        }
        if kind == Kind::Delete && horizon == 0 && !self.lies_deeper() {
            return Verdict::Spent;
        }
        Verdict::Keep
    }

    /// True if the version judged last was the first of its key.
    #[inline]
    pub fn is_first_of_key(&self) -> bool {
        self.is_first
    }

    fn enter(&mut self, key: &[u8]) {
        let comparator = &*self.rules.comparator;
        debug_assert!(!self.started || comparator.compare(&self.key, key) == Ordering::Less, "keys ascend");
        self.started = true;
        self.key.clear();
        self.key.extend_from_slice(key);
        let tombstones = &self.rules.tombstones;
        while self.fragment < tombstones.fragments() {
            if comparator.compare(tombstones.fragment(self.fragment).end, key) == Ordering::Greater {
                break;
            }
            self.fragment += 1;
        }
        self.covered = self.fragment < tombstones.fragments()
            && comparator.compare(tombstones.fragment(self.fragment).start, key) != Ordering::Greater;
    }

    /// True if a tombstone over the current key is newer than `lsn` and of its horizon.
    #[cold]
    fn is_hidden(&self, lsn: Lsn) -> bool {
        let lsns = self.rules.tombstones.fragment(self.fragment).lsns;
        // The oldest one that is newer than `lsn`: if any is in the horizon, this one is.
        let newer = lsns.partition_point(|&t| t > lsn);
        newer > 0 && self.rules.horizon(lsns[newer - 1]) == self.horizon
    }

    /// True if a deeper level may hold the current key.
    fn lies_deeper(&mut self) -> bool {
        let comparator = &*self.rules.comparator;
        self.rules.deeper.contains_next(comparator, &mut self.deeper, &self.key)
    }
}

#[cfg(test)]
#[path = "retain_tests.rs"]
mod tests;
