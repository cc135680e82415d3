//! Tests of value files by themselves: what is written is read, what is wrong is found, and who holds a file keeps it.

use std::sync::Arc;

use super::*;
use crate::cache::BlockCache;
use crate::dice::Dice;
use crate::env::{Fault, FaultyFs, FileSystem, MemFs, Operation, ReadMode};
use crate::error::Result;
use crate::iter::Cursor;
use crate::table::values::inspect::inspect_values;
use crate::table::values::{Reader, ValueFile, ValueFiles};

/// Some values, of which every other one shrinks.
fn values(count: usize) -> Vec<Vec<u8>> {
    let mut dice = Dice(count as u64);
    let bytes = |n: usize| if n.is_multiple_of(17) { 70_000 } else { n * 37 % 1500 };
    let value = |n| (0..bytes(n)).map(|_| if n % 2 == 0 { 7 } else { dice.below(256) as u8 }).collect();
    (0..count).map(value).collect()
}

fn store() -> Arc<MemFs> {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new(DIR)).unwrap();
    fs
}

/// A file of these values: what it is called, and where they are.
fn write(
    fs: &dyn FileSystem,
    id: u64,
    values: &[Vec<u8>],
    compression: Compression,
) -> Result<(ValueUse, Vec<ValueRef>)> {
    let path = Path::new(DIR).join(temporary_name(TableId(id)));
    let mut writer = ValueWriter::new(fs.create(&path)?, TableId(id), compression)?;
    let refs: Vec<ValueRef> = values.iter().map(|value| writer.add(value)).collect::<Result<_>>()?;
    let bytes = writer.bytes();
    let written = writer.finish()?;
    assert_eq!((bytes, written.records), (written.file_bytes, 0));
    fs.rename(&path, &Path::new(DIR).join(written.file_name()))?;
    let bytes = refs.iter().map(ValueRef::record_bytes).sum();
    let used = ValueUse { records: refs.len() as u64, bytes, ..written };
    assert_eq!(used.records_bytes(), bytes);
    Ok((used, refs))
}

fn open(shelf: &Shelf, used: &ValueUse) -> Arc<ValueFile> {
    shelf.values.join(&[*used])[0].clone()
}

fn check_file(fs: &MemFs, used: &ValueUse) -> TableCheck {
    let path = Path::new(DIR).join(used.file_name());
    verify_values(fs, &path, used.file, used.file_bytes, used.hash, &mut |_| {})
}

#[test]
fn what_is_written_is_read_alone_side_by_side_and_through_windows() {
    for compression in [Compression::None, Compression::Lz4] {
        let (fs, values) = (store(), values(200));
        let (used, refs) = write(&*fs, 5, &values, compression).unwrap();
        assert_eq!(used.file_bytes < 600_000, compression == Compression::Lz4, "{}", used.file_bytes);
        check_file(&fs, &used).sound().unwrap();
        let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(1 << 20)));
        let file = open(&shelf, &used);
        let of = |bytes| ValueWindows::new(&shelf, bytes, 1);
        for (mut windows, bytes_max) in [(of(100 << 10), 96 << 10), (of(8 << 20), 128 << 10), (of(0), 0)] {
            assert_eq!(windows.bytes_max(), bytes_max);
            for (value, at) in values.iter().zip(&refs) {
                assert_eq!(ValueRef::decode(&at.encode()), Ok(*at));
                assert_eq!(*windows.load(at).unwrap(), **value);
            }
            assert_eq!(windows.memory_bytes(), bytes_max);
        }
        for (value, at) in values.iter().zip(&refs) {
            assert_eq!(*file.read(&shelf, at, Reader::Get).unwrap(), **value);
        }
        // Some of them are in the cache now.
        let mut windows = of(1 << 20);
        for (value, at) in values.iter().zip(&refs) {
            assert_eq!(*windows.load(at).unwrap(), **value);
        }
    }
}

/// A device that cannot read a part of the file: what lies about it is read one by one, and no more is asked for again.
#[test]
fn a_window_that_cannot_be_read_fails_nobody() {
    let (fs, values) = (store(), values(200));
    let (used, refs) = write(&*fs, 5, &values, Compression::None).unwrap();
    let faulty = FaultyFs::new(fs);
    let shelf = Shelf::new(faulty.clone(), Arc::new(BlockCache::new(0)));
    let _held = open(&shelf, &used);
    let mut windows = ValueWindows::new(&shelf, 32 << 10, 1);
    let mut reads = |at: &ValueRef, value: &[u8]| {
        let before = faulty.calls();
        assert_eq!(*windows.load(at).unwrap(), *value);
        faulty.calls() - before
    };
    // The first look opens the file, and asks for a window; then the value.
    let mut is_first = true;
    faulty.fail_when(move |call| {
        let fails = call.operation == Operation::Read && std::mem::take(&mut is_first);
        fails.then_some(Fault::Error(std::io::ErrorKind::Other))
    });
    assert!(reads(&refs[1], &values[1]) >= 2);
    let beyond = refs[1].place.offset + (32 << 10);
    let mut windowed = 0;
    for (at, value) in refs.iter().zip(&values).skip(2) {
        let calls = reads(at, value);
        match at.place.offset < beyond {
            true => assert_eq!(calls, 1, "alone"),
            false => windowed += u64::from(calls == 0),
        }
    }
    assert!(windowed > 50, "behind it windows are read: {windowed}");
    assert_eq!(faulty.injected(), 1);
}

/// Whoever collects is to leave it alone: else its tables would be merged for it again and again.
#[test]
fn a_file_that_a_merge_finds_damaged_or_gone_is_marked() {
    let (fs, values) = (store(), values(20));
    for (id, bytes) in [(1, 0), (2, 64 << 10), (3, 0), (4, 64 << 10)] {
        let (used, refs) = write(&*fs, id, &values, Compression::None).unwrap();
        let path = Path::new(DIR).join(used.file_name());
        let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(0)));
        let _held = open(&shelf, &used);
        match id < 3 {
            true => fs.remove(&path).unwrap(),
            false => fs.damage(&path, refs[7].place.offset + 9, 0x40).unwrap(),
        }
        let mut windows = ValueWindows::new(&shelf, bytes, 1);
        assert!(!shelf.is_damaged(used.file));
        assert!(windows.load(&refs[7]).is_err_and(|error| error.is_corruption()));
        assert!(shelf.is_damaged(used.file), "{id}");
    }
}

/// A table refers to values in two files; scans from anywhere give them out, and hold what they may.
#[test]
fn a_scan_that_reads_ahead_gives_out_what_each_entry_has() {
    for reads in [ReadMode::Buffered, ReadMode::Direct] {
        let (fs, values) = (store(), values(300));
        let mut uses = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        for (n, half) in values.chunks(150).enumerate() {
            let (used, refs) = write(&*fs, 10 + n as u64, half, Compression::None).unwrap();
            uses.push(used);
            let of_half = |(at, value): (usize, &ValueRef)| {
                (format!("key{:04}", 2 * at + n).into_bytes(), 7, Kind::Apart, value.encode())
            };
            rows.extend(refs.iter().enumerate().map(of_half));
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let path = Path::new(DIR).join(temporary_name(TableId(20)));
        let options = TableOptions { block_bytes: 4096, ..options() };
        let mut writer =
            TableWriter::new(fs.create(&path).unwrap(), path.clone(), TableId(20), options.clone());
        for (key, lsn, kind, reference) in &rows {
            writer.add(key, Lsn(*lsn), *kind, reference).unwrap();
        }
        let (mut meta, _) = writer.finish().unwrap();
        let all: usize = values.iter().map(|value| value.len() + 7).sum();
        assert_eq!((meta.entries, meta.raw_bytes), (300, all as u64));
        for (found, used) in meta.values.iter_mut().zip(&uses) {
            assert_eq!((found.file, found.records, found.bytes), (used.file, used.records, used.bytes));
            *found = *used;
        }
        fs.rename(&path, &Path::new(DIR).join(file_name(meta.id, meta.content_hash))).unwrap();
        let shelf = Shelf::bounded(fs.clone(), reads, Path::new(DIR), 1 << 20, 100);
        let table = TableHandle::new(&shelf, DIR.into(), meta, options);
        table.verify(&mut |_| {}).sound().unwrap();
        let wanted = |at: usize| &values[at / 2 + 150 * (at % 2)];
        let mut dice = Dice(3);
        for _ in 0..40 {
            let start = dice.below(300) as usize;
            let mut cursor = table.cursor(CursorOptions::default());
            cursor.seek(format!("key{start:04}").as_bytes(), Lsn::MAX).unwrap();
            for (at, row) in rows.iter().enumerate().skip(start).take(dice.below(200) as usize) {
                assert!(cursor.valid(), "{at} from {start}");
                assert_eq!(cursor.kind(), Kind::Apart);
                assert_eq!(cursor.value(), row.3, "what the table holds, until it is asked for more");
                // Not every value is.
                if dice.below(4) > 0 {
                    cursor.load_value().unwrap();
                    assert_eq!(cursor.value(), &wanted(at)[..], "{at} from {start}");
                }
                cursor.next().unwrap();
            }
        }
        let hasher = KeyHasher::new(11);
        for at in 0..300 {
            let key = format!("key{at:04}").into_bytes();
            let found = table
                .get(&key, hasher.hash(&key), Lsn::MAX, &mut Verdicts::default(), None)
                .unwrap()
                .unwrap();
            assert_eq!((found.kind, &found.value), (Kind::Put, wanted(at)));
        }
    }
}

#[test]
fn every_damaged_byte_is_found_and_malformed_references_are_errors() {
    let (fs, values) = (store(), values(12));
    let (used, refs) = write(&*fs, 5, &values, Compression::Lz4).unwrap();
    let path = Path::new(DIR).join(used.file_name());
    let good = fs.contents(&path).unwrap();
    for at in (0..good.len()).filter(|at| *at < 600 || at.is_multiple_of(211)) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs.set_contents(&path, &bad).unwrap();
        assert!(!check_file(&fs, &used).problems.is_empty(), "byte {at}");
        let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(1 << 20)));
        let file = open(&shelf, &used);
        for (value, reference) in values.iter().zip(&refs) {
            match file.read(&shelf, reference, Reader::Get) {
                Ok(found) => assert_eq!(*found, **value, "byte {at}"),
                Err(error) => assert!(error.is_corruption(), "{error}"),
            }
        }
    }
    for length in 0..good.len().min(900) {
        fs.set_contents(&path, &good[..length]).unwrap();
        assert!(!check_file(&fs, &used).problems.is_empty(), "cut to {length}");
        let alone = verify_values(&*fs, &path, used.file, length as u64, used.hash, &mut |_| {});
        assert!(!alone.problems.is_empty(), "{length}");
    }
    fs.set_contents(&path, &good).unwrap();
    let shelf = Shelf::new(fs.clone(), Arc::new(BlockCache::new(1 << 20)));
    let _held = open(&shelf, &used);
    let mut dice = Dice(1);
    let sound = refs[3].encode();
    for _ in 0..20_000 {
        let mut bytes = sound.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        match dice.below(3) {
            0 => bytes.truncate(at),
            1 => bytes[at] = dice.below(256) as u8,
            _ => bytes.insert(at, dice.below(256) as u8 | 0x80),
        }
        let Ok(reference) = ValueRef::decode(&bytes) else { continue };
        let _ = reference.record_bytes();
        for windows_bytes in [0, 1 << 20] {
            match ValueWindows::new(&shelf, windows_bytes, 1).load(&reference) {
                Ok(_) => assert!(refs.iter().any(|known| known.place == reference.place), "{reference:?}"),
                Err(error) => assert!(error.is_corruption(), "{error}"),
            }
        }
    }
}

#[test]
fn a_file_alone_tells_its_records_and_what_is_wrong_with_them() {
    let (fs, values) = (store(), values(30));
    let (used, refs) = write(&*fs, 5, &values, Compression::Lz4).unwrap();
    let path = Path::new(DIR).join(used.file_name());
    let inspect = |path: &Path| {
        let mut records = Vec::new();
        let report = inspect_values(&*fs, path, &mut |record| records.push(record.clone())).unwrap();
        (report, records)
    };
    let (report, records) = inspect(&path);
    assert_eq!((report.problems.len(), report.id, report.records), (0, 5, 30));
    assert_eq!(report.value_bytes, values.iter().map(|value| value.len() as u64).sum::<u64>());
    for (record, (value, at)) in records.iter().zip(values.iter().zip(&refs)) {
        assert_eq!((record.offset, record.bytes), (at.record_offset(), at.record_bytes()));
        assert_eq!(record.value_bytes, Some(value.len() as u64));
    }
    let mut bad = fs.contents(&path).unwrap();
    bad[refs[7].record_offset() as usize + 9] ^= 1;
    fs.set_contents(&path, &bad).unwrap();
    let (report, records) = inspect(&path);
    assert_eq!((report.problems.len(), report.records), (1, 30), "{report:?}");
    assert_eq!(records.iter().position(|record| record.value_bytes.is_none()), Some(7));
    for length in 0..used.file_bytes.min(300) {
        fs.set_contents(&path, &bad[..length as usize]).unwrap();
        assert!(!inspect(&path).0.problems.is_empty(), "{length}");
    }
    let other = Path::new(DIR).join("00000006-0000000000000000.val");
    write(&*fs, 5, &values, Compression::Lz4).unwrap();
    fs.rename(&path, &other).unwrap();
    assert!(inspect(&other).0.problems[0].what.contains(&used.file_name()), "another name");
}

#[test]
fn a_file_is_there_as_long_as_somebody_holds_it() {
    let fs = store();
    let files = ValueFiles::new(Path::new(DIR), 2);
    let uses: Vec<ValueUse> =
        (1..=5).map(|id| write(&*fs, id, &values(3), Compression::None).unwrap().0).collect();
    let garbage = |is_closed| {
        let mut ids: Vec<u64> = files.take_garbage(is_closed).iter().map(|file| file.id().0).collect();
        ids.sort_unstable();
        ids
    };
    let first = files.join(&uses[..3]);
    let second = files.join(&uses[2..]);
    assert!(Arc::ptr_eq(&first[2], &second[0]), "one for all");
    // The first leaves its level, and is read still.
    files.leave(&first);
    assert_eq!(garbage(false), []);
    files.let_go(&first);
    assert_eq!(garbage(false), [1, 2], "the second refers to the third");
    files.leave(&second);
    assert_eq!(garbage(false), []);
    assert_eq!(garbage(true), [3, 4, 5], "of a closed store, held or not");
    // A table of a store that is closed never left: its files stay.
    let third = files.join(&uses[..1]);
    files.let_go(&third);
    assert_eq!((garbage(false), garbage(true)), (vec![], vec![]));
}

#[test]
fn no_more_files_are_open_than_may_be() {
    let fs = store();
    let shelf = Shelf::bounded(fs.clone(), ReadMode::Buffered, Path::new(DIR), 1 << 20, 4);
    // Too long for the cache.
    let of = |id| write(&*fs, id, &[vec![id as u8; 10_000]], Compression::None).unwrap();
    let files: Vec<_> = (1..=3).map(of).map(|(used, refs)| (open(&shelf, &used), refs[0])).collect();
    let opened = Arc::new(AtomicU64::new(0));
    let counted = opened.clone();
    fs.set_hook(Some(Box::new(move |call| {
        counted.fetch_add(u64::from(call.operation == Operation::Open), Ordering::Relaxed);
    })));
    let read = |which: &[usize]| {
        let before = opened.load(Ordering::Relaxed);
        for at in which {
            let (file, value) = &files[*at];
            let wanted = vec![*at as u8 + 1; 10_000];
            assert_eq!(file.read(&shelf, value, Reader::Get).unwrap().to_vec(), wanted);
        }
        opened.load(Ordering::Relaxed) - before
    };
    assert_eq!(read(&[0, 1, 0, 1, 0, 1]), 2);
    assert_eq!(read(&[2, 1, 2, 1]), 1, "the first goes");
    assert_eq!(read(&[0, 2, 0, 2]), 1);
    assert_eq!(read(&[1, 2, 0]), 3);
    fs.set_hook(None);
}
