//! One thread stands still inside a write, at any pause point, for five seconds; the others go on.
//!
//! 1. Gets, `snapshot_recent` and puts of other keys go on, wherever the thread stands: in a put, an
//!    update, a batch, a put that spans log segments. (A range deletion holds every key: gets and
//!    recent snapshots go on, puts wait.)
//! 2. Until a linearizable snapshot waits for what is in flight: then puts above it wait, gets and
//!    recent snapshots still go on.
//! 3. Or until memory is full, since what is in flight cannot be flushed: then puts wait, gets go on.
//! 4. `stats` shows each: `completed` stays below `tail`, `snapshots_waiting`, `stalls`.
//! 5. A scan that stands still while it sorts what a hash tier has stops nobody: no write, no scan, no flush.
//!
//! (With a hash tier a recent snapshot needs another one to share its read point with: there is one all the time.)
//!
//! The pause points are read from the sources, so that a new one cannot be forgotten here.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod freezer;
}

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use drumlin::env::{Env, MemFs};
use drumlin::{Db, Keyspace, KeyspaceOptions, Memory, Options};
use support::freezer::{Freezer, Frozen, PATIENCE, spawn};

const FREEZE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Put,
    Update,
    Batch,
    /// A put of more than a log segment.
    LongPut,
    DeleteRange,
}
use Operation::*;

/// How far a write has come at a pause point.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Nothing that others wait for is held, but for the key's own lock.
    Before,
    /// Waited for by those who wait for what is in flight, but its LSN is not drawn.
    Announced,
    /// In flight, and not to be seen.
    Hidden,
    /// In flight, and to be seen.
    Visible,
}
use Stage::*;

/// Every pause point on the way of a write, and who passes it at which stage.
const POINTS: &[(&str, &[Operation], Stage)] = &[
    ("update::admitted", &[Update], Before),
    ("update::decided", &[Update], Before),
    ("write::reserved", &[Put, Update], Before),
    ("write::locked", &[Put, Update], Before),
    ("write::checked", &[Put, Update], Before),
    ("batch::locked", &[Batch, DeleteRange], Before),
    ("write::announced", &[Put, Update, Batch], Announced),
    ("write::drawn", &[Put, Update, Batch], Hidden),
    ("log::header_stored", &[Put, Update, Batch, LongPut], Hidden),
    ("log::body_copied", &[Put, Update, Batch, LongPut], Hidden),
    ("write::logged", &[Put, Update, Batch, LongPut], Hidden),
    ("write::gated", &[Put, Update], Hidden),
    ("batch::part", &[Batch, DeleteRange], Hidden),
    ("write::published", &[Put, Update], Visible),
    ("write::published", &[Batch], Hidden),
];

/// Where somebody waits for a write that stands still, changes the manifest, or frees what was replaced: other tests stop
/// threads there, or none need be.
const ELSEWHERE: &[&str] = &[
    "commit::waits",
    "flush::begins",
    "manifest::append",
    "memtable::dropped",
    "pad::begins",
    "stripe::waits",
    "table::dropped",
    "two_tier::claimed",
];

fn open(memory_bytes: usize) -> (Db, Keyspace) {
    let options = Options { memory_bytes, segment_bytes: 64 << 10, ..Options::default() };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("open");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("keyspace");
    keyspace.put("frozen", "before").expect("put");
    (db, keyspace)
}

/// Does the operation.
fn work(operation: Operation, db: &Db, keyspace: &Keyspace) -> drumlin::Result<()> {
    match operation {
        Put => keyspace.put("frozen", "after"),
        LongPut => keyspace.put("frozen", "after".repeat(30_000)),
        Update => keyspace.update("frozen", |_| Some(b"after".to_vec())).map(|_| ()),
        Batch => {
            let mut batch = db.batch();
            batch.put(keyspace, "frozen", "after")?;
            batch.put(keyspace, "frozen too", "after")?;
            batch.commit()
        }
        DeleteRange => keyspace.delete_range("frozen", "frozen!"),
    }
}

/// What the frozen key holds while the operation stands at the stage, and after it.
fn held(operation: Operation, stage: Stage) -> [Option<Vec<u8>>; 2] {
    let after = match operation {
        Put | Update | Batch => Some(b"after".to_vec()),
        LongPut => Some(b"after".repeat(30_000)),
        DeleteRange => None,
    };
    [if stage == Visible { after.clone() } else { Some(b"before".to_vec()) }, after]
}

fn freeze(operation: Operation, stage: Stage, freezer: &Freezer) {
    let case = &freezer.thread;
    let (db, keyspace) = open(64 << 20);
    let _shared = db.snapshot().expect("nothing is in flight");
    let victim = {
        let (db, keyspace) = (db.clone(), keyspace.clone());
        spawn(case, move || work(operation, &db, &keyspace))
    };
    freezer.wait_until_inside();
    let [now, after] = held(operation, stage);

    let read = |what: &str| {
        let value = keyspace.get("frozen").expect("a get of the frozen key never waits");
        assert!(value.as_deref() == now.as_deref(), "{case}, {what}: {value:?}");
        let recent = db.snapshot_recent().expect("snapshot_recent never waits");
        assert!(recent.get(&keyspace, "frozen").expect("get").is_some(), "{case}, {what}");
        assert!(recent.iter(&keyspace).expect("scan").next().is_some(), "{case}, {what}");
    };
    let start = Instant::now();
    let (mut puts, mut reads) = (0u32, 0u32);
    let enough = |puts: u32, reads: u32| reads > 10 && (puts > 500 || operation == DeleteRange);
    while start.elapsed() < FREEZE || (!enough(puts, reads) && start.elapsed() < PATIENCE) {
        if operation != DeleteRange {
            let key = format!("other-{}", puts % 500);
            keyspace.put(&key, "x").expect("put of another key");
            assert!(keyspace.get(&key).expect("get").is_some());
            puts += 1;
        }
        if puts.is_multiple_of(64) {
            read("while the others go on");
            reads += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(enough(puts, reads), "{case}: only {reads} reads and {puts} puts went through");

    let in_flight = stage != Before;
    let stats = db.stats();
    assert_eq!(stats.completed < stats.tail, in_flight, "{case}: the stall shows");
    assert_eq!(stats.snapshots_waiting, 0, "{case}");

    // A linearizable snapshot waits for what is in flight, and puts wait behind it.
    let (db2, keyspace2) = (db.clone(), keyspace.clone());
    let (got, snapshots) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let snapshot = db2.snapshot().expect("snapshot");
        let _ = got.send(());
        let value = snapshot.get(&keyspace2, "frozen").expect("get");
        value.as_deref().map(<[u8]>::to_vec)
    });
    let waits = snapshots.recv_timeout(Duration::from_millis(300)).is_err();
    if !in_flight {
        assert!(!waits || snapshots.recv_timeout(PATIENCE).is_ok(), "{case}: nothing is in flight");
    } else {
        assert!(waits, "{case}: a linearizable snapshot waits for what is in flight");
        // Its thread may have had no processor until now.
        let began = Instant::now();
        while db.stats().snapshots_waiting == 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(db.stats().snapshots_waiting, 1, "{case}: and stats say so");
        assert!(snapshots.try_recv().is_err(), "{case}: it still waits");
        read("while a snapshot waits");
    }
    freezer.thaw();
    victim.join().expect("no panic").expect("the write succeeds after all");
    let seen = waiter.join().expect("no panic");
    let drawn = matches!(stage, Hidden | Visible);
    assert!(seen == after || !drawn && seen == now, "{case}: what was in flight is in the snapshot");
    assert!(keyspace.get("frozen").expect("get").as_deref() == after.as_deref(), "{case}");
    assert_eq!(db.stats().snapshots_waiting, 0);
    keyspace.put("frozen", "and on").expect("the key is free again");
    db.close().expect("close");
}

/// The names in `failpoint::hit("…")` in all sources.
fn points_in_sources() -> BTreeSet<String> {
    fn walk(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("sources").map(|e| e.expect("entry").path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).expect("source");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                for line in code {
                    found.extend(
                        line.split("failpoint::hit(\"").skip(1).map(|rest| {
                            rest.split('"').next().expect("split gives one at least").to_string()
                        }),
                    );
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

#[test]
fn every_pause_point_of_the_sources_is_tried() {
    let tried: BTreeSet<String> =
        POINTS.iter().map(|p| p.0).chain(ELSEWHERE.iter().copied()).map(String::from).collect();
    assert_eq!(points_in_sources(), tried);
}

#[test]
fn a_frozen_write_stops_nobody_else() {
    let mut cases: Vec<(Operation, Stage, Arc<Freezer>)> = Vec::new();
    for &(point, operations, stage) in POINTS {
        for &operation in operations {
            cases.push((operation, stage, Freezer::at(point, format!("{operation:?} at {point}"))));
        }
    }
    std::thread::scope(|scope| {
        let cases: Vec<_> = cases
            .iter()
            .map(|(operation, stage, freezer)| scope.spawn(move || freeze(*operation, *stage, freezer)))
            .collect();
        let failed = cases.into_iter().filter_map(|case| case.join().err()).count();
        assert_eq!(failed, 0, "see above");
    });
}

/// With a put frozen in flight nothing can be flushed. Puts go on until memory is full, and then
/// wait; gets never do. When the put goes on, so do all.
#[test]
fn puts_go_on_until_memory_is_full_and_resume_when_it_is_not() {
    let (db, keyspace) = open(4 << 20);
    let _shared = db.snapshot().expect("nothing is in flight");
    let victim = {
        let keyspace = keyspace.clone();
        Frozen::at("write::logged", "a put in flight", move || keyspace.put("frozen", "after"))
    };

    let filler = {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || {
            for i in 0..4000 {
                keyspace.put(format!("other-{i}"), [7; 1000]).expect("put");
            }
        })
    };
    // Four megabytes of values do not fit in half of four megabytes.
    let start = Instant::now();
    let mut last = (0, Instant::now());
    while last.1.elapsed() < Duration::from_millis(700) || db.stats().stalls == 0 {
        assert!(start.elapsed() < PATIENCE, "memory fills up");
        let entries = db.stats().keyspaces[0].memtable_versions;
        if entries != last.0 {
            last = (entries, Instant::now());
        }
        assert_eq!(keyspace.get("frozen").expect("get").as_deref(), Some(&b"before"[..]));
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = db.stats();
    assert!(!filler.is_finished(), "puts wait for memory");
    assert!(last.0 > 500, "not before it is full: {}", last.0);
    assert!(stats.stalls > 0 && stats.completed < stats.tail, "{stats:?}");
    assert!(stats.keyspaces[0].frozen_memtables > 0 && stats.flushes == 0, "{stats:?}");
    assert!(stats.memtable_bytes <= stats.memory_budget_bytes, "{stats:?}");
    assert!(keyspace.get("other-0").expect("gets go on").is_some());
    db.snapshot_recent().expect("so do recent snapshots");

    victim.thaw().expect("the put succeeds");
    filler.join().expect("all puts succeed");
    assert_eq!(keyspace.get("frozen").expect("get").as_deref(), Some(&b"after"[..]));
    assert!(keyspace.get("other-3999").expect("get").is_some());
    db.close().expect("close");
}

#[test]
fn a_scan_that_stands_still_while_it_sorts_stops_nobody() {
    let options = Options { memory_bytes: 64 << 20, segment_bytes: 64 << 10, ..Options::default() };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("open");
    let two_tier = KeyspaceOptions { memory: Memory::TwoTier, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", two_tier).expect("keyspace");
    let keys = || (0..100u32).map(|n| format!("key{n:03}"));
    let put = |value: &str| keys().try_for_each(|key| keyspace.put(key, value)).expect("puts go on");
    let scanned = |keyspace: &Keyspace| -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        keyspace
            .iter()
            .expect("scan")
            .map(|r| r.expect("record"))
            .map(|(k, v)| (text(&k), text(&v)))
            .collect()
    };
    let all = |value: &str| keys().map(|key| (key, value.to_string())).collect::<Vec<_>>();
    put("one");
    let victim = {
        let keyspace = keyspace.clone();
        Frozen::at("two_tier::claimed", "a scan that sorts", move || scanned(&keyspace))
    };
    for value in ["two", "three"] {
        let earlier = db.snapshot().expect("nothing is in flight");
        put(value);
        assert_eq!(scanned(&keyspace), all(value), "scans help themselves");
        assert_eq!(earlier.iter(&keyspace).expect("scan").count(), 100, "and find what they need");
    }
    db.flush().expect("so does a flush");
    assert_eq!(scanned(&keyspace), all("three"));
    assert_eq!(victim.thaw(), all("one"), "it has its snapshot");
    db.close().expect("close");
}
