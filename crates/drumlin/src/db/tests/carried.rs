//! What a store that was not closed leaves in its log, and the next open leaves there: none of it is lost, whatever comes
//! next, and what memory cannot hold is in tables.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::killed::is_of_a_table;
use super::workload::{STORE, options, read_all};
use crate::db::open::{LOCK_FILE, LOG_DIRECTORY};
use crate::env::{Call, Env, FileSystem, MemFs, Operation, Spawner, Thread};
use crate::error::{Error, Result};
use crate::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::sync::Mutex;
use crate::{Db, Keyspace};

const DISK: WriteOptions = WriteOptions { durability: Some(Durability::Disk) };
const NAMES: [&str; 2] = ["a", "b"];

/// Nothing is flushed that memory can hold.
fn roomy() -> Options {
    Options { memory_bytes: 32 << 20, log_bytes_max: Some(4 << 20), ..options() }
}

fn open_as(fs: &Arc<MemFs>, options: Options) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, options)
}

fn open(fs: &Arc<MemFs>) -> Result<Db> {
    open_as(fs, roomy())
}

fn keyspaces(db: &Db, options: &KeyspaceOptions) -> [Keyspace; 2] {
    NAMES.map(|name| db.keyspace(name, options.clone()).expect("keyspace"))
}

fn files(fs: &MemFs, extension: &str) -> usize {
    fs.files().iter().filter(|path| path.extension().is_some_and(|e| e == extension)).count()
}

/// Puts, batches over both keyspaces, and range deletions; step by step, so that what is there shows how many were.
fn write(keyspaces: &[Keyspace; 2], db: &Db, steps: std::ops::Range<u64>) {
    let [a, b] = keyspaces;
    for step in steps {
        let key = |shift: u64| (step * 7919 + shift).rotate_left(40).to_be_bytes();
        match step % 10 {
            9 => a.delete_range((step - 9).to_be_bytes(), (step - 8).to_be_bytes()).expect("deletes"),
            0..7 => a.put(key(0), vec![step as u8; 300]).expect("puts"),
            _ => {
                let mut batch = db.batch();
                batch.put(a, key(1), vec![step as u8; 200]).expect("puts");
                batch.put(b, key(2), vec![step as u8; 200]).expect("puts");
                batch.put(b, "last", step.to_be_bytes()).expect("puts");
                batch.commit().expect("commits");
            }
        }
    }
}

type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn contents(db: &Db) -> Contents {
    let mut found = Contents::new();
    read_all(db, &mut |keyspace, key, value| {
        found.insert((keyspace.into(), key.to_vec()), value.to_vec());
    })
    .expect("reads");
    found
}

/// A store that wrote so many steps and died, with what was in it; and the file system of its next life.
fn dead_after(steps: u64, keyspace_options: &KeyspaceOptions, options: &Options) -> (Arc<MemFs>, Contents) {
    let fs = MemFs::new();
    let db = open_as(&fs, options.clone()).expect("opens");
    write(&keyspaces(&db, keyspace_options), &db, 0..steps);
    let (dead, found) = (fs.process_crash_clone(), contents(&db));
    (dead, found)
}

fn is_sync_of_log(call: &Call<'_>) -> bool {
    let in_log = call.path.parent().is_some_and(|dir| dir.ends_with(LOG_DIRECTORY));
    call.operation == Operation::SyncRegion && in_log
}

/// A store that has written something durably since an open, then without power: all of it is there, in order.
fn survives(fs: &Arc<MemFs>, wanted: &Contents, what: &str) {
    let db = open(fs).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(contents(&db) == *wanted, "{what}");
    let [a, _] = keyspaces(&db, &KeyspaceOptions::default());
    a.put_with("afterwards", "1", DISK).expect("puts");
    let mut wanted = wanted.clone();
    wanted.insert(("a".into(), b"afterwards".to_vec()), b"1".to_vec());
    for seed in 0..3 {
        let lost = fs.crash_clone_random(seed, seed as f64 / 2.0);
        let db = open(&lost).unwrap_or_else(|e| panic!("{what}, without power: {e}"));
        assert!(contents(&db) == wanted, "{what}, without power");
        assert!(db.verify(&mut |_| {}).expect("verifies").is_sound());
    }
}

/// At every call of the open, and after it: the process may die again, and the power may go.
#[test]
fn what_memory_can_hold_stays_in_the_log_and_outlives_every_later_crash() {
    let (dead, wanted) = dead_after(2000, &KeyspaceOptions::default(), &roomy());
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (watched, clones) = (Arc::downgrade(&dead), taken.clone());
    dead.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation.writes()) {
            let seed = clones.lock().len() as u64;
            let pair = (fs.process_crash_clone(), fs.crash_clone_random(seed, seed as f64 % 3.0 / 2.0));
            clones.lock().push(pair);
        }
    })));
    let db = open(&dead).expect("opens");
    dead.set_hook(None);
    assert_eq!(files(&dead, "tbl"), 0, "nothing was flushed");
    assert!(db.stats().memtable_bytes > 400 << 10, "{}", db.stats());
    assert!(contents(&db) == wanted);
    drop(db);
    let taken = std::mem::take(&mut *taken.lock());
    assert!(taken.len() > 15, "only {} moments", taken.len());
    for (number, (killed, powerless)) in taken.iter().enumerate() {
        survives(killed, &wanted, &format!("killed at call {number}"));
        // What was not durable yet may be gone, a write at a time from the end.
        let db = open(powerless).unwrap_or_else(|e| panic!("powerless at call {number}: {e}"));
        for (record, value) in contents(&db) {
            let last = record.1 == b"last" && value <= wanted[&record];
            let is_newer_gone = !wanted.contains_key(&record) || wanted[&record] == value || last;
            assert!(is_newer_gone, "powerless at call {number}: {record:?}");
        }
    }
    survives(&dead, &wanted, "after all that");
}

#[test]
fn what_memory_cannot_hold_is_flushed_and_the_rest_stays_in_the_log() {
    // Not flushed by the store that wrote it: its memtables had no bound.
    let (dead, wanted) = dead_after(6000, &KeyspaceOptions::default(), &roomy());
    for threads in [1, 4] {
        let fs = dead.process_crash_clone();
        let tight = Options { memory_bytes: 4 << 20, background_threads: threads, ..roomy() };
        let db = open_as(&fs, tight).expect("opens");
        assert!(files(&fs, "tbl") > 0, "it was more than memory holds");
        assert!(contents(&db) == wanted, "with {threads} threads");
        drop(db);
        survives(&fs, &wanted, &format!("with {threads} threads"));
    }
}

/// The system takes pages for clean of which a sync failed. Whoever syncs them once more is told that all is well.
#[test]
fn a_log_of_which_a_sync_failed_is_flushed_by_the_next_open() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let both = keyspaces(&db, &KeyspaceOptions::default());
    write(&both, &db, 0..1000);
    fs.set_fault_hook(Some(Box::new(|call| is_sync_of_log(call).then_some(ErrorKind::Other))));
    assert!(both[0].put_with("unsure", "1", DISK).is_err(), "the sync fails");
    fs.set_fault_hook(None);
    let wanted = contents(&db);
    let dead = fs.process_crash_clone();
    survives(&dead, &wanted, "after a failed sync");
    assert!(files(&dead, "tbl") > 0, "it was flushed");
}

#[test]
fn a_log_that_an_open_cannot_sync_is_flushed() {
    let (dead, wanted) = dead_after(1000, &KeyspaceOptions::default(), &roomy());
    let first =
        dead.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).expect("one");
    dead.set_fault_hook(Some(Box::new(move |call| {
        (is_sync_of_log(call) && call.path == first).then_some(ErrorKind::Other)
    })));
    let db = open(&dead).expect("opens");
    assert!(contents(&db) == wanted && files(&dead, "tbl") > 0);
    drop(db);
    dead.set_fault_hook(None);
    survives(&dead, &wanted, "flushed");
}

/// Neither can it be flushed; a later open, when all is well again, must not take the log for durable.
#[test]
fn a_log_that_an_open_could_not_sync_is_not_trusted_by_the_next() {
    let (dead, wanted) = dead_after(1000, &KeyspaceOptions::default(), &roomy());
    let first =
        dead.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).expect("one");
    let store = Path::new(STORE).to_path_buf();
    dead.set_fault_hook(Some(Box::new(move |call| {
        let is_sync = is_sync_of_log(call) && call.path == first;
        let is_table = call.operation == Operation::Append
            && call.path.parent() == Some(&store)
            && call.path.extension().is_some_and(|e| e == "tmp")
            && call.path.file_stem().is_some_and(|stem| stem != "CURRENT");
        (is_sync || is_table).then_some(ErrorKind::Other)
    })));
    assert!(open(&dead).is_err(), "neither works");
    dead.set_fault_hook(None);
    survives(&dead, &wanted, "when all is well again");
    assert!(files(&dead, "tbl") > 0, "it was flushed");
}

#[test]
fn a_store_that_is_killed_again_and_again_does_not_pile_up_its_log() {
    let mut fs = MemFs::new();
    let mut most = 0;
    for round in 0..40u64 {
        let db = open(&fs).expect("opens");
        let [a, _] = keyspaces(&db, &KeyspaceOptions::default());
        a.put(round.to_be_bytes(), "1").expect("puts");
        assert_eq!(a.iter().expect("scans").count() as u64, round + 1);
        most = most.max(files(&fs, "log"));
        let dead = fs.process_crash_clone();
        drop((a, db));
        fs = dead;
    }
    // What the log may hold, in segments, a session's own, and spares.
    assert!(most <= (roomy().log_bytes() / roomy().segment_bytes) + 12, "{most} files");
}

#[test]
fn a_closed_store_of_many_sessions_is_flushed_and_one_of_many_segments_is_not() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let wide = Options { log_bytes_max: Some(16 << 20), ..roomy() };
    drop(db);
    let db = open_as(&fs, wide.clone()).expect("opens");
    write(&keyspaces(&db, &KeyspaceOptions::default()), &db, 0..16_000);
    assert!(files(&fs, "log") > 70, "{} segments", files(&fs, "log"));
    let wanted = contents(&db);
    db.close().expect("closes");
    let db = open_as(&fs, wide.clone()).expect("opens");
    assert_eq!(files(&fs, "tbl"), 0, "it stays in the log");
    assert!(contents(&db) == wanted);
    db.close().expect("closes");
    for _ in 0..70 {
        open_as(&fs, wide.clone()).and_then(|db| db.close()).expect("opens and closes");
    }
    assert!(files(&fs, "tbl") > 0, "each session has a file");
    assert!(contents(&open_as(&fs, wide).expect("opens")) == wanted);
}

/// Threads as the system has them, but that the one which makes the log durable begins late; and whether there is one,
/// and whether it has ended.
struct LateSync(Arc<dyn Spawner>, Arc<[AtomicBool; 2]>);

impl Spawner for LateSync {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        if name != "drumlin-sync" {
            return self.0.spawn(name, body);
        }
        self.1[0].store(true, Ordering::SeqCst);
        let state = Arc::clone(&self.1);
        let late = move || {
            std::thread::sleep(Duration::from_millis(700));
            body();
            state[1].store(true, Ordering::SeqCst);
        };
        self.0.spawn(name, Box::new(late))
    }
}

/// Regression: an open that failed gave the store free while its log was still being synced. Whoever opened it then trusted
/// a sync that came behind one that had failed.
#[test]
fn an_open_that_fails_keeps_others_out_until_its_sync_has_ended() {
    let (dead, _) = dead_after(4000, &KeyspaceOptions::default(), &roomy());
    let state = Arc::<[AtomicBool; 2]>::default();
    let [there, ended] = &*state;
    let env = Env::with_fs(dead.clone());
    let env = Env { spawner: Arc::new(LateSync(env.spawner.clone(), state.clone())), ..env };
    dead.set_fault_hook(Some(Box::new(|call| {
        (call.operation == Operation::Create && is_of_a_table(call)).then_some(ErrorKind::Other)
    })));
    let tight = Options { log_bytes_max: roomy().log_bytes_max, ..options() };
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| Db::open_with(env, STORE, tight));
        // Somebody who waits until it is free.
        let lock = Path::new(STORE).join(LOCK_FILE);
        let began = Instant::now();
        let in_time = || began.elapsed() < Duration::from_secs(60);
        while in_time() && (!there.load(Ordering::SeqCst) || dead.lock(&lock, true).is_err()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(in_time() && ended.load(Ordering::SeqCst), "it was free before the sync had ended");
        let opened = failing.join().expect("no panic");
        assert!(matches!(opened, Err(Error::Io { .. })), "{opened:?}");
    });
}
