//! Files of the operating system: appending, and positioned reads with or without the page cache.
//!
//! Place: made by `RealFs::create` and `RealFs::open`.
//!
//! Invariants:
//! 1. `bytes()` of a file being appended counts what the system accepted, also after an error.
//! 2. A direct read touches the device in whole, aligned [`ALIGNMENT`] units; the caller's offset and buffer need no alignment: what
//!    is not in such units goes through a scratch buffer of the thread.
//! 3. Every few megabytes the system is told to write out what was appended, so that `sync` waits for little; nothing hangs on it.
//! 4. A file system that refuses direct reads gets buffered ones, from then on for that file.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{ReadMode, ReadableFile, WritableFile, ends_early};
use crate::error::{Error, Result};

/// Unit of direct reads in bytes: no device asks for more.
pub(super) const ALIGNMENT: u64 = 4096;

/// Appended bytes that the system is told to write out, so that the device is at work before a sync waits for it.
const WRITE_OUT_BYTES: u64 = 4 << 20;

/// Scratch buffers larger than this are not kept between reads.
const SCRATCH_BYTES_KEPT: usize = 1 << 20;

/// A file being appended to.
pub(super) struct RealWritable {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// So many of them the system was told to write out.
    begun: u64,
    /// The first failed sync; every later one repeats it.
    failed: Option<Error>,
}

impl RealWritable {
    pub(super) fn create(path: &Path) -> Result<RealWritable> {
        // Appending, not writing at a position of its own: a file cut meanwhile gets no hole. The
        // standard library has no word for "empty it, then append".
        let empty_it = rustix::fs::OFlags::TRUNC.bits() as i32;
        let file = OpenOptions::new().append(true).create(true).custom_flags(empty_it).open(path);
        let file = file.map_err(|e| Error::io("create", path, e))?;
        Ok(RealWritable { file, path: path.to_path_buf(), bytes: 0, begun: 0, failed: None })
    }

    /// Has the system begin to write out the whole pages that were appended since the last time. What fails then is told by the sync, as if
    /// that had failed: a file system need not remember it.
    fn begin_to_write_out(&mut self) {
        let end = self.bytes - self.bytes % ALIGNMENT;
        if let Err(e) = write_out(&self.file, self.begun, end - self.begun) {
            self.failed.get_or_insert_with(|| Error::io("write out", &self.path, e));
        }
        self.begun = end;
    }
}

impl WritableFile for RealWritable {
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(Error::io("append to", &self.path, io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.bytes += n as u64;
                    bytes = &bytes[n..];
                    if self.bytes - self.begun >= WRITE_OUT_BYTES {
                        self.begin_to_write_out();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("append to", &self.path, e)),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.file.sync_data().map_err(|e| {
            let error = Error::io("sync", &self.path, e);
            self.failed = Some(error.clone());
            error
        })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A file open for positioned reads.
pub(super) struct RealReadable {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Cleared (Relaxed: only a choice of the way, both give the same bytes) when the system
    /// refuses a direct read.
    direct: AtomicBool,
}

impl RealReadable {
    pub(super) fn open(path: &Path, mode: ReadMode) -> Result<RealReadable> {
        let fail = |e| Error::io("open", path, e);
        let (file, direct) = match mode {
            ReadMode::Buffered => (File::open(path).map_err(fail)?, false),
            ReadMode::Direct => open_direct(path).map_err(fail)?,
        };
        let bytes = file.metadata().map_err(fail)?.len();
        Ok(RealReadable { file, path: path.to_path_buf(), bytes, direct: AtomicBool::new(direct) })
    }

    /// True while reads go past the page cache.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Reads until `buffer` is full or the file ends; the bytes read.
    fn read_up_to(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// From now on reads go through the page cache.
    pub(super) fn give_up_direct(&self) -> io::Result<()> {
        clear_direct(&self.file)?;
        self.direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.direct.load(Ordering::Relaxed) {
            match read_direct(self.file.as_fd(), buffer, offset) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => self.give_up_direct()?,
                done => return done,
            }
        }
        self.read_up_to(buffer, offset)
    }
}

impl ReadableFile for RealReadable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let done = self.read(buffer, offset).map_err(|e| Error::io("read", &self.path, e))?;
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

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.direct.load(Ordering::Relaxed).then(|| self.file.as_fd())
    }

    #[cfg(target_os = "linux")]
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        if self.direct.load(Ordering::Relaxed) {
            return false;
        }
        let wanted = buffer.len();
        let mut buffers = [io::IoSliceMut::new(buffer)];
        let read = rustix::io::preadv2(&self.file, &mut buffers, offset, rustix::io::ReadWriteFlags::NOWAIT);
        read == Ok(wanted)
    }

    #[cfg(target_os = "linux")]
    fn prefetch(&self, offset: u64, bytes: u64) {
        if let Some(bytes) = std::num::NonZeroU64::new(bytes)
            && !self.direct.load(Ordering::Relaxed)
        {
            // A hint: a system that does not take it loses nothing but time.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(bytes), rustix::fs::Advice::WillNeed);
        }
    }
}

/// Has the system begin to write out a part of a file, if it can be told to.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn write_out(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: a call on an open file that touches no memory of this process. Test: what_is_written_out_early_is_there.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset as i64, bytes as i64, libc::SYNC_FILE_RANGE_WRITE)
    };
    if done == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // The sync does it all then.
        e if matches!(
            e.raw_os_error(),
            Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP | libc::EPERM | libc::EINTR)
        ) =>
        {
            Ok(())
        }
        e => Err(e),
    }
}

#[cfg(not(target_os = "linux"))]
fn write_out(_file: &File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

thread_local! {
    static SCRATCH: RefCell<Aligned> = const { RefCell::new(Aligned(Vec::new())) };
}

/// Reads past the page cache until `buffer` is full or the file ends: where it lies if that is in whole units, else through the thread's
/// aligned scratch buffer; the bytes read.
pub(super) fn read_direct(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let (start, span) = whole_units(offset, buffer.len());
    if (start, span) == (offset, buffer.len()) && buffer.as_ptr().addr().is_multiple_of(ALIGNMENT as usize) {
        return read_units(file, buffer, offset);
    }
    let skip = (offset - start) as usize;
    SCRATCH.with_borrow_mut(|scratch| {
        let aligned = scratch.of(span);
        let found = read_units(file, aligned, start)?.saturating_sub(skip).min(buffer.len());
        buffer[..found].copy_from_slice(&aligned[skip..skip + found]);
        scratch.shrink(SCRATCH_BYTES_KEPT);
        Ok(found)
    })
}

/// Reads whole units from one on, into memory that is aligned; the bytes read.
fn read_units(file: BorrowedFd<'_>, units: &mut [u8], start: u64) -> io::Result<usize> {
    // A short read that is no multiple of the unit is the file's end; asking on from there would be unaligned, and is not needed.
    let mut done = 0;
    while done < units.len() && done % ALIGNMENT as usize == 0 {
        match rustix::io::pread(file, &mut units[done..], start + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// The aligned units that a range lies in: where they begin, and their bytes.
pub(super) fn whole_units(offset: u64, bytes: usize) -> (u64, usize) {
    let start = offset - offset % ALIGNMENT;
    (start, ((offset - start) as usize + bytes).next_multiple_of(ALIGNMENT as usize))
}

/// Memory that starts at a multiple of [`ALIGNMENT`].
#[derive(Default)]
pub(super) struct Aligned(Vec<u8>);

impl Aligned {
    /// So many bytes of it, whatever they are.
    pub(super) fn of(&mut self, bytes: usize) -> &mut [u8] {
        let unit = ALIGNMENT as usize;
        if self.0.len() < bytes + unit {
            self.0 = vec![0; bytes + unit];
        }
        let start = self.0.as_ptr().align_offset(unit);
        &mut self.0[start..start + bytes]
    }

    /// Gives up what is more than `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if self.0.len() > bytes + ALIGNMENT as usize {
            self.0 = Vec::new();
        }
    }
}

/// Opens for direct reads; buffered where the file system has none. The flag says which.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok((file, true)),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok((File::open(path)?, false)),
        Err(e) => Err(e),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    Ok((OpenOptions::new().read(true).open(path)?, false))
}

/// Turns direct reads off for an open file.
#[cfg(target_os = "linux")]
fn clear_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::DIRECT)?)
}

#[cfg(not(target_os = "linux"))]
fn clear_direct(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_out_early_is_there() {
        let path = std::env::temp_dir().join(format!("drumlin-append-{}", std::process::id()));
        let mut file = RealWritable::create(&path).unwrap();
        let piece: Vec<u8> = (0..WRITE_OUT_BYTES as usize / 3).map(|n| (n % 251) as u8).collect();
        for pieces in 1..=10 {
            file.append(&piece).unwrap();
            let left = file.bytes() - file.begun;
            assert!(
                left < WRITE_OUT_BYTES + ALIGNMENT && file.bytes() == pieces * piece.len() as u64,
                "{left}"
            );
        }
        file.sync().unwrap();
        let read = RealReadable::open(&path, ReadMode::Buffered).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut found = vec![0; piece.len()];
        for n in 0..10 {
            read.read_exact_at(&mut found, n * piece.len() as u64).unwrap();
            assert_eq!(found, piece);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_fails_while_it_is_written_out_is_told_by_the_sync() {
        let path = std::env::temp_dir().join(format!("drumlin-out-{}", std::process::id()));
        let mut file = RealWritable::create(&path).unwrap();
        file.append(&[7; 8192]).unwrap();
        // A handle that says where a file is and cannot write; afterwards one that would take the sync.
        file.file = File::options().read(true).custom_flags(libc::O_PATH).open(&path).unwrap();
        file.begin_to_write_out();
        file.file = File::create(&path).unwrap();
        let told = file.sync().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(told.contains("write out"), "{told}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_sync_that_failed_once_fails_for_ever() {
        // A device without storage refuses the sync; afterwards the handle gets a file that would
        // take it, as a system does that has dropped the pages.
        let mut file = RealWritable::create(Path::new("/dev/full")).unwrap();
        let first = file.sync().unwrap_err().to_string();
        let path = std::env::temp_dir().join(format!("drumlin-sync-{}", std::process::id()));
        file.file = File::create(&path).unwrap();
        let second = file.sync().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first, second);
        assert!(first.contains("/dev/full"), "{first}");
    }
}
