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
use crate::sync::{Condvar, Mutex, failpoint};

use super::keyspaces::KeyspaceMap;
use super::store::{Store, with_room};

pub use failures::JobFailure;
pub(crate) use job::{apply, flush_generations};

pub(super) use queue::State;
use queue::{Job, Next};

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

    /// Notes a corruption that a compaction has met, and that held it up in nothing.
    pub fn met_corruption(&self, keyspace: &str, error: &Error) {
        self.state.lock().failures.met(keyspace, error);
    }

    /// What whoever closes the store, with these keyspaces in it, must hear of what the background met.
    pub fn verdict(&self, keyspaces: &KeyspaceMap) -> Result<()> {
        let mut state = self.state.lock();
        state.failures.keep_only(|id| keyspaces.values().any(|k| k.id == id));
        state.failures.verdict().map_or(Ok(()), Err)
    }

    /// How often something changed so far.
    fn epoch(&self) -> u64 {
        self.state.lock().epoch
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
}

impl Store {
    /// Starts the workers.
    pub fn start_workers(self: &Arc<Self>) -> Result<()> {
        for number in 0..self.options.background_threads {
            let weak = Arc::downgrade(self);
            let body = Box::new(move || {
                // Each job holds the store; waiting holds it too, until close wakes it.
                if let Some(store) = weak.upgrade() {
                    store.work();
                }
            });
            match self.env.spawner.spawn(&format!("drumlin-bg-{number}"), body) {
                Ok(thread) => self.background.threads.lock().push(thread),
                Err(error) => {
                    // Those that run hold the store.
                    self.background.stop();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// What a worker does until it is time to go.
    fn work(&self) {
        let _watch = Watch(self);
        let background = &self.background;
        let mut patience = TIDY_FIRST;
        loop {
            let seen = background.epoch();
            let again = if background.cancel.load(Ordering::Acquire) || self.poisoned().is_some() {
                None
            } else {
                let tail = self.sequencer.tail();
                let later = match self.pick(tail) {
                    Next::Job(job) => {
                        self.carry_out(job);
                        patience = TIDY_FIRST;
                        continue;
                    }
                    Next::Nothing(later) => later,
                };
                // Tidied first: what readers hold is told from what a flush would free.
                let held = self.tidy();
                // Memory waits for a flush, and what could be flushed ends beyond the tail.
                if self.is_pad_due(tail) && self.pad() {
                    continue;
                }
                let again = if self.is_full() { Some(TIDY_FIRST) } else { held.then_some(patience) };
                patience = (patience * 2).min(TIDY_LAST);
                again.into_iter().chain(later).min()
            };
            if background.wait_for_change(seen, again) {
                return;
            }
        }
    }

    /// Does a job, to its end or its failure.
    fn carry_out(&self, job: Job) {
        let watch = JobWatch(Watch(self));
        let is_flush = matches!(job, Job::Flush(..));
        // On a full device a flush gets what the log keeps in stock.
        let give_up = || Ok(is_flush && self.log()?.give_up_stock() > 0);
        let outcome = with_room(|| self.perform(&job), give_up);
        drop(watch);
        // The plan holds its inputs.
        self.background.finish(job, &outcome, self.env.clock.now());
        self.tidy();
        self.measure_pressure();
    }

    /// Pads the log to its border. True if that was done; else writers that are stopped are told why not.
    fn pad(&self) -> bool {
        failpoint::hit("pad::begins");
        // It does not wait: the flushes that give room back may be its own.
        let room = || self.log().and_then(|log| log.ensure_room(log.units_per_segment()));
        let failed = room().and_then(|room| self.pad_to_border(room)).err();
        if let Some(error @ Error::Poisoned { .. }) = &failed {
            self.poison(error);
        }
        let mut state = self.background.state.lock();
        let was_told = state.pad_failed.is_some();
        state.pad_failed = failed;
        if state.pad_failed.is_some() && !was_told {
            state.epoch += 1;
            self.background.progress.notify_all();
        }
        state.pad_failed.is_none()
    }

    /// Waits until `done` or its error, woken by every step of background work.
    pub fn wait_until(&self, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let background = &self.background;
        loop {
            let seen = background.epoch();
            if done()? {
                return Ok(());
            }
            if let Some(why) = self.poisoned() {
                return Err(Error::Poisoned { why: why.into() });
            }
            if self.is_closed() {
                return Err(Error::Closed { what: "store" });
            }
            let mut state = background.state.lock();
            if state.epoch == seen {
                state.epoch += 1;
                background.work.notify_all();
                background.progress.wait(&mut state);
            }
        }
    }
}
