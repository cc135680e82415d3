//! Versions: which files a store consists of, and the log of edits that remembers it.
//!
//! Place: `db` holds one [`Levels`] per keyspace in its superversion and appends every change to the
//! [`Manifest`], also what a job of `compaction` has made; `layout` reads levels, `compaction` merges them.
//!
//! The nouns: a [`Change`] is one fact, a [`VersionEdit`] the changes that happen together, a
//! [`StoreState`] the fold of all edits, the [`Manifest`] the file they are stored in, [`Levels`]
//! the tables of one keyspace opened for reading. Values flow one way:
//! edit -> manifest (durable) -> levels (visible).
//!
//! Invariant: a table is named by the manifest only while its file is durable under its final name,
//! and a file is removed only after the edit that no longer names it is durable.
//!
//! Bytes: docs/formats/manifest.md.

mod edit;
#[cfg(test)]
mod fixture_tests;
mod identity;
pub mod inspect;
mod journal;
mod level;
mod level_cursor;
mod levels;
#[cfg(test)]
mod levels_tests;
mod manifest;
#[cfg(test)]
mod manifest_tests;
mod memo;
mod orphans;
mod owner;
mod settings;
mod state;
mod together;
mod value_space;

pub use edit::{Change, LEVEL_MAX, VersionEdit};
pub use identity::{Identity, STORE_FILE};
pub use level::Level;
pub use level_cursor::{LevelCursor, PartCursor};
pub use levels::{Cached, Levels, Rest, Sought};
#[cfg(test)]
pub use manifest::REWRITE_BYTES_MIN;
pub use manifest::{Manifest, ManifestInfo};
pub use orphans::{orphans, temporaries};
pub use owner::claim as claim_places;
pub use settings::{decode_options, encode_options};
#[cfg(test)]
pub use state::Session;
pub use state::StoreState;
pub use together::Keys;
pub use value_space::ValueSpace;

pub(crate) use orphans::{is_table_name, value_file};

/// A keyspace's number: never used again after it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyspaceId(pub u32);

impl std::fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
