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
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch as epoch;

use crate::compaction::{CompactionOutcome, JobContext, run_compaction, run_flush};
use crate::error::{Error, Result};
use crate::iter::{Cursor, Horizons};
use crate::key::Lsn;
use crate::layout::CompactionPlan;
use crate::table::TableOptions;
use crate::version::{Change, KeyspaceId, Levels, VersionEdit};

use super::super::keyspace::KeyspaceState;
use super::super::open::{append_to, place_of};
use super::super::store::Store;
use super::super::superversion::{Generation, SuperVersion};
use super::Background;
use super::queue::Job;

impl Background {
    pub(super) fn perform(&self, store: &Store, job: &Job) -> Result<()> {
        match job {
            Job::Flush(keyspace) => self.flush(store, keyspace),
            Job::Compact(keyspace, plan) => self.compact(store, keyspace, plan),
        }
    }

    fn context(&self, store: &Store, keyspace: &KeyspaceState) -> JobContext {
        store.expire_snapshots();
        job_context(store, keyspace, store.sequencer.snapshots().list(), self.cancel.clone())
    }

    fn flush(&self, store: &Store, keyspace: &KeyspaceState) -> Result<()> {
        let tail = store.sequencer.tail();
        let generations: Vec<Arc<Generation>> = {
            let guard = epoch::pin();
            let now = keyspace.current.load(&guard);
            now.frozen().iter().filter(|g| g.end() <= tail).cloned().collect()
        };
        let Some(newest) = generations.first() else { return Ok(()) };
        let end = newest.end();
        store.sequencer.wait_completed(end)?;
        store.sync_log(end)?;
        let context = self.context(store, keyspace);
        let outcome = flush_generations(&context, &generations)?;
        let bytes = outcome.written_bytes;
        self.install(store, keyspace, outcome, Some(end))?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Never beyond what the manifest says: by that, an end that it has lost shows when the store is opened.
        let noted = store.manifest.lock().as_ref().map_or(Lsn::ZERO, |m| m.state().log_reaches);
        let needed = store.log_needed_from().min(noted);
        // What could not be recycled now is recycled after the next flush, unless the log is at its end.
        if let Err(error @ Error::Poisoned { .. }) = store.log()?.recycle_below(needed) {
            store.poison(&error);
        }
        Ok(())
    }

    pub(super) fn compact(
        &self,
        store: &Store,
        keyspace: &KeyspaceState,
        plan: &CompactionPlan,
    ) -> Result<()> {
        let context = self.context(store, keyspace);
        let outcome = run_compaction(plan, &context)?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(outcome.read_bytes, Ordering::Relaxed);
        self.counters.compacted_bytes.fetch_add(outcome.written_bytes, Ordering::Relaxed);
        self.install(store, keyspace, outcome, None)
    }

    /// Makes an outcome durable, then visible, then removes what it replaced.
    fn install(
        &self,
        store: &Store,
        keyspace: &KeyspaceState,
        outcome: CompactionOutcome,
        flushed_to: Option<Lsn>,
    ) -> Result<()> {
        {
            let mut manifest = store.manifest.lock();
            let edit =
                edit_of(keyspace.id, &outcome, flushed_to, store.next_table_id.load(Ordering::Relaxed));
            let appended = match manifest.as_mut() {
                Some(manifest) => keyspace.check_open().and_then(|()| append_to(store, manifest, &edit)),
                None => Err(Error::Closed { what: "store" }),
            };
            if let Err(error) = appended {
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
            store.memory.retire(&flushed);
        }
        outcome.obsolete.iter().for_each(|table| table.mark_obsolete());
        Ok(())
    }
}

/// What a job on this keyspace needs.
pub(crate) fn job_context(
    store: &Store,
    keyspace: &KeyspaceState,
    snapshots: Vec<Lsn>,
    cancel: Arc<AtomicBool>,
) -> JobContext {
    let (directory, directories) = (store.directory.clone(), keyspace.directories.clone());
    JobContext {
        env: store.env.clone(),
        dir: Arc::new(move |level| place_of(&directories, &directory, level)),
        next_table_id: store.next_table_id.clone(),
        table_options: TableOptions::new(&keyspace.options, keyspace.hasher),
        table_bytes: keyspace.options.table_bytes,
        shelf: store.memory.shelf.clone(),
        buffers: store.memory.jobs.clone(),
        part_bytes: store.memory.part_bytes(store.options.background_threads),
        snapshots,
        cancel,
        on_bytes: None,
        parallelism: store.options.background_threads,
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
    let cursors: Vec<Box<dyn Cursor>> =
        generations.iter().map(|g| Box::new(g.memtable.cursor()) as Box<dyn Cursor>).collect();
    let horizons = Horizons::of_snapshots(context.snapshots.clone());
    let tombstones: Vec<_> = generations.iter().flat_map(|g| g.memtable.tombstones(&horizons)).collect();
    run_flush(cursors, &tombstones, context)
}

/// The manifest's words for an outcome.
pub(crate) fn edit_of(
    keyspace: KeyspaceId,
    outcome: &CompactionOutcome,
    flushed_to: Option<Lsn>,
    next_table_id: u64,
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
    edit.push(Change::NextTableId(next_table_id));
    edit
}
