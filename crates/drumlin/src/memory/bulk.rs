//! Loading: versions that come in the order of their LSNs, put into an empty memtable all at once.
//!
//! Place: `db`'s recovery gathers what a log holds, on several threads, and loads it. An insert's search is one miss of the
//! cache after another; here the nodes are written one behind the other, sorted by their keys' first bytes beside one
//! another, and linked in one walk.
//!
//! 1. *Gathering* makes a node of each version in the memtable's arena, in no list, and takes a note of it (`notes`).
//! 2. *Sorting* puts the notes in the order of their keys.
//! 3. *Linking* cuts that into pieces. In each, a thread links each node behind the one before, on every level that it has, and
//!    makes the guide's leaves of them. At the end pieces and leaves are put one behind the other.
//!
//! Invariants:
//! 1. Nobody else knows the list: `skiplist`'s invariants hold before and after, and who lets others see the memtable later
//!    (a thread started, a pointer published) lets them see its links. Into a list that has nodes already, what was
//!    gathered is put one by one.
//! 2. The parts of a load are given in the order of LSNs, and so are the versions of each. Of the versions of one key the
//!    last comes first; of those of one LSN, too, as if they had been published one after the other.
//! 3. What is gathered is charged: nodes as ever, notes until they are linked.
//! 4. Of a piece a thread writes the links of its own nodes only, and no node is in two; what leads into a piece, and out of
//!    it, is written by who finishes, once all pieces are done.
//!
//! Concurrency: any number of threads gather, each for itself; one sorts, after all of them; any number link, each piece by one of
//! them; one finishes. What each did is handed on under a lock. `next` is Relaxed: it gives out numbers and nothing else.
//! Tests: `bulk_tests`, also under the address sanitizer.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::budget::{Account, Charge};
use crate::key::{Kind, Lsn};
use crate::pages::{PageVec, Pages};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, prefetch};

use super::guide::{Leaves, Nodes};
use super::node::{HEIGHT_MAX, NO_BATCH};
use super::notes::{Note, Notes};
use super::skiplist::SkipList;

/// Notes ahead of the walk whose nodes are loaded already.
const AHEAD: usize = 16;
/// Nodes of a piece: enough to be worth a thread.
const PIECE_NODES: usize = if cfg!(test) { 64 } else { 1 << 16 };

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

/// What was gathered, sorted, on its way into an empty list: pieces of it, which threads link side by side.
pub struct Linking {
    notes: Notes,
    /// The first piece that nobody has taken.
    next: AtomicUsize,
    done: Mutex<Vec<(usize, Piece)>>,
    /// Until all is linked: of what was gathered, and of the notes.
    _charges: Vec<Charge>,
}

/// Nodes one behind the other that are linked with each other, and with no others.
struct Piece {
    /// On each level below `height` the first node and the last; 0 for a level without one.
    ends: [(u32, u32); HEIGHT_MAX],
    height: usize,
    leaves: Leaves,
}

impl Linking {
    /// Sorts what was gathered; `None` if there is nothing left to link, since it was none, or the list had nodes before.
    pub(super) fn sorted(list: &SkipList, parts: Vec<Gathered>, account: &Arc<Account>) -> Option<Linking> {
        let (parts, mut charges): (Vec<Notes>, Vec<Charge>) =
            parts.into_iter().map(|part| (part.notes, part.charge)).unzip();
        let count: usize = parts.iter().map(Notes::len).sum();
        if count == 0 {
            return None;
        }
        charges.push(account.charge(count * Note::BYTES));
        let mut notes = Notes::joined(list, parts);
        if list.first().is_some() {
            notes.all().iter().for_each(|&note| list.insert_unlinked(notes.node(list, note)));
            return None;
        }
        notes.sort(list);
        if let Some(guide) = list.guide() {
            guide.foretell(list.place_of(notes.all()[0].unit()));
        }
        Some(Linking { notes, next: AtomicUsize::new(0), done: Mutex::new(Vec::new()), _charges: charges })
    }

    /// How many threads have something to do.
    pub fn pieces(&self) -> usize {
        self.notes.len().div_ceil(PIECE_NODES)
    }

    /// Links pieces until all are taken.
    pub(super) fn work(&self, list: &SkipList) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(notes) = self.notes.all().chunks(PIECE_NODES).nth(number) else { return };
            let piece = self.link(list, notes);
            self.done.lock().push((number, piece));
        }
    }

    fn link(&self, list: &SkipList, notes: &[Note]) -> Piece {
        let (guide, node) = (list.guide(), |note| self.notes.node(list, note));
        let mut piece = Piece { ends: [(0, 0); HEIGHT_MAX], height: 0, leaves: Leaves::default() };
        for (at, &known) in notes.iter().enumerate() {
            if let Some(&soon) = notes.get(at + AHEAD) {
                prefetch(node(soon).address());
                // Its links are on the line before.
                prefetch(node(soon).address().wrapping_sub(4));
            }
            let node = node(known);
            let height = list.nodes.height(node);
            for (level, (first, last)) in piece.ends[..height].iter_mut().enumerate() {
                match *last {
                    0 => *first = node.unit(),
                    // SAFETY: a node of this piece, of more levels than this one; nobody else knows it. Test:
                    // a_load_is_as_if_all_had_been_put_one_by_one.
                    last => unsafe { list.nodes.link(list.node(last), level) }
                        .store(node.unit(), Ordering::Relaxed),
                }
                *last = node.unit();
            }
            piece.height = piece.height.max(height);
            if let Some(guide) = guide {
                guide.add_behind(list, &mut piece.leaves, node.unit(), list.place_of(node.unit()));
            }
        }
        piece
    }

    /// Links the pieces, all of which were worked at, behind one another. False, and the list stays empty, if one is missing.
    pub(super) fn finish(self, list: &SkipList) -> bool {
        let mut pieces = std::mem::take(&mut *self.done.lock());
        if pieces.len() < self.pieces() {
            return false;
        }
        pieces.sort_unstable_by_key(|(number, _)| *number);
        let mut ends = [list.head().unit(); HEIGHT_MAX];
        for (_, piece) in pieces {
            for (level, (first, last)) in
                piece.ends[..piece.height].iter().enumerate().filter(|(_, (first, _))| *first != 0)
            {
                // SAFETY: the head, or the last node of an earlier piece on this level; nobody else knows it. Test: as above.
                unsafe { list.nodes.link(list.node(ends[level]), level) }.store(*first, Ordering::Relaxed);
                ends[level] = *last;
            }
            list.raise(piece.height);
            if let Some(guide) = list.guide() {
                guide.append(list, piece.leaves);
            }
        }
        list.nodes.arena.count_entries(self.notes.len());
        true
    }
}
