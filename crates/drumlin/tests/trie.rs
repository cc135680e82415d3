//! Keyspaces without order: what they give, what they refuse, and that their keys are nowhere longer than the user's.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use drumlin::env::{Env, FileSystem, MemFs, ReadMode};
use drumlin::key::{Comparator, KEY_BYTES_MAX};
use drumlin::{Db, Error, KeyHash, Keyspace, KeyspaceOptions, Layout, Options, inspect};
use sha1::{Digest, Sha1};
use siphasher::sip128::SipHasher13;

fn open(fs: &Arc<MemFs>, options: Options) -> drumlin::Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), "/store", options)
}

fn options() -> Options {
    Options {
        memory_bytes: Options::MEMORY_BYTES_MIN,
        segment_bytes: Options::SEGMENT_BYTES_MIN,
        ..Options::default()
    }
}

fn trie() -> KeyspaceOptions {
    KeyspaceOptions {
        layout: Layout::TRIE,
        memtable_bytes: Some(64 << 10),
        table_bytes: 16 << 10,
        ..KeyspaceOptions::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

fn filled(db: &Db, keys: u32) -> Keyspace {
    let keyspace = db.keyspace("k", trie()).expect("keyspace");
    (0..keys).for_each(|number| keyspace.put(key(number), number.to_le_bytes()).expect("put"));
    keyspace
}

#[test]
fn all_records_come_out_once_in_one_order_from_both_ends() {
    let db = open(&MemFs::new(), options()).expect("open");
    let keyspace = filled(&db, 5000);
    db.flush().expect("flush");
    (0..100).for_each(|number| keyspace.put(key(number), number.to_le_bytes()).expect("put"));
    let keys = |back: bool| -> Vec<Vec<u8>> {
        let mut scan = keyspace.iter().expect("scan");
        let next = || if back { scan.next_back() } else { scan.next() };
        std::iter::from_fn(next).map(|record| record.expect("read").0.into_vec()).collect()
    };
    let (forward, mut back) = (keys(false), keys(true));
    assert_eq!(forward.iter().collect::<BTreeSet<_>>().len(), 5000);
    assert!(!forward.is_sorted(), "by hash, not by key");
    back.reverse();
    assert_eq!(forward, back);
    assert_eq!(keyspace.approximate_count().expect("count"), 5100);
    keyspace.compact().expect("compact");
    assert_eq!(keyspace.approximate_count().expect("count"), 5000);
    assert_eq!(keys(false), forward);
}

#[test]
fn what_needs_an_order_is_refused_by_name() {
    let db = open(&MemFs::new(), options()).expect("open");
    let keyspace = filled(&db, 10);
    let snapshot = db.snapshot().expect("snapshot");
    let mut batch = db.batch();
    let refused = |result: drumlin::Result<()>, wanted: &str| match result {
        Err(Error::NoOrder { op, keyspace }) => assert_eq!((op, &keyspace[..]), (wanted, "k")),
        other => panic!("{wanted}: {other:?}"),
    };
    refused(keyspace.range("a"..).map(drop), "range");
    refused(keyspace.range(.."a").map(drop), "range");
    refused(keyspace.prefix("0").map(drop), "prefix");
    refused(keyspace.delete_range("a", "b"), "delete_range");
    refused(keyspace.approximate_size("a".."b").map(drop), "approximate_size");
    refused(snapshot.range(&keyspace, "a"..).map(drop), "range");
    refused(snapshot.prefix(&keyspace, "0").map(drop), "prefix");
    refused(batch.delete_range(&keyspace, "a", "b"), "delete_range");
    batch.put(&keyspace, "more", "1").expect("put");
    batch.commit().expect("nothing of what was refused is in it");
    assert_eq!(keyspace.range::<&str>(..).expect("all").count(), 11);
    assert!(keyspace.range("".."").is_err(), "an end is an order");
    assert_eq!(keyspace.range(""..).expect("all").count(), 11);
    assert_eq!(snapshot.iter(&keyspace).expect("all").count(), 10);
}

struct Backwards;

impl Comparator for Backwards {
    fn name(&self) -> &str {
        "test.backwards"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

#[test]
fn an_order_of_ones_own_is_refused() {
    let options = Options { comparators: vec![Arc::new(Backwards)], ..options() };
    let db = open(&MemFs::new(), options).expect("open");
    let backwards = KeyspaceOptions { comparator: Arc::new(Backwards), ..trie() };
    let refused = db.keyspace("k", backwards);
    assert!(
        matches!(&refused, Err(Error::InvalidArgument(why)) if why.contains("test.backwards")),
        "{refused:?}"
    );
}

#[test]
fn keys_may_be_as_long_as_elsewhere() {
    let fs = MemFs::new();
    let keyspace_options = trie();
    let db =
        open(&fs, Options { segment_bytes: 1 << 20, memory_bytes: 16 << 20, ..options() }).expect("open");
    let keyspace = db.keyspace("k", keyspace_options).expect("keyspace");
    let keys = [vec![], vec![7], vec![8; KEY_BYTES_MAX]];
    for key in &keys {
        keyspace.put(key, "value").expect("put");
    }
    assert!(matches!(keyspace.put(vec![0; KEY_BYTES_MAX + 1], ""), Err(Error::InvalidArgument(_))));
    let check = |keyspace: &Keyspace| {
        for key in &keys {
            assert_eq!(
                keyspace.get(key).expect("get").as_deref(),
                Some(&b"value"[..]),
                "{} bytes",
                key.len()
            );
        }
    };
    check(&keyspace);
    db.flush().expect("flush");
    check(&keyspace);
    drop((keyspace, db));
    let db = open(&fs, options()).expect("open");
    check(&db.open_keyspace("k").expect("it is there"));
}

/// The tables of the store.
fn tables(fs: &Arc<MemFs>) -> Vec<std::path::PathBuf> {
    let entries = fs.list(Path::new("/store")).expect("list");
    let named = entries.into_iter().filter(|entry| entry.name.ends_with(".tbl"));
    named.map(|entry| Path::new("/store").join(entry.name)).collect()
}

#[test]
fn tables_show_the_users_keys_and_count_their_bytes() {
    let fs = MemFs::new();
    let db = open(&fs, options()).expect("open");
    let keyspace = filled(&db, 300);
    db.flush().expect("flush");
    let levels = keyspace.levels().expect("levels");
    let bytes: u64 = levels.iter().flat_map(|level| &level.tables).map(|table| table.raw_bytes).sum();
    assert_eq!(bytes, 300 * (16 + 4), "not the hashes before the keys");
    drop((keyspace, db));
    let mut seen = BTreeSet::new();
    for path in tables(&fs) {
        let report = inspect::table(&Env::with_fs(fs.clone()), &path, None, |block| {
            seen.extend(block.entries.iter().map(|entry| entry.key.clone()));
        });
        let report = report.expect("inspect");
        assert!(report.is_placed && report.problems.is_empty() && report.unchecked.is_empty(), "{report:?}");
    }
    assert_eq!(seen, (0..300).map(key).collect());
}

/// Keys that lie in one container of the third level by a hash that whoever chooses them can reckon: SHA-1 of the key alone, as in the
/// paper, or our hash without a store's secret.
fn colliding(hash: KeyHash, keys: usize) -> Vec<Vec<u8>> {
    let first = |key: &[u8]| match hash {
        KeyHash::Sip => (SipHasher13::new_with_keys(0, 0).hash(key).h1 >> 48) as u16,
        KeyHash::Sha1 => Sha1::digest(key).first_chunk().map_or(0, |first| u16::from_be_bytes(*first)),
    };
    let all = (0..).map(|number: u64| number.to_le_bytes().to_vec());
    all.filter(|key| first(key) >> 7 == 0).take(keys).collect()
}

#[test]
fn keys_that_are_made_to_collide_lie_apart() {
    const KEYS: usize = 12_000;
    for hash in [KeyHash::Sip, KeyHash::Sha1] {
        let fs = MemFs::new();
        let db = open(&fs, options()).expect("open");
        let layout = Layout::Trie { levels: 3, runs: 2, hash };
        let keyspace = db.keyspace("k", KeyspaceOptions { layout, ..trie() }).expect("keyspace");
        let keys = colliding(hash, KEYS);
        keys.iter().for_each(|key| keyspace.put(key, [7; 100]).expect("put"));
        keyspace.compact().expect("compact");
        assert!(
            keys.iter().all(|key| keyspace.get(key).expect("get").is_some_and(|value| *value == [7; 100]))
        );
        // In each of eight containers about an eighth; of a table that lies in several each has its part.
        let mut entries = [0.0; 8];
        for table in keyspace.levels().expect("levels").iter().flat_map(|level| &level.tables) {
            let [first, last] = [&table.smallest, &table.largest].map(|key| usize::from(key[0] >> 5));
            let part = table.entries as f64 / (last - first + 1) as f64;
            entries[first..=last].iter_mut().for_each(|count| *count += part);
        }
        let eighth = KEYS as f64 / 8.0;
        assert!(entries.iter().all(|count| (count / eighth - 1.0).abs() < 0.2), "{hash:?}: {entries:?}");
        drop((keyspace, db));
        for path in tables(&fs) {
            let report = inspect::table(&Env::with_fs(fs.clone()), &path, None, |_| {}).expect("inspect");
            let buckets = report.buckets.expect("a table of buckets");
            assert_eq!(buckets.entries, report.entries, "{hash:?}: all have room in buckets");
        }
    }
}

/// Of another store, all keys would be looked for where they are not.
#[test]
fn a_table_of_another_store_is_told() {
    let (ours, theirs) = (MemFs::new(), MemFs::new());
    for fs in [&ours, &theirs] {
        let db = open(fs, options()).expect("open");
        filled(&db, 300);
        db.flush().expect("flush");
    }
    let bytes = |fs: &Arc<MemFs>, path: &Path| {
        let file = fs.open(path, ReadMode::Buffered).expect("open");
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    };
    let table = tables(&theirs).remove(0);
    let alone = inspect::table(&Env::with_fs(theirs.clone()), &table, None, |_| {}).expect("inspect");
    assert!(alone.unchecked.is_empty(), "{alone:?}");
    let there = Path::new("/store").join(table.file_name().expect("a name"));
    ours.create(&there)
        .and_then(|mut file| {
            file.append(&bytes(&theirs, &table))?;
            file.sync()
        })
        .expect("copy");
    let strange = inspect::table(&Env::with_fs(ours.clone()), &there, None, |_| {}).expect("inspect");
    assert!(strange.unchecked.iter().any(|why| why.contains("other hashes")), "{strange:?}");
}

#[test]
fn a_keyspace_is_with_or_without_order_for_good_and_says_so() {
    let db = open(&MemFs::new(), options()).expect("open");
    let ordered = KeyspaceOptions { layout: Layout::Leveled, ..trie() };
    for (name, made, asked, says) in
        [("a", trie(), ordered.clone(), "a has no order"), ("b", ordered.clone(), trie(), "b is ordered")]
    {
        db.keyspace(name, made.clone()).expect("keyspace").put("k", "v").expect("put");
        let refused = db.keyspace(name, asked);
        assert!(matches!(&refused, Err(Error::InvalidArgument(why)) if why.contains(says)), "{refused:?}");
        db.keyspace(name, made).expect("as it was made");
        db.open_keyspace(name).expect("as it is");
    }
    let tiered = Layout::Tiered { runs: 4, merged_percent: 100 };
    db.keyspace("b", KeyspaceOptions { layout: tiered, ..trie() }).expect("another layout with an order");
}
