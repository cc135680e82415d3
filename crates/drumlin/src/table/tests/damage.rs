//! Every byte of a table damaged in turn: found by `verify`, never believed by a read.

use super::*;
use crate::iter::{Cursor, RangeTombstone};

/// A small table that has every part: several blocks, index leaves, a filter, range tombstones.
fn table(options: &TableOptions) -> (Arc<MemFs>, TableMeta, Vec<Row>, Tombstones) {
    let mut rows: Vec<Row> =
        (0..60).map(|n| row(&format!("key{n:03}"), 10 + n, Some("value value"))).collect();
    rows.extend((0..20).map(|n| row("many", 90 - n, (n % 3 != 0).then_some("version"))));
    let tombstone = RangeTombstone { start: b"key".to_vec(), end: b"kez".to_vec(), lsn: Lsn(5) };
    let set = Tombstones::build(&*bytewise(), vec![tombstone]);
    let fs = fs();
    let meta = write(&fs, 1, options, &rows, set.clone()).expect("writes");
    (fs, meta, rows, set)
}

fn all_options() -> Vec<TableOptions> {
    let small = TableOptions { block_bytes: 256, index_block_bytes: 150, ..options() };
    let mut all = vec![TableOptions { compression: Compression::None, ..small.clone() }, small.clone()];
    if cfg!(feature = "zstd") {
        all.push(TableOptions { compression: Compression::Zstd, ..small });
    }
    all
}

#[test]
fn every_damaged_byte_is_found_by_verify() {
    for options in all_options() {
        let (fs, meta, ..) = table(&options);
        let table = open(&fs, &meta, &options, 1 << 20);
        table.verify(&mut |_| ()).expect("sound");
        for at in 0..meta.file_bytes {
            for mask in [1, 0x80, 0xff] {
                fs.damage(table.path(), at, mask).expect("damages");
                let problem = table.verify(&mut |_| ()).expect_err("found");
                assert!(problem.is_corruption(), "byte {at}: {problem}");
                assert!(problem.to_string().contains(".tbl"), "it names the file: {problem}");
                fs.damage(table.path(), at, mask).expect("mends");
            }
        }
        table.verify(&mut |_| ()).expect("sound again");
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
