//! Both tiers alone.
//!
//! Place: a memtable with a hash, the locks of keys, and a counter in the place of the log. See `map`.
//! Concurrency: a put holds its key's lock from the drawing of its number until it is in its slot or linked, which is where it is
//! linearized; a get waits for nobody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memtable;
use crate::commit::Stripes;
use crate::key::{KeyHasher, Kind, Lsn};
use crate::memory::{MemTable, Splits};

/// A hash table of keys and values over a skiplist of them.
///
/// Source: FloDB §3.2, §4.1-§4.3.
pub struct TieredMap {
    memtable: MemTable,
    hasher: KeyHasher,
    stripes: Stripes,
    /// Versions so far; drawn under the key's lock, which orders them.
    next: AtomicU64,
    /// Puts that got no slot in the hash.
    direct: AtomicU64,
}

impl TieredMap {
    /// An empty one, whose hash is made for so many keys and has so many bytes at most, and is sorted in 2^`bits` parts by
    /// the first bits of a key. `near`: what is sorted goes into the list by one multi-insert, not by a search for each.
    pub fn new(keys: usize, hash_bytes_max: usize, bits: u32, near: bool) -> TieredMap {
        let splits = Arc::new(Splits::of_top_bits(bits));
        TieredMap {
            memtable: memtable().with_hash_tier(keys, hash_bytes_max, splits).with_searches_near(near),
            hasher: KeyHasher::new(1),
            stripes: Stripes::default(),
            next: AtomicU64::new(1),
            direct: AtomicU64::new(0),
        }
    }

    /// Sets a key. O(1), where its bucket has room.
    ///
    /// # Panics
    /// If key or value are longer than a store takes, or there are 32 GiB of them.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        let node = self.memtable.reserve(key, Kind::Put, value);
        let held = self.stripes.lock(node.hash());
        let lsn = Lsn(self.next.fetch_add(1, Ordering::Relaxed));
        // Nobody reads but what is newest.
        let published = self.memtable.publish_over(node, lsn, None, Lsn::ZERO);
        drop(held);
        if !published.is_in_slot() {
            self.direct.fetch_add(1, Ordering::Relaxed);
        }
        self.memtable.tell_guide(&published);
    }

    /// Shows the value of a key. O(1), if the hash knows it.
    pub fn get<T>(&self, key: &[u8], see: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let found = self.memtable.get(key, self.hasher.hash(key), Lsn::MAX, |_, _| true)?;
        Some(see(found.value))
    }

    /// Puts into the list what came into the hash before. O(n log n) of that.
    pub fn settle(&self) {
        self.memtable.settle();
    }

    /// Puts that there were.
    pub fn puts(&self) -> u64 {
        self.next.load(Ordering::Relaxed) - 1
    }

    /// Of these, how many went into the list at once: for want of a slot, or since the hash did not pay.
    pub fn puts_into_the_list(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.memtable.bytes()
    }
}

impl fmt::Debug for TieredMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.memtable, f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Each thread reads its own puts at once, whoever settles meanwhile and however small the hash is.
    #[test]
    fn what_was_put_is_there_while_it_is_sorted() {
        for (near, hash_bytes_max) in [(true, usize::MAX), (false, usize::MAX), (true, 1 << 12)] {
            let map = TieredMap::new(0, hash_bytes_max, 2, near);
            let each: u64 = if cfg!(miri) { 20 } else { 3000 };
            std::thread::scope(|scope| {
                let putting: Vec<_> = (0..3u64)
                    .map(|thread| {
                        let map = &map;
                        scope.spawn(move || {
                            for n in 0..each {
                                let key = (((n % 500) << 55) + thread).to_be_bytes();
                                map.put(&key, &n.to_be_bytes());
                                assert_eq!(map.get(&key, |value| value == n.to_be_bytes()), Some(true));
                            }
                        })
                    })
                    .collect();
                while putting.iter().any(|thread| !thread.is_finished()) {
                    map.settle();
                }
            });
            assert_eq!(map.puts(), 3 * each);
            assert!(hash_bytes_max < usize::MAX || map.puts_into_the_list() < map.puts());
            assert_eq!(map.get(b"absent", |_| ()), None);
        }
    }
}
