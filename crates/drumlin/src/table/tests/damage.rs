//! Every byte of a table damaged in turn: found by `verify`, never believed by a read.

use std::cmp::Ordering;

use super::*;
use crate::filter::Grid;
use crate::iter::{Cursor, RangeTombstone};
use crate::key::Comparator;
use crate::table::frame::FrameEncoder;
use crate::table::index::{IndexBuilder, Place};

/// A small table that has every part: several blocks, index leaves, a filter, range tombstones.
fn table(options: &TableOptions) -> (Arc<MemFs>, TableMeta, Vec<Row>, Tombstones) {
    let mut rows: Vec<Row> =
        (0..60).map(|n| row(&format!("key{n:03}"), 10 + n, Some("value value"))).collect();
    rows.extend((0..20).map(|n| row("many", 90 - n, (n % 3 != 0).then_some("version"))));
    let tombstone = RangeTombstone { start: b"key".to_vec(), end: b"kez".to_vec(), lsn: Lsn(5) };
    let set = match options.hashed {
        true => Tombstones::EMPTY,
        false => Tombstones::of_all(&*bytewise(), &[tombstone]),
    };
    let rows = stored(options, rows);
    let fs = fs();
    let meta = write(&fs, 1, options, &rows, set.clone()).expect("writes");
    (fs, meta, rows, set)
}

fn all_options() -> Vec<TableOptions> {
    let small = TableOptions { block_bytes: 256, index_root_bytes: 0, index_block_bytes: 150, ..options() };
    let mut all = vec![TableOptions { compression: Compression::None, ..small.clone() }, small.clone()];
    if cfg!(feature = "zstd") {
        all.push(TableOptions { compression: Compression::Zstd, ..small });
    }
    let grid = Some(Grid { skip: 0, bits: 4 });
    all.push(TableOptions { block_bytes: 256, grid, ..hashed_options() });
    all
}

#[test]
fn every_damaged_byte_is_found_by_verify() {
    for options in all_options() {
        let (fs, meta, ..) = table(&options);
        let table = open(&fs, &meta, &options, 1 << 20);
        table.verify(&mut |_| ()).sound().expect("sound");
        for at in 0..meta.file_bytes {
            for mask in [1, 0x80, 0xff] {
                fs.damage(table.path(), at, mask).expect("damages");
                let problem = table.verify(&mut |_| ()).sound().expect_err("found");
                assert!(problem.is_corruption(), "byte {at}: {problem}");
                assert!(problem.to_string().contains(".tbl"), "it names the file: {problem}");
                fs.damage(table.path(), at, mask).expect("mends");
            }
        }
        table.verify(&mut |_| ()).sound().expect("sound again");
    }
}

/// Regression: the first corrupt block ended the check, and nobody heard of the others.
#[test]
fn every_corrupt_place_of_a_table_is_named_or_counted_as_unchecked() {
    for options in all_options() {
        let (fs, meta, ..) = table(&options);
        let table = open(&fs, &meta, &options, 1 << 20);
        let path = table.path().to_path_buf();
        let whole = table.verify(&mut |_| ());
        assert_eq!((whole.bytes, whole.unchecked), (meta.file_bytes, 0));
        let damaged = |places: &[u64]| {
            places.iter().for_each(|at| fs.damage(&path, *at, 1 << (at % 8)).expect("damages"));
            let found = table.verify(&mut |_| ());
            let alone = verify_alone(&*fs, &path, &[], options.hasher, &mut |_| ());
            places.iter().for_each(|at| fs.damage(&path, *at, 1 << (at % 8)).expect("mends"));
            for found in [&found, &alone] {
                assert!(
                    found.failure.is_none() && found.bytes + found.unchecked == meta.file_bytes,
                    "{found:?}"
                );
            }
            assert_eq!(found.problems, alone.problems, "the same without a manifest: {places:?}");
            found
        };
        let single: Vec<_> = (0..meta.file_bytes)
            .map(|at| {
                let found = damaged(&[at]);
                assert_eq!(found.problems.len(), 1, "byte {at} is one place: {found:?}");
                (found.problems[0].clone(), found.unchecked)
            })
            .collect();
        let (mut both, mut hidden) = (0, 0);
        for first in 0..meta.file_bytes {
            let second = (first * 7 + 1000) % meta.file_bytes;
            if first == second {
                continue;
            }
            let (one, other) = (&single[first as usize], &single[second as usize]);
            let found = damaged(&[first, second]);
            let mut expected: Vec<_> = [one, other].map(|place| place.0.offset).into();
            let mut named: Vec<_> = found.problems.iter().map(|problem| problem.offset).collect();
            expected.sort();
            expected.dedup();
            named.sort();
            if named == expected {
                both += usize::from(named.len() == 2);
            } else {
                assert!(named.iter().all(|place| expected.contains(place)), "{first}, {second}: {found:?}");
                assert!(!named.is_empty() && found.unchecked > 0, "{first}, {second}: {found:?}");
                assert!(one.1 + other.1 > 0, "{first}, {second}: nothing hides the other");
                hidden += 1;
            }
        }
        // Most of a small hashed table is one bucket.
        let many = both > hidden || options.hashed && both > 100;
        assert!(many && hidden > 0, "both named {both} times, one unchecked {hidden} times");
    }
}

#[test]
fn reads_of_a_damaged_table_are_right_or_corruption() {
    for options in all_options() {
        let (fs, meta, rows, tombstones) = table(&options);
        let path = open(&fs, &meta, &options, 0).path().to_path_buf();
        let mut refused = 0;
        for at in 0..meta.file_bytes {
            fs.damage(&path, at, 1 << (at % 8)).expect("damages");
            let table = open(&fs, &meta, &options, 1 << 20);
            for row in &rows {
                match get(&table, &row.0, row.1 + 1) {
                    Ok(found) => assert_eq!(found.map(|found| found.value), Some(row.3.clone()), "byte {at}"),
                    Err(error) => {
                        assert!(error.is_corruption(), "byte {at}: {error}");
                        refused += 1;
                    }
                }
            }
            if let Ok(found) = table.tombstones() {
                assert_eq!(*found, tombstones, "byte {at}");
            }
            let mut cursor = table.cursor(CursorOptions::default());
            let mut seen = 0;
            let mut walk = || {
                cursor.seek_first()?;
                while cursor.valid() {
                    let row: &Row = &rows[seen];
                    assert_eq!(
                        (cursor.key(), cursor.lsn().0, cursor.value()),
                        (&row.0[..], row.1, &row.3[..])
                    );
                    seen += 1;
                    cursor.next()?;
                }
                Ok::<_, crate::Error>(())
            };
            match walk() {
                Ok(()) => assert_eq!(seen, rows.len(), "byte {at}"),
                Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
            }
            fs.damage(&path, at, 1 << (at % 8)).expect("mends");
        }
        assert!(refused > 1000, "damage is met: {refused}");
    }
}

#[test]
fn a_manifest_that_names_another_content_or_count_is_not_believed() {
    let (fs, meta, rows, _) = table(&options());
    let bytes = fs.contents(open(&fs, &meta, &options(), 0).path()).expect("there");
    let wrong = [
        TableMeta { content_hash: meta.content_hash ^ 1, ..meta.clone() },
        TableMeta { content_hash: meta.content_hash ^ 1 << 100, ..meta.clone() },
        TableMeta { entries: meta.entries + 1, ..meta.clone() },
        TableMeta { deletes: 0, ..meta.clone() },
        TableMeta { range_tombstones: 2, ..meta.clone() },
        TableMeta { smallest: b"kex".to_vec(), ..meta.clone() },
        TableMeta { largest: b"zzz".to_vec(), ..meta.clone() },
        TableMeta { largest_exclusive: !meta.largest_exclusive, ..meta.clone() },
        TableMeta { max_lsn: Lsn(1 << 60), ..meta.clone() },
        TableMeta { raw_bytes: 1, ..meta.clone() },
        TableMeta { seed: 2, ..meta.clone() },
        TableMeta { file_bytes: meta.file_bytes + 1, ..meta.clone() },
    ];
    for wrong in wrong {
        let table = open(&fs, &wrong, &options(), 0);
        fs.set_contents(table.path(), &bytes).expect("sets");
        assert!(table.verify(&mut |_| ()).sound().is_err_and(|e| e.is_corruption()), "{wrong:?}");
        if wrong.content_hash == meta.content_hash {
            assert!(get(&table, &rows[0].0, 1000).is_err_and(|e| e.is_corruption()), "{wrong:?}");
        }
    }
}

#[test]
fn a_finished_table_survives_a_power_loss_whole() {
    let (fs, meta, rows, _) = table(&options());
    fs.sync_dir(Path::new("/")).and_then(|()| fs.sync_dir(Path::new(DIR))).expect("syncs");
    let after = fs.crash_clone(&mut |_| crate::env::Keep::No);
    let table = open(&after, &meta, &options(), 0);
    table.verify(&mut |_| ()).sound().expect("sound");
    assert!(get(&table, &rows[0].0, 1000).expect("readable").is_some());
}

#[test]
fn kinds_of_a_later_version_are_skipped_or_refused_as_they_ask() {
    let fs = fs();
    let options = TableOptions { block_bytes: 128, ..options() };
    let write = |id, rows: &[(String, u64, u8)]| {
        let path = Path::new(DIR).join("t");
        let mut writer =
            TableWriter::new(fs.create(&path).expect("creates"), path.clone(), TableId(id), options.clone());
        for (key, lsn, kind) in rows {
            writer.add_kind(key.as_bytes(), Lsn(*lsn), *kind, b"value of it").expect("adds");
        }
        let (meta, _) = writer.finish().expect("writes");
        let table = open(&fs, &meta, &options, 1 << 20);
        fs.rename(&path, table.path()).expect("renames");
        table
    };
    let mut rows = Vec::new();
    for n in 0..50u64 {
        rows.extend((0..n % 7).map(|m| (format!("key{n:02}"), 100 - m, 0x80 + m as u8)));
        if n % 3 != 0 {
            rows.push((format!("key{n:02}"), 50, 1));
        }
    }
    let table = write(1, &rows);
    table.verify(&mut |_| ()).sound().expect("sound");
    for n in 0..50u64 {
        for at in [51, 97, 99, 200] {
            let found = get(&table, format!("key{n:02}").as_bytes(), at).expect("readable");
            assert_eq!(found.map(|found| found.lsn), (n % 3 != 0).then_some(Lsn(50)), "key {n} at {at}");
        }
    }
    let known: Vec<&(String, u64, u8)> = rows.iter().filter(|row| row.2 == 1).collect();
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek_first().expect("readable");
    for row in &known {
        assert_eq!(cursor.key(), row.0.as_bytes());
        cursor.next().expect("readable");
    }
    assert!(!cursor.valid());
    cursor.seek_last().expect("readable");
    for row in known.iter().rev() {
        assert_eq!(cursor.key(), row.0.as_bytes());
        cursor.prev().expect("readable");
    }
    assert!(!cursor.valid());

    for (id, kind) in [(2, 0x7f), (3, 2)] {
        let table = write(id, &[("a".into(), 9, 1), ("b".into(), 9, kind), ("c".into(), 9, 1)]);
        let refused = |result: Result<()>| match result {
            Err(crate::Error::Unsupported { .. }) => kind == 0x7f,
            Err(error) => kind == 2 && error.is_corruption(),
            Ok(()) => false,
        };
        assert!(get(&table, b"a", 10).expect("readable").is_some());
        assert!(refused(get(&table, b"b", 10).map(|_| ())));
        let mut cursor = table.cursor(CursorOptions::default());
        cursor.seek_first().expect("readable");
        assert!(refused(cursor.next()) && !cursor.valid());
        assert!(refused(table.verify(&mut |_| ()).sound()));
    }
}

/// Orders anything anyhow while a table is written; read with an honest order of the same name.
struct Liar;

impl Comparator for Liar {
    fn name(&self) -> &str {
        "honest"
    }
    fn compare(&self, _: &[u8], _: &[u8]) -> Ordering {
        Ordering::Less
    }
}

struct Honest;

impl Comparator for Honest {
    fn name(&self) -> &str {
        "honest"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

#[test]
fn verify_finds_disorder_that_every_checksum_approves() {
    for keys in [["a", "c", "b"], ["b", "a", "c"], ["a", "b", "b"]] {
        let rows: Vec<Row> = keys.iter().map(|key| row(key, 5, Some("x"))).collect();
        let fs = fs();
        let liar = TableOptions { comparator: Arc::new(Liar), ..options() };
        let meta = write(&fs, 1, &liar, &rows, Tombstones::EMPTY).expect("writes");
        let table = open(&fs, &meta, &TableOptions { comparator: Arc::new(Honest), ..options() }, 0);
        assert!(table.verify(&mut |_| ()).sound().is_err_and(|e| e.is_corruption()), "{keys:?}");
    }
}

/// The table with the block at `place` replaced by one of the same length, every checksum right.
fn doctored(
    fs: &Arc<MemFs>,
    meta: &TableMeta,
    options: &TableOptions,
    place: Place,
    block: &[u8],
) -> Arc<TableHandle> {
    let mut bytes = fs.contents(open(fs, meta, options, 0).path()).expect("there");
    let frame = FrameEncoder::encode_raw(block, meta.seed, place.offset);
    assert_eq!(frame.bytes() as u64, place.bytes);
    bytes.splice(place.offset as usize..place.end() as usize, [frame.body, &frame.trailer].concat());
    let meta = TableMeta { content_hash: twox_hash::XxHash3_128::oneshot(&bytes), ..meta.clone() };
    let table = open(fs, &meta, options, 0);
    fs.set_contents(table.path(), &bytes).expect("sets");
    table
}

#[test]
fn verify_finds_a_filter_that_lacks_a_key() {
    let (fs, meta, ..) = table(&options());
    let sound = open(&fs, &meta, &options(), 0);
    let place = properties(&sound).filter.expect("has one");
    let mut filter = sound.resident().expect("opens").read(place).expect("sound").to_vec();
    filter[8..72].fill(0);
    let table = doctored(&fs, &meta, &options(), place, &filter);
    let problem = table.verify(&mut |_| ()).sound().expect_err("found");
    assert!(problem.is_corruption() && problem.to_string().contains("filter"), "{problem}");
}

#[test]
fn verify_finds_a_fence_that_claims_a_key_of_the_next_block_or_leaves_one_out() {
    let options = TableOptions { compression: Compression::None, ..options() };
    let rows: Vec<Row> = (0..300).map(|n| row(&format!("key{n:03}"), 10, Some("value value"))).collect();
    let fs = fs();
    let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
    let sound = open(&fs, &meta, &options, 0);
    let index = properties(&sound).index.expect("has one");
    let sound = sound.resident().expect("opens");
    let root = sound.root().expect("has one");
    for step in [1, -1i32] {
        // A fence of full length, moved by one key.
        let at = (0..root.len()).find(|&n| root.fence(n).expect("right").key().len() == 6).expect("one");
        let mut builder = IndexBuilder::new(true, 0);
        for n in 0..root.len() {
            let mut key = root.fence(n).expect("right").key();
            if n == at {
                key[5] = key[5].checked_add_signed(step as i8).expect("a digit");
            }
            builder.add(&key, Lsn::ZERO, root.place(n).expect("right").end());
        }
        let table = doctored(&fs, &meta, &options, index, &builder.finish());
        let problem = table.verify(&mut |_| ()).sound().expect_err("found");
        assert!(problem.is_corruption() && problem.to_string().contains("fence"), "{problem}");
    }
}
