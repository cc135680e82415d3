//! A log file mapped shared, with its blocks allocated beforehand.
//!
//! Place: made by `RealFs::map_log`.
//!
//! Invariants:
//! 1. Every block is allocated before the file is mapped: a store into the mapping never meets a
//!    full device (which would be a fatal signal, not an error). A file system that copies on
//!    write may break this promise; those are not for logs.
//! 2. `sync` writes the pages of its range back and, when the file's length is not the one last
//!    synced, the whole file with its length.
//! 3. A failed sync fails every later one of the region.
//!
//! Concurrency: `sync` may run beside stores and beside itself; a store that came before it, in
//! the order of happens-before, is covered.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::super::{LogRegion, PAGE_BYTES, region_length, region_range};
use crate::error::{Error, Result};

/// `synced_length` of a file of which nothing is known.
const UNKNOWN: u64 = u64::MAX;

/// Zeros are written in pieces of this many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A mapped log file.
pub(super) struct RealRegion {
    map: MmapRaw,
    file: File,
    path: PathBuf,
    /// The file's length at the last whole sync. Relaxed: a stale value costs one more sync.
    synced_length: AtomicU64,
    failed: OnceLock<Error>,
    /// Pages were given up, or written past the mapping, and not claimed since. Relaxed: a stale value costs faults.
    unclaimed: AtomicBool,
}

impl RealRegion {
    pub(super) fn map(path: &Path, bytes: usize) -> Result<RealRegion> {
        let fail = |e| Error::io("map", path, e);
        region_length(path, bytes)?;
        let (file, is_new) = open_or_create(path).map_err(fail)?;
        match prepare(&file, path, bytes, is_new) {
            Ok(map) => Ok(RealRegion {
                map,
                file,
                path: path.to_path_buf(),
                synced_length: AtomicU64::new(UNKNOWN),
                failed: OnceLock::new(),
                unclaimed: AtomicBool::new(false),
            }),
            Err(error) => {
                if is_new {
                    // The first error is the one to tell; a file left behind is an orphan that
                    // recovery ignores.
                    let _ = std::fs::remove_file(path);
                }
                Err(error)
            }
        }
    }

    fn sync_now(&self, range: Range<usize>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if self.synced_length.load(Ordering::Relaxed) != length {
            // Covers the mapped pages as well: they are the file's page cache.
            self.file.sync_all()?;
            self.synced_length.store(length, Ordering::Relaxed);
            return Ok(());
        }
        self.map.flush_range(range.start, range.len())
    }
}

impl LogRegion for RealRegion {
    fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    fn bytes(&self) -> usize {
        self.map.len()
    }

    #[allow(unsafe_code)]
    fn cool(&self, range: Range<usize>) {
        let (from, to) = (range.start.next_multiple_of(PAGE_BYTES), range.end.min(self.bytes()));
        let bytes = to.saturating_sub(from) / PAGE_BYTES * PAGE_BYTES;
        if bytes == 0 {
            return;
        }
        self.unclaimed.store(true, Ordering::Relaxed);
        #[cfg(target_os = "linux")]
        // SAFETY: a part of a shared mapping of a file: its pages belong to the file, and what was stored stays there.
        // A refusal leaves them resident. Test: env::real::tests::a_region_that_is_filled_cooled_and_warmed_keeps_its_bytes.
        let _ = unsafe {
            rustix::mm::madvise(self.base().add(from).cast(), bytes, rustix::mm::Advice::LinuxDontNeed)
        };
    }

    /// What cannot be written is left to the stores: the blocks are there.
    fn fill(&self, range: Range<usize>, piece: usize) {
        self.unclaimed.store(true, Ordering::Relaxed);
        let zeros = vec![0; piece.clamp(1, self.bytes())];
        let mut starts = range.clone().step_by(zeros.len());
        let _ = starts
            .try_for_each(|at| self.file.write_all_at(&zeros[..zeros.len().min(range.end - at)], at as u64));
    }

    /// Has the pages in memory, mapped, and marked as written to: else the first store to each takes a fault, in which it waits
    /// for the device if the page was dropped meanwhile.
    #[allow(unsafe_code)]
    fn warm(&self) {
        if !self.unclaimed.swap(false, Ordering::Relaxed) {
            return;
        }
        #[cfg(target_os = "linux")]
        // SAFETY: the whole of a shared mapping of a file: what was stored stays there. A system that does not know the
        // advice refuses it, and stores fault. Test: env::real::tests::a_region_that_is_filled_cooled_and_warmed_keeps_its_bytes.
        let _ = unsafe {
            rustix::mm::madvise(self.base().cast(), self.bytes(), rustix::mm::Advice::LinuxPopulateWrite)
        };
    }

    fn sync(&self, range: Range<usize>) -> Result<()> {
        region_range(&self.path, &range, self.bytes())?;
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.sync_now(range).map_err(|e| self.failed.get_or_init(|| Error::io("sync", &self.path, e)).clone())
    }
}

/// Opens for reading and writing; the flag says that the file is new.
fn open_or_create(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Ok(file) => Ok((file, false)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((options.create(true).open(path)?, true)),
        Err(e) => Err(e),
    }
}

/// Gives the file its length and its blocks, and maps it.
fn prepare(file: &File, path: &Path, bytes: usize, is_new: bool) -> Result<MmapRaw> {
    let old = file.metadata().map_err(|e| Error::io("inspect", path, e))?.len();
    let grown = allocate(file, bytes as u64)
        .and_then(|()| if old > bytes as u64 { file.set_len(bytes as u64) } else { Ok(()) });
    if let Err(e) = grown {
        // Half an allocation keeps its blocks until the length is cut back; the first error counts.
        let _ = file.set_len(old);
        return Err(Error::io("allocate", path, e));
    }
    // The pages of a recycled file are overwritten in part: with the old ones not in memory, a
    // store would wait for the device. A new file has nothing to read.
    let mut options = MmapOptions::new();
    options.len(bytes);
    if !is_new {
        options.populate();
    }
    options.map_raw(file).map_err(|e| Error::io("map", path, e))
}

/// Allocates every block of `[0, bytes)` and makes the file at least that long; keeps its bytes.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_blocks(file, bytes),
        done => Ok(done?),
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    write_blocks(file, bytes)
}

/// Allocates by writing: zeros behind the end, and, if the file has holes, its own bytes over
/// themselves.
pub(super) fn write_blocks(file: &File, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let old = metadata.len().min(bytes);
    // `blocks` counts 512-byte units, whatever the file system's block is.
    let has_holes = metadata.blocks().saturating_mul(512) < old;
    let mut at = if has_holes { 0 } else { old };
    let mut piece = vec![0; PIECE_BYTES];
    while at < bytes {
        let end = if at < old { old } else { bytes };
        let part = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
        if at < old {
            file.read_exact_at(part, at)?;
        } else {
            part.fill(0);
        }
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}
