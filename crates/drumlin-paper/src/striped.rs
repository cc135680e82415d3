//! Locks outside a store: what a user of gets and puts alone does to read, modify and write.
//!
//! Place: figure 9 of cLSM.

use std::sync::{Mutex, MutexGuard};

use drumlin_bench::engine::{Change, Engine, Result, SeeRecord, SeeValue, Traffic};
use drumlin_bench::store::Store;

/// Locks, one for the keys of one remainder.
const STRIPES: usize = 1024;

/// A store whose read-modify-writes hold one of a table of locks, as who has only gets and puts would do it.
pub struct Striped {
    store: Store,
    locks: Box<[Mutex<()>]>,
}

impl Striped {
    /// Over a store.
    pub fn new(store: Store) -> Striped {
        Striped { store, locks: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }

    fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        // FNV-1a.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.locks[hash as usize % STRIPES].lock().expect("nobody panics with it")
    }

    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.store.get(key, &mut |bytes| value = Some(bytes.to_vec()))?;
        Ok(value)
    }
}

impl Engine for Striped {
    fn name(&self) -> &'static str {
        "Drumlin, locks outside"
    }

    fn settings(&self) -> String {
        format!("{}, {STRIPES} locks", self.store.settings())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let _held = self.lock(key);
        self.store.put(key, value)
    }

    fn put_many(&self, records: &[(Vec<u8>, &[u8])]) -> Result<()> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let _held = self.lock(key);
        self.store.delete(key)
    }

    fn get(&self, key: &[u8], see: SeeValue<'_>) -> Result<bool> {
        self.store.get(key, see)
    }

    fn get_many(&self, keys: &[Vec<u8>], see: SeeValue<'_>) -> Result<usize> {
        self.store.get_many(keys, see)
    }

    fn scan(&self, from: &[u8], limit: usize, reverse: bool, see: SeeRecord<'_>) -> Result<usize> {
        self.store.scan(from, limit, reverse, see)
    }

    fn update(&self, key: &[u8], change: Change<'_>) -> Result<()> {
        let _held = self.lock(key);
        let old = self.read(key)?;
        self.store.put(key, &change(old.as_deref()))
    }

    fn put_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _held = self.lock(key);
        let is_absent = !self.store.get(key, &mut |_| ())?;
        if is_absent {
            self.store.put(key, value)?;
        }
        Ok(is_absent)
    }

    fn settle(&self) -> Result<()> {
        self.store.settle()
    }

    fn debt_bytes(&self) -> Option<u64> {
        self.store.debt_bytes()
    }

    fn traffic(&self) -> Option<Traffic> {
        self.store.traffic()
    }
}
