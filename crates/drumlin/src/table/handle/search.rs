//! Gets of one table: of what is in memory, then of what has to be read.
//!
//! Place: `version` asks table by table, first of what is in memory, and goes on where that ends; `steps` searches for it, too.
//!
//! Invariants:
//! 1. A get of what is in memory says which block it missed; the one that goes on reads that first, and looks into it first. What led there
//!    was looked at before, and behind a wait for a device the processor has forgotten it.
//! 2. A bucket that has a key has all of its versions, and is where a search for it ends, whatever else the bucket says.
//!
//! Concurrency: as that of the table. Tests: `table/tests/`, `version::levels_tests`.

use std::cell::Cell;
use std::ops::Deref;

use crossbeam_epoch::Guard;

use crate::cache::{BlockRef, SharedBlock, Stage};
use crate::encoding::Malformed;
use crate::error::Result;
use crate::iter::Cursor;
use crate::key::{Kind, Lsn};
use crate::table::Version;
use crate::table::block::{Block, Order};
use crate::table::cursor::{CursorOptions, TableCursor};
use crate::table::frame;
use crate::table::hashed::{self, Bucket, Hashed, HashedParts, Verdicts, Way, spin, took};
use crate::table::index::{Index, Place};
use crate::table::resident::Resident;
use crate::table::stored::Stored;

use super::{Role, TableHandle, known_kind};

/// A block that a get did not find in memory.
#[derive(Clone, Copy)]
pub struct Missed {
    pub(super) place: Place,
    pub(super) role: Role,
}

/// What a get of what is in memory came to.
pub enum Look {
    /// The newest version that it may see, if the table has one.
    Told(Option<Version>),
    /// Something has to be read; which block, if that is known.
    Left(Option<Missed>),
}

/// Where a search has its blocks from.
pub(super) trait Blocks {
    type Block: Deref<Target = [u8]>;

    /// The block at `place`; `None` if it is not in memory.
    fn at(&self, place: Place, role: Role) -> Result<Option<Self::Block>>;

    /// Starts to load what tells whether the block at `place` is in memory.
    #[inline]
    fn prefetch(&self, _place: Place) {}

    /// The same of a child of a root without leaves.
    fn child(&self, root: &Index<'_>, child: usize) -> Result<Option<Self::Block>>;
}

/// From the cache alone.
struct Cached<'a, 'g> {
    table: &'a TableHandle,
    resident: &'a Resident,
    guard: &'g Guard,
}

impl<'g> Blocks for Cached<'_, 'g> {
    type Block = BlockRef<'g>;

    #[inline]
    fn at(&self, place: Place, _: Role) -> Result<Option<BlockRef<'g>>> {
        Ok(self.table.shelf.cache.get(self.table.meta.id.0, place.offset, self.guard))
    }

    #[inline]
    fn prefetch(&self, place: Place) {
        self.table.shelf.cache.prefetch(self.table.meta.id.0, place.offset, Stage::Bucket, self.guard);
    }

    #[inline]
    fn child(&self, root: &Index<'_>, child: usize) -> Result<Option<BlockRef<'g>>> {
        let Some(shortcuts) = self.resident.shortcuts() else {
            return self.at(self.resident.child(root, child)?, Role::Data);
        };
        if let Some(found) = shortcuts.get(child, self.guard) {
            return Ok(Some(found));
        }
        Ok(shortcuts.find(child, self.resident.child(root, child)?.offset, self.guard))
    }
}

/// From the cache or the file: none is missing.
struct Fetched<'a> {
    table: &'a TableHandle,
    resident: &'a Resident,
    /// One that was read already.
    given: Cell<Option<(Place, FetchedBlock)>>,
}

impl Blocks for Fetched<'_> {
    type Block = FetchedBlock;

    fn at(&self, place: Place, role: Role) -> Result<Option<FetchedBlock>> {
        match self.given.take() {
            Some((given, block)) if given == place => Ok(Some(block)),
            _ => self.table.fetch(self.resident, place, role).map(Some),
        }
    }

    fn child(&self, root: &Index<'_>, child: usize) -> Result<Option<FetchedBlock>> {
        self.at(self.resident.child(root, child)?, Role::Data)
    }
}

/// A block that was found or read.
pub(super) enum FetchedBlock {
    Shared(SharedBlock),
    /// Where it was read: it is not compressed, and the cache has not taken it.
    Stored(Stored),
}

impl FetchedBlock {
    pub(super) fn into_shared(self) -> SharedBlock {
        match self {
            FetchedBlock::Shared(block) => block,
            FetchedBlock::Stored(stored) => SharedBlock::copy_of(frame::raw_body(&stored)),
        }
    }
}

impl Deref for FetchedBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            FetchedBlock::Shared(block) => block,
            FetchedBlock::Stored(stored) => frame::raw_body(stored),
        }
    }
}

/// What a search came to.
pub(super) enum Search {
    /// The version.
    Found(Version),
    /// The table holds no version of the key that the read may see.
    Absent,
    /// A block is not in memory.
    Miss(Missed),
    /// The version is of a kind that may be skipped: look behind it.
    Skip,
}

fn missed(place: Place, role: Role) -> Search {
    Search::Miss(Missed { place, role })
}

impl TableHandle {
    /// The newest version of `key` with LSN < `at`, deletes included, range tombstones not, if that can be told from what is
    /// in memory. `hash` is the key's hash under the table's hasher.
    /// Of `known` it believes what other tables said of it, and adds what it says of others.
    pub fn get_cached(
        &self,
        key: &[u8],
        hash: u64,
        at: Lsn,
        known: &mut Verdicts,
        guard: &Guard,
    ) -> Result<Look> {
        if self.has_nothing_below(at) || self.is_denied_by(known) {
            return Ok(Look::Told(None));
        }
        let Some(resident) = self.hot.resident.load(guard) else { return Ok(Look::Left(None)) };
        self.mark_used();
        let cached = Cached { table: self, resident, guard };
        Ok(match self.search(resident, key, hash, at, known, cached)? {
            Search::Found(version) if version.kind == Kind::Apart => {
                match self.whole_if_cached(version, guard)? {
                    Some(version) => Look::Told(Some(version)),
                    None => Look::Left(None),
                }
            }
            Search::Found(version) => Look::Told(Some(version)),
            Search::Absent => Look::Told(None),
            Search::Miss(missed) => Look::Left(Some(missed)),
            Search::Skip => Look::Left(None),
        })
    }

    /// True if the table is known to say nothing of a key of this hash: most of those that a get asks.
    #[inline]
    pub fn denies(&self, hash: u64, guard: &Guard) -> bool {
        let Some(resident) = self.hot.resident.load(guard) else { return false };
        self.mark_used();
        resident.denies(hash)
    }

    /// Starts to load what a get of a key of this hash looks at first, if the table is open.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        if let Some(resident) = self.hot.resident.load(guard) {
            resident.prefetch(hash);
        }
    }

    /// As `get_cached`, but reads the blocks that are not in memory: one, and another one if the index has leaves; first the one that
    /// `get_cached` `missed`. That may take long, so the epoch must not be pinned meanwhile.
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        at: Lsn,
        known: &mut Verdicts,
        missed: Option<Missed>,
    ) -> Result<Option<Version>> {
        if self.has_nothing_below(at) || self.is_denied_by(known) {
            return Ok(None);
        }
        let resident = self.resident()?;
        let fetched = Fetched { table: self, resident: &resident, given: Cell::new(None) };
        if let Some(Missed { place, role }) = missed {
            let block = self.read(&resident, place, role)?;
            if let Some(version) = self.find_in(&resident, place, &block, key, at)? {
                return self.whole(version).map(Some);
            }
            fetched.given.set(Some((place, block)));
        }
        match self.search(&resident, key, hash, at, known, fetched)? {
            Search::Found(version) => self.whole(version).map(Some),
            Search::Absent | Search::Miss(_) => Ok(None),
            Search::Skip => self.get_behind_unknown(key, at),
        }
    }

    /// The version that a search would find in the block, if it ends there. Most do, and what led to the block was looked at before it
    /// was read: behind that, the processor has forgotten it.
    fn find_in(
        &self,
        resident: &Resident,
        place: Place,
        block: &[u8],
        key: &[u8],
        at: Lsn,
    ) -> Result<Option<Version>> {
        let Some(hashed) = resident.hashed().filter(|hashed| hashed.has(place)) else { return Ok(None) };
        let Ok((home, user_key)) = hashed::split(key) else { return Ok(None) };
        let malformed = resident.malformed(place);
        let read = Bucket::parse(block, &hashed.usual).map_err(&malformed)?;
        // Above a record's mark all versions of a key have left together.
        let found = read.find(home, user_key, self.newest(at)).map_err(&malformed)?;
        match found {
            Some(entry) => self.version(resident, place, entry.kind, entry.lsn, entry.value),
            None => Ok(None),
        }
    }

    /// The newest version that a read at `at` sees has at most this LSN. Under a global version all count as that one, which was
    /// compared already, and the first is taken.
    #[inline]
    fn newest(&self, at: Lsn) -> Lsn {
        if self.meta.global_version.is_some() { Lsn::MAX } else { Lsn(at.0.saturating_sub(1)) }
    }

    /// An entry that was found, as a version; `None` if it is of a kind that may be skipped.
    #[inline]
    fn version(
        &self,
        resident: &Resident,
        place: Place,
        kind: u8,
        lsn: Lsn,
        value: &[u8],
    ) -> Result<Option<Version>> {
        let Some(kind) = known_kind(kind, resident, place)? else { return Ok(None) };
        let lsn = self.meta.global_version.unwrap_or(lsn);
        Ok(Some(Version { lsn, kind, value: value.to_vec() }))
    }

    pub(super) fn has_nothing_below(&self, at: Lsn) -> bool {
        self.meta.global_version.unwrap_or(self.meta.min_lsn) >= at || self.meta.entries == 0
    }

    /// `search` of a hashed table: `key` is looked for where records lead from its home, then in the sorted part.
    #[cold]
    fn search_hashed(
        &self,
        resident: &Resident,
        hashed: &HashedParts,
        key: &[u8],
        newest: Lsn,
        blocks: impl Blocks,
    ) -> Result<Search> {
        let Ok((place, user_key)) = hashed::split(key) else { return Ok(Search::Absent) };
        if !hashed.shape.spans(place) {
            return Ok(Search::Absent);
        }
        let home = hashed.shape.home(place);
        // Beside what says whether it was sent away, which most were not.
        blocks.prefetch(Hashed::place(home));
        let mut end = hashed.end_of(place);
        if end.is_none_or(|(_, steps)| steps > 0) {
            took(Way::Record);
        }
        // Until the end, or until no item of the table went further: then it is in no bucket.
        while let Some((bucket, steps)) = end.filter(|(_, steps)| *steps <= hashed.steps) {
            let at = Hashed::place(bucket);
            let Some(body) = blocks.at(at, Role::Data)? else { return Ok(missed(at, Role::Data)) };
            let malformed = resident.malformed(at);
            let read = Bucket::parse(&body, &hashed.usual).map_err(&malformed)?;
            if let Some(record) = read.left(bucket).filter(|record| record.mark.sends(spin(place))) {
                took(Way::Mark);
                let next = usize::from(record.destination);
                if next >= hashed.shape.buckets() {
                    return Err(malformed(Malformed));
                }
                end = Some((next, steps + 1));
                continue;
            }
            if let Some(entry) = read.find(place, user_key, newest).map_err(&malformed)? {
                let version = self.version(resident, at, entry.kind, entry.lsn, entry.value)?;
                return Ok(version.map_or(Search::Skip, Search::Found));
            }
            break;
        }
        if !hashed.is_special(home) {
            return Ok(Search::Absent);
        }
        took(Way::Special);
        self.search_sorted(resident, key, newest, blocks)
    }

    #[inline]
    pub(super) fn search(
        &self,
        resident: &Resident,
        key: &[u8],
        hash: u64,
        at: Lsn,
        known: &mut Verdicts,
        blocks: impl Blocks,
    ) -> Result<Search> {
        if !resident.may_contain(hash) {
            return Ok(Search::Absent);
        }
        if let Some(cluster) = resident.cluster() {
            match self.ask(resident, cluster, key, known, &blocks)? {
                Err(missed) => return Ok(Search::Miss(missed)),
                Ok(false) => return Ok(Search::Absent),
                Ok(true) => {}
            }
        }
        let newest = self.newest(at);
        match resident.hashed() {
            None => self.search_sorted(resident, key, newest, blocks),
            Some(hashed) => self.search_hashed(resident, hashed, key, newest, blocks),
        }
    }

    /// The same of a sorted table, or of the sorted part of a hashed one: the newest version of `key` not newer than `newest`.
    #[inline(always)]
    fn search_sorted(
        &self,
        resident: &Resident,
        key: &[u8],
        newest: Lsn,
        blocks: impl Blocks,
    ) -> Result<Search> {
        let order = Order::of(&*self.options.comparator);
        let Some(root) = resident.root() else { return Ok(Search::Absent) };
        let child = root.find(order, key, newest).map_err(resident.malformed_root())?;
        if child == root.len() {
            return Ok(Search::Absent);
        }
        if !resident.has_leaves() {
            let Some(block) = blocks.child(&root, child)? else {
                return Ok(missed(resident.child(&root, child)?, Role::Data));
            };
            return self.search_block(resident, &block, || resident.child(&root, child), key, newest);
        }
        let leaf_place = resident.child(&root, child)?;
        let Some(leaf) = blocks.at(leaf_place, Role::Leaf)? else {
            return Ok(missed(leaf_place, Role::Leaf));
        };
        let found = Index::parse(&leaf).and_then(|leaf| leaf.place(leaf.find(order, key, newest)?));
        let place = found.map_err(resident.malformed(leaf_place))?;
        let Some(block) = blocks.at(place, Role::Data)? else { return Ok(missed(place, Role::Data)) };
        self.search_block(resident, &block, || Ok(place), key, newest)
    }

    /// The same of one block. `place`: where it lies, for an error.
    #[inline(always)]
    fn search_block(
        &self,
        resident: &Resident,
        block: &[u8],
        place: impl Fn() -> Result<Place>,
        key: &[u8],
        newest: Lsn,
    ) -> Result<Search> {
        let order = Order::of(&*self.options.comparator);
        let entry = match Block::parse(block).and_then(|block| block.find(order, key, newest)) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Search::Absent),
            Err(malformed) => return Err(resident.malformed(place()?)(malformed)),
        };
        let kind = match Kind::from_u8(entry.kind) {
            Some(kind @ (Kind::Put | Kind::Delete | Kind::Apart)) => kind,
            _ => match known_kind(entry.kind, resident, place()?)? {
                Some(kind) => kind,
                None => return Ok(Search::Skip),
            },
        };
        let lsn = self.meta.global_version.unwrap_or(entry.lsn);
        Ok(Search::Found(Version { lsn, kind, value: entry.value.to_vec() }))
    }

    /// The rare end of a get: the version found is of a kind that may be skipped.
    #[cold]
    pub(super) fn get_behind_unknown(&self, key: &[u8], at: Lsn) -> Result<Option<Version>> {
        let options = CursorOptions { readahead_bytes: 0, ..CursorOptions::default() };
        let mut cursor = TableCursor::on_resident(self, self.resident()?, options);
        cursor.seek(key, Lsn(at.0.saturating_sub(1)))?;
        if !cursor.valid() || self.options.comparator.compare(cursor.key(), key).is_ne() {
            return Ok(None);
        }
        self.whole(Version { lsn: cursor.lsn(), kind: cursor.kind(), value: cursor.value().to_vec() })
            .map(Some)
    }
}
