//! Drumlin: a durable, concurrent, ordered key-value store on a log-structured merge tree.
//!
//! Layers, each importing only from those below it:
//! ```text
//! db                                        opens, wires, recovers
//! compaction   layout   version             what the files are and how they change
//! memory       log      table   iter filter the parts
//! commit budget pages  cache  key  options  error   the shared ground
//! env          sync                         the outside
//! ```
//! The order is checked by `cargo x tidy`.
#![deny(unsafe_code)]

pub mod budget;
pub mod cache;
pub mod commit;
pub mod compaction;
pub mod db;
#[cfg(test)]
#[path = "../tests/support/dice.rs"]
mod dice;
pub mod env;
pub mod error;
pub mod filter;
pub mod iter;
pub mod key;
pub mod layout;
pub mod log;
pub mod memory;
pub mod options;
mod pages;
pub mod sync;
pub mod table;
pub mod version;

pub use db::{
    Batch, Cas, Db, JobFailure, Keyspace, KeyspaceStats, LevelStats, RecoveryReport, Scan, Slice, Snapshot,
    Stats, VerifyProgress, VerifyReport,
};
pub use error::{Corruption, Error, Result};
pub use options::{Compression, Durability, KeyspaceOptions, Layout, Memory, Options, WriteOptions};

/// The example in the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
