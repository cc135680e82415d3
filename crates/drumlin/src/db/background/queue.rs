//! The queue: which jobs run, which are due, and which comes first.
//!
//! Place: workers `pick` from it and `finish` what they took; work by hand claims its tables here too.
//!
//! A flush comes first (it frees memory), that of the oldest generation, unless that is a run that rests (`runs`); then the sorting
//! of a hash that is written to, where that is asked for; then that of runs that rest; then a compaction: of the keyspace whose
//! level 0 holds up its writers most, or, where none does, that owes most bytes. A keyspace has at most one flush at a time;
//! compactions of one keyspace may run side by side on different tables.
//!
//! Invariants:
//! 1. A plan is made, and noted as running, under `state`, from levels loaded under it: a job is among the running, or its
//!    outcome in the levels.
//! 2. A generation is flushed once the log has passed its end: before, a write may still belong in it.
//! 3. Of two workers or more, one stays free of compactions: writers must not wait for one to end before memory is flushed.
//! 4. What failed is not picked before its time (`failures`), and stands in the way of nothing else.
//!
//! Concurrency: all of it under `Background::state`. Tests: `tests/variants.rs`, `db::tests::jobs`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_epoch as epoch;

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::layout::{self, CompactionPlan, Running};
use crate::version::KeyspaceId;

use super::super::keyspace::KeyspaceState;
use super::super::pressure::level0_overhang;
use super::super::runs::{gate, taken};
use super::super::store::Store;
use super::super::superversion::Generation;
use super::Background;
use super::failures::{Failures, Work};

/// What runs, what was asked for, what failed.
#[derive(Default)]
pub(crate) struct State {
    /// Keyspaces whose flush runs, and where that begins.
    pub flushing: HashMap<KeyspaceId, Lsn>,
    /// Compactions of each keyspace, and what they hold.
    pub compacting: HashMap<KeyspaceId, Running>,
    /// Keyspaces whose memtable somebody wants on disk, and how many want it.
    pub asked: HashMap<KeyspaceId, usize>,
    /// Jobs under way, on workers and on users' threads.
    pub jobs: usize,
    /// Of these, those whose thread panicked: they never end.
    pub dead: usize,
    /// Compactions on workers.
    compactions: usize,
    /// Generations whose hash is being sorted, by where they begin.
    draining: Vec<(KeyspaceId, Lsn)>,
    /// The epoch at which a worker, having found nothing to do, went to sleep last.
    #[cfg(test)]
    pub slept_at: Option<u64>,
    /// Writers and flushes by hand that wait until a flush gives back some of a full device.
    pub waiting_for_room: usize,
    /// Goes up with every change that a waiter could wait for.
    pub epoch: u64,
    pub failures: Failures,
    /// Why the log could not be padded for a flush that is due only then.
    pub pad_failed: Option<Error>,
}

impl State {
    /// A compaction starts.
    pub fn begin(&mut self, keyspace: KeyspaceId, plan: &CompactionPlan) {
        self.jobs += 1;
        self.compacting.entry(keyspace).or_default().begin(plan);
    }

    /// A compaction has ended.
    pub fn end(
        &mut self,
        keyspace: &KeyspaceState,
        plan: &CompactionPlan,
        outcome: &Result<()>,
        now: Duration,
    ) {
        self.jobs -= 1;
        self.compacting.entry(keyspace.id).or_default().end(plan);
        self.note(keyspace, Work::Compaction(plan), outcome, now);
    }

    fn note(&mut self, keyspace: &KeyspaceState, work: Work<'_>, outcome: &Result<()>, now: Duration) {
        match outcome {
            Ok(()) => self.failures.succeed(keyspace.id, work),
            Err(error) => self.failures.fail((keyspace.id, &keyspace.name), work, error, now),
        }
    }
}

/// Something for a worker to do.
pub(super) enum Job {
    /// Of all that ends there or before.
    Flush(Arc<KeyspaceState>, Lsn),
    /// Of a generation that is written to, or rests.
    Drain(Arc<KeyspaceState>, Arc<Generation>),
    Compact(Arc<KeyspaceState>, CompactionPlan),
}

/// What a worker finds.
pub(super) enum Next {
    Job(Job),
    /// Nothing; but something that failed may be tried again after so long.
    Nothing(Option<Duration>),
}

impl Background {
    /// What a worker took has ended.
    pub(super) fn finish(&self, job: Job, outcome: &Result<()>, now: Duration) {
        let mut state = self.state.lock();
        match job {
            Job::Flush(keyspace, _) => {
                state.jobs -= 1;
                state.flushing.remove(&keyspace.id);
                state.pad_failed = None;
                state.note(&keyspace, Work::Flush, outcome, now);
            }
            Job::Drain(keyspace, generation) => {
                state.jobs -= 1;
                state.draining.retain(|of| *of != (keyspace.id, generation.start));
            }
            Job::Compact(keyspace, plan) => {
                state.end(&keyspace, &plan, outcome, now);
                state.compactions -= 1;
            }
        }
        state.epoch += 1;
        self.work.notify_all();
        self.progress.notify_all();
        self.relief.notify_all();
    }

    /// Jobs running now.
    pub fn running(&self) -> usize {
        self.state.lock().jobs
    }
}

/// Which keyspace's compaction comes first, each by how much its level 0 holds up its writers and by the bytes that it owes.
fn by_urgency(a: (f64, u64), b: (f64, u64)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

impl Store {
    pub(in crate::db) fn oldest_snapshot(&self) -> Lsn {
        self.sequencer.snapshots().list().first().copied().unwrap_or(Lsn::MAX)
    }

    /// The most urgent job, and marks it begun. Generations that end above `tail` are not flushed.
    pub(super) fn pick(&self, tail: Lsn) -> Next {
        let keyspaces = self.keyspaces.all();
        let now = self.env.clock.now();
        let strain = self.strain(&keyspaces);
        let guard = epoch::pin();
        let mut state = self.background.state.lock();
        let state = &mut *state;
        let oldest = keyspaces
            .values()
            .filter(|k| {
                !k.is_dropped() && !state.flushing.contains_key(&k.id) && state.failures.may_flush(k.id, now)
            })
            .filter_map(|k| {
                let now = k.current.load(&guard);
                let is_due = gate(now.frozen(), strain.wanted(k, now, state))?.end() <= tail;
                is_due.then(|| (now.frozen(), k))
            })
            .min_by_key(|(frozen, _)| frozen.last().map(|oldest| oldest.start));
        if let Some((frozen, keyspace)) = oldest {
            let passed: Vec<_> = frozen.iter().rev().take_while(|g| g.end() <= tail).collect();
            let is_asked = state.asked.contains_key(&keyspace.id);
            let together = &passed[..taken(keyspace.options().memory, passed.len(), is_asked)];
            if let [oldest, .., newest] | [oldest @ newest] = together {
                state.flushing.insert(keyspace.id, oldest.start);
                state.jobs += 1;
                return Next::Job(Job::Flush(keyspace.clone(), newest.end()));
            }
        }
        // One stays free for flushes, as below.
        let most = self.options.two_tier.drain_threads.min((self.options.background_threads - 1).max(1));
        if state.draining.len() < most {
            let due = keyspaces.values().find_map(|k| {
                // The tail of now: what it was before may have been flushed meanwhile, and is of no generation that is there.
                let generation = k.current.load(&guard).generation_now(|| self.sequencer.tail());
                let of = (k.id, generation.start);
                let is_due = generation.memtable.is_drain_due() && !state.draining.contains(&of);
                is_due.then(|| (of, k.clone(), generation.clone()))
            });
            if let Some((of, keyspace, generation)) = due {
                state.draining.push(of);
                state.jobs += 1;
                return Next::Job(Job::Drain(keyspace, generation));
            }
        }
        // What rests is sorted before it is scanned.
        let resting = keyspaces.values().filter(|k| k.options().memory.runs() > 1).find_map(|k| {
            let passed = k.current.load(&guard).frozen().iter().rev().take_while(|g| g.end() <= tail);
            let generation = passed.filter(|_| state.draining.is_empty()).find(|g| g.is_first_to_settle())?;
            Some((k.clone(), generation.clone()))
        });
        if let Some((keyspace, generation)) = resting {
            state.draining.push((keyspace.id, generation.start));
            state.jobs += 1;
            return Next::Job(Job::Drain(keyspace, generation));
        }
        let lives = |id| keyspaces.values().any(|k| k.id == id);
        state.failures.keep_only(lives);
        state.compacting.retain(|id, running| !running.is_empty() || lives(*id));
        let later = state.failures.next_due(now);
        if state.compactions >= (self.options.background_threads - 1).max(1) {
            return Next::Nothing(later);
        }
        let oldest_snapshot = self.oldest_snapshot();
        let urgent = keyspaces
            .values()
            .filter(|k| !k.is_dropped())
            .filter_map(|k| {
                let levels = &k.current.load(&guard).levels;
                let running = state.compacting.entry(k.id).or_default();
                let held = state.failures.held(k.id, running, now);
                let plan = layout::pick(levels, &k.options(), &held, oldest_snapshot)?;
                let urgency =
                    (level0_overhang(k, &guard), layout::debt_bytes(levels, &k.options(), oldest_snapshot));
                Some((k, plan, urgency))
            })
            .max_by(|(_, _, a), (_, _, b)| by_urgency(*a, *b));
        let Some((keyspace, plan, _)) = urgent else { return Next::Nothing(later) };
        state.begin(keyspace.id, &plan);
        state.compactions += 1;
        Next::Job(Job::Compact(keyspace.clone(), plan))
    }

    /// True if no job runs and none is due, nor a pad. What was frozen at a border that the log has not reached, and is not
    /// worth one, is not due: it waits for writes, which need not come. What failed is not due before its time.
    pub fn is_idle(&self) -> bool {
        let tail = self.sequencer.tail();
        let is_pad_due = self.is_pad_due(tail);
        let keyspaces = self.keyspaces.all();
        let now = self.env.clock.now();
        let (nothing, oldest) = (Running::new(), self.oldest_snapshot());
        let strain = self.strain(&keyspaces);
        let guard = epoch::pin();
        let state = self.background.state.lock();
        state.jobs == 0
            && (!is_pad_due || state.pad_failed.is_some())
            && keyspaces.values().filter(|k| !k.is_dropped()).all(|k| {
                let current = k.current.load(&guard);
                let held = state.failures.held(k.id, &nothing, now);
                let gate = gate(current.frozen(), strain.wanted(k, current, &state));
                (gate.is_none_or(|gate| gate.end() > tail) || !state.failures.may_flush(k.id, now))
                    && layout::pick(&current.levels, &k.options(), &held, oldest).is_none()
            })
    }

    /// True if a flush of something below `end` can be expected that has not failed.
    pub fn may_flush_below(&self, end: Lsn) -> bool {
        let tail = self.sequencer.tail();
        let keyspaces = self.keyspaces.all();
        let guard = epoch::pin();
        let state = self.background.state.lock();
        // What ends beyond the tail waits for a pad.
        let is_near = |g: &Generation| g.start < end && (state.pad_failed.is_none() || g.end() <= tail);
        let frozen = |k: &KeyspaceState| {
            k.current.load(&guard).frozen().iter().any(|g| !g.memtable.is_empty() && is_near(g))
        };
        state.flushing.iter().any(|(k, start)| *start < end && state.failures.of_flush(*k).is_none())
            || keyspaces.values().any(|k| state.failures.of_flush(k.id).is_none() && frozen(k))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Instant;

    use super::*;
    use crate::Db;
    use crate::env::{Env, MemFs};
    use crate::options::{KeyspaceOptions, Options, TwoTier};

    /// Regression: a worker that had stood still between asking the log for its end and looking at the memtables found that end in
    /// none of them, since what it was in had been flushed.
    #[test]
    fn a_worker_that_was_late_looks_for_the_end_of_now() {
        let options = Options {
            memory_bytes: 16 << 20,
            segment_bytes: Options::SEGMENT_BYTES_MIN,
            two_tier: TwoTier { drain_threads: 1, ..TwoTier::default() },
            ..Options::default()
        };
        let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("opens");
        let small = KeyspaceOptions { memtable_bytes: Some(64 << 10), ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("k", small).expect("makes");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0u64.. {
                    keyspace.put((n % 5000).to_le_bytes(), [7; 100]).expect("puts");
                    if over.load(Relaxed) {
                        return;
                    }
                }
            });
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(1) {
                // The end as it was when the store was made.
                if let Next::Job(job) = db.store.pick(Lsn::ZERO) {
                    let outcome = db.store.perform(&job);
                    db.store.background.finish(job, &outcome, Duration::ZERO);
                }
            }
            over.store(true, Relaxed);
        });
        db.close().expect("closes");
    }

    /// Regression: the keyspace that owed most was the only one that was compacted, and writers of others waited for it.
    #[test]
    fn who_holds_up_writers_comes_before_who_owes_more() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("opens");
        let state = || db.store.background.state.lock();
        // No worker begins a compaction.
        state().compactions += 1000;
        let fill = |name: &str, level0_tables: usize, flushes: u64, keys: u64| {
            let options = KeyspaceOptions { level0_tables, ..KeyspaceOptions::default() };
            let keyspace = db.keyspace(name, options).expect("makes");
            for flush in 0..flushes {
                (0..keys)
                    .for_each(|n| keyspace.put((n * flushes + flush).to_le_bytes(), [7; 100]).expect("puts"));
                db.flush().expect("flushes");
            }
        };
        fill("held up", 1, 4, 10);
        fill("owes", 4, 5, 10_000);
        db.store.background.stop();
        state().compactions = 0;
        let Next::Job(job) = db.store.pick(db.store.sequencer.tail()) else { panic!("two are due") };
        let Job::Compact(keyspace, _) = &job else { panic!("nothing is to be flushed") };
        let name = keyspace.name.clone();
        // First: a store with a job that never ends would not end either.
        db.store.background.finish(job, &Err(Error::Closed { what: "the test" }), Duration::ZERO);
        assert_eq!(name, "held up");
    }
}
