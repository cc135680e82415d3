//! The values that a job lays apart, and which of those that lie apart it takes along.
//!
//! Place: `outputs` asks it for each value that is kept; it writes value files beside the job's tables.
//!
//! A value that is long enough goes to the open file, in the order of keys, and its entry becomes a reference. An entry that is a
//! reference already is carried on; unless its file is to be collected, or values are not to lie apart any more: then its value is
//! loaded and written as one that has just come.
//!
//! Invariants: as of `outputs`, 1 and 2. Every file that a table of the job refers to is known with its length and hash when the job
//! ends: the inputs name those that are carried on.
//! Concurrency: one thread. Tests: `job_tests.rs`, tests/values.rs.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::JobContext;
use crate::error::{Error, Result};
use crate::table::{
    TableId, TableMeta, ValueRef, ValueUse, ValueWriter, WrittenValues, temporary_name, value_file_name,
};

/// Which values lie apart when a job has ended.
#[derive(Clone, Debug, Default)]
pub struct ValueRules {
    /// Bytes from which on one does; none if no value is to.
    pub min_bytes: Option<usize>,
    /// Files whose values are written anew.
    pub collected: Arc<HashSet<TableId>>,
}

impl ValueRules {
    fn lays_apart(&self, value_bytes: usize) -> bool {
        self.min_bytes.is_some_and(|least| value_bytes >= least)
    }

    pub(super) fn takes_along(&self, file: TableId) -> bool {
        self.min_bytes.is_none() || self.collected.contains(&file)
    }
}

/// What a part of a job lays apart.
pub(super) struct Apart {
    context: JobContext,
    open: Option<(PathBuf, ValueWriter)>,
    /// Lengths and hashes, of the inputs' files and those that were written.
    known: BTreeMap<TableId, (u64, u64)>,
    /// Every file made so far that may exist.
    files: Vec<PathBuf>,
    written_bytes: u64,
    loaded_bytes: u64,
}

impl Apart {
    /// Nothing yet; `inputs` are the tables whose references may be carried on.
    pub fn new<'a>(context: JobContext, inputs: impl Iterator<Item = &'a TableMeta>) -> Apart {
        let uses = inputs.flat_map(|meta| &meta.values);
        let known = uses.map(|used| (used.file, (used.file_bytes, used.hash))).collect();
        Apart { context, open: None, known, files: Vec::new(), written_bytes: 0, loaded_bytes: 0 }
    }

    /// True if the value that a reference leads to is to be loaded.
    pub fn takes_along(&mut self, reference: &[u8]) -> bool {
        // What is malformed is carried on, and the writer says so.
        let Ok(value) = ValueRef::decode(reference) else { return false };
        let takes = self.context.values.takes_along(value.file);
        if takes {
            self.loaded_bytes += value.record_bytes();
        }
        takes
    }

    /// The reference in place of a value, if that is to lie apart.
    pub fn lay(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.context.values.lays_apart(value.len()) {
            return Ok(None);
        }
        if self.open.as_ref().is_some_and(|(_, writer)| writer.bytes() >= self.context.table_bytes) {
            self.close()?;
        }
        let (_, writer) = match &mut self.open {
            Some(open) => open,
            None => {
                let id = self.context.next_id();
                let path = self.context.table_options.values_dir.join(temporary_name(id));
                self.files.push(path.clone());
                let file = self.context.env.fs.create(&path)?;
                let writer =
                    ValueWriter::new(file, path.clone(), id, self.context.table_options.compression)?;
                self.open.insert((path, writer))
            }
        };
        writer.add(value).map(|value| Some(value.encode()))
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        if self.open.is_some() { ValueWriter::MEMORY_BYTES } else { 0 }
    }

    /// Ends the open file and gives it its final name.
    fn close(&mut self) -> Result<()> {
        let Some((path, writer)) = self.open.take() else { return Ok(()) };
        let WrittenValues { id, file_bytes, hash } = writer.finish()?;
        let name = self.context.table_options.values_dir.join(value_file_name(id, hash));
        self.files.push(name.clone());
        self.context.env.fs.rename(&path, &name)?;
        self.known.insert(id, (file_bytes, hash));
        self.written_bytes += file_bytes;
        Ok(())
    }

    /// Ends the open file, and completes what the job's tables say of the files that they refer to.
    pub fn finish<'a>(&mut self, tables: impl Iterator<Item = &'a mut TableMeta>) -> Result<()> {
        self.close()?;
        for used in tables.flat_map(|meta| &mut meta.values) {
            let Some((file_bytes, hash)) = self.known.get(&used.file) else {
                let what =
                    format!("an entry refers to the file {:08} of values, which no input names", used.file.0);
                return Err(Error::corruption(&*self.context.table_options.values_dir, None, what));
            };
            *used = ValueUse { file_bytes: *file_bytes, hash: *hash, ..*used };
        }
        Ok(())
    }

    /// Takes over what another part laid apart.
    pub fn append(&mut self, other: &mut Apart) {
        self.files.append(&mut other.files);
        self.written_bytes += other.written_bytes;
        self.loaded_bytes += other.loaded_bytes;
    }

    /// Where files were made, to be synced.
    pub fn dir(&self) -> Option<&Path> {
        (!self.files.is_empty()).then_some(&*self.context.table_options.values_dir)
    }

    /// The files stay from here on; how many bytes of values were read and written.
    pub fn keep(&mut self) -> (u64, u64) {
        self.files.clear();
        (self.loaded_bytes, self.written_bytes)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for file in &self.files {
            // One of the two names of each file is missing; and what cannot be removed is an orphan.
            let _ = self.context.env.fs.remove(file);
        }
    }
}
