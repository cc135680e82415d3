//! RocksDB's options: the terms that all engines have, and what its grid varies.
//!
//! Place: `rocksdb` opens by it.
//!
//! 1. One total: the block cache has the whole budget, memtables are charged to it, and so are indexes and filters, which
//!    stay in it.
//! 2. What is not named here is RocksDB's default.

use ::rocksdb::statistics::StatsLevel;
use ::rocksdb::{
    BlockBasedOptions, BlockBasedTablePinningTier, Cache, DBCompressionType, DataBlockIndexType, Options,
    ReadOptions, WriteBufferManager, WriteOptions,
};
use drumlin_bench::args::{Bench, Compress, Survives};

/// How writers share the log and the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// As RocksDB comes: one leads a group, all insert side by side.
    Grouped,
    /// The log of the next group is written while the memtable takes the last one.
    Pipelined,
    /// Inserts do not wait for those of earlier groups.
    Unordered,
    /// The leader inserts for its group.
    Led,
}

/// What the grid varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// Bytes of a memtable.
    pub memtable: usize,
    /// Memtables there may be.
    pub memtables: usize,
    /// Parts in which a merge may be done side by side, as Drumlin does it.
    pub parts: usize,
    /// See [`Writes`].
    pub writes: Writes,
    /// The lock-free cache, not the one with a lock a shard.
    pub clock_cache: bool,
    /// Data blocks have a hash index.
    pub hash_index: bool,
    /// Entries between two that a block can be entered at.
    pub restart: i32,
    /// Tables of level 0 that start a merge.
    pub level_0: i32,
    /// Memtables have a filter.
    pub memtable_filter: bool,
    /// Tables are mapped: blocks are looked at in the page cache, and the budget stays unused.
    pub mapped: bool,
    /// Checksums of blocks are compared when they are read.
    pub verified: bool,
    /// Each thread keeps its iterator and refreshes it.
    pub kept_iterators: bool,
    /// Memtables are flushed whenever all is to be settled.
    pub flushed: bool,
}

impl Choices {
    /// With memtables of so many bytes, and otherwise as RocksDB comes.
    pub fn plain(memtable: usize) -> Choices {
        Choices {
            memtable,
            memtables: 2,
            parts: 1,
            writes: Writes::Grouped,
            clock_cache: false,
            hash_index: false,
            restart: 16,
            level_0: 4,
            memtable_filter: false,
            mapped: false,
            verified: true,
            kept_iterators: false,
            flushed: false,
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        let count = if self.memtables == 2 { "two".into() } else { self.memtables.to_string() };
        let mut words = format!("{count} memtables of {} MiB", self.memtable >> 20);
        let mut add = |is: bool, what: &str| {
            if is {
                words += ", ";
                words += what;
            }
        };
        add(self.writes == Writes::Pipelined, "pipelined writes");
        add(self.writes == Writes::Unordered, "unordered writes");
        add(self.writes == Writes::Led, "no concurrent memtable writes");
        add(self.clock_cache, "HyperClock cache");
        add(self.hash_index, "hash index in data blocks");
        add(self.restart != 16, &format!("a restart every {} entries", self.restart));
        add(self.level_0 != 4, &format!("merges from {} tables of level 0 on", self.level_0));
        add(self.parts != 1, &format!("merges in {} parts", self.parts));
        add(self.memtable_filter, "memtable filter");
        add(self.mapped, "tables mapped: blocks in the page cache");
        add(!self.verified, "checksums of blocks not compared");
        add(self.kept_iterators, "iterators kept and refreshed");
        add(self.flushed, "memtables flushed when settled");
        words
    }

    /// The options of the store.
    pub fn options(&self, bench: &Bench, counts: bool) -> Options {
        let memory = bench.memory << 20;
        let cache = match self.clock_cache {
            true => Cache::new_hyper_clock_cache(memory, 0),
            false => Cache::new_lru_cache(memory),
        };
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_size(bench.block_size);
        blocks.set_block_cache(&cache);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_unpartitioned_pinning_tier(BlockBasedTablePinningTier::All);
        if bench.bloom_bits > 0.0 {
            blocks.set_bloom_filter(bench.bloom_bits, false);
        }
        if self.hash_index {
            blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        }
        blocks.set_block_restart_interval(self.restart);

        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(self.memtable);
        options.set_max_write_buffer_number(self.memtables as i32);
        options.set_max_subcompactions(self.parts as u32);
        options.set_target_file_size_base(bench.table_size);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            self.memtables * self.memtable,
            false,
            cache,
        );
        options.set_write_buffer_manager(&buffers);
        options.set_max_background_jobs(bench.background.max(2) as i32);
        options.set_compression_type(match bench.compression {
            Compress::None => DBCompressionType::None,
            Compress::Lz4 => DBCompressionType::Lz4,
        });
        match self.writes {
            Writes::Grouped => {}
            Writes::Pipelined => options.set_enable_pipelined_write(true),
            Writes::Unordered => options.set_unordered_write(true),
            Writes::Led => options.set_allow_concurrent_memtable_write(false),
        }
        if self.memtable_filter {
            options.set_memtable_prefix_bloom_ratio(0.1);
            options.set_memtable_whole_key_filtering(true);
        }
        options.set_level_zero_file_num_compaction_trigger(self.level_0);
        options.set_use_direct_reads(bench.direct_reads);
        options.set_allow_mmap_reads(self.mapped && !bench.direct_reads);
        options.set_stats_dump_period_sec(0);
        if counts {
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }
        options
    }

    /// The options of reads.
    pub fn reads(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_verify_checksums(self.verified);
        options
    }
}

/// The options of writes that are to survive so much.
pub fn writes(survives: Survives) -> WriteOptions {
    let mut options = WriteOptions::default();
    match survives {
        Survives::Memory => options.disable_wal(true),
        Survives::Process => {}
        Survives::Disk => options.set_sync(true),
    }
    options
}
