//! The skiplist and its cursor against a sorted model, alone and with threads.
//!
//! Sizes shrink under miri. The thread sanitizer checks the orderings of the real code here (with the
//! link's compare-and-swap made Relaxed it reports a hundred races), loom those of the model.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::dice::Dice;
use crate::iter::{Cursor, SEEK_STAGES};
use crate::key::{Bytewise, Comparator, ComparatorRef, Kind, Lsn, bytewise};

use super::{MemTable, Splits};

/// (key, LSN newest first) to value: the internal order of bytewise keys.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Vec<u8>>;

/// Keys that share prefixes, are prefixes of each other, hold zeros, and are of all lengths.
fn any_key(random: &mut Dice) -> Vec<u8> {
    let common: &[&[u8]] = &[b"", b"\0", b"user0000", b"user", b"a longer prefix that all of them share/"];
    let mut key = common[random.below(common.len() as u64) as usize].to_vec();
    for _ in 0..random.below(12) {
        key.push(b"\0\0\x01ab\xff"[random.below(6) as usize]);
    }
    key
}

fn scaled(count: u64) -> u64 {
    if cfg!(miri) { count / 100 + 10 } else { count }
}

fn put(table: &MemTable, key: &[u8], lsn: u64, value: &[u8]) {
    let published = table.publish(table.reserve(key, Kind::Put, value), Lsn(lsn), None);
    table.tell_guide(&published);
}

fn current(cursor: &impl Cursor) -> Option<(Vec<u8>, u64, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.lsn().0, cursor.value().to_vec()))
}

fn entry(found: Option<(&(Vec<u8>, Reverse<u64>), &Vec<u8>)>) -> Option<(Vec<u8>, u64, Vec<u8>)> {
    found.map(|((key, Reverse(lsn)), value)| (key.clone(), *lsn, value.clone()))
}

/// Everything that can be asked of a list, against the model.
fn assert_same(table: &Arc<MemTable>, model: &Model, random: &mut Dice) {
    assert_eq!(table.entries(), model.len());
    assert_eq!(table.is_empty(), model.is_empty());
    let mut cursor = table.cursor();
    assert!(!cursor.valid());
    cursor.seek_first().unwrap();
    for want in model.iter() {
        assert_eq!(current(&cursor), entry(Some(want)));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for want in model.iter().rev() {
        assert_eq!(current(&cursor), entry(Some(want)));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
    for _ in 0..scaled(300) {
        let key = any_key(random);
        let lsn = [0, 1, u64::MAX, random.below(model.len() as u64 * 2 + 2)][random.below(4) as usize];
        let place = (key.clone(), Reverse(lsn));
        cursor.seek(&key, Lsn(lsn)).unwrap();
        assert_eq!(current(&cursor), entry(model.range(&place..).next()), "seek {key:?} {lsn}");
        (0..SEEK_STAGES).for_each(|stage| cursor.seek_stage(&key, Lsn(lsn), stage).unwrap());
        assert_eq!(current(&cursor), entry(model.range(&place..).next()), "in stages {key:?} {lsn}");
        if let Some((key, ..)) = current(&cursor) {
            cursor.next_key().unwrap();
            let behind = (std::ops::Bound::Excluded((key.clone(), Reverse(0))), std::ops::Bound::Unbounded);
            assert_eq!(current(&cursor), entry(model.range(behind).next()), "behind {key:?}");
        }
        cursor.seek_back(&key, Lsn(lsn)).unwrap();
        assert_eq!(current(&cursor), entry(model.range(..=&place).next_back()), "seek_back {key:?} {lsn}");
        // A random walk from there, turning as it likes.
        while let Some((key, lsn, _)) = current(&cursor)
            && random.below(12) != 0
        {
            let place = (key, Reverse(lsn));
            let want = if random.below(2) == 0 {
                cursor.next().unwrap();
                model.range((std::ops::Bound::Excluded(&place), std::ops::Bound::Unbounded)).next()
            } else {
                cursor.prev().unwrap();
                model.range(..&place).next_back()
            };
            assert_eq!(current(&cursor), entry(want));
        }
        let found = table.find(&key, Lsn(lsn), |_, _| true).map(|v| (v.lsn.0, v.value.to_vec()));
        let want = lsn.checked_sub(1).and_then(|newest| {
            let (found, value) = model.range((key.clone(), Reverse(newest))..).next()?;
            (found.0 == key).then(|| (found.1.0, value.clone()))
        });
        assert_eq!(found, want, "get {key:?} at {lsn}");
    }
}

#[test]
fn a_list_answers_as_a_sorted_map_does() {
    for seed in 0..if cfg!(miri) { 2 } else { 12 } {
        let mut random = Dice(seed);
        let table = Arc::new(match seed % 3 {
            0 => MemTable::new(bytewise()),
            1 => MemTable::new_two_tier(bytewise()),
            // With slots for a few keys only.
            _ => MemTable::new(bytewise()).with_hash_tier(0, 0, Arc::new(Splits::of_top_bits(3))),
        });
        let mut model = Model::new();
        assert_same(&table, &model, &mut random);
        for lsn in 0..scaled(3000) {
            let (key, value) = (any_key(&mut random), random.next().to_le_bytes().to_vec());
            put(&table, &key, lsn, &value);
            model.insert((key, Reverse(lsn)), value);
            if lsn.is_power_of_two() {
                assert_same(&table, &model, &mut random);
            }
        }
        assert_same(&table, &model, &mut random);
    }
}

#[test]
fn nodes_find_their_place_however_late_they_are_published() {
    // All reserved in an empty list, so that every remembered predecessor is the head; published
    // in every order, old versions after new ones too.
    for (seed, order) in [(1, "ascending"), (2, "descending"), (3, "shuffled")] {
        let mut random = Dice(seed);
        let table = Arc::new(MemTable::new(bytewise()));
        let mut model = Model::new();
        let mut keys: Vec<(Vec<u8>, u64)> =
            (0..scaled(2000)).map(|lsn| (any_key(&mut random), lsn)).collect();
        match order {
            "ascending" => keys.sort(),
            "descending" => keys.sort_by(|a, b| b.cmp(a)),
            _ => keys.sort_by_cached_key(|_| random.next()),
        }
        let reserved: Vec<_> = keys.iter().map(|(key, _)| table.reserve(key, Kind::Put, key)).collect();
        assert!(table.is_empty());
        for (node, (key, lsn)) in reserved.into_iter().zip(keys) {
            table.publish(node, Lsn(lsn), None);
            model.insert((key.clone(), Reverse(lsn)), key);
        }
        assert_same(&table, &model, &mut random);
    }
}

#[test]
fn short_keys_keep_their_order() {
    let table = Arc::new(MemTable::new(bytewise()));
    let mut keys: Vec<Vec<u8>> = (0..20).map(|zeros| vec![0; zeros]).collect();
    keys.extend((0..20).map(|zeros| [b"abc".as_slice(), &vec![0; zeros]].concat()));
    keys.extend([b"abcdefg".to_vec(), b"abcdefgh".to_vec(), b"abcdefgh\0".to_vec(), b"abcdefghi".to_vec()]);
    for (lsn, key) in keys.iter().enumerate().rev() {
        put(&table, key, lsn as u64, b"");
    }
    keys.sort();
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    for key in &keys {
        assert_eq!(cursor.key(), key);
        assert!(table.find(key, Lsn::MAX, |_, _| true).is_some());
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

/// Longest key first, then bytewise from the last byte on: nothing a prefix could tell.
struct Odd;

impl Comparator for Odd {
    fn name(&self) -> &str {
        "test.odd"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        b.len().cmp(&a.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
    }
}

#[test]
fn a_custom_order_is_kept() {
    let comparator: ComparatorRef = Arc::new(Odd);
    let table = Arc::new(MemTable::new(comparator.clone()));
    let mut random = Dice(5);
    let mut keys = Vec::new();
    for lsn in 1..=scaled(2000) {
        let key = any_key(&mut random);
        put(&table, &key, lsn, &lsn.to_le_bytes());
        keys.push((key, lsn));
    }
    keys.sort_by(|a, b| comparator.compare(&a.0, &b.0).then(b.1.cmp(&a.1)));
    let mut cursor = table.cursor();
    cursor.seek_last().unwrap();
    for (key, lsn) in keys.iter().rev() {
        assert_eq!((cursor.key(), cursor.lsn()), (key.as_slice(), Lsn(*lsn)));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
    for pair in keys.windows(2) {
        let newest = pair[0].0 != pair[1].0;
        if newest {
            assert_eq!(table.find(&pair[1].0, Lsn::MAX, |_, _| true).map(|v| v.lsn), Some(Lsn(pair[1].1)));
        }
    }
}

#[test]
#[should_panic(expected = "published in the memtable that reserved it")]
fn a_node_of_another_memtable_is_refused() {
    let (here, there) = (MemTable::new(bytewise()), MemTable::new(bytewise()));
    there.publish(here.reserve(b"key", Kind::Put, b"value"), Lsn(1), None);
}

#[test]
fn a_reserved_node_that_is_dropped_leaves_no_trace() {
    let table = Arc::new(MemTable::new(bytewise()));
    put(&table, b"b", 1, b"1");
    drop(table.reserve(b"a", Kind::Put, b"never"));
    drop(table.reserve(b"b", Kind::Put, b"never"));
    put(&table, b"c", 2, b"2");
    assert_eq!(table.entries(), 2);
    assert_eq!(table.find(b"a", Lsn::MAX, |_, _| true), None);
    assert_eq!(table.find(b"b", Lsn::MAX, |_, _| true).map(|v| v.value), Some(b"1".as_slice()));
}

#[test]
fn threads_lose_no_insert_and_break_no_order() {
    const THREADS: u64 = 4;
    let each = scaled(20_000);
    let table = Arc::new(MemTable::new(bytewise()));
    // Neighbouring keys go to different threads, so that they contend for the same links; each
    // thread also adds versions of keys that all share. LSNs are unique over all threads.
    let operation = |thread: u64, i: u64| {
        let lsn = i * THREADS + thread + 1;
        let mut random = Dice(i);
        let key = match i % 4 {
            0 => format!("hot{}", i % 3),
            1 => format!("{:020}", lsn),
            _ => format!("{:06x}{thread}", random.below(1 << 16)),
        };
        (key.into_bytes(), lsn)
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                for i in 0..each {
                    let (key, lsn) = operation(thread, i);
                    put(table, &key, lsn, &lsn.to_le_bytes());
                    // What this thread published it sees, at that very version.
                    let version = table.find(&key, Lsn(lsn + 1), |_, _| true).expect("just published");
                    assert_eq!((version.lsn, version.value), (Lsn(lsn), lsn.to_le_bytes().as_slice()));
                }
            });
        }
    });
    let mut model = Model::new();
    for thread in 0..THREADS {
        for i in 0..each {
            let (key, lsn) = operation(thread, i);
            model.insert((key, Reverse(lsn)), lsn.to_le_bytes().to_vec());
        }
    }
    assert_same(&table, &model, &mut Dice(9));
    table.list.assert_sound();
}

#[test]
fn threads_that_publish_at_one_place_at_once_lose_nothing() {
    // All reserve the same neighbourhood, then publish together in a short burst, so that their
    // compare-and-swaps meet on the same links, on all levels.
    const THREADS: u64 = 2;
    let (rounds, burst) = (scaled(1500), 64);
    let table = Arc::new(MemTable::new(bytewise()));
    let barrier = std::sync::Barrier::new(THREADS as usize);
    let waiting = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, barrier, waiting) = (&table, &barrier, &waiting);
            scope.spawn(move || {
                for round in 0..rounds {
                    let key = |i: u64| ((round << 32) | ((i * THREADS + thread) * 31 % 997)).to_be_bytes();
                    let nodes: Vec<_> =
                        (0..burst).map(|i| table.reserve(&key(i), Kind::Put, b"value")).collect();
                    barrier.wait();
                    // The barrier wakes one after the other; the last steps are done together.
                    waiting.fetch_add(1, AcqRel);
                    for _ in 0..10_000 {
                        if waiting.load(Acquire) == (round + 1) * THREADS {
                            break;
                        }
                        std::hint::spin_loop();
                    }
                    for node in nodes {
                        table.publish(node, Lsn(round + 1), None);
                    }
                }
            });
        }
    });
    table.list.assert_sound();
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    let mut count = 0;
    while cursor.valid() {
        count += 1;
        cursor.next().unwrap();
    }
    assert_eq!(count, rounds * burst * THREADS);
}

#[test]
fn cursors_visit_all_that_is_there_throughout_both_ways() {
    let table = Arc::new(MemTable::new(bytewise()));
    let stable = scaled(3000);
    let key = |i: u64| i.to_be_bytes();
    for i in 0..stable {
        put(&table, &key(i * 16), 1, b"stable");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                let mut random = Dice(thread);
                for lsn in 2..scaled(40_000) {
                    if stop.load(Relaxed) {
                        break;
                    }
                    // Beside the stable ones, and newer versions of the stable ones.
                    let at = random.below(stable) * 16 + random.below(2) * (1 + thread + random.below(7) * 2);
                    put(table, &key(at), lsn * 2 + thread, b"coming");
                }
            });
        }
        let stop_after = Stop(&stop);
        let mut cursor = table.cursor();
        for _ in 0..if cfg!(miri) { 1 } else { 10 } {
            for back in [false, true] {
                let mut seen = 0;
                let mut before: Option<(Vec<u8>, Reverse<Lsn>)> = None;
                if back { cursor.seek_last() } else { cursor.seek_first() }.unwrap();
                while cursor.valid() {
                    let here = (cursor.key().to_vec(), Reverse(cursor.lsn()));
                    if let Some(before) = before.replace(here.clone()) {
                        assert_eq!(before.cmp(&here), if back { Ordering::Greater } else { Ordering::Less });
                    }
                    seen += u64::from(cursor.value() == b"stable");
                    if back { cursor.prev() } else { cursor.next() }.unwrap();
                }
                assert_eq!(seen, stable, "back: {back}");
            }
        }
        drop(stop_after);
    });
    table.list.assert_sound();
}

/// Ends the writers even if an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn gets_never_go_back_in_time() {
    // Versions of each key are published in LSN order, as under a key lock; a reader that saw one
    // must not see an older one later, and one that knows of a publish must see at least that.
    let table = Arc::new(MemTable::new(bytewise()));
    let keys: Vec<Vec<u8>> = (0..4u8).map(|i| vec![b'k', i]).collect();
    let newest: Vec<AtomicU64> = keys.iter().map(|_| AtomicU64::new(0)).collect();
    let rounds = scaled(20_000);
    std::thread::scope(|scope| {
        for (writer, keys) in keys.chunks(2).enumerate() {
            let (table, newest) = (&table, &newest);
            scope.spawn(move || {
                for lsn in 1..=rounds {
                    for (i, key) in keys.iter().enumerate() {
                        put(table, key, lsn, &[lsn.to_le_bytes(), lsn.to_be_bytes()].concat());
                        newest[writer * 2 + i].store(lsn, Release);
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = [0; 4];
                while seen.iter().any(|&lsn| lsn < rounds) {
                    for (i, key) in keys.iter().enumerate() {
                        let known = newest[i].load(Acquire).max(seen[i]);
                        let Some(version) = table.find(key, Lsn::MAX, |_, _| true) else {
                            assert_eq!(known, 0);
                            continue;
                        };
                        let lsn = version.lsn.0;
                        assert!(lsn >= known, "saw {lsn} after {known}");
                        assert_eq!(version.value, [lsn.to_le_bytes(), lsn.to_be_bytes()].concat());
                        seen[i] = lsn;
                    }
                }
            });
        }
    });
}

#[test]
fn searches_stay_logarithmic() {
    // Counts comparisons instead of time: a list that lost its express lanes would need n/2 each.
    struct Counting(AtomicU64);
    impl Comparator for Counting {
        fn name(&self) -> &str {
            "test.counting"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            self.0.fetch_add(1, Relaxed);
            Bytewise.compare(a, b)
        }
    }
    let counting = Arc::new(Counting(AtomicU64::new(0)));
    let table = MemTable::new(counting.clone());
    let count = scaled(100_000);
    for i in 0..count {
        put(&table, &i.to_be_bytes(), i, b"");
    }
    counting.0.store(0, Relaxed);
    let mut random = Dice(1);
    let gets = scaled(10_000);
    for _ in 0..gets {
        let i = random.below(count);
        assert_eq!(table.find(&i.to_be_bytes(), Lsn::MAX, |_, _| true).map(|v| v.lsn), Some(Lsn(i)));
    }
    let per_get = counting.0.load(Relaxed) as f64 / gets as f64;
    // 1.5 comparisons per level are expected, log2(n) levels.
    assert!(per_get < 2.5 * (count as f64).log2(), "{per_get} comparisons per get");
}
