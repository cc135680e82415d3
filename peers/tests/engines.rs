//! Every setting of every engine does what each call says: what is measured works.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use drumlin_bench::engine::Engine;
use drumlin_peers::arguments::Arguments;
use drumlin_peers::setting::CONTESTANTS;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Calls `test` for every setting of every engine, with a fresh directory.
fn for_all(arguments: &[&str], test: impl Fn(&dyn Fn(&Path) -> Box<dyn Engine>, &Path)) {
    let arguments = Arguments::try_parse_from(["peers"].iter().chain(arguments)).expect("parses");
    for contestant in CONTESTANTS {
        for setting in (contestant.settings)(&arguments.terms()) {
            let directory = tempfile::tempdir().expect("a directory");
            let name = format!("{}, {}", contestant.name, setting.name);
            let open = |directory: &Path| (setting.open)(directory).unwrap_or_else(|e| panic!("{name}: {e}"));
            println!("{name}");
            test(&open, directory.path());
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    let mut seen = None;
    let found = engine.get(key, &mut |value| seen = Some(value.to_vec())).expect("a get");
    assert_eq!(found, seen.is_some());
    seen
}

fn scan(engine: &dyn Engine, from: &[u8], limit: usize, reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    let count = engine
        .scan(from, limit, reverse, &mut |key, value| seen.push((key.to_vec(), value.to_vec())))
        .expect("a scan");
    assert_eq!(count, seen.len());
    seen
}

/// What a scan of `model` would show.
fn expected(model: &Model, from: &[u8], limit: usize, reverse: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match (reverse, from.is_empty()) {
        (false, _) => model.range(from.to_vec()..).take(limit).map(owned).collect(),
        (true, true) => model.iter().rev().take(limit).map(owned).collect(),
        (true, false) => model.range(..=from.to_vec()).rev().take(limit).map(owned).collect(),
    }
}

fn compare(engine: &dyn Engine, model: &Model, random: &mut SmallRng, keys: u64) {
    for number in 0..keys {
        let key = key(number);
        assert_eq!(get(engine, &key).as_ref(), model.get(&key), "{}: {number}", engine.name());
    }
    for (limit, reverse) in [(10, false), (10, true), (usize::MAX, false), (usize::MAX, true)] {
        assert_eq!(scan(engine, b"", limit, reverse), expected(model, b"", limit, reverse));
        for _ in 0..100 {
            let from = key(random.random_range(0..keys + 10));
            let limit = limit.min(random.random_range(1..2000));
            assert_eq!(scan(engine, &from, limit, reverse), expected(model, &from, limit, reverse));
        }
    }
    let wanted: Vec<Vec<u8>> = (0..50).map(|_| key(random.random_range(0..keys))).collect();
    let mut values = Vec::new();
    let found = engine.get_many(&wanted, &mut |value| values.push(value.to_vec())).expect("a multi-get");
    let there: Vec<Vec<u8>> = wanted.iter().filter_map(|key| model.get(key).cloned()).collect();
    assert_eq!((found, values), (there.len(), there));
}

#[test]
fn every_engine_answers_as_a_sorted_map_would() {
    const KEYS: u64 = 4000;
    for durability in ["memory", "process"] {
        for_all(&["--memory", "16", "--durability", durability], |open, directory| {
            let mut random = SmallRng::seed_from_u64(7);
            let engine = open(directory);
            let mut model = Model::new();
            for step in 0..6000u64 {
                let key = key(random.random_range(0..KEYS));
                let value = format!("{step} {}", "x".repeat(random.random_range(0..300))).into_bytes();
                match random.random_range(0..10) {
                    0 => {
                        engine.delete(&key).expect("a delete");
                        model.remove(&key);
                    }
                    1 => {
                        let more: Vec<_> =
                            (0..5).map(|_| (self::key(random.random_range(0..KEYS)), &value[..])).collect();
                        engine.put_many(&more).expect("a batch");
                        model.extend(more.into_iter().map(|(key, value)| (key, value.to_vec())));
                    }
                    2 => {
                        let grown = |old: Option<&[u8]>| [old.unwrap_or(b"new"), b"+"].concat();
                        engine.update(&key, &grown).expect("an update");
                        let new = grown(model.get(&key).map(Vec::as_slice));
                        model.insert(key, new);
                    }
                    3 => {
                        let absent = engine.put_if_absent(&key, &value).expect("a put");
                        assert_eq!(absent, !model.contains_key(&key), "{}", engine.name());
                        model.entry(key).or_insert(value);
                    }
                    4 if step % 50 == 0 && durability != "memory" => {
                        engine.put_synced(&key, &value).expect("a put");
                        model.insert(key, value);
                    }
                    _ => {
                        engine.put(&key, &value).expect("a put");
                        model.insert(key, value);
                    }
                }
            }
            compare(&*engine, &model, &mut random, KEYS);
            engine.settle().expect("it settles");
            compare(&*engine, &model, &mut random, KEYS);
            // What came after a scan is seen by the next one, kept iterators or not.
            engine.put(&key(KEYS + 1), b"last").expect("a put");
            assert_eq!(scan(&*engine, b"", 1, true), [(key(KEYS + 1), b"last".to_vec())]);
        });
    }
}

#[test]
fn what_was_settled_is_there_when_the_store_is_opened_again() {
    for durability in ["process", "disk"] {
        for_all(&["--memory", "16", "--durability", durability], |open, directory| {
            let engine = open(directory);
            for number in 0..20 {
                engine.put(&key(number), b"value").expect("a put");
            }
            // A store that tells where its data is tells of some.
            let holds = engine.holds();
            assert!(holds.tables.zip(holds.memtable_bytes).is_none_or(|(tables, bytes)| tables + bytes > 0));
            engine.settle().expect("it settles");
            drop(engine);
            assert_eq!(scan(&*open(directory), b"", 100, false).len(), 20);
        });
    }
}

#[test]
fn updates_of_all_threads_count() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    for_all(&["--memory", "16"], |open, directory| {
        let engine = open(directory);
        let first = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..EACH {
                        let more = |old: Option<&[u8]>| {
                            let count: u64 =
                                old.map_or(0, |old| std::str::from_utf8(old).unwrap().parse().unwrap());
                            (count + 1).to_string().into_bytes()
                        };
                        engine.update(b"counter", &more).expect("an update");
                        if engine.put_if_absent(&key(number), b"mine").expect("a put") {
                            first.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(get(&*engine, b"counter"), Some((THREADS * EACH).to_string().into_bytes()));
        assert_eq!(first.into_inner(), EACH, "{}: who puts a key first is one", engine.name());
    });
}

#[test]
fn a_contest_tells_grid_best_and_rounds() {
    static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let directory = tempfile::tempdir().expect("a directory");
    let told = |extra: &[&str]| {
        let fixed = ["peers", "--benchmarks", "fillrandom,seekrandom"];
        let engines = ["--engines", "rocksdb,redb"];
        let engines = if extra.contains(&"--engines") { &[][..] } else { &engines[..] };
        let sizes = ["--num", "2000", "--memory", "16", "--rounds", "2"];
        let arguments = Arguments::try_parse_from(fixed.iter().chain(&sizes).chain(engines).chain(extra))
            .expect("parses");
        let mut out = Vec::new();
        drumlin_peers::contest::run(&arguments, directory.path(), &mut out, &STOP).expect("it runs");
        String::from_utf8(out).expect("text")
    };
    let one = told(&["--grid", "--setting", "rocksdb=pipelined", "--engines", "rocksdb"]);
    assert!(!one.contains("grid of") && one.contains("pipelined writes"), "a grid of one is none: {one}");
    let grid = told(&["--grid"]);
    assert_eq!(grid.matches("grid of").count(), 1, "redb has one setting: {grid}");
    assert!(grid.matches('*').count() == 2 + 1, "a best for each workload, and the heading: {grid}");
    for engine in ["RocksDB", "redb"] {
        for workload in ["fillrandom", "seekrandom"] {
            let row = format!("{workload:22} {engine:12}");
            assert!(grid.contains(&row), "medians of {engine} at {workload}: {grid}");
        }
    }
    let finals = told(&["--json", "--grid", "--grid-num", "500", "--engines", "rocksdb"]);
    let count = |text: &str| {
        finals.lines().filter(|line| line.contains(text) && line.contains("\"grid\":true")).count()
    };
    assert!(count("\"keys\":500,") > 2 * 3, "all settings on small stores: {finals}");
    assert_eq!(count("\"keys\":2000,"), 2 * 3, "the best three of each workload on large ones: {finals}");
    let plain = told(&["--setting", "rocksdb=two memtables of 4 MiB", "--engines", "rocksdb"]);
    assert!(
        !plain.contains("HyperClock"),
        "the one that is called so, not all whose names begin so: {plain}"
    );
    let json = told(&["--json"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!(lines.len(), 2 * 2 * 2);
    let engines: Vec<&str> = lines.iter().map(|line| line["engine"].as_str().expect("named")).collect();
    assert_eq!(engines, ["RocksDB", "RocksDB", "redb", "redb"].repeat(2), "a round of all, then the next");
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}
