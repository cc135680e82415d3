//! One session after the other: what is sealed stays sealed, what is live stays readable.

use super::*;
use crate::env::{Keep, MemFs};

const SMALL: usize = 4096;

fn lsns(recovered: &Recovered) -> Vec<Lsn> {
    replay(recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect()
}

#[test]
fn sessions_that_were_closed_cleanly_are_all_replayed_in_order() {
    let fs = MemFs::new();
    let mut written = vec![];
    for session in 0..5u64 {
        let (rig, recovered) = Rig::open(fs.clone(), SMALL).expect("no fault");
        assert!(recovered.clean);
        assert_eq!(lsns(&recovered), written);
        for n in 0..session * 9 {
            written.push(rig.put(&n.to_le_bytes(), &value(n, 200)).expect("room").0);
        }
        rig.log.close(true).expect("no fault");
    }
    let recovered = scan_with(fs, SMALL, Mode::Recover).expect("whole");
    assert_eq!((lsns(&recovered), recovered.sessions.len()), (written, 5));
}

#[test]
fn segments_of_earlier_sessions_are_recycled_like_any() {
    let fs = MemFs::new();
    let mut written = vec![];
    for _ in 0..3 {
        let (rig, _) = Rig::open(fs.clone(), SMALL).expect("no fault");
        for n in 0..40u64 {
            let bytes = if n == 20 { 9000 } else { 250 };
            written.push(rig.put(&n.to_le_bytes(), &value(n, bytes)).expect("room").0);
        }
        rig.log.close(true).expect("no fault");
    }
    let (rig, recovered) = Rig::open(fs.clone(), SMALL).expect("no fault");
    assert_eq!(lsns(&recovered), written);
    let live = rig.log.live_bytes();
    for bound in written.iter().step_by(11) {
        rig.log.recycle_below(*bound).expect("no fault");
        let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
        let seen = lsns(&recovered);
        assert!(seen.ends_with(&written[written.partition_point(|l| l < bound)..]));
        assert!(seen.len() < written.len() || *bound == written[0] || recovered.floor < *bound);
    }
    assert!(rig.log.live_bytes() < live / 3);
    rig.log.close(true).expect("no fault");
}

/// Power goes; the first hole cuts the log; valid records lie behind the cut. The next session
/// states the cut, and after any number of further crashes they are still dead.
#[test]
fn records_behind_a_cut_never_come_back() {
    let (rig, fs) = Rig::new(SMALL);
    let mut written = vec![];
    for n in 0..30u64 {
        written.push(rig.put(&n.to_le_bytes(), &value(n, 500)).expect("room").0);
    }
    // All pages survive but the one with the tenth record.
    let torn = written[10];
    let page = (HEADER_PAGE as u64 + torn.0 % 512 * 8) / 4096;
    let path = rig.log.shared.segment_path(torn.0 / 512);
    let wreck = fs.crash_clone(&mut |at| match at.change {
        crate::env::Unsynced::Page { index, .. } if at.path == path && index == page => Keep::No,
        _ => Keep::Whole,
    });
    let recovered = scan_with(wreck.clone(), SMALL, Mode::Recover).expect("a torn tail");
    let survivors = lsns(&recovered);
    assert!(survivors.len() <= 10 && written.starts_with(&survivors));
    assert!(recovered.torn.is_some());
    let cut = recovered.end;
    let mut fs = wreck;
    for round in 0..4u64 {
        let (rig, _) = Rig::open(fs.clone(), SMALL).expect("no fault");
        // Not recycled: the old segments with the dead records stay.
        let (lsn, end) = rig.put(b"new", &round.to_le_bytes()).expect("room");
        rig.log.sync_to(end).expect("no fault");
        fs = if round % 2 == 0 { fs.crash_clone(&mut |_| Keep::Whole) } else { fs.process_crash_clone() };
        let recovered = scan_with(fs.clone(), SMALL, Mode::Recover).expect("sealed");
        let seen = lsns(&recovered);
        assert!(seen.contains(&lsn));
        let first = recovered.sessions[0].end;
        assert_eq!(first, cut);
        assert!(seen.iter().all(|l| *l < cut || !written.contains(l)), "a dead record came back");
    }
}

#[test]
fn a_new_session_is_sealed_durably_before_it_accepts_anything() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..30u64 {
        rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
    }
    let wreck = fs.process_crash_clone();
    let before = scan_with(wreck.clone(), SMALL, Mode::Recover).expect("whole");
    let (rig, _) = Rig::open(wreck.clone(), SMALL).expect("no fault");
    // Nothing was written or synced in the new session; the power goes and takes all it can.
    let lost = wreck.crash_clone(&mut |_| Keep::No);
    let recovered = scan_with(lost, SMALL, Mode::Recover).expect("no corruption");
    assert_eq!(recovered.sessions.len(), 2);
    assert_eq!(recovered.sessions[1].first, rig.sequencer.tail());
    assert!(recovered.end >= before.end);
}

#[test]
fn a_session_starts_only_where_no_file_is_and_the_tail_fits() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    rig.log.close(true).expect("no fault");
    let recovered = scan_with(fs.clone(), SMALL, Mode::Recover).expect("whole");
    let taken = recovered.segments[0].index;
    let start = |first: u64, tail: u64, segment_bytes: usize| {
        let sequencer = Sequencer::new(Lsn(tail));
        let options = options(segment_bytes, recovered.prior());
        Log::start(&Env::with_fs(fs.clone()), dir(), options, sequencer, first, Box::new(Told(|_| {}))).err()
    };
    assert!(matches!(start(taken, taken * 512, SMALL), Some(Error::InvalidArgument(_))));
    assert!(matches!(start(taken + 1, taken * 512, SMALL), Some(Error::InvalidArgument(_))));
    assert!(matches!(start(taken + 1, taken * 512, 5000), Some(Error::InvalidArgument(_))));
    assert!(scan_with(fs.clone(), SMALL, Mode::Recover).expect("as before").clean);
    assert_eq!(start(taken + 1, (taken + 1) * 512, SMALL).map(|e| e.to_string()), None);
}

/// After a power loss the log may end before what tables hold; LSNs go on above both.
#[test]
fn the_next_session_starts_above_everything_that_is_known() {
    let (rig, fs) = Rig::new(SMALL);
    let mut newest = Lsn::ZERO;
    for n in 0..50u64 {
        newest = rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room").0;
    }
    let wreck = fs.crash_clone(&mut |_| Keep::No);
    let recovered = scan_with(wreck.clone(), SMALL, Mode::Recover).expect("a short log");
    assert!(recovered.next_segment * 512 <= newest.0, "the log forgot segments that were never synced");
    let first = recovered.first_segment_after(newest);
    assert!(first * 512 > newest.0);
    let rig = Rig::start(wreck.clone(), SMALL, &recovered, first, |_| {}).expect("no fault");
    let (lsn, _) = rig.put(b"k", b"v").expect("room");
    assert!(lsn > newest);
    rig.log.close(true).expect("no fault");
    let recovered = scan_with(wreck, SMALL, Mode::Recover).expect("a gap between sessions is none");
    assert!(lsns(&recovered).contains(&lsn));
}

#[test]
fn scanning_and_replaying_write_nothing() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..30u64 {
        rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
    }
    let wreck = fs.process_crash_clone();
    wreck.set_hook(Some(Box::new(|call| assert!(!call.operation.writes(), "{call:?}"))));
    let recovered = scan_with(wreck.clone(), SMALL, Mode::Inspect).expect("whole");
    assert_eq!(lsns(&recovered).len(), 30);
    wreck.set_hook(None);
}

#[test]
fn leftovers_of_a_crash_during_opening_are_cleared_away() {
    let (rig, fs) = Rig::new(SMALL);
    rig.put(b"k", b"v").expect("room");
    rig.log.close(true).expect("no fault");
    drop(rig);
    for name in ["0000000002.tmp", "0000000009.tmp", "ballast.tmp"] {
        fs.set_contents(dir().join(name), &[7; 5000]).expect("set");
    }
    fs.set_contents(dir().join("README"), b"not ours").expect("set");
    let (rig, _) = Rig::open(fs.clone(), SMALL).expect("no fault");
    rig.put(b"k", b"v").expect("room");
    rig.log.close(true).expect("no fault");
    drop(rig);
    let names: Vec<_> = fs.files().iter().filter_map(|f| Some(f.file_name()?.to_str()?.to_owned())).collect();
    assert_eq!(names, ["0000000001.log", "0000000002.log", "README"]);
}

/// Story: the process dies between the store of a floor and its sync; the next session believes
/// the floor and reuses a file below it; the power goes and takes the floor with it.
#[test]
fn a_floor_that_was_not_yet_durable_is_repeated_before_anything_below_it_is_touched() {
    let (rig, fs) = Rig::new(SMALL);
    let mut last = (Lsn::ZERO, Lsn::ZERO);
    for n in 0..40u64 {
        last = rig.put(&n.to_le_bytes(), &value(n, 300)).expect("room");
    }
    rig.log.sync_to(last.1).expect("no fault");
    let died = Arc::new(Mutex::new(vec![]));
    let (source, clones) = (Arc::downgrade(&fs), died.clone());
    fs.set_hook(Some(Box::new(move |_| {
        if let Some(fs) = source.upgrade() {
            clones.lock().push(fs.process_crash_clone());
        }
    })));
    rig.log.recycle_below(last.0).expect("no fault");
    fs.set_hook(None);
    assert!(!died.lock().is_empty());
    for fs in died.lock().drain(..) {
        let lost = Arc::new(Mutex::new(vec![]));
        let (source, clones) = (Arc::downgrade(&fs), lost.clone());
        fs.set_hook(Some(Box::new(move |call| {
            if let Some(fs) = source.upgrade() {
                clones.lock().push(fs.crash_clone(&mut |_| Keep::No));
                clones.lock().push(fs.crash_clone_random(call.number, 0.5));
            }
        })));
        drop(Rig::open(fs.clone(), SMALL).expect("no fault"));
        fs.set_hook(None);
        for lost in lost.lock().drain(..) {
            let recovered = scan_with(lost, SMALL, Mode::Recover).expect("no corruption");
            assert!(lsns(&recovered).contains(&last.0));
        }
    }
}

/// What the new header says of the session before is believed: so the segments of that session must
/// be found wherever the new header is.
#[test]
fn a_session_is_not_sealed_before_the_names_of_its_segments_are_durable() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..40u64 {
        rig.put(&n.to_le_bytes(), &value(n, 250)).expect("room");
    }
    // The process dies; nothing was ever synced, so the segments' names are not durable.
    let dead = fs.process_crash_clone();
    let recovered = scan_with(dead.clone(), SMALL, Mode::Recover).expect("whole");
    let first = recovered.next_segment;
    let new = dir().join(format::segment_name(first));
    let lost = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let (watched, taken, kept) = (Arc::downgrade(&dead), lost.clone(), new.clone());
    dead.set_hook(Some(Box::new(move |_| {
        let Some(fs) = watched.upgrade() else { return };
        // The power goes and spares, of what is not synced, the new segment alone.
        let keep = &mut |at: crate::env::PageAt<'_>| if at.path == kept { Keep::Whole } else { Keep::No };
        taken.lock().push(fs.crash_clone(keep));
    })));
    let session = Rig::start(dead.clone(), SMALL, &recovered, first, |_| {}).expect("no fault");
    dead.set_hook(None);
    drop(session);
    let lost = std::mem::take(&mut *lost.lock());
    assert!(lost.iter().any(|fs| fs.files().contains(&new)), "the new segment survives some of them");
    for fs in lost {
        scan_with(fs, SMALL, Mode::Recover).expect("no segment is missed");
    }
}
