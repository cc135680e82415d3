//! Keyspaces come and go while others write, flush and read.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod freezer;
    pub mod waits;
}

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use drumlin::env::{Env, FileSystem, MemFs};
use drumlin::failpoint;
use drumlin::{Cas, Db, Error, Keyspace, KeyspaceOptions, Options};
use support::freezer::Frozen;
use support::waits::{note_waits, waits};

fn open(fs: &std::sync::Arc<MemFs>) -> Db {
    let options = Options { memory_bytes: 8 << 20, ..Options::default() };
    Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("open")
}

/// Regression: the flush waited for a memtable that nobody writes any more, and filled the log meanwhile.
#[test]
fn a_flush_ends_when_its_keyspace_is_dropped() {
    let db = open(&MemFs::new());
    let (doomed, other) = (
        db.keyspace("doomed", Default::default()).unwrap(),
        db.keyspace("other", Default::default()).unwrap(),
    );
    doomed.put("k", "v").unwrap();

    note_waits();
    // A write in flight keeps the flush from beginning.
    let (frozen, is_frozen) = mpsc::channel();
    let (thaw, thawed) = mpsc::channel::<()>();
    let thawed = std::sync::Mutex::new(thawed);
    failpoint::set("write::drawn", move || {
        if std::thread::current().name() == Some("frozen for the flush") {
            let _ = frozen.send(());
            let _ = thawed.lock().unwrap().recv_timeout(Duration::from_secs(60));
        }
    });
    let writer = std::thread::Builder::new()
        .name("frozen for the flush".into())
        .spawn(move || other.put("k", "v"))
        .unwrap();
    is_frozen.recv_timeout(Duration::from_secs(20)).expect("the put draws its LSN");

    let (done, flushed) = mpsc::channel();
    let flushing = db.clone();
    std::thread::spawn(move || done.send(flushing.flush()));
    assert!(flushed.recv_timeout(Duration::from_millis(200)).is_err(), "it waits for the write in flight");
    // The drop makes the log durable first, so it waits for the write in flight too.
    let dropping = db.clone();
    let dropper = std::thread::spawn(move || dropping.drop_keyspace("doomed"));
    assert!(waits(&dropper), "for the write in flight");
    drop(thaw);
    writer.join().unwrap().unwrap();
    dropper.join().unwrap().unwrap();
    failpoint::clear("write::drawn");
    flushed.recv_timeout(Duration::from_secs(20)).expect("the flush ends").expect("and well");
    assert!(matches!(doomed.get("k"), Err(Error::Closed { .. })));
    db.close().unwrap();
}

/// Regression: the manifest was synced under the lock of the keyspaces, and whoever opens log segments takes that.
#[test]
fn making_a_keyspace_on_a_slow_device_stops_no_writer() {
    let options = Options { memory_bytes: 8 << 20, segment_bytes: 64 << 10, ..Options::default() };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("open");
    let keyspace = db.keyspace("k", Default::default()).unwrap();
    let (slow, is_slow) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = std::sync::Mutex::new(goes_on);
    failpoint::set("manifest::append", move || {
        if std::thread::current().name() == Some("maker") {
            let _ = slow.send(());
            let _ = goes_on.lock().unwrap().recv_timeout(Duration::from_secs(60));
        }
    });
    let making = db.clone();
    let maker = std::thread::Builder::new()
        .name("maker".into())
        .spawn(move || making.keyspace("new", Default::default()).map(|_| ()))
        .unwrap();
    is_slow.recv_timeout(Duration::from_secs(20)).expect("the manifest is changed");
    let (done, written) = mpsc::channel();
    let writer = keyspace.clone();
    // Sixteen segments, but no memtable is full.
    std::thread::spawn(move || {
        done.send((0..1000).try_for_each(|n| writer.put(format!("k{n}"), vec![7; 1000])))
    });
    written.recv_timeout(Duration::from_secs(20)).expect("puts pass segments").expect("and are done");
    assert_eq!(db.keyspaces(), ["k"], "it is not made yet");
    drop(go_on);
    maker.join().unwrap().unwrap();
    failpoint::clear("manifest::append");
    assert_eq!(db.keyspaces(), ["k", "new"]);
    db.close().unwrap();
}

#[test]
fn a_dropped_keyspace_of_the_same_name_begins_empty_now_and_after_reopening() {
    let fs = MemFs::new();
    let db = open(&fs);
    for round in 0..6 {
        let keyspace = db.keyspace("k", Default::default()).unwrap();
        assert_eq!(keyspace.iter().unwrap().count(), 0, "round {round}");
        for i in 0..500 {
            keyspace.put(format!("{round}-{i}"), vec![7; 100]).unwrap();
        }
        if round % 2 == 1 {
            db.flush().unwrap();
        }
        db.drop_keyspace("k").unwrap();
        assert!(matches!(keyspace.put("a", "b"), Err(Error::Closed { .. })));
    }
    let last = db.keyspace("k", Default::default()).unwrap();
    last.put("only", "this").unwrap();
    drop((db, last));
    for fs in [fs.process_crash_clone(), fs] {
        let db = open(&fs);
        let keyspace = db.keyspace("k", Default::default()).unwrap();
        let all: Vec<_> = keyspace.iter().unwrap().map(|r| r.unwrap().0).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(keyspace.get("only").unwrap().as_deref(), Some(&b"this"[..]));
        db.close().unwrap();
    }
}

/// A counter that holds five, and a key that holds `old`, in a keyspace of its own.
fn five() -> (Db, Keyspace) {
    let db = open(&MemFs::new());
    let keyspace = db.keyspace("doomed", KeyspaceOptions::default()).unwrap();
    keyspace.fetch_add("counter", 5).unwrap();
    keyspace.put("key", "old").unwrap();
    (db, keyspace)
}

/// Regression: what had been let in looked the key up in the keyspace that the drop had emptied: the counter was told to
/// stand at one, and the key to be absent.
#[test]
fn an_update_that_a_drop_overtakes_before_it_looks_hears_closed() {
    let (db, keyspace) = five();
    let k = keyspace.clone();
    let add = Frozen::at("update::admitted", "a fetch_add", move || k.fetch_add("counter", 1));
    let k = keyspace.clone();
    let put = Frozen::at("update::admitted", "a put_if_absent", move || k.put_if_absent("key", "new"));
    let k = keyspace.clone();
    let swap = Frozen::at("update::admitted", "a compare_and_swap", move || {
        k.compare_and_swap("key", Some(b"old"), Some(b"new"))
    });
    db.drop_keyspace("doomed").unwrap();
    let (add, put, swap) = (add.thaw(), put.thaw(), swap.thaw());
    assert!(matches!(add, Err(Error::Closed { .. })), "{add:?}");
    assert!(matches!(put, Err(Error::Closed { .. })), "{put:?}");
    assert!(matches!(swap, Err(Error::Closed { .. })), "{swap:?}");
    db.close().unwrap();
}

/// Regression: the version that came between was gone with the drop, so two additions gave the same sum, and two swaps
/// found the same value.
#[test]
fn an_update_that_a_drop_overtakes_after_it_looked_hears_closed() {
    let (db, keyspace) = five();
    let k = keyspace.clone();
    let add = Frozen::at("update::decided", "a fetch_add", move || k.fetch_add("counter", 1));
    let k = keyspace.clone();
    let swap = Frozen::at("update::decided", "a compare_and_swap", move || {
        k.compare_and_swap("key", Some(b"old"), Some(b"new"))
    });
    assert_eq!(keyspace.fetch_add("counter", 1).unwrap(), 6);
    assert_eq!(keyspace.compare_and_swap("key", Some(b"old"), None).unwrap(), Cas::Swapped);
    db.drop_keyspace("doomed").unwrap();
    let (add, swap) = (add.thaw(), swap.thaw());
    assert!(matches!(add, Err(Error::Closed { .. })), "{add:?}");
    assert!(matches!(swap, Err(Error::Closed { .. })), "{swap:?}");
    db.close().unwrap();
}

#[test]
fn keyspaces_come_and_go_while_others_write_and_flush() {
    let db = open(&MemFs::new());
    let steady = db.keyspace("steady", Default::default()).unwrap();
    std::thread::scope(|s| {
        for thread in 0..3 {
            let (db, steady) = (&db, &steady);
            s.spawn(move || {
                for round in 0..40 {
                    let name = format!("{thread}-{}", round % 3);
                    let own = db.keyspace(&name, Default::default()).unwrap();
                    for i in 0..200u32 {
                        own.put(i.to_be_bytes(), vec![thread; 300]).unwrap();
                        steady.put((i * 3 + u32::from(thread)).to_be_bytes(), vec![round; 300]).unwrap();
                    }
                    if round % 5 == 0 {
                        match db.flush() {
                            Ok(()) | Err(Error::Closed { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    assert_eq!(own.iter().unwrap().count(), 200);
                    db.drop_keyspace(&name).unwrap();
                }
            });
        }
    });
    assert_eq!(db.keyspaces(), ["steady"]);
    assert_eq!(steady.iter().unwrap().count(), 600);
    db.close().unwrap();
}

/// A store whose keyspace has two tables at level 0: one of the keys a…, one of the keys b…; and their paths, in this order.
fn two_tables(fs: &std::sync::Arc<MemFs>) -> (Keyspace, Vec<std::path::PathBuf>) {
    let db = open(fs);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for first in ["a", "b"] {
        for number in 0..2_000u64 {
            // Does not compress: eight bytes spread over each value.
            let value: Vec<u8> = (0..16u64).flat_map(|n| mix(number * 16 + n).to_le_bytes()).collect();
            keyspace.put(format!("{first}{number:04}"), value).unwrap();
        }
        db.flush().unwrap();
    }
    let mut tables: Vec<_> = fs.list(Path::new("/store")).unwrap().into_iter().map(|e| e.name).collect();
    tables.retain(|name| name.ends_with(".tbl"));
    tables.sort();
    assert_eq!(tables.len(), 2, "{tables:?}");
    (keyspace, tables.into_iter().map(|name| Path::new("/store").join(name)).collect())
}

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

#[test]
fn a_snapshot_refuses_a_keyspace_of_another_store() {
    let (one, other) = (open(&MemFs::new()), open(&MemFs::new()));
    let (own, stranger) =
        (one.keyspace("k", Default::default()).unwrap(), other.keyspace("k", Default::default()).unwrap());
    stranger.put("a", "1").unwrap();
    let snapshot = one.snapshot().unwrap();
    assert_eq!(snapshot.get(&own, "a").unwrap(), None);
    let refused =
        |error: Option<Error>| assert!(matches!(error, Some(Error::InvalidArgument(_))), "{error:?}");
    refused(snapshot.get(&stranger, "a").err());
    refused(snapshot.range(&stranger, "a"..).err());
    refused(snapshot.prefix(&stranger, "a").err());
    refused(snapshot.iter(&stranger).err());
}

#[test]
fn a_scan_leaves_tables_outside_its_range_alone() {
    let fs = MemFs::new();
    let (keyspace, tables) = two_tables(&fs);
    fs.remove(&tables[1]).unwrap();
    let count = |records: &mut dyn Iterator<Item = drumlin::Result<_>>| {
        records.inspect(|record| assert!(record.is_ok(), "{record:?}")).count()
    };
    assert_eq!(count(&mut keyspace.prefix("a").unwrap()), 2_000);
    assert_eq!(count(&mut keyspace.range(.."b").unwrap().rev()), 2_000);
    assert!(
        keyspace.iter().unwrap().any(|record| record.is_err()),
        "the other table is missed where it is needed"
    );
}
