//! The commit protocol's kernels under every interleaving and C11 ordering.
//!
//! Run by `cargo x loom`. Each test names what goes wrong when its ordering is weakened.

#![allow(unsafe_code)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::{Sequencer, Stripes};
use crate::key::Lsn;

/// Draws in slot `index`, publishes into `cell` (the value is LSN + 1), commits.
fn put(sequencer: &Sequencer, index: u32, cell: &AtomicU64) -> Lsn {
    let write = sequencer.begin_in(sequencer.slots().by_index(index), 1);
    let lsn = write.lsn();
    write.gate().expect("nobody dies");
    cell.store(lsn.0 + 1, Ordering::Release);
    write.commit();
    lsn
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// P never passes a version that is not installed. Fails with: slots loaded before the tail, a
/// Relaxed slot store, load, draw or tail load, and without the lower bound.
#[test]
fn loom_completed_covers_only_installed_versions() {
    model(3, || {
        let sequencer = Sequencer::new(Lsn(0));
        let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let slots = [sequencer.slots().claim(), sequencer.slots().claim()];
        let writers: Vec<_> = (0..2)
            .map(|i| {
                let (sequencer, cells) = (sequencer.clone(), cells.clone());
                thread::spawn(move || put(&sequencer, slots[i], &cells[i]))
            })
            .collect();
        let p = sequencer.completed();
        let installed = cells.iter().filter(|c| {
            let v = c.load(Ordering::Relaxed);
            v != 0 && v - 1 < p.0
        });
        assert_eq!(installed.count() as u64, p.0, "every LSN below P is visible");
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(sequencer.completed(), Lsn(2));
    });
}

/// A thread whose slot is claimed while P is being computed is not overlooked.
#[test]
fn loom_a_new_slot_joins_before_its_first_draw() {
    model(3, || {
        let sequencer = Sequencer::new(Lsn(0));
        let cell = Arc::new(AtomicU64::new(0));
        let writer = {
            let (sequencer, cell) = (sequencer.clone(), cell.clone());
            thread::spawn(move || put(&sequencer, sequencer.slots().claim(), &cell))
        };
        if sequencer.completed() == Lsn(1) {
            assert_eq!(cell.load(Ordering::Relaxed), 1);
        }
        writer.join().unwrap();
    });
}

/// A snapshot is given out whole, and while it waits nothing above it shows (A1): whoever sees a version
/// that is not in the snapshot sees everything that is in it. Fails if the snapshot does not wait,
/// without the gate, and if the snapshot does not say MAX before it reads the tail.
#[test]
fn loom_no_version_above_a_snapshot_shows_before_the_snapshot_is_whole() {
    model(2, || {
        let sequencer = Sequencer::new(Lsn(0));
        let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let slots = [sequencer.slots().claim(), sequencer.slots().claim()];
        let first = {
            let (sequencer, cells) = (sequencer.clone(), cells.clone());
            thread::spawn(move || put(&sequencer, slots[0], &cells[0]))
        };
        let second = {
            let (sequencer, cells) = (sequencer.clone(), cells.clone());
            // A writer sees its own version, and then looks at the other.
            thread::spawn(move || (put(&sequencer, slots[1], &cells[1]), cells[0].load(Ordering::Acquire)))
        };
        let registration = sequencer.snapshot().expect("nobody dies");
        let s = registration.lsn();
        let seen: Vec<u64> = cells.iter().map(|c| c.load(Ordering::Acquire)).collect();
        let below = seen.iter().filter(|&&v| v != 0 && v <= s.0).count() as u64;
        assert_eq!(below, s.0, "S = {s}, seen {seen:?}");
        sequencer.snapshots().release(registration);
        let first = first.join().unwrap();
        let (second, other) = second.join().unwrap();
        assert!(second < s || first >= s || other != 0, "S = {s}: {second} shows, {first} does not");
    });
}

/// One store commits all parts of a batch: whoever sees the slot moved on sees every part.
/// Fails with a Relaxed clear or a Relaxed slot load.
#[test]
fn loom_a_batch_shows_whole_or_not_at_all() {
    model(3, || {
        let sequencer = Sequencer::new(Lsn(0));
        let parts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let slot = sequencer.slots().claim();
        let writer = {
            let (sequencer, parts) = (sequencer.clone(), parts.clone());
            thread::spawn(move || {
                let batch = sequencer.begin_in(sequencer.slots().by_index(slot), 1);
                parts[0].store(1, Ordering::Release);
                parts[1].store(1, Ordering::Release);
                batch.commit();
            })
        };
        let first = parts[0].load(Ordering::Acquire) == 1;
        if first && !sequencer.slots().is_in_flight(slot, Lsn(0)) {
            assert_eq!(parts[1].load(Ordering::Acquire), 1, "committed: the other part is there");
        }
        writer.join().unwrap();
    });
}

/// A key is held by one thread at a time, by the fast way, through the overflow, or as part of the
/// whole; its holder sees what the last one did. Fails if CROWDED is cleared while the overflow is
/// in use, or with a Relaxed unlock.
#[test]
fn loom_a_key_is_held_once_and_hands_over_what_was_done() {
    for whole in [false, true] {
        model(3, move || {
            let stripes = Arc::new(Stripes::default());
            let cell = Arc::new(loom::cell::UnsafeCell::new(0u32));
            let bump = |cell: &loom::cell::UnsafeCell<u32>| {
                // SAFETY: under the lock of key 1; loom fails the test if two threads get here at once.
                cell.with_mut(|c| unsafe { *c += 1 });
            };
            let neighbour = {
                let stripes = stripes.clone();
                thread::spawn(move || drop(stripes.lock(2)))
            };
            let rival = {
                let (stripes, cell) = (stripes.clone(), cell.clone());
                thread::spawn(move || {
                    let _held = if whole { stripes.lock_all() } else { stripes.lock(1) };
                    bump(&cell);
                })
            };
            {
                let _held = stripes.lock_many([1, 2].into_iter());
                bump(&cell);
            }
            neighbour.join().unwrap();
            rival.join().unwrap();
            let _held = stripes.lock(1);
            // SAFETY: under the lock of key 1.
            assert_eq!(cell.with(|c| unsafe { *c }), 2);
        });
    }
}
