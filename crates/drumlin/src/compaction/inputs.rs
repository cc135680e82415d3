//! The inputs of a compaction as cursors.
//!
//! Place: `job` merges them. One child per table of level 0, one per deeper level: its tables
//! do not overlap, so they are walked one after the other and cost the merge one slot together.
//! An enumeration instead of a boxed trait, so that the merge's calls are direct.
//!
//! Concurrency: as cursors. Tests: `job_tests.rs`.

use crate::error::Result;
use crate::iter::Cursor;
use crate::key::{Kind, Lsn};
use crate::table::TableCursor;
use crate::version::LevelCursor;

/// One child of the merge.
pub(super) enum Input {
    /// A table of level 0.
    Table(TableCursor),
    /// The inputs of a deeper level.
    Level(LevelCursor),
}

macro_rules! either {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Input::Table($cursor) => $call,
            Input::Level($cursor) => $call,
        }
    };
}

impl Cursor for Input {
    fn seek_first(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        either!(self, cursor => cursor.seek(key, lsn))
    }
    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        either!(self, cursor => cursor.seek_back(key, lsn))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        either!(self, cursor => cursor.prev())
    }
    #[inline]
    fn valid(&self) -> bool {
        either!(self, cursor => cursor.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        either!(self, cursor => cursor.key())
    }
    #[inline]
    fn lsn(&self) -> Lsn {
        either!(self, cursor => cursor.lsn())
    }
    #[inline]
    fn kind(&self) -> Kind {
        either!(self, cursor => cursor.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        either!(self, cursor => cursor.value())
    }
}
