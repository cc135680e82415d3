//! A small store in memory whose tables come and go, and what there is of them.
//!
//! Place: `graveyard` and `reclamation`, which are processes of their own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drumlin::env::{FileSystem, MemFs};
use drumlin::{Db, KeyspaceOptions, Options};

pub const STORE: &str = "/store";

pub fn small() -> (Options, KeyspaceOptions) {
    let options = Options { memory_bytes: 4 << 20, segment_bytes: 64 << 10, ..Options::default() };
    let keyspace = KeyspaceOptions {
        memtable_bytes: Some(128 << 10),
        table_bytes: 64 << 10,
        level1_bytes: 256 << 10,
        ..KeyspaceOptions::default()
    };
    (options, keyspace)
}

pub fn tables(fs: &MemFs) -> Vec<PathBuf> {
    let entries = fs.list(Path::new(STORE)).expect("lists");
    entries.into_iter().filter(|e| e.name.ends_with(".tbl")).map(|e| Path::new(STORE).join(e.name)).collect()
}

/// Tables that the store's levels name.
pub fn named(db: &Db) -> usize {
    db.stats().keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables).sum()
}

pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
