//! Versions: which files a store consists of, and the log of edits that remembers it.

mod edit;
mod fields;
mod identity;
mod journal;
mod level_cursor;
mod levels;
mod manifest;
mod settings;
mod state;

pub use edit::{Change, VersionEdit};
pub use identity::Identity;
pub use level_cursor::LevelCursor;
pub use levels::Levels;
pub use manifest::Manifest;
pub use settings::{comparator_name, decode_options, encode_options};
pub use state::{KeyspaceState, Misfit, Session, StoreState};

/// A keyspace's number: never used again after it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyspaceId(pub u32);

impl std::fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
