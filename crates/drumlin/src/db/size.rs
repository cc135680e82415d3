//! About how much a range holds, without reading it.
//!
//! Place: `Keyspace::approximate_size`. Of the tables it asks the manifest's figures and the fences of the index, and counts what lies
//! within a few blocks; of the memtables the express lanes of their lists.
//!
//! Invariant: the versions that lie within the range are no further from `versions` than `versions_error`; in another order
//! than that of bytes, those of the two keys that the range names apart.
//!
//! Tests: tests/sizes.rs.

use std::ops::Bound;

use crossbeam_epoch as epoch;

use crate::error::Result;

use super::keyspace::KeyspaceState;
use super::scan::{Bounds, key_of};
use super::superversion::SuperVersion;

/// About how much a range of a keyspace holds.
///
/// A version is one write of a key, a put or a delete; old ones go when levels are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ApproximateSize {
    /// Keys: puts less deletes. A key that was put n times since its last merge counts n times, one that was deleted without
    /// being there counts less than none, and one that a range delete covers counts until its merge.
    pub keys: u64,
    /// Versions.
    pub versions: u64,
    /// There are no more than this many versions more, or less. Of tables that lie within the range as a whole or
    /// by a few blocks, and of memtables of which it has a few hundred versions or all, the count is exact. Of the others it is mostly
    /// right to one block a table, and to a sixteenth of a memtable; here each counts with all that it holds.
    pub versions_error: u64,
    /// Bytes of table files, and of the values apart that they refer to, as compressed.
    pub table_bytes: u64,
    /// Bytes of memtables.
    pub memory_bytes: u64,
}

/// What the parts of a keyspace hold within `bounds`. In another order than that of bytes, a start counts as inside and an
/// end as outside, whatever the bounds say.
pub(crate) fn approximate(keyspace: &KeyspaceState, bounds: Bounds) -> Result<ApproximateSize> {
    let bounds = if keyspace.comparator.is_bytewise() { half_open(bounds) } else { bounds };
    let (start, end) = (key_of(&bounds.0), key_of(&bounds.1));
    let comparator = &*keyspace.comparator;
    if start.zip(end).is_some_and(|(start, end)| comparator.compare(start, end).is_ge()) {
        return Ok(ApproximateSize::default());
    }
    let mut size = ApproximateSize::default();
    let mut deletes = 0;
    let (generations, levels) = {
        let guard = epoch::pin();
        let now = keyspace.current.load(&guard);
        (now.generations.clone(), now.levels.clone())
    };
    for memtable in generations.iter().map(|generation| &generation.memtable) {
        // Not under the pin: it may take a while.
        memtable.settle();
        let all = memtable.entries() as u64;
        let (mut versions, deleted, is_exact) = memtable.approximate_entries(start, end);
        if start.is_none() && end.is_none() {
            versions = all;
        } else if !is_exact {
            versions = versions.min(all);
            size.versions_error += versions.max(all - versions);
        }
        size.versions_error += memtable.counted_twice() as u64;
        size.versions += versions;
        deletes += deleted.min(versions);
        let share = u128::from(memtable.bytes() as u64) * u128::from(versions) / u128::from(all.max(1));
        size.memory_bytes += u64::try_from(share).unwrap_or(u64::MAX);
    }
    let tables = levels.estimate(start, end)?;
    size.versions += tables.versions;
    size.versions_error += tables.error;
    size.table_bytes = tables.bytes;
    // Each delete hides one put.
    size.keys = size.versions.saturating_sub(2 * (deletes + tables.deletes));
    Ok(size)
}

/// About how many keys a superversion has in all; see [`ApproximateSize::keys`].
pub(crate) fn keys_of(now: &SuperVersion) -> u64 {
    let metas = || now.levels.tables().map(|table| table.meta());
    let mut versions: u64 = metas().map(|meta| meta.entries).sum();
    let mut deletes: u64 = metas().map(|meta| meta.deletes).sum();
    for generation in &now.generations {
        let all: u64 = generation.memtable.entries() as u64;
        versions += all;
        deletes += generation.memtable.approximate_entries(None, None).1.min(all);
    }
    versions.saturating_sub(2 * deletes)
}

/// The same keys, the first one inside and the last one outside: nothing lies between a key and the same with a zero behind.
fn half_open(bounds: Bounds) -> Bounds {
    let behind = |mut key: Vec<u8>| {
        key.push(0);
        key
    };
    let start = match bounds.0 {
        Bound::Excluded(key) => Bound::Included(behind(key)),
        // Before all keys.
        Bound::Included(key) if key.is_empty() => Bound::Unbounded,
        other => other,
    };
    let end = match bounds.1 {
        Bound::Included(key) => Bound::Excluded(behind(key)),
        other => other,
    };
    (start, end)
}
