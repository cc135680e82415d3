//! Every call of the file system fails once: the store says so clearly or goes on, never panics,
//! never hangs, and what it acknowledged is there afterwards.
//!
//! The light form fails a sample of the calls; `DRUMLIN_FAULT_ROUNDS` (`cargo x soak faults`) makes it
//! every call, in every way, with so many seeds.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::recovery::{Crash, Expected, Remains, judge};
use super::workload::{STORE, Scale, Writer, keyspace_options, open, options, oracle};
use super::{rounds, within};
use crate::Db;
use crate::db::open::{LOG_DIRECTORY, scan_options};
use crate::dice::Dice;
use crate::env::{Env, Fault, FaultyFs, FileSystem, MemFs, Operation};
use crate::error::Error;
use crate::log;
use crate::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::sync::failpoint;
use crate::version::Manifest;

const DISK: WriteOptions = WriteOptions { durability: Some(Durability::Disk) };

/// The ways to fail.
const FAULTS: [Fault; 4] =
    [Fault::Error(ErrorKind::Other), Fault::NoSpace, Fault::ShortWrite, Fault::ErrorAfter(ErrorKind::Other)];

/// Runs the workload with the n-th call failing, up to the first error, and judges what is there.
/// False if the workload has no such call.
fn fail_once(seed: u64, number: u64, fault: Fault) -> bool {
    let (inner, oracle) = (MemFs::new(), oracle());
    let faulty = FaultyFs::new(inner.clone());
    faulty.fail_at(number, fault);
    let mut writer = Writer::new(faulty.clone(), oracle.clone(), seed);
    let context = format!("seed {seed}, call {number} failing with {fault:?}");
    let outcome = writer.work(Scale::Small);
    if let Err(error) = &outcome {
        assert!(faulty.injected() > 0, "{context}: {error}, though nothing failed");
        let is_clear = match (error, fault) {
            (Error::NoSpace { .. }, Fault::NoSpace) | (Error::Io { .. }, _) => true,
            (Error::Poisoned { why }, _) => why.len() > 20,
            _ => false,
        };
        assert!(is_clear, "{context}: {error:?}");
        // Whatever state it is in, it answers.
        writer.prod();
    }
    let (acked, durable, most) = {
        let told = oracle.lock();
        (told.acked, told.durable, told.states.len() - 1)
    };
    let lost = inner.crash_clone_random(0, 0.0);
    drop(writer);
    // A process that goes on, one that is killed, and a machine that is switched off.
    let remains = |fs, crash, least| Remains {
        fs,
        crash,
        expected: Expected::Prefix(oracle.clone(), least, most),
        durable,
        place: context.clone(),
    };
    // The failed sync of a mapped file was no sync, but the handle said later that it was.
    judge(&remains(lost, Crash::Power { keep: 0.0, seed: 0 }, durable), 0, number);
    judge(&remains(inner, Crash::Process, acked), 0, number.wrapping_mul(3));
    faulty.calls() > number
}

#[test]
fn every_call_may_fail_once_and_nothing_is_lost() {
    let limit = Duration::from_secs(120);
    match rounds("DRUMLIN_FAULT_ROUNDS") {
        Some(rounds) => {
            for seed in 1..=rounds {
                let mut number = 0;
                while within(limit, &format!("seed {seed}, failing call {number}"), || {
                    FAULTS.iter().all(|fault| fail_once(seed, number, *fault))
                }) {
                    number += 1;
                }
                println!("seed {seed}: {number} calls");
            }
        }
        None => {
            let mut dice = Dice(7);
            // The first calls make the store; each of them counts.
            let numbers = (0..60).chain((0..60).map(|_| 60 + dice.below(1150))).collect::<Vec<_>>();
            for number in numbers {
                let fault = dice.pick(&FAULTS);
                within(limit, &format!("failing call {number} with {fault:?}"), || {
                    fail_once(1, number, fault)
                });
            }
        }
    }
}

#[test]
fn a_failed_sync_of_the_log_is_final_until_the_store_is_opened_again() {
    let inner = MemFs::new();
    let faulty = FaultyFs::new(inner.clone());
    let fs: Arc<dyn FileSystem> = faulty.clone();
    let db = open(&fs).expect("open");
    let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
    keyspace.put_with("before", "1", DISK).expect("put");
    let fails = faulty.calls();
    faulty.fail_when(move |call| {
        (call.operation == Operation::SyncRegion && call.number >= fails)
            .then_some(Fault::Error(ErrorKind::Other))
    });
    let first = keyspace.put_with("unsure", "2", DISK).expect_err("the sync fails");
    assert!(matches!(first, Error::Poisoned { .. }), "{first:?}");
    faulty.clear();
    for attempt in 0..3 {
        let later = keyspace.put_with("later", "3", DISK).expect_err("no later sync can mend it");
        assert!(matches!(later, Error::Poisoned { .. }), "attempt {attempt}: {later:?}");
        assert!(keyspace.put("later", "3").is_err(), "nor is anything else accepted");
    }
    assert!(matches!(db.flush(), Err(Error::Poisoned { .. }) | Ok(())), "it does not wait for ever");
    assert_eq!(keyspace.get("before").expect("reads go on").as_deref(), Some(&b"1"[..]));
    drop((keyspace, db));
    let db = open(&fs).expect("it opens again");
    let keyspace = db.open_keyspace("a").expect("keyspace");
    assert_eq!(keyspace.get("before").expect("get").as_deref(), Some(&b"1"[..]));
    assert!(keyspace.get("later").expect("get").is_none(), "a refused write has no effect");
    keyspace.put_with("after", "4", DISK).expect("and is written again");
}

/// Regression: any failed append to the manifest poisoned the store, though the manifest had taken
/// the edit back; and the tables of the failed flush stayed.
#[test]
fn a_manifest_that_cannot_be_written_for_a_while_stops_nothing() {
    let inner = MemFs::new();
    let faulty = FaultyFs::new(inner.clone());
    let fs: Arc<dyn FileSystem> = faulty.clone();
    let db = open(&fs).expect("open");
    // Without compactions, whose inputs go when their last reader does.
    let quiet = || KeyspaceOptions { level0_tables: 100, ..keyspace_options() };
    let keyspace = db.keyspace("a", quiet()).expect("keyspace");
    keyspace.put("k", "v").expect("put");
    faulty.fail_when(|call| {
        let manifest = call.path.to_string_lossy().contains("MANIFEST");
        (manifest && call.operation == Operation::Append).then_some(Fault::NoSpace)
    });
    let refused = db.flush().expect_err("the manifest cannot say so");
    assert!(refused.is_no_space(), "{refused:?}");
    assert!(db.keyspace("b", quiet()).expect_err("nor this").is_no_space());
    assert!(db.drop_keyspace("a").expect_err("nor this").is_no_space());
    keyspace.put("k", "w").expect("writes go on");
    faulty.clear();
    within(Duration::from_secs(30), "a flush after the failure", || {
        // What failed in the background before may still be reported once.
        if db.flush().is_err() {
            db.flush().expect("flush");
        }
    });
    db.keyspace("b", quiet()).expect("keyspaces are made again");
    assert_eq!(keyspace.get("k").expect("get").as_deref(), Some(&b"w"[..]));
    let named = db.verify(&mut |_| {}).expect("verify").files;
    let tables = inner.files().iter().filter(|f| f.extension().is_some_and(|e| e == "tbl")).count();
    assert_eq!(tables, named, "nothing is left of the failed flushes");
}

/// Regression: a store opened without the path of one of its levels took its tables for orphans.
#[test]
fn a_level_path_that_changed_costs_no_table() {
    let fs = MemFs::new();
    let env = || Env::with_fs(fs.clone());
    let with = Options { level_paths: BTreeMap::from([(0, "/cold".into())]), ..options() };
    fs.set_contents("/cold/notes.tmp", b"a user's").expect("a file of somebody else");
    let db = Db::open_with(env(), STORE, with.clone()).expect("open");
    let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
    keyspace.put("k", "v").expect("put");
    db.flush().expect("flush");
    drop(keyspace);
    db.close().expect("close");
    // The user turns to another directory for level 0, and the one before for level 3.
    let other =
        Options { level_paths: BTreeMap::from([(0, "/warm".into()), (3, "/cold".into())]), ..options() };
    let why = Db::open_with(env(), STORE, other).expect_err("its table is not there");
    assert!(matches!(&why, Error::InvalidArgument { .. }), "{why:?}");
    assert!(why.to_string().contains("/warm has none of the 1 tables"), "{why}");
    assert!(
        !fs.exists(Path::new("/warm")).expect("exists"),
        "nothing is made of a directory that is missing"
    );
    // Or forgets of it.
    let db = Db::open_with(env(), STORE, options()).expect("open");
    let missing = db.open_keyspace("a").expect("keyspace").get("k").expect_err("its table is not there");
    assert!(missing.is_corruption() && missing.to_string().contains("level_paths"), "{missing}");
    drop(db);
    let db = Db::open_with(env(), STORE, with).expect("open");
    let value = db.open_keyspace("a").expect("keyspace").get("k").expect("get");
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    assert!(fs.exists(Path::new("/cold/notes.tmp")).expect("exists"), "files of others are left alone");
}

/// Regression: a store whose last handle goes with its thread's values was closed by a panic in a
/// destructor, which ends the process.
#[test]
fn a_store_that_ends_with_its_thread_is_closed_cleanly() {
    thread_local!(static LAST: std::cell::RefCell<Option<Db>> = const { std::cell::RefCell::new(None) });
    let fs: Arc<dyn FileSystem> = MemFs::new();
    let of_thread = fs.clone();
    let ended = std::thread::spawn(move || {
        // Dropped after what the thread needs to write: that is made later.
        LAST.set(None);
        let db = open(&of_thread).expect("open");
        let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
        keyspace.put("k", "v").expect("put");
        drop(keyspace);
        LAST.set(Some(db));
    });
    ended.join().expect("no panic");
    let (identity, state, _) = Manifest::load(&*fs, Path::new(STORE)).expect("load");
    let options = scan_options(&identity, &state);
    let log = log::scan(&fs, &Path::new(STORE).join(LOG_DIRECTORY), options).expect("scan");
    assert!(log.clean, "{log:?}");
}

/// What the test below shows now and then, shown each time.
#[test]
fn close_waits_for_a_write_that_is_beyond_its_look_at_the_mark() {
    const NAME: &str = "overtaken by close";
    let fs: Arc<dyn FileSystem> = MemFs::new();
    let db = open(&fs).expect("open");
    let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
    let (frozen, is_frozen) = mpsc::channel();
    let (thaw, thawed) = mpsc::channel::<()>();
    let thawed = std::sync::Mutex::new(thawed);
    failpoint::set("write::checked", move || {
        if std::thread::current().name() == Some(NAME) {
            let _ = frozen.send(());
            let _ = thawed.lock().expect("one thread").recv_timeout(Duration::from_secs(60));
        }
    });
    let writer = std::thread::Builder::new().name(NAME.into());
    let writer = writer.spawn(move || keyspace.put("k", "v")).expect("spawns");
    is_frozen.recv_timeout(Duration::from_secs(20)).expect("the put passes its look");
    let (closed, is_closed) = mpsc::channel();
    let closer = std::thread::spawn(move || closed.send(db.close()));
    assert!(is_closed.recv_timeout(Duration::from_millis(300)).is_err(), "the write is under way");
    drop(thaw);
    let put = writer.join().expect("no panic");
    failpoint::clear("write::checked");
    is_closed.recv_timeout(Duration::from_secs(20)).expect("close goes on").expect("close");
    closer.join().expect("no panic").expect("received");
    let db = open(&fs).expect("open again");
    let found = db.open_keyspace("a").expect("keyspace").get("k").expect("get");
    assert!(put.is_ok() && found.as_deref() == Some(b"v"), "{put:?}");
}

/// Regression: a write that was under way while another handle closed the store could go behind the
/// close record, into pages that the close cuts off: acknowledged, and gone.
#[test]
fn a_write_that_close_overtakes_is_refused_or_there() {
    for round in 0..150u64 {
        let fs: Arc<dyn FileSystem> = MemFs::new();
        let db = open(&fs).expect("open");
        let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
        let acked: Vec<u64> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let keyspace = keyspace.clone();
                    scope.spawn(move || {
                        let mut number = 0;
                        while keyspace.put(format!("{writer}/{number}"), [7; 100]).is_ok() {
                            number += 1;
                        }
                        number
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(round * 7 % 900));
            db.close().expect("close");
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
        });
        drop(keyspace);
        let db = open(&fs).expect("open again");
        let keyspace = db.open_keyspace("a").expect("keyspace");
        for (writer, acked) in acked.into_iter().enumerate() {
            for number in 0..acked {
                let key = format!("{writer}/{number}");
                assert!(keyspace.get(&key).expect("get").is_some(), "round {round}: {key} of {acked}");
            }
        }
    }
}
