//! A level: its tables, and how the one that may have a key is found.
//!
//! Place: [`super::Levels`] has one for each level in use; cursors over a level share it.
//!
//! Invariants:
//! 1. But for level 0, tables ascend and do not overlap.
//! 2. `heads` are the first eight bytes in which the tables' smallest and largest keys may differ, in the order of the tables.
//!
//! Under the order of bytes a search halves the heads, which lie in a few lines, and mostly looks at no table: else each step of
//! it would wait for a table and for its key, wherever they are.
//!
//! Concurrency: a value, shared by count. Complexity: made in O(tables), searched in O(log tables).
//! Memory: 24 bytes a table. Tests: below, `levels_tests`.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::key::{Comparator, Side, behind_prefix, equal_heads, key_prefix, shared_prefix};
use crate::table::TableHandle;

/// See the module.
#[derive(Clone)]
pub struct Level(Arc<Inner>);

struct Inner {
    tables: Box<[Arc<TableHandle>]>,
    /// What all smallest and largest keys begin with.
    prefix: Box<[u8]>,
    /// None if the order is not that of bytes.
    heads: Option<Heads>,
}

/// What stands behind the prefix in the keys at the tables' ends, as little-endian bytes: `equal_heads` is for indexes of files, too.
struct Heads {
    smallest: Box<[[u8; 8]]>,
    largest: Box<[[u8; 8]]>,
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
        let (prefix, heads) = match smallest().next() {
            Some(first) if comparator.is_bytewise() => {
                let shared = smallest().chain(largest()).map(|end| shared_prefix(first, end));
                let prefix = shared.min().unwrap_or(0);
                let head = |end: &[u8]| key_prefix(&end[prefix..]).to_le_bytes();
                let heads = Heads {
                    smallest: smallest().map(head).collect(),
                    largest: largest().map(head).collect(),
                };
                (first[..prefix].into(), Some(heads))
            }
            _ => (Box::default(), None),
        };
        Level(Arc::new(Inner { tables: tables.into(), prefix, heads }))
    }

    /// True if the table at a place of the level has `key` within its bounds.
    #[inline]
    pub fn covers(&self, at: usize, comparator: &dyn Comparator, key: &[u8]) -> bool {
        let Inner { tables, prefix, heads } = &*self.0;
        if let Some(heads) = heads {
            let Ok(rest) = behind_prefix(key, prefix) else { return false };
            let head = key_prefix(rest);
            let smallest = u64::from_le_bytes(heads.smallest[at]).cmp(&head);
            let largest = u64::from_le_bytes(heads.largest[at]).cmp(&head);
            // Equal heads do not tell.
            if smallest.is_ne() && largest.is_ne() {
                return smallest.is_lt() && largest.is_gt();
            }
        }
        tables[at].meta().covers(comparator, key)
    }

    /// Of a level by key: the first table that does not end before `key`; `len()` if all do.
    #[inline]
    pub fn reaching(&self, comparator: &dyn Comparator, key: &[u8]) -> usize {
        let Inner { tables, prefix, heads } = &*self.0;
        let Range { start, end } = match heads {
            None => 0..tables.len(),
            Some(heads) => match behind_prefix(key, prefix) {
                Ok(rest) => equal_heads(&heads.largest, key_prefix(rest)),
                Err(Side::Before) => 0..0,
                Err(Side::Behind) => tables.len()..tables.len(),
            },
        };
        start + tables[start..end].partition_point(|table| table.meta().ends_before(comparator, key))
    }

    /// Of a level by key: the table that has `key` within its bounds.
    #[inline]
    pub fn covering(&self, comparator: &dyn Comparator, key: &[u8]) -> Option<usize> {
        let at = self.reaching(comparator, key);
        (at < self.len() && self.covers(at, comparator, key)).then_some(at)
    }
}

impl Deref for Level {
    type Target = [Arc<TableHandle>];

    #[inline]
    fn deref(&self) -> &[Arc<TableHandle>] {
        &self.0.tables
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

    #[test]
    fn the_table_found_is_the_first_that_does_not_end_before_the_key() {
        let shelf = Shelf::new(MemFs::new(), Arc::new(BlockCache::new(0)));
        let options = TableOptions::new(&KeyspaceOptions::default(), KeyHasher::new(1));
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
                TableHandle::new(&shelf, PathBuf::new(), meta, options.clone())
            };
            let tables: Vec<Arc<TableHandle>> = ends.iter().enumerate().map(handle).collect();
            let mut keys: Vec<Vec<u8>> = (0..200).map(|_| key(14)).collect();
            keys.extend(ends.iter().cloned().chain([vec![], vec![b'p'; 5], vec![b'q'], vec![0xff; 20]]));
            for comparator in [&Bytewise as &dyn Comparator, &Own] {
                let level = Level::by_key(comparator, tables.iter().rev().cloned().collect());
                let mixed = Level::newest_first(comparator, tables.clone());
                with_prefix += usize::from(!level.0.prefix.is_empty());
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
