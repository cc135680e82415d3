//! Range tombstones, cut into fragments that do not overlap.
//!
//! Place: an open table holds one [`Tombstones`], a memtable gives one out for a bound; gets ask tables for
//! `newest_covering`, scans, flushes and compactions join several with [`Tombstones::build`].
//!
//! Invariants: fragments are sorted by start, do not overlap, and are never empty;
//! each holds its LSNs newest first, without duplicates.
//!
//! A range tombstone [start, end) at L hides exactly the versions of its keys with LSN < L.
//! Complexity: build O(n log n + fragments x depth), look-up O(log n + depth).

use std::cmp::Ordering;

use crate::key::{Comparator, Lsn};

/// Every key in [start, end) is absent as of `lsn`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First key deleted.
    pub start: Vec<u8>,
    /// First key after `start` that is not deleted.
    pub end: Vec<u8>,
    /// Version of the deletion.
    pub lsn: Lsn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fragment {
    start: Vec<u8>,
    end: Vec<u8>,
    lsns: Vec<Lsn>,
}

/// An immutable set of range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    fragments: Vec<Fragment>,
}

impl Tombstones {
    /// No tombstones.
    pub const EMPTY: Tombstones = Tombstones { fragments: Vec::new() };

    /// Cuts `tombstones` (in any order, overlapping as they like) into fragments.
    /// Those with start ≥ end cover nothing and are dropped.
    pub fn build(comparator: &dyn Comparator, mut tombstones: Vec<RangeTombstone>) -> Tombstones {
        tombstones.retain(|t| comparator.compare(&t.start, &t.end) == Ordering::Less);
        if tombstones.is_empty() {
            return Tombstones::EMPTY;
        }
        let mut bounds: Vec<Vec<u8>> =
            tombstones.iter().flat_map(|t| [t.start.clone(), t.end.clone()]).collect();
        bounds.sort_by(|a, b| comparator.compare(a, b));
        bounds.dedup_by(|a, b| comparator.compare(a, b) == Ordering::Equal);
        tombstones.sort_by(|a, b| comparator.compare(&a.start, &b.start));

        let mut fragments: Vec<Fragment> = Vec::with_capacity(bounds.len());
        let mut open: Vec<RangeTombstone> = Vec::new();
        let mut upcoming = tombstones.into_iter().peekable();
        for pair in bounds.windows(2) {
            let (start, end) = (&pair[0], &pair[1]);
            open.retain(|t| comparator.compare(&t.end, start) == Ordering::Greater);
            while upcoming.peek().is_some_and(|t| comparator.compare(&t.start, start) != Ordering::Greater) {
                open.extend(upcoming.next());
            }
            if open.is_empty() {
                continue;
            }
            let mut lsns: Vec<Lsn> = open.iter().map(|t| t.lsn).collect();
            lsns.sort_unstable_by(|a, b| b.cmp(a));
            lsns.dedup();
            match fragments.last_mut() {
                Some(last) if last.lsns == lsns && last.end == *start => last.end.clone_from(end),
                _ => fragments.push(Fragment { start: start.clone(), end: end.clone(), lsns }),
            }
        }
        Tombstones { fragments }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Number of (fragment, LSN) pairs.
    pub fn len(&self) -> usize {
        self.fragments.iter().map(|f| f.lsns.len()).sum()
    }

    /// The newest tombstone with LSN < `at` that covers `key`.
    pub fn newest_covering(&self, comparator: &dyn Comparator, key: &[u8], at: Lsn) -> Option<Lsn> {
        let after =
            self.fragments.partition_point(|f| comparator.compare(&f.start, key) != Ordering::Greater);
        let fragment = self.fragments[..after].last()?;
        if comparator.compare(key, &fragment.end) != Ordering::Less {
            return None;
        }
        fragment.lsns.iter().copied().find(|&lsn| lsn < at)
    }

    /// Every fragment once per LSN, sorted by start, newest first.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|f| {
            f.lsns.iter().map(|&lsn| RangeTombstone { start: f.start.clone(), end: f.end.clone(), lsn })
        })
    }

    /// The part of the set within [start, end); `None` is unbounded.
    #[cfg(test)]
    pub fn clipped(
        &self,
        comparator: &dyn Comparator,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Tombstones {
        let tombstones = self.iter().map(|mut t| {
            if let Some(start) = start.filter(|s| comparator.compare(&t.start, s) == Ordering::Less) {
                t.start = start.to_vec();
            }
            if let Some(end) = end.filter(|e| comparator.compare(&t.end, e) == Ordering::Greater) {
                t.end = end.to_vec();
            }
            t
        });
        Tombstones::build(comparator, tombstones.collect())
    }

    /// Bytes held on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        self.fragments
            .iter()
            .map(|f| size_of::<Fragment>() + f.start.len() + f.end.len() + f.lsns.len() * size_of::<Lsn>())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Bytewise;

    fn tombstone(start: &str, end: &str, lsn: u64) -> RangeTombstone {
        RangeTombstone { start: start.into(), end: end.into(), lsn: Lsn(lsn) }
    }

    #[test]
    fn overlapping_tombstones_answer_as_each_would_alone() {
        let all = vec![
            tombstone("b", "h", 5),
            tombstone("d", "f", 9),
            tombstone("a", "c", 2),
            tombstone("f", "z", 3),
        ];
        let set = Tombstones::build(&Bytewise, all.clone());
        for key in ["a", "b", "bb", "c", "d", "e", "f", "g", "h", "y", "z", "zz", ""] {
            for at in 0..12 {
                let expected = all
                    .iter()
                    .filter(|t| t.start.as_slice() <= key.as_bytes() && key.as_bytes() < t.end.as_slice())
                    .map(|t| t.lsn)
                    .filter(|&l| l < Lsn(at))
                    .max();
                assert_eq!(
                    set.newest_covering(&Bytewise, key.as_bytes(), Lsn(at)),
                    expected,
                    "{key} at {at}"
                );
            }
        }
        assert_eq!(Tombstones::build(&Bytewise, set.iter().collect()), set, "building again changes nothing");
    }

    #[test]
    fn clipping_keeps_the_inside_and_drops_the_rest() {
        let set = Tombstones::build(&Bytewise, vec![tombstone("b", "h", 5), tombstone("d", "f", 9)]);
        let clipped = set.clipped(&Bytewise, Some(b"c"), Some(b"e"));
        for (key, expected) in [("b", None), ("c", Some(5)), ("d", Some(9)), ("e", None), ("g", None)] {
            assert_eq!(
                clipped.newest_covering(&Bytewise, key.as_bytes(), Lsn::MAX),
                expected.map(Lsn),
                "{key}"
            );
        }
    }

    #[test]
    fn empty_ranges_cover_nothing() {
        assert!(
            Tombstones::build(&Bytewise, vec![tombstone("c", "c", 1), tombstone("d", "a", 2)]).is_empty()
        );
    }
}
