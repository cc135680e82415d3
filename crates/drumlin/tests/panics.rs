//! A user's comparator panics in the middle of a write or of a job: nothing half-done shows, nobody waits for ever.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use drumlin::env::{Env, MemFs};
use drumlin::key::{Comparator, ComparatorRef};
use drumlin::{Db, Error, KeyspaceOptions, Options};

/// Bytewise, until it is told to panic at a key.
struct Touchy {
    armed: AtomicBool,
}

impl Comparator for Touchy {
    fn name(&self) -> &str {
        "touchy"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        assert!(!(self.armed.load(SeqCst) && (a == b"bad" || b == b"bad")), "the comparator panics");
        a.cmp(b)
    }
}

fn open(fs: &Arc<MemFs>, touchy: &Arc<Touchy>) -> Db {
    let comparators: Vec<ComparatorRef> = vec![touchy.clone()];
    let options = Options { memory_bytes: 8 << 20, comparators, ..Options::default() };
    Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("open")
}

/// Regression: the next write of the thread used the slot of the batch that had died, half the batch showed,
/// and a flush would have made that last.
#[test]
fn half_a_batch_never_shows_and_the_log_brings_it_whole() {
    let fs = MemFs::new();
    let touchy = Arc::new(Touchy { armed: AtomicBool::new(false) });
    let db = open(&fs, &touchy);
    let options = KeyspaceOptions { comparator: touchy.clone(), ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("make");
    keyspace.put("a", "before").expect("put");
    let mut batch = db.batch();
    batch.put(&keyspace, "a", "after").expect("fits");
    batch.put(&keyspace, "bad", "after").expect("fits");
    touchy.armed.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| batch.commit())).is_err(), "the batch dies on its way");
    touchy.armed.store(false, SeqCst);

    for attempt in 0..3 {
        let put = keyspace.put("other", "x");
        assert!(matches!(put, Err(Error::Poisoned { .. })), "{attempt}: {put:?}");
        let update = keyspace.update("a", |_| Some(b"x".to_vec()));
        assert!(matches!(update, Err(Error::Poisoned { .. })), "{attempt}: {update:?}");
    }
    // A thread of its own would get the dead one's slot, had that been given back.
    let other = keyspace.clone();
    std::thread::spawn(move || assert!(other.put("other", "x").is_err())).join().expect("no panic");
    assert_eq!(keyspace.get("a").expect("reads go on").as_deref(), Some(&b"before"[..]));
    assert_eq!(keyspace.get("bad").expect("reads go on"), None);
    drop((keyspace, db));

    let db = open(&fs, &touchy);
    let keyspace = db.open_keyspace("k").expect("is there");
    let (a, bad) = (keyspace.get("a").expect("get"), keyspace.get("bad").expect("get"));
    assert_eq!(a.as_deref() == Some(b"after"), bad.is_some(), "{a:?} {bad:?}");
    db.close().expect("close");
}

/// Regression: the worker was gone without a word, and whoever waited for the flush waited for ever.
#[test]
fn a_panic_in_a_job_is_told_to_whoever_waits_for_it() {
    let fs = MemFs::new();
    let touchy = Arc::new(Touchy { armed: AtomicBool::new(false) });
    let db = open(&fs, &touchy);
    let options = KeyspaceOptions { comparator: touchy.clone(), ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("make");
    for key in ["a", "bad", "c"] {
        keyspace.put(key, "v").expect("put");
    }
    db.flush().expect("flush");
    for key in ["a", "bad", "c"] {
        keyspace.put(key, "w").expect("put");
    }
    touchy.armed.store(true, SeqCst);
    let (done, told) = std::sync::mpsc::channel();
    let other = db.clone();
    std::thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| other.compact()));
        done.send(matches!(outcome, Err(_) | Ok(Err(_))))
    });
    assert!(told.recv_timeout(std::time::Duration::from_secs(30)).expect("nobody waits for ever"));
    touchy.armed.store(false, SeqCst);
    assert!(keyspace.put("d", "x").is_err(), "the store says that it is broken");
    assert_eq!(keyspace.get("a").expect("reads go on").as_deref(), Some(&b"w"[..]));
    let _ = db.close();
    let db = open(&fs, &touchy);
    let keyspace = db.open_keyspace("k").expect("is there");
    assert_eq!(keyspace.iter().expect("scan").count(), 3);
    db.close().expect("close");
}
