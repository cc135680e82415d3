//! What a crash leaves, at every call and with any subset of pages: after a crash of the process
//! every whole record, after a power loss a prefix that has all that was durable; and nothing
//! from behind an earlier cut ever comes back.

use super::*;
use crate::dice::Dice;
use crate::env::{Call, MemFs};
use crate::sync::failpoint;
use std::cell::RefCell;
use std::sync::OnceLock;

const SMALL: usize = 4096;

/// What a test knows about its log.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Records, in order of LSN: (LSN, end, number).
    written: Vec<(Lsn, Lsn, u64)>,
    /// Everything below has been reported durable.
    durable: Lsn,
    /// Everything below is flushed: it need not come back.
    flushed: Lsn,
}

/// A crashed file system, and what was known when it crashed.
struct Wreck {
    fs: Arc<MemFs>,
    known: Model,
    power_loss: bool,
}

/// Compares what is recovered with what was written. `all` has what was written after the crash
/// was taken, too. Returns the model that the next session goes on with.
fn check(recovered: &Recovered, wreck: &Wreck, all: &Model) -> Model {
    let known = &wreck.known;
    let seen: Vec<_> = replay(recovered, known.flushed)
        .expect("what was scanned can be replayed")
        .into_iter()
        .map(|(lsn, entries)| (lsn, u64::from_le_bytes(entries[0].2[..].try_into().expect("8 bytes"))))
        .collect();
    let needed = |r: &&(Lsn, Lsn, u64)| r.0 >= known.flushed;
    let wanted: Vec<_> = all.written.iter().filter(needed).map(|r| (r.0, r.2)).collect();
    assert_eq!(seen, wanted[..seen.len()], "the survivors are a prefix: {recovered:?}");
    let bound = if wreck.power_loss { known.durable } else { Lsn::MAX };
    let kept = known.written.iter().filter(needed).filter(|r| r.1 <= bound).count();
    assert!(seen.len() >= kept, "{} survive of {kept} that were promised: {recovered:?}", seen.len());
    assert!(known.written.iter().filter(needed).all(|r| r.0 >= recovered.floor), "the floor is too high");
    let mut next = all.clone();
    next.written.retain(|r| r.0 < known.flushed || seen.last().is_some_and(|last| r.0 <= last.0));
    next.flushed = known.flushed;
    next.durable = if wreck.power_loss { recovered.end } else { known.durable };
    next
}

/// Runs random operations. `model` is updated after each acknowledgement.
fn work(rig: &Rig, model: &Mutex<Model>, rng: &mut Dice, operations: u64) {
    for _ in 0..operations {
        match rng.below(12) {
            0 => {
                let tail = rig.sequencer.tail();
                rig.log.sync_to(tail).expect("no fault");
                model.lock().durable = tail;
            }
            1 => {
                // "Flush" up to some record, then recycle.
                let flushed = {
                    let mut model = model.lock();
                    let at = rng.below(model.written.len() as u64 + 1) as usize;
                    let flushed = model.written.get(at).map_or(model.flushed, |r| r.0);
                    model.flushed = model.flushed.max(flushed);
                    model.flushed
                };
                rig.log.recycle_below(flushed).expect("no fault");
            }
            2 => {
                let units = 1 + rng.below(40);
                let _room = rig.log.ensure_room(units).expect("no fault");
                let pad = rig.sequencer.begin(units);
                rig.log.write_pad(pad.lsn(), units).expect("no fault");
                pad.commit();
            }
            n => {
                let number = rng.below(1 << 30);
                let bytes = if n == 3 { rng.below(12000) } else { rng.below(200) };
                let (lsn, end) =
                    rig.put(&number.to_le_bytes(), &value(number, bytes as usize)).expect("no fault");
                model.lock().written.push((lsn, end, number));
            }
        }
    }
}

/// Sessions one after the other, each ended by a clean close or by a crash at some call.
fn lives(seed: u64) {
    let mut rng = Dice(seed);
    let mut fs = MemFs::new();
    let mut model = Model::default();
    for session in 0..6 {
        let opened = fs.clone();
        let shared = Arc::new(Mutex::new(model.clone()));
        let wreck: Arc<Mutex<Option<Wreck>>> = Arc::default();
        let power_loss = rng.below(3) != 0;
        let crash_in = opened.calls() + rng.below(120);
        opened.create_dir_all(Path::new("/store")).expect("no fault");
        opened.sync_dir(Path::new("/")).expect("no fault");
        let (seed, keep) = (rng.below(u64::MAX), rng.below(11) as f64 / 10.0);
        let hook = {
            let (fs, shared, wreck) = (Arc::downgrade(&opened), shared.clone(), wreck.clone());
            move |call: &Call<'_>| {
                if call.number == crash_in
                    && let Some(fs) = fs.upgrade()
                {
                    let model = shared.lock();
                    let fs =
                        if power_loss { fs.crash_clone_random(seed, keep) } else { fs.process_crash_clone() };
                    *wreck.lock() = Some(Wreck { fs, known: model.clone(), power_loss });
                }
            }
        };
        opened.set_hook(Some(Box::new(hook)));
        // The engine flushes what an unclean log held before it accepts a write; it may do so
        // before the session starts, or after.
        let found = scan_with(opened.clone(), SMALL, Mode::Recover).expect("no fault");
        let first_segment = found.first_segment_after(model.flushed);
        let first = Lsn(first_segment * 512);
        if !found.clean && rng.below(2) == 0 {
            shared.lock().flushed = first;
        }
        let rig = Rig::start(opened.clone(), SMALL, &found, first_segment, |_| {}).expect("no fault");
        if !found.clean {
            shared.lock().flushed = first;
            if rng.below(2) == 0 {
                rig.log.recycle_below(first).expect("no fault");
            }
        }
        let operations = rng.below(120);
        work(&rig, &shared, &mut rng, operations);
        let mut wreck_now = wreck.lock().take();
        if wreck_now.is_none() && rng.below(3) == 0 {
            let power_loss = rng.below(2) == 0;
            let known = shared.lock().clone();
            let fs =
                if power_loss { opened.crash_clone_random(seed, keep) } else { opened.process_crash_clone() };
            wreck_now = Some(Wreck { fs, known, power_loss });
        }
        if wreck_now.is_none() {
            rig.log.close(true).expect("no fault");
            drop(rig);
            let mut known = shared.lock().clone();
            known.durable = known.written.last().map_or(known.durable, |r| r.1);
            wreck_now = wreck.lock().take().or(Some(Wreck {
                fs: if rng.below(2) == 0 {
                    opened.crash_clone(&mut |_| crate::env::Keep::No)
                } else {
                    opened.clone()
                },
                known,
                power_loss: false,
            }));
        }
        opened.set_hook(None);
        let wreck = wreck_now.expect("ended one way or the other");
        let all = shared.lock().clone();
        let recovered = scan_with(wreck.fs.clone(), SMALL, Mode::Recover).unwrap_or_else(|e| {
            let seen = scan_with(wreck.fs.clone(), SMALL, Mode::Inspect);
            panic!("session {session}, {:?}: {e}\nbefore: {found:#?}\nafter: {seen:#?}", wreck.known)
        });
        model = check(&recovered, &wreck, &all);
        fs = wreck.fs;
    }
}

#[test]
fn across_many_crashes_nothing_durable_is_lost_and_nothing_cut_off_returns() {
    let rounds = std::env::var("DRUMLIN_LOG_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..rounds {
        lives(seed);
    }
}

/// One fixed workload, a crash of either kind at each of its calls, pages kept in many ways.
#[test]
fn a_crash_at_every_call_leaves_a_log_that_opens() {
    let fs = MemFs::new();
    let shared = Arc::new(Mutex::new(Model::default()));
    let wrecks: Arc<Mutex<Vec<Wreck>>> = Arc::default();
    let hook = {
        let (fs, shared, wrecks) = (Arc::downgrade(&fs), shared.clone(), wrecks.clone());
        move |call: &Call<'_>| {
            let Some(fs) = fs.upgrade() else { return };
            let known = shared.lock();
            let push = |fs, power_loss| wrecks.lock().push(Wreck { fs, known: known.clone(), power_loss });
            push(fs.process_crash_clone(), false);
            for (n, keep) in [0.0, 0.3, 0.5, 0.8, 1.0].into_iter().enumerate() {
                push(fs.crash_clone_random(call.number * 5 + n as u64, keep), true);
            }
        }
    };
    fs.set_hook(Some(Box::new(hook)));
    let (rig, _) = Rig::open(fs.clone(), SMALL).expect("no fault");
    work(&rig, &shared, &mut Dice(7), 250);
    rig.log.close(true).expect("no fault");
    fs.set_hook(None);
    let all = shared.lock().clone();
    let wrecks = std::mem::take(&mut *wrecks.lock());
    assert!(wrecks.len() > 500, "{} crashes", wrecks.len());
    for wreck in &wrecks {
        let recovered = scan_with(wreck.fs.clone(), SMALL, Mode::Recover).unwrap_or_else(|e| {
            let seen = scan_with(wreck.fs.clone(), SMALL, Mode::Inspect);
            panic!("{:?}, power loss {}: {e}\n{seen:#?}", wreck.known, wreck.power_loss)
        });
        check(&recovered, wreck, &all);
    }
}

type Pause = Box<dyn FnMut()>;

thread_local! {
    /// What this thread does at a pause point of the log.
    static PAUSES: RefCell<Vec<(&'static str, Pause)>> = const { RefCell::new(Vec::new()) };
}

/// Makes the calling thread run `pause` once when it passes the point.
pub(super) fn pause_at(point: &'static str, pause: impl FnMut() + 'static) {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        for point in ["log::header_stored", "log::body_copied"] {
            failpoint::set(point, move || {
                let due = PAUSES.with_borrow_mut(|pauses| {
                    pauses.iter().position(|(at, _)| *at == point).map(|at| pauses.remove(at))
                });
                if let Some((_, mut pause)) = due {
                    pause();
                }
            });
        }
    });
    PAUSES.with_borrow_mut(|pauses| pauses.push((point, Box::new(pause))));
}

/// A thread is killed in the middle of a copy while others go on: the others' records survive,
/// the torn one does not, nor does anything that its bytes contain.
#[test]
fn a_record_cut_short_is_a_hole_and_hides_nothing_behind_it() {
    for segment_bytes in [SMALL, 1 << 16] {
        for point in ["log::header_stored", "log::body_copied"] {
            let (rig, fs) = Rig::new(segment_bytes);
            let (before, _) = rig.put(b"before", b"1").expect("room");
            // The torn value is full of copies of a whole record, at every unit.
            let start = HEADER_PAGE + before.0 as usize % (segment_bytes / 8) * 8;
            let path = rig.log.shared.segment_path(before.0 / (segment_bytes as u64 / 8));
            let copy = fs.contents(path).expect("it is there")[start..start + 32].to_vec();
            let torn = copy.repeat(100);
            let clones = Arc::new(Mutex::new(Vec::new()));
            let mut after = Lsn::ZERO;
            std::thread::scope(|s| {
                let (paused, at_pause) = std::sync::mpsc::channel();
                let (resume, resumed) = std::sync::mpsc::channel::<()>();
                let rig = &rig;
                let writer = s.spawn(move || {
                    pause_at(point, move || {
                        paused.send(()).expect("the test waits");
                        resumed.recv().expect("the test sends");
                    });
                    rig.put(b"torn", &torn).expect("room")
                });
                at_pause.recv().expect("the writer pauses");
                after = rig.put(b"after", b"2").expect("room").0;
                let mut clones = clones.lock();
                clones.push((fs.process_crash_clone(), true));
                clones.push((fs.crash_clone(&mut |_| crate::env::Keep::Whole), false));
                resume.send(()).expect("the writer waits");
                writer.join().expect("no panic");
            });
            for (clone, same_boot) in clones.lock().drain(..) {
                let recovered = scan_with(clone, segment_bytes, Mode::Recover).expect("no corruption");
                let seen: Vec<_> =
                    replay(&recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect();
                let wanted = if same_boot { vec![before, after] } else { vec![before] };
                assert_eq!(seen, wanted, "{point}, same boot: {same_boot}");
                assert!(!recovered.clean);
                assert_eq!(recovered.torn.is_some(), !same_boot);
            }
        }
    }
}

/// A record of which only the first bytes arrived, however many, over zeros or over stale bytes.
#[test]
fn a_record_of_any_number_of_bytes_is_whole_or_a_hole() {
    let (rig, fs) = Rig::new(SMALL);
    let (first, _) = rig.put(b"first", &value(1, 100)).expect("room");
    let (second, end) = rig.put(b"second", &value(2, 301)).expect("room");
    let (third, _) = rig.put(b"third", &value(3, 40)).expect("room");
    let path = rig.log.shared.segment_path(first.0 / 512);
    let crashed = fs.process_crash_clone();
    let whole = crashed.contents(&path).expect("it is there");
    let at = |lsn: Lsn| HEADER_PAGE + (lsn.0 % 512) as usize * 8;
    for stale in [0u8, 0xa7] {
        for arrived in at(second)..=at(end) {
            let mut bytes = whole.clone();
            bytes[arrived..at(end)].fill(stale);
            if bytes != whole {
                // It is stored last.
                bytes[at(second) + 8..at(second) + 16].fill(stale);
            }
            crashed.set_contents(&path, &bytes).expect("set");
            let recovered = scan_with(crashed.clone(), SMALL, Mode::Recover).expect("no mark, no corruption");
            let seen: Vec<_> =
                replay(&recovered, Lsn::ZERO).expect("whole").into_iter().map(|r| r.0).collect();
            let complete = bytes == whole;
            let wanted = if complete { vec![first, second, third] } else { vec![first, third] };
            assert_eq!(seen, wanted, "{arrived} of {}", at(end));
        }
    }
}
