//! Background work: flushes and compactions, and the waiting that goes with them.
//!
//! Place: threads started by `open`; woken by turns, flushes, compactions and manual requests.
//!
//! One worker takes one job at a time: a flush first (it frees memory), then the compaction of the
//! keyspace that needs it most. A keyspace has at most one flush at a time; compactions of one
//! keyspace may run side by side on different tables (`busy`).
//!
//! Invariants:
//! 1. A flush takes the oldest frozen generations of a keyspace once everything below their end is
//!    complete; it reads the snapshot list after that (I4).
//! 2. Tables are durable before the manifest names them, the manifest before the superversion shows
//!    them, the superversion before the log below is recycled (I6) or an input is removed.
//! 3. The log is durable up to where a flush ends before the manifest names its tables: else a power
//!    loss could keep this keyspace's part of a batch and lose the other's.
//! 4. A failed job is done again later, from its inputs: what it wrote is removed. Only a manifest of
//!    which nobody knows what it says now, or a log that failed to sync, poisons the store.
//! 5. On a full device a flush gets the files that the log keeps in stock.
//! 6. What jobs replace goes here and nowhere else: after a job, and while anything is left, a worker moves the epoch
//!    on and removes the files that nobody holds. A reader that lets go wakes nobody, so an idle worker with something
//!    left looks again, ever less often.
//! 7. A plan is made, and noted as running, under `state`, from levels loaded under it: a job is among
//!    the running, or its outcome in the levels.
//! 8. No wake-up is lost. A worker sleeps only while `epoch` is what it was before the worker looked
//!    for work. What makes work raises it: turns, ended jobs, requests. Two things that make work do
//!    not, the tail passing a border and the release of a snapshot; so whoever is about to wait for
//!    the workers raises it too (without waking others that wait), and every worker looks again.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_epoch as epoch;

use crate::compaction::{CompactionOutcome, JobContext, run_compaction, run_flush};
use crate::env::Thread;
use crate::error::{Error, Result};
use crate::iter::{Cursor, Tombstones};
use crate::key::Lsn;
use crate::layout::{self, CompactionPlan, ManualPick, Running};
use crate::sync::{Condvar, Mutex};
use crate::table::TableOptions;
use crate::version::{Change, KeyspaceId, Levels, VersionEdit};

use super::keyspace::KeyspaceState;
use super::open::{append_to, place_of};
use super::store::Store;
use super::superversion::{Generation, SuperVersion};

/// How long a worker waits before it tries again on a full device.
const RETRY: Duration = Duration::from_millis(200);
/// How long an idle worker waits before it looks again for what readers have let go of; twice as long each time.
const TIDY_FIRST: Duration = Duration::from_millis(5);
const TIDY_LAST: Duration = Duration::from_secs(1);

/// The shortest time that a writer is made to wait.
const DELAY_MIN: Duration = Duration::from_millis(1);

thread_local! {
    /// What this thread was told to wait and has not waited yet.
    static DELAY_DUE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Work in progress and the threads that do it.
#[derive(Default)]
pub(crate) struct Background {
    state: Mutex<State>,
    /// Workers wait here for work.
    work: Condvar,
    /// Everybody else waits here for workers.
    progress: Condvar,
    cancel: Arc<AtomicBool>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    pub counters: Counters,
}

#[derive(Default)]
struct State {
    flushing: HashSet<KeyspaceId>,
    /// Compactions of each keyspace, and what they hold.
    compacting: HashMap<KeyspaceId, Running>,
    /// Keyspaces whose memtable somebody wants on disk, and how many want it.
    asked: HashMap<KeyspaceId, usize>,
    /// Jobs under way, on workers and on users' threads.
    jobs: usize,
    /// Compactions on workers.
    compactions: usize,
    /// Goes up with every change that a waiter could wait for.
    epoch: u64,
    last_error: Option<Error>,
}

/// What the background did since open.
#[derive(Default)]
pub(crate) struct Counters {
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub read_bytes: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub compacted_bytes: AtomicU64,
    pub stalls: AtomicU64,
    pub stalled_ns: AtomicU64,
}

impl State {
    fn begin(&mut self, keyspace: KeyspaceId, plan: &CompactionPlan) {
        self.jobs += 1;
        self.compacting.entry(keyspace).or_default().begin(plan);
    }

    fn end(&mut self, keyspace: KeyspaceId, plan: &CompactionPlan) {
        self.jobs -= 1;
        self.compacting.entry(keyspace).or_default().end(plan);
    }
}

/// Poisons the store if a job panics (a comparator of the user's, say): its inputs stay marked, and
/// whoever waits for it would wait for ever.
struct Watch<'a>(&'a Store);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&Error::Poisoned { why: "a flush or a compaction panicked".into() });
        }
    }
}

fn oldest_snapshot(store: &Store) -> Lsn {
    store.sequencer.snapshots().list().first().copied().unwrap_or(Lsn::MAX)
}

enum Job {
    Flush(Arc<KeyspaceState>),
    Compact(Arc<KeyspaceState>, CompactionPlan),
}

impl Background {
    pub fn start(store: &Arc<Store>) -> Result<()> {
        for number in 0..store.options.background_threads {
            let weak = Arc::downgrade(store);
            let body = Box::new(move || {
                // Each job holds the store; waiting holds it too, until close wakes it.
                if let Some(store) = weak.upgrade() {
                    store.background.run(&store);
                }
            });
            match store.env.spawner.spawn(&format!("drumlin-bg-{number}"), body) {
                Ok(thread) => store.background.threads.lock().push(thread),
                Err(error) => {
                    // Those that run hold the store.
                    store.background.stop(store);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Something may be to do, or to be noticed.
    pub fn wake(&self) {
        let mut state = self.state.lock();
        state.epoch += 1;
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Stops the workers, and waits for jobs on users' threads; running compactions are cancelled.
    pub fn stop(&self, store: &Store) {
        self.cancel.store(true, Ordering::Release);
        self.wake();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join();
        }
        let mut state = self.state.lock();
        while state.jobs > 0 && store.poisoned().is_none() {
            self.progress.wait(&mut state);
        }
    }

    pub fn flush_asked(&self, keyspace: KeyspaceId) -> bool {
        self.state.lock().asked.contains_key(&keyspace)
    }

    /// A writer waits until memory is below its bound again.
    pub fn wait_while_full(&self, full: impl Fn() -> bool) -> Result<()> {
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        // A worker that found nothing to do looks again.
        state.epoch += 1;
        self.work.notify_all();
        while full() {
            if let Some(error) = &state.last_error {
                return Err(error.clone());
            }
            self.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Memory may have room again.
    pub fn wake_writers(&self) {
        let _state = self.state.lock();
        self.progress.notify_all();
    }

    /// A writer is held back: the smooth part of back-pressure. A thread's delays are added up and waited
    /// for together, since the shortest wait there is takes tens of microseconds.
    pub fn stall(&self, delay: Duration) {
        let delay = DELAY_DUE.take() + delay;
        if delay < DELAY_MIN {
            DELAY_DUE.set(delay);
            return;
        }
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        self.counters.stalled_ns.fetch_add(delay.as_nanos() as u64, Ordering::Relaxed);
        let mut state = self.state.lock();
        let _ = self.progress.wait_for(&mut state, delay);
    }

    fn run(&self, store: &Arc<Store>) {
        let _watch = Watch(store);
        let mut patience = TIDY_FIRST;
        loop {
            let seen = {
                let state = self.state.lock();
                state.epoch
            };
            if self.cancel.load(Ordering::Acquire) || store.poisoned().is_some() {
                if self.wait_for_change(seen, None) {
                    return;
                }
                continue;
            }
            let tail = store.sequencer.tail();
            let Some(job) = self.pick(store, tail) else {
                // Tidied first: what readers hold is told from what a flush would free.
                let held = store.tidy();
                // Writers wait for memory, and what could be flushed ends beyond the tail.
                if store.is_stuck(tail) && store.pad_to_border().is_ok() {
                    continue;
                }
                let again = if store.is_full() { Some(TIDY_FIRST) } else { held.then_some(patience) };
                patience = (patience * 2).min(TIDY_LAST);
                if self.wait_for_change(seen, again) {
                    return;
                }
                continue;
            };
            let mut outcome = self.perform(store, &job);
            let is_full = outcome.as_ref().is_err_and(Error::is_no_space);
            if is_full
                && matches!(job, Job::Flush(_))
                && store.log.get().is_some_and(|l| l.give_up_stock() > 0)
            {
                outcome = self.perform(store, &job);
            }
            // The plan holds its inputs.
            self.finish(job, &outcome);
            patience = TIDY_FIRST;
            store.tidy();
            store.measure_pressure();
            if let Err(error) = outcome {
                let retry = if error.is_no_space() { RETRY } else { RETRY * 5 };
                let seen = self.state.lock().epoch;
                if self.wait_for_change(seen, Some(retry)) {
                    return;
                }
            }
        }
    }

    fn perform(&self, store: &Store, job: &Job) -> Result<()> {
        match job {
            Job::Flush(keyspace) => self.flush(store, keyspace),
            Job::Compact(keyspace, plan) => self.compact(store, keyspace, plan),
        }
    }

    /// Waits until something changes after `seen`. True if it is time to go.
    fn wait_for_change(&self, seen: u64, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        while state.epoch == seen && !self.cancel.load(Ordering::Acquire) {
            match at_most {
                None => self.work.wait(&mut state),
                Some(time) => {
                    let _ = self.work.wait_for(&mut state, time);
                    break;
                }
            }
        }
        self.cancel.load(Ordering::Acquire)
    }

    /// The most urgent job, and marks it begun. Generations that end above `tail` are left alone.
    fn pick(&self, store: &Store, tail: Lsn) -> Option<Job> {
        let keyspaces = store.keyspaces.lock().clone();
        let guard = epoch::pin();
        let mut state = self.state.lock();
        let oldest = keyspaces
            .values()
            .filter(|k| !state.flushing.contains(&k.id))
            .filter_map(|k| {
                let oldest = k.current.load(&guard).frozen().last()?;
                (oldest.end() <= tail).then(|| (oldest.start, k))
            })
            .min_by_key(|(start, _)| *start);
        if let Some((_, keyspace)) = oldest {
            state.flushing.insert(keyspace.id);
            state.jobs += 1;
            return Some(Job::Flush(keyspace.clone()));
        }
        // One worker stays free: writers must not wait for a compaction to end before memory is flushed.
        if state.compactions >= (store.options.background_threads - 1).max(1) {
            return None;
        }
        let oldest_snapshot = oldest_snapshot(store);
        let (keyspace, plan) = keyspaces
            .values()
            .filter_map(|k| {
                let levels = &k.current.load(&guard).levels;
                let running = state.compacting.entry(k.id).or_default();
                let plan = layout::pick(levels, &k.options, running, oldest_snapshot)?;
                Some((k, plan, layout::debt_bytes(levels, &k.options)))
            })
            .max_by_key(|(_, _, debt)| *debt)
            .map(|(k, plan, _)| (k.clone(), plan))?;
        state.begin(keyspace.id, &plan);
        state.compactions += 1;
        Some(Job::Compact(keyspace, plan))
    }

    fn finish(&self, job: Job, outcome: &Result<()>) {
        let mut state = self.state.lock();
        match job {
            Job::Flush(keyspace) => {
                state.jobs -= 1;
                state.flushing.remove(&keyspace.id);
            }
            Job::Compact(keyspace, plan) => {
                state.end(keyspace.id, &plan);
                state.compactions -= 1;
            }
        }
        state.last_error = outcome.as_ref().err().filter(|e| !matches!(e, Error::Closed { .. })).cloned();
        state.epoch += 1;
        self.work.notify_all();
        self.progress.notify_all();
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
        let outcome = flush_generations(&context, keyspace, &generations)?;
        let bytes = outcome.written_bytes;
        self.install(store, keyspace, outcome, Some(end))?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        let needed = store.log_needed_from();
        // What could not be recycled now is recycled after the next flush, unless the log is at its end.
        if let Err(error @ Error::Poisoned { .. }) = store.log()?.recycle_below(needed) {
            store.poison(&error);
        }
        Ok(())
    }

    fn compact(&self, store: &Store, keyspace: &KeyspaceState, plan: &CompactionPlan) -> Result<()> {
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
            keyspace.current.replace(|now| {
                let levels = Arc::new(apply(&now.levels, keyspace, &outcome));
                let flushed_to = flushed_to.unwrap_or(now.flushed_to);
                let generations = now.generations.iter().filter(|g| g.end() > flushed_to).cloned().collect();
                Some(SuperVersion { generations, levels, flushed_to })
            });
        }
        outcome.obsolete.iter().for_each(|table| table.mark_obsolete());
        Ok(())
    }

    /// Waits until `done`, woken by every step of background work.
    pub fn wait_until(&self, store: &Store, mut done: impl FnMut() -> bool) -> Result<()> {
        loop {
            let seen = self.state.lock().epoch;
            if done() {
                return Ok(());
            }
            if let Some(why) = store.poisoned() {
                return Err(Error::Poisoned { why: why.into() });
            }
            if store.is_closed() {
                return Err(Error::Closed { what: "store" });
            }
            let mut state = self.state.lock();
            if let Some(error) = state.last_error.take() {
                return Err(error);
            }
            if state.epoch == seen {
                state.epoch += 1;
                self.work.notify_all();
                self.progress.wait(&mut state);
            }
        }
    }

    /// True if no job runs and none is due. What was frozen at a border that the log has not reached is not due: it
    /// waits for writes, which need not come.
    pub fn is_idle(&self, store: &Store) -> bool {
        let tail = store.sequencer.tail();
        let keyspaces = store.keyspaces.lock().clone();
        let guard = epoch::pin();
        let (nothing, oldest) = (Running::new(), oldest_snapshot(store));
        let state = self.state.lock();
        state.jobs == 0
            && keyspaces.values().all(|k| {
                let now = k.current.load(&guard);
                now.frozen().last().is_none_or(|oldest| oldest.end() > tail)
                    && layout::pick(&now.levels, &k.options, &nothing, oldest).is_none()
            })
    }

    /// Jobs running now.
    pub fn running(&self) -> usize {
        self.state.lock().jobs
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
pub(crate) fn apply(levels: &Levels, keyspace: &KeyspaceState, outcome: &CompactionOutcome) -> Levels {
    let added: Vec<_> = outcome.added.iter().map(|(level, _, table)| (*level, table.clone())).collect();
    levels.apply(&*keyspace.options.comparator, &added, &outcome.removed)
}

/// Writes frozen generations to level 0.
pub(crate) fn flush_generations(
    context: &JobContext,
    keyspace: &KeyspaceState,
    generations: &[Arc<Generation>],
) -> Result<CompactionOutcome> {
    let cursors: Vec<Box<dyn Cursor>> =
        generations.iter().map(|g| Box::new(g.memtable.cursor()) as Box<dyn Cursor>).collect();
    let ranges =
        generations.iter().flat_map(|g| g.memtable.tombstones(Lsn::MAX).iter().collect::<Vec<_>>()).collect();
    run_flush(cursors, &Tombstones::build(&*keyspace.options.comparator, ranges), context)
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

impl Store {
    /// Turns the memtables of these keyspaces (all, if `None`) and waits until they are on disk.
    pub fn flush(&self, keyspace: Option<&KeyspaceState>) -> Result<()> {
        let keyspaces: Vec<Arc<KeyspaceState>> = self.keyspaces.lock().values().cloned().collect();
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
        for (keyspace, _) in &targets {
            *self.background.state.lock().asked.entry(keyspace.id).or_default() += 1;
        }
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
                let guard = epoch::pin();
                let tail_now = self.sequencer.tail();
                targets.iter().all(|(k, tail)| {
                    let now = k.current.load(&guard);
                    let oldest_is_due = now.generations.last().is_some_and(|g| g.end() <= tail_now);
                    k.is_dropped() || now.flushed_to >= *tail || !oldest_is_due
                })
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
                    self.background.wait_until(self, || self.background.state.lock().epoch != seen)?;
                }
                ManualPick::Plan(plan) => {
                    let watch = Watch(self);
                    let outcome = self.background.compact(self, keyspace, &plan);
                    drop(watch);
                    self.background.state.lock().end(keyspace.id, &plan);
                    self.background.wake();
                    outcome?;
                }
            }
        }
    }
}
