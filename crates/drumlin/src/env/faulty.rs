//! A file system that fails, shortens or corrupts chosen calls of another.
//!
//! Place: put by tests around a `MemFs` or `RealFs`; every call of it and of the handles it gives
//! out is numbered from 0 and looked up in one plan.
//!
//! Invariants:
//! 1. A fault that does not fit its call (a short write at a read) lets the call pass, and is not
//!    counted as injected.
//! 2. A sync that was failed before it reached the file below is final for its handle: later
//!    syncs of the handle report success and reach nothing, as a system does that has dropped
//!    the pages. Syncs of directories may be retried.
//! 3. Mapped stores are no calls; they pass.
//!
//! Concurrency: the number of a call is its place in the plan's lock order; predicates run under
//! that lock and must not call the file system.
//!
//! Tests: `faulty/tests.rs`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Call, DirEntry, FileLock, FileSystem, LogRegion, Operation, ReadMode, ReadableFile, WritableFile,
};
use crate::error::{Error, Result};
use parking_lot::Mutex;

/// What happens to a chosen call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call does nothing and fails with this kind of system error.
    Error(io::ErrorKind),
    /// The call is carried out, and then fails with this kind of system error.
    ErrorAfter(io::ErrorKind),
    /// The call does nothing and the device is full.
    NoSpace,
    /// An append, only: half of the bytes arrive, then it fails.
    ShortWrite,
    /// A read, only: it succeeds with one bit flipped, this one counted from the buffer's start
    /// and around its end.
    CorruptRead {
        /// The bit.
        bit: u64,
    },
}

impl Fault {
    fn fits(self, operation: Operation) -> bool {
        match self {
            Fault::Error(_) | Fault::ErrorAfter(_) | Fault::NoSpace => true,
            Fault::ShortWrite => operation == Operation::Append,
            Fault::CorruptRead { .. } => operation == Operation::Read,
        }
    }

    /// The error it reports; none for a corrupted read.
    fn error(self, operation: Operation, path: &Path) -> Option<Error> {
        let kind = match self {
            Fault::Error(kind) | Fault::ErrorAfter(kind) => kind,
            Fault::NoSpace => io::ErrorKind::StorageFull,
            Fault::ShortWrite => io::ErrorKind::WriteZero,
            Fault::CorruptRead { .. } => return None,
        };
        Some(Error::io(operation.verb(), path, kind.into()))
    }
}

/// Chooses faults by call.
type Predicate = Box<dyn FnMut(&Call<'_>) -> Option<Fault> + Send>;

#[derive(Default)]
struct Plan {
    calls: u64,
    injected: u64,
    at: BTreeMap<u64, Fault>,
    from: Option<(u64, Fault)>,
    when: Option<Predicate>,
}

impl Plan {
    fn next(&mut self, operation: Operation, path: &Path) -> Option<Fault> {
        let call = Call { number: self.calls, operation, path };
        self.calls += 1;
        let at = self.at.remove(&call.number);
        let from = self.from.filter(|(first, _)| call.number >= *first).map(|(_, fault)| fault);
        let when = self.when.as_mut().and_then(|when| when(&call));
        let fault = at.or(from).or(when).filter(|fault| fault.fits(operation));
        self.injected += u64::from(fault.is_some());
        fault
    }
}

/// The plan, shared with the handles.
#[derive(Clone, Default)]
struct Faults(Arc<Mutex<Plan>>);

impl Faults {
    fn next(&self, operation: Operation, path: &Path) -> Option<Fault> {
        self.0.lock().next(operation, path)
    }

    /// One call without parts.
    fn run<T>(&self, operation: Operation, path: &Path, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(fault) = self.next(operation, path) else { return body() };
        let Some(error) = fault.error(operation, path) else { return body() };
        if matches!(fault, Fault::ErrorAfter(_)) {
            // A call that fails by itself keeps its own error.
            body()?;
        }
        Err(error)
    }

    /// One sync of a handle.
    fn sync(
        &self,
        operation: Operation,
        path: &Path,
        lost: &AtomicBool,
        body: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(fault) = self.next(operation, path) else {
            return if lost.load(Ordering::Acquire) { Ok(()) } else { body() };
        };
        let done = if matches!(fault, Fault::ErrorAfter(_)) && !lost.load(Ordering::Acquire) {
            body()
        } else {
            lost.store(true, Ordering::Release);
            Ok(())
        };
        done.and(fault.error(operation, path).map_or(Ok(()), Err))
    }
}

/// A file system with planned faults.
pub struct FaultyFs {
    inner: Arc<dyn FileSystem>,
    faults: Faults,
}

impl FaultyFs {
    /// Wraps a file system; nothing fails yet.
    // As `MemFs::new`: every user shares it.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(inner: Arc<dyn FileSystem>) -> Arc<FaultyFs> {
        Arc::new(FaultyFs { inner, faults: Faults::default() })
    }

    /// Fails the call of this number, once.
    pub fn fail_at(&self, number: u64, fault: Fault) {
        self.faults.0.lock().at.insert(number, fault);
    }

    /// Fails every call from this number on.
    pub fn fail_from(&self, number: u64, fault: Fault) {
        self.faults.0.lock().from = Some((number, fault));
    }

    /// Fails each call for which the predicate names a fault; replaces an earlier predicate.
    pub fn fail_when(&self, predicate: impl FnMut(&Call<'_>) -> Option<Fault> + Send + 'static) {
        self.faults.0.lock().when = Some(Box::new(predicate));
    }

    /// Forgets every plan. What a failed sync lost stays lost.
    pub fn clear(&self) {
        let mut plan = self.faults.0.lock();
        plan.at.clear();
        plan.from = None;
        plan.when = None;
    }

    /// Calls so far; the next has this number.
    pub fn calls(&self) -> u64 {
        self.faults.0.lock().calls
    }

    /// Faults that took effect.
    pub fn injected(&self) -> u64 {
        self.faults.0.lock().injected
    }
}

impl FileSystem for FaultyFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.faults.run(Operation::CreateDir, path, || self.inner.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.faults.run(Operation::List, dir, || self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.faults.run(Operation::Exists, path, || self.inner.exists(path))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        let inner = self.faults.run(Operation::Create, path, || self.inner.create(path))?;
        let (faults, path) = (self.faults.clone(), path.to_path_buf());
        Ok(Box::new(FaultyWritable { inner, faults, path, lost: AtomicBool::new(false) }))
    }

    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        let inner = self.faults.run(Operation::Open, path, || self.inner.open(path, mode))?;
        Ok(Arc::new(FaultyReadable { inner, faults: self.faults.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.faults.run(Operation::Rename, to, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.faults.run(Operation::Remove, path, || self.inner.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.faults.run(Operation::SyncDir, dir, || self.inner.sync_dir(dir))
    }

    fn map_log(&self, path: &Path, bytes: usize) -> Result<Arc<dyn LogRegion>> {
        let inner = self.faults.run(Operation::MapLog, path, || self.inner.map_log(path, bytes))?;
        let (faults, path) = (self.faults.clone(), path.to_path_buf());
        Ok(Arc::new(FaultyRegion { inner, faults, path, lost: AtomicBool::new(false) }))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> Result<()> {
        self.faults.run(Operation::Truncate, path, || self.inner.truncate(path, bytes))
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn FileLock>> {
        self.faults.run(Operation::Lock, path, || self.inner.lock(path, exclusive))
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.faults.run(Operation::FreeBytes, path, || self.inner.free_bytes(path))
    }

    fn open_files_max(&self) -> Option<u64> {
        self.inner.open_files_max()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.inner.boot_id()
    }
}

struct FaultyWritable {
    inner: Box<dyn WritableFile>,
    faults: Faults,
    path: PathBuf,
    /// A sync was failed: its pages are gone. Release when set, Acquire when read.
    lost: AtomicBool,
}

impl WritableFile for FaultyWritable {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(fault) = self.faults.next(Operation::Append, &self.path) else {
            return self.inner.append(bytes);
        };
        match fault {
            Fault::ErrorAfter(_) => self.inner.append(bytes)?,
            Fault::ShortWrite => self.inner.append(&bytes[..bytes.len() / 2])?,
            Fault::Error(_) | Fault::NoSpace | Fault::CorruptRead { .. } => {}
        }
        fault.error(Operation::Append, &self.path).map_or(Ok(()), Err)
    }

    fn sync(&mut self) -> Result<()> {
        let inner = &mut self.inner;
        self.faults.sync(Operation::Sync, &self.path, &self.lost, || inner.sync())
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

struct FaultyReadable {
    inner: Arc<dyn ReadableFile>,
    faults: Faults,
}

impl ReadableFile for FaultyReadable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        match self.faults.next(Operation::Read, self.inner.path()) {
            None => self.inner.read_exact_at(buffer, offset),
            Some(Fault::CorruptRead { bit }) => {
                self.inner.read_exact_at(buffer, offset)?;
                if !buffer.is_empty() {
                    let bit = bit % (buffer.len() as u64 * 8);
                    buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
                }
                Ok(())
            }
            Some(fault) => fault.error(Operation::Read, self.inner.path()).map_or(Ok(()), Err),
        }
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    // A hint, and no call: there is nothing about it to fail.
    fn prefetch(&self, offset: u64, bytes: u64) {
        self.inner.prefetch(offset, bytes);
    }
}

struct FaultyRegion {
    inner: Arc<dyn LogRegion>,
    faults: Faults,
    path: PathBuf,
    /// As for files.
    lost: AtomicBool,
}

impl LogRegion for FaultyRegion {
    fn base(&self) -> *mut u8 {
        self.inner.base()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    fn cool(&self, range: Range<usize>) {
        self.inner.cool(range);
    }

    fn fill(&self, range: Range<usize>, piece: usize) {
        self.inner.fill(range, piece);
    }

    fn warm(&self) {
        self.inner.warm();
    }
    fn sync(&self, range: Range<usize>) -> Result<()> {
        self.faults.sync(Operation::SyncRegion, &self.path, &self.lost, || self.inner.sync(range))
    }
}
