//! A file system that counts what goes through it.
//!
//! Place: between Drumlin and the real file system, so that amplification is measured at the seam and not by the
//! engine's own counters.
//!
//! 1. Every byte appended and every byte read is counted once, when the call has succeeded.
//! 2. Reads made together (`read_each`) are counted by their files, which they go through one by one; but direct ones, which need not, here; one of a file that turns out to have
//!    no direct reads may be counted twice.
//! 3. What is stored into mapped log files cannot be seen here; `store` adds how far the log has grown.
//!
//! Concurrency: counters are Relaxed; they are read when the threads that count are done.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drumlin::Result;
use drumlin::env::{DirEntry, FileLock, FileSystem, LogRegion, ReadMode, ReadableFile, Reads, WritableFile};

/// A sum that many threads add to.
#[derive(Default)]
struct Sum(AtomicU64);

impl Sum {
    fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Sums {
    appended: Sum,
    read: Sum,
    reads: Sum,
}

impl Sums {
    fn count_read(&self, bytes: usize) {
        self.read.add(bytes as u64);
        self.reads.add(1);
    }
}

/// What went through, in bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes appended to files.
    pub appended: u64,
    /// Bytes read.
    pub read: u64,
    /// Calls that read.
    pub reads: u64,
}

/// Counts, and passes everything on.
pub struct CountingFs {
    inner: Arc<dyn FileSystem>,
    sums: Arc<Sums>,
}

impl CountingFs {
    /// Counts what goes to `inner`.
    pub fn new(inner: Arc<dyn FileSystem>) -> CountingFs {
        CountingFs { inner, sums: Arc::default() }
    }

    /// The sums so far.
    pub fn counted(&self) -> Counted {
        Counted {
            appended: self.sums.appended.get(),
            read: self.sums.read.get(),
            reads: self.sums.reads.get(),
        }
    }
}

struct Appended(Box<dyn WritableFile>, Arc<Sums>);

impl WritableFile for Appended {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)?;
        self.1.appended.add(bytes.len() as u64);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

struct Read(Arc<dyn ReadableFile>, Arc<Sums>);

impl ReadableFile for Read {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buffer, offset)?;
        self.1.count_read(buffer.len());
        Ok(())
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        let cached = self.0.read_cached(buffer, offset);
        if cached {
            self.1.count_read(buffer.len());
        }
        cached
    }
    fn prefetch(&self, offset: u64, bytes: u64) {
        self.0.prefetch(offset, bytes);
    }
}

/// Reads made together.
struct Together<'a> {
    reads: &'a mut dyn Reads,
    sums: &'a Sums,
    /// Tags of those under way that do not go through their files.
    unseen: Vec<usize>,
}

impl Reads for Together<'_> {
    fn next(&mut self) -> Option<drumlin::env::Read> {
        let read = self.reads.next()?;
        if read.file.descriptor().is_some() {
            self.unseen.push(read.tag);
        }
        Some(read)
    }

    fn take(&mut self, tag: usize, found: Result<&[u8]>) {
        if let Some(at) = self.unseen.iter().position(|unseen| *unseen == tag) {
            self.unseen.swap_remove(at);
            if let Ok(found) = &found {
                self.sums.count_read(found.len());
            }
        }
        self.reads.take(tag, found);
    }
}

impl FileSystem for CountingFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        Ok(Box::new(Appended(self.inner.create(path)?, self.sums.clone())))
    }
    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(Read(self.inner.open(path, mode)?, self.sums.clone())))
    }
    fn read_each(&self, reads: &mut dyn Reads) {
        self.inner.read_each(&mut Together { reads, sums: &self.sums, unseen: Vec::new() });
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }
    fn map_log(&self, path: &Path, bytes: usize) -> Result<Arc<dyn LogRegion>> {
        self.inner.map_log(path, bytes)
    }
    fn truncate(&self, path: &Path, bytes: u64) -> Result<()> {
        self.inner.truncate(path, bytes)
    }
    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path, exclusive)
    }
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.inner.free_bytes(path)
    }
    fn open_files_max(&self) -> Option<u64> {
        self.inner.open_files_max()
    }
    fn boot_id(&self) -> [u8; 16] {
        self.inner.boot_id()
    }
}
