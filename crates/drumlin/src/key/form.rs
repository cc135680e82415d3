//! The form in which a keyspace holds its keys: as they are, or behind their place.
//!
//! Place: `db` brings a key into its form on the way in and out of it on the way out; tables say in which form their keys
//! are. Everything between compares bytes and knows nothing of it.
//!
//! A key's *place* is the first 64 bits of a keyed hash of it, the highest byte first. Keys that stand behind their places are
//! in the order of these in the order of bytes, and as far as anybody can tell who does not know the key of the hash, spread
//! evenly, whatever they are. Places may be alike: then the keys decide.
//!
//! The hash is keyed by the store's secret. SipHash-1-3 is made for that: nobody who sees which keys are slow can choose others
//! that lie in the same place. XXH3 with a seed, which filters have, promises no such thing.
//! Bytes: tables and the order in them depend on it; see docs/formats/table.md. Tests: below.
//! Origin: LSM-trie §2.3, which takes SHA-1 of the key alone.

use sha1::{Digest, Sha1};
use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

use super::KEY_BYTES_MAX;

/// Bytes of a place.
pub const PLACE_BYTES: usize = 8;
/// Longest stored key, in bytes.
pub const STORED_KEY_BYTES_MAX: usize = PLACE_BYTES + KEY_BYTES_MAX;
/// Hashed to tell whether keys stand behind the places of the reader's store.
const CHECK_KEY: &[u8] = b"drumlin place check";

/// The hash by which a keyspace without order ([`Layout::Trie`](crate::Layout::Trie)) spreads its keys. Both are keyed by a secret
/// of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum KeyHash {
    /// SipHash-1-3 of 128 bits. The default.
    #[default]
    Sip,
    /// SHA-1, as in LSM-trie; slower.
    Sha1,
}

impl KeyHash {
    /// As it is stored.
    pub(crate) fn number(self) -> u64 {
        match self {
            KeyHash::Sip => 0,
            KeyHash::Sha1 => 1,
        }
    }

    /// The hash stored so; `None` for one that this build does not know.
    pub(crate) fn from_number(number: u64) -> Option<KeyHash> {
        [KeyHash::Sip, KeyHash::Sha1].into_iter().find(|hash| hash.number() == number)
    }
}

/// Where a stored key is put together that is not the user's own bytes.
pub type KeyBuffer = SmallVec<[u8; 64]>;

/// Hashes keys to their places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Placer {
    hash: KeyHash,
    keys: (u64, u64),
}

impl Placer {
    /// By `hash`, keyed with `keys`.
    pub(super) fn new(hash: KeyHash, keys: (u64, u64)) -> Placer {
        Placer { hash, keys }
    }

    /// The hash it is.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// The place of a user key. O(key length).
    #[inline]
    pub fn place(&self, key: &[u8]) -> u64 {
        match self.hash {
            KeyHash::Sip => SipHasher13::new_with_keys(self.keys.0, self.keys.1).hash(key).h1,
            KeyHash::Sha1 => self.sha1(key),
        }
    }

    #[cold]
    fn sha1(&self, key: &[u8]) -> u64 {
        let mut sha1 = Sha1::new();
        sha1.update(self.keys.0.to_le_bytes());
        sha1.update(self.keys.1.to_le_bytes());
        sha1.update(key);
        let digest = sha1.finalize();
        digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// The same for all stores of one secret, and hardly for two others.
    pub fn check_value(&self) -> u64 {
        self.place(CHECK_KEY)
    }

    /// True if the stored key stands behind its own place.
    pub fn is_placed(&self, stored: &[u8]) -> bool {
        stored.split_first_chunk().is_some_and(|(place, key)| u64::from_be_bytes(*place) == self.place(key))
    }
}

impl std::fmt::Debug for Placer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Placer({:?}, secret)", self.hash)
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyForm {
    /// As they are.
    #[default]
    Bare,
    /// Behind their place.
    Placed(Placer),
}

impl KeyForm {
    /// The user's key as it is stored; put together in `buffer`, if it is not the same.
    #[inline]
    pub fn stored<'k>(&self, key: &'k [u8], buffer: &'k mut KeyBuffer) -> &'k [u8] {
        match self {
            KeyForm::Bare => key,
            KeyForm::Placed(placer) => {
                buffer.clear();
                buffer.extend_from_slice(&placer.place(key).to_be_bytes());
                buffer.extend_from_slice(key);
                buffer
            }
        }
    }

    /// The same, owned.
    pub fn to_stored(self, key: &[u8]) -> Vec<u8> {
        self.stored(key, &mut KeyBuffer::new()).to_vec()
    }

    /// The user's key of a stored one. What no writer has stored is given back as it is.
    #[inline]
    pub fn user<'k>(&self, stored: &'k [u8]) -> &'k [u8] {
        stored.get(self.place_bytes()..).unwrap_or(stored)
    }

    /// Bytes in front of the user's key.
    #[inline]
    pub fn place_bytes(&self) -> usize {
        match self {
            KeyForm::Bare => 0,
            KeyForm::Placed(_) => PLACE_BYTES,
        }
    }

    /// The hash behind which keys stand.
    pub fn placer(&self) -> Option<&Placer> {
        match self {
            KeyForm::Bare => None,
            KeyForm::Placed(placer) => Some(placer),
        }
    }

    /// True if this is how a key is stored.
    pub fn fits(&self, stored: &[u8]) -> bool {
        self.placer().is_none_or(|placer| placer.is_placed(stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyHasher;

    fn forms() -> [KeyForm; 3] {
        let placed = |hash| KeyForm::Placed(KeyHasher::new(7).placer(hash));
        [KeyForm::Bare, placed(KeyHash::Sip), placed(KeyHash::Sha1)]
    }

    #[test]
    fn a_key_comes_out_as_it_went_in() {
        let mut buffer = KeyBuffer::new();
        for form in forms() {
            for length in [0, 1, 7, 8, 16, 55, 56, 57, 1000, KEY_BYTES_MAX] {
                let key = vec![length as u8; length];
                let stored = form.stored(&key, &mut buffer).to_vec();
                assert_eq!(stored.len(), length + form.place_bytes());
                assert_eq!(form.user(&stored), key);
                assert_eq!(form.to_stored(&key), stored);
                assert!(form.fits(&stored));
            }
        }
    }

    /// The bytes of tables hang on it: they stay.
    #[test]
    fn places_are_those_of_the_format() {
        // By an implementation of their own, which was held against the published SipHash-2-4.
        let keys = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let place = |hash| Placer::new(hash, keys).place(b"key");
        assert_eq!(place(KeyHash::Sip), 0x6aa7_3c1f_d280_4bc7);
        assert_eq!(place(KeyHash::Sha1), 0x81e4_868d_c593_b4df);
    }

    #[test]
    fn places_are_even_and_hang_on_the_secret() {
        for hash in [KeyHash::Sip, KeyHash::Sha1] {
            let (ours, other) = (KeyHasher::new(7).placer(hash), KeyHasher::new(8).placer(hash));
            assert_ne!(ours.check_value(), other.check_value());
            let mut counts = [0u32; 64];
            for n in 0..64_000u64 {
                let key = n.to_be_bytes();
                assert_ne!(ours.place(&key), other.place(&key));
                counts[(ours.place(&key) >> 58) as usize] += 1;
            }
            // Six deviations of 1000 ± 31.
            assert!(counts.iter().all(|count| (810..1190).contains(count)), "{hash:?}: {counts:?}");
        }
    }

    #[test]
    fn a_stored_key_behind_another_place_is_told() {
        for form in &forms()[1..] {
            let stored = form.to_stored(b"key");
            for at in 0..stored.len() {
                let mut other = stored.clone();
                other[at] ^= 1;
                assert!(!form.fits(&other), "byte {at}");
            }
            assert!(!form.fits(&stored[..7]) && !form.fits(b""));
        }
    }
}
