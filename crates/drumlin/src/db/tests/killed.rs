//! A process that is killed on a full device: what it left is opened again where it is.
//!
//! By hand, on a real file system: as in `full`, with `kill -9` while the device is full.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::full::{CAPACITY, check, record, write_until_full};
use super::within;
use super::workload::STORE;
use crate::Db;
use crate::env::{Call, Env, FileSystem, MemFs, Operation};
use crate::error::{Error, Result};
use crate::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::sync::Mutex;
use crate::table::{TableId, file_name};

const VALUE_BYTES: usize = 4000;

fn options() -> Options {
    Options { memory_bytes: 16 << 20, segment_bytes: 1 << 20, ..Options::default() }
}

fn open(fs: &Arc<MemFs>) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, options())
}

/// Files of tables being written.
pub(super) fn is_of_a_table(call: &Call<'_>) -> bool {
    call.path.parent().is_some_and(|dir| dir.ends_with("store"))
        && call.path.extension().is_some_and(|e| e == "tmp")
        && call.path.file_stem().is_some_and(|stem| stem != "CURRENT")
}

/// Room that a segment does not fit in.
const LITTLE: u64 = 128 << 10;

/// Makes a file that the store does not need, a segment's worth, and fills the device with it.
fn only_room_is_in(fs: &MemFs, name: &str) {
    fs.set_capacity(None);
    let mut file = fs.create(&Path::new(STORE).join(name)).expect("creates");
    file.append(&vec![7; (1 << 20) + (64 << 10)]).expect("appends");
    fs.set_capacity(Some(fs.used_bytes() + LITTLE));
}

/// A process that is killed on a full device leaves unflushed data, half-written tables, a ballast, and no room for tables
/// of its own. The next open wanted that room before it gave anything up, so nobody could drop anything to make some.
#[test]
fn a_store_that_was_killed_on_a_full_device_opens_there_and_can_make_room() {
    let fs = MemFs::new();
    fs.set_capacity(Some(CAPACITY));
    let db = open(&fs).expect("opens");
    let [k, other] = ["k", "other"].map(|name| db.keyspace(name, KeyspaceOptions::default()).expect("makes"));
    other.put("a", "1").expect("puts");
    let (written, error) = write_until_full(&k, 0, VALUE_BYTES, WriteOptions::default());
    assert!(error.is_no_space(), "{error}");
    for round in 0..3 {
        std::thread::sleep(Duration::from_millis(50));
        let dead = fs.process_crash_clone();
        match round {
            0 => dead.set_capacity(Some(CAPACITY)),
            // Somebody else's data is in what a flush would need.
            1 => dead.set_capacity(Some((dead.used_bytes() + (1 << 20) + LITTLE).min(CAPACITY))),
            // What room there is lies in a table that nothing names.
            _ => only_room_is_in(&dead, &file_name(TableId(1 << 20), 0)),
        }
        let opened = open(&dead).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let k = opened.open_keyspace("k").expect("is there");
        check(&k, written, VALUE_BYTES, &format!("round {round}"));
        opened.drop_keyspace("k").expect("drops");
        let other = opened.open_keyspace("other").expect("is there");
        let began = Instant::now();
        while let Err(error) = other.put("b", vec![1; 100_000]) {
            assert!(
                error.is_no_space() && began.elapsed() < Duration::from_secs(60),
                "round {round}: {error}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((k, other));
        opened.close().unwrap_or_else(|e| panic!("round {round}: closes: {e}"));
        let again = open(&dead).expect("opens again");
        let other = again.open_keyspace("other").expect("is there");
        assert!(other.get("a").expect("gets").is_some() && other.get("b").expect("gets").is_some());
    }
}

/// A young store has nothing to give up but the ballast of its log.
#[test]
fn a_store_that_was_killed_opens_in_the_room_of_its_ballast() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    db.keyspace("k", KeyspaceOptions::default()).and_then(|k| k.put("a", "1")).expect("puts");
    let dead = fs.process_crash_clone();
    only_room_is_in(&dead, "log/ballast.tmp");
    let opened = open(&dead).expect("opens");
    assert!(opened.open_keyspace("k").and_then(|k| k.get("a")).expect("gets").is_some());
}

/// What could not be flushed when the store was opened stays in the old log. That log was perhaps in the system's cache
/// only, and from then on nothing of it may be lost: neither when the power goes during the open, nor later.
#[test]
fn a_log_that_is_carried_over_outlives_every_later_power_loss() {
    let no_tables = |fs: &MemFs| {
        fs.set_fault_hook(Some(Box::new(|call| {
            (call.operation == Operation::Append && is_of_a_table(call)).then_some(ErrorKind::StorageFull)
        })));
    };
    let fs = MemFs::new();
    // Not before the kill either: a flush that a slow writer lets end leaves too little to carry over.
    no_tables(&fs);
    let db = open(&fs).expect("opens");
    let [k, other] = ["k", "other"].map(|name| db.keyspace(name, KeyspaceOptions::default()).expect("makes"));
    let written = 800;
    for number in 0..written {
        let (key, value) = record(number, VALUE_BYTES);
        k.put(key, value).expect("puts");
    }
    other.put("a", "1").expect("puts");
    let dead = fs.process_crash_clone();
    drop((k, other, db));

    no_tables(&dead);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (watched, lost) = (Arc::downgrade(&dead), taken.clone());
    dead.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation.writes()) {
            let seed = lost.lock().len() as u64;
            let clones = (fs.process_crash_clone(), fs.crash_clone_random(seed, 0.5));
            lost.lock().push(clones);
        }
    })));
    let opened = open(&dead).expect("opens");
    dead.set_hook(None);
    let k = opened.open_keyspace("k").expect("is there");
    check(&k, written, VALUE_BYTES, "carried over");
    assert!(opened.stats().memtable_bytes > 3 << 20, "it was to be carried over");
    // Acknowledged in the new session as durable: what came before it must be there, too.
    let other = opened.open_keyspace("other").expect("is there");
    other.put_with("b", "2", WriteOptions { durability: Some(Durability::Disk) }).expect("puts");
    let late = dead.crash_clone_random(7, 0.0);
    let db = open(&late).expect("opens");
    assert!(db.open_keyspace("other").expect("is there").get("b").expect("gets").is_some());
    check(&db.open_keyspace("k").expect("is there"), written, VALUE_BYTES, "after the power loss");
    drop((k, other, opened, db));

    let lost = std::mem::take(&mut *taken.lock());
    assert!(lost.len() > 20, "only {} moments", lost.len());
    for (number, (killed, powerless)) in lost.iter().enumerate() {
        let db = open(killed).unwrap_or_else(|e| panic!("killed at call {number}: {e}"));
        check(
            &db.open_keyspace("k").expect("is there"),
            written,
            VALUE_BYTES,
            &format!("killed at {number}"),
        );
        let db = open(powerless).unwrap_or_else(|e| panic!("powerless at call {number}: {e}"));
        // The power may have gone before anything of the first session was durable.
        if let Ok(k) = db.open_keyspace("k") {
            let count = k.iter().expect("scans").count() as u64;
            check(&k, count, VALUE_BYTES, &format!("power lost at call {number}"));
        }
    }
}

/// Where nothing helps, the error says how much is missing; and the store can be read. Nothing that was tried is left.
#[test]
fn a_store_that_finds_no_room_at_all_says_how_much_it_needs() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    let dead = fs.process_crash_clone();
    let used = dead.used_bytes();
    for free in [0, 100 << 10] {
        dead.set_capacity(Some(used + free));
        match open(&dead) {
            Err(error @ Error::NoSpace { shortage: Some(shortage), .. }) => {
                assert!(shortage.needed >= 1 << 20 && shortage.free <= Some(free), "{shortage:?}");
                assert!(error.to_string().contains("read-only"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let read_only = Options { read_only: true, ..options() };
        let db = Db::open_with(Env::with_fs(dead.clone()), STORE, read_only).expect("opens");
        assert!(db.open_keyspace("k").expect("is there").get("a").expect("gets").is_some());
        assert!(dead.used_bytes() <= used + (16 << 10), "nothing but a manifest is left of what was tried");
    }
    dead.set_capacity(None);
    assert!(open(&dead).is_ok(), "what was tried did no harm");
}

/// The floor below which the log is not needed stands in a mapped page before it is synced. An open on a full device that
/// takes it from there, and removes the files below, must not leave a power loss to find the floor of before.
#[test]
fn segments_that_an_open_gives_up_are_not_missed_after_a_power_loss() {
    let fs = MemFs::new();
    let small = Options { segment_bytes: 64 << 10, ..options() };
    let open = |fs: &Arc<MemFs>| Db::open_with(Env::with_fs(fs.clone()), STORE, small.clone());
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (watched, dead) = (Arc::downgrade(&fs), taken.clone());
    fs.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation == Operation::SyncRegion) {
            dead.lock().push(fs.process_crash_clone());
        }
    })));
    let mut written = 0;
    for _ in 0..2 {
        for number in written..written + 100 {
            let (key, value) = record(number, VALUE_BYTES);
            k.put(key, value).expect("puts");
        }
        written += 100;
        db.flush().expect("flushes");
    }
    fs.set_hook(None);
    drop((k, db));
    let logs = |fs: &MemFs| fs.files().iter().filter(|p| p.extension().is_some_and(|e| e == "log")).count();
    let mut gave_up = 0;
    for (moment, dead) in taken.lock().iter().enumerate() {
        let before = logs(dead);
        dead.set_fault_hook(Some(Box::new(|call| {
            let name = call.path.file_name().map(|name| name.to_string_lossy().into_owned());
            let of_manifest = name.is_some_and(|name| name.starts_with("MANIFEST-"));
            (of_manifest && call.operation == Operation::Append).then_some(ErrorKind::StorageFull)
        })));
        assert!(open(dead).is_err_and(|e| e.is_no_space()));
        gave_up += usize::from(logs(dead) < before);
        for seed in 0..4 {
            let lost = dead.crash_clone_random(seed, 0.5);
            let db = open(&lost).unwrap_or_else(|e| panic!("moment {moment}, seed {seed}: {e}"));
            drop(db);
        }
    }
    assert!(gave_up > 2, "only {gave_up} times was anything given up");
}

/// The tables of a manifest that lost its end look like orphans. An open on a full device must not take them for room
/// before it has found that out.
#[test]
fn a_full_device_costs_no_tables_of_a_manifest_that_lost_its_end() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let old = db.keyspace("old", KeyspaceOptions::default()).expect("makes");
    old.put("a", "1").expect("puts");
    let manifests: Vec<_> = fs
        .files()
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("MANIFEST-")))
        .map(|path| (fs.contents(&path).expect("reads"), path))
        .collect();
    let new = db.keyspace("new", KeyspaceOptions::default()).expect("makes");
    new.put("b", "2").expect("puts");
    // Not the old one: its record keeps the log, which by its floor would tell that the manifest lacks something.
    new.compact().expect("flushes");
    new.put("c", "3").expect("puts");
    let dead = fs.process_crash_clone();
    for (contents, path) in &manifests {
        dead.set_contents(path, contents).expect("writes");
    }
    let tables = |fs: &MemFs| fs.files().iter().filter(|p| p.extension().is_some_and(|e| e == "tbl")).count();
    let before = tables(&dead);
    assert!(before > 0);
    dead.set_fault_hook(Some(Box::new(|call| {
        let is_log = call.operation == Operation::MapLog && call.path.extension().is_some_and(|e| e == "tmp");
        (is_log || (call.operation == Operation::Append && is_of_a_table(call)))
            .then_some(ErrorKind::StorageFull)
    })));
    let found = within(Duration::from_secs(60), "an open", || open(&dead).map(drop));
    assert!(found.as_ref().is_err_and(Error::is_corruption), "{found:?}");
    assert_eq!(tables(&dead), before, "a table went");
}
