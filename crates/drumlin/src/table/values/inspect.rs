//! Taking a value file apart, for people.
//!
//! Place: `crate::inspect`, for tools. The file is enough: its header and its name say what is to be there.
//!
//! Memory: one record. Tests: `table/tests/values.rs`, the command's `tests/inspect.rs`.

use std::path::{Path, PathBuf};

use super::file::open;
use super::verify::records;
use super::{HEADER_BYTES, MAGIC, ValueUse};
use crate::env::{FileSystem, ReadMode};
use crate::error::{Corruption, Error, Result};
use crate::table::TableId;

/// One value in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRecord {
    /// Where its record begins.
    pub offset: u64,
    /// Bytes of the record.
    pub bytes: u64,
    /// `none`, `lz4` or `zstd`; empty if it cannot be read.
    pub compression: &'static str,
    /// Bytes of the value; `None` if it cannot be read.
    pub value_bytes: Option<u64>,
}

/// What a value file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValuesReport {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its number, as its header says.
    pub id: u64,
    /// Records.
    pub records: u64,
    /// Bytes of values, before compression.
    pub value_bytes: u64,
    /// What is wrong.
    pub problems: Vec<Corruption>,
    /// What could not be looked at, and why.
    pub unchecked: Vec<String>,
}

/// Takes the value file at `path` apart; `on_record` is shown each record, in order.
///
/// # Errors
/// `Io` if the file cannot be read. What is corrupt is in the report.
pub fn inspect_values(
    fs: &dyn FileSystem,
    path: &Path,
    on_record: &mut dyn FnMut(&ValueRecord),
) -> Result<ValuesReport> {
    let bytes = fs.open(path, ReadMode::Buffered)?.bytes();
    let file = open(fs, path, ReadMode::Buffered, bytes)?;
    let mut report = ValuesReport { path: path.into(), bytes, ..ValuesReport::default() };
    if bytes >= HEADER_BYTES {
        let mut id = [0; 8];
        file.read_exact_at(&mut id, MAGIC.len() as u64)?;
        report.id = u64::from_le_bytes(id);
    }
    let mut problems = Vec::new();
    let read = records(&*file, path, TableId(report.id), &mut problems, &mut |record| {
        if record.offset == 0 {
            return;
        }
        let (compression, value_bytes) = record.frame.unzip();
        report.records += 1;
        report.value_bytes += value_bytes.unwrap_or(0);
        let compression = compression.unwrap_or_default();
        on_record(&ValueRecord { offset: record.offset, bytes: record.bytes, compression, value_bytes });
    });
    report.problems = problems;
    match read {
        Ok(hash) => {
            let name = ValueUse { file: TableId(report.id), hash, ..ValueUse::default() }.file_name();
            let is_called = path.file_name().is_some_and(|found| *found == *name);
            if report.problems.is_empty() && !is_called {
                let what = format!("by its content its name is {name}");
                report.problems.push(Corruption { path: path.into(), offset: None, what });
            }
        }
        Err(Error::Corruption(problem)) => report.problems.push(problem),
        Err(error) => return Err(error),
    }
    Ok(report)
}
