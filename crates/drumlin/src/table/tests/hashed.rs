//! Hashed tables at the size that they are made for: how full buckets are, what a get reads, what a walk reads.

use super::*;
use crate::iter::Cursor;
use std::sync::atomic::Ordering;

/// As many rows as fill about so many buckets, with values of up to twice the mean less a byte.
fn rows(options: &TableOptions, buckets: u64, mean: u64, seed: u64) -> Vec<Row> {
    let mut dice = Dice(seed);
    let mut all: Vec<Row> = Vec::new();
    let mut bytes = 0;
    while bytes < buckets * 4096 {
        let key = format!("{:016}", dice.next() % 10_000_000_000_000_000).into_bytes();
        let value_bytes = dice.below((2 * mean).saturating_sub(40)) as usize;
        bytes += 22 + value_bytes as u64;
        let noise: Vec<u8> = (0..value_bytes.div_ceil(8)).flat_map(|_| dice.next().to_le_bytes()).collect();
        all.push((key, 1 + dice.below(1 << 30), Kind::Put, noise[..value_bytes].to_vec()));
    }
    stored(options, all)
}

fn hashed(table: &Arc<TableHandle>) -> crate::table::hashed::Hashed {
    properties(table).hashed.expect("it has buckets")
}

#[test]
fn a_get_reads_one_bucket_if_records_are_in_memory_and_hardly_more_if_a_fifth_are() {
    for (records_percent, most) in [(None, 1.0), (Some(20), 1.1), (Some(0), 1.5)] {
        let options = TableOptions { records_percent, ..hashed_options() };
        let (fs, rows) = (fs(), rows(&options, 2000, 100, 7));
        let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
        let table = open(&fs, &meta, &options, 0);
        assert_eq!(hashed(&table).entries, rows.len() as u64, "nothing is left over");
        table.resident().expect("opens");
        let reads = counted(&fs);
        for (key, lsn, _, value) in &rows {
            let hash = options.hasher.hash(key);
            let found = table
                .get(key, hash, Lsn::MAX, &mut Verdicts::default(), None)
                .expect("reads")
                .expect("it is there");
            assert!(found.lsn == Lsn(*lsn) && found.value == *value);
        }
        let a_get = reads.load(Ordering::Relaxed) as f64 / rows.len() as f64;
        println!("{records_percent:?} percent of records: {a_get:.3} reads a get of {}", rows.len());
        assert!(a_get <= most, "{records_percent:?}: {a_get}");
    }
}

/// The lines of docs/design/trie.md about tables that are written, not balanced alone.
#[test]
fn buckets_are_filled_and_nothing_is_left_over() {
    for mean in [100, 200, 300, 400] {
        let options = hashed_options();
        let (fs, rows) = (fs(), rows(&options, 4000, mean, mean));
        let began = std::time::Instant::now();
        let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
        let took = began.elapsed();
        let table = open(&fs, &meta, &options, 0);
        let hashed = hashed(&table);
        let report = crate::table::inspect::inspect(&*fs, table.path(), Some(options.hasher), &mut |_| {});
        let report = report.expect("inspects");
        let buckets = report.buckets.clone().expect("buckets");
        println!(
            "mean {mean}: {} entries in {} buckets filled to {:.1} %, {} sources, {} steps, {} bytes a user's, {:?}",
            rows.len(),
            hashed.buckets,
            100.0 * buckets.fill,
            buckets.sources,
            buckets.steps,
            meta.file_bytes as f64 / meta.raw_bytes as f64,
            took / rows.len() as u32,
        );
        assert!(report.problems.is_empty() && report.unchecked.is_empty(), "{report:?}");
        assert_eq!(hashed.entries, rows.len() as u64, "mean {mean}: nothing is left over");
        assert!(buckets.fill > 0.945, "mean {mean}: {}", buckets.fill);
    }
}

#[test]
fn a_walk_reads_each_bucket_once_and_what_went_far_again() {
    let options = hashed_options();
    let (fs, rows) = (fs(), rows(&options, 3000, 100, 3));
    let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options, 0);
    let reads = counted(&fs);
    let mut cursor = table.cursor(CursorOptions { fill_cache: false, readahead_bytes: 256 << 10 });
    cursor.seek_first().expect("reads");
    for (key, lsn, kind, value) in &rows {
        assert_eq!((cursor.key(), cursor.lsn().0, cursor.kind()), (&key[..], *lsn, *kind));
        assert!(cursor.value() == value);
        cursor.next().expect("reads");
    }
    assert!(!cursor.valid());
    let (reads, buckets) = (reads.load(Ordering::Relaxed), hashed(&table).buckets);
    println!("{reads} reads of {buckets} buckets");
    // Of 64 buckets each, and of those that something went far behind to.
    assert!(reads < buckets / 10, "{reads} reads of {buckets} buckets");
}

#[test]
fn what_is_larger_than_a_bucket_lies_in_the_sorted_part_and_is_found() {
    let options = hashed_options();
    let mut all: Vec<Row> = (0..3000).map(|n| row(&format!("small{n:05}"), 10 + n, Some("value"))).collect();
    all.extend(
        (0..20).map(|n| row(&format!("large{n}"), 20 + n, Some(&"x".repeat(4100 + 2000 * n as usize)))),
    );
    // Versions that fit one by one and not together.
    all.extend((0..200).map(|n| row("many", 900 - n, Some(&"y".repeat(50)))));
    let rows = stored(&options, all);
    let fs = fs();
    let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options, 1 << 20);
    assert_eq!(hashed(&table).entries, 3000);
    table.verify(&mut |_| ()).sound().expect("sound");
    for (key, lsn, _, value) in &rows {
        let found = get(&table, key, *lsn + 1).expect("reads").expect("there");
        assert!(found.lsn.0 == *lsn && found.value == *value);
    }
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek_first().expect("reads");
    for (key, lsn, ..) in &rows {
        assert_eq!((cursor.key(), cursor.lsn().0), (&key[..], *lsn));
        cursor.next().expect("reads");
    }
    assert!(!cursor.valid());
}

#[test]
fn a_table_that_is_written_with_the_memory_of_another_is_the_same() {
    for options in [hashed_options(), TableOptions { hashed: false, ..hashed_options() }] {
        let fs = fs();
        let (larger, rows) = (rows(&options, 40, 300, 1), rows(&options, 20, 100, 2));
        let written = |id, rows: &[Row], spare| {
            write_with(&fs, id, &options, rows, Tombstones::EMPTY, spare).expect("writes")
        };
        let (alone, _) = written(2, &rows, Spare::default());
        let (_, spare) = written(1, &larger, Spare::default());
        let (behind, _) = written(2, &rows, spare);
        assert_eq!(alone, behind);
    }
}

#[test]
fn a_table_of_large_items_is_a_sorted_one() {
    let options = hashed_options();
    let all = (0..100).map(|n| row(&format!("{n:05}"), 10 + n, Some(&"z".repeat(2000)))).collect();
    let rows = stored(&options, all);
    let fs = fs();
    let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options, 1 << 20);
    assert!(properties(&table).hashed.is_none());
    for (key, lsn, ..) in &rows {
        assert_eq!(get(&table, key, *lsn + 1).expect("reads").expect("there").lsn.0, *lsn);
    }
    table.verify(&mut |_| ()).sound().expect("sound");
}

/// A hundred thousand times and more each: by records that are held, by those in buckets, into the sorted part, by pages of filters.
#[test]
fn every_way_of_a_search_is_taken_often_and_finds_what_is_there() {
    let before = crate::table::hashed::taken();
    let grid = Some(crate::filter::Grid { skip: 0, bits: 10 });
    for (records_percent, grid) in [(None, None), (Some(0), None), (Some(20), grid)] {
        let options = TableOptions { records_percent, grid, filter_bits_per_key: 16.0, ..hashed_options() };
        let mut all = rows(&options, 1500, 100, 9);
        let large = (0..200).map(|n| row(&format!("large{n}"), 20 + n, Some(&"x".repeat(4100))));
        all.extend(stored(&options, large.collect()));
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let fs = fs();
        let meta = write(&fs, 1, &options, &all, Tombstones::EMPTY).expect("writes");
        let table = open(&fs, &meta, &options, 64 << 20);
        let find = |(key, lsn, _, value): &Row| {
            let hash = options.hasher.hash(key);
            let found = table
                .get(key, hash, Lsn::MAX, &mut Verdicts::default(), None)
                .expect("reads")
                .expect("there");
            assert!(found.lsn.0 == *lsn && found.value == *value);
        };
        for _ in 0..19 {
            all.iter().for_each(find);
        }
        let special = all.iter().filter(|row| row.3.len() == 4100).collect::<Vec<_>>();
        for _ in 0..200 {
            special.iter().for_each(|row| find(row));
        }
    }
    let ways: Vec<u64> =
        crate::table::hashed::taken().iter().zip(before).map(|(now, then)| now - then).collect();
    println!(
        "by records {}, by marks {}, into the sorted part {}, by pages {}",
        ways[0], ways[1], ways[2], ways[3]
    );
    assert!(ways.iter().all(|taken| *taken >= 100_000), "{ways:?}");
}

/// Regression: records may lead a key that is not there further than any key that is, and such a get was told that the table is
/// corrupt.
#[test]
fn a_key_that_is_not_there_is_absent_however_far_records_lead_it() {
    let options = TableOptions { filter_bits_per_key: 0.0, ..hashed_options() };
    let mut further = 0;
    for seed in 0..12 {
        for records_percent in [None, Some(20), Some(0)] {
            let options = TableOptions { records_percent, ..options.clone() };
            let (fs, rows) = (fs(), rows(&options, 400, 400, seed));
            let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
            let table = open(&fs, &meta, &options, 4 << 20);
            let parts = table.resident().expect("opens");
            let parts = parts.hashed().expect("it has buckets");
            for n in 0..60_000 {
                let key = options.form.to_stored(format!("absent {n}").as_bytes());
                let place = crate::key::key_prefix(&key);
                further += u64::from(parts.shape.spans(place) && parts.end_of(place).is_none());
                assert!(get(&table, &key, u64::MAX).expect("reads").is_none());
            }
        }
    }
    println!("{further} were led further than any that is there");
    assert!(further > 0, "the case was met");
}
