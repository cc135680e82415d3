//! Recycling: nothing needed goes, whatever goes is reused, stale bytes are never read as records.

use super::crashes::pause_at;
use super::*;
use crate::env::{Keep, MemFs};

const SMALL: usize = 4096;

#[test]
fn a_log_that_is_flushed_as_it_grows_stays_small_and_reuses_its_files() {
    let (rig, fs) = Rig::new(SMALL);
    let mut most = 0;
    for n in 0..4000u64 {
        let (lsn, end) = rig.put(&n.to_le_bytes(), &value(n, (n % 300) as usize)).expect("room");
        if n % 50 == 0 {
            rig.log.recycle_below(lsn).expect("no fault");
            assert!(rig.log.floor() <= end, "the floor is at most a record further");
            assert!(rig.log.live_bytes() <= 8 * 8192, "{} bytes live", rig.log.live_bytes());
            most = most.max(fs.files().len());
        }
    }
    assert!(most <= 18, "{most} files");
    assert!(rig.log.mapped_bytes() <= 18 * 8192);
    let newest = fs.files().iter().filter_map(|f| format::parse_segment_name(f.file_name()?.to_str()?)).max();
    assert!(newest.is_some_and(|n| n > 100), "many segments out of few files");
    rig.log.close(true).expect("no fault");
    assert!(scan_with(fs, SMALL, Mode::Recover).expect("whole").clean);
}

#[test]
fn a_writer_that_is_still_copying_keeps_its_segment() {
    for point in ["log::header_stored", "log::body_copied"] {
        let (rig, fs) = Rig::new(SMALL);
        rig.put(b"before", &value(0, 3000)).expect("room");
        let (paused, at_pause) = std::sync::mpsc::channel();
        let (resume, resumed) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|s| {
            let rig = &rig;
            let writer = s.spawn(move || {
                pause_at(point, move || {
                    paused.send(()).expect("the test waits");
                    resumed.recv().expect("the test sends");
                });
                rig.put(b"slow", &value(1, 900)).expect("room")
            });
            at_pause.recv().expect("the writer pauses");
            for n in 0..40u64 {
                rig.put(&n.to_le_bytes(), &value(n, 500)).expect("room");
            }
            rig.log.recycle_below(Lsn::MAX).expect("no fault");
            let floor = rig.log.floor();
            resume.send(()).expect("the writer waits");
            let (lsn, _) = writer.join().expect("no panic");
            assert!(floor <= lsn, "the floor {floor} rose above {lsn}, which was being written");
            let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
            let seen = replay(&recovered, Lsn::ZERO).expect("whole");
            assert!(seen.iter().any(|r| r.0 == lsn && r.1[0].3 == value(1, 900)), "its record is whole");
            rig.log.recycle_below(Lsn::MAX).expect("no fault");
            assert!(rig.log.floor() > lsn, "once it is done its segment goes");
        });
    }
}

#[test]
fn the_floor_is_always_the_start_of_a_record() {
    let (rig, fs) = Rig::new(SMALL);
    let mut starts = vec![];
    for n in 0..120u64 {
        let bytes = if n % 17 == 0 { 9000 } else { (n * 97 % 1500) as usize };
        let (lsn, end) = rig.put(&n.to_le_bytes(), &value(n, bytes)).expect("room");
        starts.push(lsn);
        if n % 5 == 0 {
            let wanted = starts[starts.len() - 1 - (n % 4).min(starts.len() as u64 - 1) as usize];
            rig.log.recycle_below(wanted).expect("no fault");
            let floor = rig.log.floor();
            assert!(starts.contains(&floor) || floor == end, "the floor {floor} starts no record");
            let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
            let seen: Vec<_> = replay(&recovered, wanted).expect("whole").into_iter().map(|r| r.0).collect();
            assert_eq!(seen, starts.iter().copied().filter(|l| *l >= wanted).collect::<Vec<_>>());
        }
    }
}

/// Reused segments are full of records that were valid once, at other LSNs or in other sessions.
/// A power loss may take any name that was not synced. A floor that outlives the name of the segment that it points into
/// makes what is left a log with a hole that nobody made.
#[test]
fn a_floor_points_only_into_segments_whose_names_are_durable() {
    let (rig, fs) = Rig::new(SMALL);
    for round in 0..8u64 {
        let lsns: Vec<Lsn> = (0..20).map(|n| rig.put(&[n], &value(round, 700)).expect("room").0).collect();
        rig.log.recycle_below(lsns[12]).expect("no fault");
        assert!(rig.log.floor() > lsns[0], "something goes");
        for victim in fs.files() {
            let lost = fs.crash_clone(&mut |at| if at.path == victim { Keep::No } else { Keep::Whole });
            let found = scan_with(lost, SMALL, Mode::Recover).map(drop);
            assert!(found.is_ok(), "round {round}, without {}: {found:?}", victim.display());
        }
    }
    rig.log.close(true).expect("no fault");
}

#[test]
fn stale_records_in_reused_segments_are_never_read() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..100u64 {
        let (lsn, _) = rig.put(b"stale", &value(n, 100)).expect("room");
        rig.log.recycle_below(lsn).expect("no fault");
    }
    let (first, _) = rig.put(b"fresh", b"1").expect("room");
    for clone in [fs.process_crash_clone(), fs.crash_clone(&mut |_| Keep::Whole)] {
        let recovered = scan_with(clone.clone(), SMALL, Mode::Recover).expect("whole");
        let seen = replay(&recovered, first).expect("whole");
        assert_eq!(seen.len(), 1);
        assert!(replay(&recovered, Lsn::ZERO).expect("whole").iter().all(|r| r.0 <= first));
        // And in the next session, which reuses the files of this one.
        let (rig, _) = Rig::open(clone.clone(), SMALL).expect("no fault");
        rig.log.recycle_below(rig.sequencer.tail()).expect("no fault");
        let mut lsns = vec![];
        for n in 0..30u64 {
            lsns.push(rig.put(b"new", &value(n, 200)).expect("room").0);
        }
        let recovered = scan_with(clone.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
        let seen: Vec<_> = replay(&recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect();
        assert_eq!(seen, lsns);
    }
}

#[test]
fn nothing_at_or_above_the_bound_is_ever_recycled() {
    let (rig, fs) = Rig::new(SMALL);
    let mut lsns = vec![];
    for n in 0..200u64 {
        lsns.push(rig.put(&n.to_le_bytes(), &value(n, 200)).expect("room").0);
    }
    for (i, bound) in lsns.iter().enumerate().step_by(7) {
        rig.log.recycle_below(*bound).expect("no fault");
        let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
        let seen: Vec<_> = replay(&recovered, *bound).expect("whole").into_iter().map(|r| r.0).collect();
        assert_eq!(seen, lsns[i..]);
    }
    rig.log.recycle_below(Lsn::ZERO).expect("going back does nothing");
    rig.log.recycle_below(Lsn::MAX).expect("going beyond the end is cut");
    let (lsn, _) = rig.put(b"after", b"1").expect("room");
    let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
    assert_eq!(replay(&recovered, lsn).expect("whole").len(), 1);
}

#[test]
fn writers_syncs_and_recycling_at_once_lose_nothing() {
    let (rig, fs) = Rig::new(SMALL);
    let acknowledged = Mutex::new(Lsn::ZERO);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let (rig, acknowledged) = (&rig, &acknowledged);
                s.spawn(move || {
                    for n in 0..600u64 {
                        let (_, end) =
                            rig.put(&n.to_le_bytes(), &value(thread, (n % 400) as usize)).expect("room");
                        if n % 20 == 0 {
                            rig.log.sync_to(end).expect("no fault");
                            let mut last = acknowledged.lock();
                            *last = end.max(*last);
                        }
                    }
                })
            })
            .collect();
        while writers.iter().any(|w| !w.is_finished()) {
            let bound = Lsn(rig.sequencer.completed().0.saturating_sub(2000));
            rig.log.recycle_below(bound).expect("no fault");
            let promised = *acknowledged.lock();
            let clone = fs.crash_clone_random(bound.0, 0.5);
            let recovered = scan_with(clone, SMALL, Mode::Recover).expect("no corruption");
            assert!(recovered.end >= promised);
        }
    });
    rig.log.close(true).expect("no fault");
    assert!(scan_with(fs, SMALL, Mode::Recover).expect("whole").clean);
}

#[test]
fn an_empty_store_takes_little_room() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    // The opener has nothing left to do once two segments are open.
    while rig.log.shared.table.count() < 2 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(fs.files().len(), 2, "{:?}", fs.files());
    let _: &MemFs = &fs;
}
