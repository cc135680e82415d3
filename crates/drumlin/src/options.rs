//! What a user may set, with the defaults that need no thought.
//!
//! Place: read by every layer; [`KeyspaceOptions`] are stored in the manifest, [`Options`] are not
//! (except `segment_bytes`, which is fixed when the store is created).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::key::{ComparatorRef, KeyForm, KeyHash, KeyHasher, VALUE_BYTES_MAX, bytewise};

/// What an acknowledged write survives. A write may name its own ([`WriteOptions`]); updates (`update`, `compare_and_swap`,
/// `put_if_absent`, `fetch_add`) and range deletions outside a batch take the store's default ([`Options::durability`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: the write is not logged. Only for keyspaces created with
    /// [`KeyspaceOptions::logged`] off, since a store must not lose some writes of a keyspace and keep others.
    Memory,
    /// A crash of the process (SIGKILL included): the record is in a file mapping the kernel owns.
    #[default]
    Process,
    /// A power loss: the log is synced before the write returns; concurrent writers share one sync.
    Disk,
}

/// How table blocks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// As they are.
    None,
    /// LZ4.
    #[default]
    Lz4,
    /// Zstandard; needs the crate feature `zstd`.
    Zstd,
}

/// Options of one open store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the store if the directory holds none. Default true.
    pub create_if_missing: bool,
    /// Open without writing a single byte: nothing is created, repaired or truncated. Default false.
    pub read_only: bool,
    /// Bytes for memtables, block cache, open tables (indexes, filters, range tombstones) and the buffers of flushes and
    /// compactions together. Default 256 MiB, at least 4 MiB.
    pub memory_bytes: usize,
    /// Bytes of one log segment, at most; a power of two from 64 KiB to 1 GiB. Default 16 MiB. The store is made with this, or
    /// with the power of two at or below a sixteenth of `memory_bytes`, or of what is free on the device, if that is less
    /// (but at least 64 KiB), and keeps that size; later openings do not change it.
    pub segment_bytes: usize,
    /// Bytes of log kept before the keyspace that holds the oldest is flushed; at least four segments. `None`: as many as
    /// `memory_bytes`, at least 512 MiB, so that memtables are full before that. Default `None`. What a crash leaves of it is
    /// read at the next open.
    pub log_bytes_max: Option<usize>,
    /// Durability of writes that name none; in a logged keyspace `Memory` counts as `Process`. Default [`Durability::Process`].
    pub durability: Durability,
    /// Threads for flush and compaction, and for reading the log at open; at least 1. Default 2.
    pub background_threads: usize,
    /// Read tables from the device, past the system's page cache: for stores much larger than memory, whose `memory_bytes` then
    /// are all that they use. What the block cache does not hold is a read of the device, each time. A file system that has no
    /// such reads is read as usual. Default false.
    pub direct_reads: bool,
    /// Tables that are kept open at a time, at most; at least 1. One that a scan, a merge or a get of many keys reads when it is
    /// closed stays open until that lets go of it. Beside them half as many value files may be open. Default `None`: half as many files as the system lets this process open.
    pub open_files_max: Option<usize>,
    /// How memory in two tiers is kept.
    pub two_tier: TwoTier,
    /// Snapshots that nobody has used for longer than this are released when the next flush or merge begins; until then they may
    /// be used, and count as used again. Default: never.
    pub snapshot_expiry: Option<Duration>,
    /// Directory for the tables of each level, by level number; levels not named live in the store's own, and so do value files. It
    /// is not stored: give the same at every open, or tables are missing ([`Error::Corruption`]). A directory belongs to one store
    /// alone, which puts its name there (a file `OWNER`): an open for writing removes every table and value file in it that this store does
    /// not know. It is made if it is missing, unless tables should be there: then the open fails, as where a device is not mounted.
    ///
    /// Levels are numbered as `drumlin stats` shows them: level 0 is what flushes write. A trie has sixteen for each of its levels (with
    /// 8 runs): 1 to 16 hold its second, 17 to 32 its third, 33 to 48 its fourth, and from 49 on all that is older. So
    /// the upper levels of a trie, on a faster device, are 0 to 48.
    pub level_paths: BTreeMap<u32, PathBuf>,
    /// Custom comparators that keyspaces of this store may use, found by name at open.
    pub comparators: Vec<ComparatorRef>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            read_only: false,
            memory_bytes: 256 << 20,
            segment_bytes: 16 << 20,
            log_bytes_max: None,
            durability: Durability::Process,
            background_threads: 2,
            direct_reads: false,
            open_files_max: None,
            two_tier: TwoTier::default(),
            snapshot_expiry: None,
            level_paths: BTreeMap::new(),
            comparators: Vec::new(),
        }
    }
}

/// Where the order of keys is cut into the parts in which a hash is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// As the keys of the memtable that was flushed last would have it, so that about as many writes go to each.
    #[default]
    Learned,
    /// By so many of a key's first bits, at most 12, as FloDB does it: keys that begin alike are in one part.
    TopBits(u32),
}

/// How memory in two tiers ([`Memory::TwoTier`]) is kept, in all keyspaces of an open store. The defaults are those that measure
/// best: docs/design/two-tier.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoTier {
    /// Of the background threads, how many may at one time sort what a hash holds that is written to. 0: that is sorted when it
    /// is scanned or flushed. Default 0.
    pub drain_threads: usize,
    /// Of a memtable's bytes, how many its hash may take, in percent; from 1 to 75. Default 25, FloDB's share.
    pub hash_percent: usize,
    /// Where the order of keys is cut. Default [`Parts::Learned`].
    pub parts: Parts,
}

impl Default for TwoTier {
    fn default() -> Self {
        TwoTier { drain_threads: 0, hash_percent: 25, parts: Parts::Learned }
    }
}

impl TwoTier {
    fn validate(&self) -> Result<()> {
        if !(1..=75).contains(&self.hash_percent) {
            return Err(Error::invalid(format!(
                "two_tier.hash_percent is {}, but must be from 1 to 75",
                self.hash_percent
            )));
        }
        match self.parts {
            Parts::TopBits(bits) if bits > 12 => Err(Error::invalid(format!(
                "two_tier.parts is {bits} bits, but at most 12 are allowed: each part takes memory"
            ))),
            _ => Ok(()),
        }
    }
}

impl Options {
    /// Smallest segment, in bytes.
    pub const SEGMENT_BYTES_MIN: usize = 64 << 10;
    /// Largest segment, in bytes: a pad may be one segment long.
    pub const SEGMENT_BYTES_MAX: usize = 1 << 30;
    /// Most background threads.
    pub const BACKGROUND_THREADS_MAX: usize = 1024;
    /// Deepest level that a table may be on.
    pub const LEVEL_MAX: u32 = 255;
    /// Smallest memory budget, in bytes.
    pub const MEMORY_BYTES_MIN: usize = 4 << 20;

    /// What `log_bytes_max` comes to, in bytes.
    pub(crate) fn log_bytes(&self) -> usize {
        let usual = || self.memory_bytes.max(512 << 20).max(4 * self.segment_bytes);
        self.log_bytes_max.unwrap_or_else(usual)
    }

    /// Bytes of filters that memory is sure to hold: half of what open tables and blocks have of it. Where filters' bits go by size
    /// ([`FilterAllocation::BySize`]), tables get no more.
    pub fn filter_bytes_max(&self) -> u64 {
        (self.memory_bytes / 16 * 3) as u64
    }

    /// Bytes of a segment of a new store, with so many bytes free on the device. Small memories get small segments, since a
    /// generation is at least one segment long; and so do small devices, which must hold several besides the tables.
    pub(crate) fn segment_bytes_within(&self, free: Option<u64>) -> usize {
        let free = free.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        let fitting = (self.memory_bytes.min(free) / 16).max(Self::SEGMENT_BYTES_MIN);
        let power = if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 };
        self.segment_bytes.min(power)
    }

    /// Checks every field against its limits.
    pub fn validate(&self) -> Result<()> {
        let sizes = Self::SEGMENT_BYTES_MIN..=Self::SEGMENT_BYTES_MAX;
        if !self.segment_bytes.is_power_of_two() || !sizes.contains(&self.segment_bytes) {
            return Err(Error::invalid(format!(
                "segment_bytes is {}, but must be a power of two from {} to {}",
                self.segment_bytes,
                sizes.start(),
                sizes.end()
            )));
        }
        if self.memory_bytes < Self::MEMORY_BYTES_MIN {
            return Err(Error::invalid(format!(
                "memory_bytes is {}, but must be at least {}",
                self.memory_bytes,
                Self::MEMORY_BYTES_MIN
            )));
        }
        if let Some(bytes) = self.log_bytes_max.filter(|bytes| *bytes < 4 * self.segment_bytes) {
            return Err(Error::invalid(format!(
                "log_bytes_max is {bytes}, but must hold at least four segments ({})",
                4 * self.segment_bytes
            )));
        }
        if !(1..=Self::BACKGROUND_THREADS_MAX).contains(&self.background_threads) {
            return Err(Error::invalid(format!(
                "background_threads is {}, but must be from 1, which flushing needs, to {}",
                self.background_threads,
                Self::BACKGROUND_THREADS_MAX
            )));
        }
        for (level, path) in &self.level_paths {
            if *level > Self::LEVEL_MAX {
                return Err(Error::invalid(format!(
                    "level_paths names level {level}, but there are none below {}",
                    Self::LEVEL_MAX
                )));
            }
            if path.as_os_str().is_empty() {
                return Err(Error::invalid(format!("level_paths names no directory for level {level}")));
            }
        }
        if self.open_files_max == Some(0) {
            return Err(Error::invalid("open_files_max is 0, but a read needs at least one table open"));
        }
        self.two_tier.validate()
    }
}

/// The memory component of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "kebab-case"))]
pub enum Memory {
    /// One concurrent skiplist per generation (cLSM). For keyspaces that are scanned again and again right behind their writes.
    Sorted,
    /// A hash over the skiplist: puts search nothing, the newest version of a key takes the place of the one before where no
    /// snapshot needs that, and what came in is sorted when it is scanned or flushed (FloDB). The default.
    /// [`Db::snapshot_recent`](crate::Db::snapshot_recent) may wait in a store that has such a keyspace.
    TwoTier,
    /// Several of the same, as runs that lie over one another: the newest is written to, and when as many as are given are full,
    /// the oldest of them are merged and flushed together (sLSM §2.1). Of a key that is written again and again one version is
    /// flushed, where it was in several of them; gets and scans ask each. Each has its part of `memtable_bytes`, but no less
    /// than a segment of the log holds: then they are fewer.
    Runs {
        /// Runs that are full when the oldest are flushed (R), from 2 to 64. 4 in [`Memory::RUNS`].
        runs: usize,
        /// The part of them, the oldest, that is flushed (m), in percent from 1 to 100. 100 in [`Memory::RUNS`].
        merged_percent: u8,
    },
}

impl Default for Memory {
    /// `TwoTier`.
    fn default() -> Memory {
        // With `--cfg sorted_memory` or `--cfg runs_memory` every test runs on it that asks for no other.
        if cfg!(sorted_memory) {
            Memory::Sorted
        } else if cfg!(runs_memory) {
            Memory::Runs { runs: 3, merged_percent: 60 }
        } else {
            Memory::TwoTier
        }
    }
}

impl Memory {
    /// Runs with the usual numbers.
    pub const RUNS: Memory = Memory::Runs { runs: 4, merged_percent: 100 };

    /// True if memtables have a hash over the list.
    pub(crate) fn has_hash(self) -> bool {
        self != Memory::Sorted
    }

    /// Full memtables that there are when the oldest are flushed.
    pub(crate) fn runs(self) -> usize {
        match self {
            Memory::Sorted | Memory::TwoTier => 1,
            Memory::Runs { runs, .. } => runs,
        }
    }

    /// Of these, how many are flushed together.
    pub(crate) fn merged(self) -> usize {
        match self {
            Memory::Sorted | Memory::TwoTier => 1,
            Memory::Runs { runs, merged_percent } => (runs * usize::from(merged_percent)).div_ceil(100),
        }
    }

    pub(crate) fn validate(self) -> Result<()> {
        match self {
            Memory::Sorted | Memory::TwoTier => Ok(()),
            Memory::Runs { runs, merged_percent } => {
                within("memory.runs", runs, 2, 64)?;
                within("memory.merged_percent", merged_percent.into(), 1, 100)
            }
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Sorted => f.write_str("sorted"),
            Memory::TwoTier => f.write_str("two-tier"),
            Memory::Runs { runs, merged_percent } => {
                write!(f, "runs ({runs}, {merged_percent} % of them flushed together)")
            }
        }
    }
}

/// Checks a number against its limits.
fn within<T: Copy + PartialOrd + fmt::Display>(name: &str, value: T, least: T, most: T) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} is {value}, but must be from {least} to {most}")))
}

/// The disk layout of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "kebab-case"))]
pub enum Layout {
    /// Overlapping tables at level 0, one sorted run per level below. Reads few runs; writes every entry about `level_ratio`
    /// times a level.
    Leveled,
    /// Tiers of runs that lie over one another, each merged into one run of the next (sLSM §2.4). Writes every entry once a
    /// tier; reads all runs, and old versions take space until their run is merged.
    Tiered {
        /// Runs that a tier holds before they are merged (D), from 2 to 31. 8 in [`Layout::TIERED`].
        runs: usize,
        /// The part of them, the oldest, that is merged (m), in percent from 1 to 100; two runs at least. 100 in
        /// [`Layout::TIERED`].
        merged_percent: u8,
    },
    /// Tiers above one last run, which everything above is merged into when that is a given part of it. Writes much less than
    /// leveled; space is bounded.
    LazyLeveled {
        /// As with tiers. 8 in [`Layout::LAZY_LEVELED`].
        runs: usize,
        /// Bytes (or entries) above the last run that start a merge into it, in percent of its own, from 1 to 1000. 50 in
        /// [`Layout::LAZY_LEVELED`].
        upper_percent: u16,
    },
    /// For many small items that need no order: keys are stored behind their hash and spread over containers that grow like a
    /// trie, eight children each (LSM-trie §2). Writes every entry about once a level, and reads one block a get where memory holds
    /// the filters (two where it holds hardly any). What lies in buckets is not compressed, and these are of 4096 bytes, whatever the options say of blocks.
    ///
    /// A keyspace is made with it or without, for good. What needs an order is refused ([`Error::NoOrder`]): ranges, prefixes,
    /// `delete_range`, and other comparators; `iter` gives out all records in no order.
    Trie {
        /// Levels, from 2 to 8: the last of them holds all that is older. 5 in [`Layout::TRIE`], as in the paper.
        levels: u8,
        /// Runs that a container holds before they are merged into its children, from 2 to 15. 8 in [`Layout::TRIE`].
        runs: usize,
        /// What spreads the keys, for good.
        hash: KeyHash,
    },
}

impl Default for Layout {
    /// `Leveled`.
    fn default() -> Layout {
        // With `--cfg tiered_layout` or `--cfg lazy_layout` every test runs on that layout that asks for no other.
        if cfg!(tiered_layout) {
            Layout::Tiered { runs: 3, merged_percent: 70 }
        } else if cfg!(lazy_layout) {
            Layout::LazyLeveled { runs: 3, upper_percent: 50 }
        } else {
            Layout::Leveled
        }
    }
}

impl Layout {
    /// Tiers with the usual numbers.
    pub const TIERED: Layout = Layout::Tiered { runs: 8, merged_percent: 100 };
    /// Tiers above a last run, with the usual numbers.
    pub const LAZY_LEVELED: Layout = Layout::LazyLeveled { runs: 8, upper_percent: 50 };
    /// A trie with the usual numbers.
    pub const TRIE: Layout = Layout::Trie { levels: 5, runs: 8, hash: KeyHash::Sip };

    pub(crate) fn validate(&self) -> Result<()> {
        match *self {
            Layout::Leveled => Ok(()),
            Layout::Tiered { runs, merged_percent } => {
                within("layout.runs", runs, 2, 31)?;
                within("layout.merged_percent", merged_percent.into(), 1, 100)
            }
            Layout::LazyLeveled { runs, upper_percent } => {
                within("layout.runs", runs, 2, 31)?;
                within("layout.upper_percent", upper_percent.into(), 1, 1000)
            }
            Layout::Trie { levels, runs, .. } => {
                within("layout.levels", levels.into(), 2, 8)?;
                within("layout.runs", runs, 2, 15)
            }
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Leveled => f.write_str("leveled"),
            Layout::Tiered { runs, merged_percent } => {
                write!(f, "tiered ({runs} runs a tier, {merged_percent} % of them merged)")
            }
            Layout::LazyLeveled { runs, upper_percent } => {
                write!(f, "lazy-leveled ({runs} runs a tier, {upper_percent} % above the last run)")
            }
            Layout::Trie { levels, runs, hash } => {
                let hash = if *hash == KeyHash::Sha1 { ", SHA-1" } else { "" };
                write!(f, "trie ({levels} levels, {runs} runs a container{hash})")
            }
        }
    }
}

/// How filter bits are shared out among the runs of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FilterAllocation {
    /// Smaller runs get more bits a key: reads look into the fewest runs in vain that the bits allow (Monkey). The default.
    #[default]
    BySize,
    /// All runs get the same (sLSM §2.3).
    Uniform,
}

/// Long values apart from their keys: flushes and merges write them to files of their own, and tables hold where they are. Merges then
/// write keys alone. When it pays: docs/choosing.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSeparation {
    /// Bytes, before compression, from which on a value lies apart; from 16 on. Default 4096.
    pub min_bytes: usize,
    /// Bytes of records in value files for those that tables refer to, in percent from 105 to 1000; the lower, the more is written.
    /// Beyond it the files with the most garbage are collected: tables that refer to them are rewritten, and what is live is
    /// copied. What was overwritten or deleted is garbage once its entry is merged away. While collecting is under way, and
    /// under load, more is taken for a while. Default 150.
    pub space_percent: u16,
}

impl Default for ValueSeparation {
    fn default() -> ValueSeparation {
        ValueSeparation { min_bytes: 4096, space_percent: 150 }
    }
}

impl ValueSeparation {
    pub(crate) fn validate(&self) -> Result<()> {
        within("value_separation.min_bytes", self.min_bytes, 16, VALUE_BYTES_MAX)?;
        within("value_separation.space_percent", self.space_percent, 105, 1000)
    }
}

/// Options of one keyspace, stored with it. [`Db::keyspace`](crate::Db::keyspace) only compares the comparator of one that exists;
/// [`Keyspace::set_options`](crate::Keyspace::set_options) changes all but
/// the comparator, the log, and whether it is a trie, with its levels and its hash.
#[derive(Clone, Debug)]
pub struct KeyspaceOptions {
    /// Memory component. Default `TwoTier`.
    pub memory: Memory,
    /// Disk layout. Default `Leveled`.
    pub layout: Layout,
    /// Order of keys. Default bytewise.
    pub comparator: ComparatorRef,
    /// False: writes are never logged and are lost with the process ([`Durability::Memory`]);
    /// flushed data stays. Each such keyspace comes back as of its own last flush, so a batch over several of them, or over
    /// one and a logged one, is not atomic across a crash (it is for readers). Default true.
    pub logged: bool,
    /// Bytes after which the memtable is flushed (all runs together, of [`Memory::Runs`]), from 64 KiB to 16 GiB, but no more than
    /// a quarter of the store's memory, which is also what `None` gives. Default `None`.
    pub memtable_bytes: Option<usize>,
    /// Block compression. Default LZ4.
    pub compression: Compression,
    /// Uncompressed bytes of a data block (μ, in bytes: one fence pointer per block), from 128 to 1 MiB. Default 4096.
    pub block_bytes: usize,
    /// Filter bits per key, of all tables together, at most 64; 0 for no filter. Default 10.
    pub filter_bits_per_key: f64,
    /// How they are shared out. Default [`FilterAllocation::BySize`]. In a trie all get the same.
    pub filter_allocation: FilterAllocation,
    /// Bytes after which an output table is cut, and a value file, from 1 KiB to 4 GiB. Default 32 MiB.
    pub table_bytes: u64,
    /// Tables at level 0 that start a compaction, from 1 to 1000; in a trie its `runs` are asked. Default 4.
    pub level0_tables: usize,
    /// Target bytes of level 1, from 1 KiB to 1 PiB. Default 128 MiB.
    pub level1_bytes: u64,
    /// Each level's target is this times the one above, from 2 to 1000. Default 10.
    pub level_ratio: u64,
    /// Long values apart from their keys, in files of their own. Default `None`: values lie in tables, and merges bring back
    /// what lies apart since it was otherwise.
    pub value_separation: Option<ValueSeparation>,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        KeyspaceOptions {
            memory: Memory::default(),
            layout: Layout::default(),
            comparator: bytewise(),
            logged: true,
            memtable_bytes: None,
            compression: Compression::default(),
            block_bytes: 4096,
            filter_bits_per_key: 10.0,
            filter_allocation: FilterAllocation::default(),
            table_bytes: 32 << 20,
            level0_tables: 4,
            level1_bytes: 128 << 20,
            level_ratio: 10,
            // With `--cfg values_apart` every test has most of its values apart.
            value_separation: cfg!(values_apart)
                .then_some(ValueSeparation { min_bytes: 16, space_percent: 120 }),
        }
    }
}

impl KeyspaceOptions {
    /// True if records have an order: in every layout but [`Layout::Trie`].
    pub fn is_ordered(&self) -> bool {
        !matches!(self.layout, Layout::Trie { .. })
    }

    /// Tables at level 0 that start a compaction: in a trie it is a container like any other.
    pub(crate) fn level0_trigger(&self) -> usize {
        match self.layout {
            Layout::Trie { runs, .. } => runs,
            _ => self.level0_tables,
        }
    }

    /// The form in which the keyspace holds its keys, in a store that hashes them by `hasher`.
    pub(crate) fn form(&self, hasher: KeyHasher) -> KeyForm {
        match self.layout {
            Layout::Trie { hash, .. } => KeyForm::Placed(hasher.placer(hash)),
            _ => KeyForm::Bare,
        }
    }

    /// The hasher of its keys, as it holds them, in a store that hashes keys by `hasher`.
    pub(crate) fn hasher(&self, hasher: KeyHasher) -> KeyHasher {
        if self.is_ordered() { hasher } else { hasher.of_places() }
    }

    /// Checks every field against its limits.
    pub fn validate(&self) -> Result<()> {
        within("block_bytes", self.block_bytes, 128, 1 << 20)?;
        within("filter_bits_per_key", self.filter_bits_per_key, 0.0, 64.0)?;
        within("table_bytes", self.table_bytes, 1024, 1 << 32)?;
        within("level0_tables", self.level0_tables, 1, 1000)?;
        within("level1_bytes", self.level1_bytes, 1024, 1 << 50)?;
        within("level_ratio", self.level_ratio, 2, 1000)?;
        if let Some(bytes) = self.memtable_bytes {
            within("memtable_bytes", bytes, 64 << 10, 16 << 30)?;
        }
        self.memory.validate()?;
        self.layout.validate()?;
        if let Some(separation) = &self.value_separation {
            separation.validate()?;
        }
        if !self.is_ordered() && !self.comparator.is_bytewise() {
            return Err(Error::invalid(format!(
                "the trie layout has no order, so none can be given: drop the comparator {}, or choose another layout",
                self.comparator.name()
            )));
        }
        if self.compression == Compression::Zstd && !cfg!(feature = "zstd") {
            return Err(Error::invalid("compression is Zstd, but this build lacks the feature `zstd`"));
        }
        Ok(())
    }
}

/// Options of one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `None`: the store's default, or `Memory` in a keyspace that is not logged.
    pub durability: Option<Durability>,
}
