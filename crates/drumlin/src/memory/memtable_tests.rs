//! What a memtable promises beyond its list: batches, range tombstones, accounting, limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::iter::{Cursor, Horizons};
use crate::key::{KEY_BYTES_MAX, KeyHasher, Kind, Lsn, bytewise};

use super::MemTable;

const NONE_COMMITTED: fn(u32, Lsn) -> bool = |_, _| false;
const ALL_COMMITTED: fn(u32, Lsn) -> bool = |_, _| true;

fn table() -> Arc<MemTable> {
    Arc::new(MemTable::new(bytewise()))
}

fn publish(table: &MemTable, key: &str, lsn: u64, value: &str, batch: Option<u32>) {
    table.publish(table.reserve(key.as_bytes(), Kind::Put, value.as_bytes()), Lsn(lsn), batch);
}

fn lsn_of(table: &MemTable, key: &str, at: u64, committed: impl Fn(u32, Lsn) -> bool) -> Option<u64> {
    table.find(key.as_bytes(), Lsn(at), committed).map(|version| version.lsn.0)
}

#[test]
fn a_get_sees_the_newest_version_below_its_bound() {
    let table = table();
    for lsn in [10, 20, 30] {
        publish(&table, "k", lsn, "v", None);
    }
    let found: Vec<_> = [0, 10, 11, 20, 21, 30, 31, u64::MAX]
        .into_iter()
        .map(|at| lsn_of(&table, "k", at, ALL_COMMITTED))
        .collect();
    assert_eq!(found, [None, None, Some(10), Some(10), Some(20), Some(20), Some(30), Some(30)]);
    assert_eq!(lsn_of(&table, "j", u64::MAX, ALL_COMMITTED), None);
    assert_eq!(lsn_of(&table, "kk", u64::MAX, ALL_COMMITTED), None);
}

/// Asked in both ways.
fn newest_lsn(table: &MemTable, key: &str) -> Option<Lsn> {
    let key = key.as_bytes();
    let newest = table.newest_lsn(key, KeyHasher::new(1).hash(key));
    assert_eq!(table.newest_lsn_at(key, &table.reserve(key, Kind::Put, b"")), newest);
    newest
}

#[test]
fn the_newest_version_is_found_from_a_place_that_was_reserved_long_ago() {
    // Keys and versions that came in between: behind the place, before it, and too many for steps.
    for (between, versions) in [(0, 0), (0, 1), (3, 2), (100, 0), (100, 40)] {
        let table = table();
        publish(&table, "a", 1, "v", None);
        publish(&table, "z", 2, "v", None);
        let reserved = table.reserve(b"k", Kind::Put, b"mine");
        for n in 0..between {
            publish(&table, &format!("b{n:03}"), 10 + n, "v", None);
            publish(&table, &format!("l{n:03}"), 200 + n, "v", None);
        }
        (0..versions).for_each(|n| publish(&table, "k", 400 + n, "v", Some(3)));
        let newest = (versions > 0).then(|| Lsn(400 + versions - 1));
        assert_eq!(table.newest_lsn_at(b"k", &reserved), newest, "{between} keys, {versions} versions");
        table.publish(reserved, Lsn(1000), None);
        assert_eq!(newest_lsn(&table, "k"), Some(Lsn(1000)));
    }
}

#[test]
fn an_uncommitted_part_of_a_batch_is_passed_over() {
    let table = table();
    publish(&table, "k", 10, "old", None);
    publish(&table, "k", 20, "batch of slot 3", Some(3));
    publish(&table, "k", 30, "batch of slot 4", Some(4));
    publish(&table, "other", 5, "batch of slot 3", Some(3));
    assert_eq!(lsn_of(&table, "k", u64::MAX, NONE_COMMITTED), Some(10));
    assert_eq!(lsn_of(&table, "k", u64::MAX, |slot, lsn| (slot, lsn) == (3, Lsn(20))), Some(20));
    assert_eq!(lsn_of(&table, "k", u64::MAX, ALL_COMMITTED), Some(30));
    assert_eq!(lsn_of(&table, "other", u64::MAX, NONE_COMMITTED), None, "no version is left");
    assert_eq!(newest_lsn(&table, "k"), Some(Lsn(30)), "a conflict check counts them all");
}

#[test]
fn versions_without_a_batch_are_never_asked_about() {
    let table = table();
    publish(&table, "k", 10, "v", None);
    let found = table.find(b"k", Lsn::MAX, |_, _| panic!("asked whether a single write is committed"));
    assert_eq!(found.map(|version| version.value), Some(b"v".as_slice()));
}

#[test]
fn a_delete_is_a_version() {
    let table = table();
    publish(&table, "k", 10, "v", None);
    table.publish(table.reserve(b"k", Kind::Delete, b""), Lsn(20), None);
    let found = table.find(b"k", Lsn::MAX, ALL_COMMITTED).expect("the delete");
    assert_eq!((found.lsn, found.kind, found.value), (Lsn(20), Kind::Delete, b"".as_slice()));
    assert_eq!(table.entries(), 2);
}

#[test]
fn range_tombstones_cover_their_keys_only() {
    let table = table();
    assert!(table.is_empty() && !table.has_tombstones());
    assert_eq!(newest_lsn(&table, "c"), None);
    publish(&table, "c", 30, "v", None);
    table.publish_range_tombstone(b"b", b"d", Lsn(20), None);
    table.publish_range_tombstone(b"c", b"e", Lsn(40), Some(7));
    assert!(table.has_tombstones());
    let covering = |key: &[u8], at, committed| table.newest_covering(key, Lsn(at), committed).map(|l| l.0);
    assert_eq!(covering(b"a", u64::MAX, ALL_COMMITTED), None);
    assert_eq!(covering(b"c", u64::MAX, ALL_COMMITTED), Some(40));
    assert_eq!(covering(b"c", u64::MAX, NONE_COMMITTED), Some(20));
    assert_eq!(covering(b"c", 40, ALL_COMMITTED), Some(20));
    assert_eq!(covering(b"d", u64::MAX, NONE_COMMITTED), None);
    assert_eq!(newest_lsn(&table, "b"), Some(Lsn(20)));
    assert_eq!(newest_lsn(&table, "c"), Some(Lsn(40)), "uncommitted tombstones count");
    assert_eq!(newest_lsn(&table, "e"), None);
    assert_eq!(table.tombstones(&Horizons::at(Lsn(40))).len(), 1, "one run is below, one above");
    assert_eq!(table.tombstones(&Horizons::at(Lsn::MAX)).len(), 2);
    table.join_ranges(ALL_COMMITTED);
    assert_eq!(table.tombstones(&Horizons::at(Lsn::MAX)).len(), 1);
    assert_eq!(covering(b"c", 40, ALL_COMMITTED), Some(20));
    let only = self::table();
    only.publish_range_tombstone(b"b", b"d", Lsn(1), None);
    assert!(!only.is_empty(), "a memtable with a tombstone must be flushed");
    assert_eq!(only.entries(), 0);
    assert!(only.bytes() > self::table().bytes());
}

#[test]
fn bytes_follow_what_was_put_in() {
    let table = table();
    let empty = table.bytes();
    assert!(empty <= 4096, "an empty memtable holds {empty} bytes");
    let (count, value) = (if cfg!(miri) { 100 } else { 20_000 }, "v".repeat(100));
    let mut before = empty;
    for i in 0..count {
        publish(&table, &format!("key{i:013}"), i, &value, None);
        assert!(table.bytes() >= before, "bytes never fall");
        before = table.bytes();
    }
    let per_entry = (table.bytes() - empty) as f64 / count as f64;
    // 116 of payload; links, header and alignment may take half as much again.
    assert!((116.0..180.0).contains(&per_entry), "{per_entry} bytes per entry");
    let large = "v".repeat(1 << 20);
    publish(&table, "large", 1, &large, None);
    assert!(table.bytes() - before >= 1 << 20);
    assert!(table.bytes() - before < (1 << 20) + (64 << 10));
}

#[test]
fn values_and_keys_of_every_size_come_back_whole() {
    let table = table();
    let sizes = [
        0,
        1,
        1000,
        (32 << 10) - 1,
        32 << 10,
        (32 << 10) + 1,
        1 << 20,
        if cfg!(miri) { 0 } else { 48 << 20 },
    ];
    for (i, bytes) in sizes.into_iter().enumerate() {
        let value: Vec<u8> = (0..bytes).map(|at| (at * 7 + i) as u8).collect();
        let key = vec![i as u8; if i % 2 == 0 { KEY_BYTES_MAX } else { i }];
        table.publish(table.reserve(&key, Kind::Put, &value), Lsn(i as u64), None);
        let found = table.find(&key, Lsn::MAX, ALL_COMMITTED).expect("just published");
        assert!(found.value == value, "a value of {bytes} bytes");
    }
    let mut cursor = table.cursor();
    cursor.seek_last().unwrap();
    assert_eq!(cursor.key().len(), sizes.len() - 1);
}

#[test]
fn a_cursor_keeps_the_memtable_alive_and_moves_to_other_threads() {
    let table = table();
    publish(&table, "a", 1, "1", None);
    publish(&table, "b", 2, "2", None);
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    drop(table);
    let thread = std::thread::spawn(move || {
        cursor.next().unwrap();
        (cursor.key().to_vec(), cursor.lsn(), cursor.kind(), cursor.value().to_vec())
    });
    let found = thread.join().expect("walks without panic");
    assert_eq!(found, (b"b".to_vec(), Lsn(2), Kind::Put, b"2".to_vec()));
}

#[test]
fn a_batch_becomes_visible_as_one() {
    // One store commits: a reader that sees one part must see the others if it looks afterwards.
    let table = table();
    let rounds = if cfg!(miri) { 10 } else { 5_000 };
    // The writer's slot: the LSN in flight, 0 when idle.
    let slot = AtomicU64::new(0);
    let keys = ["x", "m", "a"];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for lsn in 1..=rounds {
                slot.store(lsn, Ordering::Release);
                for key in keys {
                    publish(&table, key, lsn, "v", Some(0));
                }
                slot.store(0, Ordering::Release);
            }
        });
        let committed = |_: u32, lsn: Lsn| slot.load(Ordering::Acquire) != lsn.0;
        let mut seen = 0;
        while seen < rounds {
            for key in keys {
                let found = lsn_of(&table, key, u64::MAX, committed).unwrap_or(0);
                assert!(found >= seen, "{key} shows {found} after another key showed {seen}");
                seen = found;
            }
        }
    });
}

#[test]
fn all_of_a_multi_insert_are_known_and_hidden_until_they_are_committed() {
    let (hasher, table) = (KeyHasher::new(1), table());
    let key = |n: u64| (n * 3).to_be_bytes();
    let (once, again): (Vec<_>, Vec<_>) = ((0..20).map(key).collect(), (10..33).map(key).collect());
    for (keys, lsn) in [(&once, 1), (&again, 2)] {
        table.multi_insert(keys.iter().map(|key| (&key[..], Kind::Put, &key[..])), Lsn(lsn), Some(4));
    }
    assert_eq!(table.entries(), 43);
    for n in 0..33 {
        let key = key(n);
        assert!(table.may_know(hasher.hash(&key)), "{n}");
        let at = |lsn, committed| table.find(&key, lsn, committed).map(|version| version.lsn.0);
        assert_eq!(at(Lsn::MAX, ALL_COMMITTED), Some(if n < 10 { 1 } else { 2 }), "{n}");
        assert_eq!(at(Lsn(2), ALL_COMMITTED), (n < 20).then_some(1), "below 2: {n}");
        assert_eq!(at(Lsn::MAX, NONE_COMMITTED), None, "{n}");
    }
}
