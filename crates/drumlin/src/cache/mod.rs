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
//! Whoever knows early what it will look up has it loaded a stage at a time ([`BlockCache::prefetch`]).
//!
//! Origin: CLOCK, and the observation of MemC3 and others that look-ups should not reorder a list.
//!
//! Tests: `cache/tests.rs`.

mod buckets;
mod counters;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_epoch::{Guard, Owned};

use crate::budget::Account;
use crate::sync::CachePadded;
use buckets::{Entry, Shard};
use counters::Counters;

/// Shards, at most.
const SHARDS_MAX: usize = 64;
/// Evicted blocks that may wait to be freed, besides an eighth of the capacity, in bytes.
const GARBAGE_BYTES: usize = 256 << 10;
/// Capacity that is worth a shard of its own, in bytes.
const SHARD_BYTES: usize = 512 << 10;

/// What a look-up reads, one behind the other: each stage is found by the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The bucket.
    Bucket,
    /// The entry.
    Entry,
    /// The first lines of the block.
    Block,
}

/// A cache of blocks; see the module.
pub struct BlockCache {
    shards: Box<[CachePadded<Shard>]>,
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
        BlockCache {
            shards: (0..shards).map(|_| CachePadded::new(Shard::new(Arc::clone(&garbage)))).collect(),
            garbage,
            bytes: CachePadded::new(AtomicUsize::new(0)),
            capacity: AtomicUsize::new(capacity_bytes),
            counters: Counters::new(),
        }
    }

    /// The block of `table` at `offset`, valid as long as the guard. Lock-free, O(1).
    #[inline]
    pub fn get<'g>(&self, table: u64, offset: u64, guard: &'g Guard) -> Option<&'g Arc<[u8]>> {
        let found = self.peek(table, offset, guard);
        self.counters.count(found.is_some());
        found
    }

    /// As [`BlockCache::get`], but counted neither as a hit nor as a miss: for a second look after a miss.
    #[inline]
    pub fn peek<'g>(&self, table: u64, offset: u64, guard: &'g Guard) -> Option<&'g Arc<[u8]>> {
        let hash = hash(table, offset);
        let entry = self.shard(hash).find(hash, table, offset, guard)?;
        entry.touch();
        Some(&entry.block)
    }

    /// Starts to load what `stage` of a look-up reads. Counted neither as a look nor as a use.
    #[inline]
    pub fn prefetch(&self, table: u64, offset: u64, stage: Stage, guard: &Guard) {
        let hash = hash(table, offset);
        self.shard(hash).prefetch(hash, table, offset, stage, guard);
    }

    /// Keeps `block` as the one of `table` at `offset`, evicting others to make room. A block that
    /// would fill more than half of the cache is not kept; one already there stays.
    /// O(evicted), under the shard's mutex.
    pub fn insert(&self, table: u64, offset: u64, block: Arc<[u8]>) {
        let charge = Entry::charge(&block);
        if charge > self.capacity() / 2 || self.is_littered() {
            return;
        }
        let hash = hash(table, offset);
        self.make_room(hash, charge);
        // Counted before it can be evicted, so that the sum never falls below zero.
        self.bytes.fetch_add(charge, Ordering::Relaxed);
        let guard = crossbeam_epoch::pin();
        let removed = self.shard(hash).insert(hash, Owned::new(Entry::new(table, offset, block)), &guard);
        self.bytes.fetch_sub(removed, Ordering::Relaxed);
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
        let first = self.shard_index(hash);
        for step in 0..self.shards.len() {
            let over = (self.bytes() + charge).saturating_sub(self.capacity());
            if over == 0 {
                return;
            }
            let shard = &self.shards[(first + step) & (self.shards.len() - 1)];
            let freed = shard.evict(over, &crossbeam_epoch::pin());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Drops every block of `table`. O(cache).
    pub fn evict_table(&self, table: u64) {
        for shard in &self.shards {
            let freed = shard.evict_table(table, &crossbeam_epoch::pin());
            self.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Bytes held, overhead of the entries included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Most bytes that may be held.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, evicting what no longer fits.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.make_room(0, 0);
    }

    /// Look-ups that found their block.
    pub fn hits(&self) -> u64 {
        self.counters.hits()
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.counters.misses()
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

/// Spreads (table, offset): top bits choose the shard, the next six the tag, the low bits the bucket.
#[inline]
fn hash(table: u64, offset: u64) -> u64 {
    let word = (table.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ offset).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 29)
}

#[cfg(test)]
mod tests;
