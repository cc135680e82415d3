//! Levels and their cursors against a list of versions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cache::BlockCache;
use crate::dice::Dice;
use crate::env::{Fault, FaultyFs, FileSystem, MemFs, Operation, Reads};
use crate::error::{Error, Result};
use crate::iter::{Cursor, Horizons, Merge, RangeTombstone, SEEK_STAGES, Tombstones};
use crate::key::{Bytewise, KeyHasher, Kind, Lsn, bytewise, compare_versions};
use crate::options::KeyspaceOptions;
use crate::table::{
    CursorOptions, Shelf, TableHandle, TableId, TableOptions, TableWriter, Version, file_name, temporary_name,
};

/// One version: key, LSN, kind, value.
type Row = (Vec<u8>, Lsn, Kind, Vec<u8>);

const DIR: &str = "/store";

fn hasher() -> KeyHasher {
    KeyHasher::new(5)
}

/// Makes tables in one directory.
struct Maker {
    fs: Arc<dyn FileSystem>,
    shelf: Arc<Shelf>,
    next_id: u64,
}

impl Maker {
    fn new(fs: Arc<dyn FileSystem>) -> Maker {
        fs.create_dir_all(Path::new(DIR)).unwrap();
        // Nothing stays cached, so that reads show as calls.
        let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
        Maker { fs, shelf, next_id: 1 }
    }

    fn table(&mut self, mut rows: Vec<Row>, tombstones: &[RangeTombstone]) -> Arc<TableHandle> {
        let id = TableId(self.next_id);
        self.next_id += 1;
        let options = KeyspaceOptions { block_bytes: 128, ..KeyspaceOptions::default() };
        let mut options = TableOptions::new(&options, hasher());
        if id.0.is_multiple_of(2) {
            // Its index has leaves.
            (options.index_root_bytes, options.index_block_bytes) = (64, 64);
        }
        let path = Path::new(DIR).join(temporary_name(id));
        let mut writer = TableWriter::new(self.fs.create(&path).unwrap(), path.clone(), id, options.clone());
        rows.sort_by(|a, b| compare_versions(&Bytewise, (&a.0, a.1), (&b.0, b.1)));
        for (key, lsn, kind, value) in &rows {
            writer.add(key, *lsn, *kind, value).unwrap();
        }
        writer.set_tombstones(Tombstones::of_all(&Bytewise, tombstones));
        let (meta, _) = writer.finish().unwrap();
        self.fs.rename(&path, &Path::new(DIR).join(file_name(id, meta.content_hash))).unwrap();
        TableHandle::new(&self.shelf, PathBuf::from(DIR), meta, options)
    }
}

/// A history and its tables: the oldest part on level 2, then level 1, the newest tables on level 0.
struct Store {
    rows: Vec<Row>,
    tombstones: Vec<RangeTombstone>,
    levels: Levels,
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

const KEYS: u64 = 40;

fn random_store(seed: u64) -> Store {
    let mut dice = Dice(seed | 1);
    let mut maker = Maker::new(MemFs::new());
    let (mut rows, mut tombstones) = (Vec::new(), Vec::new());
    let operations = 20 + dice.below(400);
    for lsn in (1..=operations).map(|n| Lsn(n * 3)) {
        match dice.below(12) {
            0 => {
                let start = dice.below(KEYS);
                let end = start + 1 + dice.below(8);
                tombstones.push(RangeTombstone { start: key(start), end: key(end), lsn });
            }
            1 | 2 => rows.push((key(dice.below(KEYS)), lsn, Kind::Delete, Vec::new())),
            _ => rows.push((key(dice.below(KEYS)), lsn, Kind::Put, lsn.0.to_string().into_bytes())),
        }
    }
    // Borders in time: what is older than the first is on level 2, than the second on level 1.
    let mut borders: Vec<u64> = (0..2 + dice.below(5)).map(|_| dice.below(operations * 3 + 3)).collect();
    borders.sort_unstable();
    borders.push(u64::MAX);
    let mut levels: Vec<Vec<Arc<TableHandle>>> = vec![Vec::new(); 3];
    let mut from = 0;
    for (n, &to) in borders.iter().enumerate() {
        let in_time = |lsn: Lsn| (from..to).contains(&lsn.0);
        let level = 2usize.saturating_sub(n);
        let cuts =
            if level == 0 { Vec::new() } else { (0..dice.below(6)).map(|_| dice.below(KEYS)).collect() };
        let mut cuts: Vec<u64> = [vec![0], cuts, vec![KEYS + 10]].concat();
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            let (start, end) = (key(pair[0]), key(pair[1]));
            let within = |k: &Vec<u8>| start <= *k && *k < end;
            let part: Vec<Row> = rows.iter().filter(|r| in_time(r.1) && within(&r.0)).cloned().collect();
            let all: Vec<_> = tombstones.iter().filter(|t| in_time(t.lsn)).cloned().collect();
            let clipped: Vec<_> = Tombstones::of_all(&Bytewise, &all)
                .clipped(&Bytewise, Some(&start), Some(&end))
                .iter()
                .map(RangeTombstone::owned)
                .collect();
            if !part.is_empty() || !clipped.is_empty() {
                levels[level].push(maker.table(part, &clipped));
            }
        }
        from = to;
    }
    rows.sort_by(|a, b| compare_versions(&Bytewise, (&a.0, a.1), (&b.0, b.1)));
    let levels = Levels::new(bytewise(), levels);
    levels.check().unwrap();
    Store { rows, tombstones, levels }
}

/// Keys that memory could not tell of, and what tables have for them.
#[derive(Default)]
struct Left<'a> {
    keys: Vec<(usize, Sought<'a>, Rest)>,
    found: Vec<(usize, Option<Version>)>,
}

impl<'a> Keys<'a> for Left<'a> {
    fn next(&mut self) -> Result<Option<(usize, Sought<'a>, Rest)>> {
        Ok(self.keys.pop())
    }

    fn found(&mut self, number: usize, version: Option<Version>) {
        self.found.push((number, version));
    }
}

/// Nothing stays cached: all is read.
#[test]
fn many_keys_read_as_each_by_itself() {
    for seed in 1..60 {
        let store = random_store(seed);
        // Some are not there, and all come twice.
        let keys: Vec<Vec<u8>> = (0..KEYS + 12).chain((0..KEYS + 12).rev()).map(key).collect();
        let sought: Vec<Sought<'_>> =
            keys.iter().map(|key| Sought { key, hash: hasher().hash(key) }).collect();
        for at in (0..1300).step_by(91).map(Lsn).chain([Lsn::MAX]) {
            let guard = crossbeam_epoch::pin();
            // Some from their first table on, the others from where memory could not tell.
            let rest = |n: usize, key: &[u8], hash| match n % 3 {
                0 => Some(Rest::default()),
                _ => match store.levels.get_cached(key, hash, at, &guard).unwrap() {
                    Cached::Told(_) => None,
                    Cached::Left(rest) => Some(rest),
                },
            };
            let mut left = Left::default();
            for (n, sought) in sought.iter().enumerate() {
                left.keys.extend(rest(n, sought.key, sought.hash).map(|rest| (n, *sought, rest)));
            }
            drop(guard);
            let mut keys: Vec<usize> = left.keys.iter().map(|(n, ..)| *n).collect();
            store.levels.go_on_together(|reads| MemFs::new().read_each(reads), &mut left, at).unwrap();
            for (n, found) in left.found {
                let Sought { key, hash } = sought[n];
                let alone = store.levels.get(key, hash, at).unwrap();
                assert_eq!(found, alone, "seed {seed}, {} at {at:?}", key.escape_ascii());
                keys.retain(|key| *key != n);
            }
            assert_eq!(keys, [], "seed {seed}: each is told");
        }
    }
}

/// A file system of somebody's own that does not do all that it should: what was not read is no absent key.
#[test]
fn a_file_system_that_does_not_read_all_is_told() {
    let store = random_store(7);
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let left = || {
        let sought = keys.iter().map(|key| Sought { key, hash: hasher().hash(key) });
        let keys = sought.enumerate().map(|(n, sought)| (n, sought, Rest::default())).collect();
        Left { keys, found: Vec::new() }
    };
    let reads_nothing = |_: &mut dyn Reads| {};
    let loses_a_read = |reads: &mut dyn Reads| drop(reads.next());
    let loses_the_rest = |reads: &mut dyn Reads| while reads.next().is_some() {};
    for (n, found) in [
        store.levels.go_on_together(reads_nothing, &mut left(), Lsn::MAX),
        store.levels.go_on_together(loses_a_read, &mut left(), Lsn::MAX),
        store.levels.go_on_together(loses_the_rest, &mut left(), Lsn::MAX),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(matches!(found, Err(Error::InvalidArgument { .. })), "{n}: {found:?}");
    }
}

#[test]
fn every_key_at_every_time_reads_as_in_the_history() {
    for seed in 1..60 {
        let store = random_store(seed);
        let mut found = 0;
        for n in 0..KEYS + 12 {
            let key = key(n);
            for at in (0..1300).step_by(7).map(Lsn).chain([Lsn::MAX]) {
                let point = store.rows.iter().filter(|r| r.0 == key && r.1 < at).max_by_key(|r| r.1);
                let covers = |t: &&RangeTombstone| t.start <= key && key < t.end && t.lsn < at;
                let range = store.tombstones.iter().filter(covers).map(|t| t.lsn).max();
                let expected = match (point, range) {
                    (Some(p), range) if range.is_none_or(|lsn| lsn < p.1) => Some((p.1, p.2, p.3.clone())),
                    (_, Some(lsn)) => Some((lsn, Kind::Delete, Vec::new())),
                    (_, None) => None,
                };
                let hash = hasher().hash(&key);
                let got = store.levels.get(&key, hash, at).unwrap();
                // What is in memory first, then what that leaves.
                let cached = store.levels.get_cached(&key, hash, at, &crossbeam_epoch::pin()).unwrap();
                let by_parts = match cached {
                    Cached::Told(version) => version,
                    Cached::Left(rest) => store.levels.go_on(&key, hash, at, rest).unwrap(),
                };
                assert_eq!(by_parts, got);
                let got = got.map(|v| (v.lsn, v.kind, v.value));
                assert_eq!(got, expected, "seed {seed} key {n} at {at}\n{}", store.levels);
                found += u32::from(got.is_some());
            }
        }
        assert!(found > 0);
    }
}

fn row_of(cursor: &dyn Cursor) -> Row {
    (cursor.key().to_vec(), cursor.lsn(), cursor.kind(), cursor.value().to_vec())
}

/// Holds any cursor against the sorted rows it should walk.
fn check_cursor(cursor: &mut dyn Cursor, rows: &[Row], dice: &mut Dice, context: &str) {
    cursor.seek_first().unwrap();
    let mut walked = Vec::new();
    while cursor.valid() {
        walked.push(row_of(cursor));
        cursor.next().unwrap();
    }
    assert_eq!(walked, rows, "{context}: forward");
    cursor.seek_last().unwrap();
    walked.clear();
    while cursor.valid() {
        walked.push(row_of(cursor));
        cursor.prev().unwrap();
    }
    walked.reverse();
    assert_eq!(walked, rows, "{context}: back");
    cursor.seek_first().unwrap();
    walked.clear();
    while cursor.valid() {
        walked.push(row_of(cursor));
        cursor.next_key().unwrap();
    }
    let mut newest = rows.to_vec();
    newest.dedup_by(|later, earlier| later.0 == earlier.0);
    assert_eq!(walked, newest, "{context}: by keys");
    for _ in 0..60 {
        let (key, lsn) =
            (key(dice.below(KEYS + 2)), [Lsn::ZERO, Lsn::MAX, Lsn(dice.below(1300))][dice.below(3) as usize]);
        let order = |r: &Row| compare_versions(&Bytewise, (&r.0, r.1), (&key, lsn));
        let first = rows.partition_point(|r| order(r).is_lt());
        if dice.below(2) == 0 {
            cursor.seek(&key, lsn).unwrap();
        } else {
            (0..SEEK_STAGES).for_each(|stage| cursor.seek_stage(&key, lsn, stage).unwrap());
        }
        assert!(cursor.valid() || first == rows.len(), "{context}: seek {key:?} {lsn}");
        for expected in rows[first..].iter().take(5) {
            assert!(cursor.valid(), "{context}: seek {key:?} {lsn}");
            assert_eq!(&row_of(cursor), expected, "{context}: seek {key:?} {lsn}");
            cursor.next().unwrap();
        }
        let end = rows.partition_point(|r| order(r).is_le());
        cursor.seek_back(&key, lsn).unwrap();
        for expected in rows[..end].iter().rev().take(5) {
            assert!(cursor.valid(), "{context}: seek back {key:?} {lsn}");
            assert_eq!(&row_of(cursor), expected, "{context}: seek back {key:?} {lsn}");
            cursor.prev().unwrap();
        }
        if end <= 5 {
            assert!(!cursor.valid(), "{context}: seek back {key:?} {lsn} goes off the start");
        }
    }
}

#[test]
fn cursors_walk_every_version_once_both_ways_from_anywhere() {
    for seed in 100..140 {
        let store = random_store(seed);
        let mut dice = Dice(seed);
        for level in 1..store.levels.depth() {
            let tables = store.levels.level(level).to_vec();
            let (from, to) = tables.iter().fold((Lsn::MAX, Lsn::ZERO), |(from, to), table| {
                (from.min(table.meta().min_lsn), to.max(table.meta().max_lsn))
            });
            let rows: Vec<Row> = store.rows.iter().filter(|r| from <= r.1 && r.1 <= to).cloned().collect();
            let mut cursor =
                LevelCursor::new(bytewise(), Level::by_key(&Bytewise, tables), CursorOptions::default());
            check_cursor(&mut cursor, &rows, &mut dice, &format!("seed {seed} level {level}"));
        }
        let mut all = Merge::new(bytewise(), store.levels.cursors(None, None).collect());
        all.seek_first().unwrap();
        let mut walked = Vec::new();
        while all.valid() {
            walked.push(row_of(&all));
            all.next().unwrap();
        }
        assert_eq!(walked, store.rows, "seed {seed}");
    }
}

#[test]
fn cursors_of_a_range_leave_out_only_what_lies_outside() {
    for seed in 200..230 {
        let store = random_store(seed);
        let mut dice = Dice(seed);
        for _ in 0..20 {
            let (start, end) = (dice.below(KEYS), dice.below(KEYS));
            let (start, end) = (key(start.min(end)), key(start.max(end)));
            let cursors = store.levels.cursors(Some(&start), Some(&end));
            let mut merge = Merge::new(bytewise(), cursors.collect());
            merge.seek(&start, Lsn::MAX).unwrap();
            let mut walked = Vec::new();
            while merge.valid() && merge.key() <= end.as_slice() {
                walked.push(row_of(&merge));
                merge.next().unwrap();
            }
            let expected: Vec<Row> =
                store.rows.iter().filter(|r| start <= r.0 && r.0 <= end).cloned().collect();
            assert_eq!(walked, expected, "seed {seed}");
        }
    }
}

#[test]
fn tombstones_of_a_range_hide_what_they_should() {
    for seed in 300..330 {
        let store = random_store(seed);
        let mut dice = Dice(seed);
        let (start, end) = (key(dice.below(KEYS)), key(dice.below(KEYS)));
        for (start, end) in [(None, None), (Some(start.as_slice()), Some(end.as_slice()))] {
            let sets = store.levels.tombstones(start, end).unwrap();
            let found = Tombstones::join(&Bytewise, &sets, &Horizons::at(Lsn::MAX), (start, end));
            for n in 0..KEYS {
                let key = key(n);
                if start.is_some_and(|s| key.as_slice() < s) || end.is_some_and(|e| key.as_slice() > e) {
                    continue;
                }
                let covers = |t: &&RangeTombstone| t.start <= key && key < t.end;
                let expected = store.tombstones.iter().filter(covers).map(|t| t.lsn).max();
                assert_eq!(found.newest_covering(&Bytewise, &key, Lsn::MAX), expected, "seed {seed}");
            }
        }
    }
}

fn put(n: u64, lsn: u64) -> Row {
    (key(n), Lsn(lsn), Kind::Put, lsn.to_string().into_bytes())
}

#[test]
fn at_the_same_lsn_a_put_survives_a_range_tombstone() {
    // A batch deletes a range and then puts a key of it: one LSN.
    let mut maker = Maker::new(MemFs::new());
    let hides = RangeTombstone { start: key(0), end: key(9), lsn: Lsn(50) };
    let table = maker.table(vec![put(3, 50), put(4, 49)], &[hides]);
    let levels = Levels::new(bytewise(), vec![Vec::new(), vec![table]]);
    let get = |n| levels.get(&key(n), hasher().hash(&key(n)), Lsn::MAX).unwrap().unwrap();
    assert_eq!((get(3).kind, get(3).lsn), (Kind::Put, Lsn(50)));
    assert_eq!((get(4).kind, get(4).lsn), (Kind::Delete, Lsn(50)));
}

#[test]
fn an_edit_adds_removes_and_moves_tables() {
    let mut maker = Maker::new(MemFs::new());
    let [a, b, c, d] =
        [(1, 10), (2, 20), (3, 30), (4, 5)].map(|(n, lsn)| maker.table(vec![put(n, lsn)], &[]));
    let id = |t: &Arc<TableHandle>| t.meta().id;
    let shape = |levels: &Levels| -> Vec<Vec<TableId>> {
        (0..levels.depth()).map(|n| levels.level(n).iter().map(id).collect()).collect()
    };
    let levels = Levels::new(bytewise(), Vec::new());
    assert_eq!((levels.depth(), levels.level(3).len()), (0, 0));
    let first = levels.apply(&[(0, a.clone()), (0, c.clone()), (0, b.clone())], &[]);
    assert_eq!(shape(&first), [[id(&c), id(&b), id(&a)]], "level 0 is newest first");
    let moved = first.apply(&[(2, a.clone()), (2, d.clone())], &[(0, id(&a))]);
    assert_eq!(shape(&moved), [vec![id(&c), id(&b)], vec![], vec![id(&a), id(&d)]], "deeper by key");
    assert_eq!(moved.level_bytes(2), a.meta().file_bytes + d.meta().file_bytes);
    assert_eq!(
        moved.to_string(),
        "L0: 3[key003..key003] 2[key002..key002]\nL2: 1[key001..key001] 4[key004..key004]\n"
    );
    let emptied = moved.apply(&[], &[(2, id(&a)), (2, id(&d)), (1, id(&b))]);
    assert_eq!(shape(&emptied), [[id(&c), id(&b)]], "the level counts, not the id alone");
    assert_eq!(shape(&first), [[id(&c), id(&b), id(&a)]], "the levels before stay as they were");
}

#[test]
fn overlapping_tables_of_a_deeper_level_are_noticed() {
    let mut maker = Maker::new(MemFs::new());
    let wide = maker.table(vec![put(1, 10), put(5, 11)], &[]);
    let inside = maker.table(vec![put(3, 20)], &[]);
    let touching = maker.table(vec![put(5, 20)], &[]);
    let after = maker.table(vec![put(6, 20)], &[]);
    let hides = RangeTombstone { start: key(1), end: key(6), lsn: Lsn(50) };
    let up_to = maker.table(vec![], &[hides]);
    let check = |a: &Arc<TableHandle>, b: &Arc<TableHandle>, level: usize| {
        let mut levels = vec![Vec::new(); level];
        levels.push(vec![b.clone(), a.clone()]);
        Levels::new(bytewise(), levels).check().is_ok()
    };
    assert!(!check(&wide, &inside, 1));
    assert!(!check(&wide, &touching, 1), "a key is on one table");
    assert!(check(&wide, &inside, 0), "level 0 may overlap");
    assert!(check(&wide, &after, 1));
    assert!(check(&up_to, &after, 1), "the end of a range tombstone is outside");
}

#[test]
fn a_level_cursor_opens_only_what_it_enters() {
    let fs = MemFs::new();
    let mut maker = Maker::new(fs.clone());
    let tables: Vec<_> = (0..10).map(|n| maker.table(vec![put(n, 10), put(n, 9)], &[])).collect();
    let opened = Arc::new(AtomicUsize::new(0));
    let counter = opened.clone();
    fs.set_hook(Some(Box::new(move |call| {
        counter.fetch_add(usize::from(call.operation == Operation::Open), Ordering::SeqCst);
    })));
    let levels = Levels::new(bytewise(), vec![Vec::new(), tables]);
    let mut cursor = levels.cursors(None, None).last().unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 0);
    cursor.seek(&key(4), Lsn::MAX).unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        cursor.next().unwrap();
    }
    assert_eq!((cursor.key(), opened.load(Ordering::SeqCst)), (key(5).as_slice(), 2));
    levels.get(&key(7), hasher().hash(&key(7)), Lsn::MAX).unwrap().unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 3, "a get opens the one table that may know the key");
}

#[test]
fn a_failed_read_leaves_the_cursor_off_and_able_to_seek() {
    let inner = MemFs::new();
    let fs = FaultyFs::new(Arc::clone(&inner) as Arc<dyn FileSystem>);
    let mut maker = Maker::new(fs.clone());
    let rows: Vec<Row> = (0..30).map(|n| put(n, 100 - n)).collect();
    let tables: Vec<_> = rows.chunks(5).map(|part| maker.table(part.to_vec(), &[])).collect();
    let mut failures = 0;
    for skip in 0.. {
        let mut cursor =
            LevelCursor::new(bytewise(), Level::by_key(&Bytewise, tables.clone()), CursorOptions::default());
        tables.iter().for_each(|table| table.evict());
        fs.fail_at(fs.calls() + skip, Fault::Error(std::io::ErrorKind::Other));
        let mut walked = 0;
        let mut step = cursor.seek_first();
        while step.is_ok() && cursor.valid() {
            assert_eq!(row_of(&cursor), rows[walked]);
            walked += 1;
            step = cursor.next();
        }
        if step.is_ok() {
            assert_eq!(walked, rows.len());
            break;
        }
        failures += 1;
        assert!(!cursor.valid());
        cursor.seek(&key(7), Lsn::MAX).unwrap();
        assert_eq!(row_of(&cursor), rows[7], "the fault comes once");
    }
    fs.clear();
    assert!(failures >= 12, "opening and reading of six tables failed: {failures}");
}
