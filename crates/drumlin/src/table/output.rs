//! A file being written, with its buffer and running hash.
//!
//! Place: of the writers of tables and of value files.
//!
//! Invariant: the hash is that of all bytes appended so far. Concurrency: one thread. Tests: those of the writers.

use twox_hash::XxHash3_128;

use crate::env::WritableFile;
use crate::error::Result;
use crate::pages::{PageVec, Pages, append};
use crate::table::frame::Frame;
use crate::table::index::Place;

/// Bytes gathered before they are appended to the file.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The file; see the module.
pub(super) struct Output {
    file: Box<dyn WritableFile>,
    pub(super) buffer: PageVec<u8>,
    /// Bytes appended so far.
    pub(super) offset: u64,
    hash: XxHash3_128,
}

impl Output {
    /// To an empty file.
    pub(super) fn new(file: Box<dyn WritableFile>) -> Output {
        Output {
            file,
            buffer: PageVec::with_capacity_in(BUFFER_BYTES, Pages),
            offset: 0,
            hash: XxHash3_128::new(),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.write(bytes);
        self.offset += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES {
            return self.file.append(bytes);
        }
        append(&mut self.buffer, bytes);
        Ok(())
    }

    pub(super) fn append_frame(&mut self, frame: &Frame<'_>) -> Result<Place> {
        let place = Place { offset: self.offset, bytes: frame.bytes() as u64 };
        self.append(frame.body)?;
        self.append(&frame.trailer)?;
        Ok(place)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes what is left and syncs the file; XXH3-128 of the whole.
    pub(super) fn finish(&mut self) -> Result<u128> {
        self.flush()?;
        self.file.sync()?;
        Ok(self.hash.finish_128())
    }
}
