//! The way into a list: a tree of signs that leads to the node before a key, or close to it.
//!
//! Place: `skiplist` asks it where to begin, and tells it of each node that it linked.
//!
//! A search down the levels of a large list meets about log2 n nodes, each in a cache line of its own, most of them in no
//! cache. The guide keeps eight bytes of each key beside those of its neighbours: a search of it halves a few arrays,
//! of which only the last is cold, and then meets the node before the key and the one behind it, which are loaded beside
//! one another.
//!
//! Invariants:
//! 1. It is a hint. What it names are nodes of the list, and mostly the neighbours of the key; the list compares the nodes
//!    themselves, and searches by itself if they are not. So nothing here decides an answer.
//! 2. A node that is not told of, because somebody else was changing the same array, is found from the node before it.
//! 3. The keys that an array leads to share the guide's prefix up to the array's `skip`. The prefix is the first key.
//!
//! A leaf has signs only; an inner node has a child for each sign, in which the nodes from that sign on are found, up to
//! the next. What lies before the first sign is found in the first child.
//!
//! Concurrency: searches write nothing and wait for nobody. Who adds a sign changes one leaf (`Signs::take`). Who finds it
//! full takes `change` and divides it, and inner nodes above it that are full; if somebody else is at that, the sign is
//! left out. A new array is filled, then its parent is told, then the old one is cut: a search finds the upper half in
//! one of them at any time.
//! - root: stored with Release after what it leads to, loaded with Acquire; children: see `signs`.
//!
//! Memory: arrays lie in the list's arena, and are charged with it. About 20 bytes a node.
//! Origin: ours; a B+-tree of hints. sLSM §2.4's fence pointers, turned on memory. Order of bytes only.
//! Tests: `guide_tests`, `signs`, `skiplist_tests`, `loom_tests`. What it is worth: docs/design/speed.md.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, prefetch};

use super::arena::{Arena, LINE_UNITS, Shape, UNIT_BYTES};
use super::place::Place;
use super::signs::{Signs, Taken, Target};

/// Signs of a leaf: seven cache lines.
const LEAF: usize = if cfg!(loom) { 3 } else { 36 };
/// Signs of an inner node: sixteen lines.
const INNER: usize = if cfg!(loom) { 3 } else { 63 };
/// Bytes of the first key that may be common to all.
const PREFIX_MAX: usize = 64;

type Leaf = Signs<LEAF, 0>;
type Inner = Signs<INNER, INNER>;

/// What the guide must know of the list.
pub(super) trait Nodes {
    /// True if the node is before the place.
    fn is_before(&self, unit: u32, place: Place<'_>) -> bool;
    /// The place just before the node.
    fn place_of(&self, unit: u32) -> Place<'_>;
    /// Where the guide's arrays lie.
    fn arena(&self) -> &Arena;
}

/// Where a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    /// The node before it, about; 0 for the head, or if that is not known.
    pub before: u32,
    /// The one behind, perhaps; 0 if that is not known.
    pub behind: u32,
    /// The leaf that led there.
    pub leaf: u32,
}

/// Leaves that no search finds yet, of nodes that came in order: of each its first node, and its unit.
#[derive(Default)]
pub(super) struct Leaves(Vec<(u32, u32)>);

/// See the module.
pub(super) struct Guide {
    /// The root: its height (0 for a leaf), then its unit; 0 before the first node.
    root: AtomicU64,
    /// What keys may begin with.
    prefix: OnceLock<Box<[u8]>>,
    /// The last leaf: where keys go that come in order.
    last: AtomicU32,
    change: Mutex<()>,
    /// Makes the model checker try every order of accesses to the root: see `loom_shadow`.
    #[cfg(loom)]
    witness: AtomicU32,
}

impl Guide {
    pub(super) fn new() -> Guide {
        Guide {
            root: AtomicU64::new(0),
            prefix: OnceLock::new(),
            last: AtomicU32::new(0),
            change: Mutex::new(()),
            #[cfg(loom)]
            witness: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn root(&self) -> &AtomicU64 {
        #[cfg(loom)]
        self.witness.fetch_add(1, Ordering::Relaxed);
        &self.root
    }

    /// Which leaf leads to `place`, and a node before it; starts to load the leaf. O(log n).
    #[inline]
    pub(super) fn approach(&self, list: &impl Nodes, place: Place<'_>) -> Option<Hint> {
        let (height, mut hint) = self.begin_search()?;
        for _ in 0..height {
            hint = self.go_down(list, hint, place)?;
        }
        // SAFETY: at height 0 it is that of a leaf; see `go_down`.
        prefetch_all(unsafe { array::<Leaf>(list.arena(), hint.leaf) });
        Some(hint)
    }

    /// The same for several places, level by level: what one meets is loaded while the others are sought.
    pub(super) fn approach_all(&self, list: &impl Nodes, searches: &mut [(Place<'_>, Option<Hint>)]) {
        let Some((height, hint)) = self.begin_search() else { return };
        searches.iter_mut().for_each(|search| search.1 = Some(hint));
        for height in (0..height).rev() {
            for (place, hint) in searches.iter_mut() {
                *hint = hint.and_then(|hint| self.go_down(list, hint, *place));
                let Some(next) = *hint else { continue };
                // SAFETY: see `go_down`; at height 0 it is that of a leaf.
                unsafe {
                    match height {
                        0 => prefetch_all(array::<Leaf>(list.arena(), next.leaf)),
                        _ => array::<Inner>(list.arena(), next.leaf).prefetch_heads(),
                    }
                }
            }
        }
    }

    /// How many levels are above the leaves, and a search at the root, if the guide knows any node.
    #[inline]
    fn begin_search(&self) -> Option<(u64, Hint)> {
        let root = self.root().load(Ordering::Acquire);
        (root != 0).then_some((root >> 32, Hint { before: 0, behind: 0, leaf: root as u32 }))
    }

    /// Goes on one level below the inner node that is the hint's `leaf` so far.
    #[inline]
    fn go_down(&self, list: &impl Nodes, mut hint: Hint, place: Place<'_>) -> Option<Hint> {
        // SAFETY: read from the root or from a child, with Acquire; a unit that is not 0 is that of an inner node.
        let inner: &Inner = unsafe { array(list.arena(), hint.leaf) };
        let before = inner.before(self.target(place), |unit| list.is_before(unit, place));
        if before > 1 {
            hint.before = inner.unit(before - 1);
        }
        hint.leaf = inner.child(before - 1);
        (hint.leaf != 0).then_some(hint)
    }

    /// Goes on in the leaf that `approach` found for `place`. O(1).
    #[inline]
    pub(super) fn arrive(&self, list: &impl Nodes, mut hint: Hint, place: Place<'_>) -> Hint {
        // SAFETY: from `approach`, which had it with Acquire.
        let leaf: &Leaf = unsafe { array(list.arena(), hint.leaf) };
        let before = leaf.about(self.target(place), |unit| list.is_before(unit, place));
        if before > 0 {
            hint.before = leaf.unit(before - 1);
        }
        if before < leaf.count() {
            hint.behind = leaf.unit(before);
        }
        hint
    }

    /// Takes in a node of the list, at `place`; `leaf` is where the hint came from, or 0. Left out if others are changing
    /// what it belongs in.
    pub(super) fn add(&self, list: &impl Nodes, leaf: u32, unit: u32, place: Place<'_>) {
        let leaf_unit = match leaf {
            0 => match self.approach(list, place) {
                Some(hint) => hint.leaf,
                None => return self.begin(list, unit, place),
            },
            leaf => leaf,
        };
        // SAFETY: from a hint, which had it with Acquire.
        let leaf: &Leaf = unsafe { array(list.arena(), leaf_unit) };
        let Some(held) = leaf.take() else { return };
        let target = self.target(place);
        let head = held.fit(target);
        let n = leaf.before(target, |unit| list.is_before(unit, place));
        if held.is_full() {
            self.divide_leaf(list, (leaf_unit, leaf), &held, (n, head, unit));
        } else {
            held.insert(n, head, unit, 0);
        }
    }

    /// Of a list without nodes: what keys may begin with, by the first that there will be.
    pub(super) fn foretell(&self, first: Place<'_>) {
        self.prefix.get_or_init(|| beginning(first));
    }

    /// Takes a node in at the end of `leaves`, which are of its list and of nodes before it.
    pub(super) fn add_behind(&self, list: &impl Nodes, leaves: &mut Leaves, unit: u32, place: Place<'_>) {
        let target = self.target(place);
        let last = leaves.0.last().map(|&(_, leaf)| leaf);
        // SAFETY: made below.
        let last =
            last.map(|leaf| unsafe { array::<Leaf>(list.arena(), leaf) }).filter(|leaf| leaf.count() < LEAF);
        let leaf = last.unwrap_or_else(|| {
            let (leaf_unit, leaf) = new_array::<Leaf>(list.arena(), Signs::new(target.prefix.len()));
            leaves.0.push((unit, leaf_unit));
            leaf
        });
        if let Some(held) = leaf.take() {
            let head = held.fit(target);
            held.insert(leaf.count(), head, unit, 0);
        }
    }

    /// Lets searches find what is in `leaves`, whose nodes are in the list now, behind all that the guide has.
    pub(super) fn append(&self, list: &impl Nodes, leaves: Leaves) {
        let _change = self.change.lock();
        for (first, leaf) in leaves.0 {
            self.last.store(leaf, Ordering::Relaxed);
            if self.root().load(Ordering::Relaxed) == 0 {
                self.root().store(u64::from(leaf), Ordering::Release);
            } else {
                self.tell_parent(list, 1, first, leaf);
            }
        }
    }

    fn target<'k>(&'k self, place: Place<'k>) -> Target<'k> {
        Target { key: place.key(), prefix: self.prefix.get().map_or(&[], |prefix| prefix) }
    }

    /// The first leaf, with the first node.
    #[cold]
    fn begin(&self, list: &impl Nodes, unit: u32, place: Place<'_>) {
        let Some(_change) = self.change.try_lock() else { return };
        if self.root().load(Ordering::Relaxed) != 0 {
            return;
        }
        let prefix = self.prefix.get_or_init(|| beginning(place));
        let (leaf_unit, leaf) = new_array::<Leaf>(list.arena(), Signs::new(prefix.len()));
        if let Some(held) = leaf.take() {
            held.insert(0, held.fit(self.target(place)), unit, 0);
        }
        self.last.store(leaf_unit, Ordering::Relaxed);
        self.root().store(u64::from(leaf_unit), Ordering::Release);
    }

    /// Divides a leaf that is full and held, and puts the sign in that is the n-th.
    #[cold]
    fn divide_leaf(
        &self,
        list: &impl Nodes,
        (leaf_unit, leaf): (u32, &Leaf),
        held: &Taken<'_, LEAF, 0>,
        (n, head, unit): (usize, u64, u32),
    ) {
        let Some(_change) = self.change.try_lock() else { return };
        let (fresh_unit, fresh) = new_array::<Leaf>(list.arena(), Signs::new(leaf.skip()));
        let Some(fresh_held) = fresh.take() else { return };
        let is_last = self.last.load(Ordering::Relaxed) == leaf_unit;
        if is_last {
            self.last.store(fresh_unit, Ordering::Relaxed);
        }
        if is_last && n == LEAF {
            // Keys that come in order fill their leaves.
            fresh_held.insert(0, head, unit, 0);
            self.tell_parent(list, 1, unit, fresh_unit);
            return;
        }
        let middle = LEAF / 2;
        held.copy_from(middle, &fresh_held);
        self.tell_parent(list, 1, fresh.unit(0), fresh_unit);
        held.cut(middle);
        if n <= middle {
            held.insert(n, head, unit, 0);
        } else {
            fresh_held.insert(n - middle, head, unit, 0);
        }
    }

    /// Puts `child` with the node `sign` in an inner node of `level`, under `change`.
    fn tell_parent(&self, list: &impl Nodes, level: u64, sign: u32, child: u32) {
        let root = self.root().load(Ordering::Relaxed);
        let (mut height, mut unit) = (root >> 32, root as u32);
        let place = list.place_of(sign);
        let target = self.target(place);
        let is_before = |unit: u32| list.is_before(unit, place);
        if height < level {
            // The root itself was divided.
            let (fresh_unit, fresh) = new_array::<Inner>(list.arena(), Signs::new(target.prefix.len()));
            if let Some(held) = fresh.take() {
                let first = self.first_of(list, height, unit);
                let head = held.fit(self.target(list.place_of(first)));
                held.insert(0, head, first, unit);
                let head = held.fit(target);
                held.insert(1, head, sign, child);
            }
            self.root().store(level << 32 | u64::from(fresh_unit), Ordering::Release);
            return;
        }
        // SAFETY: inner nodes change only under `change`, so that their children are what they were given.
        let mut inner: &Inner = unsafe { array(list.arena(), unit) };
        while height > level {
            unit = inner.child(inner.before(target, is_before) - 1);
            // SAFETY: as above.
            inner = unsafe { array(list.arena(), unit) };
            height -= 1;
        }
        let Some(held) = inner.take() else { return };
        let head = held.fit(target);
        let n = inner.before(target, is_before);
        if !held.is_full() {
            held.insert(n, head, sign, child);
            return;
        }
        let (fresh_unit, fresh) = new_array::<Inner>(list.arena(), Signs::new(inner.skip()));
        let Some(fresh_held) = fresh.take() else { return };
        // Where keys come in order the lower half gets no more.
        let middle = if n == INNER { INNER - 1 } else { INNER / 2 };
        held.copy_from(middle, &fresh_held);
        if n > middle {
            fresh_held.insert(n - middle, head, sign, child);
        }
        self.tell_parent(list, level + 1, fresh.unit(0), fresh_unit);
        held.cut(middle);
        if n <= middle {
            held.insert(n, head, sign, child);
        }
    }

    /// Nodes about as far apart, in their order but for those whose signs came late: all signs of the highest level that has so many, or of the leaves. While
    /// others change it some may be missing.
    pub(super) fn sample(&self, list: &impl Nodes, wanted: usize) -> Vec<u32> {
        let root = self.root().load(Ordering::Acquire);
        let mut level = if root == 0 { Vec::new() } else { vec![root as u32] };
        for height in (0..=root >> 32).rev() {
            // SAFETY: read from the root, or as children, with Acquire; the root's word has its height.
            let units = |unit: u32| unsafe {
                match height {
                    0 => array::<Leaf>(list.arena(), unit).all_units(),
                    _ => array::<Inner>(list.arena(), unit).all_units(),
                }
            };
            let signs: Vec<u32> = level.iter().flat_map(|&unit| units(unit)).collect();
            if height == 0 || signs.len() >= wanted {
                return signs;
            }
            // SAFETY: as above.
            let children = |unit: u32| unsafe { array::<Inner>(list.arena(), unit).all_children() };
            level = level.iter().flat_map(|&unit| children(unit)).collect();
        }
        level
    }

    /// Bytes of its arrays.
    #[cfg(all(test, not(loom)))]
    pub(super) fn bytes(&self, list: &impl Nodes) -> usize {
        let root = self.root().load(Ordering::Acquire);
        let mut level = if root == 0 { Vec::new() } else { vec![root as u32] };
        let mut bytes = 0;
        for height in (0..=root >> 32).rev() {
            if height == 0 {
                return bytes + level.len() * size_of::<Leaf>();
            }
            bytes += level.len() * size_of::<Inner>();
            level = level
                .iter()
                .flat_map(|&unit| {
                    // SAFETY: an inner node's children are one level below. Test: as above.
                    let inner: &Inner = unsafe { array(list.arena(), unit) };
                    (0..inner.count()).map(move |n| inner.child(n))
                })
                .collect();
        }
        bytes
    }

    /// The first node that the array at `unit` knows.
    fn first_of(&self, list: &impl Nodes, height: u64, unit: u32) -> u32 {
        // SAFETY: the root and its height. Test: every_node_told_of_is_found_at_once.
        unsafe {
            if height == 0 {
                array::<Leaf>(list.arena(), unit).unit(0)
            } else {
                array::<Inner>(list.arena(), unit).unit(0)
            }
        }
    }
}

/// What other keys may begin with, too.
fn beginning(place: Place<'_>) -> Box<[u8]> {
    place.key()[..place.key().len().min(PREFIX_MAX)].into()
}

/// Starts to load all of a leaf.
#[inline]
fn prefetch_all(leaf: &Leaf) {
    let start: *const u8 = std::ptr::from_ref(leaf).cast();
    for line in 0..size_of::<Leaf>() / 64 {
        prefetch(start.wrapping_add(line * 64));
    }
}

/// The array at `unit`.
///
/// # Safety
/// `new_array` made it there, of this type, and that happened before.
#[inline]
unsafe fn array<T>(arena: &Arena, unit: u32) -> &T {
    // SAFETY: initialized by `new_array`, shared from then on, and there as long as the arena.
    // Test: every_node_told_of_is_found_at_once.
    unsafe { arena.address(unit).cast::<T>().as_ref() }
}

fn new_array<T>(arena: &Arena, signs: T) -> (u32, &T) {
    let body = size_of::<T>().div_ceil(UNIT_BYTES) as u32;
    let unit = arena.allocate(Shape { lead: 0, body, hot_before: 0, hot_after: LINE_UNITS });
    // SAFETY: just handed out, of this size, at a cache line, and nobody else's. Test: as above.
    unsafe {
        let place = arena.address(unit).cast::<T>();
        place.write(signs);
        (unit, place.as_ref())
    }
}
