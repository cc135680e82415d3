//! The outside: files, clock, random numbers, threads. Nothing else in the crate may reach for
//! the originals (`clippy.toml` and `cargo x tidy` see to it).
//!
//! Place: the lowest layer; given to the engine as one [`Env`].
//! Parts: `real` (the operating system), `memory` (in memory, with `crash_clone`),
//! `faulty` (fails, shortens or corrupts the n-th call of another file system), `call` (what the
//! last two tell their hooks).
//!
//! The medium, as the engine may assume it:
//! 1. Bytes appended to a file, or stored in a mapped log page, survive a crash of the *process*.
//! 2. After a *power loss* a file holds what was synced; of the rest any subset of its 4 KiB pages,
//!    torn at any byte, in any order. A sync that returned an error may have kept anything.
//! 3. A created, renamed or removed name is durable once its directory is synced; the content of
//!    the file is a matter of its own sync.
//! 4. A failed sync is final: retrying it may report success and still have lost the data.
//!
//! Tests: `memory/tests/medium.rs` has one or more per rule; `tests` compares the file systems.

mod call;
mod faulty;
#[cfg(test)]
mod listed;
mod memory;
mod real;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod tests;

pub use call::{Call, Operation};
pub use faulty::{Fault, FaultyFs};
pub use memory::{CallHook, FaultHook, Keep, MemFs, PageAt, Unsynced};
pub use real::RealFs;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};

/// Bytes of a page, the unit in which a medium keeps or loses unsynced data.
pub const PAGE_BYTES: usize = 4096;

/// How a file for reading is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadMode {
    /// Through the system's page cache.
    #[default]
    Buffered,
    /// Past the page cache where the system can (`O_DIRECT`), else buffered. Reads are aligned inside.
    Direct,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within its directory.
    pub name: String,
    /// The file's length in bytes; 0 for directories.
    pub bytes: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// One positioned read of a [`FileSystem::read_each`] call.
pub struct Read {
    /// The file to read.
    pub file: Arc<dyn ReadableFile>,
    /// Where the read starts, in bytes.
    pub offset: u64,
    /// How many bytes, all of which are read, or the read fails.
    pub bytes: usize,
    /// What who asks for it knows it by.
    pub tag: usize,
}

/// Who asks for reads, and takes what they find while others are under way.
pub trait Reads {
    /// The next read to begin; none while there is none, which may change with the next [`take`](Reads::take).
    fn next(&mut self) -> Option<Read>;
    /// The bytes of the read of this tag, or why there are none. Once for each read.
    fn take(&mut self, tag: usize, found: Result<&[u8]>);
}

/// That a file system came back from [`FileSystem::read_each`] before it had read all.
pub(crate) fn unread() -> Error {
    Error::invalid("read_each of the file system came back before it had read all")
}

/// A file system. Every call may fail; errors name the path.
pub trait FileSystem: Send + Sync + 'static {
    /// Creates a directory and its parents; fine if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// The entries of a directory, sorted by name.
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>>;
    /// True if the name exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Creates (or truncates) a file for appending.
    fn create(&self, path: &Path) -> Result<Box<dyn WritableFile>>;
    /// Opens a file for positioned reads.
    fn open(&self, path: &Path, mode: ReadMode) -> Result<Arc<dyn ReadableFile>>;
    /// Reads what is asked for until nothing is, though it is asked again after each that was taken: several at a time where the system can,
    /// and whoever asks computes meanwhile. In any order. Files are meant to be read all in one mode.
    /// The default takes what is in memory, asks the system to fetch the rest side by side, and then waits for each.
    fn read_each(&self, reads: &mut dyn Reads) {
        read_side_by_side(reads);
    }
    /// Renames a file over `to`. Durable after `sync_dir` of the directory.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. Durable after `sync_dir` of the directory.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Opens or creates a file of exactly `bytes` bytes with every block allocated (a mapped
    /// write must never find the device full), and maps it for shared writing.
    /// A new file reads as zeros; an existing one keeps its bytes. Mapping a file twice with the
    /// same length shares the bytes. At least one byte, else [`Error::InvalidArgument`].
    fn map_log(&self, path: &Path, bytes: usize) -> Result<Arc<dyn LogRegion>>;
    /// Cuts a file to `bytes`, or extends it with zeros. Durable after a later sync of the file.
    /// Nobody may touch the pages of a mapped region that the cut takes away.
    fn truncate(&self, path: &Path, bytes: u64) -> Result<()>;
    /// Takes the advisory lock of a file, creating it for an exclusive lock only.
    /// [`Error::Locked`], naming the file's directory, at once if somebody holds it.
    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn FileLock>>;
    /// Bytes that can still be written under `path`, if the system tells.
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>>;
    /// Files that this process may have open at a time, if the system tells.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// Changes whenever unsynced data may have been lost (a reboot); equal ids mean that
    /// everything written since is still there.
    fn boot_id(&self) -> [u8; 16];
}

/// A file being appended to. Dropping it neither syncs nor removes it.
pub trait WritableFile: Send {
    /// Appends all of `bytes`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes everything appended so far durable (content and length, not the name).
    fn sync(&mut self) -> Result<()>;
    /// Bytes appended so far.
    fn bytes(&self) -> u64;
}

/// A file open for positioned reads; shared by threads.
pub trait ReadableFile: Send + Sync {
    /// Fills `buffer` from `offset`; a file that ends first is corruption.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// The file's length in bytes when it was opened.
    fn bytes(&self) -> u64;
    /// The path it was opened by.
    fn path(&self) -> &Path;
    /// Where reads go past the page cache, what the system knows the file by: [`FileSystem::read_each`] may read by it, and not
    /// by [`read_exact_at`](ReadableFile::read_exact_at), which a file in front of another that passes it on does not see then.
    /// None by default.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Fills `buffer` if that needs no waiting for a device; false, with `buffer` in any state,
    /// if it does or if the system cannot tell (the default).
    fn read_cached(&self, _buffer: &mut [u8], _offset: u64) -> bool {
        false
    }
    /// A hint that the range will be read soon: the system may start to fetch it. Never waits
    /// and never fails; does nothing by default.
    fn prefetch(&self, _offset: u64, _bytes: u64) {}
}

/// A mapped log file. Its bytes are shared by all threads; who may write which bytes is the
/// log's protocol (`log`), not this trait's.
pub trait LogRegion: Send + Sync {
    /// The first byte. Valid for `bytes()` bytes while the region lives.
    fn base(&self) -> *mut u8;
    /// Length in bytes.
    fn bytes(&self) -> usize;
    /// Makes the given byte range (rounded out to whole pages), and the file's length, durable.
    /// A range beyond `bytes()` is [`Error::InvalidArgument`].
    fn sync(&self, range: Range<usize>) -> Result<()>;
    /// The bytes of the range are not needed for a while: the process gives up its claim on the pages that lie in it as a
    /// whole. They keep their values, and the next access finds them again.
    fn cool(&self, _range: Range<usize>) {}
    /// The file is new, and nothing was stored in the range yet: writes its zeros, in pieces of so many bytes. A system then
    /// keeps the pages of a piece together: fewer stores take a fault, and a sync writes all of every piece that was stored to.
    fn fill(&self, _range: Range<usize>, _piece: usize) {}
    /// What was cooled or filled will be stored to soon: what the first stores would meet is done now. The bytes keep their values,
    /// and may be stored to meanwhile.
    fn warm(&self) {}
}

/// Held while the store is open; dropping it releases the lock.
pub trait FileLock: Send + Sync {}

/// A monotone clock, a wall clock, and the only place that sleeps.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
    /// Time since the Unix epoch.
    fn wall(&self) -> Duration;
    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
}

/// Random numbers: secrets, salts, ids.
pub trait Random: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Starts threads.
pub trait Spawner: Send + Sync + 'static {
    /// Runs `body` on a new thread named `name`.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>>;
}

/// A running thread.
pub trait Thread: Send {
    /// Waits until it ends. True if it ended without a panic.
    fn join(self: Box<Self>) -> bool;
}

/// Everything outside, in one value. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Files.
    pub fs: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// Threads.
    pub spawner: Arc<dyn Spawner>,
}

impl Env {
    /// The operating system.
    pub fn real() -> Env {
        Env {
            fs: Arc::new(RealFs::new()),
            clock: Arc::new(real::RealClock::new()),
            random: Arc::new(real::RealRandom),
            spawner: Arc::new(real::RealSpawner),
        }
    }

    /// The operating system's clock and threads over another file system.
    pub fn with_fs(fs: Arc<dyn FileSystem>) -> Env {
        Env { fs, ..Env::real() }
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

/// So many reads are asked of the system side by side, at most.
const SIDE_BY_SIDE_MAX: usize = 128;
/// So many bytes of them, and a read.
const SIDE_BY_SIDE_BYTES: usize = 8 << 20;

/// See [`FileSystem::read_each`].
fn read_side_by_side(reads: &mut dyn Reads) {
    loop {
        let (mut window, mut bytes) = (Vec::new(), 0);
        while window.len() < SIDE_BY_SIDE_MAX
            && bytes < SIDE_BY_SIDE_BYTES
            && let Some(read) = reads.next()
        {
            bytes += read.bytes;
            window.push(read);
        }
        match &window[..] {
            [] => return,
            [only] => {
                let mut buffer = vec![0; only.bytes];
                let found = only.file.read_exact_at(&mut buffer, only.offset);
                reads.take(only.tag, found.map(|()| &buffer[..]));
                continue;
            }
            _ => {}
        }
        let cached = |read: Read| {
            let mut buffer = vec![0; read.bytes];
            let is_cached = read.file.read_cached(&mut buffer, read.offset);
            if !is_cached {
                read.file.prefetch(read.offset, read.bytes as u64);
            }
            (read, buffer, is_cached)
        };
        let begun: Vec<_> = window.into_iter().map(cached).collect();
        for (read, mut buffer, is_cached) in begun {
            let found = if is_cached { Ok(()) } else { read.file.read_exact_at(&mut buffer, read.offset) };
            reads.take(read.tag, found.map(|()| &buffer[..]));
        }
    }
}

/// Joins a directory and a file name.
pub(crate) fn join(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

/// The directory of a file; the empty path for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A read that the file's end cut short.
fn ends_early(path: &Path, offset: u64, wanted: usize, end: u64) -> Error {
    Error::corruption(
        path,
        offset,
        format!("{wanted} bytes were to be read here, but the file ends at byte {end}"),
    )
}

/// Refuses a length that cannot be mapped.
fn region_length(path: &Path, bytes: usize) -> Result<()> {
    if bytes > 0 && isize::try_from(bytes).is_ok() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{bytes} bytes of {} cannot be mapped: at least 1, at most {}",
        path.display(),
        isize::MAX
    )))
}

/// Refuses a range that leaves its region.
fn region_range(path: &Path, range: &Range<usize>, bytes: usize) -> Result<()> {
    if range.start <= range.end && range.end <= bytes {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "sync of bytes {}..{} of {}, of which {bytes} are mapped",
        range.start,
        range.end,
        path.display()
    )))
}
