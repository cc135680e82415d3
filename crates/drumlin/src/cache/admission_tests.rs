//! Tests of what a full cache keeps.

use crate::cache::{BlockCache, SharedBlock};
use crate::dice::Dice;

const BLOCK_BYTES: usize = 4096;
const CAPACITY: usize = 4 << 20;

/// Looks for each of these blocks, and offers it if it is not there: hits, and how many were kept.
fn look(cache: &BlockCache, blocks: impl Iterator<Item = u64>) -> (usize, usize) {
    let (mut hits, mut kept) = (0, 0);
    for block in blocks {
        let offset = block * BLOCK_BYTES as u64;
        let is_there = || cache.glance(1, offset, &crossbeam_epoch::pin()).is_some();
        if cache.get(1, offset, &crossbeam_epoch::pin()).is_some() {
            hits += 1;
        } else {
            // Tests beside this one pin the epoch: for what waits for it, more blocks would be evicted than have to, and others kept in
            // their place. It tells nobody when it moves on.
            while cache.accounts.garbage.bytes() > cache.capacity() / 64 {
                crossbeam_epoch::pin().flush();
                std::thread::yield_now();
            }
            cache.offer(1, offset, SharedBlock::zeroed(BLOCK_BYTES));
            kept += usize::from(is_there());
        }
    }
    (hits, kept)
}

#[test]
fn of_blocks_that_are_seldom_asked_for_few_are_kept_and_as_many_found() {
    let cache = BlockCache::new(CAPACITY);
    let mut dice = Dice(1);
    // Ten times as many as there is room for.
    let mut anywhere = |looks| look(&cache, (0..looks).map(|_| dice.below(10_000)));
    let _ = anywhere(20_000);
    let (hits, kept) = anywhere(50_000);
    assert!((3_500..6_500).contains(&hits), "{hits} of 50,000 were found");
    assert!(kept < 6_000, "{kept} were kept");
    // Then fewer than that are asked for.
    let mut few = |looks| look(&cache, (0..looks).map(|_| 20_000 + dice.below(700)));
    let _ = few(20_000);
    let (hits, _) = few(10_000);
    assert!(hits > 9_500, "{hits} of 10,000 were found");
}

#[test]
fn what_is_asked_for_in_a_row_is_kept_at_once() {
    let cache = BlockCache::new(CAPACITY);
    let mut dice = Dice(2);
    let _ = look(&cache, (0..50_000).map(|_| dice.below(10_000)));
    let in_order = |from: u64, looks: u64| look(&cache, (0..looks).map(move |n| 20_000 + from + n / 8));
    let _ = in_order(0, 30_000);
    let (hits, kept) = in_order(5_000, 40_000);
    assert_eq!((hits, kept), (35_000, 5_000));
}

#[test]
fn a_cache_that_has_room_keeps_all() {
    let cache = BlockCache::new(CAPACITY);
    let mut dice = Dice(3);
    // Full, it would keep few.
    let _ = look(&cache, (0..50_000).map(|_| dice.below(10_000)));
    cache.set_capacity(2 * CAPACITY);
    let (_, kept) = look(&cache, 20_000..20_700);
    assert_eq!(kept, 700);
}

/// Its slabs may have fewer chunks then than its bytes would fill.
#[test]
fn a_cache_that_has_shrunk_is_full_when_its_slabs_are() {
    for mib in [24, 30, 37] {
        let cache = BlockCache::new(170 << 20);
        cache.set_capacity(mib << 20);
        let mut dice = Dice(4);
        let blocks = 10 * (mib << 20) / BLOCK_BYTES;
        let mut anywhere = |looks| look(&cache, (0..looks).map(|_| dice.below(blocks as u64)));
        let _ = anywhere(60_000);
        let (hits, kept) = anywhere(50_000);
        assert!(kept < 8_000, "{kept} of {mib} MiB were kept");
        assert!(hits > 2_500, "{hits} of {mib} MiB were found");
    }
}
