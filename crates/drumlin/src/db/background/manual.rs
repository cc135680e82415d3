//! Work asked for by hand: a flush, a compaction.
//!
//! Place: `Db::flush`, `Db::compact` and their likes of one keyspace. A flush is done by the workers, a compaction by the
//! thread that asks.
//!
//! Invariants:
//! 1. Who asks gets the failure of what was asked for, and of nothing else.
//! 2. What failed before is tried again at once: a person may have mended the cause.
//! 3. A compaction by hand claims its tables like any other (`queue`); a claim of what failed is not in its way.
//! 4. On a full device a compaction by hand gets the files that the log keeps in stock, once; and what one merge has
//!    replaced is gone, if nobody reads it, before the next begins.
//!
//! Tests: `tests/variants.rs`, `db::tests::jobs`, `db::tests::starving`, `db::tests::full`.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::layout::{self, ManualPick};
use crate::version::KeyspaceId;

use super::super::keyspace::KeyspaceState;
use super::super::store::Store;
use super::{JobWatch, Watch};

/// A flush that somebody waits for.
struct AskedFlush<'a> {
    store: &'a Store,
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// What was written below is to be on disk.
    tail: Lsn,
    /// Failures before.
    failed_before: u64,
}

impl<'a> AskedFlush<'a> {
    /// Asks for a flush of these keyspaces (all, if `None`); of none if they have nothing to flush.
    fn new(store: &'a Store, only: Option<&KeyspaceState>) -> AskedFlush<'a> {
        let all = store.keyspaces.all();
        let guard = epoch::pin();
        let tail = store.sequencer.tail();
        let has_versions =
            |k: &KeyspaceState| k.current.load(&guard).generations.iter().any(|g| !g.memtable.is_empty());
        let chosen = all.values().filter(|k| only.is_none_or(|only| only.id == k.id) && has_versions(k));
        let keyspaces: Vec<_> = chosen.cloned().collect();
        let mut state = store.background.state.lock();
        for keyspace in &keyspaces {
            *state.asked.entry(keyspace.id).or_default() += 1;
        }
        state.failures.retry_now(|id| keyspaces.iter().any(|k| k.id == id));
        AskedFlush { store, keyspaces, tail, failed_before: state.failures.count() }
    }

    fn is_done(&self) -> bool {
        let guard = epoch::pin();
        self.keyspaces.iter().all(|k| {
            let now = k.current.load(&guard);
            k.is_dropped()
                || now.flushed_to >= self.tail
                || now.generations.iter().all(|g| g.start >= self.tail || g.memtable.is_empty())
        })
    }

    /// True if no worker can do anything about it before the log comes to another border.
    fn waits_for_border(&self) -> bool {
        let guard = epoch::pin();
        let tail_now = self.store.sequencer.tail();
        self.keyspaces.iter().all(|k| {
            let now = k.current.load(&guard);
            let oldest_is_due = now.generations.last().is_some_and(|g| g.end() <= tail_now);
            k.is_dropped() || now.flushed_to >= self.tail || !oldest_is_due
        })
    }

    fn failure(&self) -> Option<Error> {
        let state = self.store.background.state.lock();
        let is_mine = |id: KeyspaceId| self.keyspaces.iter().any(|k| k.id == id);
        let mut failed = state.failures.since(self.failed_before);
        failed.find(|(id, is_flush, _)| *is_flush && is_mine(*id)).map(|(_, _, error)| error.clone())
    }
}

impl Drop for AskedFlush<'_> {
    fn drop(&mut self) {
        let mut state = self.store.background.state.lock();
        for keyspace in &self.keyspaces {
            if let Entry::Occupied(mut asked) = state.asked.entry(keyspace.id) {
                *asked.get_mut() -= 1;
                if *asked.get() == 0 {
                    asked.remove();
                }
            }
        }
    }
}

impl Store {
    /// Turns the memtables of these keyspaces (all, if `None`) and waits until they are on disk.
    pub fn flush(&self, keyspace: Option<&KeyspaceState>) -> Result<()> {
        let asked = AskedFlush::new(self, keyspace);
        while !asked.is_done() {
            // Each border turns what was asked for; two may be needed, since one is open ahead.
            let room = self.room(self.log()?.units_per_segment());
            // On a full device that may have waited for what was asked for.
            if asked.is_done() {
                return Ok(());
            }
            self.pad_to_border(room.map_err(|full| asked.failure().unwrap_or(full))?)?;
            self.background.wake();
            self.wait_until(|| asked.failure().map_or_else(|| Ok(asked.waits_for_border()), Err))?;
        }
        Ok(())
    }

    /// Flushes a keyspace and merges it to its deepest level.
    pub fn compact_keyspace(&self, keyspace: &KeyspaceState) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly { op: "compact" });
        }
        self.flush(Some(keyspace))?;
        let mut has_stock = true;
        loop {
            let seen = self.background.state.lock().epoch;
            match self.claim(keyspace) {
                ManualPick::Done => return Ok(()),
                ManualPick::Busy => {
                    self.wait_until(|| Ok(self.background.state.lock().epoch != seen))?;
                }
                ManualPick::Plan(plan) => {
                    let watch = JobWatch(Watch(self));
                    let outcome = self.compact_by(keyspace, &plan);
                    drop(watch);
                    let now = self.env.clock.now();
                    self.background.state.lock().end(keyspace, &plan, &outcome, now);
                    self.background.wake();
                    // It holds what it replaced.
                    drop(plan);
                    self.tidy();
                    let is_full = outcome.as_ref().is_err_and(Error::is_no_space);
                    if is_full && std::mem::take(&mut has_stock) && self.log()?.give_up_stock() > 0 {
                        continue;
                    }
                    outcome?;
                }
            }
        }
    }

    /// What is next of a compaction by hand; a plan is begun.
    fn claim(&self, keyspace: &KeyspaceState) -> ManualPick {
        let guard = epoch::pin();
        let oldest = self.oldest_snapshot();
        let mut state = self.background.state.lock();
        // Under the lock: a job that is not among the running any more has changed the levels.
        let levels = &keyspace.current.load(&guard).levels;
        let running = state.compacting.entry(keyspace.id).or_default();
        let picked = layout::pick_manual(levels, &keyspace.options(), running, oldest, None, None);
        if let ManualPick::Plan(plan) = &picked {
            state.begin(keyspace.id, plan);
        }
        picked
    }

    /// Waits until no job runs and none is due. An error if something failed meanwhile and was not done since.
    pub fn wait_for_idle(&self) -> Result<()> {
        self.check_readable()?;
        let failed_before = {
            let mut state = self.background.state.lock();
            state.failures.retry_now(|_| true);
            state.failures.count()
        };
        // The borders that the log still comes to may have something turned.
        self.log.get().iter().for_each(|log| log.wait_opened());
        self.wait_until(|| Ok(self.is_idle()))?;
        let state = self.background.state.lock();
        state.failures.since(failed_before).next().map_or(Ok(()), |(_, _, error)| Err(error.clone()))
    }
}
