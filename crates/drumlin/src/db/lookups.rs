//! Point lookups of many keys at once: what single gets would answer, with the waiting done together.
//!
//! Place: `multi_get` of keyspaces and of snapshots, beside `lookup`, which says what one part answers.
//!
//! Keys go in small groups. First what memory knows, of all of a group under one guard: the memtables of one superversion, whose first
//! loads are started before the first key is looked for, then its open tables and cached blocks. Then, for the keys that are left,
//! the files, unpinned; while the device reads what they need, the next groups are looked up in memory (`version::together`).
//!
//! Invariants:
//! - A key is answered by the first part that has an answer, newest first, as `lookup` does it.
//! - A guard is kept for a group at most, and while no file is read. What a key looks for in files is in the levels of the superversion
//!   that its group saw: where a group sees others than the one before it, the keys before it are told first.
//! - At most [`TOGETHER`] keys are on their way.
//!
//! Linearization: each key's as that of a get, and in the order of the list. A guard's superversion has every generation
//! that a write was in which ended before it was loaded; of its parts only memtables change, and they are asked in the
//! order of the list, as groups are. So all is as if the gets had come one after the other. The keys are not seen at one instant.
//!
//! Tests: tests/lookups.rs, tests/linearizability.rs, tests/model.rs.

use std::sync::Arc;

use crossbeam_epoch as epoch;
use smallvec::SmallVec;

use crate::error::Result;
use crate::key::{KeyBuffer, Lsn};
use crate::table::Version;
use crate::version::{Cached, Keys, Levels, Rest, Sought};

use super::keyspace::KeyspaceState;
use super::lookup::{asks_filters, in_memory, in_tables, prefetch, unless_overtaken};
use super::slice::Slice;
use super::store::Store;

/// Keys looked up together at most: more keep no device busier.
const TOGETHER: usize = 128;
/// Keys of a group, of which what memtables look at first is loaded at once.
const GROUP: usize = 16;
/// Of the first group, behind which the device can begin; each has twice as many as the one before it.
const FIRST_GROUP: usize = 4;

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
        Looking {
            store,
            keyspace,
            sought: &sought,
            at,
            values: &mut values[first..],
            next: 0,
            group: FIRST_GROUP,
            rests: SmallVec::new(),
            levels: None,
        }
        .search()
    });
    unless_overtaken(store, keyspace, found.map(|()| values))
}

/// Keys on their way. See the module.
struct Looking<'a> {
    store: &'a Store,
    keyspace: &'a KeyspaceState,
    sought: &'a [Sought<'a>],
    at: Lsn,
    /// What was found; none as long as it was not.
    values: &'a mut [Option<Slice>],
    /// The first key that was not looked for.
    next: usize,
    /// How many are looked for next.
    group: usize,
    /// Of keys that the last group has left, the first one last, what is to be done in `levels`.
    rests: SmallVec<[(usize, Rest); GROUP]>,
    levels: Option<Arc<Levels>>,
}

impl Looking<'_> {
    fn search(mut self) -> Result<()> {
        loop {
            self.look()?;
            let Some(levels) = self.levels.clone().filter(|_| !self.rests.is_empty()) else { return Ok(()) };
            let (store, at) = (self.store, self.at);
            let mut keys = Of { levels: &levels, looking: &mut self };
            levels.go_on_together(|reads| store.env.fs.read_each(reads), &mut keys, at)?;
        }
    }

    /// Looks keys up in memory, up to a group of which some are left, or to the end.
    fn look(&mut self) -> Result<()> {
        let slots = self.store.sequencer.slots();
        let committed = |slot: u32, lsn: Lsn| !slots.is_in_flight(slot, lsn);
        while self.rests.is_empty() && self.next < self.sought.len() {
            let guard = epoch::pin();
            let superversion = self.keyspace.current.load(&guard);
            let ask = asks_filters(superversion);
            let first = self.next;
            let group = &self.sought[first..self.sought.len().min(first + self.group)];
            self.next += group.len();
            self.group = GROUP.min(2 * self.group);
            group.iter().for_each(|sought| prefetch(superversion, sought.hash, ask));
            for (n, Sought { key, hash }) in group.iter().enumerate().map(|(n, sought)| (first + n, *sought))
            {
                if let Some(found) = in_memory(superversion, key, hash, self.at, ask, committed) {
                    self.values[n] = found.value;
                    continue;
                }
                match superversion.levels.get_cached(key, hash, self.at, &guard)? {
                    Cached::Told(version) => self.values[n] = in_tables(version).value,
                    Cached::Left(rest) => self.rests.push((n, rest)),
                }
            }
            self.rests.reverse();
            if !self.rests.is_empty()
                && !self.levels.as_ref().is_some_and(|l| Arc::ptr_eq(l, &superversion.levels))
            {
                self.levels = Some(superversion.levels.clone());
            }
        }
        Ok(())
    }
}

/// The keys of these levels, as long as no group sees others.
struct Of<'l, 'a> {
    levels: &'l Arc<Levels>,
    looking: &'l mut Looking<'a>,
}

impl<'k, 'a: 'k> Keys<'k> for Of<'_, 'a> {
    fn next(&mut self) -> Result<Option<(usize, Sought<'k>, Rest)>> {
        self.looking.look()?;
        if !self.looking.levels.as_ref().is_some_and(|levels| Arc::ptr_eq(levels, self.levels)) {
            return Ok(None);
        }
        Ok(self.looking.rests.pop().map(|(n, rest)| (n, self.looking.sought[n], rest)))
    }

    fn found(&mut self, n: usize, version: Option<Version>) {
        self.looking.values[n] = in_tables(version).value;
    }
}
