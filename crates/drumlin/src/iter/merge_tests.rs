//! Tests of `merge`, and [`VecCursor`], a cursor over a list for tests of other modules too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::dice::Dice;
use crate::error::Error;
use crate::key::{Bytewise, bytewise, compare_versions};

/// One version in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub key: Vec<u8>,
    pub lsn: Lsn,
    pub kind: Kind,
    pub value: Vec<u8>,
}

/// An entry with a value that names it.
pub(crate) fn put(key: impl AsRef<[u8]>, lsn: u64) -> Entry {
    let key = key.as_ref().to_vec();
    let value = format!("{}@{lsn}", String::from_utf8_lossy(&key)).into_bytes();
    Entry { key, lsn: Lsn(lsn), kind: Kind::Put, value }
}

/// A cursor over entries in memory; fails once `moves_left` runs out.
pub(crate) struct VecCursor {
    comparator: ComparatorRef,
    entries: Arc<Vec<Entry>>,
    at: Option<usize>,
    pub moves_left: usize,
}

impl VecCursor {
    /// Sorts `entries` into internal order first.
    pub fn new(comparator: ComparatorRef, mut entries: Vec<Entry>) -> VecCursor {
        entries.sort_by(|a, b| compare_versions(&*comparator, (&a.key, a.lsn), (&b.key, b.lsn)));
        VecCursor { comparator, entries: Arc::new(entries), at: None, moves_left: usize::MAX }
    }

    fn moved(&mut self, at: Option<usize>) -> Result<()> {
        if self.moves_left == 0 {
            return Err(Error::corruption("test", 7, "planted"));
        }
        self.moves_left -= 1;
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(())
    }

    fn before(&self, key: &[u8], lsn: Lsn, or_at: bool) -> usize {
        self.entries.partition_point(|e| {
            let order = compare_versions(&*self.comparator, (&e.key, e.lsn), (key, lsn));
            order == Ordering::Less || (or_at && order == Ordering::Equal)
        })
    }
}

impl Cursor for VecCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.moved(Some(0))
    }
    fn seek_last(&mut self) -> Result<()> {
        self.moved(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.moved(Some(self.before(key, lsn, false)))
    }
    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.moved(self.before(key, lsn, true).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        let at = self.at.unwrap();
        self.moved(Some(at + 1))
    }
    fn next_key(&mut self) -> Result<()> {
        let here = &self.entries[self.at.unwrap()].key;
        let at = self.entries.partition_point(|e| self.comparator.compare(&e.key, here).is_le());
        self.moved(Some(at))
    }
    fn prev(&mut self) -> Result<()> {
        let at = self.at.unwrap();
        self.moved(at.checked_sub(1))
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].key
    }
    fn lsn(&self) -> Lsn {
        self.entries[self.at.unwrap()].lsn
    }
    fn kind(&self) -> Kind {
        self.entries[self.at.unwrap()].kind
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].value
    }
}

/// The current entry of any cursor.
pub(crate) fn entry_at(cursor: &impl Cursor) -> Option<Entry> {
    cursor.valid().then(|| Entry {
        key: cursor.key().to_vec(),
        lsn: cursor.lsn(),
        kind: cursor.kind(),
        value: cursor.value().to_vec(),
    })
}

/// Longer keys first, and counts its calls: an order in which no prefix helps.
struct LongestFirst(AtomicU64);

impl Comparator for LongestFirst {
    fn name(&self) -> &str {
        "test.longest-first"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.fetch_add(1, Relaxed);
        b.len().cmp(&a.len()).then_with(|| a.cmp(b))
    }
}

/// Keys around the eight-byte prefix: equal prefixes, zero padding, the empty key.
fn awkward_key(dice: &mut Dice) -> Vec<u8> {
    let long = [
        "",
        "a",
        "a\0",
        "a\0\0\0\0\0\0\0",
        "a\0\0\0\0\0\0\0\0",
        "prefix-8",
        "prefix-8a",
        "prefix-8b",
        "\u{ff}",
    ];
    match dice.below(3) {
        0 => long[dice.below(long.len() as u64) as usize].into(),
        1 => format!("key{}", dice.below(12)).into_bytes(),
        _ => (0..dice.below(11)).map(|_| dice.below(3) as u8 * 127).collect(),
    }
}

#[test]
fn a_merge_walks_as_the_sorted_union_would_in_every_direction() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let comparator: ComparatorRef =
            if seed % 2 == 0 { bytewise() } else { Arc::new(LongestFirst(AtomicU64::new(0))) };
        let child_count = dice.below(8) as usize;
        let mut children = vec![Vec::new(); child_count];
        let mut union: Vec<Entry> = Vec::new();
        let mut duplicates = 0;
        for lsn in 1..dice.below(60) + 1 {
            if child_count == 0 {
                break;
            }
            // Keys of one batch share their LSN.
            let entry = put(awkward_key(&mut dice), lsn / 2);
            if union.contains(&entry) {
                continue;
            }
            let home = dice.below(child_count as u64) as usize;
            children[home].push(entry.clone());
            if dice.below(5) == 0 && home + 1 < child_count {
                // A duplicate in a later child: the earlier child's must win.
                duplicates += 1;
                children[home + 1].push(Entry { value: b"duplicate".into(), ..entry.clone() });
            }
            union.push(entry);
        }
        union.sort_by(|a, b| compare_versions(&*comparator, (&a.key, a.lsn), (&b.key, b.lsn)));
        let cursors = children.into_iter().map(|c| VecCursor::new(comparator.clone(), c)).collect();
        let mut merge = Merge::new(comparator.clone(), cursors);
        assert!(!merge.valid(), "invalid before the first seek");

        merge.seek_first().unwrap();
        for expected in &union {
            assert_eq!(entry_at(&merge).as_ref(), Some(expected), "seed {seed}");
            merge.next().unwrap();
        }
        assert!(!merge.valid());
        assert_eq!(merge.duplicates(), duplicates);
        merge.seek_last().unwrap();
        for expected in union.iter().rev() {
            assert_eq!(entry_at(&merge).as_ref(), Some(expected), "back, seed {seed}");
            merge.prev().unwrap();
        }
        assert!(!merge.valid());

        let mut at: Option<usize> = None;
        for step in 0..200 {
            let (key, lsn) = (awkward_key(&mut dice), Lsn(dice.below(60)));
            let place = |or_at: bool| {
                union.partition_point(|e| {
                    let order = compare_versions(&*comparator, (&e.key, e.lsn), (&key, lsn));
                    order == Ordering::Less || (or_at && order == Ordering::Equal)
                })
            };
            match (dice.below(9), at) {
                (0, _) | (2.., None) => {
                    merge.seek(&key, lsn).unwrap();
                    at = Some(place(false)).filter(|&at| at < union.len());
                }
                (1, _) => {
                    merge.seek_back(&key, lsn).unwrap();
                    at = place(true).checked_sub(1);
                }
                (2, Some(here)) => {
                    merge.next_key().unwrap();
                    let behind = |e: &Entry| comparator.compare(&e.key, &union[here].key).is_gt();
                    at = union.iter().position(behind);
                }
                (3..=4, Some(here)) => {
                    merge.next().unwrap();
                    at = Some(here + 1).filter(|&at| at < union.len());
                }
                (_, Some(here)) => {
                    merge.prev().unwrap();
                    at = here.checked_sub(1);
                }
            }
            assert_eq!(entry_at(&merge).as_ref(), at.map(|at| &union[at]), "seed {seed} step {step}");
        }
    }
}

#[test]
fn every_child_error_comes_out_and_a_seek_mends() {
    let lists = [vec![put("a", 1), put("d", 4)], vec![put("b", 2), put("c", 3), put("e", 5)]];
    for failing in 0..2 {
        for moves in 0..3 {
            let mut cursors: Vec<_> = lists.iter().map(|l| VecCursor::new(bytewise(), l.clone())).collect();
            cursors[failing].moves_left = moves;
            let mut merge = Merge::new(bytewise(), cursors);
            let mut outcome = merge.seek_first();
            while outcome.is_ok() && merge.valid() {
                outcome = merge.next();
            }
            assert!(outcome.unwrap_err().is_corruption(), "child {failing} after {moves} moves");
            assert!(!merge.valid(), "an error leaves no entry to read");
            merge.children[failing].moves_left = usize::MAX;
            merge.seek_first().unwrap();
            assert_eq!(merge.key(), b"a");
        }
    }
}

#[test]
fn a_run_from_one_child_costs_one_comparison_an_entry() {
    let counting = Arc::new(LongestFirst(AtomicU64::new(0)));
    // Child 0 holds 1000 keys that come before the first of seven others, all of one length.
    let mut lists = vec![(0..1000).map(|i| put(format!("a{i:06}"), i + 1)).collect::<Vec<_>>()];
    lists.extend((0..7).map(|c| vec![put(format!("b{c:06}"), 2000 + c)]));
    let cursors = lists.into_iter().map(|l| VecCursor::new(bytewise(), l)).collect();
    let mut merge = Merge::new(counting.clone() as ComparatorRef, cursors);
    merge.seek_first().unwrap();
    counting.0.store(0, Relaxed);
    for _ in 0..999 {
        merge.next().unwrap();
    }
    assert_eq!(merge.key(), b"a000999");
    assert_eq!(counting.0.load(Relaxed), 999);
}

#[test]
fn the_prefix_orders_as_the_keys_do_wherever_two_differ() {
    let mut dice = Dice(5);
    for _ in 0..20_000 {
        let (a, b) = (awkward_key(&mut dice), awkward_key(&mut dice));
        let (x, y) = (key_prefix(&a), key_prefix(&b));
        assert!(x == y || x.cmp(&y) == Bytewise.compare(&a, &b), "{a:?} {b:?}");
    }
}
