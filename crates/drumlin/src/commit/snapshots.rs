//! Registered snapshots, and the one word that writers look at.
//!
//! Place: `db` takes and releases snapshots; every writer reads `newest()` once at its gate;
//! flushes and compactions read `list()` to know which versions are still needed.
//!
//! Invariants (I4):
//! 1. S is in the list before the wait for P ≥ S: no merge that starts later drops what S needs.
//! 2. `newest` is `MAX` while S is being read from the tail, then the highest registered S, 0 if
//!    none. A writer with LSN ≥ S that reads it after drawing sees MAX or a value ≥ S.
//! 3. The list is read by merges under the same mutex.
//! 4. Where versions are displaced that no registered snapshot needs, a read point is the tail of when it was registered, or
//!    that of another snapshot that is registered still: what lies below the completed prefix may be gone already, or be
//!    about to go, by a writer that has passed its gate (B1).
//!
//! Orderings: `newest = MAX` and the load of the tail are SeqCst against the writer's `fetch_add`
//! and load of `newest`, both SeqCst: a store/load pair on each side, so at least one sees the
//! other. (`loom_tests` shows that the order is needed. That SeqCst accesses give it follows from the
//! standard: the checker knows it of fences only, and is given fences.)
//!
//! Origin: cLSM §3.2.1 and Algorithm 2; the restart loop of getTS is not needed here, since a
//! writer whose LSN is at or above S is simply not in S.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::key::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, fence_for_the_checker};

use super::Sequencer;

/// A recent snapshot is at most so many units of the log behind what is complete, if it shares the read point of another one.
const RECENT_UNITS: u64 = (4 << 20) / 8;

/// The registered read points of a store.
pub struct Snapshots {
    newest: AtomicU64,
    /// See invariant 4.
    displacing: AtomicBool,
    registered: Mutex<BTreeMap<Lsn, usize>>,
}

/// A registered read point. Release it with [`Snapshots::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a registered snapshot keeps old versions alive until it is released"]
pub struct Registration(Lsn);

impl Registration {
    /// The exclusive bound: the snapshot sees LSNs below it.
    pub fn lsn(&self) -> Lsn {
        self.0
    }
}

impl Snapshots {
    pub(super) fn new() -> Self {
        Snapshots {
            newest: AtomicU64::new(0),
            displacing: AtomicBool::new(false),
            registered: Mutex::new(BTreeMap::new()),
        }
    }

    /// From now on versions that no registered snapshot needs may be displaced: to be called before the first one is.
    pub fn allow_displacing(&self) {
        // Release, and Acquire in `snapshot_recent` once it has the prefix: if that contains a version which can be displaced,
        // it is seen.
        self.displacing.store(true, Ordering::Release);
    }

    /// What a writer compares with: 0, the newest registered snapshot, or MAX while one is taken.
    #[inline]
    pub fn newest(&self) -> Lsn {
        fence_for_the_checker();
        Lsn(self.newest.load(Ordering::SeqCst))
    }

    /// Read points in ascending order, for merges. O(n).
    pub fn list(&self) -> Vec<Lsn> {
        self.registered.lock().keys().copied().collect()
    }

    /// Gives a read point up. O(log n).
    pub fn release(&self, registration: Registration) {
        let mut registered = self.registered.lock();
        if let Some(count) = registered.get_mut(&registration.0) {
            *count -= 1;
            if *count == 0 {
                registered.remove(&registration.0);
            }
        }
        // Leaving it high would only cost writers a compare more; lowering it is under the mutex,
        // so it never hides a snapshot being taken.
        let newest = registered.keys().next_back().map_or(0, |s| s.0);
        self.newest.store(newest, Ordering::Release);
    }
}

impl Sequencer {
    /// A linearizable read point: it contains every write acknowledged before the call, and while
    /// it waits for the writes in flight below it, none above it becomes visible.
    ///
    /// Load the superversion only after this returns. Waits for the writes in flight.
    pub fn snapshot(&self) -> Result<Registration> {
        let snapshots = self.snapshots();
        let lsn = {
            let mut registered = snapshots.registered.lock();
            snapshots.newest.store(u64::MAX, Ordering::SeqCst);
            fence_for_the_checker();
            let lsn = self.tail_seq_cst();
            *registered.entry(lsn).or_insert(0) += 1;
            let newest = registered.keys().next_back().map_or(0, |s| s.0);
            snapshots.newest.store(newest, Ordering::Release);
            lsn
        };
        let registration = Registration(lsn);
        match self.wait_completed(lsn) {
            Ok(()) => Ok(registration),
            Err(error) => {
                snapshots.release(registration);
                Err(error)
            }
        }
    }

    /// A serializable read point that waits for nobody: the completed prefix. It may miss writes
    /// acknowledged a moment ago, if an older one is still in flight. Where versions are displaced, it is the newest one
    /// that another snapshot has waited for, and if there is none that is recent, [`Sequencer::snapshot`]; then of two calls
    /// the later one may get the older read point.
    ///
    /// The shared, monotone P is used, never a fresh scan alone: lower bounds are old, and a merge
    /// may have dropped what lies behind P.
    pub fn snapshot_recent(&self) -> Result<Registration> {
        self.completed();
        let snapshots = self.snapshots();
        let mut registered = snapshots.registered.lock();
        // Before the look at what is displaced: a version that may be is either above, or its keyspace is known of.
        let lsn = self.completed_lagging();
        if snapshots.displacing.load(Ordering::Acquire) {
            let waited_for = registered.range_mut(..=lsn).next_back();
            if let Some((&shared, count)) = waited_for.filter(|(at, _)| lsn.0 - at.0 <= RECENT_UNITS) {
                *count += 1;
                return Ok(Registration(shared));
            }
            drop(registered);
            return self.snapshot();
        }
        *registered.entry(lsn).or_insert(0) += 1;
        let newest = registered.keys().next_back().map_or(0, |s| s.0);
        snapshots.newest.store(newest, Ordering::Release);
        Ok(Registration(lsn))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn the_list_holds_each_snapshot_until_its_last_release() {
        let sequencer = Sequencer::new(Lsn(5));
        let a = sequencer.snapshot().expect("no writer");
        let b = sequencer.snapshot().expect("no writer");
        sequencer.begin(2).commit();
        let c = sequencer.snapshot().expect("no writer");
        assert_eq!(sequencer.snapshots().list(), [Lsn(5), Lsn(7)]);
        assert_eq!(sequencer.snapshots().newest(), Lsn(7));
        sequencer.snapshots().release(a);
        assert_eq!(sequencer.snapshots().list(), [Lsn(5), Lsn(7)]);
        sequencer.snapshots().release(c);
        assert_eq!(sequencer.snapshots().newest(), Lsn(5));
        sequencer.snapshots().release(b);
        assert_eq!((sequencer.snapshots().list(), sequencer.snapshots().newest()), (vec![], Lsn(0)));
    }

    /// Regression A1, the gate: A[10] drawn and unpublished; a snapshot at 11 waits for it; B[11]
    /// must not become visible before A is, or one get sees B, the next one misses A, and the
    /// snapshot has A and not B.
    #[test]
    fn no_later_write_passes_the_gate_while_a_snapshot_waits() {
        let sequencer = Sequencer::new(Lsn(10));
        let (send, receive) = mpsc::channel();
        std::thread::scope(|s| {
            let a = sequencer.begin(1);
            let snapshot = s.spawn(|| sequencer.snapshot().map(|s| s.lsn()));
            while sequencer.snapshots().list().is_empty() {
                std::thread::yield_now();
            }
            let (sequencer, send) = (&sequencer, send.clone());
            s.spawn(move || {
                let b = sequencer.begin(1);
                b.gate().expect("nobody dies");
                send.send("B is visible").expect("the test waits");
                b.commit();
            });
            assert!(
                receive.recv_timeout(Duration::from_millis(50)).is_err(),
                "the snapshot at 11 waits for A"
            );
            assert!(!snapshot.is_finished());
            a.gate().expect("A is below the snapshot: it never waits for itself");
            a.commit();
            receive.recv_timeout(Duration::from_secs(20)).expect("A is complete, B may go on");
            assert_eq!(snapshot.join().expect("no panic").expect("nobody died"), Lsn(11));
        });
    }

    /// Regression C1: a flush that begins while the snapshot waits must find it in the list.
    #[test]
    fn a_snapshot_is_registered_before_it_waits() {
        let sequencer = Sequencer::new(Lsn(10));
        std::thread::scope(|s| {
            let a = sequencer.begin(1);
            let snapshot = s.spawn(|| sequencer.snapshot().map(|s| s.lsn()));
            let began = std::time::Instant::now();
            while sequencer.snapshots().list() != [Lsn(11)] && began.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            let listed = sequencer.snapshots().list();
            let waits = !snapshot.is_finished();
            a.commit();
            assert_eq!((listed, waits), (vec![Lsn(11)], true));
        });
    }

    /// Regression B6: a snapshot that takes over the read point of another misses what was
    /// acknowledged in between, its own thread's writes included.
    #[test]
    fn a_snapshot_contains_what_was_acknowledged_before_it_whatever_others_there_are() {
        let sequencer = Sequencer::new(Lsn(5));
        for _ in 0..3 {
            let write = sequencer.begin(2);
            let end = write.end();
            write.commit();
            let snapshot = sequencer.snapshot().expect("nobody dies");
            assert_eq!(snapshot.lsn(), end);
            let _kept = snapshot;
        }
    }

    #[test]
    fn a_recent_snapshot_waits_for_nobody() {
        let sequencer = Sequencer::new(Lsn(10));
        let a = sequencer.begin(1);
        std::thread::scope(|s| {
            s.spawn(|| sequencer.begin(1).commit());
        });
        let recent = || sequencer.snapshot_recent().expect("nobody dies").lsn();
        assert_eq!(recent(), Lsn(10), "A[10] is in flight");
        a.commit();
        assert_eq!(recent(), Lsn(12));
    }

    /// Regression B1: a writer has passed its gate before anybody was registered, and displaces x0. A snapshot at the
    /// completed prefix would then find no x.
    #[test]
    fn where_versions_are_displaced_a_recent_snapshot_is_one_that_was_waited_for() {
        let sequencer = Sequencer::new(Lsn(10));
        sequencer.snapshots().allow_displacing();
        let waited_for = sequencer.snapshot().expect("nobody is in flight");
        // The prefix is further than what was waited for.
        sequencer.begin(2).commit();
        let a = sequencer.begin(1);
        a.gate().expect("nobody dies");
        std::thread::scope(|s| {
            s.spawn(|| sequencer.begin(1).commit());
        });
        let recent = sequencer.snapshot_recent().expect("nobody dies");
        assert_eq!(recent.lsn(), waited_for.lsn(), "A[12] is in flight, and 10 was waited for");
        a.commit();
        sequencer.begin(RECENT_UNITS).commit();
        let fresh = sequencer.snapshot_recent().expect("nobody dies");
        assert_eq!(fresh.lsn(), sequencer.tail(), "the other one is too old");
        for registration in [waited_for, recent, fresh] {
            sequencer.snapshots().release(registration);
        }
        let alone = sequencer.snapshot_recent().expect("nobody dies");
        assert_eq!((alone.lsn(), sequencer.snapshots().newest()), (sequencer.tail(), sequencer.tail()));
    }
}
