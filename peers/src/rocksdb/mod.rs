//! RocksDB, through its Rust binding.
//!
//! Place: an engine of `setting`, twice: plain with striped locks around updates, and with optimistic transactions.
//! `options` has the grid's choices, `base` the two faces, `iterators` those that are kept.
//!
//! 1. Values are looked at where they lie (pinned), and options of calls are made once, as its documentation advises.
//! 2. `Process` writes the log into the page cache without a sync, `Disk` syncs it, `Memory` has none.
//! 3. Settled is what `WaitForCompact` waits for; the active memtable stays where it is, as Drumlin's does, unless the setting
//!    says otherwise.

pub mod base;
pub mod iterators;
pub mod options;

use std::path::Path;

use ::rocksdb::statistics::Ticker;
use ::rocksdb::{
    DB, DBRawIteratorWithThreadMode, OptimisticTransactionDB, Options, ReadOptions, WaitForCompactOptions,
    WriteOptions,
};
use drumlin_bench::args::{Bench, Survives};
use drumlin_bench::engine::{Change, Engine, Holds, Result, SeeRecord, SeeValue, Traffic};

use crate::setting::{Setting, Terms};
use crate::stripes::Stripes;
use base::Base;
use iterators::Iterators;
use options::{Choices, Writes};

/// An open store.
pub struct Rocks<D: Base> {
    // Goes before the store: iterators point into it.
    iterators: Iterators<D>,
    db: D,
    choices: Choices,
    /// Kept for its statistics.
    options: Options,
    counts: bool,
    reads: ReadOptions,
    writes: WriteOptions,
    synced: WriteOptions,
    stripes: Stripes,
}

impl<D: Base> Rocks<D> {
    /// Opens the store in `directory`, or makes it.
    pub fn open(directory: &Path, terms: &Terms, choices: Choices) -> Result<Rocks<D>> {
        let (bench, counts) = (&terms.bench, terms.traffic);
        let options = choices.options(bench, counts);
        Ok(Rocks {
            iterators: Iterators::default(),
            db: D::open(&options, directory)?,
            choices,
            options,
            counts,
            reads: choices.reads(),
            writes: options::writes(bench.durability),
            synced: options::writes(Survives::Disk),
            stripes: Stripes::default(),
        })
    }
}

/// Levels there are if nobody asks for others.
const LEVELS: usize = 7;

/// The grid: what RocksDB does best with differs from workload to workload.
pub fn grid(bench: &Bench) -> Vec<Choices> {
    let half = (bench.memory << 20) / 2;
    let usual = bench.memtable.map_or((64 << 20).min(half / 2), |mib| mib << 20);
    let plain = Choices::plain(usual);
    let kept = Choices { clock_cache: true, kept_iterators: true, ..plain };
    let settled = Choices { flushed: true, ..kept };
    let mapped = Choices { mapped: true, verified: false, ..settled };
    let mut grid = vec![
        kept,
        plain,
        Choices { hash_index: true, memtable_filter: true, ..kept },
        Choices { writes: Writes::Led, ..kept },
        Choices { writes: Writes::Pipelined, ..kept },
        Choices { writes: Writes::Unordered, ..kept },
        settled,
        Choices { hash_index: true, ..settled },
        Choices { level_0: 1, restart: 8, ..settled },
        mapped,
        Choices { level_0: 1, ..mapped },
    ];
    // As many memtables as fill half of the memory, which is Drumlin's share for them; merges in parts, as Drumlin's.
    let memtables = (half / usual).max(2);
    let parts = bench.background.max(1);
    let many = Choices { memtables, parts, ..kept };
    grid.extend([many, Choices { writes: Writes::Led, ..many }, Choices { parts, ..kept }]);
    // The memory component is what is compared if its size is given.
    if bench.memtable.is_none() {
        let sizes = [256 << 20, half].into_iter().filter(|size| *size <= half && *size > usual);
        grid.extend(sizes.map(|memtable| Choices { memtable, ..kept }));
    }
    let mut seen: Vec<Choices> = Vec::new();
    grid.retain(|choices| {
        let is_new = !seen.contains(choices);
        seen.push(*choices);
        is_new
    });
    grid
}

fn of<D: Base>(terms: &Terms, grid: Vec<Choices>) -> Vec<Setting> {
    let setting = |choices: Choices| {
        let terms = terms.clone();
        Setting::new(choices.words(), move |directory| Rocks::<D>::open(directory, &terms, choices))
    };
    grid.into_iter().map(setting).collect()
}

/// Plain, with striped locks.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    of::<DB>(terms, grid(&terms.bench))
}

/// With optimistic transactions, which unordered writes exclude.
pub fn transaction_settings(terms: &Terms) -> Vec<Setting> {
    let mut grid = grid(&terms.bench);
    grid.retain(|choices| choices.writes != Writes::Unordered);
    of::<OptimisticTransactionDB>(terms, grid)
}

/// Shows up to `limit` records.
fn walk<D: Base>(
    iterator: &mut DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    limit: usize,
    reverse: bool,
    see: SeeRecord<'_>,
) -> Result<usize> {
    match (reverse, from.is_empty()) {
        (false, _) => iterator.seek(from),
        (true, true) => iterator.seek_to_last(),
        (true, false) => iterator.seek_for_prev(from),
    }
    let mut seen = 0;
    while seen < limit {
        let Some((key, value)) = iterator.item() else {
            iterator.status()?;
            break;
        };
        see(key, value);
        seen += 1;
        if seen < limit {
            if reverse { iterator.prev() } else { iterator.next() }
        }
    }
    Ok(seen)
}

impl<D: Base> Engine for Rocks<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn settings(&self) -> String {
        format!("{}; {}", self.choices.words(), D::CHANGES)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value, &self.writes)?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value, &self.synced)?)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        Ok(self.db.put_many(records, &self.writes)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key, &self.writes)?)
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        let found = self.db.get(key, &self.reads)?;
        if let Some(value) = &found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        let mut found = 0;
        for value in self.db.get_many(keys, &self.reads) {
            if let Some(value) = value? {
                see(&value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        let make = || self.db.iterator(self.choices.reads());
        if !self.choices.kept_iterators {
            return walk(&mut make(), from, limit, reverse, see);
        }
        // SAFETY: the field `iterators` stands before `db`, and is dropped before it; tests/engines.rs closes such stores.
        unsafe { self.iterators.with(make, |iterator| walk(iterator, from, limit, reverse, see))? }
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        let replace = |old: Option<&[u8]>| Some(change(old));
        Ok(self.db.replace(&self.stripes, key, &replace, &self.reads, &self.writes)?)
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let absent = std::cell::Cell::new(false);
        let replace = |old: Option<&[u8]>| {
            absent.set(old.is_none());
            old.is_none().then(|| value.to_vec())
        };
        self.db.replace(&self.stripes, key, &replace, &self.reads, &self.writes)?;
        Ok(absent.get())
    }

    fn settle(&self) -> Result<()> {
        let mut with = WaitForCompactOptions::default();
        with.set_flush(self.choices.flushed);
        Ok(self.db.wait(&with)?)
    }

    fn debt_bytes(&self) -> Option<u64> {
        self.db.property("rocksdb.estimate-pending-compaction-bytes")
    }

    fn traffic(&self) -> Option<Traffic> {
        let count = |ticker| self.options.get_ticker_count(ticker);
        self.counts.then(|| {
            let logged = count(Ticker::WalFileBytes);
            Traffic {
                written: logged + count(Ticker::FlushWriteBytes) + count(Ticker::CompactWriteBytes),
                logged,
                read: count(Ticker::LastLevelReadBytes) + count(Ticker::NonLastLevelReadBytes),
                reads: count(Ticker::LastLevelReadCount) + count(Ticker::NonLastLevelReadCount),
            }
        })
    }

    fn holds(&self) -> Holds {
        let tables = |level| self.db.property(&format!("rocksdb.num-files-at-level{level}"));
        Holds {
            tables: (0..LEVELS).map(tables).sum(),
            table_bytes: self.db.property("rocksdb.live-sst-files-size"),
            memtable_bytes: self.db.property("rocksdb.cur-size-all-mem-tables"),
            ..Holds::default()
        }
    }
}
