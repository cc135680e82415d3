//! Opening: from a directory to a running store.
//!
//! Place: called by `Db::open`. Reads the manifest, then the log above what is flushed, then starts
//! the log's next session and the background threads.
//!
//! Order, for a device that is full: what never counted goes first (temporary files, the log's ballast); then what the
//! log reads is checked against the manifest, so that damage is found before anything is written; then a new manifest
//! is begun, the first segment's space is taken, and only what is left serves a flush. What the manifest does not name,
//! and the log's spare files, go when one of these finds the device full (`replay`), else at the end.
//!
//! Invariants:
//! - **I7 Survival.** Every whole record that the log's rules let survive is applied in LSN order.
//!   After an unclean stop it stays in memory and in the log, where it is, as far as memory can hold it (`replay`), if
//!   nothing is missing in the log and no sync of it has failed. Before anything is built on that (the edit by which tables
//!   of the rest count, the next session's header) the log is made durable: every file that counts, and the names. The
//!   header then says what it says after a clean close. So a power loss finds either the old log as the last one, cut where
//!   such a loss cuts it, and nothing that counts beside it; or all of it, with or without the tables, which it repeats.
//!   Later power losses and crashes, in this boot or another, before or behind the first flush, find it whole: it is
//!   replayed up to the cut that the header states, and a hole in it is damage.
//!   The floor stays below it, since its generations begin where their keyspaces are flushed to; the manifest says that
//!   the log reaches the new session's first LSN only when the session's header is durable.
//!   Else everything recovered is flushed, and one manifest edit makes all of it count, before the first new write: a
//!   power loss finds the old log, cut, or none of it; it is never read again after the edit, and nothing can be
//!   appended behind a hole. So it is, too, if the log cannot be synced, and if it is in many sessions, or in files that
//!   hold little.
//! - A read-only open writes nothing: no lock file is created, no orphan removed, no log cut.
//! - After a clean close the log is durable already. The new session starts at the next segment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::commit::Sequencer;
use crate::env::{Env, FileLock};
use crate::error::{Error, Purpose, Result, Shortage};
use crate::key::{KeyHasher, Lsn};
use crate::log::{self, Log, LogOptions, Prior, Recovered, ScanOptions};
use crate::options::Options;
use crate::table::{TableHandle, TableOptions};
use crate::version::{self, Change, Identity, Levels, Manifest, ManifestInfo, StoreState, VersionEdit};

use super::keyspace::KeyspaceState;
use super::keyspaces::KeyspaceMap;
use super::memory::Memory;
use super::recovery::RecoveryReport;
use super::replay::{Replay, remove_orphans};
use super::store::{Store, with_room};
use super::superversion::SuperVersion;

/// The log's directory within the store's.
pub(crate) const LOG_DIRECTORY: &str = "log";
pub(super) const LOCK_FILE: &str = "LOCK";

/// Opens (or makes) the store in `directory`.
pub(crate) fn open(env: Env, directory: &Path, options: Options) -> Result<Arc<Store>> {
    options.validate()?;
    let lock = lock(&env, directory, &options)?;
    let (manifest, identity, state, info) = load(&env, directory, &options)?;
    version::claim_places(&*env.fs, directory, &options, (&identity, &state))?;
    if !options.read_only {
        remove_temporaries(&env, directory, &options)?;
    }
    let log_directory = directory.join(LOG_DIRECTORY);
    let recovered = Arc::new(log::scan(&env.fs, &log_directory, scan_options(&identity, &state))?);
    check_manifest_reaches(&state, &recovered, &info.path)?;
    let memory = Memory::new(&env, directory, &options, identity.segment_bytes as usize);
    let keyspaces = keyspaces_of(directory, &options, &identity, &state, &memory)?;
    check_levels(&keyspaces, &info.path)?;
    let (first_segment, next_start) = next_session(&identity, &state, &recovered, &info.path)?;
    let start = if options.read_only { recovered.end } else { next_start };
    let rewritten = if recovered.is_whole() { 0 } else { recovered.needed_bytes() };
    let shortage = Shortage {
        purpose: Purpose::Open,
        needed: info.bytes + identity.segment_bytes + rewritten,
        free: None,
    };
    let sequencer = Sequencer::new(start);
    if keyspaces.values().any(|keyspace| keyspace.options().memory.has_hash()) {
        sequencer.snapshots().allow_displacing();
    }
    let store = Arc::new(Store::new(
        env,
        directory.to_path_buf(),
        options,
        identity,
        sequencer,
        memory,
        keyspaces,
        state.next_table_id,
        manifest,
        lock,
    ));
    let _ = store.recovery.set(RecoveryReport::of(&recovered));
    let mut replay = Replay::new(&store, recovered, state.next_keyspace_id, info.path);
    if store.options.read_only {
        replay.run()?;
    } else {
        begin(&store, &mut replay, &log_directory, first_segment)
            .and_then(|()| store.start_workers())
            .map_err(|why| abandon(&store, &mut replay, &log_directory, shortage, why))?;
    }
    Ok(store)
}

/// Keeps others out: every other opening, or for a read-only one, those that write.
fn lock(env: &Env, directory: &Path, options: &Options) -> Result<Option<Box<dyn FileLock>>> {
    if options.read_only {
        return lock_for_reading(env, directory);
    }
    if options.create_if_missing {
        env.fs.create_dir_all(directory)?;
    } else if !env.fs.exists(directory)? {
        return Err(no_store(directory));
    }
    env.fs.lock(&directory.join(LOCK_FILE), true).map(Some)
}

/// No two tables of a deeper level overlap.
fn check_levels(keyspaces: &KeyspaceMap, manifest: &Path) -> Result<()> {
    let guard = epoch::pin();
    keyspaces.values().try_for_each(|keyspace| {
        let levels = &keyspace.current.load(&guard).levels;
        let checked = levels.check();
        checked.map_err(|misfit| Error::corruption(manifest, None, misfit.to_string()))
    })
}

/// The segment that the log goes on with, and its first LSN: none that a table has, or that some keyspace is flushed to, is
/// drawn again.
fn next_session(
    identity: &Identity,
    state: &StoreState,
    recovered: &Recovered,
    manifest: &Path,
) -> Result<(u64, Lsn)> {
    let flushed = state.keyspaces.values().map(|k| Lsn(k.flushed_to.0.saturating_sub(1)));
    let newest = flushed.chain(state.tables().map(|(_, _, meta)| meta.max_lsn)).max().unwrap_or_default();
    let begun = state.session.map_or(0, |session| session.first_segment);
    let segment = recovered.first_segment_after(newest).max(begun);
    let start = segment.checked_mul(identity.segment_bytes / Lsn::UNIT_BYTES).map(Lsn);
    start.filter(|start| *start <= Lsn::END).map(|start| (segment, start)).ok_or_else(|| {
        let what = format!("the log would go on in segment {segment}, which it cannot have");
        Error::corruption(manifest, None, what)
    })
}

/// Closes a store that could not be opened, and tells why.
fn abandon(
    store: &Store,
    replay: &mut Replay<'_>,
    log_directory: &Path,
    shortage: Shortage,
    why: Error,
) -> Error {
    // While others are kept out: what this could not make durable, they must not trust.
    replay.end_sync();
    if why.is_no_space() && store.log.get().is_none() {
        // What was written for nothing; the next open removes what stays.
        if replay.checked {
            let _ = remove_orphans(store, &VersionEdit::new());
        }
        let _ = log::remove_temporaries(&*store.env.fs, log_directory);
    }
    // Threads run by now that hold the store: it has to be closed, they would not let it go.
    let _ = super::close(store);
    with_shortage(store, shortage, why)
}

/// Everything that an open writes, in order.
fn begin(
    store: &Arc<Store>,
    replay: &mut Replay<'_>,
    log_directory: &Path,
    first_segment: u64,
) -> Result<()> {
    let (fs, recovered) = (&store.env.fs, Arc::clone(&replay.recovered));
    let segment_bytes = store.identity.segment_bytes as usize;
    if store.manifest.lock().is_none() {
        let manifest =
            with_room(|| Manifest::open(&store.env, &store.directory), || recovered.remove_unneeded())?;
        *store.manifest.lock() = Some(manifest.0);
    }
    with_room(|| log::reserve(&**fs, log_directory, first_segment, segment_bytes), || replay.give_up())?;
    let (keeps_log, start) = (replay.keeps_log(), store.sequencer.tail());
    if keeps_log {
        replay.begin_sync()?;
    }
    replay.run()?;
    if !keeps_log {
        replay.flush_all(start)?;
    }
    let prior = replay.seal(start)?;
    if !replay.edit.is_empty() {
        store.append(&replay.edit)?;
    }
    start_log(store, log_directory, first_segment, prior)?;
    // Behind the log's start: from this edit on a log that lacks the session has lost it.
    let session = Change::SessionStart { first_segment, boot_id: fs.boot_id() };
    store.append(&session.into())?;
    remove_orphans(store, &VersionEdit::new()).map(drop)
}

/// Files that never counted: what was being written when a process died, and the log's ballast.
fn remove_temporaries(env: &Env, directory: &Path, options: &Options) -> Result<()> {
    let places = options.level_paths.values().map(PathBuf::as_path).chain([directory]);
    for path in version::temporaries(&*env.fs, places)? {
        env.fs.remove(&path)?;
    }
    log::remove_temporaries(&*env.fs, &directory.join(LOG_DIRECTORY))
}

/// A full device, told with what is missing there.
fn with_shortage(store: &Store, shortage: Shortage, why: Error) -> Error {
    let Error::NoSpace { path, .. } = why else { return why };
    let free = store.env.fs.free_bytes(&store.directory).ok().flatten();
    Error::NoSpace { path, shortage: Some(Shortage { free, ..shortage }) }
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

/// The manifest if it was made just now, identity, state, and what was found of the manifest file.
type Loaded = (Option<Manifest>, Identity, StoreState, ManifestInfo);

fn load(env: &Env, directory: &Path, options: &Options) -> Result<Loaded> {
    match Manifest::load(&*env.fs, directory) {
        Ok((identity, state, info)) => Ok((None, identity, state, info)),
        Err(Error::NotFound { .. }) if options.create_if_missing && !options.read_only => {
            let free = env.fs.free_bytes(directory)?;
            let identity = Identity::generate(env, options.segment_bytes_within(free) as u64);
            let manifest = Manifest::create(env, directory, identity)?;
            let (identity, state, info) = Manifest::load(&*env.fs, directory)?;
            Ok((Some(manifest), identity, state, info))
        }
        Err(Error::NotFound { .. }) => Err(no_store(directory)),
        Err(error) => Err(error),
    }
}

/// The keyspaces that the manifest names, with their tables.
pub(crate) fn keyspaces_of(
    directory: &Path,
    options: &Options,
    identity: &Identity,
    state: &StoreState,
    memory: &Memory,
) -> Result<KeyspaceMap> {
    let hasher = KeyHasher::new(identity.secret);
    let stored = state.keyspaces.values();
    let keyspaces = stored.map(|stored| {
        let keyspace_options = version::decode_options(&stored.options, &options.comparators, directory)?;
        let hasher = keyspace_options.hasher(hasher);
        let table_options = TableOptions::new(&keyspace_options, hasher);
        let handles = stored.levels().into_iter().enumerate().map(|(level, metas)| {
            let place = place_of(&options.level_paths, directory, level as u32);
            let handle = |meta| TableHandle::new(&memory.shelf, place.clone(), meta, table_options.clone());
            metas.iter().map(|meta| handle((**meta).clone())).collect()
        });
        let levels = Arc::new(Levels::new(keyspace_options.comparator.clone(), handles.collect()));
        let memtable = memory.memtable(&keyspace_options, hasher);
        let first = SuperVersion::new(levels, stored.flushed_to, memtable);
        let name = stored.name.clone();
        let limit = memory.memtable_limit(&keyspace_options);
        let keyspace = KeyspaceState::new(stored.id, name.clone(), keyspace_options, hasher, limit, first);
        Ok((name, Arc::new(keyspace)))
    });
    keyspaces.collect()
}

/// Where the tables of a level live.
pub(crate) fn place_of(level_paths: &BTreeMap<u32, PathBuf>, directory: &Path, level: u32) -> PathBuf {
    level_paths.get(&level).map_or(directory, PathBuf::as_path).to_path_buf()
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

fn start_log(store: &Arc<Store>, directory: &Path, first_segment: u64, prior: Prior) -> Result<()> {
    let owner = Box::new(Arc::downgrade(store));
    let options = LogOptions {
        segment_bytes: store.identity.segment_bytes as usize,
        log_bytes_max: store.options.log_bytes(),
        secret: store.identity.secret,
        uuid: store.identity.uuid,
        prior,
    };
    let log = Log::start(&store.env, directory, options, store.sequencer.clone(), first_segment, owner)?;
    log.recycle_below(store.log_needed_from())?;
    let _ = store.log.set(log);
    Ok(())
}
