//! What the hash tier promises beyond what a memtable does: versions that take each other's place, and that none is lost
//! on its way into the list. (`skiplist_tests` holds it against the same model as a list alone.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::iter::Cursor;
use crate::key::{KeyHasher, Kind, Lsn, bytewise};
use crate::sync::Mutex;

use super::{MemTable, Pool, Splits};

fn scaled(count: u64) -> u64 {
    if cfg!(miri) { count / 100 + 10 } else { count }
}

fn table() -> Arc<MemTable> {
    Arc::new(MemTable::new_two_tier(bytewise()))
}

/// Puts a version; of those before it only what is below `needed_below` is to stay.
fn put(table: &MemTable, key: &[u8], lsn: u64, needed_below: u64) {
    let value = [lsn.to_le_bytes(), lsn.to_be_bytes()].concat();
    let node = table.reserve(key, Kind::Put, &value);
    let published = table.publish_over(node, Lsn(lsn), None, Lsn(needed_below));
    table.tell_guide(&published);
}

fn lsn_at(table: &MemTable, key: &[u8], at: u64) -> Option<u64> {
    let found = table.find(key, Lsn(at), |_, _| true)?;
    let lsn = found.lsn.0;
    assert_eq!(found.value, [lsn.to_le_bytes(), lsn.to_be_bytes()].concat());
    Some(lsn)
}

/// All versions in the order of the list.
fn versions(table: &Arc<MemTable>) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    let mut all = Vec::new();
    while cursor.valid() {
        all.push((cursor.key().to_vec(), cursor.lsn().0));
        cursor.next().unwrap();
    }
    all
}

/// Regression: a hash grew by several times at once though memory was full but for a little, and held more than its share.
#[test]
fn a_hash_does_not_grow_beyond_what_memory_has_left() {
    let share = if cfg!(miri) { 64 << 10 } else { 2 << 20 };
    let pool = Arc::new(Pool::new(share));
    let table = MemTable::charged(bytewise(), KeyHasher::new(1), Arc::clone(&pool)).with_hash_tier(
        1 << 20,
        usize::MAX,
        Arc::default(),
    );
    let mut lsn = 0u64;
    while pool.account().bytes() < share / 10 * 9 {
        lsn += 1;
        let before = pool.account().bytes();
        put(&table, &lsn.to_be_bytes(), lsn, 0);
        let grew = pool.account().bytes() - before;
        assert!(
            grew <= (share - before) / 2 + (128 << 10),
            "{grew} bytes at once with {before} of {share} held"
        );
    }
    assert!(lsn > 100, "{lsn} keys");
}

/// Regression: a guide's sample is in order mostly. Keys that came later, and before the first, made heads of parts that did not
/// follow one another: a walk passed versions that it had not sorted.
#[test]
fn parts_follow_the_order_of_keys_whatever_order_they_came_in() {
    let table = MemTable::new(bytewise());
    let count = scaled(40_000);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    // Those that begin with 9 first, then smaller ones, short ones among them.
    for first in [b'9', b'1', b'2'] {
        let key = |n: u64| match n % 100 {
            0 => vec![first, (n / 100) as u8],
            _ => [&[first][..], &n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat(),
        };
        keys.extend((0..count / 3).map(key));
    }
    for (lsn, key) in keys.iter().enumerate() {
        let published = table.publish(table.reserve(key, Kind::Put, b""), Lsn(lsn as u64 + 1), None);
        table.tell_guide(&published);
    }
    keys.sort();
    for wanted in [2, 16, 64] {
        let splits = table.splits(wanted);
        assert!(splits.parts() > 1, "{wanted}");
        let parts: Vec<usize> = keys.iter().map(|key| splits.part_of(key)).collect();
        assert!(parts.is_sorted(), "{splits:?}");
        for (key, part) in keys.iter().zip(parts).step_by(7) {
            let within = |other: usize| splits.is_within(key, other) == (part <= other);
            assert!((0..splits.parts()).all(within), "{key:?} in {splits:?}");
        }
    }
}

/// Regression: of the first hundred keys, of which the sixteenth part is counted, sometimes too few were counted. Then the hash
/// stayed as small as it was, and nearly all versions went into the list.
#[test]
fn the_hash_grows_whatever_its_first_keys_are() {
    for seed in 0..scaled(50) {
        let table = table();
        for n in 0..3000u64 {
            put(&table, &((seed << 32) + n).to_be_bytes(), n + 1, 0);
        }
        assert!(table.unsorted() > 1500, "of 3000 with seed {seed} {} are in the hash", table.unsorted());
    }
}

/// A memtable that follows a large one has room for as many keys as soon as it has some; one that stays small, or may not have
/// so much, does not take it.
#[test]
#[cfg_attr(miri, ignore = "too many keys")]
fn the_hash_has_room_for_as_many_keys_as_are_expected() {
    const EXPECTED: usize = 100_000;
    let hash_bytes = |keys: u64, bytes_max: usize| {
        let splits = Arc::default();
        let table = MemTable::new(bytewise()).with_hash_tier(EXPECTED, bytes_max, splits);
        (0..keys).for_each(|n| put(&table, &n.to_be_bytes(), n + 1, 0));
        let told = table.hash_keys().expect("there is a hash");
        assert!((keys as usize / 2..=keys as usize * 2).contains(&told) || keys < 1000);
        table.hash_bytes()
    };
    let (few, many, little_room) =
        (hash_bytes(50, usize::MAX), hash_bytes(10_000, usize::MAX), hash_bytes(10_000, 1 << 18));
    assert!(few < 100 << 10, "{few}");
    assert!((EXPECTED * 8..EXPECTED * 24).contains(&many), "{many}");
    assert!((1 << 17..1 << 18).contains(&little_room), "{little_room}");
}

/// The first memtable follows none: it reckons by its own keys, once they are some, and so does one that has more than the one before.
#[test]
#[cfg_attr(miri, ignore = "too many keys")]
fn the_hash_has_room_for_as_many_keys_as_the_first_ones_foretell() {
    const KEYS: usize = 100_000;
    const VALUE: [u8; 100] = [7; 100];
    let put_all = |expected: usize, bytes_max: usize| {
        let table = MemTable::new(bytewise()).with_hash_tier(expected, usize::MAX, Arc::default());
        let table = table.with_bytes_max(bytes_max);
        for n in 0..KEYS as u64 / 10 {
            let node = table.reserve(&n.to_be_bytes(), Kind::Put, &VALUE);
            let published = table.publish(node, Lsn(n + 1), None);
            table.tell_guide(&published);
        }
        table
    };
    let bytes = put_all(0, 0).list.bytes() * 10;
    let foretold = [put_all(0, bytes).hash_bytes(), put_all(1000, bytes).hash_bytes()];
    assert!(foretold.iter().all(|hash| (KEYS * 8..KEYS * 24).contains(hash)), "{foretold:?}");
    let not_foretold = [put_all(0, 0).hash_bytes(), put_all(KEYS / 10, bytes).hash_bytes()];
    assert!(not_foretold.iter().all(|hash| *hash < KEYS * 4), "{not_foretold:?}");
}

/// Threads that each put in their share meet at every key, where the order was not cut; so do writers.
#[test]
fn what_several_threads_sort_is_sorted_once() {
    for (bits, shares) in [(0, 2), (0, 5), (4, 3)] {
        let splits = Arc::new(Splits::of_top_bits(bits));
        let table = Arc::new(MemTable::new(bytewise()).with_hash_tier(0, usize::MAX, splits));
        let keys = scaled(5000);
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        (0..keys).for_each(|n| put(&table, &key(n), n + 1, 0));
        let unsettled = table.unsettled().expect("there is a hash");
        std::thread::scope(|scope| {
            for n in 0..shares {
                let (table, unsettled) = (&table, &unsettled);
                scope.spawn(move || table.settle_share(unsettled, n, shares));
            }
            (keys..keys * 2).for_each(|n| put(&table, &key(n), n + 1, 0));
        });
        assert!(table.unsorted() as u64 >= keys, "nothing is done before somebody says so");
        table.settled(unsettled);
        assert!(table.unsorted() as u64 <= keys, "what came meanwhile is left");
        table.list.assert_sound();
        let sorted = versions(&table);
        assert!(sorted.is_sorted() && sorted.len() as u64 == keys * 2, "{bits} bits, {shares} shares");
    }
}

/// In order, or walked after every few: then the hash was a detour.
#[test]
fn a_hash_tells_whether_it_paid() {
    let paid = |walk_every: u64, key: fn(u64) -> u64| {
        let table = table();
        for lsn in 1..=2000 {
            put(&table, &key(lsn).to_be_bytes(), lsn, 0);
            if lsn % walk_every == 0 {
                table.settle();
            }
        }
        table.settle();
        table.hash_paid()
    };
    let spread = |lsn: u64| lsn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    assert_eq!(paid(1000, spread), Some(true));
    assert_eq!(paid(1000, |lsn| lsn), Some(false), "in order");
    assert_eq!(paid(1, spread), Some(false), "walked");
    let few = table();
    put(&few, b"a", 1, 0);
    few.settle();
    assert_eq!((few.hash_paid(), MemTable::new(bytewise()).hash_paid()), (None, None));
}

/// Keys that have a slot when the hash stands aside keep it, and their newest version is there; others go past it.
#[test]
fn a_hash_that_stands_aside_keeps_what_it_has() {
    let table = table();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let keys = 3000;
    let mut lsn = 0;
    for n in 0..keys {
        lsn += 1;
        put(&table, &key(n), lsn, 0);
        if table.hash_paid().is_none() {
            table.settle();
        }
    }
    assert_eq!(table.hash_paid(), Some(false));
    let before = table.list.nodes.arena.entries() as u64;
    assert!(before + 10 > keys && table.unsorted() < 10, "{before} of {keys} went into the list at once");
    for n in 0..keys {
        lsn += 1;
        put(&table, &key(n), lsn, 0);
        assert_eq!(lsn_at(&table, &key(n), u64::MAX), Some(lsn));
    }
    assert!(table.unsorted() > 100, "those with a slot are updated there");
    for n in 0..keys {
        assert_eq!(lsn_at(&table, &key(n), u64::MAX), Some(keys + n + 1));
        assert_eq!(table.newest_lsn(&key(n), table.hash(&key(n))), Some(Lsn(keys + n + 1)));
    }
    let newest = versions(&table).into_iter().filter(|(_, lsn)| *lsn > keys).count();
    assert_eq!(newest as u64, keys);
    table.list.assert_sound();
}

#[test]
fn versions_that_nobody_needs_are_displaced() {
    let table = table();
    for lsn in 1..=scaled(20_000) {
        put(&table, &(lsn % 100).to_be_bytes(), lsn, 0);
    }
    let keys = 100.min(scaled(20_000)) as usize;
    assert_eq!((table.entries(), table.list.first().is_none()), (keys, true));
    assert_eq!(versions(&table).len(), keys);
    assert_eq!(table.entries(), keys, "sorted, they are as many");
}

#[test]
fn what_a_snapshot_needs_is_copied() {
    let table = table();
    put(&table, b"a", 10, 0);
    put(&table, b"b", 11, 0);
    // A snapshot at 15: what is below stays, once; what comes above is displaced again.
    for lsn in 20..30 {
        put(&table, b"a", lsn, 15);
    }
    assert_eq!((lsn_at(&table, b"a", 15), lsn_at(&table, b"a", 1000)), (Some(10), Some(29)));
    assert_eq!(lsn_at(&table, b"b", 15), Some(11));
    assert_eq!(versions(&table), [(b"a".to_vec(), 29), (b"a".to_vec(), 10), (b"b".to_vec(), 11)]);
}

/// A batch's part is not to be seen before the batch is whole: until then gets find what was there before.
#[test]
fn a_part_of_a_batch_leaves_what_was_before_it_to_be_found() {
    let table = table();
    put(&table, b"a", 10, 0);
    table.publish(table.reserve(b"a", Kind::Put, b"part"), Lsn(20), Some(3));
    let seen = |committed: bool| table.find(b"a", Lsn::MAX, |_, _| committed).map(|version| version.lsn.0);
    assert_eq!((seen(false), seen(true)), (Some(10), Some(20)));
    assert_eq!(table.newest_lsn(b"a", table.hash(b"a")), Some(Lsn(20)));
    assert_eq!(versions(&table).len(), 2);
    assert_eq!((seen(false), seen(true)), (Some(10), Some(20)), "sorted, too");
}

/// What was sorted is displaced like anything else, and leaves its slot to other keys when they need it.
#[test]
fn slots_of_what_is_sorted_go_to_other_keys() {
    let table = Arc::new(MemTable::new(bytewise()).with_hash_tier(0, 0, Arc::default()));
    let mut lsn = 0;
    for round in 0..5u64 {
        for key in 0..scaled(2000) {
            lsn += 1;
            put(&table, &(round * 100_000 + key).to_be_bytes(), lsn, 0);
        }
        table.settle();
        let in_list = table.list.nodes.arena.entries();
        assert_eq!(in_list as u64, lsn, "all are in the list once they were sorted");
    }
    for round in 0..5u64 {
        for key in 0..scaled(2000) {
            let expected = round * scaled(2000) + key + 1;
            assert_eq!(lsn_at(&table, &(round * 100_000 + key).to_be_bytes(), u64::MAX), Some(expected));
        }
    }
}

/// Writers that displace versions, somebody who takes snapshots and reads them, and somebody who sorts: every key is found
/// at every time, never older than was acknowledged, and at a snapshot as it was then.
#[test]
fn nothing_is_lost_while_versions_move() {
    const WRITERS: u64 = 2;
    const KEYS: u64 = 30;
    let rounds = scaled(3000);
    let table = table();
    // The highest LSN that a writer may displace nothing below: as `Snapshots::newest`.
    let newest_snapshot = AtomicU64::new(0);
    let tail = AtomicU64::new(1);
    let acknowledged: Vec<AtomicU64> = (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect();
    // A snapshot waits for writes in flight: here it excludes them.
    let gate: Mutex<()> = Mutex::new(());
    let over = AtomicBool::new(false);
    let key = |n: u64| format!("key{n:05}").into_bytes();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (table, tail, gate) = (&table, &tail, &gate);
                let (acknowledged, newest_snapshot) = (&acknowledged, &newest_snapshot);
                scope.spawn(move || {
                    for round in 0..rounds {
                        for n in (0..KEYS).map(|n| writer * KEYS + n).filter(|n| (round + n) % 3 != 0) {
                            let _gate = gate.lock();
                            let lsn = tail.fetch_add(1, SeqCst);
                            put(table, &key(n), lsn, newest_snapshot.load(SeqCst));
                            acknowledged[n as usize].store(lsn, SeqCst);
                        }
                    }
                })
            })
            .collect();
        let (table, over, acknowledged) = (&table, &over, &acknowledged);
        scope.spawn(move || {
            while !over.load(Relaxed) {
                table.settle();
                std::thread::yield_now();
            }
        });
        scope.spawn(move || {
            while !over.load(Relaxed) {
                for n in 0..WRITERS * KEYS {
                    let known = acknowledged[n as usize].load(SeqCst);
                    let seen = lsn_at(table, &key(n), u64::MAX).unwrap_or(0);
                    assert!(seen >= known, "key {n} was at {known}, and is found at {seen}");
                }
            }
        });
        let (tail, gate, newest_snapshot) = (&tail, &gate, &newest_snapshot);
        scope.spawn(move || {
            while !over.load(Relaxed) {
                let (at, known) = {
                    let _gate = gate.lock();
                    let at = tail.load(SeqCst);
                    newest_snapshot.store(at, SeqCst);
                    (at, acknowledged.iter().map(|lsn| lsn.load(SeqCst)).collect::<Vec<_>>())
                };
                for n in 0..WRITERS * KEYS {
                    let seen = lsn_at(table, &key(n), at).unwrap_or(0);
                    assert_eq!(seen, known[n as usize], "key {n} at {at}");
                }
                let mut walked = vec![0; known.len()];
                for (key, lsn) in versions(table).into_iter().filter(|(_, lsn)| *lsn < at) {
                    let n: usize = String::from_utf8_lossy(&key[3..]).parse().expect("a number");
                    walked[n] = walked[n].max(lsn);
                }
                assert_eq!(walked, known, "a walk at {at}");
            }
        });
        for writer in writers {
            writer.join().expect("the writer goes on");
        }
        over.store(true, Relaxed);
    });
}

/// A mover that stands still with a version in its hands stops no writer: what a snapshot needs of it is copied, and the list
/// then has it twice.
#[test]
fn a_version_that_is_being_moved_may_be_displaced() {
    let table = table();
    put(&table, b"k", 10, 0);
    let tier = table.tier.as_ref().expect("it has one");
    let claimed = tier.claim_for_test(&table.list, b"k", table.hash(b"k"));
    put(&table, b"k", 20, 15);
    put(&table, b"k", 30, 15);
    assert_eq!((lsn_at(&table, b"k", 15), lsn_at(&table, b"k", 100)), (Some(10), Some(30)));
    tier.move_for_test(&table.list, claimed);
    assert_eq!((lsn_at(&table, b"k", 15), lsn_at(&table, b"k", 100)), (Some(10), Some(30)));
    let all: Vec<u64> = versions(&table).into_iter().map(|(_, lsn)| lsn).collect();
    assert_eq!(all, [30, 10, 10]);
    assert_eq!((table.entries(), table.counted_twice()), (3, 1), "and whoever counts is told");
}
