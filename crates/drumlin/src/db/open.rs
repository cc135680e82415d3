//! Opening: from a directory to a running store.
//!
//! Place: called by `Db::open`. Reads the manifest, then the log above what is flushed, then starts
//! the log's next session and the background threads.
//!
//! Invariants:
//! - **I7 Survival.** Every whole record that the log's rules let survive is applied in LSN order.
//!   After an unclean stop everything recovered is flushed, and one manifest edit makes all of it
//!   count, before the first new write. So a power loss during recovery finds the old log, cut where
//!   such a loss cuts it, or none of it; the old log is never read again after the edit, and nothing
//!   can be appended behind a hole.
//! - A read-only open writes nothing: no lock file is created, no orphan removed, no log cut.
//! - After a clean close the log is complete: what it holds becomes the newest generation and stays
//!   logged where it is (unless it has very many files); the new session starts at the next segment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_epoch as epoch;

use crate::commit::Sequencer;
use crate::env::{Env, FileLock};
use crate::error::{Error, Result};
use crate::key::{KeyHasher, Kind, Lsn};
use crate::log::{self, EntryView, Log, LogOptions, Recovered, ScanOptions};
use crate::options::{KeyspaceOptions, Options};
use crate::table::{TableHandle, TableOptions};
use crate::version::{self, Change, Identity, Levels, Manifest, StoreState, VersionEdit};

use super::background::{Background, apply, edit_of, flush_generations, job_context};
use super::keyspace::KeyspaceState;
use super::memory::Memory;
use super::recovery::RecoveryReport;
use super::store::{Keyspaces, Store};
use super::superversion::{Current, Generation, SuperVersion};

/// The log's directory within the store's.
pub(crate) const LOG_DIRECTORY: &str = "log";
const LOCK_FILE: &str = "LOCK";
/// Log files that a clean log may have before what it holds is flushed: each session begins a file,
/// and a program that opens the store for one write at a time would pile them up.
const LOG_FILES_MAX: usize = 64;

/// Opens (or makes) the store in `directory`.
pub(crate) fn open(env: Env, directory: &Path, options: Options) -> Result<Arc<Store>> {
    options.validate()?;
    let lock = if options.read_only {
        lock_for_reading(&env, directory)?
    } else {
        if options.create_if_missing {
            env.fs.create_dir_all(directory)?;
        } else if !env.fs.exists(directory)? {
            return Err(no_store(directory));
        }
        Some(env.fs.lock(&directory.join(LOCK_FILE), true)?)
    };
    let (manifest, identity, state, manifest_path) = load(&env, directory, &options)?;
    if !options.read_only {
        // A table is no more durable than the name of the directory it lies in.
        options.level_paths.values().try_for_each(|path| version::make_directory(&*env.fs, path))?;
    }
    let log_directory = directory.join(LOG_DIRECTORY);
    let recovered = log::scan(&env.fs, &log_directory, scan_options(&identity, &state))?;
    check_manifest_reaches(&state, &recovered, &manifest_path)?;
    let memory = Memory::new(&env, &options);
    let keyspaces = keyspaces_of(directory, &options, &identity, &state, &memory)?;
    for keyspace in keyspaces.values() {
        let guard = epoch::pin();
        let levels = &keyspace.current.load(&guard).levels;
        levels
            .check(&*keyspace.options.comparator)
            .map_err(|misfit| Error::corruption(&manifest_path, None, misfit.to_string()))?;
    }

    let session_segment = state.session.map_or(0, |s| s.first_segment);
    // No LSN that a table has, or that some keyspace is flushed to, is drawn again.
    let newest = state.keyspaces.values().map(|k| Lsn(k.flushed_to.0.saturating_sub(1)));
    let newest = newest.chain(state.tables().map(|(_, _, meta)| meta.max_lsn)).max().unwrap_or_default();
    let first_segment = recovered.first_segment_after(newest).max(session_segment);
    let segment_units = identity.segment_bytes / Lsn::UNIT_BYTES;
    let start = if options.read_only { recovered.end } else { Lsn(first_segment * segment_units) };
    let sequencer = Sequencer::new(start);
    let next_table_id = Arc::new(AtomicU64::new(state.next_table_id));
    let next_ids = (next_table_id, u64::from(state.next_keyspace_id));
    let store = Arc::new(Store::new(
        env,
        directory.to_path_buf(),
        options,
        identity,
        sequencer,
        memory,
        keyspaces,
        next_ids,
        manifest,
        lock,
    ));
    let _ = store.recovery.set(RecoveryReport::of(&recovered));
    let mut recovery = Recovery {
        store: &store,
        edit: VersionEdit::new(),
        next_keyspace_id: state.next_keyspace_id,
        manifest_path,
    };
    recovery.replay(&recovered)?;
    if store.options.read_only {
        return Ok(store);
    }
    if !recovered.clean || recovered.segments.len() > LOG_FILES_MAX {
        recovery.flush_all(start)?;
    }
    if !recovery.edit.is_empty() {
        append(&store, &recovery.edit)?;
    }
    // Behind the log's start: from this edit on a log that lacks the session has lost it.
    let session = Change::SessionStart { first_segment, boot_id: store.env.fs.boot_id() };
    let served = start_log(&store, &log_directory, first_segment, &recovered)
        .and_then(|()| append(&store, &session.into()))
        .and_then(|()| remove_orphans(&store))
        .and_then(|()| Background::start(&store));
    match served {
        Ok(()) => Ok(store),
        Err(why) => {
            // Threads run by now that hold the store: it has to be closed, they would not let it go.
            let _ = super::close(&store);
            Err(why)
        }
    }
}

/// Keeps writers out, if the store ever had one.
pub(crate) fn lock_for_reading(env: &Env, directory: &Path) -> Result<Option<Box<dyn FileLock>>> {
    let path = directory.join(LOCK_FILE);
    if env.fs.exists(&path)? { env.fs.lock(&path, false).map(Some) } else { Ok(None) }
}

/// The manifest knows of everything that the log has let go of, or its end is gone: the floor never rises above what the
/// manifest says the log had reached, and begins where the session does.
fn check_manifest_reaches(state: &StoreState, recovered: &Recovered, manifest: &Path) -> Result<()> {
    let flushed = state.keyspaces.values().map(|k| k.flushed_to);
    let known = flushed.chain([state.log_reaches]).max().unwrap_or_default();
    let begun = recovered.sessions.last().map_or(Lsn::ZERO, |session| session.first);
    if recovered.floor <= known.max(begun) {
        return Ok(());
    }
    let what = format!(
        "its end is missing: the log has let go of everything below LSN {}, and the manifest knows of no more than {known}",
        recovered.floor
    );
    Err(Error::corruption(manifest, None, what))
}

fn no_store(directory: &Path) -> Error {
    Error::NotFound { what: "store", name: directory.display().to_string() }
}

/// Manifest (if writable), identity, state, and the path of the manifest.
type Loaded = (Option<Manifest>, Identity, StoreState, PathBuf);

fn load(env: &Env, directory: &Path, options: &Options) -> Result<Loaded> {
    match Manifest::load(&*env.fs, directory) {
        Ok((identity, state, info)) if options.read_only => Ok((None, identity, state, info.path)),
        Ok(_) => {
            let (manifest, identity, state) = Manifest::open(env, directory)?;
            let path = manifest.path();
            Ok((Some(manifest), identity, state, path))
        }
        Err(Error::NotFound { .. }) if options.create_if_missing && !options.read_only => {
            let free = env.fs.free_bytes(directory)?;
            let identity = Identity::generate(env, segment_bytes(options, free) as u64);
            let manifest = Manifest::create(env, directory, identity.clone())?;
            let path = manifest.path();
            Ok((Some(manifest), identity, StoreState::default(), path))
        }
        Err(Error::NotFound { .. }) => Err(no_store(directory)),
        Err(error) => Err(error),
    }
}

/// Small memories get small segments, since a generation is at least one segment long; and so do
/// small devices, which must hold several besides the tables.
fn segment_bytes(options: &Options, free: Option<u64>) -> usize {
    let free = free.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
    let fitting = (options.memory_bytes.min(free) / 16).max(Options::SEGMENT_BYTES_MIN);
    let power = if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 };
    options.segment_bytes.min(power)
}

pub(crate) fn keyspaces_of(
    directory: &Path,
    options: &Options,
    identity: &Identity,
    state: &StoreState,
    memory: &Memory,
) -> Result<Keyspaces> {
    let mut keyspaces = BTreeMap::new();
    for stored in state.keyspaces.values() {
        let keyspace_options = version::decode_options(&stored.options, &options.comparators, directory)?;
        let directories = directories(directory, options);
        let hasher = KeyHasher::new(identity.secret);
        let table_options = TableOptions::new(&keyspace_options, hasher);
        let levels = stored
            .levels()
            .into_iter()
            .enumerate()
            .map(|(level, metas)| {
                let place = place_of(&directories, directory, level as u32);
                metas
                    .into_iter()
                    .map(|meta| {
                        TableHandle::new(&memory.shelf, place.clone(), (*meta).clone(), table_options.clone())
                    })
                    .collect()
            })
            .collect();
        let levels = Arc::new(Levels::new(&*keyspace_options.comparator, levels));
        let memtable = memory.memtable(&keyspace_options.comparator);
        let first = SuperVersion {
            generations: vec![Generation::new(stored.flushed_to, memtable)],
            levels,
            flushed_to: stored.flushed_to,
        };
        keyspaces.insert(
            stored.name.clone(),
            Arc::new(KeyspaceState {
                id: stored.id,
                name: stored.name.clone(),
                options: keyspace_options,
                hasher,
                current: Current::new(first),
                directories,
                dropped: AtomicBool::new(false),
                delay_ns: AtomicU64::new(0),
            }),
        );
    }
    Ok(keyspaces)
}

pub(crate) fn directories(directory: &Path, options: &Options) -> Vec<(u32, PathBuf)> {
    let _ = directory;
    options.level_paths.iter().map(|(level, path)| (*level, path.clone())).collect()
}

pub(crate) fn place_of(directories: &[(u32, PathBuf)], directory: &Path, level: u32) -> PathBuf {
    directories
        .iter()
        .find(|(l, _)| *l == level)
        .map_or_else(|| directory.to_path_buf(), |(_, path)| path.clone())
}

/// A keyspace that has never been written.
pub(crate) fn new_keyspace(
    store: &Store,
    id: version::KeyspaceId,
    name: &str,
    options: KeyspaceOptions,
) -> KeyspaceState {
    let start = store.sequencer.tail();
    let memtable = store.memory.memtable(&options.comparator);
    KeyspaceState {
        id,
        name: name.to_string(),
        hasher: store.hasher,
        current: Current::new(SuperVersion {
            generations: vec![Generation::new(start, memtable)],
            levels: Arc::new(Levels::new(&*options.comparator, Vec::new())),
            flushed_to: start,
        }),
        options,
        directories: directories(&store.directory, &store.options),
        dropped: AtomicBool::new(false),
        delay_ns: AtomicU64::new(0),
    }
}

/// Appends to the manifest; see [`append_to`].
pub(crate) fn append(store: &Store, edit: &VersionEdit) -> Result<()> {
    let mut manifest = store.manifest.lock();
    let manifest = manifest.as_mut().ok_or(Error::Closed { what: "store" })?;
    append_to(store, manifest, edit)
}

/// Appends to the manifest, and says with it how far the log is durable now. A failure after which
/// nobody knows whether the edit counts poisons the store; after any other the edit does not count,
/// durably, and can be tried again.
pub(crate) fn append_to(store: &Store, manifest: &mut Manifest, edit: &VersionEdit) -> Result<()> {
    let reaches = store.log.get().map_or(Lsn::ZERO, |log| log.durable());
    let appended = if reaches > manifest.state().log_reaches {
        manifest.append(&edit.clone().with(Change::LogReaches(reaches)))
    } else {
        manifest.append(edit)
    };
    if let (Err(error), Some(_)) = (&appended, manifest.poisoned()) {
        store.poison(error);
    }
    appended
}

/// A recovery under way. Nobody else sees the store yet, so its tables show before the manifest
/// names them: all of them at once, at the end.
struct Recovery<'a> {
    store: &'a Store,
    edit: VersionEdit,
    /// Keyspaces below were made; those that the manifest does not list were dropped.
    next_keyspace_id: u32,
    manifest_path: PathBuf,
}

impl Recovery<'_> {
    fn unknown(&self, keyspace: u32) -> Error {
        let what = format!(
            "its end is missing: the log has writes to keyspace {keyspace}, which the manifest says was never made"
        );
        Error::corruption(&self.manifest_path, None, what)
    }

    fn replay(&mut self, recovered: &Recovered) -> Result<()> {
        let keyspaces = self.store.keyspaces.lock().clone();
        let by_id: BTreeMap<u32, &Arc<KeyspaceState>> = keyspaces.values().map(|k| (k.id.0, k)).collect();
        let flushed: Vec<Lsn> = {
            let guard = epoch::pin();
            keyspaces.values().map(|k| k.current.load(&guard).flushed_to).collect()
        };
        let from = flushed.into_iter().min().unwrap_or(Lsn::ZERO);
        let mut last_applied = Lsn::ZERO;
        recovered.replay(from, &mut |lsn, entry: EntryView<'_>| {
            let Some(keyspace) = by_id.get(&entry.keyspace) else {
                return if entry.keyspace < self.next_keyspace_id {
                    Ok(())
                } else {
                    Err(self.unknown(entry.keyspace))
                };
            };
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
                    memtable.publish(node, lsn, None);
                }
            }
            Ok(())
        })
    }

    /// Flushes what was recovered of every keyspace; everything below `start` is in tables then.
    fn flush_all(&mut self, start: Lsn) -> Result<()> {
        let keyspaces = self.store.keyspaces.lock().clone();
        for keyspace in keyspaces.values() {
            self.flush(keyspace, start)?;
        }
        Ok(())
    }

    fn flush(&mut self, keyspace: &KeyspaceState, end: Lsn) -> Result<()> {
        let store = self.store;
        let generation = {
            let guard = epoch::pin();
            keyspace.current.load(&guard).active().clone()
        };
        let context = job_context(store, keyspace, Vec::new(), Arc::new(AtomicBool::new(false)));
        let outcome = flush_generations(&context, std::slice::from_ref(&generation))?;
        let next_table_id = store.next_table_id.load(Ordering::Relaxed);
        self.edit.changes.extend(edit_of(keyspace.id, &outcome, Some(end), next_table_id).changes);
        keyspace.current.replace(|now| {
            let levels = apply(&now.levels, keyspace, &outcome);
            let memtable = store.memory.memtable(&keyspace.options.comparator);
            Some(SuperVersion {
                generations: vec![Generation::new(end, memtable)],
                levels: Arc::new(levels),
                flushed_to: end,
            })
        });
        Ok(())
    }
}

/// Says in the manifest where the log was closed: one that ends before has lost something. On a full
/// device it is left unsaid, since nothing is wrong with what was closed.
pub(crate) fn note_end(store: &Store) -> Result<()> {
    match append(store, &VersionEdit::new()) {
        Err(error) if error.is_no_space() => Ok(()),
        other => other,
    }
}

/// How the log of this store is read.
pub(crate) fn scan_options(identity: &Identity, state: &StoreState) -> ScanOptions {
    ScanOptions {
        secret: identity.secret,
        uuid: identity.uuid,
        segment_bytes: identity.segment_bytes as usize,
        reaches: state.log_reaches,
        mode: log::Mode::Recover,
    }
}

fn start_log(store: &Arc<Store>, directory: &Path, first_segment: u64, recovered: &Recovered) -> Result<()> {
    let owner: Arc<OnceLock<Weak<Store>>> = Arc::new(OnceLock::new());
    let _ = owner.set(Arc::downgrade(store));
    let on_border = Box::new(move |border: Lsn| {
        if let Some(store) = owner.get().and_then(Weak::upgrade) {
            store.on_border(border);
        }
    });
    let options = LogOptions {
        segment_bytes: store.identity.segment_bytes as usize,
        log_bytes_max: store.options.log_bytes_max,
        secret: store.identity.secret,
        uuid: store.identity.uuid,
        prior: recovered.prior(),
    };
    let log = Log::start(&store.env, directory, options, store.sequencer.clone(), first_segment, on_border)?;
    log.recycle_below(store.log_needed_from())?;
    let _ = store.log.set(log);
    Ok(())
}

/// Removes table files that no version names: left by a crash between writing and naming them. A
/// table that is named is left alone wherever it lies.
fn remove_orphans(store: &Store) -> Result<()> {
    let orphans = {
        let manifest = store.manifest.lock();
        let state = manifest.as_ref().ok_or(Error::Closed { what: "store" })?.state();
        let places = store.options.level_paths.values().chain([&store.directory]);
        version::orphans(&*store.env.fs, places.map(PathBuf::as_path), state)?
    };
    orphans.iter().try_for_each(|orphan| match store.env.fs.remove(orphan) {
        // An earlier opening's last reader has gone, and has taken the table with it.
        Err(error) if error.is_missing_file() => Ok(()),
        other => other,
    })
}
