//! The wrong ways of writing that the commit protocol rules out, each as the shortest interleaving that
//! shows it: one thread is stopped at a pause point, another does what must not slip through, and the
//! first goes on. docs/papers/clsm.md lists the variants; `planted/` has each as a bug.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod freezer;
    pub mod waits;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drumlin::env::{Env, MemFs};
use drumlin::{Cas, Db, Keyspace, KeyspaceOptions, Memory, Options};
use support::freezer::{Frozen, PATIENCE, spawn};
use support::waits::{note_waits, wait_for_waiting, waits, with_threads_named};

fn options() -> Options {
    Options { memory_bytes: 64 << 20, segment_bytes: 64 << 10, ..Options::default() }
}

fn reopen(fs: &Arc<MemFs>) -> (Db, Keyspace) {
    open_in(Env::with_fs(fs.clone()))
}

fn open_in(env: Env) -> (Db, Keyspace) {
    open_with(env, KeyspaceOptions::default())
}

fn open_with(env: Env, options_of_keyspace: KeyspaceOptions) -> (Db, Keyspace) {
    let db = Db::open_with(env, "/store", options()).expect("open");
    let small = KeyspaceOptions { memtable_bytes: Some(64 << 10), ..options_of_keyspace };
    let keyspace = db.keyspace("k", small).expect("keyspace");
    (db, keyspace)
}

fn open() -> (Db, Keyspace) {
    reopen(&MemFs::new())
}

#[track_caller]
fn holds(keyspace: &Keyspace, key: &str, value: &str) {
    let found = keyspace.get(key).expect("get");
    assert_eq!(found.as_deref().map(String::from_utf8_lossy).as_deref(), Some(value), "{key}");
}

/// Puts of other keys until the keyspace has a frozen memtable more.
fn turn(db: &Db, keyspace: &Keyspace) {
    let frozen =
        || db.stats().keyspaces.iter().find(|k| k.name == "k").expect("it is there").frozen_memtables;
    let before = frozen();
    for i in 0.. {
        keyspace.put(format!("filler {i}"), [7; 1000]).expect("put");
        if frozen() > before {
            break;
        }
        assert!(i < 10_000, "the keyspace turns");
    }
    // One goes beyond the border.
    for i in 0..100 {
        keyspace.put(format!("more {i}"), [7; 1000]).expect("put");
    }
}

/// Waits until `condition`.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// D1a, D3: a put of a batch's key that slips in between the batch's LSN and its effect makes one of
/// the batch's keys new and the other old for ever.
#[test]
fn a_put_waits_for_a_batch_of_its_key_until_that_has_taken_effect() {
    note_waits();
    for point in ["batch::locked", "write::drawn", "write::logged", "batch::part", "write::published"] {
        let (db, keyspace) = open();
        keyspace.put("x", "old").expect("put");
        keyspace.put("y", "old").expect("put");
        let batch = {
            let (db, keyspace) = (db.clone(), keyspace.clone());
            Frozen::at(point, "batch D1a", move || {
                let mut batch = db.batch();
                batch.put(&keyspace, "x", "batch")?;
                batch.put(&keyspace, "y", "batch")?;
                batch.commit()
            })
        };
        let put = {
            let keyspace = keyspace.clone();
            spawn("put", move || keyspace.put("x", "put"))
        };
        assert!(waits(&put), "{point}: the batch holds the key");
        holds(&keyspace, "x", "old");
        holds(&keyspace, "y", "old");
        batch.thaw().expect("the batch commits");
        put.join().expect("no panic").expect("put");
        holds(&keyspace, "x", "put");
        holds(&keyspace, "y", "batch");
    }
}

/// D1b: half a batch.
#[test]
fn no_part_of_a_batch_shows_before_all_do() {
    for point in ["batch::part", "write::published"] {
        let (db, keyspace) = open();
        keyspace.put("x", "old").expect("put");
        keyspace.put("y", "old").expect("put");
        // Where versions are displaced, a recent snapshot that waits for nobody is that of another one.
        let _waited_for = db.snapshot().expect("snapshot");
        let batch = {
            let (db, keyspace) = (db.clone(), keyspace.clone());
            Frozen::at(point, "batch D1b", move || {
                let mut batch = db.batch();
                batch.put(&keyspace, "x", "batch")?;
                batch.delete_range(&keyspace, "y", "z")?;
                batch.put(&keyspace, "y2", "batch")?;
                batch.commit()
            })
        };
        holds(&keyspace, "x", "old");
        holds(&keyspace, "y", "old");
        assert!(keyspace.get("y2").expect("get").is_none());
        let recent = db.snapshot_recent().expect("snapshot");
        let seen: Vec<_> = recent.iter(&keyspace).expect("scan").map(|r| r.expect("record").1).collect();
        assert!(seen.len() == 2 && seen.iter().all(|v| v == "old"), "{point}");
        batch.thaw().expect("the batch commits");
        holds(&keyspace, "x", "batch");
        holds(&keyspace, "y2", "batch");
        assert!(keyspace.get("y").expect("get").is_none());
        assert_eq!(recent.iter(&keyspace).expect("scan").count(), 2, "{point}: a snapshot stays");
    }
}

/// D4, D5 (cLSM's Algorithm 3): a put draws, an update reads the version before it and installs above
/// it, the put lands below: it is lost.
#[test]
fn an_update_waits_for_a_put_of_its_key_in_flight() {
    note_waits();
    for point in ["write::announced", "write::drawn", "write::logged", "write::gated"] {
        let (_db, keyspace) = open();
        keyspace.put("x", "old").expect("put");
        let put = {
            let keyspace = keyspace.clone();
            Frozen::at(point, "put D4", move || keyspace.put("x", "put"))
        };
        let update = {
            let keyspace = keyspace.clone();
            spawn("update", move || keyspace.update("x", |v| Some([v.unwrap_or_default(), b"+u"].concat())))
        };
        assert!(waits(&update), "{point}: the put holds the key");
        put.thaw().expect("put");
        update.join().expect("no panic").expect("update");
        holds(&keyspace, "x", "put+u");
    }
}

/// An update of "x" that has read and decided, and not yet locked.
fn decided(keyspace: &Keyspace, name: &str) -> Frozen<drumlin::Result<Option<drumlin::Slice>>> {
    let keyspace = keyspace.clone();
    Frozen::at("update::decided", name, move || {
        keyspace.update("x", |v| Some([v.unwrap_or_default(), b"+u"].concat()))
    })
}

/// F9, F10: an update that does not look again under the lock loses what came after its read.
#[test]
fn an_update_notices_a_put_between_its_read_and_its_lock() {
    let (_db, keyspace) = open();
    keyspace.put("x", "old").expect("put");
    let update = decided(&keyspace, "update F9");
    keyspace.put("x", "put").expect("put");
    update.thaw().expect("update");
    holds(&keyspace, "x", "put+u");
}

/// E2, E3: the put is in the generation before the one in which the update installs.
#[test]
fn an_update_notices_a_put_in_an_older_generation() {
    let (db, keyspace) = open();
    keyspace.put("x", "old").expect("put");
    let other = db.keyspace("other", Default::default()).expect("keyspace");
    // Holds every flush up, so that what turns stays in memory.
    let in_flight = Frozen::at("write::logged", "put E3", move || other.put("z", "z"));
    let update = decided(&keyspace, "update E3");
    keyspace.put("x", "put").expect("put");
    turn(&db, &keyspace);
    update.thaw().expect("update");
    holds(&keyspace, "x", "put+u");
    in_flight.thaw().expect("put");
}

/// The put left memory between the update's read and its lock: nothing in memory tells of it.
#[test]
fn an_update_notices_a_put_that_was_flushed_meanwhile() {
    let (db, keyspace) = open();
    keyspace.put("x", "old").expect("put");
    let update = decided(&keyspace, "update flushed");
    keyspace.put("x", "put").expect("put");
    db.flush().expect("flush");
    update.thaw().expect("update");
    holds(&keyspace, "x", "put+u");
}

/// Regression: each attempt that was overtaken left a copy of its value in memory.
#[test]
fn an_attempt_that_was_overtaken_leaves_no_large_value_in_memory() {
    let (db, keyspace) = open();
    keyspace.put("x", "old").expect("put");
    let before = db.stats().memtable_bytes;
    let mut attempts = 0;
    let update = keyspace.update("x", |_| {
        attempts += 1;
        if attempts < 20 {
            keyspace.put("x", "other").expect("put");
        }
        Some(vec![7; 64 << 10])
    });
    assert_eq!(update.expect("update").expect("a value").len(), 64 << 10);
    let grown = db.stats().memtable_bytes - before;
    assert!(attempts == 20 && grown < 4 * (64 << 10), "{grown} bytes in {attempts} attempts");
}

/// D9: an attempt that fails must not be in the log as if it had not.
#[test]
fn a_failed_attempt_leaves_nothing_for_recovery() {
    let fs = MemFs::new();
    let (_db, keyspace) = reopen(&fs);
    keyspace.put("x", "old").expect("put");
    let swap = {
        let keyspace = keyspace.clone();
        Frozen::at("update::decided", "swap D9", move || {
            keyspace.compare_and_swap("x", Some(b"old"), Some(b"swapped"))
        })
    };
    keyspace.put("x", "put").expect("put");
    assert!(matches!(swap.thaw().expect("swap"), Cas::Mismatch { .. }));
    holds(&keyspace, "x", "put");
    let (_recovered, keyspace) = reopen(&fs.process_crash_clone());
    holds(&keyspace, "x", "put");
}

/// I1, I7: what a reader has seen was whole in the log: it is there after a crash of the process.
#[test]
fn whatever_was_seen_survives_a_crash_of_the_process() {
    for point in ["write::gated", "write::published"] {
        let fs = MemFs::new();
        let (_db, keyspace) = reopen(&fs);
        keyspace.put("x", "old").expect("put");
        let put = {
            let keyspace = keyspace.clone();
            Frozen::at(point, "put I1", move || keyspace.put("x", "put"))
        };
        let seen = String::from_utf8_lossy(&keyspace.get("x").expect("get").expect("present")).into_owned();
        assert_eq!(seen, if point == "write::published" { "put" } else { "old" });
        let crashed = fs.process_crash_clone();
        put.thaw().expect("put");
        let (_recovered, keyspace) = reopen(&crashed);
        // Complete in the log before it shows, it may survive unseen.
        holds(&keyspace, "x", "put");
    }
}

/// E4, E9: a put that chose its memtable before its LSN lands in one that was flushed meanwhile.
#[test]
fn a_put_goes_to_the_generation_of_its_lsn() {
    let (db, keyspace) = open();
    keyspace.put("x", "old").expect("put");
    let put = {
        let keyspace = keyspace.clone();
        Frozen::at("write::reserved", "put E9", move || keyspace.put("x", "put"))
    };
    db.flush().expect("flush");
    put.thaw().expect("put");
    holds(&keyspace, "x", "put");
    db.flush().expect("flush");
    holds(&keyspace, "x", "put");
}

/// C1: a flush that read the snapshot list before it waited for the writes in flight does not know the
/// snapshots that came while it waited, and drops what they see.
#[test]
fn a_flush_keeps_what_a_snapshot_needs_that_came_while_it_waited() {
    note_waits();
    // Sorted: where versions are displaced, a snapshot at the completed prefix is not to be had (B1).
    let sorted = KeyspaceOptions { memory: Memory::Sorted, ..KeyspaceOptions::default() };
    let (db, keyspace) = open_with(with_threads_named("C1", Env::with_fs(MemFs::new())), sorted);
    keyspace.put("x", "old").expect("put");
    let in_flight = {
        let keyspace = keyspace.clone();
        Frozen::at("write::logged", "put C1", move || keyspace.put("z", "z"))
    };
    keyspace.put("x", "new").expect("put");
    let flush = {
        let db = db.clone();
        spawn("flush", move || db.flush())
    };
    wait_for_waiting("C1 drumlin-bg-");
    let snapshot = db.snapshot_recent().expect("snapshot");
    assert_eq!(snapshot.get(&keyspace, "x").expect("get").as_deref(), Some(&b"old"[..]));
    in_flight.thaw().expect("put");
    flush.join().expect("no panic").expect("flush");
    db.compact().expect("compact");
    assert_eq!(snapshot.get(&keyspace, "x").expect("get").as_deref(), Some(&b"old"[..]), "I4");
    holds(&keyspace, "x", "new");
}

/// I3: whoever reads while a flush or a merge moves a key finds it, from whichever side it comes, and
/// never an older version than it could have found before.
#[test]
fn no_key_is_missed_while_it_moves() {
    let (db, keyspace) = open();
    let written = AtomicU32::new(0);
    let write = |round: u32| {
        for i in 0..50 {
            keyspace.put(format!("key {i:02}"), round.to_be_bytes()).expect("put");
        }
        written.store(round, Ordering::Release);
    };
    write(1);
    let round_of = |value: &[u8]| u32::from_be_bytes(value.try_into().expect("four bytes"));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for round in 2..40 {
                write(round);
                db.flush().expect("flush");
            }
            db.compact().expect("compact");
        });
        while !mover.is_finished() {
            for i in 0..50 {
                let at_least = written.load(Ordering::Acquire);
                let found = keyspace.get(format!("key {i:02}")).expect("get").expect("it is never absent");
                assert!(round_of(&found) >= at_least, "key {i}: {found:?} after {at_least}");
            }
            let at_least = written.load(Ordering::Acquire);
            let found: Vec<u32> =
                keyspace.iter().expect("scan").map(|record| round_of(&record.expect("no error").1)).collect();
            assert!(found.len() == 50 && found.iter().all(|round| *round >= at_least), "{found:?}");
        }
    });
}

/// I6: the log of what is only in memory stays, however often others are flushed.
#[test]
fn log_that_a_quiet_keyspace_needs_is_not_recycled() {
    let fs = MemFs::new();
    let (db, keyspace) = reopen(&fs);
    let quiet = db.keyspace("quiet", Default::default()).expect("keyspace");
    quiet.put("x", "only in the log").expect("put");
    // Far more than the log keeps for nobody.
    for i in 0..5000 {
        keyspace.put(format!("filler {i}"), [7; 1000]).expect("put");
    }
    wait_until("the others are flushed", || db.stats().flushes > 3);
    let (recovered, _) = reopen(&fs.process_crash_clone());
    let quiet = recovered.open_keyspace("quiet").expect("it was made");
    holds(&quiet, "x", "only in the log");
}

/// Regression: a plan was made from levels that were loaded before the list of running jobs was locked;
/// a job that ended in between had taken its inputs away, and the manifest refused the outcome.
#[test]
fn compactions_by_hand_fit_beside_each_other_and_the_background() {
    let db = Db::open_with(
        Env::with_fs(MemFs::new()),
        "/store",
        Options { background_threads: 3, memory_bytes: 8 << 20, segment_bytes: 64 << 10, ..options() },
    )
    .expect("open");
    let small = KeyspaceOptions {
        memtable_bytes: Some(64 << 10),
        table_bytes: 4 << 10,
        level0_tables: 1,
        level1_bytes: 16 << 10,
        level_ratio: 2,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("k", small).expect("keyspace");
    let until = std::time::Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for i in 0u32.. {
                    if std::time::Instant::now() > until {
                        break;
                    }
                    keyspace.put((i * 7919 % 500 + thread).to_be_bytes(), [7; 200]).expect("put");
                    if i % 40 == 0 {
                        keyspace.compact().expect("compact");
                    }
                }
            });
        }
    });
    assert_eq!(db.stats().poisoned, None);
    assert!(db.verify(&mut |_| {}).expect("verify").is_sound());
}
