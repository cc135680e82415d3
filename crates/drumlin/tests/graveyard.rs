//! Tables that nobody needs go soon. By whom: tests/reclamation.rs.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod tables;
}

use drumlin::Db;
use drumlin::env::{Env, FileSystem, MemFs};
use support::tables::{STORE, eventually, named, small, tables};

#[test]
fn a_dropped_table_goes_soon_after_its_last_reader() {
    let fs = MemFs::new();
    let (options, keyspace_options) = small();
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, options).expect("opens");
    let keyspace = db.keyspace("k", keyspace_options).expect("makes");
    for n in 0..2000u64 {
        keyspace.put(format!("key{n:05}"), vec![n as u8; 150]).expect("puts");
    }
    db.flush().expect("flushes");
    db.wait_for_idle().expect("idle");
    let before = tables(&fs);
    let mut scan = keyspace.iter().expect("scans");
    let first = scan.next().expect("a record").expect("readable");
    keyspace.put("key00000", "again").expect("puts");
    db.compact().expect("compacts");
    assert!(tables(&fs).len() > named(&db), "some tables are obsolete and scanned");
    assert!(before.iter().all(|path| fs.exists(path).expect("asks")), "the scan still reads them");
    assert_eq!(1 + scan.by_ref().filter(|record| record.is_ok()).count(), 2000);
    assert_eq!(&*first.0, b"key00000");
    drop(scan);
    eventually("the old tables go", || tables(&fs).len() == named(&db));
}

#[test]
fn a_dropped_keyspace_leaves_no_file_though_its_handles_live() {
    let fs = MemFs::new();
    let (options, keyspace_options) = small();
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, options).expect("opens");
    let keyspace = db.keyspace("k", keyspace_options).expect("makes");
    for n in 0..4000u64 {
        keyspace.put(format!("key{n:05}"), vec![n as u8; 150]).expect("puts");
    }
    db.flush().expect("flushes");
    assert!(!tables(&fs).is_empty());
    db.drop_keyspace("k").expect("drops");
    eventually("the tables of the dropped keyspace go", || tables(&fs).is_empty());
    assert!(keyspace.get("key00001").is_err());
    assert!(keyspace.iter().is_err());
}

#[test]
fn at_close_nothing_is_left_though_a_scan_is() {
    let fs = MemFs::new();
    let (options, keyspace_options) = small();
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, options.clone()).expect("opens");
    let keyspace = db.keyspace("k", keyspace_options).expect("makes");
    for n in 0..4000u64 {
        keyspace.put(format!("key{n:05}"), vec![n as u8; 150]).expect("puts");
    }
    db.flush().expect("flushes");
    let mut scan = keyspace.iter().expect("scans");
    scan.next().expect("a record").expect("readable");
    db.compact().expect("compacts");
    let live = named(&db);
    db.close().expect("closes");
    assert_eq!(tables(&fs).len(), live, "only what the manifest names");
    assert!(scan.next().expect("an end").is_err(), "a closed store does not answer");
}

/// Regression: a memtable frozen at a border ahead of the log's tail cannot be flushed before more is written.
#[test]
fn idle_is_not_waiting_for_writes_to_come() {
    let (options, keyspace_options) = small();
    let db = Db::open_with(Env::with_fs(MemFs::new()), STORE, options).expect("opens");
    let keyspace = db.keyspace("k", keyspace_options).expect("makes");
    let mut n = 0u64;
    let mut frozen = 0;
    while frozen < 3 {
        keyspace.put(format!("key{n:05}"), vec![n as u8; 150]).expect("puts");
        n += 1;
        if db.stats().keyspaces[0].frozen_memtables > 0 {
            frozen += 1;
            db.wait_for_idle().expect("idle");
        }
    }
}
