//! The operating system behind the seams: files, clock, random numbers, threads.
//!
//! Place: made by [`super::Env::real`]; calls std, rustix and memmap2, and nothing of this crate
//! but errors. Parts: `file` (appending and reading), `ring` (reading much at once), `region` (mapped logs), `host` (the rest).
//!
//! Invariants:
//! 1. Every error names the path and what was tried; a full device is [`Error::NoSpace`].
//! 2. A handle whose sync failed once fails every later sync: the system may have dropped the
//!    pages and would report success.
//! 3. `map_log` returns only when every block of the file is allocated; when it fails, a file that
//!    it made is gone and one that it found has its old length.
//! 4. Nothing is buffered in the process: what was appended survives its crash.
//!
//! Concurrency: handles for reading are shared freely; locks are advisory and belong to the
//! open file, so two handles of one process exclude each other too.
//!
//! Systems: Linux is the one that counts. Elsewhere direct reads are buffered and allocation
//! writes zeros.
//!
//! Tests: `tests.rs`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod file;
mod host;
mod region;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(test)]
mod tests;

pub(super) use host::{RealClock, RealRandom, RealSpawner};

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{DirEntry, FileLock, FileSystem, LogRegion, ReadMode, ReadableFile, WritableFile};
#[cfg(target_os = "linux")]
use super::{Read, Reads};
use crate::error::{Error, Result};

/// The operating system's file system.
pub struct RealFs {
    boot_id: [u8; 16],
    #[cfg(target_os = "linux")]
    rings: ring::Rings,
}

impl RealFs {
    /// A handle on the system; reads the boot id once.
    pub fn new() -> RealFs {
        RealFs {
            boot_id: host::boot_id(),
            #[cfg(target_os = "linux")]
            rings: ring::Rings::default(),
        }
    }
}

impl fmt::Debug for RealFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RealFs")
    }
}

impl Default for RealFs {
    fn default() -> Self {
        RealFs::new()
    }
}

impl FileSystem for RealFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path).map_err(|e| Error::io("create directory", path, e))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let fail = |e| Error::io("list", dir, e);
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed between the two calls.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io("inspect", entry.path(), e)),
            };
            entries.push(DirEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: if metadata.is_dir() { 0 } else { metadata.len() },
                is_dir: metadata.is_dir(),
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|e| Error::io("inspect", path, e))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        Ok(Box::new(file::RealWritable::create(path)?))
    }

    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(file::RealReadable::open(path, mode)?))
    }

    #[cfg(target_os = "linux")]
    fn read_each(&self, reads: &mut dyn Reads) {
        if let Some(first) = reads.next() {
            let is_direct = first.file.descriptor().is_some();
            let mut reads = Looked { first: Some(first), rest: reads };
            match is_direct {
                true => self.rings.read_each(&mut reads),
                false => super::read_side_by_side(&mut reads),
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io("rename", from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let fail = |e| Error::io("sync directory", dir, e);
        File::open(dir).map_err(fail)?.sync_all().map_err(fail)
    }

    fn map_log(&self, path: &Path, bytes: usize) -> Result<Arc<dyn LogRegion>> {
        Ok(Arc::new(region::RealRegion::map(path, bytes)?))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> Result<()> {
        let fail = |e| Error::io("truncate", path, e);
        OpenOptions::new().write(true).open(path).map_err(fail)?.set_len(bytes).map_err(fail)
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn FileLock>> {
        let fail = |e| Error::io("lock", path, e);
        let file = if exclusive {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
        } else {
            File::open(path)
        }
        .map_err(fail)?;
        match if exclusive { file.try_lock() } else { file.try_lock_shared() } {
            Ok(()) => Ok(Box::new(RealLock { _file: file })),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { path: super::parent(path).to_path_buf() }),
            Err(TryLockError::Error(e)) => Err(fail(e)),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        let stat = rustix::fs::statvfs(path).map_err(|e| Error::io("inspect", path, e.into()))?;
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn open_files_max(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }

    fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }
}

/// Reads of which the first was taken to look at it.
#[cfg(target_os = "linux")]
struct Looked<'a> {
    first: Option<Read>,
    rest: &'a mut dyn Reads,
}

#[cfg(target_os = "linux")]
impl Reads for Looked<'_> {
    fn next(&mut self) -> Option<Read> {
        self.first.take().or_else(|| self.rest.next())
    }

    fn take(&mut self, tag: usize, found: Result<&[u8]>) {
        self.rest.take(tag, found);
    }
}

/// An open file whose advisory lock goes with it.
struct RealLock {
    _file: File,
}

impl FileLock for RealLock {}
