//! redb, a copy-on-write B-tree in Rust.
//!
//! Place: an engine of `setting`.
//!
//! 1. The budget is its cache. Nothing is compressed, and it has neither filters nor background threads.
//! 2. Every write is a transaction, and there is one writer at a time. `Disk` commits at once (`Immediate`). It has nothing
//!    between that and `Durability::None`, by which a dead process loses what came since the last commit that was
//!    immediate: `Process` and `Memory` get that, and its settings say so. Its writes at `Process` are promised less than
//!    everybody else's.
//! 3. To settle commits what was not, which is work that others do along the way.

use std::path::Path;

use ::redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};
use drumlin_bench::args::{Bench, Survives};
use drumlin_bench::engine::{Change, Engine, Result, SeeRecord, SeeValue, Traffic};

use crate::setting::{Setting, Terms};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

/// An open store.
pub struct Redb {
    db: Database,
    survives: Survives,
}

impl Redb {
    fn open(directory: &Path, bench: &Bench) -> Result<Redb> {
        let db = Builder::new().set_cache_size(bench.memory << 20).create(directory.join("bench.redb"))?;
        let redb = Redb { db, survives: bench.durability };
        redb.write(|_| Ok(()))?;
        Ok(redb)
    }

    fn write<T>(&self, write: impl FnOnce(&mut Table<'_, &[u8], &[u8]>) -> Result<T>) -> Result<T> {
        self.write_with(
            match self.survives {
                Survives::Disk => Durability::Immediate,
                Survives::Process | Survives::Memory => Durability::None,
            },
            write,
        )
    }

    fn write_with<T>(
        &self,
        durability: Durability,
        write: impl FnOnce(&mut Table<'_, &[u8], &[u8]>) -> Result<T>,
    ) -> Result<T> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(durability)?;
        let written = write(&mut transaction.open_table(RECORDS)?)?;
        transaction.commit()?;
        Ok(written)
    }
}

/// It has one.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let bench = terms.bench.clone();
    vec![Setting::new(words(bench.durability), move |directory| Redb::open(directory, &bench))]
}

fn words(survives: Survives) -> &'static str {
    match survives {
        Survives::Disk => "no compression, Durability::Immediate",
        Survives::Process => {
            "no compression, Durability::None: a dead process loses writes, less is promised than asked for"
        }
        Survives::Memory => "no compression, Durability::None",
    }
}

impl Engine for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn settings(&self) -> String {
        words(self.survives).into()
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|table| Ok(table.insert(key, value).map(drop)?))
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_with(Durability::Immediate, |table| Ok(table.insert(key, value).map(drop)?))
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        self.write(|table| {
            for (key, value) in records {
                table.insert(key.as_slice(), value)?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(|table| Ok(table.remove(key).map(drop)?))
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        let found = self.db.begin_read()?.open_table(RECORDS)?.get(key)?;
        if let Some(value) = &found {
            see(value.value());
        }
        Ok(found.is_some())
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        let table = self.db.begin_read()?.open_table(RECORDS)?;
        let mut found = 0;
        for key in keys {
            if let Some(value) = table.get(key.as_slice())? {
                see(value.value());
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        let table = self.db.begin_read()?.open_table(RECORDS)?;
        let mut seen = 0;
        let mut show = |record: Result<_, ::redb::StorageError>| -> Result<()> {
            let (key, value): (::redb::AccessGuard<'_, &[u8]>, ::redb::AccessGuard<'_, &[u8]>) = record?;
            see(key.value(), value.value());
            seen += 1;
            Ok(())
        };
        match (reverse, from.is_empty()) {
            (false, _) => table.range(from..)?.take(limit).try_for_each(&mut show)?,
            (true, true) => table.iter()?.rev().take(limit).try_for_each(&mut show)?,
            (true, false) => table.range(..=from)?.rev().take(limit).try_for_each(&mut show)?,
        }
        Ok(seen)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.write(|table| {
            let new = change(table.get(key)?.as_ref().map(|old| old.value()));
            Ok(table.insert(key, new.as_slice()).map(drop)?)
        })
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.write(|table| {
            let absent = table.get(key)?.is_none();
            if absent {
                table.insert(key, value)?;
            }
            Ok(absent)
        })
    }

    fn settle(&self) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        Ok(transaction.commit()?)
    }

    fn debt_bytes(&self) -> Option<u64> {
        None
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
