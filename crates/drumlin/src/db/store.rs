//! The store behind its handles: what every operation and background thread shares.
//!
//! Place: made by `open`; used by `write`, `keyspace`, `snapshot`, `background`.
//!
//! Lock order (take from left to right, never back):
//! `pressure` → `keyspaces` → `manifest` → a keyspace's `Current::change` → `background.state`.
//! Key stripes are taken with none of these held, and nothing of these is taken under a stripe.
//!
//! Admission (back-pressure): before a write takes any lock it passes `admit`. With no debt that is
//! two loads. With debt it is delayed, smoothly more the nearer memory is to its bound; at the bound
//! it waits for a flush. There is no hard stop short of the budget. See `memory`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::commit::{Sequencer, Stripes};
use crate::env::{Env, FileLock};
use crate::error::{Error, Result};
use crate::key::{KeyHasher, Lsn};
use crate::log::Log;
use crate::options::{Durability, Options, WriteOptions};
use crate::sync::Mutex;
use crate::version::{Identity, Manifest};

use super::background::Background;
use super::keyspace::KeyspaceState;
use super::memory::Memory;
use super::recovery::RecoveryReport;
use super::snapshot::Lease;
use super::write;

/// The delay of one write at the end of the smooth part.
pub(crate) const DELAY_NS_MAX: f64 = 200_000.0;

/// A memtable is turned at half of what an arena can hold, whatever the options say.
const MEMTABLE_BYTES_MAX: usize = 16 << 30;

/// Keyspaces by name.
pub(crate) type Keyspaces = BTreeMap<String, Arc<KeyspaceState>>;

/// One open store.
pub(crate) struct Store {
    pub env: Env,
    pub directory: PathBuf,
    pub options: Options,
    pub identity: Identity,
    pub hasher: KeyHasher,
    pub sequencer: Arc<Sequencer>,
    pub stripes: Stripes,
    /// None when open read-only.
    pub log: OnceLock<Arc<Log>>,
    pub memory: Memory,
    pub keyspaces: Mutex<Arc<Keyspaces>>,
    /// None when open read-only, and after close.
    pub manifest: Mutex<Option<Manifest>>,
    pub next_table_id: Arc<AtomicU64>,
    pub next_keyspace_id: AtomicU64,
    pub background: Background,
    pub handed_out: Mutex<Vec<Weak<Lease>>>,
    poison: OnceLock<String>,
    closed: AtomicBool,
    /// Nanoseconds each write is delayed for the debt on disk; 0 without.
    delay_ns: AtomicU64,
    /// Held while `delay_ns` is worked out and stored, so that the last look wins.
    pressure: Mutex<()>,
    /// Set by `open`.
    pub recovery: OnceLock<RecoveryReport>,
    /// Given back at the end of close.
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Store {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        env: Env,
        directory: PathBuf,
        options: Options,
        identity: Identity,
        sequencer: Arc<Sequencer>,
        memory: Memory,
        keyspaces: Keyspaces,
        next_ids: (Arc<AtomicU64>, u64),
        manifest: Option<Manifest>,
        lock: Option<Box<dyn FileLock>>,
    ) -> Store {
        Store {
            hasher: KeyHasher::new(identity.secret),
            env,
            directory,
            options,
            identity,
            sequencer,
            stripes: Stripes::default(),
            log: OnceLock::new(),
            memory,
            keyspaces: Mutex::new(Arc::new(keyspaces)),
            manifest: Mutex::new(manifest),
            next_table_id: next_ids.0,
            next_keyspace_id: AtomicU64::new(next_ids.1),
            background: Background::default(),
            handed_out: Mutex::new(Vec::new()),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            delay_ns: AtomicU64::new(0),
            pressure: Mutex::new(()),
            recovery: OnceLock::new(),
            lock: Mutex::new(lock),
        }
    }

    /// The log, or why there is none.
    pub fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or(Error::ReadOnly { op: "a write" })
    }

    /// Bytes at which a keyspace's memtable is turned.
    pub fn memtable_limit(&self, keyspace: &KeyspaceState) -> usize {
        keyspace
            .options
            .memtable_bytes
            .unwrap_or(usize::MAX)
            .min(self.memory.memtable_share / 2)
            .min(MEMTABLE_BYTES_MAX)
    }

    /// Bytes in the memtables that are read, frozen ones included.
    pub fn memtable_bytes(&self) -> usize {
        let guard = crossbeam_epoch::pin();
        let keyspaces = self.keyspaces.lock().clone();
        keyspaces
            .values()
            .flat_map(|k| k.current.load(&guard).generations.iter())
            .map(|g| g.memtable.bytes())
            .sum()
    }

    pub fn check_readable(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { what: "store" });
        }
        Ok(())
    }

    /// Asked under a stripe before an LSN is drawn: the store is open, and no writer died in flight,
    /// whose slot must keep showing what it had begun.
    pub fn check_writable(&self) -> Result<()> {
        self.check_readable()?;
        self.sequencer.check_unbroken()
    }

    pub fn mark_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Stops all writes for good: what failed cannot be mended by retrying. The first reason stays.
    pub fn poison(&self, why: &Error) {
        let _ = self.poison.set(why.to_string());
        self.background.wake();
    }

    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Lets a write in: checks that it is allowed, and delays it by the debt.
    #[inline]
    pub fn admit(&self, keyspace: &KeyspaceState, options: WriteOptions) -> Result<Durability> {
        if self.options.read_only {
            return Err(Error::ReadOnly { op: "a write" });
        }
        self.check_readable()?;
        keyspace.check_open()?;
        if let Some(why) = self.poison.get() {
            return Err(Error::Poisoned { why: why.clone() });
        }
        self.sequencer.check_unbroken()?;
        let durability = write::durability_of(keyspace, options, self.options.durability)?;
        let delay = self.delay_ns.load(Ordering::Relaxed);
        if delay != 0 || self.memory.is_short() {
            self.hold_back(delay)?;
        }
        Ok(durability)
    }

    /// Delays a write, or makes it wait until memory has room.
    #[cold]
    fn hold_back(&self, delay_ns: u64) -> Result<()> {
        if self.memory.sound_alarm() {
            self.background.wake();
        }
        if self.is_full() {
            return self
                .background
                .wait_while_full(|| self.is_full() && !self.is_closed() && self.poisoned().is_none());
        }
        let delay_ns = delay_ns.max(self.memory.delay_ns());
        if delay_ns != 0 {
            self.background.stall(Duration::from_nanos(delay_ns));
        }
        Ok(())
    }

    /// Waits for what the write was promised.
    #[inline]
    pub fn acknowledge(&self, end: Lsn, durability: Durability) -> Result<()> {
        if durability < Durability::Disk {
            return Ok(());
        }
        self.sync_log(end)
    }

    /// Makes the log durable up to `end`. A failure is final.
    pub fn sync_log(&self, end: Lsn) -> Result<()> {
        self.log()?.sync_to(end).inspect_err(|error| self.poison(error))
    }

    /// True while writers wait for a flush.
    pub fn is_full(&self) -> bool {
        self.memory.is_full()
    }

    /// Computes the delay anew. Called after whatever changes it: turns, jobs, dropped keyspaces.
    pub fn measure_pressure(&self) {
        // Two at once could store in the other order than they looked: memory that was just freed
        // would count as full, and writers would wait for a flush that nobody has to do.
        let looking = self.pressure.lock();
        // From twice level 0's trigger on; what memory asks for is worked out by each write.
        let load = self.level0_overhang().min(1.0);
        let delay = if load == 0.0 { 0 } else { (load * load * DELAY_NS_MAX) as u64 };
        self.delay_ns.store(delay, Ordering::Relaxed);
        drop(looking);
        self.background.wake();
    }

    /// How far the fullest level 0 is beyond twice its trigger; 1 at six times.
    fn level0_overhang(&self) -> f64 {
        let guard = crossbeam_epoch::pin();
        let keyspaces = self.keyspaces.lock().clone();
        keyspaces
            .values()
            .map(|k| {
                let trigger = k.options.level0_tables as f64;
                let tables = k.current.load(&guard).levels.level(0).len() as f64;
                (tables - 2.0 * trigger).max(0.0) / (4.0 * trigger)
            })
            .fold(0.0, f64::max)
    }

    /// True if memory is short and nothing can be flushed: the log has not reached the end of what is frozen, or nothing
    /// is frozen, since what fills memory hardly fills the log.
    /// The tail is the one by which the caller found nothing to flush: with a later one neither of the two might see work.
    pub fn is_stuck(&self, tail: Lsn) -> bool {
        if !self.memory.is_short() {
            return false;
        }
        let keyspaces = self.keyspaces.lock().clone();
        let guard = crossbeam_epoch::pin();
        let mut frozen = keyspaces.values().filter_map(|k| k.current.load(&guard).frozen().last()).peekable();
        let nothing_due = match frozen.peek() {
            None => true,
            Some(_) => self.is_full() && frozen.all(|oldest| oldest.end() > tail),
        };
        // Else it is readers who hold the memory, and a border helps nobody.
        nothing_due && self.memtable_bytes() >= self.memory.memtable_share / 4
    }

    /// Fills the log up to the next segment border, so that what was turned there can be flushed.
    pub fn pad_to_border(&self) -> Result<()> {
        let log = self.log()?;
        let room = log.ensure_room(log.units_per_segment())?;
        // Close waits for every stripe, and what comes later sees the mark: no pad behind the last record.
        let held = self.stripes.lock(0);
        self.check_writable()?;
        let pad = self.sequencer.begin_to_border(log.units_per_segment());
        drop(room);
        log.write_pad(pad.lsn(), pad.end().0 - pad.lsn().0)?;
        pad.commit();
        drop(held);
        Ok(())
    }

    /// True if the device has less than `needed` bytes left. What the log holds becomes tables while
    /// there is room for both: on a device full of log nothing could be flushed.
    fn is_scarce(&self, needed: u64) -> bool {
        matches!(self.env.fs.free_bytes(&self.directory), Ok(Some(free)) if free < needed)
    }

    /// Frees what jobs have replaced and nobody reads any more: superversions, their memtables, table files.
    /// True if something is still held. Removes files: for background workers and `close`.
    pub fn tidy(&self) -> bool {
        // A replaced pointer is freed two epochs on; each step advances by one unless a reader is in the way.
        for _ in 0..3 {
            crossbeam_epoch::pin().flush();
        }
        let tables = self.memory.shelf.sweep();
        // The account first: what is written meanwhile is not held by readers.
        let charged = self.memory.memtables.bytes();
        let held = charged.saturating_sub(self.memtable_bytes());
        self.memory.lend(held, self.env.clock.now());
        self.background.wake_writers();
        tables > 0 || held > 0
    }

    /// Called by the log before the segment that begins at `border` opens: turns the keyspaces whose
    /// memtable would outgrow its limit, and those that hold the oldest log beyond its bound.
    pub fn on_border(&self, border: Lsn) {
        let keyspaces = self.keyspaces.lock().clone();
        let guard = crossbeam_epoch::pin();
        let segment = self.identity.segment_bytes as usize;
        let log_over = self.log.get().is_some_and(|log| {
            let live = log.live_bytes();
            live + segment as u64 > self.options.log_bytes_max as u64
                || self.is_scarce(live + 2 * segment as u64)
        });
        let mut turnable: Vec<_> = keyspaces
            .values()
            .map(|k| (k, k.current.load(&guard).active()))
            .filter(|(_, active)| !active.memtable.is_empty() && active.start < border)
            .collect();
        // The largest first: they make the most room.
        turnable.sort_by_key(|(_, active)| std::cmp::Reverse(active.memtable.bytes()));
        let oldest = turnable.iter().map(|(_, active)| active.start).min();
        let mut staying: usize = turnable.iter().map(|(_, active)| active.memtable.bytes()).sum();
        for (keyspace, active) in turnable {
            let bytes = active.memtable.bytes();
            let limit = self.memtable_limit(keyspace);
            // A segment is written before this border comes, and one before the next one does.
            let ahead = (segment + segment / 2).min(limit / 2);
            let outgrown = bytes + ahead >= limit;
            let pins = log_over && Some(active.start) == oldest;
            let crowds = staying + segment + segment / 2 >= self.memory.memtable_share / 2;
            let asked = self.background.flush_asked(keyspace.id);
            if outgrown || pins || crowds || asked {
                let comparator = keyspace.options.comparator.clone();
                keyspace.current.turn(border, || self.memory.memtable(&comparator));
                staying -= bytes.min(staying);
            }
        }
        drop(guard);
        self.measure_pressure();
        self.background.wake();
    }

    /// The LSN below which no log is needed.
    pub fn log_needed_from(&self) -> Lsn {
        // P first: what is empty afterwards holds nothing below it.
        let completed = self.sequencer.completed();
        let keyspaces = self.keyspaces.lock().clone();
        let guard = crossbeam_epoch::pin();
        keyspaces
            .values()
            .flat_map(|k| k.current.load(&guard).generations.iter())
            .filter(|g| !g.memtable.is_empty())
            .map(|g| g.start)
            .fold(completed, Lsn::min)
    }

    /// Releases snapshots that were forgotten for longer than the expiry.
    pub fn expire_snapshots(&self) {
        let Some(expiry) = self.options.snapshot_expiry else { return };
        let now = self.env.clock.now();
        let leases: Vec<Arc<Lease>> = {
            let mut handed_out = self.handed_out.lock();
            handed_out.retain(|weak| weak.strong_count() > 0);
            handed_out.iter().filter_map(Weak::upgrade).collect()
        };
        for registration in leases.iter().filter_map(|lease| lease.expire(now, expiry)) {
            self.sequencer.snapshots().release(registration);
        }
    }
}
