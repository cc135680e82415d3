//! The table of measurements: what is run, by which arguments, and what it has to show.
//!
//! Place: of `measurements`. `store` has those of all engines and of memory in one tier, `two_tier` those of memory in two, `layouts`
//! those of the layouts of tables.
//!
//! Tests: those of `measurements`; the bench takes the arguments of each.

mod layouts;
mod store;
mod two_tier;

use crate::measurements::Measurement;

/// All, in the order of the page.
pub const PARTS: [&[Measurement]; 3] = [store::MEASUREMENTS, two_tier::MEASUREMENTS, layouts::MEASUREMENTS];

/// One thread, and two.
const THREADS: &[&str] = &["--threads 1", "--threads 2"];
/// Scans of two lengths, by one thread and by two.
const SCANS: &[&str] = &[
    "--threads 1 --seek-nexts 10",
    "--threads 1 --seek-nexts 20",
    "--threads 2 --seek-nexts 10",
    "--threads 2 --seek-nexts 20",
];
/// The layouts.
const LAYOUTS: &[&str] = &["--layout leveled", "--layout tiered", "--layout lazy-leveled"];
const ROCKSDB: &str = "RocksDB";
const ROCKSDB_TXN: &str = "RocksDB txn";
const LEVELDB: &str = "LevelDB";
const LMDB: &str = "LMDB";
