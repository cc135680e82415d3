//! Point lookups: the newest version of a key below a bound, and what it says.
//!
//! Place: gets, snapshot gets and read-modify-writes; `lookups` looks for many keys at once by the same parts.
//!
//! Walks the parts of a superversion newest first and stops at the first that has an answer, a
//! version or a covering range tombstone; within a part the higher LSN wins (I2 makes that right).
//! What is in memory is asked first, without waiting for anybody; what is not is read, behind it.
//!
//! Invariants:
//! - Nobody is told what a dropped keyspace was emptied to, or that files are missing which `close` has removed: whoever
//!   looks asks afterwards whether both are still open (`unless_overtaken`).
//! - Within a part the range tombstones are asked before the versions. A batch may hold both
//!   a range tombstone and a put of a key it covers, and commits at any time: whoever finds its
//!   tombstone committed then finds its put committed too. The other way round the put would be passed
//!   over and the tombstone then hide the version before it: a key that was never absent would be.
//!
//! Linearization: a get of latest takes effect when it reads the version it returns (or finds the
//! key's place empty in the part where it would be).
//!
//! Tests: here, tests/keyspaces.rs, `db::tests::closing`.

use crossbeam_epoch as epoch;

use crate::error::Result;
use crate::key::{Kind, Lsn};
use crate::memory::MemTable;
use crate::table::Version;
use crate::version::Cached;

use super::keyspace::KeyspaceState;
use super::slice::Slice;
use super::store::Store;
use super::superversion::SuperVersion;

/// What a lookup found.
pub(crate) struct Found {
    /// The version that decided; ZERO if the key was never written.
    pub lsn: Lsn,
    /// Its value; `None` if the key is absent.
    pub value: Option<Slice>,
}

/// Looks `key` up as of `at`; `Closed` if it was overtaken. Pins the epoch by itself, and not while it reads files: a device
/// that hangs must not keep memory from being freed.
pub(crate) fn lookup(store: &Store, keyspace: &KeyspaceState, key: &[u8], at: Lsn) -> Result<Found> {
    unless_overtaken(store, keyspace, search(store, keyspace, key, at))
}

/// What a read came to, unless the keyspace was dropped or the store closed before its end.
pub(crate) fn unless_overtaken<T>(store: &Store, keyspace: &KeyspaceState, read: Result<T>) -> Result<T> {
    // Dropped meanwhile, it may have been found empty.
    keyspace.check_open()?;
    // Closed meanwhile, its files may have been found missing.
    read.or_else(|error| store.check_readable().and(Err(error)))
}

fn search(store: &Store, keyspace: &KeyspaceState, key: &[u8], at: Lsn) -> Result<Found> {
    let slots = store.sequencer.slots();
    let committed = |slot: u32, lsn: Lsn| !slots.is_in_flight(slot, lsn);
    let (levels, hash, rest) = {
        let guard = epoch::pin();
        let superversion = keyspace.current.load(&guard);
        let hash = keyspace.hasher.hash(key);
        let ask = asks_filters(superversion);
        if ask {
            prefetch(superversion, hash, true);
        }
        if let Some(found) = in_memory(superversion, key, hash, at, ask, committed) {
            return Ok(found);
        }
        match superversion.levels.get_cached(key, hash, at, &guard)? {
            Cached::Told(version) => return Ok(in_tables(version)),
            Cached::Left(rest) => (superversion.levels.clone(), hash, rest),
        }
    };
    Ok(in_tables(levels.go_on(key, hash, at, rest)?))
}

/// True if what the filters of memtables say is worth a miss. Where nothing lies below, it is not: most keys are there.
#[inline]
pub(super) fn asks_filters(superversion: &SuperVersion) -> bool {
    superversion.generations.len() > 1 || superversion.levels.tables().next().is_some()
}

/// Starts to load what the memtables look at first for a key of this hash, the filters if they are to be asked.
#[inline]
pub(super) fn prefetch(superversion: &SuperVersion, hash: u64, ask: bool) {
    superversion.generations.iter().for_each(|generation| generation.memtable.prefetch(hash, ask));
}

/// What the memtables say about `key` as of `at`, if anything; the filters first, if they are to be asked.
#[inline]
pub(super) fn in_memory(
    superversion: &SuperVersion,
    key: &[u8],
    hash: u64,
    at: Lsn,
    ask: bool,
    committed: impl Fn(u32, Lsn) -> bool + Copy,
) -> Option<Found> {
    for generation in &superversion.generations {
        let memtable = &generation.memtable;
        if ask && !memtable.has_tombstones() && !memtable.may_know(hash) {
            continue;
        }
        if let Some(found) = in_memtable(memtable, key, hash, at, committed) {
            return Some(found);
        }
    }
    None
}

/// What the tables say, as it is told.
pub(super) fn in_tables(version: Option<Version>) -> Found {
    match version {
        None => Found { lsn: Lsn::ZERO, value: None },
        Some(version) => {
            Found { lsn: version.lsn, value: (version.kind == Kind::Put).then(|| Slice::from(version.value)) }
        }
    }
}

/// What one memtable says about `key` as of `at`, if anything.
fn in_memtable(
    memtable: &MemTable,
    key: &[u8],
    hash: u64,
    at: Lsn,
    committed: impl Fn(u32, Lsn) -> bool,
) -> Option<Found> {
    // In this order: see the module's invariant.
    let covered =
        if memtable.has_tombstones() { memtable.newest_covering(key, at, &committed) } else { None };
    let version = memtable.get(key, hash, at, &committed);
    match (version, covered) {
        (Some(version), covered) if covered.is_none_or(|c| c <= version.lsn) => {
            let value = (version.kind == Kind::Put).then(|| Slice::from(version.value));
            Some(Found { lsn: version.lsn, value })
        }
        (_, Some(covered)) => Some(Found { lsn: covered, value: None }),
        (_, None) => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::bytewise;
    use std::cell::Cell;

    /// Regression: a batch deletes a range and puts a key of it. A get that asked for versions first
    /// passed the put over, then saw the batch committed, took its range tombstone, and called a key
    /// absent that had a value before the batch and after it.
    #[test]
    fn a_batch_that_commits_during_a_get_does_not_make_a_key_vanish() {
        let memtable = MemTable::new(bytewise());
        let put = |value: &[u8], lsn, slot| {
            memtable.publish(memtable.reserve(b"k", Kind::Put, value), Lsn(lsn), slot);
        };
        put(b"before", 5, None);
        memtable.publish_range_tombstone(b"a", b"z", Lsn(9), Some(0));
        put(b"after", 9, Some(0));
        // The batch commits after it was asked for this many times.
        for commits_after in 0..4 {
            let asked = Cell::new(0);
            let committed = |_: u32, _: Lsn| asked.replace(asked.get() + 1) >= commits_after;
            let found = in_memtable(&memtable, b"k", memtable.hash(b"k"), Lsn::MAX, committed)
                .expect("the key has versions");
            let value = found.value.as_deref().map(<[u8]>::to_vec);
            let wanted: &[u8] = if found.lsn == Lsn(9) { b"after" } else { b"before" };
            assert_eq!(value.as_deref(), Some(wanted), "committed after {commits_after} questions");
        }
    }
}
