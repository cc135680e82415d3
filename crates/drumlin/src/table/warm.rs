//! Which blocks of a table that is being written are kept in the cache at once.
//!
//! Place: in a [`super::TableWriter`] of a flush or a compaction.
//!
//! What is written anew is new to the cache: without this a merge makes everything cold that it touches, and so the more
//! often is read from files the more is written. A block is kept as one in use if most of its entries lay in blocks in use
//! (`Cursor::is_in_use`); another one if there is room. Neither while nobody reads: then keeping it is work for nothing.
//! Whether somebody reads is told by the looks at the cache: about one for each block that a writer writes, or more.
//!
//! What it is worth: docs/design/speed.md. Concurrency: one thread. Tests: below, tests of `compaction`.

use std::sync::Arc;

use crate::cache::BlockCache;
use crate::table::TableId;

/// Blocks between two counts of looks at the cache.
const BLOCKS_A_COUNT: u64 = 64;

/// See the module.
pub(super) struct Warm {
    cache: Arc<BlockCache>,
    table: TableId,
    /// Entries of the current block that lay in blocks in use.
    in_use: usize,
    /// Blocks until looks are counted next.
    left: u64,
    /// What they were.
    looks: u64,
}

impl Warm {
    pub(super) fn new(cache: Arc<BlockCache>, table: TableId) -> Warm {
        let looks = cache.looks();
        Warm { cache, table, in_use: 0, left: BLOCKS_A_COUNT, looks }
    }

    /// The next entry lay in a block in use.
    #[inline]
    pub(super) fn next_is_in_use(&mut self) {
        self.in_use += 1;
    }

    /// A block of so many entries was written.
    pub(super) fn written(&mut self, offset: u64, block: &[u8], entries: usize) {
        let in_use = std::mem::take(&mut self.in_use);
        if self.left == 0 {
            let looks = self.cache.looks();
            self.cache.set_is_read(looks - self.looks >= BLOCKS_A_COUNT);
            (self.left, self.looks) = (BLOCKS_A_COUNT, looks);
        }
        self.left -= 1;
        if self.cache.is_read() {
            self.cache.keep_written(self.table.0, offset, block, in_use > entries / 2);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The numbers of the blocks kept of 300 with ten entries each, so many of them from blocks in use, and whether they
    /// count as such, while `reads` looks at the cache come before each block.
    fn kept(cache: &Arc<BlockCache>, reads: u64, in_use: impl Fn(u64) -> u32) -> Vec<(u64, bool)> {
        let mut warm = Warm::new(Arc::clone(cache), TableId(1));
        for n in 0..300 {
            (0..reads).for_each(|_| assert!(cache.get(9, 9, &crossbeam_epoch::pin()).is_none()));
            (0..in_use(n)).for_each(|_| warm.next_is_in_use());
            warm.written(n * 100, &[n as u8; 100], 10);
        }
        let there = |n: u64| Some((n, cache.glance(1, n * 100, &crossbeam_epoch::pin())?.is_used()));
        (0..300).filter_map(there).collect()
    }

    #[test]
    fn nothing_is_kept_while_nobody_reads() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        assert_eq!(kept(&cache, 0, |_| 10), []);
        cache.set_is_read(true);
        let before_looks_are_counted = kept(&cache, 0, |_| 10);
        assert!(before_looks_are_counted.iter().all(|&(n, _)| n < BLOCKS_A_COUNT));
        assert!(before_looks_are_counted.len() > 50 && !cache.is_read());
    }

    // A full bucket of the cache gives up a block or two, and takes others for out of use.
    #[test]
    fn what_is_kept_is_in_use_if_most_of_its_entries_were() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        cache.set_is_read(true);
        let kept = kept(&cache, 1, |n| n as u32 % 11);
        let right = kept.iter().filter(|&&(n, in_use)| in_use == (n % 11 > 5)).count();
        assert!(right > 280 && kept.iter().all(|&(n, in_use)| !in_use || n % 11 > 5), "{kept:?}");
    }

    #[test]
    fn reading_begins_to_count_within_a_table() {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let kept = kept(&cache, 1, |_| 0);
        assert!(kept.len() > 220 && kept.iter().all(|&(n, _)| n >= BLOCKS_A_COUNT), "{kept:?}");
    }
}
