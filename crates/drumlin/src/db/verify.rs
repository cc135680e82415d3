//! Verification: every byte of every table and value file, and of a log at rest, is read and checked.
//!
//! Place: `Db::verify`, where the manifest was read and checked by opening the store; and
//! `Db::verify_directory`, which goes on where opening ends: what opening would have read first is then checked file by
//! file.
//!
//! Invariant: what the report does not name, as a problem or as unchecked, was read and is sound. No corrupt place ends
//! the run; where it keeps something else from being checked, [`VerifyReport::unchecked`] says so in words.
//!
//! Tests: `tests/verify.rs`, `tests/rot.rs`, `tests/closing.rs`, `table/tests/damage.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::Db;
use crate::env::{Env, FileSystem, join};
use crate::error::{Corruption, Error, Result};
use crate::key::{KeyHasher, Lsn};
use crate::log::{self, Mode, ScanOptions, SegmentInfo};
use crate::options::Options;
use crate::table::{TableCheck, TableHandle, ValueUse, verify_alone, verify_values};
use crate::version::{Identity, Manifest, StoreState, is_table_name, value_file};

use super::keyspaces::KeyspaceMap;
use super::memory::Memory;
use super::open::{LOG_DIRECTORY, keyspaces_of, lock_for_reading, scan_options};
use super::recovery::RecoveryReport;
use super::store::Store;

/// How far a verification has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// The file being read.
    pub file: PathBuf,
    /// Bytes read so far, of all files.
    pub bytes: u64,
    /// Bytes to read in all.
    pub bytes_total: u64,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files read.
    pub files: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Everything that is not as it was written.
    pub problems: Vec<Corruption>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
    /// What is right as far as can be told, and could be told no further.
    pub remarks: Vec<String>,
}

impl VerifyReport {
    /// True if everything was checked and nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.unchecked.is_empty()
    }

    /// Keeps a corruption; other errors are given back.
    fn note(&mut self, error: Error) -> Result<()> {
        let Error::Corruption(problem) = error else { return Err(error) };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Ok(())
    }
}

/// Verifies an open store; `Closed` if it was closed before the end.
pub(crate) fn verify(store: &Store, on_progress: &mut dyn FnMut(&VerifyProgress)) -> Result<VerifyReport> {
    store.check_readable()?;
    let report = verify_open(store, on_progress);
    // Closed meanwhile, its files may have been found missing, or being written by whoever opened it next.
    store.check_readable().and(report)
}

fn verify_open(store: &Store, on_progress: &mut dyn FnMut(&VerifyProgress)) -> Result<VerifyReport> {
    let keyspaces = store.keyspaces.all();
    let mut check = Check::new(&store.env.fs, on_progress);
    check.tables(&tables_of(&keyspaces));
    if !store.options.read_only {
        check.report.remarks.push("the log was not read: the store is open for writing".into());
        return Ok(check.report);
    }
    match Manifest::load(&*store.env.fs, &store.directory) {
        Ok((identity, state, _)) => check.log(&store.directory, &identity, &state),
        Err(error) => {
            check.report.note(error)?;
            check.report.unchecked.push("the log: the manifest, which was sound before, is not".into());
        }
    }
    Ok(check.report)
}

fn tables_of(keyspaces: &KeyspaceMap) -> Vec<Arc<TableHandle>> {
    let guard = epoch::pin();
    keyspaces
        .values()
        .flat_map(|k| k.current.load(&guard).levels.tables().cloned().collect::<Vec<_>>())
        .collect()
}

/// Verifies the store in `directory` whether or not it can be opened.
pub(crate) fn verify_directory(
    env: Env,
    directory: &Path,
    options: Options,
    on_progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport> {
    let options = Options { create_if_missing: false, read_only: true, ..options };
    match Db::open_with(env.clone(), directory, options.clone()) {
        Ok(db) => db.verify(on_progress),
        Err(Error::Corruption(why)) => verify_files(&env, directory, &options, why, on_progress),
        Err(error) => Err(error),
    }
}

/// Checks the files of a store that does not open, because of `why`.
fn verify_files(
    env: &Env,
    directory: &Path,
    options: &Options,
    why: Corruption,
    on_progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport> {
    let _lock = lock_for_reading(env, directory)?;
    let mut check = Check::new(&env.fs, on_progress);
    let loaded = Manifest::load(&*env.fs, directory).and_then(|(identity, state, _)| {
        let memory = Memory::new(env, directory, options, options.segment_bytes);
        let keyspaces = keyspaces_of(directory, options, &identity, &state, &memory)?;
        Ok((identity, state, keyspaces))
    });
    match loaded {
        Ok((identity, state, keyspaces)) => {
            check.tables(&tables_of(&keyspaces));
            check.log(directory, &identity, &state);
        }
        Err(error) => {
            check.report.note(error)?;
            check.without_manifest(directory, options)?;
        }
    }
    let mut report = check.report;
    if !report.problems.contains(&why) {
        let place = why.path.display().to_string();
        report.unchecked.push(format!("what opening the store checks behind what it found in {place}"));
        report.problems.push(why);
    }
    Ok(report)
}

/// A verification under way.
struct Check<'a> {
    fs: &'a Arc<dyn FileSystem>,
    on_progress: &'a mut dyn FnMut(&VerifyProgress),
    progress: VerifyProgress,
    report: VerifyReport,
}

impl<'a> Check<'a> {
    fn new(fs: &'a Arc<dyn FileSystem>, on_progress: &'a mut dyn FnMut(&VerifyProgress)) -> Self {
        Check { fs, on_progress, progress: VerifyProgress::default(), report: VerifyReport::default() }
    }

    /// Tables and the value files that they refer to, by what the manifest knows of them.
    fn tables(&mut self, tables: &[Arc<TableHandle>]) {
        self.progress.bytes_total = tables.iter().map(|t| t.meta().file_bytes).sum();
        let path = |table: &TableHandle, used: &ValueUse| table.shelf().values_dir().join(used.file_name());
        let values: BTreeMap<PathBuf, ValueUse> = tables
            .iter()
            .flat_map(|table| table.meta().values.iter().map(|used| (path(table, used), *used)))
            .collect();
        self.progress.bytes_total += values.values().map(|used| used.file_bytes).sum::<u64>();
        for table in tables {
            self.table(table.path(), table.meta().file_bytes, |on_bytes| table.verify(on_bytes));
        }
        let fs = self.fs;
        for (path, ValueUse { file, file_bytes, hash, .. }) in values {
            self.table(&path, file_bytes, |on_bytes| {
                verify_values(&**fs, &path, file, file_bytes, hash, on_bytes)
            });
        }
    }

    fn table(&mut self, path: &Path, bytes: u64, check: impl FnOnce(&mut dyn FnMut(u64)) -> TableCheck) {
        self.progress.file = path.to_path_buf();
        let before = self.progress.bytes;
        let found = check(&mut |bytes| {
            self.progress.bytes += bytes;
            (self.on_progress)(&self.progress);
        });
        self.progress.bytes = before + bytes;
        self.report.files += usize::from(found.bytes > 0);
        self.report.bytes += found.bytes;
        if let Some(failure) = &found.failure {
            self.report.unchecked.push(format!("{} bytes of {}: {failure}", found.unchecked, path.display()));
        } else if found.unchecked > 0 {
            self.report.unchecked.push(format!(
                "{} of {bytes} bytes of {}: what says which blocks they are is corrupt",
                found.unchecked,
                path.display()
            ));
        }
        self.report.problems.extend(found.problems);
    }

    /// Reads the log and collects what is wrong.
    fn log(&mut self, directory: &Path, identity: &Identity, state: &StoreState) {
        let options = ScanOptions { mode: Mode::Inspect, ..scan_options(identity, state) };
        let log = match log::scan(self.fs, &directory.join(LOG_DIRECTORY), options) {
            Ok(log) => log,
            Err(error) => return self.report.unchecked.push(format!("the log: {error}")),
        };
        let (read, unread): (Vec<_>, Vec<_>) = log.segments.iter().partition(|segment| segment.read);
        self.report.files += read.len();
        self.report.bytes += read.iter().map(|segment| segment.bytes).sum::<u64>();
        // The others do not count: they lie below the floor, or behind where a later session went on.
        let first = log.floor.0 / (identity.segment_bytes / Lsn::UNIT_BYTES);
        let unknown = |segment: &&SegmentInfo| segment.session_first.is_none() && segment.index >= first;
        self.report.unchecked.extend(unread.into_iter().filter(unknown).map(|segment| {
            format!(
                "the records of {}: its header, which says how to read them, is corrupt",
                segment.path.display()
            )
        }));
        self.report.remarks = RecoveryReport::of(&log).remarks();
        self.report.problems.extend(log.problems);
    }

    /// Every table and the log, by what they say of themselves.
    fn without_manifest(&mut self, directory: &Path, options: &Options) -> Result<()> {
        self.report.unchecked.push(
            "the manifest behind its corrupt place, and with it which tables there should be and how far the log should reach: \
             a file that is gone is not missed"
                .into(),
        );
        let fs = self.fs;
        let identity = Manifest::load_identity(&**fs, directory);
        // A filter that was made with another secret is not looked at.
        let hasher = KeyHasher::new(identity.as_ref().map_or(0, |identity| identity.secret));
        let mut tables = Vec::new();
        let places: BTreeSet<&Path> =
            options.level_paths.values().map(PathBuf::as_path).chain([directory]).collect();
        for place in places {
            let listed = if fs.exists(place)? { fs.list(place)? } else { Vec::new() };
            for entry in listed.into_iter().filter(|entry| !entry.is_dir) {
                let values = value_file(&entry.name);
                if values.is_some() || is_table_name(&entry.name) {
                    tables.push((join(place, &entry.name), entry.bytes, values));
                }
            }
        }
        self.progress.bytes_total = tables.iter().map(|(_, bytes, _)| bytes).sum();
        for (path, bytes, values) in tables {
            self.table(&path, bytes, |on_bytes| match values {
                Some((id, hash)) => verify_values(&**fs, &path, id, bytes, hash, on_bytes),
                None => verify_alone(&**fs, &path, &options.comparators, hasher, on_bytes),
            });
        }
        match identity {
            Ok(identity) => self.log(directory, &identity, &StoreState::default()),
            Err(error) => {
                self.report.note(error)?;
                self.report
                    .unchecked
                    .push("the log: the key of its checksums is in STORE, which is corrupt".into());
            }
        }
        Ok(())
    }
}
