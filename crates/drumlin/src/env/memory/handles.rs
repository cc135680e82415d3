//! Handles of the in-memory file system: appending, reading, locking.
//!
//! Place: made by `MemFs::create`, `open` and `lock`. They hold the file itself, so that a rename
//! or removal of its name does not touch them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{FileLock, Operation, ReadableFile, WritableFile, ends_early};
use super::Shared;
use super::inode::{Inode, Locks};
use crate::error::{Error, Result};

/// A file being appended to.
pub(super) struct MemWritable {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Arc<Inode>,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl WritableFile for MemWritable {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.shared.enter(Operation::Append, &self.path)?;
        let world = self.shared.world.lock();
        let room = world.room_to_grow();
        let mut state = self.inode.state.lock();
        if state.mapping.is_some() {
            return Err(Error::invalid(format!("append to {}, which is mapped", self.path.display())));
        }
        // As on a real device, what fits is written before the error.
        let slack = state.device_bytes() - state.current.bytes();
        let fits = bytes.len().min(usize::try_from(room.saturating_add(slack)).unwrap_or(usize::MAX));
        state.current.append(&bytes[..fits]);
        self.bytes += fits as u64;
        if fits < bytes.len() {
            return Err(Error::io("append to", &self.path, ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let entered = self.shared.enter(Operation::Sync, &self.path);
        let _world = self.shared.world.lock();
        let mut state = self.inode.state.lock();
        match entered {
            Ok(()) => state.sync(0..usize::MAX),
            Err(_) => state.fail_sync(0..usize::MAX),
        }
        entered
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file open for positioned reads.
pub(super) struct MemReadable {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Arc<Inode>,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl ReadableFile for MemReadable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.shared.enter(Operation::Read, &self.path)?;
        let done = self.inode.state.lock().read(buffer, offset);
        if done < buffer.len() {
            return Err(ends_early(&self.path, offset, buffer.len(), offset + done as u64));
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A share of a file's advisory lock.
pub(super) struct MemLock {
    inode: Arc<Inode>,
}

impl MemLock {
    /// Takes the lock, or none if somebody is in the way.
    pub(super) fn take(inode: Arc<Inode>, exclusive: bool) -> Option<MemLock> {
        let mut state = inode.state.lock();
        state.locks = match (state.locks, exclusive) {
            (Locks::Free, true) => Locks::Exclusive,
            (Locks::Free, false) => Locks::Shared(1),
            (Locks::Shared(holders), false) => Locks::Shared(holders + 1),
            _ => return None,
        };
        drop(state);
        Some(MemLock { inode })
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.inode.state.lock();
        state.locks = match state.locks {
            Locks::Shared(holders) if holders > 1 => Locks::Shared(holders - 1),
            _ => Locks::Free,
        };
    }
}

impl FileLock for MemLock {}
