//! A full device: writes end with a clear error, nothing acknowledged is lost, and writes resume by
//! themselves when there is space again.
//!
//! By hand, on a real file system: `mount -t tmpfs -o size=24m tmpfs DIR`, load data into a store in
//! DIR with the command-line tool until it says that the device is full, check it with `verify`, then
//! `mount -o remount,size=64m DIR` and load again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::within;
use super::workload::{Dice, STORE, keyspace_options, options};
use crate::env::{Env, MemFs};
use crate::error::Error;
use crate::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::sync::Mutex;
use crate::{Db, Keyspace};

const CAPACITY: u64 = 24 << 20;

/// Key and value of a write; the values do not compress.
fn record(number: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut dice = Dice(number);
    let value = (0..bytes.div_ceil(8)).flat_map(|_| dice.next().to_le_bytes()).take(bytes).collect();
    (format!("{number:08}").into_bytes(), value)
}

/// Writes records from `from` until one fails. Returns the number of the one that did.
fn write_until_full(keyspace: &Keyspace, from: u64, bytes: usize, with: WriteOptions) -> (u64, Error) {
    for number in from.. {
        let (key, value) = record(number, bytes);
        if let Err(error) = keyspace.put_with(key, value, with) {
            return (number, error);
        }
        assert!(number < 10 * CAPACITY / bytes as u64, "more is stored than there is room for");
    }
    unreachable!("numbers end later")
}

fn check(keyspace: &Keyspace, records: u64, bytes: usize, context: &str) {
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
            began.elapsed() < Duration::from_secs(20),
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

/// A store on a full device, with everything still open, and how many records it acknowledged.
fn full_store(options: &Options) -> (Arc<MemFs>, Db, u64) {
    let fs = MemFs::new();
    fs.set_capacity(Some(CAPACITY));
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, options.clone()).expect("opens");
    let (k, other) = (db.keyspace("k", KeyspaceOptions::default()), db.keyspace("other", KeyspaceOptions::default()));
    other.expect("makes").put("a", "1").expect("puts");
    let (written, error) = write_until_full(&k.expect("makes"), 0, 4000, WriteOptions::default());
    assert!(error.is_no_space(), "{error}");
    (fs, db, written)
}

fn killing_options() -> Options {
    Options { memory_bytes: 16 << 20, segment_bytes: 1 << 20, ..Options::default() }
}

fn reopen(fs: &Arc<MemFs>) -> crate::error::Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, killing_options())
}

/// A process that is killed on a full device leaves unflushed data, half-written tables, a ballast, and no room for tables
/// of its own. The next open needed that room before it gave anything up, so nobody could drop anything to make some.
#[test]
fn a_store_that_was_killed_on_a_full_device_opens_there_and_can_make_room() {
    let (fs, db, written) = full_store(&killing_options());
    for round in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        let dead = fs.process_crash_clone();
        // As it was, and with the last free byte taken by somebody else.
        dead.set_capacity(Some(if round == 1 { dead.used_bytes() } else { CAPACITY }));
        let opened = reopen(&dead).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let k = opened.open_keyspace("k").expect("is there");
        check(&k, written, 4000, &format!("round {round}"));
        opened.drop_keyspace("k").expect("drops");
        let other = opened.open_keyspace("other").expect("is there");
        let began = Instant::now();
        while let Err(error) = other.put("b", vec![1; 100_000]) {
            assert!(error.is_no_space() && began.elapsed() < Duration::from_secs(10), "round {round}: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop((k, other));
        opened.close().unwrap_or_else(|e| panic!("round {round}: closes: {e}"));
        let again = reopen(&dead).expect("opens again");
        let other = again.open_keyspace("other").expect("is there");
        assert!(other.get("a").expect("gets").is_some() && other.get("b").expect("gets").is_some());
    }
    drop(db);
}

/// What could not be flushed when the store was opened stays in the old log. That log was perhaps in the system's cache
/// only, and from then on nothing of it may be lost: neither when the power goes during the open, nor later.
#[test]
fn a_log_that_is_carried_over_outlives_every_later_power_loss() {
    let (fs, db, written) = full_store(&killing_options());
    let dead = fs.process_crash_clone();
    dead.set_capacity(Some(dead.used_bytes()));
    drop(db);
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (watched, lost) = (Arc::downgrade(&dead), taken.clone());
    dead.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation.writes()) {
            let seed = lost.lock().len() as u64;
            lost.lock().push((fs.process_crash_clone(), fs.crash_clone_random(seed, 0.5)));
        }
    })));
    let opened = reopen(&dead).expect("opens");
    dead.set_hook(None);
    let behind = opened.open_keyspace("k").expect("is there").get(format!("{:08}", written - 1));
    assert!(behind.expect("gets").is_some());
    assert!(opened.stats().flushes == 0 && opened.stats().memtable_bytes > 4 << 20, "it was to be carried over");
    // Acknowledged in the new session as durable: what came before it must be there, too.
    let other = opened.open_keyspace("other").expect("is there");
    other.put_with("b", "2", WriteOptions { durability: Some(Durability::Disk) }).expect("puts");
    let late = dead.crash_clone_random(7, 0.0);
    late.set_capacity(Some(CAPACITY * 2));
    let db = reopen(&late).expect("opens");
    assert!(db.open_keyspace("other").expect("is there").get("b").expect("gets").is_some());
    check(&db.open_keyspace("k").expect("is there"), written, 4000, "after the power loss");
    drop((opened, db));

    let lost = std::mem::take(&mut *taken.lock());
    assert!(lost.len() > 20, "only {} moments", lost.len());
    for (number, (killed, powerless)) in lost.iter().enumerate().filter(|(n, _)| n % 3 == 0) {
        killed.set_capacity(Some(CAPACITY));
        let db = reopen(killed).unwrap_or_else(|e| panic!("killed at call {number}: {e}"));
        check(&db.open_keyspace("k").expect("is there"), written, 4000, &format!("killed at call {number}"));
        powerless.set_capacity(Some(CAPACITY * 2));
        let db = reopen(powerless).unwrap_or_else(|e| panic!("powerless at call {number}: {e}"));
        let k = db.open_keyspace("k").expect("is there");
        let count = k.iter().expect("scans").count() as u64;
        check(&k, count, 4000, &format!("power lost at call {number}"));
    }
}

/// Where nothing helps, the error says how much is missing; and the store can be read.
#[test]
fn a_store_that_finds_no_room_at_all_says_how_much_it_needs() {
    let fs = MemFs::new();
    let db = reopen(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    let dead = fs.process_crash_clone();
    dead.set_capacity(Some(dead.used_bytes() - 1));
    match reopen(&dead) {
        Err(Error::NoSpace { shortage: Some(shortage), .. }) => {
            assert!(shortage.needed >= 1 << 20 && shortage.free == Some(0), "{shortage:?}");
        }
        other => panic!("{other:?}"),
    }
    let readable = Db::open_with(Env::with_fs(dead.clone()), STORE, Options { read_only: true, ..killing_options() });
    let k = readable.expect("opens").open_keyspace("k").expect("is there");
    assert!(k.get("a").expect("gets").is_some());
    dead.set_capacity(None);
    assert!(reopen(&dead).is_ok(), "what was tried did no harm");
    drop(db);
}
