//! What `stats` says of operations: how many, how long, what they moved.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumlin::env::{Clock, Env, MemFs};
use drumlin::{Compression, Db, Durability, KeyspaceOptions, LatencyStats, Options, Stats, WriteOptions};

/// Goes on by a microsecond whenever it is asked.
struct Steps(AtomicU64);

impl Clock for Steps {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) {}
}

fn options() -> Options {
    Options { snapshot_expiry: None, ..Options::default() }
}

fn plain() -> KeyspaceOptions {
    KeyspaceOptions { compression: Compression::None, value_separation: None, ..KeyspaceOptions::default() }
}

fn of<'s>(stats: &'s Stats, operation: &str) -> &'s LatencyStats {
    let found = stats.latencies.iter().find(|found| found.operation == operation);
    found.unwrap_or_else(|| panic!("no {operation}: {:?}", stats.latencies))
}

fn key(n: u64) -> String {
    format!("key{n:08}")
}

/// In a thread of its own: counting begins anew, and all that is counted is its own.
fn alone(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work).join().unwrap();
}

#[test]
fn every_kind_of_operation_is_counted_and_most_ask_no_clock() {
    alone(|| {
        let clock = Arc::new(Steps(AtomicU64::new(0)));
        let env = Env { clock: clock.clone(), ..Env::with_fs(MemFs::new()) };
        let db = Db::open_with(env, "/store", options()).unwrap();
        let keyspace = db.keyspace("k", plain()).unwrap();
        let asked = || clock.0.load(Ordering::Relaxed);
        let before = asked();
        for n in 0..20_000 {
            keyspace.put(key(n), [7; 100]).unwrap();
        }
        for n in 0..20_000 {
            keyspace.get(key(n)).unwrap();
        }
        // Two for each that is timed, and some of the threads behind.
        let asked = asked() - before;
        assert!(asked > 2 * 256 && asked < 40_000 / 64 * 2 * 2, "the clock was asked {asked} times");
        for n in 0..6000 {
            keyspace.fetch_add("counter", 1).unwrap();
            let mut batch = db.batch();
            batch.put(&keyspace, key(n), "v").unwrap();
            batch.commit().unwrap();
        }
        for n in 0..3000 {
            assert_eq!(keyspace.multi_get(&[key(n), key(n + 1)]).unwrap().len(), 2);
            assert!(keyspace.iter().unwrap().next().is_some());
        }
        keyspace.put_with("k", "v", WriteOptions { durability: Some(Durability::Disk) }).unwrap();
        keyspace.compact().unwrap();
        let stats = db.stats();
        for (operation, count) in [
            ("put", 20_001),
            ("get", 20_000),
            ("update", 6000),
            ("batch", 6000),
            ("scan", 3000),
            ("multi_get", 3000),
        ] {
            let found = of(&stats, operation);
            assert!(found.operations.abs_diff(count) <= count / 2, "{found:?}, but there were {count}");
            assert!(found.p50_ns >= 1000 && found.max_ns >= found.p999_ns, "{found:?}");
        }
        let gets = of(&stats, "get");
        assert!(gets.timed < 20_000 / 40 && gets.p50_ns < 1150, "{gets:?}");
        for operation in ["flush", "compaction", "log_sync"] {
            assert!(of(&stats, operation).operations > 0);
        }
    });
}

#[test]
fn amplification_is_what_was_moved_for_what_was_asked() {
    alone(|| {
        let fs = MemFs::new();
        let open = || Db::open_with(Env::with_fs(fs.clone()), "/store", options()).unwrap();
        let db = open();
        assert_eq!((db.stats().write_amplification(), db.stats().reads_per_get()), (None, None));
        let keyspace = db.keyspace("k", plain()).unwrap();
        let user = 20_000 * (11 + 100);
        for n in 0..20_000 {
            keyspace.put(key(n), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        let stats = db.stats();
        assert!(stats.written_bytes.abs_diff(user) < user / 50, "{} of {user}", stats.written_bytes);
        let moved = stats.flushed_bytes + stats.compaction_written_bytes + stats.log_written_bytes;
        assert!(stats.log_written_bytes > user && stats.flushed_bytes > user, "{stats}");
        assert_eq!(stats.write_amplification(), Some(moved as f64 / stats.written_bytes as f64));
        // Each key once: all is alive, and takes its table's index and filter besides.
        let space = stats.space_amplification().unwrap();
        assert!((1.0..1.15).contains(&space), "{space}");
        assert_eq!(stats.keyspaces[0].keys, 20_000);
        keyspace.compact().unwrap();
        // All of it again: until it is merged, half is alive.
        for n in 0..20_000 {
            keyspace.put(key(n), [8; 100]).unwrap();
        }
        db.flush().unwrap();
        let space = db.stats().space_amplification().unwrap();
        assert!((1.9..2.4).contains(&space), "{space}");
        keyspace.compact().unwrap();
        let space = db.stats().space_amplification().unwrap();
        assert!((1.0..1.15).contains(&space), "{space}");
        drop(keyspace);
        db.close().unwrap();

        let db = open();
        let keyspace = db.open_keyspace("k").unwrap();
        let read = |n: u64| keyspace.get(key(n * 7 % 20_000)).unwrap();
        // About a block for some thirty neighbours, then none.
        (0..20_000).for_each(|n| drop(read(n)));
        let first = db.stats().reads_per_get().unwrap();
        assert!(first > 0.005 && first < 1.0, "{first}");
        (0..200_000).for_each(|n| drop(read(n)));
        let later = db.stats().reads_per_get().unwrap();
        assert!(later < first / 5.0, "{later} after {first}");
    });
}
