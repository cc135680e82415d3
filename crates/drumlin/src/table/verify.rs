//! Reading every byte of a table and holding it against what it claims.
//!
//! Place: behind [`super::TableHandle::verify`]. Reads past the cache and past the open table, so
//! that it sees the file as it is now.
//!
//! What is checked: that frames and footer tile the file without a gap; every checksum; the content
//! hash; that entries ascend within their fences and keep the block format's rules; counts and
//! bounds; that the filter denies no key.
//!
//! Memory: one block and the index. Tests: `table/tests/`.

use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::env::FileSystem;
use crate::error::{Error, Result};
use crate::iter::Tombstones;
use crate::key::{Kind, Lsn};
use crate::table::block::{Block, Order};
use crate::table::footer::FOOTER_BYTES;
use crate::table::frame;
use crate::table::handle::known_kind;
use crate::table::index::{Fence, Index, Place};
use crate::table::resident::Resident;
use crate::table::{TableMeta, TableOptions};

/// What has been seen so far.
struct Check<'a> {
    resident: &'a Resident,
    options: &'a TableOptions,
    on_bytes: &'a mut dyn FnMut(u64),
    hash: Xxh3,
    /// Everything before is checked.
    offset: u64,
    stored: Vec<u8>,
    block: Vec<u8>,
    seen: TableMeta,
    /// The last entry, and the entry before while one is being checked.
    last_key: Vec<u8>,
    last_lsn: Lsn,
    key: Vec<u8>,
    /// The fence of the block before: everything else lies behind it.
    floor: Option<(Vec<u8>, Lsn)>,
}

/// Checks the table at `path` against `meta`.
pub(super) fn verify(
    fs: &dyn FileSystem,
    path: &Path,
    meta: &TableMeta,
    options: &TableOptions,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<()> {
    let resident = Resident::load(fs, path, meta, options)?;
    let mut check = Check {
        resident: &resident,
        options,
        on_bytes,
        hash: Xxh3::new(),
        offset: 0,
        stored: Vec::new(),
        block: Vec::new(),
        seen: TableMeta { min_lsn: Lsn::MAX, ..TableMeta::default() },
        last_key: Vec::new(),
        last_lsn: Lsn::MAX,
        key: Vec::new(),
        floor: None,
    };
    check.data()?;
    check.parts()?;
    check.footer()?;
    check.compare(path, meta)
}

impl Check<'_> {
    /// Reads the frame that must come next into `self.block`.
    fn frame(&mut self, place: Place) -> Result<()> {
        let origin = self.resident.origin(place);
        if place.offset != self.offset {
            return Err(origin.corruption(format!("the block before ends at byte {}", self.offset)));
        }
        if place.end() > self.resident.file().bytes() {
            return Err(origin.corruption("a block would end behind the file"));
        }
        self.stored.clear();
        self.stored.resize(place.bytes as usize, 0);
        self.resident.file().read_exact_at(&mut self.stored, place.offset)?;
        self.hash.update(&self.stored);
        frame::check(&self.stored, origin)?.to_vec(&mut self.block)?;
        self.offset = place.end();
        (self.on_bytes)(place.bytes);
        Ok(())
    }

    /// All data blocks, by the index.
    fn data(&mut self) -> Result<()> {
        let resident = self.resident;
        let Some(root) = resident.root() else { return Ok(()) };
        let root_malformed = resident.malformed(resident.properties.index.unwrap_or_default());
        for n in 0..root.len() {
            if !resident.has_leaves() {
                self.data_block(&root, n)?;
                continue;
            }
            let place = root.place(n).map_err(&root_malformed)?;
            let leaf: Arc<[u8]> = resident.read_leaf(place, self.options)?;
            let leaf = Index::parse(&leaf).map_err(resident.malformed(place))?;
            for m in 0..leaf.len() {
                self.data_block(&leaf, m)?;
            }
            // The leaf's last fence is the root's.
            let last = leaf.fence(leaf.len() - 1).map_err(resident.malformed(place))?;
            let fence = root.fence(n).map_err(&root_malformed)?;
            if (last.key(), last.lsn) != (fence.key(), fence.lsn) {
                return Err(resident
                    .origin(place)
                    .corruption("an index block ends at another key than its root says"));
            }
        }
        Ok(())
    }

    fn data_block(&mut self, index: &Index<'_>, n: usize) -> Result<()> {
        let resident = self.resident;
        let malformed = resident.malformed(resident.properties.index.unwrap_or_default());
        let place = index.place(n).map_err(&malformed)?;
        let fence = index.fence(n).map_err(&malformed)?;
        self.frame(place)?;
        let block = std::mem::take(&mut self.block);
        let checked = self.entries(&block, place, &fence);
        self.block = block;
        checked
    }

    /// The entries of one data block, which lie at or before `fence`.
    fn entries(&mut self, block: &[u8], place: Place, fence: &Fence<'_>) -> Result<()> {
        let resident = self.resident;
        let malformed = resident.malformed(place);
        let wrong = |what: &str| resident.origin(place).corruption(what);
        let order = Order::of(&*self.options.comparator);
        let fence_key = fence.key();
        let block = Block::parse(block).map_err(&malformed)?;
        let (mut at, mut restart) = (0, 0);
        while at < block.entry_bytes() {
            let entry = block.entry(at).map_err(&malformed)?;
            let whole = at == block.restart(restart);
            restart += usize::from(whole);
            // Within an interval `shared` is as long as can be.
            let last = self.last_key.get(entry.shared..);
            let longest = last.is_some_and(|rest| rest.is_empty() || rest.first() != entry.suffix.first());
            if if whole { entry.shared != 0 } else { !longest } {
                return Err(wrong("an entry's shared prefix is not what the format asks for"));
            }
            self.key.clear();
            self.key.extend_from_slice(&self.last_key[..entry.shared]);
            self.key.extend_from_slice(entry.suffix);
            let key = &self.key;
            let is_behind = |(other, lsn): (&[u8], Lsn)| {
                order.compare(other, key).then_with(|| entry.lsn.cmp(&lsn)).is_lt()
            };
            if self.seen.entries != 0 && !is_behind((&self.last_key, self.last_lsn)) {
                return Err(wrong("entries are not in order"));
            }
            if self.floor.as_ref().is_some_and(|(floor, lsn)| !is_behind((floor, *lsn))) {
                return Err(wrong("an entry lies before the fence of the block before"));
            }
            if is_behind((&fence_key, fence.lsn)) {
                return Err(wrong("an entry lies behind its block's fence"));
            }
            if !resident.may_contain(self.options.hasher.hash(key)) {
                return Err(wrong("the filter denies a key of the table"));
            }
            let kind = known_kind(entry.kind, resident, place)?;
            let seen = &mut self.seen;
            if seen.entries == 0 {
                seen.smallest.clone_from(key);
            }
            seen.entries += 1;
            seen.deletes += u64::from(kind == Some(Kind::Delete));
            seen.raw_bytes += (key.len() + entry.value.len()) as u64;
            seen.min_lsn = seen.min_lsn.min(entry.lsn);
            seen.max_lsn = seen.max_lsn.max(entry.lsn);
            std::mem::swap(&mut self.last_key, &mut self.key);
            self.last_lsn = entry.lsn;
            at = entry.next;
        }
        self.floor = Some((fence_key, fence.lsn));
        if restart == block.restarts() {
            Ok(())
        } else {
            Err(wrong("restart points are not where entries begin"))
        }
    }

    /// Everything between the data blocks and the footer.
    fn parts(&mut self) -> Result<()> {
        let resident = self.resident;
        let properties = &resident.properties;
        for part in [properties.tombstones, properties.filter].into_iter().flatten() {
            self.frame(part)?;
        }
        if let (true, Some(root)) = (resident.has_leaves(), resident.root()) {
            let malformed = resident.malformed(properties.index.unwrap_or_default());
            for n in 0..root.len() {
                self.frame(root.place(n).map_err(&malformed)?)?;
            }
        }
        if let Some(place) = properties.index {
            self.frame(place)?;
        }
        self.frame(resident.footer.properties)
    }

    fn footer(&mut self) -> Result<()> {
        let mut footer = [0; FOOTER_BYTES];
        self.resident.file().read_exact_at(&mut footer, self.offset)?;
        self.hash.update(&footer);
        (self.on_bytes)(FOOTER_BYTES as u64);
        Ok(())
    }

    /// Counts, bounds and the content hash.
    fn compare(mut self, path: &Path, meta: &TableMeta) -> Result<()> {
        self.seen.largest = std::mem::take(&mut self.last_key);
        let tombstones: &Tombstones = &self.resident.tombstones;
        let contents = &self.resident.properties.contents;
        let comparator = &*self.options.comparator;
        let seen = &mut self.seen;
        let had_entries = seen.entries != 0;
        let stored_lsns = meta.global_version.is_none();
        for (n, tombstone) in tombstones.iter().enumerate() {
            let alone = n == 0 && !had_entries;
            if alone || comparator.compare(&tombstone.start, &seen.smallest).is_lt() {
                seen.smallest.clone_from(&tombstone.start);
            }
            if alone || comparator.compare(&tombstone.end, &seen.largest).is_gt() {
                seen.largest.clone_from(&tombstone.end);
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
        // Under a global version the tombstones' own LSNs, and perhaps fragments, are gone.
        if bounds(seen) != bounds(contents) || (stored_lsns && counts(seen) != counts(contents)) {
            let what = "the entries are not those that the properties count";
            return Err(Error::corruption(path, self.resident.footer.properties.offset, what));
        }
        let hash = self.hash.digest128();
        if hash != meta.content_hash {
            let what =
                format!("the content hash is {hash:032x}, the manifest says {:032x}", meta.content_hash);
            return Err(Error::corruption(path, None, what));
        }
        Ok(())
    }
}
