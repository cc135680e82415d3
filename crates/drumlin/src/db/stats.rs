//! Figures: what the store holds, where its bytes are, what its background did.
//!
//! Place: `Db::stats`. Reading them takes no key lock. Of the locks that it takes, each for a moment, a write takes two:
//! the log's near a segment border, and the background's when it is held back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch as epoch;

use super::background::JobFailure;
use super::recovery::RecoveryReport;
use super::size;
use super::store::Store;
use super::superversion::SuperVersion;
use super::timing::LatencyStats;
use crate::options::{KeyspaceOptions, Layout, Memory};
use crate::table::{Parts, TableHandle};
use crate::version::ValueSpace;

/// One level of a keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LevelStats {
    /// Tables.
    pub tables: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// Versions in them.
    pub versions: u64,
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its memory component.
    pub memory: Memory,
    /// Its layout: that of tables to come, where it was changed.
    pub layout: Layout,
    /// Bytes of all its memtables.
    pub memtable_bytes: u64,
    /// Versions in its memtables.
    pub memtable_versions: u64,
    /// Of these, about how many are in a hash and not sorted yet.
    pub memtable_unsorted: u64,
    /// Memtables that wait for their flush.
    pub frozen_memtables: usize,
    /// About how many keys it has; see [`crate::ApproximateSize::keys`]. Deletes that are in a hash and not sorted yet count as
    /// puts: nothing is sorted for this figure.
    pub keys: u64,
    /// About how many bytes of keys and values in tables are not overwritten or deleted: those of the tables under which no
    /// deeper level, and at level 0 no older table, has the same keys.
    pub live_bytes: u64,
    /// By level number.
    pub levels: Vec<LevelStats>,
    /// Values apart.
    pub values: ValueStats,
}

/// The value files of a keyspace ([`crate::ValueSeparation`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ValueStats {
    /// Files that tables refer to.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the records in them, as compressed, that some table refers to: what was overwritten counts until its entry is merged
    /// away. The rest is garbage, which `ValueSeparation::space_percent` bounds.
    pub live_bytes: u64,
    /// Records that tables refer to.
    pub records: u64,
}

impl ValueStats {
    fn of(space: &ValueSpace) -> ValueStats {
        ValueStats {
            files: space.files().count(),
            bytes: space.files().fold(0, |all, used| all.saturating_add(used.file_bytes)),
            live_bytes: space.live_bytes(),
            records: space.files().fold(0, |all, used| all.saturating_add(used.records)),
        }
    }
}

/// A store's figures at one time. With the feature `serde` they can be serialized, without `recovery`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stats {
    /// Keyspaces, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// The memory budget, in bytes.
    pub memory_budget_bytes: u64,
    /// Bytes of all memtables: written to, frozen, and flushed but still held by a reader.
    pub memtable_bytes: u64,
    /// Of these, frozen: they wait for their flush.
    pub memtable_frozen_bytes: u64,
    /// Of these, flushed: a scan or a get that is under way holds them.
    pub memtable_unfreed_bytes: u64,
    /// Bytes that are resident for memtables beyond what they hold: chunks of memtables that are gone, for those to come.
    pub memtable_spare_bytes: u64,
    /// Bytes held for cached blocks: the memory that they lie in, free parts of it and evicted ones included.
    pub cache_bytes: u64,
    /// Reads of blocks since open that found them in the cache; those of flushes and compactions are not counted.
    pub cache_hits: u64,
    /// Those that did not.
    pub cache_misses: u64,
    /// Bytes of indexes, filters and range tombstones of open tables, replaced ones that are still read included.
    pub table_resident_bytes: u64,
    /// Of these, indexes, of the tables that levels name now.
    pub index_bytes: u64,
    /// Of these, filters, of the tables that levels name now.
    pub filter_bytes: u64,
    /// Of these, range tombstones, of the tables that levels name now.
    pub tombstone_bytes: u64,
    /// Bytes of the buffers of flushes and compactions.
    pub job_bytes: u64,
    /// Bytes of mapped log segments.
    pub log_mapped_bytes: u64,
    /// Bytes of log that are still needed.
    pub log_live_bytes: u64,
    /// Log position of the next write.
    pub tail: u64,
    /// Everything below is installed; a gap to `tail` that stays is a stalled writer.
    pub completed: u64,
    /// Registered snapshots.
    pub snapshots: usize,
    /// Of those: linearizable ones that wait for writes in flight; writes above them wait too.
    pub snapshots_waiting: usize,
    /// Flushes since open.
    pub flushes: u64,
    /// Compactions since open.
    pub compactions: u64,
    /// Bytes written by flushes since open.
    pub flushed_bytes: u64,
    /// Bytes read by compactions since open.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions since open.
    pub compaction_written_bytes: u64,
    /// Bytes of log drawn since open.
    pub log_written_bytes: u64,
    /// About how many bytes of keys and values were written since open.
    pub written_bytes: u64,
    /// About how many blocks gets of one key have read from files since open.
    pub blocks_read_by_gets: u64,
    /// How long operations took since open, of those kinds of which there were any.
    pub latencies: Vec<LatencyStats>,
    /// Bytes that compaction owes.
    pub debt_bytes: u64,
    /// Jobs running now.
    pub running_jobs: usize,
    /// Writes held back since open.
    pub stalls: u64,
    /// Time that writes were delayed since open, in nanoseconds.
    pub stalled_ns: u64,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
    /// The first corruption that a flush or a compaction met since open; its `count` is of all corruptions met so.
    pub first_corruption: Option<JobFailure>,
    /// The latest failure of a flush or a compaction since open, done since or not.
    pub last_failure: Option<JobFailure>,
    /// What opening found of the session before.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub recovery: RecoveryReport,
}

impl LevelStats {
    fn of(tables: &[Arc<TableHandle>]) -> LevelStats {
        LevelStats {
            tables: tables.len(),
            bytes: tables.iter().map(|t| t.meta().file_bytes).sum(),
            versions: tables.iter().map(|t| t.meta().entries).sum(),
        }
    }
}

impl KeyspaceStats {
    fn of(name: &str, options: &KeyspaceOptions, now: &SuperVersion) -> KeyspaceStats {
        KeyspaceStats {
            name: name.to_string(),
            memory: options.memory,
            layout: options.layout,
            memtable_bytes: now.generations.iter().map(|g| g.memtable.bytes() as u64).sum(),
            memtable_versions: now.generations.iter().map(|g| g.memtable.entries() as u64).sum(),
            memtable_unsorted: now.generations.iter().map(|g| g.memtable.unsorted() as u64).sum(),
            frozen_memtables: now.frozen().len(),
            keys: size::keys_of(now),
            live_bytes: now.levels.live_bytes(),
            levels: (0..now.levels.depth()).map(|level| LevelStats::of(now.levels.level(level))).collect(),
            values: ValueStats::of(now.levels.values()),
        }
    }
}

pub(crate) fn collect(store: &Store) -> Stats {
    let memory = &store.memory;
    // First: what is written meanwhile does not look as if it were held after its flush.
    let charged = memory.memtables.account().bytes() as u64;
    let keyspaces = store.keyspaces.all();
    let oldest_snapshot = store.oldest_snapshot();
    let guard = epoch::pin();
    let (mut resident, mut frozen, mut debt_bytes) = (Parts::default(), 0, 0);
    let mut figures = Vec::with_capacity(keyspaces.len());
    for keyspace in keyspaces.values() {
        let now = keyspace.current.load(&guard);
        for parts in now.levels.tables().map(|t| t.resident_parts()) {
            resident.index += parts.index;
            resident.filter += parts.filter;
            resident.tombstones += parts.tombstones;
        }
        frozen += now.frozen().iter().map(|g| g.memtable.bytes() as u64).sum::<u64>();
        let options = keyspace.options();
        debt_bytes += crate::layout::debt_bytes(&now.levels, &options, oldest_snapshot);
        figures.push(KeyspaceStats::of(&keyspace.name, &options, now));
    }
    let counters = &store.background.counters;
    let log = store.log.get();
    let snapshots = store.sequencer.snapshots().list();
    let completed = store.sequencer.completed();
    let (first_corruption, last_failure) = store.background.failures();
    Stats {
        memory_budget_bytes: store.options.memory_bytes as u64,
        memtable_bytes: charged,
        memtable_frozen_bytes: frozen,
        memtable_unfreed_bytes: charged.saturating_sub(figures.iter().map(|k| k.memtable_bytes).sum()),
        memtable_spare_bytes: memory.memtables.spare_bytes() as u64,
        cache_bytes: memory.shelf.cache().held_bytes() as u64,
        cache_hits: memory.shelf.cache().hits(),
        cache_misses: memory.shelf.cache().misses(),
        table_resident_bytes: memory.shelf.resident_bytes() as u64,
        index_bytes: resident.index as u64,
        filter_bytes: resident.filter as u64,
        tombstone_bytes: resident.tombstones as u64,
        job_bytes: memory.jobs.bytes() as u64,
        log_mapped_bytes: log.map_or(0, |l| l.mapped_bytes()),
        log_live_bytes: log.map_or(0, |l| l.live_bytes()),
        tail: store.sequencer.tail().0,
        completed: completed.0,
        snapshots: snapshots.len(),
        snapshots_waiting: snapshots.iter().filter(|s| **s > completed).count(),
        flushes: counters.flushes.load(Ordering::Relaxed),
        compactions: counters.compactions.load(Ordering::Relaxed),
        flushed_bytes: counters.flushed_bytes.load(Ordering::Relaxed),
        compaction_read_bytes: counters.read_bytes.load(Ordering::Relaxed),
        compaction_written_bytes: counters.compacted_bytes.load(Ordering::Relaxed),
        log_written_bytes: log.map_or(0, |l| l.written_bytes()),
        written_bytes: store.timing.written_bytes(),
        blocks_read_by_gets: store.timing.blocks_read_by_gets(),
        latencies: store.timing.latencies(),
        debt_bytes,
        running_jobs: store.background.running(),
        stalls: counters.stalls.load(Ordering::Relaxed),
        stalled_ns: counters.stalled_ns.load(Ordering::Relaxed),
        poisoned: store.poisoned().map(str::to_string),
        first_corruption,
        last_failure,
        recovery: store.recovery.get().cloned().unwrap_or_default(),
        keyspaces: figures,
    }
}

impl Stats {
    /// Bytes held within the budget: memtables, with their spares, cache, open tables and jobs' buffers. Mapped log pages are
    /// the system's page cache and not among them.
    pub fn memory_bytes(&self) -> u64 {
        self.memtable_bytes
            + self.memtable_spare_bytes
            + self.cache_bytes
            + self.table_resident_bytes
            + self.job_bytes
    }

    /// Bytes written to log and tables for each byte of keys and values that was written since open; `None` if none was.
    /// What is not merged yet is still to come.
    pub fn write_amplification(&self) -> Option<f64> {
        let moved = self.log_written_bytes + self.flushed_bytes + self.compaction_written_bytes;
        ratio(moved, self.written_bytes)
    }

    /// Blocks read from files for each get of one key since open; `None` if there was none.
    pub fn reads_per_get(&self) -> Option<f64> {
        let gets = self.latencies.iter().find(|found| found.operation == "get")?;
        ratio(self.blocks_read_by_gets, gets.operations)
    }

    /// Bytes of tables and value files for each byte of keys and values that is alive in them, about; `None` if none is. Below 1 if
    /// they compress well.
    pub fn space_amplification(&self) -> Option<f64> {
        let levels = self.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let values: u64 = self.keyspaces.iter().map(|keyspace| keyspace.values.bytes).sum();
        let tables: u64 = levels.map(|level| level.bytes).sum();
        ratio(tables + values, self.keyspaces.iter().map(|k| k.live_bytes).sum())
    }

    fn figures(&self) -> [(&'static str, u64); 31] {
        [
            ("memory_budget_bytes", self.memory_budget_bytes),
            ("memtable_bytes", self.memtable_bytes),
            ("memtable_frozen_bytes", self.memtable_frozen_bytes),
            ("memtable_unfreed_bytes", self.memtable_unfreed_bytes),
            ("memtable_spare_bytes", self.memtable_spare_bytes),
            ("cache_bytes", self.cache_bytes),
            ("cache_hits", self.cache_hits),
            ("cache_misses", self.cache_misses),
            ("table_resident_bytes", self.table_resident_bytes),
            ("index_bytes", self.index_bytes),
            ("filter_bytes", self.filter_bytes),
            ("tombstone_bytes", self.tombstone_bytes),
            ("job_bytes", self.job_bytes),
            ("log_mapped_bytes", self.log_mapped_bytes),
            ("log_live_bytes", self.log_live_bytes),
            ("tail", self.tail),
            ("completed", self.completed),
            ("snapshots", self.snapshots as u64),
            ("snapshots_waiting", self.snapshots_waiting as u64),
            ("flushes", self.flushes),
            ("compactions", self.compactions),
            ("flushed_bytes", self.flushed_bytes),
            ("compaction_read_bytes", self.compaction_read_bytes),
            ("compaction_written_bytes", self.compaction_written_bytes),
            ("log_written_bytes", self.log_written_bytes),
            ("written_bytes", self.written_bytes),
            ("blocks_read_by_gets", self.blocks_read_by_gets),
            ("debt_bytes", self.debt_bytes),
            ("running_jobs", self.running_jobs as u64),
            ("stalls", self.stalls),
            ("stalled_ns", self.stalled_ns),
        ]
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.figures() {
            writeln!(f, "{name:28} {value}")?;
        }
        if let Some(why) = &self.poisoned {
            writeln!(f, "{:28} {why}", "poisoned")?;
        }
        for (name, failure) in
            [("first_corruption", &self.first_corruption), ("last_failure", &self.last_failure)]
        {
            if let Some(JobFailure { keyspace, job, message, count }) = failure {
                writeln!(f, "{name:28} {job} in keyspace {keyspace}: {message} (of {count})")?;
            }
        }
        for LatencyStats { operation, operations, p50_ns, p99_ns, max_ns, .. } in &self.latencies {
            writeln!(
                f,
                "{operation:28} {operations}, half of them in {p50_ns} ns, 99 % in {p99_ns} ns, longest {max_ns} ns"
            )?;
        }
        for keyspace in &self.keyspaces {
            writeln!(
                f,
                "keyspace {}: {} versions in {} bytes of memory, {} of them not sorted, {} memtables frozen",
                keyspace.name,
                keyspace.memtable_versions,
                keyspace.memtable_bytes,
                keyspace.memtable_unsorted,
                keyspace.frozen_memtables
            )?;
            for (number, level) in
                keyspace.levels.iter().enumerate().filter(|(n, level)| *n == 0 || level.tables > 0)
            {
                writeln!(
                    f,
                    "  level {number}: {} tables, {} bytes, {} versions",
                    level.tables, level.bytes, level.versions
                )?;
            }
            let ValueStats { files, bytes, live_bytes, records } = keyspace.values;
            if files > 0 {
                writeln!(
                    f,
                    "  values: {files} files, {bytes} bytes, {records} records referred to, of {live_bytes} bytes"
                )?;
            }
        }
        Ok(())
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
