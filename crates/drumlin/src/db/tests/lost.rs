//! Files that are gone: what the manifest knows of them makes their loss corruption, never a store
//! that is silently smaller. And what must not be lost: tables in directories of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::within;
use super::workload::{STORE, keyspace_options, options};
use crate::Db;
use crate::db::open::LOG_DIRECTORY;
use crate::env::{Env, FileSystem, Keep, MemFs};
use crate::error::{Error, Result};
use crate::options::{Durability, KeyspaceOptions, Layout, Options, WriteOptions};
use crate::sync::Mutex;

const DISK: WriteOptions = WriteOptions { durability: Some(Durability::Disk) };

/// Options with which nothing is flushed unless asked.
fn patient() -> Options {
    Options { memory_bytes: 32 << 20, log_bytes_max: Some(4 << 20), ..options() }
}

fn open_as(fs: &Arc<MemFs>, options: Options) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, options)
}

/// Writes so much that the log needs several segments.
fn fill(db: &Db, round: u8) {
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).expect("keyspace");
    for number in 0..50u8 {
        keyspace.put([round, number], [number; 3000]).expect("put");
    }
}

fn count(db: &Db) -> usize {
    let scan = db.open_keyspace("a").and_then(|k| k.iter()).expect("scan");
    scan.collect::<Result<Vec<_>>>().expect("records").len()
}

fn files(fs: &MemFs, extension: &str) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == extension)).collect()
}

/// Removes the files and expects that every way to open says so.
fn is_missed(fs: &Arc<MemFs>, gone: &[PathBuf]) {
    gone.iter().for_each(|path| fs.remove(path).expect("it is there"));
    for read_only in [true, false] {
        match open_as(fs, Options { read_only, ..patient() }) {
            Err(Error::Corruption(found)) => {
                assert!(found.path.starts_with(Path::new(STORE).join(LOG_DIRECTORY)), "{gone:?}: {found}");
            }
            Ok(db) => panic!("opens with {} records without {gone:?}", count(&db)),
            Err(other) => panic!("{gone:?}: {other}"),
        }
    }
}

/// In this boot, and as if the machine had been switched off meanwhile.
fn lives(fs: &MemFs) -> [Arc<MemFs>; 2] {
    [fs.process_crash_clone(), fs.crash_clone(&mut |_| Keep::Whole)]
}

/// Regression: a log that had lost its last files, or all, passed for one that ended earlier: the
/// store opened, `verify` called it sound, and the records were gone.
#[test]
fn a_closed_store_that_lost_any_end_of_its_log_is_corrupt() {
    let fs = MemFs::new();
    for session in 0..3 {
        let db = open_as(&fs, patient()).expect("open");
        assert_eq!(count_or_none(&db), usize::from(session) * 50);
        fill(&db, session);
        db.close().expect("close");
    }
    let log = files(&fs, "log");
    assert!(log.len() >= 6, "several segments each: {log:?}");
    for at in 0..log.len() {
        for fs in lives(&fs) {
            is_missed(&fs, &log[at..]);
        }
        for fs in lives(&fs) {
            is_missed(&fs, &log[at..=at]);
        }
    }
    assert_eq!(count(&open_as(&fs, patient()).expect("whole")), 150);
}

fn count_or_none(db: &Db) -> usize {
    if db.keyspaces().is_empty() { 0 } else { count(db) }
}

#[test]
fn a_store_that_was_open_and_lost_its_whole_log_is_corrupt() {
    let fs = MemFs::new();
    let db = open_as(&fs, patient()).expect("open");
    for fs in lives(&fs) {
        is_missed(&fs, &files(&fs, "log"));
    }
    fill(&db, 0);
    for fs in lives(&fs) {
        is_missed(&fs, &files(&fs, "log"));
    }
    drop(db);
}

/// Every edit of the manifest says how far the log was durable by then.
#[test]
fn a_log_that_ends_before_what_the_manifest_saw_of_it_is_corrupt() {
    let fs = MemFs::new();
    let db = open_as(&fs, patient()).expect("open");
    fill(&db, 0);
    db.persist().expect("persist");
    db.keyspace("b", KeyspaceOptions::default()).expect("an edit");
    for fs in lives(&fs) {
        let log = files(&fs, "log");
        assert!(log.len() >= 3, "{log:?}");
        is_missed(&fs, &log[1..]);
    }
    drop(db);
}

/// Regression: a get or scan that needed the table failed as if the system had, with "not found".
#[test]
fn a_table_that_is_gone_is_corruption_for_all_who_need_it() {
    let fs = MemFs::new();
    let db = open_as(&fs, patient()).expect("open");
    fill(&db, 0);
    db.flush().expect("flush");
    db.close().expect("close");
    let table = files(&fs, "tbl").pop().expect("a flush makes a table");
    fs.remove(&table).expect("it is there");
    let db = open_as(&fs, patient()).expect("open");
    let keyspace = db.open_keyspace("a").expect("keyspace");
    let scanned = keyspace.iter().and_then(|scan| scan.collect::<Result<Vec<_>>>());
    let got = keyspace.get([0, 7]).map(|_| ());
    // Something to merge with it.
    keyspace.put([0, 7], "new").expect("put");
    db.flush().expect("flush");
    let seen = [("get", got), ("scan", scanned.map(|_| ())), ("compact", db.compact())];
    for (what, seen) in seen {
        match seen {
            Err(Error::Corruption(found)) => assert_eq!(found.path, table, "{what}: {found}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    let report = db.verify(&mut |_| {}).expect("it goes on to the end");
    assert_eq!(report.problems.iter().map(|p| &p.path).collect::<Vec<_>>(), [&table]);
}

/// Regression: the directories of `level_paths` were neither made nor synced, so a power loss could
/// take a durable table with the name of its directory.
#[test]
fn a_table_in_a_level_directory_survives_a_power_loss_at_any_call() {
    let fs = MemFs::new();
    let places = [(0, "/fast/zero".into()), (1, "/slow/and/deep".into())];
    let split = || Options { level_paths: BTreeMap::from(places.clone()), ..options() };
    let (acked, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (watched, taken, told) = (Arc::downgrade(&fs), lost.clone(), acked.clone());
    fs.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation.writes()) {
            let acked = told.load(Ordering::SeqCst);
            let keep = if call.number % 3 == 0 { 0.5 } else { 0.0 };
            taken.lock().push((acked, fs.crash_clone_random(call.number, keep), format!("{call:?}")));
        }
    })));
    let db = open_as(&fs, split()).expect("open");
    let leveled = KeyspaceOptions { layout: Layout::Leveled, ..keyspace_options() };
    let keyspace = db.keyspace("a", leveled).expect("keyspace");
    for number in 0..6u64 {
        keyspace.put_with(number.to_le_bytes(), [9; 100], DISK).expect("put");
        acked.store(number + 1, Ordering::SeqCst);
        if number % 2 == 1 {
            db.flush().expect("flush");
        }
    }
    db.compact().expect("compact");
    drop(keyspace);
    db.close().expect("close");
    fs.set_hook(None);
    for (_, place) in &places {
        let path: &PathBuf = place;
        assert!(fs.exists(path).expect("exists"), "{path:?} was made");
    }
    assert!(files(&fs, "tbl").iter().any(|table| !table.starts_with(STORE)), "a table lies elsewhere");
    within(Duration::from_secs(120), "the crashes", || {
        for (acked, fs, place) in std::mem::take(&mut *lost.lock()) {
            let db = open_as(&fs, split()).unwrap_or_else(|e| panic!("{place}: {e}"));
            let get = |number: u64| db.open_keyspace("a").and_then(|k| k.get(number.to_le_bytes()));
            for number in 0..acked {
                let found = get(number).unwrap_or_else(|e| panic!("{place}: {e}"));
                assert!(found.is_some(), "{place}: {number} of {acked} is lost");
            }
            let report = db.verify(&mut |_| {}).expect("verify");
            assert!(report.is_sound(), "{place}: {:?}", report.problems);
        }
    });
}

/// Where damage cannot be told from tearing, at least nobody is told "sound" and no more.
#[test]
fn whole_writes_behind_a_cut_are_remarked_on() {
    let fs = MemFs::new();
    let db = open_as(&fs, patient()).expect("open");
    fill(&db, 0);
    let fs = fs.crash_clone(&mut |_| Keep::Whole);
    drop(db);
    let log = files(&fs, "log")[0].clone();
    let bytes = fs.contents(&log).expect("there");
    let tenth = bytes.windows(3000).position(|at| at.iter().all(|b| *b == 10)).expect("its value") as u64;
    // Two bytes, in two sectors: a power loss that lost parts of the record could leave that.
    fs.damage(&log, tenth, 1).expect("in bounds");
    fs.damage(&log, tenth + 700, 1).expect("in bounds");
    let db = open_as(&fs, Options { read_only: true, ..patient() }).expect("a torn tail");
    assert_eq!((count(&db), db.stats().recovery.dropped_writes), (10, 39));
    let report = db.verify(&mut |_| {}).expect("verify");
    assert!(report.is_sound() && report.remarks.len() == 1, "{report:?}");
    assert!(report.remarks[0].contains("39 whole writes"), "{report:?}");
    drop(db);
    let db = open_as(&fs, patient()).expect("a torn tail");
    let found = db.stats().recovery;
    assert_eq!((found.clean, found.dropped_writes, found.unfinished), (false, 39, 0));
    assert!(found.cut.is_some_and(|(path, ..)| path == log));
}

/// Regression: a manifest cut off between two edits passed for one with a torn tail, although the log had let go of what
/// the lost edits put into tables: the store opened with a part of its records and `verify` called it sound.
#[test]
fn a_manifest_that_lost_its_end_is_corrupt_or_nothing_is_missing() {
    for (closes, flushes) in [(true, 3), (false, 3), (true, 0), (false, 0)] {
        let fs = MemFs::new();
        let db = open_as(&fs, patient()).expect("open");
        for round in 0..4 {
            fill(&db, round);
            // What is flushed the log lets go of; the last round is in the log only.
            if round < flushes {
                db.flush().expect("flush");
            }
        }
        if closes {
            db.close().expect("close");
        }
        let manifest =
            fs.files().into_iter().find(|path| path.to_string_lossy().contains("MANIFEST")).expect("one");
        let whole = fs.contents(&manifest).expect("there");
        let (mut refused, mut kept) = (0, 0);
        for length in 0..=whole.len() {
            let life = fs.process_crash_clone();
            life.set_contents(&manifest, &whole[..length]).expect("cut");
            match open_as(&life, Options { read_only: true, ..patient() }) {
                Err(error) => {
                    assert!(error.is_corruption(), "cut to {length} of {}: {error}", whole.len());
                    refused += 1;
                }
                Ok(db) => {
                    assert_eq!(count(&db), 200, "cut to {length} of {}", whole.len());
                    kept += 1;
                }
            }
        }
        assert!(refused > 50 && kept > 1, "{refused} refused, {kept} kept");
    }
}
