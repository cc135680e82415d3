//! Tables: immutable files of versions, with an index, a filter, range tombstones and a checksum over every byte. In a sorted
//! table versions lie in internal order; in a hashed one most lie in buckets (`hashed`).
//!
//! Place: `compaction` writes them ([`TableWriter`]), `version` and `db` read them
//! ([`TableHandle`], [`TableCursor`]), the manifest stores their [`TableMeta`].
//! Uses `cache` for blocks, `filter` for the filter, `iter` for the cursor's interface.
//!
//! Nouns: an *entry* is one version; a *block* is the unit of reading, checking and caching; a
//! *frame* is a block as it lies in the file (perhaps compressed, with its trailer); the *index*
//! holds one *fence* per block; the *properties* say where everything is; the *footer* finds them.
//!
//! Invariants:
//! 1. A table's bytes never change after [`TableWriter::finish`]; its [`TableMeta`] describes them.
//! 2. Every byte of the file lies in exactly one frame or in the footer, each under a checksum
//!    that also depends on the frame's offset and the table's seed.
//! 3. Entries are strictly ascending in internal order (key ascending, LSN descending), as a cursor gives them out; in a sorted
//!    table as they lie, too.
//! 4. Wrong bytes are found before they are used: reads return the right answer or
//!    [`crate::Error::Corruption`] with file and offset.
//!
//! Byte layout: docs/formats/table.md. Tests: `table/tests/`, and beside each part.

mod block;
mod cursor;
mod epoch_arc;
mod footer;
mod frame;
mod graveyard;
mod handle;
mod hashed;
mod index;
pub mod inspect;
mod meta;
mod output;
mod pile;
mod properties;
mod reads;
mod resident;
mod residents;
mod sample;
mod shelf;
mod stored;
mod tombstone_block;
pub mod values;
mod verify;
mod walk;
mod warm;
mod writer;

pub use cursor::{CursorOptions, TableCursor};
pub use handle::{Given, Look, Missed, Name, Step, TableHandle, Wanted};
pub use hashed::Verdicts;
pub use meta::TableMeta;
pub use pile::pile_columns;
pub use reads::blocks_read;
pub use resident::Parts;
pub use sample::Sample;
pub use shelf::Shelf;
pub use values::{ValueRef, ValueUse, ValueWindows, ValueWriter, verify_values};
pub use verify::{TableCheck, verify_alone};
pub use writer::{Spare, TableWriter};

use std::fmt;

use crate::filter::{Grid, Span};
use crate::key::{ComparatorRef, KeyForm, KeyHasher, Kind, Lsn};
use crate::options::{Compression, KeyspaceOptions};

/// Names a table within its store; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TableId(pub u64);

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The file name of a finished table: its id and the first 64 bits of its content hash.
pub fn file_name(id: TableId, content_hash: u128) -> String {
    format!("{:08}-{:016x}.tbl", id.0, (content_hash >> 64) as u64)
}

/// The file name of a table that is being written.
pub fn temporary_name(id: TableId) -> String {
    format!("{:08}.tmp", id.0)
}

/// One version found for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// When it was written.
    pub lsn: Lsn,
    /// What it says: [`Kind::Put`] or [`Kind::Delete`]; within this module also [`Kind::Apart`], with a reference for its value.
    pub kind: Kind,
    /// The value; empty for a delete.
    pub value: Vec<u8>,
}

/// How tables are written and read.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// Order of user keys. Must be the one the table was written with.
    pub comparator: ComparatorRef,
    /// How keys are held. Must be that in which the table was written.
    pub form: KeyForm,
    /// Hash of keys, as they are held, for the filter.
    pub hasher: KeyHasher,
    /// Whether tables are written as hashed ones, if their keys stand behind their places and are small.
    pub hashed: bool,
    /// Records of migration that an open table holds, in percent of its buckets. If not given: a fifth where its filter lies in
    /// columns, else all.
    pub records_percent: Option<u8>,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Uncompressed bytes of a data block; an entry that is larger has a block of its own.
    pub block_bytes: usize,
    /// Filter bits per key; 0 for no filter.
    pub filter_bits_per_key: f64,
    /// If given, and keys stand behind their places: the filter is written in columns of it, beside those of other tables.
    pub grid: Option<Grid>,
    /// An index of up to so many bytes is one block, held in memory while the table is open.
    pub index_root_bytes: usize,
    /// A larger index is cut into blocks of this size, read on demand like data.
    pub index_block_bytes: usize,
}

impl TableOptions {
    /// Default of `index_root_bytes`: the fences of some 128 MiB of data.
    pub const INDEX_ROOT_BYTES: usize = 1 << 20;
    /// The most of it, in a store of much memory.
    pub const INDEX_ROOT_BYTES_MAX: usize = 16 << 20;
    /// Of a budget, the part that the index of a table may take; to search one block is faster than two.
    const INDEX_ROOT_PART: usize = 128;
    /// Default of `index_block_bytes`.
    pub const INDEX_BLOCK_BYTES: usize = 16 << 10;

    /// The table options of a keyspace in a store whose keys are hashed by `hasher`.
    pub fn new(options: &KeyspaceOptions, hasher: KeyHasher) -> TableOptions {
        TableOptions {
            comparator: options.comparator.clone(),
            form: options.form(hasher),
            hashed: !options.is_ordered(),
            records_percent: None,
            hasher: options.hasher(hasher),
            compression: options.compression,
            block_bytes: options.block_bytes,
            filter_bits_per_key: options.filter_bits_per_key,
            grid: None,
            index_root_bytes: Self::INDEX_ROOT_BYTES,
            index_block_bytes: Self::INDEX_BLOCK_BYTES,
        }
    }

    /// What the probes of a filter lie in: without order no scan goes by, and a get that its filter errs for reads the device.
    pub(super) fn filter_span(&self) -> Span {
        if self.form.placer().is_some() { Span::Window } else { Span::Line }
    }

    /// For tables of a store that has a budget of so many bytes.
    pub fn with_memory(self, memory_bytes: usize) -> TableOptions {
        let index_root_bytes = memory_bytes / Self::INDEX_ROOT_PART;
        TableOptions {
            index_root_bytes: index_root_bytes.clamp(Self::INDEX_ROOT_BYTES, Self::INDEX_ROOT_BYTES_MAX),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
