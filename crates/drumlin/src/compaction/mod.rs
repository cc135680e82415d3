//! Flush and compaction: what leaves memory for level 0, and what leaves a level for the next.
//!
//! Place: `db`'s background threads make a [`JobContext`] and call [`run_flush`] or [`run_compaction`] with a plan of
//! `layout`; they put the [`CompactionOutcome`] into an edit of `version`. Reads `table`s and memtables by `iter`.
//!
//! Parts: `retain` (which versions are kept: pure), `outputs` (tables being written, and their files if it fails), `apart` (values
//! beside them), `job` (a plan, in parts side by side), `flush`.
//!
//! Invariants:
//! 1. When a job returns an outcome, its files are whole, synced, under their final names, and their directory is synced:
//!    the edit may name them.
//! 2. When a job fails or is cancelled it removes every file that it made (if the file system lets it; what stays is an
//!    orphan, which no edit names).
//! 3. No user key is split over two outputs of a job. Every output lies within the plan's span.
//! 4. Every entry of the inputs is read: their number is checked against the tables' descriptions, so that an input that
//!    ends early fails the job instead of losing data.
//! 5. Inputs are never changed; the caller removes them when its edit is durable.
//!
//! Concurrency: a job runs on its caller's thread and on threads of its own, which are gone when it returns. It takes no
//! lock of `db`'s, and those of tables and cache as any reader does. `cancel` is a hint read with Relaxed; `next_table_id` is a counter, Relaxed:
//! ids need to differ, not to be ordered.
//! Tests: in the parts; `job_tests.rs` for whole jobs, with faults and crashes.

mod apart;
mod flush;
mod job;
mod outputs;
pub mod retain;

pub use flush::run_flush;
pub use job::run_compaction;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::budget::Account;
use crate::env::Env;
use crate::error::Error;
use crate::key::Lsn;
use crate::layout::FilterBits;
use crate::table::{Shelf, TableHandle, TableId, TableMeta, TableOptions};

/// Told about every 64 KiB: raw bytes read from the inputs, and bytes written to files, since the last call.
/// It may block, to pace the job.
pub type OnBytes = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What a job needs besides its plan. Cheap to clone.
#[derive(Clone)]
pub struct JobContext {
    /// Files, clock, threads.
    pub env: Env,
    /// The directory of a level's tables.
    pub dir: Arc<dyn Fn(u32) -> PathBuf + Send + Sync>,
    /// The next table id that nobody has used.
    pub next_table_id: Arc<AtomicU64>,
    /// How tables are written; also the comparator.
    pub table_options: TableOptions,
    /// Filter bits of the outputs, in place of those of the options.
    pub filter_bits: FilterBits,
    /// Bytes from which on a value lies apart; none if no value is to.
    pub separated_bytes_min: Option<usize>,
    /// Bytes after which an output of a compaction is cut, and a value file.
    pub table_bytes: u64,
    /// For the handles of the outputs.
    pub shelf: Arc<Shelf>,
    /// Bounds of all live snapshots. A snapshot registered later must read above every LSN of the inputs.
    pub snapshots: Vec<Lsn>,
    /// Charged with the buffers of the job while it runs.
    pub buffers: Arc<Account>,
    /// Bytes that the buffers of one compaction may take, about: it has fewer parts, reads less ahead and cuts its outputs rather
    /// than take more.
    pub job_bytes: usize,
    /// Set to make the job give up soon.
    pub cancel: Arc<AtomicBool>,
    /// Progress and pacing.
    pub on_bytes: Option<OnBytes>,
    /// Threads that one compaction may use, its caller's included; at least 1.
    pub parallelism: usize,
}

impl JobContext {
    fn next_id(&self) -> TableId {
        TableId(self.next_table_id.fetch_add(1, Ordering::Relaxed))
    }

    /// True if a table of this level has its entries staged: but for what is flushed, which would be in memory twice.
    fn stages(&self, level: u32) -> bool {
        self.table_options.hashed && level > 0
    }
}

/// What a finished job asks of the edit that makes it count.
#[derive(Default)]
pub struct CompactionOutcome {
    /// New tables with their levels; or, after a move, the inputs with their new level.
    pub added: Vec<(u32, TableMeta, Arc<TableHandle>)>,
    /// The inputs with the levels they leave.
    pub removed: Vec<(u32, TableId)>,
    /// Inputs that no level holds any more: `mark_obsolete` them once the edit is durable.
    pub obsolete: Vec<Arc<TableHandle>>,
    /// Bytes of the input files that were read, and of the values that were relocated.
    pub read_bytes: u64,
    /// Bytes of the new files.
    pub written_bytes: u64,
    /// A corruption that held up nothing: a value whose entry was kept as it is.
    pub damaged: Option<Error>,
    /// True if the inputs only change their level.
    moved: bool,
}

impl CompactionOutcome {
    /// For an outcome that no edit will name (a keyspace dropped meanwhile): its files are removed when
    /// the last handle has gone.
    pub fn discard(self) {
        if !self.moved {
            self.added.iter().for_each(|(_, _, table)| table.mark_obsolete());
        }
    }
}

impl std::fmt::Debug for CompactionOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let added: Vec<_> = self.added.iter().map(|(level, meta, _)| (level, meta.id)).collect();
        f.debug_struct("CompactionOutcome")
            .field("added", &added)
            .field("removed", &self.removed)
            .field("read_bytes", &self.read_bytes)
            .field("written_bytes", &self.written_bytes)
            .finish()
    }
}
