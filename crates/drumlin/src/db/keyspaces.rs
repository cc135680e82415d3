//! All keyspaces: which there are, how one is made and how one is dropped.
//!
//! Place: `Store` has one [`Keyspaces`]; `Db` calls the store's methods here, and everybody who looks at every keyspace
//! asks `all`.
//!
//! A drop's place in the history: it is marked (handles answer `Closed` from there on), writers that looked before are
//! waited for, the log is synced, and only then the manifest says it. What was acknowledged before the mark lies below
//! that sync, so a power loss that keeps the drop keeps it, too. What is acknowledged later comes after the drop: nobody
//! who wrote it can have used the keyspace since. A drop that fails or is cut off takes its mark back: it never was.
//!
//! Invariants:
//! 1. The map changes under the manifest's lock, behind the edit that says so.
//! 2. Nobody waits for a device with the map locked: the log looks at it before it opens a segment.
//!
//! Concurrency: the map is replaced, never changed, so a look costs one reference, and its lock is held for no longer.
//! Drops take turns; who makes a keyspace of the same name waits for its drop. Tests: tests/keyspaces.rs,
//! `db::tests::dropping`, `db::tests::crash`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::options::{KeyspaceOptions, Layout};
use crate::sync::Mutex;
use crate::table::TableHandle;
use crate::version::{Change, KeyspaceId, Levels, VersionEdit, encode_options};

use super::keyspace::KeyspaceState;
use super::store::Store;
use super::superversion::SuperVersion;

/// Longest keyspace name, in bytes.
const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Refuses what cannot be the name of a keyspace; for those who want to know before they open a store.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_keyspace_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "a keyspace name has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes and no control characters: {name:?}"
        )));
    }
    Ok(())
}

/// The keyspaces at one moment, by name.
pub(crate) type KeyspaceMap = BTreeMap<String, Arc<KeyspaceState>>;

/// Which keyspaces there are; see the module.
pub(crate) struct Keyspaces {
    map: Mutex<Arc<KeyspaceMap>>,
    /// Held by whoever drops a keyspace, from before it is marked until it is gone.
    dropping: Mutex<()>,
}

impl Keyspaces {
    pub fn new(map: KeyspaceMap) -> Keyspaces {
        Keyspaces { map: Mutex::new(Arc::new(map)), dropping: Mutex::new(()) }
    }

    /// All of them, as of now; those that are being dropped are among them.
    pub fn all(&self) -> Arc<KeyspaceMap> {
        self.map.lock().clone()
    }

    fn get(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        self.map.lock().get(name).cloned()
    }

    fn change(&self, change: impl FnOnce(&mut KeyspaceMap)) {
        change(Arc::make_mut(&mut self.map.lock()));
    }
}

/// Refuses options that would have other orders of keys, or containers of other keys, than the tables have that are there.
fn check_same_trie(name: &str, old: &KeyspaceOptions, new: &KeyspaceOptions) -> Result<()> {
    match (old.layout, new.layout) {
        (Layout::Trie { levels, hash, .. }, Layout::Trie { levels: new_levels, hash: new_hash, .. }) => {
            if (levels, hash) == (new_levels, new_hash) {
                return Ok(());
            }
            Err(Error::invalid(format!(
                "keyspace {name} is a trie of {levels} levels by {hash:?}, which stays: not of {new_levels} by {new_hash:?}"
            )))
        }
        (Layout::Trie { .. }, _) => Err(Error::invalid(format!(
            "keyspace {name} is a trie, which stays: its records have no order; copy them into a keyspace of the other layout"
        ))),
        (_, Layout::Trie { .. }) => Err(Error::invalid(format!(
            "keyspace {name} has an order, which stays: copy its records into a keyspace made as a trie"
        ))),
        _ => Ok(()),
    }
}

fn no_keyspace(name: &str) -> Error {
    Error::NotFound { what: "keyspace", name: name.to_string() }
}

impl Store {
    /// The keyspace `name`.
    pub fn open_keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        self.check_readable()?;
        self.keyspaces.get(name).filter(|state| !state.is_dropped()).ok_or_else(|| no_keyspace(name))
    }

    /// Makes the keyspace `name`, unless somebody has made it meanwhile.
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Arc<KeyspaceState>> {
        options.validate()?;
        check_keyspace_name(name)?;
        let mut manifest = loop {
            let manifest = self.manifest.lock();
            match self.keyspaces.get(name) {
                None => break manifest,
                Some(state) if !state.is_dropped() => return Ok(state),
                Some(_) => {}
            }
            // It is being dropped: until that is done, or has failed.
            drop(manifest);
            drop(self.keyspaces.dropping.lock());
        };
        let next = manifest.as_ref().map(|manifest| KeyspaceId(manifest.state().next_keyspace_id));
        let id = next.ok_or(Error::Closed { what: "store" })?;
        if id.0 == u32::MAX {
            return Err(Error::invalid("every keyspace id has been used"));
        }
        let edit = VersionEdit::new()
            .with(Change::CreateKeyspace { id, name: name.to_string(), options: encode_options(&options) })
            .with(Change::NextKeyspaceId(id.0 + 1));
        self.append_to(&mut manifest, &edit)?;
        if options.memory.has_hash() {
            self.sequencer.snapshots().allow_displacing();
        }
        let hasher = options.hasher(self.hasher);
        let memtable = self.memory.memtable(&options, hasher);
        let levels = Arc::new(Levels::new(options.comparator.clone(), Vec::new()));
        let first = SuperVersion::new(levels, self.sequencer.tail(), memtable);
        let limit = self.memory.memtable_limit(&options);
        let state = KeyspaceState::new(id, name.to_string(), options, hasher, limit, first);
        let state = Arc::new(state);
        self.keyspaces.change(|map| drop(map.insert(name.to_string(), state.clone())));
        Ok(state)
    }

    /// Gives a keyspace other options.
    pub fn set_options(&self, state: &KeyspaceState, options: KeyspaceOptions) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly { op: "set_options" });
        }
        self.check_readable()?;
        options.validate()?;
        let (old, new) = (state.comparator.name(), options.comparator.name());
        if old != new {
            return Err(Error::invalid(format!(
                "keyspace {} is ordered by {old}, which stays: not by {new}",
                state.name
            )));
        }
        if options.logged != state.logged {
            let is = if state.logged { "logged" } else { "not logged" };
            return Err(Error::invalid(format!(
                "keyspace {} is {is}, which stays: make another one",
                state.name
            )));
        }
        check_same_trie(&state.name, &state.options(), &options)?;
        {
            let mut manifest = self.manifest.lock();
            state.check_open()?;
            let change = Change::SetOptions { keyspace: state.id, options: encode_options(&options) };
            self.append_to(&mut manifest, &change.into())?;
            if options.memory.has_hash() {
                // Before the first memtable that displaces: what snapshots rely on is of memtables, not of keyspaces.
                self.sequencer.snapshots().allow_displacing();
            }
            let limit = self.memory.memtable_limit(&options);
            state.replace_options(options, limit);
        }
        // The new layout may have something to do.
        self.measure_pressure();
        Ok(())
    }

    /// Drops the keyspace `name`; see the module for when.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly { op: "drop_keyspace" });
        }
        self.check_readable()?;
        let _dropping = self.keyspaces.dropping.lock();
        let state = self.keyspaces.get(name).ok_or_else(|| no_keyspace(name))?;
        // Most of what there is to sync, while everybody goes on.
        self.sync_log(self.sequencer.tail())?;
        state.dropped.store(true, Ordering::Release);
        if let Err(error) = self.drop_durably(&state) {
            state.dropped.store(false, Ordering::Release);
            // A job that ran into the mark is due again.
            self.background.wake();
            return Err(error);
        }
        // A job that installs checks `dropped` under the manifest's lock, so no table comes after this.
        let manifest = self.manifest.lock();
        let left = state.current.replace(|now| {
            now.levels.tables().for_each(TableHandle::mark_obsolete);
            Some(now.emptied(state.next_memtable(&self.memory)))
        });
        self.memory.retire(&left);
        drop(manifest);
        // Its memory is free, and its log; whoever waits for its flush waits in vain.
        let recycled = self.recycle_log();
        self.measure_pressure();
        self.background.wake();
        recycled
    }

    /// Makes the drop of a keyspace that is marked durable, and before it everything that came before it.
    fn drop_durably(&self, state: &KeyspaceState) -> Result<()> {
        // Whoever looked before it was marked, and is writing.
        drop(self.stripes.lock_all());
        self.sync_log(self.sequencer.tail())?;
        let mut manifest = self.manifest.lock();
        let edit = VersionEdit::new().with(Change::DropKeyspace { id: state.id });
        self.append_to(&mut manifest, &edit)?;
        self.keyspaces.change(|map| drop(map.remove(&state.name)));
        Ok(())
    }
}
