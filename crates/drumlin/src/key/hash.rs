//! One keyed hash per key, shared by key locks and filters.
//!
//! The hash is keyed by the store's secret, so that nobody can choose keys that collide. Keys that stand behind their places
//! (`form`) have a keyed hash already: theirs is that one, mixed.
//! Bytes: filters on disk depend on it; see docs/formats/decisions.md.

use twox_hash::XxHash3_64;

use super::form::{KeyHash, Placer};
use super::key_prefix;

/// Hashes user keys with the store's secret.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    seed: u64,
    of_places: bool,
}

/// Hashed to tell whether hashes were made with the reader's secret.
const CHECK_KEY: &[u8] = b"drumlin filter check";

/// Spreads a place over all bits, and no two places alike.
#[inline]
fn mix(place: u64) -> u64 {
    let mixed = (place ^ (place >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

impl KeyHasher {
    /// A hasher for a store whose secret is `secret`.
    pub fn new(secret: u64) -> Self {
        Self { seed: secret, of_places: false }
    }

    /// The hasher for keys of the same store that stand behind their places.
    pub(crate) fn of_places(self) -> Self {
        Self { of_places: true, ..self }
    }

    /// The same for all hashers of a secret, and hardly for two others.
    pub(crate) fn check_value(&self) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, CHECK_KEY)
    }

    /// 64 well-mixed bits of `key`. O(key length).
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        if self.of_places { mix(key_prefix(key)) } else { XxHash3_64::oneshot_with_seed(self.seed, key) }
    }

    /// What hashes the keys of this store to their places.
    pub(crate) fn placer(&self, hash: KeyHash) -> Placer {
        // Another seed than that of filters, and both halves hang on all of the secret.
        let half = |text: &[u8]| XxHash3_64::oneshot_with_seed(self.seed, text);
        Placer::new(hash, (half(b"drumlin place 0"), half(b"drumlin place 1")))
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHasher(secret)")
    }
}
