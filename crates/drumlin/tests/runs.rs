//! What memory in runs promises a user: runs rest until as many are full as were asked for, are flushed together, and are in
//! nobody's way meanwhile.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::Arc;

use drumlin::env::{Env, MemFs};
use drumlin::{Db, Keyspace, KeyspaceOptions, Memory, Options};

const SEGMENT: usize = 64 << 10;
/// Bytes of all runs together.
const MEMTABLE: usize = 1 << 20;

fn store_options() -> Options {
    Options {
        memory_bytes: 32 << 20,
        segment_bytes: SEGMENT,
        log_bytes_max: Some(16 << 20),
        ..Options::default()
    }
}

fn keyspace_options(memory: Memory) -> KeyspaceOptions {
    KeyspaceOptions {
        memory,
        memtable_bytes: Some(MEMTABLE),
        level0_tables: 100,
        ..KeyspaceOptions::default()
    }
}

fn runs(runs: usize, merged_percent: u8) -> Memory {
    Memory::Runs { runs, merged_percent }
}

fn open(fs: &Arc<MemFs>, options: Options) -> Db {
    Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("opens")
}

/// Puts of this many bytes, about, to ever new keys from `*next` on, or to a hundred.
fn put(keyspace: &Keyspace, next: &mut u64, bytes: usize, hot: bool) {
    for _ in 0..bytes / 1000 {
        let key = if hot { *next % 100 } else { next.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        keyspace.put(key.to_be_bytes(), [next.to_be_bytes(); 110].concat()).expect("puts");
        *next += 1;
    }
}

/// Every key of those puts, with what was put last.
fn check(keyspace: &Keyspace, next: u64) {
    for n in 0..next {
        let value = keyspace.get(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).expect("gets");
        assert_eq!(value.as_deref().map(|v| &v[..8]), Some(&n.to_be_bytes()[..]), "{n} of {next}");
    }
    assert_eq!(keyspace.iter().expect("scans").count() as u64, next);
}

fn frozen(db: &Db) -> usize {
    let stats = db.stats();
    stats.keyspaces.iter().find(|keyspace| keyspace.name == "k").expect("is there").frozen_memtables
}

#[test]
fn runs_rest_until_there_are_enough_and_then_their_part_is_flushed() {
    for (runs_wanted, percent, merged) in [(4, 100, 4), (4, 50, 2), (2, 1, 1)] {
        let db = open(&MemFs::new(), store_options());
        let keyspace = db.keyspace("k", keyspace_options(runs(runs_wanted, percent))).expect("makes");
        let (mut next, mut most) = (0, 0);
        while db.stats().flushes == 0 {
            put(&keyspace, &mut next, 8 << 10, false);
            db.wait_for_idle().expect("idle");
            most = most.max(frozen(&db));
        }
        // The next one is begun a segment ahead of the log, or just before it comes there: then the last is frozen and flushed at once.
        assert!((runs_wanted - 1..=runs_wanted).contains(&most), "{most} of {runs_wanted}, {percent} %");
        let bytes = next as usize * 900;
        let run = MEMTABLE / runs_wanted;
        let full = run * runs_wanted..run * runs_wanted + 4 * SEGMENT;
        assert!(bytes > full.start / 2 && bytes < full.end, "{bytes} bytes, of runs of {run}");
        let left = |frozen: usize| (runs_wanted - merged..=runs_wanted - merged + 1).contains(&frozen);
        assert!(left(frozen(&db)), "{} of {runs_wanted} are left, {percent} %", frozen(&db));
        let mut before = 1;
        for _ in 0..200 {
            put(&keyspace, &mut next, 8 << 10, false);
            db.wait_for_idle().expect("idle");
            let now = db.stats().flushes;
            if now > before {
                assert!(now == before + 1 && left(frozen(&db)), "their part, and no more: {}", db.stats());
                before = now;
            }
        }
        assert!(before > 1);
        check(&keyspace, next);
    }
}

/// Borders come once a segment: where a run is to be smaller, there are fewer of them, not more memory.
#[test]
fn runs_that_outgrow_their_part_are_flushed_when_they_hold_what_all_may() {
    let options = Options { segment_bytes: 256 << 10, ..store_options() };
    let db = open(&MemFs::new(), options);
    let keyspace = db.keyspace("k", keyspace_options(runs(64, 100))).expect("makes");
    let mut next = 0;
    for _ in 0..1000 {
        put(&keyspace, &mut next, 8 << 10, false);
        db.wait_for_idle().expect("idle");
        let bytes = db.stats().memtable_bytes as usize;
        // As much again may be flushed and not freed.
        assert!(bytes <= 2 * MEMTABLE + 4 * (256 << 10), "{bytes} bytes of memtables");
    }
    assert!(db.stats().flushes > 3, "{}", db.stats());
    check(&keyspace, next);
}

#[test]
fn a_key_that_is_put_again_and_again_is_flushed_once_for_all_runs() {
    let flushed = |memory| {
        let db = open(&MemFs::new(), store_options());
        let keyspace = db.keyspace("k", keyspace_options(memory)).expect("makes");
        let mut next = 0;
        for _ in 0..80 {
            put(&keyspace, &mut next, 256 << 10, true);
            // Else what is flushed together is also a matter of how late it is.
            db.wait_for_idle().expect("idle");
        }
        db.flush().expect("flushes");
        assert_eq!(keyspace.iter().expect("scans").count(), 100);
        db.stats().flushed_bytes
    };
    let (together, apart) = (flushed(runs(8, 100)), flushed(runs(8, 1)));
    println!("{together} bytes flushed together, {apart} one by one");
    assert!(together * 3 < apart, "{together} bytes flushed together, {apart} one by one");
}

#[test]
fn runs_go_when_somebody_needs_them_to() {
    let fs = MemFs::new();
    let resting = |options: Options| {
        let db = open(&fs, options);
        // Whoever looks for the oldest part of the log is to look beyond it.
        db.keyspace("idle", keyspace_options(Memory::TwoTier)).expect("makes");
        let keyspace = db.keyspace("k", keyspace_options(runs(8, 50))).expect("makes");
        (db, keyspace)
    };
    let mut next = 0;
    let (db, keyspace) = resting(store_options());
    put(&keyspace, &mut next, 400 << 10, false);
    db.wait_for_idle().expect("idle");
    assert!(frozen(&db) >= 2 && db.stats().flushes == 0, "{}", db.stats());

    // A flush by hand takes all.
    db.flush().expect("flushes");
    assert_eq!(frozen(&db), 0);

    // Another memory component keeps none.
    put(&keyspace, &mut next, 400 << 10, false);
    db.wait_for_idle().expect("idle");
    assert!(frozen(&db) >= 2);
    keyspace.set_options(keyspace_options(Memory::TwoTier)).expect("sets");
    db.wait_for_idle().expect("idle");
    assert!(frozen(&db) <= 1, "what the log has not passed yet");
    keyspace.set_options(keyspace_options(runs(8, 50))).expect("sets");

    // What rests is in the log, and comes back.
    put(&keyspace, &mut next, 300 << 10, false);
    drop((keyspace, db));
    let (db, keyspace) = resting(store_options());
    check(&keyspace, next);

    // Another keyspace fills the log: what holds its oldest part goes, however little it is.
    put(&keyspace, &mut next, 200 << 10, false);
    let other = db.keyspace("other", keyspace_options(Memory::TwoTier)).expect("makes");
    put(&other, &mut 1_000_000, 40 << 20, false);
    db.wait_for_idle().expect("idle");
    let live = db.stats().log_live_bytes;
    assert!(live <= (16 << 20) + 16 * SEGMENT as u64, "{live} bytes of log");
    check(&keyspace, next);
    db.close().expect("closes");
}

/// Regression: a run of a keyspace that is not logged, smaller than an empty memtable, had the log padded without end.
#[test]
fn an_empty_run_that_is_not_logged_asks_for_nothing() {
    let db = open(&MemFs::new(), store_options());
    let options =
        KeyspaceOptions { logged: false, memtable_bytes: Some(64 << 10), ..keyspace_options(runs(64, 100)) };
    let keyspace = db.keyspace("k", options).expect("makes");
    let mut next = 0;
    put(&keyspace, &mut next, 100 << 10, false);
    db.wait_for_idle().expect("idle");
    check(&keyspace, next);
}

/// Regression: a keyspace that is not logged held the log from when it was first written to.
#[test]
fn what_is_not_logged_holds_no_log() {
    let db = open(&MemFs::new(), store_options());
    let options = KeyspaceOptions { logged: false, ..keyspace_options(runs(8, 50)) };
    let unlogged = db.keyspace("k", options).expect("makes");
    unlogged.put("a", "1").expect("puts");
    let other = db.keyspace("other", keyspace_options(Memory::TwoTier)).expect("makes");
    put(&other, &mut 0, 8 << 20, false);
    db.wait_for_idle().expect("idle");
    let live = db.stats().log_live_bytes;
    assert!(live <= 4 << 20, "{live} bytes of log");
    let own = |keyspace: &str| {
        let stats = db.stats();
        let it = stats.keyspaces.iter().find(|k| k.name == keyspace).expect("is there").clone();
        it.frozen_memtables + it.levels.iter().map(|level| level.tables).sum::<usize>()
    };
    assert_eq!(own("k"), 0, "nor is it flushed for that");
    assert_eq!(unlogged.get("a").expect("gets").as_deref(), Some(&b"1"[..]));
}

/// Many keyspaces whose runs would take more than there is: they make room for each other.
#[test]
fn runs_of_many_keyspaces_keep_to_the_budget() {
    let options = Options { memory_bytes: 8 << 20, ..store_options() };
    let db = open(&MemFs::new(), options);
    let make = |n: usize| {
        let options = KeyspaceOptions { logged: !n.is_multiple_of(3), ..keyspace_options(runs(8, 25)) };
        db.keyspace(&format!("k{n}"), options).expect("makes")
    };
    let keyspaces: Vec<Keyspace> = (0..12).map(make).collect();
    let mut next = [0; 12];
    for _ in 0..60 {
        for (keyspace, next) in keyspaces.iter().zip(&mut next) {
            put(keyspace, next, 40 << 10, false);
        }
        let stats = db.stats();
        assert!(stats.memtable_bytes <= 5 << 20, "{} bytes of memtables", stats.memtable_bytes);
    }
    for (keyspace, next) in keyspaces.iter().zip(next) {
        check(keyspace, next);
    }
    db.close().expect("closes");
}
