//! A cursor of one of two kinds.
//!
//! Place: the children of a merge, which are of two or three kinds: an enumeration instead of a boxed trait, so that the
//! merge's calls are direct and a child lies beside its neighbours.
//!
//! Concurrency: as the cursors. Tests: those of whoever merges: `levels_tests`, `compaction::job_tests`, tests/model.rs.

use crate::error::Result;
use crate::iter::Cursor;
use crate::key::{Kind, Lsn};

/// A cursor of one of two kinds; nested for more.
pub enum Either<A, B> {
    /// Of the one kind.
    Left(A),
    /// Of the other.
    Right(B),
}

macro_rules! either {
    ($self:expr, $cursor:ident => $call:expr) => {
        match $self {
            Either::Left($cursor) => $call,
            Either::Right($cursor) => $call,
        }
    };
}

impl<A: Cursor, B: Cursor> Cursor for Either<A, B> {
    fn seek_first(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        either!(self, cursor => cursor.seek(key, lsn))
    }
    #[inline]
    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        either!(self, cursor => cursor.seek_stage(key, lsn, stage))
    }
    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        either!(self, cursor => cursor.seek_back(key, lsn))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next())
    }
    #[inline]
    fn next_key(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next_key())
    }
    #[inline]
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
    fn load_value(&mut self) -> Result<()> {
        either!(self, cursor => cursor.load_value())
    }
    #[inline]
    fn is_in_use(&self) -> bool {
        either!(self, cursor => cursor.is_in_use())
    }
}
