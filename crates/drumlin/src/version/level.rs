//! A level: its tables, and how the one that may have a key is found.
//!
//! Place: [`super::Levels`] has one for each level in use; cursors over a level share it.
//!
//! Invariants:
//! 1. But for level 0, tables ascend and do not overlap.
//! 2. `heads` are the first eight bytes in which the tables' smallest and largest keys may differ, in the order of the tables.
//!
//! Under the order of bytes a search looks at heads, which lie side by side, and mostly at no table: else each step of it would wait for a
//! table and for its key, wherever they are. It passes over a level that ends before the key, or begins behind it, without a look into it.
//! Where heads are as far from one another as one would guess, as those of places are, it begins at the guess; else it halves them.
//!
//! Concurrency: a value, shared by count. Complexity: made in O(tables), searched in O(log tables).
//! Memory: 24 bytes a table. Tests: below, `levels_tests`.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::key::{Comparator, Side, behind_prefix, first_where_not, key_prefix, shared_prefix};
use crate::table::TableHandle;

/// A guess may be wrong by so many tables.
const STEPS_MAX: usize = 2;

/// See the module.
#[derive(Clone)]
pub struct Level {
    inner: Arc<Inner>,
    /// The first eight bytes of the smallest key and of the largest; all there are if the order is not that of bytes.
    bounds: Ends,
}

/// What a search looks at first, in one line of the cache.
#[repr(align(64))]
struct Inner {
    /// None if the order is not that of bytes.
    heads: Option<Heads>,
    tables: Box<[Arc<TableHandle>]>,
    /// What all smallest and largest keys begin with.
    prefix: Box<[u8]>,
}

const _: () = assert!(size_of::<Inner>() == 64, "in one line of the cache");

/// What stands behind the prefix in the keys at the tables' ends.
struct Heads {
    ends: Box<[Ends]>,
    /// Where the first begins, and how many tables one step of a head is: zero if that would be no good guess.
    first: u64,
    slope: f64,
}

/// Of a smallest and a largest key.
#[derive(Clone, Copy)]
struct Ends {
    smallest: u64,
    largest: u64,
}

impl Heads {
    fn new(ends: Box<[Ends]>) -> Heads {
        let mut heads = Heads { ends, first: 0, slope: 0.0 };
        let [Ends { smallest: first, .. }, .., Ends { largest: last, .. }] = *heads.ends else {
            return heads;
        };
        heads.first = first;
        heads.slope = heads.ends.len() as f64 / (last.saturating_sub(first) as f64 + 1.0);
        let mut before = first;
        for (at, ends) in heads.ends.iter().enumerate() {
            let is_near = |head| heads.guess(head).abs_diff(at) <= STEPS_MAX;
            // Ascending, too: level 0 does not.
            if ends.largest < before || !is_near(before) || !is_near(ends.largest) {
                heads.slope = 0.0;
                break;
            }
            before = ends.largest;
        }
        heads
    }

    #[inline]
    fn guess(&self, head: u64) -> usize {
        ((head.saturating_sub(self.first) as f64 * self.slope) as usize).min(self.ends.len() - 1)
    }

    /// The first table whose largest key has at least this head.
    #[inline]
    fn reaching(&self, head: u64) -> usize {
        let is_before = |at: usize| self.ends[at].largest < head;
        if self.slope == 0.0 {
            return first_where_not(0..self.ends.len(), is_before);
        }
        let mut at = self.guess(head);
        while at < self.ends.len() && is_before(at) {
            at += 1;
        }
        while at > 0 && !is_before(at - 1) {
            at -= 1;
        }
        at
    }

    /// Those whose largest key has this head; if none has, the empty range where they would be.
    #[inline]
    fn equal(&self, head: u64) -> Range<usize> {
        let start = self.reaching(head);
        let is_equal = |at: usize| self.ends[at].largest == head;
        if start == self.ends.len() || !is_equal(start) {
            return start..start;
        }
        start..first_where_not(start..self.ends.len(), is_equal)
    }
}

impl Level {
    /// Level 0: the newest table first.
    pub fn newest_first(comparator: &dyn Comparator, mut tables: Vec<Arc<TableHandle>>) -> Level {
        tables.sort_by_key(|table| std::cmp::Reverse((table.meta().max_lsn, table.meta().id)));
        Level::in_order(comparator, tables)
    }

    /// Another level: tables that do not overlap, by key.
    pub fn by_key(comparator: &dyn Comparator, mut tables: Vec<Arc<TableHandle>>) -> Level {
        tables.sort_by(|a, b| comparator.compare(&a.meta().smallest, &b.meta().smallest));
        Level::in_order(comparator, tables)
    }

    fn in_order(comparator: &dyn Comparator, tables: Vec<Arc<TableHandle>>) -> Level {
        let smallest = || tables.iter().map(|table| &table.meta().smallest[..]);
        let largest = || tables.iter().map(|table| &table.meta().largest[..]);
        let mut bounds = Ends { smallest: 0, largest: u64::MAX };
        let (prefix, heads) = match smallest().next() {
            Some(first) if comparator.is_bytewise() => {
                bounds.smallest = smallest().map(key_prefix).min().unwrap_or(bounds.smallest);
                bounds.largest = largest().map(key_prefix).max().unwrap_or(bounds.largest);
                let shared = smallest().chain(largest()).map(|end| shared_prefix(first, end));
                let prefix = shared.min().unwrap_or(0);
                let head = |end: &[u8]| key_prefix(&end[prefix..]);
                let ends = smallest().zip(largest());
                let ends = ends.map(|(a, b)| Ends { smallest: head(a), largest: head(b) });
                (first[..prefix].into(), Some(Heads::new(ends.collect())))
            }
            _ => (Box::default(), None),
        };
        Level { inner: Arc::new(Inner { tables: tables.into(), prefix, heads }), bounds }
    }

    /// True if the table at a place of the level has `key` within its bounds.
    #[inline]
    pub fn covers(&self, at: usize, comparator: &dyn Comparator, key: &[u8]) -> bool {
        let Inner { tables, prefix, heads } = &*self.inner;
        if let Some(heads) = heads {
            let Ok(rest) = behind_prefix(key, prefix) else { return false };
            let head = key_prefix(rest);
            let Ends { smallest, largest } = heads.ends[at];
            // Equal heads do not tell.
            if smallest != head && largest != head {
                return smallest < head && head < largest;
            }
        }
        tables[at].meta().covers(comparator, key)
    }

    /// Of a level by key: the first table that does not end before `key`; `len()` if all do.
    #[inline]
    pub fn reaching(&self, comparator: &dyn Comparator, key: &[u8]) -> usize {
        let Inner { tables, prefix, heads } = &*self.inner;
        let Range { start, end } = match heads {
            None => 0..tables.len(),
            Some(heads) => match behind_prefix(key, prefix) {
                Ok(rest) => heads.equal(key_prefix(rest)),
                Err(Side::Before) => 0..0,
                Err(Side::Behind) => tables.len()..tables.len(),
            },
        };
        start + tables[start..end].partition_point(|table| table.meta().ends_before(comparator, key))
    }

    /// Of a level by key: the table that has `key` within its bounds.
    #[inline]
    pub fn covering(&self, comparator: &dyn Comparator, key: &[u8]) -> Option<usize> {
        let head = key_prefix(key);
        if head < self.bounds.smallest || head > self.bounds.largest {
            return None;
        }
        let at = self.reaching(comparator, key);
        (at < self.len() && self.covers(at, comparator, key)).then_some(at)
    }
}

impl Deref for Level {
    type Target = [Arc<TableHandle>];

    #[inline]
    fn deref(&self) -> &[Arc<TableHandle>] {
        &self.inner.tables
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::path::PathBuf;

    use super::*;
    use crate::cache::BlockCache;
    use crate::dice::Dice;
    use crate::env::MemFs;
    use crate::key::{Bytewise, KeyHasher};
    use crate::options::KeyspaceOptions;
    use crate::table::{Shelf, TableMeta, TableOptions};

    /// The order of bytes, by one that does not say so.
    struct Own;

    impl Comparator for Own {
        fn name(&self) -> &str {
            "own"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.cmp(b)
        }
    }

    fn maker() -> impl Fn(TableMeta) -> Arc<TableHandle> {
        let shelf = Shelf::new(MemFs::new(), Arc::new(BlockCache::new(0)));
        let options = TableOptions::new(&KeyspaceOptions::default(), KeyHasher::new(1));
        move |meta| TableHandle::new(&shelf, PathBuf::new(), meta, options.clone())
    }

    /// Tables cut at hashes, about where one would guess, and some further off; with gaps, and not from the first hash to the last.
    #[test]
    fn where_ends_are_even_the_table_found_is_the_same() {
        let make = maker();
        let mut dice = Dice(7);
        let mut guessed = 0;
        for round in 0..200u64 {
            let (count, step) = (2 + round % 60, u64::MAX / 80);
            let from = dice.below(step * 10);
            let off = if round % 4 == 0 { 9 * step } else { step };
            let mut ends: Vec<u64> = (0..=count).map(|n| from + n * step + dice.below(off)).collect();
            ends.sort_unstable();
            ends.dedup();
            let bytes = |place: u64| place.to_be_bytes().to_vec();
            let table = |pair: &[u64]| {
                let (smallest, largest) = (pair[0] + 1 + round % 3 * step / 9, pair[1]);
                make(TableMeta {
                    smallest: bytes(smallest.min(largest)),
                    largest: bytes(largest),
                    ..TableMeta::default()
                })
            };
            let tables: Vec<Arc<TableHandle>> = ends.windows(2).map(table).collect();
            let level = Level::by_key(&Bytewise, tables.clone());
            guessed += usize::from(level.inner.heads.as_ref().is_some_and(|heads| heads.slope > 0.0));
            let near = ends.iter().flat_map(|end| [end - 1, *end, end + 1]);
            let keys: Vec<u64> = (0..300).map(|_| dice.below(u64::MAX)).chain(near).collect();
            for key in keys.into_iter().chain([0, u64::MAX]).map(bytes) {
                let wanted = tables.partition_point(|table| table.meta().ends_before(&Bytewise, &key));
                assert_eq!(level.reaching(&Bytewise, &key), wanted, "{key:?} of {ends:?}");
                let covering = tables.iter().position(|table| table.meta().covers(&Bytewise, &key));
                assert_eq!(level.covering(&Bytewise, &key), covering, "{key:?} of {ends:?}");
            }
        }
        assert!((50..190).contains(&guessed), "{guessed} of 200 levels are even");
    }

    #[test]
    fn the_table_found_is_the_first_that_does_not_end_before_the_key() {
        let make = maker();
        let mut dice = Dice(5);
        let mut with_prefix = 0;
        for round in 0..300 {
            // Few different bytes and lengths on both sides of a head's eight, so that heads are often the same.
            let prefix = vec![b'p'; dice.below(12) as usize];
            let mut key = |most: u64| {
                let suffix = (0..dice.below(most)).map(|_| b'a' + dice.below(2) as u8);
                prefix.iter().copied().chain(suffix).collect::<Vec<u8>>()
            };
            let mut ends: Vec<Vec<u8>> = (0..round % 40).map(|_| key(13)).collect();
            ends.sort();
            ends.dedup();
            // The first begins as the others do, or before all.
            let first = if round % 3 == 0 { Vec::new() } else { prefix.clone() };
            let handle = |(n, largest): (usize, &Vec<u8>)| {
                let smallest =
                    n.checked_sub(1).map_or(first.clone(), |before| [&ends[before][..], &[0]].concat());
                let largest_exclusive = n % 3 == 1;
                let meta = TableMeta {
                    smallest,
                    largest: largest.clone(),
                    largest_exclusive,
                    ..TableMeta::default()
                };
                make(meta)
            };
            let tables: Vec<Arc<TableHandle>> = ends.iter().enumerate().map(handle).collect();
            let mut keys: Vec<Vec<u8>> = (0..200).map(|_| key(14)).collect();
            keys.extend(ends.iter().cloned().chain([vec![], vec![b'p'; 5], vec![b'q'], vec![0xff; 20]]));
            for comparator in [&Bytewise as &dyn Comparator, &Own] {
                let level = Level::by_key(comparator, tables.iter().rev().cloned().collect());
                let mixed = Level::newest_first(comparator, tables.clone());
                with_prefix += usize::from(!level.inner.prefix.is_empty());
                for key in &keys {
                    let wanted = tables.partition_point(|table| table.meta().ends_before(comparator, key));
                    assert_eq!(level.reaching(comparator, key), wanted, "{key:?} of {ends:?}");
                    let covers = |table: &Arc<TableHandle>| table.meta().covers(comparator, key);
                    let covering = tables.iter().position(covers);
                    assert_eq!(level.covering(comparator, key), covering, "{key:?} of {ends:?}");
                    // Of those that lie as they come, too.
                    for (at, table) in mixed.iter().enumerate() {
                        assert_eq!(mixed.covers(at, comparator, key), covers(table), "{key:?} of {ends:?}");
                    }
                }
            }
        }
        assert!(with_prefix > 100, "{with_prefix}");
    }
}
