//! Many keys looked up at once: what single gets answer, wherever the keys lie, and the device is asked for all blocks before
//! the first is waited for.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod dice;
    pub mod watched;
}

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drumlin::env::{Env, Fault, FaultyFs, FileSystem, MemFs, Operation};
use drumlin::{Compression, Db, Error, Keyspace, KeyspaceOptions, Layout, Memory, Options, Slice};
use support::dice::Dice;
use support::watched::WatchedFs;

const KEYS: u64 = 600;

const MEMORIES: [Memory; 3] = [Memory::Sorted, Memory::TwoTier, Memory::Runs { runs: 3, merged_percent: 60 }];
const LAYOUTS: [Layout; 4] = [
    Layout::Leveled,
    Layout::Tiered { runs: 3, merged_percent: 70 },
    Layout::LazyLeveled { runs: 2, upper_percent: 50 },
    Layout::TRIE,
];

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: Arc<dyn FileSystem>) -> Db {
    open_with(fs, Options::MEMORY_BYTES_MIN)
}

fn open_with(fs: Arc<dyn FileSystem>, memory_bytes: usize) -> Db {
    let options = Options {
        memory_bytes,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        background_threads: 1,
        ..Options::default()
    };
    Db::open_with(Env::with_fs(fs), "/store", options).expect("opens")
}

/// Small memtables, tables and blocks, so that keys lie everywhere.
fn small(memory: Memory, layout: Layout) -> KeyspaceOptions {
    KeyspaceOptions {
        memory,
        layout,
        memtable_bytes: Some(64 << 10),
        table_bytes: 16 << 10,
        level0_tables: 3,
        level1_bytes: 64 << 10,
        level_ratio: 4,
        block_bytes: 512,
        ..KeyspaceOptions::default()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:05}").into_bytes()
}

/// Some of the keys: none, one, a few, or more than are looked up together; many of them doubled, some never put.
fn some_keys(dice: &mut Dice) -> Vec<Vec<u8>> {
    let count = [0, 1, 2, 16, 40, 300][dice.below(6) as usize];
    let among = 1 + dice.below(KEYS + KEYS / 10);
    (0..count).map(|_| key(dice.below(among))).collect()
}

#[track_caller]
fn check(keys: &[Vec<u8>], found: &[Option<Slice>], map: &Map, get: impl Fn(&[u8]) -> Option<Slice>) {
    assert_eq!(found.len(), keys.len());
    for (key, found) in keys.iter().zip(found) {
        let named = key.escape_ascii();
        assert!(found.as_deref() == map.get(key).map(Vec::as_slice), "{named} of {}", keys.len());
        assert!(*found == get(key), "{named}: a get says something else");
    }
}

fn write(keyspace: &Keyspace, map: &mut Map, dice: &mut Dice) {
    let n = dice.below(KEYS);
    match dice.below(40) {
        0..6 => {
            keyspace.delete(key(n)).expect("deletes");
            map.remove(&key(n));
        }
        6 if keyspace.options().is_ordered() => {
            let end = n + 1 + dice.below(30);
            keyspace.delete_range(key(n), key(end)).expect("deletes");
            map.retain(|k, _| *k < key(n) || *k >= key(end));
        }
        kind => {
            // Now and then one that fills blocks by itself.
            let length = if kind == 7 { 9000 } else { dice.below(300) };
            let value: Vec<u8> = (0..length).map(|at| (at ^ dice.next()) as u8).collect();
            keyspace.put(key(n), &value).expect("puts");
            map.insert(key(n), value);
        }
    }
}

fn a_history(memory: Memory, layout: Layout, seed: u64) {
    let fs = MemFs::new();
    let mut dice = Dice(seed);
    let mut db = open(fs.clone());
    let mut keyspace = db.keyspace("k", small(memory, layout)).expect("makes");
    let (mut map, mut snapshots) = (Map::new(), Vec::new());
    for step in 0..6000 {
        write(&keyspace, &mut map, &mut dice);
        match dice.below(600) {
            0 => db.flush().expect("flushes"),
            1 if dice.below(4) == 0 => keyspace.compact().expect("compacts"),
            2..5 if snapshots.len() < 3 => {
                snapshots.push((db.snapshot().expect("snapshot"), map.clone()));
            }
            5 if !snapshots.is_empty() => drop(snapshots.swap_remove(0)),
            6 => {
                // Nothing is open or cached behind it.
                snapshots.clear();
                drop(keyspace);
                db.close().expect("closes");
                db = open(fs.clone());
                keyspace = db.open_keyspace("k").expect("opens");
            }
            _ => {}
        }
        if step % 23 == 0 {
            let keys = some_keys(&mut dice);
            let found = keyspace.multi_get(&keys).expect("reads");
            check(&keys, &found, &map, |key| keyspace.get(key).expect("reads"));
            for (snapshot, then) in &snapshots {
                let found = snapshot.multi_get(&keyspace, &keys).expect("reads");
                check(&keys, &found, then, |key| snapshot.get(&keyspace, key).expect("reads"));
            }
        }
    }
}

#[test]
fn many_keys_are_answered_as_each_by_itself() {
    for (n, layout) in LAYOUTS.into_iter().enumerate() {
        for (m, memory) in MEMORIES.into_iter().enumerate() {
            println!("{memory:?}, {layout:?}");
            a_history(memory, layout, (n * 10 + m + 1) as u64);
        }
    }
}

/// A store whose keys all lie in tables that are open, and hardly a block is cached.
fn cold(fs: Arc<dyn FileSystem>, layout: Layout) -> (Db, Keyspace) {
    let options = KeyspaceOptions {
        layout,
        table_bytes: 64 << 20,
        block_bytes: 4096,
        compression: Compression::None,
        ..KeyspaceOptions::default()
    };
    let db = open_with(fs.clone(), 256 << 20);
    let keyspace = db.keyspace("k", options).expect("makes");
    (0..8000).for_each(|n| keyspace.put(key(n), [n as u8; 100]).expect("puts"));
    keyspace.compact().expect("compacts");
    drop(keyspace);
    db.close().expect("closes");
    let db = open_with(fs, 256 << 20);
    let keyspace = db.open_keyspace("k").expect("opens");
    // Opens them: their filters rule the keys out, but for one now and then.
    for n in 0..200 {
        let absent = [key(n * 40), b"absent".to_vec()].concat();
        assert_eq!(keyspace.get(absent).expect("reads"), None);
    }
    (db, keyspace)
}

#[test]
fn the_device_is_asked_for_all_blocks_before_the_first_is_read() {
    for layout in [Layout::Leveled, Layout::TRIE] {
        let fs = WatchedFs::new(MemFs::new());
        let (_db, keyspace) = cold(fs.clone(), layout);
        // Each twice, and some that are not there.
        let keys: Vec<Vec<u8>> =
            (0..16).chain(0..16).map(|n| key(n * 450)).chain((0..8).map(|n| key(9000 + n))).collect();
        fs.forget();
        let found = keyspace.multi_get(&keys).expect("reads");
        for (n, found) in found.iter().enumerate() {
            let value = [(n as u64 % 16 * 450) as u8; 100];
            assert_eq!(found.as_deref(), if n < 32 { Some(&value[..]) } else { None }, "key {n}");
        }
        let events = fs.events();
        let places = |ahead: bool| {
            let mut places: Vec<_> =
                events.iter().filter(|event| event.ahead == ahead).map(|event| &event.place).collect();
            places.sort_unstable();
            places
        };
        let blocks = places(false);
        assert_eq!(places(true), blocks, "{layout:?}: {events:?}");
        // Some keys may share one; a filter may err.
        assert!((9..=24).contains(&blocks.len()), "{layout:?}: {events:?}");
        assert!(blocks.windows(2).all(|pair| pair[0] < pair[1]), "{layout:?}: each once: {events:?}");
        let first_read = events.iter().position(|event| !event.ahead).expect("the store is cold");
        assert!(first_read >= 9, "{layout:?}: {events:?}");
        // What was read is cached; a single block is only read.
        fs.forget();
        keyspace.multi_get(&keys).expect("reads");
        assert_eq!(fs.events(), [], "{layout:?}");
        keyspace.multi_get(&[key(7000), key(0)]).expect("reads");
        let events = fs.events();
        assert!(events.len() <= 1 && events.iter().all(|event| !event.ahead), "{layout:?}: {events:?}");
    }
}

/// While blocks of the first keys are read, a table comes that stands before all others: the last keys are looked up in levels of which
/// the first keys know nothing.
#[test]
fn what_comes_into_tables_meanwhile_hides_nothing() {
    for layout in [Layout::Leveled, Layout::TRIE] {
        let fs = WatchedFs::new(MemFs::new());
        let options =
            KeyspaceOptions { layout, compression: Compression::None, ..KeyspaceOptions::default() };
        let db = Arc::new(open_with(fs.clone(), 256 << 20));
        let keyspace = db.keyspace("k", options).expect("makes");
        // So large that the blocks of a few are all that is read at once.
        (0..60).for_each(|n| keyspace.put(key(n), vec![n as u8; 700 << 10]).expect("puts"));
        db.flush().expect("flushes");
        keyspace.compact().expect("compacts");
        let keys: Vec<Vec<u8>> = (0..60).map(key).collect();
        let came = Arc::new(AtomicBool::new(false));
        let (there, writer, flusher) = (came.clone(), keyspace.clone(), db.clone());
        fs.before_next_read(move || {
            writer.put(key(59), "new").expect("puts");
            flusher.flush().expect("flushes");
            there.store(true, Ordering::Relaxed);
        });
        let found = keyspace.multi_get(&keys).expect("reads");
        assert!(came.load(Ordering::Relaxed), "{layout:?}: nothing was read");
        for (n, found) in found.iter().enumerate() {
            let found = found.as_deref().unwrap_or_else(|| panic!("{layout:?}: key {n} is there"));
            assert!(found == b"new" && n == 59 || found == vec![n as u8; 700 << 10], "{layout:?}: key {n}");
        }
    }
}

#[test]
fn an_error_of_one_key_is_that_of_the_call() {
    for layout in [Layout::Leveled, Layout::TRIE] {
        let fs = FaultyFs::new(MemFs::new());
        let (db, keyspace) = cold(fs.clone(), layout);
        let keys: Vec<Vec<u8>> = (0..16).map(|n| key(n * 450)).collect();
        // The fifth block, which is the only one that is not in the cache behind that.
        for (fault, nth) in [(Fault::CorruptRead { bit: 999 }, 5), (Fault::Error(ErrorKind::Other), 1)] {
            let mut reads = 0;
            fs.fail_when(move |call| {
                reads += u32::from(call.operation == Operation::Read);
                (reads == nth).then_some(fault)
            });
            let error = keyspace.multi_get(&keys).expect_err("a block cannot be read");
            assert_eq!(error.is_corruption(), fault == Fault::CorruptRead { bit: 999 }, "{error}");
            fs.clear();
        }
        // What is not touched by it is answered, and so is all when it has passed.
        let before = db.snapshot().expect("snapshot");
        keyspace.put(key(0), "new").expect("puts");
        let found = keyspace.multi_get(&keys).expect("reads");
        assert!(found[1..].iter().all(Option::is_some));
        assert_eq!(found[0].as_deref(), Some(&b"new"[..]));
        assert_eq!(
            before.multi_get(&keyspace, &keys[..1]).expect("reads")[0].as_deref(),
            Some(&[0; 100][..])
        );
    }
}

#[test]
fn lists_of_every_kind_are_answered_and_what_is_closed_says_so() {
    for layout in LAYOUTS {
        let db = open(MemFs::new());
        let keyspace = db.keyspace("k", small(Memory::default(), layout)).expect("makes");
        let none: [&[u8]; 0] = [];
        assert_eq!(keyspace.multi_get(&none).expect("reads"), []);
        keyspace.put("", "empty").expect("puts");
        keyspace.put("a", "").expect("puts");
        let far_too_long = vec![b'x'; drumlin::key::KEY_BYTES_MAX + 1];
        let keys: Vec<&[u8]> = vec![b"a", b"", &far_too_long, b"a", b"b", b""];
        let expected: Vec<Option<&[u8]>> =
            vec![Some(b""), Some(b"empty"), None, Some(b""), None, Some(b"empty")];
        let snapshot = db.snapshot().expect("snapshot");
        for flushed in [false, true] {
            let found = keyspace.multi_get(&keys).expect("reads");
            assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{flushed}");
            assert_eq!(snapshot.multi_get(&keyspace, &keys).expect("reads"), found);
            for (key, found) in keys.iter().zip(&found) {
                assert_eq!(keyspace.get(key).expect("reads"), *found);
            }
            db.flush().expect("flushes");
        }
        let other = open(MemFs::new()).snapshot().expect("snapshot");
        assert!(matches!(other.multi_get(&keyspace, &keys), Err(Error::InvalidArgument { .. })));
        db.drop_keyspace("k").expect("drops");
        assert!(matches!(keyspace.multi_get(&keys), Err(Error::Closed { .. })));
        assert!(matches!(keyspace.multi_get(&none), Err(Error::Closed { .. })));
    }
}
