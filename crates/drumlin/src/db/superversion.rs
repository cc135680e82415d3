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
//!   hold its parts by counted references, so that they are `Send` and stop no reclamation.
//!
//! Concurrency: `current` is stored with Release under `change`, loaded with Acquire under an epoch.
//! A writer loads it *after* it saw its log segment open; the turn at that segment's border is
//! published before the segment opens, so the writer finds its generation.

use std::sync::Arc;

use crossbeam_epoch::{self as epoch, Guard, Owned, Shared};

use crate::key::Lsn;
use crate::memory::MemTable;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::Levels;

/// One memtable and the LSNs that belong in it.
pub(crate) struct Generation {
    /// First LSN that belongs here.
    pub start: Lsn,
    /// First LSN that does not; MAX while it is the newest.
    end: AtomicU64,
    /// Its versions.
    pub memtable: Arc<MemTable>,
}

impl Generation {
    pub fn new(start: Lsn, memtable: MemTable) -> Arc<Generation> {
        Arc::new(Generation { start, end: AtomicU64::new(Lsn::MAX.0), memtable: Arc::new(memtable) })
    }

    /// First LSN beyond it; MAX while writers may still be told to come here.
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
    /// The generation writers start in.
    pub fn active(&self) -> &Arc<Generation> {
        &self.generations[0]
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
            levels: Arc::default(),
            flushed_to: self.flushed_to,
        }
    }

    /// Generations that no new LSN can belong to, newest first.
    pub fn frozen(&self) -> &[Arc<Generation>] {
        &self.generations[1..]
    }
}

/// The pointer to a keyspace's current superversion.
pub(crate) struct Current {
    pointer: epoch::Atomic<SuperVersion>,
    change: Mutex<()>,
}

impl Current {
    pub fn new(first: SuperVersion) -> Current {
        Current { pointer: epoch::Atomic::new(first), change: Mutex::new(()) }
    }

    /// The current superversion; valid while `guard` is pinned. Writes nothing shared.
    #[inline]
    #[allow(unsafe_code)]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g SuperVersion {
        let shared = self.pointer.load(Ordering::Acquire, guard);
        // SAFETY: never null (made in `new`, replaced in `replace`), and freed only by
        // `defer_destroy`, past every guard pinned before the replacement.
        // Test: superversion::tests, tests/model.rs.
        unsafe { shared.deref() }
    }

    /// Replaces it by what `next` makes of it; `None` leaves it. One change at a time.
    #[allow(unsafe_code)]
    pub fn replace(&self, next: impl FnOnce(&SuperVersion) -> Option<SuperVersion>) {
        let _change = self.change.lock();
        let guard = epoch::pin();
        let Some(next) = next(self.load(&guard)) else { return };
        let old = self.pointer.swap(Owned::new(next), Ordering::AcqRel, &guard);
        // SAFETY: `old` is unreachable for whoever pins from now on. Test: superversion::tests.
        unsafe { guard.defer_destroy(old) };
        guard.flush();
    }

    /// Starts a new generation at `border`, where a log segment not yet open begins.
    pub fn turn(&self, border: Lsn, memtable: impl FnOnce() -> MemTable) {
        self.replace(|now| {
            debug_assert!(now.active().start < border);
            let mut generations = Vec::with_capacity(now.generations.len() + 1);
            generations.push(Generation::new(border, memtable()));
            generations.extend(now.generations.iter().cloned());
            now.active().end.store(border.0, Ordering::Release);
            Some(SuperVersion { generations, levels: now.levels.clone(), flushed_to: now.flushed_to })
        });
    }
}

impl Drop for Current {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `&mut self`: nobody else can load the pointer any more.
        unsafe {
            let shared: Shared<'_, SuperVersion> = self.pointer.load(Ordering::Relaxed, epoch::unprotected());
            drop(shared.into_owned());
        }
    }
}
