//! The store behind its handles: what every operation and background thread shares.
//!
//! Place: made by `open`; used by `write`, `keyspace`, `snapshot`, `background`.
//!
//! Lock order (take from left to right, never back):
//! `pressure` → `manifest` → a keyspace's `Current::change` → `background.state`; the map of `keyspaces` last of all.
//! Key locks are taken with none of these held, and nothing of these is taken under one. `closing`, and `dropping` of
//! `keyspaces`, come before everything, key locks included.
//!
//! Admission: before a write takes any lock it passes `admit`. With no debt that is two loads; else see `pressure`.
//! When memtables turn: see `turn`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::commit::{Sequencer, Stripes};
use crate::env::{Env, FileLock};
use crate::error::{Error, Result};
use crate::key::{KeyHasher, Lsn};
use crate::log::Log;
use crate::options::{Durability, Options, WriteOptions};
use crate::sync::{Mutex, failpoint};
use crate::version::{Change, Identity, Manifest, VersionEdit};

use super::background::Background;
use super::keyspace::KeyspaceState;
use super::keyspaces::{KeyspaceMap, Keyspaces};
use super::memory::Memory;
use super::recovery::RecoveryReport;
use super::snapshot::Lease;
use super::timing::{Began, Timed, Timing};
use super::write;

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
    pub keyspaces: Keyspaces,
    /// None when open read-only, and after close.
    pub manifest: Mutex<Option<Manifest>>,
    pub next_table_id: Arc<AtomicU64>,
    pub background: Background,
    pub timing: Timing,
    pub handed_out: Mutex<Vec<Weak<Lease>>>,
    poison: OnceLock<String>,
    closed: AtomicBool,
    /// Held by whoever closes the store, until it is closed; then what they were told.
    pub closing: Mutex<Option<Result<()>>>,
    /// Held while the keyspaces' delays are worked out and stored, so that the last look wins.
    pub(super) pressure: Mutex<()>,
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
        keyspaces: KeyspaceMap,
        next_table_id: u64,
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
            keyspaces: Keyspaces::new(keyspaces),
            manifest: Mutex::new(manifest),
            next_table_id: Arc::new(AtomicU64::new(next_table_id)),
            background: Background::default(),
            timing: Timing::default(),
            handed_out: Mutex::new(Vec::new()),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            closing: Mutex::new(None),
            pressure: Mutex::new(()),
            recovery: OnceLock::new(),
            lock: Mutex::new(lock),
        }
    }

    /// The log, or why there is none.
    pub fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or(Error::ReadOnly { op: "a write" })
    }

    pub fn check_readable(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { what: "store" });
        }
        Ok(())
    }

    /// Asked under a key lock before an LSN is drawn: the store is open, and no writer died in flight,
    /// whose slot must keep showing what it had begun.
    pub fn check_writable(&self) -> Result<()> {
        self.check_readable()?;
        self.sequencer.check_unbroken()
    }

    pub fn mark_closed(&self) {
        self.closed.store(true, Ordering::Release);
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
        let delay = keyspace.delay_ns.load(Ordering::Relaxed);
        if delay != 0 || self.memory.is_short() {
            self.hold_back(delay)?;
        }
        Ok(durability)
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
        let log = self.log()?;
        self.always_timed(Timed::LogSync, || log.sync_to(end)).inspect_err(|error| self.poison(error))
    }

    /// Something if the operation that begins is one of those that are timed; see `timing`.
    #[inline]
    pub fn sample(&self) -> Option<Began> {
        self.timing.sample(&*self.env.clock)
    }

    /// The end of an operation that wrote so many bytes of keys and values.
    #[inline]
    pub fn timed(&self, kind: Timed, began: Option<&Began>, bytes: impl FnOnce() -> u64) {
        if let Some(began) = began {
            self.timing.record(kind, began, bytes(), &*self.env.clock);
        }
    }

    /// Does something that is seldom enough to be timed always.
    pub fn always_timed<T>(&self, kind: Timed, work: impl FnOnce() -> T) -> T {
        let began = self.timing.begin(&*self.env.clock);
        let done = work();
        self.timing.record(kind, &began, 0, &*self.env.clock);
        done
    }

    /// Appends to the manifest; see [`Store::append_to`].
    pub fn append(&self, edit: &VersionEdit) -> Result<()> {
        self.append_to(&mut self.manifest.lock(), edit)
    }

    /// Appends to the manifest, and says with it how far the log is durable now. A failure after which
    /// nobody knows whether the edit counts poisons the store; after any other the edit does not count,
    /// durably, and can be tried again.
    pub fn append_to(&self, manifest: &mut Option<Manifest>, edit: &VersionEdit) -> Result<()> {
        let manifest = manifest.as_mut().ok_or(Error::Closed { what: "store" })?;
        failpoint::hit("manifest::append");
        let reaches = self.log.get().map_or(Lsn::ZERO, |log| log.durable());
        let appended = if reaches > manifest.state().log_reaches {
            manifest.append(&edit.clone().with(Change::LogReaches(reaches)))
        } else {
            manifest.append(edit)
        };
        if let (Err(error), Some(_)) = (&appended, manifest.poisoned()) {
            self.poison(error);
        }
        appended
    }

    /// Says in the manifest where the log was closed: one that ends before has lost something. On a full
    /// device it is left unsaid, since nothing is wrong with what was closed.
    pub fn note_end(&self) -> Result<()> {
        match self.append(&VersionEdit::new()) {
            Err(error) if error.is_no_space() => Ok(()),
            other => other,
        }
    }

    /// Frees what jobs have replaced and nobody reads any more: superversions, their memtables, table files.
    /// True if something is still held. Removes files: for background workers and `close`.
    pub fn tidy(&self) -> bool {
        // A replaced pointer is freed two epochs on; each step advances by one unless a reader is in the way.
        for _ in 0..3 {
            crossbeam_epoch::pin().flush();
        }
        let tables = self.memory.shelf.sweep();
        let held = self.memory.sweep();
        if self.memory.lend(&held, self.env.clock.now()) {
            self.background.wake_writers();
        }
        tables > 0 || !held.is_nothing()
    }

    /// The LSN below which no log is needed.
    pub fn log_needed_from(&self) -> Lsn {
        // P first: what is empty afterwards holds nothing below it.
        let completed = self.sequencer.completed();
        let keyspaces = self.keyspaces.all();
        let guard = crossbeam_epoch::pin();
        let needs = keyspaces.values().filter_map(|k| k.needs_log_from(k.current.load(&guard)));
        needs.fold(completed, Lsn::min)
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

/// Does something; if the device is full and `give_up` frees some of it, once more.
pub(super) fn with_room<T>(
    mut work: impl FnMut() -> Result<T>,
    give_up: impl FnOnce() -> Result<bool>,
) -> Result<T> {
    match work() {
        Err(full) if full.is_no_space() => {
            if give_up()? {
                work()
            } else {
                Err(full)
            }
        }
        other => other,
    }
}
