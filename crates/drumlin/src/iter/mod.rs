//! Cursors: walking versions in internal order (user key ascending, LSN descending).
//!
//! Place: memtables, tables and levels implement [`Cursor`]; `merge` joins them; `db` turns
//! versions into what a user sees.
//!
//! Invariants:
//! 1. A cursor is either on an entry (`valid()`), or off the ends. Moving an invalid cursor is a
//!    caller's error; seeking it is always allowed.
//! 2. A cursor over immutable data visits each version exactly once; over a live memtable it is
//!    weakly consistent: an entry present for the whole walk is visited.
//! 3. Range tombstones are not entries: they are asked for apart.
//!
//! Concurrency: a cursor belongs to one thread at a time and is `Send`.

pub mod either;
pub mod horizons;
pub mod merge;
pub mod tombstones;

pub use either::Either;
pub use horizons::Horizons;
pub use merge::Merge;
pub use tombstones::{RangeTombstone, Tombstones};

use crate::error::Result;
use crate::key::{Kind, Lsn};

/// After this many versions of one key a seek is cheaper than steps.
pub const STEPS_BEFORE_SEEK: usize = 8;

/// Stages of a seek; see [`Cursor::seek_stage`].
pub const SEEK_STAGES: usize = 3;

/// A position in a sorted sequence of versions.
pub trait Cursor: Send {
    /// Moves to the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (key, lsn) in internal order:
    /// the newest version of `key` with LSN ≤ `lsn`, else the first version of the next key.
    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()>;
    /// One stage of a seek, of [`SEEK_STAGES`], to be taken in order, with nothing in between; the last one is as `seek`.
    /// Whoever seeks several cursors takes all of them through a stage before the next: what one starts to load from memory
    /// arrives while the others are at work.
    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        if stage + 1 == SEEK_STAGES { self.seek(key, lsn) } else { Ok(()) }
    }
    /// Moves to the last entry at or before (key, lsn) in internal order.
    /// `seek_back(k, Lsn::MAX)` lands before every version of `k`; `seek_back(k, Lsn::ZERO)` on
    /// the oldest version of `k` or, if it has none, before it.
    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()>;
    /// Moves one entry forward.
    fn next(&mut self) -> Result<()>;
    /// Moves to the first entry of the next key, past all versions of the present one.
    fn next_key(&mut self) -> Result<()>;
    /// Moves one entry back.
    fn prev(&mut self) -> Result<()>;
    /// True if on an entry.
    fn valid(&self) -> bool;
    /// The user key. Panics if not valid.
    fn key(&self) -> &[u8];
    /// The version. Panics if not valid.
    fn lsn(&self) -> Lsn;
    /// What the version says. Panics if not valid.
    fn kind(&self) -> Kind;
    /// The value; empty for tombstones, and where it lies apart ([`Kind::Apart`]) the reference to it, until it was loaded. Panics if
    /// not valid.
    fn value(&self) -> &[u8];
    /// Makes `value` that of the entry, wherever it lies, for as long as the cursor is on it.
    fn load_value(&mut self) -> Result<()> {
        Ok(())
    }
    /// True if what the entry lies in was looked up of late: what is made of it will be, too. A hint.
    fn is_in_use(&self) -> bool {
        false
    }
}
