//! Replay: what a log holds, brought back into memtables and tables.
//!
//! Place: `open` makes one for the log that it scanned, lets it run, and makes its `edit` count. `loading` fills memtables;
//! what becomes of them is decided here.
//!
//! Invariants:
//! 1. Nobody else sees the store yet, so its tables show before the manifest names them: all of them at once, at the end.
//! 2. On a full device orphans and spare files go, once, when something could not be written, and never before all of the
//!    log was checked against the manifest: the tables of a manifest that lost its end look like orphans.
//! 3. What memory can hold stays there and in the log, if the log is whole; the log is durable before anything is built on
//!    that (`open`, I7). It is synced while it is read. If that fails, nothing is taken for durable of it, now or by a
//!    later open: it is flushed.
//! 4. What memory cannot hold is flushed, up to a place between two records; on a device without room it stays, too, as
//!    long as the whole budget can hold it.
//!
//! Concurrency: one thread, but for those of `loading`, and the one that syncs the log; both are waited for.
//! Tests: `db::tests::crash`, `db::tests::carried`, `db::tests::full`, `db::tests::lost`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::compaction::CompactionOutcome;
use crate::env::Thread;
use crate::error::{Error, Result};
use crate::key::Lsn;
use crate::log::{Entry, Prior, Recovered};
use crate::sync::Mutex;
use crate::version::{self, VersionEdit};

use super::background::{apply, flush_generations};
use super::keyspace::KeyspaceState;
use super::keyspaces::KeyspaceMap;
use super::loading::{Known, Loading, Target};
use super::store::{Store, with_room};
use super::superversion::SuperVersion;

/// Sessions that a log may have before what it holds is flushed: each has a file of its own, and a program that opens the
/// store for one write at a time would pile them up.
const SESSIONS_MAX: usize = 64;

/// A recovery under way.
pub(super) struct Replay<'a> {
    store: &'a Store,
    pub recovered: Arc<Recovered>,
    /// What makes the tables count that were written so far.
    pub edit: VersionEdit,
    known: Arc<Known>,
    gave_up: bool,
    /// All of the log was found to fit the manifest.
    pub checked: bool,
    /// The log can be made durable as it is.
    is_whole: bool,
    /// The device has no room: what is in memory stays there.
    stays: bool,
    syncing: Option<Syncing>,
}

/// A log that is being made durable.
struct Syncing {
    thread: Option<Box<dyn Thread>>,
    outcome: Arc<Mutex<Option<Result<()>>>>,
}

impl Syncing {
    fn finish(mut self) -> Result<()> {
        self.join();
        let outcome = self.outcome.lock().take();
        outcome
            .unwrap_or_else(|| Err(Error::Poisoned { why: "the thread that synced the log panicked".into() }))
    }

    fn join(&mut self) {
        self.thread.take().map(Thread::join);
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.join();
    }
}

impl<'a> Replay<'a> {
    pub fn new(
        store: &'a Store,
        recovered: Arc<Recovered>,
        next_keyspace_id: u32,
        manifest_path: PathBuf,
    ) -> Replay<'a> {
        Replay {
            store,
            edit: VersionEdit::new(),
            known: Arc::new(Known { next_keyspace_id, manifest_path }),
            gave_up: false,
            checked: false,
            is_whole: recovered.is_whole(),
            stays: false,
            syncing: None,
            recovered,
        }
    }

    /// True if what memory can hold is to stay in the log: none of it is missing, and it is neither in many small files nor
    /// in files that hold little.
    pub fn keeps_log(&self) -> bool {
        let found = &self.recovered;
        self.is_whole
            && found.sessions.len() <= SESSIONS_MAX
            && found.unused_bytes() <= self.store.options.log_bytes() as u64
    }

    /// Begins to make the log durable; [`Replay::seal`] waits for the end of it. A log that was closed is.
    pub fn begin_sync(&mut self) -> Result<()> {
        if self.recovered.clean {
            return Ok(());
        }
        let outcome = Arc::new(Mutex::new(None));
        let (recovered, told) = (Arc::clone(&self.recovered), Arc::clone(&outcome));
        let body = Box::new(move || {
            let synced = recovered.make_durable();
            *told.lock() = Some(synced);
        });
        let thread = self.store.env.spawner.spawn("drumlin-sync", body)?;
        self.syncing = Some(Syncing { thread: Some(thread), outcome });
        Ok(())
    }

    /// Waits for the end of what [`Replay::begin_sync`] began.
    pub fn end_sync(&mut self) {
        self.syncing = None;
    }

    /// Applies what the log holds.
    pub fn run(&mut self) -> Result<()> {
        let (pieces, mut next) = (self.recovered.pieces(), 0);
        while next < pieces {
            next = self.loading(next).run(&self.store.env, self.store.options.background_threads)?;
            if next < pieces {
                self.make_room(self.recovered.piece_start(next))?;
            }
        }
        self.checked = true;
        Ok(())
    }

    fn loading(&self, first: usize) -> Loading {
        let keyspaces = self.store.keyspaces.all();
        let guard = epoch::pin();
        let target = |(&keyspace, state): (&u32, &&Arc<KeyspaceState>)| {
            let now = state.current.load(&guard);
            let memtable = Arc::clone(&now.active().memtable);
            let limit = self.limit(state);
            Target { keyspace, flushed_to: now.flushed_to, form: state.form, limit, memtable }
        };
        let targets = by_id(&keyspaces).iter().map(target).collect();
        let (recovered, known) = (Arc::clone(&self.recovered), Arc::clone(&self.known));
        Loading::new(recovered, known, targets, self.limit_of_all(), first)
    }

    /// Bytes that the memtable of a keyspace may have: a quarter more than turns it. What it held when the store died takes more
    /// where several threads load it; and who opens waits for a flush, which would else be done beside him.
    fn limit(&self, keyspace: &KeyspaceState) -> usize {
        let is_bound = !self.store.options.read_only && !self.stays;
        let runs = keyspace.options().memory.runs();
        if is_bound { self.store.memtable_limit(keyspace) * runs / 4 * 5 } else { usize::MAX }
    }

    /// Bytes that all memtables may have: likewise, a quarter more than they may have before a border turns one of them.
    fn limit_of_all(&self) -> usize {
        if self.store.options.read_only {
            usize::MAX
        } else if self.stays {
            self.store.options.memory_bytes
        } else {
            self.store.memory.memtable_share / 8 * 5
        }
    }

    /// Flushes what has outgrown its limit, of which everything is loaded that is below `end`; of the rest the largest, if
    /// all together have.
    fn make_room(&mut self, end: Lsn) -> Result<()> {
        let keyspaces = self.store.keyspaces.all();
        let bytes_of =
            |keyspace: &KeyspaceState| keyspace.current.load(&epoch::pin()).active().memtable.bytes();
        let mut sizes: Vec<_> = keyspaces.values().map(|keyspace| (bytes_of(keyspace), keyspace)).collect();
        sizes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut all: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        for (bytes, keyspace) in sizes {
            if bytes > self.limit(keyspace) || all > self.limit_of_all() {
                self.flush(keyspace, end)?;
                all -= bytes;
            }
        }
        Ok(())
    }

    /// Flushes what was recovered of every keyspace; everything below `start` is in tables then, unless the device is full.
    pub fn flush_all(&mut self, start: Lsn) -> Result<()> {
        let keyspaces = self.store.keyspaces.all();
        keyspaces.values().try_for_each(|keyspace| self.flush(keyspace, start))
    }

    /// What the next session, which begins at `start`, must know of the log. From here on the log reads the same whatever is
    /// lost, or all of it is flushed.
    pub fn seal(&mut self, start: Lsn) -> Result<Prior> {
        let prior = self.recovered.prior();
        if let Some(syncing) = self.syncing.take() {
            match syncing.finish() {
                Ok(()) => return Ok(Prior { clean: true, ..prior }),
                Err(error) if self.stays => return Err(error),
                Err(_) => {
                    self.is_whole = false;
                    self.flush_all(start)?;
                }
            }
        }
        if !self.stays {
            return Ok(prior);
        }
        self.recovered.make_durable()?;
        Ok(Prior { clean: true, ..prior })
    }

    /// Removes what nobody needs, if that was not done before. True if that may help.
    pub fn give_up(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.gave_up, true) {
            return Ok(false);
        }
        let keyspaces = self.store.keyspaces.all();
        let by_id = by_id(&keyspaces);
        let known = Arc::clone(&self.known);
        self.recovered.replay(first_unflushed(&keyspaces), &mut |_, entry: Entry<'_>| {
            if by_id.contains_key(&entry.keyspace) { Ok(()) } else { known.check(entry.keyspace) }
        })?;
        self.checked = true;
        let orphans = remove_orphans(self.store, &self.edit)?;
        Ok(self.recovered.remove_unneeded()? || orphans)
    }

    fn flush(&mut self, keyspace: &KeyspaceState, end: Lsn) -> Result<()> {
        if !self.stays {
            let store = self.store;
            match with_room(|| write_tables(store, keyspace), || self.give_up()) {
                Ok(outcome) => {
                    self.show(keyspace, &outcome, end);
                    return Ok(());
                }
                Err(full) if full.is_no_space() && self.is_whole => self.stays = true,
                Err(error) => return Err(error),
            }
        }
        let memory = &self.store.memory.memtables;
        if memory.bytes() > self.store.options.memory_bytes {
            return Err(Error::NoSpace { path: self.store.directory.clone(), shortage: None });
        }
        Ok(())
    }

    fn show(&mut self, keyspace: &KeyspaceState, outcome: &CompactionOutcome, end: Lsn) {
        let store = self.store;
        self.edit.changes.extend(store.edit_of(keyspace.id, outcome, Some(end)).changes);
        let flushed = keyspace.current.replace(|now| {
            let levels = apply(&now.levels, outcome);
            let memtable = keyspace.next_memtable(&store.memory);
            Some(SuperVersion::new(Arc::new(levels), end, memtable))
        });
        // Nobody else is here yet: it goes at once, past the epoch.
        drop(flushed);
    }
}

fn write_tables(store: &Store, keyspace: &KeyspaceState) -> Result<CompactionOutcome> {
    let generation = {
        let guard = epoch::pin();
        keyspace.current.load(&guard).active().clone()
    };
    let generations = std::slice::from_ref(&generation);
    flush_generations(&store.flush_context(keyspace, generations), generations)
}

fn by_id(keyspaces: &KeyspaceMap) -> BTreeMap<u32, &Arc<KeyspaceState>> {
    keyspaces.values().map(|k| (k.id.0, k)).collect()
}

/// Below, every keyspace is flushed.
fn first_unflushed(keyspaces: &KeyspaceMap) -> Lsn {
    let guard = epoch::pin();
    keyspaces.values().map(|k| k.current.load(&guard).flushed_to).min().unwrap_or(Lsn::ZERO)
}

/// Removes table files that no version names: left by a crash between writing and naming them. A table that is named, by
/// the manifest or by `edit`, is left alone wherever it lies; so is every one while nobody knows what the manifest says.
/// True if there was one.
pub(super) fn remove_orphans(store: &Store, edit: &VersionEdit) -> Result<bool> {
    let orphans = {
        let manifest = store.manifest.lock();
        let manifest = manifest.as_ref().ok_or(Error::Closed { what: "store" })?;
        if manifest.poisoned().is_some() {
            return Ok(false);
        }
        let mut state = manifest.state().clone();
        state.apply(edit).map_err(|misfit| Error::invalid(misfit.to_string()))?;
        let places = store.options.level_paths.values().chain([&store.directory]);
        version::orphans(&*store.env.fs, places.map(PathBuf::as_path), &state)?
    };
    orphans.iter().try_for_each(|orphan| match store.env.fs.remove(orphan) {
        // An earlier opening's last reader has gone, and has taken the table with it.
        Err(error) if error.is_missing_file() => Ok(()),
        other => other,
    })?;
    Ok(!orphans.is_empty())
}
