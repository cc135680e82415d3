//! Drumlin as an engine to be measured.
//!
//! Place: opened by `session`; the peers' workspace opens one, too.
//!
//! 1. What is measured is the public interface, with the options that the report states.
//! 2. Traffic is counted at the file-system seam; what goes into the mapped log is told by the log's own position.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drumlin::env::{Env, ReadMode, RealFs};
use drumlin::{
    Compression, Db, Durability, FilterAllocation, Keyspace, KeyspaceOptions, Layout, LevelInfo, Memory,
    Options, TwoTier, ValueSeparation, WriteOptions,
};

use crate::blocks::Blocks;
use crate::counting::CountingFs;
use crate::engine::{Change, Engine, Error, Holds, Result, SeeRecord, SeeValue, Traffic};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// All its memory.
    pub memory_bytes: usize,
    /// The memory component.
    pub memory: Memory,
    /// The layout of its tables.
    pub layout: Layout,
    /// Tables at level 0 that start a merge.
    pub level0_tables: usize,
    /// The target of level 1, in bytes, and each level's for each byte of the one above.
    pub level1_bytes: u64,
    /// See `level1_bytes`.
    pub level_ratio: u64,
    /// Bytes of one memtable, if not as its share allows.
    pub memtable_bytes: Option<usize>,
    /// Bytes of a segment of the log.
    pub segment_bytes: usize,
    /// What a write survives.
    pub durability: Durability,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Bytes after which a table is cut.
    pub table_bytes: u64,
    /// Long values apart.
    pub value_separation: Option<ValueSeparation>,
    /// Bits of filter for a key.
    pub filter_bits: f64,
    /// How these are shared out among runs.
    pub filter_allocation: FilterAllocation,
    /// Threads for flushes and merges.
    pub background_threads: usize,
    /// Tables are read past the system's page cache.
    pub direct_reads: bool,
    /// All is merged into one run whenever all is to be settled.
    pub compacted: bool,
    /// Memtables are flushed whenever all is to be settled.
    pub flushed: bool,
    /// How memory in two tiers is kept.
    pub two_tier: TwoTier,
    /// Memory is sorted whenever all is to be settled.
    pub sorted: bool,
    /// The store was left by a bench before: another one is refused, and none is made.
    pub must_exist: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let (options, keyspace) = (Options::default(), KeyspaceOptions::default());
        Settings {
            memory_bytes: options.memory_bytes,
            memory: keyspace.memory,
            layout: keyspace.layout,
            level0_tables: keyspace.level0_tables,
            level1_bytes: keyspace.level1_bytes,
            level_ratio: keyspace.level_ratio,
            memtable_bytes: keyspace.memtable_bytes,
            segment_bytes: options.segment_bytes,
            durability: options.durability,
            compression: keyspace.compression,
            block_bytes: keyspace.block_bytes,
            table_bytes: keyspace.table_bytes,
            value_separation: keyspace.value_separation,
            filter_bits: keyspace.filter_bits_per_key,
            filter_allocation: keyspace.filter_allocation,
            background_threads: options.background_threads,
            direct_reads: options.direct_reads,
            compacted: false,
            flushed: false,
            two_tier: options.two_tier,
            sorted: false,
            must_exist: false,
        }
    }
}

impl Settings {
    /// The store's part of them.
    pub fn options(&self) -> Options {
        Options {
            create_if_missing: !self.must_exist,
            memory_bytes: self.memory_bytes,
            segment_bytes: self.segment_bytes,
            durability: self.durability.max(Durability::Process),
            background_threads: self.background_threads,
            direct_reads: self.direct_reads,
            two_tier: self.two_tier,
            ..Options::default()
        }
    }

    /// The keyspace's.
    pub fn keyspace_options(&self) -> KeyspaceOptions {
        KeyspaceOptions {
            memory: self.memory,
            layout: self.layout,
            level0_tables: self.level0_tables,
            level1_bytes: self.level1_bytes,
            level_ratio: self.level_ratio,
            memtable_bytes: self.memtable_bytes,
            compression: self.compression,
            block_bytes: self.block_bytes,
            table_bytes: self.table_bytes,
            value_separation: self.value_separation,
            filter_bits_per_key: self.filter_bits,
            filter_allocation: self.filter_allocation,
            logged: self.durability != Durability::Memory,
            ..KeyspaceOptions::default()
        }
    }

    /// With those of a keyspace that is there: what was asked for changes nothing in it.
    fn of_existing(self, options: &KeyspaceOptions) -> Settings {
        Settings {
            memory: options.memory,
            layout: options.layout,
            level0_tables: options.level0_tables,
            level1_bytes: options.level1_bytes,
            level_ratio: options.level_ratio,
            memtable_bytes: options.memtable_bytes,
            compression: options.compression,
            block_bytes: options.block_bytes,
            table_bytes: options.table_bytes,
            value_separation: options.value_separation,
            filter_bits: options.filter_bits_per_key,
            filter_allocation: options.filter_allocation,
            ..self
        }
    }
}

/// An open store.
pub struct Store {
    db: Db,
    keyspace: Keyspace,
    files: Arc<CountingFs>,
    directory: PathBuf,
    settings: Settings,
}

/// The keyspace that is measured.
const KEYSPACE: &str = "bench";

/// Bytes of log for one step of its position.
const LOG_UNIT: u64 = 8;

impl Store {
    /// Opens the store in `directory`, or makes it.
    pub fn open(directory: &Path, settings: &Settings) -> Result<Store> {
        let files = Arc::new(CountingFs::new(Arc::new(RealFs::new())));
        let db = Db::open_with(Env::with_fs(files.clone()), directory, settings.options())?;
        if settings.must_exist && !db.keyspaces().iter().any(|name| name == KEYSPACE) {
            return Err(Error::from(format!(
                "the store at {} is not one that a bench left",
                directory.display()
            )));
        }
        let keyspace = db.keyspace(KEYSPACE, settings.keyspace_options())?;
        let settings = settings.clone().of_existing(&keyspace.options());
        Ok(Store { db, keyspace, files, directory: directory.into(), settings })
    }

    /// Its figures.
    pub fn stats(&self) -> drumlin::Stats {
        self.db.stats()
    }

    /// Writes what is in memory into tables.
    pub fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    /// Its tables, level by level.
    pub fn levels(&self) -> Result<Vec<LevelInfo>> {
        Ok(self.keyspace.levels()?)
    }

    /// Closes it; an error that its background met comes out here.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }

    fn with(&self) -> WriteOptions {
        WriteOptions { durability: Some(self.settings.durability) }
    }
}

impl Engine for Store {
    fn name(&self) -> &'static str {
        "Drumlin"
    }

    fn settings(&self) -> String {
        let Settings { compression, block_bytes, filter_bits, background_threads, flushed, .. } =
            &self.settings;
        let shared = match self.settings.filter_allocation {
            FilterAllocation::BySize => "",
            FilterAllocation::Uniform => ", the same for all runs",
        };
        let flushed = if *flushed { ", memtables flushed when settled" } else { "" };
        let compacted = if self.settings.compacted { ", merged into one run when settled" } else { "" };
        let reads = if self.settings.direct_reads { ", read past the page cache" } else { "" };
        let layout = match self.settings.layout {
            Layout::Leveled => {
                let Settings { level1_bytes, level_ratio, .. } = &self.settings;
                format!(", level 1 of {level1_bytes} bytes, ratio {level_ratio}")
            }
            layout @ (Layout::Tiered { .. } | Layout::LazyLeveled { .. } | Layout::Trie { .. }) => {
                format!(", {layout}")
            }
        };
        let memory = match self.settings.memory {
            Memory::Sorted => format!(", memory {}", Memory::Sorted),
            memory @ (Memory::TwoTier | Memory::Runs { .. }) => {
                let TwoTier { drain_threads, hash_percent, parts } = self.settings.two_tier;
                let sorted = if self.settings.sorted { ", sorted when settled" } else { "" };
                format!(
                    ", memory {memory} with {hash_percent} % of hash, {drain_threads} drain threads, parts {parts:?}{sorted}"
                )
            }
        };
        format!(
            "blocks of {block_bytes} bytes, {compression:?}, {filter_bits} filter bits a key{shared}, {background_threads} background threads{layout}{memory}{flushed}{compacted}{reads}"
        )
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.put_with(key, value, self.with())?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let synced = WriteOptions { durability: Some(Durability::Disk) };
        Ok(self.keyspace.put_with(key, value, synced)?)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in records {
            batch.put(&self.keyspace, key, value)?;
        }
        Ok(batch.commit_with(self.with())?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.keyspace.delete_with(key, self.with())?)
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        let found = self.keyspace.get(key)?;
        if let Some(value) = &found {
            see(value);
        }
        Ok(found.is_some())
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        let found = self.keyspace.multi_get(keys)?;
        Ok(found.iter().flatten().map(|value| see(value)).count())
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        let mut records = match (reverse, from.is_empty()) {
            (true, true) => self.keyspace.iter()?,
            (true, false) => self.keyspace.range(..=from)?,
            (false, _) => self.keyspace.range(from..)?,
        };
        let mut seen = 0;
        while seen < limit {
            let record = if reverse { records.next_back_ref()? } else { records.next_ref()? };
            let Some((key, value)) = record else { break };
            see(key, value);
            seen += 1;
        }
        Ok(seen)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.keyspace.update(key, |old| Some(change(old)))?;
        Ok(())
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.keyspace.put_if_absent(key, value)?)
    }

    fn settle(&self) -> Result<()> {
        if self.settings.flushed {
            self.db.flush()?;
        }
        if self.settings.compacted {
            self.keyspace.compact()?;
        }
        if self.settings.sorted {
            self.keyspace.settle()?;
        }
        Ok(self.db.wait_for_idle()?)
    }

    fn debt_bytes(&self) -> Option<u64> {
        Some(self.db.stats().debt_bytes)
    }

    fn unsorted(&self) -> Option<u64> {
        Some(self.db.stats().keyspaces.iter().map(|keyspace| keyspace.memtable_unsorted).sum())
    }

    fn held_back(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.db.stats().stalled_ns))
    }

    fn traffic(&self) -> Option<Traffic> {
        let counted = self.files.counted();
        let logged =
            if self.settings.durability == Durability::Memory { 0 } else { self.db.stats().tail * LOG_UNIT };
        Some(Traffic { written: counted.appended + logged, logged, read: counted.read, reads: counted.reads })
    }

    fn blocks(&self) -> Result<Blocks> {
        if self.holds().tables == Some(0) {
            self.db.flush()?;
            self.db.wait_for_idle()?;
        }
        let mode = if self.settings.direct_reads { ReadMode::Direct } else { ReadMode::Buffered };
        Blocks::open(self.files.clone(), &self.directory, mode)
    }

    fn holds(&self) -> Holds {
        let stats = self.db.stats();
        let levels = || stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let values: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.values.bytes).sum();
        Holds {
            tables: Some(levels().map(|level| level.tables as u64).sum()),
            table_bytes: Some(levels().map(|level| level.bytes).sum::<u64>() + values),
            memtable_bytes: Some(stats.memtable_bytes),
            filter_bytes: Some(stats.filter_bytes),
            index_bytes: Some(stats.index_bytes),
            log_bytes: Some(stats.log_live_bytes),
        }
    }
}
