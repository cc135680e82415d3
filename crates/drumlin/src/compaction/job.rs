//! A compaction: a plan carried out, in parts side by side.
//!
//! Place: `db`'s background threads. The plan says what to merge; `retain` what stays; `outputs` writes.
//!
//! A part is a range of keys between two cuts, with cursors and outputs of its own. The first runs on the caller's thread, the
//! others on threads of `env`. The first failure stops all. So does a panic on the caller's thread (in a user's comparator):
//! it goes on when the others have ended.
//! Inputs that the job's range tombstones hide whole are not read.
//! Invariants, concurrency and tests: see `compaction`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::apart::{Apart, ValueRules};
use super::outputs::{Outputs, PartBounds};
use super::retain::Retention;
use super::{CompactionOutcome, JobContext};
use crate::budget::Charge;
use crate::env::Thread;
use crate::error::{Error, Result};
use crate::iter::{Either, Merge, Tombstones};
use crate::key::key_prefix;
use crate::layout::CompactionPlan;
use crate::sync::Mutex;
use crate::table::{CursorOptions, TableHandle, TableId, TableMeta, TableOptions, ValueWindows};
use crate::version::{Level, LevelCursor, PartCursor};

/// Bytes that each cursor reads ahead, at least and at most.
const READAHEAD_BYTES: (usize, usize) = (16 << 10, 256 << 10);
/// What a part's cursors may take of its memory: one of so many parts.
const INPUTS_PART: usize = 3;
/// What the output of a part may take in any case, in bytes.
const OUTPUT_BYTES_MIN: usize = 512 << 10;
/// Memory that is worth a further part; and where outputs are staged, since of small tables a store has many, and each that is open
/// has its price.
const PART_BYTES_MIN: usize = 1 << 20;
const STAGED_PART_BYTES: usize = 2 << 20;
/// Bytes of inputs that are worth a further thread, in full tables.
const TABLES_PER_THREAD: u64 = 2;

/// Carries out `plan`. On success its outputs are durable and wait for an edit; on failure nothing is left of them.
/// [`Error::Closed`] if it was cancelled.
pub fn run_compaction(plan: &CompactionPlan, context: &JobContext) -> Result<CompactionOutcome> {
    let removed: Vec<(u32, TableId)> = plan.tables().map(|(level, table)| (level, table.meta().id)).collect();
    if plan.trivial_move && (context.dir)(plan.input_level) == (context.dir)(plan.output_level) {
        let added = plan.tables().map(|(_, table)| (plan.output_level, table.meta().clone(), table.clone()));
        return Ok(CompactionOutcome { added: added.collect(), removed, moved: true, ..Default::default() });
    }
    let job = Arc::new(Job::new(plan.clone(), context.clone())?);
    let mut outcome = job.run()?.keep()?;
    outcome.read_bytes +=
        job.inputs.iter().flat_map(|(_, tables)| tables).map(|t| t.meta().file_bytes).sum::<u64>();
    outcome.removed = removed;
    outcome.obsolete = plan.tables().map(|(_, table)| table.clone()).collect();
    Ok(outcome)
}

/// A compaction that is running.
struct Job {
    plan: CompactionPlan,
    context: JobContext,
    rules: Retention,
    values: ValueRules,
    _rules_memory: Charge,
    /// What must be read, by level.
    inputs: Vec<(u32, Vec<Arc<TableHandle>>)>,
    /// Between the parts; ascending.
    cuts: Vec<Vec<u8>>,
    /// Set by the first failure; a hint, Relaxed: what failed is in `state`.
    stop: Arc<AtomicBool>,
    state: Mutex<State>,
}

/// What the parts have come to.
struct State {
    /// By part; `None` until it is done.
    done: Vec<Option<Part>>,
    /// The first failure.
    failure: Option<Error>,
}

/// A table of level 0, or those of another level.
type Run = Either<Arc<TableHandle>, Vec<Arc<TableHandle>>>;

/// A part that is done.
struct Part {
    outputs: Outputs,
    duplicates: u64,
}

/// The threads of the parts but the first. None outlives this: it would go on writing in a store that was closed meanwhile.
struct Others<'a> {
    threads: Vec<Box<dyn Thread>>,
    stop: &'a AtomicBool,
}

impl Others<'_> {
    /// Waits for all, also after one that panicked; true if none did.
    fn join(&mut self) -> bool {
        self.threads.drain(..).map(|thread| thread.join()).filter(|well| !well).count() == 0
    }
}

impl Drop for Others<'_> {
    /// After a panic; else all are joined already.
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop.store(true, Ordering::Relaxed);
            self.join();
        }
    }
}

impl Job {
    fn new(plan: CompactionPlan, context: JobContext) -> Result<Job> {
        let comparator = context.table_options.comparator.clone();
        let mut tombstones = Vec::new();
        for (_, table) in plan.tables().filter(|(_, table)| table.meta().range_tombstones > 0) {
            tombstones.push(table.tombstones()?);
        }
        let mut rules_memory = context.buffers.charge(Tombstones::join_bytes(&tombstones));
        let rules =
            Retention::new(comparator, context.snapshots.clone(), &tombstones, (*plan.deeper).clone());
        rules_memory.set(rules.heap_bytes());
        let mut inputs = plan.inputs.clone();
        inputs.iter_mut().for_each(|(_, tables)| tables.retain(|table| !is_hidden(&rules, table.meta())));
        let cuts = cuts_of(&plan, &inputs, &context)?;
        let done = (0..=cuts.len()).map(|_| None).collect();
        let state = Mutex::new(State { done, failure: None });
        Ok(Job {
            values: ValueRules { min_bytes: context.separated_bytes_min, collected: plan.collected.clone() },
            context,
            rules,
            _rules_memory: rules_memory,
            inputs,
            cuts,
            stop: Arc::default(),
            state,
            plan,
        })
    }

    /// Runs all parts and joins their outputs.
    fn run(self: &Arc<Self>) -> Result<Outputs> {
        let mut others = Others { threads: Vec::new(), stop: &self.stop };
        for part in 1..=self.cuts.len() {
            let job = Arc::clone(self);
            let name = format!("compact-L{}-{part}", self.plan.output_level);
            match self.context.env.spawner.spawn(&name, Box::new(move || job.run_part(part))) {
                Ok(thread) => others.threads.push(thread),
                // No thread to be had: do it here.
                Err(_) => self.run_part(part),
            }
        }
        self.run_part(0);
        let well = others.join();
        let mut state = self.state.lock();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let parts: Option<Vec<Part>> = state.done.iter_mut().map(Option::take).collect();
        let Some(parts) = parts.filter(|_| well) else {
            let why = format!("a thread of the compaction \"{}\" panicked", self.plan);
            return Err(Error::Poisoned { why });
        };
        let mut outputs = self.outputs(ValueWindows::none(&self.context.shelf));
        let mut duplicates = 0;
        for part in parts {
            outputs.append(part.outputs);
            duplicates += part.duplicates;
        }
        self.check_entries(outputs.entries_read() + duplicates)?;
        Ok(outputs)
    }

    /// Runs one part and leaves its outcome in the state.
    fn run_part(&self, part: usize) {
        let outcome = self.write_part(part);
        let mut state = self.state.lock();
        match outcome {
            Ok(done) => state.done[part] = Some(done),
            Err(error) => {
                // Those that stop because of the first failure are not it.
                state.failure.get_or_insert(error);
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn write_part(&self, part: usize) -> Result<Part> {
        let start = part.checked_sub(1).map(|cut| self.cuts[cut].as_slice());
        let end = self.cuts.get(part).map(Vec::as_slice);
        let part_bytes = self.context.job_bytes / (self.cuts.len() + 1);
        let runs = self.runs(start, end);
        let windows = self.windows(&runs, part_bytes / INPUTS_PART / 2);
        let windows_bytes = windows.bytes_max();
        let (mut merge, cursors_bytes) = self.merge(runs, part_bytes / INPUTS_PART - windows_bytes);
        let mut outputs = self.outputs(windows);
        outputs.reads_with(cursors_bytes);
        let bounds = PartBounds {
            start,
            end,
            table_bytes: self.context.table_bytes,
            memory_bytes: part_bytes.saturating_sub(cursors_bytes + windows_bytes).max(OUTPUT_BYTES_MIN),
            below: &self.plan.below,
            borders: &self.plan.borders,
            pile: &self.plan.pile,
            pile_keys: self.pile_keys(),
        };
        outputs.write(&mut merge, &self.rules, &bounds)?;
        Ok(Part { outputs, duplicates: merge.duplicates() })
    }

    /// Keys of the pile under the outputs for each that the inputs have.
    fn pile_keys(&self) -> f64 {
        let entries = |table: &Arc<TableHandle>| table.meta().entries as f64;
        let come: f64 = self.inputs.iter().flat_map(|(_, tables)| tables).map(entries).sum();
        self.plan.pile.iter().map(entries).sum::<f64>() / come.max(1.0)
    }

    fn outputs(&self, windows: ValueWindows) -> Outputs {
        let inputs = self.inputs.iter().flat_map(|(_, tables)| tables).map(|table| table.meta());
        let apart = Apart::new(self.values.clone(), inputs, windows);
        Outputs::new(self.context.clone(), self.plan.output_level, self.stop.clone(), apart)
    }

    /// The inputs that may have keys in [start, end).
    fn runs(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Vec<Run> {
        let comparator = &self.context.table_options.comparator;
        let mut runs = Vec::new();
        for (level, tables) in &self.inputs {
            let within =
                tables.iter().filter(|t| t.meta().overlaps(&**comparator, start, end, false)).cloned();
            match level {
                0 => runs.extend(within.map(Either::Left)),
                _ => runs.push(Either::Right(within.collect::<Vec<_>>())),
            }
        }
        runs.retain(|run| !matches!(run, Either::Right(tables) if tables.is_empty()));
        runs
    }

    /// The windows of the values of `runs` that are to be relocated, of `bytes` at most.
    fn windows(&self, runs: &[Run], bytes: usize) -> ValueWindows {
        let tables = runs.iter().flat_map(|run| match run {
            Either::Left(table) => std::slice::from_ref(table),
            Either::Right(tables) => tables,
        });
        let files = tables.flat_map(|table| &table.meta().values).map(|used| used.file);
        let relocated: HashSet<TableId> = files.filter(|file| self.values.relocates(*file)).collect();
        ValueWindows::new(&self.context.shelf, bytes, relocated.len())
    }

    /// The runs as one cursor, and how many bytes it holds: `bytes`, if it can.
    fn merge(&self, runs: Vec<Run>, bytes: usize) -> (Merge<PartCursor>, usize) {
        let TableOptions { comparator, block_bytes, .. } = &self.context.table_options;
        let (least, most) = READAHEAD_BYTES;
        let run_bytes = bytes / runs.len().max(1);
        let readahead_bytes = run_bytes.saturating_sub(*block_bytes).clamp(least, most);
        let held_bytes = runs.len() * (readahead_bytes + block_bytes);
        let options = CursorOptions { fill_cache: false, readahead_bytes };
        let cursor = |run: Run| match run {
            Either::Left(table) => Either::Left(table.cursor(options)),
            Either::Right(tables) => {
                let level = Level::by_key(&**comparator, tables);
                Either::Right(LevelCursor::new(comparator.clone(), level, options))
            }
        };
        (Merge::new(comparator.clone(), runs.into_iter().map(cursor).collect()), held_bytes)
    }

    /// Fails if the inputs gave more or fewer entries than their descriptions say.
    fn check_entries(&self, read: u64) -> Result<()> {
        let tables = || self.inputs.iter().flat_map(|(_, tables)| tables);
        let expected: u64 = tables().map(|table| table.meta().entries).sum();
        match tables().next() {
            Some(table) if read != expected => {
                let what = format!(
                    "the compaction \"{}\" read {read} entries of inputs that hold {expected}; this table is the first \
                     of them: run verify",
                    self.plan
                );
                Err(Error::corruption(table.path(), None, what))
            }
            _ => Ok(()),
        }
    }
}

/// True if the job's tombstones hide every entry of the table from every snapshot that could see it. The table's own
/// tombstones are among the job's, and are kept or dropped apart from its entries.
fn is_hidden(rules: &Retention, meta: &TableMeta) -> bool {
    rules.hides(&meta.smallest, &meta.largest, meta.min_lsn, meta.max_lsn)
}

/// Where to cut the job: at some of the plan's cuts, or within its largest table if the plan knows none.
fn cuts_of(
    plan: &CompactionPlan,
    inputs: &[(u32, Vec<Arc<TableHandle>>)],
    context: &JobContext,
) -> Result<Vec<Vec<u8>>> {
    let tables = || inputs.iter().flat_map(|(_, tables)| tables);
    let bytes: u64 = tables().map(|table| table.meta().file_bytes).sum();
    let worth = bytes / context.table_bytes.saturating_mul(TABLES_PER_THREAD).max(1);
    let part_bytes = if context.stages(plan.output_level) { STAGED_PART_BYTES } else { PART_BYTES_MIN };
    let by_memory = context.job_bytes / part_bytes;
    let parts = context.parallelism.min(usize::try_from(worth).unwrap_or(usize::MAX)).min(by_memory);
    if parts < 2 {
        return Ok(Vec::new());
    }
    let within = match tables().max_by_key(|table| table.meta().file_bytes) {
        Some(largest) if plan.cuts.is_empty() => largest.split_keys(parts)?,
        _ => plan.cuts.clone(),
    };
    let parts = parts.min(within.len() + 1);
    // No column of filters is cut.
    let grid = context.filter_bits.grid(plan.output_level);
    let cut = |key: &Vec<u8>| match grid {
        Some(grid) => grid.start(key_prefix(key)).to_be_bytes().to_vec(),
        None => key.clone(),
    };
    let mut cuts: Vec<Vec<u8>> =
        (1..parts).map(|n| cut(&within[n * (within.len() + 1) / parts - 1])).collect();
    cuts.dedup();
    Ok(cuts)
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
