//! What all tables of one store share: the file system, the block cache, the list of open ones, the graveyard.
//!
//! Memory: indexes, filters and range tombstones of open tables, and the blocks in the cache, live within one bound. The
//! open tables may take seven eighths of it; the cache has what they leave.
//!
//! Place: made by `db` at open; every [`TableHandle`] holds it.
//!
//! Concurrency: see the parts. Tests: `table/tests/handle.rs`, tests/graveyard.rs, tests/reclamation.rs.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::cache::{BlockCache, SharedBlock};
use crate::env::{FileSystem, ReadMode};
use crate::error::{Error, Result};
use crate::table::graveyard::Graveyard;
use crate::table::resident::Parts;
use crate::table::residents::Residents;
use crate::table::values::{Reader, ValueFile, ValueFiles, ValueRef};
use crate::table::{TableHandle, TableId};

/// The cache keeps at least one of so many parts of the bound: what open tables leave, less what it evicted and cannot free yet.
const CACHE_SHARE_MIN: usize = 9;

/// Beside so many open tables one value file may be open.
const VALUE_FILES_PART: usize = 2;

/// The common ground of a store's tables.
pub struct Shelf {
    pub(super) fs: Arc<dyn FileSystem>,
    /// How tables are read.
    pub(super) reads: ReadMode,
    pub(super) cache: Arc<BlockCache>,
    pub(super) graveyard: Graveyard,
    pub(super) residents: Residents,
    pub(super) values: ValueFiles,
    /// Bytes for open tables and cache together.
    bytes_max: usize,
    /// Bytes of that which somebody else needs now.
    lent: AtomicUsize,
}

impl Shelf {
    /// For tables in `fs` whose blocks are kept in `cache`, with value files in "/store"; open tables are not bounded.
    #[cfg(test)]
    pub fn new(fs: Arc<dyn FileSystem>, cache: Arc<BlockCache>) -> Arc<Shelf> {
        let residents = Residents::new(Arc::default(), usize::MAX, usize::MAX);
        let values = ValueFiles::new(Path::new("/store"), usize::MAX);
        Shelf::with(fs, ReadMode::Buffered, cache, residents, values, usize::MAX)
    }

    /// For tables in `fs`, with value files in `values_dir`, read as `reads` says, that take at most `bytes_max` while open, cached blocks included, and of which at
    /// most `tables_max` are open.
    pub fn bounded(
        fs: Arc<dyn FileSystem>,
        reads: ReadMode,
        values_dir: &Path,
        bytes_max: usize,
        tables_max: usize,
    ) -> Arc<Shelf> {
        let residents = Residents::new(Arc::default(), bytes_max / 8 * 7, tables_max);
        let values = ValueFiles::new(values_dir, tables_max / VALUE_FILES_PART);
        Shelf::with(fs, reads, Arc::new(BlockCache::new(bytes_max)), residents, values, bytes_max)
    }

    fn with(
        fs: Arc<dyn FileSystem>,
        reads: ReadMode,
        cache: Arc<BlockCache>,
        residents: Residents,
        values: ValueFiles,
        bytes_max: usize,
    ) -> Arc<Shelf> {
        Arc::new(Shelf {
            fs,
            reads,
            cache,
            graveyard: Graveyard::new(),
            residents,
            values,
            bytes_max,
            lent: AtomicUsize::new(0),
        })
    }

    /// Bytes that open tables hold, closed ones included while somebody still reads them.
    pub fn resident_bytes(&self) -> usize {
        self.residents.account.bytes()
    }

    /// Bytes that open tables may take.
    pub fn tables_bytes_max(&self) -> usize {
        self.residents.bytes_max()
    }

    /// Gives `bytes` of the bound to somebody else; the cache gives way.
    pub fn lend(&self, bytes: usize) {
        self.lent.store(bytes, Ordering::Relaxed);
        self.fit_cache();
    }

    /// Lists a table that was opened, without `lacks` bytes of a filter.
    pub(super) fn opened(&self, table: Weak<TableHandle>, parts: Parts, lacks: usize) {
        self.residents.list(table, parts, lacks);
        self.fit_cache();
    }

    /// Gives the cache what open tables leave.
    fn fit_cache(&self) {
        if self.bytes_max == usize::MAX {
            return;
        }
        let taken = self.resident_bytes() + self.lent.load(Ordering::Relaxed);
        // Something is always left, else every read of a block would go to its file.
        // An eighth more is what it evicted and cannot free yet.
        let left = (self.bytes_max.saturating_sub(taken) / 9 * 8).max(self.bytes_max / CACHE_SHARE_MIN);
        if left != self.cache.capacity() {
            self.cache.set_capacity(left);
        }
    }

    /// The value that a reference leads to, which some table has that the caller holds. For a scan, and may read a file: the epoch must
    /// not be pinned.
    pub fn value(&self, reference: &[u8]) -> Result<SharedBlock> {
        let malformed = || Error::corruption(self.values_dir(), None, "a reference to a value is malformed");
        let value = ValueRef::decode(reference).map_err(|_| malformed())?;
        self.value_file_of(value.file)?.read(self, &value, Reader::Scan)
    }

    /// True if a merge found the value file damaged.
    pub fn is_damaged(&self, file: TableId) -> bool {
        self.values.get(file).is_some_and(|file| file.is_damaged())
    }

    /// The value file of this id.
    pub(super) fn value_file_of(&self, id: TableId) -> Result<Arc<ValueFile>> {
        let missing = || format!("an entry refers to the file {:08} of values, which no table names", id.0);
        self.values.get(id).ok_or_else(|| Error::corruption(self.values_dir(), None, missing()))
    }

    /// Where value files are.
    pub fn values_dir(&self) -> &Path {
        self.values.dir()
    }

    /// Where blocks are kept.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Removes the files and cached blocks of obsolete tables that nobody holds, and of the value files that only such referred to; how
    /// many tables are still held.
    /// Removes files: not for a thread that only reads.
    pub fn sweep(&self) -> usize {
        self.bury(self.graveyard.take_free(), false);
        self.residents.tidy();
        self.fit_cache();
        self.graveyard.len()
    }

    /// Removes the files of all obsolete tables, held or not: nobody may read any more, and no more tables may come.
    pub fn sweep_all(&self) {
        self.bury(self.graveyard.take_all(), true);
    }

    fn bury(&self, tables: Vec<Arc<TableHandle>>, is_closed: bool) {
        for table in tables {
            table.evict_blocks();
            // If this fails, the file is an orphan, which the next open removes.
            let _ = self.fs.remove(table.path());
        }
        let garbage = self.values.take_garbage(is_closed);
        if !garbage.is_empty() {
            let ids: Vec<u64> = garbage.iter().map(|file| file.id().0).collect();
            self.cache.evict_tables(&ids);
        }
        for file in garbage {
            let _ = self.fs.remove(file.path());
        }
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shelf({:?}, {} tables obsolete)", self.cache, self.graveyard.len())
    }
}
