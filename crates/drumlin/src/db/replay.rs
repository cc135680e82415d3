//! Replay: what a log holds, brought back into memtables and tables.
//!
//! Place: `open` makes one for the log that it scanned, lets it run, and makes its `edit` count.
//!
//! Invariants:
//! 1. Nobody else sees the store yet, so its tables show before the manifest names them: all of them at once, at the end.
//! 2. On a full device orphans and spare files go, once, when something could not be written, and never before all of the
//!    log was checked against the manifest: the tables of a manifest that lost its end look like orphans.
//! 3. What then still cannot be flushed stays in memory and in the log, if the log is whole and memory can hold it; the
//!    log is durable before anything is built on that (`open`, I7).
//!
//! Concurrency: one thread. Tests: `db::tests::crash`, `db::tests::full`, `db::tests::lost`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::compaction::CompactionOutcome;
use crate::error::{Error, Result};
use crate::key::{Kind, Lsn};
use crate::log::{Entry, Prior, Recovered};
use crate::version::{self, VersionEdit};

use super::background::{apply, flush_generations};
use super::keyspace::KeyspaceState;
use super::keyspaces::KeyspaceMap;
use super::store::{Store, with_room};
use super::superversion::SuperVersion;

/// A recovery under way.
pub(super) struct Replay<'a> {
    store: &'a Store,
    pub recovered: &'a Recovered,
    /// What makes the tables count that were written so far.
    pub edit: VersionEdit,
    /// Keyspaces below were made; those that the manifest does not list were dropped.
    next_keyspace_id: u32,
    manifest_path: PathBuf,
    gave_up: bool,
    /// All of the log was found to fit the manifest.
    pub checked: bool,
    /// The device has no room: what is in memory stays there.
    stays: bool,
}

impl<'a> Replay<'a> {
    pub fn new(
        store: &'a Store,
        recovered: &'a Recovered,
        next_keyspace_id: u32,
        manifest_path: PathBuf,
    ) -> Replay<'a> {
        let edit = VersionEdit::new();
        Replay {
            store,
            recovered,
            edit,
            next_keyspace_id,
            manifest_path,
            gave_up: false,
            checked: false,
            stays: false,
        }
    }

    fn unknown(&self, keyspace: u32) -> Error {
        let what = format!(
            "its end is missing: the log has writes to keyspace {keyspace}, which the manifest says was never made"
        );
        Error::corruption(&self.manifest_path, None, what)
    }

    /// The keyspace of an entry; `None` if it was dropped.
    fn keyspace_of<'k>(
        &self,
        by_id: &BTreeMap<u32, &'k Arc<KeyspaceState>>,
        id: u32,
    ) -> Result<Option<&'k Arc<KeyspaceState>>> {
        match by_id.get(&id) {
            Some(keyspace) => Ok(Some(keyspace)),
            None if id < self.next_keyspace_id => Ok(None),
            None => Err(self.unknown(id)),
        }
    }

    /// Applies what the log holds.
    pub fn run(&mut self) -> Result<()> {
        let keyspaces = self.store.keyspaces.all();
        let by_id = by_id(&keyspaces);
        let mut last_applied = Lsn::ZERO;
        let recovered = self.recovered;
        let applied = recovered.replay(first_unflushed(&keyspaces), &mut |lsn, entry: Entry<'_>| {
            let Some(keyspace) = self.keyspace_of(&by_id, entry.keyspace)? else { return Ok(()) };
            let guard = epoch::pin();
            let now = keyspace.current.load(&guard);
            if lsn < now.flushed_to {
                return Ok(());
            }
            if !self.store.options.read_only
                && now.active().memtable.bytes() > self.store.memtable_limit(keyspace)
            {
                // Only between records: the parts of a batch share their LSN.
                if last_applied < lsn {
                    self.flush(keyspace, lsn)?;
                }
            }
            last_applied = lsn;
            let memtable = &keyspace.current.load(&guard).active().memtable;
            match entry.kind {
                Kind::RangeDelete => memtable.publish_range_tombstone(entry.key, entry.value, lsn, None),
                kind => {
                    let node = memtable.reserve(entry.key, kind, entry.value);
                    let published = memtable.publish(node, lsn, None);
                    memtable.tell_guide(&published);
                }
            }
            Ok(())
        });
        self.checked |= applied.is_ok();
        applied
    }

    /// Flushes what was recovered of every keyspace; everything below `start` is in tables then, unless the device is full.
    pub fn flush_all(&mut self, start: Lsn) -> Result<()> {
        let keyspaces = self.store.keyspaces.all();
        keyspaces.values().try_for_each(|keyspace| self.flush(keyspace, start))
    }

    /// What the next session must know of the log, which from here on reads the same whatever is lost.
    pub fn seal(&self) -> Result<Prior> {
        let prior = self.recovered.prior();
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
        self.recovered.replay(first_unflushed(&keyspaces), &mut |_, entry: Entry<'_>| {
            self.keyspace_of(&by_id, entry.keyspace).map(drop)
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
                Err(full) if full.is_no_space() && self.recovered.is_whole() => self.stays = true,
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
            let memtable = store.memory.memtable(&keyspace.options.comparator);
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
    flush_generations(&store.job_context(keyspace), std::slice::from_ref(&generation))
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
