//! The memory budget of one store: who may take how much, and what happens at the bound.
//!
//! Place: made at open; `store` asks it before every write, workers after every job.
//!
//! The budget is cut into shares that are not lent on, so that each bound holds by itself:
//! - a half for memtables: those written to, those frozen, and flushed ones that the epoch has not freed;
//! - three eighths for open tables (indexes, filters, range tombstones) and cached blocks, see `table::Shelf`;
//! - an eighth for the buffers of flushes and compactions: a compaction cuts its outputs rather than take more.
//!
//! Invariants:
//! 1. A write is let in only while memtables hold less than their share. Beyond it go what is in flight then, and what a hash
//!    tier takes to be sorted: 20 bytes a version for the while, and lanes and guide of the list.
//! 2. Memtables that scans hold after their flush do not stop writers for ever, since it may be a writer who does not step
//!    them: after a while they count no longer, and the cache gives way to them. A thread that stands still within a get or
//!    a write keeps all that is replaced meanwhile from being freed: of that, at most once more the memtables' share.
//! 3. A flushed memtable goes where `sweep` is called, and by no reader: freeing one takes a while.
//!
//! Concurrency: sums and thresholds are Relaxed; they order nothing. A write loads two words that change once per block of
//! an arena. Rules: docs/design/memory.md. Tests: tests/memory.rs.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::budget::Account;
use crate::env::{Env, ReadMode};
use crate::key::KeyHasher;
use crate::memory::{MemTable, Pool, Splits};
use crate::options::{KeyspaceOptions, Options, Parts, TwoTier};
use crate::sync::Mutex;
use crate::table::Shelf;

use super::pressure::DELAY_NS_MAX;
use super::superversion::Generation;

/// Writes are delayed from this part of the share on, in percent.
const SHORT_PERCENT: usize = 75;
/// While memory is short, workers are told again whenever it grew by the share divided by this.
const ALARM_PARTS: usize = 32;
/// A memtable is turned at half of what an arena can hold, whatever the options say.
const MEMTABLE_BYTES_MAX: usize = 16 << 30;
/// A hash tier is sorted in parts of about so many bytes of versions, or of more if there would be too many.
const PART_BYTES: usize = 512 << 10;
/// Parts of a hash tier, at most.
const PARTS_MAX: usize = 128;
/// Tables take one of so many parts of the files that a process may have open, unless the options say otherwise.
const OPEN_FILES_PART: u64 = 2;
/// What readers hold so long after its flush is no get's: a scan has stopped there.
const HELD_LONG: Duration = Duration::from_millis(100);

/// Who holds how much; see the module.
pub(crate) struct Memory {
    /// What all memtables that are not freed hold, and what waits for those to come.
    pub memtables: Arc<Pool>,
    /// Bytes that they may take.
    pub memtable_share: usize,
    /// Memtables that are flushed, until nobody else holds them.
    retired: Mutex<Vec<Retired>>,
    /// How hash tiers are made.
    two_tier: TwoTier,
    /// Bytes of a segment of the log, from border to border.
    segment_bytes: usize,
    /// Tables and the cache.
    pub shelf: Arc<Shelf>,
    /// Bytes of jobs' buffers.
    pub jobs: Arc<Account>,
    /// Bytes that they may take.
    pub job_share: usize,
    /// Bytes of flushed memtables that readers have held for a while.
    lent: AtomicUsize,
    window: Mutex<Window>,
    /// Bytes from which on a worker is to be told that memory is short; MAX once one was told.
    alarm_at: AtomicUsize,
}

/// A memtable that is flushed. Scans hold memtables only, so while its generation is there, it is the epoch's.
struct Retired {
    memtable: Arc<MemTable>,
    generation: Weak<Generation>,
}

/// Bytes of flushed memtables that are not freed.
pub(crate) struct Held {
    /// By scans alone.
    by_scans: usize,
    /// By whoever keeps the epoch.
    by_epoch: usize,
    /// Some were freed by this look.
    freed_some: bool,
}

impl Held {
    /// True if there are none.
    pub fn is_nothing(&self) -> bool {
        self.by_scans + self.by_epoch == 0
    }
}

/// What readers held lately.
#[derive(Default)]
struct Window {
    since: Duration,
    /// The least at any look since.
    least: usize,
}

impl Memory {
    /// For a store in `directory` whose log has segments of so many bytes.
    pub fn new(env: &Env, directory: &Path, options: &Options, segment_bytes: usize) -> Memory {
        let eighth = options.memory_bytes / 8;
        let open_files_max = options.open_files_max.unwrap_or_else(|| {
            let allowed = env.fs.open_files_max().unwrap_or(u64::MAX);
            usize::try_from(allowed / OPEN_FILES_PART).unwrap_or(usize::MAX).max(1)
        });
        let reads = if options.direct_reads { ReadMode::Direct } else { ReadMode::Buffered };
        Memory {
            memtables: Arc::new(Pool::new(4 * eighth)),
            memtable_share: 4 * eighth,
            retired: Mutex::default(),
            two_tier: options.two_tier,
            segment_bytes,
            shelf: Shelf::bounded(env.fs.clone(), reads, directory, 3 * eighth, open_files_max),
            jobs: Arc::default(),
            job_share: eighth,
            lent: AtomicUsize::new(0),
            window: Mutex::default(),
            alarm_at: AtomicUsize::new(0),
        }
    }

    /// Bytes at which a memtable of a keyspace with these options is turned: of one run, if it has several.
    pub fn memtable_limit(&self, options: &KeyspaceOptions) -> usize {
        let bytes = options.memtable_bytes.unwrap_or(usize::MAX).min(self.memtable_share / 2);
        (bytes / options.memory.runs()).min(MEMTABLE_BYTES_MAX)
    }

    /// Bytes that a memtable of such a keyspace comes to: a run may be small, but turns at borders.
    fn memtable_bytes(&self, options: &KeyspaceOptions) -> usize {
        let least = if options.memory.runs() > 1 { self.segment_bytes } else { 0 };
        self.memtable_limit(options).max(least)
    }

    /// An empty memtable on the account of the pool, for a keyspace that had none before.
    pub fn memtable(&self, options: &KeyspaceOptions, hasher: KeyHasher) -> MemTable {
        self.memtable_like(options, hasher, &self.first_splits(options), 0)
    }

    /// Where the order of keys is cut that nothing is known of.
    pub fn first_splits(&self, options: &KeyspaceOptions) -> Arc<Splits> {
        let bits = match self.two_tier.parts {
            Parts::Learned => self.parts(options).ilog2(),
            Parts::TopBits(bits) => bits,
        };
        Arc::new(Splits::of_top_bits(bits))
    }

    /// True if the order of keys is cut as the memtable before would have it.
    pub fn learns_parts(&self) -> bool {
        self.two_tier.parts == Parts::Learned
    }

    /// Parts of the order of keys that a hash tier is to tell apart, at most.
    pub fn parts(&self, options: &KeyspaceOptions) -> usize {
        (self.memtable_bytes(options) / PART_BYTES).clamp(1, PARTS_MAX)
    }

    /// An empty memtable on the account of the pool that has no hash tier, whatever the options say.
    pub fn sorted_memtable(&self, options: &KeyspaceOptions, hasher: KeyHasher) -> MemTable {
        MemTable::charged(options.comparator.clone(), hasher, self.memtables.clone())
    }

    /// An empty memtable on the account of the pool; if it has a hash tier, with these parts, and for so many keys.
    pub fn memtable_like(
        &self,
        options: &KeyspaceOptions,
        hasher: KeyHasher,
        splits: &Arc<Splits>,
        keys: usize,
    ) -> MemTable {
        let memtable = self.sorted_memtable(options, hasher);
        if !options.memory.has_hash() {
            return memtable;
        }
        let bytes = self.memtable_bytes(options);
        let hash_bytes_max = bytes / 100 * self.two_tier.hash_percent;
        memtable.with_hash_tier(keys, hash_bytes_max, Arc::clone(splits)).with_bytes_max(bytes)
    }

    /// Takes in what was flushed.
    pub fn retire(&self, flushed: &[Arc<Generation>]) {
        self.retired.lock().extend(
            flushed
                .iter()
                .map(|g| Retired { memtable: Arc::clone(&g.memtable), generation: Arc::downgrade(g) }),
        );
    }

    /// Frees the retired memtables that nobody else holds (nobody can come to them any more); what the others hold.
    /// O(retired).
    pub fn sweep(&self) -> Held {
        let mut retired = self.retired.lock();
        let free: Vec<_> = retired.extract_if(.., |r| Arc::strong_count(&r.memtable) == 1).collect();
        let mut held = Held { by_scans: 0, by_epoch: 0, freed_some: !free.is_empty() };
        for Retired { memtable, generation } in &*retired {
            let by = if generation.strong_count() == 0 { &mut held.by_scans } else { &mut held.by_epoch };
            *by += memtable.bytes();
        }
        // Freed behind the lock: it takes a while.
        drop(retired);
        drop(free);
        held
    }

    /// Bytes that count against the memtables' share.
    #[inline]
    fn used(&self) -> usize {
        self.memtables.bytes().saturating_sub(self.lent.load(Ordering::Relaxed))
    }

    /// Bytes that one compaction may take, with so many threads: of two or more, one compacts nothing. A quarter is left for its
    /// flushes, which take 8 bytes a key for the filter, and cannot be cut.
    pub fn job_bytes(&self, threads: usize) -> usize {
        self.job_share / 4 * 3 / (threads - 1).max(1)
    }

    /// True if writes are to be held back.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.used() >= self.memtable_share / 100 * SHORT_PERCENT
    }

    /// True if writes are to wait.
    pub fn is_full(&self) -> bool {
        self.used() >= self.memtable_share
    }

    /// The delay of a write while memory is short, rising smoothly.
    pub fn delay_ns(&self) -> u64 {
        let short = (self.memtable_share / 100 * SHORT_PERCENT) as f64;
        let load = (self.used() as f64 - short) / (self.memtable_share as f64 - short);
        if load <= 0.0 { 0 } else { (load.min(1.0).powi(2) * DELAY_NS_MAX) as u64 }
    }

    /// True for the first who calls while memory is short, until [`Memory::lend`] is called again and more is used.
    pub fn sound_alarm(&self) -> bool {
        let at = self.alarm_at.load(Ordering::Relaxed);
        let is_due = self.is_short() && self.used() >= at;
        is_due && self.alarm_at.compare_exchange(at, usize::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Flushed memtables are `held` at `now`. What was at every look for a while is lent to them. True if writers have more
    /// room than before.
    pub fn lend(&self, held: &Held, now: Duration) -> bool {
        let freed_some = held.freed_some;
        let held = held.by_scans + held.by_epoch.min(self.memtable_share);
        // A worker has just looked: it need not look again before there is more.
        let more = if self.is_short() { self.used() + self.memtable_share / ALARM_PARTS } else { 0 };
        self.alarm_at.store(more, Ordering::Relaxed);
        let mut window = self.window.lock();
        window.least = window.least.min(held);
        let lent = if now.saturating_sub(window.since) < HELD_LONG {
            held.min(self.lent.load(Ordering::Relaxed))
        } else {
            let least = window.least;
            *window = Window { since: now, least: held };
            least
        };
        let before = self.lent.swap(lent, Ordering::Relaxed);
        drop(window);
        self.shelf.lend(lent);
        freed_some || lent > before
    }
}
