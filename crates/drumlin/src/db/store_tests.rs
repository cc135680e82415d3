//! What the store's parts do to each other in orders that are rare: each test brings one about.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::*;
use crate::env::{MemFs, Operation, Spawner, Thread};
use crate::key::Lsn;
use crate::options::Memory;
use crate::sync::failpoint;

const PATIENCE: Duration = Duration::from_secs(30);

fn open(options: Options) -> (Db, Keyspace) {
    let options = Options { segment_bytes: 64 << 10, ..options };
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("open");
    let keyspace = db.keyspace("k", Default::default()).expect("keyspace");
    (db, keyspace)
}

/// Waits until a state that another thread brings about.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A pause point that stops threads of one name once, and says so.
struct Stop {
    inside: Mutex<bool>,
    open: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn at(point: &'static str, thread: &'static str) -> Arc<Stop> {
        let stop = Arc::new(Stop { inside: false.into(), open: false.into(), changed: Condvar::new() });
        let here = stop.clone();
        failpoint::set(point, move || {
            if std::thread::current().name() == Some(thread) {
                *here.inside.lock().expect("no panic") = true;
                here.changed.notify_all();
                let open = here.open.lock().expect("no panic");
                drop(here.changed.wait_while(open, |open| !*open).expect("no panic"));
            }
        });
        stop
    }

    fn wait_until_inside(&self) {
        let inside = self.inside.lock().expect("no panic");
        let (inside, _) =
            self.changed.wait_timeout_while(inside, PATIENCE, |inside| !*inside).expect("no panic");
        assert!(*inside, "the thread gets there");
    }

    fn let_go(&self) {
        *self.open.lock().expect("no panic") = true;
        self.changed.notify_all();
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().name(name.into()).spawn(body).expect("spawn")
}

/// Regression: writers hung for ever, now and then, on a busy machine: that memory is full was a flag, stored late by who
/// had looked before a flush. Now it is what the account says at that moment.
#[test]
fn that_memory_is_full_does_not_outlive_the_flush() {
    let (db, keyspace) = open(Options { memory_bytes: 4 << 20, background_threads: 2, ..Default::default() });
    // Nothing can be flushed while this put is in flight, so memory fills up.
    let put = Stop::at("write::logged", "frozen");
    let frozen = {
        let keyspace = keyspace.clone();
        spawn("frozen", move || keyspace.put("frozen", "x"))
    };
    put.wait_until_inside();
    let filler = {
        let keyspace = keyspace.clone();
        spawn("filler", move || (0..2500).try_for_each(|i: u32| keyspace.put(i.to_be_bytes(), [7; 1000])))
    };
    let began = Instant::now();
    while !db.store.is_full() {
        assert!(began.elapsed() < PATIENCE, "memory fills up");
        std::thread::yield_now();
    }
    put.let_go();
    frozen.join().expect("no panic").expect("put");
    let (done, flushed) = mpsc::channel();
    let flusher = {
        let db = db.clone();
        spawn("flusher", move || {
            let result = db.flush();
            let _ = done.send(());
            result
        })
    };
    flushed.recv_timeout(PATIENCE).expect("what is full can be flushed");
    flusher.join().expect("no panic").expect("flush");
    let (done, put) = mpsc::channel();
    let last = {
        let keyspace = keyspace.clone();
        spawn("last", move || {
            filler.join().expect("no panic").expect("the filler's puts");
            let result = keyspace.put("last", "x");
            let _ = done.send(());
            result
        })
    };
    put.recv_timeout(PATIENCE).expect("nothing is full any more, so writers go on");
    last.join().expect("no panic").expect("put");
    failpoint::clear("write::logged");
    db.close().expect("close");
}

/// Regression: a worker that looked for forgotten snapshots held them while it looked, and each holds
/// the store. When the user dropped the last handle just then, the worker closed the store, and so
/// waited for its own end.
#[test]
fn looking_for_forgotten_snapshots_does_not_keep_the_store_open() {
    let (db, keyspace) =
        open(Options { snapshot_expiry: Some(Duration::from_secs(3600)), ..Default::default() });
    let store = db.store.clone();
    let snapshot = db.snapshot().expect("snapshot");
    let looking = store.handed_out.lock()[0].upgrade().expect("the snapshot is alive");
    drop((snapshot, keyspace, db));
    assert!(store.is_closed(), "the last handle closes the store, whoever is looking");
    drop(looking);
}

/// Regression: a worker looked for work just before the log passed the border at which a generation
/// had turned, and slept. Nothing woke it when the border was passed, not even who waited for it.
#[test]
fn a_flush_that_becomes_due_while_the_workers_sleep_is_done_for_whoever_waits() {
    let (db, keyspace) = open(Options { background_threads: 1, ..Default::default() });
    // What is frozen is due: no run that rests.
    let options = KeyspaceOptions { memory: Memory::TwoTier, ..KeyspaceOptions::default() };
    keyspace.set_options(options).expect("sets");
    keyspace.put("x", "y").expect("put");
    let (store, state) = (db.store.clone(), keyspace.state.clone());
    let log = store.log().expect("open for writing");
    let units = log.units_per_segment();
    // Enough open segments that nothing opens, and so wakes the workers, in what follows.
    drop(log.ensure_room(6 * units).expect("room"));
    // Having looked since whatever came last.
    let sleeps = || {
        let state = store.background.state.lock();
        state.slept_at == Some(state.epoch)
    };
    wait_until("the worker sleeps", sleeps);
    let border = Lsn(store.sequencer.tail().0.next_multiple_of(units));
    state.current.turn(border, || state.next_memtable(&store.memory));
    db.wait_for_idle().expect("what ends beyond the tail is not due");
    wait_until("the worker sleeps again", sleeps);
    let room = store.room(store.log().expect("log").units_per_segment()).expect("room");
    store.pad_to_border(room).expect("pad");
    let (done, idle) = mpsc::channel();
    let waiter = {
        let db = db.clone();
        spawn("waiter", move || done.send(db.wait_for_idle()))
    };
    idle.recv_timeout(PATIENCE).expect("the worker looks again for whoever waits").expect("and flushes");
    let _ = waiter.join();
    assert_eq!(db.stats().flushes, 1);
    db.close().expect("close");
}

/// Regression: a store that is closed and opened again in one process could fail to open, since the
/// last readers of its obsolete tables removed them while the open listed them.
#[test]
fn a_table_that_goes_while_the_store_is_opened_does_no_harm() {
    let fs = MemFs::new();
    let db = Db::open_with(Env::with_fs(fs.clone()), "/store", Options::default()).expect("open");
    db.close().expect("close");
    fs.set_contents("/store/00000007-0000000000000000.tbl", b"obsolete").expect("file");
    fs.set_fault_hook(Some(Box::new(|call| {
        let removes =
            call.operation == Operation::Remove && call.path.extension().is_some_and(|e| e == "tbl");
        removes.then_some(std::io::ErrorKind::NotFound)
    })));
    let db = Db::open_with(Env::with_fs(fs.clone()), "/store", Options::default()).expect("open again");
    fs.set_fault_hook(None);
    db.close().expect("close");
}

/// Regression: a memtable turns a segment ahead of the tail, and until the tail came there every put took its room in the
/// next memtable, and then in its own: memory filled up with what nobody had written.
#[test]
fn what_is_written_before_a_border_takes_no_room_beyond_it() {
    let (db, keyspace) = open(Options { memory_bytes: 64 << 20, ..Default::default() });
    keyspace.put("first", "x").expect("put");
    let (store, state) = (db.store.clone(), keyspace.state.clone());
    let units = store.log().expect("open for writing").units_per_segment();
    drop(store.log().expect("open for writing").ensure_room(6 * units).expect("room"));
    let border = Lsn(store.sequencer.tail().0.next_multiple_of(units) + 2 * units);
    state.current.turn(border, || state.next_memtable(&store.memory));
    let newest = || state.current.load(&crossbeam_epoch::pin()).active().memtable.clone();
    let empty = newest().bytes();
    for number in 0..100u32 {
        keyspace.put(number.to_be_bytes(), [7; 1000]).expect("put");
    }
    assert!(store.sequencer.tail() < border);
    assert_eq!(newest().bytes(), empty, "nothing belongs there yet");
    while store.sequencer.tail() < border {
        keyspace.put("more", [7; 1000]).expect("put");
    }
    for number in 0..100u32 {
        keyspace.put(number.to_be_bytes(), [7; 1000]).expect("put");
    }
    assert!(newest().bytes() > empty, "and then it does");
    drop(state);
    db.close().expect("close");
}

/// A store of which the log is open far ahead, so that nothing opens and turns in what follows, and that border.
fn open_far_ahead() -> (Db, Keyspace, Lsn) {
    let (db, keyspace) = open(Options { memory_bytes: 8 << 20, ..Default::default() });
    keyspace.put("first", "x").expect("put");
    let log = db.store.log().expect("open for writing");
    let units = log.units_per_segment();
    drop(log.ensure_room(100 * units).expect("room"));
    let border = Lsn(db.store.sequencer.tail().0.next_multiple_of(units) + 98 * units);
    (db, keyspace, border)
}

fn put_bytes(keyspace: &Keyspace, bytes: u64) {
    for number in 0..bytes / 1000 {
        keyspace.put(number.to_be_bytes(), [7; 1000]).expect("put");
    }
}

/// Fails if no flush is done before long.
fn wait_for_flush(db: &Db) {
    let (done, flushed) = mpsc::channel();
    let store = db.store.clone();
    let waiter = spawn("waiter", move || {
        let is_done = || Ok(store.background.counters.flushes.load(Ordering::Relaxed) > 0);
        done.send(store.wait_until(is_done))
    });
    flushed.recv_timeout(PATIENCE).expect("it is flushed").expect("well");
    let _ = waiter.join();
}

/// Regression: a full memtable waited for the log to come to the border where it ends, and writers waited for it.
#[test]
fn a_memtable_that_has_outgrown_its_limit_is_flushed_wherever_the_tail_is() {
    let (db, keyspace, border) = open_far_ahead();
    put_bytes(&keyspace, 2_200_000);
    keyspace.state.current.turn(border, || keyspace.state.next_memtable(&db.store.memory));
    assert!(!db.store.memory.is_short() && db.store.sequencer.tail() < border);
    db.store.background.wake();
    wait_for_flush(&db);
    assert_eq!(db.stats().stalls, 0);
    db.close().expect("close");
}

/// Regression: as above; with memory short, though not full, writers were delayed while nothing was done about it.
#[test]
fn what_is_frozen_is_flushed_as_soon_as_memory_is_short() {
    let (db, frozen, border) = open_far_ahead();
    let active = db.keyspace("active", Default::default()).expect("keyspace");
    put_bytes(&frozen, 1_500_000);
    frozen.state.current.turn(border, || frozen.state.next_memtable(&db.store.memory));
    db.store.background.wake();
    db.wait_for_idle().expect("nothing is due");
    assert_eq!(db.stats().flushes, 0, "it is small, and there is room");
    while !db.store.memory.is_short() {
        active.put("more", [7; 1000]).expect("put");
    }
    active.put("one that finds memory short", "x").expect("put");
    wait_for_flush(&db);
    assert!(!db.store.is_full());
    db.close().expect("close");
}

/// Regression: with memory held by readers, the log was padded border after border, and nothing turned there.
#[test]
fn a_border_turns_the_largest_memtable_if_memory_is_short_and_nothing_is_frozen() {
    let (db, small, border) = open_far_ahead();
    let large = db.keyspace("large", Default::default()).expect("keyspace");
    put_bytes(&small, 100_000);
    put_bytes(&large, 200_000);
    let frozen = |k: &Keyspace| k.state.current.load(&crossbeam_epoch::pin()).frozen().len();
    db.store.on_border(border);
    assert_eq!((frozen(&small), frozen(&large)), (0, 0), "there is room");
    let held = db.store.memory.memtables.account().charge(3_200_000);
    assert!(db.store.memory.is_short() && !db.store.is_full());
    db.store.on_border(border);
    assert_eq!((frozen(&small), frozen(&large)), (0, 1));
    db.store.on_border(Lsn(border.0 + 8192));
    assert_eq!((frozen(&small), frozen(&large)), (0, 1), "one waits for its flush");
    drop(held);
    db.close().expect("close");
}

/// Starts threads, but not the second worker.
struct OneWorker(Arc<dyn Spawner>);

impl Spawner for OneWorker {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
        if name.ends_with("bg-1") {
            return Err(Error::invalid("no more threads"));
        }
        self.0.spawn(name, body)
    }
}

/// Regression: an open that failed late left its threads running and the store locked; or the opener,
/// as the last that held the store, waited for its own end.
#[test]
fn an_open_that_fails_leaves_nothing_running_and_nothing_locked() {
    let fs = MemFs::new();
    let env = Env::with_fs(fs.clone());
    for _ in 0..20 {
        let starved = Env { spawner: Arc::new(OneWorker(env.spawner.clone())), ..env.clone() };
        let failed =
            Db::open_with(starved, "/store", Options { segment_bytes: 64 << 10, ..Options::default() });
        assert!(failed.is_err_and(|why| why.to_string().contains("no more threads")));
    }
    let db = Db::open_with(env, "/store", Options::default()).expect("nobody holds the lock");
    db.close().expect("close");
}
