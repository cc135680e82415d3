//! What can be said to the bench: db_bench's flags, with their names.
//!
//! Place: parsed by the command line and by the peers' program; turned into a [`Plan`] and [`Settings`] here.
//!
//! 1. A flag that db_bench has means the same here and may be written as there, with underscores; but numbers of operations
//!    are those of all threads together.
//! 2. What is checked here panics nowhere else.

use std::time::Duration;

use clap::{Args, ValueEnum};
use drumlin::{
    Compression, Durability, FilterAllocation, KeyHash, Layout, Memory, Options, Parts, TwoTier,
    ValueSeparation,
};

use crate::drive::Plan;
use crate::limits;
use crate::store::Settings;
use crate::workload::{WORKLOADS, Workload};

/// So many threads are not too many for any machine.
pub const THREADS_MAX: u64 = 4096;

/// What a write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Survives {
    /// Nothing: no log.
    Memory,
    /// The process's death.
    Process,
    /// A power loss.
    Disk,
}

impl Survives {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Survives::Memory => "Memory",
            Survives::Process => "Process",
            Survives::Disk => "Disk",
        }
    }

    /// As the store takes it.
    pub fn of_store(self) -> Durability {
        match self {
            Survives::Memory => Durability::Memory,
            Survives::Process => Durability::Process,
            Survives::Disk => Durability::Disk,
        }
    }
}

/// The memory component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Component {
    /// A skiplist.
    Sorted,
    /// A hash over a skiplist.
    TwoTier,
    /// Runs of the same.
    Runs,
}

/// A memory component with its numbers.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Composed {
    /// The memory component
    #[arg(long, alias = "memtablerep", value_enum, default_value = "two-tier")]
    pub component: Component,
    /// Runs that are full when the oldest are flushed (runs) [default: 4]
    #[arg(long, value_name = "N")]
    pub memory_runs: Option<usize>,
    /// The part of them that is flushed together (runs), in percent [default: 100]
    #[arg(long, value_name = "PERCENT")]
    pub memory_percent: Option<u8>,
}

impl Composed {
    /// As the store takes it, which checks the numbers.
    pub fn memory(&self) -> Memory {
        match self.component {
            Component::Sorted => Memory::Sorted,
            Component::TwoTier => Memory::TwoTier,
            Component::Runs => Memory::Runs {
                runs: self.memory_runs.unwrap_or(4),
                merged_percent: self.memory_percent.unwrap_or(100),
            },
        }
    }

    /// What is given and would change nothing.
    pub fn check(&self) -> Result<(), String> {
        let given =
            [("memory-runs", self.memory_runs.is_some()), ("memory-percent", self.memory_percent.is_some())];
        if self.component == Component::Runs { Ok(()) } else { refuse(&given, "--component runs") }
    }
}

/// Fails if one of these flags, which need another one, is given.
fn refuse(flags: &[(&str, bool)], needs: &str) -> Result<(), String> {
    let given = flags.iter().find(|(_, is_given)| *is_given);
    given.map_or(Ok(()), |(name, _)| Err(format!("--{name} changes nothing without {needs}")))
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("--{name} is {value}, but must be from {least} to {most}"))
}

/// The layout of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Laid {
    /// A run a level.
    Leveled,
    /// Tiers of runs.
    Tiered,
    /// Tiers above one last run.
    LazyLeveled,
    /// Containers of hashed keys, in a trie: no order.
    Trie,
}

impl Laid {
    /// With the numbers that nobody gave.
    pub fn usual(self) -> Layout {
        LaidOut { layout: self, runs: None, percent: None, levels: None }.layout()
    }
}

/// A layout with its numbers.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct LaidOut {
    /// The layout of tables
    #[arg(long, value_enum, default_value = "leveled")]
    pub layout: Laid,
    /// Runs of a tier (tiered, lazy-leveled), or tables of a container (trie) [default: 8]
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// The part of a tier's runs that is merged (tiered), or of the last run's bytes that may lie above it (lazy-leveled)
    /// [default: 100; 50]
    #[arg(long, value_name = "PERCENT")]
    pub percent: Option<u16>,
    /// Levels (trie) [default: 5]
    #[arg(long, value_name = "N")]
    pub levels: Option<u8>,
}

impl LaidOut {
    /// As the store takes it, which checks the numbers.
    pub fn layout(&self) -> Layout {
        let runs = self.runs.unwrap_or(8);
        match self.layout {
            Laid::Leveled => Layout::Leveled,
            Laid::Tiered => {
                let merged_percent =
                    self.percent.map_or(100, |percent| u8::try_from(percent).unwrap_or(u8::MAX));
                Layout::Tiered { runs, merged_percent }
            }
            Laid::LazyLeveled => Layout::LazyLeveled { runs, upper_percent: self.percent.unwrap_or(50) },
            Laid::Trie => Layout::Trie { levels: self.levels.unwrap_or(5), runs, hash: KeyHash::Sip },
        }
    }

    /// Says which of these flags is given and would change nothing: the tables of level 0, the target of level 1, the ratio.
    ///
    /// # Errors
    /// A flag, and the layouts that it is for.
    pub fn check_levels(&self, level0: bool, level1: bool, level_ratio: bool) -> Result<(), String> {
        if self.layout == Laid::Trie {
            refuse(&[("level0", level0)], "an ordered --layout")?;
        }
        if self.layout != Laid::Leveled {
            refuse(&[("level1", level1), ("level-ratio", level_ratio)], "--layout leveled")?;
        }
        Ok(())
    }

    /// What is given and would change nothing, or is no percentage.
    pub fn check(&self) -> Result<(), String> {
        let (runs, percent) = (("runs", self.runs.is_some()), ("percent", self.percent.is_some()));
        if self.layout != Laid::Trie {
            refuse(&[("levels", self.levels.is_some())], "--layout trie")?;
        }
        match self.layout {
            Laid::Leveled => refuse(&[runs, percent], "--layout tiered or lazy-leveled"),
            Laid::Tiered => within("percent", self.percent.unwrap_or(100).into(), 1.0, 100.0),
            Laid::LazyLeveled => Ok(()),
            Laid::Trie => refuse(&[percent], "--layout tiered or lazy-leveled"),
        }
    }
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compress {
    /// Not at all.
    None,
    /// By LZ4.
    Lz4,
}

impl Compress {
    /// As the store takes it.
    pub fn of_store(self) -> Compression {
        match self {
            Compress::None => Compression::None,
            Compress::Lz4 => Compression::Lz4,
        }
    }
}

/// How filter bits are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Allocated {
    /// Smaller runs get more.
    BySize,
    /// All get the same.
    Uniform,
}

/// What is measured if nothing is named; of a trie, what needs no order of it.
const USUAL: &str = "fillrandom,readrandom,seekrandom";

/// Measures.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    /// Workloads, in this order; `list` shows them all, and a trie leaves what needs an order out of what is measured by default
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = USUAL)]
    pub benchmarks: Vec<String>,
    /// Keys in the store
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub num: u64,
    /// Operations of workloads that only read, of all threads together [default: as many as keys]
    #[arg(long, value_name = "N")]
    pub reads: Option<u64>,
    /// Operations of workloads that write, of all threads together [default: as many as keys]
    #[arg(long, value_name = "N")]
    pub writes: Option<u64>,
    /// End each workload after so many seconds, if operations are left; not one that puts or removes every key once
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u64,
    /// Operations a second, whatever the store does: latency then counts from when each was to begin
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Bytes of a key
    #[arg(long, alias = "key_size", default_value_t = 16, value_name = "BYTES")]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, alias = "value_size", default_value_t = 100, value_name = "BYTES")]
    pub value_size: usize,
    /// Puts in one batch, of workloads that only put; keys of one multi-get
    #[arg(long, alias = "batch_size", default_value_t = 1, value_name = "N")]
    pub batch_size: u64,
    /// Records of one scan
    #[arg(long, alias = "seek_nexts", default_value_t = 10, value_name = "N")]
    pub seek_nexts: usize,
    /// What compression could make of a value, as a part of it: 1 is nothing
    #[arg(long, alias = "compression_ratio", default_value_t = 1.0, value_name = "PART")]
    pub compression_ratio: f64,
    /// What a write survives
    #[arg(long, value_enum, default_value = "process")]
    pub durability: Survives,
    /// All memory of the store, in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub memory: usize,
    /// The memory component.
    #[command(flatten)]
    pub composed: Composed,
    /// How tables lie.
    #[command(flatten)]
    pub laid: LaidOut,
    /// Bytes of one memtable, in MiB [default: as its share of the memory allows]
    #[arg(long, value_name = "MIB")]
    pub memtable: Option<usize>,
    /// Tables at level 0 that start a merge
    #[arg(long, alias = "level0_file_num_compaction_trigger", default_value_t = 4, value_name = "N")]
    pub level0: usize,
    /// The target of level 1, in MiB
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    pub level1: u64,
    /// Each level's target for each byte of the one above
    #[arg(long, alias = "max_bytes_for_level_multiplier", default_value_t = 10, value_name = "N")]
    pub level_ratio: u64,
    /// How blocks are compressed
    #[arg(long, alias = "compression_type", value_enum, default_value = "lz4")]
    pub compression: Compress,
    /// Bytes of a block
    #[arg(long, alias = "block_size", default_value_t = 4096, value_name = "BYTES")]
    pub block_size: usize,
    /// Bytes after which a table is cut
    #[arg(long, alias = "target_file_size_base", default_value_t = 32 << 20, value_name = "BYTES")]
    pub table_size: u64,
    /// Values of so many bytes and more lie apart from their keys [default: none]
    #[arg(long, alias = "min_blob_size", value_name = "BYTES")]
    pub values_apart: Option<usize>,
    /// What their files may take for what is live in them [default: 150]
    #[arg(long, value_name = "PERCENT")]
    pub values_space: Option<u16>,
    /// Bits of filter for a key
    #[arg(long, alias = "bloom_bits", default_value_t = 10.0, value_name = "BITS")]
    pub bloom_bits: f64,
    /// How these are shared out among runs
    #[arg(long, value_enum, default_value = "by-size")]
    pub filter_allocation: Allocated,
    /// Bytes of a segment of the log, in MiB, at most [default: 16]
    #[arg(long, value_name = "MIB")]
    pub segment: Option<usize>,
    /// Read tables past the system's page cache
    #[arg(long, alias = "use_direct_reads")]
    pub direct_reads: bool,
    /// Merge all into one run before a write figure's time ends, and before reads are measured
    #[arg(long)]
    pub compact: bool,
    /// Threads for flushes and merges
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub background: usize,
    /// Of these, threads that sort what the hash of a two-tier component holds while it is written to
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub drain: usize,
    /// Of a two-tier component, how much its hash may take, in percent
    #[arg(long, default_value_t = 25, value_name = "PERCENT")]
    pub hash_percent: usize,
    /// Of a two-tier component, cut the order of keys by so many of their first bits [default: as the keys of what was flushed
    /// last would have it]
    #[arg(long, value_name = "BITS")]
    pub top_bits: Option<u32>,
    /// A write figure's time ends when what is in memory is sorted, too
    #[arg(long)]
    pub sorted: bool,
    /// Rounds; each begins anew, unless all workloads only read, and medians are printed at the end
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub rounds: u32,
    /// Read all records once, in order and untimed, before each workload that only reads
    #[arg(long)]
    pub warm: bool,
    /// Use so many MiB and give them back before each workload that writes: else what a virtual machine's host takes to give
    /// it memory is part of the figure
    #[arg(long, default_value_t = 0, value_name = "MIB")]
    pub touch: usize,
    /// Measure the machine's limits too, and set the figures beside them
    #[arg(long)]
    pub limits: bool,
    /// Of these, measure those of these names alone
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub limit: Vec<String>,
    /// Draw keys of the first so many records only, where all are drawn alike
    #[arg(long, value_name = "N")]
    pub span: Option<u64>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,
    /// Measure on the store that is there already
    #[arg(long, alias = "use_existing_db")]
    pub use_existing_db: bool,
}

impl Bench {
    /// The workloads asked for; or what is wrong with them.
    pub fn workloads(&self) -> Result<Vec<&'static Workload>, String> {
        let named = |name: &String| {
            Workload::named(name).ok_or_else(|| {
                let all: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
                format!("there is no workload {name}; there are {}", all.join(", "))
            })
        };
        let mut workloads = self.benchmarks.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        if self.laid.layout == Laid::Trie {
            if self.benchmarks.iter().map(String::as_str).eq(USUAL.split(',')) {
                workloads.retain(|workload| !workload.needs_order());
            } else if let Some(ordered) = workloads.iter().find(|workload| workload.needs_order()) {
                return Err(format!(
                    "--benchmarks {} needs an order of keys, which --layout trie does not have: leave it out",
                    ordered.name
                ));
            }
        }
        Ok(workloads)
    }

    /// What is wrong with the rest, if anything.
    pub fn check(&self) -> Result<(), String> {
        let count = |name, value: u64, most: u64| within(name, value as f64, 1.0, most as f64);
        if self.key_size < 9 {
            return Err(
                "--key-size must be 9 or more: eight bytes are the number, and one tells absent keys".into(),
            );
        }
        count("key-size", self.key_size as u64, 1 << 16)?;
        within("value-size", self.value_size as f64, 0.0, f64::from(1 << 30))?;
        count("num", self.num, 1 << 40)?;
        count("reads", self.reads.unwrap_or(1), 1 << 50)?;
        count("writes", self.writes.unwrap_or(1), 1 << 50)?;
        count("threads", self.threads, THREADS_MAX)?;
        count("batch-size", self.batch_size, 1 << 20)?;
        count("span", self.span.unwrap_or(1), 1 << 40)?;
        count("segment", self.segment.unwrap_or(1) as u64, 1 << 10)?;
        count("seek-nexts", self.seek_nexts as u64, 1 << 40)?;
        count("rounds", self.rounds.into(), 1000)?;
        count("memory", self.memory as u64, 1 << 24)?;
        within("touch", self.touch as f64, 0.0, f64::from(1 << 24))?;
        count("memtable", self.memtable.unwrap_or(1) as u64, 1 << 24)?;
        count("block-size", self.block_size as u64, 1 << 30)?;
        within("rate", self.rate.unwrap_or(1.0), 1e-3, 1e9)?;
        within("duration", self.duration.unwrap_or(1.0), 1e-3, 1e9)?;
        within("compression-ratio", self.compression_ratio, 0.0, 1.0)?;
        if !self.limits {
            refuse(&[("limit", !self.limit.is_empty())], "--limits")?;
        }
        limits::check(&self.limit)?;
        self.composed.check()?;
        self.laid.check()?;
        if self.values_apart.is_none() {
            refuse(&[("values-space", self.values_space.is_some())], "--values-apart")?;
        }
        if self.drain > self.background {
            return Err(format!("--drain is {}, but --background is {}", self.drain, self.background));
        }
        let settings = self.settings();
        settings.options().validate().map_err(|error| error.to_string())?;
        settings.keyspace_options().validate().map_err(|error| error.to_string())
    }

    /// What `workload` is to do.
    pub fn plan(&self, workload: &Workload) -> Plan {
        let asked = if workload.writes() { self.writes } else { self.reads };
        let asked = asked.unwrap_or_else(|| workload.operations(self.num));
        // What is to begin with a full store finds one: db_bench's duration is not for these either.
        let is_of_every_key = workload.is_of_every_key();
        Plan {
            keys: self.num,
            span: self.span,
            operations: if is_of_every_key { asked.min(self.num) } else { asked },
            at_most: self.duration.filter(|_| !is_of_every_key).map(Duration::from_secs_f64),
            threads: self.threads,
            rate: self.rate,
            batch: self.batch_size,
            together: self.batch_size as usize,
            scan_length: self.seek_nexts,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            compression_ratio: self.compression_ratio,
            block_keys: (self.block_size / (self.key_size + self.value_size)).max(1) as u64,
            seed: self.seed,
            pass: 0,
        }
    }

    /// How Drumlin is opened.
    pub fn settings(&self) -> Settings {
        Settings {
            memory_bytes: self.memory << 20,
            memtable_bytes: self.memtable.map(|mib| mib << 20),
            segment_bytes: self.segment.map_or(Options::default().segment_bytes, |mib| mib << 20),
            durability: self.durability.of_store(),
            compression: self.compression.of_store(),
            block_bytes: self.block_size,
            table_bytes: self.table_size,
            value_separation: self.values_apart.map(|min_bytes| ValueSeparation {
                min_bytes,
                space_percent: self.values_space.unwrap_or(ValueSeparation::default().space_percent),
            }),
            filter_bits: self.bloom_bits,
            filter_allocation: match self.filter_allocation {
                Allocated::BySize => FilterAllocation::BySize,
                Allocated::Uniform => FilterAllocation::Uniform,
            },
            background_threads: self.background,
            memory: self.composed.memory(),
            layout: self.laid.layout(),
            level0_tables: self.level0,
            level1_bytes: self.level1.saturating_mul(1 << 20),
            level_ratio: self.level_ratio,
            direct_reads: self.direct_reads,
            compacted: self.compact,
            flushed: false,
            two_tier: TwoTier {
                drain_threads: self.drain,
                hash_percent: self.hash_percent,
                parts: self.top_bits.map_or(Parts::Learned, Parts::TopBits),
            },
            sorted: self.sorted,
            must_exist: self.use_existing_db,
        }
    }
}
