//! The log's two handshakes under every interleaving of a few threads: the gate between writers and
//! the opener, and the turns of those who sync. Segments and syncs are numbers here; gate, turns,
//! sequencer and locks are the product's own. Waiting is real: a lost wake-up is a deadlock.
//!
//! Run by `cargo x loom`, with at most three preemptions. Each test names what fails it.

use loom::sync::Arc;
use loom::thread;

use crate::commit::Sequencer;
use crate::key::Lsn;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

use super::gate::Gate;
use super::sync::{SyncState, announce, give_up, lead_or_follow};

/// Units of a segment.
const UNITS: u64 = 4;
/// Units kept free: one for each writer.
const SLACK: u64 = 2;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

struct Ahead {
    sequencer: std::sync::Arc<Sequencer>,
    gate: Gate,
    open_end: Mutex<u64>,
    work: Condvar,
}

impl Ahead {
    fn new(tail: u64, open_end: u64) -> Arc<Ahead> {
        let ahead = Ahead {
            sequencer: Sequencer::new(Lsn(tail)),
            gate: Gate::new(),
            open_end: Mutex::new(open_end),
            work: Condvar::new(),
        };
        ahead.rethink(open_end);
        Arc::new(ahead)
    }

    fn rethink(&self, open_end: u64) {
        let tail = || self.sequencer.tail_seq_cst().0;
        self.gate.rethink(tail, open_end.saturating_sub(SLACK), open_end.saturating_sub(UNITS + 1), || {
            self.work.notify_all();
        });
    }

    fn wanted_end(&self) -> u64 {
        (self.sequencer.tail().0 / UNITS + 2) * UNITS
    }

    /// Draws one unit, and attends if that went beyond the threshold.
    fn write(&self, slot: u32) {
        let write = self.sequencer.begin_in(self.sequencer.slots().by_index(slot), 1);
        if self.gate.is_passed_by(write.end().0) {
            let open_end = self.open_end.lock();
            self.rethink(*open_end);
        }
        write.commit();
    }

    /// The opener, until the log is open up to `goal`.
    fn open_up_to(&self, goal: u64) {
        let mut open_end = self.open_end.lock();
        while *open_end < goal {
            if *open_end < self.wanted_end() {
                // It makes the file without the lock.
                drop(open_end);
                open_end = self.open_end.lock();
                *open_end += UNITS;
                self.rethink(*open_end);
                continue;
            }
            self.rethink(*open_end);
            if *open_end >= self.wanted_end() {
                open_end = self.work.wait_on(&self.open_end, open_end);
            }
        }
    }
}

/// Two writers in the slack draw beyond the segment that is being opened: the opener learns that one
/// more is due, from a writer or by itself. Fails (deadlocks) if `rethink` leaves the threshold where
/// nobody sees it, or does not tell the opener when it raises it.
#[test]
fn loom_the_opener_learns_of_every_segment_that_is_due() {
    model(|| {
        let ahead = Ahead::new(3, 4);
        let slots = [ahead.sequencer.slots().claim(), ahead.sequencer.slots().claim()];
        let opener = {
            let ahead = ahead.clone();
            thread::spawn(move || ahead.open_up_to(12))
        };
        let other = {
            let ahead = ahead.clone();
            thread::spawn(move || ahead.write(slots[1]))
        };
        ahead.write(slots[0]);
        other.join().unwrap();
        opener.join().unwrap();
        assert!(ahead.gate.is_open());
    });
}

/// Writers that look at the gate before each record stop in time: each overshoots by one record at
/// most, and the slack is there for that. Fails if `rethink` leaves the gate open beyond the slack.
#[test]
fn loom_writers_stop_at_the_gate_within_the_slack() {
    model(|| {
        let ahead = Ahead::new(5, 8);
        let slots = [ahead.sequencer.slots().claim(), ahead.sequencer.slots().claim()];
        let write_while_open = |ahead: &Ahead, slot: u32| {
            for _ in 0..3 {
                if !ahead.gate.is_open() {
                    break;
                }
                ahead.write(slot);
            }
        };
        let other = {
            let ahead = ahead.clone();
            thread::spawn(move || write_while_open(&ahead, slots[1]))
        };
        write_while_open(&ahead, slots[0]);
        other.join().unwrap();
        assert!(ahead.sequencer.tail().0 <= 8, "nobody draws what is not open");
        assert!(!ahead.gate.is_open());
    });
}

/// A claim lowers the gate under a writer that is just drawing: the gate closes on what is beyond it,
/// whichever of the two comes first. Fails if `rethink` does not look at the tail again after it
/// stored the threshold.
#[test]
fn loom_a_claim_closes_the_gate_on_what_is_drawn_meanwhile() {
    model(|| {
        let ahead = Ahead::new(8, 12);
        let slot = ahead.sequencer.slots().claim();
        let writer = {
            let ahead = ahead.clone();
            thread::spawn(move || {
                let write = ahead.sequencer.begin_in(ahead.sequencer.slots().by_index(slot), 2);
                let attends = ahead.gate.is_passed_by(write.end().0);
                if attends {
                    let open_end = ahead.open_end.lock();
                    ahead.rethink(*open_end);
                }
                write.commit();
            })
        };
        {
            // A claim of one unit is like a log that is one unit shorter.
            let mut open_end = ahead.open_end.lock();
            *open_end -= 1;
            ahead.rethink(*open_end);
        }
        writer.join().unwrap();
        assert_eq!(ahead.sequencer.tail(), Lsn(10));
        assert!(!ahead.gate.is_open(), "the tail is beyond the gate, which is at 9");
    });
}

/// Two writers make their records durable together: when `sync_to` returns, a sync that began after
/// the record was complete is over; nobody is left waiting. Fails if what is complete is read after
/// the sync, if `announce` or `give_up` wakes without the lock between, or if a follower that comes
/// too late for a round is not woken to lead the next.
#[test]
fn loom_who_syncs_last_syncs_for_all_and_nobody_waits_for_ever() {
    struct Group {
        sequencer: std::sync::Arc<Sequencer>,
        records: [AtomicU64; 2],
        /// What the device has of each.
        device: [AtomicU64; 2],
        sync: Mutex<SyncState>,
        sync_done: Condvar,
        synced: AtomicU64,
    }
    fn put_durably(group: &Group, slot: u32) {
        let write = group.sequencer.begin_in(group.sequencer.slots().by_index(slot), 1);
        let (lsn, end) = (write.lsn().0 as usize, write.end());
        group.records[lsn].store(1, Ordering::Relaxed);
        write.commit();
        group.sequencer.wait_completed(end).expect("nobody dies");
        let is_done = || Ok(group.synced.load(Ordering::Acquire) >= end.0);
        if lead_or_follow(&group.sync, &group.sync_done, is_done).expect("nothing fails") {
            let through = group.sequencer.completed().0;
            for lsn in group.synced.load(Ordering::Acquire)..through {
                let record = group.records[lsn as usize].load(Ordering::Relaxed);
                group.device[lsn as usize].store(record, Ordering::Relaxed);
            }
            announce(&group.sync, &group.sync_done, &group.synced, through);
            give_up(&group.sync, &group.sync_done);
        }
        assert_eq!(group.device[lsn].load(Ordering::Relaxed), 1, "acknowledged, so durable");
    }
    model(|| {
        let words = || [AtomicU64::new(0), AtomicU64::new(0)];
        let group = Arc::new(Group {
            sequencer: Sequencer::new(Lsn(0)),
            records: words(),
            device: words(),
            sync: Mutex::new(SyncState { busy: false, mark_from: Lsn(0), names_below: 0 }),
            sync_done: Condvar::new(),
            synced: AtomicU64::new(0),
        });
        let slots = [group.sequencer.slots().claim(), group.sequencer.slots().claim()];
        let other = {
            let group = group.clone();
            thread::spawn(move || put_durably(&group, slots[1]))
        };
        put_durably(&group, slots[0]);
        other.join().unwrap();
        assert_eq!(group.synced.load(Ordering::Relaxed), 2);
    });
}
