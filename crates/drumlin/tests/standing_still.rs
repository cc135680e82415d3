//! A thread that stands still, in a put or in a get whose device hangs, stops nobody it need not stop, and memory keeps
//! to its bound meanwhile.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use drumlin::env::{Env, FileSystem, MemFs, Operation};
use drumlin::{Db, Keyspace, KeyspaceOptions, Memory, Options, Result, Slice, failpoint};

/// Pause points are the process's: one test at a time.
static POINTS: Mutex<()> = Mutex::new(());

const BUDGET: u64 = 16 << 20;

fn small(fs: &Arc<MemFs>) -> (Db, Keyspace) {
    let options = Options { memory_bytes: BUDGET as usize, segment_bytes: 1 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    (db, keyspace)
}

/// Holds the thread called `still` wherever it asks, until told.
#[derive(Clone, Default)]
struct Hold {
    inside: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Hold {
    fn stand(&self) {
        if std::thread::current().name() == Some("still") {
            self.inside.store(true, Ordering::SeqCst);
            while !self.over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Starts `body` on the thread that stands still, and waits until it does.
    fn start<T: Send + 'static>(&self, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let thread = Builder::new().name("still".into()).spawn(body).expect("spawns");
        let began = Instant::now();
        while !self.inside.load(Ordering::SeqCst) {
            assert!(began.elapsed() < Duration::from_secs(60), "it never came there");
            std::thread::sleep(Duration::from_millis(1));
        }
        thread
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// A writer of many more bytes than the budget; what it has written so far.
fn write_much(keyspace: &Keyspace) -> (JoinHandle<Result<()>>, Arc<AtomicU32>) {
    let (keyspace, written) = (keyspace.clone(), Arc::new(AtomicU32::new(0)));
    let count = written.clone();
    let writer = std::thread::spawn(move || {
        let value = vec![3; 1000];
        for n in 0..100_000u32 {
            keyspace.put(format!("k{}", n % 1000), &value)?;
            count.store(n + 1, Ordering::Relaxed);
        }
        Ok(())
    });
    (writer, written)
}

/// A read of "key" stands still in its device, and writers go on.
fn stands_still_in_a_read(read: fn(&Keyspace) -> Option<Slice>) {
    // Another test's thread that stands still would hold the epoch up, which is the process's.
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let fs = MemFs::new();
    let (db, keyspace) = small(&fs);
    keyspace.put("key", "1").expect("puts");
    db.flush().expect("flushes");
    // Calls run the hook one at a time: nobody else may be on the way into it.
    let mut calls = 0;
    while fs.calls() != calls {
        calls = fs.calls();
        std::thread::sleep(Duration::from_millis(100));
    }
    let hold = Hold::default();
    let stand = hold.clone();
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation == Operation::Read && call.path.extension().is_some_and(|e| e == "tbl") {
            stand.stand();
        }
    })));
    let reader = keyspace.clone();
    let still = hold.start(move || read(&reader));
    fs.set_hook(None);
    let (writer, _) = write_much(&keyspace);
    let (mut most, began) = (0, Instant::now());
    while !writer.is_finished() && began.elapsed() < Duration::from_secs(40) {
        most = most.max(db.stats().memtable_bytes);
        std::thread::sleep(Duration::from_millis(5));
    }
    let went_on = writer.is_finished();
    hold.end();
    assert_eq!(still.join().expect("no panic").as_deref(), Some(&b"1"[..]));
    writer.join().expect("no panic").expect("writes");
    assert!(went_on, "the writer waited for the get");
    assert!(most < BUDGET * 3 / 4, "{} KiB of memtables, of a budget of {} KiB", most >> 10, BUDGET >> 10);
}

/// Regression: a get read files with the epoch pinned. One that a device held up kept every memtable that was flushed
/// meanwhile; that was lent to it without bound, and memory grew by all that was written.
#[test]
fn a_get_that_waits_for_its_device_keeps_no_memory_and_stops_no_writer() {
    stands_still_in_a_read(|keyspace| keyspace.get("key").expect("reads"));
}

#[test]
fn a_multi_get_that_waits_for_its_device_keeps_no_memory_and_stops_no_writer() {
    stands_still_in_a_read(|keyspace| keyspace.multi_get(&["none", "key"]).expect("reads").remove(1));
}

/// Regression: what a thread kept that stood still inside a put was lent to it without bound.
#[test]
fn a_put_that_stands_still_stops_writers_when_memory_is_full_and_not_before() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let (db, keyspace) = small(&MemFs::new());
    let hold = Hold::default();
    let stand = hold.clone();
    failpoint::set("write::reserved", move || stand.stand());
    let other = keyspace.clone();
    let still = hold.start(move || other.put("frozen", "x"));
    let (writer, written) = write_much(&keyspace);
    let (mut most, mut last, mut since) = (0, 0, Instant::now());
    while !writer.is_finished() && since.elapsed() < Duration::from_secs(3) {
        most = most.max(db.stats().memtable_bytes);
        if written.load(Ordering::Relaxed) != last {
            (last, since) = (written.load(Ordering::Relaxed), Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let stopped = !writer.is_finished();
    hold.end();
    still.join().expect("no panic").expect("puts");
    writer.join().expect("no panic").expect("writes, once the other has gone on");
    failpoint::clear("write::reserved");
    assert!(stopped && last > 6_000, "others go on until memory is full: {last} puts");
    assert!(
        most < BUDGET + (2 << 20),
        "{} KiB of memtables, of a budget of {} KiB",
        most >> 10,
        BUDGET >> 10
    );
}

/// Regression: while a flush was under way, the log took the space that its tables were to have; then nothing could be
/// flushed, and the device was full of log for good.
#[test]
fn a_flush_that_takes_long_on_a_small_device_keeps_its_space_and_writers_wait_for_it() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let fs = MemFs::new();
    fs.set_capacity(Some(24 << 20));
    // Memory is no bound here.
    let options = Options { memory_bytes: 256 << 20, segment_bytes: 1 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    let over = Arc::new(AtomicBool::new(false));
    let hold = over.clone();
    failpoint::set("flush::begins", move || {
        while !hold.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (writer, written) = write_much(&keyspace);
    let (mut last, mut since) = (0, Instant::now());
    while !writer.is_finished() && since.elapsed() < Duration::from_secs(2) {
        if written.load(Ordering::Relaxed) != last {
            (last, since) = (written.load(Ordering::Relaxed), Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let waited = !writer.is_finished();
    let stats = db.stats();
    let free = fs.free_bytes(Path::new("/store")).expect("tells").expect("knows");
    let calls = fs.calls();
    std::thread::sleep(Duration::from_millis(500));
    let calls = fs.calls() - calls;
    over.store(true, Ordering::SeqCst);
    let outcome = writer.join().expect("no panic");
    failpoint::clear("flush::begins");
    outcome.expect("what is written over and over fits, if the log is flushed in time");
    assert!(waited && last > 6_000, "writers go on until about half of the device is log: {last} puts");
    // Each version takes its value, a key of four bytes, and little more in a table; memtables take more than tables do.
    let tables = u64::from(last) * (1000 + 4 + 24);
    assert!(
        free >= tables,
        "{free} free for {tables} of tables, {} of memtables",
        stats.memtable_frozen_bytes
    );
    assert!(stats.stalls > 0, "the wait shows");
    assert!(calls < 20, "nobody looks again and again: {calls} calls");
}

/// Regression: a range deletion held the locks of all keys it had got while it waited for one that was held.
#[test]
fn a_put_that_stands_still_and_a_range_deletion_behind_it_stop_nobody_else() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let (_db, keyspace) = small(&MemFs::new());
    let hold = Hold::default();
    let stand = hold.clone();
    failpoint::set("write::locked", move || stand.stand());
    let other = keyspace.clone();
    let still = hold.start(move || other.put("frozen", "x"));
    let other = keyspace.clone();
    let deleter = std::thread::spawn(move || other.delete_range("y", "z"));
    std::thread::sleep(Duration::from_millis(100));
    let (send, receive) = mpsc::channel();
    let other = keyspace.clone();
    let writer = std::thread::spawn(move || {
        (0..200).for_each(|n| other.put(format!("other{n}"), "x").expect("puts"));
        send.send(()).expect("the test waits");
    });
    let went_on = receive.recv_timeout(Duration::from_secs(20)).is_ok();
    let deleted_early = deleter.is_finished();
    hold.end();
    still.join().expect("no panic").expect("puts");
    deleter.join().expect("no panic").expect("deletes");
    writer.join().expect("no panic");
    failpoint::clear("write::locked");
    assert!(!deleted_early, "a range deletion is a write of the key that is held, too");
    assert!(went_on, "puts of other keys waited behind a range deletion");
}

/// Regression: memtables turn at borders of the log, which a keyspace that is not logged hardly moves: its memtable grew
/// until all memory was short, whatever its limit.
#[test]
fn a_memtable_that_is_not_logged_keeps_to_its_limit() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let options = Options { memory_bytes: 256 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("opens");
    let options =
        KeyspaceOptions { logged: false, memtable_bytes: Some(1 << 20), ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("makes");
    for n in 0..4000 {
        keyspace.put(format!("key{n}"), vec![7; 16 << 10]).expect("puts");
        // A worker comes at its own time; what counts is that one comes.
        if n % 64 == 0 {
            let began = Instant::now();
            while db.stats().memtable_bytes > 2 << 20 {
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "a memtable of at most 1 MiB: {}",
                    db.stats()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert!(db.stats().flushes >= 20, "{}", db.stats().flushes);
}

/// Regression: nobody was told of a memtable that is not logged and outgrew its limit by what was deleted in ranges.
#[test]
fn ranges_deleted_in_a_memtable_that_is_not_logged_count() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let (db, _) = small(&MemFs::new());
    let usual = KeyspaceOptions::default();
    let options = KeyspaceOptions { logged: false, memtable_bytes: Some(64 << 10), ..usual };
    let keyspace = db.keyspace("unlogged", options).expect("makes");
    let began = Instant::now();
    for n in 0u64.. {
        let [start, end] = [0, 1].map(|more| [&(2 * n + more).to_be_bytes()[..], &[7; 1000]].concat());
        keyspace.delete_range(start, end).expect("deletes");
        if n > 2000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if db.stats().flushes > 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{n} ranges, and no flush: {}", db.stats());
    }
}

/// Regression: nothing was running, so the store was idle, though the flush of a memtable that had outgrown its limit waited
/// for a pad of the log that a thread was about to write.
#[test]
fn a_pad_that_is_due_is_work_to_wait_for() {
    let _one = POINTS.lock().unwrap_or_else(|failed| failed.into_inner());
    let (db, _) = small(&MemFs::new());
    // What is frozen is due: no run that rests.
    let memory = Memory::TwoTier;
    let usual = KeyspaceOptions::default();
    let options = KeyspaceOptions { memory, logged: false, memtable_bytes: Some(64 << 10), ..usual };
    let keyspace = db.keyspace("unlogged", options).expect("makes");
    // The log is open ahead then: no border comes while the puts below are under way.
    keyspace.put("first", "x").expect("puts");
    db.wait_for_idle().expect("waits");
    let (came, comes) = mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    let hold = over.clone();
    failpoint::set("pad::begins", move || {
        let _ = came.send(());
        while !hold.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let put = (0..100u32).try_for_each(|i| keyspace.put(i.to_be_bytes(), [7; 1000]));
    let due = comes.recv_timeout(Duration::from_secs(60));
    let (said, says) = mpsc::channel();
    let waiter = {
        let db = db.clone();
        std::thread::spawn(move || {
            let result = db.wait_for_idle();
            let _ = said.send(());
            result
        })
    };
    let early = says.recv_timeout(Duration::from_millis(200)).is_ok();
    over.store(true, Ordering::SeqCst);
    failpoint::clear("pad::begins");
    waiter.join().expect("no panic").expect("waits");
    put.expect("puts");
    due.expect("no border comes by itself");
    assert!(!early, "idle, with a pad to come");
    let stats = db.stats();
    assert_eq!(stats.memtable_frozen_bytes, 0, "what was frozen is flushed");
}
