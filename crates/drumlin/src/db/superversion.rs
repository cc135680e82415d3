//! Superversions: one pointer to everything a read of a keyspace has to look at.
//!
//! Place: loaded by every get, scan and write of `db`; replaced by turns (a new generation), by
//! flushes and by compactions.
//!
//! A *generation* is one memtable of one keyspace and the LSNs [start, end) that belong in it.
//! Borders are log segment borders, so which generation an LSN belongs to is a pure function.
//!
//! Invariants:
//! - **I2 Tiers.** Generations are newest first and adjoin: each one's start is the end of the next.
//!   Every version in a part (a generation, then level 0 newest first, then each level) is newer
//!   than every version of its key in the parts after it.
//! - **I3 Movement.** A superversion that lists a flushed generation's tables is published before
//!   the generation is dropped from the list; both happen in one store here. A reader walks newest
//!   to oldest and may meet a version twice, never miss one.
//! - **I5 Reclaim.** A replaced superversion is freed past every epoch that could hold it; scans
//!   hold its parts by counted references, so that they are `Send` and stop no reclamation. Whichever thread moves the
//!   epoch on may free it, a get among them; so what is large in it is held elsewhere, too, and goes there: memtables by
//!   `Memory`, tables by their graveyard.
//!
//! Concurrency: `current` is stored with Release under `change`, loaded with Acquire under an epoch.
//! A writer loads it *after* it saw its log segment open; the turn at that segment's border is
//! published before the segment opens, so the writer finds its generation.
//!
//! Tests: below, `loom_tests`, tests/variants.rs.

use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Guard};

use crate::key::Lsn;
use crate::memory::MemTable;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::version::Levels;

use super::pointer::Pointer;

/// One memtable and the LSNs that belong in it.
pub(crate) struct Generation {
    /// First LSN that belongs here.
    pub start: Lsn,
    /// First LSN that does not; MAX while it is the newest.
    end: AtomicU64,
    /// Its versions.
    pub memtable: Arc<MemTable>,
    /// Somebody was told that it has outgrown its limit.
    told: AtomicBool,
    /// Somebody sorts what its hash holds, or has.
    settled: AtomicBool,
}

impl Generation {
    pub fn new(start: Lsn, memtable: MemTable) -> Arc<Generation> {
        Arc::new(Generation {
            start,
            end: AtomicU64::new(Lsn::MAX.0),
            memtable: Arc::new(memtable),
            told: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        })
    }

    /// True for the first who asks.
    pub fn is_first_to_tell(&self) -> bool {
        !self.told.load(Ordering::Relaxed) && !self.told.swap(true, Ordering::Relaxed)
    }

    /// True for the first who asks, if its hash holds what is not sorted.
    pub fn is_first_to_settle(&self) -> bool {
        !self.settled.load(Ordering::Relaxed)
            && self.memtable.unsorted() > 0
            && !self.settled.swap(true, Ordering::Relaxed)
    }

    /// First LSN beyond it; MAX until its border is fixed, which may lie before the tail has come there.
    pub fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }
}

/// What a read has to look at, newest first.
pub(crate) struct SuperVersion {
    /// Newest first; never empty.
    pub generations: Vec<Arc<Generation>>,
    /// The tables.
    pub levels: Arc<Levels>,
    /// Every version with LSN below is in `levels`.
    pub flushed_to: Lsn,
}

impl SuperVersion {
    /// All below `flushed_to` in `levels`, and a memtable for the rest.
    pub fn new(levels: Arc<Levels>, flushed_to: Lsn, memtable: MemTable) -> SuperVersion {
        SuperVersion { generations: vec![Generation::new(flushed_to, memtable)], levels, flushed_to }
    }

    /// The newest generation. Its border may lie beyond the tail: then writes still belong in one before.
    pub fn active(&self) -> &Arc<Generation> {
        &self.generations[0]
    }

    /// The generation that the next LSN belongs to, unless the log passes a border first. `tail` is asked for only if
    /// there is a choice, and after this superversion was loaded.
    #[inline]
    pub fn generation_now(&self, tail: impl FnOnce() -> Lsn) -> &Arc<Generation> {
        match self.generations.as_slice() {
            [only] => only,
            _ => self.generation_of(tail()),
        }
    }

    /// The generation that `lsn` belongs to.
    pub fn generation_of(&self, lsn: Lsn) -> &Arc<Generation> {
        self.generations
            .iter()
            .find(|g| g.start <= lsn)
            .expect("I2: an LSN in flight keeps its generation from being flushed")
    }

    /// What stands here after the keyspace was dropped: nothing, and one generation for the writes in flight.
    pub fn emptied(&self, memtable: MemTable) -> SuperVersion {
        let start = self.generations.last().map_or(self.flushed_to, |oldest| oldest.start);
        SuperVersion {
            generations: vec![Generation::new(start, memtable)],
            levels: Arc::new(self.levels.emptied()),
            flushed_to: self.flushed_to,
        }
    }

    /// Generations whose border is fixed, newest first. The tail may not have come to that of the first yet.
    pub fn frozen(&self) -> &[Arc<Generation>] {
        &self.generations[1..]
    }
}

/// The pointer to a keyspace's current superversion.
pub(crate) struct Current {
    pointer: Pointer<SuperVersion>,
    change: Mutex<()>,
}

impl Current {
    pub fn new(first: SuperVersion) -> Current {
        Current { pointer: Pointer::new(first), change: Mutex::new(()) }
    }

    /// The current superversion; valid while `guard` is pinned. Writes nothing shared.
    #[inline]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g SuperVersion {
        self.pointer.load(guard)
    }

    /// Replaces it by what `next` makes of it; `None` leaves it. One change at a time. The generations that it lists no
    /// more: readers may still be at them.
    #[must_use = "dropped, the memtables go wherever the last reader lets go"]
    pub fn replace(&self, next: impl FnOnce(&SuperVersion) -> Option<SuperVersion>) -> Vec<Arc<Generation>> {
        let _change = self.change.lock();
        let guard = epoch::pin();
        let now = self.load(&guard);
        let Some(next) = next(now) else { return Vec::new() };
        let stays = |g: &&Arc<Generation>| next.generations.iter().any(|kept| Arc::ptr_eq(g, kept));
        let left = now.generations.iter().filter(|g| !stays(g)).cloned().collect();
        self.pointer.replace(next, &guard);
        left
    }

    /// Starts a new generation at `border`, where a log segment not yet open begins.
    pub fn turn(&self, border: Lsn, memtable: impl FnOnce() -> MemTable) {
        let left = self.replace(|now| {
            debug_assert!(now.active().start < border);
            let mut generations = Vec::with_capacity(now.generations.len() + 1);
            generations.push(Generation::new(border, memtable()));
            generations.extend(now.generations.iter().cloned());
            now.active().end.store(border.0, Ordering::Release);
            Some(SuperVersion { generations, levels: now.levels.clone(), flushed_to: now.flushed_to })
        });
        debug_assert!(left.is_empty());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::bytewise;

    fn current() -> Current {
        Current::new(SuperVersion {
            generations: vec![Generation::new(Lsn(10), MemTable::new(bytewise()))],
            levels: Arc::new(Levels::new(bytewise(), Vec::new())),
            flushed_to: Lsn(10),
        })
    }

    /// I2: a function of the LSN alone, whenever it is asked and however often the keyspace turned.
    #[test]
    fn every_lsn_has_one_generation_and_keeps_it() {
        let current = current();
        let guard = epoch::pin();
        let borders = [16, 32, 48];
        for (turned, border) in borders.iter().enumerate() {
            current.turn(Lsn(*border), || MemTable::new(bytewise()));
            let now = current.load(&guard);
            assert_eq!(now.active().start, Lsn(*border), "newest first");
            for pair in now.generations.windows(2) {
                assert_eq!(pair[0].start, pair[1].end(), "they adjoin");
            }
            assert_eq!(now.frozen().len(), turned + 1);
            for lsn in 10..border + 20 {
                let start = borders[..=turned].iter().rev().find(|b| **b <= lsn).unwrap_or(&10);
                let generation = now.generation_of(Lsn(lsn));
                assert_eq!(generation.start, Lsn(*start), "LSN {lsn} after {} turns", turned + 1);
                assert!(Lsn(lsn) < generation.end());
            }
        }
    }

    /// I5: what a reader loaded stays while its guard is pinned, and goes afterwards.
    #[test]
    fn a_replaced_superversion_lives_as_long_as_the_guard_that_loaded_it() {
        let current = current();
        let reader = epoch::pin();
        let seen = current.load(&reader);
        let levels = Arc::downgrade(&seen.levels);
        let left = current.replace(|now| {
            Some(SuperVersion {
                generations: now.generations.clone(),
                levels: Arc::new(Levels::new(bytewise(), Vec::new())),
                flushed_to: now.flushed_to,
            })
        });
        assert!(left.is_empty(), "the generation is still listed");
        let collect = || std::thread::spawn(|| (0..500).for_each(|_| epoch::pin().flush())).join();
        collect().expect("no panic");
        assert_eq!(levels.strong_count(), 1, "a guard is pinned that loaded it");
        drop(reader);
        let began = std::time::Instant::now();
        while levels.strong_count() > 0 {
            assert!(began.elapsed().as_secs() < 30, "nobody holds it any more");
            epoch::pin().flush();
            collect().expect("no panic");
        }
    }
}
