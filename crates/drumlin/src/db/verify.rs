//! Verification: every byte of every table, and of a log at rest, is read and checked.
//!
//! Place: `Db::verify`. The manifest was read and checked by opening the store; so was the log, which
//! a read-only store reads again to collect all that is wrong with it.
//! A corrupt file does not end the run: all problems are collected, each with file and block.

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_epoch as epoch;

use crate::error::{Corruption, Error, Result};
use crate::log::{self, Mode, ScanOptions};
use crate::table::TableHandle;
use crate::version::Manifest;

use super::open::{LOG_DIRECTORY, scan_options};
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
    /// What is right as far as can be told, and could be told no further.
    pub remarks: Vec<String>,
}

impl VerifyReport {
    /// True if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

pub(crate) fn verify(store: &Store, on_progress: &mut dyn FnMut(&VerifyProgress)) -> Result<VerifyReport> {
    store.check_readable()?;
    let keyspaces = store.keyspaces.lock().clone();
    let tables: Vec<Arc<TableHandle>> = {
        let guard = epoch::pin();
        keyspaces
            .values()
            .flat_map(|k| k.current.load(&guard).levels.tables().cloned().collect::<Vec<_>>())
            .collect()
    };
    let mut report = VerifyReport::default();
    let mut progress = VerifyProgress {
        bytes_total: tables.iter().map(|t| t.meta().file_bytes).sum(),
        ..VerifyProgress::default()
    };
    for table in tables {
        progress.file = table.path().to_path_buf();
        let before = progress.bytes;
        let checked = table.verify(&mut |bytes| {
            progress.bytes += bytes;
            on_progress(&progress);
        });
        match checked {
            Ok(()) => {}
            Err(Error::Corruption(problem)) => report.problems.push(problem),
            Err(error) => return Err(error),
        }
        progress.bytes = before + table.meta().file_bytes;
        report.files += 1;
    }
    report.bytes = progress.bytes;
    if store.options.read_only {
        verify_log(store, &mut report)?;
    }
    Ok(report)
}

/// Reads the log once more and collects what is wrong. A log that is being written is not looked at.
fn verify_log(store: &Store, report: &mut VerifyReport) -> Result<()> {
    let (identity, state, _) = Manifest::load(&*store.env.fs, &store.directory)?;
    let options = ScanOptions { mode: Mode::Inspect, ..scan_options(&identity, &state) };
    let log = log::scan(&store.env.fs, &store.directory.join(LOG_DIRECTORY), options)?;
    report.files += log.segments.len();
    report.bytes += log.segments.iter().map(|segment| segment.bytes).sum::<u64>();
    report.remarks = RecoveryReport::of(&log).remarks();
    report.problems.extend(log.problems);
    Ok(())
}
