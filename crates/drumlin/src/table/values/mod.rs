//! Values apart: a file of values, and the entries of tables that say where in it theirs lie.
//!
//! Place: `compaction` writes them ([`ValueWriter`]) beside the tables of a job; a table's description names the files that its
//! entries refer to ([`ValueUse`]), its handle holds them, and its reads go through them.
//!
//! Nouns: a *reference* is what a table holds in place of a value, under [`Kind::Apart`](crate::key::Kind::Apart); a *record* is
//! the value in its file; what no table of the newest version refers to is *garbage*.
//!
//! Invariants:
//! 1. A file never changes once it has its final name, which is durable before an edit names a table that refers to it.
//! 2. A file is there as long as a table is that refers to it, in the newest version or held by a reader. What is live is a sum
//!    over tables' descriptions: no crash can leave it wrong.
//! 3. A value is given out only after its checksum was compared, which depends on the file and on the place in it.
//!
//! Bytes:
//! ```text
//! file       header | record ..
//! header     magic u64 "DRUMvals" | the file's id u64, the seed of its checksums
//! record     stored bytes u32 | frame (`frame`) of the value
//! reference  file varint | offset of the frame varint | bytes of the frame varint | bytes of the value varint
//! ```
//! Numbers are little endian. The whole file's hash stands in its name and in the manifest.
//!
//! Complexity: a reference is some ten bytes; to read a value is one read of the device. Concurrency: see the parts.
//! Origin: values apart from their keys are WiscKey's; that files are immutable, belong to tables and are collected by merges is ours:
//! docs/design/values.md. Tests: `table/tests/values.rs`, tests/values.rs.

mod file;
mod files;
pub mod inspect;
mod loaded;
mod verify;
mod windows;
mod writer;

pub(super) use file::{OpenFile, Reader, ValueFile};
pub(super) use files::ValueFiles;
pub(super) use loaded::Loaded;
pub use verify::verify_values;
pub use windows::ValueWindows;
pub use writer::ValueWriter;

use std::collections::BTreeMap;

use crate::encoding::{Decoder, Malformed, put_varint};
use crate::key::VALUE_BYTES_MAX;
use crate::table::TableId;
use crate::table::frame::TRAILER_BYTES;
use crate::table::index::Place;

/// Bytes before the first record.
const HEADER_BYTES: u64 = 16;
/// Bytes of a record before its frame.
const RECORD_HEAD_BYTES: u64 = 4;
/// Bytes of a frame, at most: a value and its trailer.
const FRAME_BYTES_MAX: u64 = VALUE_BYTES_MAX as u64 + TRAILER_BYTES as u64;
const MAGIC: [u8; 8] = *b"DRUMvals";

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// The file: ids are those of tables.
    pub file: TableId,
    /// Its frame there.
    pub(super) place: Place,
    /// Bytes of the value.
    pub value_bytes: u64,
}

impl ValueRef {
    /// The bytes that stand in a table.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        for number in [self.file.0, self.place.offset, self.place.bytes, self.value_bytes] {
            put_varint(&mut out, number);
        }
        out
    }

    /// Reads what `encode` made.
    pub(crate) fn decode(bytes: &[u8]) -> Result<ValueRef, Malformed> {
        let mut numbers = Decoder::new(bytes);
        let file = TableId(numbers.varint()?);
        let place = Place { offset: numbers.varint()?, bytes: numbers.varint()? };
        let value_bytes = numbers.varint()?;
        let is_sound = numbers.is_empty()
            && place.offset >= HEADER_BYTES + RECORD_HEAD_BYTES
            && place.offset.checked_add(place.bytes).is_some()
            && place.bytes <= FRAME_BYTES_MAX
            && value_bytes <= VALUE_BYTES_MAX as u64;
        if is_sound { Ok(ValueRef { file, place, value_bytes }) } else { Err(Malformed) }
    }

    /// Where its record begins.
    pub fn record_offset(&self) -> u64 {
        self.place.offset - RECORD_HEAD_BYTES
    }

    /// Bytes of its record.
    pub fn record_bytes(&self) -> u64 {
        self.place.bytes.saturating_add(RECORD_HEAD_BYTES)
    }
}

/// What a table refers to in one value file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueUse {
    /// The file.
    pub file: TableId,
    /// Its length.
    pub file_bytes: u64,
    /// The first 64 bits of XXH3-128 of the whole file.
    pub hash: u64,
    /// Records that the table refers to.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl ValueUse {
    /// The numbers of its stored form.
    pub(super) fn numbers(&self) -> [u64; 5] {
        [self.file.0, self.file_bytes, self.hash, self.records, self.bytes]
    }

    /// The opposite of `numbers`.
    pub(super) fn from_numbers(numbers: [u64; 5]) -> ValueUse {
        let [file, file_bytes, hash, records, bytes] = numbers;
        ValueUse { file: TableId(file), file_bytes, hash, records, bytes }
    }

    /// The file's name: its id and the first 64 bits of its content hash.
    pub fn file_name(&self) -> String {
        format!("{:08}-{:016x}.val", self.file.0, self.hash)
    }

    /// Bytes of all records of the file.
    pub fn records_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(HEADER_BYTES)
    }
}

/// What the entries of a table refer to, summed up.
#[derive(Default)]
pub(super) struct Uses {
    files: BTreeMap<TableId, ValueUse>,
    bytes: u64,
}

impl Uses {
    /// An entry refers to this.
    pub(super) fn add(&mut self, value: &ValueRef) {
        let used =
            self.files.entry(value.file).or_insert(ValueUse { file: value.file, ..ValueUse::default() });
        used.records += 1;
        used.bytes = used.bytes.saturating_add(value.record_bytes());
        self.bytes = self.bytes.saturating_add(value.record_bytes());
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// By file. Of lengths and hashes it knows nothing.
    pub(super) fn finish(self) -> Vec<ValueUse> {
        self.files.into_values().collect()
    }
}
