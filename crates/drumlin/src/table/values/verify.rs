//! Reading every byte of a value file.
//!
//! Place: behind `Db::verify`, beside the check of tables, which compares what they refer to with their descriptions.
//!
//! What is checked: the header; that records tile the file without a gap; the checksum of each; the content hash, which the manifest
//! has, or the file's name. Each place is named once; the hash is judged only if nothing else is wrong.
//!
//! Memory: one record. Tests: `table/tests/values.rs`, tests/values.rs.

use std::path::Path;

use twox_hash::XxHash3_128;

use super::file::open;
use super::{FRAME_BYTES_MAX, HEADER_BYTES, MAGIC, RECORD_HEAD_BYTES};
use crate::env::{FileSystem, ReadMode, ReadableFile};
use crate::error::{Corruption, Error, Result};
use crate::table::TableId;
use crate::table::frame::{self, Origin};
use crate::table::verify::TableCheck;

/// A record, or the header, of a value file that is read from end to end.
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// How the value is compressed, and its bytes; of a record that is sound.
    pub(super) frame: Option<(&'static str, u64)>,
}

/// Checks the value file of this id at `path`, which is to have so many bytes, and a content hash that begins with `hash`.
pub fn verify_values(
    fs: &dyn FileSystem,
    path: &Path,
    id: TableId,
    file_bytes: u64,
    hash: u64,
    on_bytes: &mut dyn FnMut(u64),
) -> TableCheck {
    TableCheck::run(fs, path, file_bytes, on_bytes, |problems, on_bytes| {
        let file = open(fs, path, ReadMode::Buffered, file_bytes)?;
        let found = records(&*file, path, id, problems, &mut |record| on_bytes(record.bytes))?;
        if problems.is_empty() && found != hash {
            let what = format!("the file's content hash begins with {found:016x}, not {hash:016x}");
            return Err(Error::corruption(path, None, what));
        }
        Ok(())
    })
}

/// Reads header and records, of which `on_record` is told one by one (of the header as of the first); the content hash.
pub(super) fn records(
    file: &dyn ReadableFile,
    path: &Path,
    id: TableId,
    problems: &mut Vec<Corruption>,
    on_record: &mut dyn FnMut(&Record),
) -> Result<u64> {
    let end = file.bytes();
    let corrupt = |offset, what: String| Error::corruption(path, offset, what);
    let mut found = XxHash3_128::new();
    let mut header = [0; HEADER_BYTES as usize];
    if end < HEADER_BYTES {
        return Err(corrupt(0, format!("{end} bytes are too short for a file of values")));
    }
    file.read_exact_at(&mut header, 0)?;
    found.write(&header);
    on_record(&Record { offset: 0, bytes: HEADER_BYTES, frame: None });
    if header[..8] != MAGIC || header[8..] != id.0.to_le_bytes() {
        return Err(corrupt(0, format!("the file does not begin like the values of file {:08}", id.0)));
    }
    let mut at = HEADER_BYTES;
    let mut stored = Vec::new();
    while at < end {
        let mut head = [0; RECORD_HEAD_BYTES as usize];
        if end - at < RECORD_HEAD_BYTES {
            return Err(corrupt(at, "a record is cut off".into()));
        }
        file.read_exact_at(&mut head, at)?;
        let (offset, bytes) = (at + RECORD_HEAD_BYTES, u64::from(u32::from_le_bytes(head)));
        // No record is longer; what claims to be would be read into as much memory.
        if bytes > FRAME_BYTES_MAX {
            return Err(corrupt(at, format!("a record claims {bytes} bytes, more than a value may have")));
        }
        if bytes > end - offset {
            return Err(corrupt(at, format!("a record claims {bytes} bytes, but the file ends before")));
        }
        stored.clear();
        stored.resize(bytes as usize, 0);
        file.read_exact_at(&mut stored, offset)?;
        found.write(&head);
        found.write(&stored);
        let frame = match frame::check(&stored, Origin { path, seed: id.0, offset }) {
            Ok(checked) => Some((checked.compression(), checked.bytes() as u64)),
            Err(Error::Corruption(problem)) => {
                problems.push(problem);
                None
            }
            Err(error) => return Err(error),
        };
        on_record(&Record { offset: at, bytes: RECORD_HEAD_BYTES + bytes, frame });
        at = offset + bytes;
    }
    Ok((found.finish_128() >> 64) as u64)
}
