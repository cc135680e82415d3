//! The memtable under the model checker: every interleaving of a few threads, with every value that
//! the orderings allow a load to return.
//!
//! Run by `cargo x loom`. Node bytes are followed by loom cells (`loom_shadow`): a read that no
//! publication happens before ends the model. Heights are given, since models must repeat exactly.
//! Each test names what fails it. Those that watch a race also assert that every outcome occurred,
//! so that a model which stops exploring (see `loom_shadow`) fails too.

use std::collections::BTreeSet;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::iter::Cursor;
use crate::key::{KeyHasher, Kind, Lsn, bytewise};

use super::arena::{Arena, Shape};
use super::memtable::MemTable;
use super::node::NO_BATCH;
use super::place::Place;
use super::skiplist::Reserved;

/// Runs every interleaving and returns the different outcomes.
fn outcomes<T: Ord + Send + 'static>(test: impl Fn() -> T + Send + Sync + 'static) -> BTreeSet<T> {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    let collect = seen.clone();
    builder.check(move || {
        let outcome = test();
        collect.lock().unwrap().insert(outcome);
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

fn model(test: impl Fn() + Send + Sync + 'static) {
    outcomes(test);
}

/// A memtable behind a plain `Arc`, as cursors want it: what it counts is not part of the model.
fn table() -> std::sync::Arc<MemTable> {
    std::sync::Arc::new(MemTable::new(bytewise()))
}

fn reserve(table: &MemTable, height: usize, key: &str) -> Reserved {
    table.list.reserve_with_height(height, key.as_bytes(), Kind::Put, key.as_bytes())
}

fn publish(table: &MemTable, node: Reserved, lsn: u64) {
    let published = table.list.publish(node, Lsn(lsn), NO_BATCH);
    table.list.tell_guide(&published);
}

fn get(table: &MemTable, key: &str) -> Option<Lsn> {
    let found = table.find(key.as_bytes(), Lsn::MAX, |_, _| true)?;
    assert_eq!(found.value, key.as_bytes());
    Some(found.lsn)
}

fn keys(table: &std::sync::Arc<MemTable>) -> Vec<String> {
    versions(table).into_iter().map(|(key, _)| key).collect()
}

/// Fails with a Relaxed compare-and-swap in `link_on`, or a Relaxed load in `descend` or `next`.
#[test]
fn loom_a_found_version_is_whole() {
    let seen = outcomes(|| {
        let table = table();
        let node = reserve(&table, 2, "b");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 7)
        });
        let seen = (get(&table, "b"), keys(&table).len());
        writer.join().unwrap();
        assert_eq!(get(&table, "b"), Some(Lsn(7)));
        seen
    });
    assert_eq!(seen, BTreeSet::from([(None, 0), (None, 1), (Some(Lsn(7)), 1)]));
}

/// Fails if the filter is told of a key behind its publication.
#[test]
fn loom_whoever_sees_a_version_finds_its_key_in_the_filter() {
    let seen = outcomes(|| {
        let table = table();
        let writer = thread::spawn({
            let table = table.clone();
            move || {
                let node = table.known(KeyHasher::new(1).hash(b"b"), || reserve(&table, 1, "b"));
                publish(&table, node, 7);
            }
        });
        let seen = get(&table, "b").is_some();
        let known = table.may_know(KeyHasher::new(1).hash(b"b"));
        writer.join().unwrap();
        (seen, known)
    });
    assert_eq!(seen, BTreeSet::from([(false, false), (false, true), (true, true)]));
}

/// Both keys have their bits in the one word that the filter has here. Fails if a thread puts a word back that it read before.
#[test]
fn loom_threads_that_add_keys_of_one_word_keep_the_bits_of_both() {
    let seen = outcomes(|| {
        let table = table();
        let other = thread::spawn({
            let table = table.clone();
            move || drop(table.known(KeyHasher::new(1).hash(b"a"), || reserve(&table, 1, "a")))
        });
        drop(table.known(KeyHasher::new(1).hash(b"b"), || reserve(&table, 1, "b")));
        other.join().unwrap();
        let hasher = KeyHasher::new(1);
        [b"a", b"b"].map(|key| table.may_know(hasher.hash(key)))
    });
    assert_eq!(seen, BTreeSet::from([[true, true]]));
}

/// A get finds by `descend` only what follows it by `next`. Fails with a Relaxed load in `next`.
#[test]
fn loom_a_version_stepped_to_is_whole() {
    let seen = outcomes(|| {
        let table = table();
        let node = reserve(&table, 1, "b");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 7)
        });
        let seen = keys(&table);
        writer.join().unwrap();
        seen
    });
    assert_eq!(seen, BTreeSet::from([vec![], vec!["b".to_string()]]));
}

/// Fails if an insert is not retried after a lost compare-and-swap, stores instead of swapping, or
/// goes on with a remembered predecessor without walking from it.
#[test]
fn loom_two_inserts_of_neighbours_and_a_reader() {
    let seen = outcomes(|| {
        let table = table();
        let (b, c) = (reserve(&table, 2, "b"), reserve(&table, 1, "c"));
        let one = thread::spawn({
            let table = table.clone();
            move || publish(&table, b, 1)
        });
        let two = thread::spawn({
            let table = table.clone();
            move || publish(&table, c, 2)
        });
        let seen = keys(&table).concat();
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(keys(&table), ["b", "c"]);
        table.list.assert_sound();
        seen
    });
    assert_eq!(seen, BTreeSet::from(["", "b", "c", "bc"].map(String::from)));
}

/// As above, with three; also fails if `link_on` stores a stale successor in the new node.
#[test]
fn loom_three_inserts_of_neighbours() {
    model(|| {
        let table = table();
        let (a, b, c) = (reserve(&table, 1, "a"), reserve(&table, 2, "b"), reserve(&table, 1, "c"));
        let one = thread::spawn({
            let table = table.clone();
            move || publish(&table, a, 1)
        });
        let two = thread::spawn({
            let table = table.clone();
            move || publish(&table, c, 2)
        });
        publish(&table, b, 3);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(keys(&table), ["a", "b", "c"]);
        for (key, lsn) in [("a", 1), ("b", 3), ("c", 2)] {
            assert_eq!(get(&table, key), Some(Lsn(lsn)));
        }
        table.list.assert_sound();
    });
}

/// Two tall neighbours contend on every level. Fails if upper levels are linked without a check
/// that the predecessor is still the last one.
#[test]
fn loom_towers_stay_in_order_on_every_level() {
    model(|| {
        let table = table();
        let (b, c) = (reserve(&table, 3, "b"), reserve(&table, 3, "c"));
        let one = thread::spawn({
            let table = table.clone();
            move || publish(&table, c, 1)
        });
        publish(&table, b, 2);
        one.join().unwrap();
        table.list.assert_sound();
        assert_eq!((get(&table, "b"), get(&table, "c")), (Some(Lsn(2)), Some(Lsn(1))));
    });
}

/// The whole insert, search included, in both threads; versions of one key, and a neighbour.
#[test]
fn loom_reserve_and_publish_run_beside_an_insert() {
    model(|| {
        let table = table();
        publish(&table, reserve(&table, 1, "b"), 1);
        let one = thread::spawn({
            let table = table.clone();
            move || {
                let node = reserve(&table, 2, "b");
                publish(&table, node, 5);
                assert_eq!(get(&table, "b"), Some(Lsn(5)), "own writes are seen");
            }
        });
        let node = reserve(&table, 2, "a");
        publish(&table, node, 3);
        one.join().unwrap();
        assert_eq!(keys(&table), ["a", "b", "b"]);
        table.list.assert_sound();
    });
}

/// Fails if a node is linked on an upper level before the lower ones: a search then ends at an
/// upper link and misses what is behind it, or reads a link that still holds a predecessor.
#[test]
fn loom_a_cursor_visits_what_is_there_throughout_both_ways() {
    let seen = outcomes(|| {
        let table = table();
        publish(&table, reserve(&table, 1, "a"), 1);
        publish(&table, reserve(&table, 2, "c"), 2);
        let node = reserve(&table, 2, "b");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 3)
        });
        let mut cursor = table.cursor();
        cursor.seek_last().unwrap();
        let mut back = String::new();
        while cursor.valid() {
            back.push(char::from(cursor.key()[0]));
            cursor.prev().unwrap();
        }
        if back == "cba" {
            assert_eq!(keys(&table), ["a", "b", "c"], "what was seen stays");
        }
        writer.join().unwrap();
        back
    });
    assert_eq!(seen, BTreeSet::from(["ca", "cba"].map(String::from)));
}

/// Slot and parts of a batch, as `commit` uses them: fails if a part is visible before its flag, or
/// if parts are published Relaxed.
#[test]
fn loom_a_batch_shows_whole_or_not_at_all() {
    let seen = outcomes(|| {
        let table = table();
        let slot = Arc::new(AtomicU64::new(9));
        let (x, y) = (reserve(&table, 1, "x"), reserve(&table, 1, "y"));
        let writer = thread::spawn({
            let (table, slot) = (table.clone(), slot.clone());
            move || {
                table.publish(x, Lsn(9), Some(0));
                table.publish(y, Lsn(9), Some(0));
                slot.store(0, Ordering::Release);
            }
        });
        let visible = |key: &str| {
            let committed = |_: u32, lsn: Lsn| slot.load(Ordering::Acquire) != lsn.0;
            table.find(key.as_bytes(), Lsn::MAX, committed).is_some()
        };
        let seen = (visible("x"), visible("y"), visible("x"));
        writer.join().unwrap();
        seen
    });
    // Never an older state after a newer one: not (true, false, _), not (_, true, false).
    let expected = [(false, false, false), (false, false, true), (false, true, true), (true, true, true)];
    assert_eq!(seen, BTreeSet::from(expected));
}

/// A memtable with a guide that knows nodes of these keys.
fn guided_table(keys: &[&str]) -> std::sync::Arc<MemTable> {
    let mut table = MemTable::new(bytewise());
    table.list.use_guide();
    for key in keys {
        publish(&table, reserve(&table, 1, key), 5);
    }
    std::sync::Arc::new(table)
}

/// The key of the node that the guide names for the place before `key`.
fn named(table: &MemTable, key: &str) -> Option<String> {
    let hint = table.list.hint(Place::before(key.as_bytes(), Lsn::MAX))?;
    // SAFETY: named by the guide; loom objects if it is not known to be whole.
    #[allow(unsafe_code)]
    let node = (hint.before != 0).then(|| unsafe { table.list.node(hint.before) })?;
    Some(String::from_utf8(table.list.nodes.key(node).to_vec()).unwrap())
}

/// Who is told a node by the guide may read it. Fails with a Relaxed store or load of the units.
#[test]
fn loom_a_node_that_the_guide_names_is_whole() {
    let seen = outcomes(|| {
        let table = guided_table(&["a"]);
        let node = reserve(&table, 1, "b");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 7)
        });
        let name = named(&table, "c");
        writer.join().unwrap();
        assert_eq!(named(&table, "c").as_deref(), Some("b"));
        name
    });
    // None: it knows of a further sign, but not which. The list then begins at its head.
    assert_eq!(seen, BTreeSet::from([None, Some("a".into()), Some("b".into())]));
}

/// Who is led to a leaf that was divided off finds it filled. Fails with a Relaxed store or load of the root.
#[test]
fn loom_a_leaf_that_the_guide_leads_to_is_whole() {
    let seen = outcomes(|| {
        let table = guided_table(&["a", "b", "c"]);
        let node = reserve(&table, 1, "d");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 7)
        });
        let name = named(&table, "e");
        writer.join().unwrap();
        assert_eq!(named(&table, "e").as_deref(), Some("d"));
        name
    });
    assert_eq!(seen, BTreeSet::from([Some("c".into()), Some("d".into())]));
}

/// A search finds a key while others move its sign, and the list is whole. Fails if what the guide names is not compared.
#[test]
fn loom_a_hint_that_is_wrong_misleads_nobody() {
    model(|| {
        let table = guided_table(&["a", "c"]);
        let node = reserve(&table, 1, "b");
        let writer = thread::spawn({
            let table = table.clone();
            move || publish(&table, node, 7)
        });
        assert_eq!(get(&table, "c"), Some(Lsn(5)));
        writer.join().unwrap();
        assert_eq!(get(&table, "b"), Some(Lsn(7)));
        table.list.assert_sound();
    });
}

/// The second allocation that needs a chunk installs it, or finds it installed. Fails with a
/// Relaxed refill of a shard or a Relaxed installation.
#[test]
fn loom_who_is_handed_space_can_reach_it() {
    model(|| {
        let arena = Arc::new(Arena::new(std::sync::Arc::default()));
        let shape = Shape { lead: 1, body: 30, hot_before: 1, hot_after: 4 };
        let allocate = move |arena: &Arena| {
            let unit = arena.allocate(shape);
            // SAFETY: just handed out; loom objects if the chunk is not known to be there.
            #[allow(unsafe_code)]
            let _ = unsafe { arena.address(unit) };
            unit
        };
        let other = thread::spawn({
            let arena = arena.clone();
            move || [allocate(&arena), allocate(&arena)]
        });
        let mut units = vec![allocate(&arena), allocate(&arena)];
        units.extend(other.join().unwrap());
        let distinct: BTreeSet<u32> = units.iter().copied().collect();
        assert_eq!(distinct.len(), 4);
        let sorted: Vec<u32> = distinct.into_iter().collect();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 31), "{sorted:?}");
    });
}

/// A memtable with a bucket of two slots.
fn two_tier() -> std::sync::Arc<MemTable> {
    std::sync::Arc::new(MemTable::new(bytewise()).with_hash_tier(0, 0, std::sync::Arc::default()))
}

/// Puts a version; below `needed_below` the one that it displaces is to stay.
fn put_over(table: &MemTable, key: &str, lsn: u64, needed_below: u64) {
    let node = table.reserve(key.as_bytes(), Kind::Put, key.as_bytes());
    let published = table.publish_over(node, Lsn(lsn), None, Lsn(needed_below));
    table.tell_guide(&published);
}

fn get_below(table: &MemTable, key: &str, at: u64) -> Option<u64> {
    let found = table.find(key.as_bytes(), Lsn(at), |_, _| true)?;
    assert_eq!(found.value, key.as_bytes());
    Some(found.lsn.0)
}

fn versions(table: &std::sync::Arc<MemTable>) -> Vec<(String, u64)> {
    let mut cursor = table.cursor();
    let mut all = Vec::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        all.push((String::from_utf8_lossy(cursor.key()).into_owned(), cursor.lsn().0));
        cursor.next().unwrap();
    }
    all
}

/// Fails with a Relaxed compare-and-swap of a slot, or a Relaxed load in `find`.
#[test]
fn loom_a_version_in_a_slot_is_whole() {
    let seen = outcomes(|| {
        let table = two_tier();
        let writer = thread::spawn({
            let table = table.clone();
            move || put_over(&table, "b", 7, 0)
        });
        let seen = get_below(&table, "b", u64::MAX);
        writer.join().unwrap();
        assert_eq!(get_below(&table, "b", u64::MAX), Some(7));
        seen
    });
    assert_eq!(seen, BTreeSet::from([None, Some(7)]));
}

/// Two keys take slots of one bucket at once. Fails if a slot is stored to without a compare.
#[test]
fn loom_two_keys_do_not_get_the_same_slot() {
    model(|| {
        let table = two_tier();
        let other = thread::spawn({
            let table = table.clone();
            move || put_over(&table, "a", 1, 0)
        });
        put_over(&table, "b", 2, 0);
        other.join().unwrap();
        assert_eq!(["a", "b"].map(|key| get_below(&table, key, u64::MAX)), [Some(1), Some(2)]);
        assert_eq!(versions(&table), [("a".into(), 1), ("b".into(), 2)]);
    });
}

/// A key's version goes from its slot to the list, and the slot to another key. Fails if a slot is sorted before its node is in
/// the list, if one that is not sorted may be taken, or with a Relaxed swap of slots.
#[test]
fn loom_a_key_is_found_while_it_leaves_its_slot() {
    model(|| {
        let table = two_tier();
        put_over(&table, "a", 1, 0);
        put_over(&table, "b", 2, 0);
        let mover = thread::spawn({
            let table = table.clone();
            move || {
                table.settle();
                put_over(&table, "c", 3, 0);
            }
        });
        assert_eq!(get_below(&table, "a", u64::MAX), Some(1));
        mover.join().unwrap();
        assert_eq!(["a", "b", "c"].map(|key| get_below(&table, key, u64::MAX)), [Some(1), Some(2), Some(3)]);
    });
}

/// A flush walks what another thread sorts meanwhile. Fails if the list is searched before the notes are taken, or if slots that are
/// not fresh any more are left out.
#[test]
fn loom_a_flush_meets_what_is_settled_meanwhile() {
    model(|| {
        let table = two_tier();
        put_over(&table, "a", 1, 0);
        put_over(&table, "b", 2, 0);
        let mover = thread::spawn({
            let table = table.clone();
            move || table.settle()
        });
        let mut cursor = table.flush_cursor();
        let mut met = Vec::new();
        cursor.seek_first().unwrap();
        while cursor.valid() {
            met.push((String::from_utf8_lossy(cursor.key()).into_owned(), cursor.lsn().0));
            cursor.next().unwrap();
        }
        mover.join().unwrap();
        met.dedup();
        assert_eq!(met, [("a".into(), 1), ("b".into(), 2)]);
    });
}

/// FloDB's drain takes its sequence number when it moves an entry, and puts an old version over a new one that was written
/// meanwhile. Here a version has its LSN from birth. Fails if a mover does not look again at a slot whose version was
/// displaced before it claimed it, or if a version that displaces a claimed one is not noted.
#[test]
fn loom_an_update_while_the_key_is_moved_is_not_lost() {
    model(|| {
        let table = two_tier();
        put_over(&table, "k", 1, 0);
        let mover = thread::spawn({
            let table = table.clone();
            move || table.settle()
        });
        put_over(&table, "k", 2, 0);
        assert_eq!(get_below(&table, "k", u64::MAX), Some(2));
        mover.join().unwrap();
        assert_eq!(get_below(&table, "k", u64::MAX), Some(2));
        assert_eq!(versions(&table).first(), Some(&("k".to_string(), 2)), "a flush finds it");
    });
}

/// Fails if what a snapshot needs is not in the list before its slot is overwritten, claimed by a mover or not.
#[test]
fn loom_what_a_snapshot_needs_is_found_while_it_is_displaced_and_moved() {
    model(|| {
        let table = two_tier();
        put_over(&table, "k", 1, 0);
        let mover = thread::spawn({
            let table = table.clone();
            move || table.settle()
        });
        let writer = thread::spawn({
            let table = table.clone();
            move || put_over(&table, "k", 5, 3)
        });
        assert_eq!(get_below(&table, "k", 3), Some(1));
        mover.join().unwrap();
        writer.join().unwrap();
        assert_eq!((get_below(&table, "k", 3), get_below(&table, "k", u64::MAX)), (Some(1), Some(5)));
        let walked: Vec<u64> = versions(&table).into_iter().map(|(_, lsn)| lsn).collect();
        assert!(walked == [5, 1] || walked == [5, 1, 1], "{walked:?}");
    });
}

/// A walk begins after a write was complete: it finds it. Fails if a write is noted after the memtable was told of it.
#[test]
fn loom_a_walk_finds_what_was_complete_before_it() {
    let seen = outcomes(|| {
        let table = two_tier();
        let complete = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (table, complete) = (table.clone(), complete.clone());
            move || {
                put_over(&table, "b", 7, 0);
                complete.store(1, Ordering::Release);
            }
        });
        let was_complete = complete.load(Ordering::Acquire) == 1;
        let walked = versions(&table).len();
        writer.join().unwrap();
        assert!(walked == 1 || !was_complete);
        assert_eq!(versions(&table).len(), 1);
        (was_complete, walked)
    });
    assert_eq!(seen, BTreeSet::from([(false, 0), (false, 1), (true, 1)]));
}
