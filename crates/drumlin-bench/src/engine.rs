//! An engine to be measured: what every workload is made of.
//!
//! Place: `drive` calls it from all its threads; `store` is Drumlin's, the peers' live in a workspace of their own.
//!
//! 1. What an engine does by one call is done by one call of its own interface, in the way its users would.
//! 2. Values are shown where they lie (`see`), so that nobody pays for a copy that its interface does not make.

use std::error::Error as StdError;
use std::time::Duration;

use crate::blocks::Blocks;

/// What can go wrong is the engine's affair.
pub type Error = Box<dyn StdError + Send + Sync>;
/// The result of an engine's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Shown the bytes of a value.
pub type SeeValue<'a> = &'a mut dyn FnMut(&[u8]);
/// Shown the bytes of a record.
pub type SeeRecord<'a> = &'a mut dyn FnMut(&[u8], &[u8]);
/// Makes the new value from the old one.
pub type Change<'a> = &'a dyn Fn(Option<&[u8]>) -> Vec<u8>;

/// What an engine has moved and keeps, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Written to files, the log included, since open.
    pub written: u64,
    /// Of these, to the log.
    pub logged: u64,
    /// Read from files since open.
    pub read: u64,
    /// Reads of files since open.
    pub reads: u64,
}

impl Traffic {
    /// Both together.
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            written: self.written + other.written,
            logged: self.logged + other.logged,
            read: self.read + other.read,
            reads: self.reads + other.reads,
        }
    }

    /// What came since `before`.
    pub fn since(&self, before: &Traffic) -> Traffic {
        Traffic {
            written: self.written - before.written,
            logged: self.logged - before.logged,
            read: self.read - before.read,
            reads: self.reads - before.reads,
        }
    }
}

/// Where an engine's data is; what it does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Sorted files.
    pub tables: Option<u64>,
    /// Their bytes.
    pub table_bytes: Option<u64>,
    /// Bytes of memory that hold what is in no such file yet.
    pub memtable_bytes: Option<u64>,
    /// Bytes of memory that hold filters of such files.
    pub filter_bytes: Option<u64>,
    /// Bytes of memory that open ones take besides: indexes, what tells where things are, handles.
    pub index_bytes: Option<u64>,
    /// Bytes of log that the next open would read.
    pub log_bytes: Option<u64>,
}

/// A key-value store under test.
pub trait Engine: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;
    /// What it was told beyond the common settings, in its own words; for the report.
    fn settings(&self) -> String;
    /// Sets one key.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets one key, and waits until it survives a power loss.
    fn put_synced(&self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(format!("{} has no put that is synced by itself", self.name()).into())
    }
    /// Sets several keys in one atomic batch.
    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()>;
    /// Removes one key.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Shows the value of one key; false if it is absent.
    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool>;
    /// Shows the values of several keys; how many there are.
    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize>;
    /// Shows up to `limit` records from `from` on, upwards; or downwards, from the last at or before it (from
    /// the very last if `from` is empty). How many there are.
    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize>;
    /// Replaces a value by what `change` makes of it, atomically.
    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()>;
    /// Sets a key if it is absent; true if it was.
    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool>;
    /// Waits until nothing is owed: no flush and no merge runs or is due.
    fn settle(&self) -> Result<()>;
    /// Bytes that compaction owes, if the engine tells.
    fn debt_bytes(&self) -> Option<u64>;
    /// Records in memory that are in no order yet, if the engine tells.
    fn unsorted(&self) -> Option<u64> {
        None
    }
    /// How long it has held writers back since it was opened, all of them together, if the engine tells.
    fn held_back(&self) -> Option<Duration> {
        None
    }
    /// What it moved, if it can be counted where files are called.
    fn traffic(&self) -> Option<Traffic>;
    /// The pages of its tables as they lie on the device; what is in no table yet is put into one, if there is none.
    fn blocks(&self) -> Result<Blocks> {
        Err(format!("{} has no tables that can be read past it", self.name()).into())
    }
    /// Where its data is.
    fn holds(&self) -> Holds {
        Holds::default()
    }
}
