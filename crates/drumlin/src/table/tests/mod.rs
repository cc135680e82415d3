//! Tests of tables as a whole, and what they share: a maker of tables and a model to hold them against.

mod cluster;
mod damage;
mod fixture;
mod handle;
mod hashed;
mod inspect;
mod model;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::BlockCache;
use crate::dice::Dice;
use crate::env::{Call, FileSystem, MemFs, Operation};
use crate::error::Result;
use crate::iter::Tombstones;
use crate::key::{KeyForm, KeyHash, KeyHasher, Kind, Lsn, bytewise};
use crate::options::Compression;
use crate::table::properties::Properties;
use crate::table::resident::Resident;
use crate::table::*;

const DIR: &str = "/store";

/// One version: key, LSN, kind, value.
type Row = (Vec<u8>, u64, Kind, Vec<u8>);

fn options() -> TableOptions {
    TableOptions {
        comparator: bytewise(),
        form: KeyForm::Bare,
        hashed: false,
        records_percent: None,
        hasher: KeyHasher::new(11),
        compression: Compression::Lz4,
        block_bytes: 512,
        filter_bits_per_key: 10.0,
        grid: None,
        index_root_bytes: TableOptions::INDEX_ROOT_BYTES,
        index_block_bytes: TableOptions::INDEX_BLOCK_BYTES,
    }
}

/// The same for hashed tables.
fn hashed_options() -> TableOptions {
    let form = KeyForm::Placed(KeyHasher::new(11).placer(KeyHash::Sip));
    TableOptions { form, hashed: true, hasher: KeyHasher::new(11).of_places(), ..options() }
}

/// Rows with the keys that a table of these options has, in order.
fn stored(options: &TableOptions, mut rows: Vec<Row>) -> Vec<Row> {
    rows.iter_mut().for_each(|row| row.0 = options.form.to_stored(&row.0));
    rows.sort_by(|a, b| options.comparator.compare(&a.0, &b.0).then(b.1.cmp(&a.1)));
    rows
}

fn row(key: &str, lsn: u64, value: Option<&str>) -> Row {
    let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
    (key.into(), lsn, kind, value.unwrap_or_default().into())
}

fn fs() -> Arc<MemFs> {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new(DIR)).expect("a directory can be made");
    fs
}

/// Counts the reads of a file system.
fn counted(fs: &Arc<MemFs>) -> Arc<AtomicU64> {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    fs.set_hook(Some(Box::new(move |call: &Call<'_>| {
        counted.fetch_add(u64::from(call.operation == Operation::Read), Ordering::Relaxed);
    })));
    reads
}

/// Writes a table and gives it its final name.
fn write(
    fs: &Arc<MemFs>,
    id: u64,
    options: &TableOptions,
    rows: &[Row],
    tombstones: Tombstones,
) -> Result<TableMeta> {
    write_with(fs, id, options, rows, tombstones, Spare::default()).map(|(meta, _)| meta)
}

/// The same with the memory of a writer that is done.
fn write_with(
    fs: &Arc<MemFs>,
    id: u64,
    options: &TableOptions,
    rows: &[Row],
    tombstones: Tombstones,
    spare: Spare,
) -> Result<(TableMeta, Spare)> {
    let path = Path::new(DIR).join(temporary_name(TableId(id)));
    let writer = TableWriter::new(fs.create(&path)?, path.clone(), TableId(id), options.clone());
    let mut writer = writer.with_spare(spare);
    for (key, lsn, kind, value) in rows {
        writer.add(key, Lsn(*lsn), *kind, value)?;
    }
    writer.set_tombstones(tombstones);
    let (meta, spare) = writer.finish()?;
    fs.rename(&path, &Path::new(DIR).join(file_name(meta.id, meta.content_hash)))?;
    Ok((meta, spare))
}

fn open(fs: &Arc<MemFs>, meta: &TableMeta, options: &TableOptions, cache_bytes: usize) -> Arc<TableHandle> {
    let cache = Arc::new(BlockCache::new(cache_bytes));
    TableHandle::new(&Shelf::new(fs.clone(), cache), PathBuf::from(DIR), meta.clone(), options.clone())
}

/// What the file of a table says of it.
fn properties(table: &TableHandle) -> Properties {
    Resident::own_account(&*table.shelf().fs, table.path()).expect("reads").1
}

fn get(table: &TableHandle, key: &[u8], at: u64) -> Result<Option<Version>> {
    let hash = table.options().hasher.hash(key);
    let known = table.get_cached(key, hash, Lsn(at), &mut Verdicts::default(), &crossbeam_epoch::pin())?;
    let read = table.get(key, hash, Lsn(at), &mut Verdicts::default(), None)?;
    match known {
        Look::Told(known) => assert_eq!(known, read, "what is cached and what is read agree"),
        Look::Left(missed) => {
            let after = table.get(key, hash, Lsn(at), &mut Verdicts::default(), missed)?;
            assert_eq!(after, read, "what is read first and what a search reads agree");
        }
    }
    Ok(read)
}
