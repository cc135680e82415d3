//! A full device: writes end with a clear error, nothing acknowledged is lost, and writes resume by
//! themselves when there is space again.
//!
//! By hand, on a real file system: `mount -t tmpfs -o size=24m tmpfs DIR`, load data into a store in
//! DIR with the command-line tool until it says that the device is full, check it with `verify`, then
//! `mount -o remount,size=64m DIR` and load again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::within;
use super::workload::{STORE, keyspace_options, options};
use crate::dice::Dice;
use crate::env::{Env, MemFs};
use crate::error::Error;
use crate::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::{Db, Keyspace};

pub(super) const CAPACITY: u64 = 24 << 20;

/// Key and value of a write; the values do not compress.
pub(super) fn record(number: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut dice = Dice(number);
    let value = (0..bytes.div_ceil(8)).flat_map(|_| dice.next().to_le_bytes()).take(bytes).collect();
    (format!("{number:08}").into_bytes(), value)
}

/// Writes records from `from` until one fails. Returns the number of the one that did.
pub(super) fn write_until_full(
    keyspace: &Keyspace,
    from: u64,
    bytes: usize,
    with: WriteOptions,
) -> (u64, Error) {
    for number in from.. {
        let (key, value) = record(number, bytes);
        if let Err(error) = keyspace.put_with(key, value, with) {
            return (number, error);
        }
        assert!(number < 10 * CAPACITY / bytes as u64, "more is stored than there is room for");
    }
    unreachable!("numbers end later")
}

pub(super) fn check(keyspace: &Keyspace, records: u64, bytes: usize, context: &str) {
    for number in 0..records {
        let (key, value) = record(number, bytes);
        let found = keyspace.get(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(found.as_deref() == Some(&value[..]), "{context}: record {number} of {records}");
    }
}

fn fill_and_go_on(options: Options, keyspace_options: KeyspaceOptions, bytes: usize, durability: Durability) {
    let context = format!("segments of {}, values of {bytes}, {durability:?}", options.segment_bytes);
    let with = WriteOptions { durability: Some(durability) };
    let fs = MemFs::new();
    fs.set_capacity(Some(CAPACITY));
    let open = |fs: &Arc<MemFs>| Db::open_with(Env::with_fs(fs.clone()), STORE, options.clone());
    let db = open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    let keyspace = db.keyspace("k", keyspace_options).expect("keyspace");
    let (written, error) = write_until_full(&keyspace, 0, bytes, with);
    assert!(error.is_no_space(), "{context}: {error:?} after {written}");
    println!("{context}: {written} records, {} bytes, of {CAPACITY}", written * bytes as u64);
    assert!(
        written * bytes as u64 > CAPACITY / 2,
        "{context}: only {written} records went into {CAPACITY} bytes"
    );
    check(&keyspace, written, bytes, &context);
    for _ in 0..3 {
        let again = keyspace.put_with("again", vec![7; bytes], with);
        assert!(
            again.as_ref().is_ok() || again.as_ref().is_err_and(Error::is_no_space),
            "{context}: {again:?}"
        );
    }
    // A process that dies now, and one that has more space then.
    let dead = fs.process_crash_clone();
    dead.set_capacity(Some(CAPACITY * 2));
    let reopened = open(&dead).unwrap_or_else(|e| panic!("{context}: reopened: {e}"));
    check(&reopened.open_keyspace("k").expect("keyspace"), written, bytes, &format!("{context}, reopened"));
    drop(reopened);

    fs.set_capacity(Some(CAPACITY * 2));
    let began = Instant::now();
    while let Err(error) = keyspace.put_with("there is space", "1", with) {
        assert!(error.is_no_space(), "{context}: {error:?}");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{context}: writes do not resume: {error:?}\n{}",
            db.stats()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (key, value) = record(written, bytes);
    keyspace.put_with(key, value, with).unwrap_or_else(|e| panic!("{context}: resumed, but: {e}"));
    check(&keyspace, written + 1, bytes, &context);
    drop(keyspace);
    db.close().unwrap_or_else(|e| panic!("{context}: {e}"));
    let db = open(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
    check(&db.open_keyspace("k").expect("keyspace"), written + 1, bytes, &format!("{context}, closed"));
    assert!(db.verify(&mut |_| {}).expect("verify").is_sound());
}

#[test]
fn a_full_device_refuses_writes_clearly_and_they_resume_by_themselves() {
    within(Duration::from_secs(240), "a full device", || {
        for (bytes, durability) in [(1000, Durability::Process), (4000, Durability::Disk)] {
            fill_and_go_on(options(), keyspace_options(), bytes, durability);
        }
        fill_and_go_on(Options::default(), KeyspaceOptions::default(), 3000, Durability::Process);
        let medium = Options { memory_bytes: 16 << 20, ..Options::default() };
        fill_and_go_on(medium, KeyspaceOptions::default(), 30_000, Durability::Process);
    });
}

const SEGMENT: u64 = 1 << 20;

fn merging() -> (Options, KeyspaceOptions) {
    let options = Options {
        memory_bytes: 32 << 20,
        segment_bytes: SEGMENT as usize,
        log_bytes_max: Some(8 * SEGMENT as usize),
        background_threads: 1,
        ..Options::default()
    };
    // Merges only by hand.
    (options, KeyspaceOptions { level0_tables: 100, ..KeyspaceOptions::default() })
}

/// Five tables in level 0, one over another, and their bytes.
fn pile(db: &Db, fs: &MemFs) -> u64 {
    let keyspace = db.keyspace("k", merging().1).expect("keyspace");
    for number in 0..5 * 500 {
        let (key, value) = record(number * 7919 % 2500, 2000);
        keyspace.put(key, value).expect("put");
        if number % 500 == 499 {
            db.flush().expect("flush");
        }
    }
    let tables = fs.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "tbl"));
    tables.map(|path| fs.contents(&path).expect("there").len() as u64).sum()
}

/// Regression: a store that was opened to be compacted made two log segments before it had anything to log, and the
/// result of the merge did not fit beside them.
#[test]
fn a_compaction_needs_room_for_its_result_and_one_segment() {
    let fs = MemFs::new();
    let open = || Db::open_with(Env::with_fs(fs.clone()), STORE, merging().0);
    let db = open().expect("open");
    let bytes = pile(&db, &fs);
    db.close().expect("close");
    fs.set_capacity(Some(fs.used_bytes() + bytes + SEGMENT + SEGMENT / 4));
    let db = open().expect("open");
    db.compact().unwrap_or_else(|error| panic!("{bytes} bytes to merge: {error}"));
    check(&db.open_keyspace("k").expect("keyspace"), 2500, 2000, "merged");
    db.close().expect("close");
}

/// Regression: only flushes got what the log keeps in stock; a merge that would have made room failed beside it.
#[test]
fn a_compaction_by_hand_gets_what_the_log_keeps_in_stock() {
    let fs = MemFs::new();
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, merging().0).expect("open");
    let bytes = pile(&db, &fs);
    fs.set_capacity(Some(fs.used_bytes() + bytes - SEGMENT / 2));
    db.compact().unwrap_or_else(|error| panic!("{bytes} bytes to merge: {error}"));
    check(&db.open_keyspace("k").expect("keyspace"), 2500, 2000, "merged");
    fs.set_capacity(None);
    db.open_keyspace("k").and_then(|keyspace| keyspace.put("after", "1")).expect("put");
    db.close().expect("close");
}
