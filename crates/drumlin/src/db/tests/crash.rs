//! A crash at every call of the file system, and between: what is recovered is the state after a
//! prefix of the history, with everything in it that was acknowledged.
//!
//! The light form takes a sample of the moments; `DRUMLIN_CRASH_ROUNDS` (`cargo x soak crash`) makes
//! it all of them, with so many seeds.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::recovery::{Crash, Expected, Remains, judge};
use super::workload::{Oracle, Scale, Writer, keyspace_options, open, oracle};
use super::{rounds, within};
use crate::dice::Dice;
use crate::env::MemFs;
use crate::sync::{Condvar, Mutex, failpoint};

/// Where mapped stores, which are no calls, come between.
const POINTS: [&str; 7] = [
    "write::drawn",
    "log::header_stored",
    "log::body_copied",
    "write::logged",
    "write::published",
    "batch::part",
    "batch::locked",
];

thread_local! {
    /// Whoever wants to look at the write that this thread is in.
    static WATCHER: RefCell<Option<Arc<Watcher>>> = const { RefCell::new(None) };
}

/// Takes clones while the workload runs.
struct Watcher {
    fs: Arc<MemFs>,
    oracle: Oracle,
    dice: Mutex<Dice>,
    /// One moment of so many is taken.
    every: u64,
    calls: AtomicU64,
    taken: Mutex<Sender<Remains>>,
    backlog: Arc<Backlog>,
}

/// Clones that wait to be judged. Whoever takes one holds a hook and must not wait: the judge may
/// need it, since what any store leaves behind is cleaned up by any thread. So the writer waits.
#[derive(Default)]
struct Backlog {
    waiting: Mutex<usize>,
    fewer: Condvar,
}

impl Backlog {
    fn wait(&self) {
        let mut waiting = self.waiting.lock();
        while *waiting > 8 {
            self.fewer.wait(&mut waiting);
        }
    }

    fn judged(&self) {
        let mut waiting = self.waiting.lock();
        *waiting = waiting.saturating_sub(1);
        drop(waiting);
        self.fewer.notify_all();
    }
}

/// Lets the writer go when the judge ends, also by a panic.
struct Release(Arc<Backlog>);

impl Drop for Release {
    fn drop(&mut self) {
        *self.0.waiting.lock() = 0;
        self.0.fewer.notify_all();
    }
}

impl Watcher {
    fn look(&self, place: &str) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut dice = self.dice.lock();
        if dice.below(self.every) != 0 {
            return;
        }
        let crashes = [
            Crash::Process,
            Crash::Power { keep: 0.0, seed: 0 },
            Crash::Power { keep: 0.5, seed: dice.next() },
            Crash::Power { keep: 0.9, seed: dice.next() },
        ];
        let chosen = if self.every == 1 { &crashes[..] } else { &[dice.pick(&crashes)] };
        drop(dice);
        for &crash in chosen {
            let (acked, durable) = {
                let told = self.oracle.lock();
                (told.acked, told.durable)
            };
            let least = if crash == Crash::Process { acked } else { durable };
            let fs = crash.clone_of(&self.fs);
            let most = self.oracle.lock().states.len() - 1;
            let expected = Expected::Prefix(self.oracle.clone(), least, most);
            let place = format!("at moment {number}, {place}");
            // If the judge is gone, it has failed the test.
            if self.taken.lock().send(Remains { fs, crash, expected, durable, place }).is_ok() {
                *self.backlog.waiting.lock() += 1;
            }
        }
    }
}

/// Runs the workload and judges what each crash of it would have left. Returns how many.
fn crash_everywhere(seed: u64, every: u64, scale: Scale) -> u64 {
    let fs = MemFs::new();
    let oracle = oracle();
    let (taken, remains) = mpsc::channel();
    let watcher = Arc::new(Watcher {
        fs: fs.clone(),
        oracle: oracle.clone(),
        dice: Mutex::new(Dice(seed ^ 0x5eed)),
        every,
        calls: AtomicU64::new(0),
        taken: Mutex::new(taken),
        backlog: Arc::default(),
    });
    let backlog = watcher.backlog.clone();
    for point in POINTS {
        failpoint::set(point, move || {
            // Other tests' threads come here too, some of them at their very end.
            if let Ok(Some(watcher)) = WATCHER.try_with(|watcher| watcher.borrow().clone()) {
                watcher.look(point);
            }
        });
    }
    let hooked = Arc::downgrade(&watcher);
    fs.set_hook(Some(Box::new(move |call| {
        if let Some(watcher) = hooked.upgrade().filter(|_| call.operation.writes()) {
            watcher.look(&format!("before {:?} {}", call.operation, call.path.display()));
        }
    })));
    let mut judged = 0;
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            WATCHER.set(Some(watcher.clone()));
            let backlog = watcher.backlog.clone();
            let writer = Writer::new(watcher.fs.clone(), oracle, seed).pausing(move || backlog.wait());
            let done = writer.run(scale);
            WATCHER.set(None);
            watcher.fs.set_hook(None);
            done
        });
        let _release = Release(backlog.clone());
        let remains = remains;
        for found in remains.iter() {
            judged += 1;
            let depth = u32::from(judged % 4 == 0);
            within(Duration::from_secs(60), &found.place, || judge(&found, depth, seed.wrapping_add(judged)));
            backlog.judged();
        }
        worker.join().expect("no panic").expect("nothing fails");
    });
    judged
}

#[test]
fn every_crash_leaves_a_prefix_with_all_that_was_acknowledged() {
    match rounds("DRUMLIN_CRASH_ROUNDS") {
        Some(rounds) => {
            for seed in 1..=rounds {
                let scale = if seed % 4 == 0 { Scale::Large } else { Scale::Small };
                let every = if scale == Scale::Large { 4 } else { 1 };
                let judged = crash_everywhere(seed, every, scale);
                println!("seed {seed}: {judged} crashes");
            }
        }
        None => {
            let judged = crash_everywhere(1, 12, Scale::Small);
            assert!(judged > 100, "only {judged} crashes were looked at");
        }
    }
}

/// A process dies with a write half done, and behind its hole in the log a batch that is whole. While
/// the store is recovered the power goes: the log now ends at the hole, so if one keyspace's part of
/// the batch had come to count by then, the other's would be gone.
#[test]
fn a_batch_behind_a_hole_stays_whole_when_its_recovery_is_cut_off() {
    let fs = MemFs::new();
    let file_system = |fs: &Arc<MemFs>| fs.clone() as Arc<dyn crate::env::FileSystem>;
    let db = open(&file_system(&fs)).expect("open");
    let [a, b] = ["a", "b"].map(|name| db.keyspace(name, keyspace_options()).expect("keyspace"));
    let (drawn, is_drawn) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let dead = std::thread::scope(|scope| {
        let store = &db.store;
        scope.spawn(move || {
            let half_done = store.sequencer.begin(4);
            drawn.send(()).expect("the test waits");
            let _ = goes_on.recv();
            // The store that is left behind ends in peace.
            let (lsn, units) = (half_done.lsn(), half_done.end().0 - half_done.lsn().0);
            store.log().expect("open").write_pad(lsn, units).expect("room");
            half_done.commit();
        });
        is_drawn.recv().expect("it draws");
        let mut batch = db.batch();
        batch.put(&a, "k", "1").expect("put");
        batch.put(&b, "k", "1").expect("put");
        batch.commit().expect("commit");
        let dead = fs.process_crash_clone();
        drop(go_on);
        dead
    });
    drop((a, b, db));

    let taken = Arc::new(Mutex::new(Vec::new()));
    let (watched, lost) = (Arc::downgrade(&dead), taken.clone());
    dead.set_hook(Some(Box::new(move |_| {
        if let Some(fs) = watched.upgrade() {
            lost.lock().push(fs.crash_clone_random(0, 0.0));
        }
    })));
    let parts = |fs: &Arc<MemFs>| {
        let db = open(&file_system(fs)).expect("open");
        ["a", "b"].map(|name| db.open_keyspace(name).and_then(|k| k.get("k")).expect("get").is_some())
    };
    assert_eq!(parts(&dead), [true, true], "after the crash of the process alone it is there");
    dead.set_hook(None);
    let lost = std::mem::take(&mut *taken.lock());
    let (mut before, mut after) = (0, 0);
    for (number, fs) in lost.iter().enumerate() {
        match parts(fs) {
            [false, false] => before += 1,
            [true, true] => after += 1,
            half => panic!("{half:?} after a power loss at call {number} of the recovery"),
        }
    }
    assert!(before > 0 && after > 0, "{before} before it counts, {after} after");
}
