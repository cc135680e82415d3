//! Reading every byte of a table and holding it against what it claims.
//!
//! Place: behind [`super::TableHandle::verify`], and behind `Db::verify_directory` for tables of which no manifest
//! tells. Reads past the cache and past the open table, so that it sees the file as it is now.
//!
//! Invariants:
//! 1. A corrupt block is named, and the check goes on behind it: every block is either read or counted as unchecked.
//! 2. Each place is named once. Counts and content hash are judged only if nothing else is wrong: they would only say
//!    so again.
//!
//! What is checked: that frames and footer tile the file without a gap; every checksum; the content
//! hash; that entries ascend within their fences and keep the block format's rules; counts and
//! bounds; that the filter denies no key.
//!
//! Memory: one block, the index, and the filter, or the rows of a cluster. Tests: `table/tests/`.

use std::path::Path;

use twox_hash::XxHash3_128;

use crate::env::{FileSystem, ReadMode};
use crate::error::{Corruption, Error, Result};
use crate::filter::Grid;
use crate::iter::Tombstones;
use crate::key::{ComparatorRef, KeyForm, KeyHasher, Kind, Lsn, bytewise, key_prefix};
use crate::options::KeyspaceOptions;
use crate::table::block::{Block, Order};
use crate::table::footer::FOOTER_BYTES;
use crate::table::frame;
use crate::table::handle::known_kind;
use crate::table::hashed::{Bucket, Columns, Entry, Hashed, HashedParts, Records, spin};
use crate::table::index::{Fence, Index, Place};
use crate::table::properties::Properties;
use crate::table::resident::{Loading, Resident};
use crate::table::values::{Uses, ValueRef, ValueUse};
use crate::table::{TableMeta, TableOptions};

/// What has been seen so far.
struct Check<'a> {
    resident: &'a Resident,
    properties: &'a Properties,
    options: &'a TableOptions,
    on_bytes: &'a mut dyn FnMut(u64),
    hash: XxHash3_128,
    problems: &'a mut Vec<Corruption>,
    /// Everything before is checked; none if it is not known where the next block begins.
    offset: Option<u64>,
    stored: Vec<u8>,
    block: Vec<u8>,
    seen: TableMeta,
    /// What entries refer to in value files.
    uses: Uses,
    /// The last entry, and the entry before while one is being checked.
    last_key: Vec<u8>,
    last_lsn: Lsn,
    is_behind_an_entry: bool,
    /// The table's own filter in columns.
    own: Option<(Columns, Grid)>,
    key: Vec<u8>,
    /// The fence of the block before: everything else lies behind it.
    floor: Option<(Vec<u8>, Lsn)>,
}

/// What a check of one table came to.
#[derive(Debug, Default)]
pub struct TableCheck {
    /// Everything that is not as it was written, each place once.
    pub problems: Vec<Corruption>,
    /// What ended the check early, if it was not corruption.
    pub failure: Option<Error>,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of the file that were not read: nobody knows what blocks they are. None are of a file that is not there.
    pub unchecked: u64,
}

impl TableCheck {
    /// The first thing that is wrong, as an error.
    #[cfg(test)]
    pub(crate) fn sound(self) -> Result<()> {
        match (self.problems.into_iter().next(), self.failure) {
            (Some(problem), _) => Err(Error::Corruption(problem)),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(()),
        }
    }

    pub(super) fn run(
        fs: &dyn FileSystem,
        path: &Path,
        file_bytes: u64,
        on_bytes: &mut dyn FnMut(u64),
        check: impl FnOnce(&mut Vec<Corruption>, &mut dyn FnMut(u64)) -> Result<()>,
    ) -> TableCheck {
        let mut found = TableCheck::default();
        let ended = check(&mut found.problems, &mut |bytes| {
            found.bytes += bytes;
            on_bytes(bytes);
        });
        found.failure = ended.or_else(|error| note(&mut found.problems, error)).err();
        if fs.exists(path).unwrap_or(true) {
            found.unchecked = file_bytes.saturating_sub(found.bytes);
        }
        found
    }
}

/// Keeps a corruption, unless its place is known to be corrupt; else gives the error back.
fn note(problems: &mut Vec<Corruption>, error: Error) -> Result<()> {
    let Error::Corruption(problem) = error else { return Err(error) };
    if problem.offset.is_none() || problems.iter().all(|known| known.offset != problem.offset) {
        problems.push(problem);
    }
    Ok(())
}

/// Checks the table at `path` against `meta`.
pub(super) fn verify(
    fs: &dyn FileSystem,
    path: &Path,
    meta: &TableMeta,
    options: &TableOptions,
    on_bytes: &mut dyn FnMut(u64),
) -> TableCheck {
    TableCheck::run(fs, path, meta.file_bytes, on_bytes, |problems, on_bytes| {
        check(fs, path, meta, u128::MAX, options, problems, on_bytes)
    })
}

/// Checks a table of which no manifest tells against what it says of itself: its properties, and the half of its content
/// hash that its name has. A comparator that is not among those given ends it.
pub fn verify_alone(
    fs: &dyn FileSystem,
    path: &Path,
    comparators: &[ComparatorRef],
    hasher: KeyHasher,
    on_bytes: &mut dyn FnMut(u64),
) -> TableCheck {
    let file_bytes = fs.open(path, ReadMode::Buffered).map_or(0, |file| file.bytes());
    TableCheck::run(fs, path, file_bytes, on_bytes, |problems, on_bytes| {
        let (mut meta, Properties { comparator: order, placed, .. }) = Resident::own_account(fs, path)?;
        let ours = bytewise();
        let Some(comparator) = comparators.iter().chain([&ours]).find(|c| c.name() == order).cloned() else {
            let why = format!("its keys are ordered by {order:?}, which is not among the comparators given");
            return Err(Error::Unsupported { path: path.to_path_buf(), why });
        };
        let form = placed.map_or(KeyForm::Bare, |(hash, _)| KeyForm::Placed(hasher.placer(hash)));
        let name = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.split_once('-'));
        let hash = name.and_then(|(_, hash)| u64::from_str_radix(hash, 16).ok()).unwrap_or_default();
        meta.content_hash = u128::from(hash) << 64;
        let options = KeyspaceOptions { comparator, ..KeyspaceOptions::default() };
        let hasher = if placed.is_some() { hasher.of_places() } else { hasher };
        let options = TableOptions { form, hasher, ..TableOptions::new(&options, hasher) };
        check(fs, path, &meta, u128::MAX << 64, &options, problems, on_bytes)
    })
}

/// Errors: what ends the check early.
fn check(
    fs: &dyn FileSystem,
    path: &Path,
    meta: &TableMeta,
    hash_bits: u128,
    options: &TableOptions,
    problems: &mut Vec<Corruption>,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<()> {
    let loading =
        Loading { is_told: false, has_room: &|_| true, on_problem: &mut |problem| note(problems, problem) };
    let (resident, properties) = Resident::load(fs, ReadMode::Buffered, path, meta, options, loading)?;
    let mut check = Check {
        resident: &resident,
        properties: &properties,
        options,
        on_bytes,
        hash: XxHash3_128::new(),
        problems,
        offset: Some(0),
        stored: Vec::new(),
        block: Vec::new(),
        seen: TableMeta { min_lsn: Lsn::MAX, ..TableMeta::default() },
        uses: Uses::default(),
        last_key: Vec::new(),
        last_lsn: Lsn::MAX,
        is_behind_an_entry: false,
        own: None,
        key: Vec::new(),
        floor: None,
    };
    if let Some(cluster) = resident.cluster() {
        let rows = cluster.rows(|page| resident.read(cluster.place(page)).map(|body| body.to_vec()));
        // Of pages that are wrong the check tells by itself.
        check.own = rows.ok().and_then(|rows| Some((rows.into_iter().next()?, cluster.grid)));
    }
    check.buckets()?;
    check.cluster()?;
    check.data()?;
    check.parts()?;
    check.footer()?;
    if check.problems.is_empty() { check.compare(path, meta, hash_bits) } else { Ok(()) }
}

impl Check<'_> {
    /// What was found, if it is not corrupt.
    fn kept<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) => note(self.problems, error).map(|()| None),
        }
    }

    /// Reads the frame that must come next into `self.block`.
    fn frame(&mut self, place: Place) -> Result<()> {
        let origin = self.resident.origin(place);
        if place.end() > self.resident.file().bytes() {
            self.offset = None;
            return Err(origin.corruption("a block would end behind the file"));
        }
        if let Some(end) = self.offset.replace(place.end()).filter(|end| *end != place.offset) {
            note(self.problems, origin.corruption(format!("the block before ends at byte {end}")))?;
        }
        self.stored.clear();
        self.stored.resize(place.bytes as usize, 0);
        self.resident.file().read_exact_at(&mut self.stored, place.offset)?;
        (self.on_bytes)(place.bytes);
        self.hash.write(&self.stored);
        frame::check(&self.stored, origin)?.to_vec(&mut self.block)
    }

    /// All buckets of a hashed table.
    fn buckets(&mut self) -> Result<()> {
        let resident = self.resident;
        let Some(hashed) = resident.hashed() else { return Ok(()) };
        let records = self.kept(resident.all_records())?;
        for bucket in 0..hashed.shape.buckets() {
            let place = Hashed::place(bucket);
            let checked = self.frame(place).and_then(|()| {
                let body = std::mem::take(&mut self.block);
                let checked = self.bucket(&body, bucket, hashed, records.as_ref());
                self.block = body;
                checked
            });
            self.kept(checked)?;
        }
        let in_buckets = self.properties.hashed.as_ref().map_or(0, |hashed| hashed.entries);
        if self.problems.is_empty() && self.seen.entries != in_buckets {
            let what = "the entries in buckets are not as many as the properties count";
            note(self.problems, resident.origin(resident.footer.properties).corruption(what))?;
        }
        Ok(())
    }

    /// The pages of filters in columns.
    fn cluster(&mut self) -> Result<()> {
        let resident = self.resident;
        let Some(cluster) = resident.cluster() else { return Ok(()) };
        for page in 0..cluster.pages() {
            self.part(cluster.place(page))?;
        }
        Ok(())
    }

    /// The entries of one bucket: each is where a search for its key ends.
    fn bucket(
        &mut self,
        body: &[u8],
        bucket: usize,
        hashed: &HashedParts,
        records: Option<&Records>,
    ) -> Result<()> {
        let (resident, place) = (self.resident, Hashed::place(bucket));
        let malformed = resident.malformed(place);
        let wrong = |what: &str| resident.origin(place).corruption(what);
        let KeyForm::Placed(placer) = self.options.form else { return Err(wrong("buckets of bare keys")) };
        let read = Bucket::parse(body, &hashed.usual).map_err(&malformed)?;
        read.validate(|key| placer.place(key)).map_err(&malformed)?;
        if records.is_some_and(|records| records.of(bucket) != read.left(bucket)) {
            return Err(wrong("a bucket and the records do not agree on what left it"));
        }
        let mut last: Option<Entry<'_>> = None;
        let mut keys: Vec<&[u8]> = Vec::with_capacity(read.len());
        for entry in read.entries() {
            let entry = entry.map_err(&malformed)?;
            let home = placer.place(entry.key);
            if !hashed.shape.spans(home) {
                return Err(wrong("an entry lies outside of the table's places"));
            }
            let ends_here = |records: &Records| {
                let end = records.end_of(hashed.shape.home(home), spin(home), hashed.steps);
                end.is_some_and(|(end, _)| end == bucket)
            };
            if records.is_some_and(|records| !ends_here(records)) {
                return Err(wrong("an entry is not where a search for it ends"));
            }
            match last.replace(entry) {
                Some(last) if last.key == entry.key && last.lsn <= entry.lsn => {
                    return Err(wrong("versions of a key are not in order"));
                }
                Some(last) if last.key == entry.key => {}
                _ => keys.push(entry.key),
            }
            self.key.clear();
            self.key.extend_from_slice(&home.to_be_bytes());
            self.key.extend_from_slice(entry.key);
            self.see(entry.lsn, entry.kind, entry.value, place)?;
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < all {
            return Err(wrong("versions of a key do not lie together"));
        }
        Ok(())
    }

    /// Judges the entry of `self.key` by itself, and counts it.
    fn see(&mut self, lsn: Lsn, kind: u8, value: &[u8], place: Place) -> Result<()> {
        let (resident, key) = (self.resident, &self.key);
        let wrong = |what: &str| resident.origin(place).corruption(what);
        if !self.options.form.fits(key) {
            return Err(wrong("a key stands behind another hash than its own"));
        }
        let denied = self.own.as_ref().is_some_and(|own| !own.0.may_contain(key_prefix(key), own.1));
        if denied || !resident.may_contain(self.options.hasher.hash(key)) {
            return Err(wrong("the filter denies a key of the table"));
        }
        let kind = known_kind(kind, resident, place)?;
        let mut value_bytes = value.len() as u64;
        if kind == Some(Kind::Apart) {
            let apart = ValueRef::decode(value).map_err(|_| wrong("a reference to a value is malformed"))?;
            self.uses.add(&apart);
            value_bytes = apart.value_bytes;
        }
        let seen = &mut self.seen;
        let comparator = &*self.options.comparator;
        if seen.entries == 0 || comparator.compare(key, &seen.smallest).is_lt() {
            seen.smallest.clone_from(key);
        }
        if seen.entries == 0 || comparator.compare(key, &seen.largest).is_gt() {
            seen.largest.clone_from(key);
        }
        seen.entries += 1;
        seen.deletes += u64::from(kind == Some(Kind::Delete));
        seen.raw_bytes += self.options.form.user(key).len() as u64 + value_bytes;
        seen.min_lsn = seen.min_lsn.min(lsn);
        seen.max_lsn = seen.max_lsn.max(lsn);
        Ok(())
    }

    /// All data blocks, by the index.
    fn data(&mut self) -> Result<()> {
        let resident = self.resident;
        let Some(root) = resident.root() else {
            self.offset = self.offset.filter(|_| self.properties.index.is_none());
            return Ok(());
        };
        let root_malformed = resident.malformed_root();
        for n in 0..root.len() {
            if !resident.has_leaves() {
                self.data_block(&root, n)?;
                continue;
            }
            let place = root.place(n).map_err(&root_malformed)?;
            let Some(leaf) = self.kept(resident.read_leaf(place, self.options))? else {
                self.offset = None;
                continue;
            };
            let leaf = Index::parse(&leaf).map_err(resident.malformed(place))?;
            for m in 0..leaf.len() {
                self.data_block(&leaf, m)?;
            }
            // The leaf's last fence is the root's.
            let last = leaf.fence(leaf.len() - 1).map_err(resident.malformed(place))?;
            let fence = root.fence(n).map_err(&root_malformed)?;
            if (last.key(), last.lsn) != (fence.key(), fence.lsn) {
                let what = "an index block ends at another key than its root says";
                note(self.problems, resident.origin(place).corruption(what))?;
            }
        }
        Ok(())
    }

    fn data_block(&mut self, index: &Index<'_>, n: usize) -> Result<()> {
        let resident = self.resident;
        let malformed = resident.malformed_root();
        let place = index.place(n).map_err(&malformed)?;
        let fence = index.fence(n).map_err(&malformed)?;
        let checked = self.frame(place).and_then(|()| {
            let block = std::mem::take(&mut self.block);
            let checked = self.entries(&block, place, &fence);
            self.block = block;
            checked
        });
        let fence = (fence.key(), fence.lsn);
        if self.kept(checked)?.is_none() {
            // What comes next is judged by where this block was to end.
            (self.last_key, self.last_lsn) = fence.clone();
            self.is_behind_an_entry = true;
        }
        self.floor = Some(fence);
        Ok(())
    }

    /// The entries of one data block, which lie at or before `fence`.
    fn entries(&mut self, block: &[u8], place: Place, fence: &Fence<'_>) -> Result<()> {
        let resident = self.resident;
        let malformed = resident.malformed(place);
        let wrong = |what: &str| resident.origin(place).corruption(what);
        let order = Order::of(&*self.options.comparator);
        let fence_key = fence.key();
        let block = Block::parse(block).map_err(&malformed)?;
        block.validate(order).map_err(&malformed)?;
        for n in 0..block.len() {
            let entry = block.entry(n).map_err(&malformed)?;
            self.key.clear();
            self.key.extend_from_slice(block.prefix());
            self.key.extend_from_slice(entry.suffix);
            let key = &self.key;
            let is_behind = |(other, lsn): (&[u8], Lsn)| {
                order.compare(other, key).then_with(|| entry.lsn.cmp(&lsn)).is_lt()
            };
            if self.is_behind_an_entry && !is_behind((&self.last_key, self.last_lsn)) {
                return Err(wrong("entries are not in order"));
            }
            if self.floor.as_ref().is_some_and(|(floor, lsn)| !is_behind((floor, *lsn))) {
                return Err(wrong("an entry lies before the fence of the block before"));
            }
            if is_behind((&fence_key, fence.lsn)) {
                return Err(wrong("an entry lies behind its block's fence"));
            }
            if let Some(hashed) = resident.hashed()
                && !hashed.is_special(hashed.shape.home(key_prefix(key)))
            {
                return Err(wrong("an entry of the sorted part would not be looked for there"));
            }
            self.see(entry.lsn, entry.kind, entry.value, place)?;
            std::mem::swap(&mut self.last_key, &mut self.key);
            (self.last_lsn, self.is_behind_an_entry) = (entry.lsn, true);
        }
        Ok(())
    }

    /// Everything between the data blocks and the footer.
    fn parts(&mut self) -> Result<()> {
        let resident = self.resident;
        let properties = self.properties;
        for part in properties.parts().filter(|part| Some(*part) != properties.index) {
            self.part(part)?;
        }
        if let (true, Some(root)) = (resident.has_leaves(), resident.root()) {
            let malformed = resident.malformed_root();
            for n in 0..root.len() {
                self.part(root.place(n).map_err(&malformed)?)?;
            }
        }
        if let Some(place) = properties.index {
            if resident.root().is_none() {
                // Nobody knows the blocks before it.
                self.offset = None;
            }
            self.part(place)?;
        }
        self.part(resident.footer.properties)
    }

    fn part(&mut self, place: Place) -> Result<()> {
        let checked = self.frame(place);
        self.kept(checked).map(drop)
    }

    fn footer(&mut self) -> Result<()> {
        let mut footer = [0; FOOTER_BYTES];
        let offset = self.resident.footer.properties.end();
        self.resident.file().read_exact_at(&mut footer, offset)?;
        self.hash.write(&footer);
        (self.on_bytes)(FOOTER_BYTES as u64);
        Ok(())
    }

    /// Counts, bounds and the content hash.
    fn compare(mut self, path: &Path, meta: &TableMeta, hash_bits: u128) -> Result<()> {
        let tombstones: &Tombstones = &self.resident.tombstones;
        let comparator = &*self.options.comparator;
        let seen = &mut self.seen;
        let had_entries = seen.entries != 0;
        let stored_lsns = meta.global_version.is_none();
        for (n, tombstone) in tombstones.iter().enumerate() {
            let alone = n == 0 && !had_entries;
            if alone || comparator.compare(tombstone.start, &seen.smallest).is_lt() {
                seen.smallest = tombstone.start.to_vec();
            }
            if alone || comparator.compare(tombstone.end, &seen.largest).is_gt() {
                seen.largest = tombstone.end.to_vec();
                seen.largest_exclusive = true;
            }
            seen.range_tombstones += 1;
            seen.raw_bytes += (tombstone.start.len() + tombstone.end.len()) as u64;
            seen.min_lsn = seen.min_lsn.min(tombstone.lsn);
            seen.max_lsn = seen.max_lsn.max(tombstone.lsn);
        }
        let bounds = |meta: &TableMeta| {
            (meta.smallest.clone(), meta.largest.clone(), meta.largest_exclusive, meta.entries, meta.deletes)
        };
        let counts = |meta: &TableMeta| (meta.range_tombstones, meta.raw_bytes, meta.min_lsn, meta.max_lsn);
        // The properties say the same as `meta`, or that was told when the table was opened.
        // Under a global version the tombstones' own LSNs, and perhaps fragments, are gone.
        if bounds(seen) != bounds(meta) || (stored_lsns && counts(seen) != counts(meta)) {
            let what = "the entries are not those that the properties count";
            return Err(Error::corruption(path, self.resident.footer.properties.offset, what));
        }
        let told = |used: &ValueUse| (used.file, used.records, used.bytes);
        let is_told = hash_bits == u128::MAX;
        if is_told && !meta.values.iter().map(told).eq(self.uses.finish().iter().map(told)) {
            let what = "the entries do not refer to the values that the manifest counts";
            return Err(Error::corruption(path, self.resident.footer.properties.offset, what));
        }
        let hash = self.hash.finish_128();
        if (hash ^ meta.content_hash) & hash_bits != 0 {
            let what = format!("the content hash is {hash:032x}, it should be {:032x}", meta.content_hash);
            return Err(Error::corruption(path, None, what));
        }
        Ok(())
    }
}
