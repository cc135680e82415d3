//! A file system in memory that keeps, beside what is, what a power loss would leave of it.
//!
//! Place: tests of every layer, and stores that need no disk, use it as [`super::FileSystem`].
//! Parts: `content` (pages shared until written), `inode` (a file now and on the medium),
//! `names` (the same for names), `region` (mapped files), `handles`, `hooks`, `crash` (clones).
//!
//! Invariants:
//! 1. It is as weak as the medium that `env` describes, and no weaker: a name needs the sync of
//!    its directory, a page the sync of its file, a failed sync loses its pages for good.
//! 2. A clone sees all files and names at one moment between two calls, and of the mapped bytes
//!    it sees whatever the stores it sees were made after.
//! 3. Everything is a function of the calls: no clock, no random numbers; boot ids count up.
//!
//! Concurrency: whatever writes takes the world's lock and then the file's; a read takes the
//! file's only. Mapped memory is written by its owners without any lock.
//!
//! Complexity: a clone costs one counter per file, a look at each mapped page, and a list of
//! names; pages are copied when written.
//!
//! Tests: `tests/`.

mod content;
mod crash;
mod handles;
mod hooks;
mod inode;
mod names;
mod region;
#[cfg(test)]
mod tests;

pub use crash::{Keep, PageAt, Unsynced};
pub use hooks::{CallHook, FaultHook};

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Call, DirEntry, FileLock, FileSystem, LogRegion, Operation, PAGE_BYTES, ReadMode, ReadableFile,
    WritableFile, parent, region_length,
};
use crate::error::{Error, Result};
use content::{Content, pages_of};
use handles::{MemLock, MemReadable, MemWritable};
use hooks::HookSlot;
use inode::Inode;
use names::{Names, Node, normal};
use parking_lot::Mutex;

/// An in-memory file system; see the module.
pub struct MemFs {
    shared: Arc<Shared>,
}

/// What the handles share with their file system.
struct Shared {
    world: Mutex<World>,
    /// Calls so far. Relaxed: a count, and the order of calls is the world's lock's matter.
    calls: AtomicU64,
    watcher: HookSlot,
    saboteur: HookSlot,
    boot_id: [u8; 16],
}

/// State under the one lock of everything that writes.
struct World {
    names: Names,
    /// Bytes of the device; `None` is unlimited.
    capacity: Option<u64>,
}

impl World {
    /// Bytes of all files that have a name, in whole pages. No file may be locked.
    fn used(&self) -> u64 {
        let files = self.names.current.values().filter_map(|node| match node {
            Node::File(inode) => Some(inode.state.lock().device_bytes()),
            Node::Dir => None,
        });
        files.sum()
    }

    /// Bytes of whole pages that files may still grow by. No file may be locked.
    fn room_to_grow(&self) -> u64 {
        let Some(capacity) = self.capacity else { return u64::MAX };
        let free = capacity.saturating_sub(self.used());
        free - free % PAGE_BYTES as u64
    }
}

impl Shared {
    fn new(names: Names, capacity: Option<u64>, boot_id: [u8; 16]) -> Arc<Shared> {
        Arc::new(Shared {
            world: Mutex::new(World { names, capacity }),
            calls: AtomicU64::new(0),
            watcher: HookSlot::default(),
            saboteur: HookSlot::default(),
            boot_id,
        })
    }

    /// Counts a call and runs the hooks; fails if a hook wants it.
    fn enter(&self, operation: Operation, path: &Path) -> Result<()> {
        let address = std::ptr::from_ref(self) as usize;
        if hooks::is_inside(address) {
            return Ok(());
        }
        let call = Call { number: self.calls.fetch_add(1, Ordering::Relaxed), operation, path };
        let Some(_inside) = hooks::Inside::enter(address) else { return Ok(()) };
        self.watcher.run(&call);
        match self.saboteur.run(&call) {
            None => Ok(()),
            Some(kind) => Err(Error::io(operation.verb(), path, kind.into())),
        }
    }
}

impl MemFs {
    /// An empty file system of unlimited capacity.
    // Handles and hooks share it; a bare value would only be wrapped by every caller.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> Arc<MemFs> {
        MemFs::with(Names::new(), None, 1u128.to_le_bytes())
    }

    fn with(names: Names, capacity: Option<u64>, boot_id: [u8; 16]) -> Arc<MemFs> {
        Arc::new(MemFs { shared: Shared::new(names, capacity, boot_id) })
    }

    /// Calls so far, those of its handles included.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Installs what runs before every call, on the caller's thread; it may clone or call this
    /// file system. One call at a time. A hook that holds this file system keeps it alive until
    /// removed.
    pub fn set_hook(&self, hook: Option<CallHook>) {
        let hook = hook.map(|mut hook| -> FaultHook {
            Box::new(move |call| {
                hook(call);
                None
            })
        });
        self.shared.watcher.set(hook);
    }

    /// Installs what may fail a call, asked after the hook. A sync failed this way is final: its
    /// pages may or may not be kept by a crash, and no later sync makes them durable.
    pub fn set_fault_hook(&self, hook: Option<FaultHook>) {
        self.shared.saboteur.set(hook);
    }

    /// Limits the bytes, in whole pages, of all files that have a name; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.world.lock().capacity = bytes;
    }

    /// Bytes, in whole pages, of all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        self.shared.world.lock().used()
    }

    /// The paths of all files, in order. Not a call: neither counted nor told to hooks.
    pub fn files(&self) -> Vec<PathBuf> {
        let world = self.shared.world.lock();
        let files = world.names.current.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    /// The bytes of a file. Not a call.
    pub fn contents(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let world = self.shared.world.lock();
        let inode = world.names.file(&normal(path)).map_err(|kind| Error::io("read", path, kind.into()))?;
        let state = inode.state.lock();
        let mut bytes = vec![0; state.current.bytes() as usize];
        state.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Puts a durable file of the given bytes under a durable name, making its directories. Not
    /// a call. Handles of a file that had the name go on with the old one.
    pub fn set_contents(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let key = normal(path);
        let mut content = Content::default();
        content.append(bytes);
        let mut world = self.shared.world.lock();
        let fail = |kind: ErrorKind| Error::io("write", path, kind.into());
        world.names.create_dir_all(parent(&key)).map_err(fail)?;
        world.names.put_durable(&key, Node::File(Arc::new(Inode::durable(content)))).map_err(fail)
    }

    /// Damages a file, now and on the medium: flips the bits of `mask` in one byte. Not a call.
    /// A byte beyond the end is [`Error::InvalidArgument`]. A mapped file must be unmapped first.
    pub fn damage(&self, path: impl AsRef<Path>, offset: u64, mask: u8) -> Result<()> {
        let path = path.as_ref();
        let world = self.shared.world.lock();
        let inode = world.names.file(&normal(path)).map_err(|kind| Error::io("damage", path, kind.into()))?;
        let mut state = inode.state.lock();
        if state.mapping.is_some() || offset >= state.current.bytes() {
            return Err(Error::invalid(format!("byte {offset} of {} cannot be damaged", path.display())));
        }
        let state = &mut *state;
        for content in [&mut state.current, &mut state.durable] {
            let mut byte = [0];
            if content.read(&mut byte, offset) == 1 {
                content.write(offset, &[byte[0] ^ mask]);
            }
        }
        Ok(())
    }
}

impl FileSystem for MemFs {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.call(Operation::CreateDir, path, |world, key| world.names.create_dir_all(key))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.call(Operation::List, dir, |world, key| {
            world.names.need_dir(key)?;
            let entry = |(path, node): (&Path, &Node)| DirEntry {
                name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                bytes: match node {
                    Node::Dir => 0,
                    Node::File(inode) => inode.state.lock().current.bytes(),
                },
                is_dir: matches!(node, Node::Dir),
            };
            let mut entries: Vec<_> = world.names.entries(key).map(entry).collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.call(Operation::Exists, path, |world, key| Ok(world.names.current.contains_key(key)))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>> {
        self.call(Operation::Create, path, |world, key| {
            let (inode, _) = world.names.file_or_new(key)?;
            inode.state.lock().set_bytes(0);
            let shared = self.shared.clone();
            Ok(Box::new(MemWritable { shared, inode, path: path.to_path_buf(), bytes: 0 }) as _)
        })
    }

    fn open(&self, path: &Path, _mode: ReadMode) -> Result<Arc<dyn ReadableFile>> {
        self.call(Operation::Open, path, |world, key| {
            let inode = world.names.file(key)?;
            let bytes = inode.state.lock().current.bytes();
            let shared = self.shared.clone();
            Ok(Arc::new(MemReadable { shared, inode, path: path.to_path_buf(), bytes }) as _)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.call(Operation::Rename, to, |world, key| world.names.rename(&normal(from), key))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.call(Operation::Remove, path, |world, key| world.names.remove(key))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.call(Operation::SyncDir, dir, |world, key| world.names.sync_dir(key))
    }

    fn map_log(&self, path: &Path, bytes: usize) -> Result<Arc<dyn LogRegion>> {
        region_length(path, bytes)?;
        let region = self.call(Operation::MapLog, path, |world, key| {
            let has = match world.names.file(key) {
                Ok(inode) => inode.state.lock().device_bytes(),
                Err(ErrorKind::NotFound) => 0,
                Err(kind) => return Err(kind),
            };
            let needs = (pages_of(bytes as u64) * PAGE_BYTES) as u64;
            if needs.saturating_sub(has) > world.room_to_grow() {
                return Err(ErrorKind::StorageFull);
            }
            let (inode, _) = world.names.file_or_new(key)?;
            let region = region::map(&self.shared, &inode, path.to_path_buf(), bytes);
            Ok(region)
        })??;
        Ok(Arc::new(region))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> Result<()> {
        self.call(Operation::Truncate, path, |world, key| {
            let inode = world.names.file(key)?;
            let has = inode.state.lock().device_bytes();
            if ((pages_of(bytes) * PAGE_BYTES) as u64).saturating_sub(has) > world.room_to_grow() {
                return Err(ErrorKind::StorageFull);
            }
            inode.state.lock().set_bytes(bytes);
            Ok(())
        })
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn FileLock>> {
        let lock = self.call(Operation::Lock, path, |world, key| {
            let inode = if exclusive { world.names.file_or_new(key)?.0 } else { world.names.file(key)? };
            Ok(MemLock::take(inode, exclusive))
        })?;
        match lock {
            Some(lock) => Ok(Box::new(lock)),
            None => Err(Error::Locked { path: parent(path).to_path_buf() }),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.call(Operation::FreeBytes, path, |world, _| {
            Ok(world.capacity.map(|capacity| capacity.saturating_sub(world.used())))
        })
    }

    fn boot_id(&self) -> [u8; 16] {
        self.shared.boot_id
    }
}

impl MemFs {
    /// One call by path: told to the hooks, then carried out under the world's lock.
    fn call<T>(
        &self,
        operation: Operation,
        path: &Path,
        body: impl FnOnce(&mut World, &Path) -> Result<T, ErrorKind>,
    ) -> Result<T> {
        self.shared.enter(operation, path)?;
        let key = normal(path);
        let done = body(&mut self.shared.world.lock(), &key);
        done.map_err(|kind| Error::io(operation.verb(), path, kind.into()))
    }
}

impl std::fmt::Debug for MemFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemFs").field("files", &self.files()).field("calls", &self.calls()).finish()
    }
}
