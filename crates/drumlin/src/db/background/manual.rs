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

use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::layout::{self, ManualPick};
use crate::version::KeyspaceId;

use super::super::keyspace::KeyspaceState;
use super::super::store::Store;
use super::queue::oldest_snapshot;
use super::{JobWatch, Watch};

impl Store {
    /// Turns the memtables of these keyspaces (all, if `None`) and waits until they are on disk.
    pub fn flush(&self, keyspace: Option<&KeyspaceState>) -> Result<()> {
        let keyspaces: Vec<Arc<KeyspaceState>> = self.keyspaces.all().values().cloned().collect();
        let targets: Vec<(Arc<KeyspaceState>, Lsn)> = {
            let guard = epoch::pin();
            let tail = self.sequencer.tail();
            keyspaces
                .into_iter()
                .filter(|k| keyspace.is_none_or(|only| only.id == k.id))
                .filter(|k| k.current.load(&guard).generations.iter().any(|g| !g.memtable.is_empty()))
                .map(|k| (k, tail))
                .collect()
        };
        if targets.is_empty() {
            return Ok(());
        }
        let is_target = |id: KeyspaceId| targets.iter().any(|(k, _)| k.id == id);
        let failed_before = {
            let mut state = self.background.state.lock();
            for (keyspace, _) in &targets {
                *state.asked.entry(keyspace.id).or_default() += 1;
            }
            state.failures.retry_now(is_target);
            state.failures.count()
        };
        let result = loop {
            let done = {
                let guard = epoch::pin();
                targets.iter().all(|(k, tail)| {
                    let now = k.current.load(&guard);
                    k.is_dropped()
                        || now.flushed_to >= *tail
                        || now.generations.iter().all(|g| g.start >= *tail || g.memtable.is_empty())
                })
            };
            if done {
                break Ok(());
            }
            // Each border turns what was asked for; two may be needed, since one is open ahead.
            if let Err(error) = self.pad_to_border() {
                break Err(error);
            }
            self.background.wake();
            let step = self.background.wait_until(self, || {
                let mine = |(id, is_flush, error): (KeyspaceId, bool, &Error)| {
                    (is_flush && is_target(id)).then(|| error.clone())
                };
                let failed = self.background.state.lock().failures.since(failed_before).find_map(mine);
                if let Some(error) = failed {
                    return Err(error);
                }
                let guard = epoch::pin();
                let tail_now = self.sequencer.tail();
                Ok(targets.iter().all(|(k, tail)| {
                    let now = k.current.load(&guard);
                    let oldest_is_due = now.generations.last().is_some_and(|g| g.end() <= tail_now);
                    k.is_dropped() || now.flushed_to >= *tail || !oldest_is_due
                }))
            });
            if step.is_err() {
                break step;
            }
        };
        let mut state = self.background.state.lock();
        for (keyspace, _) in &targets {
            if let Some(others) = state.asked.get_mut(&keyspace.id).map(|n| *n - 1) {
                match others {
                    0 => drop(state.asked.remove(&keyspace.id)),
                    _ => drop(state.asked.insert(keyspace.id, others)),
                }
            }
        }
        result
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
            let picked = {
                let guard = epoch::pin();
                let oldest = oldest_snapshot(self);
                let mut state = self.background.state.lock();
                // Under the lock: a job that is not among the running any more has changed the levels.
                let levels = &keyspace.current.load(&guard).levels;
                let running = state.compacting.entry(keyspace.id).or_default();
                let picked = layout::pick_manual(levels, &keyspace.options, running, oldest, None, None);
                if let ManualPick::Plan(plan) = &picked {
                    state.begin(keyspace.id, plan);
                }
                picked
            };
            match picked {
                ManualPick::Done => return Ok(()),
                ManualPick::Busy => {
                    self.background.wait_until(self, || Ok(self.background.state.lock().epoch != seen))?;
                }
                ManualPick::Plan(plan) => {
                    let watch = JobWatch(Watch(self));
                    let outcome = self.background.compact(self, keyspace, &plan);
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

    /// Waits until no job runs and none is due. An error if something failed meanwhile and was not done since.
    pub fn wait_for_idle(&self) -> Result<()> {
        self.check_readable()?;
        let failed_before = {
            let mut state = self.background.state.lock();
            state.failures.retry_now(|_| true);
            state.failures.count()
        };
        self.background.wait_until(self, || Ok(self.background.is_idle(self)))?;
        let state = self.background.state.lock();
        state.failures.since(failed_before).next().map_or(Ok(()), |(_, _, error)| Err(error.clone()))
    }
}
