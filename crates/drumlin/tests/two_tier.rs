//! What memory in two tiers promises a user: hot keys cost no memory and next to no flushed bytes, and whatever was acknowledged
//! is read, by whoever asks, while generations turn.
//!
//! The first is `cargo x soak hot` with a hundred million updates.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drumlin::env::{Env, MemFs};
use drumlin::{Db, Keyspace, KeyspaceOptions, Memory, Options, TwoTier};

fn open(options: Options, memtable_bytes: usize) -> (Db, Keyspace) {
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("opens");
    let two_tier = KeyspaceOptions {
        memory: Memory::TwoTier,
        memtable_bytes: Some(memtable_bytes),
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("k", two_tier).expect("makes");
    (db, keyspace)
}

/// Keys of the hot test.
const HOT: u64 = 100;

/// Updates of a hundred keys: memory keeps to its budget, the log to its cap, and what is flushed is the hundred keys, now and
/// then.
#[test]
fn updates_of_a_few_keys_flush_next_to_nothing() {
    let asked: Option<f64> = std::env::var("DRUMLIN_HOT_MILLIONS").ok().and_then(|n| n.parse().ok());
    let updates = (asked.unwrap_or(0.5) * 1e6) as u64;
    let (memory, cap) = (64 << 20, 32 << 20);
    let options = Options {
        memory_bytes: memory,
        log_bytes_max: Some(cap),
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (db, keyspace) = open(options, 8 << 20);
    let mut random = 1u64;
    for number in 0..updates {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = (random >> 33) % HOT;
        keyspace.put(key.to_be_bytes(), [number.to_be_bytes(); 12].concat()).expect("puts");
        if number % 10_000 == 0 {
            let stats = db.stats();
            let held =
                stats.memtable_bytes + stats.cache_bytes + stats.table_resident_bytes + stats.job_bytes;
            assert!(held <= memory as u64, "{held} bytes after {number} updates");
            // What is being written while the oldest is flushed comes on top.
            assert!(stats.log_live_bytes <= 2 * cap as u64, "{} bytes of log", stats.log_live_bytes);
        }
    }
    let stats = db.stats();
    let logged = stats.log_written_bytes;
    assert!(logged > updates * 100, "{logged} bytes logged");
    assert!(stats.flushes > 0, "generations turned");
    assert!(
        stats.flushed_bytes <= logged / 100,
        "{} of {logged} logged bytes were flushed, in {} flushes",
        stats.flushed_bytes,
        stats.flushes
    );
    assert_eq!(keyspace.iter().expect("scans").count() as u64, HOT);
    db.close().expect("closes");
}

/// Writers read what they wrote, and what others had acknowledged, by gets and by scans, while generations turn and are flushed.
#[test]
fn what_is_acknowledged_is_read_while_generations_turn() {
    const WRITERS: u64 = 3;
    const KEYS: u64 = 200;
    let rounds: u64 = 60;
    for drain_threads in [0, 1] {
        let two_tier = TwoTier { drain_threads, ..TwoTier::default() };
        let options =
            Options { memory_bytes: 32 << 20, segment_bytes: 64 << 10, two_tier, ..Options::default() };
        let (db, keyspace) = open(options, 128 << 10);
        let acknowledged: Vec<AtomicU64> = (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        let key = |n: u64| format!("{:04}", n * 7919 % 10_000);
        let round_of = |value: &[u8]| u64::from_be_bytes(value[..8].try_into().expect("eight bytes"));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (keyspace, acknowledged) = (&keyspace, &acknowledged);
                    scope.spawn(move || {
                        for round in 1..=rounds {
                            for n in (0..KEYS).map(|n| n * WRITERS + writer) {
                                keyspace.put(key(n), [round.to_be_bytes(); 20].concat()).expect("puts");
                                acknowledged[n as usize].store(round, Ordering::Release);
                                let own = keyspace.get(key(n)).expect("gets").expect("it was put");
                                assert_eq!(round_of(&own), round, "its own key {n}");
                                let other = (n * 31 + round) % (WRITERS * KEYS);
                                let least = acknowledged[other as usize].load(Ordering::Acquire);
                                let found = keyspace.get(key(other)).expect("gets");
                                let found = found.map_or(0, |value| round_of(&value));
                                assert!(found >= least, "key {other}, at {least}, is found at {found}");
                            }
                        }
                    })
                })
                .collect();
            let (keyspace, over, acknowledged) = (&keyspace, &over, &acknowledged);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let known: Vec<_> =
                        acknowledged.iter().map(|round| round.load(Ordering::Acquire)).collect();
                    let all: HashMap<Vec<u8>, u64> = keyspace
                        .iter()
                        .expect("scans")
                        .map(|record| record.expect("reads"))
                        .map(|(key, value)| (key.to_vec(), round_of(&value)))
                        .collect();
                    for (n, least) in known.into_iter().enumerate() {
                        let found = all.get(key(n as u64).as_bytes()).copied().unwrap_or(0);
                        assert!(found >= least, "a scan finds key {n} at {found}, which was at {least}");
                    }
                }
            });
            for writer in writers {
                writer.join().expect("the writer goes on");
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(db.stats().flushes > 2, "generations turned");
        db.close().expect("closes");
    }
}

/// Keys that come in order make the next memtables do without a hash; keys that come in none bring it back.
#[test]
fn a_hash_that_does_not_pay_is_left_out_and_tried_again() {
    let options = Options { memory_bytes: 32 << 20, segment_bytes: 64 << 10, ..Options::default() };
    let (db, keyspace) = open(options, 256 << 10);
    // What was just put is in a hash, unsorted, or in a list.
    let puts_until = |has_hash: bool, key: fn(u64) -> u64| {
        let put = (0..2_000_000u64).find(|n| {
            keyspace.put(key(*n).to_be_bytes(), [7u8; 64]).expect("puts");
            n % 100 == 99 && (db.stats().keyspaces[0].memtable_unsorted > 0) == has_hash
        });
        assert!(put.is_some(), "it never came to {has_hash}");
    };
    puts_until(true, |n| n);
    puts_until(false, |n| (1 << 32) + n);
    puts_until(true, |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    db.close().expect("closes");
}

/// As many as several threads are worth, while a writer goes on.
#[test]
fn settling_sorts_all_that_was_put_before() {
    const KEYS: u64 = 150_000;
    let (db, keyspace) = open(Options { memory_bytes: 256 << 20, ..Options::default() }, 128 << 20);
    let put = |n: u64| {
        keyspace.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), n.to_be_bytes()).expect("puts");
    };
    (0..KEYS).for_each(put);
    let unsorted = || db.stats().keyspaces[0].memtable_unsorted;
    assert!(unsorted() > KEYS / 2, "{} of {KEYS} are in the hash", unsorted());
    std::thread::scope(|scope| {
        scope.spawn(|| (KEYS..KEYS + 1000).for_each(put));
        keyspace.settle().expect("settles");
    });
    assert!(unsorted() <= 1000, "{} are left", unsorted());
    keyspace.settle().expect("settles");
    assert_eq!(unsorted(), 0);
    let found: Vec<_> = keyspace.iter().expect("scans").map(|found| found.expect("reads").0).collect();
    assert!(found.is_sorted() && found.len() as u64 == KEYS + 1000);
    db.close().expect("closes");
}
