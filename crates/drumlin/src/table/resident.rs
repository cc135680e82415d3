//! What an open table keeps in memory: the file, the index root, the filter, the range tombstones.
//!
//! Place: a [`super::TableHandle`] loads one on first use; cursors share it; `verify` loads one of
//! its own, with whatever parts of it are sound.
//!
//! Invariants:
//! 1. Everything held was checked: checksums, the structure of the root, the table's identity.
//! 2. A filter made with another secret is not used (it would deny keys that are there).
//!
//! Concurrency: immutable. Tests: `table/tests/`.

use std::path::Path;
use std::sync::Arc;

use crate::budget::Charge;
use crate::cache::{BlockCache, SharedBlock, Shortcuts};
use crate::encoding::Malformed;
use crate::env::{FileSystem, PAGE_BYTES, ReadMode, ReadableFile};
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::iter::Tombstones;
use crate::table::block::Order;
use crate::table::footer::{FOOTER_BYTES, Footer};
use crate::table::frame::{self, Origin, TRAILER_BYTES};
use crate::table::hashed::{Cluster, HashedParts, Records};
use crate::table::index::{Index, Place};
use crate::table::properties::Properties;
use crate::table::stored::Stored;
use crate::table::{TableId, TableMeta, TableOptions, tombstone_block};

/// Bytes read at once from the end of the file: footer, properties and often all the rest.
const TAIL_BYTES: u64 = 4 * PAGE_BYTES as u64;
/// Frames from here on are read straight into their final memory if they are not compressed.
const LARGE_FRAME_BYTES: u64 = 1 << 20;

/// What an open file costs besides, about: its handle and its path.
const OPEN_FILE_BYTES: usize = 256;
/// Records of migration that a table holds whose filter lies in columns, in percent of its buckets: memory is short, and those of the
/// buckets that had most too much spare nearly as many reads. Origin: LSM-trie §2.4.2.
const RECORDS_PERCENT: u8 = 20;

/// An open table. There may be many, so it keeps of its properties what reads need; and what gets look at lies in front, side by side.
#[repr(C)]
pub(super) struct Resident {
    gate: Gate,
    /// Of a hashed table.
    hashed: Option<HashedParts>,
    file: Arc<dyn ReadableFile>,
    root: Option<SharedBlock>,
    /// To the children of a root that has no leaves.
    shortcuts: Option<Shortcuts>,
    pub(super) footer: Footer,
    /// The index, if it has one.
    index: Place,
    /// All records of migration, whatever it holds of them.
    records: Option<Place>,
    /// Offset behind the last data block, or bucket.
    data_end: u64,
    /// Bytes of a filter that it has in the file and not here.
    lacks: usize,
    pub(super) tombstones: Arc<Tombstones>,
    parts: Parts,
    /// What the parts take, while anybody holds them.
    pub(super) charge: Option<Charge>,
}

/// What most gets look at, and at nothing else: in one line of the cache.
#[repr(align(64))]
struct Gate {
    filter: Option<Filter>,
    has_tombstones: bool,
    has_leaves: bool,
    /// Its filter beside those of the tables under it, in place of one of its own.
    cluster: Option<Box<Cluster>>,
}

/// How a table is to be opened.
pub(super) struct Loading<'a> {
    /// Clusters are asked for it: neither is its filter needed, nor all of its records.
    pub(super) is_told: bool,
    /// Whether there is room for a table of so many bytes: else its filter is left in the file.
    pub(super) has_room: &'a dyn Fn(usize) -> bool,
    /// Told of a part that is wrong. It is left out if that returns; else there is no table.
    pub(super) on_problem: &'a mut dyn FnMut(Error) -> Result<()>,
}

/// Bytes that open tables keep in memory, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Index roots, properties, the handles of the files; of hashed tables records of migration and clusters; shortcuts.
    pub index: usize,
    /// Filters.
    pub filter: usize,
    /// Range tombstones.
    pub tombstones: usize,
}

impl Parts {
    /// All together.
    pub fn sum(&self) -> usize {
        self.index + self.filter + self.tombstones
    }
}

/// Opens the file of the table that `meta` describes.
fn open_file(
    fs: &dyn FileSystem,
    reads: ReadMode,
    path: &Path,
    meta: &TableMeta,
) -> Result<Arc<dyn ReadableFile>> {
    let file = match fs.open(path, reads) {
        // Here for all: a get, a scan, a job, `verify`. A table goes when no manifest names it.
        Err(error) if error.is_missing_file() => {
            let what = "the manifest names this table, but the file is missing (a store that was opened with level_paths needs the \
                        same at each open)";
            return Err(Error::corruption(path, None, what));
        }
        opened => opened?,
    };
    if file.bytes() != meta.file_bytes {
        let what = format!("the file has {} bytes, the manifest says {}", file.bytes(), meta.file_bytes);
        return Err(Error::corruption(path, None, what));
    }
    Ok(file)
}

impl Resident {
    /// Opens the table at `path` that `meta` describes, as `loading` says. A handful of reads. Without the properties, which say where the
    /// parts are, there is no table.
    pub(super) fn load(
        fs: &dyn FileSystem,
        reads: ReadMode,
        path: &Path,
        meta: &TableMeta,
        options: &TableOptions,
        loading: Loading<'_>,
    ) -> Result<(Resident, Properties)> {
        let Loading { is_told, has_room, on_problem: problem } = loading;
        let file = open_file(fs, reads, path, meta)?;
        let tail = Tail::read(&*file, path)?;
        let footer = tail.footer(path)?;
        if footer.seed != meta.seed {
            let what =
                format!("it is the table written as {}, the manifest expects {}", footer.seed, meta.seed);
            return Err(Error::corruption(path, tail.footer_offset(), what));
        }
        let block = |place: Place| {
            tail.block(&*file, Origin { path, seed: footer.seed, offset: place.offset }, place)
        };
        let (properties, contents) = Properties::decode(&block(footer.properties)?, path, footer.properties)?;
        check_same(&properties, &contents, meta, options, path, footer.properties).or_else(&mut *problem)?;

        let malformed = |place: Place, what: &str| Error::corruption(path, place.offset, what);
        let data_end = properties.parts().chain([footer.properties]).map(|place| place.offset).min();
        let mut resident = Resident {
            gate: Gate {
                filter: None,
                has_tombstones: meta.range_tombstones > 0,
                has_leaves: properties.index_depth == 2,
                cluster: properties.cluster.clone().map(Box::new),
            },
            hashed: None,
            file: file.clone(),
            root: None,
            shortcuts: None,
            footer,
            index: properties.index.unwrap_or_default(),
            records: properties.hashed.as_ref().and_then(|hashed| hashed.records),
            data_end: data_end.unwrap_or(0),
            lacks: 0,
            tombstones: Arc::new(Tombstones::EMPTY),
            parts: Parts { index: size_of::<Resident>() + OPEN_FILE_BYTES, ..Parts::default() },
            charge: None,
        };
        if let Some(place) = properties.index {
            let root = block(place).and_then(|root| {
                check_index(&root, options).map_err(|_| malformed(place, "the index root is malformed"))?;
                Ok(root)
            });
            resident.root = kept(root, problem)?;
            resident.parts.index += resident.root.as_ref().map_or(0, |root| root.len());
        }
        let cluster = resident.cluster();
        let cluster_bytes = cluster.map_or(0, |cluster| size_of::<Cluster>() + cluster.heap_bytes());
        resident.parts.index += cluster_bytes;
        if let Some(hashed) = &properties.hashed {
            let is_columned = is_told || resident.cluster().is_some();
            let percent = options.records_percent.or(is_columned.then_some(RECORDS_PERCENT));
            let most = percent
                .map_or(usize::MAX, |percent| (hashed.buckets * u64::from(percent)).div_ceil(100) as usize);
            let parts = [hashed.records, hashed.special].map(|part| part.map(block).transpose());
            let [records, special] = parts;
            let (records, special) = (records?, special?);
            let (records, special) =
                (records.as_deref().unwrap_or_default(), special.as_deref().unwrap_or_default());
            // Without it nothing can be found: there is no table.
            let parts = HashedParts::new(hashed, meta, records, special, most)
                .map_err(|_| malformed(footer.properties, "the records of its buckets are malformed"))?;
            resident.parts.index += parts.heap_bytes();
            resident.hashed = Some(parts);
        }
        let made_here = properties.filter_check == options.hasher.check_value();
        let filter = properties.filter.filter(|_| made_here).filter(|_| !is_told);
        let bytes = filter.map_or(0, |place| place.bytes as usize);
        resident.lacks = if has_room(resident.parts.sum() + bytes) { 0 } else { bytes };
        if let Some(place) = filter.filter(|_| resident.lacks == 0) {
            let filter = block(place).and_then(|filter| {
                Filter::decode(&filter).ok_or_else(|| malformed(place, "the filter is malformed"))
            });
            resident.gate.filter = kept(filter, problem)?;
            resident.parts.filter = resident.gate.filter.as_ref().map_or(0, Filter::heap_bytes);
        }
        if let Some((place, form)) = properties.tombstones {
            let tombstones = block(place).and_then(|block| {
                tombstone_block::decode(&block, form, &*options.comparator, meta.global_version)
                    .map_err(|_| malformed(place, "the range tombstones are malformed"))
            });
            if let Some(tombstones) = kept(tombstones, problem)? {
                resident.parts.tombstones = tombstones.heap_bytes();
                resident.tombstones = Arc::new(tombstones);
            }
        }
        Ok((resident, properties))
    }

    /// What the table at `path` says of itself: as the manifest would have it but for the content hash, and its properties.
    pub(super) fn own_account(fs: &dyn FileSystem, path: &Path) -> Result<(TableMeta, Properties)> {
        let file = fs.open(path, ReadMode::Buffered)?;
        let tail = Tail::read(&*file, path)?;
        let footer = tail.footer(path)?;
        let place = footer.properties;
        let block = tail.block(&*file, Origin { path, seed: footer.seed, offset: place.offset }, place)?;
        let (properties, contents) = Properties::decode(&block, path, place)?;
        Ok((TableMeta { file_bytes: file.bytes(), seed: footer.seed, ..contents }, properties))
    }

    /// Bytes held, about.
    pub(super) fn parts(&self) -> Parts {
        self.parts
    }

    /// Bytes of the filter that was left in the file.
    pub(super) fn lacks(&self) -> usize {
        self.lacks
    }

    /// The file.
    pub(super) fn file(&self) -> &Arc<dyn ReadableFile> {
        &self.file
    }

    /// Starts to load what `may_contain` will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(filter) = &self.gate.filter {
            filter.prefetch(hash);
        }
    }

    /// False only if no entry has a key of this hash.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.gate.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// True only if the table says nothing of a key of this hash, nor of any.
    #[inline]
    pub(super) fn denies(&self, hash: u64) -> bool {
        !self.gate.has_tombstones && !self.may_contain(hash)
    }

    /// The index root; `None` for a table without entries.
    #[inline]
    pub(super) fn root(&self) -> Option<Index<'_>> {
        self.root.as_ref().and_then(|root| Index::parse(root).ok())
    }

    /// Where a child of the root lies.
    #[inline]
    pub(super) fn child(&self, root: &Index<'_>, child: usize) -> Result<Place> {
        root.place(child).map_err(self.malformed_root())
    }

    /// From now on it has shortcuts to its blocks, if the root leads to them.
    pub(super) fn take_shortcuts(&mut self, cache: &Arc<BlockCache>, id: TableId) {
        let blocks =
            self.root().filter(|_| !self.has_leaves() && self.hashed.is_none()).map_or(0, |root| root.len());
        if blocks > 0 {
            self.shortcuts = Some(Shortcuts::new(Arc::clone(cache), id.0, blocks));
            self.parts.index += Shortcuts::bytes(blocks);
        }
    }

    /// Shortcuts to the root's children.
    #[inline]
    pub(super) fn shortcuts(&self) -> Option<&Shortcuts> {
        self.shortcuts.as_ref()
    }

    /// True if the root's children are index blocks.
    #[inline]
    pub(super) fn has_leaves(&self) -> bool {
        self.gate.has_leaves
    }

    /// Its filter in columns.
    #[inline]
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        self.gate.cluster.as_deref()
    }

    /// What a hashed table holds.
    #[inline]
    pub(super) fn hashed(&self) -> Option<&HashedParts> {
        self.hashed.as_ref()
    }

    /// All records of a hashed table, whatever it holds of them.
    pub(super) fn all_records(&self) -> Result<Records> {
        let place = self.records;
        let stored = place.map(|place| self.read(place)).transpose()?;
        let buckets = self.hashed.as_ref().map_or(0, |hashed| hashed.shape.buckets());
        let bytes = stored.as_deref().map_or(&[][..], |stored| stored);
        Records::decode(bytes, buckets, usize::MAX).map_err(self.malformed(place.unwrap_or_default()))
    }

    /// Offset behind the last data block, or bucket.
    pub(super) fn data_end(&self) -> u64 {
        self.data_end
    }

    /// Where a frame of this table lies, for checking it.
    pub(super) fn origin(&self, place: Place) -> Origin<'_> {
        Origin { path: self.file.path(), seed: self.footer.seed, offset: place.offset }
    }

    /// The error for a block that its checksum approves but that is none.
    pub(super) fn malformed(&self, place: Place) -> impl Fn(Malformed) -> Error + '_ {
        move |_| {
            Error::corruption(
                self.file.path(),
                place.offset,
                "a block is malformed although its checksum is right",
            )
        }
    }

    /// The same for the index root.
    pub(super) fn malformed_root(&self) -> impl Fn(Malformed) -> Error + '_ {
        self.malformed(self.index)
    }

    /// Reads, checks and decompresses one block. One read, two for a large frame.
    pub(super) fn read(&self, place: Place) -> Result<SharedBlock> {
        read_block(&*self.file, self.origin(place), place)
    }

    /// The frame at `place`, if it is one of those that are read at once.
    pub(super) fn read_stored(&self, place: Place) -> Result<Option<Stored>> {
        let read = || Stored::read(&*self.file, place.offset, place.bytes as usize);
        is_read_at_once(self.footer.file_bytes, place).then(read).transpose()
    }

    /// As `read`, for an index block.
    pub(super) fn read_leaf(&self, place: Place, options: &TableOptions) -> Result<SharedBlock> {
        self.checked_leaf(self.read(place)?, place, options)
    }

    fn checked_leaf(&self, leaf: SharedBlock, place: Place, options: &TableOptions) -> Result<SharedBlock> {
        check_index(&leaf, options).map_err(self.malformed(place))?;
        Ok(leaf)
    }

    /// What `read` makes of the bytes of such a block.
    pub(super) fn decode(&self, place: Place, stored: &[u8]) -> Result<SharedBlock> {
        frame::check(stored, self.origin(place))?.to_shared()
    }

    /// What `read_leaf` makes of them.
    pub(super) fn decode_leaf(
        &self,
        place: Place,
        stored: &[u8],
        options: &TableOptions,
    ) -> Result<SharedBlock> {
        self.checked_leaf(self.decode(place, stored)?, place, options)
    }
}

/// The part, if nothing is wrong with it.
fn kept<T>(part: Result<T>, problem: &mut dyn FnMut(Error) -> Result<()>) -> Result<Option<T>> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(error) => problem(error).map(|()| None),
    }
}

fn check_index(block: &[u8], options: &TableOptions) -> Result<(), Malformed> {
    Index::parse(block)?.validate(Order::of(&*options.comparator))
}

/// True if `read_block` takes the frame of a file of so many bytes by one read into a buffer.
pub(super) fn is_read_at_once(file_bytes: u64, place: Place) -> bool {
    place.end() <= file_bytes && (TRAILER_BYTES as u64..LARGE_FRAME_BYTES).contains(&place.bytes)
}

/// The frame at `place`, decoded.
pub(super) fn read_block(file: &dyn ReadableFile, origin: Origin<'_>, place: Place) -> Result<SharedBlock> {
    if place.end() > file.bytes() || place.bytes < TRAILER_BYTES as u64 {
        return Err(origin.corruption("a block would end behind the file"));
    }
    if place.bytes < LARGE_FRAME_BYTES {
        let stored = Stored::read(file, place.offset, place.bytes as usize)?;
        return frame::check(&stored, origin)?.to_shared();
    }
    let mut trailer = [0; TRAILER_BYTES];
    let body_bytes = place.bytes as usize - TRAILER_BYTES;
    file.read_exact_at(&mut trailer, place.offset + body_bytes as u64)?;
    let mut body = SharedBlock::zeroed(body_bytes);
    let buffer = body.get_mut().expect("nobody else has it yet");
    file.read_exact_at(buffer, place.offset)?;
    let checked = frame::check_parts(&body, &trailer, origin)?;
    if checked.is_raw() { Ok(body) } else { checked.to_shared() }
}

/// The end of a file, read at once.
struct Tail {
    bytes: Vec<u8>,
    offset: u64,
}

impl Tail {
    fn read(file: &dyn ReadableFile, path: &Path) -> Result<Tail> {
        let length = file.bytes();
        if length < FOOTER_BYTES as u64 {
            return Err(Error::corruption(path, None, format!("{length} bytes are too short for a table")));
        }
        let offset = length.saturating_sub(TAIL_BYTES);
        let mut bytes = vec![0; (length - offset) as usize];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Tail { bytes, offset })
    }

    fn file_bytes(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn footer_offset(&self) -> u64 {
        self.file_bytes() - FOOTER_BYTES as u64
    }

    fn footer(&self, path: &Path) -> Result<Footer> {
        let bytes = self.bytes.last_chunk::<FOOTER_BYTES>().expect("at least a footer was read");
        Footer::decode(bytes, path, self.file_bytes())
    }

    /// The block at `place`, from the tail if it holds it.
    fn block(&self, file: &dyn ReadableFile, origin: Origin<'_>, place: Place) -> Result<SharedBlock> {
        match place.offset.checked_sub(self.offset) {
            Some(start) if place.end() <= self.file_bytes() => {
                let (start, bytes) = (start as usize, place.bytes as usize);
                frame::check(&self.bytes[start..start + bytes], origin)?.to_shared()
            }
            _ => read_block(file, origin, place),
        }
    }
}

/// Checks that the file is the one that `meta` describes, in the order that the options give.
fn check_same(
    properties: &Properties,
    found: &TableMeta,
    meta: &TableMeta,
    options: &TableOptions,
    path: &Path,
    place: Place,
) -> Result<()> {
    if properties.comparator != options.comparator.name() {
        let why = format!(
            "its keys are ordered by {:?}, the keyspace by {:?}",
            properties.comparator,
            options.comparator.name()
        );
        return Err(Error::Unsupported { path: path.to_path_buf(), why });
    }
    if !properties.is_of(options.form) {
        let why = "its keys stand behind other hashes than the keyspace's: it is of another store, or of another layout";
        return Err(Error::Unsupported { path: path.to_path_buf(), why: why.into() });
    }
    let same = found.entries == meta.entries
        && found.deletes == meta.deletes
        && found.range_tombstones == meta.range_tombstones
        && found.smallest == meta.smallest
        && found.largest == meta.largest
        && found.largest_exclusive == meta.largest_exclusive
        && found.raw_bytes == meta.raw_bytes
        && (meta.global_version.is_some() || (found.min_lsn, found.max_lsn) == (meta.min_lsn, meta.max_lsn));
    if !same {
        return Err(Error::corruption(
            path,
            place.offset,
            "the table's properties are not what the manifest says",
        ));
    }
    Ok(())
}
