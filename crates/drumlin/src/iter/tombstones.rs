//! Range tombstones, cut into fragments that do not overlap.
//!
//! Place: an open table holds one [`Tombstones`], a memtable one per run; gets ask them for `newest_covering`, scans, flushes
//! and compactions join several with [`Tombstones::join`].
//!
//! A range tombstone [start, end) at L hides exactly the versions of its keys with LSN < L. Of the tombstones over a
//! fragment the newest of each horizon is kept (`horizons`): nested ranges make as many LSNs per fragment as there are
//! tombstones, and nobody needs them.
//!
//! Invariants:
//! 1. Fragments are sorted by start, do not overlap, and are never empty. Two that touch differ in their LSNs.
//! 2. Each holds its LSNs newest first, without duplicates; of a joined set at most one per horizon.
//! 3. `keys` holds the borders in order, without a gap; a border between two fragments that touch is there once. So equal
//!    sets are equal byte for byte.
//!
//! Complexity, for n tombstones and k horizons that have any: join O(n (log n + k)) time, O(n) memory and at most 2n
//! fragments with k LSNs; look-up O(log n + k).
//! Bytes: three blocks of memory per set, whatever its size.
//! Tests: `tombstones_tests.rs`, against each tombstone asked alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use super::horizons::Horizons;
use crate::key::{Comparator, Lsn};

/// Every key in [start, end) is absent as of `lsn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeTombstone<K = Vec<u8>> {
    /// First key deleted.
    pub start: K,
    /// First key after `start` that is not deleted.
    pub end: K,
    /// Version of the deletion.
    pub lsn: Lsn,
}

/// One fragment of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// First key.
    pub start: &'a [u8],
    /// First key behind it.
    pub end: &'a [u8],
    /// Newest first.
    pub lsns: &'a [Lsn],
}

/// An immutable set of range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    keys: Vec<u8>,
    fragments: Vec<Cut>,
    lsns: Vec<Lsn>,
}

/// A fragment: where in `keys` and `lsns` its parts lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    start: Range<usize>,
    end: Range<usize>,
    lsns: Range<usize>,
}

impl Tombstones {
    /// No tombstones.
    pub const EMPTY: Tombstones = Tombstones { keys: Vec::new(), fragments: Vec::new(), lsns: Vec::new() };

    /// Cuts `tombstones` (in any order, overlapping as they like) into fragments and keeps of each the newest LSN of every
    /// horizon. Those that cover nothing, and those that no read sees, are dropped.
    pub fn build(
        comparator: &dyn Comparator,
        mut tombstones: Vec<RangeTombstone<&[u8]>>,
        horizons: &Horizons,
    ) -> Tombstones {
        tombstones.retain(|t| horizons.sees(t.lsn) && comparator.compare(t.start, t.end).is_lt());
        tombstones.sort_by(|a, b| comparator.compare(a.start, b.start));
        let mut borders: Vec<&[u8]> = Vec::with_capacity(2 * tombstones.len());
        borders.extend(tombstones.iter().map(|t| t.start));
        borders.extend(tombstones.iter().map(|t| t.end));
        borders.sort_by(|a, b| comparator.compare(a, b));
        borders.dedup_by(|a, b| comparator.compare(a, b).is_eq());
        // The horizons that have any, newest first; each with those that are open, newest on top.
        let mut numbers: Vec<usize> = tombstones.iter().map(|t| horizons.of(t.lsn)).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.dedup();
        let mut open: Vec<BinaryHeap<(Lsn, usize)>> = numbers.iter().map(|_| BinaryHeap::new()).collect();

        let mut set = Tombstones::EMPTY;
        let mut lsns: Vec<Lsn> = Vec::new();
        let mut upcoming = tombstones.iter().peekable();
        for (at, pair) in borders.windows(2).enumerate() {
            while let Some(t) = upcoming.next_if(|t| comparator.compare(t.start, pair[0]).is_le()) {
                let number = horizons.of(t.lsn);
                let end = borders.partition_point(|border| comparator.compare(border, t.end).is_lt());
                open[numbers.partition_point(|&n| n > number)].push((t.lsn, end));
            }
            lsns.clear();
            for tombstones in &mut open {
                while tombstones.peek().is_some_and(|&(_, end)| end <= at) {
                    tombstones.pop();
                }
                lsns.extend(tombstones.peek().map(|&(lsn, _)| lsn));
            }
            set.push(pair[0], pair[1], &lsns);
        }
        set.shrink();
        set
    }

    /// Several sets as one, as [`Tombstones::build`] makes it: what of them overlaps [start, end]; `None` is unbounded.
    pub fn join(
        comparator: &dyn Comparator,
        sets: &[Arc<Tombstones>],
        horizons: &Horizons,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
    ) -> Tombstones {
        let mut all = Vec::new();
        for set in sets {
            let first = start.map_or(0, |start| set.first_behind(comparator, start));
            for fragment in (first..set.fragments.len()).map(|n| set.fragment(n)) {
                if end.is_some_and(|end| comparator.compare(fragment.start, end).is_gt()) {
                    break;
                }
                let mut previous = None;
                for &lsn in fragment.lsns {
                    let number = Some(horizons.of(lsn));
                    if std::mem::replace(&mut previous, number) != number {
                        all.push(RangeTombstone { start: fragment.start, end: fragment.end, lsn });
                    }
                }
            }
        }
        Tombstones::build(comparator, all, horizons)
    }

    /// Adds a fragment behind all others; it is joined to the last one if they touch and agree, and left out if it has
    /// no LSN.
    pub(crate) fn push(&mut self, start: &[u8], end: &[u8], lsns: &[Lsn]) {
        if lsns.is_empty() {
            return;
        }
        let touches = self.fragments.last().is_some_and(|last| self.keys[last.end.clone()] == *start);
        match self.fragments.last_mut() {
            Some(last) if touches && self.lsns[last.lsns.clone()] == *lsns => {
                self.keys.truncate(last.end.start);
                self.keys.extend_from_slice(end);
                last.end.end = self.keys.len();
                return;
            }
            _ => {}
        }
        let start = match self.fragments.last() {
            Some(last) if touches => last.end.clone(),
            _ => {
                self.keys.extend_from_slice(start);
                self.keys.len() - start.len()..self.keys.len()
            }
        };
        self.keys.extend_from_slice(end);
        self.lsns.extend_from_slice(lsns);
        self.fragments.push(Cut {
            start,
            end: self.keys.len() - end.len()..self.keys.len(),
            lsns: self.lsns.len() - lsns.len()..self.lsns.len(),
        });
    }

    /// Gives back what was allocated ahead.
    pub(crate) fn shrink(&mut self) {
        self.keys.shrink_to_fit();
        self.fragments.shrink_to_fit();
        self.lsns.shrink_to_fit();
    }

    /// Makes `lsn` the version of all. For a set whose tombstones have one version among them.
    pub(crate) fn set_lsn(&mut self, lsn: Lsn) {
        debug_assert_eq!(self.lsns.len(), self.fragments.len());
        self.lsns.fill(lsn);
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Number of (fragment, LSN) pairs.
    pub fn len(&self) -> usize {
        self.lsns.len()
    }

    /// Number of fragments.
    pub fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// The `n`-th fragment, by key.
    pub fn fragment(&self, n: usize) -> Fragment<'_> {
        let cut = &self.fragments[n];
        Fragment {
            start: &self.keys[cut.start.clone()],
            end: &self.keys[cut.end.clone()],
            lsns: &self.lsns[cut.lsns.clone()],
        }
    }

    /// The first fragment that ends behind `key`; it may start behind it too, or not be there. O(log n).
    pub fn first_behind(&self, comparator: &dyn Comparator, key: &[u8]) -> usize {
        self.fragments
            .partition_point(|cut| comparator.compare(&self.keys[cut.end.clone()], key) != Ordering::Greater)
    }

    /// The newest tombstone with LSN < `at` that covers `key`.
    pub fn newest_covering(&self, comparator: &dyn Comparator, key: &[u8], at: Lsn) -> Option<Lsn> {
        let first = self.first_behind(comparator, key);
        let fragment = (first < self.fragments.len()).then(|| self.fragment(first))?;
        if comparator.compare(fragment.start, key) == Ordering::Greater {
            return None;
        }
        fragment.lsns.iter().copied().find(|&lsn| lsn < at)
    }

    /// Every fragment once per LSN, sorted by start, newest first.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone<&[u8]>> + '_ {
        (0..self.fragments.len()).flat_map(|n| {
            let Fragment { start, end, lsns } = self.fragment(n);
            lsns.iter().map(move |&lsn| RangeTombstone { start, end, lsn })
        })
    }

    /// Bytes held on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        self.keys.len() + self.fragments.len() * size_of::<Cut>() + self.lsns.len() * size_of::<Lsn>()
    }

    /// Bytes that a join of `sets` takes at most, while it is made and after, about.
    pub(crate) fn join_bytes(sets: &[Arc<Tombstones>]) -> usize {
        let pairs: usize = sets.iter().map(|set| set.len()).sum();
        let held: usize = sets.iter().map(|set| set.heap_bytes()).sum();
        2 * held
            + pairs
                * (size_of::<RangeTombstone<&[u8]>>() + 2 * size_of::<&[u8]>() + size_of::<(Lsn, usize)>())
    }
}

#[cfg(test)]
#[path = "tombstones_tests.rs"]
mod tests;
