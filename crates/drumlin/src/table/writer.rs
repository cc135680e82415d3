//! Writing a table: entries come in order, a file and its description come out.
//!
//! Place: flushes and compactions, under a temporary name that they rename after `finish`.
//!
//! Invariants:
//! 1. The footer is written last, and the file is synced before `finish` returns. A file without
//!    its footer does not decode.
//! 2. After a failed write nothing more is written: every later call fails too.
//! 3. No block but one of a single entry exceeds `block_bytes`, nor, if blocks keep to pages, does its frame.
//!
//! The file, in order: buckets of a hashed table | pages of filters in columns | data blocks | range tombstones | filter |
//! records of the buckets | their bits | index blocks | index root | properties | footer. Buckets come first and are known last (`hashed::stage`): of a hashed
//! table nothing is written before `finish`. Bytes: docs/formats/table.md. Tests: `table/tests/`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cache::BlockCache;
use crate::env::{PAGE_BYTES, WritableFile};
use crate::error::{Error, Result};
use crate::filter::{FilterBuilder, Grid};
use crate::iter::Tombstones;
use crate::key::{KEY_BYTES_MAX, Kind, Lsn, VALUE_BYTES_MAX, key_prefix};
use crate::options::Compression;
use crate::pages::PageVec;
use crate::table::block::{BlockBuilder, Order};
use crate::table::footer::{FOOTER_BYTES, Footer};
use crate::table::frame::{FrameEncoder, TRAILER_BYTES};
use crate::table::hashed::{
    self, Cluster, Columns, Entry, Hashed, Poured, Record, STAGED_BYTES_MAX, Stage, columns_of,
};
use crate::table::index::{IndexBuilder, separator};
use crate::table::output::{BUFFER_BYTES, Output};
use crate::table::properties::{Properties, placed};
use crate::table::sample::Sampler;
use crate::table::tombstone_block::{self, Form};
use crate::table::values::{Uses, ValueRef};
use crate::table::warm::Warm;
use crate::table::{TableId, TableMeta, TableOptions};

/// A block is made longer, to the end of its page, by its part in so many at most.
const PADDING_OF: usize = 16;
/// Memory that a block builder keeps from block to block.
const BLOCK_KEEP_BYTES: usize = 1 << 20;

/// True if the filter is written in columns.
fn is_columned(options: &TableOptions) -> bool {
    options.grid.is_some()
        && options.hashed
        && options.form.placer().is_some()
        && options.filter_bits_per_key > 0.0
}

/// Memory of a writer that is done, for the next one: its pages are there already.
#[derive(Default)]
pub struct Spare {
    buffer: Option<PageVec<u8>>,
    stage: Option<Stage>,
}

/// Writes one table.
pub struct TableWriter {
    path: PathBuf,
    options: TableOptions,
    bytewise: bool,
    /// Data blocks end where pages end, if that costs little: one that is read past the page cache is read in whole pages.
    keeps_to_pages: bool,
    out: Output,
    encoder: FrameEncoder,
    /// Entries that wait for their buckets, if the table is to be a hashed one.
    stage: Option<Stage>,
    /// Where data blocks begin: behind the buckets.
    data_start: u64,
    /// What was written of filters in columns.
    cluster: Option<Cluster>,
    block: BlockBuilder,
    /// Bytes that it may have.
    block_room: usize,
    index: IndexBuilder,
    leaves: Vec<IndexBuilder>,
    leaf_bytes: usize,
    filter: Option<FilterBuilder>,
    /// Places of keys, in order, for filters in columns.
    places: Vec<u64>,
    /// Columns of the tables under it.
    pile: Vec<Columns>,
    sampler: Option<Sampler>,
    tombstones: Tombstones,
    /// Of the entry that came last.
    last_key: Vec<u8>,
    last_lsn: Lsn,
    /// LSN of the entry that came to a block last.
    last_pushed: Lsn,
    /// Where the last finished data block ends, until the next key says how short its fence may be.
    fence_due: Option<u64>,
    contents: TableMeta,
    /// What the entries refer to, by value file.
    uses: Uses,
    failed: bool,
    warm: Option<Warm>,
    /// The next entry lay in a block in use.
    next_is_in_use: bool,
}

impl TableWriter {
    /// A writer to the empty file `file`, which `path` names.
    pub fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        id: TableId,
        options: TableOptions,
    ) -> TableWriter {
        let bytewise = options.comparator.is_bytewise();
        TableWriter {
            path,
            bytewise,
            keeps_to_pages: options.compression == Compression::None
                && options.block_bytes.is_multiple_of(PAGE_BYTES),
            out: Output::new(file),
            encoder: FrameEncoder::new(options.compression),
            stage: (options.hashed && options.form.placer().is_some()).then(Stage::new),
            data_start: 0,
            cluster: None,
            block: BlockBuilder::new(bytewise),
            block_room: 0,
            index: IndexBuilder::new(bytewise, 0),
            leaves: Vec::new(),
            leaf_bytes: 0,
            places: Vec::new(),
            pile: Vec::new(),
            filter: (options.filter_bits_per_key > 0.0 && !is_columned(&options))
                .then(|| FilterBuilder::new(options.filter_span(), options.filter_bits_per_key)),
            sampler: options.form.placer().map(|_| Sampler::default()),
            tombstones: Tombstones::EMPTY,
            last_key: Vec::new(),
            last_lsn: Lsn::MAX,
            last_pushed: Lsn::MAX,
            fence_due: None,
            contents: TableMeta { id, seed: id.0, min_lsn: Lsn::MAX, ..TableMeta::default() },
            uses: Uses::default(),
            failed: false,
            warm: None,
            next_is_in_use: false,
            options,
        }
    }

    /// Blocks that are worth it are kept in `cache`, too.
    pub fn keep_in(mut self, cache: Arc<BlockCache>) -> TableWriter {
        self.warm = Some(Warm::new(cache, self.contents.id));
        self
    }

    /// Before the first entry: takes over the memory of a writer that is done.
    pub fn with_spare(mut self, spare: Spare) -> TableWriter {
        self.out.buffer = spare.buffer.unwrap_or(self.out.buffer);
        self.stage = self.stage.map(|stage| spare.stage.unwrap_or(stage));
        self
    }

    /// The next entry comes from a block that was in use.
    #[inline]
    pub fn next_is_in_use(&mut self) {
        self.next_is_in_use = true;
    }

    /// Bytes that the writer holds in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, FilterBuilder::heap_bytes);
        let stage = self.stage.as_ref().map_or(0, Stage::memory_bytes) + 8 * self.places.capacity();
        let pile: usize = self.pile.iter().map(|columns| columns.data.len()).sum();
        BUFFER_BYTES + self.block.bytes() + self.index.bytes() + self.leaf_bytes + filter + stage + pile
    }

    /// Takes the filters of the tables that will lie under this one, by [`pile_columns`](super::pile_columns), for the one that is to
    /// stand beside them.
    pub fn set_pile(&mut self, pile: Vec<Columns>) {
        self.pile = pile;
    }

    /// The first and the last place so far, if the filter is to stand beside others.
    pub fn columned_span(&self) -> Option<(Grid, u64, u64)> {
        Some((self.options.grid?, *self.places.first()?, *self.places.last()?))
    }

    /// True if the table has filters in columns, and `key`, which comes behind all others, is in another one than these.
    pub fn begins_a_column(&self, key: &[u8]) -> bool {
        self.columned_span().is_some_and(|(grid, _, last)| !grid.is_shared(last, key_prefix(key)))
    }

    /// True if so many eighths of the buckets that a table can have are used: of all, what comes may find none.
    pub fn uses_of_buckets(&self, eighths: u8) -> bool {
        let most = STAGED_BYTES_MAX / 8 * u64::from(eighths);
        self.stage.as_ref().is_some_and(|stage| stage.estimated_bytes() >= most)
    }

    /// Bytes that the filters in columns of other tables will take, which have so many keys for each of this one.
    pub fn filter_bytes_of(&self, keys: f64) -> usize {
        (self.places.len() as f64 * keys * self.options.filter_bits_per_key / 8.0) as usize
    }

    /// The key that came last.
    fn last_key(&self) -> &[u8] {
        if self.stage.is_some() { &self.last_key } else { self.block.last_key() }
    }

    /// Appends one version. It must lie behind the last one in internal order; `kind` is
    /// [`Kind::Put`], [`Kind::Delete`], or [`Kind::Apart`] with a reference for its value. [`Error::InvalidArgument`] otherwise, and
    /// nothing is added.
    pub fn add(&mut self, key: &[u8], lsn: Lsn, kind: Kind, value: &[u8]) -> Result<()> {
        if kind == Kind::RangeDelete {
            return Err(Error::invalid("range deletes are no table entries: they go to set_tombstones"));
        }
        self.add_kind(key, lsn, kind as u8, value)
    }

    /// As `add`, for any kind: a later version may write some that this build only skips.
    pub(super) fn add_kind(&mut self, key: &[u8], lsn: Lsn, kind: u8, value: &[u8]) -> Result<()> {
        self.check_usable()?;
        let key_bytes_max = KEY_BYTES_MAX + self.options.form.place_bytes();
        if key.len() > key_bytes_max || value.len() > VALUE_BYTES_MAX {
            let what = format!(
                "a table entry has {} key and {} value bytes, but at most {key_bytes_max} and {VALUE_BYTES_MAX} are \
                 allowed",
                key.len(),
                value.len()
            );
            return Err(Error::invalid(what));
        }
        debug_assert!(self.options.form.fits(key), "a key in another form than the table's");
        let first = self.contents.entries == 0;
        let ordering = match first {
            true => std::cmp::Ordering::Less,
            false => Order::of(&*self.options.comparator).compare(self.last_key(), key),
        };
        if ordering.then_with(|| lsn.cmp(&self.last_lsn)).is_ge() && !first {
            return Err(Error::invalid(format!(
                "table entries must ascend by key, then descend by LSN: {key:?} at {lsn} comes too late"
            )));
        }
        let apart = (kind == Kind::Apart as u8).then(|| ValueRef::decode(value)).transpose();
        let apart = apart.map_err(|_| Error::invalid(format!("the reference of {key:?} is malformed")))?;
        let added = self.add_checked(key, lsn, kind, value, first || ordering.is_lt());
        let value_bytes = apart.map_or(value.len() as u64, |apart| apart.value_bytes);
        self.contents.raw_bytes += self.options.form.user(key).len() as u64 + value_bytes;
        if let Some(apart) = apart {
            self.uses.add(&apart);
        }
        self.failed |= added.is_err();
        added
    }

    fn add_checked(&mut self, key: &[u8], lsn: Lsn, kind: u8, value: &[u8], new_key: bool) -> Result<()> {
        if let Some(stage) = &mut self.stage {
            let (place, user_key) = hashed::split(key)
                .map_err(|_| Error::invalid(format!("{key:?} is too short for a key behind its place")))?;
            stage.add(place, user_key, lsn, kind, value);
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        } else {
            self.push(key, lsn, kind, value)?;
        }
        if new_key && is_columned(&self.options) {
            self.places.push(key_prefix(key));
        }
        if new_key && (self.filter.is_some() || self.sampler.is_some()) {
            let hash = self.options.hasher.hash(key);
            if let Some(filter) = &mut self.filter {
                filter.add_hash(hash);
            }
            if let Some(sampler) = &mut self.sampler {
                sampler.add(hash, kind == Kind::Delete as u8);
            }
        }
        let contents = &mut self.contents;
        if contents.entries == 0 {
            contents.smallest = key.to_vec();
        }
        contents.entries += 1;
        contents.hidden += u64::from(!new_key);
        contents.deletes += u64::from(kind == Kind::Delete as u8);
        contents.min_lsn = contents.min_lsn.min(lsn);
        contents.max_lsn = contents.max_lsn.max(lsn);
        self.last_lsn = lsn;
        Ok(())
    }

    /// Appends a version to the blocks.
    #[inline]
    fn push(&mut self, key: &[u8], lsn: Lsn, kind: u8, value: &[u8]) -> Result<()> {
        if !self.block.is_empty() && self.block.bytes_with(key, lsn, value) > self.block_room {
            self.finish_block()?;
        }
        if self.block.is_empty() {
            self.block_room = self.room_of_block(key.len() + value.len());
        }
        self.write_due_fence(Some(key));
        // Behind the end of a block that it does not belong to.
        if std::mem::take(&mut self.next_is_in_use)
            && let Some(warm) = &mut self.warm
        {
            warm.next_is_in_use();
        }
        self.last_pushed = lsn;
        self.block.add(key, lsn, kind, value);
        if self.block.bytes() >= self.block_room {
            self.finish_block()?;
        }
        Ok(())
    }

    /// Bytes that the block that begins with so large an entry may have, if it gets another one.
    fn room_of_block(&self, entry_bytes: usize) -> usize {
        let most = self.options.block_bytes;
        if !self.keeps_to_pages {
            return most;
        }
        // A block that is not made longer leaves its end to the next one, which is so much shorter; where that would have few
        // entries, there is nothing to win.
        let to_end = most.saturating_sub(self.out.offset as usize % PAGE_BYTES + TRAILER_BYTES);
        if to_end >= (most / 2).min(4 * entry_bytes) { to_end } else { most - TRAILER_BYTES }
    }

    fn finish_block(&mut self) -> Result<()> {
        let entries = self.block.len();
        let (from, most) = (self.out.offset as usize, self.options.block_bytes / PADDING_OF);
        let block = self.block.finish(|bytes| {
            let end = from + bytes + TRAILER_BYTES;
            let padding = end.next_multiple_of(PAGE_BYTES) - end;
            if self.keeps_to_pages && padding <= most { padding } else { 0 }
        });
        let frame = self.encoder.encode(block, self.contents.seed, self.out.offset)?;
        let place = self.out.append_frame(&frame)?;
        if let Some(warm) = &mut self.warm {
            warm.written(place.offset, block, entries);
        }
        self.block.clear(BLOCK_KEEP_BYTES);
        self.fence_due = Some(place.end());
        Ok(())
    }

    /// Writes the fence of the last data block, as short as the next entry allows.
    fn write_due_fence(&mut self, next: Option<&[u8]>) {
        let Some(end) = self.fence_due.take() else { return };
        let last = self.block.last_key();
        let (fence, lsn) = match next {
            Some(key) if key == last => (last, self.last_pushed),
            Some(key) if self.bytewise => (separator(last, key), Lsn::ZERO),
            _ => (last, Lsn::ZERO),
        };
        self.index.add(fence, lsn, end);
        if self.index.bytes() >= self.options.index_block_bytes {
            self.leaf_bytes += self.index.bytes();
            let next = IndexBuilder::new(self.bytewise, end);
            self.leaves.push(std::mem::replace(&mut self.index, next));
        }
    }

    /// Sets the range tombstones of the table; the last call counts.
    pub fn set_tombstones(&mut self, tombstones: Tombstones) {
        self.tombstones = tombstones;
    }

    /// Bytes of the file if it were finished now, about.
    pub fn estimated_bytes(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, FilterBuilder::estimated_bytes);
        let staged = self.stage.as_ref().map_or(0, Stage::estimated_bytes);
        self.out.offset + staged + (self.block.bytes() + self.index.bytes() + self.leaf_bytes + filter) as u64
    }

    /// Bytes of values apart that the entries refer to.
    pub fn referred_bytes(&self) -> u64 {
        self.uses.bytes()
    }

    /// True if there is nothing to write: no entry and no range tombstone.
    pub fn is_empty(&self) -> bool {
        self.contents.entries == 0 && self.tombstones.is_empty()
    }

    /// Writes the rest, syncs the file and describes it; and what memory the next writer may have. [`Error::InvalidArgument`] for an
    /// empty table.
    pub fn finish(mut self) -> Result<(TableMeta, Spare)> {
        self.check_usable()?;
        if self.is_empty() {
            return Err(Error::invalid("a table needs an entry or a range tombstone"));
        }
        if self.options.form.placer().is_some() && !self.tombstones.is_empty() {
            return Err(Error::invalid(
                "a table of keys behind their places has no ranges, so no range tombstones",
            ));
        }
        if self.contents.entries != 0 {
            self.contents.largest = self.last_key().to_vec();
        }
        self.contents.sample = self.sampler.take().map(Sampler::finish).unwrap_or_default();
        let stage = self.stage.take();
        let mut poured = stage.as_ref().map(|stage| self.pour(stage)).transpose()?.flatten();
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        self.write_due_fence(None);
        self.count_tombstones();
        let mut properties = Properties {
            comparator: self.options.comparator.name().to_owned(),
            block_bytes: self.options.block_bytes as u64,
            placed: placed(self.options.form),
            ..Properties::default()
        };
        let seed = self.contents.seed;
        self.encoder.begin_other();
        if !self.tombstones.is_empty() {
            let block = tombstone_block::encode(&self.tombstones);
            let frame = self.encoder.encode(&block, seed, self.out.offset)?;
            properties.tombstones = Some((self.out.append_frame(&frame)?, Form::Fragments));
        }
        if let Some(filter) = self.filter.take().filter(|filter| !filter.is_empty()) {
            let frame_offset = self.out.offset;
            let filter = filter.finish();
            properties.filter =
                Some(self.out.append_frame(&FrameEncoder::encode_raw(&filter, seed, frame_offset))?);
            properties.filter_check = self.options.hasher.check_value();
        }
        if let Some((hashed, records, special)) = &mut poured {
            let mut part = |bytes: &[u8]| {
                let frame = FrameEncoder::encode_raw(bytes, seed, self.out.offset);
                (!bytes.is_empty()).then(|| self.out.append_frame(&frame)).transpose()
            };
            (hashed.records, hashed.special) = (part(records)?, part(special)?);
        }
        properties.hashed = poured.map(|(hashed, ..)| hashed);
        properties.cluster = self.cluster.take();
        self.write_index(&mut properties)?;
        // What only the choice of a job hangs on is the manifest's: files are as they always were.
        let block = properties.encode(&TableMeta { hidden: 0, values: Vec::new(), ..self.contents.clone() });
        let frame = FrameEncoder::encode_raw(&block, seed, self.out.offset);
        let place = self.out.append_frame(&frame)?;
        let file_bytes = self.out.offset + FOOTER_BYTES as u64;
        self.out.append(&Footer { properties: place, seed, file_bytes }.encode())?;
        self.contents.content_hash = self.out.finish()?;
        self.contents.file_bytes = file_bytes;
        // Of the files it knows no more than their ids: whoever wrote them, or the inputs, does.
        self.contents.values = self.uses.finish();
        Ok((self.contents, Spare { buffer: Some(self.out.buffer), stage: stage.map(Stage::emptied) }))
    }

    /// Writes what was staged: buckets, and to blocks what no bucket takes. What the properties say of the buckets, their records,
    /// and the bits of those that have something elsewhere; `None` if the table is a sorted one.
    fn pour(&mut self, stage: &Stage) -> Result<Option<(Hashed, Vec<u8>, Vec<u8>)>> {
        let stored_key = |place: u64, key: &[u8]| [&place.to_be_bytes()[..], key].concat();
        let Some(poured) = stage.pour(self.contents.min_lsn, self.contents.max_lsn) else {
            self.write_cluster()?;
            for (place, Entry { key, lsn, kind, value }) in stage.entries() {
                self.push(&stored_key(place, key), lsn, kind, value)?;
            }
            return Ok(None);
        };
        let Poured { shape, usual, balanced, .. } = &poured;
        let mut left: Vec<Option<&Record>> = vec![None; shape.buckets()];
        balanced.records.iter().for_each(|record| left[usize::from(record.source)] = Some(record));
        let mut body = Vec::new();
        for (bucket, left) in left.into_iter().enumerate() {
            stage.bucket(&poured, bucket, left, &mut body);
            let frame = FrameEncoder::encode_raw(&body, self.contents.seed, self.out.offset);
            self.out.append_frame(&frame)?;
        }
        self.write_cluster()?;
        let mut special = Vec::new();
        for item in &balanced.left_over {
            let home = poured.home(stage, *item);
            special.resize(shape.buckets().div_ceil(8), 0);
            special[home / 8] |= 1u8 << (home % 8);
            for (place, Entry { key, lsn, kind, value }) in stage.item(&poured, *item) {
                self.push(&stored_key(place, key), lsn, kind, value)?;
            }
        }
        let records = balanced.records.iter().flat_map(|record| record.encode()).collect();
        let hashed = Hashed {
            buckets: shape.buckets() as u64,
            entries: poured.entries_in_buckets(),
            steps: balanced.steps.into(),
            usual: *usual,
            records: None,
            special: None,
        };
        Ok(Some((hashed, records, special)))
    }

    /// Writes the filters in columns, if they are to be; data blocks come behind.
    fn write_cluster(&mut self) -> Result<()> {
        let (seed, bits) = (self.contents.seed, self.options.filter_bits_per_key);
        let places = std::mem::take(&mut self.places);
        let own = self.options.grid.and_then(|grid| columns_of(self.contents.id, grid, &places, bits));
        if let (Some(own), Some(grid)) = (own, self.options.grid) {
            let rows = [own].into_iter().chain(std::mem::take(&mut self.pile)).collect();
            if let Some((cluster, rows)) = Cluster::new(grid, rows, self.out.offset) {
                let mut body = Vec::new();
                for page in 0..cluster.pages() {
                    cluster.page(page, &rows, &mut body);
                    self.out.append_frame(&FrameEncoder::encode_raw(&body, seed, self.out.offset))?;
                }
                self.cluster = Some(cluster);
            }
        }
        self.data_start = self.out.offset;
        self.index = IndexBuilder::new(self.bytewise, self.data_start);
        Ok(())
    }

    /// Writes the index: one block if it is small, else its blocks and their root.
    fn write_index(&mut self, properties: &mut Properties) -> Result<()> {
        let seed = self.contents.seed;
        let mut leaves = std::mem::take(&mut self.leaves);
        leaves.push(std::mem::replace(&mut self.index, IndexBuilder::new(self.bytewise, 0)));
        if self.leaf_bytes <= self.options.index_root_bytes {
            let mut whole = IndexBuilder::new(self.bytewise, self.data_start);
            leaves.iter().for_each(|leaf| whole.append(leaf));
            leaves = vec![whole];
        }
        let mut root = IndexBuilder::new(self.bytewise, self.out.offset);
        let mut blocks = 0;
        for leaf in &leaves {
            let Some((key, lsn)) = leaf.last() else { continue };
            let block = leaf.finish();
            let frame = self.encoder.encode(&block, seed, self.out.offset)?;
            let place = self.out.append_frame(&frame)?;
            root.add(key, lsn, place.end());
            properties.index = Some(place);
            blocks += 1;
        }
        if blocks > 1 {
            let block = root.finish();
            let frame = self.encoder.encode(&block, seed, self.out.offset)?;
            properties.index = Some(self.out.append_frame(&frame)?);
        }
        properties.index_depth = blocks.min(2);
        Ok(())
    }

    /// Extends bounds and counts by the range tombstones, the entries being done.
    fn count_tombstones(&mut self) {
        let comparator = &*self.options.comparator;
        let contents = &mut self.contents;
        let had_entries = contents.entries != 0;
        contents.range_tombstones = self.tombstones.len() as u64;
        let mut first = true;
        for tombstone in self.tombstones.iter() {
            let is_smallest = comparator.compare(tombstone.start, &contents.smallest).is_lt();
            if first && (!had_entries || is_smallest) {
                contents.smallest = tombstone.start.to_vec();
            }
            if (first && !had_entries) || comparator.compare(tombstone.end, &contents.largest).is_gt() {
                contents.largest = tombstone.end.to_vec();
                contents.largest_exclusive = true;
            }
            contents.min_lsn = contents.min_lsn.min(tombstone.lsn);
            contents.max_lsn = contents.max_lsn.max(tombstone.lsn);
            contents.raw_bytes += (tombstone.start.len() + tombstone.end.len()) as u64;
            first = false;
        }
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            let path = self.path.display();
            return Err(Error::invalid(format!(
                "an earlier write of {path} failed: remove it and start again"
            )));
        }
        Ok(())
    }
}
