//! Notes of nodes that are in no list yet, which are sorted by their keys without a look at most of the nodes.
//!
//! Place: `bulk` and `two_tier` take notes of what they are to link, sort them, and walk them.
//!
//! Nodes lie wherever they were written: to compare the keys of two is two misses of the cache. A note has eight bytes of its
//! node's key: behind what all keys so far begin with. Where that gets less, the notes before are made anew at the end.
//!
//! Invariants:
//! 1. Notes name nodes of one list only, whose creation happened before.
//! 2. Notes with different heads are in the order of their nodes' keys, once all heads begin at the same place.
//!
//! Concurrency: one thread's, or handed on. Complexity: O(n log n) numbers; keys are compared where eight bytes do not tell.
//! Origin: ours; the heads are those of Nyberg et al., *AlphaSort*. Tests: `bulk_tests`, `two_tier_tests`.
#![allow(unsafe_code)]

use std::cmp::Ordering;

use crate::key::{key_prefix, shared_prefix};
use crate::pages::{PageVec, Pages};

use super::node::Node;
use super::skiplist::SkipList;

/// Longest run of notes with equal heads that is sorted by whole keys at once.
const RUN_MAX: usize = 64;
/// So often the next eight bytes are tried on longer ones.
const DEPTH_MAX: usize = 16;

/// Eight bytes of a node's key, a number of who noted it, which orders notes of one key, and the node's unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Note(u128);

impl Note {
    /// Bytes of one.
    pub(super) const BYTES: usize = size_of::<Note>();

    fn new(head: u64, number: u32, unit: u32) -> Note {
        Note(u128::from(head) << 64 | u128::from(number) << 32 | u128::from(unit))
    }

    fn head(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// What it was noted with.
    #[inline]
    pub(super) fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The node's.
    #[inline]
    pub(super) fn unit(self) -> u32 {
        self.0 as u32
    }

    fn with_head(self, head: u64) -> Note {
        Note::new(head, self.number(), self.unit())
    }
}

/// See the module.
pub(super) struct Notes {
    /// The list whose nodes they name.
    list: u64,
    notes: PageVec<Note>,
    /// Bytes that all keys so far begin with.
    common: usize,
    /// From here on heads are the eight bytes behind those; before, behind more of them.
    settled: usize,
}

impl Notes {
    /// None, with room for so many.
    pub(super) fn with_capacity(list: &SkipList, count: usize) -> Notes {
        let notes = PageVec::with_capacity_in(count, Pages);
        Notes { list: list.id(), notes, common: usize::MAX, settled: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// How many there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.notes.capacity()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// In the order in which they were added, or sorted.
    pub(super) fn all(&self) -> &[Note] {
        &self.notes
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.notes.reserve(more);
    }

    /// The node of a note.
    ///
    /// # Panics
    /// Here as in all that is given a list: if it is not the one that the notes are of.
    #[inline]
    pub(super) fn node<'a>(&self, list: &'a SkipList, note: Note) -> Node<'a> {
        assert_eq!(self.list, list.id(), "notes are of the list that is asked");
        // SAFETY: `add` got the unit from a node of this list. Test: bulk_tests.
        unsafe { list.node(note.unit()) }
    }

    /// The key of its node.
    #[inline]
    pub(super) fn key<'a>(&self, list: &'a SkipList, note: Note) -> &'a [u8] {
        list.nodes.key(self.node(list, note))
    }

    /// Takes note of a node.
    #[inline]
    pub(super) fn add(&mut self, list: &SkipList, node: Node<'_>, number: u32) {
        assert_eq!(self.list, list.id(), "notes are taken of the nodes of one list");
        let key = list.nodes.key(node);
        let common = match self.notes.first() {
            Some(&first) => shared_prefix(self.key(list, first), key).min(self.common),
            None => key.len(),
        };
        if common != self.common {
            (self.common, self.settled) = (common, self.notes.len());
        }
        self.notes.push(Note::new(key_prefix(&key[common..]), number, node.unit()));
    }

    /// All notes one behind the other, each with its place among them, complemented, as its number.
    pub(super) fn joined(list: &SkipList, parts: Vec<Notes>) -> Notes {
        let mut all = Notes::with_capacity(list, parts.iter().map(Notes::len).sum());
        let mut first: Option<&[u8]> = None;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let key = part.key(list, part.notes[0]);
            let with = *first.get_or_insert(key);
            all.common = all.common.min(part.common).min(shared_prefix(with, key));
        }
        for mut part in parts {
            part.settle(list, all.common);
            for note in part.notes {
                all.notes.push(Note::new(note.head(), !(all.notes.len() as u32), note.unit()));
            }
        }
        all
    }

    /// Has all heads begin behind so many bytes, which all keys begin with.
    fn settle(&mut self, list: &SkipList, common: usize) {
        let end = if self.common == common { self.settled } else { self.len() };
        for at in 0..end {
            let note = self.notes[at];
            self.notes[at] = note.with_head(key_prefix(&self.key(list, note)[common..]));
        }
        (self.common, self.settled) = (common, 0);
    }

    /// Sorts them in the order of the list; those of one key by their numbers.
    pub(super) fn sort(&mut self, list: &SkipList) {
        self.settle(list, self.common);
        let mut notes = std::mem::replace(&mut self.notes, PageVec::new_in(Pages));
        if list.is_bytewise() {
            notes.sort_unstable();
            self.part_equals(list, &mut notes, self.common, 0);
        } else {
            let key = |note| self.key(list, note);
            sort_by_keys(&mut notes, |a, b| list.comparator().compare(key(a), key(b)));
        }
        self.notes = notes;
    }

    /// Sorts what has equal heads in sorted notes. All keys have the first `at` bytes in common.
    fn part_equals(&self, list: &SkipList, notes: &mut [Note], at: usize, depth: usize) {
        let key = |note| self.key(list, note);
        for run in notes.chunk_by_mut(|a, b| a.head() == b.head()).filter(|run| run.len() > 1) {
            let first = key(run[0]);
            let common = run.iter().map(|&note| shared_prefix(first, key(note))).min().unwrap_or(0);
            if run.iter().all(|&note| key(note).len() == common) {
                // Versions of one key, in order already.
                continue;
            }
            // A key that ends within the eight bytes looks as if zeros followed: then only whole keys tell.
            if run.len() <= RUN_MAX || depth == DEPTH_MAX || common < at + 8 {
                sort_by_keys(run, |a, b| key(a)[at..].cmp(&key(b)[at..]));
            } else {
                for note in run.iter_mut() {
                    *note = note.with_head(key_prefix(&key(*note)[common..]));
                }
                run.sort_unstable();
                self.part_equals(list, run, common, depth + 1);
            }
        }
    }
}

/// Sorts notes by their keys, and those of one key by their numbers.
fn sort_by_keys(notes: &mut [Note], compare: impl Fn(Note, Note) -> Ordering) {
    notes.sort_unstable_by(|&a, &b| compare(a, b).then_with(|| a.number().cmp(&b.number())));
}
