//! Point lookups: the newest version of a key below a bound, and what it says.
//!
//! Place: gets, snapshot gets and read-modify-writes.
//!
//! Walks the parts of a superversion newest first and stops at the first that has an answer, a
//! version or a covering range tombstone; within a part the higher LSN wins (I2 makes that right).
//! Never waits and writes nothing shared.
//!
//! Linearization: a get of latest takes effect when it reads the version it returns (or finds the
//! key's place empty in the part where it would be).

use crossbeam_epoch::Guard;

use crate::commit::Slots;
use crate::error::Result;
use crate::key::{Kind, Lsn};

use super::keyspace::KeyspaceState;
use super::slice::Slice;

/// What a lookup found.
pub(crate) struct Found {
    /// The version that decided; ZERO if the key was never written.
    pub lsn: Lsn,
    /// Its value; `None` if the key is absent.
    pub value: Option<Slice>,
}

/// Looks `key` up as of `at`.
pub(crate) fn lookup(
    keyspace: &KeyspaceState,
    slots: &Slots,
    guard: &Guard,
    key: &[u8],
    at: Lsn,
) -> Result<Found> {
    let committed = |slot: u32, lsn: Lsn| !slots.is_in_flight(slot, lsn);
    let superversion = keyspace.current.load(guard);
    for generation in &superversion.generations {
        let memtable = &generation.memtable;
        let version = memtable.get(key, at, committed);
        if memtable.has_tombstones()
            && let Some(covered) = memtable.newest_covering(key, at, committed)
            && version.as_ref().is_none_or(|v| v.lsn < covered)
        {
            return Ok(Found { lsn: covered, value: None });
        }
        if let Some(version) = version {
            let value = (version.kind == Kind::Put).then(|| Slice::from(version.value));
            return Ok(Found { lsn: version.lsn, value });
        }
    }
    let comparator = &*keyspace.options.comparator;
    let hash = keyspace.hasher.hash(key);
    Ok(match superversion.levels.get(comparator, key, hash, at)? {
        None => Found { lsn: Lsn::ZERO, value: None },
        Some(version) => {
            Found { lsn: version.lsn, value: (version.kind == Kind::Put).then(|| Slice::from(version.value)) }
        }
    })
}
