//! Disk durability: what `sync_to` has promised survives, many waiters share a sync, marks say
//! what is durable and no more, a failed sync is final.

use super::*;
use crate::env::{Fault, FaultyFs, Keep, MemFs, Operation};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

const SMALL: usize = 4096;

#[test]
fn what_is_synced_survives_a_power_loss_that_keeps_nothing_else() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..50u64 {
        let (lsn, end) = rig.put(&n.to_le_bytes(), &value(n, (n * 61 % 1800) as usize)).expect("room");
        rig.log.sync_to(end).expect("no fault");
        assert!(rig.log.durable() >= end);
        let clone = fs.crash_clone(&mut |_| Keep::No);
        let recovered = scan_with(clone, SMALL, Mode::Recover).expect("no corruption");
        let seen = replay(&recovered, Lsn::ZERO).expect("whole");
        assert_eq!((seen.len() as u64, seen.last().map(|r| r.0)), (n + 1, Some(lsn)));
    }
}

#[test]
fn concurrent_waiters_share_syncs_and_none_returns_early() {
    let (rig, fs) = Rig::new(1 << 16);
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = syncs.clone();
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation == Operation::SyncRegion {
            counter.fetch_add(1, Ordering::Relaxed);
            // A sync takes its time, so that others come to wait.
            std::thread::sleep(Duration::from_micros(300));
        }
    })));
    let (threads, each) = (8, 25u64);
    std::thread::scope(|s| {
        for thread in 0..threads {
            let (rig, fs) = (&rig, &fs);
            s.spawn(move || {
                for n in 0..each {
                    let (lsn, end) = rig.put(&n.to_le_bytes(), &value(thread, 50)).expect("room");
                    rig.log.sync_to(end).expect("no fault");
                    if n % 8 == 0 {
                        let clone = fs.crash_clone(&mut |_| Keep::No);
                        let recovered = scan_with(clone, 1 << 16, Mode::Recover).expect("no corruption");
                        assert!(recovered.end >= end);
                        let seen = replay(&recovered, lsn).expect("whole");
                        assert_eq!(seen.first().map(|r| r.0), Some(lsn));
                    }
                }
            });
        }
    });
    fs.set_hook(None);
    let (syncs, writes) = (syncs.load(Ordering::Relaxed) as u64, threads * each);
    assert!(syncs < writes, "{syncs} syncs for {writes} writes");
    rig.log.close(true).expect("no fault");
}

#[test]
fn a_sync_waits_for_every_earlier_record_and_never_calls_a_hole_durable() {
    let (rig, fs) = Rig::new(SMALL);
    let entries = [put(b"slow", b"1")];
    let record = RecordParts::new(&entries).expect("small");
    let synced = AtomicBool::new(false);
    std::thread::scope(|s| {
        let slow = rig.sequencer.begin(record.units());
        let waiter = s.spawn(|| {
            let (_, end) = rig.put(b"fast", b"2").expect("room");
            rig.log.sync_to(end).expect("no fault");
            synced.store(true, Ordering::SeqCst);
        });
        // The fast record is written; its sync has to wait for the slow one.
        while rig.sequencer.tail() < Lsn(slow.end().0 + record.units()) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!synced.load(Ordering::SeqCst), "durable before the record below it was written");
        rig.log.write(slow.lsn(), &record).expect("open");
        slow.commit();
        waiter.join().expect("no panic");
    });
    let recovered = scan_with(fs.crash_clone(&mut |_| Keep::No), SMALL, Mode::Recover).expect("whole");
    assert_eq!(replay(&recovered, Lsn::ZERO).expect("whole").len(), 2);
}

#[test]
fn marks_say_what_is_durable_and_an_idle_log_does_not_grow() {
    let (rig, fs) = Rig::new(SMALL);
    let (_, end) = rig.put(b"k", b"v").expect("room");
    rig.log.sync_to(end).expect("no fault");
    let after_mark = rig.sequencer.tail();
    assert_eq!(after_mark.0, end.0 + format::MARK_UNITS);
    for _ in 0..5 {
        rig.log.sync_to(rig.sequencer.tail()).expect("no fault");
    }
    assert_eq!(rig.sequencer.tail(), after_mark, "marks of nothing but marks");
    let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
    let session = &recovered.sessions[0];
    assert_eq!((session.marks, session.durable, session.end), (1, end, after_mark));
}

/// A mark may survive although what lies between it and the last sync does not: it must not claim
/// more than was durable. So for each page order the log opens, and durable data is there.
#[test]
fn a_mark_that_survives_alone_claims_nothing_that_is_lost() {
    let (rig, fs) = Rig::new(SMALL);
    let mut durable = Lsn::ZERO;
    for n in 0..40u64 {
        let (_, end) = rig.put(&n.to_le_bytes(), &value(n, 400)).expect("room");
        if n % 3 == 0 {
            rig.log.sync_to(end).expect("no fault");
            durable = end;
        }
        // Keep only the newest pages, the ones with the marks.
        for seed in 0..8 {
            let mut count = 0;
            let clone = fs.crash_clone(&mut |_| {
                count += 1;
                if (count + seed) % 3 == 0 { Keep::Whole } else { Keep::No }
            });
            let recovered = scan_with(clone, SMALL, Mode::Recover).expect("no corruption");
            assert!(recovered.end >= durable);
        }
    }
}

#[test]
fn damage_below_a_mark_of_a_crashed_log_is_corruption_and_above_it_a_torn_tail() {
    let (rig, fs) = Rig::new(SMALL);
    let (first, _) = rig.put(b"first", &value(1, 50)).expect("room");
    let (_, end) = rig.put(b"second", &value(2, 50)).expect("room");
    rig.log.sync_to(end).expect("no fault");
    let (third, _) = rig.put(b"third", &value(3, 50)).expect("room");
    let path = rig.log.shared.segment_path(1);
    let at = |lsn: Lsn| HEADER_PAGE as u64 + lsn.0 % 512 * 8;
    let damage = |fs: &MemFs, lsn: Lsn| {
        // Two bytes: one alone would be known for what it is.
        fs.damage(&path, at(lsn) + 20, 1).expect("in bounds");
        fs.damage(&path, at(lsn) + 33, 1).expect("in bounds");
    };
    for clone in [fs.process_crash_clone(), fs.crash_clone(&mut |_| Keep::Whole)] {
        damage(&clone, first);
        let seen = scan_with(clone.clone(), SMALL, Mode::Recover);
        assert!(
            matches!(&seen, Err(Error::Corruption(c)) if c.path == path && c.offset == Some(at(first))),
            "{seen:?}"
        );
        damage(&clone, first);
        damage(&clone, third);
        let recovered = scan_with(clone, SMALL, Mode::Recover).expect("a torn tail");
        assert_eq!(replay(&recovered, Lsn::ZERO).expect("whole").len(), 2);
        assert_eq!(recovered.torn.map(|t| (t.start, t.offset)), Some((third, at(third))));
    }
}

/// The close record is a mark, and of what is not synced a power loss may keep it alone.
#[test]
fn a_close_record_counts_only_what_is_durable() {
    let (rig, fs) = Rig::new(SMALL);
    let mut end = Lsn::ZERO;
    while end < Lsn(2 * 512 + 100) {
        end = rig.put(b"k", &value(1, 300)).expect("room").1;
    }
    let last = rig.log.shared.segment_path(2);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let (watched, taken) = (Arc::downgrade(&fs), lost.clone());
    fs.set_hook(Some(Box::new(move |_| {
        let Some(fs) = watched.upgrade() else { return };
        taken.lock().push(fs.crash_clone(&mut |at| match at.change {
            crate::env::Unsynced::Page { .. } if at.path != last => Keep::No,
            _ => Keep::Whole,
        }));
    })));
    rig.log.close(true).expect("no fault");
    fs.set_hook(None);
    let (mut clean, mut cut) = (0, 0);
    for fs in std::mem::take(&mut *lost.lock()) {
        let recovered = scan_with(fs, SMALL, Mode::Recover).expect("it claims nothing that is lost");
        *(if recovered.clean { &mut clean } else { &mut cut }) += 1;
    }
    assert!(clean > 0 && cut > 0, "{clean} clean, {cut} cut");
}

/// A close removes the segment ahead of the tail, and the floor had been written into its header alone.
#[test]
fn a_close_leaves_the_floor_where_it_is_found() {
    let (rig, fs) = Rig::new(SMALL);
    let mut last = (Lsn::ZERO, Lsn::ZERO);
    for n in 0..40u64 {
        last = rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
    }
    rig.log.sync_to(last.1).expect("no fault");
    // A segment prepared later would have the new floor in its header.
    eventually("the next segment is prepared, and the ballast made", || {
        let state = rig.log.shared.state.lock();
        !state.prepared.is_empty() && state.ballast == Ballast::Kept
    });
    rig.log.recycle_below(last.0).expect("no fault");
    let lost = Arc::new(Mutex::new(Vec::new()));
    // Names survive, as far as they have come; of pages only what is synced.
    let names_alone = |fs: &MemFs| {
        fs.crash_clone(&mut |at| match at.change {
            crate::env::Unsynced::Page { .. } => Keep::No,
            _ => Keep::Whole,
        })
    };
    let (watched, taken) = (Arc::downgrade(&fs), lost.clone());
    fs.set_hook(Some(Box::new(move |_| {
        if let Some(fs) = watched.upgrade() {
            taken.lock().push(names_alone(&fs));
        }
    })));
    rig.log.close(true).expect("no fault");
    fs.set_hook(None);
    lost.lock().push(names_alone(&fs));
    for fs in std::mem::take(&mut *lost.lock()) {
        let recovered = scan_with(fs, SMALL, Mode::Recover).expect("the floor is there");
        let seen = replay(&recovered, last.0).expect("whole");
        assert_eq!(seen.first().map(|record| record.0), Some(last.0));
    }
}

#[test]
fn a_failed_sync_is_final() {
    let memory = MemFs::new();
    let faulty = FaultyFs::new(memory.clone());
    let (rig, _) = Rig::open(faulty.clone(), SMALL).expect("no fault yet");
    let (_, end) = rig.put(b"k", b"1").expect("room");
    rig.log.sync_to(end).expect("no fault yet");
    let (_, later) = rig.put(b"k", b"2").expect("room");
    faulty.fail_when(|call| {
        (call.operation == Operation::SyncRegion).then_some(Fault::Error(std::io::ErrorKind::Other))
    });
    assert!(matches!(rig.log.sync_to(later), Err(Error::Poisoned { .. })));
    faulty.clear();
    assert!(rig.log.poisoned().is_some_and(|why| why.contains("sync")));
    assert!(matches!(rig.log.sync_to(later), Err(Error::Poisoned { .. })));
    assert!(matches!(rig.log.sync_to(end), Err(Error::Poisoned { .. })));
    assert!(matches!(rig.log.ensure_room(3), Err(Error::Poisoned { .. })));
    assert!(matches!(rig.put(b"k", b"3"), Err(Error::Poisoned { .. })));
    assert!(matches!(rig.log.recycle_below(end), Err(Error::Poisoned { .. })));
    assert!(rig.log.close(true).is_err());
    // Opened again, the log has what was durable before.
    let recovered = scan_with(memory.crash_clone(&mut |_| Keep::No), SMALL, Mode::Recover).expect("whole");
    assert!(recovered.end >= end && !recovered.clean);
}

#[test]
fn everybody_who_waits_for_a_sync_that_fails_is_told() {
    let memory = MemFs::new();
    let faulty = FaultyFs::new(memory);
    let (rig, _) = Rig::open(faulty.clone(), 1 << 16).expect("no fault yet");
    faulty.fail_when(|call| {
        (call.operation == Operation::SyncRegion).then(|| {
            std::thread::sleep(Duration::from_millis(20));
            Fault::Error(std::io::ErrorKind::Other)
        })
    });
    std::thread::scope(|s| {
        for n in 0..6u64 {
            let rig = &rig;
            s.spawn(move || {
                if let Ok((_, end)) = rig.put(&n.to_le_bytes(), b"v") {
                    assert!(rig.log.sync_to(end).is_err(), "acknowledged by a failed sync");
                }
            });
        }
    });
}

#[test]
fn a_close_ends_the_session_once_and_lets_nothing_in() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    rig.log.close(true).expect("no fault");
    rig.log.close(true).expect("a second close does nothing");
    assert!(matches!(rig.log.ensure_room(1), Err(Error::Closed { .. })));
    assert!(matches!(rig.put(b"k", b"v"), Err(Error::Closed { .. })));
    drop(rig);
    let files = fs.files();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(fs.contents(&files[0]).expect("there").len(), 2 * 4096, "cut to its used pages");
    // The close is durable.
    let recovered = scan_with(fs.crash_clone(&mut |_| Keep::No), SMALL, Mode::Recover).expect("whole");
    assert!(recovered.clean);
    assert_eq!(recovered.torn, None);
}

#[test]
fn an_unclean_end_is_seen_as_one() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    rig.log.close(false).expect("nothing to do");
    drop(rig);
    let recovered = scan_with(fs.clone(), SMALL, Mode::Recover).expect("whole");
    assert!(!recovered.clean);
    assert_eq!(replay(&recovered, Lsn::ZERO).expect("whole").len(), 1);
    let empty = scan_with(MemFs::new(), SMALL, Mode::Recover).expect("no log");
    assert_eq!((empty.clean, empty.end, empty.next_segment), (true, Lsn::ZERO, 1));
}

/// A thread committed an LSN that it never wrote (which is a bug elsewhere): the log must not
/// call it durable.
#[test]
fn a_committed_hole_poisons_the_log_instead_of_becoming_durable() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    rig.sequencer.begin(5).commit();
    let (_, end) = rig.put(b"k", b"w").expect("room");
    assert!(rig.log.sync_to(end).is_err());
    assert!(rig.log.poisoned().is_some_and(|why| why.contains("hole")));
    let recovered =
        scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("no mark, no corruption");
    assert_eq!(recovered.sessions[0].marks, 0);
}
