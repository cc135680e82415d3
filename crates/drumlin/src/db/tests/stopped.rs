//! Writers that wait for memory: a flush helps them, or they hear why none does. Nobody waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::within;
use super::workload::{keyspace_options, open};
use crate::env::{Call, Fault, FaultyFs, FileSystem, MemFs, Operation};
use crate::error::Result;
use crate::options::KeyspaceOptions;
use crate::{Db, Keyspace};

const LIMIT: Duration = Duration::from_secs(60);
/// Several times what memory holds.
const WRITES: u32 = 20_000;

fn faulty() -> (Arc<FaultyFs>, Db) {
    let faulty = FaultyFs::new(MemFs::new());
    let db = open(&(faulty.clone() as Arc<dyn FileSystem>)).expect("open");
    (faulty, db)
}

/// It fills memory and leaves the log where it is.
fn unlogged(db: &Db) -> Keyspace {
    db.keyspace("unlogged", KeyspaceOptions { logged: false, ..KeyspaceOptions::default() })
        .expect("keyspace")
}

fn fill(keyspace: &Keyspace) -> Result<()> {
    (0..WRITES).try_for_each(|number| keyspace.put(number.to_be_bytes(), [7; 1000]))
}

fn is_of_the_log(call: &Call<'_>) -> bool {
    call.path.to_string_lossy().contains("/log/")
}

/// Regression: what was frozen was too little to be worth a pad, and nothing else could be flushed.
#[test]
fn a_small_memtable_that_ends_beyond_the_tail_is_flushed_for_writers_that_are_stopped() {
    within(LIMIT, "a small frozen memtable", || {
        let db = open(&(MemFs::new() as Arc<dyn FileSystem>)).expect("open");
        let small = KeyspaceOptions { memtable_bytes: Some(128 << 10), ..KeyspaceOptions::default() };
        let small = db.keyspace("small", small).expect("keyspace");
        let mut number = 0u32;
        while db.stats().keyspaces[0].frozen_memtables == 0 {
            small.put(number.to_be_bytes(), [7; 500]).expect("put");
            number += 1;
            assert!(number < WRITES, "it is turned ahead of a border");
            // The thread that opens segments turns it.
            std::thread::yield_now();
        }
        fill(&unlogged(&db)).expect("all of it is written");
    });
}

/// Regression: as above, and the memtable that could have been flushed counted as hope.
#[test]
fn writers_hear_of_a_flush_that_fails_though_small_memtables_wait() {
    within(LIMIT, "a failing flush beside small memtables", || {
        let (faulty, db) = faulty();
        let big = db.keyspace("big", KeyspaceOptions::default()).expect("keyspace");
        let small: Vec<_> =
            (0..80).map(|n| db.keyspace(&format!("s{n}"), keyspace_options()).expect("keyspace")).collect();
        faulty.fail_when(|call| {
            let fails = !is_of_the_log(call) && call.operation == Operation::Append;
            let table = call.path.extension().is_some_and(|e| e == "tbl" || e == "tmp");
            (fails && table).then_some(Fault::Error(std::io::ErrorKind::Other))
        });
        let told = (0..WRITES).try_for_each(|number| {
            if number % 32 == 0 {
                small[number as usize / 32 % small.len()].put("k", "v")?;
            }
            big.put(number.to_be_bytes(), [7; 1000])
        });
        assert!(told.is_err(), "memory is full and no flush works");
    });
}

/// Regression: with no room for a pad no flush began, so none failed, and nobody was told.
#[test]
fn writers_hear_of_a_full_device_that_has_no_room_for_a_pad_and_go_on_when_it_has() {
    within(LIMIT, "no room for a pad", || {
        let (faulty, db) = faulty();
        let keyspace = unlogged(&db);
        faulty.fail_when(|call| {
            (is_of_the_log(call) && call.operation == Operation::MapLog).then_some(Fault::NoSpace)
        });
        let told = fill(&keyspace).expect_err("memory is full and the device too");
        assert!(told.is_no_space(), "{told}");
        faulty.fail_when(|_| None);
        while let Err(error) = keyspace.put("there is room", "1") {
            assert!(error.is_no_space(), "{error}");
            std::thread::yield_now();
        }
        fill(&keyspace).expect("all of it is written");
    });
}

/// Regression: a log that failed beneath a worker was poisoned, the store was not, and its writers waited.
#[test]
fn writers_that_are_stopped_hear_of_a_log_that_fails() {
    within(LIMIT, "a log that fails while memory is full", || {
        let (faulty, db) = faulty();
        let keyspace = unlogged(&db);
        let full = Arc::new(AtomicBool::new(false));
        let is_full = full.clone();
        faulty.fail_when(move |call| match (is_full.load(Ordering::Relaxed), call.operation) {
            _ if !is_of_the_log(call) => None,
            (false, Operation::MapLog) => Some(Fault::NoSpace),
            (true, Operation::SyncRegion) => Some(Fault::Error(std::io::ErrorKind::Other)),
            _ => None,
        });
        assert!(fill(&keyspace).expect_err("full").is_no_space());
        full.store(true, Ordering::Relaxed);
        let told = loop {
            match keyspace.put("k", [7; 1000]) {
                Err(error) if error.is_no_space() => std::thread::yield_now(),
                other => break other,
            }
        };
        assert!(told.is_err() && db.store.poisoned().is_some(), "{told:?}");
    });
}
