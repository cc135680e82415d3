//! Values apart: read as if they lay in tables, whatever becomes of these; their files go when nobody refers to them, keep to the
//! bound that was asked for, and are found when they are damaged or gone.

mod support {
    pub mod dice;
    #[allow(dead_code)]
    pub mod tables;
}

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drumlin::env::{Env, MemFs};
use drumlin::{Db, Keyspace, KeyspaceOptions, Layout, Options, ValueSeparation};

use support::dice::Dice;
use support::tables::eventually;

const DIR: &str = "/store";

fn options(layout: Layout) -> KeyspaceOptions {
    KeyspaceOptions {
        layout,
        memtable_bytes: Some(64 << 10),
        table_bytes: 64 << 10,
        level1_bytes: 16 << 10,
        level_ratio: 4,
        value_separation: Some(ValueSeparation { min_bytes: 512, space_percent: 130 }),
        ..KeyspaceOptions::default()
    }
}

fn open(fs: &Arc<MemFs>) -> Db {
    let options = Options { memory_bytes: 8 << 20, ..Options::default() };
    Db::open_with(Env::with_fs(fs.clone()), Path::new(DIR), options).unwrap()
}

/// Some bytes that do not compress; short of a key in three.
fn value(key: u32, version: u32) -> Vec<u8> {
    let bytes = if key.is_multiple_of(3) { 100 } else { 700 + key as usize % 900 };
    let mut word = u64::from(key) << 32 | u64::from(version);
    let mut next = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (word >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value_files(fs: &MemFs) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "val")).collect()
}

/// What is to be found: keys with the version that each was put as last.
type Model = BTreeMap<u32, u32>;

fn check(keyspace: &Keyspace, model: &Model) {
    let keys: Vec<Vec<u8>> = (0..1200).map(key).collect();
    for (at, found) in keyspace.multi_get(&keys).unwrap().into_iter().enumerate() {
        let wanted = model.get(&(at as u32)).map(|version| value(at as u32, *version));
        assert_eq!(found.as_deref(), wanted.as_deref(), "{at} of many");
        assert_eq!(keyspace.get(&keys[at]).unwrap().as_deref(), wanted.as_deref(), "{at}");
    }
    let wanted: BTreeMap<Vec<u8>, Vec<u8>> =
        model.iter().map(|(at, version)| (key(*at), value(*at, *version))).collect();
    let record = |record: drumlin::Result<(drumlin::Slice, drumlin::Slice)>| {
        record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
    };
    let forward: BTreeMap<_, _> = keyspace.iter().unwrap().map(record).collect();
    assert!(forward == wanted, "a scan forward");
    let back: BTreeMap<_, _> = keyspace.iter().unwrap().rev().map(record).collect();
    assert!(back == wanted, "a scan back");
}

fn run(layout: Layout) {
    let fs = MemFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(layout)).unwrap();
    let mut model = Model::new();
    let mut dice = Dice(7);
    let mut versions = 0;
    let mut put = |model: &mut Model, count: u32, keyspace: &Keyspace| {
        for _ in 0..count {
            versions += 1;
            let at = dice.below(1000) as u32;
            if dice.below(10) == 0 {
                keyspace.delete(key(at)).unwrap();
                model.remove(&at);
            } else {
                keyspace.put(key(at), value(at, versions)).unwrap();
                model.insert(at, versions);
            }
        }
    };
    put(&mut model, 3000, &keyspace);
    db.flush().unwrap();
    check(&keyspace, &model);
    let stats = db.stats().keyspaces.remove(0).values;
    assert!(stats.files > 0 && stats.records > 300, "{stats:?}");
    // A snapshot sees what was there, and keeps its files.
    let (snapshot, then) = (db.snapshot().unwrap(), model.clone());
    for _ in 0..6 {
        put(&mut model, 3000, &keyspace);
        db.flush().unwrap();
        db.wait_for_idle().unwrap();
        let stats = db.stats().keyspaces.remove(0).values;
        // Level 0 is not collected: what its files hold is live.
        assert!(stats.bytes * 100 <= stats.live_bytes * 130 + 100 * 16 * stats.files as u64, "{stats:?}");
    }
    for (at, version) in &then {
        let found = snapshot.get(&keyspace, key(*at)).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(*at, *version)), "{at}");
    }
    drop(snapshot);
    check(&keyspace, &model);
    assert!(db.verify(&mut |_| {}).unwrap().problems.is_empty());
    drop(keyspace);
    db.close().unwrap();

    let db = open(&fs);
    let keyspace = db.keyspace("k", options(layout)).unwrap();
    check(&keyspace, &model);
    keyspace.compact().unwrap();
    db.wait_for_idle().unwrap();
    let referred_to = || db.stats().keyspaces.remove(0).values.files;
    eventually("nothing is left but what tables refer to", || value_files(&fs).len() == referred_to());
    check(&keyspace, &model);

    // Off again: merges bring all values back.
    keyspace.set_options(KeyspaceOptions { value_separation: None, ..options(layout) }).unwrap();
    keyspace.compact().unwrap();
    db.wait_for_idle().unwrap();
    check(&keyspace, &model);
    eventually("all values are back", || value_files(&fs).is_empty());
    db.close().unwrap();
}

#[test]
fn leveled() {
    run(Layout::Leveled);
}

#[test]
fn tiered() {
    run(Layout::Tiered { runs: 3, merged_percent: 70 });
}

#[test]
fn lazy_leveled() {
    run(Layout::LazyLeveled { runs: 3, upper_percent: 50 });
}

#[test]
fn trie() {
    run(Layout::Trie { levels: 3, runs: 4, hash: drumlin::KeyHash::Sip });
}

#[test]
fn files_go_with_the_last_value_in_them() {
    let fs = MemFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(Layout::Leveled)).unwrap();
    (0..500).for_each(|at| keyspace.put(key(at), value(at, 1)).unwrap());
    db.flush().unwrap();
    assert!(!value_files(&fs).is_empty());
    let mut scan = keyspace.iter().unwrap();
    let first = scan.next().unwrap().unwrap();
    assert_eq!((&first.0[..], &first.1[..]), (&key(0)[..], &value(0, 1)[..]));
    keyspace.delete_range(key(0), key(999)).unwrap();
    db.flush().unwrap();
    keyspace.compact().unwrap();
    db.wait_for_idle().unwrap();
    // A scan that was under way holds what it reads.
    for (at, record) in (1..).zip(&mut scan) {
        let (found_key, found) = record.unwrap();
        assert_eq!((&found_key[..], &found[..]), (&key(at)[..], &value(at, 1)[..]));
    }
    drop(scan);
    keyspace.compact().unwrap();
    eventually("the files go", || value_files(&fs).is_empty());
    keyspace.put(key(1), value(1, 2)).unwrap();
    db.flush().unwrap();
    assert_eq!(value_files(&fs).len(), 1);
    drop(keyspace);
    db.drop_keyspace("k").unwrap();
    eventually("that of the dropped keyspace goes", || value_files(&fs).is_empty());
    db.close().unwrap();
}

#[test]
fn what_is_damaged_or_gone_is_named_with_its_file() {
    let fs = MemFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(Layout::Leveled)).unwrap();
    (0..50).for_each(|at| keyspace.put(key(at), value(at, 1)).unwrap());
    db.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let path = value_files(&fs).remove(0);
    let good = fs.contents(&path).unwrap();
    for at in (0..good.len()).step_by(617) {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs.set_contents(&path, &bad).unwrap();
        let db = open(&fs);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let report = db.verify(&mut |_| {}).unwrap();
        assert!(report.problems.iter().any(|problem| problem.path == path), "byte {at}: {report:?}");
        for number in 0..50 {
            match keyspace.get(key(number)) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&*value(number, 1)), "byte {at}"),
                Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
            }
        }
        db.close().unwrap();
    }
    fs.set_contents(&path, &good[..good.len() - 1]).unwrap();
    let named = |what: &str| {
        let db = open(&fs);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let error = keyspace.get(key(1)).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains(".val"), "{error}");
        assert!(!db.verify(&mut |_| {}).unwrap().is_sound());
        db.close().unwrap();
    };
    named("it should have");
    drumlin::env::FileSystem::remove(&*fs, &path).unwrap();
    named("it is missing");
}

/// Rot in values that nobody asks for: their entries stay, what else lies in their files is taken along, and it is told.
#[test]
fn a_damaged_value_holds_up_no_merge_and_is_told() {
    let fs = MemFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(Layout::Leveled)).unwrap();
    let mut model: Model = (0..900).map(|at| (at, 1)).collect();
    model.iter().for_each(|(at, version)| keyspace.put(key(*at), value(*at, *version)).unwrap());
    db.flush().unwrap();
    keyspace.compact().unwrap();
    db.wait_for_idle().unwrap();
    let damaged = value_files(&fs);
    for path in &damaged {
        fs.damage(path, fs.contents(path).unwrap().len() as u64 / 2, 0x40).unwrap();
    }
    // More garbage than is allowed, beside what is damaged: files are collected, whatever for merges run.
    for version in 2..6 {
        for at in (0..900).filter(|at| at % 2 == 0) {
            keyspace.put(key(at), value(at, version)).unwrap();
            model.insert(at, version);
        }
        db.flush().unwrap();
        db.wait_for_idle().unwrap();
    }
    let stats = db.stats();
    let told = stats.first_corruption.as_ref().expect("it is told");
    assert!(told.message.contains(".val"), "{told:?}");
    assert!(value_files(&fs).iter().any(|path| !damaged.contains(path)), "others were written");
    let mut lost = 0;
    for (at, version) in &model {
        match keyspace.get(key(*at)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&*value(*at, *version)), "{at}"),
            Err(error) => {
                assert!(error.is_corruption() && error.to_string().contains(".val"), "{at}: {error}");
                lost += 1;
            }
        }
    }
    assert!((1..=damaged.len()).contains(&lost), "{lost} of {} damaged records", damaged.len());
    // All by hand, too; and what is overwritten is there again.
    keyspace.compact().unwrap();
    (0..900).for_each(|at| keyspace.put(key(at), value(at, 9)).unwrap());
    keyspace.compact().unwrap();
    db.wait_for_idle().unwrap();
    check(&keyspace, &(0..900).map(|at| (at, 9)).collect());
    eventually("the damaged files go", || value_files(&fs).iter().all(|path| !damaged.contains(path)));
    drop(keyspace);
    assert!(db.close().is_err_and(|error| error.is_corruption()), "whoever closes it is told");
}

/// The same of files that are gone: their values are lost, and nothing is merged again and again for them.
#[test]
fn files_that_are_gone_hold_up_no_merge_and_are_told() {
    let fs = MemFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(Layout::Leveled)).unwrap();
    (0..900).for_each(|at| keyspace.put(key(at), value(at, 1)).unwrap());
    db.flush().unwrap();
    keyspace.compact().unwrap();
    drop(keyspace);
    db.close().unwrap();
    value_files(&fs).iter().for_each(|gone| drumlin::env::FileSystem::remove(&*fs, gone).unwrap());
    let db = open(&fs);
    let keyspace = db.keyspace("k", options(Layout::Leveled)).unwrap();
    for version in 2..6 {
        (0..900).filter(|at| at % 2 == 0).for_each(|at| keyspace.put(key(at), value(at, version)).unwrap());
        db.flush().unwrap();
        db.wait_for_idle().unwrap();
    }
    assert!(db.stats().first_corruption.is_some_and(|told| told.message.contains("it is missing")));
    for at in 0..900 {
        let version = if at % 2 == 0 { 5 } else { 1 };
        match keyspace.get(key(at)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&*value(at, version)), "{at}"),
            Err(error) => assert!(error.is_corruption() && version == 1, "{at}: {error}"),
        }
    }
    drop(keyspace);
    assert!(db.close().is_err_and(|error| error.is_corruption()));
}
