//! Tables taken apart: what is told of them is what was written, and what is wrong with them is told.

use std::collections::BTreeSet;

use super::*;
use crate::env::PAGE_BYTES;
use crate::iter::RangeTombstone;
use crate::table::inspect::{TableBlock, TablePart, TableReport, inspect};

/// A table of several blocks with index leaves, a filter and range tombstones.
fn table() -> (Arc<MemFs>, TableMeta, Vec<Row>) {
    let options = TableOptions { block_bytes: 256, index_root_bytes: 0, index_block_bytes: 150, ..options() };
    let mut rows: Vec<Row> =
        (0..60).map(|n| row(&format!("key{n:03}"), 10 + n, (n % 7 != 3).then_some("value value"))).collect();
    rows.extend((0..20).map(|n| row("many", 90 - n, Some("version"))));
    let tombstone = RangeTombstone { start: b"key".to_vec(), end: b"kez".to_vec(), lsn: Lsn(5) };
    let fs = fs();
    let set = Tombstones::of_all(&*bytewise(), &[tombstone]);
    let meta = write(&fs, 1, &options, &rows, set).expect("writes");
    (fs, meta, rows)
}

fn path(meta: &TableMeta) -> PathBuf {
    Path::new(DIR).join(file_name(meta.id, meta.content_hash))
}

fn look(fs: &Arc<MemFs>, path: &Path) -> (TableReport, Vec<TableBlock>) {
    let mut blocks = Vec::new();
    let hasher = Some(options().hasher);
    let report = inspect(&**fs, path, hasher, &mut |block| blocks.push(block.clone())).expect("a file");
    (report, blocks)
}

fn rows_of(blocks: &[TableBlock]) -> Vec<(Vec<u8>, u64, &'static str, u64)> {
    let entries = blocks.iter().flat_map(|block| &block.entries);
    entries.map(|e| (e.key.clone(), e.lsn, e.kind, e.value_bytes)).collect()
}

fn told(rows: &[Row]) -> Vec<(Vec<u8>, u64, &'static str, u64)> {
    rows.iter().map(|(key, lsn, kind, value)| (key.clone(), *lsn, kind.name(), value.len() as u64)).collect()
}

#[test]
fn a_table_taken_apart_is_what_was_written() {
    let (fs, meta, rows) = table();
    let (report, blocks) = look(&fs, &path(&meta));
    assert_eq!((&report.problems, &report.unchecked), (&vec![], &vec![]));
    assert_eq!(rows_of(&blocks), told(&rows));
    assert!(report.blocks > 4 && report.index_leaves.len() > 1, "{report:?}");
    assert_eq!((report.blocks_read, report.entries, report.keys), (report.blocks, 80, 61));
    let contents = report.contents.as_ref().expect("has properties");
    assert_eq!((contents.entries, contents.deletes, contents.range_tombstones), (80, meta.deletes, 1));
    assert_eq!((&contents.smallest, &contents.largest), (&meta.smallest, &meta.largest));
    assert_eq!((report.tombstones.len(), &report.tombstones[0].end[..]), (1, &b"kez"[..]));
    let filter = report.filter.as_ref().expect("has a filter");
    assert!(filter.is_asked == Some(true) && filter.bits_per_key >= 10.0 && filter.false_positives < 0.02);
    // The parts and the footer tile the file.
    let mut parts: BTreeSet<(u64, u64)> = blocks.iter().map(|b| (b.part.offset, b.part.bytes)).collect();
    let others = [&report.properties, &report.index, &report.tombstone_block];
    parts.extend(others.into_iter().flatten().map(|part| (part.offset, part.bytes)));
    parts.extend(report.index_leaves.iter().chain([&filter.part]).map(|part| (part.offset, part.bytes)));
    let end = parts.iter().fold(0, |end, (offset, bytes)| {
        assert_eq!(end, *offset);
        offset + bytes
    });
    assert_eq!(report.footer, Some((end, 1)));
}

#[test]
fn every_damaged_byte_is_a_problem_and_costs_no_more_than_its_part() {
    let (fs, meta, rows) = table();
    let path = path(&meta);
    let (whole, _) = look(&fs, &path);
    let first_leaf = whole.index_leaves[0].offset;
    for at in 0..meta.file_bytes {
        fs.damage(&path, at, 0x21).expect("damages");
        let (report, blocks) = look(&fs, &path);
        assert!(!report.problems.is_empty(), "byte {at}");
        let found = rows_of(&blocks);
        let truth = told(&rows);
        assert!(found.iter().all(|row| truth.contains(row)), "byte {at}: what was never written");
        if at < first_leaf {
            let lost = blocks.iter().filter(|block| block.part.problem.is_some()).count();
            assert!(lost <= 1 && report.blocks == whole.blocks, "byte {at}: {lost} blocks are lost");
            assert_eq!(report.index, whole.index);
        }
        // Where the checksum of the footer alone is wrong, all it points to is shown.
        let footer = meta.file_bytes - 64;
        if at >= footer + 24 {
            assert_eq!(found, truth, "byte {at} of the footer");
        }
        fs.damage(&path, at, 0x21).expect("mends");
    }
}

#[test]
fn a_table_that_was_cut_is_a_problem_and_never_a_panic() {
    let (fs, meta, _) = table();
    let whole = fs.contents(path(&meta)).expect("there");
    for bytes in 0..whole.len() {
        fs.set_contents(path(&meta), &whole[..bytes]).expect("sets");
        assert!(!look(&fs, &path(&meta)).0.problems.is_empty(), "cut to {bytes}");
    }
}

/// Regression: a get past the page cache read two pages for a block of one, since almost each lay across the end of a page.
#[test]
fn blocks_that_are_not_compressed_end_where_pages_end_where_that_costs_little() {
    let table_of = |block_bytes: usize, value_bytes: &dyn Fn(u64) -> usize| {
        let options = TableOptions { block_bytes, compression: Compression::None, ..options() };
        let rows: Vec<Row> = (0..4000)
            .map(|n| row(&format!("key{n:05}"), 10 + n, Some(&"v".repeat(value_bytes(n)))))
            .collect();
        let fs = fs();
        let meta = write(&fs, 1, &options, &rows, Tombstones::EMPTY).expect("writes");
        let (report, blocks) = look(&fs, &path(&meta));
        assert_eq!((&report.problems, &report.unchecked), (&vec![], &vec![]));
        assert_eq!(rows_of(&blocks), told(&rows));
        (meta.file_bytes, blocks.iter().map(|block| block.part.clone()).collect::<Vec<TablePart>>())
    };
    let pages = |part: &TablePart| {
        (part.offset + part.bytes).div_ceil(PAGE_BYTES as u64) - part.offset / PAGE_BYTES as u64
    };
    for block_pages in [1, 3] {
        let (_, parts) = table_of(block_pages * PAGE_BYTES, &|_| 100);
        let (last, others) = parts.split_last().expect("blocks");
        assert!(others.iter().all(|part| pages(part) == block_pages as u64), "of {block_pages} pages");
        assert!(pages(last) <= block_pages as u64);
    }
    // Twenty entries of more than a page, behind which blocks are to meet the ends of pages again; and entries of which few fill
    // a page badly.
    let mixed = |n: u64| if n % 200 == 199 { 10_000 } else { 100 };
    let (mixed_bytes, parts) = table_of(PAGE_BYTES, &mixed);
    let across = parts.iter().filter(|part| pages(part) > 1).count();
    assert!((20..=25).contains(&across), "{across} of {} blocks lie across pages", parts.len());
    let large = |n: u64| 900 + (n % 400) as usize;
    for (bytes, value_bytes) in
        [(mixed_bytes, &mixed as &dyn Fn(u64) -> usize), (table_of(PAGE_BYTES, &large).0, &large)]
    {
        // Blocks of a size that is not that of pages come as they come.
        let dense_bytes = table_of(PAGE_BYTES - 1, value_bytes).0;
        assert!(bytes <= dense_bytes * 17 / 16, "{bytes} bytes, {dense_bytes} without regard to pages");
    }
}
