//! The manifest: the durable list of what a store consists of.
//!
//! Place: `db` creates or opens it once, appends every change to it, and trusts nothing else about
//! which tables exist. Bytes are `journal`'s matter, meaning is `state`'s; this file knows the order
//! of files, syncs and renames.
//!
//! Files, in the store's directory: `STORE` (see `identity`), `MANIFEST-n`, and `CURRENT`, which
//! names the manifest that counts. A directory is a store once it has a `CURRENT`.
//!
//! Invariants:
//! 1. `CURRENT` is replaced by a rename only, and only when what it will name is durable: content,
//!    then name (`sync`, then `sync_dir`).
//! 2. An appended edit is in effect for ever once `append` returned Ok: it is synced, sealed, and the
//!    seal is synced.
//! 3. If `append` fails and [`Manifest::poisoned`] is none, the edit is not in effect, durably: the
//!    files that it would have added may be removed. If it is poisoned, nobody knows: keep the files
//!    of both sides, the next open decides.
//! 4. A failed sync, and a failure in the middle of replacing `CURRENT`, poison for ever. A failed
//!    write (a full device) does not: the tail is cut off again, and the next append begins a new file.
//! 5. Nothing is ever written behind a torn tail: each open, and each failed write, begins a new file.
//! 6. `load` writes nothing.
//!
//! Concurrency: one owner; `db` keeps it in a mutex. No lock is taken here.
//! Complexity: an append writes the edit alone; a file that has outgrown its snapshot four times
//! (and [`REWRITE_BYTES_MIN`]) is written anew, so reading costs O(live tables), not O(history).
//!
//! Tests: `manifest_tests`.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::edit::VersionEdit;
use super::identity::{Identity, STORE_FILE};
use super::journal::{self, Framer, HEADER_BYTES};
use super::owner::OWNER_FILE;
use super::state::StoreState;
use crate::env::{Env, FileSystem, ReadMode, WritableFile, join};
use crate::error::{Error, Result};

/// The name of the file that names the manifest.
pub const CURRENT_FILE: &str = "CURRENT";
const CURRENT_TEMPORARY: &str = "CURRENT.tmp";
const MANIFEST_PREFIX: &str = "MANIFEST-";

/// A manifest below this size is not rewritten. Bytes.
pub const REWRITE_BYTES_MIN: u64 = 64 << 10;
/// A manifest is rewritten when it is this many times as large as its snapshot.
const REWRITE_FACTOR: u64 = 4;
/// `CURRENT` is one line; more than this is damage. Bytes.
pub(super) const CURRENT_BYTES_MAX: u64 = 256;

/// What was found of the manifest file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestInfo {
    /// The file.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Edits in it, the snapshot included.
    pub edits: u64,
    /// Where a torn tail begins, left by a crash in the middle of an append; nothing
    /// acknowledged is in it.
    pub torn: Option<u64>,
}

/// The manifest of a store open for writing.
pub struct Manifest {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    identity: Identity,
    state: StoreState,
    /// The file that `CURRENT` names; 0 while there is none.
    number: u64,
    /// That file, open for appending, unless a write to it failed.
    file: Option<OpenFile>,
    next_number: u64,
    rewrite_at: u64,
    rewrite_failure: Option<Error>,
    poisoned: Option<String>,
}

struct OpenFile {
    writer: Box<dyn WritableFile>,
    framer: Framer,
    edits: u64,
}

impl Manifest {
    /// Makes a store in `directory`: nothing but its identity, and no keyspaces. The directory, and
    /// those above it, are made if need be, and made durable.
    ///
    /// Must come before anything else is put into the directory (but the lock file), so that a crash
    /// in the middle is recognised: it leaves a directory that [`Manifest::load`] finds no store in.
    ///
    /// Errors: `InvalidArgument` if there is a store; `Corruption` if there are the remains of one.
    pub fn create(env: &Env, directory: &Path, identity: Identity) -> Result<Manifest> {
        let directory = nameable(directory);
        let fs = &env.fs;
        make_directory(&**fs, directory)?;
        if fs.exists(&join(directory, CURRENT_FILE))? {
            return Err(Error::invalid(format!("there is a store in {} already", directory.display())));
        }
        refuse_remains(&**fs, directory)?;
        let path = join(directory, STORE_FILE);
        write_whole(&**fs, &path, &identity.encode())?;
        let mut manifest = Manifest::without_file(env, directory, identity, StoreState::default(), 0, 1);
        let state = manifest.state.clone();
        manifest.begin_file(&state)?;
        Ok(manifest)
    }

    /// Reads who the store is and what it consists of, without writing anything.
    ///
    /// Errors: `NotFound` if there is no store (also if its creation was cut off by a crash),
    /// `Corruption` with file and offset, `Unsupported` if a newer version wrote it.
    pub fn load(fs: &dyn FileSystem, directory: &Path) -> Result<(Identity, StoreState, ManifestInfo)> {
        let directory = nameable(directory);
        let current = join(directory, CURRENT_FILE);
        if !fs.exists(&current)? {
            if fs.exists(directory)? {
                refuse_remains(fs, directory)?;
            }
            return Err(Error::NotFound { what: "store", name: directory.display().to_string() });
        }
        let identity = Manifest::load_identity(fs, directory)?;

        let line = read_whole(fs, &current, "it names the manifest", CURRENT_BYTES_MAX)?;
        let number = current_number(&line, &identity)
            .ok_or_else(|| Error::corruption(&current, 0, "it does not name a manifest of this store"))?;
        let path = join(directory, &manifest_name(number));
        let bytes = read_whole(fs, &path, "`CURRENT` names it", u64::MAX)?;
        let contents = journal::read(&bytes, &path, &identity, number)?;

        let mut state = StoreState::default();
        for (offset, edit) in &contents.edits {
            state.apply_part(edit).map_err(|misfit| Error::corruption(&path, *offset, misfit.to_string()))?;
        }
        state.check().map_err(|misfit| Error::corruption(&path, HEADER_BYTES as u64, misfit.to_string()))?;
        let (bytes, edits) = (bytes.len() as u64, contents.edits.len() as u64);
        Ok((identity, state, ManifestInfo { path, number, bytes, edits, torn: contents.torn }))
    }

    /// Reads who the store is, for when nobody can tell what it consists of.
    ///
    /// Errors: as [`Manifest::load`].
    pub fn load_identity(fs: &dyn FileSystem, directory: &Path) -> Result<Identity> {
        let path = join(nameable(directory), STORE_FILE);
        Identity::decode(&read_whole(fs, &path, "it says who the store is", u64::MAX)?, &path)
    }

    /// Opens a store for writing: reads it, begins a new manifest file with a snapshot of what it
    /// is, and removes older ones and what crashes left of them.
    ///
    /// Errors: as [`Manifest::load`], and of writing.
    pub fn open(env: &Env, directory: &Path) -> Result<(Manifest, Identity, StoreState)> {
        let directory = nameable(directory);
        let (identity, state, info) = Manifest::load(&*env.fs, directory)?;
        let entries = env.fs.list(directory)?;
        let numbers = entries.iter().filter_map(|entry| manifest_number(&entry.name));
        let next = numbers.max().unwrap_or(0).max(info.number).saturating_add(1);
        let mut manifest =
            Manifest::without_file(env, directory, identity.clone(), state.clone(), info.number, next);
        manifest.begin_file(&state)?;
        for entry in &entries {
            let stale = manifest_number(&entry.name).is_some_and(|number| number != manifest.number);
            if stale || entry.name == CURRENT_TEMPORARY {
                // What stays is removed by the next open.
                let _ = env.fs.remove(&join(directory, &entry.name));
            }
        }
        Ok((manifest, identity, state))
    }

    /// Makes an edit durable. See invariants 2 to 4 for what a failure means.
    ///
    /// Errors: `InvalidArgument` if the edit does not fit the state (nothing is written then),
    /// `Poisoned` after an earlier failure, else the failure itself.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(why) = &self.poisoned {
            return Err(Error::Poisoned { why: why.clone() });
        }
        let mut next = self.state.clone();
        next.apply(edit).map_err(|misfit| Error::invalid(misfit.to_string()))?;
        self.write(edit, &next)?;
        self.state = next;
        Ok(())
    }

    /// What the store consists of now.
    pub fn state(&self) -> &StoreState {
        &self.state
    }

    /// Why no more edits are taken, if so.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// The file that `CURRENT` names.
    pub fn path(&self) -> PathBuf {
        join(&self.directory, &manifest_name(self.number))
    }

    /// Bytes of that file.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.writer.bytes())
    }

    /// Why the last rewriting of a grown file failed, if it did. Harmless: edits go on being
    /// appended, and it is tried again later.
    #[cfg(test)]
    pub fn rewrite_failure(&self) -> Option<&Error> {
        self.rewrite_failure.as_ref()
    }

    fn without_file(
        env: &Env,
        directory: &Path,
        identity: Identity,
        state: StoreState,
        number: u64,
        next_number: u64,
    ) -> Manifest {
        Manifest {
            fs: Arc::clone(&env.fs),
            directory: directory.to_path_buf(),
            identity,
            state,
            number,
            file: None,
            next_number,
            rewrite_at: REWRITE_BYTES_MIN,
            rewrite_failure: None,
            poisoned: None,
        }
    }

    /// Writes `edit`, which makes the state `next`: behind the others, or as part of a new file.
    fn write(&mut self, edit: &VersionEdit, next: &StoreState) -> Result<()> {
        let Some(file) = self.file.take() else { return self.begin_file(next) };
        if file.writer.bytes() > self.rewrite_at {
            match self.begin_file(next) {
                Ok(()) => return Ok(()),
                Err(error) if self.poisoned.is_some() => return Err(error),
                Err(error) => {
                    self.rewrite_at = file.writer.bytes().saturating_mul(2);
                    self.rewrite_failure = Some(error);
                }
            }
        }
        self.append_to(file, edit)
    }

    /// Appends `edit` to `file`, which stays the open one if that goes well.
    fn append_to(&mut self, mut file: OpenFile, edit: &VersionEdit) -> Result<()> {
        let start = file.writer.bytes();
        let mut record = Vec::new();
        if let Err(error) = file.framer.put_edit(&mut record, start, edit) {
            self.file = Some(file);
            return Err(error);
        }
        let mut seal = Vec::new();
        file.framer.put_seal(&mut seal, start + record.len() as u64, file.edits + 1)?;
        for bytes in [record, seal] {
            if let Err(error) = file.writer.append(&bytes) {
                return Err(self.cut_back(file, start, error));
            }
            if let Err(error) = file.writer.sync() {
                return Err(self.poison(error));
            }
        }
        file.edits += 1;
        self.file = Some(file);
        Ok(())
    }

    /// After a failed write: takes away, durably, what may have been written from `start` on. The
    /// file is not used again, since where its writer stands is not known.
    fn cut_back(&mut self, mut file: OpenFile, start: u64, error: Error) -> Error {
        let cut = self.fs.truncate(&self.path(), start).and_then(|()| file.writer.sync());
        match cut {
            Ok(()) => error,
            Err(_) => self.poison(error),
        }
    }

    /// Begins a new file with a snapshot of `state` and makes `CURRENT` name it.
    fn begin_file(&mut self, state: &StoreState) -> Result<()> {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let path = join(&self.directory, &manifest_name(number));
        let temporary = join(&self.directory, CURRENT_TEMPORARY);
        let file = match self.prepare_file(&path, &temporary, number, state) {
            Ok(file) => file,
            Err(error) => {
                // Nothing names them: what stays is removed by the next open.
                let _ = self.fs.remove(&path);
                let _ = self.fs.remove(&temporary);
                return Err(error);
            }
        };
        let renamed = self.fs.rename(&temporary, &join(&self.directory, CURRENT_FILE));
        if let Err(error) = renamed.and_then(|()| self.fs.sync_dir(&self.directory)) {
            return Err(self.poison(error));
        }
        let old = std::mem::replace(&mut self.number, number);
        if old != 0 {
            // As above.
            let _ = self.fs.remove(&join(&self.directory, &manifest_name(old)));
        }
        self.rewrite_at = file.writer.bytes().saturating_mul(REWRITE_FACTOR).max(REWRITE_BYTES_MIN);
        self.rewrite_failure = None;
        self.file = Some(file);
        Ok(())
    }

    /// Writes the new file and the `CURRENT` to be, durably, up to the rename.
    fn prepare_file(
        &self,
        path: &Path,
        temporary: &Path,
        number: u64,
        state: &StoreState,
    ) -> Result<OpenFile> {
        let framer = Framer::new(&self.identity, number);
        let mut bytes = journal::header(&self.identity, number);
        let position = bytes.len() as u64;
        framer.put_edit(&mut bytes, position, &state.snapshot())?;
        let position = bytes.len() as u64;
        framer.put_seal(&mut bytes, position, 1)?;
        let writer = write_whole(&*self.fs, path, &bytes)?;
        self.fs.sync_dir(&self.directory)?;
        write_whole(&*self.fs, temporary, &current_line(number, &self.identity))?;
        Ok(OpenFile { writer, framer, edits: 1 })
    }

    fn poison(&mut self, error: Error) -> Error {
        self.file = None;
        self.poisoned.get_or_insert_with(|| error.to_string());
        error
    }
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest").field("path", &self.path()).field("poisoned", &self.poisoned).finish()
    }
}

/// The path by which a directory can be synced: the current one has no name of its own.
fn nameable(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}

/// Makes a directory and those above it, durably. Fine if it exists.
pub(super) fn make_directory(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    fs.create_dir_all(directory)?;
    sync_ancestors(fs, directory)
}

/// Makes the names of `directory` and of the directories above it durable. One that may not be read
/// or written was not made by us, and one that knows no sync cannot do better.
fn sync_ancestors(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    for parent in directory.ancestors().skip(1) {
        match fs.sync_dir(nameable(parent)) {
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    ErrorKind::PermissionDenied
                        | ErrorKind::ReadOnlyFilesystem
                        | ErrorKind::InvalidInput
                        | ErrorKind::Unsupported
                ) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Creates a file with these bytes and syncs it.
pub(super) fn write_whole(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<Box<dyn WritableFile>> {
    let mut file = fs.create(path)?;
    file.append(bytes)?;
    file.sync()?;
    Ok(file)
}

/// Reads a file that must be there, because `why`.
pub(super) fn read_whole(fs: &dyn FileSystem, path: &Path, why: &str, bytes_max: u64) -> Result<Vec<u8>> {
    let file = match fs.open(path, ReadMode::Buffered) {
        Err(error) if error.is_missing_file() => {
            return Err(Error::corruption(path, None, format!("the file is missing, but {why}")));
        }
        opened => opened?,
    };
    if file.bytes() > bytes_max {
        return Err(Error::corruption(path, bytes_max, format!("{} bytes are too many", file.bytes())));
    }
    let length = usize::try_from(file.bytes())
        .map_err(|_| Error::corruption(path, None, "the file is beyond the address space"))?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The file name of manifest `number`.
fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:06}")
}

/// The number in the file name of a manifest.
pub(super) fn manifest_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix(MANIFEST_PREFIX)?.parse().ok()?;
    (manifest_name(number) == name).then_some(number)
}

/// The content of `CURRENT`: the name, and a checksum that no other store's name has.
fn current_line(number: u64, identity: &Identity) -> Vec<u8> {
    let name = manifest_name(number);
    let checksum = XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&identity.uuid), name.as_bytes());
    format!("{name} {checksum:016x}\n").into_bytes()
}

/// The number in a `CURRENT`, if it is exactly as written for this store.
pub(super) fn current_number(line: &[u8], identity: &Identity) -> Option<u64> {
    let name = std::str::from_utf8(line).ok()?.split(' ').next()?;
    let number = manifest_number(name)?;
    (line == current_line(number, identity)).then_some(number)
}

/// Without a `CURRENT`, a directory may hold what a crash left of a creation, and files of others.
/// What only a store that was in use can have left means that its `CURRENT` was lost: making a new
/// store there would hide, then overwrite, the old one.
fn refuse_remains(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    if fs.exists(&join(directory, OWNER_FILE))? {
        return Err(Error::invalid(format!(
            "{} is a directory for levels of another store, as its file {OWNER_FILE} says: choose another",
            directory.display()
        )));
    }
    let mut remains = None;
    for entry in fs.list(directory)? {
        let in_use = if entry.is_dir {
            entry.name == "log" && fs.list(&join(directory, "log"))?.iter().any(|e| e.name.ends_with(".log"))
        } else {
            manifest_number(&entry.name).is_some_and(|n| n > 1)
                || super::is_table_name(&entry.name)
                || super::value_file(&entry.name).is_some()
        };
        if in_use {
            remains = Some(entry.name);
        }
    }
    match remains {
        None => Ok(()),
        Some(name) => {
            let what = format!("the file is missing, but {name} shows that a store was in use here");
            Err(Error::corruption(join(directory, CURRENT_FILE), None, what))
        }
    }
}
