//! Levels: the tables of one keyspace at one time, with the order of their keys, immutable.
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
//! So the first table that has an answer, in this order, has the newest. Within a table points and
//! range tombstones are compared by LSN; at the same LSN the point wins, since a range tombstone
//! hides what is older than itself.
//!
//! Concurrency: values; a level is shared by every `Levels` and cursor that has not changed it, so
//! that a scan or an edit costs a counted reference per level, not per table.
//! Complexity: get O(level 0 + levels x log tables); `apply` O(tables of the levels it touches).
//! Tests: `levels_tests`.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crossbeam_epoch::Guard;

use crate::cache::SharedBlock;
use crate::error::{Error, Result};
use crate::iter::{Cursor, Either, Tombstones};
use crate::key::{Comparator, ComparatorRef, Kind, Lsn};
use crate::table::{CursorOptions, Look, Missed, TableHandle, TableId, TableMeta, Verdicts, Version};

use super::level::Level;
use super::level_cursor::{LevelCursor, PartCursor};
use super::memo::Memo;
use super::state::Misfit;
use super::value_space::ValueSpace;

/// Of a table that an end of a range cuts, what lies within so many blocks is counted, not estimated.
const COUNTED_BLOCKS: u64 = 4;
/// Tables whose filters a get loads at once.
const LOADED_TOGETHER: usize = 8;

/// The tables of one keyspace, by level.
#[derive(Clone)]
pub struct Levels {
    comparator: ComparatorRef,
    /// Those that have tables, with their numbers, which ascend: tiered layouts use few of many.
    levels: Vec<(u32, Level)>,
    /// Summed up when it is asked for first.
    values: OnceLock<ValueSpace>,
    /// Shared by all that edits make of these.
    memo: Arc<Memo>,
}

impl Levels {
    /// Sorts `levels` as the invariants ask. Deeper levels must not overlap; see [`Levels::check`].
    pub fn new(comparator: ComparatorRef, levels: Vec<Vec<Arc<TableHandle>>>) -> Levels {
        let used = levels.into_iter().enumerate().filter(|(_, tables)| !tables.is_empty());
        let levels = used
            .map(|(number, tables)| (number as u32, level(&*comparator, number as u32, tables)))
            .collect();
        Levels { comparator, levels, values: OnceLock::new(), memo: Arc::default() }
    }

    /// Levels of the same order without a table.
    pub fn emptied(&self) -> Levels {
        Levels::new(self.comparator.clone(), Vec::new())
    }

    /// Says which tables of a deeper level overlap, if any do: reads would miss keys. A store that
    /// was never damaged by a program of another version cannot have them. O(tables).
    pub fn check(&self) -> Result<(), Misfit> {
        for (number, tables) in self.deeper() {
            for pair in tables.windows(2) {
                let (a, b) = (pair[0].meta(), pair[1].meta());
                if !a.ends_before(&*self.comparator, &b.smallest) {
                    let what = format!("tables {:08} and {:08} of level {number} overlap", a.id.0, b.id.0);
                    return Err(Misfit(what));
                }
            }
        }
        Ok(())
    }

    /// One more than the number of the deepest level that has a table.
    pub fn depth(&self) -> usize {
        self.levels.last().map_or(0, |(number, _)| *number as usize + 1)
    }

    /// The tables of one level. O(log levels in use).
    pub fn level(&self, level: usize) -> &[Arc<TableHandle>] {
        let found = self.levels.binary_search_by_key(&level, |(number, _)| *number as usize);
        found.map_or(&[], |at| &*self.levels[at].1)
    }

    /// The levels in use but for level 0, each with its number.
    fn deeper(&self) -> impl Iterator<Item = (u32, &Level)> + '_ {
        self.levels.iter().filter(|(number, _)| *number > 0).map(|(number, tables)| (*number, tables))
    }

    /// Every table, from level 0 down.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> + '_ {
        self.levels.iter().flat_map(|(_, tables)| tables.iter())
    }

    /// Bytes of a level's files.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|t| t.meta().file_bytes).sum()
    }

    /// What the tables refer to of value files. O(what they refer to), the first time.
    pub fn values(&self) -> &ValueSpace {
        self.values.get_or_init(|| ValueSpace::of(self.tables().map(|table| table.meta())))
    }

    /// A number that is told by what its name stands for, reckoned once.
    pub fn reckoned(&self, name: u64, reckon: impl FnOnce() -> f64) -> f64 {
        let tables = self.levels.iter().map(|(_, tables)| tables.len()).sum();
        self.memo.number(name, tables, reckon)
    }

    /// How many such numbers are kept.
    #[cfg(test)]
    pub fn numbers_kept(&self) -> usize {
        self.memo.kept()
    }

    /// The value that a reference of one of the tables leads to, for a scan. May read a file.
    pub fn value(&self, reference: &[u8]) -> Result<SharedBlock> {
        match self.tables().next() {
            Some(table) => table.shelf().value(reference),
            None => Err(Error::invalid("no table refers to a value")),
        }
    }

    /// All that [`Levels::go_on`] of nothing told does.
    #[cfg(test)]
    pub fn get(&self, key: &[u8], hash: u64, at: Lsn) -> Result<Option<Version>> {
        self.go_on(key, hash, at, Rest::default())
    }

    /// The newest version of `key` below `at`: a put, or a delete (also for a key that a range tombstone hides; it carries the
    /// tombstone's LSN). `None` if no table knows the key. `rest`: what [`Levels::get_cached`] of these levels left to do. May read files,
    /// so the epoch must not be pinned.
    pub fn go_on(&self, key: &[u8], hash: u64, at: Lsn, rest: Rest) -> Result<Option<Version>> {
        let Rest { from, mut known, mut missed } = rest;
        for (_, table) in self.candidates(key, from) {
            // The first is the one that missed it.
            let version = table.get(key, hash, at, &mut known, missed.take())?;
            if let Some(newest) = newer(version, table.newest_covering(key, at)?) {
                return Ok(Some(newest));
            }
        }
        Ok(None)
    }

    /// The beginning of a get: what [`Levels::go_on`] tells, as far as it can be told from what is in memory.
    pub fn get_cached(&self, key: &[u8], hash: u64, at: Lsn, guard: &Guard) -> Result<Cached> {
        let mut candidates = self.candidates(key, Spot::default());
        let mut known = Verdicts::default();
        loop {
            // Their filters are loaded beside one another.
            let mut next: [Option<(Spot, &TableHandle)>; LOADED_TOGETHER] = [None; LOADED_TOGETHER];
            for (slot, (spot, table)) in next.iter_mut().zip(&mut candidates) {
                table.prefetch(hash, guard);
                *slot = Some((spot, table));
            }
            for table in next {
                let Some((from, table)) = table else { return Ok(Cached::Told(None)) };
                if table.denies(hash, guard) {
                    continue;
                }
                let version = match table.get_cached(key, hash, at, &mut known, guard)? {
                    Look::Told(version) => version,
                    Look::Left(missed) => return Ok(Cached::Left(Rest { from, known, missed })),
                };
                let covering = table.newest_covering_cached(key, at, guard);
                let Some(covering) = covering else {
                    return Ok(Cached::Left(Rest { from, known, missed: None }));
                };
                if let Some(newest) = newer(version, covering) {
                    return Ok(Cached::Told(Some(newest)));
                }
            }
        }
    }

    /// The tables that may know the key, newest first, from one of them on.
    pub(super) fn candidates<'a>(
        &'a self,
        key: &'a [u8],
        from: Spot,
    ) -> impl Iterator<Item = (Spot, &'a TableHandle)> + 'a {
        let comparator = &*self.comparator;
        let of_level = move |(level, (number, tables)): (usize, &'a (u32, Level))| {
            let is_deep = *number > 0;
            let within = if is_deep {
                tables.covering(comparator, key).map_or(0..0, |at| at..at + 1)
            } else {
                // Level 0 stands first, so it is where to go on from.
                from.table..tables.len()
            };
            within
                .filter(move |at| is_deep || tables.covers(*at, comparator, key))
                .map(move |table| (Spot { level, table }, &*tables[table]))
        };
        self.levels.iter().enumerate().skip(from.level).flat_map(of_level)
    }

    /// One cursor per table of level 0, newest first, and one per deeper level, for scans; without the tables and levels
    /// that have no key from `start` to `end` (both inclusive; `None` is unbounded). The cursors may still walk beyond the
    /// range. No I/O.
    pub fn cursors<'a>(
        &'a self,
        start: Option<&'a [u8]>,
        end: Option<&'a [u8]>,
    ) -> impl Iterator<Item = PartCursor> + 'a {
        let comparator = &*self.comparator;
        let options = CursorOptions::default();
        let overlaps = move |table: &&Arc<TableHandle>| table.meta().overlaps(comparator, start, end, true);
        let newest =
            self.level(0).iter().filter(overlaps).map(move |table| Either::Left(table.cursor(options)));
        let deeper = self.deeper().map(|(_, tables)| tables).filter(move |tables| {
            let first = start.map_or(0, |start| tables.reaching(comparator, start));
            tables.get(first).is_some_and(|table| overlaps(&table))
        });
        let deeper = deeper.map(move |tables| {
            Either::Right(LevelCursor::new(self.comparator.clone(), tables.clone(), options))
        });
        newest.chain(deeper)
    }

    /// How many cursors there are at most.
    pub fn cursors_most(&self) -> usize {
        self.level(0).len() + self.levels.len()
    }

    /// About what the tables hold from `start` on and before `end` (`None` is unbounded). Exact but for the tables that an
    /// end cuts: of these, a share of the versions as of the bytes, to one block; what lies within a few blocks is counted. O(tables),
    /// and some reads for each that is cut.
    pub fn estimate(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Estimate> {
        let comparator = &*self.comparator;
        let mut all = Estimate::default();
        for table in self.tables().filter(|table| table.meta().overlaps(comparator, start, end, false)) {
            let meta = table.meta();
            let begins = start.filter(|start| comparator.compare(&meta.smallest, start).is_lt());
            let ends = end.filter(|end| !meta.ends_before(comparator, end));
            if begins.is_none() && ends.is_none() {
                all.bytes += meta.held_bytes();
                all.versions += meta.entries;
                all.deletes += meta.deletes;
                continue;
            }
            let data_bytes = table.data_bytes()?.max(1);
            let from = begins.map_or(Ok(0), |start| table.approximate_offset(start))?;
            let to = ends.map_or(Ok(data_bytes), |end| table.approximate_offset(end))?;
            let counted_bytes = COUNTED_BLOCKS * table.options().block_bytes as u64;
            if to.saturating_sub(from) <= counted_bytes {
                let (versions, deletes) = count(table, start, end)?;
                all.bytes += share(meta.held_bytes(), versions, meta.entries);
                all.versions += versions;
                all.deletes += deletes;
                continue;
            }
            let part = |all: u64| share(all, to.saturating_sub(from), data_bytes);
            let versions = part(meta.entries);
            all.bytes += part(meta.held_bytes());
            all.versions += versions;
            all.deletes += part(meta.deletes);
            all.error += versions.max(meta.entries.saturating_sub(versions));
        }
        Ok(all)
    }

    /// About how many bytes of keys and values are not overwritten or deleted: those of the tables under which no deeper
    /// level, and at level 0 no older table, has the same keys. O(tables log tables).
    pub fn live_bytes(&self) -> u64 {
        let comparator = &*self.comparator;
        let covers = |tables: &Level, meta: &TableMeta| {
            let first = tables.reaching(comparator, &meta.smallest);
            tables
                .get(first)
                .is_some_and(|table| comparator.compare(&table.meta().smallest, &meta.largest).is_le())
        };
        let mut bytes = 0;
        for (above, (number, tables)) in self.levels.iter().enumerate() {
            for (at, table) in tables.iter().enumerate() {
                let meta = table.meta();
                let overlaps = |older: &Arc<TableHandle>| {
                    older.meta().overlaps(comparator, Some(&meta.smallest), Some(&meta.largest), true)
                };
                let is_above = self.levels[above + 1..].iter().any(|(_, deeper)| covers(deeper, meta))
                    || (*number == 0 && tables[at + 1..].iter().any(overlaps));
                if !is_above {
                    bytes += meta.raw_bytes;
                }
            }
        }
        bytes
    }

    /// The range tombstones of the tables that overlap [start, end], a set per table; `None` is unbounded.
    pub fn tombstones(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Vec<Arc<Tombstones>>> {
        self.tables()
            .map(|table| (table, table.meta()))
            .filter(|(_, meta)| {
                meta.range_tombstones > 0 && meta.overlaps(&*self.comparator, start, end, true)
            })
            .map(|(table, _)| table.tombstones())
            .collect()
    }

    /// The levels after an edit: without `removed`, with `added`.
    pub fn apply(&self, added: &[(u32, Arc<TableHandle>)], removed: &[(u32, TableId)]) -> Levels {
        let gone: HashSet<(u32, TableId)> = removed.iter().copied().collect();
        let touched: HashSet<u32> =
            added.iter().map(|(level, _)| *level).chain(removed.iter().map(|(level, _)| *level)).collect();
        let mut levels: Vec<(u32, Level)> =
            self.levels.iter().filter(|(number, _)| !touched.contains(number)).cloned().collect();
        for number in touched {
            let stays = self.level(number as usize).iter().filter(|t| !gone.contains(&(number, t.meta().id)));
            let comes = added.iter().filter(|(to, _)| *to == number).map(|(_, table)| table);
            let tables: Vec<_> = stays.chain(comes).cloned().collect();
            if !tables.is_empty() {
                levels.push((number, level(&*self.comparator, number, tables)));
            }
        }
        levels.sort_unstable_by_key(|(number, _)| *number);
        let (comparator, memo) = (self.comparator.clone(), Arc::clone(&self.memo));
        let next = Levels { comparator, levels, values: OnceLock::new(), memo };
        debug_assert_eq!(next.check(), Ok(()));
        next
    }
}

/// Of `all` as much as `part` is of `whole`.
fn share(all: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(all) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(all)
}

/// Versions that a table has from `start` on and before `end`, and how many of them are deletes. O(them).
fn count(table: &Arc<TableHandle>, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<(u64, u64)> {
    let comparator = &*table.options().comparator;
    let mut cursor = table.cursor(CursorOptions { fill_cache: false, readahead_bytes: 0 });
    match start {
        Some(start) => cursor.seek(start, Lsn::MAX)?,
        None => cursor.seek_first()?,
    }
    let (mut versions, mut deletes) = (0, 0);
    while cursor.valid() && end.is_none_or(|end| comparator.compare(cursor.key(), end).is_lt()) {
        versions += 1;
        deletes += u64::from(cursor.kind() == Kind::Delete);
        cursor.next()?;
    }
    Ok((versions, deletes))
}

/// Where a table stands: at which of the levels in use, and there; the latter counts in level 0 alone, of which others have one.
#[derive(Clone, Copy, Default)]
pub(super) struct Spot {
    level: usize,
    table: usize,
}

/// What a get of what is in memory came to.
#[expect(clippy::large_enum_variant, reason = "in a box, each get that has to read would allocate")]
pub enum Cached {
    /// The version, or that there is none.
    Told(Option<Version>),
    /// Files are to be read.
    Left(Rest),
}

/// What a get of what is in memory leaves to do: which table it could not ask, and what it knows of others.
#[derive(Default)]
pub struct Rest {
    pub(super) from: Spot,
    pub(super) known: Verdicts,
    /// A block of that table that has to be read first.
    pub(super) missed: Option<Missed>,
}

/// A key that is looked for.
#[derive(Clone, Copy)]
pub struct Sought<'k> {
    /// As it is held.
    pub key: &'k [u8],
    /// Of it, by the keyspace's hasher.
    pub hash: u64,
}

/// About what tables hold of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of files, and of what these refer to in others.
    pub bytes: u64,
    /// Versions.
    pub versions: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// The versions are no more than this off.
    pub error: u64,
}

/// A level in the order of the invariants.
fn level(comparator: &dyn Comparator, number: u32, tables: Vec<Arc<TableHandle>>) -> Level {
    if number == 0 { Level::newest_first(comparator, tables) } else { Level::by_key(comparator, tables) }
}

/// A version, or the deletion that a range tombstone above it makes.
pub(super) fn newer(version: Option<Version>, covering: Option<Lsn>) -> Option<Version> {
    match covering {
        Some(lsn) if version.as_ref().is_none_or(|v| v.lsn < lsn) => {
            Some(Version { lsn, kind: Kind::Delete, value: Vec::new() })
        }
        _ => version,
    }
}

impl fmt::Display for Levels {
    /// One line per level in use: its tables with their bounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, tables) in &self.levels {
            write!(f, "L{number}:")?;
            for table in tables.iter() {
                let meta = table.meta();
                let close = if meta.largest_exclusive { ')' } else { ']' };
                let (smallest, largest) = (meta.smallest.escape_ascii(), meta.largest.escape_ascii());
                write!(f, " {}[{smallest}..{largest}{close}", meta.id.0)?;
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
