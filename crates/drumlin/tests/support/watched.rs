//! A file system that writes down what tables are asked for, ahead and in earnest.
//!
//! Place: around a `MemFs`, by tests of what is read together. Nothing is ever at hand without a read, as of a cold device.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use drumlin::Result;
use drumlin::env::{DirEntry, FileLock, FileSystem, LogRegion, ReadMode, ReadableFile, WritableFile};

/// What a table was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// It was told that this will be read; else it was read.
    pub ahead: bool,
    /// Which file, and from which offset on.
    pub place: (PathBuf, u64),
}

/// What is written down, and what is done before the next read of a table.
#[derive(Default)]
struct Watch {
    events: Vec<Event>,
    first: Option<Box<dyn FnOnce() + Send>>,
}

/// Writes down, and passes everything on.
pub struct WatchedFs {
    inner: Arc<dyn FileSystem>,
    watch: Arc<Mutex<Watch>>,
}

impl WatchedFs {
    /// Watches what goes to `inner`.
    pub fn new(inner: Arc<dyn FileSystem>) -> Arc<WatchedFs> {
        Arc::new(WatchedFs { inner, watch: Arc::default() })
    }

    /// What tables were asked for, in order.
    pub fn events(&self) -> Vec<Event> {
        self.watch.lock().unwrap().events.clone()
    }

    /// Begins anew.
    pub fn forget(&self) {
        self.watch.lock().unwrap().events.clear();
    }

    /// Whoever reads a table next does this before.
    pub fn before_next_read(&self, first: impl FnOnce() + Send + 'static) {
        self.watch.lock().unwrap().first = Some(Box::new(first));
    }
}

struct WatchedFile(Arc<dyn ReadableFile>, Arc<Mutex<Watch>>);

impl WatchedFile {
    fn note(&self, ahead: bool, offset: u64) {
        let path = self.0.path();
        if path.extension().is_some_and(|extension| extension == "tbl") {
            let mut watch = self.1.lock().unwrap();
            watch.events.push(Event { ahead, place: (path.to_path_buf(), offset) });
            let first = if ahead { None } else { watch.first.take() };
            drop(watch);
            first.into_iter().for_each(|first| first());
        }
    }
}

impl ReadableFile for WatchedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.note(false, offset);
        self.0.read_exact_at(buffer, offset)
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn prefetch(&self, offset: u64, bytes: u64) {
        self.note(true, offset);
        self.0.prefetch(offset, bytes);
    }
}

impl FileSystem for WatchedFs {
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
        self.inner.create(path)
    }
    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        Ok(Arc::new(WatchedFile(self.inner.open(path, mode)?, self.watch.clone())))
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
    fn boot_id(&self) -> [u8; 16] {
        self.inner.boot_id()
    }
}
