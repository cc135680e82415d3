//! A table as the rest of the engine holds it: opened on first use, read without a lock.
//!
//! Place: `version` keeps one `Arc<TableHandle>` per table; gets, cursors and compactions read
//! through it.
//!
//! Invariants:
//! 1. `new` does no I/O. The first read opens the file; a failed opening is tried again next time.
//! 2. A get whose blocks are cached waits for no lock, allocates nothing but the value, and writes nothing shared but reference
//!    bits that are clear, shortcuts that are not connected, and the thread's counters.
//! 3. No file is read while the epoch is pinned by this module, nor by those who call it: what a device may hold up would
//!    keep everything that is replaced meanwhile in memory.
//! 4. An obsolete table, and its file, go where the graveyard is swept, after its last reader has gone. See `graveyard`.
//!
//! Parts: `columns` (what clusters say of the table), `search` (gets), `steps` (a get that stops where it would have to read).
//!
//! Concurrency: the resident parts hang on an [`EpochArc`]; opening is serialized by a mutex that
//! nothing else is taken under (but what the file system takes). Tests: `table/tests/`.

mod columns;
mod search;
mod steps;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_epoch::Guard;

use crate::cache::{SharedBlock, Stage};
use crate::error::{Error, Result};
use crate::iter::Tombstones;
use crate::key::{Kind, Lsn};
use crate::sync::{Mutex, failpoint};
use crate::table::block::Order;
use crate::table::cursor::{CursorOptions, TableCursor};
use crate::table::epoch_arc::EpochArc;
use crate::table::frame;
use crate::table::hashed::{self, Hashed};
use crate::table::index::{Index, Place};
use crate::table::reads::block_was_read;
use crate::table::resident::{Loading, Parts, Resident};
use crate::table::values::{Reader, ValueFile, ValueRef};
use crate::table::{Shelf, TableCheck, TableMeta, TableOptions, Version, file_name, verify};

use search::FetchedBlock;
pub use search::{Look, Missed};
pub use steps::{Given, Name, Step, Wanted};

/// One table of a store.
pub struct TableHandle {
    shelf: Arc<Shelf>,
    path: PathBuf,
    meta: TableMeta,
    options: TableOptions,
    hot: Hot,
    opening: Mutex<()>,
    /// What its entries refer to, by id.
    values: Box<[Arc<ValueFile>]>,
    obsolete: AtomicBool,
    /// Itself, to be listed.
    me: Weak<TableHandle>,
}

/// What most gets look at, and at nothing else of the handle: in one line of the cache.
#[repr(align(64))]
struct Hot {
    resident: EpochArc<Resident>,
    /// Read since the hand of the open tables passed it last.
    used: AtomicBool,
    /// The cluster of a newer table was asked for it: its own filter is of no use.
    told: AtomicBool,
}

/// What a block is needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Of an index: few, and most gets need one. Always kept.
    Leaf,
    /// Entries, buckets, pages of filters: kept if the cache admits them.
    Data,
}

impl TableHandle {
    /// A handle for the table that `meta` describes, in `dir`. No I/O.
    pub fn new(shelf: &Arc<Shelf>, dir: PathBuf, meta: TableMeta, options: TableOptions) -> Arc<TableHandle> {
        Arc::new_cyclic(|me| TableHandle {
            path: dir.join(file_name(meta.id, meta.content_hash)),
            values: shelf.values.join(&meta.values),
            shelf: shelf.clone(),
            meta,
            options,
            hot: Hot {
                resident: EpochArc::empty(),
                used: AtomicBool::new(false),
                told: AtomicBool::new(false),
            },
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// What the manifest knows of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it shares with the other tables of its store.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The options it is read with.
    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// The file that a reference of this table leads to.
    pub(super) fn value_file(&self, reference: &[u8]) -> Result<(&ValueFile, ValueRef)> {
        let corrupt = |what: String| Error::corruption(&self.path, None, what);
        let value =
            ValueRef::decode(reference).map_err(|_| corrupt("a reference to a value is malformed".into()))?;
        match self.values.binary_search_by_key(&value.file, |file| file.id()) {
            Ok(at) => Ok((&*self.values[at], value)),
            Err(_) => Err(corrupt(format!(
                "an entry refers to the file {:08} of values, which the manifest does not name with this table",
                value.file.0
            ))),
        }
    }

    /// The value that a reference of this table leads to. May read a file, so the epoch must not be pinned.
    pub(super) fn value(&self, reference: &[u8], reader: Reader) -> Result<SharedBlock> {
        let (file, value) = self.value_file(reference)?;
        file.read(&self.shelf, &value, reader)
    }

    /// The version with its value in place of a reference.
    #[inline]
    fn whole(&self, version: Version) -> Result<Version> {
        if version.kind != Kind::Apart {
            return Ok(version);
        }
        let value = self.value(&version.value, Reader::Get)?.to_vec();
        Ok(Version { kind: Kind::Put, value, ..version })
    }

    /// The same of one that lies apart, if its value is in memory.
    #[cold]
    fn whole_if_cached(&self, version: Version, guard: &Guard) -> Result<Option<Version>> {
        let (file, value) = self.value_file(&version.value)?;
        let cached = file.cached(&self.shelf, &value, guard).map(|value| value.to_vec());
        Ok(cached.map(|value| Version { kind: Kind::Put, value, ..version }))
    }

    /// The range tombstones. No I/O if there are none.
    pub fn tombstones(&self) -> Result<Arc<Tombstones>> {
        static NONE: OnceLock<Arc<Tombstones>> = OnceLock::new();
        if self.meta.range_tombstones == 0 {
            return Ok(NONE.get_or_init(|| Arc::new(Tombstones::EMPTY)).clone());
        }
        Ok(self.resident()?.tombstones.clone())
    }

    /// A cursor over the entries. No I/O before its first seek.
    pub fn cursor(self: &Arc<Self>, options: CursorOptions) -> TableCursor {
        TableCursor::new(self.clone(), options)
    }

    /// Reads the whole file past the cache and checks everything that can be checked: checksums,
    /// content hash, order, bounds, counts, and that the filter knows every key. A corrupt block does not end it.
    /// `on_bytes` is told how many bytes were done since it was last called.
    pub fn verify(&self, on_bytes: &mut dyn FnMut(u64)) -> TableCheck {
        verify::verify(&*self.shelf.fs, &self.path, &self.meta, &self.options, on_bytes)
    }

    /// About `parts` keys that cut the table into parts of like size, ascending, each within the
    /// table. O(parts), but one read per part if the index has leaves not in memory.
    pub fn split_keys(&self, parts: usize) -> Result<Vec<Vec<u8>>> {
        let resident = self.resident()?;
        if let Some(hashed) = resident.hashed() {
            let starts = (1..parts).filter_map(|n| hashed.shape.start(n * hashed.shape.buckets() / parts));
            let mut keys: Vec<Vec<u8>> = starts.map(|place| place.to_be_bytes().to_vec()).collect();
            keys.dedup();
            return Ok(keys);
        }
        let Some(root) = resident.root() else { return Ok(Vec::new()) };
        let root_malformed = resident.malformed_root();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        if root.len() > parts || !resident.has_leaves() {
            for n in 1..parts {
                let at = n * root.len() / parts;
                if let Some(before) = at.checked_sub(1) {
                    keys.push(root.fence(before).map_err(&root_malformed)?.key());
                }
            }
        } else {
            for n in 0..root.len() {
                let place = root.place(n).map_err(&root_malformed)?;
                let leaf = self.fetch(&resident, place, Role::Leaf)?;
                let leaf = Index::parse(&leaf).map_err(resident.malformed(place))?;
                let share = parts.div_ceil(root.len());
                for m in 1..=share {
                    let Some(at) = (m * leaf.len() / share).checked_sub(1) else { continue };
                    keys.push(leaf.fence(at).map_err(resident.malformed(place))?.key());
                }
            }
            keys.pop();
        }
        keys.dedup();
        Ok(keys)
    }

    /// The offset in the file at which entries at or behind `key` begin, about (to one block).
    pub fn approximate_offset(&self, key: &[u8]) -> Result<u64> {
        let resident = self.resident()?;
        if let Some(hashed) = resident.hashed() {
            let (place, _) = hashed::split(key).map_err(resident.malformed(resident.footer.properties))?;
            return Ok(Hashed::place(hashed.shape.home(place)).offset);
        }
        let Some(root) = resident.root() else { return Ok(0) };
        let order = Order::of(&*self.options.comparator);
        let find = |index: &Index<'_>| {
            let child = index.find(order, key, Lsn::MAX)?;
            if child == index.len() { Ok(None) } else { index.place(child).map(Some) }
        };
        let Some(mut place) = find(&root).map_err(resident.malformed_root())? else {
            return Ok(resident.data_end());
        };
        if resident.has_leaves() {
            let leaf = self.fetch(&resident, place, Role::Leaf)?;
            let found =
                Index::parse(&leaf).and_then(|leaf| find(&leaf)).map_err(resident.malformed(place))?;
            place = found.unwrap_or(place);
        }
        Ok(place.offset)
    }

    /// Bytes of the data blocks.
    pub fn data_bytes(&self) -> Result<u64> {
        Ok(self.resident()?.data_end())
    }

    /// The newest range tombstone with LSN < `at` that covers `key`. No I/O if there is none or the table is open.
    pub fn newest_covering(&self, key: &[u8], at: Lsn) -> Result<Option<Lsn>> {
        if let Some(known) = self.newest_covering_cached(key, at, &crossbeam_epoch::pin()) {
            return Ok(known);
        }
        Ok(self.resident()?.tombstones.newest_covering(&*self.options.comparator, key, at))
    }

    /// The same, counting no reference up; `None` if the table has to be opened for it.
    pub fn newest_covering_cached(&self, key: &[u8], at: Lsn, guard: &Guard) -> Option<Option<Lsn>> {
        if self.meta.range_tombstones == 0 {
            return Some(None);
        }
        let resident = self.hot.resident.load(guard)?;
        self.mark_used();
        Some(resident.tombstones.newest_covering(&*self.options.comparator, key, at))
    }

    /// Bytes that the open table keeps in memory apart from cached blocks; 0 while it is not open.
    #[cfg(test)]
    pub fn resident_bytes(&self) -> usize {
        self.resident_parts().sum()
    }

    /// The same, by what for.
    pub fn resident_parts(&self) -> Parts {
        let guard = crossbeam_epoch::pin();
        self.hot.resident.load(&guard).map(Resident::parts).unwrap_or_default()
    }

    /// Writes only if the bit is clear.
    #[inline]
    fn mark_used(&self) {
        if !self.hot.used.load(Ordering::Relaxed) {
            self.hot.used.store(true, Ordering::Relaxed);
        }
    }

    /// True if it was read since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.hot.used.swap(false, Ordering::Relaxed)
    }

    /// Drops the resident parts; the next read opens the file again.
    pub fn evict(&self) {
        self.hot.resident.replace(None);
    }

    /// The file is to be removed once the last handle has gone: by [`Shelf::sweep`].
    pub fn mark_obsolete(self: &Arc<Self>) {
        if !self.obsolete.swap(true, Ordering::Relaxed) {
            self.shelf.values.leave(&self.values);
            self.shelf.graveyard.add(Arc::clone(self));
        }
    }

    /// The resident parts, opened if need be.
    pub(super) fn resident(&self) -> Result<Arc<Resident>> {
        if let Some(resident) = self.hot.resident.get() {
            return Ok(resident);
        }
        let opening = self.opening.lock();
        if let Some(resident) = self.hot.resident.get() {
            return Ok(resident);
        }
        let (mut resident, _) = Resident::load(
            &*self.shelf.fs,
            self.shelf.reads,
            &self.path,
            &self.meta,
            &self.options,
            Loading {
                is_told: self.is_told(),
                has_room: &|bytes| self.shelf.residents.has_room(bytes),
                on_problem: &mut Err,
            },
        )?;
        resident.take_shortcuts(&self.shelf.cache, self.meta.id);
        let (parts, lacks) = (resident.parts(), resident.lacks());
        resident.charge = Some(self.shelf.residents.account.charge(parts.sum()));
        let resident = Arc::new(resident);
        self.hot.resident.replace(Some(resident.clone()));
        drop(opening);
        self.mark_used();
        // Behind the lock: it may close other tables, and this one.
        self.shelf.opened(self.me.clone(), parts, lacks);
        Ok(resident)
    }

    /// The resident parts, if the table is open.
    pub(super) fn resident_if_open(&self) -> Option<Arc<Resident>> {
        self.hot.resident.get()
    }

    /// Starts to load what a stage of [`TableHandle::cached`] reads.
    #[inline]
    pub(super) fn prefetch_block(&self, place: Place, stage: Stage) {
        self.shelf.cache.prefetch(self.meta.id.0, place.offset, stage, &crossbeam_epoch::pin());
    }

    /// The block if it is cached, counted as a hit or a miss.
    pub(super) fn cached(&self, place: Place) -> Option<SharedBlock> {
        let guard: Guard = crossbeam_epoch::pin();
        self.shelf.cache.get(self.meta.id.0, place.offset, &guard).map(|block| block.share())
    }

    /// The block if it is cached, and whether it was looked up of late; not counted, and no use.
    pub(super) fn glance(&self, place: Place) -> Option<(SharedBlock, bool)> {
        let guard: Guard = crossbeam_epoch::pin();
        let there = self.shelf.cache.glance(self.meta.id.0, place.offset, &guard)?;
        Some((there.share(), there.is_used()))
    }

    /// Drops the table's blocks from the cache. O(its blocks), or O(cache) if it is not known where they are.
    pub(super) fn evict_blocks(&self) {
        let (cache, table) = (&self.shelf.cache, self.meta.id.0);
        let resident = self.hot.resident.get();
        let is_plain =
            |open: &&Arc<Resident>| !open.has_leaves() && open.hashed().is_none() && open.cluster().is_none();
        let known = resident.as_ref().filter(is_plain).and_then(|open| open.root());
        match known {
            Some(root) => (0..root.len())
                .filter_map(|n| root.place(n).ok())
                .for_each(|place| cache.evict_block(table, place.offset)),
            None => cache.evict_table(table),
        }
    }

    /// Whether the cache admits a block of data that was read. Asked once for each.
    pub(super) fn admits(&self, place: Place, bytes: usize) -> bool {
        self.shelf.cache.admits(self.meta.id.0, place.offset, bytes)
    }

    /// Keeps a block in the cache; the block, perhaps in another place.
    pub(super) fn insert(&self, place: Place, block: SharedBlock) -> SharedBlock {
        self.shelf.cache.insert(self.meta.id.0, place.offset, block)
    }

    /// Keeps a block in the cache as its role asks; the block, perhaps in another place.
    pub(super) fn keep(&self, place: Place, role: Role, block: SharedBlock) -> SharedBlock {
        match role {
            Role::Leaf => self.insert(place, block),
            Role::Data => self.shelf.cache.offer(self.meta.id.0, place.offset, block),
        }
    }

    /// An index block from the cache or the file; the look is counted like that for a data block.
    pub(super) fn leaf(&self, resident: &Resident, place: Place) -> Result<SharedBlock> {
        match self.cached(place) {
            Some(leaf) => Ok(leaf),
            None => self.fetch(resident, place, Role::Leaf).map(FetchedBlock::into_shared),
        }
    }

    /// A block from the cache or the file, after a look that was counted.
    fn fetch(&self, resident: &Resident, place: Place, role: Role) -> Result<FetchedBlock> {
        if let Some(block) = self.peek(place) {
            return Ok(FetchedBlock::Shared(block));
        }
        self.read(resident, place, role)
    }

    /// A block from the file.
    fn read(&self, resident: &Resident, place: Place, role: Role) -> Result<FetchedBlock> {
        block_was_read();
        if role == Role::Leaf {
            let leaf = resident.read_leaf(place, &self.options)?;
            return Ok(FetchedBlock::Shared(self.keep(place, role, leaf)));
        }
        let Some(stored) = resident.read_stored(place)? else {
            return Ok(FetchedBlock::Shared(self.keep(place, role, resident.read(place)?)));
        };
        let checked = frame::check(&stored, resident.origin(place))?;
        let is_admitted = self.admits(place, checked.bytes());
        if !is_admitted && checked.is_raw() {
            return Ok(FetchedBlock::Stored(stored));
        }
        let block = checked.to_shared()?;
        Ok(FetchedBlock::Shared(if is_admitted { self.insert(place, block) } else { block }))
    }
}

/// The kind of an entry: `None` if this build does not know it and may skip it.
#[inline]
pub(super) fn known_kind(kind: u8, resident: &Resident, place: Place) -> Result<Option<Kind>> {
    match Kind::from_u8(kind) {
        Some(kind @ (Kind::Put | Kind::Delete | Kind::Apart)) => Ok(Some(kind)),
        Some(Kind::RangeDelete) => Err(resident.origin(place).corruption("a range delete among the entries")),
        None if kind >= 0x80 => Ok(None),
        None => {
            let why = format!("the block at byte {} holds entries of unknown kind {kind}", place.offset);
            Err(Error::Unsupported { path: resident.origin(place).path.to_path_buf(), why })
        }
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        self.shelf.values.let_go(&self.values);
        failpoint::hit("table::dropped");
    }
}

impl std::fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}({} entries, {} bytes)", self.meta.id, self.meta.entries, self.meta.file_bytes)
    }
}
