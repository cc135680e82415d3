//! Walking a table, both ways.
//!
//! Place: `version` concatenates or merges these; `compaction` reads its inputs with them.
//!
//! Invariants:
//! 1. A cursor is on an entry, or off; after an error it is off, and may seek again.
//! 2. It holds what it stands on: neither eviction from the cache nor the removal of the table
//!    from its level takes bytes away from under it.
//! 3. Within a block a step calls nothing through a pointer and allocates nothing.
//!
//! Blocks lie one behind the other, so reading ahead is one larger read: after two blocks in a row
//! were read from the file, the next read takes four times as much as the last, up to
//! `readahead_bytes`; a seek elsewhere starts small again, and so does a block that is missing between cached ones.
//!
//! What is cached is waited for as little as can be: a step over the end of a block starts to load the first lines of the
//! next, and the cache's bucket of the one behind it; and a seek does so in stages (`iter::Cursor`).
//!
//! A hashed table is walked bucket by bucket: of each, what is at home there is gathered into a block in order (`hashed::gather`),
//! and that is walked like any other.
//!
//! Concurrency: one thread at a time; `Send`. Tests: `table/tests/`.

use std::ops::Deref;
use std::sync::Arc;

use crate::cache::{SharedBlock, Stage};
use crate::encoding::Malformed;
use crate::error::Result;
use crate::iter::{Cursor, STEPS_BEFORE_SEEK};
use crate::key::{Kind, Lsn, key_prefix};
use crate::pages::{PageVec, Pages};
use crate::table::TableHandle;
use crate::table::block::Order;
use crate::table::frame;
use crate::table::handle::{Role, known_kind};
use crate::table::hashed::{Entry, Gather, Hashed, HashedParts, Source};
use crate::table::index::{Index, Place};
use crate::table::resident::Resident;
use crate::table::values::Loaded;
use crate::table::walk::Walk;

/// How a cursor reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorOptions {
    /// Keep the blocks read in the cache. Off for merges, whose looks at the cache are not counted either, and which load values
    /// themselves.
    pub fill_cache: bool,
    /// Most bytes read from the file at once when walking; 0 for one block at a time.
    pub readahead_bytes: usize,
}

impl Default for CursorOptions {
    fn default() -> Self {
        CursorOptions { fill_cache: true, readahead_bytes: 256 << 10 }
    }
}

/// Frames from here on are read apart, not through the window.
const WINDOW_FRAME_BYTES: u64 = 1 << 20;

/// The current block: shared with the cache, or the cursor's own.
#[derive(Default)]
struct Buffer {
    shared: Option<SharedBlock>,
    own: Vec<u8>,
}

impl Buffer {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        match &self.shared {
            Some(shared) => shared,
            None => &self.own,
        }
    }
}

/// A part of the file read ahead.
struct Window {
    bytes: PageVec<u8>,
    offset: u64,
    /// Size of the next read, grown while reads are in a row.
    ahead: u64,
    /// The block before the one that is wanted, if it was not cached either; for a merge, cached or not.
    last: Place,
}

impl Window {
    fn new() -> Window {
        Window { bytes: PageVec::new_in(Pages), offset: 0, ahead: 0, last: Place::default() }
    }

    /// The frame at `place`, if it was read.
    fn frame(&self, place: Place) -> Option<&[u8]> {
        let start = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(place.bytes).ok()?)?)
    }

    /// Reads the frame at `place` and what seems to be wanted next.
    fn fill(&mut self, resident: &Resident, place: Place, most: usize) -> Result<()> {
        let forward = place.offset == self.last.end();
        let backward = place.end() == self.last.offset;
        self.ahead =
            if forward || backward { (self.ahead * 4).max(4 * place.bytes).min(most as u64) } else { 0 };
        let bytes = self.ahead.max(place.bytes);
        let data_end = resident.data_end().max(place.end());
        let (from, to) = if backward && !forward {
            (place.end().saturating_sub(bytes), place.end())
        } else {
            (place.offset, place.offset.saturating_add(bytes).min(data_end))
        };
        self.bytes.resize((to - from) as usize, 0);
        self.offset = from;
        // A failed read leaves nothing that could be taken for the file.
        let read = resident.file().read_exact_at(&mut self.bytes, from);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}

/// A cursor over one table's entries.
pub struct TableCursor<H: Deref<Target = TableHandle> + Send = Arc<TableHandle>> {
    table: H,
    options: CursorOptions,
    resident: Option<Arc<Resident>>,
    /// Child of the root the cursor is in, and its block if it is an index block.
    leaf_at: usize,
    leaf: Option<SharedBlock>,
    /// Child of the leaf (or of the root, without leaves) that is the current block.
    child: usize,
    place: Place,
    /// The block that a seek under way will look at.
    ahead: Option<Place>,
    buffer: Buffer,
    /// The current block was looked up of late. Known only without `fill_cache`.
    in_use: bool,
    window: Window,
    walk: Walk,
    /// Scratch for the key of a block that is left.
    left_key: Vec<u8>,
    /// Of a hashed table, from the first seek on.
    gathering: Option<Box<Gathering<H>>>,
    /// Walks the sorted part of a hashed table alone.
    is_of_sorted_part: bool,
    /// Values that lie apart.
    loaded: Loaded,
}

/// What the walk of a hashed table needs besides.
struct Gathering<H: Deref<Target = TableHandle> + Send> {
    gather: Gather,
    /// Over what lies in no bucket.
    special: TableCursor<H>,
    /// Bucket that is not the next one, while it is looked at.
    aside: Vec<u8>,
    /// Where the next one is read to.
    raw: Vec<u8>,
}

impl<H: Deref<Target = TableHandle> + Send + Clone> TableCursor<H> {
    pub(super) fn new(table: H, options: CursorOptions) -> Self {
        TableCursor {
            table,
            options,
            resident: None,
            leaf_at: 0,
            leaf: None,
            child: 0,
            place: Place::default(),
            ahead: None,
            buffer: Buffer::default(),
            in_use: false,
            window: Window::new(),
            walk: Walk::default(),
            left_key: Vec::new(),
            gathering: None,
            is_of_sorted_part: false,
            loaded: Loaded::default(),
        }
    }

    pub(super) fn on_resident(table: H, resident: Arc<Resident>, options: CursorOptions) -> Self {
        TableCursor { resident: Some(resident), ..Self::new(table, options) }
    }

    fn open(&mut self) -> Result<Arc<Resident>> {
        match &self.resident {
            Some(resident) => Ok(resident.clone()),
            None => Ok(self.resident.insert(self.table.resident()?).clone()),
        }
    }

    /// What the open table holds as a hashed one, if it is to be walked as such.
    #[inline]
    fn hashed<'r>(&self, resident: &'r Resident) -> Option<&'r HashedParts> {
        resident.hashed().filter(|_| !self.is_of_sorted_part)
    }

    /// Gathers what is at home in a bucket and makes it the current block, the walk being off; false if there is nothing.
    fn enter_bucket(&mut self, resident: &Resident, hashed: &HashedParts, bucket: usize) -> Result<bool> {
        self.walk.reset();
        (self.child, self.place) = (bucket, Place::default());
        let mut gathering = match self.gathering.take() {
            Some(gathering) => gathering,
            None => {
                let placer = self.table.options().form.placer().copied();
                let placer =
                    placer.ok_or_else(|| resident.malformed(resident.footer.properties)(Malformed))?;
                let mut special = TableCursor::new(self.table.clone(), self.options);
                special.is_of_sorted_part = true;
                let gather = Gather::new(placer, resident.all_records()?);
                Box::new(Gathering { gather, special, aside: Vec::new(), raw: Vec::new() })
            }
        };
        let Gathering { gather, special, aside, raw } = &mut *gathering;
        let mut block = std::mem::replace(&mut self.buffer.own, std::mem::take(raw));
        let mut source = Buckets { cursor: self, resident, hashed, special, aside };
        let gathered = gather.block(bucket, hashed, &mut source, &mut block);
        *raw = std::mem::replace(&mut self.buffer, Buffer { shared: None, own: block }).own;
        self.gathering = Some(gathering);
        if gathered? {
            self.place = Hashed::place(bucket);
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves to the first entry of the first bucket from `bucket` on that has one, or off the end.
    fn enter_buckets_from(&mut self, resident: &Resident, hashed: &HashedParts, bucket: usize) -> Result<()> {
        for bucket in bucket..hashed.shape.buckets() {
            if self.enter_bucket(resident, hashed, bucket)? {
                return self.step(Walk::first);
            }
        }
        Ok(())
    }

    /// Moves to the last entry of the last bucket before `end` that has one, or off the start.
    fn enter_buckets_before(&mut self, resident: &Resident, hashed: &HashedParts, end: usize) -> Result<()> {
        for bucket in (0..end).rev() {
            if self.enter_bucket(resident, hashed, bucket)? {
                return self.step(Walk::last);
            }
        }
        Ok(())
    }

    /// Makes the `n`-th index block current; without leaves the root is.
    fn enter_leaf(&mut self, resident: &Resident, root: &Index<'_>, n: usize) -> Result<()> {
        if !resident.has_leaves() || (self.leaf.is_some() && self.leaf_at == n) {
            return Ok(());
        }
        self.leaf = None;
        let place = root.place(n).map_err(resident.malformed_root())?;
        self.leaf = Some(match self.options.fill_cache {
            true => self.table.leaf(resident, place)?,
            false => match self.table.glance(place) {
                Some((leaf, _)) => leaf,
                None => resident.read_leaf(place, self.table.options())?,
            },
        });
        self.leaf_at = n;
        Ok(())
    }

    /// Runs `body` on the current index.
    fn with_index<R>(
        &self,
        resident: &Resident,
        body: impl FnOnce(Index<'_>) -> Result<R, Malformed>,
    ) -> Result<R> {
        self.index(resident).and_then(body).map_err(resident.malformed_root())
    }

    /// The current index.
    fn index<'a>(&'a self, resident: &'a Resident) -> Result<Index<'a>, Malformed> {
        match &self.leaf {
            Some(leaf) => Index::parse(leaf),
            None => resident.root().ok_or(Malformed),
        }
    }

    /// Makes the block of the current index's `child` current, the walk being off.
    fn enter_block(&mut self, resident: &Resident, child: usize) -> Result<()> {
        self.walk.reset();
        let place = self.with_index(resident, |index| index.place(child))?;
        self.child = child;
        if place == self.place {
            return Ok(());
        }
        // Should loading fail, no block is current.
        self.place = Place::default();
        self.load(resident, place)?;
        self.place = place;
        Ok(())
    }

    fn load(&mut self, resident: &Resident, place: Place) -> Result<()> {
        let cached = if self.options.fill_cache {
            self.table.cached(place)
        } else {
            let there = self.table.glance(place);
            self.in_use = there.as_ref().is_some_and(|&(_, in_use)| in_use);
            there.map(|(block, _)| block)
        };
        if let Some(block) = cached {
            // A merge reads all that is not cached, so pieces of it are worth a large read.
            self.window.last = if self.options.fill_cache { Place::default() } else { place };
            self.buffer.shared = Some(block);
            return Ok(());
        }
        self.read(resident, place)?;
        self.window.last = place;
        Ok(())
    }

    /// Reads a block that is not cached.
    #[cold]
    fn read(&mut self, resident: &Resident, place: Place) -> Result<()> {
        if self.window.frame(place).is_none() {
            if place.bytes >= WINDOW_FRAME_BYTES {
                let mut block = resident.read(place)?;
                if self.options.fill_cache {
                    block = self.table.keep(place, Role::Data, block);
                }
                self.buffer.shared = Some(block);
                return Ok(());
            }
            self.window.fill(resident, place, self.options.readahead_bytes)?;
        }
        let origin = resident.origin(place);
        let stored =
            self.window.frame(place).ok_or_else(|| origin.corruption("a block would end behind the file"))?;
        let checked = frame::check(stored, origin)?;
        if self.options.fill_cache && self.table.admits(place, checked.bytes()) {
            self.buffer.shared = Some(self.table.insert(place, checked.to_shared()?));
        } else {
            self.buffer.shared = None;
            checked.to_vec(&mut self.buffer.own)?;
        }
        Ok(())
    }

    /// Runs a step of the walk on the current block.
    #[inline(always)]
    fn step<R>(&mut self, body: impl FnOnce(&mut Walk, &[u8]) -> Result<R, Malformed>) -> Result<R> {
        match body(&mut self.walk, self.buffer.bytes()) {
            Ok(result) => Ok(result),
            Err(Malformed) => Err(self.fail()),
        }
    }

    #[cold]
    fn fail(&mut self) -> crate::error::Error {
        self.walk.reset();
        let place = std::mem::take(&mut self.place);
        match &self.resident {
            Some(resident) => resident.malformed(place)(Malformed),
            None => crate::error::Error::corruption(self.table.path(), place.offset, "a block is malformed"),
        }
    }

    /// Starts to load what the next steps over an end of a block wait for: each of the next blocks by one stage more.
    fn prefetch_behind(&self, resident: &Resident) {
        let Ok(index) = self.index(resident) else { return };
        for (ahead, stage) in [Stage::Block, Stage::Bucket].into_iter().enumerate() {
            self.prefetch(index.place(self.child + 1 + ahead).ok(), stage);
        }
    }

    /// Moves to the first entry of the next block, or off the end.
    #[cold]
    fn next_block(&mut self) -> Result<()> {
        let resident = self.open()?;
        if let Some(hashed) = self.hashed(&resident) {
            return self.enter_buckets_from(&resident, hashed, self.child + 1);
        }
        let Some(root) = resident.root() else { return Ok(()) };
        let children = self.with_index(&resident, |index| Ok(index.len()))?;
        if self.child + 1 < children {
            self.enter_block(&resident, self.child + 1)?;
            self.prefetch_behind(&resident);
        } else if self.leaf.is_some() && self.leaf_at + 1 < root.len() {
            self.enter_leaf(&resident, &root, self.leaf_at + 1)?;
            self.enter_block(&resident, 0)?;
        } else {
            self.walk.reset();
            return Ok(());
        }
        self.step(Walk::first)
    }

    /// Moves to the first entry of the blocks behind whose key is not the one that the walk was on last.
    #[cold]
    fn next_block_key(&mut self) -> Result<()> {
        let mut key = std::mem::take(&mut self.left_key);
        key.clear();
        key.extend_from_slice(self.walk.key());
        let mut steps = 0;
        self.next_block()?;
        while self.walk.is_on() && self.walk.key() == key {
            steps += 1;
            match steps {
                STEPS_BEFORE_SEEK => self.seek_stored(&key, Lsn::ZERO)?,
                _ => self.advance()?,
            }
        }
        self.left_key = key;
        Ok(())
    }

    /// Moves to the last entry of the block before, or off the start.
    #[cold]
    fn prev_block(&mut self) -> Result<()> {
        let resident = self.open()?;
        if let Some(hashed) = self.hashed(&resident) {
            return self.enter_buckets_before(&resident, hashed, self.child);
        }
        let Some(root) = resident.root() else { return Ok(()) };
        if self.child > 0 {
            self.enter_block(&resident, self.child - 1)?;
        } else if self.leaf.is_some() && self.leaf_at > 0 {
            self.enter_leaf(&resident, &root, self.leaf_at - 1)?;
            let children = self.with_index(&resident, |index| Ok(index.len()))?;
            self.enter_block(&resident, children - 1)?;
        } else {
            self.walk.reset();
            return Ok(());
        }
        self.step(Walk::last)
    }

    /// Steps over entries of kinds that may be skipped, in the direction given.
    #[inline]
    fn settle(&mut self, forward: bool) -> Result<()> {
        while self.walk.is_on() && self.walk.kind() > Kind::Put as u8 && self.walk.kind() != Kind::Apart as u8
        {
            self.skip_unknown(forward)?;
        }
        Ok(())
    }

    #[cold]
    fn skip_unknown(&mut self, forward: bool) -> Result<()> {
        let resident = self.open()?;
        if let Err(error) = known_kind(self.walk.kind(), &resident, self.place) {
            self.walk.reset();
            return Err(error);
        }
        if forward { self.advance() } else { self.retreat() }
    }

    #[inline(always)]
    fn advance(&mut self) -> Result<()> {
        if self.step(Walk::next)? { Ok(()) } else { self.next_block() }
    }

    #[inline(always)]
    fn retreat(&mut self) -> Result<()> {
        if self.step(Walk::prev)? { Ok(()) } else { self.prev_block() }
    }

    /// Where a seek will find its block, if the table is open and its index in one piece; else nowhere.
    fn cached_place(&mut self, key: &[u8], lsn: Lsn) -> Option<Place> {
        if self.resident.is_none() {
            self.resident = self.table.resident_if_open();
        }
        let resident = self.resident.as_deref().filter(|resident| !resident.has_leaves())?;
        if self.hashed(resident).is_some() {
            return None;
        }
        let root = resident.root()?;
        let order = Order::of(&*self.table.options().comparator);
        let child = root.find(order, key, lsn).ok()?;
        root.place(child).ok()
    }

    #[inline]
    fn prefetch(&self, place: Option<Place>, stage: Stage) {
        if let Some(place) = place {
            self.table.prefetch_block(place, stage);
        }
    }

    /// `seek` by the LSNs as they are stored.
    fn seek_stored(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.walk.reset();
        let table = self.table.options().comparator.clone();
        let order = Order::of(&*table);
        let resident = self.open()?;
        if let Some(hashed) = self.hashed(&resident) {
            return self.seek_hashed(&resident, hashed, key, lsn);
        }
        let Some(root) = resident.root() else { return Ok(()) };
        let mut child = root.find(order, key, lsn).map_err(resident.malformed_root())?;
        if child == root.len() {
            return Ok(());
        }
        if resident.has_leaves() {
            self.enter_leaf(&resident, &root, child)?;
            child = self.with_index(&resident, |leaf| leaf.find(order, key, lsn))?;
        }
        self.enter_block(&resident, child)?;
        let found = self.step(|walk, bytes| walk.seek(bytes, order, key, lsn))?;
        if found { Ok(()) } else { self.next_block() }
    }

    /// `seek_stored` in a hashed table. `key` may be a bound and no stored key: shorter than a place.
    fn seek_hashed(&mut self, resident: &Resident, hashed: &HashedParts, key: &[u8], lsn: Lsn) -> Result<()> {
        let place = key_prefix(key);
        if place > hashed.shape.last() {
            return Ok(());
        }
        let bucket = hashed.shape.home(place);
        if self.place != Hashed::place(bucket) && !self.enter_bucket(resident, hashed, bucket)? {
            return self.enter_buckets_from(resident, hashed, bucket + 1);
        }
        let found = self.step(|walk, bytes| walk.seek(bytes, Order::Bytewise, key, lsn))?;
        if found { Ok(()) } else { self.enter_buckets_from(resident, hashed, bucket + 1) }
    }
}

/// What a cursor's gathering reads through it.
struct Buckets<'a, H: Deref<Target = TableHandle> + Send> {
    cursor: &'a mut TableCursor<H>,
    resident: &'a Resident,
    hashed: &'a HashedParts,
    special: &'a mut TableCursor<H>,
    aside: &'a mut Vec<u8>,
}

impl<H: Deref<Target = TableHandle> + Send + Clone> Source for Buckets<'_, H> {
    fn bucket<R>(&mut self, bucket: usize, in_turn: bool, body: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let place = Hashed::place(bucket);
        if in_turn {
            self.cursor.load(self.resident, place)?;
            return Ok(body(self.cursor.buffer.bytes()));
        }
        let cached = match self.cursor.options.fill_cache {
            true => self.cursor.table.cached(place),
            false => self.cursor.table.glance(place).map(|(block, _)| block),
        };
        if let Some(block) = cached {
            return Ok(body(&block));
        }
        // It may be among what was read ahead; if not, what was is to stay.
        if let Some(stored) = self.cursor.window.frame(place) {
            frame::check(stored, self.resident.origin(place))?.to_vec(self.aside)?;
            return Ok(body(self.aside));
        }
        Ok(body(&self.resident.read(place)?))
    }

    fn special(&mut self, bucket: usize, each: &mut dyn FnMut(&[u8], Entry<'_>)) -> Result<()> {
        let Some(start) = self.hashed.shape.start(bucket) else { return Ok(()) };
        self.special.seek_stored(&start.to_be_bytes(), Lsn::MAX)?;
        while self.special.walk.is_on() {
            let walk = &self.special.walk;
            if self.hashed.shape.home(key_prefix(walk.key())) != bucket {
                break;
            }
            let value = &self.special.buffer.bytes()[walk.value()];
            each(walk.key(), Entry { key: &[], lsn: walk.lsn(), kind: walk.kind(), value });
            self.special.advance()?;
        }
        Ok(())
    }

    fn malformed(&self, bucket: usize) -> crate::error::Error {
        self.resident.malformed(Hashed::place(bucket))(Malformed)
    }
}

impl<H: Deref<Target = TableHandle> + Send + Clone> Cursor for TableCursor<H> {
    fn seek_first(&mut self) -> Result<()> {
        self.walk.reset();
        let resident = self.open()?;
        if let Some(hashed) = self.hashed(&resident) {
            self.enter_buckets_from(&resident, hashed, 0)?;
            return self.settle(true);
        }
        let Some(root) = resident.root() else { return Ok(()) };
        self.enter_leaf(&resident, &root, 0)?;
        self.enter_block(&resident, 0)?;
        self.step(Walk::first)?;
        self.settle(true)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.walk.reset();
        let resident = self.open()?;
        if let Some(hashed) = self.hashed(&resident) {
            self.enter_buckets_before(&resident, hashed, hashed.shape.buckets())?;
            return self.settle(false);
        }
        let Some(root) = resident.root() else { return Ok(()) };
        self.enter_leaf(&resident, &root, root.len() - 1)?;
        let children = self.with_index(&resident, |index| Ok(index.len()))?;
        self.enter_block(&resident, children - 1)?;
        self.step(Walk::last)?;
        self.settle(false)
    }

    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        match self.table.meta().global_version {
            None => self.seek_stored(key, lsn)?,
            // Every version of the key counts as `version`: all of them are wanted, or none.
            Some(version) if lsn >= version => self.seek_stored(key, Lsn::MAX)?,
            Some(_) => {
                self.seek_stored(key, Lsn::ZERO)?;
                let comparator = self.table.options().comparator.clone();
                while self.walk.is_on() && comparator.compare(self.walk.key(), key).is_eq() {
                    self.advance()?;
                }
            }
        }
        self.settle(true)
    }

    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        match stage {
            0 => {
                self.ahead = self.cached_place(key, lsn);
                self.prefetch(self.ahead, Stage::Bucket);
            }
            1 => self.prefetch(self.ahead, Stage::Block),
            _ => return self.seek(key, lsn),
        }
        Ok(())
    }

    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.seek(key, lsn)?;
        if !self.valid() {
            return self.seek_last();
        }
        let exact = self.lsn() == lsn && self.table.options().comparator.compare(self.key(), key).is_eq();
        if exact { Ok(()) } else { self.prev() }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.advance()?;
        self.settle(true)
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        if !self.step(Walk::next_key)? {
            self.next_block_key()?;
        }
        self.settle(true)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.retreat()?;
        self.settle(false)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.walk.is_on()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        assert!(self.walk.is_on(), "the cursor is on an entry");
        self.walk.key()
    }

    #[inline]
    fn lsn(&self) -> Lsn {
        assert!(self.walk.is_on(), "the cursor is on an entry");
        self.table.meta().global_version.unwrap_or(self.walk.lsn())
    }

    #[inline]
    fn kind(&self) -> Kind {
        assert!(self.walk.is_on(), "the cursor is on an entry");
        match self.walk.kind() {
            kind if kind == Kind::Put as u8 => Kind::Put,
            kind if kind == Kind::Apart as u8 => Kind::Apart,
            _ => Kind::Delete,
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        assert!(self.walk.is_on(), "the cursor is on an entry");
        let stored = &self.buffer.bytes()[self.walk.value()];
        if self.walk.kind() == Kind::Apart as u8
            && let Some(value) = self.loaded.get(stored)
        {
            return value;
        }
        stored
    }

    fn load_value(&mut self) -> Result<()> {
        if self.kind() != Kind::Apart {
            return Ok(());
        }
        let bytes = self.buffer.bytes();
        let reference = &bytes[self.walk.value()];
        let next = self.walk.behind(bytes).filter(|(kind, _)| *kind == Kind::Apart as u8);
        self.loaded.load(&self.table, reference, next.map(|(_, reference)| reference))
    }

    #[inline]
    fn is_in_use(&self) -> bool {
        self.in_use
    }
}
