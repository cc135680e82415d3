//! Jobs: a flush or a compaction carried out, and its outcome made durable and visible.
//!
//! Place: called by workers, and by `manual` for compactions on users' threads; calls `compaction`, then the manifest, then
//! the superversion.
//!
//! Invariants:
//! 1. A flush takes the oldest frozen generations of a keyspace once everything below their end is complete; it reads the
//!    snapshot list after that (I4).
//! 2. Tables are durable before the manifest names them, the manifest before the superversion shows them, the
//!    superversion before the log below is recycled (I6) or an input is removed.
//! 3. The log is durable up to where a flush ends before the manifest names its tables: else a power loss could keep this
//!    keyspace's part of a batch and lose the other's.
//! 4. A failed job is done again later, from its inputs: what it wrote is removed. Only a manifest of which nobody knows
//!    what it says now, or a log that failed to sync, poisons the store.
//!
//! Concurrency: a job holds no lock but the manifest's, while it installs.
//! Tests: `db::tests::crash`, `db::tests::failures`, `tests/variants.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;

use crate::compaction::{CompactionOutcome, JobContext, run_compaction, run_flush};
use crate::error::{Error, Result};
use crate::iter::Horizons;
use crate::key::Lsn;
use crate::layout::{CompactionPlan, FilterBits};
use crate::options::KeyspaceOptions;
use crate::sync::failpoint;
use crate::table::TableOptions;
use crate::version::{Change, KeyspaceId, Levels, VersionEdit};

use super::super::keyspace::KeyspaceState;
use super::super::open::place_of;
use super::super::store::Store;
use super::super::superversion::{Generation, SuperVersion};
use super::super::timing::Timed;
use super::queue::Job;

impl Store {
    pub(super) fn perform(&self, job: &Job) -> Result<()> {
        match job {
            Job::Flush(keyspace, end) => self.flush_frozen(keyspace, *end),
            Job::Drain(keyspace, generation) => {
                let rests = generation.end() <= self.sequencer.tail();
                if !rests {
                    generation.memtable.drain();
                } else if keyspace.options().memory.runs() > 1 {
                    generation.memtable.settle();
                }
                // Else it is about to be flushed, which needs nothing sorted.
                Ok(())
            }
            Job::Compact(keyspace, plan) => self.compact_by(keyspace, plan),
        }
    }

    /// Flushes what ends at or below `end`, which the log has passed.
    fn flush_frozen(&self, keyspace: &KeyspaceState, end: Lsn) -> Result<()> {
        let generations: Vec<Arc<Generation>> = {
            let guard = epoch::pin();
            let now = keyspace.current.load(&guard);
            now.frozen().iter().filter(|g| g.end() <= end).cloned().collect()
        };
        failpoint::hit("flush::begins");
        let Some(newest) = generations.first() else { return Ok(()) };
        self.sequencer.wait_completed(end)?;
        self.sync_log(end)?;
        let context = self.flush_context(keyspace, &generations);
        let bytes = self.always_timed(Timed::Flush, || {
            let outcome = flush_generations(&context, &generations)?;
            let bytes = outcome.written_bytes;
            self.install(keyspace, outcome, Some(end)).map(|()| bytes)
        })?;
        self.background.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.background.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        keyspace.learn(&self.memory, &newest.memtable);
        self.recycle_log()
    }

    /// Lets go of the log that nobody needs any more: after whatever makes it so.
    pub fn recycle_log(&self) -> Result<()> {
        // Never beyond what the manifest says: by that, an end that it has lost shows when the store is opened.
        let noted = self.manifest.lock().as_ref().map_or(Lsn::ZERO, |m| m.state().log_reaches);
        let needed = self.log_needed_from().min(noted);
        // What could not be recycled now is recycled after the next flush, unless the log is at its end.
        if let Err(error @ Error::Poisoned { .. }) = self.log()?.recycle_below(needed) {
            self.poison(&error);
        }
        Ok(())
    }

    /// Carries a plan out.
    pub(super) fn compact_by(&self, keyspace: &KeyspaceState, plan: &CompactionPlan) -> Result<()> {
        let levels = keyspace.current.load(&epoch::pin()).levels.clone();
        let tries = self.keyspaces.all().values().filter(|keyspace| !keyspace.options().is_ordered()).count();
        let context = self.job_context(keyspace, |options| {
            let bits = FilterBits::of_merge(&levels, options, self.options.filter_bytes_max(), plan);
            bits.with_memory(&levels, options, (self.memory.shelf.tables_bytes_max() / tries.max(1)) as u64)
        });
        let mut outcome = self.always_timed(Timed::Compaction, || run_compaction(plan, &context))?;
        if let Some(error) = outcome.damaged.take() {
            self.background.met_corruption(&keyspace.name, &error);
        }
        self.background.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.background.counters.read_bytes.fetch_add(outcome.read_bytes, Ordering::Relaxed);
        self.background.counters.compacted_bytes.fetch_add(outcome.written_bytes, Ordering::Relaxed);
        self.install(keyspace, outcome, None)
    }

    /// Makes an outcome durable, then visible, then removes what it replaced.
    fn install(
        &self,
        keyspace: &KeyspaceState,
        outcome: CompactionOutcome,
        flushed_to: Option<Lsn>,
    ) -> Result<()> {
        {
            let mut manifest = self.manifest.lock();
            let edit = self.edit_of(keyspace.id, &outcome, flushed_to);
            if let Err(error) = keyspace.check_open().and_then(|()| self.append_to(&mut manifest, &edit)) {
                // A poisoned manifest may name the new tables: the next open decides.
                if manifest.as_ref().is_none_or(|m| m.poisoned().is_none()) {
                    outcome.discard();
                }
                return Err(error);
            }
            // Under the manifest's lock: superversions change in the order of the manifest.
            let flushed = keyspace.current.replace(|now| {
                let levels = Arc::new(apply(&now.levels, &outcome));
                let flushed_to = flushed_to.unwrap_or(now.flushed_to);
                let generations = now.generations.iter().filter(|g| g.end() > flushed_to).cloned().collect();
                Some(SuperVersion { generations, levels, flushed_to })
            });
            self.memory.retire(&flushed);
        }
        outcome.obsolete.iter().for_each(|table| table.mark_obsolete());
        Ok(())
    }

    /// What a job on this keyspace needs. Snapshots that were forgotten are released first; it keeps what the others see.
    pub fn job_context(
        &self,
        keyspace: &KeyspaceState,
        filter_bits: impl FnOnce(&KeyspaceOptions) -> FilterBits,
    ) -> JobContext {
        self.expire_snapshots();
        let options = keyspace.options();
        let (directory, level_paths) = (self.directory.clone(), self.options.level_paths.clone());
        JobContext {
            env: self.env.clone(),
            dir: Arc::new(move |level| place_of(&level_paths, &directory, level)),
            next_table_id: self.next_table_id.clone(),
            table_options: TableOptions::new(&options, keyspace.hasher)
                .with_memory(self.options.memory_bytes),
            filter_bits: filter_bits(&options),
            separated_bytes_min: options.value_separation.map(|separation| separation.min_bytes),
            table_bytes: options.table_bytes,
            shelf: self.memory.shelf.clone(),
            buffers: self.memory.jobs.clone(),
            job_bytes: self.memory.job_bytes(self.options.background_threads),
            snapshots: self.sequencer.snapshots().list(),
            cancel: self.background.cancel.clone(),
            on_bytes: None,
            parallelism: self.options.background_threads,
        }
    }

    /// The same for a flush of these generations.
    pub fn flush_context(&self, keyspace: &KeyspaceState, generations: &[Arc<Generation>]) -> JobContext {
        let levels = keyspace.current.load(&epoch::pin()).levels.clone();
        let entries = generations.iter().map(|g| g.memtable.entries() as u64).sum();
        let bytes_max = self.options.filter_bytes_max();
        self.job_context(keyspace, |options| FilterBits::of_flush(&levels, options, bytes_max, entries))
    }

    /// The manifest's words for an outcome.
    pub fn edit_of(
        &self,
        keyspace: KeyspaceId,
        outcome: &CompactionOutcome,
        flushed_to: Option<Lsn>,
    ) -> VersionEdit {
        let mut edit = VersionEdit::new();
        for &(level, id) in &outcome.removed {
            edit.push(Change::RemoveTable { keyspace, level, id });
        }
        for (level, meta, _) in &outcome.added {
            edit.push(Change::AddTable { keyspace, level: *level, meta: meta.clone() });
        }
        if let Some(lsn) = flushed_to {
            edit.push(Change::FlushedTo { keyspace, lsn });
        }
        edit.push(Change::NextTableId(self.next_table_id.load(Ordering::Relaxed)));
        edit
    }
}

/// The levels after an outcome.
pub(crate) fn apply(levels: &Levels, outcome: &CompactionOutcome) -> Levels {
    let added: Vec<_> = outcome.added.iter().map(|(level, _, table)| (*level, table.clone())).collect();
    levels.apply(&added, &outcome.removed)
}

/// Writes frozen generations to level 0.
pub(crate) fn flush_generations(
    context: &JobContext,
    generations: &[Arc<Generation>],
) -> Result<CompactionOutcome> {
    let cursors: Vec<_> = generations.iter().map(|g| g.memtable.flush_cursor()).collect();
    let horizons = Horizons::of_snapshots(context.snapshots.clone());
    let tombstones: Vec<_> = generations.iter().flat_map(|g| g.memtable.tombstones(&horizons)).collect();
    run_flush(cursors, &tombstones, context)
}
