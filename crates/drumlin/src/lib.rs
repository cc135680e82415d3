//! Drumlin: a durable, concurrent, ordered key-value store on a log-structured merge tree.
//!
//! Start at [`Db`]: open a store, take a [`Keyspace`], then put, get and scan. [`Options`] and [`KeyspaceOptions`] have defaults that
//! need no thought; [`Durability`] says what a write survives (by default the death of the process, not the loss of power), and
//! [`Error`] what to do.
//!
//! # Inside
//!
//! Layers, each importing only from those below it:
//! ```text
//! db           inspect  map    simulation   opens, wires, recovers; looks into single files; the memory alone; layouts alone
//! compaction   layout   version             what the files are and how they change
//! memory       log      table   iter filter the parts
//! commit budget pages  cache  key  encoding options  the shared ground
//! env          sync     error               the outside, and what may go wrong
//! ```
//! The order is checked by `cargo x tidy`.
#![deny(unsafe_code)]

mod budget;
mod cache;
mod commit;
mod compaction;
mod db;
#[cfg(test)]
#[path = "../tests/support/dice.rs"]
mod dice;
mod encoding;
pub mod env;
mod error;
mod filter;
pub mod inspect;
mod iter;
pub mod key;
mod layout;
mod log;
pub mod map;
mod memory;
mod options;
mod pages;
pub mod simulation;
mod sync;
mod table;
mod version;

pub use db::{
    ApproximateSize, Batch, Cas, Db, JobFailure, Keyspace, KeyspaceStats, LatencyStats, LevelInfo,
    LevelStats, RecoveryReport, Scan, Slice, Snapshot, Stats, ValueStats, VerifyProgress, VerifyReport,
    check_keyspace_name,
};
pub use error::{Corruption, Error, Purpose, Result, Shortage};
pub use key::KeyHash;
pub use options::{
    Compression, Durability, FilterAllocation, KeyspaceOptions, Layout, Memory, Options, Parts, TwoTier,
    ValueSeparation, WriteOptions,
};

#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use sync::failpoint;

/// The example in the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
