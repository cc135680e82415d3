//! A full device: said clearly, to those who hold nothing; nothing is lost; writes resume.

use super::*;
use crate::env::MemFs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};

const SMALL: usize = 1 << 16;
const FILE: u64 = SMALL as u64 + 4096;

fn fill(rig: &Rig, bytes: usize) -> (Vec<Lsn>, Error) {
    let mut written = vec![];
    loop {
        match rig.put(&(written.len() as u64).to_le_bytes(), &value(1, bytes)) {
            Ok((lsn, _)) => written.push(lsn),
            Err(why) => return (written, why),
        }
        assert!(written.len() < 100_000, "the device never fills");
    }
}

fn recovered(fs: &Arc<MemFs>) -> Vec<Lsn> {
    let recovered = scan_with(fs.process_crash_clone(), SMALL, Mode::Recover).expect("whole");
    replay(&recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect()
}

#[test]
fn a_full_device_stops_writes_clearly_and_they_resume_by_themselves() {
    for bytes in [50, 700, 20_000] {
        let (rig, fs) = Rig::new(SMALL);
        fs.set_capacity(Some(8 * FILE));
        let (mut written, why) = fill(&rig, bytes);
        assert!(why.is_no_space(), "{why}");
        assert!(rig.put(b"again", &value(1, bytes)).is_err_and(|e| e.is_no_space()), "as long as it is full");
        assert_eq!(rig.log.poisoned(), None);
        assert_eq!(recovered(&fs), written, "nothing is lost");
        assert!(rig.sequencer.tail().0 * 8 > 5 * SMALL as u64, "the device was used");
        // What is written can still be made durable, and a mark still fits.
        rig.log.sync_to(rig.sequencer.tail()).expect("no fault");
        fs.set_capacity(Some(16 * FILE));
        written.push(rig.put(b"resumed", &value(2, bytes)).expect("there is space now").0);
        assert_eq!(recovered(&fs), written);
        rig.log.close(true).expect("no fault");
    }
}

#[test]
fn recycling_makes_room_on_a_full_device() {
    let (rig, fs) = Rig::new(SMALL);
    fs.set_capacity(Some(6 * FILE));
    for _ in 0..5 {
        let (written, why) = fill(&rig, 500);
        assert!(why.is_no_space() && !written.is_empty(), "{why} after {}", written.len());
        rig.log.recycle_below(rig.sequencer.tail()).expect("no fault");
    }
    rig.log.close(true).expect("no fault");
}

#[test]
fn the_ballast_is_given_up_on_a_full_device_and_made_again_later() {
    let (rig, fs) = Rig::new(SMALL);
    let ballast = PathBuf::from("/store/log").join(opener::BALLAST);
    for n in 0..200u64 {
        rig.put(&n.to_le_bytes(), &value(n, 1000)).expect("room");
    }
    eventually("a ballast is kept once the log is in use", || fs.files().contains(&ballast));
    fs.set_capacity(Some(fs.used_bytes()));
    let (_, why) = fill(&rig, 500);
    assert!(why.is_no_space());
    assert!(!fs.files().contains(&ballast), "its space is for flushes");
    let free = fs.free_bytes(Path::new("/store")).expect("known").expect("known");
    assert!(free >= FILE, "{free} bytes are free for a flush");
    fs.set_capacity(None);
    for n in 0..200u64 {
        rig.put(&n.to_le_bytes(), &value(n, 1000)).expect("room");
    }
    eventually("a ballast is made again", || fs.files().contains(&ballast));
    rig.log.close(true).expect("no fault");
    assert!(!fs.files().contains(&ballast));
}

#[test]
fn stock_is_given_back_when_a_flush_needs_it() {
    let (rig, fs) = Rig::new(SMALL);
    for n in 0..600u64 {
        rig.put(&n.to_le_bytes(), &value(n, 1000)).expect("room");
    }
    rig.log.recycle_below(rig.sequencer.tail()).expect("no fault");
    let before = fs.used_bytes();
    let freed = rig.log.give_up_stock();
    assert!(freed >= 2 * FILE, "{freed}");
    // The opener may be making a segment of its own meanwhile.
    assert!(fs.used_bytes() <= before - freed + 2 * FILE);
    rig.put(b"k", b"v").expect("room");
    rig.log.close(true).expect("no fault");
}

/// An owner with so much to flush.
struct Reserves(Arc<AtomicU64>);

impl Owner for Reserves {
    fn on_border(&self, _border: Lsn) {}

    fn reserved_bytes(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A flush gets the log's spares if it finds the device full. A log that wrote them all before left it nothing, and left
/// the next open less than the segment that it begins with.
#[test]
fn a_full_device_keeps_the_spares_that_a_flush_needs() {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("/store")).expect("makes");
    let reserved = Arc::new(AtomicU64::new(0));
    let nothing = scan_with(fs.clone(), SMALL, Mode::Recover).expect("no log");
    let rig =
        Rig::start_for(Box::new(Reserves(reserved.clone())), fs.clone(), SMALL, &nothing, 1).expect("starts");
    for n in 0..1000u64 {
        rig.put(&n.to_le_bytes(), &value(n, 1000)).expect("room");
    }
    rig.log.recycle_below(rig.sequencer.tail()).expect("no fault");
    fs.set_capacity(Some(fs.used_bytes()));
    reserved.store(3 * FILE, Ordering::SeqCst);
    let (written, why) = fill(&rig, 500);
    assert!(why.is_no_space() && !written.is_empty(), "{why} after {}", written.len());
    rig.log.give_up_stock();
    let free = fs.free_bytes(Path::new("/store")).expect("known").expect("known");
    assert!(free >= 3 * FILE, "{free} bytes are left for the flush");
    reserved.store(0, Ordering::SeqCst);
    rig.put(b"flushed", b"1").expect("it goes on in what was reserved");
    rig.log.close(true).expect("no fault");
}

/// A batch that does not fit must not eat the space that the flush needs.
#[test]
fn a_record_that_cannot_fit_leaves_the_device_as_it_was() {
    let (rig, fs) = Rig::new(SMALL);
    fs.set_capacity(Some(12 * FILE));
    rig.put(b"small", b"1").expect("room");
    let big = value(1, 20 * SMALL);
    for _ in 0..3 {
        assert!(rig.put(b"big", &big).is_err_and(|e| e.is_no_space()));
        assert!(fs.used_bytes() <= 6 * FILE, "{} bytes used", fs.used_bytes());
    }
    rig.put(b"small", b"2").expect("small ones go on");
    rig.put(b"fits", &value(1, 3 * SMALL)).expect("and what fits");
    fs.set_capacity(None);
    rig.put(b"big", &big).expect("there is space now");
    rig.log.close(true).expect("no fault");
}

/// Writers that passed `ensure_room` together overshoot: their LSNs lie beyond the open segments,
/// they hold locks, and the device is full. The ballast is for them; beyond it they wait until
/// there is space, and nobody is told anything wrong.
#[test]
fn writers_in_flight_beyond_a_full_device_get_the_ballast_and_then_wait() {
    let (rig, fs) = Rig::new(SMALL);
    let ballast = PathBuf::from("/store/log").join(opener::BALLAST);
    for n in 0..200u64 {
        rig.put(&n.to_le_bytes(), &value(n, 1000)).expect("room");
    }
    eventually("a ballast is kept", || fs.files().contains(&ballast));
    eventually("the opener rests", || {
        let state = rig.log.shared.state.lock();
        state.open_end >= rig.log.shared.wanted_end() && !state.prepared.is_empty()
    });
    fs.set_capacity(Some(fs.used_bytes()));
    // Two segments are open or prepared beyond the tail's; draw past them, past the ballast, too.
    let big = value(1, 6 * SMALL);
    let entries = [put(b"overshoot", &big)];
    let record = RecordParts::new(&entries).expect("small");
    let done = AtomicBool::new(false);
    let mut lsn = Lsn::ZERO;
    std::thread::scope(|s| {
        let in_flight = rig.sequencer.begin(record.units());
        lsn = in_flight.lsn();
        let (rig, done, record) = (&rig, &done, &record);
        let in_flight = Mutex::new(Some(in_flight));
        s.spawn(move || {
            let in_flight = in_flight.lock().take().expect("once");
            rig.log.write(in_flight.lsn(), record).expect("in the end there is space");
            in_flight.commit();
            done.store(true, Ordering::SeqCst);
        });
        eventually("the ballast becomes a segment", || !fs.files().contains(&ballast));
        assert!(rig.log.ensure_room(1).is_err_and(|e| e.is_no_space()), "new writers are told");
        assert!(!done.load(Ordering::SeqCst));
        fs.set_capacity(None);
        // Whoever asks next makes the opener try again.
        drop(rig.log.ensure_room(1).expect("there is space now"));
        eventually("the writer goes on", || done.load(Ordering::SeqCst));
    });
    assert!(recovered(&fs).contains(&lsn));
    rig.log.close(true).expect("no fault");
}

#[test]
fn many_threads_on_a_full_device_are_all_told_and_none_is_stuck() {
    let (rig, fs) = Rig::new(SMALL);
    fs.set_capacity(Some(10 * FILE));
    let mut written: Vec<Lsn> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8u64)
            .map(|thread| {
                let rig = &rig;
                s.spawn(move || {
                    let mut mine = vec![];
                    loop {
                        let bytes = if thread == 0 { 9000 } else { 100 + thread as usize };
                        match rig.put(&thread.to_le_bytes(), &value(thread, bytes)) {
                            Ok((lsn, _)) => mine.push(lsn),
                            Err(why) => {
                                assert!(why.is_no_space(), "{why}");
                                return mine;
                            }
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
    });
    written.sort_unstable();
    assert_eq!(recovered(&fs), written);
    fs.set_capacity(None);
    rig.put(b"resumed", b"1").expect("there is space now");
    rig.log.close(true).expect("no fault");
}
