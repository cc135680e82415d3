//! Taking a table file apart for whoever wants to see what is in it.
//!
//! Place: behind [`crate::inspect::table`]. What is wrong with the file is judged by `verify`, once; here the parts are
//! described, each as far as it can be read.
//!
//! Invariants:
//! 1. Nothing is shown of a frame whose checksum is wrong; where the footer's own is, it is believed only as far as what
//!    it points to has a checksum that fits.
//! 2. What cannot be read is told, and the next part is looked at: no part keeps one from being shown that does not
//!    depend on it.
//! 3. Needs neither manifest nor order of keys: the order is needed to judge a table, not to list it.
//!
//! Memory: one block, the index and the filter. Tests: `table/tests/inspect.rs`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::env::{FileSystem, ReadMode, ReadableFile};
use crate::error::{Corruption, Error, Result};
use crate::filter::Filter;
use crate::key::{KeyHasher, Kind, Lsn, PLACE_BYTES, bytewise};
use crate::table::block::Block;
use crate::table::footer::{FOOTER_BYTES, Footer};
use crate::table::frame::{self, Origin, TRAILER_BYTES};
use crate::table::hashed::{BUCKET_BYTES, Bucket, CAPACITY, Hashed, RECORD_BYTES, Usual};
use crate::table::index::{Index, Place};
use crate::table::properties::Properties;
use crate::table::{TableMeta, ValueRef, file_name, tombstone_block, verify_alone};

/// Questions by which a filter's rate of false positives is measured: for each key of the table, since a good one errs once in thousands.
const QUESTIONS_PER_KEY: u64 = 16;
/// Questions at least, and at most, whatever number of keys a damaged table tells.
const QUESTIONS: RangeInclusive<u64> = 1 << 17..=1 << 22;
/// False positives that tell the rate to a thirtieth.
const ENOUGH: u64 = 1 << 10;

/// What a table holds, as its properties or a manifest say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Its number in the store.
    pub id: u64,
    /// The name of its file; empty in a table's own account, which does not know its content hash.
    pub file: String,
    /// Bytes of its file; 0 in a table's own account.
    pub file_bytes: u64,
    /// Versions, deletes included, range deletes not.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Range deletes, as pieces that do not overlap times their versions.
    pub range_tombstones: u64,
    /// The smallest key, or the start of a range delete.
    pub smallest: Vec<u8>,
    /// The largest key, or the end of a range delete.
    pub largest: Vec<u8>,
    /// True if `largest` itself is outside.
    pub largest_exclusive: bool,
    /// The oldest version.
    pub min_lsn: u64,
    /// The newest version.
    pub max_lsn: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// When it was written, in milliseconds since the Unix epoch; 0 if nobody said.
    pub created_at_ms: u64,
}

impl TableInfo {
    /// What a record of a table says.
    pub(crate) fn of(meta: &TableMeta) -> TableInfo {
        let named = meta.content_hash != 0;
        TableInfo {
            id: meta.id.0,
            file: if named { file_name(meta.id, meta.content_hash) } else { String::new() },
            file_bytes: meta.file_bytes,
            entries: meta.entries,
            deletes: meta.deletes,
            range_tombstones: meta.range_tombstones,
            smallest: meta.smallest.clone(),
            largest: meta.largest.clone(),
            largest_exclusive: meta.largest_exclusive,
            min_lsn: meta.min_lsn.0,
            max_lsn: meta.max_lsn.0,
            raw_bytes: meta.raw_bytes,
            created_at_ms: meta.created_at_ms,
        }
    }
}

/// A part of a table file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TablePart {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file, compressed, with the checksum.
    pub bytes: u64,
    /// Bytes once decompressed; `None` if it cannot be read.
    pub raw_bytes: Option<u64>,
    /// `none`, `lz4` or `zstd`; empty if it cannot be read.
    pub compression: &'static str,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// One version in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Where it begins in the decompressed block.
    pub offset: u64,
    /// The key.
    pub key: Vec<u8>,
    /// When it was written.
    pub lsn: u64,
    /// `put`, `delete`, `put, value apart`, or `unknown`.
    pub kind: &'static str,
    /// Bytes of the value, wherever it lies.
    pub value_bytes: u64,
    /// The value file that it lies in, and the offset there; if it lies apart.
    pub apart: Option<(u64, u64)>,
}

/// One data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableBlock {
    /// From 0.
    pub number: u64,
    /// Where it lies.
    pub part: TablePart,
    /// The key that the index has for its end: no entry of it lies behind.
    pub fence: Vec<u8>,
    /// What it holds; up to where it could be read.
    pub entries: Vec<TableEntry>,
}

/// The filter.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFilter {
    /// Where it lies.
    pub part: TablePart,
    /// Bits for each key; each version counts if some blocks could not be read.
    pub bits_per_key: f64,
    /// Bits that a question looks at; 0 for a kind that this build does not know.
    pub probes: u8,
    /// The share of keys that are not there for which it says that they may be, measured.
    pub false_positives: f64,
    /// Whether it was made with the store's secret: else it is not asked. `None` if the secret is not known.
    pub is_asked: Option<bool>,
}

/// One piece of the range deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTombstone {
    /// The first key that is deleted.
    pub start: Vec<u8>,
    /// The first key behind that is not.
    pub end: Vec<u8>,
    /// When it was written.
    pub lsn: u64,
}

/// The buckets of a hashed table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableBuckets {
    /// Buckets, each of 4096 bytes.
    pub buckets: u64,
    /// Versions in them; the others lie in the sorted part, whose blocks come behind the buckets.
    pub entries: u64,
    /// Buckets that sent away what was too much for them.
    pub sources: u64,
    /// Steps from an entry's home to where it lies, at most.
    pub steps: u64,
    /// Bytes of entries in buckets, of those that they can hold.
    pub fill: f64,
}

/// What a table file is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableReport {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Where the footer begins, and the seed of the checksums, which is the table's number; `None` if it cannot be read.
    pub footer: Option<(u64, u64)>,
    /// Where the properties lie.
    pub properties: Option<TablePart>,
    /// What the properties say it holds.
    pub contents: Option<TableInfo>,
    /// The name of the order of its keys.
    pub comparator: String,
    /// True if keys stand behind their hashes: then bounds and fences have eight bytes in front, and may be cut short.
    pub is_placed: bool,
    /// Bytes at which a block was full when it was written.
    pub full_block_bytes: u64,
    /// The root of the index.
    pub index: Option<TablePart>,
    /// The index blocks below the root, where there are any.
    pub index_leaves: Vec<TablePart>,
    /// The filter.
    pub filter: Option<TableFilter>,
    /// Where the range deletes lie.
    pub tombstone_block: Option<TablePart>,
    /// The range deletes, by start.
    pub tombstones: Vec<TableTombstone>,
    /// Of a hashed table, its buckets.
    pub buckets: Option<TableBuckets>,
    /// Data blocks that the index names, and buckets.
    pub blocks: u64,
    /// Of these, such as could be read.
    pub blocks_read: u64,
    /// Bytes of those in the file.
    pub block_bytes: u64,
    /// Their bytes once decompressed.
    pub block_raw_bytes: u64,
    /// Versions in them.
    pub entries: u64,
    /// Keys in them.
    pub keys: u64,
    /// Everything that is not as it was written.
    pub problems: Vec<Corruption>,
    /// What could not be checked, and why.
    pub unchecked: Vec<String>,
}

/// Takes the table at `path` apart; `on_block` is shown each data block, in order.
///
/// Errors: why the file cannot be opened or read.
pub fn inspect(
    fs: &dyn FileSystem,
    path: &Path,
    hasher: Option<KeyHasher>,
    on_block: &mut dyn FnMut(&TableBlock),
) -> Result<TableReport> {
    let file = fs.open(path, ReadMode::Buffered)?;
    let mut report = TableReport { path: path.to_path_buf(), bytes: file.bytes(), ..TableReport::default() };
    let check = verify_alone(fs, path, &[], hasher.unwrap_or_else(|| KeyHasher::new(0)), &mut |_| {});
    report.problems = check.problems;
    if let Some(failure) = check.failure {
        report.unchecked.push(format!("{} bytes: {failure}", check.unchecked));
    } else if check.unchecked > 0 {
        report
            .unchecked
            .push(format!("{} bytes: what says which blocks they are is corrupt", check.unchecked));
    }
    let mut parts = Parts {
        file: &*file,
        path,
        seed: 0,
        place_bytes: 0,
        contents: TableMeta::default(),
        block: Vec::new(),
    };
    if let Some(properties) = parts.properties(&mut report)? {
        parts.data(&properties, &mut report, on_block)?;
        parts.filter(&properties, hasher, &mut report)?;
        parts.tombstones(&properties, &mut report)?;
    }
    Ok(report)
}

/// Reads one part after the other.
struct Parts<'a> {
    file: &'a dyn ReadableFile,
    path: &'a Path,
    seed: u64,
    /// Bytes that stand in front of each key.
    place_bytes: usize,
    /// What the properties say that the table holds.
    contents: TableMeta,
    /// The part that was read last, decompressed.
    block: Vec<u8>,
}

impl Parts<'_> {
    /// Reads the part at `place` into `self.block`, which is left empty if it cannot be read.
    fn part(&mut self, place: Place) -> Result<TablePart> {
        let mut part = TablePart { offset: place.offset, bytes: place.bytes, ..TablePart::default() };
        self.block.clear();
        match self.frame(place) {
            Ok(compression) => {
                (part.raw_bytes, part.compression) = (Some(self.block.len() as u64), compression);
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => {
                self.block.clear();
                part.problem = Some(what(error));
            }
        }
        Ok(part)
    }

    fn frame(&mut self, place: Place) -> Result<&'static str> {
        let origin = Origin { path: self.path, seed: self.seed, offset: place.offset };
        if place.end() > self.file.bytes() {
            return Err(origin.corruption("it would end behind the file"));
        }
        let mut stored = vec![0; place.bytes as usize];
        self.file.read_exact_at(&mut stored, place.offset)?;
        let checked = frame::check(&stored, origin)?;
        checked.to_vec(&mut self.block)?;
        Ok(checked.compression())
    }

    /// Footer and properties. What is wrong with them was found by the check.
    fn properties(&mut self, report: &mut TableReport) -> Result<Option<Properties>> {
        let Some(offset) = self.file.bytes().checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
        let mut bytes = [0; FOOTER_BYTES];
        self.file.read_exact_at(&mut bytes, offset)?;
        let footer = Footer::decode(&bytes, self.path, self.file.bytes());
        let sound = footer.is_ok();
        let footer = footer.unwrap_or_else(|_| Footer::as_it_stands(&bytes));
        self.seed = footer.seed;
        let part = self.part(footer.properties)?;
        if !sound && part.problem.is_some() {
            return Ok(None);
        }
        report.footer = Some((offset, footer.seed));
        let properties = Properties::decode(&self.block, self.path, footer.properties);
        report.properties = Some(part);
        let Ok((properties, contents)) = properties else { return Ok(None) };
        if !sound {
            report
                .unchecked
                .push("the footer: it is wrong, but the properties that it points to are not".into());
        }
        report.contents = Some(TableInfo::of(&contents));
        self.contents = contents;
        report.comparator.clone_from(&properties.comparator);
        report.full_block_bytes = properties.block_bytes;
        report.is_placed = properties.placed.is_some();
        self.place_bytes = if report.is_placed { PLACE_BYTES } else { 0 };
        Ok(Some(properties))
    }

    /// The index, and the blocks that it names.
    fn data(
        &mut self,
        properties: &Properties,
        report: &mut TableReport,
        on_block: &mut dyn FnMut(&TableBlock),
    ) -> Result<()> {
        let mut last_key = None;
        if let Some(hashed) = &properties.hashed {
            self.buckets(hashed, report, &mut last_key, on_block)?;
        }
        let Some(place) = properties.index else { return Ok(()) };
        report.index = Some(self.part(place)?);
        let root = std::mem::take(&mut self.block);
        let children = children(&root);
        for (place, fence) in children {
            if properties.index_depth != 2 {
                self.data_block(place, fence, report, &mut last_key, on_block)?;
                continue;
            }
            report.index_leaves.push(self.part(place)?);
            let leaf = std::mem::take(&mut self.block);
            for (place, fence) in self::children(&leaf) {
                self.data_block(place, fence, report, &mut last_key, on_block)?;
            }
        }
        Ok(())
    }

    /// The buckets, as blocks that no index names.
    fn buckets(
        &mut self,
        hashed: &Hashed,
        report: &mut TableReport,
        last_key: &mut Option<Vec<u8>>,
        on_block: &mut dyn FnMut(&TableBlock),
    ) -> Result<()> {
        let usual = Usual { lsn: self.contents.min_lsn, ..hashed.usual };
        let sources = hashed.records.map_or(0, |place| place.bytes.saturating_sub(TRAILER_BYTES as u64));
        let mut filled = 0;
        for bucket in 0..hashed.buckets as usize {
            let part = self.part(Hashed::place(bucket))?;
            let mut block =
                TableBlock { number: report.blocks, part, fence: Vec::new(), entries: Vec::new() };
            report.blocks += 1;
            if let Some(raw_bytes) = block.part.raw_bytes {
                report.blocks_read += 1;
                report.block_bytes += BUCKET_BYTES as u64;
                report.block_raw_bytes += raw_bytes;
                match bucket_entries(&self.block, &usual, &mut block.entries) {
                    Some(bytes) => filled += bytes,
                    None => {
                        let what = "a bucket is malformed although its checksum is right";
                        block.part.problem = Some(what.into());
                    }
                }
            }
            self.count(&block, report, last_key);
            on_block(&block);
        }
        report.buckets = Some(TableBuckets {
            buckets: hashed.buckets,
            entries: hashed.entries,
            sources: sources / RECORD_BYTES as u64,
            steps: hashed.steps,
            fill: filled as f64 / (hashed.buckets as usize * CAPACITY) as f64,
        });
        Ok(())
    }

    fn count(&self, block: &TableBlock, report: &mut TableReport, last_key: &mut Option<Vec<u8>>) {
        report.entries += block.entries.len() as u64;
        for entry in &block.entries {
            if last_key.as_ref() != Some(&entry.key) {
                report.keys += 1;
                *last_key = Some(entry.key.clone());
            }
        }
    }

    fn data_block(
        &mut self,
        place: Place,
        fence: Vec<u8>,
        report: &mut TableReport,
        last_key: &mut Option<Vec<u8>>,
        on_block: &mut dyn FnMut(&TableBlock),
    ) -> Result<()> {
        let part = self.part(place)?;
        let mut block = TableBlock { number: report.blocks, part, fence, entries: Vec::new() };
        report.blocks += 1;
        if let Some(raw_bytes) = block.part.raw_bytes {
            report.blocks_read += 1;
            report.block_bytes += place.bytes;
            report.block_raw_bytes += raw_bytes;
            if !entries(&self.block, self.place_bytes, &mut block.entries) {
                block.part.problem = Some("a block is malformed although its checksum is right".into());
            }
        }
        self.count(&block, report, last_key);
        on_block(&block);
        Ok(())
    }

    fn filter(
        &mut self,
        properties: &Properties,
        hasher: Option<KeyHasher>,
        report: &mut TableReport,
    ) -> Result<()> {
        let Some(place) = properties.filter else { return Ok(()) };
        let part = self.part(place)?;
        let made_with = |hasher: KeyHasher| properties.filter_check == hasher.check_value();
        let mut found = TableFilter {
            part,
            bits_per_key: 0.0,
            probes: 0,
            false_positives: 1.0,
            is_asked: hasher.map(made_with),
        };
        if let Some(filter) = Filter::decode(&self.block) {
            let whole = report.blocks_read == report.blocks;
            let keys = if whole { report.keys } else { self.contents.entries };
            found.bits_per_key = filter.heap_bytes() as f64 * 8.0 / keys.max(1) as f64;
            found.probes = filter.probes();
            let questions =
                keys.saturating_mul(QUESTIONS_PER_KEY).clamp(*QUESTIONS.start(), *QUESTIONS.end());
            let (mut asked, mut passed) = (0, 0);
            while asked < questions && passed < ENOUGH {
                passed += u64::from(filter.may_contain(spread(asked)));
                asked += 1;
            }
            found.false_positives = passed as f64 / asked as f64;
        }
        report.filter = Some(found);
        Ok(())
    }

    fn tombstones(&mut self, properties: &Properties, report: &mut TableReport) -> Result<()> {
        let Some((place, form)) = properties.tombstones else { return Ok(()) };
        report.tombstone_block = Some(self.part(place)?);
        let ours = bytewise();
        if properties.comparator != ours.name() {
            report
                .unchecked
                .push(format!("the range deletes: they lie in the order {:?}", properties.comparator));
            return Ok(());
        }
        let decoded = tombstone_block::decode(&self.block, form, &*ours, self.contents.global_version);
        report.tombstones = decoded
            .iter()
            .flat_map(|set| set.iter())
            .map(|piece| TableTombstone {
                start: piece.start.to_vec(),
                end: piece.end.to_vec(),
                lsn: piece.lsn.0,
            })
            .collect();
        Ok(())
    }
}

/// What an index block names, up to where it can be read.
fn children(index: &[u8]) -> Vec<(Place, Vec<u8>)> {
    let Ok(index) = Index::parse(index) else { return Vec::new() };
    let child = |n| Some((index.place(n).ok()?, index.fence(n).ok()?.key()));
    (0..index.len()).map_while(child).collect()
}

fn table_entry(offset: u64, key: Vec<u8>, lsn: Lsn, kind: u8, value: &[u8]) -> TableEntry {
    let kind = Kind::from_u8(kind);
    let apart = if kind == Some(Kind::Apart) { ValueRef::decode(value).ok() } else { None };
    TableEntry {
        offset,
        key,
        lsn: lsn.0,
        kind: kind.map_or("unknown", Kind::name),
        value_bytes: apart.map_or(value.len() as u64, |apart| apart.value_bytes),
        apart: apart.map(|apart| (apart.file.0, apart.record_offset())),
    }
}

/// Adds the entries of a block; false if one cannot be read.
fn entries(block: &[u8], place_bytes: usize, found: &mut Vec<TableEntry>) -> bool {
    let Ok(block) = Block::parse(block) else { return false };
    for n in 0..block.len() {
        let (Ok(entry), Some(offset)) = (block.entry(n), block.offset(n)) else { return false };
        let mut key = [block.prefix(), entry.suffix].concat();
        key.drain(..place_bytes.min(key.len()));
        found.push(table_entry(offset as u64, key, entry.lsn, entry.kind, entry.value));
    }
    true
}

/// Adds the entries of a bucket; the bytes that they take, or `None` if one cannot be read.
fn bucket_entries(body: &[u8], usual: &Usual, found: &mut Vec<TableEntry>) -> Option<usize> {
    let bucket = Bucket::parse(body, usual).ok()?;
    let mut bytes = 0;
    for entry in bucket.entries() {
        let entry = entry.ok()?;
        let offset = (body.len() - CAPACITY + bucket.len() + bytes - found.len()) as u64;
        found.push(table_entry(offset, entry.key.to_vec(), entry.lsn, entry.kind, entry.value));
        bytes += usual.entry_bytes(entry.key.len(), entry.value.len(), entry.kind);
    }
    Some(bytes)
}

/// The n-th of numbers that look like the hashes of as many keys.
fn spread(n: u64) -> u64 {
    let word = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What is wrong, without the place.
fn what(error: Error) -> String {
    match error {
        Error::Corruption(problem) => problem.what,
        Error::Unsupported { why, .. } => why,
        other => other.to_string(),
    }
}
