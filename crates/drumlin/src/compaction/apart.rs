//! The values that a job lays apart, and which of those that lie apart already it relocates.
//!
//! Place: `outputs` asks it for each value that is kept; it writes value files beside the job's tables, and relocates values through
//! the windows of its part of the job.
//!
//! A value that is long enough goes to the open file, in the order of keys, and its entry becomes a reference. An entry that is a
//! reference already is kept as it is; unless its file is to be collected, or values are not to lie apart any more: then its value is
//! loaded and written as one that has just come. If it is damaged, the reference is kept, the outcome tells of it, and its file is not
//! collected any more.
//!
//! Invariants: as of `outputs`, 1 and 2; it is `outputs` that removes files. Every file that a table of the job refers to is known with
//! its length and hash when the job ends: the inputs name those that are kept.
//! Concurrency: one thread. Tests: `job_tests.rs`, tests/values.rs.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::JobContext;
use crate::cache::SharedBlock;
use crate::error::{Error, Result};
use crate::table::{TableId, TableMeta, ValueRef, ValueUse, ValueWindows, ValueWriter, temporary_name};

/// Which values lie apart when a job has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueRules {
    /// Bytes from which on one does; none if no value is to.
    pub min_bytes: Option<usize>,
    /// Files whose values are written anew.
    pub collected: Arc<HashSet<TableId>>,
}

impl ValueRules {
    fn separates(&self, value_bytes: usize) -> bool {
        self.min_bytes.is_some_and(|least| value_bytes >= least)
    }

    /// True if values of the file are written anew.
    pub fn relocates(&self, file: TableId) -> bool {
        self.min_bytes.is_none() || self.collected.contains(&file)
    }
}

/// What a part of a job lays apart.
pub(super) struct Apart {
    rules: ValueRules,
    open: Option<(PathBuf, ValueWriter)>,
    windows: ValueWindows,
    /// The inputs' files, and those that were written.
    known: BTreeMap<TableId, ValueUse>,
    /// Bytes of the files that were written.
    pub written_bytes: u64,
    /// Bytes of the records that were relocated.
    pub loaded_bytes: u64,
    /// The first value that was to be relocated and is damaged: its entry is kept as it is.
    pub damaged: Option<Error>,
}

impl Apart {
    /// Nothing yet; `inputs` are the tables whose references may be kept; values are relocated through `windows`.
    pub fn new<'a>(
        rules: ValueRules,
        inputs: impl Iterator<Item = &'a TableMeta>,
        windows: ValueWindows,
    ) -> Apart {
        let known = inputs.flat_map(|meta| &meta.values).map(|used| (used.file, *used)).collect();
        Apart { rules, open: None, windows, known, written_bytes: 0, loaded_bytes: 0, damaged: None }
    }

    /// The value that a reference leads to, if it is to be written anew.
    pub fn relocated(&mut self, reference: &[u8]) -> Result<Option<SharedBlock>> {
        // What is malformed is kept, and the writer says so.
        let Some(value) = ValueRef::decode(reference).ok().filter(|value| self.rules.relocates(value.file))
        else {
            return Ok(None);
        };
        match self.windows.load(&value) {
            Ok(loaded) => {
                self.loaded_bytes += value.record_bytes();
                Ok(Some(loaded))
            }
            // The entry itself is sound, and stays: whoever asks for its value is told, and no merge is held up.
            Err(error @ Error::Corruption(_)) => {
                self.damaged.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The reference in place of a value, if that is to lie apart. Files that it makes are added to `files`.
    pub fn lay(
        &mut self,
        value: &[u8],
        context: &JobContext,
        files: &mut Vec<PathBuf>,
    ) -> Result<Option<Vec<u8>>> {
        if !self.rules.separates(value.len()) {
            return Ok(None);
        }
        if self.open.as_ref().is_some_and(|(_, writer)| writer.bytes() >= context.table_bytes) {
            self.close(context, files)?;
        }
        let (_, writer) = match &mut self.open {
            Some(open) => open,
            None => {
                let id = context.next_id();
                let path = context.shelf.values_dir().join(temporary_name(id));
                files.push(path.clone());
                let file = context.env.fs.create(&path)?;
                let writer = ValueWriter::new(file, id, context.table_options.compression)?;
                self.open.insert((path, writer))
            }
        };
        writer.add(value).map(|value| Some(value.encode()))
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        let writer_bytes = if self.open.is_some() { ValueWriter::MEMORY_BYTES } else { 0 };
        writer_bytes + self.windows.memory_bytes()
    }

    /// Ends the open file and gives it its final name.
    fn close(&mut self, context: &JobContext, files: &mut Vec<PathBuf>) -> Result<()> {
        let Some((path, writer)) = self.open.take() else { return Ok(()) };
        let written = writer.finish()?;
        let name = context.shelf.values_dir().join(written.file_name());
        files.push(name.clone());
        context.env.fs.rename(&path, &name)?;
        self.known.insert(written.file, written);
        self.written_bytes += written.file_bytes;
        Ok(())
    }

    /// Ends the open file, and completes what the job's tables say of the files that they refer to.
    pub fn finish<'a>(
        &mut self,
        tables: impl Iterator<Item = &'a mut TableMeta>,
        context: &JobContext,
        files: &mut Vec<PathBuf>,
    ) -> Result<()> {
        self.close(context, files)?;
        // Other parts may take longer.
        self.windows.clear();
        for used in tables.flat_map(|meta| &mut meta.values) {
            let Some(known) = self.known.get(&used.file) else {
                let what =
                    format!("an entry refers to the file {:08} of values, which no input names", used.file.0);
                return Err(Error::corruption(context.shelf.values_dir(), None, what));
            };
            *used = ValueUse { records: used.records, bytes: used.bytes, ..*known };
        }
        Ok(())
    }
}
