//! Loading: versions that come in the order of their LSNs, put into an empty memtable all at once.
//!
//! Place: `db`'s recovery gathers what a log holds, on several threads, and loads it. An insert's search is one miss of the
//! cache after another; here the nodes are written one behind the other, sorted by their keys' first bytes beside one
//! another, and linked in one walk.
//!
//! 1. *Gathering* makes a node of each version in the memtable's arena, in no list, and takes a note of it (`notes`).
//! 2. *Loading* sorts the notes, and links each node behind the one before, on every level that it has. The guide is told of
//!    each, in order.
//!
//! Invariants:
//! 1. Nobody else knows the list: `skiplist`'s invariants hold before and after, and who lets others see the memtable later
//!    (a thread started, a pointer published) lets them see its links. Into a list that has nodes already, what was
//!    gathered is put one by one.
//! 2. The parts of a load are given in the order of LSNs, and so are the versions of each. Of the versions of one key the
//!    last comes first; of those of one LSN, too, as if they had been published one after the other.
//! 3. What is gathered is charged: nodes as ever, notes until they are linked.
//!
//! Concurrency: any number of threads gather, each for itself; one loads, after all of them.
//! Tests: `bulk_tests`, also under the address sanitizer.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::budget::{Account, Charge};
use crate::key::{Kind, Lsn};
use crate::pages::{PageVec, Pages};
use crate::sync::atomic::Ordering;
use crate::sync::prefetch;

use super::node::{HEIGHT_MAX, NO_BATCH};
use super::notes::{Note, Notes};
use super::skiplist::SkipList;

/// Notes ahead of the walk whose nodes are loaded already.
const AHEAD: usize = 16;

/// Versions gathered by one thread, in the order of their LSNs.
pub struct Gathered {
    notes: Notes,
    /// Of their keys, in the same order: the thread has the key at hand, and later each would be a miss of the cache.
    hashes: PageVec<u64>,
    charge: Charge,
}

impl Gathered {
    pub(super) fn new(list: &SkipList, account: &Arc<Account>) -> Gathered {
        let (notes, hashes) = (Notes::with_capacity(list, 0), PageVec::new_in(Pages));
        Gathered { notes, hashes, charge: account.charge(0) }
    }

    /// How many versions were gathered.
    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// The hashes of their keys, in the order in which they were gathered.
    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Takes a version of a key of this hash.
    pub(super) fn add(
        &mut self,
        list: &SkipList,
        (key, hash): (&[u8], u64),
        kind: Kind,
        value: &[u8],
        lsn: Lsn,
    ) {
        let node = list.create_unlinked(key, kind, value);
        // SAFETY: just made, and nobody else knows it. Test: a_load_is_as_if_all_had_been_put_one_by_one.
        unsafe { list.nodes.set_version(node, lsn, NO_BATCH) };
        if self.notes.len() == self.notes.capacity() {
            self.notes.reserve(self.notes.len().max(4));
            self.hashes.reserve(self.notes.capacity() - self.hashes.len());
            let hash_bytes = self.hashes.capacity() * size_of::<u64>();
            self.charge.set(self.notes.capacity() * Note::BYTES + hash_bytes);
        }
        self.notes.add(list, node, 0);
        self.hashes.push(hash);
    }
}

/// Links what was gathered into `list`, which is nobody else's.
pub(super) fn load(list: &SkipList, parts: Vec<Gathered>, account: &Arc<Account>) {
    // What they are charged with stays so until they are linked.
    let (parts, _charges): (Vec<Notes>, Vec<Charge>) =
        parts.into_iter().map(|part| (part.notes, part.charge)).unzip();
    let count: usize = parts.iter().map(Notes::len).sum();
    if count == 0 {
        return;
    }
    let _charge = account.charge(count * Note::BYTES);
    let mut notes = Notes::joined(list, parts);
    if list.first().is_some() {
        notes.all().iter().for_each(|&note| list.insert_unlinked(notes.node(list, note)));
        return;
    }
    notes.sort(list);
    link(list, &notes);
}

/// Links the nodes in the order of their notes, and makes the guide.
fn link(list: &SkipList, notes: &Notes) {
    let node = |note| notes.node(list, note);
    let mut ends = [list.head(); HEIGHT_MAX];
    let mut tallest = 0;
    for (at, &known) in notes.all().iter().enumerate() {
        if let Some(&soon) = notes.all().get(at + AHEAD) {
            prefetch(node(soon).address());
            // Its links are on the line before.
            prefetch(node(soon).address().wrapping_sub(4));
        }
        let node = node(known);
        let height = list.nodes.height(node);
        for (level, end) in ends[..height].iter_mut().enumerate() {
            // SAFETY: the head, or a node of more levels than this one; nobody else reads the link (invariant 1). Test: as
            // above.
            unsafe { list.nodes.link(*end, level) }.store(node.unit(), Ordering::Relaxed);
            *end = node;
        }
        tallest = tallest.max(height);
        list.add_to_guide(node, list.guide().last_leaf());
    }
    list.raise(tallest);
    list.nodes.arena.count_entries(notes.len());
}
