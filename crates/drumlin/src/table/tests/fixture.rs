//! Tables written once and read for ever: what version 1 of the format looks like.

use super::*;
use crate::env::RealFs;
use crate::iter::{Cursor, RangeTombstone};

/// With LZ4: only reading it is promised, since a compressor may change.
const COMPRESSED: &[u8] = include_bytes!("../../../tests/fixtures/table-v1.tbl");
/// Without compression, with range tombstones by pairs: what it is read from.
const RAW_PAIRS: &[u8] = include_bytes!("../../../tests/fixtures/table-v1-raw.tbl");
/// The same with range tombstones by fragments: the writer must still write exactly these bytes.
const RAW: &[u8] = include_bytes!("../../../tests/fixtures/table-v1-raw-fragments.tbl");
/// Of a hashed table, without compression, with a filter by lines: what it is read from.
const HASHED_BY_LINES: &[u8] = include_bytes!("../../../tests/fixtures/hashed-table-v1.tbl");
/// The same with a filter by groups of eight lines, which is not asked any more.
const HASHED_BY_EIGHT: &[u8] = include_bytes!("../../../tests/fixtures/hashed-table-v1-groups.tbl");
/// The same with a filter by groups of sixteen, which is not asked any more either.
const HASHED_BY_SIXTEEN: &[u8] = include_bytes!("../../../tests/fixtures/hashed-table-v1-groups16.tbl");
/// The same with a filter by windows, as it is written now.
const HASHED: &[u8] = include_bytes!("../../../tests/fixtures/hashed-table-v1-windows.tbl");

fn fixture_options(compression: Compression) -> TableOptions {
    TableOptions { compression, block_bytes: 256, index_root_bytes: 0, index_block_bytes: 120, ..options() }
}

fn fixture_rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for n in 0..40u64 {
        let value = format!("value of entry {n}, {}", "and so on ".repeat(n as usize % 4));
        rows.push(row(&format!("fixture/{n:04}"), 1000 + n * 17, (n % 5 != 3).then_some(&value)));
    }
    rows.extend(
        (0..12).rev().map(|n| row("fixture/many", 5000 + n * (1 << 36), Some("one of many versions"))),
    );
    rows.push((b"z!\x00".to_vec(), 7, Kind::Put, vec![0; 700]));
    rows
}

fn fixture_tombstones() -> Tombstones {
    let tombstone =
        |start: &str, end: &str, lsn| RangeTombstone { start: start.into(), end: end.into(), lsn: Lsn(lsn) };
    let all = vec![tombstone("fixture/0010", "fixture/0020", 900), tombstone("fixture/0015", "zz", 1100)];
    Tombstones::of_all(&*bytewise(), &all)
}

fn fixture_meta(bytes: &[u8]) -> TableMeta {
    let content_hash = match bytes.len() {
        2156 => 256_070_673_748_905_961_384_079_240_106_041_051_631,
        3790 => 148_348_674_369_723_789_416_567_003_156_872_000_081,
        _ => 19_886_852_653_789_890_629_334_552_057_145_804_887,
    };
    TableMeta {
        id: TableId(42),
        file_bytes: bytes.len() as u64,
        entries: 53,
        deletes: 8,
        range_tombstones: 4,
        smallest: b"fixture/0000".to_vec(),
        largest: b"zz".to_vec(),
        largest_exclusive: true,
        min_lsn: Lsn(7),
        max_lsn: Lsn(5000 + 11 * (1 << 36)),
        raw_bytes: 2733,
        content_hash,
        seed: 42,
        hidden: 11,
        ..TableMeta::default()
    }
}

fn hashed_fixture_options() -> TableOptions {
    TableOptions { compression: Compression::None, ..hashed_options() }
}

/// Some buckets, from which and to which keys move, and a sorted part.
fn hashed_fixture_rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for n in 0..420u64 {
        let value = "x".repeat(20 + (n * 37 % 80) as usize);
        rows.push(row(&format!("fixture/{n:04}"), 1000 + n * 17, (n % 5 != 3).then_some(&value)));
    }
    rows.extend((0..3).map(|n| row("fixture/many", 8000 - n, Some("one of many versions"))));
    rows.push(row("fixture/large", 7, Some(&"y".repeat(5000))));
    stored(&hashed_fixture_options(), rows)
}

fn hashed_fixture_meta() -> TableMeta {
    let rows = hashed_fixture_rows();
    TableMeta {
        id: TableId(43),
        file_bytes: 34_949,
        entries: 424,
        deletes: 84,
        smallest: rows[0].0.clone(),
        largest: rows[rows.len() - 1].0.clone(),
        min_lsn: Lsn(7),
        max_lsn: Lsn(8123),
        raw_bytes: 30_265,
        content_hash: 180_229_396_360_891_799_004_718_280_966_694_432_255,
        seed: 43,
        hidden: 2,
        ..TableMeta::default()
    }
}

#[test]
fn a_hashed_table_of_version_1_reads_as_it_was_written_and_is_written_to_the_byte() {
    let options = hashed_fixture_options();
    reads_as_it_was_written(HASHED, hashed_fixture_meta(), &options);
    let by_lines = TableMeta {
        file_bytes: 34_949,
        content_hash: 16_378_977_248_638_908_492_819_518_169_112_655_338,
        ..hashed_fixture_meta()
    };
    reads_as_it_was_written(HASHED_BY_LINES, by_lines, &options);
    let by_eight = TableMeta {
        file_bytes: 35_397,
        content_hash: 220_249_301_415_109_156_081_662_427_129_259_898_798,
        ..hashed_fixture_meta()
    };
    reads_as_it_was_written(HASHED_BY_EIGHT, by_eight, &options);
    let by_sixteen = TableMeta {
        file_bytes: 35_397,
        content_hash: 277_057_190_327_660_023_159_778_526_035_175_895_329,
        ..hashed_fixture_meta()
    };
    reads_as_it_was_written(HASHED_BY_SIXTEEN, by_sixteen, &options);

    let (fs, meta) = (super::fs(), hashed_fixture_meta());
    let written = write(&fs, 43, &options, &hashed_fixture_rows(), Tombstones::EMPTY).expect("writes");
    assert_eq!(TableMeta { sample: Default::default(), ..written }, meta);
    let path = Path::new(DIR).join(file_name(meta.id, meta.content_hash));
    assert!(
        fs.contents(path).expect("there") == HASHED,
        "the format changed: give it a new version and fixture"
    );
}

fn reads_as_it_was_written(bytes: &[u8], meta: TableMeta, options: &TableOptions) {
    let fs = fs();
    let table = open(&fs, &meta, options, 1 << 20);
    fs.set_contents(table.path(), bytes).expect("sets");
    table.verify(&mut |_| ()).sound().expect("sound");
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek_first().expect("readable");
    for (key, lsn, kind, value) in hashed_fixture_rows() {
        assert_eq!((cursor.key(), cursor.lsn(), cursor.kind()), (&key[..], Lsn(lsn), kind));
        assert_eq!(cursor.value(), value);
        let found = get(&table, &key, lsn + 1).expect("readable");
        assert_eq!(found, Some(Version { lsn: Lsn(lsn), kind, value }));
        cursor.next().expect("readable");
    }
    assert!(!cursor.valid());
    let report = crate::table::inspect::inspect(&*fs, table.path(), Some(options.hasher), &mut |_| {});
    let buckets = report.expect("inspects").buckets.expect("it has buckets");
    assert!(buckets.sources > 0 && buckets.steps > 0, "something moved: {buckets:?}");
}

#[test]
fn a_table_of_version_1_reads_as_it_was_written() {
    for bytes in [COMPRESSED, RAW_PAIRS, RAW] {
        let compression = if bytes == COMPRESSED { Compression::Lz4 } else { Compression::None };
        let (fs, meta, options) = (fs(), fixture_meta(bytes), fixture_options(compression));
        let table = open(&fs, &meta, &options, 1 << 20);
        fs.set_contents(table.path(), bytes).expect("sets");
        table.verify(&mut |_| ()).sound().expect("sound");
        let mut cursor = table.cursor(CursorOptions::default());
        cursor.seek_first().expect("readable");
        for row in fixture_rows() {
            assert_eq!((cursor.key(), cursor.lsn(), cursor.kind()), (&row.0[..], Lsn(row.1), row.2));
            assert_eq!(cursor.value(), row.3);
            let found = get(&table, &row.0, row.1 + 1).expect("readable");
            assert_eq!(found, Some(Version { lsn: Lsn(row.1), kind: row.2, value: row.3 }));
            cursor.next().expect("readable");
        }
        assert!(!cursor.valid());
        assert_eq!(*table.tombstones().expect("readable"), fixture_tombstones());
        // The filter is in use: of many absent keys few get past it to a block.
        let cache = BlockCache::new(1 << 20);
        let cache = Arc::new(cache);
        let table =
            TableHandle::new(&Shelf::new(fs.clone(), cache.clone()), PathBuf::from(DIR), meta, options);
        for n in 0..1000 {
            assert_eq!(
                get(&table, format!("fixture/absent{n}").as_bytes(), 1 << 50).expect("readable"),
                None
            );
        }
        assert!(
            cache.hits() + cache.misses() < 100,
            "the filter let {} reads pass",
            cache.hits() + cache.misses()
        );
    }
}

#[test]
fn the_writer_still_writes_version_1_to_the_byte() {
    let fs = fs();
    let options = fixture_options(Compression::None);
    let meta = write(&fs, 42, &options, &fixture_rows(), fixture_tombstones()).expect("writes");
    assert_eq!(meta, fixture_meta(RAW));
    let path = Path::new(DIR).join(file_name(meta.id, meta.content_hash));
    assert!(
        fs.contents(path).expect("there") == RAW,
        "the format changed: give it a new version and fixture"
    );
}

/// For a new version of the format: change the names, run it by name, state what it prints.
#[test]
#[ignore = "writes fixtures"]
fn fixtures_are_written() {
    let real = RealFs::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let compressions = [Compression::Lz4, Compression::None].map(fixture_options);
    let sorted = compressions.map(|options| (42, options, fixture_rows(), fixture_tombstones()));
    let hashed = (43, hashed_fixture_options(), hashed_fixture_rows(), Tombstones::EMPTY);
    let names = ["table-v1.tbl", "table-v1-raw-fragments.tbl", "hashed-table-v1-windows.tbl"];
    let mut metas = Vec::new();
    for (name, (id, options, rows, tombstones)) in names.into_iter().zip(sorted.into_iter().chain([hashed])) {
        let fs = fs();
        let meta = write(&fs, id, &options, &rows, tombstones).expect("writes");
        let bytes = fs.contents(Path::new(DIR).join(file_name(meta.id, meta.content_hash))).expect("there");
        if !real.exists(&dir.join(name)).expect("asks") {
            // One that is there is never written again.
            real.create(&dir.join(name)).and_then(|mut file| file.append(&bytes)).expect("writes");
            metas.push(meta);
        }
    }
    panic!("written; state these in the tests: {metas:#?}");
}
