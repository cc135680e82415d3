//! Shortcuts: for the blocks of one table, by number, where the cache has them.
//!
//! Place: an open table holds some. A get that knows the number of a block needs neither its place in the file nor its bucket
//! in the cache, which are two loads from memory, one behind the other.
//!
//! Invariants:
//! 1. A shortcut leads nowhere, or to a block that the cache has, whose head leads back to it.
//! 2. Both ends change only under the mutex of the block's shard.
//! 3. When shortcuts go, none of them leads anywhere: no head leads back to what is not there any more.
//!
//! Concurrency: who follows a shortcut is pinned and takes no lock; the end is published with Release and read with Acquire. A
//! block that leaves the cache is first cut off from its shortcut, then given up to the epoch (`buckets`): so whoever pins from
//! then on does not reach it, and who is pinned may read it. It is connected under the mutex under which it would be unlinked,
//! and only if it is still linked: else it could be reached again after it was given up. To connect never waits: where the mutex
//! is taken, the block is left for the next who asks for it.
//! Complexity: all O(1), but dropping: O(blocks), and a mutex taken for each that is connected.
//! Memory: 8 bytes a block. Origin: ours; LeanStore's swizzled pointers (Leis et al. 2018, §IV) lead to pages in the same way.
//! Tests: `cache/tests.rs`, `loom_tests`, `table/tests/`.
#![allow(unsafe_code)]

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::block::{BlockRef, Head};
use super::{BlockCache, hash};
use crate::sync::atomic::{AtomicPtr, Ordering};

/// One of them. What it leads to is a `T`: a block's head, but for the model checker.
pub(super) struct Shortcut<T = Head>(AtomicPtr<T>);

impl<T> Shortcut<T> {
    pub(super) fn nowhere() -> Shortcut<T> {
        Shortcut(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Where it leads; null is nowhere. Whoever is pinned may read what is there.
    #[inline]
    pub(super) fn end(&self) -> *const T {
        self.0.load(Ordering::Acquire)
    }

    /// Leads it to what is linked. Under the mutex of its shard.
    pub(super) fn connect(&self, end: *const T) {
        self.0.store(end.cast_mut(), Ordering::Release);
    }

    /// Leads it nowhere. Under the mutex of the shard in which its end is, before that is given up.
    pub(super) fn cut(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The shortcuts of a table; see the module.
pub struct Shortcuts {
    cache: Arc<BlockCache>,
    table: u64,
    list: Box<[Shortcut]>,
}

impl Shortcuts {
    /// For the first `blocks` blocks of `table`, none connected.
    pub fn new(cache: Arc<BlockCache>, table: u64, blocks: usize) -> Shortcuts {
        Shortcuts { cache, table, list: (0..blocks).map(|_| Shortcut::nowhere()).collect() }
    }

    /// The block of this number if it is connected, which is then a hit, valid as long as the guard.
    #[inline]
    pub fn get<'g>(&self, number: usize, _guard: &'g Guard) -> Option<BlockRef<'g>> {
        let end = self.list.get(number)?.end();
        if end.is_null() {
            return None;
        }
        // SAFETY: a block that a bucket has, or had when this was pinned already: see the module.
        // Test: shortcuts_race_evictions_and_lead_to_their_own_blocks.
        let found = unsafe { BlockRef::new(end) };
        found.head().touch();
        self.cache.counters.count(true);
        Some(found)
    }

    /// As [`BlockCache::get`] of the block of this number, which begins at `offset`; connects it for the next.
    pub fn find<'g>(&self, number: usize, offset: u64, guard: &'g Guard) -> Option<BlockRef<'g>> {
        let found = self.cache.get(self.table, offset, guard)?;
        if let Some(shortcut) = self.list.get(number) {
            let hash = hash(self.table, offset);
            self.cache.shard(hash).connect(shortcut, hash, self.table, offset, guard);
        }
        Some(found)
    }

    /// Bytes that so many blocks' shortcuts take.
    pub fn bytes(blocks: usize) -> usize {
        size_of::<Shortcuts>() + blocks * size_of::<Shortcut>()
    }
}

impl Drop for Shortcuts {
    fn drop(&mut self) {
        let guard = crossbeam_epoch::pin();
        for shortcut in &self.list {
            let end = shortcut.end();
            if end.is_null() {
                continue;
            }
            // SAFETY: as in `get`: it leads to a block now, and this is pinned.
            // Test: shortcuts_that_go_leave_no_way_back.
            let (table, offset) = unsafe { BlockRef::new(end) }.head().identity();
            self.cache.shard(hash(table, offset)).disconnect(shortcut, &guard);
        }
    }
}

impl std::fmt::Debug for Shortcuts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connected = self.list.iter().filter(|shortcut| !shortcut.end().is_null()).count();
        write!(f, "Shortcuts({connected} of {} blocks)", self.list.len())
    }
}
