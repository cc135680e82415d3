//! Tables being written by a job, and what becomes of their files.
//!
//! Place: `job` (once per part) and `flush` hand a cursor over the inputs to [`Outputs::write`].
//!
//! Invariants:
//! 1. A file bears its temporary name until it is whole and synced.
//! 2. Outputs that are dropped without [`Outputs::keep`] take their files with them, also in a panic, and their blocks
//!    from the cache.
//! 3. An output is cut between two user keys; range tombstones are cut at the same place, so that outputs do not overlap.
//! 4. A value is copied once: from the input's block to the output's, or to a value file (`apart`).
//!
//! Complexity: an entry costs the merge's comparisons, one with the key before it (`retain`) and the writer's own check.
//! Concurrency: one thread. Tests: `job_tests.rs`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::apart::Apart;
use super::retain::{Retention, Verdict, Walk};
use super::{CompactionOutcome, JobContext};
use crate::budget::Charge;
use crate::error::{Error, Result};
use crate::iter::Cursor;
use crate::key::{Comparator, Kind, Lsn};
use crate::layout::Border;
use crate::table::{
    Spare, TableHandle, TableId, TableMeta, TableOptions, TableWriter, file_name, pile_columns,
    temporary_name,
};

/// Input bytes between two looks at `cancel`, and two calls of `on_bytes`.
const TICK_BYTES: usize = 64 << 10;
/// Kept entries between two looks at the tables below, where many lie over one table.
const ENTRIES_PER_LOOK: u32 = 16;
/// Bytes of tables below that an output overlaps, at most, in full tables (but for one table and a few entries).
const BELOW_TABLES_MAX: u64 = 10;

/// Bytes of values apart that an output refers to, at most, in full tables: to relocate them is one job.
const REFERRED_TABLES_MAX: u64 = 16;

/// The range of keys a part writes, and what it must know of its place.
pub(super) struct PartBounds<'a> {
    /// First key; `None` is unbounded.
    pub start: Option<&'a [u8]>,
    /// First key behind the part; `None` is unbounded.
    pub end: Option<&'a [u8]>,
    /// Bytes after which an output is cut.
    pub table_bytes: u64,
    /// Bytes of memory after which it is cut, too.
    pub memory_bytes: usize,
    /// Tables of the level below the output, by key.
    pub below: &'a [Arc<TableHandle>],
    /// By key, ascending, where outputs are cut, and to which level they go from there on.
    pub borders: &'a [Border],
    /// Tables that the outputs come to lie over and stand with in one pile, newest first.
    pub pile: &'a [Arc<TableHandle>],
    /// Keys that these have for each that comes, about.
    pub pile_keys: f64,
}

impl PartBounds<'_> {
    /// Moves `cursor` to the first entry of the part.
    fn seek(&self, cursor: &mut impl Cursor) -> Result<()> {
        match self.start {
            Some(start) => cursor.seek(start, Lsn::MAX),
            None => cursor.seek_first(),
        }
    }

    /// True if the table that `writer` writes is large enough before `key`. An eighth earlier where a column of filters begins: had two
    /// tables a part of one, both would take their place in its page.
    fn is_full(&self, writer: &TableWriter, key: &[u8]) -> bool {
        let memory_bytes = writer.memory_bytes() + writer.filter_bytes_of(self.pile_keys);
        let reaches = |eighths: u8| {
            writer.estimated_bytes() >= self.table_bytes / 8 * u64::from(eighths)
                || memory_bytes >= self.memory_bytes / 8 * usize::from(eighths)
                || writer.uses_of_buckets(eighths)
                || writer.referred_bytes() / REFERRED_TABLES_MAX >= self.table_bytes / 8 * u64::from(eighths)
        };
        reaches(7) && (writer.begins_a_column(key) || reaches(8))
    }
}

/// The new tables of a job or of one part of it.
pub(super) struct Outputs {
    context: JobContext,
    stop: Arc<AtomicBool>,
    /// Where the next table goes.
    level: u32,
    /// Where tables were made, to be synced.
    dirs: BTreeSet<PathBuf>,
    /// Every file made so far that may exist.
    files: Vec<PathBuf>,
    /// Every table begun so far.
    ids: Vec<u64>,
    tables: Vec<(u32, TableMeta)>,
    apart: Apart,
    entries_read: u64,
    buffers: Charge,
    /// Bytes of `buffers` that are the inputs'.
    input_bytes: usize,
    /// Memory of the table before, and how much of it is resident at most.
    spare: Spare,
    spare_bytes: usize,
}

/// The table being written.
struct Open {
    id: TableId,
    path: PathBuf,
    writer: TableWriter,
    told_bytes: u64,
}

impl Outputs {
    /// Nothing yet, to be written to `level`, or behind borders to theirs, until `stop` is set or the job is cancelled.
    pub fn new(context: JobContext, level: u32, stop: Arc<AtomicBool>, apart: Apart) -> Outputs {
        let buffers = context.buffers.charge(0);
        Outputs {
            apart,
            context,
            stop,
            level,
            dirs: BTreeSet::new(),
            files: Vec::new(),
            ids: Vec::new(),
            tables: Vec::new(),
            entries_read: 0,
            buffers,
            input_bytes: 0,
            spare: Spare::default(),
            spare_bytes: 0,
        }
    }

    /// What the cursors that `write` is given hold, in bytes.
    pub fn reads_with(&mut self, bytes: usize) {
        self.input_bytes = bytes;
        self.buffers.set(bytes);
    }

    /// Versions read by `write` so far.
    pub fn entries_read(&self) -> u64 {
        self.entries_read
    }

    /// Writes what `rules` keep of the entries of `cursor` within `bounds`, and of the tombstones there.
    pub fn write(
        &mut self,
        cursor: &mut impl Cursor,
        rules: &Retention,
        bounds: &PartBounds<'_>,
    ) -> Result<()> {
        let comparator = self.context.table_options.comparator.clone();
        bounds.seek(cursor)?;
        let mut walk: Walk<'_> = rules.walk(bounds.start);
        let mut below = Below::new(bounds, &*comparator);
        let mut borders = bounds.borders;
        if let Some(part) = bounds.start {
            while let Some((border, rest)) = borders.split_first()
                && comparator.compare(&border.key, part).is_le()
            {
                (self.level, borders) = (border.level, rest);
            }
        }
        let mut open: Option<Open> = None;
        // Where the tombstones of the open table start: the last cut.
        let mut start: Option<Vec<u8>> = bounds.start.map(<[u8]>::to_vec);
        // True if no version of the current key was kept so far: only then may the table be cut.
        let mut may_cut = false;
        let mut unchecked_bytes = 0;
        self.check_cancelled()?;
        while cursor.valid() {
            let (key, value) = (cursor.key(), cursor.value());
            let (lsn, mut kind) = (cursor.lsn(), cursor.kind());
            let verdict = walk.judge(key, lsn, kind);
            if walk.is_first_of_key() {
                if bounds.end.is_some_and(|end| comparator.compare(key, end).is_ge()) {
                    break;
                }
                may_cut = true;
            }
            self.entries_read += 1;
            unchecked_bytes += key.len() + value.len();
            if verdict == Verdict::Keep {
                let relocated = match kind {
                    Kind::Apart => self.apart.relocated(value)?,
                    _ => None,
                };
                let value = match &relocated {
                    Some(relocated) => {
                        kind = Kind::Put;
                        unchecked_bytes += relocated.len();
                        &relocated[..]
                    }
                    None => value,
                };
                while may_cut
                    && let Some((border, rest)) = borders.split_first()
                    && comparator.compare(&border.key, key).is_le()
                {
                    self.pass(border, open.take(), rules, start.as_deref(), bounds.pile)?;
                    (start, borders) = (Some(border.key.clone()), rest);
                }
                let is_full = |open: &mut Open| bounds.is_full(&open.writer, key) || below.is_too_much(key);
                if may_cut && let Some(full) = open.take_if(is_full) {
                    self.finish(full, rules, start.as_deref(), Some(key), bounds.pile)?;
                    start = Some(key.to_vec());
                }
                may_cut = false;
                let table = match &mut open {
                    Some(table) => table,
                    None => {
                        below.enter(key);
                        open.insert(self.open()?)
                    }
                };
                if cursor.is_in_use() {
                    table.writer.next_is_in_use();
                }
                let reference = match kind {
                    Kind::Put => self.apart.lay(value, &self.context, &mut self.files)?,
                    _ => None,
                };
                match reference {
                    Some(reference) => table.writer.add(key, lsn, Kind::Apart, &reference)?,
                    None => table.writer.add(key, lsn, kind, value)?,
                }
            }
            if unchecked_bytes >= TICK_BYTES {
                self.tick(std::mem::take(&mut unchecked_bytes), open.as_mut())?;
            }
            cursor.next()?;
        }
        self.tick(unchecked_bytes, open.as_mut())?;
        while let Some((border, rest)) = borders.split_first()
            && bounds.end.is_none_or(|end| comparator.compare(&border.key, end).is_lt())
        {
            self.pass(border, open.take(), rules, start.as_deref(), bounds.pile)?;
            (start, borders) = (Some(border.key.clone()), rest);
        }
        let rest = rules.tombstones(start.as_deref(), bounds.end);
        if open.is_none() && !rest.is_empty() {
            open = Some(self.open()?);
        }
        if let Some(last) = open {
            self.finish(last, rules, start.as_deref(), bounds.end, bounds.pile)?;
        }
        let tables = self.tables.iter_mut().map(|(_, meta)| meta);
        self.apart.finish(tables, &self.context, &mut self.files)?;
        // Other parts may take longer.
        (self.spare, self.spare_bytes) = (Spare::default(), 0);
        self.input_bytes = 0;
        self.charge(0);
        Ok(())
    }

    /// Ends the open table at a border, or makes one for the tombstones before it; what follows goes to the border's level.
    fn pass(
        &mut self,
        border: &Border,
        open: Option<Open>,
        rules: &Retention,
        start: Option<&[u8]>,
        pile: &[Arc<TableHandle>],
    ) -> Result<()> {
        let open = match open {
            None if rules.tombstones(start, Some(&border.key)).is_empty() => None,
            None => Some(self.open()?),
            open => open,
        };
        if let Some(open) = open {
            self.finish(open, rules, start, Some(&border.key), pile)?;
        }
        self.level = border.level;
        Ok(())
    }

    /// Charges what the inputs, and the writer with so many bytes, have; or what the writer before it had, if that was more.
    fn charge(&mut self, writer_bytes: usize) {
        let values_bytes = self.apart.memory_bytes();
        self.buffers.set(self.input_bytes + writer_bytes.max(self.spare_bytes) + values_bytes);
    }

    fn check_cancelled(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) || self.context.cancel.load(Ordering::Relaxed) {
            return Err(Error::Closed { what: "the background job" });
        }
        Ok(())
    }

    fn tick(&mut self, read: usize, open: Option<&mut Open>) -> Result<()> {
        self.check_cancelled()?;
        let written_bytes = open.as_ref().map_or(0, |open| open.writer.memory_bytes());
        self.charge(written_bytes);
        if let Some(on_bytes) = &self.context.on_bytes {
            let written = open.map_or(0, |open| {
                let bytes = open.writer.estimated_bytes();
                bytes.saturating_sub(std::mem::replace(&mut open.told_bytes, bytes))
            });
            on_bytes(read as u64, written);
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Open> {
        let id = self.context.next_id();
        let path = (self.context.dir)(self.level).join(temporary_name(id));
        self.files.push(path.clone());
        let file = self.context.env.fs.create(&path)?;
        self.ids.push(id.0);
        let filter_bits_per_key = self.context.filter_bits.at(self.level);
        let grid = self.context.filter_bits.grid(self.level);
        let hashed = self.context.stages(self.level);
        let options =
            TableOptions { filter_bits_per_key, grid, hashed, ..self.context.table_options.clone() };
        let writer = TableWriter::new(file, path.clone(), id, options);
        let writer = writer
            .keep_in(Arc::clone(self.context.shelf.cache()))
            .with_spare(std::mem::take(&mut self.spare));
        Ok(Open { id, path, writer, told_bytes: 0 })
    }

    /// Completes a table with the tombstones of [start, end) and gives its file the final name.
    fn finish(
        &mut self,
        open: Open,
        rules: &Retention,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        pile: &[Arc<TableHandle>],
    ) -> Result<()> {
        let Open { id, path, mut writer, told_bytes } = open;
        writer.set_tombstones(rules.tombstones(start, end));
        if let Some((grid, first, last)) = writer.columned_span() {
            writer.set_pile(pile_columns(pile, grid, first, last, || self.check_cancelled())?);
        }
        self.charge(writer.memory_bytes());
        self.spare_bytes = self.spare_bytes.max(writer.memory_bytes());
        let (mut meta, spare) = writer.finish()?;
        self.spare = spare;
        debug_assert_eq!(meta.id, id);
        meta.created_at_ms = u64::try_from(self.context.env.clock.wall().as_millis()).unwrap_or(0);
        let dir = (self.context.dir)(self.level);
        let name = dir.join(file_name(meta.id, meta.content_hash));
        self.dirs.insert(dir);
        self.files.push(name.clone());
        self.context.env.fs.rename(&path, &name)?;
        if let Some(on_bytes) = &self.context.on_bytes {
            on_bytes(0, meta.file_bytes.saturating_sub(told_bytes));
        }
        self.tables.push((self.level, meta));
        Ok(())
    }

    /// Takes over the outputs of another part, which come behind these.
    pub fn append(&mut self, mut other: Outputs) {
        self.files.append(&mut other.files);
        self.ids.append(&mut other.ids);
        self.tables.append(&mut other.tables);
        self.apart.written_bytes += other.apart.written_bytes;
        self.apart.loaded_bytes += other.apart.loaded_bytes;
        self.apart.damaged = self.apart.damaged.take().or(other.apart.damaged.take());
        self.dirs.append(&mut other.dirs);
        self.entries_read += other.entries_read;
    }

    /// Makes the new names durable and gives the tables out. Their files stay from here on.
    pub fn keep(mut self) -> Result<CompactionOutcome> {
        if self.apart.written_bytes > 0 {
            self.dirs.insert(self.context.shelf.values_dir().to_path_buf());
        }
        for dir in &self.dirs {
            self.context.env.fs.sync_dir(dir)?;
        }
        self.files.clear();
        self.ids.clear();
        let (read_bytes, values_bytes) = (self.apart.loaded_bytes, self.apart.written_bytes);
        let tables_bytes: u64 = self.tables.iter().map(|(_, meta)| meta.file_bytes).sum();
        let added = std::mem::take(&mut self.tables)
            .into_iter()
            .map(|(level, meta)| {
                let options = self.context.table_options.clone();
                let dir = (self.context.dir)(level);
                let table = TableHandle::new(&self.context.shelf, dir, meta.clone(), options);
                (level, meta, table)
            })
            .collect();
        let written_bytes = tables_bytes + values_bytes;
        let damaged = self.apart.damaged.take();
        Ok(CompactionOutcome { added, read_bytes, written_bytes, damaged, ..Default::default() })
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        for file in &self.files {
            // One of the two names of each file is missing; and what cannot be removed is an orphan.
            let _ = self.context.env.fs.remove(file);
        }
        self.context.shelf.cache().evict_tables(&self.ids);
    }
}

/// How much of the level below the open table overlaps.
struct Below<'a> {
    comparator: &'a dyn Comparator,
    tables: &'a [Arc<TableHandle>],
    at: usize,
    bytes: u64,
    bytes_max: u64,
    until_look: u32,
}

impl<'a> Below<'a> {
    fn new(bounds: &PartBounds<'a>, comparator: &'a dyn Comparator) -> Below<'a> {
        Below {
            comparator,
            tables: bounds.below,
            at: 0,
            bytes: 0,
            bytes_max: bounds.table_bytes.saturating_mul(BELOW_TABLES_MAX),
            until_look: 1,
        }
    }

    /// A table is opened whose first key is `key`.
    fn enter(&mut self, key: &[u8]) {
        self.at += self.tables[self.at..].partition_point(|t| t.meta().ends_before(self.comparator, key));
        self.bytes = 0;
        self.until_look = 1;
    }

    /// True if the open table should end before `key`, which may be its next.
    #[inline]
    fn is_too_much(&mut self, key: &[u8]) -> bool {
        if self.at == self.tables.len() {
            return false;
        }
        self.until_look -= 1;
        if self.until_look > 0 {
            return false;
        }
        // Where entries lie far apart, every one is looked at.
        self.until_look = ENTRIES_PER_LOOK;
        while let Some(table) = self.tables.get(self.at) {
            if !table.meta().ends_before(self.comparator, key) {
                break;
            }
            self.bytes += table.meta().file_bytes;
            self.at += 1;
            self.until_look = 1;
        }
        self.bytes > self.bytes_max
    }
}
