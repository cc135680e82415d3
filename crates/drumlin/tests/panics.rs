//! A user's comparator panics in the middle of a write or of a job: nothing half-done shows, nobody waits for ever.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use drumlin::env::{Env, MemFs, Operation};
use drumlin::key::{Comparator, ComparatorRef};
use drumlin::{Db, Error, KeyspaceOptions, Memory, Options};

/// Bytewise, until it is told to panic at a key.
#[derive(Default)]
struct Touchy {
    armed: AtomicBool,
    /// Not where it is compared with itself.
    late: AtomicBool,
}

impl Comparator for Touchy {
    fn name(&self) -> &str {
        "touchy"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let is_bad = (a == b"bad" || b == b"bad") && !(self.late.load(SeqCst) && a == b);
        assert!(!(self.armed.load(SeqCst) && is_bad), "the comparator panics");
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
    let touchy = Arc::new(Touchy::default());
    let db = open(&fs, &touchy);
    // A hash compares nothing on the way.
    let options =
        KeyspaceOptions { comparator: touchy.clone(), memory: Memory::Sorted, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("make");
    keyspace.put("a", "before").expect("put");
    let mut batch = db.batch();
    batch.put(&keyspace, "a", "after").expect("fits");
    batch.put(&keyspace, "bad", "after").expect("fits");
    touchy.late.store(true, SeqCst);
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

/// Regression: with a hash over the list a put compared nothing. A key that the order cannot take was acknowledged, and sorted when
/// it was flushed, or when the store was opened: which failed from then on.
#[test]
fn a_key_that_the_order_cannot_take_is_not_accepted() {
    for memory in [Memory::Sorted, Memory::TwoTier] {
        let fs = MemFs::new();
        let touchy = Arc::new(Touchy { armed: AtomicBool::new(true), ..Touchy::default() });
        let db = open(&fs, &touchy);
        let options = KeyspaceOptions { comparator: touchy.clone(), memory, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("k", options).expect("make");
        keyspace.put("a", "1").expect("put");
        let put = catch_unwind(AssertUnwindSafe(|| keyspace.put("bad", "2")));
        assert!(put.is_err(), "{memory:?}: {put:?}");
        for others in [1, 20] {
            let mut batch = db.batch();
            batch.put(&keyspace, "bad", "2").expect("fits");
            (0..others).for_each(|i: u8| batch.put(&keyspace, [b'x', i], "2").expect("fits"));
            assert!(
                catch_unwind(AssertUnwindSafe(|| batch.commit())).is_err(),
                "{memory:?}, {others} others"
            );
        }
        keyspace.put("c", "3").expect("the next one is taken");
        db.flush().expect("flush");
        keyspace.put("d", "4").expect("put");
        db.close().expect("close");
        let db = open(&fs, &touchy);
        let keyspace = db.open_keyspace("k").expect("is there");
        assert_eq!(keyspace.iter().expect("scan").count(), 3, "{memory:?}");
        db.close().expect("close");
    }
}

/// Regression: the worker was gone without a word, and whoever waited for the flush waited for ever.
#[test]
fn a_panic_in_a_job_is_told_to_whoever_waits_for_it() {
    let fs = MemFs::new();
    let touchy = Arc::new(Touchy::default());
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

/// Bytewise; panics on the thread that compacts, as soon as a part on another thread has come to where it is held.
struct Holding {
    /// The compaction writes.
    armed: AtomicBool,
    held: AtomicBool,
    panics: AtomicBool,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Comparator for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        if name.starts_with("compact-L") && !self.held.swap(true, SeqCst) {
            let _ = self.goes_on.lock().unwrap().recv_timeout(Duration::from_secs(60));
        } else if name == "compactor" && self.armed.swap(false, SeqCst) {
            let began = std::time::Instant::now();
            while !self.held.load(SeqCst) {
                assert!(began.elapsed() < Duration::from_secs(60), "there is no other part");
                std::thread::yield_now();
            }
            self.panics.store(true, SeqCst);
            panic!("the comparator panics");
        }
        a.cmp(b)
    }
}

/// Regression: what unwound left the threads of the other parts behind. They went on writing when the store was closed, under
/// ids that the next open gives to tables of its own.
#[test]
fn close_waits_for_the_other_parts_of_a_compaction_that_panicked() {
    let fs = MemFs::new();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let holding = Arc::new(Holding {
        armed: AtomicBool::new(false),
        held: AtomicBool::new(false),
        panics: AtomicBool::new(false),
        goes_on: Mutex::new(goes_on),
    });
    let options = Options { memory_bytes: 64 << 20, background_threads: 3, ..Options::default() };
    let db = Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("open");
    let options =
        KeyspaceOptions { comparator: holding.clone(), table_bytes: 1 << 10, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("make");
    for round in 0..3u64 {
        for number in 0..500u64 {
            // Does not compress.
            let value = (number * 3 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            keyspace.put(format!("{number:04}"), value.wrapping_mul(value | 1).to_le_bytes()).expect("put");
        }
        db.flush().expect("flush");
    }
    let compaction = holding.clone();
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation == Operation::Create && std::thread::current().name() == Some("compactor") {
            compaction.armed.store(true, SeqCst);
        }
    })));
    let compactor = std::thread::Builder::new()
        .name("compactor".into())
        .spawn(move || catch_unwind(AssertUnwindSafe(|| keyspace.compact())).is_err())
        .expect("spawns");
    let began = std::time::Instant::now();
    // Not before: close cancels what compacts, which would end without a panic.
    while !holding.panics.load(SeqCst) && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    let is_free = Arc::new(AtomicBool::new(false));
    let free = is_free.clone();
    let closer = std::thread::spawn(move || {
        let _ = db.close();
        free.load(SeqCst)
    });
    std::thread::sleep(Duration::from_millis(300));
    is_free.store(true, SeqCst);
    drop(go_on);
    assert!(closer.join().expect("no panic"), "it was closed while a part could still write");
    assert!(compactor.join().expect("caught"), "the comparator panicked on the thread that compacts");
    fs.set_hook(None);
    let mut left = fs.files();
    left.retain(|path| {
        path.parent() == Some(Path::new("/store")) && path.extension().is_some_and(|e| e == "tmp")
    });
    assert!(left.is_empty(), "{left:?}");
}
