//! What value files hold, and how much of it is of use: a sum over the descriptions of tables.
//!
//! Place: of [`Levels`](super::Levels), which keep one; `layout` asks which files have how much garbage, statistics what there is.
//!
//! Invariant: a file is listed iff a table refers to it. What no table refers to is garbage; a version that was overwritten
//! counts as live until its entry is merged away.
//!
//! Concurrency: values. Tests: `layout::values`.

use std::collections::BTreeMap;

use crate::table::{TableId, TableMeta, ValueUse};

/// All files of a keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSpace {
    /// Each with what all tables together refer to in it.
    files: BTreeMap<TableId, ValueUse>,
    bytes: u64,
    live_bytes: u64,
}

impl ValueSpace {
    /// Of these tables.
    pub fn of<'a>(tables: impl Iterator<Item = &'a TableMeta>) -> ValueSpace {
        let mut space = ValueSpace::default();
        for used in tables.flat_map(|meta| &meta.values) {
            let file = space.files.entry(used.file).or_default();
            let records = file.records.saturating_add(used.records);
            let bytes = file.bytes.saturating_add(used.bytes);
            *file = ValueUse { records, bytes, ..*used };
        }
        for file in space.files.values() {
            space.bytes = space.bytes.saturating_add(file.records_bytes());
            space.live_bytes = space.live_bytes.saturating_add(file.bytes);
        }
        space
    }

    /// The files, by id, each with what all tables together refer to in it.
    pub fn files(&self) -> impl Iterator<Item = &ValueUse> {
        self.files.values()
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of these, bytes that some table refers to.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes for each that is live; 1 where there are none.
    pub fn amplification(&self) -> f64 {
        if self.live_bytes == 0 { 1.0 } else { self.bytes as f64 / self.live_bytes as f64 }
    }
}
