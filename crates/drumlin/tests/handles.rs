//! How long things live: snapshots, scans and handles.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumlin::env::{Clock, Env, MemFs};
use drumlin::{Db, Error, Keyspace, Options};

/// A clock that goes when it is told to.
#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
    fn wall(&self) -> Duration {
        self.now()
    }
    fn sleep(&self, _duration: Duration) {}
}

fn open(options: Options) -> (Db, Keyspace, Arc<Hand>) {
    let clock = Arc::new(Hand::default());
    let env = Env { clock: clock.clone(), ..Env::with_fs(MemFs::new()) };
    let db = Db::open_with(env, "/store", options).expect("open");
    let keyspace = db.keyspace("k", Default::default()).expect("keyspace");
    (db, keyspace, clock)
}

fn text(record: Option<drumlin::Result<(drumlin::Slice, drumlin::Slice)>>) -> String {
    let (key, value) = record.expect("a record").expect("no error");
    format!("{}={}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value))
}

/// A forgotten handle does not keep old versions alive for ever; one in use does, however old it is.
#[test]
fn a_forgotten_snapshot_expires_and_says_so_and_one_in_use_does_not() {
    let (db, keyspace, clock) =
        open(Options { snapshot_expiry: Some(Duration::from_secs(60)), ..Options::default() });
    keyspace.put("a", "old").expect("put");
    let [forgotten, used] = [(); 2].map(|()| db.snapshot().expect("snapshot"));
    let mut scan = forgotten.iter(&keyspace).expect("scan");
    // Whoever is used within each minute stays.
    for _ in 0..3 {
        clock.0.fetch_add(50, Ordering::SeqCst);
        assert_eq!(used.get(&keyspace, "a").expect("get").as_deref(), Some(&b"old"[..]));
        keyspace.put("a", "new").expect("put");
        db.flush().expect("flush");
    }
    db.compact().expect("compact");
    assert_eq!(used.get(&keyspace, "a").expect("in use").as_deref(), Some(&b"old"[..]));
    assert_eq!(db.stats().snapshots, 1, "the forgotten one is released");
    assert!(matches!(forgotten.get(&keyspace, "a"), Err(Error::SnapshotExpired)));
    assert!(matches!(forgotten.iter(&keyspace), Err(Error::SnapshotExpired)));
    assert!(matches!(scan.next(), Some(Err(Error::SnapshotExpired))), "a scan of it says so too");
    assert!(scan.next().is_none(), "and ends");
    drop((forgotten, used));
    assert_eq!(db.stats().snapshots, 0);
    db.close().expect("close");
}

#[test]
fn without_an_expiry_a_snapshot_lasts_as_long_as_its_handle() {
    let (db, keyspace, clock) = open(Options::default());
    keyspace.put("a", "old").expect("put");
    let snapshot = db.snapshot().expect("snapshot");
    keyspace.put("a", "new").expect("put");
    clock.0.fetch_add(1_000_000_000, Ordering::SeqCst);
    db.compact().expect("compact");
    assert_eq!(snapshot.get(&keyspace, "a").expect("get").as_deref(), Some(&b"old"[..]));
}

/// A scan owns what it reads: handles, writers, flushes and merges may come and go.
#[test]
fn a_scan_outlives_the_handles_it_came_from() {
    let (db, keyspace, _) = open(Options::default());
    for i in 0..300 {
        keyspace.put(format!("{i:03}"), "old").expect("put");
    }
    let mut scan = keyspace.iter().expect("scan");
    assert_eq!(text(scan.next()), "000=old");
    let slice = keyspace.get("001").expect("get").expect("present");
    for i in 0..300 {
        keyspace.put(format!("{i:03}"), "new").expect("put");
    }
    keyspace.delete_range("0", "9").expect("delete_range");
    db.compact().expect("compact");
    drop((keyspace, db));
    // It is `Send`, and the last that holds the store.
    let rest = std::thread::spawn(move || {
        assert_eq!(text(scan.next()), "001=old");
        assert_eq!(text(scan.next_back()), "299=old");
        scan.map(|record| text(Some(record))).collect::<Vec<_>>()
    });
    let rest = rest.join().expect("no panic");
    assert_eq!(rest.len(), 297);
    assert!(rest.iter().all(|record| record.ends_with("=old")), "as of the moment it was made");
    assert_eq!(&*slice, b"old", "a value outlives everything");
}

/// What a scan lends lies in a block or a memtable that others replace, evict and free.
#[test]
fn a_lent_record_stays_as_it_is_whatever_becomes_of_the_store() {
    let (db, keyspace, _) = open(Options::default());
    for round in ["in a table", "in memory"] {
        for i in 0..2000 {
            keyspace.put(format!("{i:04}"), format!("{i} {round} {}", "x".repeat(300))).expect("put");
        }
        if round == "in a table" {
            db.compact().expect("compact");
        }
        let (mut front, mut back) = (keyspace.iter().expect("scan"), keyspace.iter().expect("scan"));
        for n in [0, 700] {
            for _ in 0..n {
                front.next_ref().expect("reads");
                back.next_back_ref().expect("reads");
            }
            let lent = [front.next_ref(), back.next_back_ref()].map(|r| r.expect("reads").expect("a record"));
            let copies = lent.map(|(key, value)| (key.to_vec(), value.to_vec()));
            for i in 0..2000 {
                keyspace.put(format!("{i:04}"), "z".repeat(300)).expect("put");
            }
            db.compact().expect("compact");
            for i in 0..2000 {
                keyspace.get(format!("{i:04}")).expect("get");
            }
            for ((key, value), (copied_key, copied_value)) in lent.into_iter().zip(copies) {
                assert_eq!((key, value), (&copied_key[..], &copied_value[..]), "{round}");
                assert!(value.windows(round.len()).any(|part| part == round.as_bytes()));
            }
        }
    }
}

/// A scan ends where its ends meet, whichever way they are asked, and stays at its end.
#[test]
fn the_ends_of_a_scan_meet_once() {
    let (db, keyspace, _) = open(Options::default());
    for i in 0..10 {
        keyspace.put(format!("{i}"), "v").expect("put");
        if i == 4 {
            db.flush().expect("flush");
        }
    }
    for ways in 0..1u32 << 10 {
        let mut scan = keyspace.range("0"..="9").expect("scan");
        let (mut low, mut high) = (0, 10);
        for step in 0..10 {
            let record = match ways >> step & 1 {
                0 => scan.next_ref().expect("reads"),
                _ => scan.next_back_ref().expect("reads"),
            };
            let wanted = match ways >> step & 1 {
                0 => {
                    low += 1;
                    low - 1
                }
                _ => {
                    high -= 1;
                    high
                }
            };
            assert_eq!(record, Some((format!("{wanted}").as_bytes(), &b"v"[..])), "{ways:b}");
        }
        assert_eq!(low, high);
        // Either end may be the one that finds the other.
        if ways.count_ones().is_multiple_of(2) {
            assert_eq!(scan.next_ref().expect("ends"), None, "{ways:b}");
        }
        assert_eq!(scan.next_back_ref().expect("ends"), None, "{ways:b}");
        assert_eq!(scan.next_ref().expect("ends"), None, "{ways:b}");
    }
}

/// After `close` the others are told; nothing hangs and nothing panics.
#[test]
fn handles_of_a_closed_store_answer_closed() {
    let (db, keyspace, _) = open(Options::default());
    keyspace.put("a", "b").expect("put");
    let (other, snapshot) = (db.clone(), db.snapshot().expect("snapshot"));
    let mut scan = keyspace.iter().expect("scan");
    db.close().expect("close");
    let closed = |error: Option<Error>| assert!(matches!(error, Some(Error::Closed { .. })), "{error:?}");
    closed(keyspace.get("a").err());
    closed(keyspace.put("a", "c").err());
    closed(snapshot.get(&keyspace, "a").err());
    closed(scan.next().and_then(Result::err));
    closed(other.snapshot().err());
    closed(other.flush().err());
    closed(other.wait_for_idle().err());
    other.close().expect("a second close does nothing");
}

#[test]
fn a_main_that_returns_an_error_shows_its_message() {
    let error = Error::Closed { what: "store" };
    assert_eq!(format!("{error:?}"), error.to_string());
}
