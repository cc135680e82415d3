//! The block cache: decoded table blocks, read without a lock, evicted by CLOCK.
//!
//! Place: one per store, shared by every table; `table` looks blocks up by (table, offset) and
//! offers what it had to read, and some of what it wrote.
//!
//! Invariants:
//! 1. A returned block is the one inserted under that (table, offset).
//! 2. `bytes()` counts every linked block with its overhead and stays at or below `capacity()`, but for
//!    at most one block per thread that is inside `insert`.
//! 3. A hit writes nothing shared unless the block's reference bit is clear, or no shortcut leads to it that could (its
//!    counter is the thread's own stripe).
//! 4. Evicted blocks that readers may still hold take little more than an eighth of the capacity: beyond that nothing new
//!    is kept until some are freed.
//! 5. A miss may be spurious (a block being moved); a hit is never wrong.
//! 6. Chunks in use and blocks outside of them take at most the capacity and an eighth, but for a chunk per slab.
//!
//! Concurrency: readers pin an epoch and follow two pointers: shard → buckets → block. Both are
//! published with Release by a writer that holds the shard's mutex and consumed with Acquire.
//! What is unlinked is given up after the epoch, so a reader that is pinned may hold what it found; one that wants it
//! for longer counts a reference.
//! Lock order: `aside`, then a slab's mutex; one shard mutex at a time, by itself. Nothing is evicted, and no epoch is
//! pinned, under `aside`: that may run anybody's destructor.
//!
//! Layout in memory: a shard is an array of buckets, one cache line of eight pointers each; the pointers' low six bits
//! hold a part of the hash. What they point to is a block: a head of 40 bytes, then the block's own (`block`). So a
//! look-up reads the line of a bucket, and one that has both the name to compare and the block's beginning.
//! The array doubles when three of eight slots are full. A new block's reference bit is clear, unless it takes the
//! place of blocks in use: a block read once by a scan goes before a block that was asked for twice.
//! From [`SLAB_BYTES`] of capacity on, `insert` copies a block into a run of a slab's chunk, in a huge page (`slab`): a
//! small cache's blocks, and those too large for a run, lie where they were read. Slabs are chosen by hash; where one has
//! no run for a block, the block is not kept, and some others are evicted for the next.
//!
//! Whoever knows early what it will look up has it loaded a stage at a time ([`BlockCache::prefetch`]); whoever knows a block by
//! its number has a shortcut to it ([`Shortcuts`]).
//!
//! Which blocks that were read a full cache takes, `admission` says.
//!
//! Origin: CLOCK, and the observation of MemC3 and others that look-ups should not reorder a list.
//!
//! Tests: `cache/tests.rs`, those of the parts, `loom_tests`.

mod accounts;
mod admission;
#[cfg(all(test, not(loom)))]
mod admission_tests;
mod block;
mod buckets;
mod counters;
mod holders;
#[cfg(all(test, loom))]
mod loom_tests;
mod shortcuts;
mod slab;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use crate::sync::{CachePadded, Mutex};
use accounts::Accounts;
use admission::Admission;
pub use block::{BlockRef, SharedBlock};
use buckets::Shard;
use counters::Counters;
pub use shortcuts::Shortcuts;
use slab::{CHUNK_BYTES, RUN_BYTES_MAX, Slab};

/// Shards, at most.
const SHARDS_MAX: usize = 64;
/// Evicted blocks that may wait to be freed, besides an eighth of the capacity, in bytes.
const GARBAGE_BYTES: usize = 256 << 10;
/// Capacity that is worth a shard of its own, in bytes.
const SHARD_BYTES: usize = 512 << 10;
/// Capacity from which on blocks are kept in slabs, and capacity that is worth one more of them, in bytes.
const SLAB_BYTES: usize = 16 << 20;
/// Where there is no place for a block, so many times its bytes are evicted.
const EVICTED_FOR_ONE: usize = 4;
/// Slabs, at most.
const SLABS_MAX: usize = 8;
/// A cache is full when all but one of so many parts of its capacity are.
const FULL_PARTS: usize = 16;
/// What is written and was not in use is kept until all but one of so many parts of the capacity are full.
const ROOM_PARTS: usize = 8;
/// Bytes are set aside for blocks outside of chunks in steps of this part of the capacity.
const ASIDE_STEPS: usize = 32;

/// What a look-up reads, one behind the other: each stage is found by the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The bucket.
    Bucket,
    /// The first lines of the block.
    Block,
}

/// A cache of blocks; see the module.
pub struct BlockCache {
    shards: Box<[CachePadded<Shard>]>,
    /// Where blocks lie; none in a small cache, whose blocks lie where they were read.
    slabs: Box<[CachePadded<Slab>]>,
    /// Bytes of all chunks that slabs may have; a small cache has no slabs, and no such bound. Relaxed, a hint.
    slab_bytes: AtomicUsize,
    /// Bytes of the capacity that slabs may not have, for what lies outside of their chunks. Who holds it sets their limits.
    aside: Mutex<usize>,
    bytes: CachePadded<AtomicUsize>,
    capacity: AtomicUsize,
    counters: Counters,
    admission: Admission,
    /// Looked up about as often as blocks are written, or more; Relaxed, a hint.
    is_read: AtomicBool,
    accounts: Arc<Accounts>,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`, overhead included. 0 caches nothing.
    pub fn new(capacity_bytes: usize) -> BlockCache {
        let accounts = Arc::<Accounts>::default();
        let shards = (capacity_bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).next_power_of_two();
        let slabs = (capacity_bytes / SLAB_BYTES).min(SLABS_MAX);
        let limit = chunks_of(capacity_bytes, slabs, 0);
        let slab = |_| CachePadded::new(Slab::new(limit, Arc::clone(&accounts)));
        BlockCache {
            slabs: (0..slabs).map(slab).collect(),
            slab_bytes: AtomicUsize::new(slab_bytes(limit, slabs)),
            shards: (0..shards).map(|_| CachePadded::new(Shard::new(Arc::clone(&accounts)))).collect(),
            aside: Mutex::new(0),
            accounts,
            bytes: CachePadded::new(AtomicUsize::new(0)),
            capacity: AtomicUsize::new(capacity_bytes),
            counters: Counters::new(),
            admission: Admission::new(capacity_bytes),
            is_read: AtomicBool::new(false),
        }
    }

    /// The block of `table` at `offset`, valid as long as the guard. Lock-free, O(1).
    #[inline]
    pub fn get<'g>(&self, table: u64, offset: u64, guard: &'g Guard) -> Option<BlockRef<'g>> {
        let found = self.peek(table, offset, guard);
        self.counters.count(found.is_some());
        found
    }

    /// As [`BlockCache::get`], but counted neither as a hit nor as a miss: for a second look after a miss.
    #[inline]
    pub fn peek<'g>(&self, table: u64, offset: u64, guard: &'g Guard) -> Option<BlockRef<'g>> {
        let found = self.glance(table, offset, guard)?;
        found.head().touch();
        Some(found)
    }

    /// As [`BlockCache::peek`], but no use either: for a merge, which reads everything once.
    #[inline]
    pub fn glance<'g>(&self, table: u64, offset: u64, guard: &'g Guard) -> Option<BlockRef<'g>> {
        let hash = hash(table, offset);
        self.shard(hash).find(hash, table, offset, guard)
    }

    /// Starts to load what `stage` of a look-up reads. Counted neither as a look nor as a use.
    #[inline]
    pub fn prefetch(&self, table: u64, offset: u64, stage: Stage, guard: &Guard) {
        let hash = hash(table, offset);
        self.shard(hash).prefetch(hash, stage, guard);
    }

    /// Whether a block of `bytes` that was read is worth its place: there is room, or it may displace others (`admission`). Asked once
    /// for each, before it is inserted.
    pub fn admits(&self, table: u64, offset: u64, bytes: usize) -> bool {
        self.has_room(bytes, FULL_PARTS) || self.admission.admits(hash(table, offset), || self.hits())
    }

    /// Whether `bytes` more leave one of so many parts free of what it can hold: the capacity, or less where slabs may have fewer chunks.
    fn has_room(&self, bytes: usize, parts: usize) -> bool {
        let placed = self.slab_bytes.load(Ordering::Relaxed).saturating_add(self.accounts.outside.bytes());
        self.bytes() + bytes <= self.capacity().min(placed) / parts * (parts - 1)
    }

    /// As `insert`, of a block that is admitted; else it is given back as it is.
    pub fn offer(&self, table: u64, offset: u64, block: SharedBlock) -> SharedBlock {
        if self.admits(table, offset, block.len()) { self.insert(table, offset, block) } else { block }
    }

    /// Keeps `block` as the one of `table` at `offset`, evicting others to make room; the block, perhaps in another place.
    /// One that would fill more than half of the cache is not kept; one already there stays.
    /// O(bytes + evicted); linked under the shard's mutex.
    pub fn insert(&self, table: u64, offset: u64, mut block: SharedBlock) -> SharedBlock {
        let hash = hash(table, offset);
        let slab = self.slab(hash, block.len());
        let charge = block::charge(block.len(), slab.is_some());
        if charge > self.capacity() / 2 || self.is_littered() {
            return block;
        }
        self.make_room(hash, charge);
        if let Some(slab) = slab {
            match slab.place(&block) {
                Some(placed) => block = placed,
                None => {
                    // What is left lies in pieces, or waits for the epoch: there is to be more of it.
                    self.fit_slabs(false);
                    self.evict(hash, charge * EVICTED_FOR_ONE);
                    return block;
                }
            }
        }
        if !block.identify(table, offset) {
            debug_assert!(false, "somebody reads a block that is not in the cache yet");
            return block;
        }
        // Counted before it can be evicted, so that the sum never falls below zero.
        self.bytes.fetch_add(charge, Ordering::Relaxed);
        let guard = crossbeam_epoch::pin();
        let removed = self.shard(hash).insert(hash, block.clone(), &guard);
        self.bytes.fetch_sub(removed, Ordering::Relaxed);
        drop(guard);
        if slab.is_none() {
            self.fit_slabs(false);
        }
        block
    }

    /// Keeps what was just written as the block of `table` at `offset`, if there is room, or if it takes the place of blocks
    /// in use, as which it then counts, too. As `insert`.
    pub fn keep_written(&self, table: u64, offset: u64, bytes: &[u8], in_use: bool) {
        if in_use || self.has_room(bytes.len(), ROOM_PARTS) {
            let block = self.insert(table, offset, SharedBlock::copy_of(bytes));
            if in_use {
                block.head().touch();
            }
        }
    }

    /// True if too much of what was evicted is not freed yet, even after an attempt.
    fn is_littered(&self) -> bool {
        let too_much = || self.accounts.garbage.bytes() > self.capacity() / 8 + GARBAGE_BYTES;
        too_much() && {
            crossbeam_epoch::pin().flush();
            too_much()
        }
    }

    /// Evicts until `charge` more bytes fit, from the shard of `hash` first.
    fn make_room(&self, hash: u64, charge: usize) {
        let over = (self.bytes() + charge).saturating_sub(self.capacity());
        self.evict(hash, over);
    }

    /// Evicts about `bytes`, from the shard of `hash` first.
    fn evict(&self, hash: u64, bytes: usize) {
        let first = self.shard_index(hash);
        let mut left = bytes;
        for step in 0..self.shards.len() {
            if left == 0 {
                return;
            }
            let shard = &self.shards[(first + step) & (self.shards.len() - 1)];
            let freed = shard.evict(left, &crossbeam_epoch::pin());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
            left = left.saturating_sub(freed);
        }
    }

    /// Drops the block of `table` at `offset`.
    pub fn evict_block(&self, table: u64, offset: u64) {
        let hash = hash(table, offset);
        let freed = self.shard(hash).remove(hash, table, offset, &crossbeam_epoch::pin());
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Drops every block of `table`. O(cache).
    pub fn evict_table(&self, table: u64) {
        self.evict_tables(&[table]);
    }

    /// Drops every block of these tables, in one walk. O(cache).
    pub fn evict_tables(&self, tables: &[u64]) {
        if !tables.is_empty() && self.bytes() > 0 {
            self.evict_if(&|block| tables.contains(&block.head().identity().0));
        }
    }

    fn evict_if(&self, meant: &dyn Fn(&BlockRef<'_>) -> bool) {
        for shard in &self.shards {
            let freed = shard.evict_if(meant, &crossbeam_epoch::pin());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Bytes of the blocks that are in it, overhead included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory held: chunks, whatever is in them, and blocks outside of chunks, until they are freed.
    pub fn held_bytes(&self) -> usize {
        self.accounts.chunks.bytes() + self.accounts.outside.bytes()
    }

    /// Most bytes of blocks that may be in it.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, evicting what no longer fits. O(cache) if it takes chunks from the slabs.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.make_room(0, 0);
        self.fit_slabs(true);
    }

    /// Gives the slabs what the capacity is now, less what lies outside of chunks; if not `always`, then when that has
    /// changed by a step or more. O(cache) if it takes chunks from them.
    fn fit_slabs(&self, always: bool) {
        if self.slabs.is_empty() {
            return;
        }
        let out: Vec<usize> = {
            let mut aside = self.aside.lock();
            let (outside, step) = (self.accounts.outside.bytes(), self.capacity() / ASIDE_STEPS);
            let wanted = if outside == 0 { 0 } else { outside + step };
            if !always && outside <= *aside && wanted + step >= *aside {
                return;
            }
            *aside = wanted;
            let limit = chunks_of(self.capacity(), self.slabs.len(), wanted);
            self.slab_bytes.store(slab_bytes(limit, self.slabs.len()), Ordering::Relaxed);
            self.slabs.iter().flat_map(|slab| slab.set_limit(limit)).collect()
        };
        if !out.is_empty() {
            // By address: what a block's head says is a line to load for each of them.
            self.evict_if(&|block| out.contains(&slab::chunk_address(block.address())));
        }
    }

    /// Look-ups that found their block.
    pub fn hits(&self) -> u64 {
        self.counters.hits()
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.counters.misses()
    }

    /// Look-ups.
    pub fn looks(&self) -> u64 {
        self.hits() + self.misses()
    }

    /// Whether it is worth it to keep what is written, as whoever writes found last.
    pub fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Relaxed)
    }

    /// Tells others who write.
    pub fn set_is_read(&self, is_read: bool) {
        if self.is_read() != is_read {
            self.is_read.store(is_read, Ordering::Relaxed);
        }
    }

    /// Where a block of `length` bytes goes, unless it stays where it is.
    fn slab(&self, hash: u64, length: usize) -> Option<&Slab> {
        let fits = block::HEAD_BYTES + length <= RUN_BYTES_MAX;
        let slab = (hash as usize).checked_rem(self.slabs.len()).filter(|_| fits)?;
        Some(&self.slabs[slab])
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[self.shard_index(hash)]
    }

    #[inline]
    fn shard_index(&self, hash: u64) -> usize {
        (hash >> 56) as usize & (self.shards.len() - 1)
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "BlockCache({} of {} bytes, {} hits, {} misses)",
            self.bytes(),
            self.capacity(),
            self.hits(),
            self.misses()
        )
    }
}

/// Chunks that each of so many slabs may have: an eighth more than the capacity, for what was evicted and is not freed,
/// and for what lies between blocks, less what is set aside; and one at least.
fn chunks_of(capacity: usize, slabs: usize, aside: usize) -> usize {
    let bytes = (capacity + capacity / 8).saturating_sub(aside);
    bytes.checked_div(slabs * CHUNK_BYTES).map_or(0, |chunks| chunks.max(1))
}

/// Bytes of so many slabs of so many chunks.
fn slab_bytes(chunks: usize, slabs: usize) -> usize {
    if slabs == 0 { usize::MAX } else { chunks * slabs * CHUNK_BYTES }
}

/// Spreads (table, offset): top bits choose the shard, the next six the tag, the low bits the bucket.
#[inline]
fn hash(table: u64, offset: u64) -> u64 {
    let word = (table.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ offset).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 29)
}

#[cfg(test)]
mod tests;
