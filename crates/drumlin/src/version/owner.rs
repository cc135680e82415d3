//! Whose a directory for levels is: one store's, which puts its name there before its first table.
//!
//! Place: `db` claims what `Options::level_paths` names at a writable open, before anything is removed, and asks only at others.
//!
//! Why: an open for writing removes every table that its store does not know. In a directory that two stores were given, the second
//! would remove what the first one lives on, even while that is open.
//!
//! Invariants:
//! 1. Nothing is removed from a directory, and nothing but the name put there, unless it is the store's.
//! 2. A directory without a name becomes the store's only if it holds no tables, and the store has none there; or if it holds some
//!    of those that the store has there (one that was filled before directories had names). So a device that is not mounted is
//!    not taken for an empty directory.
//!
//! Concurrency: who claims holds the directory's lock file meanwhile; a second one is told [`Error::Locked`].
//! Bytes: docs/formats/manifest.md, "OWNER". Tests: below, `db::tests::places`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::identity::{Identity, STORE_FILE};
use super::manifest::{Manifest, make_directory, read_whole, write_whole};
use super::orphans::{is_table_name, value_file};
use super::state::StoreState;
use crate::env::{FileSystem, join};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::table::file_name;

/// The name of the file in a level's directory.
pub const OWNER_FILE: &str = "OWNER";
const TEMPORARY: &str = "OWNER.new";
const LOCK: &str = "OWNER.lock";

/// Makes the directories of `level_paths` those of the store in `directory`, durably; of a read-only one, sees only that they may be.
///
/// Errors: `InvalidArgument` if one is another store's, or lacks the tables that this one has there; `Locked`.
pub fn claim(
    fs: &dyn FileSystem,
    directory: &Path,
    options: &Options,
    (identity, state): (&Identity, &StoreState),
) -> Result<()> {
    for place in places(directory, &options.level_paths) {
        if is_named(fs, place, identity)? {
            continue;
        }
        check_unnamed(fs, place, &options.level_paths, state)?;
        if options.read_only {
            continue;
        }
        // A table is no more durable than the name of the directory it lies in.
        make_directory(fs, place)?;
        let _lock = fs.lock(&join(place, LOCK), true)?;
        if !is_named(fs, place, identity)? {
            let temporary = join(place, TEMPORARY);
            write_whole(fs, &temporary, line(identity).as_bytes())?;
            fs.rename(&temporary, &join(place, OWNER_FILE))?;
            fs.sync_dir(place)?;
        }
    }
    Ok(())
}

/// What `level_paths` names beside the store's own directory.
fn places<'a>(directory: &Path, level_paths: &'a BTreeMap<u32, PathBuf>) -> BTreeSet<&'a Path> {
    level_paths.values().map(PathBuf::as_path).filter(|place| *place != directory).collect()
}

/// True if the directory bears this store's name, false if it bears none.
fn is_named(fs: &dyn FileSystem, place: &Path, identity: &Identity) -> Result<bool> {
    if fs.exists(&join(place, STORE_FILE))? {
        // A store's own directory, this one's by another name at best.
        let other = Manifest::load_identity(fs, place)?;
        return if other.uuid == identity.uuid {
            Ok(true)
        } else {
            Err(foreign(place, "is another store's own"))
        };
    }
    let path = join(place, OWNER_FILE);
    if !fs.exists(&path)? {
        return Ok(false);
    }
    let found = read_whole(fs, &path, "it was there a moment ago", 1 << 10)?;
    match found == line(identity).as_bytes() {
        true => Ok(true),
        false => Err(foreign(place, "belongs to another store, as its file OWNER says")),
    }
}

fn foreign(place: &Path, what: &str) -> Error {
    Error::invalid(format!(
        "level_paths: the directory {} {what}: give each store directories of its own, or its tables would be removed as unknown",
        place.display()
    ))
}

/// Refuses a directory that may be somebody's, or is not what it was.
fn check_unnamed(
    fs: &dyn FileSystem,
    place: &Path,
    level_paths: &BTreeMap<u32, PathBuf>,
    state: &StoreState,
) -> Result<()> {
    let present: HashSet<String> = match fs.exists(place)? {
        true => fs.list(place)?.into_iter().map(|entry| entry.name).collect(),
        false => HashSet::new(),
    };
    let is_here = |level: u32| level_paths.get(&level).is_some_and(|path| path == place);
    let tables = state.tables().filter(|(_, level, _)| is_here(*level));
    let names: Vec<String> = tables.map(|(_, _, meta)| file_name(meta.id, meta.content_hash)).collect();
    if names.iter().any(|name| present.contains(name)) {
        return Ok(());
    }
    if let Some(name) = names.first() {
        return Err(Error::invalid(format!(
            "level_paths: the directory {} has none of the {} tables that belong there ({name} for one): is its device mounted? Were \
             they moved, move them there",
            place.display(),
            names.len()
        )));
    }
    match present.iter().find(|name| is_table_name(name) || value_file(name).is_some()) {
        Some(name) => Err(foreign(place, &format!("has tables of another store ({name} for one)"))),
        None => Ok(()),
    }
}

/// What the file says.
fn line(identity: &Identity) -> String {
    format!("drumlin: tables of the store {}\n", identity.uuid_text())
}
