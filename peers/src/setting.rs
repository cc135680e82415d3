//! A setting: one way to open an engine; and the list of all engines with theirs.
//!
//! Place: `contest` opens engines by it.
//!
//! 1. The first setting of an engine is the one that takes part if no grid is asked for.

use std::path::Path;

use drumlin_bench::args::Bench;
use drumlin_bench::engine::{Engine, Result};

/// What all engines are opened under.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Memory, threads, durability and the rest.
    pub bench: Bench,
    /// Engines whose statistics cost them something count with them.
    pub traffic: bool,
}

/// One way to open an engine.
pub struct Setting {
    /// What tells it from the engine's other settings.
    pub name: String,
    /// Opens the store in a directory, or makes it.
    pub open: Box<dyn Fn(&Path) -> Result<Box<dyn Engine>>>,
}

impl Setting {
    /// A setting of this name.
    pub fn new<E: Engine + 'static>(
        name: impl Into<String>,
        open: impl Fn(&Path) -> Result<E> + 'static,
    ) -> Setting {
        Setting { name: name.into(), open: Box::new(move |directory| Ok(Box::new(open(directory)?))) }
    }
}

/// An engine that can be measured.
pub struct Contestant {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its settings under these terms, the usual one first.
    pub settings: fn(&Terms) -> Vec<Setting>,
    /// It differs from another one in read-modify-write only.
    pub only_changes: bool,
}

/// All of them.
pub const CONTESTANTS: &[Contestant] = &[
    Contestant { name: "drumlin", settings: crate::drumlin::settings, only_changes: false },
    Contestant { name: "rocksdb", settings: crate::rocksdb::settings, only_changes: false },
    Contestant { name: "rocksdb-txn", settings: crate::rocksdb::transaction_settings, only_changes: true },
    Contestant { name: "leveldb", settings: crate::leveldb::settings, only_changes: false },
    Contestant { name: "lmdb", settings: crate::lmdb::settings, only_changes: false },
    Contestant { name: "fjall", settings: crate::fjall::settings, only_changes: false },
    Contestant { name: "redb", settings: crate::redb::settings, only_changes: false },
];

impl Contestant {
    /// The engine of this name.
    pub fn named(name: &str) -> Option<&'static Contestant> {
        CONTESTANTS.iter().find(|contestant| contestant.name == name)
    }
}
