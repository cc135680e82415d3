//! The life of a table: writing rules, opening, eviction, removal, other stores' tables.

use std::sync::Arc;

use super::*;
use crate::env::{Fault, FaultyFs, ReadMode};
use crate::error::Error;
use crate::iter::Cursor;
use crate::key::{Comparator, KEY_BYTES_MAX};

fn rows(count: u64) -> Vec<Row> {
    (0..count).map(|n| row(&format!("key{n:06}"), 10 + n, Some("a value of some length"))).collect()
}

#[test]
fn entries_out_of_order_or_limits_are_refused_and_nothing_is_added() {
    let fs = fs();
    let path = Path::new(DIR).join("t");
    let mut writer = TableWriter::new(fs.create(&path).expect("creates"), path, TableId(1), options());
    writer.add(b"b", Lsn(5), Kind::Put, b"1").expect("in order");
    let long = vec![0xff; KEY_BYTES_MAX + 1];
    for (key, lsn, kind) in [
        (&b"a"[..], 9, Kind::Put),
        (b"b", 5, Kind::Put),
        (b"b", 6, Kind::Delete),
        (b"c", 1, Kind::RangeDelete),
        (&long, 1, Kind::Put),
    ] {
        let refused = writer.add(key, Lsn(lsn), kind, b"");
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{} bytes at {lsn}", key.len());
    }
    writer.add(b"b", Lsn(4), Kind::Put, b"2").expect("in order");
    writer.add(b"c", Lsn(9), Kind::Put, b"3").expect("in order");
    assert_eq!(writer.finish().expect("writes").0.entries, 3);
}

#[test]
fn an_empty_table_is_refused() {
    assert!(matches!(write(&fs(), 1, &options(), &[], Tombstones::EMPTY), Err(Error::InvalidArgument(_))));
}

#[test]
fn the_estimate_is_near_the_truth() {
    let fs = fs();
    for count in [1, 100, 20_000] {
        let path = Path::new(DIR).join(temporary_name(TableId(count)));
        let file = fs.create(&path).expect("creates");
        let mut writer = TableWriter::new(file, path, TableId(count), options());
        for (key, lsn, kind, value) in rows(count) {
            writer.add(&key, Lsn(lsn), kind, &value).expect("adds");
        }
        let estimate = writer.estimated_bytes();
        let truth = writer.finish().expect("writes").0.file_bytes;
        assert!(estimate < truth * 5 / 4 + 1000 && truth < estimate * 5 / 4 + 1000, "{estimate} for {truth}");
    }
}

#[test]
fn a_failed_write_fails_the_table_and_every_later_call() {
    let inner = fs();
    let all = rows(30_000);
    // How many calls a good run makes, and that it is a good run.
    let attempt = |faulty: &Arc<FaultyFs>| -> Result<TableMeta> {
        let path = Path::new(DIR).join("t");
        let mut writer = TableWriter::new(faulty.create(&path)?, path, TableId(1), options());
        let mut first = None;
        for (key, lsn, kind, value) in &all {
            let added = writer.add(key, Lsn(*lsn), *kind, value);
            assert!(first.is_none() || added.is_err(), "a failed writer takes nothing more");
            first = first.or(added.err());
        }
        let finished = writer.finish().map(|(meta, _)| meta);
        match first {
            None => finished,
            Some(first) => {
                assert!(finished.is_err());
                Err(first)
            }
        }
    };
    let faulty = FaultyFs::new(inner.clone());
    attempt(&faulty).expect("writes");
    let calls = faulty.calls();
    assert!(calls >= 4, "create, two appends at least, sync: {calls}");
    for call in 0..calls {
        let faulty = FaultyFs::new(inner.clone());
        faulty.fail_at(call, Fault::Error(std::io::ErrorKind::Other));
        assert!(attempt(&faulty).is_err(), "call {call} failed unnoticed");
    }
}

#[test]
fn a_table_without_its_end_does_not_open() {
    let fs = fs();
    let meta = write(&fs, 1, &options(), &rows(200), Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options(), 1 << 20);
    let whole = fs.contents(table.path()).expect("there");
    for bytes in 0..whole.len() {
        // Even if the manifest believed that length.
        let meta = TableMeta { file_bytes: bytes as u64, ..meta.clone() };
        let table = open(&fs, &meta, &options(), 1 << 20);
        fs.set_contents(table.path(), &whole[..bytes]).expect("sets");
        assert!(get(&table, b"key000000", 1000).is_err_and(|e| e.is_corruption()), "cut to {bytes}");
    }
}

#[test]
fn nothing_is_read_before_the_first_read_and_eviction_closes() {
    let inner = fs();
    let meta = write(&inner, 1, &options(), &rows(100), Tombstones::EMPTY).expect("writes");
    let faulty = FaultyFs::new(inner.clone());
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = TableHandle::new(&Shelf::new(faulty.clone(), cache), PathBuf::from(DIR), meta, options());
    assert!(table.tombstones().expect("no I/O").is_empty());
    let cursor = table.cursor(CursorOptions::default());
    drop(cursor);
    assert!(get(&table, b"key000001", 5).expect("no I/O below the smallest LSN").is_none());
    assert_eq!((faulty.calls(), table.resident_bytes()), (0, 0));
    assert!(get(&table, b"key000001", 100).expect("readable").is_some());
    assert!(table.resident_bytes() > 100);
    let calls = faulty.calls();
    assert!(get(&table, b"key000001", 100).expect("readable").is_some());
    assert!(get(&table, b"absent", 100).expect("readable").is_none());
    assert_eq!(faulty.calls(), calls, "cached reads and filtered misses call nothing");
    table.evict();
    assert_eq!(table.resident_bytes(), 0);
    assert!(get(&table, b"key000001", 100).expect("readable").is_some());
    assert!(faulty.calls() > calls);
}

/// Regression: a block that was missing between cached ones was taken for a walk through the file. What was read ahead with it
/// was checked and kept once more, sixty blocks for one.
#[test]
fn a_block_that_is_missing_between_cached_ones_is_read_alone() {
    let inner = fs();
    let meta = write(&inner, 1, &options(), &rows(4000), Tombstones::EMPTY).expect("writes");
    let (faulty, cache) = (FaultyFs::new(inner.clone()), Arc::new(BlockCache::new(16 << 20)));
    let table =
        TableHandle::new(&Shelf::new(faulty.clone(), cache.clone()), PathBuf::from(DIR), meta, options());
    let walk = |backward: bool| {
        let (hits, misses, calls) = (cache.hits(), cache.misses(), faulty.calls());
        let mut cursor = table.cursor(CursorOptions::default());
        if backward { cursor.seek_last() } else { cursor.seek_first() }.expect("readable");
        while cursor.valid() {
            if backward { cursor.prev() } else { cursor.next() }.expect("readable");
        }
        (cache.hits() - hits, cache.misses() - misses, faulty.calls() - calls)
    };
    let (_, blocks, calls) = walk(false);
    assert!(blocks > 100 && calls < blocks / 10, "{calls} reads of {blocks} blocks");
    let resident = table.resident().expect("readable");
    let root = resident.root().expect("there are entries");
    for backward in [false, true] {
        assert_eq!(walk(backward), (blocks, 0, 0), "all of it is cached");
        let missing = [20, 22, 60].map(|n| root.place(n).expect("sound").offset);
        missing.iter().for_each(|&offset| cache.evict_block(1, offset));
        assert_eq!(walk(backward), (blocks - 3, 3, 3), "one read for each that is missing");
    }
}

#[test]
fn a_failed_read_is_an_error_and_the_next_one_works() {
    let inner = fs();
    let meta = write(&inner, 1, &options(), &rows(500), Tombstones::EMPTY).expect("writes");
    let calls_of = |faulty: &Arc<FaultyFs>| -> Result<(Option<Version>, usize)> {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let table =
            TableHandle::new(&Shelf::new(faulty.clone(), cache), PathBuf::from(DIR), meta.clone(), options());
        let once = || -> Result<(Option<Version>, usize)> {
            let found = get(&table, b"key000300", 1000)?;
            let mut cursor = table.cursor(CursorOptions { fill_cache: false, readahead_bytes: 2000 });
            cursor.seek_first()?;
            let mut seen = 0;
            while cursor.valid() {
                let behind = [cursor.key(), &[0]].concat();
                seen += 1;
                if let Err(error) = cursor.next() {
                    assert!(error.to_string().contains("read"), "a failed read is no corruption: {error}");
                    assert!(!cursor.valid(), "an error leaves the cursor off");
                    cursor.seek(&behind, Lsn::MAX).expect("it may seek again");
                }
            }
            Ok((found, seen))
        };
        once().or_else(|_| once())
    };
    let faulty = FaultyFs::new(inner.clone());
    let right = calls_of(&faulty).expect("readable");
    assert_eq!(right.1, 500);
    for call in 0..faulty.calls() {
        let faulty = FaultyFs::new(inner.clone());
        faulty.fail_at(call, Fault::Error(std::io::ErrorKind::Other));
        assert_eq!(calls_of(&faulty).expect("the second time works"), right, "call {call}");
        assert_eq!(faulty.injected(), 1);
    }
}

#[test]
fn an_obsolete_table_goes_at_the_first_sweep_after_its_last_holder() {
    let fs = fs();
    let meta = write(&fs, 1, &options(), &rows(300), Tombstones::EMPTY).expect("writes");
    let cache = Arc::new(BlockCache::new(1 << 20));
    let shelf = Shelf::new(fs.clone(), cache.clone());
    let table = TableHandle::new(&shelf, PathBuf::from(DIR), meta, options());
    let path = table.path().to_path_buf();
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek_first().expect("readable");
    table.mark_obsolete();
    table.mark_obsolete();
    drop(table);
    assert_eq!(shelf.sweep(), 1);
    assert!(fs.exists(&path).expect("asks"), "the cursor still holds it");
    let mut seen = 0;
    while cursor.valid() {
        seen += 1;
        cursor.next().expect("readable");
    }
    assert_eq!(seen, 300);
    assert!(cache.bytes() > 0);
    drop(cursor);
    assert!(fs.exists(&path).expect("asks"), "letting go of a table removes nothing");
    assert_eq!(shelf.sweep(), 0);
    assert!(!fs.exists(&path).expect("asks"));
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn the_blocks_of_an_obsolete_table_leave_the_cache_whether_it_is_open_or_has_leaves() {
    for (leaves, open) in [(false, true), (false, false), (true, true), (true, false)] {
        let fs = fs();
        let mut options = options();
        if leaves {
            (options.index_block_bytes, options.index_root_bytes) = (100, 0);
        }
        let cache = Arc::new(BlockCache::new(1 << 20));
        let shelf = Shelf::new(fs.clone(), cache.clone());
        let table = |id| {
            let meta = write(&fs, id, &options, &rows(300), Tombstones::EMPTY).expect("writes");
            let table = TableHandle::new(&shelf, PathBuf::from(DIR), meta, options.clone());
            (0..300)
                .for_each(|n| drop(get(&table, format!("key{n:06}").as_bytes(), 1000).expect("readable")));
            table
        };
        let other = table(2);
        let of_the_other = cache.bytes();
        let obsolete = table(1);
        assert!(cache.bytes() >= of_the_other * 2);
        if !open {
            obsolete.evict();
        }
        obsolete.mark_obsolete();
        drop(obsolete);
        assert_eq!(shelf.sweep(), 0);
        assert_eq!(cache.bytes(), of_the_other, "leaves: {leaves}, open: {open}");
        drop(other);
    }
}

#[test]
fn a_table_kept_keeps_its_file() {
    let fs = fs();
    let meta = write(&fs, 1, &options(), &rows(3), Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options(), 0);
    let path = table.path().to_path_buf();
    assert!(path.ends_with(format!("00000001-{:016x}.tbl", (meta.content_hash >> 64) as u64)));
    drop(table);
    assert!(fs.exists(&path).expect("asks"));
}

#[test]
fn a_filter_made_with_another_secret_denies_nothing() {
    let fs = fs();
    let all = rows(200);
    let meta = write(&fs, 1, &options(), &all, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &TableOptions { hasher: KeyHasher::new(12), ..options() }, 1 << 20);
    for row in &all {
        assert!(get(&table, &row.0, 1000).expect("readable").is_some(), "{:?}", row.0);
    }
    table.verify(&mut |_| ()).sound().expect("sound");
}

#[test]
fn another_order_of_keys_is_refused() {
    struct Other;
    impl Comparator for Other {
        fn name(&self) -> &str {
            "other"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.cmp(b)
        }
    }
    let fs = fs();
    let meta = write(&fs, 1, &options(), &rows(3), Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &TableOptions { comparator: Arc::new(Other), ..options() }, 0);
    assert!(matches!(get(&table, b"key000001", 100), Err(Error::Unsupported { .. })));
}

#[test]
fn another_table_under_the_name_is_found() {
    let fs = fs();
    let one = write(&fs, 1, &options(), &rows(300), Tombstones::EMPTY).expect("writes");
    let two = write(&fs, 2, &options(), &rows(300), Tombstones::EMPTY).expect("writes");
    assert_eq!(one.file_bytes, two.file_bytes);
    let (one, two) = (open(&fs, &one, &options(), 0), open(&fs, &two, &options(), 0));
    fs.set_contents(one.path(), &fs.contents(two.path()).expect("there")).expect("sets");
    assert!(get(&one, b"key000001", 100).is_err_and(|e| e.is_corruption()));
    assert!(one.verify(&mut |_| ()).sound().is_err_and(|e| e.is_corruption()));
    assert!(get(&two, b"key000001", 100).expect("readable").is_some());
}

#[test]
fn a_block_in_another_ones_place_is_found() {
    let fs = fs();
    let options = TableOptions { compression: Compression::None, ..options() };
    // Entries of one size: blocks of one size.
    let all: Vec<Row> =
        (0..400).map(|n| row(&format!("key{n:06}"), 20 + n % 50, Some("0123456789"))).collect();
    let meta = write(&fs, 1, &options, &all, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options, 0);
    let offset = |n: usize| table.approximate_offset(&all[n].0).expect("readable") as usize;
    let mut offsets: Vec<usize> = (0..all.len()).map(offset).collect();
    offsets.dedup();
    let (a, b, c) = (offsets[1], offsets[2], offsets[3]);
    assert_eq!(b - a, c - b);
    let mut bytes = fs.contents(table.path()).expect("there");
    bytes.copy_within(a..b, b);
    fs.set_contents(table.path(), &bytes).expect("sets");
    let fresh = open(&fs, &meta, &options, 0);
    let (mut wrong, mut right) = (0, 0);
    for row in &all {
        match get(&fresh, &row.0, 1000) {
            Ok(found) => {
                assert_eq!(found.map(|found| found.value), Some(row.3.clone()));
                right += 1;
            }
            Err(error) => {
                assert!(
                    matches!(&error, Error::Corruption(what) if what.offset == Some(b as u64)),
                    "{error}"
                );
                wrong += 1;
            }
        }
    }
    assert!(wrong > 5 && right > 300, "{wrong} wrong, {right} right");
}

#[test]
fn threads_read_one_table_while_it_is_evicted() {
    let fs = fs();
    let all = rows(2000);
    let meta = write(&fs, 1, &options(), &all, Tombstones::EMPTY).expect("writes");
    let table = open(&fs, &meta, &options(), 20_000);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (table, all) = (&table, &all);
            scope.spawn(move || {
                let mut dice = Dice(thread + 1);
                for _ in 0..2000 {
                    let row = &all[dice.below(2000) as usize];
                    let found = get(table, &row.0, 10_000).expect("readable").expect("present");
                    assert_eq!((found.lsn.0, &found.value), (row.1, &row.3));
                    if dice.below(50) == 0 {
                        table.evict();
                    }
                }
            });
        }
    });
}

/// Regression: a store of 2 GiB that was read with 64 MiB of memory read 270 KB for a get. The filters did not fit; so each get
/// opened the table that the one before it had closed, and read all of its filter.
#[test]
fn tables_in_use_do_not_close_one_another_for_their_filters() {
    let inner = fs();
    let options = TableOptions { filter_bits_per_key: 60.0, block_bytes: 4096, ..options() };
    let metas: Vec<TableMeta> = (1..=12)
        .map(|id| write(&inner, id, &options, &rows(2000), Tombstones::EMPTY).expect("writes"))
        .collect();
    let faulty = FaultyFs::new(inner.clone());
    // Three quarters of it hold all indexes, of 2 KB each, and beside them the filters of two to four tables, of 15 KB each.
    let shelf = Shelf::bounded(faulty.clone(), ReadMode::Buffered, Path::new(DIR), 100_000, usize::MAX);
    let open = |meta: &TableMeta| TableHandle::new(&shelf, PathBuf::from(DIR), meta.clone(), options.clone());
    let mut tables: Vec<Arc<TableHandle>> = metas.iter().map(open).collect();
    let with_filters =
        |tables: &[Arc<TableHandle>]| tables.iter().filter(|table| table.resident_parts().filter > 0).count();
    let read_all = |tables: &[Arc<TableHandle>]| {
        tables.iter().for_each(|table| assert!(get(table, b"key000500", 9999).expect("readable").is_some()));
    };
    for _ in 0..4 {
        read_all(&tables);
    }
    let had = with_filters(&tables);
    assert!((2..=4).contains(&had), "{had} of 12 have their filter");
    assert!(tables.iter().all(|table| table.resident_bytes() > 0), "all are open: the indexes fit");
    let calls = faulty.calls();
    for _ in 0..100 {
        tables.iter().for_each(|table| {
            let (key, known) = (b"key0005001", &mut Verdicts::default());
            let found = table.get(key, options.hasher.hash(key), Lsn(9999), known, None);
            assert!(found.expect("readable").is_none());
        });
    }
    let calls = faulty.calls() - calls;
    assert!(calls <= 100 * 12, "{calls} calls for 1200 gets: a block each, no filter");
    // As tables go, others have their filters.
    tables.retain(|table| table.resident_parts().filter == 0);
    shelf.sweep();
    read_all(&tables);
    assert!(with_filters(&tables) >= had, "there is room for as many as before");
}

#[test]
fn only_so_many_tables_are_open() {
    let fs = fs();
    let metas: Vec<TableMeta> = (1..=9)
        .map(|id| write(&fs, id, &options(), &rows(100), Tombstones::EMPTY).expect("writes"))
        .collect();
    let shelf = Shelf::bounded(fs.clone(), ReadMode::Buffered, Path::new(DIR), 1 << 20, 4);
    let open = |meta: &TableMeta| TableHandle::new(&shelf, PathBuf::from(DIR), meta.clone(), options());
    let tables: Vec<Arc<TableHandle>> = metas.iter().map(open).collect();
    for n in 0..100 {
        assert!(get(&tables[n * 5 % 9], b"key000050", 100).expect("readable").is_some());
        let open = tables.iter().filter(|table| table.resident_bytes() > 0).count();
        assert!(open <= 4, "{open} are open");
    }
}

/// A store of much memory searches one index block where one of little reads two.
#[test]
fn what_an_index_may_take_in_memory_follows_the_budget() {
    let root_bytes = |memory: usize| options().with_memory(memory).index_root_bytes;
    assert_eq!([0, 64 << 20, 128 << 20].map(root_bytes), [1 << 20; 3]);
    assert_eq!([512 << 20, 2 << 30, 64 << 30].map(root_bytes), [4 << 20, 16 << 20, 16 << 20]);
    // Blocks of one entry with a long fence: some 1.2 MiB of index.
    let rows: Vec<Row> = (0..4500).map(|n| row(&format!("{n:0300}"), 9, Some(&"v".repeat(500)))).collect();
    let fs = fs();
    for (memory, leaves) in [(64 << 20, true), (512 << 20, false)] {
        let options = options().with_memory(memory);
        let id = 1 + u64::from(leaves);
        let meta = write(&fs, id, &options, &rows, Tombstones::EMPTY).expect("writes");
        let table = open(&fs, &meta, &options, 1 << 20);
        assert_eq!(table.resident().expect("readable").has_leaves(), leaves, "{memory} bytes");
        assert!(get(&table, &rows[4321].0, 10).expect("readable").is_some());
    }
}

#[test]
fn blocks_count_as_in_use_by_their_own_entries() {
    let (fs, cache) = (fs(), Arc::new(BlockCache::new(1 << 20)));
    cache.set_is_read(true);
    let path = Path::new(DIR).join(temporary_name(TableId(1)));
    let file = fs.create(&path).expect("creates");
    let mut writer = TableWriter::new(file, path, TableId(1), options()).keep_in(cache.clone());
    // An entry a block, every second one in use.
    for n in 0..40u64 {
        if n % 2 == 0 {
            writer.next_is_in_use();
        }
        writer.add(format!("{n:04}").as_bytes(), Lsn(9), Kind::Put, &[n as u8; 400]).expect("adds");
    }
    let (meta, _) = writer.finish().expect("finishes");
    let table = open_written(&fs, &meta, &cache);
    let resident = table.resident().expect("readable");
    let root = resident.root().expect("there are entries");
    assert_eq!(root.len(), 40);
    let guard = crossbeam_epoch::pin();
    for n in 0..40 {
        let place = root.place(n).expect("sound");
        let block = cache.glance(1, place.offset, &guard).expect("it was kept");
        assert_eq!(block.is_used(), n % 2 == 0, "block {n}");
    }
}

/// A table of id 1 that has its temporary name still.
fn open_written(fs: &Arc<MemFs>, meta: &TableMeta, cache: &Arc<BlockCache>) -> Arc<TableHandle> {
    let named = Path::new(DIR).join(file_name(meta.id, meta.content_hash));
    fs.rename(&Path::new(DIR).join(temporary_name(meta.id)), &named).expect("renames");
    TableHandle::new(&Shelf::new(fs.clone(), cache.clone()), PathBuf::from(DIR), meta.clone(), options())
}
