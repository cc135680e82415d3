//! Runs: how many full memtables a keyspace keeps before the oldest are flushed, and what makes them go before.
//!
//! Place: `queue` asks when it looks for a flush, `turn` when it takes a census. A run is a generation: it turns, is read,
//! recovered and freed as any other; all that is different is how long it stays.
//!
//! Invariants:
//! 1. Runs that rest are in nobody's way. They go before there are enough of them when they hold what all may, and while a flush
//!    of their keyspace is asked for, memory is crowded, writers are delayed for lack of it, the device is scarce or full, or the
//!    log is over its bound and they hold its oldest part.
//! 2. Who looks for work and who takes a census ask the same question: what one leaves alone the other does not wait for.
//!
//! Concurrency: a `Strain` is a value, taken before any lock and with no epoch pinned. Tests: below, tests/runs.rs.
//! Origin: sLSM §2.1: R runs, of which a part m is merged and written once all are full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;

use crate::key::Lsn;
use crate::options::Memory;

use super::background::State;
use super::keyspace::KeyspaceState;
use super::keyspaces::KeyspaceMap;
use super::store::Store;
use super::superversion::{Generation, SuperVersion};

/// Runs are flushed before there are enough of them from this part of the memtables' share on, in percent: a half is what those
/// of one keyspace may take until then.
const CROWDED_PERCENT: usize = 62;

/// What presses runs to go before there are enough of them.
pub(super) struct Strain {
    /// All of them: by memory, or by space on the device.
    of_all: bool,
    /// Those that begin here: the log is over its bound, and by them.
    at: Option<Lsn>,
}

impl Strain {
    /// How many memtables of the keyspace are to be frozen, and passed by the log, before the oldest are flushed.
    pub fn wanted(&self, keyspace: &KeyspaceState, now: &SuperVersion, state: &State) -> usize {
        let runs = keyspace.options().memory.runs();
        // Turned at a border, a run may have outgrown its part: then all may hold no more.
        let are_full = || {
            let bytes: usize = now.frozen().iter().map(|generation| generation.memtable.bytes()).sum();
            bytes >= runs * keyspace.memtable_limit.load(Ordering::Relaxed)
        };
        let pins = || self.at.is_some_and(|at| keyspace.needs_log_from(now).is_some_and(|from| from <= at));
        let is_asked = || state.waiting_for_room > 0 || state.asked.contains_key(&keyspace.id);
        let is_pressed = || self.of_all || is_asked() || pins() || are_full();
        if runs > 1 && is_pressed() { 1 } else { runs }
    }
}

/// The memtable whose end the log is to pass before the oldest can be flushed; none while too few are frozen.
pub(super) fn gate(frozen: &[Arc<Generation>], wanted: usize) -> Option<&Arc<Generation>> {
    frozen.get(frozen.len().checked_sub(wanted)?)
}

/// Of so many frozen memtables that the log has passed, how many are flushed together: all that is asked for; of runs their
/// part, and more where more came than are to stay.
pub(super) fn taken(memory: Memory, passed: usize, is_asked: bool) -> usize {
    match memory {
        Memory::Runs { runs, .. } if !is_asked => {
            memory.merged().max((passed + 1).saturating_sub(runs)).min(passed)
        }
        _ => passed,
    }
}

impl Store {
    /// What presses runs to go.
    pub(super) fn strain(&self, keyspaces: &KeyspaceMap) -> Strain {
        let rests = |k: &KeyspaceState| {
            k.options().memory.runs() > 1 && !k.current.load(&epoch::pin()).frozen().is_empty()
        };
        if !keyspaces.values().any(|k| rests(k)) {
            return Strain { of_all: false, at: None };
        }
        let segment = self.identity.segment_bytes;
        let live = self.log.get().map_or(0, |log| log.live_bytes());
        let log_is_over = live + segment > self.options.log_bytes() as u64;
        // Asked of the device: who waits for it keeps nothing from being freed.
        let space_is_scarce = self.is_scarce(live + 4 * segment);
        let guard = epoch::pin();
        let oldest = || keyspaces.values().filter_map(|k| k.needs_log_from(k.current.load(&guard))).min();
        // Not what is flushed and not freed yet: that goes by itself.
        let generations = keyspaces.values().flat_map(|k| &k.current.load(&guard).generations);
        let held: usize = generations.map(|generation| generation.memtable.bytes()).sum();
        let is_crowded = held >= self.memory.memtable_share / 100 * CROWDED_PERCENT;
        Strain {
            of_all: is_crowded || self.memory.is_short() || space_is_scarce,
            at: if log_is_over { oldest() } else { None },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::{KeyHasher, bytewise};
    use crate::memory::MemTable;

    #[test]
    fn the_oldest_go_once_as_many_are_passed_as_are_wanted() {
        let generation = |start| {
            Generation::new(Lsn(start), MemTable::charged(bytewise(), KeyHasher::new(1), Arc::default()))
        };
        let frozen = [generation(30), generation(20), generation(10)];
        let at = |wanted| gate(&frozen, wanted).map(|g| g.start.0);
        assert_eq!([1, 2, 3, 4].map(at), [Some(10), Some(20), Some(30), None]);
        let runs = |runs, merged_percent| Memory::Runs { runs, merged_percent };
        assert_eq!([0, 1, 5].map(|passed| taken(Memory::TwoTier, passed, false)), [0, 1, 5]);
        assert_eq!([1, 4, 6].map(|passed| taken(runs(4, 100), passed, false)), [1, 4, 4]);
        assert_eq!(
            [1, 4, 6].map(|passed| taken(runs(4, 30), passed, false)),
            [1, 2, 3],
            "as few stay as are to"
        );
        assert_eq!([1, 4, 6].map(|passed| taken(runs(4, 30), passed, true)), [1, 4, 6]);
        assert_eq!(taken(runs(64, 1), 64, false), 1);
    }
}
