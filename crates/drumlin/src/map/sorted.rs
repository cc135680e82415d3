//! The sorted tier alone.
//!
//! Place: a memtable without a hash, and a counter in the place of the log. See `map`.
//! Concurrency: a put is linearized where its node is linked, or just before a newer one of its key.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memtable;
use crate::key::{KeyHasher, Kind, Lsn};
use crate::memory::MemTable;

/// A concurrent skiplist of keys and values.
///
/// Source: cLSM §3.1; `multi_insert`: FloDB §4.3, Algorithm 1.
pub struct SortedMap {
    memtable: MemTable,
    hasher: KeyHasher,
    /// Versions so far. Relaxed: only which of two puts of a key is the later hangs on it.
    next: AtomicU64,
}

impl Default for SortedMap {
    fn default() -> SortedMap {
        SortedMap::new()
    }
}

impl SortedMap {
    /// An empty one.
    pub fn new() -> SortedMap {
        SortedMap { memtable: memtable(), hasher: KeyHasher::new(1), next: AtomicU64::new(1) }
    }

    /// Sets a key. O(log n).
    ///
    /// # Panics
    /// If key or value are longer than a store takes, or there are 32 GiB of them.
    pub fn put(&self, key: &[u8], value: &[u8]) {
        let node = self.memtable.reserve(key, Kind::Put, value);
        let lsn = Lsn(self.next.fetch_add(1, Ordering::Relaxed));
        let published = self.memtable.publish(node, lsn, None);
        self.memtable.tell_guide(&published);
    }

    /// Sets several keys (of equal ones the last stays). They become visible one by one. O(log n) each; they are sought side by
    /// side, so that they wait for memory together, and less the nearer they are.
    ///
    /// # Panics
    /// As [`SortedMap::put`].
    pub fn multi_insert(&self, records: &[(&[u8], &[u8])]) {
        let lsn = Lsn(self.next.fetch_add(1, Ordering::Relaxed));
        self.memtable.multi_insert(records.iter().map(|(key, value)| (*key, Kind::Put, *value)), lsn, None);
    }

    /// Shows the value of a key. O(log n), O(1) for most keys that are absent.
    pub fn get<T>(&self, key: &[u8], see: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let found = self.memtable.get(key, self.hasher.hash(key), Lsn::MAX, |_, _| true)?;
        Some(see(found.value))
    }

    /// Puts that there were.
    pub fn puts(&self) -> usize {
        self.memtable.entries()
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.memtable.bytes()
    }
}

impl fmt::Debug for SortedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.memtable, f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_threads_put_insert_and_get() {
        let map = SortedMap::new();
        let each: u64 = if cfg!(miri) { 20 } else { 2000 };
        let key = |thread: u64, n: u64| (n * 10 + thread).to_be_bytes();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    let keys: Vec<_> = (0..each).map(|n| key(thread, n)).collect();
                    if thread % 2 == 0 {
                        keys.iter().for_each(|key| map.put(key, key));
                    } else {
                        let records: Vec<(&[u8], &[u8])> =
                            keys.iter().map(|key| (&key[..], &key[..])).collect();
                        records.chunks(7).for_each(|records| map.multi_insert(records));
                    }
                    assert!(keys.iter().all(|key| map.get(key, |value| value == key) == Some(true)));
                });
            }
        });
        assert_eq!(map.puts() as u64, 4 * each);
        assert_eq!(map.get(&u64::MAX.to_be_bytes(), |_| ()), None);
        map.put(&key(0, 0), b"new");
        assert_eq!(map.get(&key(0, 0), <[u8]>::to_vec).as_deref(), Some(&b"new"[..]));
        map.multi_insert(&[(&key(0, 0), b"newer"), (&key(5, 1), b"other")]);
        assert_eq!(map.get(&key(0, 0), <[u8]>::to_vec).as_deref(), Some(&b"newer"[..]));
        assert_eq!(map.get(&key(5, 1), <[u8]>::to_vec).as_deref(), Some(&b"other"[..]));
    }
}
