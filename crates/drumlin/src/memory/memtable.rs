//! One generation of a keyspace's newest versions, sorted, in memory.
//!
//! Place: `db` writes to the newest memtable and reads all of them before the tables; a scan walks
//! one with [`MemCursor`], a flush with [`FlushCursor`]. It calls `skiplist` for versions and `tombstone_set` for ranges.
//!
//! Invariants:
//! 1. A version once published is found by every later get, cursor and flush, for the memtable's life, or until a newer one of
//!    its key displaced it from the hash tier, which nobody needs it for then. It is never changed.
//! 2. A version with a batch slot counts as absent for a get while `committed(slot, lsn)` is false.
//!    Whoever reads at a bound below which everything is committed need not ask.
//! 3. A range tombstone at L hides the versions of its keys with LSN < L, here and in every older
//!    part. Versions and tombstones are asked for apart; the caller compares.
//!
//! Concurrency: everything may be called by any thread at any time; gets neither wait nor write shared memory, nor do cursors
//! without a hash tier; with one they sort what they come to. A get that begins after a publish returned sees it. The order of the
//! versions of one key is the caller's matter (they are published under the key's lock).
//!
//! Origin: cLSM §3.1-§3.3, component C_m: a map of (key, timestamp, value), weakly consistent to
//! iterate. Reserving before the locks are taken and publishing under them is ours.
//! Tests: `memtable_tests`, `loom_tests`.

use std::ops::Range;
use std::sync::Arc;

use crate::iter::{Horizons, Tombstones};
use crate::key::{ComparatorRef, KeyHasher, Kind, Lsn};
use crate::sync::failpoint;

use super::bulk::{Gathered, Linking};
use super::cursor::MemCursor;
use super::filter::KeyFilter;
use super::flush_cursor::FlushCursor;
use super::multi_insert::TOGETHER_MAX;
use super::node::NO_BATCH;
use super::node::Node;
use super::place::Place;
use super::pool::Pool;
use super::skiplist::{Published, Reserved, SkipList};
use super::splits::Splits;
use super::tombstone_run::ReservedRanges;
use super::tombstone_set::TombstoneSet;
use super::two_tier::{Sorted, TwoTier, Unsettled};

/// Keys that are sampled for each part that is to be cut.
const KEYS_PER_PART: usize = 4;

/// A sorted, concurrent map of versions. It only grows; memory goes back when it is dropped.
pub struct MemTable {
    pub(super) list: SkipList,
    /// The hash tier, if it has one.
    pub(super) tier: Option<TwoTier>,
    ranges: TombstoneSet,
    filter: KeyFilter,
    hasher: KeyHasher,
    pool: Arc<Pool>,
}

/// A version found in a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRef<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// What it says.
    pub kind: Kind,
    /// Its value; empty for a delete.
    pub value: &'a [u8],
}

impl MemTable {
    /// An empty memtable for keys in the given order.
    #[cfg(test)]
    pub fn new(comparator: ComparatorRef) -> MemTable {
        MemTable::charged(comparator, KeyHasher::new(1), Arc::default())
    }

    /// The same with a hash tier.
    #[cfg(test)]
    pub fn new_two_tier(comparator: ComparatorRef) -> MemTable {
        MemTable::charged(comparator, KeyHasher::new(1), Arc::default()).with_hash_tier(
            0,
            usize::MAX,
            Arc::new(Splits::of_top_bits(2)),
        )
    }

    /// An empty memtable whose bytes are charged to the account of `pool` until it is dropped. Its filter knows keys by
    /// `hasher`.
    pub fn charged(comparator: ComparatorRef, hasher: KeyHasher, pool: Arc<Pool>) -> MemTable {
        MemTable {
            list: SkipList::new(comparator, Arc::clone(&pool)),
            tier: None,
            ranges: TombstoneSet::new(Arc::clone(pool.account())),
            filter: KeyFilter::new(Arc::clone(&pool)),
            hasher,
            pool,
        }
    }

    /// The same with a hash tier over the list, which may get so many keys, of `bytes_max` bytes at most; sorted in such
    /// parts, if keys are in the order of bytes.
    pub fn with_hash_tier(mut self, keys: usize, bytes_max: usize, splits: Arc<Splits>) -> MemTable {
        let shards = self.list.nodes.arena.shard_count();
        let splits = if self.list.is_bytewise() { splits } else { Arc::default() };
        self.tier = Some(TwoTier::new(keys, bytes_max, splits, shards, &self.pool));
        self
    }

    /// The same whose hash tier reckons with so many bytes of versions, when it grows.
    pub fn with_bytes_max(mut self, bytes: usize) -> MemTable {
        self.tier = self.tier.take().map(|tier| tier.with_list_bytes_max(bytes));
        self
    }

    /// True if puts go to a hash over the list.
    pub fn has_hash(&self) -> bool {
        self.tier.is_some()
    }

    /// The same whose hash tier is sorted by one multi-insert; or by a search for each, for comparison.
    pub fn with_searches_near(mut self, near: bool) -> MemTable {
        self.tier = self.tier.take().map(|tier| tier.with_searches_near(near));
        self
    }

    /// Makes versions of keys visible, one by one in their order. O(log n) each, but what they wait for they wait for side by side,
    /// and the more of it they share the nearer they are. With a hash tier each goes its way by itself. `batch` as in
    /// [`MemTable::publish`]. Source: FloDB §4.3.
    ///
    /// # Panics
    /// As [`MemTable::reserve`].
    pub fn multi_insert<'k>(
        &self,
        records: impl Iterator<Item = (&'k [u8], Kind, &'k [u8])>,
        lsn: Lsn,
        batch: Option<u32>,
    ) {
        if self.tier.is_some() {
            for (key, kind, value) in records {
                let node = self.reserve(key, kind, value);
                let published = self.publish(node, lsn, batch);
                self.tell_guide(&published);
            }
            return;
        }
        let mut records = records.fuse();
        loop {
            let (mut nodes, mut hashes) = ([self.list.head(); TOGETHER_MAX], [0; TOGETHER_MAX]);
            let mut n = 0;
            for (key, kind, value) in records.by_ref().take(TOGETHER_MAX) {
                hashes[n] = self.hasher.hash(key);
                self.filter.prefetch(hashes[n]);
                nodes[n] = self.list.new_version(key, kind, value, lsn, batch.unwrap_or(NO_BATCH));
                n += 1;
            }
            if n == 0 {
                return;
            }
            self.list.insert_together(&nodes[..n], |n| self.filter.add(hashes[n]));
        }
    }

    /// Copies a version into the memtable, unseen, and finds its place, if there is no hash tier. To be called before locks
    /// are taken; all that is slow about an insert happens here. O(log n + bytes), with a hash tier O(bytes).
    ///
    /// # Panics
    /// If key or value exceed [`crate::key::KEY_BYTES_MAX`] or [`crate::key::VALUE_BYTES_MAX`], or
    /// if the memtable has grown to 32 GiB.
    pub fn reserve(&self, key: &[u8], kind: Kind, value: &[u8]) -> Reserved {
        let hash = self.hasher.hash(key);
        match &self.tier {
            Some(tier) => {
                // Loaded while the node is written.
                tier.prefetch(hash);
                if tier.stands_aside() && !tier.may_know(hash) {
                    return self.known(hash, || self.list.reserve(key, hash, kind, value));
                }
                if !self.list.is_bytewise() {
                    // A key that the user's order cannot take is to fail here, as in a search: before the log has it.
                    let _ = self.list.comparator().compare(key, key);
                }
                self.list.reserve_unplaced(key, hash, kind, value)
            }
            None => self.known(hash, || self.list.reserve(key, hash, kind, value)),
        }
    }

    /// Reserves a version of a key, of which the filter knows then: before it is published, and so before anybody misses it.
    pub(super) fn known(&self, hash: u64, reserve: impl FnOnce() -> Reserved) -> Reserved {
        // Loaded while the list is searched.
        self.filter.prefetch(hash);
        let node = reserve();
        self.filter.add(hash);
        node
    }

    /// Makes a reserved version visible as `lsn`. With `batch`, the index of the writer's slot, it
    /// stays hidden from gets while their `committed(slot, lsn)` is false. All older versions stay.
    /// Waits for nobody; `tell_guide` is for later. O(1) unless many inserts went to the same place since
    /// `reserve`, then O(log n); with a hash tier, under the lock of its key.
    ///
    /// # Panics
    /// If the version was reserved in another memtable.
    pub fn publish(&self, node: Reserved, lsn: Lsn, batch: Option<u32>) -> Published {
        self.publish_over(node, lsn, batch, Lsn::MAX)
    }

    /// The same where older versions with LSN >= `needed_below` may be forgotten: no read that is under way or to come is to
    /// find one of them. They are kept all the same, without a hash tier.
    pub fn publish_over(&self, node: Reserved, lsn: Lsn, batch: Option<u32>, needed_below: Lsn) -> Published {
        debug_assert!(batch != Some(NO_BATCH));
        let batch = batch.unwrap_or(NO_BATCH);
        let Some(tier) = &self.tier else { return self.list.publish(node, lsn, batch) };
        let version = self.list.give_version(&node, lsn, batch);
        if tier.publish(self.sorted(), version, node.hash(), needed_below) {
            return Published::IN_SLOT;
        }
        self.filter.add(node.hash());
        self.list.publish_version(node)
    }

    /// What the hash tier knows of the other.
    fn sorted(&self) -> Sorted<'_> {
        Sorted { list: &self.list, filter: &self.filter, hasher: self.hasher }
    }

    /// Makes a version that was published quick to find. Once for each, behind the locks: it may allocate. Left out, later
    /// searches near it are slower.
    #[inline]
    pub fn tell_guide(&self, published: &Published) {
        self.list.tell_guide(published);
        if let Some(tier) = &self.tier {
            tier.grow_if_due(&self.list);
        }
    }

    /// Puts into the list what was published in the hash tier before, of all parts: to be called before all is walked or
    /// counted. (A cursor does so for the parts that it comes to.) O(n log n).
    pub fn settle(&self) {
        if let Some(tier) = &self.tier {
            self.settle_parts(tier, 0..tier.splits().parts());
        }
    }

    /// What [`MemTable::settle`] would put into the list, for several threads to do so: each calls
    /// [`MemTable::settle_share`], and when all have, one calls [`MemTable::settled`].
    pub fn unsettled(&self) -> Option<Unsettled> {
        self.tier.as_ref().map(|tier| tier.unsettled(&self.list, 0..tier.splits().parts()))
    }

    /// Puts the n-th of so many shares of it into the list. O(n log n).
    ///
    /// # Panics
    /// Here and in [`MemTable::settled`]: if it is another memtable's.
    pub fn settle_share(&self, unsettled: &Unsettled, n: usize, shares: usize) {
        if let Some(tier) = &self.tier {
            tier.settle_share(self.sorted(), unsettled, n, shares);
        }
    }

    /// All shares are in the list.
    pub fn settled(&self, unsettled: Unsettled) {
        if let Some(tier) = &self.tier {
            tier.settled(&self.list, unsettled);
        }
    }

    /// True for one who asks, when the hash tier has enough for a background mover to do.
    #[inline]
    pub fn is_first_to_tell_of_a_drain(&self) -> bool {
        self.tier.as_ref().is_some_and(TwoTier::is_first_to_tell_of_a_drain)
    }

    /// True if the hash tier has enough for a background mover to do.
    pub fn is_drain_due(&self) -> bool {
        self.tier.as_ref().is_some_and(TwoTier::is_drain_due)
    }

    /// Settles the parts in which much was published in the hash tier. O(n log n) of that. Source: FloDB §4.2.
    pub fn drain(&self) {
        if let Some(tier) = &self.tier {
            tier.drain(self.sorted());
        }
    }

    /// Versions that are in the hash tier only, about; 0 only if all that was published before is in the list.
    pub fn unsorted(&self) -> usize {
        self.tier.as_ref().map_or(0, TwoTier::unsorted)
    }

    /// Whether the hash tier was worth its detour; `None` if there is none, or too little went through it to say.
    pub fn hash_paid(&self) -> Option<bool> {
        self.tier.as_ref().and_then(TwoTier::paid)
    }

    /// Keys that the hash tier got, about; `None` without one.
    pub fn hash_keys(&self) -> Option<usize> {
        self.tier.as_ref().map(TwoTier::keys)
    }

    /// Settles some parts.
    #[inline]
    pub(super) fn settle_parts(&self, tier: &TwoTier, parts: Range<usize>) {
        parts.for_each(|part| tier.settle(self.sorted(), part));
    }

    /// Cuts the order of keys into at most so many parts that hold about as many of its keys. O(parts).
    pub fn splits(&self, parts: usize) -> Splits {
        let flushed = self.tier.as_ref().and_then(|tier| tier.sample(&self.list));
        Splits::at(flushed.unwrap_or_else(|| self.list.sample(parts * KEYS_PER_PART).collect()), parts)
    }

    /// To gather versions, which are then [sorted](MemTable::sort).
    pub fn gathered(&self) -> Gathered {
        Gathered::new(&self.list, self.pool.account())
    }

    /// Copies a version into the memtable, in no order and unseen, until it is loaded with what `into` has. O(bytes).
    ///
    /// # Panics
    /// As [`MemTable::reserve`], or if `into` was made by another memtable.
    #[inline]
    pub fn gather(&self, into: &mut Gathered, key: &[u8], kind: Kind, value: &[u8], lsn: Lsn) {
        into.add(&self.list, (key, self.hasher.hash(key)), kind, value, lsn);
    }

    /// Sorts everything gathered, part by part in the order of LSNs, to be [linked](MemTable::link): `None` if there is nothing
    /// left to do. Nobody else may know the memtable yet. O(n log n), with few misses of the cache if it has no versions.
    ///
    /// # Panics
    /// If the parts are another memtable's.
    pub fn sort(&self, parts: Vec<Gathered>) -> Option<Linking> {
        let count: usize = parts.iter().map(Gathered::len).sum();
        self.filter.make_room(count);
        parts.iter().for_each(|part| self.filter.add_all(part.hashes()));
        Linking::sorted(&self.list, parts, self.pool.account())
    }

    /// Links what was sorted, beside others that do so, until all of it is taken. O(n).
    ///
    /// # Panics
    /// If it is another memtable's.
    pub fn link(&self, linking: &Linking) {
        linking.work(&self.list);
    }

    /// Makes what was linked visible, after all who linked it. False, and nothing is, if one of them did not come to an end.
    pub fn finish(&self, linking: Linking) -> bool {
        linking.finish(&self.list)
    }

    /// The same as [`MemTable::get`], for who has no hash.
    #[cfg(test)]
    pub fn find(&self, key: &[u8], at: Lsn, committed: impl Fn(u32, Lsn) -> bool) -> Option<VersionRef<'_>> {
        self.get(key, self.hash(key), at, committed)
    }

    /// The hash of a key by the memtable's hasher.
    #[cfg(test)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// False only if there is no version of a key of this hash, by the memtable's hasher; range tombstones apart. O(1).
    #[inline]
    pub fn may_know(&self, hash: u64) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.may_know(hash)) || self.filter.may_know(hash)
    }

    /// Starts to load what a get looks at first: the slot in the hash tier, and the filter, if it is to be asked
    /// ([`MemTable::may_know`]).
    #[inline]
    pub fn prefetch(&self, hash: u64, filter: bool) {
        if let Some(tier) = &self.tier {
            tier.prefetch(hash);
        }
        if filter {
            self.filter.prefetch(hash);
        }
    }

    /// The newest committed version of `key` with LSN < `at`; `hash` is the key's by the memtable's hasher. Does not look
    /// at range tombstones: see [`MemTable::newest_covering`]. O(log n + uncommitted versions of the key), O(1) if its newest
    /// version is in the hash tier and is the one.
    #[inline]
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        at: Lsn,
        committed: impl Fn(u32, Lsn) -> bool,
    ) -> Option<VersionRef<'_>> {
        let newest = Lsn(at.0.checked_sub(1)?);
        let nodes = &self.list.nodes;
        if let Some(tier) = &self.tier {
            if let Some(node) = tier.newest(&self.list, key, hash) {
                let (lsn, batch) = (nodes.lsn(node), nodes.batch(node));
                if lsn <= newest && (batch == NO_BATCH || committed(batch, lsn)) {
                    return Some(VersionRef { lsn, kind: nodes.kind(node), value: nodes.value(node) });
                }
            }
            if !self.filter.may_know(hash) {
                return None;
            }
        }
        let mut found = self.list.find(Place::before(key, newest));
        while let Some(node) = found.filter(|&node| self.list.is_key(node, key)) {
            let (lsn, batch) = (nodes.lsn(node), nodes.batch(node));
            if batch == NO_BATCH || committed(batch, lsn) {
                return Some(VersionRef { lsn, kind: nodes.kind(node), value: nodes.value(node) });
            }
            found = self.list.next(node);
        }
        None
    }

    /// The newest LSN that concerns `key`, whose hash by the memtable's hasher is `hash`: of all its versions and the range
    /// tombstones that cover it, committed or not. O(log n), O(1) if the filter does not know the key.
    pub fn newest_lsn(&self, key: &[u8], hash: u64) -> Option<Lsn> {
        let in_slot = self.tier.as_ref().and_then(|tier| tier.newest(&self.list, key, hash));
        let version = if let Some(node) = in_slot {
            Some(self.list.nodes.lsn(node))
        } else if self.filter.may_know(hash) {
            self.newest_version(key, self.list.find(Place::before(key, Lsn::MAX)))
        } else {
            None
        };
        version.max(self.newest_covering(key, Lsn::MAX, |_, _| true))
    }

    /// The same for the key of a node that was reserved here: O(1), unless many inserts went to the same place since.
    pub fn newest_lsn_at(&self, key: &[u8], reserved: &Reserved) -> Option<Lsn> {
        if self.tier.is_some() {
            return self.newest_lsn(key, reserved.hash());
        }
        let version =
            self.newest_version(key, self.list.find_reserved(reserved, Place::before(key, Lsn::MAX)));
        version.max(self.newest_covering(key, Lsn::MAX, |_, _| true))
    }

    /// The LSN of the first node at or behind the place of `key`, if it is of that key.
    #[inline]
    fn newest_version(&self, key: &[u8], first: Option<Node<'_>>) -> Option<Lsn> {
        first.filter(|&node| self.list.is_key(node, key)).map(|node| self.list.nodes.lsn(node))
    }

    /// Cuts the ranges [start, end) of one write in this keyspace, before its locks are taken; all that is slow about their
    /// deletion happens here. They may be published in another memtable of the keyspace. O(n log n).
    pub fn reserve_ranges(&self, ranges: &[(&[u8], &[u8])]) -> ReservedRanges {
        self.ranges.reserve(&**self.list.comparator(), ranges)
    }

    /// Makes every version in reserved ranges with a smaller LSN absent. `batch` as in [`MemTable::publish`]. O(ranges + log
    /// n). [`MemTable::join_ranges`] is to follow when the locks are free.
    pub fn publish_ranges(&self, ranges: ReservedRanges, lsn: Lsn, batch: Option<u32>) {
        self.ranges.publish(ranges, lsn, batch);
    }

    /// Puts range tombstones of committed writes in order, so that gets need not ask each. Nobody waits for it. O(n), but
    /// amortized O(log n) for each range published.
    pub fn join_ranges(&self, committed: impl Fn(u32, Lsn) -> bool) {
        self.ranges.join(&**self.list.comparator(), committed);
    }

    /// All of it for one range, where no locks are held.
    pub fn publish_range_tombstone(&self, start: &[u8], end: &[u8], lsn: Lsn, batch: Option<u32>) {
        self.publish_ranges(self.reserve_ranges(&[(start, end)]), lsn, batch);
        self.join_ranges(|_, _| false);
    }

    /// The newest committed range tombstone with LSN < `at` that covers `key`. One load while there
    /// are none; O(log n) mostly, see `tombstone_set`.
    #[inline]
    pub fn newest_covering(&self, key: &[u8], at: Lsn, committed: impl Fn(u32, Lsn) -> bool) -> Option<Lsn> {
        if self.ranges.is_empty() {
            return None;
        }
        self.ranges.newest_covering(&**self.list.comparator(), key, at, committed)
    }

    /// Sets that together hold the newest range tombstone of every key and horizon, committed or not; they may hold more.
    /// Shared, not copied.
    pub fn tombstones(&self, horizons: &Horizons) -> Vec<Arc<Tombstones>> {
        self.ranges.sets(horizons)
    }

    /// True if there is a range tombstone. One load.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// A cursor over the versions (not the range tombstones). It keeps the memtable alive. What was published before is
    /// in it; of what a hash tier gets later, all that is needed below a snapshot that was registered before.
    pub fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(Arc::clone(self))
    }

    /// The same for a flush: once and forward, when all writes are complete and no more come. What the hash tier holds it does not put
    /// into the list.
    pub fn flush_cursor(self: &Arc<Self>) -> FlushCursor {
        FlushCursor::new(Arc::clone(self))
    }

    /// Bytes in use: nodes, values, range tombstones, the filter, and what is handed out to threads. O(1).
    #[inline]
    pub fn bytes(&self) -> usize {
        self.list.bytes()
            + self.ranges.bytes()
            + self.filter.bytes()
            + self.tier.as_ref().map_or(0, TwoTier::bytes)
    }

    /// Bytes of the hash tier's table.
    #[cfg(all(test, not(loom)))]
    pub(super) fn hash_bytes(&self) -> usize {
        self.tier.as_ref().map_or(0, TwoTier::table_bytes)
    }

    /// Versions there are, without range tombstones; with a hash tier, about. O(cores).
    pub fn entries(&self) -> usize {
        self.list.nodes.arena.entries() + self.unsorted()
    }

    /// So many of them, at most, are counted twice.
    pub fn counted_twice(&self) -> usize {
        self.tier.as_ref().map_or(0, TwoTier::copies)
    }

    /// About how many versions, and how many of them deletes, have a key from `start` on and before `end` (`None` is
    /// unbounded); and whether that is exact, as it is for a few hundred, and where there
    /// is a guide for some thousands. Else it is a sixteenth off in the mean. Of a hash tier only what was settled counts. O(log
    /// n), and so many versions.
    pub fn approximate_entries(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> (u64, u64, bool) {
        let from = start.map(|key| Place::before(key, Lsn::MAX));
        self.list.count(from, end.map(|key| Place::before(key, Lsn::MAX)))
    }

    /// True if it holds neither versions nor range tombstones.
    pub fn is_empty(&self) -> bool {
        self.tier.as_ref().is_none_or(TwoTier::is_empty)
            && self.list.first().is_none()
            && self.ranges.is_empty()
    }
}

impl Drop for MemTable {
    fn drop(&mut self) {
        failpoint::hit("memtable::dropped");
    }
}

impl std::fmt::Debug for MemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemTable({} entries, {} bytes)", self.entries(), self.bytes())
    }
}
