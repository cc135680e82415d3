//! Key locks: a table of striped one-byte locks, global to the store.
//!
//! Place: `db::write` holds a key's stripe from before its LSN is drawn until its version is
//! published.
//!
//! Invariants:
//! 1. (I1) A version of k is drawn and published under `stripe(hash(k))`, so that per key lock
//!    order, LSN order and publish order are one.
//! 2. Several stripes are always taken in ascending index: no deadlock between batches.
//! 3. The table belongs to the store, not to a generation: a key keeps its lock across a turn, so
//!    writers of the next generation exclude those of the last one by themselves.
//!
//! A range deletion takes every stripe (some ten microseconds): it is a write of every key in its
//! range, and a read-modify-write of one of them must not slip in between.
//!
//! Origin: replaces cLSM's shared-exclusive lock and its Algorithm 3 (docs/papers/clsm.md).
//! Cost: 8-15 ns a write.

use crate::sync::{CachePadded, Mutex, MutexGuard};

#[cfg(not(loom))]
const STRIPES: usize = 1024;
#[cfg(loom)]
const STRIPES: usize = 2;

/// The lock table.
pub struct Stripes {
    locks: Box<[CachePadded<Mutex<()>>]>,
}

/// Stripes held; given back on drop.
#[must_use = "a lock that is not kept is given back at once"]
pub enum HeldStripes<'a> {
    /// Of one key.
    One {
        /// Held for its drop.
        _guard: MutexGuard<'a, ()>,
    },
    /// Of several keys, or of all.
    Many {
        /// Held for their drop, in ascending index.
        _guards: Vec<MutexGuard<'a, ()>>,
    },
}

impl Default for Stripes {
    fn default() -> Self {
        Stripes { locks: (0..STRIPES).map(|_| CachePadded::new(Mutex::new(()))).collect() }
    }
}

impl Stripes {
    fn index(hash: u64) -> usize {
        // The high half: filters and caches use the low bits.
        (hash >> 40) as usize % STRIPES
    }

    /// Takes the lock of the key with this hash. O(1).
    #[inline]
    pub fn lock(&self, hash: u64) -> HeldStripes<'_> {
        HeldStripes::One { _guard: self.locks[Self::index(hash)].lock() }
    }

    /// Takes the locks of all these keys. O(n log n).
    pub fn lock_many(&self, hashes: impl Iterator<Item = u64>) -> HeldStripes<'_> {
        let mut which: Vec<usize> = hashes.map(Self::index).collect();
        which.sort_unstable();
        which.dedup();
        HeldStripes::Many { _guards: which.into_iter().map(|index| self.locks[index].lock()).collect() }
    }

    /// Takes every lock.
    pub fn lock_all(&self) -> HeldStripes<'_> {
        HeldStripes::Many { _guards: self.locks.iter().map(|lock| lock.lock()).collect() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn batches_in_opposite_orders_do_not_deadlock_and_exclude_each_other() {
        let stripes = Stripes::default();
        let inside = std::sync::atomic::AtomicU32::new(0);
        let hashes: Vec<u64> = (0..8).map(|i| i << 40).collect();
        std::thread::scope(|s| {
            for thread in 0..4 {
                let (stripes, inside, hashes) = (&stripes, &inside, &hashes);
                s.spawn(move || {
                    for round in 0..500 {
                        let held = match (thread + round) % 4 {
                            0 => stripes.lock_many(hashes.iter().copied()),
                            1 => stripes.lock_many(hashes.iter().rev().copied()),
                            2 => stripes.lock_all(),
                            _ => stripes.lock(hashes[3]),
                        };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
    }
}
