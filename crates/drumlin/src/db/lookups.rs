//! Point lookups of many keys at once: what single gets would answer, with the waiting done together.
//!
//! Place: `multi_get` of keyspaces and of snapshots, beside `lookup`, which says what one part answers.
//!
//! First what memory knows, of all keys under one guard: the memtables of one superversion, then its open tables and cached
//! blocks. Keys go in small groups, whose first loads in memtables are started before the first of them is looked for. Then, for the keys that are left,
//! the files, unpinned: the blocks that they need next are read together, round after round (`version::together`).
//!
//! Invariants:
//! - A key is answered by the first part that has an answer, newest first, as `lookup` does it.
//! - At most [`TOGETHER`] keys share a guard: it is given back before files are read, and in a list however long after so many.
//!
//! Linearization: each key's as that of a get, and in the order of the list. A guard's superversion has every generation
//! that a write was in which ended before it was loaded; of its parts only memtables change, and they are asked in the
//! order of the list. So all is as if the gets had come one after the other. The keys are not seen at one instant.
//!
//! Tests: tests/lookups.rs, tests/linearizability.rs, tests/model.rs.

use crossbeam_epoch as epoch;
use smallvec::SmallVec;

use crate::error::Result;
use crate::key::{KeyBuffer, Lsn};
use crate::version::{Cached, Sought};

use super::keyspace::KeyspaceState;
use super::lookup::{asks_filters, in_memory, in_tables, prefetch, unless_overtaken};
use super::slice::Slice;
use super::store::Store;

/// Keys looked up together at most: more keep no device busier, and no guard longer.
const TOGETHER: usize = 128;
/// Keys of which what memtables look at first is loaded at once.
const GROUP: usize = 16;

/// The values of `keys` as of `at`, in their order; `Closed` if it was overtaken.
pub(crate) fn lookups<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceState,
    keys: &[K],
    at: Lsn,
) -> Result<Vec<Option<Slice>>> {
    let mut values = Vec::with_capacity(keys.len());
    let found = keys.chunks(TOGETHER).try_for_each(|keys| {
        let first = values.len();
        values.resize(first + keys.len(), None);
        // A few keys ask for no memory.
        let mut buffers: SmallVec<[KeyBuffer; GROUP]> = keys.iter().map(|_| KeyBuffer::new()).collect();
        let sought = keys.iter().zip(&mut buffers).map(|(key, buffer)| {
            let key = keyspace.form.stored(key.as_ref(), buffer);
            Sought { key, hash: keyspace.hasher.hash(key) }
        });
        let sought: SmallVec<[Sought<'_>; GROUP]> = sought.collect();
        search(store, keyspace, &sought, at, &mut values[first..])
    });
    unless_overtaken(store, keyspace, found.map(|()| values))
}

/// Finds the values of `sought`, all absent so far.
fn search(
    store: &Store,
    keyspace: &KeyspaceState,
    sought: &[Sought<'_>],
    at: Lsn,
    values: &mut [Option<Slice>],
) -> Result<()> {
    let slots = store.sequencer.slots();
    let committed = |slot: u32, lsn: Lsn| !slots.is_in_flight(slot, lsn);
    let (mut left, mut rests) = (Vec::new(), Vec::new());
    let levels = {
        let guard = epoch::pin();
        let superversion = keyspace.current.load(&guard);
        let ask = asks_filters(superversion);
        for (number, group) in sought.chunks(GROUP).enumerate() {
            group.iter().for_each(|sought| prefetch(superversion, sought.hash, ask));
            for (n, Sought { key, hash }) in group.iter().enumerate().map(|(n, s)| (number * GROUP + n, *s)) {
                if let Some(found) = in_memory(superversion, key, hash, at, ask, committed) {
                    values[n] = found.value;
                    continue;
                }
                match superversion.levels.get_cached(key, hash, at, &guard)? {
                    Cached::Told(version) => values[n] = in_tables(version).value,
                    Cached::Left(rest) => {
                        left.push(n);
                        rests.push((sought[n], rest));
                    }
                }
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        superversion.levels.clone()
    };
    for (n, version) in left.into_iter().zip(levels.go_on_together(rests, at)?) {
        values[n] = in_tables(version).value;
    }
    Ok(())
}
