//! Random tables under random options against a sorted list.

use std::cmp::Ordering;
use std::sync::Arc;

use super::*;
use crate::filter::Grid;
use crate::iter::{Cursor, RangeTombstone, SEEK_STAGES};
use crate::key::{Comparator, ComparatorRef};

/// Sorts by length, then backwards: nothing like the order of bytes.
struct Odd;

impl Comparator for Odd {
    fn name(&self) -> &str {
        "odd"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| b.cmp(a))
    }
}

fn random_key(dice: &mut Dice) -> Vec<u8> {
    match dice.below(8) {
        // Long runs of equal bytes: shared prefixes, equal heads, zero padding.
        0 => vec![dice.below(3) as u8; dice.below(24) as usize],
        1 => [b"prefix/".as_slice(), &vec![0; dice.below(12) as usize], &[dice.below(4) as u8]].concat(),
        2 => vec![255; dice.below(12) as usize],
        3 => (0..dice.below(6)).map(|_| dice.below(256) as u8).collect(),
        4 => [vec![b'k'; 200 + dice.below(100) as usize], vec![dice.below(3) as u8]].concat(),
        _ => format!("prefix/key{:05}", dice.below(400)).into_bytes(),
    }
}

fn random_options(dice: &mut Dice) -> TableOptions {
    let odd: ComparatorRef = Arc::new(Odd);
    let mut compressions = vec![Compression::None, Compression::Lz4];
    if cfg!(feature = "zstd") {
        compressions.push(Compression::Zstd);
    }
    let hasher = KeyHasher::new(dice.below(1000));
    let hash = [KeyHash::Sip, KeyHash::Sha1][dice.below(2) as usize];
    let form = [KeyForm::Bare, KeyForm::Placed(hasher.placer(hash))][dice.below(2) as usize];
    let is_odd = form == KeyForm::Bare && dice.below(3) == 0;
    TableOptions {
        comparator: if is_odd { odd } else { bytewise() },
        form,
        hashed: dice.below(5) > 0,
        records_percent: [None, Some(0), Some(20)][dice.below(3) as usize],
        hasher: if form == KeyForm::Bare { hasher } else { hasher.of_places() },
        compression: compressions[dice.below(compressions.len() as u64) as usize],
        block_bytes: [128, 200, 1024, 4096][dice.below(4) as usize],
        filter_bits_per_key: [0.0, 4.0, 10.0][dice.below(3) as usize],
        grid: [None, Some(Grid { skip: 0, bits: 5 })][dice.below(2) as usize],
        index_root_bytes: [0, 0, 1000, TableOptions::INDEX_ROOT_BYTES][dice.below(4) as usize],
        index_block_bytes: [64, 400, TableOptions::INDEX_BLOCK_BYTES][dice.below(3) as usize],
    }
}

fn random_rows(dice: &mut Dice, options: &TableOptions) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let keys = [3, 60, 600][dice.below(3) as usize];
    for _ in 0..dice.below(keys) + 1 {
        let key = random_key(dice);
        let versions = if dice.below(20) == 0 { 60 } else { 1 + dice.below(3) };
        for _ in 0..versions {
            let below = [30, 1 << 40][dice.below(2) as usize];
            let lsn = 1 + dice.below(below);
            let kind = if dice.below(4) == 0 { Kind::Delete } else { Kind::Put };
            let sizes = if dice.below(10) == 0 { 5 } else { 3 };
            let bytes = [0, 5, 30, 300, 9000][dice.below(sizes) as usize];
            let value = match (kind, dice.below(2)) {
                (Kind::Delete, _) => vec![],
                (_, 0) => vec![7; bytes],
                _ => (0..bytes).map(|_| dice.below(256) as u8).collect(),
            };
            rows.push((key.clone(), lsn, kind, value));
        }
    }
    let mut rows = stored(options, rows);
    rows.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    rows
}

/// The table and the list it must equal.
struct Model {
    table: Arc<TableHandle>,
    rows: Vec<Row>,
}

impl Model {
    fn order(&self, row: &Row, key: &[u8], lsn: u64) -> Ordering {
        self.table.options().comparator.compare(&row.0, key).then(lsn.cmp(&row.1))
    }

    fn check_get(&self, key: &[u8], at: u64) {
        let expected = self.rows.iter().find(|row| row.0 == key && row.1 < at).map(|row| Version {
            lsn: Lsn(row.1),
            kind: row.2,
            value: row.3.clone(),
        });
        assert_eq!(get(&self.table, key, at).expect("readable"), expected, "{key:?} at {at}");
    }

    /// The cursor must stand on row `at`, or be off.
    fn check_at(&self, cursor: &TableCursor, at: Option<usize>, what: &str) {
        let found = cursor.valid().then(|| (cursor.key(), cursor.lsn().0, cursor.kind(), cursor.value()));
        let expected = at.map(|at| &self.rows[at]).map(|row| (&row.0[..], row.1, row.2, &row.3[..]));
        assert_eq!(found, expected, "{what}");
    }

    fn check_seek(&self, cursor: &mut TableCursor, key: &[u8], lsn: u64) -> Option<usize> {
        let from = self.rows.iter().position(|row| self.order(row, key, lsn).is_ge());
        for stage in 0..SEEK_STAGES {
            cursor.seek_stage(key, Lsn(lsn), stage).expect("readable");
        }
        self.check_at(cursor, from, "seek in stages");
        cursor.seek(key, Lsn(lsn)).expect("readable");
        self.check_at(cursor, from, "seek");
        from
    }

    fn check_seek_back(&self, cursor: &mut TableCursor, key: &[u8], lsn: u64) -> Option<usize> {
        let from = self.rows.iter().rposition(|row| self.order(row, key, lsn).is_le());
        cursor.seek_back(key, Lsn(lsn)).expect("readable");
        self.check_at(cursor, from, "seek_back");
        from
    }

    /// Walks about from where the cursor stands.
    fn check_walk(&self, cursor: &mut TableCursor, mut at: Option<usize>, dice: &mut Dice) {
        let mut forward = dice.below(2) == 0;
        for _ in 0..dice.below(60) {
            let Some(here) = at else { return };
            if dice.below(6) == 0 {
                forward = !forward;
            }
            if forward && dice.below(3) == 0 {
                let key = self.rows[here].0.clone();
                cursor.next_key().expect("readable");
                at = (here + 1..self.rows.len()).find(|&at| self.rows[at].0 != key);
            } else if forward {
                cursor.next().expect("readable");
                at = (here + 1 < self.rows.len()).then_some(here + 1);
            } else {
                cursor.prev().expect("readable");
                at = here.checked_sub(1);
            }
            self.check_at(cursor, at, "walk");
        }
    }

    fn check_scans(&self, options: CursorOptions) {
        let mut cursor = self.table.cursor(options);
        assert!(!cursor.valid());
        cursor.seek_first().expect("readable");
        for at in 0..self.rows.len() {
            self.check_at(&cursor, Some(at), "forward");
            cursor.next().expect("readable");
        }
        assert!(!cursor.valid());
        cursor.seek_last().expect("readable");
        for at in (0..self.rows.len()).rev() {
            self.check_at(&cursor, Some(at), "backward");
            cursor.prev().expect("readable");
        }
        assert!(!cursor.valid());
    }
}

fn probes(dice: &mut Dice, rows: &[Row]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..40).map(|_| random_key(dice)).collect();
    for _ in 0..60 {
        let key = &rows[dice.below(rows.len() as u64) as usize].0;
        keys.extend([key.clone(), [key.as_slice(), &[0]].concat()]);
        keys.push(key[..key.len().saturating_sub(1)].to_vec());
    }
    keys.extend([vec![], vec![255; 30]]);
    keys
}

fn run(seed: u64) {
    let mut dice = Dice(seed * 0x9e37_79b9 + 1);
    let options = random_options(&mut dice);
    let rows = random_rows(&mut dice, &options);
    let fs = fs();
    let meta = write(&fs, seed, &options, &rows, Tombstones::EMPTY).expect("writes");
    assert_eq!(meta.entries, rows.len() as u64);
    assert_eq!((&meta.smallest, &meta.largest), (&rows[0].0, &rows[rows.len() - 1].0));
    assert_eq!(meta.min_lsn.0, rows.iter().map(|row| row.1).min().unwrap_or(0));
    assert_eq!(meta.max_lsn.0, rows.iter().map(|row| row.1).max().unwrap_or(0));
    let table = open(&fs, &meta, &options, [0, 3000, 1 << 20][dice.below(3) as usize]);
    let model = Model { table: table.clone(), rows };
    let mut done = 0;
    table.verify(&mut |bytes| done += bytes).sound().expect("sound");
    assert_eq!(done, meta.file_bytes, "every byte is read");

    let mut cursor = table.cursor(CursorOptions {
        fill_cache: dice.below(2) == 0,
        readahead_bytes: [0, 700, 1 << 18][dice.below(3) as usize],
    });
    for key in probes(&mut dice, &model.rows) {
        let mut lsns = vec![0, 1, 2, dice.below(1 << 40), u64::MAX];
        for row in model.rows.iter().filter(|row| row.0 == key) {
            lsns.extend([row.1, row.1 + 1, row.1 - 1]);
        }
        for lsn in lsns {
            model.check_get(&key, lsn);
            let at = model.check_seek(&mut cursor, &key, lsn);
            if dice.below(4) == 0 {
                model.check_walk(&mut cursor, at, &mut dice);
            }
            let at = model.check_seek_back(&mut cursor, &key, lsn);
            if dice.below(4) == 0 {
                model.check_walk(&mut cursor, at, &mut dice);
            }
        }
        if dice.below(30) == 0 {
            table.evict();
        }
    }
    model.check_scans(CursorOptions::default());
    model.check_scans(CursorOptions { fill_cache: false, readahead_bytes: 1500 });

    let keys = table.split_keys(4).expect("readable");
    assert!(keys.windows(2).all(|pair| options.comparator.compare(&pair[0], &pair[1]).is_lt()));
    let mut offsets: Vec<u64> =
        model.rows.iter().map(|row| table.approximate_offset(&row.0).expect("readable")).collect();
    assert!(offsets.is_sorted());
    offsets.dedup();
    assert!(offsets.iter().all(|&offset| offset < meta.file_bytes));
}

#[test]
fn a_table_answers_like_a_sorted_list() {
    (1..=60).for_each(run);
}

#[test]
fn every_version_of_a_key_that_fills_many_blocks_is_found() {
    let rows: Vec<Row> =
        (1..=400u64).rev().map(|n| row("hot", n * 2, Some("some value of this version"))).collect();
    for index_block_bytes in [100, 1 << 20] {
        let options = TableOptions { block_bytes: 128, index_root_bytes: 0, index_block_bytes, ..options() };
        let fs = fs();
        let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
        let model = Model { table: open(&fs, &meta, &options, 1 << 20), rows: rows.clone() };
        let mut cursor = model.table.cursor(CursorOptions::default());
        for at in 0..803 {
            model.check_get(b"hot", at);
            model.check_get(b"ho", at);
            model.check_get(b"hott", at);
            model.check_seek(&mut cursor, b"hot", at);
            model.check_seek_back(&mut cursor, b"hot", at);
        }
        model.table.verify(&mut |_| ()).sound().expect("sound");
    }
}

#[test]
fn a_value_far_beyond_the_block_size_comes_back() {
    let mut noise = Dice(5);
    let big: Vec<u8> = (0..3 << 20).map(|_| noise.below(256) as u8).collect();
    let rows = vec![
        row("a", 9, Some("small")),
        (b"b".to_vec(), 8, Kind::Put, big),
        (b"c".to_vec(), 7, Kind::Put, vec![1; 5 << 20]),
        row("d", 6, Some("small")),
    ];
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableOptions { compression, ..options() };
        let fs = fs();
        let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
        for cache_bytes in [1 << 16, 1 << 26] {
            let model = Model { table: open(&fs, &meta, &options, cache_bytes), rows: rows.clone() };
            for _ in 0..2 {
                "abcd".bytes().for_each(|key| model.check_get(&[key], 100));
            }
            model.check_scans(CursorOptions::default());
            model.check_scans(CursorOptions { fill_cache: false, readahead_bytes: 0 });
            model.table.verify(&mut |_| ()).sound().expect("sound");
        }
    }
}

/// A value of the largest size, once: it needs about 2 GiB of memory, so it is run by name.
#[test]
#[ignore = "needs 2 GiB of memory"]
fn the_largest_value_comes_back() {
    let mut value = vec![0; crate::key::VALUE_BYTES_MAX];
    let mut dice = Dice(9);
    value.iter_mut().step_by(7).for_each(|byte| *byte = dice.below(256) as u8);
    let rows = vec![row("a", 9, Some("small")), (b"b".to_vec(), 8, Kind::Put, value)];
    let fs = fs();
    let meta = write(&fs, 1, &options(), &rows, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options(), 1 << 20);
    let found = get(&table, b"b", 100).expect("readable").expect("present");
    assert!(found.value == rows[1].3, "the value differs");
}

#[test]
fn tombstones_come_back_and_widen_the_bounds() {
    let tombstone =
        |start: &str, end: &str, lsn| RangeTombstone { start: start.into(), end: end.into(), lsn: Lsn(lsn) };
    let rows = [row("d", 10, Some("x")), row("f", 11, None)];
    for (range, smallest, largest, exclusive) in [
        (("a", "b"), "a", "f", false),
        (("e", "f"), "d", "f", false),
        (("e", "g"), "d", "g", true),
        (("a", "z"), "a", "z", true),
    ] {
        for rows in [&rows[..], &[]] {
            let all = vec![tombstone(range.0, range.1, 5), tombstone(range.0, range.1, 90)];
            let set = Tombstones::of_all(&*bytewise(), &all);
            let fs = fs();
            let meta = write(&fs, 1, &options(), rows, set.clone()).expect("writes");
            assert_eq!(meta.range_tombstones, 2);
            assert_eq!((meta.min_lsn, meta.max_lsn), (Lsn(5), Lsn(90)));
            if rows.is_empty() {
                assert_eq!((&meta.smallest[..], &meta.largest[..]), (range.0.as_bytes(), range.1.as_bytes()));
                assert!(meta.largest_exclusive);
            } else {
                assert_eq!(
                    (&meta.smallest[..], &meta.largest[..]),
                    (smallest.as_bytes(), largest.as_bytes())
                );
                assert_eq!(meta.largest_exclusive, exclusive);
            }
            let table = open(&fs, &meta, &options(), 1 << 20);
            assert_eq!(*table.tombstones().expect("readable"), set);
            table.verify(&mut |_| ()).sound().expect("sound");
            Model { table, rows: rows.to_vec() }.check_scans(CursorOptions::default());
        }
    }
}

#[test]
fn under_a_global_version_every_entry_reads_as_that_one() {
    let rows: Vec<Row> = (0..300).map(|n| row(&format!("k{n:03}"), 497 + n % 7, Some("v"))).collect();
    let set = Tombstones::of_all(
        &*bytewise(),
        &[RangeTombstone { start: b"x".to_vec(), end: b"y".to_vec(), lsn: Lsn(3) }],
    );
    let fs = fs();
    let written = write(&fs, 1, &options(), &rows, set).expect("writes");
    let meta = TableMeta { global_version: Some(Lsn(500)), min_lsn: Lsn(500), max_lsn: Lsn(500), ..written };
    let table = open(&fs, &meta, &options(), 1 << 20);
    table.verify(&mut |_| ()).sound().expect("sound");
    assert_eq!(
        table.tombstones().expect("readable").newest_covering(&*bytewise(), b"x", Lsn::MAX),
        Some(Lsn(500))
    );
    let rows: Vec<Row> = rows.into_iter().map(|row| (row.0, 500, row.2, row.3)).collect();
    let model = Model { table: table.clone(), rows };
    model.check_scans(CursorOptions::default());
    let mut cursor = table.cursor(CursorOptions::default());
    for key in ["k000", "k100", "k299", "k1000", "a", "z"] {
        for lsn in [0, 1, 3, 499, 500, 501, u64::MAX] {
            model.check_get(key.as_bytes(), lsn);
            model.check_seek(&mut cursor, key.as_bytes(), lsn);
            model.check_seek_back(&mut cursor, key.as_bytes(), lsn);
        }
    }
}
