//! Tests of `tombstones`: sets against each of their tombstones asked alone, and what many of them cost.

use super::*;
use crate::dice::Dice;
use crate::key::Bytewise;

impl RangeTombstone {
    fn borrowed(&self) -> RangeTombstone<&[u8]> {
        RangeTombstone { start: &self.start, end: &self.end, lsn: self.lsn }
    }
}

impl RangeTombstone<&[u8]> {
    /// The same, with keys of its own.
    pub(crate) fn owned(self) -> RangeTombstone {
        RangeTombstone { start: self.start.to_vec(), end: self.end.to_vec(), lsn: self.lsn }
    }
}

impl Tombstones {
    /// Every LSN of every tombstone, for tests: a horizon for each.
    pub(crate) fn of_all(comparator: &dyn Comparator, tombstones: &[RangeTombstone]) -> Tombstones {
        let bounds = tombstones.iter().map(|t| Lsn(t.lsn.0 + 1)).collect();
        let tombstones = tombstones.iter().map(RangeTombstone::borrowed).collect();
        Tombstones::build(comparator, tombstones, &Horizons::of_snapshots(bounds))
    }

    /// The part of the set within [start, end); `None` is unbounded.
    pub(crate) fn clipped(
        &self,
        comparator: &dyn Comparator,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Tombstones {
        let mut part = Tombstones::EMPTY;
        for fragment in (0..self.fragments()).map(|n| self.fragment(n)) {
            let first =
                start.filter(|s| comparator.compare(fragment.start, s).is_lt()).unwrap_or(fragment.start);
            let last = end.filter(|e| comparator.compare(fragment.end, e).is_gt()).unwrap_or(fragment.end);
            if comparator.compare(first, last).is_lt() {
                part.push(first, last, fragment.lsns);
            }
        }
        part
    }
}

fn tombstone(start: &str, end: &str, lsn: u64) -> RangeTombstone {
    RangeTombstone { start: start.into(), end: end.into(), lsn: Lsn(lsn) }
}

/// What the tombstones say one by one.
fn newest(all: &[RangeTombstone], key: &[u8], at: u64) -> Option<Lsn> {
    let covers = |t: &&RangeTombstone| t.start.as_slice() <= key && key < t.end.as_slice() && t.lsn < Lsn(at);
    all.iter().filter(covers).map(|t| t.lsn).max()
}

fn check_invariants(set: &Tombstones) {
    for n in 0..set.fragments() {
        let fragment = set.fragment(n);
        assert!(fragment.start < fragment.end && !fragment.lsns.is_empty());
        assert!(fragment.lsns.windows(2).all(|pair| pair[0] > pair[1]), "newest first: {fragment:?}");
        if n > 0 {
            let before = set.fragment(n - 1);
            assert!(before.end <= fragment.start);
            assert!(before.end < fragment.start || before.lsns != fragment.lsns, "touch and agree: {set:?}");
        }
    }
}

#[test]
fn overlapping_tombstones_answer_as_each_would_alone() {
    let all =
        vec![tombstone("b", "h", 5), tombstone("d", "f", 9), tombstone("a", "c", 2), tombstone("f", "z", 3)];
    let set = Tombstones::of_all(&Bytewise, &all);
    check_invariants(&set);
    for key in ["a", "b", "bb", "c", "d", "e", "f", "g", "h", "y", "z", "zz", ""] {
        for at in 0..12 {
            let found = set.newest_covering(&Bytewise, key.as_bytes(), Lsn(at));
            assert_eq!(found, newest(&all, key.as_bytes(), at), "{key} at {at}");
        }
    }
    let again: Vec<RangeTombstone> = set.iter().map(RangeTombstone::owned).collect();
    assert_eq!(Tombstones::of_all(&Bytewise, &again), set, "building again changes nothing");
}

#[test]
fn a_joined_set_answers_every_read_as_its_tombstones_would_and_keeps_one_lsn_per_horizon() {
    let key = |n: u64| vec![b'k', n as u8];
    let mut reduced = 0;
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let keys = 2 + dice.below(12);
        let all: Vec<RangeTombstone> = (0..dice.below(30))
            .map(|_| {
                let start = dice.below(keys);
                let end = if dice.below(4) == 0 { keys } else { start + dice.below(4) };
                let start = if dice.below(4) == 0 { 0 } else { start };
                RangeTombstone { start: key(start), end: key(end), lsn: Lsn(1 + dice.below(40)) }
            })
            .collect();
        // In up to four sets that were reduced before, for more reads than there are now.
        let snapshots: Vec<u64> = (0..dice.below(4)).map(|_| dice.below(45)).collect();
        let mut earlier: Vec<Lsn> = snapshots.iter().map(|&s| Lsn(s)).collect();
        let horizons = Horizons::of_snapshots(earlier.clone());
        earlier.push(Lsn(dice.below(45)));
        let sets: Vec<Arc<Tombstones>> = all
            .chunks(8)
            .map(|part| {
                let part = part.iter().map(RangeTombstone::borrowed).collect();
                Arc::new(Tombstones::build(&Bytewise, part, &Horizons::of_snapshots(earlier.clone())))
            })
            .collect();
        let joined = Tombstones::join(&Bytewise, &sets, &horizons, (None, None));
        check_invariants(&joined);
        assert!(joined.fragments() <= (2 * all.len()).saturating_sub(1));
        for n in 0..joined.fragments() {
            let numbers: Vec<usize> = joined.fragment(n).lsns.iter().map(|&lsn| horizons.of(lsn)).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] > pair[1]), "one per horizon: {numbers:?}");
        }
        reduced += Tombstones::of_all(&Bytewise, &all).len() - joined.len();
        let reads: Vec<u64> = snapshots.iter().copied().chain([u64::MAX]).collect();
        for n in 0..=keys {
            for &at in &reads {
                let found = joined.newest_covering(&Bytewise, &key(n), Lsn(at));
                assert_eq!(found, newest(&all, &key(n), at), "seed {seed}, key {n} at {at}");
            }
        }
        // A scan: one read, of a part of the keys.
        let at = reads[0];
        let (start, end) = (dice.below(keys), dice.below(keys));
        let bounds = (Some(key(start)), Some(key(end)));
        let one = Horizons::at(Lsn(at));
        let seen = Tombstones::join(&Bytewise, &sets, &one, (bounds.0.as_deref(), bounds.1.as_deref()));
        check_invariants(&seen);
        assert_eq!(seen.len(), seen.fragments(), "one LSN each");
        for n in start..=end {
            let found = seen.newest_covering(&Bytewise, &key(n), Lsn::MAX);
            assert_eq!(found, newest(&all, &key(n), at), "seed {seed}, key {n} of {start} to {end} at {at}");
        }
    }
    assert!(reduced > 1000, "the test must see LSNs go, but saw {reduced}");
}

#[test]
fn clipping_keeps_the_inside_and_drops_the_rest() {
    let set = Tombstones::of_all(&Bytewise, &[tombstone("b", "h", 5), tombstone("d", "f", 9)]);
    let clipped = set.clipped(&Bytewise, Some(b"c"), Some(b"e"));
    for (key, expected) in [("b", None), ("c", Some(5)), ("d", Some(9)), ("e", None), ("g", None)] {
        assert_eq!(clipped.newest_covering(&Bytewise, key.as_bytes(), Lsn::MAX), expected.map(Lsn), "{key}");
    }
}

#[test]
fn empty_ranges_cover_nothing() {
    assert!(Tombstones::of_all(&Bytewise, &[tombstone("c", "c", 1), tombstone("d", "a", 2)]).is_empty());
}
