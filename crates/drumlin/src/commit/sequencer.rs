//! The sequencer: one counter that is log position, version and timestamp; the completed prefix;
//! and the gate that keeps linearizable snapshots linearizable.
//!
//! Place: `log` and `db` draw through it; flushes and snapshots wait for it.
//!
//! Invariants:
//! 1. `tail` only grows. An LSN is drawn by one `fetch_add` (or, for a pad to a segment border, by
//!    one compare-and-swap), after the drawer's lower bound is in its slot.
//! 2. P (`completed`) only grows, and every LSN < P is installed or a no-op:
//!    P = max(P, min(tail, min over slots)), the tail loaded first, then the list, then the slots.
//! 3. Between `begin` and `commit` a thread takes no key lock, and waits only for smaller LSNs (the gate) or
//!    for its log segment to open.
//!
//! Concurrency and orderings (each weakened to Relaxed fails a test in `loom_tests`):
//! - tail: `fetch_add` SeqCst (store/load against a snapshot's `snap_hi`/tail pair), load Acquire;
//! - slots: Release stores, Acquire loads;
//! - P: CAS-max AcqRel, load Acquire.
//!
//! Linearization: a put takes effect when it is published (or just before a newer version of its
//! key, if that one is published first); a batch at `commit`.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CachePadded, failpoint};

use super::slots::{SlotRef, Slots};
use super::snapshots::Snapshots;

/// Draws LSNs and knows which are complete. One per open store.
pub struct Sequencer {
    tail: CachePadded<AtomicU64>,
    completed: CachePadded<AtomicU64>,
    slots: Arc<Slots>,
    snapshots: Snapshots,
    /// A thread died between `begin` and `commit`: P stands still for ever.
    broken: AtomicBool,
}

/// A write in flight: its LSN is drawn and not yet committed. Dropping it without
/// [`commit`](InFlight::commit) (a panic) breaks the sequencer for good.
#[must_use = "an LSN that is drawn must be committed"]
pub struct InFlight<'a> {
    sequencer: &'a Sequencer,
    slot: SlotRef<'a>,
    lsn: Lsn,
    end: Lsn,
}

impl Sequencer {
    /// A sequencer whose first LSN is `start`; everything below counts as complete.
    pub fn new(start: Lsn) -> Arc<Sequencer> {
        Arc::new(Sequencer {
            tail: CachePadded::new(AtomicU64::new(start.0)),
            completed: CachePadded::new(AtomicU64::new(start.0)),
            slots: Slots::new(),
            snapshots: Snapshots::new(),
            broken: AtomicBool::new(false),
        })
    }

    /// The slots, for gets that meet a batch part.
    pub fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The registered snapshots.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// The next LSN to be drawn.
    pub fn tail(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::Acquire))
    }

    /// As [`Sequencer::tail`], for those who stored something that whoever draws later has to see.
    pub(crate) fn tail_seq_cst(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    /// Draws `units` log units for the calling thread. Key locks are held by now.
    #[inline]
    pub fn begin(&self, units: u64) -> InFlight<'_> {
        self.begin_in(self.slots.mine(|| self.tail()), units)
    }

    /// Draws in a given slot, which nobody else uses meanwhile.
    pub(crate) fn begin_in<'a>(&'a self, slot: SlotRef<'a>, units: u64) -> InFlight<'a> {
        slot.slot.announce(self.completed_lagging());
        failpoint::hit("write::announced");
        let lsn = Lsn(self.tail.fetch_add(units, Ordering::SeqCst));
        let end = Lsn(lsn.0 + units);
        slot.slot.publish(lsn, end);
        failpoint::hit("write::drawn");
        InFlight { sequencer: self, slot, lsn, end }
    }

    /// Draws everything from the tail to the next multiple of `border_units` (a whole stretch if it
    /// stands on one), for the caller to fill with a pad.
    pub fn begin_to_border(&self, border_units: u64) -> InFlight<'_> {
        let slot = self.slots.mine(|| self.tail());
        slot.slot.announce(self.completed_lagging());
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            let end = (tail + 1).next_multiple_of(border_units);
            match self.tail.compare_exchange_weak(tail, end, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    slot.slot.publish(Lsn(tail), Lsn(end));
                    return InFlight { sequencer: self, slot, lsn: Lsn(tail), end: Lsn(end) };
                }
                Err(now) => tail = now,
            }
        }
    }

    /// The completed prefix: every LSN below is installed or a no-op. O(threads).
    pub fn completed(&self) -> Lsn {
        let mut bound = self.tail.load(Ordering::Acquire);
        for index in 0..self.slots.count() {
            bound = bound.min(self.slots.by_index(index).slot.bound().0);
        }
        Lsn(self.completed.fetch_max(bound, Ordering::AcqRel).max(bound))
    }

    /// The completed prefix as last computed by anybody; may lag. O(1).
    #[inline]
    pub fn completed_lagging(&self) -> Lsn {
        Lsn(self.completed.load(Ordering::Acquire))
    }

    /// Waits until everything below `lsn` is installed. `lsn` must not lie beyond the tail.
    ///
    /// Errors: [`Error::Poisoned`] if a writer died in flight, since P will never pass it.
    pub fn wait_completed(&self, lsn: Lsn) -> Result<()> {
        debug_assert!(lsn <= self.tail(), "waiting for an LSN that nobody has drawn");
        while self.completed() < lsn {
            for index in 0..self.slots.count() {
                let slot = self.slots.by_index(index).slot;
                if slot.bound() < lsn {
                    failpoint::hit("commit::waits");
                    slot.park_while_below(lsn, || self.is_broken());
                    break;
                }
            }
            self.check_unbroken()?;
        }
        Ok(())
    }

    /// Errors: [`Error::Poisoned`] once a writer died in flight.
    #[inline]
    pub fn check_unbroken(&self) -> Result<()> {
        if self.is_broken() {
            return Err(Error::Poisoned { why: "a thread died in the middle of a write".into() });
        }
        Ok(())
    }

    /// True once a writer died in flight.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl InFlight<'_> {
    /// The LSN drawn.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The first LSN after the record.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The slot that shows it, stored with batch parts.
    pub fn slot_index(&self) -> u32 {
        self.slot.index()
    }

    /// The gate: called after the log copy and before publishing. While a linearizable snapshot S
    /// waits for its prefix, a write with LSN ≥ S must stay invisible; it waits for the same prefix.
    /// With no snapshot under way this is two loads and a compare.
    ///
    /// Of the versions below the one that it returns some snapshot may need one; of those at or above it none does, nor will.
    #[inline]
    pub fn gate(&self) -> Result<Lsn> {
        let newest_snapshot = self.sequencer.snapshots.newest();
        if newest_snapshot > self.sequencer.completed_lagging() {
            self.sequencer.wait_completed(self.lsn.min(newest_snapshot))?;
        }
        Ok(newest_snapshot)
    }

    /// Everything of this write is published. For a batch this is the instant it takes effect.
    #[inline]
    pub fn commit(self) {
        failpoint::hit("write::published");
        self.slot.slot.clear();
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.sequencer.broken.store(true, Ordering::Release);
        for index in 0..self.sequencer.slots.count() {
            self.sequencer.slots.by_index(index).slot.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn the_completed_prefix_stops_at_the_oldest_write_in_flight() {
        let sequencer = Sequencer::new(Lsn(100));
        assert_eq!(sequencer.completed(), Lsn(100));
        let first = sequencer.begin(3);
        assert_eq!((first.lsn(), first.end(), sequencer.tail()), (Lsn(100), Lsn(103), Lsn(103)));
        std::thread::scope(|s| {
            s.spawn(|| sequencer.begin(2).commit());
        });
        assert_eq!(sequencer.completed(), Lsn(100), "103..105 is done, 100..103 is not");
        first.commit();
        assert_eq!(sequencer.completed(), Lsn(105));
    }

    #[test]
    fn a_waiter_sleeps_until_the_write_before_it_commits() {
        let sequencer = Sequencer::new(Lsn(0));
        let (woken, done) = mpsc::channel();
        std::thread::scope(|s| {
            let first = sequencer.begin(1);
            s.spawn(|| {
                sequencer.wait_completed(Lsn(1)).expect("nobody dies");
                woken.send(()).expect("the test waits");
            });
            assert!(done.recv_timeout(Duration::from_millis(50)).is_err(), "the write is in flight");
            first.commit();
            done.recv_timeout(Duration::from_secs(20)).expect("the commit wakes the waiter");
        });
    }

    #[test]
    fn a_writer_that_dies_in_flight_breaks_the_store_and_wakes_the_waiters() {
        let sequencer = Sequencer::new(Lsn(0));
        std::thread::scope(|s| {
            let first = sequencer.begin(1);
            let waiter = s.spawn(|| sequencer.wait_completed(Lsn(1)));
            let death = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _in_flight = first;
                std::panic::resume_unwind(Box::new("died in the middle of a put"));
            }));
            assert!(death.is_err());
            assert!(waiter.join().expect("no panic").is_err());
        });
        assert!(sequencer.is_broken());
    }

    #[test]
    fn a_pad_reaches_exactly_to_the_border() {
        let sequencer = Sequencer::new(Lsn(64));
        sequencer.begin(1).commit();
        let pad = sequencer.begin_to_border(64);
        assert_eq!((pad.lsn(), pad.end()), (Lsn(65), Lsn(128)));
        pad.commit();
        let whole = sequencer.begin_to_border(64);
        assert_eq!((whole.lsn(), whole.end()), (Lsn(128), Lsn(192)), "from a border to the next");
        whole.commit();
        assert_eq!(sequencer.completed(), Lsn(192));
    }

    /// Regression J1: a slot whose lower bound were the previous *LSN* would show a finished batch
    /// as in flight again, as soon as its thread begins the next write.
    #[test]
    fn the_next_write_does_not_make_a_finished_batch_look_unfinished() {
        let sequencer = Sequencer::new(Lsn(8));
        let batch = sequencer.begin(4);
        let (slot, lsn) = (batch.slot_index(), batch.lsn());
        assert!(sequencer.slots().is_in_flight(slot, lsn));
        batch.commit();
        sequencer.slots().by_index(slot).slot.announce(Lsn::ZERO);
        assert!(!sequencer.slots().is_in_flight(slot, lsn), "the lower bound is the end of the record");
    }
}
