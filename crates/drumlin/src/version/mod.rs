//! Versions: which files a store consists of, and the log of edits that remembers it.
//!
//! Place: `db` holds one [`Levels`] per keyspace in its superversion and appends every change to the
//! [`Manifest`]; `layout` reads levels; `compaction` makes edits.

mod level_cursor;
mod levels;

pub use level_cursor::LevelCursor;
pub use levels::Levels;

/// A keyspace's number: never used again after it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyspaceId(pub u32);
