//! What `close` promises to those who are still there: scans, other closers, jobs.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::within;
use super::workload::STORE;
use crate::env::{Env, MemFs, Operation};
use crate::error::{Error, Result};
use crate::options::{KeyspaceOptions, Options};
use crate::{Db, Keyspace};

const LIMIT: Duration = Duration::from_secs(60);

fn open(fs: &Arc<MemFs>) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, Options::default())
}

/// Closing removes files of replaced tables although scans hold them. What the scan then met was told as corruption.
#[test]
fn a_scan_that_outlives_close_hears_closed_not_corruption() {
    let db = open(&MemFs::new()).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    db.flush().expect("flushes");
    let (mut front, mut back) = (k.iter().expect("scans"), k.iter().expect("scans"));
    db.drop_keyspace("k").expect("drops");
    db.close().expect("closes");
    for found in [front.next(), back.next_back()] {
        assert!(matches!(found, Some(Err(Error::Closed { .. }))), "{found:?}");
    }
}

/// What has found the store open reads on while it is closed, and finds files missing.
fn overtaken<T: Debug + Send + 'static>(
    what: &str,
    read: impl FnOnce(&Keyspace) -> Result<T> + Send + 'static,
) {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    for key in ["a", "b", "c"] {
        k.put(key, 1i64.to_le_bytes()).expect("puts");
    }
    db.flush().expect("flushes");
    let (inside, is_inside) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = std::sync::Mutex::new(goes_on);
    fs.set_fault_hook(Some(Box::new(move |call| {
        let is_read = call.operation == Operation::Open && std::thread::current().name() == Some("reader");
        if is_read && call.path.extension().is_some_and(|e| e == "tbl") {
            let _ = inside.send(());
            let _ = goes_on.lock().expect("sound").recv();
            return Some(std::io::ErrorKind::NotFound);
        }
        None
    })));
    within(LIMIT, what, move || {
        let keyspace = k.clone();
        let reader =
            std::thread::Builder::new().name("reader".into()).spawn(move || read(&keyspace)).expect("spawns");
        is_inside.recv().expect("it opens a table");
        let closer = db.clone();
        let closer = std::thread::spawn(move || closer.close());
        while db.open_keyspace("k").is_ok() {
            std::thread::yield_now();
        }
        drop(go_on);
        let found = reader.join().expect("no panic");
        assert!(matches!(found, Err(Error::Closed { .. })), "{found:?}");
        closer.join().expect("no panic").expect("closes");
    });
}

#[test]
fn a_get_that_close_overtakes_hears_closed_not_corruption() {
    overtaken("a get", |k| k.get("a"));
}

#[test]
fn an_update_that_close_overtakes_hears_closed_not_corruption() {
    overtaken("a fetch_add", |k| k.fetch_add("a", 1));
    overtaken("a put_if_absent", |k| k.put_if_absent("a", "2"));
}

#[test]
fn an_estimate_that_close_overtakes_hears_closed_not_corruption() {
    overtaken("an estimate", |k| k.approximate_size("b"..));
}

/// It said that a sound store was corrupt.
#[test]
fn a_verification_that_close_overtakes_hears_closed_and_reports_nothing() {
    overtaken("a verification", |k| k.db.verify(&mut |_| {}));
}

/// Whoever closed second was told Ok at once, while the first was still at it; the next open found the store locked.
#[test]
fn whoever_closes_second_waits_until_the_store_is_closed() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    let (inside, is_inside) = mpsc::channel();
    fs.set_hook(Some(Box::new(move |_| {
        if std::thread::current().name() == Some("closer") {
            let _ = inside.send(());
            std::thread::sleep(Duration::from_millis(50));
        }
    })));
    let first = db.clone();
    let closer =
        std::thread::Builder::new().name("closer".into()).spawn(move || first.close()).expect("spawns");
    is_inside.recv().expect("it closes");
    db.close().expect("closes");
    let again = open(&fs);
    assert!(again.is_ok(), "close() said Ok, and then: {:?}", again.err());
    closer.join().expect("no panic").expect("closes");
    fs.set_hook(None);
}

/// All who close are told what closing met, not only the first.
#[test]
fn whoever_closes_second_is_told_what_the_first_was_told() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    fs.set_fault_hook(Some(Box::new(|call| {
        (call.operation == Operation::SyncRegion).then_some(std::io::ErrorKind::Other)
    })));
    let second = db.clone();
    let told = [db.close(), second.close()];
    assert!(told.iter().all(Result::is_err), "{told:?}");
}

/// Once the store was poisoned, `close` gave the lock back while a compaction on a user's thread went on writing, under
/// ids that the next open gives to tables of its own.
#[test]
fn close_waits_for_a_users_compaction_also_when_the_store_is_poisoned() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    for round in 0..3 {
        for key in 0..50 {
            k.put(format!("{key:03}"), format!("{round}")).expect("puts");
        }
        db.flush().expect("flushes");
    }
    let (inside, is_inside) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let is_free = Arc::new(AtomicBool::new(false));
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation == Operation::Create && std::thread::current().name() == Some("compactor") {
            let _ = inside.send(());
            let _ = goes_on.recv();
        }
    })));
    within(LIMIT, "a close", move || {
        let keyspace = k.clone();
        let compactor = std::thread::Builder::new()
            .name("compactor".into())
            .spawn(move || keyspace.compact())
            .expect("spawns");
        is_inside.recv().expect("it compacts");
        db.store.poison(&Error::Poisoned { why: "a test".into() });
        let (closer, free) = (db.clone(), is_free.clone());
        let closer = std::thread::spawn(move || {
            let _ = closer.close();
            free.load(Ordering::SeqCst)
        });
        std::thread::sleep(Duration::from_millis(200));
        is_free.store(true, Ordering::SeqCst);
        drop(go_on);
        assert!(closer.join().expect("no panic"), "it was closed while a job could still write");
        assert!(compactor.join().expect("no panic").is_err());
    });
}
