//! A log that no session writes: what an open does to its files before it begins the next session.
//!
//! Place: `db` calls these between [`super::scan`] and [`super::Log::start`], with the store locked. They exist for a
//! device that is full: what nobody needs goes before anything is written, and what the session will need is taken first.
//!
//! Invariants:
//! 1. A file under a segment's name that the scan counts is never cut or removed, nor changed but for its doubt slot; one below the floor goes only
//!    when the floor is durable. (Its store may have outrun its sync, and a floor that a power loss takes back needs it.)
//! 2. Temporary files were never a part of the log: a segment gets its name when its header is durable.
//! 3. After `make_durable` the log reads the same, whatever is lost later, provided that it is whole.
//!
//! Tests: `db::tests::killed`, `db::tests::carried`.

use std::path::Path;

use crate::env::{FileSystem, join};
use crate::error::{Error, Result};
use crate::key::Lsn;

use super::format::{self, HEADER_PAGE};
use super::recovered::{Recovered, SessionInfo};
use super::segment;

/// Removes the ballast and files that were being made when the process died.
pub fn remove_temporaries(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    let files = fs.list(dir)?.into_iter().filter(|entry| !entry.is_dir && entry.name.ends_with(".tmp"));
    files.map(|entry| join(dir, &entry.name)).try_for_each(|path| remove(fs, &path))
}

/// Takes the space of the next session's first segment, under a temporary name that [`super::Log::start`] takes up.
pub fn reserve(fs: &dyn FileSystem, dir: &Path, segment: u64, segment_bytes: usize) -> Result<()> {
    fs.create_dir_all(dir)?;
    let path = dir.join(format::segment_name(segment)).with_extension("tmp");
    match fs.map_log(&path, HEADER_PAGE + segment_bytes) {
        Ok(_) => Ok(()),
        Err(error) => {
            // Half of it may be there; if this fails too, the next open removes it.
            let _ = fs.remove(&path);
            Err(error)
        }
    }
}

impl Recovered {
    /// Removes the segments below the floor, which are kept for their blocks. True if there was one.
    pub fn remove_unneeded(&self) -> Result<bool> {
        let first = self.geometry.segment_of(self.floor);
        let unneeded: Vec<_> = self.segments.iter().filter(|s| s.index < first).collect();
        if unneeded.is_empty() {
            return Ok(false);
        }
        self.sync_files(|bytes| bytes.min(HEADER_PAGE))?;
        unneeded.iter().try_for_each(|segment| remove(&*self.fs, &segment.path))?;
        Ok(true)
    }

    /// True if nothing is missing below the end, and no sync of it has failed: then the log need not be flushed, only
    /// [made durable](Self::make_durable).
    pub fn is_whole(&self) -> bool {
        !self.is_doubted && self.sessions.last().is_none_or(|session| session.holes == 0)
    }

    /// Bytes of the files that count, but for what their sessions wrote there: headers, what was opened ahead, what is cut
    /// off.
    pub fn unused_bytes(&self) -> u64 {
        let files: u64 = self.files.values().map(|file| file.bytes).sum();
        let written = |session: &SessionInfo| session.end.0.saturating_sub(session.first.max(self.floor).0);
        files.saturating_sub(self.sessions.iter().map(written).sum::<u64>() * Lsn::UNIT_BYTES)
    }

    /// Makes all of the log durable. O(bytes not yet written back). If that fails, nothing of it can be: the log says so from
    /// then on.
    pub fn make_durable(&self) -> Result<()> {
        let synced = self.sync_files(|bytes| bytes).and_then(|()| self.fs.sync_dir(&self.dir));
        if let (Err(_), Some((index, keys))) = (&synced, &self.last)
            && let Some(file) = self.files.get(index)
            && let Ok(bytes) = usize::try_from(file.bytes)
            && let Ok(region) = self.fs.map_log(&file.path, bytes)
        {
            segment::write_doubt(&*region, keys, *index);
        }
        synced
    }

    /// Syncs the first so many bytes of every file that counts.
    fn sync_files(&self, bytes_of: impl Fn(usize) -> usize) -> Result<()> {
        for file in self.files.values() {
            let bytes = usize::try_from(file.bytes)
                .map_err(|_| Error::corruption(&file.path, None, "the file is beyond the address space"))?;
            self.fs.map_log(&file.path, bytes)?.sync(0..bytes_of(bytes))?;
        }
        Ok(())
    }

    /// Bytes of log from the floor on.
    pub fn needed_bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.floor.0) * Lsn::UNIT_BYTES
    }
}

fn remove(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Err(error) if error.is_missing_file() => Ok(()),
        other => other,
    }
}
