//! LMDB, a memory-mapped B-tree in C, through heed.
//!
//! Place: an engine of `setting`.
//!
//! 1. It has no memory of its own: its map is the page cache, beyond any budget. Nothing is compressed, and it has neither
//!    blocks nor filters nor background threads.
//! 2. Every write is a transaction, and there is one writer at a time. `Disk` syncs each. `Process` leaves that out
//!    (`MDB_NOSYNC`): what was committed is in the page cache, which outlives the process, but a power loss may cost the
//!    whole store, not only what came last as with a log. It has nothing weaker: `Memory` gets `Process`.
//! 3. With a writable map (`MDB_WRITEMAP`) a commit copies nothing, and a stray pointer of the program may spoil the store.

use std::ops::Bound;
use std::path::Path;

use ::heed::types::Bytes;
use ::heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn};
use drumlin_bench::args::{Bench, Survives};
use drumlin_bench::engine::{Change, Engine, Result, SeeRecord, SeeValue, Traffic};

use crate::setting::{Setting, Terms};

/// An open store.
pub struct Lmdb {
    env: Env,
    records: Database<Bytes, Bytes>,
    words: String,
}

/// Address space for a map that is only read: more than any bench fills.
const MAP_BYTES: u64 = 64 << 30;

/// Bytes of the map. A writable one is a file of that size, with holes, and whoever copies it copies them.
fn map_bytes(bench: &Bench, writable_map: bool) -> usize {
    let records = bench.num * (bench.key_size + bench.value_size + 64) as u64;
    let bytes = if writable_map { (1 << 30) + records * 8 } else { MAP_BYTES };
    bytes.next_multiple_of(2 << 20) as usize
}

fn flags(bench: &Bench, writable_map: bool, read_ahead: bool) -> EnvFlags {
    let mut flags = EnvFlags::NO_MEM_INIT;
    flags.set(EnvFlags::NO_SYNC, bench.durability != Survives::Disk);
    flags.set(EnvFlags::WRITE_MAP, writable_map);
    flags.set(EnvFlags::NO_READ_AHEAD, !read_ahead);
    flags
}

fn words(bench: &Bench, writable_map: bool, read_ahead: bool) -> String {
    let mut words = String::from("memory is the page cache, no compression");
    if bench.durability != Survives::Disk {
        words += ", MDB_NOSYNC";
    }
    if writable_map {
        words += ", MDB_WRITEMAP";
    }
    if !read_ahead {
        words += ", MDB_NORDAHEAD";
    }
    words
}

impl Lmdb {
    /// Opens the store in `directory`, or makes it.
    pub fn open(directory: &Path, bench: &Bench, writable_map: bool, read_ahead: bool) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes(bench, writable_map)).max_readers(1024);
        // SAFETY: nobody else writes to the files of a store that this program has made; leaving syncs out may cost the store in a
        // power loss, which this program does not have. tests/engines.rs opens every setting.
        let env = unsafe { options.flags(flags(bench, writable_map, read_ahead)).open(directory)? };
        let mut transaction = env.write_txn()?;
        let records = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, records, words: words(bench, writable_map, read_ahead) })
    }

    /// Writes by one transaction.
    fn write<T>(&self, write: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<T>) -> Result<T> {
        let mut transaction = self.env.write_txn()?;
        let written = write(&mut transaction)?;
        transaction.commit()?;
        Ok(written)
    }

    /// Reads in one transaction.
    fn read<T>(&self, read: impl FnOnce(&RoTxn<'_>) -> Result<T>) -> Result<T> {
        let transaction = self.env.read_txn()?;
        read(&transaction)
    }
}

/// The grid: how a commit reaches the page cache, and whether the system reads ahead.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let setting = |(writable_map, read_ahead): (bool, bool)| {
        let bench = terms.bench.clone();
        let open = move |directory: &Path| Lmdb::open(directory, &bench, writable_map, read_ahead);
        Setting::new(words(&terms.bench, writable_map, read_ahead), open)
    };
    [(true, true), (false, true), (true, false)].into_iter().map(setting).collect()
}

impl Engine for Lmdb {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn settings(&self) -> String {
        self.words.clone()
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|transaction| self.records.put(transaction, key, value))
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)?;
        Ok(self.env.force_sync()?)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        self.write(|transaction| {
            records.iter().try_for_each(|(key, value)| self.records.put(transaction, key, value))
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(|transaction| self.records.delete(transaction, key)).map(drop)
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        self.read(|transaction| {
            let found = self.records.get(transaction, key)?;
            Ok(found.map(see).is_some())
        })
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        self.read(|transaction| {
            let mut found = 0;
            for key in keys {
                found += usize::from(self.records.get(transaction, key)?.map(&mut *see).is_some());
            }
            Ok(found)
        })
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        self.read(|transaction| {
            let mut seen = 0;
            let mut show = |record: heed::Result<(&[u8], &[u8])>| -> Result<()> {
                let (key, value) = record?;
                see(key, value);
                seen += 1;
                Ok(())
            };
            match (reverse, from.is_empty()) {
                (false, true) => self.records.iter(transaction)?.take(limit).try_for_each(&mut show)?,
                (false, false) => {
                    self.records
                        .range(transaction, &(Bound::Included(from), Bound::Unbounded))?
                        .take(limit)
                        .try_for_each(&mut show)?;
                }
                (true, true) => self.records.rev_iter(transaction)?.take(limit).try_for_each(&mut show)?,
                (true, false) => {
                    self.records
                        .rev_range(transaction, &(Bound::Unbounded, Bound::Included(from)))?
                        .take(limit)
                        .try_for_each(&mut show)?;
                }
            }
            Ok(seen)
        })
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.write(|transaction| {
            let new = change(self.records.get(transaction, key)?);
            self.records.put(transaction, key, &new)
        })
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(|transaction| Ok(self.records.get_or_put(transaction, key, value)?.is_none()))
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn debt_bytes(&self) -> Option<u64> {
        None
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
