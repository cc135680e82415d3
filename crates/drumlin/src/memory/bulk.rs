//! Loading: versions that come in the order of their LSNs, put into an empty memtable all at once.
//!
//! Place: `db`'s recovery gathers what a log holds, on several threads, and loads it. An insert's search is one miss of the
//! cache after another; here the nodes are written one behind the other, sorted by their keys' first bytes beside one
//! another, and linked in one walk.
//!
//! 1. *Gathering* makes a node of each version in the memtable's arena, in no list, and notes its unit with eight bytes of
//!    its key: behind what all keys so far begin with.
//! 2. *Loading* sorts the notes, by those bytes and, where they are equal, by the keys; and links each node behind the one
//!    before, on every level that it has. The guide is told of each, in order.
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
use crate::key::{Kind, Lsn, key_prefix, shared_prefix};
use crate::pages::{PageVec, Pages};
use crate::sync::atomic::Ordering;
use crate::sync::prefetch;

use super::node::{HEIGHT_MAX, NO_BATCH, Node};
use super::skiplist::SkipList;

/// A node that is in no list yet: eight bytes of its key, its place among the versions (complemented), and its unit. As
/// numbers they are in the order of the list, but for keys that have those bytes in common.
type Note = u128;

/// Notes ahead of the walk whose nodes are loaded already.
const AHEAD: usize = 16;
/// Longest run of notes with equal bytes that is sorted by whole keys at once.
const RUN_MAX: usize = 64;
/// So often the next eight bytes are tried on longer ones.
const DEPTH_MAX: usize = 16;

/// Versions gathered by one thread, in the order of their LSNs.
pub struct Gathered {
    /// The list whose arena holds the nodes.
    list: u64,
    notes: PageVec<Note>,
    /// Bytes that all keys so far begin with.
    common: usize,
    /// From here on notes have the eight bytes behind those; before, behind more of them.
    settled: usize,
    charge: Charge,
}

impl Gathered {
    pub(super) fn new(list: &SkipList, account: &Arc<Account>) -> Gathered {
        Gathered {
            list: list.id(),
            notes: PageVec::new_in(Pages),
            common: usize::MAX,
            settled: 0,
            charge: account.charge(0),
        }
    }

    /// How many versions were gathered.
    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Their keys, in the order in which they were gathered.
    pub(super) fn keys<'a>(&'a self, list: &'a SkipList) -> impl Iterator<Item = &'a [u8]> + 'a {
        assert_eq!(self.list, list.id(), "versions are looked at where they were gathered");
        // SAFETY: gathered for this list, as asserted. Test: a_load_is_as_if_all_had_been_put_one_by_one.
        self.notes.iter().map(|&known| list.nodes.key(unsafe { node_of(list, known) }))
    }

    /// True if nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    pub(super) fn add(&mut self, list: &SkipList, key: &[u8], kind: Kind, value: &[u8], lsn: Lsn) {
        assert_eq!(self.list, list.id(), "a version is gathered for one memtable");
        let node = list.create_unlinked(key, kind, value);
        // SAFETY: just made, and nobody else knows it. Test: a_load_is_as_if_all_had_been_put_one_by_one.
        unsafe { list.nodes.set_version(node, lsn, NO_BATCH) };
        let common = match self.notes.first() {
            Some(&first) => {
                // SAFETY: noted below, of this list. Test: as above.
                let first = list.nodes.key(unsafe { node_of(list, first) });
                shared_prefix(first, key).min(self.common)
            }
            None => key.len(),
        };
        if common != self.common {
            (self.common, self.settled) = (common, self.notes.len());
        }
        if self.notes.len() == self.notes.capacity() {
            self.notes.reserve(self.notes.len().max(4));
            self.charge.set(self.notes.capacity() * size_of::<Note>());
        }
        self.notes.push(note(key_prefix(&key[common..]), 0, node.unit()));
    }
}

fn note(head: u64, place: u32, unit: u32) -> Note {
    Note::from(head) << 64 | Note::from(!place) << 32 | Note::from(unit)
}

fn head_of(note: Note) -> u64 {
    (note >> 64) as u64
}

/// The node of a note.
///
/// # Safety
/// The note was gathered for this list.
unsafe fn node_of(list: &SkipList, note: Note) -> Node<'_> {
    // SAFETY: `create_unlinked` of this list made it, and gathering happened before. Test: bulk_tests.
    unsafe { list.node(note as u32) }
}

/// Links what was gathered into `list`, which is nobody else's.
pub(super) fn load(list: &SkipList, parts: Vec<Gathered>, account: &Arc<Account>) {
    let count = parts.iter().map(|part| part.notes.len()).sum();
    assert!(parts.iter().all(|part| part.list == list.id()), "versions are loaded where they were gathered");
    if count == 0 {
        return;
    }
    if list.first().is_some() {
        // SAFETY: gathered for this list, as asserted above, and linked once: the parts are gone then. Test: bulk_tests.
        let nodes = parts.iter().flat_map(|part| &part.notes).map(|&known| unsafe { node_of(list, known) });
        nodes.for_each(|node| list.insert_unlinked(node));
        return;
    }
    let _charge = account.charge(count * size_of::<Note>());
    let mut notes = PageVec::with_capacity_in(count, Pages);
    let common = join(list, parts, &mut notes);
    if list.is_bytewise() {
        notes.sort_unstable();
        part_equals(list, &mut notes, common, 0);
    } else {
        sort_by_keys(&mut notes, |a, b| {
            // SAFETY: gathered for this list, as asserted above. Test: bulk_tests, with a comparator.
            let [a, b] = [a, b].map(|note| list.nodes.key(unsafe { node_of(list, note) }));
            list.comparator().compare(a, b)
        });
    }
    link(list, &notes);
}

/// Brings the parts together, each note with its place and the bytes behind what all keys have in common: so many.
fn join(list: &SkipList, parts: Vec<Gathered>, notes: &mut PageVec<Note>) -> usize {
    let mut common = usize::MAX;
    let mut first: Option<&[u8]> = None;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        // SAFETY: gathered for this list, as `load` asserts. Test: bulk_tests.
        let key = list.nodes.key(unsafe { node_of(list, part.notes[0]) });
        let with = *first.get_or_insert(key);
        common = common.min(part.common).min(shared_prefix(with, key));
    }
    for part in parts {
        let settled = if part.common == common { part.settled } else { part.notes.len() };
        for (at, &known) in part.notes.iter().enumerate() {
            let head = if at >= settled {
                head_of(known)
            } else {
                // SAFETY: as above.
                key_prefix(&list.nodes.key(unsafe { node_of(list, known) })[common..])
            };
            notes.push(note(head, notes.len() as u32, known as u32));
        }
    }
    common
}

/// Sorts notes by their keys, and those of one key by their places: the last first.
fn sort_by_keys(notes: &mut [Note], compare: impl Fn(Note, Note) -> std::cmp::Ordering) {
    let place = |note: Note| (note >> 32) as u32;
    notes.sort_unstable_by(|&a, &b| compare(a, b).then_with(|| place(a).cmp(&place(b))));
}

/// Sorts what has equal bytes in sorted notes. All keys have the first `at` bytes in common.
fn part_equals(list: &SkipList, notes: &mut [Note], at: usize, depth: usize) {
    // SAFETY: gathered for this list, as `load` asserts. Test: bulk_tests.
    let key = |note: Note| list.nodes.key(unsafe { node_of(list, note) });
    for run in notes.chunk_by_mut(|a, b| head_of(*a) == head_of(*b)).filter(|run| run.len() > 1) {
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
            for known in run.iter_mut() {
                let head = key_prefix(&key(*known)[common..]);
                *known = Note::from(head) << 64 | *known & Note::from(u64::MAX);
            }
            run.sort_unstable();
            part_equals(list, run, common, depth + 1);
        }
    }
}

/// Links the nodes in the order of their notes, and makes the guide.
fn link(list: &SkipList, notes: &[Note]) {
    // SAFETY: gathered for this list, as `load` asserts. Test: bulk_tests.
    let node = |note: Note| unsafe { node_of(list, note) };
    let mut ends = [list.head(); HEIGHT_MAX];
    let mut tallest = 0;
    for (at, &known) in notes.iter().enumerate() {
        if let Some(&soon) = notes.get(at + AHEAD) {
            prefetch(node(soon).address());
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
