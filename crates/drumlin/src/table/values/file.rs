//! A value file as tables hold it: opened on first use, read without a lock.
//!
//! Place: of the table handles whose entries refer to it; the shelf has the cache and the file system.
//!
//! Invariants:
//! 1. No I/O before the first read; a failed opening is tried again next time.
//! 2. No file is read while the epoch is pinned.
//!
//! Concurrency: the open file hangs on an [`EpochArc`]; two threads may open it at once, and one of them does it for nothing.
//! Tests: see the module above.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch::Guard;

use super::{ValueRef, ValueUse};
use crate::cache::{BlockRef, SharedBlock};
use crate::env::{FileSystem, ReadMode, ReadableFile};
use crate::error::{Error, Result};
use crate::table::epoch_arc::EpochArc;
use crate::table::frame::{self, Origin};
use crate::table::reads::block_was_read;
use crate::table::resident::read_block;
use crate::table::{Shelf, TableId};

/// The longest value that a get keeps in the cache where the page cache has it, too.
const KEPT_BYTES_MAX: u64 = 8 << 10;

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::table) enum Reader {
    /// A get, of one key or of many.
    Get,
    /// A scan.
    Scan,
    /// A merge.
    Merge,
}

/// One value file of a store.
pub(in crate::table) struct ValueFile {
    id: TableId,
    path: PathBuf,
    file_bytes: u64,
    open: EpochArc<OpenFile>,
    /// A merge met a value in it that cannot be read for what it is; a hint, Relaxed.
    is_damaged: AtomicBool,
}

/// The file, open; in an `Arc` of its own, since `EpochArc` holds one pointer.
pub(in crate::table) struct OpenFile(Arc<dyn ReadableFile>);

impl OpenFile {
    /// For reads by others.
    pub(in crate::table) fn file(&self) -> &Arc<dyn ReadableFile> {
        &self.0
    }
}

/// Opens the file at `path`, which is to have so many bytes.
pub(super) fn open(
    fs: &dyn FileSystem,
    path: &Path,
    reads: ReadMode,
    file_bytes: u64,
) -> Result<Arc<dyn ReadableFile>> {
    let file = match fs.open(path, reads) {
        Err(error) if error.is_missing_file() => {
            return Err(Error::corruption(
                path,
                None,
                "tables refer to this file of values, but it is missing",
            ));
        }
        opened => opened?,
    };
    if file.bytes() != file_bytes {
        let what = format!("the file has {} bytes, it should have {file_bytes}", file.bytes());
        return Err(Error::corruption(path, None, what));
    }
    Ok(file)
}

impl ValueFile {
    /// The file that `used` names, in `dir`. No I/O.
    pub(super) fn new(dir: &Path, used: &ValueUse) -> Arc<ValueFile> {
        let path = dir.join(used.file_name());
        Arc::new(ValueFile {
            id: used.file,
            path,
            file_bytes: used.file_bytes,
            open: EpochArc::empty(),
            is_damaged: AtomicBool::new(false),
        })
    }

    pub(in crate::table) fn id(&self) -> TableId {
        self.id
    }

    pub(in crate::table) fn path(&self) -> &Path {
        &self.path
    }

    /// It was found damaged: it is not collected, as long as the store is open.
    pub(in crate::table) fn mark_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    pub(in crate::table) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Lets go of the open file; the next read opens it again.
    pub(super) fn close(&self) {
        self.open.replace(None);
    }

    /// The value if it is cached, counted as a hit or a miss.
    #[inline]
    pub(in crate::table) fn cached<'g>(
        &self,
        shelf: &Shelf,
        value: &ValueRef,
        guard: &'g Guard,
    ) -> Option<BlockRef<'g>> {
        shelf.cache.get(self.id.0, value.place.offset, guard)
    }

    /// The value if it is cached, not counted.
    pub(in crate::table) fn peek(&self, shelf: &Shelf, value: &ValueRef) -> Option<SharedBlock> {
        let guard = crossbeam_epoch::pin();
        shelf.cache.peek(self.id.0, value.place.offset, &guard).map(|block| block.share())
    }

    /// The same, and no use of it: for a merge.
    pub(super) fn glance(&self, shelf: &Shelf, value: &ValueRef) -> Option<SharedBlock> {
        let guard = crossbeam_epoch::pin();
        shelf.cache.glance(self.id.0, value.place.offset, &guard).map(|block| block.share())
    }

    /// The value, from the cache or the file. What is read is kept in the cache where that is worth it to `reader`.
    pub(in crate::table) fn read(
        &self,
        shelf: &Shelf,
        value: &ValueRef,
        reader: Reader,
    ) -> Result<SharedBlock> {
        if let Some(cached) = self.peek(shelf, value) {
            return Ok(cached);
        }
        let open = self.opened(shelf)?;
        block_was_read();
        let block = self.sized(value, read_block(&**open.file(), self.origin(value), value.place)?)?;
        Ok(self.keep(shelf, value, reader, block))
    }

    /// What was read at its place for `reader`, as the value.
    pub(in crate::table) fn arrived(
        &self,
        shelf: &Shelf,
        value: &ValueRef,
        reader: Reader,
        stored: &[u8],
    ) -> Result<SharedBlock> {
        block_was_read();
        Ok(self.keep(shelf, value, reader, self.decoded(value, stored)?))
    }

    /// The value of these stored bytes.
    pub(super) fn decoded(&self, value: &ValueRef, stored: &[u8]) -> Result<SharedBlock> {
        self.sized(value, frame::check(stored, self.origin(value))?.to_shared()?)
    }

    /// The open file, opened if need be.
    pub(in crate::table) fn opened(&self, shelf: &Shelf) -> Result<Arc<OpenFile>> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let open = Arc::new(OpenFile(open(&*shelf.fs, &self.path, shelf.reads, self.file_bytes)?));
        self.open.replace(Some(open.clone()));
        shelf.values.opened(self.id);
        Ok(open)
    }

    /// The value, perhaps in the cache. Where the system has a page cache it is copied a second time for that, which pays for short values
    /// that gets ask for again.
    fn keep(&self, shelf: &Shelf, value: &ValueRef, reader: Reader, block: SharedBlock) -> SharedBlock {
        let is_buffered = shelf.reads == ReadMode::Buffered;
        let keeps = match reader {
            Reader::Get => !is_buffered || value.value_bytes <= KEPT_BYTES_MAX,
            Reader::Scan => !is_buffered,
            Reader::Merge => false,
        };
        if keeps { shelf.cache.offer(self.id.0, value.place.offset, block) } else { block }
    }

    fn sized(&self, value: &ValueRef, block: SharedBlock) -> Result<SharedBlock> {
        if block.len() as u64 == value.value_bytes {
            return Ok(block);
        }
        let what = format!("a value has {} bytes, its table says {}", block.len(), value.value_bytes);
        Err(self.origin(value).corruption(what))
    }

    fn origin(&self, value: &ValueRef) -> Origin<'_> {
        Origin { path: &self.path, seed: self.id.0, offset: value.place.offset }
    }
}
