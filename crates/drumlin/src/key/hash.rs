//! One keyed hash per key, shared by key locks and filters.
//!
//! The hash is keyed by the store's secret, so that nobody can choose keys that collide.
//! Bytes: filters on disk depend on it; see docs/formats/decisions.md.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes user keys with the store's secret.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    seed: u64,
}

impl KeyHasher {
    /// A hasher for a store whose secret is `secret`.
    pub fn new(secret: u64) -> Self {
        Self { seed: secret }
    }

    /// 64 well-mixed bits of `key`. O(key length).
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher(secret)")
    }
}
