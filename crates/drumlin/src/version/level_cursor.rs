//! The cursor over one deeper level: its tables one after the other, each opened when reached.
//!
//! Place: a child of the merge of a scan or a compaction.
//!
//! Invariants:
//! 1. The tables are sorted and do not overlap, so one table cursor is open at a time, and leaving a
//!    table at its end means entering the next that has an entry.
//! 2. After an error the cursor is off and may seek again, as a table's cursor.
//! 3. A table is not opened before the cursor enters it.
//!
//! Concurrency: owned by one thread; `Send`. Tests: `levels_tests`.

use crate::error::Result;
use crate::iter::{Cursor, Either, SEEK_STAGES};
use crate::key::{ComparatorRef, Kind, Lsn};
use crate::table::{CursorOptions, TableCursor};

use super::level::Level;

/// A table of level 0, or a deeper level.
pub type PartCursor = Either<TableCursor, LevelCursor>;

/// Walks the tables of one level in key order.
pub struct LevelCursor {
    comparator: ComparatorRef,
    tables: Level,
    options: CursorOptions,
    /// The table the cursor is in, by index, and its cursor.
    current: Option<(usize, TableCursor)>,
}

impl LevelCursor {
    /// A cursor over `tables`, which are by key. No I/O until it is moved.
    pub fn new(comparator: ComparatorRef, tables: Level, options: CursorOptions) -> LevelCursor {
        LevelCursor { comparator, tables, options, current: None }
    }

    fn enter(&mut self, index: usize) -> &mut TableCursor {
        let cursor = match self.current.take() {
            Some((at, cursor)) if at == index => cursor,
            _ => self.tables[index].cursor(self.options),
        };
        &mut self.current.insert((index, cursor)).1
    }

    /// Off the end of a table: on to the first entry of the next that has one.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        match &self.current {
            Some((_, cursor)) if !cursor.valid() => self.next_table(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn next_table(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.current {
            if cursor.valid() {
                return Ok(());
            }
            let next = index + 1;
            if next == self.tables.len() {
                self.current = None;
                return Ok(());
            }
            self.enter(next).seek_first()?;
        }
        Ok(())
    }

    /// Off the start of a table: back to the last entry of the one before that has one.
    fn settle_back(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.current {
            if cursor.valid() {
                return Ok(());
            }
            let Some(before) = index.checked_sub(1) else {
                self.current = None;
                return Ok(());
            };
            self.enter(before).seek_last()?;
        }
        Ok(())
    }

    #[inline]
    fn on(&self) -> &TableCursor {
        &self.current.as_ref().expect("the cursor is valid").1
    }
}

impl Cursor for LevelCursor {
    fn seek_first(&mut self) -> Result<()> {
        if self.tables.is_empty() {
            return Ok(());
        }
        self.enter(0).seek_first()?;
        self.settle_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.tables.len().checked_sub(1) else { return Ok(()) };
        self.enter(last).seek_last()?;
        self.settle_back()
    }

    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        let index = self.tables.reaching(&*self.comparator, key);
        if index == self.tables.len() {
            self.current = None;
            return Ok(());
        }
        self.enter(index).seek(key, lsn)?;
        self.settle_forward()
    }

    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        if stage + 1 == SEEK_STAGES {
            return self.seek(key, lsn);
        }
        if stage == 0 {
            let index = self.tables.reaching(&*self.comparator, key);
            if index == self.tables.len() {
                self.current = None;
            } else {
                self.enter(index);
            }
        }
        match &mut self.current {
            Some((_, cursor)) => cursor.seek_stage(key, lsn, stage),
            None => Ok(()),
        }
    }

    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        let comparator = &self.comparator;
        let after = self.tables.partition_point(|t| comparator.compare(&t.meta().smallest, key).is_le());
        let Some(index) = after.checked_sub(1) else {
            self.current = None;
            return Ok(());
        };
        self.enter(index).seek_back(key, lsn)?;
        self.settle_back()
    }

    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.next()?;
        }
        self.settle_forward()
    }

    /// No user key is split over two tables of a level.
    #[inline]
    fn next_key(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.next_key()?;
        }
        self.settle_forward()
    }

    fn prev(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.prev()?;
        }
        self.settle_back()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.on().key()
    }

    #[inline]
    fn lsn(&self) -> Lsn {
        self.on().lsn()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.on().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.on().value()
    }

    fn load_value(&mut self) -> Result<()> {
        match &mut self.current {
            Some((_, cursor)) => cursor.load_value(),
            None => Ok(()),
        }
    }

    #[inline]
    fn is_in_use(&self) -> bool {
        self.on().is_in_use()
    }
}
