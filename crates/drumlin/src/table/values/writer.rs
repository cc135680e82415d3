//! Writing a value file: values come in the order of their keys, references come out.
//!
//! Place: a job's outputs, under a temporary name that they rename after `finish`.
//!
//! Invariant: the file is synced before `finish` returns.
//! Concurrency: one thread. Bytes and tests: see the module above.

use super::{HEADER_BYTES, MAGIC, RECORD_HEAD_BYTES, ValueRef, ValueUse};
use crate::env::WritableFile;
use crate::error::Result;
use crate::options::Compression;
use crate::table::TableId;
use crate::table::frame::FrameEncoder;
use crate::table::output::{BUFFER_BYTES, Output};

/// Writes one value file.
pub struct ValueWriter {
    id: TableId,
    out: Output,
    encoder: FrameEncoder,
}

impl ValueWriter {
    /// Bytes of memory that one holds, about.
    pub const MEMORY_BYTES: usize = BUFFER_BYTES;

    /// A writer to an empty file.
    pub fn new(file: Box<dyn WritableFile>, id: TableId, compression: Compression) -> Result<ValueWriter> {
        let mut out = Output::new(file);
        out.append(&MAGIC)?;
        out.append(&id.0.to_le_bytes())?;
        debug_assert_eq!(out.offset, HEADER_BYTES);
        Ok(ValueWriter { id, out, encoder: FrameEncoder::new(compression) })
    }

    /// Appends a value. After an error the file is of no use.
    pub fn add(&mut self, value: &[u8]) -> Result<ValueRef> {
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

    /// Writes the rest, syncs the file and describes it, with nothing that refers to it.
    pub fn finish(mut self) -> Result<ValueUse> {
        let (file_bytes, hash) = (self.out.offset, self.out.finish()?);
        Ok(ValueUse { file: self.id, file_bytes, hash: (hash >> 64) as u64, ..ValueUse::default() })
    }
}
