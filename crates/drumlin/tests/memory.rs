//! Memory keeps to its budget, and the figures of `Db::stats` are what the allocator says.
//!
//! The heavy parts run in a process of their own: this test binary, started again. There everything that the process
//! holds is the store's, but for the program itself.
//!
//! How resident size is counted: `VmRSS` of /proc/self/status, every 10 ms, the peak of it. That is all of it: heap,
//! stacks, the program's own pages and the mapped pages of the log. What the system's allocator keeps beyond what it was
//! asked for is among it. `cargo x soak memory` runs the full form: a budget of 64 MiB and ten times as much written
//! (`DRUMLIN_MEMORY_MIB`).

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use drumlin::env::{Env, MemFs};
use drumlin::failpoint;
use drumlin::{Db, Keyspace, KeyspaceOptions, Options};

const MIB: u64 = 1 << 20;
const STORE: &str = "DRUMLIN_MEMORY_STORE";
const BUDGET: &str = "DRUMLIN_MEMORY_MIB";

thread_local! {
    /// How often this thread asked for memory.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a sum.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

// SAFETY: hands every call on to the system's allocator as it came. Test: every test of this file.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is being torn down counts no more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let live = LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed) + layout.size() as isize;
        if live > PEAK.load(Ordering::Relaxed) {
            PEAK.fetch_max(live, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the same. Test: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are the same. Test: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `n`-th key: random, of 16 bytes.
fn key(n: u64) -> Vec<u8> {
    format!("{:016x}", mix(n)).into_bytes()
}

/// A value of some 100 to 400 bytes, half of which compresses.
fn value(n: u64) -> Vec<u8> {
    let random = mix(n ^ 0x5555);
    let mut value = vec![b'v'; 50 + (random % 150) as usize];
    for i in 0..value.len() as u64 / 8 + 1 {
        value.extend_from_slice(&mix(random ^ i).to_le_bytes());
    }
    value
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = text.lines().find(|line| line.starts_with(field)).expect("the field is there");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib << 10
}

fn budget_mib() -> u64 {
    std::env::var(BUDGET).map_or(16, |n| n.parse().expect("a number of MiB"))
}

/// Starts this binary again to run one ignored test alone.
fn alone(test: &str) {
    let store = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&store);
    let output = Command::new(std::env::current_exe().expect("this test's own binary"))
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(STORE, &store)
        .output()
        .expect("the child runs");
    let _ = std::fs::remove_dir_all(&store);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}");
}

fn store() -> PathBuf {
    std::env::var_os(STORE).map(PathBuf::from).expect("only its parent may start this")
}

#[test]
fn resident_memory_keeps_to_the_budget_under_load() {
    alone("child_loads_ten_times_the_budget");
}

#[test]
fn resident_memory_keeps_to_the_budget_in_recovery() {
    alone("child_recovers_more_than_the_budget");
}

#[test]
fn stats_account_for_what_the_allocator_gave() {
    alone("child_compares_stats_with_the_allocator");
}

#[test]
fn a_scan_of_what_is_cached_allocates_nothing_for_a_record() {
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", Options::default()).expect("opens");
    // A value that lies apart is read into memory of its own.
    let options = KeyspaceOptions { value_separation: None, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("k", options).expect("makes");
    for n in 0..20_000 {
        keyspace.put(key(n), value(n)).expect("puts");
    }
    db.compact().expect("compacts");
    for n in (0..20_000).step_by(7) {
        keyspace.put(key(n), value(n + 1)).expect("puts");
    }
    for cached in [false, true] {
        let (mut front, mut back) = (keyspace.iter().expect("scans"), keyspace.iter().expect("scans"));
        let mut records = 0;
        let before = ALLOCATIONS.get();
        while front.next_ref().expect("reads").is_some() && back.next_back_ref().expect("reads").is_some() {
            records += 1;
        }
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(records, 20_000);
        // Cursors and their buffers; and what the epochs take now and then.
        assert!(!cached || allocations < 200, "{allocations} allocations");
    }
}

/// Not a test of its own: the process that the first test above starts.
#[test]
#[ignore = "started by resident_memory_keeps_to_the_budget_under_load"]
fn child_loads_ten_times_the_budget() {
    let budget = budget_mib() * MIB;
    let before = status("VmRSS");
    let options = Options { memory_bytes: budget as usize, ..Options::default() };
    let db = Db::open(store(), options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    // Writer w writes the keys 2 i + w, for each i in turn.
    let (written, loaded) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicU64::new(0));
    let (done, reads, scanned) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (mut peak, mut peak_is, mut mapped_files) = (0, String::new(), 0);
    let mut accounted = 0;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (written, loaded, keyspace, done) = (&written[writer as usize], &loaded, &keyspace, &done);
            scope.spawn(move || {
                while loaded.load(Ordering::Relaxed) < 10 * budget {
                    let n = 2 * written.load(Ordering::Relaxed) + writer;
                    let (key, value) = (key(n), value(n));
                    loaded.fetch_add((key.len() + value.len()) as u64, Ordering::Relaxed);
                    keyspace.put(key, value).expect("puts");
                    written.fetch_add(1, Ordering::Release);
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            let mut n = 7;
            while !done.load(Ordering::Relaxed) {
                n = mix(n);
                let writer = n >> 63;
                let known = written[writer as usize].load(Ordering::Acquire);
                if known > 0 {
                    let n = 2 * (n % known) + writer;
                    assert_eq!(keyspace.get(key(n)).expect("gets").as_deref(), Some(&value(n)[..]), "{n}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        scope.spawn(|| {
            let mut n = 3;
            while !done.load(Ordering::Relaxed) {
                n = mix(n);
                for record in keyspace.range(key(n)..).expect("scans").take(20_000) {
                    record.expect("readable");
                    scanned.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            let resident = status("VmRSS");
            mapped_files = status("RssFile").max(mapped_files);
            let stats = db.stats();
            accounted = stats.memory_bytes().max(accounted);
            if resident > peak {
                peak = resident;
                peak_is = format!(
                    "allocated {} (at most {}), anon {}, file {}, shmem {}; memtables {} (frozen {}, unfreed {}), cache {}, tables {}, jobs {}, log mapped {}",
                    LIVE.load(Ordering::Relaxed) as u64 / MIB,
                    PEAK.load(Ordering::Relaxed) as u64 / MIB,
                    status("RssAnon") / MIB,
                    status("RssFile") / MIB,
                    status("RssShmem") / MIB,
                    stats.memtable_bytes / MIB,
                    stats.memtable_frozen_bytes / MIB,
                    stats.memtable_unfreed_bytes / MIB,
                    stats.cache_bytes / MIB,
                    stats.table_resident_bytes / MIB,
                    stats.job_bytes / MIB,
                    stats.log_mapped_bytes / MIB,
                );
            }
        }
    });
    let (reads, scanned) = (reads.into_inner(), scanned.into_inner());
    println!(
        "budget {} MiB, {} MiB loaded in {:.1} s, {reads} gets, {scanned} records scanned: resident {} MiB at most \
         ({} before), accounted {} MiB at most; at the peak in MiB: {peak_is}\n{}",
        budget / MIB,
        loaded.into_inner() / MIB,
        start.elapsed().as_secs_f64(),
        peak / MIB,
        before / MIB,
        accounted / MIB,
        db.stats()
    );
    assert!(reads > 500 && scanned > 10_000, "the readers were there: {reads} gets, {scanned} records");
    assert!(peak <= budget + 64 * MIB, "{} MiB resident", peak / MIB);
    // The program itself, and the log: the segment being filled, those next to it, what is read for a mark.
    let segment = budget / 16;
    assert!(mapped_files <= 6 * MIB + 4 * segment, "{} KiB of files resident", mapped_files >> 10);
    // What is lent to scans comes on top when the cache has no more to give.
    assert!(accounted <= budget + budget / 4, "{} MiB accounted", accounted / MIB);
    db.close().expect("closes");
}

/// Not a test of its own: the process that the second test above starts. Its log comes from a store with room for it all.
#[test]
#[ignore = "started by resident_memory_keeps_to_the_budget_in_recovery"]
fn child_recovers_more_than_the_budget() {
    const RECORDS: u64 = 1_200_000;
    let budget = budget_mib() * MIB;
    let (made, killed) = (store(), store().join("killed"));
    let db = Db::open(&made, Options { memory_bytes: 2 << 30, ..Options::default() }).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    for n in 0..RECORDS {
        keyspace.put(key(n), n.to_le_bytes()).expect("puts");
    }
    let tables: usize = db.stats().keyspaces.iter().flat_map(|k| &k.levels).map(|level| level.tables).sum();
    assert_eq!(tables, 0, "all of it is in the log");
    // What a kill leaves.
    for part in ["", "log"] {
        std::fs::create_dir_all(killed.join(part)).expect("makes");
        for entry in std::fs::read_dir(made.join(part)).expect("lists") {
            let path = entry.expect("lists").path();
            if path.is_file() {
                let to = killed.join(part).join(path.file_name().expect("has a name"));
                std::fs::copy(&path, to).expect("copies");
            }
        }
    }
    drop((keyspace, db));
    let before = status("VmRSS");
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let db = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(status("VmRSS"), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let db = Db::open(&killed, Options { memory_bytes: budget as usize, ..Options::default() });
        done.store(true, Ordering::Relaxed);
        db.expect("opens")
    });
    let (peak, stats) = (peak.into_inner(), db.stats());
    println!("{} MiB resident, {} before\n{stats}", peak / MIB, before / MIB);
    assert!(peak <= before + budget + 64 * MIB, "{} MiB resident, {} before", peak / MIB, before / MIB);
    // The last one that was flushed goes when the epoch moves on: a worker sees to it.
    let start = Instant::now();
    while db.stats().memtable_bytes > budget / 2 {
        assert!(start.elapsed() < Duration::from_secs(10), "{}", db.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(db.open_keyspace("k").and_then(|k| k.iter()).expect("scans").count() as u64, RECORDS);
    db.close().expect("closes");
}

/// Not a test of its own: the process that the third test above starts.
#[test]
#[ignore = "started by stats_account_for_what_the_allocator_gave"]
fn child_compares_stats_with_the_allocator() {
    let live = || LIVE.load(Ordering::Relaxed) as u64;
    let options = Options { memory_bytes: 32 << 20, ..Options::default() };
    let before = live();
    let db = Db::open(store(), options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    let opened = live() - before;
    println!("{} KiB for an empty store, {} KiB accounted", opened >> 10, db.stats().memory_bytes() >> 10);
    let check = |what: &str, least: u64| {
        db.wait_for_idle().expect("idle");
        let start = Instant::now();
        loop {
            // Spares are not the allocator's.
            let stats = db.stats();
            let accounted = stats.memory_bytes() - stats.memtable_spare_bytes;
            let given = live() - before - opened;
            // Chunks of a memtable are counted as far as they are used; what is behind is not resident.
            let slack = (accounted / 8).max(2 * MIB);
            if given.abs_diff(accounted) <= slack && accounted >= least {
                println!("{what}: {} KiB accounted, {} KiB given", accounted >> 10, given >> 10);
                return;
            }
            // What was replaced goes within moments.
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "{what}: {} KiB accounted, {} KiB given\n{}",
                accounted >> 10,
                given >> 10,
                db.stats()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    for n in 0..60_000 {
        keyspace.put(key(n), value(n)).expect("puts");
    }
    db.flush().expect("flushes");
    check("flushed", 0);
    for n in 0..60_000 {
        assert!(keyspace.get(key(n)).expect("gets").is_some());
    }
    check("cached", 8 * MIB);
    for n in 0..200 {
        let start = key(n);
        let end = [&start[..], b"x"].concat();
        keyspace.delete_range(start, end).expect("deletes");
    }
    db.flush().expect("flushes");
    db.wait_for_idle().expect("idle");
    for n in 0..60_000 {
        assert_eq!(keyspace.get(key(n)).expect("gets").is_some(), n >= 200, "{n}");
    }
    check("with range tombstones", 8 * MIB);
    let stats = db.stats();
    assert!(stats.index_bytes > 10_000 && stats.filter_bytes > 60_000, "{stats}");
    assert!(stats.index_bytes + stats.filter_bytes + stats.tombstone_bytes <= stats.table_resident_bytes);
}

#[test]
fn nested_range_deletes_cost_what_others_do() {
    alone("child_nests_range_deletes");
}

/// The processors' time of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a step took of the processors, and the memory it had at most.
type Cost = (&'static str, Duration, u64);

fn costs(what: &'static str, step: impl FnOnce()) -> Cost {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = processor_time();
    step();
    (what, processor_time() - start, (PEAK.load(Ordering::Relaxed) - before) as u64)
}

/// Deletes `count` ranges, twice, among snapshots, and reads, flushes and compacts. `range` gives the keys of each.
fn costs_of_range_deletes(count: u64, range: impl Fn(u64) -> (u64, u64)) -> Vec<Cost> {
    const SNAPSHOTS: u64 = 3;
    let key = |n: u64| format!("k{n:08}");
    let options = Options { memory_bytes: 256 << 20, segment_bytes: 1 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(MemFs::new()), Path::new("/store"), options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    let mut snapshots = Vec::new();
    let mut costs_of_all = Vec::new();
    for _ in 0..2 {
        for n in (0..2 * count).step_by(3) {
            keyspace.put(key(n), "v").expect("puts");
        }
        // What a flush left is freed within moments; if not, less is counted.
        db.wait_for_idle().expect("idle");
        let before = db.stats().memtable_bytes;
        let mut longest = Duration::ZERO;
        for t in 0..count {
            if t % (count / SNAPSHOTS) == count / SNAPSHOTS - 1 {
                snapshots.push((db.snapshot().expect("a snapshot"), t));
            }
            let (start, end) = range(t);
            let began = processor_time();
            keyspace.delete_range(key(start), key(end)).expect("deletes");
            longest = longest.max(processor_time() - began);
        }
        costs_of_all.push(("accounted", Duration::ZERO, db.stats().memtable_bytes.saturating_sub(before)));
        costs_of_all.push(("the longest delete", longest, 0));
        let survivors = |deletes: u64| {
            let mut alive = vec![true; 2 * count as usize];
            (0..deletes).map(&range).for_each(|(s, e)| alive[s as usize..e as usize].fill(false));
            (0..2 * count).step_by(3).filter(|&n| alive[n as usize]).count()
        };
        let expected = survivors(count);
        let then: Vec<usize> = snapshots.iter().map(|&(_, t)| survivors(t)).collect();
        let look = |name: [&'static str; 2]| {
            let scans = costs(name[0], || {
                assert_eq!(keyspace.iter().expect("scans").count(), expected);
                for ((snapshot, _), &expected) in snapshots.iter().zip(&then) {
                    assert_eq!(snapshot.iter(&keyspace).expect("scans").count(), expected);
                }
            });
            let gets = costs(name[1], || {
                let mut found = vec![0; snapshots.len() + 1];
                for n in (0..2 * count).step_by(3) {
                    found[0] += usize::from(keyspace.contains(key(n)).expect("gets"));
                    for (at, (snapshot, _)) in snapshots.iter().enumerate() {
                        found[at + 1] +=
                            usize::from(snapshot.get(&keyspace, key(n)).expect("gets").is_some());
                    }
                }
                assert_eq!(found, [&[expected], &then[..]].concat());
            });
            [scans, gets]
        };
        costs_of_all.extend(look(["scans of memory", "gets from memory"]));
        costs_of_all.push(costs("the flush", || db.flush().expect("flushes")));
        costs_of_all.extend(look(["scans of tables", "gets from tables"]));
    }
    costs_of_all.push(costs("the compaction", || db.compact().expect("compacts")));
    db.close().expect("closes");
    costs_of_all
}

/// Not a test of its own: the process that `nested_range_deletes_cost_what_others_do` starts.
#[test]
#[ignore = "started by nested_range_deletes_cost_what_others_do"]
fn child_nests_range_deletes() {
    const COUNT: u64 = 3000;
    let apart = costs_of_range_deletes(COUNT, |t| (2 * t, 2 * t + 1));
    for (shape, nested) in [
        ("growing", costs_of_range_deletes(COUNT, |t| (0, t + 1))),
        ("inwards", costs_of_range_deletes(COUNT, |t| (t, 2 * COUNT - t))),
    ] {
        for (nested, apart) in nested.iter().zip(&apart) {
            println!("{shape}: {nested:?}; apart: {apart:?}");
            assert!(
                nested.1 < 10 * apart.1 + Duration::from_millis(300),
                "{shape}: {nested:?} but {apart:?}"
            );
            assert!(nested.2 < 3 * apart.2 + 1000 * COUNT, "{shape}: {nested:?} but {apart:?}");
        }
    }
}

fn in_memory(fs: &Arc<MemFs>, logged: bool) -> (Db, Keyspace) {
    let options = Options { memory_bytes: 8 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(fs.clone()), Path::new("/store"), options).expect("opens");
    let keyspace = db.keyspace("k", KeyspaceOptions { logged, ..KeyspaceOptions::default() }).expect("makes");
    (db, keyspace)
}

#[test]
fn writers_wait_at_the_bound_while_no_flush_gets_through() {
    for logged in [true, false] {
        let fs = MemFs::new();
        let (db, keyspace) = in_memory(&fs, logged);
        // Nothing is complete beyond a write in flight, so nothing beyond it can be flushed.
        let (frozen, is_frozen) = mpsc::channel();
        let (thaw, thawed) = mpsc::channel::<()>();
        let thawed = std::sync::Mutex::new(thawed);
        failpoint::set("write::logged", move || {
            if std::thread::current().name() == Some("frozen before a flush") {
                let _ = frozen.send(());
                let _ = thawed.lock().expect("one thread").recv_timeout(Duration::from_secs(60));
            }
        });
        let first = keyspace.clone();
        let first = std::thread::Builder::new()
            .name("frozen before a flush".into())
            .spawn(move || first.put("first", "in flight"))
            .expect("spawns");
        is_frozen.recv_timeout(Duration::from_secs(20)).expect("the put draws its LSN");
        let (finished, is_finished) = mpsc::channel();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (keyspace, finished) = (keyspace.clone(), finished.clone());
                std::thread::spawn(move || {
                    for n in 0..30_000 {
                        keyspace.put(key(n * 2 + writer), value(n)).expect("puts");
                    }
                    let _ = finished.send(());
                })
            })
            .collect();
        let began = Instant::now();
        while db.stats().memtable_bytes < 3 * MIB && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_finished.recv_timeout(Duration::from_millis(1500)).is_err(), "the writers are held up");
        let held = db.stats().memtable_bytes;
        // A half is theirs; what was in flight comes on top.
        assert!(
            (3 * MIB..=4 * MIB + 64 * 1024).contains(&held),
            "logged {logged}: {held} bytes of memtables"
        );
        drop(thaw);
        first.join().expect("no panic").expect("puts");
        failpoint::clear("write::logged");
        for writer in writers {
            writer.join().expect("writes go on");
        }
        assert_eq!(keyspace.iter().expect("scans").count(), 60_001);
    }
}

#[test]
fn a_scan_left_standing_does_not_stop_writers() {
    let fs = MemFs::new();
    let (db, keyspace) = in_memory(&fs, true);
    let mut scans = Vec::new();
    for n in 0..100_000 {
        keyspace.put(key(n), value(n)).expect("puts");
        if n % 10_000 == 9_999 {
            let mut scan = keyspace.iter().expect("scans");
            scan.next().expect("a record").expect("readable");
            scans.push(scan);
        }
    }
    assert!(db.stats().memtable_unfreed_bytes > 0, "the scans hold memtables that were flushed");
    for scan in scans {
        assert!(scan.count() > 9_000);
    }
}

#[test]
fn cold_tables_are_closed_and_opened_again() {
    alone("child_opens_cold_tables");
}

#[test]
#[ignore = "started by cold_tables_are_closed_and_opened_again"]
fn child_opens_cold_tables() {
    let fs = MemFs::new();
    let options = Options { memory_bytes: 4 << 20, ..Options::default() };
    let db = Db::open_with(Env::with_fs(fs), Path::new("/store"), options).expect("opens");
    let small = KeyspaceOptions {
        filter_bits_per_key: 60.0,
        compression: drumlin::Compression::None,
        block_bytes: 128,
        table_bytes: 512 << 10,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("k", small).expect("makes");
    const KEYS: u64 = 100_000;
    for n in 0..KEYS {
        keyspace.put(key(n), b"12345678").expect("puts");
    }
    db.compact().expect("compacts");
    for n in 0..600 {
        assert!(keyspace.get(key(mix(n) % KEYS)).expect("gets").is_some());
        if n % 50 == 0 {
            let stats = db.stats();
            // Seven eighths of three eighths of 4 MiB.
            let open = stats.index_bytes + stats.filter_bytes + stats.tombstone_bytes;
            assert!(open <= 21 * MIB / 16, "{stats}");
        }
    }
    // What was closed is freed once no thread is pinned that could hold it: when, the scheduler decides.
    let began = Instant::now();
    while db.stats().table_resident_bytes > 21 * MIB / 16 {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", db.stats());
        assert!(keyspace.get(key(1)).expect("gets").is_some());
    }
    let all = db.stats().keyspaces[0].levels.iter().map(|l| l.versions).sum::<u64>();
    assert_eq!(all, KEYS);
    let all = db.stats().keyspaces[0].levels.iter().map(|l| l.bytes).sum::<u64>();
    assert!(all > 3 * MIB, "{all} bytes of tables");
}
