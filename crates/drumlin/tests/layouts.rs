//! Every memory component with every layout, and each exchanged for another while the keyspace is used.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod dice;
}

use std::collections::BTreeMap;
use std::sync::Arc;

use drumlin::env::{Env, MemFs};
use drumlin::{Db, Error, KeyHash, Keyspace, KeyspaceOptions, Layout, Memory, Options, Snapshot};
use support::dice::Dice;

const MEMORIES: [Memory; 3] = [Memory::Sorted, Memory::TwoTier, Memory::Runs { runs: 3, merged_percent: 60 }];
const LAYOUTS: [Layout; 3] = [
    Layout::Leveled,
    Layout::Tiered { runs: 2, merged_percent: 100 },
    Layout::LazyLeveled { runs: 3, upper_percent: 50 },
];
/// Those that have no order, and so take over from none that has.
const TRIES: [Layout; 2] = [
    Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sip },
    Layout::Trie { levels: 2, runs: 3, hash: KeyHash::Sha1 },
];
const KEYS: u64 = 3000;

fn pairs() -> impl Iterator<Item = (Memory, Layout)> {
    MEMORIES.into_iter().flat_map(|memory| LAYOUTS.map(|layout| (memory, layout)))
}

fn all_pairs() -> impl Iterator<Item = (Memory, Layout)> {
    pairs().chain(MEMORIES.into_iter().flat_map(|memory| TRIES.map(|layout| (memory, layout))))
}

fn open(fs: &Arc<MemFs>) -> Db {
    let options = Options {
        memory_bytes: Options::MEMORY_BYTES_MIN,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        ..Options::default()
    };
    Db::open_with(Env::with_fs(fs.clone()), "/store", options).expect("open")
}

fn options((memory, layout): (Memory, Layout)) -> KeyspaceOptions {
    KeyspaceOptions {
        memory,
        layout,
        memtable_bytes: Some(64 << 10),
        table_bytes: 16 << 10,
        block_bytes: 512,
        level0_tables: 2,
        level1_bytes: 64 << 10,
        level_ratio: 4,
        ..KeyspaceOptions::default()
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts, deletes and range deletes by chance, of this many keys.
fn write(keyspace: &Keyspace, model: &mut Model, dice: &mut Dice, operations: u64) {
    for _ in 0..operations {
        let key = format!("{:06}", dice.below(KEYS)).into_bytes();
        match dice.below(400) {
            0 => {
                let end = format!("{:06}", dice.below(KEYS)).into_bytes();
                if key < end && keyspace.options().is_ordered() {
                    keyspace.delete_range(&key, &end).expect("delete");
                    let gone: Vec<Vec<u8>> = model.range(key..end).map(|(key, _)| key.clone()).collect();
                    gone.iter().for_each(|key| drop(model.remove(key)));
                }
            }
            1..=100 => {
                keyspace.delete(&key).expect("delete");
                model.remove(&key);
            }
            _ => {
                let value = dice.below(u64::MAX).to_le_bytes().repeat(1 + dice.below(12) as usize);
                keyspace.put(&key, &value).expect("put");
                model.insert(key, value);
            }
        }
    }
}

/// A snapshot, or the present, has what the model has.
fn check(keyspace: &Keyspace, at: Option<&Snapshot>, model: &Model, story: &str) {
    let scan = match at {
        Some(at) => at.iter(keyspace),
        None => keyspace.iter(),
    };
    let found: Model = scan
        .expect("scan")
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect::<Result<_, _>>()
        .expect("read");
    assert!(found == *model, "{story}: a scan finds {} of {} keys, or others", found.len(), model.len());
    for number in (0..KEYS).step_by(7) {
        let key = format!("{number:06}").into_bytes();
        let value = match at {
            Some(at) => at.get(keyspace, &key),
            None => keyspace.get(&key),
        };
        let value = value.expect("get").map(|value| value.to_vec());
        assert_eq!(value.as_ref(), model.get(&key), "{story}: {number}");
    }
}

#[test]
fn the_same_history_gives_the_same_answers_under_every_pair() {
    for pair in all_pairs() {
        let (fs, mut dice, mut model) = (MemFs::new(), Dice(11), Model::new());
        let db = open(&fs);
        let keyspace = db.keyspace("k", options(pair)).expect("keyspace");
        write(&keyspace, &mut model, &mut dice, 6000);
        let snapshot = db.snapshot().expect("snapshot");
        let before = model.clone();
        write(&keyspace, &mut model, &mut dice, 12_000);
        check(&keyspace, Some(&snapshot), &before, &format!("{pair:?}, a snapshot"));
        check(&keyspace, None, &model, &format!("{pair:?}"));
        drop(snapshot);
        db.wait_for_idle().expect("idle");
        check(&keyspace, None, &model, &format!("{pair:?}, idle"));
        keyspace.compact().expect("compact");
        check(&keyspace, None, &model, &format!("{pair:?}, compacted"));
        assert!(db.verify(&mut |_| {}).expect("verify").is_sound(), "{pair:?}");
        // These the log alone has.
        write(&keyspace, &mut model, &mut dice, 100);
        drop((keyspace, db));
        let db = open(&fs);
        let keyspace = db.open_keyspace("k").expect("it is there");
        assert_eq!((keyspace.options().memory, keyspace.options().layout), pair);
        check(&keyspace, None, &model, &format!("{pair:?}, opened again"));
    }
}

#[test]
fn every_pair_takes_over_from_every_other_while_the_keyspace_is_used() {
    for first in pairs() {
        let (fs, mut dice, mut model) = (MemFs::new(), Dice(12), Model::new());
        let mut db = open(&fs);
        let mut keyspace = db.keyspace("k", options(first)).expect("keyspace");
        for next in pairs() {
            write(&keyspace, &mut model, &mut dice, 3000);
            let (snapshot, before) = (db.snapshot().expect("snapshot"), model.clone());
            keyspace.set_options(options(next)).expect("set");
            assert_eq!((keyspace.options().memory, keyspace.options().layout), next);
            write(&keyspace, &mut model, &mut dice, 3000);
            let story = format!("{first:?}, then {next:?}");
            check(&keyspace, Some(&snapshot), &before, &story);
            check(&keyspace, None, &model, &story);
            drop(snapshot);
            if dice.below(2) == 0 {
                drop((keyspace, db));
                db = open(&fs);
                keyspace = db.open_keyspace("k").expect("it is there");
                assert_eq!((keyspace.options().memory, keyspace.options().layout), next);
                check(&keyspace, None, &model, &format!("{story}, opened again"));
            }
            keyspace.set_options(options(first)).expect("set back");
        }
        db.wait_for_idle().expect("idle");
        check(&keyspace, None, &model, &format!("{first:?}, idle"));
        assert!(db.verify(&mut |_| {}).expect("verify").is_sound(), "{first:?}");
    }
}

#[test]
fn what_was_laid_out_otherwise_comes_into_the_new_layout() {
    let (mut dice, mut model) = (Dice(13), Model::new());
    let db = open(&MemFs::new());
    let keyspace = db.keyspace("k", options((Memory::TwoTier, LAYOUTS[2]))).expect("keyspace");
    write(&keyspace, &mut model, &mut dice, 20_000);
    db.wait_for_idle().expect("idle");
    let deepest = || keyspace.levels().expect("levels").len();
    assert_eq!(deepest(), 64, "the last run lies at the last level");
    keyspace.set_options(options((Memory::TwoTier, Layout::Leveled))).expect("set");
    db.wait_for_idle().expect("idle");
    assert!(deepest() < 8, "{}", deepest());
    keyspace.set_options(options((Memory::TwoTier, LAYOUTS[2]))).expect("set");
    write(&keyspace, &mut model, &mut dice, 20_000);
    db.wait_for_idle().expect("idle");
    assert_eq!(deepest(), 64);
    check(&keyspace, None, &model, "there and back");
}

#[test]
fn what_decides_where_a_key_lies_stays() {
    let db = open(&MemFs::new());
    let usual = options((Memory::Sorted, Layout::Leveled));
    let keyspace = db.keyspace("k", usual.clone()).expect("keyspace");
    let refused = |options: KeyspaceOptions, word: &str| match keyspace.set_options(options) {
        Err(Error::InvalidArgument(why)) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(KeyspaceOptions { logged: false, ..usual.clone() }, "logged");
    refused(KeyspaceOptions { block_bytes: 1, ..usual.clone() }, "block_bytes");
    refused(
        KeyspaceOptions { layout: Layout::Tiered { runs: 1, merged_percent: 100 }, ..usual.clone() },
        "layout.runs",
    );
    refused(KeyspaceOptions { layout: TRIES[0], ..usual.clone() }, "order");
    assert_eq!(keyspace.options().layout, Layout::Leveled);
    let trie = KeyspaceOptions { layout: TRIES[0], ..usual.clone() };
    let keyspace = db.keyspace("t", trie.clone()).expect("keyspace");
    let refused =
        |layout: Layout, word: &str| match keyspace.set_options(KeyspaceOptions { layout, ..trie.clone() }) {
            Err(Error::InvalidArgument(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        };
    refused(Layout::Leveled, "no order");
    refused(TRIES[1], "3 levels");
    refused(Layout::Trie { levels: 3, runs: 2, hash: KeyHash::Sha1 }, "Sip");
    let more_runs = Layout::Trie { levels: 3, runs: 5, hash: KeyHash::Sip };
    keyspace.set_options(KeyspaceOptions { layout: more_runs, ..trie }).expect("a number that may change");
    assert_eq!(keyspace.options().layout, more_runs);
    let keyspace = db.open_keyspace("k").expect("it is there");
    db.drop_keyspace("k").expect("drop");
    assert!(matches!(keyspace.set_options(usual), Err(Error::Closed { .. })));
}
