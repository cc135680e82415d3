//! Looking into single files of a store: a table, a value file, a segment of the log, a manifest.
//!
//! Place: beside [`crate::Db`], for tools. It opens no store and takes no lock; the parts come from `table`, `log` and
//! `version`, which know the bytes.
//!
//! A file is enough: nothing else of the store has to be there or be sound. The key of the checksums of log and manifest
//! is in the store's file `STORE`, though; it is looked for beside the file and in the directory above, or where the
//! caller says. Without it only what has no key is shown.
//!
//! Invariants:
//! 1. Nothing is written, and no bytes make it panic.
//! 2. What is wrong is in `problems`, with its offset; what could not be looked at is in `unchecked`. If both are empty, the
//!    file is sound by itself.
//!
//! A store that is open for writing changes its log and its manifest while they are read: what is told of them may then be
//! out of date, or seem unfinished.
//!
//! Tests: `table/tests/inspect.rs`, `log/tests/inspect.rs`, the command's `tests/inspect.rs`.

use std::path::Path;

use crate::env::{Env, FileSystem, join};
use crate::error::Result;
use crate::key::KeyHasher;
use crate::version::{Identity, Manifest, STORE_FILE};

pub use crate::log::inspect::{
    LogEntry, LogGap, LogGapKind, LogHeader, LogItem, LogRecord, LogRecordKind, LogReport,
};
pub use crate::table::inspect::{
    TableBlock, TableBuckets, TableEntry, TableFilter, TableInfo, TablePart, TableReport, TableTombstone,
};
pub use crate::table::values::inspect::{ValueRecord, ValuesReport};
pub use crate::version::inspect::{
    ManifestChange, ManifestEdit, ManifestKeyspace, ManifestReport, ManifestState, StoredOptions,
};

/// Takes the table at `path` apart; `on_block` is shown each data block, in order. `store` is the store's directory, if
/// the table lies elsewhere. Reads the file twice: once to judge it, once to show it.
///
/// # Errors
/// `Io` if the file cannot be read. What is corrupt is in the report.
pub fn table(
    env: &Env,
    path: &Path,
    store: Option<&Path>,
    mut on_block: impl FnMut(&TableBlock),
) -> Result<TableReport> {
    let (identity, unknown) = identity(&*env.fs, path, store)?;
    let hasher = identity.map(|identity| KeyHasher::new(identity.secret));
    let mut report = crate::table::inspect::inspect(&*env.fs, path, hasher, &mut on_block)?;
    // A table that lies alone is sound without it.
    report.unchecked.extend(unknown.map(|why| format!("whether the filter knows every key: {why}")));
    Ok(report)
}

/// Takes the value file at `path` apart; `on_record` is shown each value's record, in order. Reads the file once.
///
/// # Errors
/// `Io` if the file cannot be read. What is corrupt is in the report.
pub fn values(env: &Env, path: &Path, mut on_record: impl FnMut(&ValueRecord)) -> Result<ValuesReport> {
    crate::table::values::inspect::inspect_values(&*env.fs, path, &mut on_record)
}

/// Takes the segment of the log at `path` apart; `on_item` is shown each record, and each stretch without one, in order.
/// Segments beside it are read where a record goes on in them. `store` is the store's directory, if the file lies elsewhere.
///
/// # Errors
/// `Io` if a file cannot be read; `Unsupported` if a newer version wrote it. What is corrupt is in the report.
pub fn log(
    env: &Env,
    path: &Path,
    store: Option<&Path>,
    mut on_item: impl FnMut(LogItem<'_>),
) -> Result<LogReport> {
    let (identity, unknown) = identity(&*env.fs, path, store)?;
    let identity = identity.map(|identity| (identity.secret, identity.uuid));
    let mut report = crate::log::inspect::inspect(&*env.fs, path, identity, &mut on_item)?;
    report.unchecked.extend(unknown);
    Ok(report)
}

/// Takes the manifest at `path` apart. `store` is the store's directory, if the file lies elsewhere.
///
/// # Errors
/// `Io` if the file cannot be read; `Unsupported` if a newer version wrote it. What is corrupt is in the report.
pub fn manifest(env: &Env, path: &Path, store: Option<&Path>) -> Result<ManifestReport> {
    let (identity, unknown) = identity(&*env.fs, path, store)?;
    let mut report = crate::version::inspect::inspect(&*env.fs, path, identity.as_ref())?;
    report.unchecked.extend(unknown);
    Ok(report)
}

/// Who the store is, or why that cannot be told although there is a `STORE`.
fn identity(
    fs: &dyn FileSystem,
    path: &Path,
    store: Option<&Path>,
) -> Result<(Option<Identity>, Option<String>)> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let above = match beside.as_os_str().is_empty() {
        true => Path::new("..").to_path_buf(),
        false => {
            beside.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
        }
    };
    let places = match store {
        Some(store) => vec![store.to_path_buf()],
        None => vec![beside.to_path_buf(), above],
    };
    for place in places {
        if !fs.exists(&join(&place, STORE_FILE))? {
            continue;
        }
        return Ok(match Manifest::load_identity(fs, &place) {
            Ok(identity) => (Some(identity), None),
            Err(error) => (None, Some(error.to_string())),
        });
    }
    Ok((None, None))
}
