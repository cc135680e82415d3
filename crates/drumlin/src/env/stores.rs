//! Stores into mapped regions, as the log makes them, for the tests of `env`.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::LogRegion;

/// Stores bytes.
pub(super) fn store(region: &dyn LogRegion, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= region.bytes());
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: in bounds, as asserted, and the region is alive.
        // Test: tests::both_systems_answer_alike.
        let cell = unsafe { AtomicU8::from_ptr(region.base().add(offset + at)) };
        cell.store(*byte, Ordering::Release);
    }
}

/// Stores an aligned word; `index` counts words.
pub(super) fn store_word(region: &dyn LogRegion, index: usize, word: u64) {
    assert!((index + 1) * size_of::<u64>() <= region.bytes());
    // SAFETY: in bounds, as asserted, aligned because the base is, and the region is alive.
    // Test: memory::tests::clones::mapped_stores_of_many_threads_reach_a_clone.
    let cell = unsafe { AtomicU64::from_ptr(region.base().cast::<u64>().add(index)) };
    cell.store(word, Ordering::Release);
}
