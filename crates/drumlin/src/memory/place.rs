//! A place between the versions of a list.
//!
//! Place: `skiplist` searches for one, and `guide` leads there.
//! Tests: `skiplist_tests`, `guide_tests`.

use crate::key::{Lsn, key_prefix};

/// A place in the internal order: behind all versions of smaller keys, and those of `key` with an LSN of `newer_from` or more.
#[derive(Clone, Copy)]
pub(super) struct Place<'k> {
    pub(super) key: &'k [u8],
    /// The first bytes of the key: see [`key_prefix`].
    pub(super) prefix: u64,
    /// The least LSN that is before it.
    pub(super) newer_from: u64,
}

impl<'k> Place<'k> {
    /// Just before (key, lsn).
    #[inline]
    pub(super) fn before(key: &'k [u8], lsn: Lsn) -> Self {
        // No version has the LSN MAX, so nothing is lost by saturating.
        Self { key, prefix: key_prefix(key), newer_from: lsn.0.saturating_add(1) }
    }

    #[inline]
    pub(super) fn key(self) -> &'k [u8] {
        self.key
    }

    /// Just after (key, lsn).
    #[inline]
    pub(super) fn after(key: &'k [u8], lsn: Lsn) -> Self {
        Self { key, prefix: key_prefix(key), newer_from: lsn.0 }
    }
}
