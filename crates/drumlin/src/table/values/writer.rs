//! Writing a value file: values come in the order of their keys, references come out.
//!
//! Place: a job's outputs, under a temporary name that they rename after `finish`.
//!
//! Invariants: the file is synced before `finish` returns; after a failed write nothing more is written.
//! Concurrency: one thread. Bytes and tests: see the module above.

use std::path::PathBuf;

use super::{HEADER_BYTES, MAGIC, RECORD_HEAD_BYTES, ValueRef};
use crate::env::WritableFile;
use crate::error::{Error, Result};
use crate::options::Compression;
use crate::table::TableId;
use crate::table::frame::FrameEncoder;
use crate::table::output::{BUFFER_BYTES, Output};

/// Writes one value file.
pub struct ValueWriter {
    id: TableId,
    path: PathBuf,
    out: Output,
    encoder: FrameEncoder,
    failed: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenValues {
    /// The file.
    pub id: TableId,
    /// Its length.
    pub file_bytes: u64,
    /// The first 64 bits of XXH3-128 of the whole file.
    pub hash: u64,
}

impl ValueWriter {
    /// Bytes of memory that one holds, about.
    pub const MEMORY_BYTES: usize = BUFFER_BYTES;

    /// A writer to the empty file `file`, which `path` names.
    pub fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        id: TableId,
        compression: Compression,
    ) -> Result<ValueWriter> {
        let mut out = Output::new(file);
        out.append(&MAGIC)?;
        out.append(&id.0.to_le_bytes())?;
        debug_assert_eq!(out.offset, HEADER_BYTES);
        Ok(ValueWriter { id, path, out, encoder: FrameEncoder::new(compression), failed: false })
    }

    /// Appends a value.
    pub fn add(&mut self, value: &[u8]) -> Result<ValueRef> {
        if self.failed {
            let path = self.path.display();
            return Err(Error::invalid(format!(
                "an earlier write of {path} failed: remove it and start again"
            )));
        }
        let added = self.append(value);
        self.failed = added.is_err();
        added
    }

    fn append(&mut self, value: &[u8]) -> Result<ValueRef> {
        let offset = self.out.offset + RECORD_HEAD_BYTES;
        let frame = self.encoder.encode(value, self.id.0, offset)?;
        // A value of at most 512 MiB and its trailer.
        self.out.append(&(frame.bytes() as u32).to_le_bytes())?;
        let place = self.out.append_frame(&frame)?;
        Ok(ValueRef { file: self.id, place, value_bytes: value.len() as u64 })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.out.offset
    }

    /// Writes the rest, syncs the file and describes it.
    pub fn finish(mut self) -> Result<WrittenValues> {
        let (file_bytes, hash) = (self.out.offset, self.out.finish()?);
        Ok(WrittenValues { id: self.id, file_bytes, hash: (hash >> 64) as u64 })
    }
}
