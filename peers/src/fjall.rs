//! fjall, an LSM store in Rust.
//!
//! Place: an engine of `setting`.
//!
//! 1. The budget is five memtables and the block cache: it stops writers when four wait for their flush.
//! 2. `Process` hands its journal to the system at each write, `Disk` syncs it, `Memory` leaves it in fjall's own buffer.
//! 3. It does not tell when it owes nothing: settled is when no memtable waits, no merge runs and level 0 is below its limit,
//!    three looks in a row.

use std::path::Path;
use std::time::Duration;

use ::fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PinningPolicy, RestartIntervalPolicy,
};
use ::fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};
use drumlin_bench::args::{Bench, Compress, Survives};
use drumlin_bench::engine::{Change, Engine, Holds, Result, SeeRecord, SeeValue, Traffic};

use crate::setting::{Setting, Terms};
use crate::stripes::Stripes;

/// What the grid varies.
#[derive(Clone, Copy, PartialEq)]
struct Choices {
    memtable: u64,
    /// Indexes and filters of all levels stay in memory.
    pinned: bool,
    hash_index: bool,
    restart: u8,
}

/// An open store.
pub struct Fjall {
    db: Database,
    records: Keyspace,
    survives: Survives,
    words: String,
    stripes: Stripes,
}

/// The active one, and those that may wait.
const MEMTABLES: u64 = 5;
/// What the cache has, however large memtables are to be.
const LEAST_CACHE: u64 = 4 << 20;
/// Tables of level 0 that start a merge.
const LEVEL_0_TABLES: usize = 4;

impl Choices {
    fn words(&self, bench: &Bench) -> String {
        let mut words = format!(
            "up to five memtables of {} MiB, block cache of {} MiB",
            self.memtable >> 20,
            self.cache(bench) >> 20
        );
        if self.pinned {
            words += ", all indexes and filters pinned";
        }
        if self.hash_index {
            words += ", hash index in data blocks";
        }
        if self.restart != 16 {
            words += &format!(", a restart every {} entries", self.restart);
        }
        words
    }

    fn cache(&self, bench: &Bench) -> u64 {
        ((bench.memory as u64) << 20).saturating_sub(MEMTABLES * self.memtable).max(LEAST_CACHE)
    }

    fn keyspace(&self, bench: &Bench) -> KeyspaceCreateOptions {
        let compression = match bench.compression {
            Compress::None => CompressionType::None,
            Compress::Lz4 => CompressionType::Lz4,
        };
        let filter = match bench.bloom_bits {
            0.0 => FilterPolicy::disabled(),
            bits => {
                FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32)))
            }
        };
        let mut options = KeyspaceCreateOptions::default()
            .max_memtable_size(self.memtable)
            .manual_journal_persist(bench.durability != Survives::Process)
            .data_block_compression_policy(CompressionPolicy::all(compression))
            .data_block_size_policy(BlockSizePolicy::all(bench.block_size as u32))
            .data_block_restart_interval_policy(RestartIntervalPolicy::all(self.restart))
            .filter_policy(filter);
        if self.pinned {
            options = options
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_pinning_policy(PinningPolicy::all(true));
        }
        if self.hash_index {
            options = options.data_block_hash_ratio_policy(HashRatioPolicy::all(1.0));
        }
        options
    }
}

impl Fjall {
    fn open(directory: &Path, bench: &Bench, choices: Choices) -> Result<Fjall> {
        let db = Database::builder(directory)
            .cache_size(choices.cache(bench))
            .worker_threads(bench.background.max(1))
            .manual_journal_persist(bench.durability != Survives::Process)
            .open()?;
        let records = db.keyspace("bench", || choices.keyspace(bench))?;
        let words = choices.words(bench);
        Ok(Fjall { db, records, survives: bench.durability, words, stripes: Stripes::default() })
    }

    /// What a write needs behind it.
    fn persist(&self) -> Result<()> {
        if self.survives == Survives::Disk {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.db.outstanding_flushes() == 0
            && self.records.sealed_memtable_count() == 0
            && self.db.active_compactions() == 0
            && self.records.l0_table_count() < LEVEL_0_TABLES
    }
}

/// The grid.
pub fn settings(terms: &Terms) -> Vec<Setting> {
    let memory = (terms.bench.memory as u64) << 20;
    let usual = terms.bench.memtable.map_or((64 << 20).min(memory / 16), |mib| (mib as u64) << 20);
    let plain = Choices { memtable: usual, pinned: false, hash_index: false, restart: 16 };
    let mut grid = vec![
        Choices { pinned: true, ..plain },
        plain,
        Choices { pinned: true, hash_index: true, ..plain },
        Choices { pinned: true, restart: 8, ..plain },
    ];
    if terms.bench.memtable.is_none() {
        grid.push(Choices { memtable: 2 * usual, pinned: true, ..plain });
    }
    let setting = |choices: Choices| {
        let bench = terms.bench.clone();
        Setting::new(choices.words(&terms.bench), move |directory| Fjall::open(directory, &bench, choices))
    };
    grid.into_iter().map(setting).collect()
}

impl Engine for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn settings(&self) -> String {
        format!("{}; updates under striped locks", self.words)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value)?;
        self.persist()
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        let mode = match self.survives {
            Survives::Memory => None,
            Survives::Process => Some(PersistMode::Buffer),
            Survives::Disk => Some(PersistMode::SyncData),
        };
        let mut batch = self.db.batch().durability(mode);
        for (key, value) in records {
            batch.insert(&self.records, key.as_slice(), *value);
        }
        Ok(batch.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.records.remove(key)?;
        self.persist()
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        let found = self.records.get(key)?;
        if let Some(value) = &found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key, see)?);
        }
        Ok(found)
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        let mut seen = 0;
        let mut show = |record: Guard| -> Result<()> {
            let (key, value) = record.into_inner()?;
            see(&key, &value);
            seen += 1;
            Ok(())
        };
        match (reverse, from.is_empty()) {
            (false, _) => self.records.range(from..).take(limit).try_for_each(&mut show)?,
            (true, true) => self.records.iter().rev().take(limit).try_for_each(&mut show)?,
            (true, false) => self.records.range(..=from).rev().take(limit).try_for_each(&mut show)?,
        }
        Ok(seen)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        let _locked = self.stripes.lock(key);
        let old = self.records.get(key)?;
        self.put(key, &change(old.as_deref()))
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _locked = self.stripes.lock(key);
        let absent = self.records.get(key)?.is_none();
        if absent {
            self.put(key, value)?;
        }
        Ok(absent)
    }

    fn settle(&self) -> Result<()> {
        let mut quiet = 0;
        while quiet < 3 {
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn debt_bytes(&self) -> Option<u64> {
        None
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }

    fn holds(&self) -> Holds {
        Holds {
            tables: Some(self.records.table_count() as u64),
            memtable_bytes: Some(self.db.write_buffer_size()),
            ..Holds::default()
        }
    }
}
