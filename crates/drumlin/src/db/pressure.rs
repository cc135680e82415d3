//! Back-pressure: what holds writers back while memory or the disk is behind.
//!
//! Place: `store` calls `hold_back`, and a write and a flush by hand `room`, before they take any lock; workers call
//! `measure_pressure` after every job and `wake_writers` when memory was freed.
//!
//! Debt delays a write, smoothly more the nearer memory is to its bound or the fuller its keyspace's level 0 is; at the
//! bound of memory it waits for a flush. There is no hard stop short of the budget. See `memory`. Where the device has no
//! room for more log, it waits for the flushes that give some back, and is told only when none is to come.
//!
//! Invariants:
//! 1. Level 0 of one keyspace delays writes of that keyspace only.
//! 2. A writer that is stopped hears of a flush that keeps failing, or cannot begin since the log has no room for a pad,
//!    when no other flush can help it, and of no other failure.
//! 3. Whoever is stopped has made every worker look for work.
//!
//! Concurrency: writers wait on `Background::progress` with nothing else held; a delay ends early when that is notified.
//! Tests: `store_tests`, `tests/memory.rs`, `db::tests::full`, `db::tests::starving`.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::log::Room;

use super::background::Background;
use super::keyspace::KeyspaceState;
use super::store::Store;

/// The delay of one write at the end of the smooth part.
pub(crate) const DELAY_NS_MAX: f64 = 200_000.0;

/// The shortest time that a writer is made to wait.
const DELAY_MIN: Duration = Duration::from_millis(1);

thread_local! {
    /// What this thread was told to wait and has not waited yet.
    static DELAY_DUE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

impl Background {
    /// Memory may have room again.
    pub fn wake_writers(&self) {
        let _state = self.state.lock();
        self.progress.notify_all();
    }

    /// A writer is held back: the smooth part of back-pressure. A thread's delays are added up and waited
    /// for together, since the shortest wait there is takes tens of microseconds. Ends early when a job does.
    pub fn stall(&self, delay: Duration) {
        let delay = DELAY_DUE.take() + delay;
        if delay < DELAY_MIN {
            DELAY_DUE.set(delay);
            return;
        }
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let _ = self.relief.wait_for(&mut state, delay);
    }
}

impl Store {
    /// Delays a write, or makes it wait until memory has room.
    #[cold]
    pub(super) fn hold_back(&self, delay_ns: u64) -> Result<()> {
        if self.memory.sound_alarm() {
            self.background.wake();
        }
        let began = self.env.clock.now();
        let waited = if self.is_full() {
            let full = || self.is_full() && !self.is_closed() && self.poisoned().is_none();
            self.wait_while_full(full)
        } else {
            self.background.stall(Duration::from_nanos(delay_ns.max(self.memory.delay_ns())));
            Ok(())
        };
        let stalled = self.env.clock.now().saturating_sub(began);
        self.background.counters.stalled_ns.fetch_add(stalled.as_nanos() as u64, Ordering::Relaxed);
        waited
    }

    /// Room in the log for a record of so many units, with nothing held: a full device is waited out while a flush may give
    /// back some of what the log holds there.
    #[inline]
    pub(super) fn room(&self, units: u64) -> Result<Room<'_>> {
        match self.log()?.ensure_room(units) {
            Err(full) if full.is_no_space() => self.wait_for_room(units),
            other => other,
        }
    }

    #[cold]
    fn wait_for_room(&self, units: u64) -> Result<Room<'_>> {
        self.background.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let began = self.env.clock.now();
        // What comes later is no hope: a record for which there is never room would wait for as long as others write.
        let end = self.sequencer.tail();
        // With it, a worker pads the log for what is frozen beyond the tail.
        self.background.state.lock().waiting_for_room += 1;
        let mut found = None;
        let waited = self.wait_until(|| {
            // Asked before and after: a flush may end between the two, or a memtable be frozen.
            let hoped = self.may_flush_below(end);
            found = match self.log()?.ensure_room(units) {
                Err(full) if full.is_no_space() && (hoped || self.may_flush_below(end)) => None,
                told => Some(told?),
            };
            Ok(found.is_some())
        });
        self.background.state.lock().waiting_for_room -= 1;
        let stalled = self.env.clock.now().saturating_sub(began);
        self.background.counters.stalled_ns.fetch_add(stalled.as_nanos() as u64, Ordering::Relaxed);
        waited?;
        found.ok_or(Error::Closed { what: "store" })
    }

    /// A writer waits until memory is below its bound again.
    fn wait_while_full(&self, full: impl Fn() -> bool) -> Result<()> {
        self.background.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let mut state = self.background.state.lock();
        // A worker that found nothing to do looks again, and tries again what found no room.
        state.pad_failed = None;
        state.epoch += 1;
        self.background.work.notify_all();
        // Where there was hope still.
        let mut hope = None;
        while full() {
            let failed = state.failures.of_any_flush().or(state.pad_failed.as_ref());
            if let Some(error) = failed.filter(|_| hope != Some(state.epoch)) {
                let (error, epoch) = (error.clone(), state.epoch);
                drop(state);
                if !self.may_flush_below(Lsn::MAX) {
                    return Err(error);
                }
                hope = Some(epoch);
                state = self.background.state.lock();
                continue;
            }
            self.background.progress.wait(&mut state);
        }
        Ok(())
    }

    /// True while writers wait for a flush.
    pub fn is_full(&self) -> bool {
        self.memory.is_full()
    }

    /// Computes the delays anew. Called after whatever changes them: turns, jobs, dropped keyspaces.
    pub fn measure_pressure(&self) {
        // Two at once could store in the other order than they looked: a level 0 that was just emptied would count as full.
        let looking = self.pressure.lock();
        let guard = crossbeam_epoch::pin();
        let keyspaces = self.keyspaces.all();
        for keyspace in keyspaces.values() {
            // From twice level 0's trigger on; what memory asks for is worked out by each write.
            let load = level0_overhang(keyspace, &guard).min(1.0);
            keyspace.delay_ns.store((load * load * DELAY_NS_MAX) as u64, Ordering::Relaxed);
        }
        drop(looking);
        self.background.wake();
    }
}

/// How far level 0 is beyond twice its trigger; 1 at six times.
pub(crate) fn level0_overhang(keyspace: &KeyspaceState, guard: &crossbeam_epoch::Guard) -> f64 {
    let trigger = keyspace.options().level0_trigger() as f64;
    let tables = keyspace.current.load(guard).levels.level(0).len() as f64;
    (tables - 2.0 * trigger).max(0.0) / (4.0 * trigger)
}
