//! A deleted key never comes back: its tombstone crosses every tier of every layout, with snapshots open, and
//! whatever moment of a merge is the last.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod dice;
}

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use drumlin::env::{Call, Env, MemFs};
use drumlin::{Db, KeyHash, Keyspace, KeyspaceOptions, Layout, Memory, Options, Snapshot};
use support::dice::Dice;

const MEMORIES: [Memory; 3] = [Memory::Sorted, Memory::TwoTier, Memory::Runs { runs: 3, merged_percent: 60 }];
const LAYOUTS: [Layout; 4] = [
    Layout::Leveled,
    Layout::Tiered { runs: 2, merged_percent: 100 },
    Layout::LazyLeveled { runs: 2, upper_percent: 50 },
    Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip },
];
const KEYS: u64 = 1500;
/// One call of the file system in so many is the last of a clone.
const EVERY: u64 = 24;

/// Number of the last put of each key; `None` of one that was deleted.
type Model = BTreeMap<u64, Option<u64>>;

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// Between the keys that are checked: writes of it carry down what lies over them.
fn filler(number: u64) -> Vec<u8> {
    format!("{number:06}+").into_bytes()
}

fn value(number: u64, put: u64) -> Vec<u8> {
    Dice(number << 20 | put).next().to_le_bytes().repeat(6 + (number % 7) as usize)
}

fn open(fs: &Arc<MemFs>) -> Db {
    let options = Options {
        memory_bytes: Options::MEMORY_BYTES_MIN,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        ..Options::default()
    };
    Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("open")
}

fn options(memory: Memory, layout: Layout) -> KeyspaceOptions {
    KeyspaceOptions {
        memory,
        layout,
        memtable_bytes: Some(64 << 10),
        table_bytes: 8 << 10,
        block_bytes: 512,
        level0_tables: 2,
        level1_bytes: 32 << 10,
        level_ratio: 3,
        ..KeyspaceOptions::default()
    }
}

/// Every key is put once more whose number is a multiple of `step`.
fn put(keyspace: &Keyspace, model: &mut Model, step: usize) {
    for number in (0..KEYS).step_by(step) {
        let put = model.get(&number).copied().flatten().map_or(1, |put| put + 1);
        keyspace.put(key(number), value(number, put)).expect("put");
        model.insert(number, Some(put));
    }
}

/// Tiers or levels with tables.
fn depth(keyspace: &Keyspace) -> usize {
    keyspace.levels().expect("levels").iter().filter(|level| !level.tables.is_empty()).count()
}

/// A scan and gets find what the model has.
fn check(keyspace: &Keyspace, at: Option<&Snapshot>, model: &Model, story: &str) {
    let scan = match at {
        Some(at) => at.iter(keyspace),
        None => keyspace.iter(),
    };
    let mut live =
        model.iter().filter_map(|(number, put)| put.map(|put| (key(*number), value(*number, put))));
    let mut records = scan.expect("scan").collect::<Result<Vec<_>, _>>().expect("read");
    if !keyspace.options().is_ordered() {
        records.sort();
    }
    for (found, with) in records {
        if found.ends_with(b"+") {
            continue;
        }
        let (expected, its) = live.next().unwrap_or_else(|| panic!("{story}: {found:?} is back"));
        assert!(found == *expected, "{story}: a scan finds {found:?}, not {expected:?}");
        assert!(with == *its, "{story}: {found:?} has another value");
    }
    assert_eq!(live.next(), None, "{story}: a scan ends too early");
    for (&number, put) in model.iter().filter(|(number, _)| *number % 5 == 0) {
        let found = match at {
            Some(at) => at.get(keyspace, key(number)),
            None => keyspace.get(key(number)),
        };
        let found = found.expect("get").map(|value| value.to_vec());
        assert_eq!(found, put.map(|put| value(number, put)), "{story}: a get of {number}");
    }
}

/// What a crash left.
struct Remains {
    fs: Arc<MemFs>,
    place: String,
}

/// Takes a clone before one call in `EVERY` that changes what is stored.
fn watch(fs: &Arc<MemFs>, seed: u64) -> Arc<Mutex<Vec<Remains>>> {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (all, watched, mut dice): (_, Weak<MemFs>, _) = (taken.clone(), Arc::downgrade(fs), Dice(seed));
    fs.set_hook(Some(Box::new(move |call: &Call<'_>| {
        let Some(fs) = watched.upgrade().filter(|_| call.operation.writes() && dice.below(EVERY) == 0) else {
            return;
        };
        let place = format!("before {:?} {}", call.operation, call.path.display());
        let fs = match dice.below(3) {
            0 => fs.process_crash_clone(),
            1 => fs.crash_clone_random(dice.next(), 0.0),
            _ => fs.crash_clone_random(dice.next(), 0.7),
        };
        all.lock().expect("nobody panics").push(Remains { fs, place });
    })));
    taken
}

#[test]
fn a_deleted_key_never_comes_back_whatever_merge_is_cut_off() {
    let mut crashes = 0;
    for (seed, (memory, layout)) in MEMORIES.iter().flat_map(|m| LAYOUTS.map(|l| (*m, l))).enumerate() {
        let (fs, mut model) = (MemFs::new(), Model::new());
        let db = open(&fs);
        let keyspace = db.keyspace("k", options(memory, layout)).expect("keyspace");
        let story = format!("{memory:?}, {layout:?}");

        // Versions of what will be deleted lie at every depth.
        let write = |model: &mut Model, step: usize| {
            put(&keyspace, model, step);
            db.flush().expect("flush");
            db.wait_for_idle().expect("idle");
        };
        (0..6).for_each(|_| put(&keyspace, &mut model, 1));
        db.compact().expect("compact");
        let mut steps = [2, 1, 4, 8, 16].into_iter().chain([8; 16]);
        for step in steps.by_ref().take(5) {
            write(&mut model, step);
        }
        // A merge that takes all there is leaves one level: which of them does depends on the threads.
        while depth(&keyspace) < 2 {
            write(&mut model, steps.next().unwrap_or_else(|| panic!("{story}: never more than one level")));
        }

        let (early, before) = (db.snapshot().expect("snapshot"), model.clone());
        for number in (0..KEYS).step_by(3) {
            keyspace.delete(key(number)).expect("delete");
            model.insert(number, None);
        }
        if keyspace.options().is_ordered() {
            keyspace.delete_range(key(500), key(800)).expect("delete");
        } else {
            (500..800).for_each(|number| keyspace.delete(key(number)).expect("delete"));
        }
        model.extend((500..800).map(|number| (number, None)));
        let late = db.snapshot().expect("snapshot");
        db.persist().expect("sync");

        // Tombstones are carried down by what is written beside them, then by hand, then without snapshots.
        let taken = watch(&fs, seed as u64);
        for round in 0..8 {
            for number in 0..KEYS {
                keyspace.put(filler(number), value(number, round)).expect("put");
            }
        }
        db.wait_for_idle().expect("idle");
        check(&keyspace, Some(&early), &before, &format!("{story}, the snapshot before"));
        check(&keyspace, Some(&late), &model, &format!("{story}, the snapshot after"));
        drop(early);
        db.compact().expect("compact");
        check(&keyspace, Some(&late), &model, &format!("{story}, compacted"));
        drop(late);
        db.compact().expect("compact");
        check(&keyspace, None, &model, &format!("{story}, compacted without snapshots"));
        fs.set_hook(None);
        drop((keyspace, db));

        let taken = std::mem::take(&mut *taken.lock().expect("nobody panics"));
        crashes += taken.len();
        for Remains { fs, place } in taken {
            let db = open(&fs);
            let keyspace = db.open_keyspace("k").expect("it is there");
            check(&keyspace, None, &model, &format!("{story}, a crash {place}"));
            db.compact().expect("compact");
            check(&keyspace, None, &model, &format!("{story}, a crash {place}, then compacted"));
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 200, "only {crashes} crashes were looked at");
}
