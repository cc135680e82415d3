//! Filters in columns, of a table and of those under it: what they say of one another, and what a get reads.

use super::*;
use crate::filter::Grid;
use crate::iter::Cursor;
use std::sync::atomic::Ordering;

/// Keys of a container whose places begin with so many bits in common, and of which all do.
fn rows(options: &TableOptions, keys: std::ops::Range<u64>, lsn: u64) -> Vec<Row> {
    let of = |n: u64| (format!("{n:016}").into_bytes(), lsn + n % 7, Kind::Put, n.to_le_bytes().repeat(12));
    stored(options, keys.map(of).collect())
}

fn write_over(
    fs: &Arc<MemFs>,
    id: u64,
    options: &TableOptions,
    rows: &[Row],
    pile: &[Arc<TableHandle>],
) -> TableMeta {
    let path = Path::new(DIR).join(temporary_name(TableId(id)));
    let file = fs.create(&path).expect("creates");
    let mut writer = TableWriter::new(file, path.clone(), TableId(id), options.clone());
    for (key, lsn, kind, value) in rows {
        writer.add(key, Lsn(*lsn), *kind, value).expect("adds");
    }
    let (grid, first, last) = writer.columned_span().expect("it has columns");
    writer.set_pile(pile_columns(pile, grid, first, last, || Ok(())).expect("nobody stops it"));
    let (meta, _) = writer.finish().expect("writes");
    fs.rename(&path, &Path::new(DIR).join(file_name(meta.id, meta.content_hash))).expect("renames");
    meta
}

/// A pile of tables of other keys, newest first, each written over those before.
fn pile(fs: &Arc<MemFs>, options: &TableOptions, tables: u64, keys: u64) -> Vec<Arc<TableHandle>> {
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let mut pile: Vec<Arc<TableHandle>> = Vec::new();
    for number in 0..tables {
        let rows = rows(options, number * keys..(number + 1) * keys, 100 * number + 1);
        let meta = write_over(fs, number + 1, options, &rows, &pile);
        pile.insert(0, TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone()));
    }
    pile
}

fn columned() -> TableOptions {
    TableOptions { grid: Some(Grid { skip: 0, bits: 8 }), filter_bits_per_key: 16.0, ..hashed_options() }
}

/// Asks a pile as levels do.
fn ask(pile: &[Arc<TableHandle>], key: &[u8]) -> Option<Version> {
    let mut known = Verdicts::default();
    let hash = pile[0].options().hasher.hash(key);
    let mut covering = pile.iter().filter(|table| table.meta().covers(&*bytewise(), key));
    covering.find_map(|table| {
        let looked = table.get_cached(key, hash, Lsn::MAX, &mut known, &crossbeam_epoch::pin());
        match looked.expect("reads") {
            Look::Told(version) => version,
            Look::Left(missed) => table.get(key, hash, Lsn::MAX, &mut known, missed).expect("reads"),
        }
    })
}

#[test]
fn a_get_reads_one_page_of_filters_for_a_whole_pile_and_one_bucket() {
    let (fs, options) = (fs(), columned());
    let pile = pile(&fs, &options, 8, 8000);
    for table in &pile {
        table.verify(&mut |_| ()).sound().expect("sound");
        table.resident().expect("opens");
    }
    let reads = counted(&fs);
    let keys: Vec<u64> = (0..64_000).step_by(3).collect();
    for n in &keys {
        let key = options.form.to_stored(format!("{n:016}").as_bytes());
        let found = ask(&pile, &key).expect("it is there");
        assert_eq!(found.value, n.to_le_bytes().repeat(12));
    }
    let a_get = reads.load(Ordering::Relaxed) as f64 / keys.len() as f64;
    println!("{a_get:.4} reads a get over {} tables", pile.len());
    assert!((2.0..=2.05).contains(&a_get), "{a_get}");

    reads.store(0, Ordering::Relaxed);
    for n in 1_000_000..1_020_000u64 {
        assert_eq!(ask(&pile, &options.form.to_stored(format!("{n:016}").as_bytes())), None);
    }
    let a_miss = reads.load(Ordering::Relaxed) as f64 / 20_000.0;
    println!("{a_miss:.4} reads of a key that is nowhere");
    assert!((1.0..=1.02).contains(&a_miss), "{a_miss}");
}

#[test]
fn a_table_that_a_cluster_does_not_name_is_asked_by_its_own() {
    let (fs, options) = (fs(), columned());
    let mut pile = pile(&fs, &options, 4, 2000);
    // One of the older ones was merged with another meanwhile.
    let merged = rows(&options, 0..4000, 500);
    let meta = write_over(&fs, 99, &options, &merged, &[]);
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    pile.truncate(2);
    pile.push(TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone()));
    for n in 0..8000u64 {
        let found = ask(&pile, &options.form.to_stored(format!("{n:016}").as_bytes())).expect("it is there");
        assert_eq!(found.value, n.to_le_bytes().repeat(12), "{n}");
    }
    // What comes next names it, and no longer those that have gone.
    let rows = rows(&options, 8000..10_000, 900);
    let meta = write_over(&fs, 100, &options, &rows, &pile);
    let top = TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone());
    let named: std::collections::BTreeSet<u64> = {
        let open = top.resident().expect("opens");
        let cluster = open.cluster().expect("a cluster");
        cluster.names().map(|row| row.table.0).collect()
    };
    assert_eq!(named, [3, 4, 99, 100].into());
}

/// A job writes to all children of a container at once, whose columns have the same numbers.
#[test]
fn a_cluster_names_no_table_of_another_container() {
    let grid = Grid { skip: 1, bits: 7 };
    let (fs, options) = (fs(), TableOptions { grid: Some(grid), ..columned() });
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let mut pile: Vec<Arc<TableHandle>> = Vec::new();
    for run in 0..4u64 {
        let all = rows(&options, run * 4000..(run + 1) * 4000, 100 * run + 1);
        let (left, right): (Vec<Row>, Vec<Row>) = all.into_iter().partition(|(key, ..)| key[0] < 0x80);
        let before = pile.clone();
        for (side, part) in [left, right].into_iter().enumerate() {
            let meta = write_over(&fs, 2 * run + side as u64, &options, &part, &before);
            pile.insert(0, TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone()));
        }
    }
    for (top, sides) in [(&pile[0], [7, 5, 3, 1]), (&pile[1], [6, 4, 2, 0])] {
        let open = top.resident().expect("opens");
        let cluster = open.cluster().expect("a cluster");
        assert_eq!(cluster.names().map(|row| row.table.0).collect::<Vec<_>>(), sides);
    }
}

/// Six runs of 4000 keys, each of two tables side by side, cut before the key of a number; and how many reads a get takes.
fn reads_of_runs_of_two(options: &TableOptions, mut cut: impl FnMut() -> usize) -> f64 {
    let fs = fs();
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let mut pile: Vec<Arc<TableHandle>> = Vec::new();
    let mut id = 0;
    for run in 0..6u64 {
        let all = rows(options, run * 4000..(run + 1) * 4000, 100 * run + 1);
        let cut = cut();
        let mut tables = Vec::new();
        for part in [&all[..cut], &all[cut..]] {
            id += 1;
            let meta = write_over(&fs, id, options, part, &pile);
            tables.push(TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone()));
        }
        pile.splice(0..0, tables);
    }
    let reads = counted(&fs);
    pile.iter().for_each(|table| drop(table.resident().expect("opens")));
    reads.store(0, Ordering::Relaxed);
    for n in 0..24_000u64 {
        let key = options.form.to_stored(format!("{n:016}").as_bytes());
        let found = ask(&pile, &key).expect("it is there");
        assert_eq!(found.value, n.to_le_bytes().repeat(12), "{n}");
    }
    let a_get = reads.load(Ordering::Relaxed) as f64 / 24_000.0;
    println!("{a_get:.4} reads a get");
    let mut cursor = pile[0].cursor(CursorOptions::default());
    cursor.seek_first().expect("reads");
    assert!(cursor.valid());
    a_get
}

#[test]
fn runs_of_several_tables_are_named_piece_by_piece() {
    let mut dice = Dice(4);
    let a_get = reads_of_runs_of_two(&columned(), || 500 + dice.below(3000) as usize);
    assert!(a_get < 2.1, "{a_get}");
}

/// Regression: where all runs are cut in one column its page has no room for both parts of each; what was left out for it was left
/// out of all other pages, too, and most gets read a second one.
#[test]
fn a_full_page_leaves_the_others_as_they_are() {
    // Eight rows of a column fill a page; every run is cut in the eighth of sixteen columns.
    let options = TableOptions { grid: Some(Grid { skip: 0, bits: 4 }), ..columned() };
    let a_get = reads_of_runs_of_two(&options, || 1875);
    assert!(a_get < 2.1, "{a_get}");
}

/// Regression: a table that was merged after the trie got another number of runs may lie in several containers of its level, and
/// took columns of all.
#[test]
fn keys_of_several_containers_have_no_columns_and_are_found() {
    for skip in [1, 3, 6] {
        let options = TableOptions { grid: Some(Grid { skip, bits: 7 }), ..columned() };
        let (fs, rows) = (fs(), rows(&options, 0..4000, 1));
        let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
        let meta = write_over(&fs, 1, &options, &rows, &[]);
        let table = TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone());
        assert!(table.resident().expect("opens").cluster().is_none());
        table.verify(&mut |_| ()).sound().expect("sound");
        for n in 0..4000u64 {
            let key = options.form.to_stored(format!("{n:016}").as_bytes());
            assert_eq!(
                ask(std::slice::from_ref(&table), &key).expect("it is there").value,
                n.to_le_bytes().repeat(12)
            );
        }
    }
}

/// Regression: one page of filters that cannot be read ended every merge into its container.
#[test]
fn a_pile_whose_filters_cannot_be_read_is_written_over_all_the_same() {
    let (fs, options) = (fs(), columned());
    let pile = pile(&fs, &options, 3, 2000);
    let at = {
        let open = pile[0].resident().expect("opens");
        open.cluster().expect("a cluster").place(0).offset
    };
    fs.damage(pile[0].path(), at + 100, 1).expect("damages");
    let meta = write_over(&fs, 100, &options, &rows(&options, 6000..8000, 900), &pile);
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let top = TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone());
    top.verify(&mut |_| ()).sound().expect("sound");
    let verdict = pile[0].verify(&mut |_| ()).sound();
    assert!(verdict.is_err_and(|error| error.is_corruption()), "and is told of");
}

/// The filters of a level were in memory until now: the first table that has columns makes those of the tables under it, once, and
/// their own filters go.
#[test]
fn the_first_columns_of_a_pile_are_made_of_its_keys_and_filters_in_memory_go() {
    let (fs, with_columns) = (fs(), columned());
    let options = TableOptions { grid: None, ..columned() };
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let open = |meta| TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone());
    let runs: [std::ops::Range<u64>; 5] =
        [0..8000, 8000..16_000, 16_000..16_003, 16_003..24_000, 24_000..32_000];
    let mut pile: Vec<Arc<TableHandle>> = Vec::new();
    for (number, keys) in (1..).zip(runs) {
        let rows = rows(&options, keys, 100 * number);
        pile.insert(0, open(write(&fs, number, &options, &rows, Tombstones::EMPTY).expect("writes")));
    }
    // The first table with columns has nothing in the first and in the last one, and so leaves those of the others to the second.
    let is_left_out = |n: u64, key: &[u8]| (32_000..40_000).contains(&n) && !(1..255).contains(&key[0]);
    let reads = counted(&fs);
    let reads_of = |pile: &[Arc<TableHandle>], keys: std::ops::Range<u64>, are_there: bool| {
        let before = reads.load(Ordering::Relaxed);
        let count = keys.end - keys.start;
        for n in keys {
            let key = options.form.to_stored(format!("{n:016}").as_bytes());
            if is_left_out(n, &key) {
                continue;
            }
            let found = ask(pile, &key);
            let value = are_there.then(|| n.to_le_bytes().repeat(12));
            assert_eq!(found.map(|version| version.value), value, "{n}");
        }
        (reads.load(Ordering::Relaxed) - before) as f64 / count as f64
    };
    reads_of(&pile, 0..32_000, true);
    let held = || pile.iter().map(|table| table.resident_parts().filter).sum::<usize>();
    assert!(held() > 32_000 * 2, "{} bytes of filters", held());

    let mut tops: Vec<Arc<TableHandle>> = Vec::new();
    for number in [6, 7] {
        let mut rows = rows(&options, (number - 2) * 8000..(number - 1) * 8000, 100 * number);
        rows.retain(|(key, ..)| number > 6 || (1..255).contains(&key[0]));
        let all: Vec<Arc<TableHandle>> = tops.iter().chain(&pile).cloned().collect();
        let before = reads.load(Ordering::Relaxed);
        let meta = write_over(&fs, number, &with_columns, &rows, &all);
        let took = reads.load(Ordering::Relaxed) - before;
        println!("{took} reads for the columns of the pile under table {number}");
        let pages =
            tops.first().map(|top| top.resident().expect("opens").cluster().expect("has one").pages());
        assert!(pages.is_none_or(|pages| took <= pages as u64 + 30), "keys are read once: {took}");
        let top = open(meta);
        let named: Vec<u64> = {
            let open = top.resident().expect("opens");
            let mut named: Vec<u64> =
                open.cluster().expect("a cluster").names().map(|row| row.table.0).collect();
            named.sort_unstable();
            named.dedup();
            named
        };
        assert_eq!(named, (1..=number).collect::<Vec<u64>>());
        tops.insert(0, top);
    }
    shelf.sweep();
    assert_eq!(held(), 0, "bytes of filters");
    let all: Vec<Arc<TableHandle>> = tops.iter().chain(&pile).cloned().collect();
    reads_of(&all, 0..48_000, true);
    assert_eq!(held(), 0, "bytes of filters");
    let (a_get, a_miss) = (reads_of(&all, 0..48_000, true), reads_of(&all, 1_000_000..1_020_000, false));
    println!("{a_get:.4} reads a get, {a_miss:.4} of a key that is nowhere");
    assert!((2.0..=2.1).contains(&a_get) && (1.0..=1.02).contains(&a_miss), "{a_get} and {a_miss}");
    // A store that is opened anew reads as little: a get hears of a table before it opens it.
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
    let anew = |table: &Arc<TableHandle>| {
        TableHandle::new(&shelf, PathBuf::from(DIR), table.meta().clone(), options.clone())
    };
    let all: Vec<Arc<TableHandle>> = all.iter().map(anew).collect();
    reads_of(&all, 0..48_000, true);
    assert_eq!(all.iter().map(|table| table.resident_parts().filter).sum::<usize>(), 0, "bytes of filters");
}
