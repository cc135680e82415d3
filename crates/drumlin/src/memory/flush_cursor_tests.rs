//! What a flush walks: all that was put, in order, whatever others sort meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::dice::Dice;
use crate::iter::Cursor;
use crate::key::{Comparator, KeyHasher, Kind, Lsn, bytewise};

use super::flush_cursor::FlushCursor;
use super::{MemTable, Splits};

/// A memtable with a hash that is sorted in so many parts by the first bits.
fn table(bits: u32) -> Arc<MemTable> {
    let table = MemTable::charged(bytewise(), KeyHasher::new(1), Arc::default());
    Arc::new(table.with_hash_tier(0, usize::MAX, Arc::new(Splits::of_top_bits(bits))))
}

/// Puts a version; all of those before it stay.
fn put(table: &MemTable, key: &[u8], lsn: u64) {
    let node = table.reserve(key, Kind::Put, &lsn.to_le_bytes());
    let published = table.publish(node, Lsn(lsn), None);
    table.tell_guide(&published);
}

/// The present entry, which is sound.
fn entry(cursor: &FlushCursor) -> (Vec<u8>, std::cmp::Reverse<u64>) {
    assert_eq!((cursor.value(), cursor.kind()), (&cursor.lsn().0.to_le_bytes()[..], Kind::Put));
    (cursor.key().to_vec(), std::cmp::Reverse(cursor.lsn().0))
}

/// All entries, in order; `between` is called before each step with how many there were.
fn walk(table: &Arc<MemTable>, mut between: impl FnMut(usize)) -> Vec<(Vec<u8>, std::cmp::Reverse<u64>)> {
    let mut cursor = table.flush_cursor();
    let mut all = Vec::new();
    cursor.seek_first().expect("memory does not fail");
    while cursor.valid() {
        all.push(entry(&cursor));
        between(all.len());
        cursor.next().expect("memory does not fail");
    }
    assert!(all.is_sorted(), "entries come in order");
    all.dedup();
    all
}

#[test]
fn what_is_settled_between_two_steps_is_met_once_for_all() {
    for keys in [1u8, 2, 7, 40] {
        let expected: Vec<_> =
            (0..keys).map(|n| (vec![n * 6], std::cmp::Reverse(u64::from(n) + 1))).collect();
        for settled_after in 0..=usize::from(keys) {
            let table = table(3);
            (0..keys).for_each(|n| put(&table, &[n * 6], u64::from(n) + 1));
            let found = walk(&table, |met| {
                if met == settled_after {
                    table.settle();
                }
            });
            assert_eq!(found, expected, "settled after {settled_after}");
        }
    }
}

#[test]
fn all_that_was_put_is_met_in_order_while_others_scan() {
    let rounds = if cfg!(miri) { 2 } else { 60 };
    for round in 0..rounds {
        let mut dice = Dice(round);
        let table = table([0, 2, 5][round as usize % 3]);
        let count = if cfg!(miri) { 60 } else { 2000 };
        let mut expected = BTreeSet::new();
        for lsn in 1..=count {
            let key = [dice.below(256) as u8, dice.below(3) as u8];
            put(&table, &key, lsn);
            expected.insert((key.to_vec(), std::cmp::Reverse(lsn)));
            if dice.below(count / 3) == 0 {
                table.drain();
                table.settle();
            }
        }
        let over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice(!round);
                while !over.load(Relaxed) {
                    let mut cursor = table.cursor();
                    cursor.seek(&[dice.below(256) as u8], Lsn::MAX).expect("memory does not fail");
                    for _ in 0..dice.below(200) {
                        if cursor.valid() {
                            cursor.next().expect("memory does not fail");
                        }
                    }
                }
            });
            let found = walk(&table, |_| ());
            over.store(true, Relaxed);
            found
        });
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "round {round}");
    }
}

/// Notes of a part that a mover has not done yet lead to slots that went to keys of other parts since.
#[test]
fn a_slot_that_went_to_a_key_of_another_part_is_met_there() {
    let small = MemTable::charged(bytewise(), KeyHasher::new(1), Arc::default());
    let table = Arc::new(small.with_hash_tier(0, 0, Arc::new(Splits::of_top_bits(3))));
    let mut expected = BTreeSet::new();
    let mut put_some = |lsns: std::ops::Range<u64>| {
        for lsn in lsns {
            let key = (lsn as u32).wrapping_mul(0x9e37_79b9).to_be_bytes();
            put(&table, &key, lsn);
            expected.insert((key.to_vec(), std::cmp::Reverse(lsn)));
        }
    };
    put_some(1..1000);
    let unsettled = table.unsettled().expect("it has a hash");
    table.settle_share(&unsettled, 0, 1);
    put_some(1000..2000);
    assert_eq!(walk(&table, |_| ()), expected.into_iter().collect::<Vec<_>>());
    table.settled(unsettled);
}

#[test]
fn what_is_flushed_says_where_the_next_memtable_is_cut() {
    let table = table(4);
    (0..20_000u32).for_each(|n| put(&table, &n.wrapping_mul(0x9e37_79b9).to_be_bytes(), u64::from(n) + 1));
    // Some of it is in the list, a part as a whole.
    table.settle_parts(table.tier.as_ref().expect("it has a hash"), 3..7);
    // A flush that is tried again.
    for _ in 0..2 {
        assert_eq!(walk(&table, |_| ()).len(), 20_000);
    }
    assert_eq!(table.hash_paid(), Some(true));
    let splits = table.splits(16);
    let mut sizes = [0; 16];
    (0..20_000u32).for_each(|n| sizes[splits.part_of(&n.wrapping_mul(0x9e37_79b9).to_be_bytes())] += 1);
    assert!(splits.parts() == 16 && sizes.iter().all(|size| (900..1700).contains(size)), "{sizes:?}");
}

/// The largest key first.
#[derive(Debug)]
struct Backward;

impl Comparator for Backward {
    fn name(&self) -> &str {
        "test.backward"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

#[test]
fn an_order_of_the_users_is_followed() {
    let backward = MemTable::charged(Arc::new(Backward), KeyHasher::new(1), Arc::default());
    let table = Arc::new(backward.with_hash_tier(0, usize::MAX, Arc::new(Splits::of_top_bits(4))));
    (0..500u32).for_each(|n| put(&table, &n.wrapping_mul(0x9e37_79b9).to_be_bytes(), u64::from(n) + 1));
    table.settle();
    (500..1000u32).for_each(|n| put(&table, &n.wrapping_mul(0x9e37_79b9).to_be_bytes(), u64::from(n) + 1));
    let mut cursor = table.flush_cursor();
    let mut keys = Vec::new();
    cursor.seek_first().expect("memory does not fail");
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        cursor.next().expect("memory does not fail");
    }
    assert!(keys.is_sorted_by(|a, b| a > b));
    assert_eq!(keys.len(), 1000);
}

#[test]
fn a_walk_goes_forward_only() {
    let table = table(1);
    put(&table, b"k", 1);
    let mut cursor = table.flush_cursor();
    let moves =
        [cursor.seek_last(), cursor.seek(b"k", Lsn::MAX), cursor.seek_back(b"k", Lsn::MAX), cursor.prev()];
    assert!(moves.iter().all(Result::is_err));
    assert!(!cursor.valid());
}
