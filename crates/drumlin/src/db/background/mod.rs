//! Background work: flushes and compactions, and the waiting that goes with them.
//!
//! Place: threads started by `open`; woken by turns, flushes, compactions and manual requests.
//!
//! Parts: `queue` (what runs, what is due, what comes first), `failures` (what failed, and when it is tried again), `job`
//! (a job carried out and installed), `manual` (work asked for by hand). Here: the workers and whoever waits for them. What
//! holds writers back is `pressure`.
//!
//! Invariants:
//! 1. On a full device a flush, and a compaction by hand, gets the files that the log keeps in stock.
//! 2. What jobs replace goes here and nowhere else: after a job, and while anything is left, a worker moves the epoch
//!    on and removes the files that nobody holds. A reader that lets go wakes nobody, so an idle worker with something
//!    left looks again, ever less often.
//! 3. No wake-up is lost. A worker sleeps only while `epoch` is what it was before the worker looked
//!    for work. What makes work raises it: turns, ended jobs, requests. Two things that make work do
//!    not, the tail passing a border and the release of a snapshot; so whoever is about to wait for
//!    the workers raises it too (without waking others that wait), and every worker looks again.

mod failures;
mod job;
mod manual;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::env::Thread;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};
use crate::version::KeyspaceId;

use super::store::Store;

pub use failures::JobFailure;
pub(crate) use job::{apply, edit_of, flush_generations, job_context};

use queue::{Job, Next, State};

/// How long an idle worker waits before it looks again for what readers have let go of; twice as long each time.
const TIDY_FIRST: Duration = Duration::from_millis(5);
const TIDY_LAST: Duration = Duration::from_secs(1);

/// Work in progress and the threads that do it.
#[derive(Default)]
pub(crate) struct Background {
    pub(super) state: Mutex<State>,
    /// Workers wait here for work.
    pub(super) work: Condvar,
    /// Everybody else waits here for workers.
    pub(super) progress: Condvar,
    /// Writers that are only delayed wait here for a job to end.
    pub(super) relief: Condvar,
    cancel: Arc<AtomicBool>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    pub counters: Counters,
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

/// Poisons the store if a worker panics.
struct Watch<'a>(&'a Store);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(&Error::Poisoned { why: "a flush or a compaction panicked".into() });
        }
    }
}

/// The same for a job (a comparator of the user's, say): its inputs stay marked, and whoever waits for it would wait for
/// ever. It is counted, since `stop` waits for every job that can end.
struct JobWatch<'a>(Watch<'a>);

impl Drop for JobWatch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.background.state.lock().dead += 1;
        }
    }
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
                    store.background.stop();
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

    /// Stops the workers, and waits for jobs on users' threads; running compactions are cancelled. No job writes after it,
    /// poisoned or not: the next open gives the same ids to its tables.
    pub fn stop(&self) {
        self.cancel.store(true, Ordering::Release);
        self.wake();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join();
        }
        let mut state = self.state.lock();
        while state.jobs > state.dead {
            self.progress.wait(&mut state);
        }
    }

    /// What failed, for `stats`: the first corruption and the latest failure.
    pub fn failures(&self) -> (Option<JobFailure>, Option<JobFailure>) {
        let state = self.state.lock();
        (state.failures.first_corruption(), state.failures.latest())
    }

    /// What whoever closes the store must hear of what the background met.
    pub fn verdict(&self, store: &Store) -> Result<()> {
        let keyspaces = store.keyspaces.all();
        let mut state = self.state.lock();
        state.failures.keep_only(|id| keyspaces.values().any(|k| k.id == id));
        state.failures.verdict().map_or(Ok(()), Err)
    }

    pub fn flush_asked(&self, keyspace: KeyspaceId) -> bool {
        self.state.lock().asked.contains_key(&keyspace)
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
            let job = match self.pick(store, tail) {
                Next::Job(job) => job,
                Next::Nothing(later) => {
                    // Tidied first: what readers hold is told from what a flush would free.
                    let held = store.tidy();
                    // Memory waits for a flush, and what could be flushed ends beyond the tail.
                    if store.is_pad_due(tail) && self.pad(store) {
                        continue;
                    }
                    let again = if store.is_full() { Some(TIDY_FIRST) } else { held.then_some(patience) };
                    let again = again.into_iter().chain(later).min();
                    patience = (patience * 2).min(TIDY_LAST);
                    if self.wait_for_change(seen, again) {
                        return;
                    }
                    continue;
                }
            };
            let watch = JobWatch(Watch(store));
            let mut outcome = self.perform(store, &job);
            let is_full = outcome.as_ref().is_err_and(Error::is_no_space);
            if is_full
                && matches!(job, Job::Flush(_))
                && store.log.get().is_some_and(|l| l.give_up_stock() > 0)
            {
                outcome = self.perform(store, &job);
            }
            drop(watch);
            // The plan holds its inputs.
            self.finish(job, &outcome, store.env.clock.now());
            patience = TIDY_FIRST;
            store.tidy();
            store.measure_pressure();
        }
    }

    /// Pads the log to its border. True if that was done; else writers that are stopped are told why not.
    fn pad(&self, store: &Store) -> bool {
        let failed = store.pad_to_border().err();
        if let Some(error @ Error::Poisoned { .. }) = &failed {
            store.poison(error);
        }
        let mut state = self.state.lock();
        let was_told = state.pad_failed.is_some();
        state.pad_failed = failed;
        if state.pad_failed.is_some() && !was_told {
            state.epoch += 1;
            self.progress.notify_all();
        }
        state.pad_failed.is_none()
    }

    /// Waits until something changes after `seen`. True if it is time to go.
    fn wait_for_change(&self, seen: u64, at_most: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        while state.epoch == seen && !self.cancel.load(Ordering::Acquire) {
            #[cfg(test)]
            {
                state.slept_at = Some(seen);
            }
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

    /// Waits until `done` or its error, woken by every step of background work.
    pub fn wait_until(&self, store: &Store, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        loop {
            let seen = self.state.lock().epoch;
            if done()? {
                return Ok(());
            }
            if let Some(why) = store.poisoned() {
                return Err(Error::Poisoned { why: why.into() });
            }
            if store.is_closed() {
                return Err(Error::Closed { what: "store" });
            }
            let mut state = self.state.lock();
            if state.epoch == seen {
                state.epoch += 1;
                self.work.notify_all();
                self.progress.wait(&mut state);
            }
        }
    }
}
