//! Levels: the tables of one keyspace at one time, immutable.
//!
//! Place: part of a superversion (`db`); policies read it (`layout`), edits make the next one.
//!
//! Invariants (I2):
//! 1. Level 0 is newest first: a table's versions are newer than those of the same keys in the
//!    tables after it. Flushes go in order, so `max_lsn`, then id, tells.
//! 2. Every deeper level is sorted by key and its tables do not overlap; no user key is split over
//!    two tables of a level.
//! 3. A version in a level is newer than those of its key in the levels below.
//!
//! Complexity: get O(level 0 + levels x log tables); `apply` O(tables).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::iter::{Cursor, Tombstones};
use crate::key::{Comparator, ComparatorRef, Kind, Lsn};
use crate::table::{CursorOptions, TableHandle, TableId, Version};

use super::level_cursor::LevelCursor;

/// The tables of one keyspace, by level.
#[derive(Clone, Default)]
pub struct Levels {
    levels: Vec<Vec<Arc<TableHandle>>>,
}

impl Levels {
    /// Sorts `levels` as the invariants ask. Deeper levels must not overlap.
    pub fn new(comparator: &dyn Comparator, mut levels: Vec<Vec<Arc<TableHandle>>>) -> Levels {
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        for (number, tables) in levels.iter_mut().enumerate() {
            if number == 0 {
                tables.sort_by_key(|t| std::cmp::Reverse((t.meta().max_lsn, t.meta().id)));
            } else {
                tables.sort_by(|a, b| comparator.compare(&a.meta().smallest, &b.meta().smallest));
                debug_assert!(
                    tables
                        .windows(2)
                        .all(|pair| pair[0].meta().ends_before(comparator, &pair[1].meta().smallest)),
                    "tables of level {number} overlap"
                );
            }
        }
        Levels { levels }
    }

    /// Levels in use.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The tables of one level; none beyond `depth`.
    pub fn level(&self, level: usize) -> &[Arc<TableHandle>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Every table, from level 0 down.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> + '_ {
        self.levels.iter().flatten()
    }

    /// Bytes of a level's files.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|t| t.meta().file_bytes).sum()
    }

    /// The newest version of `key` below `at`: a put, or a delete (also for a key that a range
    /// tombstone hides; it carries the tombstone's LSN). `None` if no table knows the key.
    pub fn get(
        &self,
        comparator: &dyn Comparator,
        key: &[u8],
        hash: u64,
        at: Lsn,
    ) -> Result<Option<Version>> {
        for (number, tables) in self.levels.iter().enumerate() {
            let candidates: &[Arc<TableHandle>] = if number == 0 {
                tables
            } else {
                let first = tables.partition_point(|t| t.meta().ends_before(comparator, key));
                &tables[first..tables.len().min(first + 1)]
            };
            for table in candidates.iter().filter(|t| t.meta().covers(comparator, key)) {
                if let Some(version) = get_in(table, comparator, key, hash, at)? {
                    return Ok(Some(version));
                }
            }
        }
        Ok(None)
    }

    /// One cursor per table of level 0, newest first, and one per deeper level.
    pub fn cursors(&self, comparator: &ComparatorRef) -> Vec<Box<dyn Cursor>> {
        let mut cursors: Vec<Box<dyn Cursor>> = Vec::with_capacity(self.level(0).len() + self.depth());
        for table in self.level(0) {
            cursors.push(Box::new(table.cursor(CursorOptions::default())));
        }
        for tables in self.levels.iter().skip(1).filter(|tables| !tables.is_empty()) {
            let level = LevelCursor::new(comparator.clone(), tables.clone(), CursorOptions::default());
            cursors.push(Box::new(level));
        }
        cursors
    }

    /// The range tombstones of the tables that overlap [start, end]; `None` is unbounded.
    pub fn tombstones(
        &self,
        comparator: &dyn Comparator,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<Tombstones> {
        let mut all = Vec::new();
        for table in self.tables() {
            if table.meta().range_tombstones > 0 && table.meta().overlaps(comparator, start, end, true) {
                all.extend(table.tombstones()?.iter());
            }
        }
        Ok(Tombstones::build(comparator, all))
    }

    /// The levels after an edit: without `removed`, with `added`.
    pub fn apply(
        &self,
        comparator: &dyn Comparator,
        added: &[(u32, Arc<TableHandle>)],
        removed: &[(u32, TableId)],
    ) -> Levels {
        let gone: HashSet<(u32, TableId)> = removed.iter().copied().collect();
        let deepest = added.iter().map(|(level, _)| *level as usize + 1).max().unwrap_or(0);
        let mut levels: Vec<Vec<Arc<TableHandle>>> = self.levels.clone();
        levels.resize_with(levels.len().max(deepest), Vec::new);
        for (number, tables) in levels.iter_mut().enumerate() {
            tables.retain(|t| !gone.contains(&(number as u32, t.meta().id)));
        }
        for (level, table) in added {
            levels[*level as usize].push(table.clone());
        }
        Levels::new(comparator, levels)
    }
}

fn get_in(
    table: &TableHandle,
    comparator: &dyn Comparator,
    key: &[u8],
    hash: u64,
    at: Lsn,
) -> Result<Option<Version>> {
    let version = table.get(key, hash, at)?;
    if table.meta().range_tombstones > 0
        && let Some(lsn) = table.tombstones()?.newest_covering(comparator, key, at)
        && version.as_ref().is_none_or(|v| v.lsn < lsn)
    {
        return Ok(Some(Version { lsn, kind: Kind::Delete, value: Vec::new() }));
    }
    Ok(version)
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, tables) in self.levels.iter().enumerate() {
            write!(f, "L{number}:")?;
            for table in tables {
                let meta = table.meta();
                let close = if meta.largest_exclusive { ')' } else { ']' };
                write!(
                    f,
                    " {}[{}..{}{close}",
                    meta.id.0,
                    meta.smallest.escape_ascii(),
                    meta.largest.escape_ascii()
                )?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
