//! The block cache: decoded table blocks, read without a lock, evicted by CLOCK.
//!
//! Place: one per store, shared by every table; `table` looks blocks up by (table, offset) and
//! inserts what it had to read.
//!
//! Invariants:
//! 1. A returned block is the one inserted under that (table, offset).
//! 2. `bytes()` counts every entry with its overhead and stays at or below `capacity()`, but for
//!    at most one block per thread that is inside `insert`.
//! 3. A hit writes nothing shared unless the entry's reference bit is clear (its counter is the
//!    thread's own stripe).
//! 4. Evicted blocks that readers may still hold take little more than an eighth of the capacity: beyond that nothing new
//!    is kept until some are freed.
//! 5. A miss may be spurious (an entry being moved); a hit is never wrong.
//!
//! Concurrency: readers pin an epoch and follow two pointers: shard → buckets → entry. Both are
//! published with Release by a writer that holds the shard's mutex and consumed with Acquire.
//! What is unlinked is destroyed after the epoch, so a reader that is pinned may hold what it found.
//! Lock order: one shard mutex at a time, nothing else is taken under it.
//!
//! Layout in memory: a shard is an array of buckets, one cache line of eight entry pointers each;
//! the pointers' low six bits hold a part of the hash, so a look-up reads one bucket line and one
//! entry line. The array doubles when half full. A new entry's reference bit is clear: a block
//! read once by a scan goes before a block that was asked for twice.
//!
//! Origin: CLOCK, and the observation of MemC3 and others that look-ups should not reorder a list.
//!
//! Tests: `cache/tests.rs`.

mod buckets;
mod counters;
mod shared;
mod slab;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use crate::budget::Account;
use crate::sync::CachePadded;
use buckets::Shard;
use counters::Counters;
use shared::Head;
pub use shared::{BlockRef, SharedBlock};
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

/// A cache of blocks; see the module.
pub struct BlockCache {
    shards: Box<[CachePadded<Shard>]>,
    /// Where blocks lie; none in a small cache, whose blocks lie where they were read.
    slabs: Box<[CachePadded<Slab>]>,
    bytes: CachePadded<AtomicUsize>,
    capacity: AtomicUsize,
    counters: Counters,
    /// Bytes evicted and not yet freed.
    garbage: Arc<Account>,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes`, overhead included. 0 caches nothing.
    pub fn new(capacity_bytes: usize) -> BlockCache {
        let garbage = Arc::<Account>::default();
        let shards = (capacity_bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).next_power_of_two();
        let slabs = (capacity_bytes / SLAB_BYTES).min(SLABS_MAX);
        let limit = chunks_of(capacity_bytes, slabs);
        BlockCache {
            slabs: (0..slabs).map(|_| CachePadded::new(Slab::new(limit))).collect(),
            shards: (0..shards).map(|_| CachePadded::new(Shard::new(Arc::clone(&garbage)))).collect(),
            garbage,
            bytes: CachePadded::new(AtomicUsize::new(0)),
            capacity: AtomicUsize::new(capacity_bytes),
            counters: Counters::new(),
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
        let hash = hash(table, offset);
        let found = self.shard(hash).find(hash, table, offset, guard)?;
        found.head().touch();
        Some(found)
    }

    /// Keeps `block` as the one of `table` at `offset`, evicting others to make room; the block, perhaps in another place.
    /// One that would fill more than half of the cache is not kept; one already there stays.
    /// O(bytes + evicted), under the shard's mutex.
    pub fn insert(&self, table: u64, offset: u64, mut block: SharedBlock) -> SharedBlock {
        let hash = hash(table, offset);
        let slab = self.slab(hash, block.len());
        let charge = shared::charge(block.len(), slab.is_some());
        if charge > self.capacity() / 2 || self.is_littered() {
            return block;
        }
        self.make_room(hash, charge);
        if let Some(slab) = slab {
            match slab.place(&block) {
                Some(placed) => block = placed,
                None => {
                    // What is left lies in pieces, or waits for the epoch: there is to be more of it.
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
        block
    }

    /// True if too much of what was evicted is not freed yet, even after an attempt.
    fn is_littered(&self) -> bool {
        let too_much = || self.garbage.bytes() > self.capacity() / 8 + GARBAGE_BYTES;
        too_much() && {
            crossbeam_epoch::pin().flush();
            too_much()
        }
    }

    /// Bytes evicted and not yet freed.
    pub fn garbage_bytes(&self) -> usize {
        self.garbage.bytes()
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

    /// Drops every block of `table`. O(cache).
    pub fn evict_table(&self, table: u64) {
        self.evict_if(&|head| head.identity().0 == table);
    }

    fn evict_if(&self, meant: &dyn Fn(&Head) -> bool) {
        for shard in &self.shards {
            let freed = shard.evict_if(meant, &crossbeam_epoch::pin());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Bytes held, overhead of the entries included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the chunks in use.
    #[cfg(test)]
    fn chunk_bytes(&self) -> usize {
        self.slabs.iter().map(|slab| slab.chunks() * CHUNK_BYTES).sum()
    }

    /// Most bytes that may be held.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, evicting what no longer fits. O(cache) if it takes chunks from the slabs.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.make_room(0, 0);
        let limit = chunks_of(bytes, self.slabs.len());
        if self.slabs.iter().filter(|slab| slab.set_limit(limit)).count() > 0 {
            self.evict_if(&Head::is_out);
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

    /// Where a block of `length` bytes goes, unless it stays where it is.
    fn slab(&self, hash: u64, length: usize) -> Option<&Slab> {
        let fits = shared::HEAD_BYTES + length <= RUN_BYTES_MAX;
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
/// and for what lies between blocks.
fn chunks_of(capacity: usize, slabs: usize) -> usize {
    (capacity + capacity / 8).checked_div(slabs * CHUNK_BYTES).map_or(0, |chunks| chunks.max(1))
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
