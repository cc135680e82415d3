//! Striped locks: a key's update excludes every other update of it, in engines that have no atomic update of their own.
//!
//! Place: RocksDB (without transactions), LevelDB and fjall.
//!
//! 1. Puts and deletes take no lock: only updates exclude each other. That is less than Drumlin does, in the engine's favour.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks enough that threads seldom meet by chance.
const STRIPES: usize = 1024;

/// A lock on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Stripe(Mutex<()>);

/// The locks.
pub struct Stripes(Box<[Stripe]>);

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes((0..STRIPES).map(|_| Stripe::default()).collect())
    }
}

impl Stripes {
    /// Locks `key`, and a few others with it.
    pub fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        self.0[hash as usize % STRIPES].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
