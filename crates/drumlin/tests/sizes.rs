//! Estimates of what ranges hold, against counts.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use drumlin::env::{Env, MemFs};
use drumlin::{Compression, Db, Keyspace, KeyspaceOptions, Options};
use proptest::prelude::*;

/// Bytes of a value; with its key and head, some 30 records to a block.
const VALUE: [u8; 100] = [7; 100];

fn keyspace(options: KeyspaceOptions) -> Keyspace {
    let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", Options::default()).unwrap();
    db.keyspace("k", options).unwrap()
}

fn plain() -> KeyspaceOptions {
    KeyspaceOptions { compression: Compression::None, ..KeyspaceOptions::default() }
}

fn key(n: u16) -> [u8; 2] {
    n.to_be_bytes()
}

#[derive(Clone, Debug)]
enum Step {
    /// Puts this many keys, from here on, a stride apart, that were not put before.
    Put { from: u16, stride: u16, count: u16 },
    /// Writes the memtables to tables.
    Flush,
    /// Merges all.
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (any::<u16>(), 1u16..40, 1u16..3000);
    let put = put.prop_map(|(from, stride, count)| Step::Put { from, stride, count });
    let step = prop_oneof![5 => put, 2 => Just(Step::Flush), 1 => Just(Step::Compact)];
    prop::collection::vec(step, 1..12)
}

fn bound() -> impl Strategy<Value = Bound<[u8; 2]>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => any::<u16>().prop_map(|n| Bound::Included(key(n))),
        2 => any::<u16>().prop_map(|n| Bound::Excluded(key(n))),
    ]
}

fn run(steps: &[Step], db: &Db, keyspace: &Keyspace) -> BTreeSet<[u8; 2]> {
    let mut there = BTreeSet::new();
    for step in steps {
        match *step {
            Step::Put { from, stride, count } => {
                for n in 0..count {
                    let key = key(from.wrapping_add(n.wrapping_mul(stride)));
                    if there.insert(key) {
                        keyspace.put(key, VALUE).unwrap();
                    }
                }
            }
            Step::Flush => db.flush().unwrap(),
            Step::Compact => keyspace.compact().unwrap(),
        }
    }
    there
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Each key is written once, so versions are keys.
    #[test]
    fn an_estimate_is_no_further_off_than_it_says(
        steps in steps(),
        ranges in prop::collection::vec((bound(), bound()), 20),
    ) {
        let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", Options::default()).unwrap();
        let keyspace = db.keyspace("k", plain()).unwrap();
        let there = run(&steps, &db, &keyspace);
        let all = keyspace.approximate_size::<[u8; 2]>(..).unwrap();
        prop_assert_eq!((all.versions, all.versions_error), (there.len() as u64, 0));
        prop_assert_eq!(keyspace.approximate_count().unwrap(), there.len() as u64);
        let tables = db.stats().keyspaces[0].levels.iter().map(|level| level.tables).sum::<usize>() as u64;
        for range in ranges {
            let size = keyspace.approximate_size(range).unwrap();
            let exact = there.iter().filter(|key| range.contains(*key)).count() as u64;
            let off = size.versions.abs_diff(exact);
            prop_assert!(off <= size.versions_error, "{range:?}: {size:?}, but {exact}");
            // Records of one size: a block at each end of each table, and of a memtable eight times the mean error.
            prop_assert!(off <= tables * 2 * 40 + exact / 2 + 200, "{range:?}: {size:?}, but {exact}");
            prop_assert!(exact > 0 || size.keys <= tables * 2 * 40, "{range:?}: {size:?}");
            prop_assert!(size.table_bytes <= all.table_bytes && size.memory_bytes <= all.memory_bytes);
        }
    }
}

#[test]
fn what_lies_within_few_blocks_is_counted() {
    let keyspace = keyspace(plain());
    for n in 0..20_000u16 {
        keyspace.put(key(n), VALUE).unwrap();
    }
    keyspace.delete(key(5_003)).unwrap();
    keyspace.compact().unwrap();
    let whole = keyspace.approximate_size::<[u8; 2]>(..).unwrap();
    for (from, to, keys) in
        [(5_000, 5_010, 9), (0, 1, 1), (19_999, 30_000, 1), (7_000, 7_100, 100), (300, 300, 0)]
    {
        let size = keyspace.approximate_size(key(from)..key(to)).unwrap();
        assert_eq!((size.keys, size.versions, size.versions_error), (keys, keys, 0), "{from}..{to}");
        assert!(size.table_bytes.abs_diff(whole.table_bytes * keys / 19_999) <= 1, "{size:?} of {whole:?}");
    }
    let many = keyspace.approximate_size(key(1_000)..key(9_000)).unwrap();
    assert!(many.versions_error > 0 && many.versions.abs_diff(7_999) < 80, "{many:?}");
}

#[test]
fn the_bytes_of_a_part_are_its_share() {
    let keyspace = keyspace(plain());
    for n in 0..20_000u16 {
        keyspace.put(key(n), VALUE).unwrap();
    }
    let about = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) <= wanted / 8;
    let whole = keyspace.approximate_size::<[u8; 2]>(..).unwrap();
    assert!(whole.memory_bytes > 20_000 * 102 && whole.table_bytes == 0, "{whole:?}");
    let part = keyspace.approximate_size(key(5_000)..key(10_000)).unwrap();
    assert!(about(part.memory_bytes, whole.memory_bytes / 4), "{part:?} of {whole:?}");
    keyspace.compact().unwrap();
    let whole = keyspace.approximate_size::<[u8; 2]>(..).unwrap();
    assert!(whole.table_bytes > 20_000 * 102 && whole.memory_bytes == 0, "{whole:?}");
    let part = keyspace.approximate_size(key(5_000)..key(10_000)).unwrap();
    assert!(about(part.table_bytes, whole.table_bytes / 4), "{part:?} of {whole:?}");
    for nothing in [keyspace.approximate_size(key(9)..key(9)), keyspace.approximate_size(key(9)..key(3))] {
        assert_eq!(nothing.unwrap(), Default::default());
    }
}

#[test]
fn deletes_take_keys_from_the_count() {
    let keyspace = keyspace(plain());
    for n in 0..5000u16 {
        keyspace.put(key(n), VALUE).unwrap();
    }
    keyspace.compact().unwrap();
    for n in 0..200u16 {
        keyspace.delete(key(n * 7)).unwrap();
    }
    assert_eq!(keyspace.approximate_count().unwrap(), 4800);
    for n in 200..600u16 {
        keyspace.delete(key(n * 7)).unwrap();
    }
    assert_eq!(keyspace.approximate_count().unwrap(), 4400);
    keyspace.compact().unwrap();
    assert_eq!(keyspace.approximate_count().unwrap(), 4400);
    assert_eq!(keyspace.iter().unwrap().count(), 4400);
}
