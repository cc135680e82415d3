//! The guide against the list it leads into: what it names, not only that the list makes the best of it.

use std::sync::Arc;

use crate::dice::Dice;
use crate::key::{Kind, Lsn, bytewise};

use super::MemTable;
use super::place::Place;

fn put(table: &MemTable, key: &[u8], lsn: u64) {
    let published = table.publish(table.reserve(key, Kind::Put, b"v"), Lsn(lsn), None);
    table.tell_guide(&published);
}

/// A memtable with a version of each key.
fn filled(keys: &[Vec<u8>]) -> Arc<MemTable> {
    let table = Arc::new(MemTable::new(bytewise()));
    keys.iter().zip(1..).for_each(|(key, lsn)| put(&table, key, lsn));
    table
}

/// Keys as people make them, in the order in which they come.
fn kinds_of_keys(count: u64) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut dice = Dice(7);
    let mut random = |below: u64| dice.below(below);
    let numbers = |n: u64| format!("{n:016}").into_bytes();
    vec![
        ("in order", (0..count).map(numbers).collect()),
        ("backwards", (0..count).rev().map(numbers).collect()),
        ("at random", (0..count).map(|_| numbers(random(1 << 40))).collect()),
        ("sharing less and less", {
            let shared = |n: u64| 30 - (n * 30 / count) as usize;
            (0..count).map(|n| [&vec![b'x'; shared(n)][..], &numbers(n)].concat()).collect()
        }),
        (
            "alike in eight bytes, tenant by tenant",
            (0..count).map(|n| format!("tenant/{:04}/order/{n}", n * 31 % 97).into_bytes()).collect(),
        ),
        (
            "few, many versions of each",
            (0..count).map(|n| format!("key {}", n * 7 % 11).into_bytes()).collect(),
        ),
        ("short, with zeros", (0..count).map(|n| n.to_be_bytes()[8 - n as usize % 9..].to_vec()).collect()),
    ]
}

/// Alone, nothing is left out: every node is what the guide names for the place behind it, as the one before it or, if no other
/// in the leaf has the same eight bytes, as the one behind.
#[test]
fn every_node_told_of_is_found_at_once() {
    for (kind, keys) in kinds_of_keys(if cfg!(miri) { 150 } else { 9000 }) {
        let table = filled(&keys);
        let list = &table.list;
        let mut node = list.first();
        let (mut before, mut earlier) = (0, 0);
        while let Some(now) = node {
            let place = Place::before(list.nodes.key(now), list.nodes.lsn(now));
            let hint = list.hint(place).expect("it knows nodes");
            let named = (hint.before, hint.behind);
            let is_alike = named == (earlier, before);
            assert!(
                hint.before == before || is_alike,
                "{kind}: {hint:?} before {:?}",
                list.nodes.key(now).escape_ascii()
            );
            assert!(hint.behind == now.unit() || hint.behind == 0 || is_alike, "{kind}: {hint:?}");
            (earlier, before) = (before, now.unit());
            node = list.next(now);
        }
        let past = list.hint(Place::before(b"\xff\xff", Lsn::ZERO)).expect("it knows nodes");
        assert_eq!((past.before, past.behind), (before, 0), "{kind}");
        for key in &keys {
            assert!(table.find(key, Lsn::MAX, |_, _| true).is_some(), "{kind}");
        }
        list.assert_sound();
    }
}

/// It takes its share of memory, and no more, in whatever order keys come.
#[test]
fn it_takes_some_twenty_bytes_a_node() {
    for (kind, keys) in kinds_of_keys(if cfg!(miri) { 150 } else { 9000 }) {
        let table = filled(&keys);
        let arrays = table.list.guide_bytes();
        assert!(arrays <= keys.len() * 28 + 4096, "{kind}: {arrays} bytes for {} nodes", keys.len());
    }
}

/// With threads signs are left out; what is named is close, all the same.
#[test]
fn threads_leave_out_little() {
    let (threads, count) = if cfg!(miri) { (2, 100) } else { (4, 20_000) };
    let table = Arc::new(MemTable::new(bytewise()));
    let key = |n: u64| format!("{:08}", n * 2_654_435_761 % 100_000_007).into_bytes();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let table = &table;
            scope.spawn(move || {
                for n in 0..count {
                    put(table, &key(n * threads + thread), n + 1);
                    let back = n / 2 * threads + thread;
                    assert!(table.find(&key(back), Lsn::MAX, |_, _| true).is_some(), "its own key {back}");
                }
            });
        }
    });
    let list = &table.list;
    let mut places = std::collections::HashMap::from([(0, 0)]);
    let (mut node, mut passed, mut steps) = (list.first(), 0, 0);
    while let Some(now) = node {
        let hint =
            list.hint(Place::before(list.nodes.key(now), list.nodes.lsn(now))).expect("it knows nodes");
        steps += passed - places.get(&hint.before).expect("a node before this one");
        passed += 1;
        places.insert(now.unit(), passed);
        node = list.next(now);
    }
    assert_eq!(passed, threads * count);
    assert!(steps <= passed * 8, "{steps} steps to {passed} nodes");
    list.assert_sound();
}
