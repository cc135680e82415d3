//! What is loaded at once against what is put one by one.

use std::cmp::Ordering;
use std::sync::Arc;

use super::pool::Pool;
use crate::dice::Dice;
use crate::iter::Cursor;
use crate::key::{Comparator, ComparatorRef, KeyHasher, Kind, Lsn, bytewise};

use super::place::Place;
use super::{Gathered, MemTable};

type Version = (Vec<u8>, Kind, Vec<u8>, u64);

/// Families of keys: which bytes tell them from one another is never the same.
fn key(family: u64, random: &mut Dice) -> Vec<u8> {
    let number = random.below(400);
    match family {
        // All of eight bytes, and of few.
        0 => number.to_be_bytes().to_vec(),
        1 => vec![number as u8],
        // Known by their ends only.
        2 => format!("a long beginning that all of them share/{number:04}").into_bytes(),
        // By bytes far apart.
        3 => format!("{:03}/and then all alike for long/{:03}", number % 5, number / 5).into_bytes(),
        // Ends that look like zeros.
        4 => [&b"zero"[..], &vec![0; number as usize % 20]].concat(),
        5 => [&b"ends"[..], &vec![0; number as usize % 9], &[1][..number as usize % 2]].concat(),
        // What all have in common gets less and less.
        6 => vec![b'x'; 400 - number as usize],
        // One key, and the empty one.
        7 => b"the same".to_vec(),
        _ => b"\0\0\x01ab\xff"[..number as usize % 7].to_vec(),
    }
}

/// A history in the order of its LSNs; some writes have several parts.
fn history(seed: u64, count: u64) -> Vec<Version> {
    let mut random = Dice(seed);
    let (mut versions, mut lsn) = (Vec::<Version>::new(), 0);
    for number in 0..count {
        let family = if seed < 9 { seed } else { random.below(9) };
        let key = key(family, &mut random);
        lsn += random.below(3);
        // No write has a key twice.
        let mut same = versions.iter().rev().take_while(|(.., of)| *of == lsn);
        lsn += u64::from(same.any(|(known, ..)| *known == key));
        let kind = if random.below(4) == 0 { Kind::Delete } else { Kind::Put };
        let value = if kind == Kind::Put { number.to_le_bytes().to_vec() } else { Vec::new() };
        versions.push((key, kind, value, lsn));
    }
    versions
}

/// By three threads.
fn load(table: &MemTable, parts: Vec<Gathered>) {
    let Some(linking) = table.sort(parts) else { return };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| table.link(&linking)))));
    assert!(table.finish(linking));
}

/// Cut at random places into parts.
fn gathered(table: &MemTable, versions: &[Version], random: &mut Dice) -> Vec<Gathered> {
    let mut parts = vec![table.gathered()];
    for (key, kind, value, lsn) in versions {
        while random.below(50) == 0 {
            parts.push(table.gathered());
        }
        let part = parts.last_mut().expect("one at least");
        table.gather(part, key, *kind, value, Lsn(*lsn));
    }
    parts
}

fn all_of(table: &Arc<MemTable>) -> Vec<Version> {
    let (mut found, mut cursor) = (Vec::new(), table.cursor());
    cursor.seek_first().expect("seeks");
    while cursor.valid() {
        found.push((cursor.key().to_vec(), cursor.kind(), cursor.value().to_vec(), cursor.lsn().0));
        cursor.next().expect("steps");
    }
    found
}

/// Loads `loaded` into a table that has `before`, puts `after`, and compares it with one into which all was put.
fn compare(comparator: &ComparatorRef, before: &[Version], loaded: &[Version], after: &[Version], seed: u64) {
    let mut random = Dice(seed);
    let pool = Arc::<Pool>::default();
    let account = pool.account();
    let table = Arc::new(MemTable::charged(comparator.clone(), KeyHasher::new(1), pool.clone()));
    let one_by_one = Arc::new(MemTable::new(comparator.clone()));
    let put = |table: &MemTable, (key, kind, value, lsn): &Version| {
        let published = table.publish(table.reserve(key, *kind, value), Lsn(*lsn), None);
        table.tell_guide(&published);
    };
    before.iter().for_each(|version| put(&table, version));
    let parts = gathered(&table, loaded, &mut random);
    assert_eq!(table.entries(), before.len(), "nothing of it shows");
    assert!(account.bytes() > table.bytes() || loaded.is_empty(), "notes are charged");
    load(&table, parts);
    assert_eq!(account.bytes(), table.bytes(), "and given back");
    after.iter().for_each(|version| put(&table, version));
    before.iter().chain(loaded).chain(after).for_each(|version| put(&one_by_one, version));
    table.list.assert_sound();
    let (found, wanted) = (all_of(&table), all_of(&one_by_one));
    assert_eq!(found.len(), wanted.len());
    for (place, pair) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(pair.0, pair.1, "seed {seed}, place {place}");
    }
    for (key, .., lsn) in before.iter().chain(loaded).chain(after) {
        assert!(table.may_know(KeyHasher::new(1).hash(key)), "seed {seed}, {key:?}");
        for at in [Lsn(*lsn), Lsn(lsn + 1), Lsn::MAX] {
            let get = |table: &MemTable| {
                table.find(key, at, |_, _| true).map(|v| (v.lsn, v.kind, v.value.to_vec()))
            };
            assert_eq!(get(&table), get(&one_by_one), "seed {seed}, {key:?} at {at}");
        }
    }
}

fn scaled(count: u64) -> u64 {
    if cfg!(miri) { count / 50 + 10 } else { count }
}

/// Those after a history, with greater LSNs.
fn later(versions: Vec<Version>, by: u64) -> Vec<Version> {
    versions.into_iter().map(|(key, kind, value, lsn)| (key, kind, value, lsn + by)).collect()
}

#[test]
fn a_load_is_as_if_all_had_been_put_one_by_one() {
    for seed in 0..20 {
        for count in [0, 1, 2, 100, 3000] {
            let loaded = history(seed, scaled(count));
            let after = later(history(seed + 1, scaled(200)), 10_000);
            compare(&bytewise(), &[], &loaded, &after, seed);
        }
    }
}

#[test]
fn what_is_loaded_into_a_table_that_has_versions_finds_its_place() {
    for seed in 0..12 {
        let before = history(seed, scaled(300));
        let loaded = later(history(seed + 2, scaled(300)), 10_000);
        compare(&bytewise(), &before, &loaded, &[], seed);
    }
}

/// By length first.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "by length"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| b.cmp(a))
    }
}

#[test]
fn a_load_keeps_to_the_order_of_a_comparator() {
    let comparator = ComparatorRef::from(Arc::new(ByLength) as Arc<dyn Comparator>);
    for seed in 0..12 {
        compare(&comparator, &[], &history(seed, scaled(500)), &later(history(3, 20), 10_000), seed);
    }
}

/// No write of ours has a key twice, but a log may.
#[test]
fn of_a_key_that_a_write_has_twice_the_last_counts() {
    let table = MemTable::new(bytewise());
    let mut part = table.gathered();
    for value in [b"1", b"2", b"3"] {
        table.gather(&mut part, b"k", Kind::Put, value, Lsn(5));
    }
    load(&table, vec![part]);
    assert_eq!(table.find(b"k", Lsn::MAX, |_, _| true).map(|v| v.value), Some(&b"3"[..]));
}

#[test]
fn a_loaded_list_has_its_guide() {
    let table = MemTable::new(bytewise());
    let mut part = table.gathered();
    for number in (0..2000u64).rev() {
        table.gather(&mut part, &number.to_be_bytes(), Kind::Put, b"", Lsn(2000 - number));
    }
    load(&table, vec![part]);
    let before = |number: u64| {
        let hint = table.list.hint(Place::before(&number.to_be_bytes(), Lsn::MAX)).expect("it knows nodes");
        hint.before
    };
    let named: std::collections::BTreeSet<u32> = (0..2000).map(before).collect();
    assert_eq!(named.len(), 2000, "for each key the node before it, for the first the head");
}

#[test]
#[should_panic(expected = "of the list that is asked")]
fn what_was_gathered_for_another_table_is_refused() {
    let (one, other) = (MemTable::new(bytewise()), MemTable::new(bytewise()));
    let mut part = one.gathered();
    one.gather(&mut part, b"k", Kind::Put, b"v", Lsn(1));
    load(&other, vec![part]);
}
