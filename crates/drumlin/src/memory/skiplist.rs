//! A concurrent, insert-only, ordered list of versions with express lanes.
//!
//! Place: the sorted tier inside `memtable`; `cursor` walks it. It calls `node`.
//!
//! Every node is on level 0; half of the nodes of a level are on the next one too. A search runs
//! along the highest level until the next node would be too far, goes one level down, and so on.
//!
//! Invariants:
//! 1. Level 0 holds every published version exactly once, in internal order (user key ascending,
//!    LSN descending). It alone decides what a get or a cursor answers.
//! 2. A node is linked bottom-up: whoever meets it on a level finds it linked on all lower ones.
//! 3. Each level's nodes, at every moment, are in order: a node goes in by one compare-and-swap of
//!    its predecessor's link from its successor to itself, and nodes are never taken out, so a
//!    node once seen before a position stays before it.
//! 4. No (key, LSN) is published twice; the caller sees to it (a key's LSN is drawn under its lock).
//!
//! Inserting takes two steps, so that little is left to do while locks are held and an LSN is in
//! flight. `reserve` allocates and fills the node, searches its place (this is where the cache
//! misses are), and remembers the predecessor of each level in that level's own, still unused link.
//! `publish` checks each remembered predecessor against its present successor, walks on if others
//! came in between, searches anew if too many did, and swaps. It never allocates.
//!
//! Concurrency: any number of threads may call anything; nothing waits, nothing is retried for ever
//! (a failed compare-and-swap means another insert went through).
//! - link: Release compare-and-swap in `publish`, Acquire load in every walk. It publishes the
//!   node's bytes and its own links.
//! - `height`: Relaxed; it only says where to begin.
//! - get and cursors write no shared memory.
//!
//! Origin: cLSM §3.3 (items go into the lists one at a time, bottom up; only the lowest decides) and
//! sLSM §2.2. Ours: remembered predecessors; the compare that is skipped when the next node on a
//! lower level is the one just found too far; the loading ahead of both ways a search can go on.
//! Tests: `skiplist_tests` (a model; threads, also under the thread sanitizer), `loom_tests` (every
//! ordering named above, weakened to Relaxed, fails one of them).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;

use crate::budget::Account;
use crate::key::{ComparatorRef, Kind, Lsn, key_prefix};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicUsize, Ordering};

use super::guide::{Guide, Levels};
use super::local;
use super::node::{HEIGHT_MAX, Node, Nodes, PREFIX_BYTES};

/// Nodes that `publish` passes on one level before it searches from the top: about what a search
/// costs.
const STEPS_MAX: usize = 16;

/// Inserts of nodes of this height build the guide: one of 32. A model builds it by itself.
const GUIDED_HEIGHT: usize = if cfg!(loom) { usize::MAX } else { 6 };
/// Nodes that a search passes on the guide's level before it begins at the head.
const GUIDED_STEPS_MAX: usize = 8;
/// Nodes of a level by which those of level 0 are told: a sixteenth off, in the mean.
const COUNTED_MIN: u64 = 256;

/// Numbers the lists of this process; identity only, never modelled.
static LISTS: PlainAtomicU64 = PlainAtomicU64::new(1);

/// A node that is filled but not in the list. It may be dropped: its space is then unused until
/// the memtable goes.
#[derive(Debug)]
#[must_use = "a reserved node is in no list until it is published"]
pub struct Reserved {
    /// The list whose arena holds the node.
    list: u64,
    unit: u32,
}

/// A place in the internal order: after the versions of smaller keys and after the versions of
/// `key` that have an LSN of `newer_from` or more.
#[derive(Clone, Copy)]
pub(super) struct Place<'k> {
    key: &'k [u8],
    prefix: u64,
    newer_from: u64,
}

impl<'k> Place<'k> {
    /// Just before (key, lsn).
    #[inline]
    pub(super) fn before(key: &'k [u8], lsn: Lsn) -> Self {
        // No version has the LSN MAX, so nothing is lost by saturating.
        Self { key, prefix: key_prefix(key), newer_from: lsn.0.saturating_add(1) }
    }

    /// Just after (key, lsn).
    #[inline]
    pub(super) fn after(key: &'k [u8], lsn: Lsn) -> Self {
        Self { key, prefix: key_prefix(key), newer_from: lsn.0 }
    }
}

/// The last node before a place, level by level.
#[derive(Clone)]
pub(super) struct Path {
    /// Units; on each level some node before the place.
    last: [u32; HEIGHT_MAX],
    /// Levels that are filled; 0 if the path leads nowhere.
    height: usize,
}

impl Path {
    pub(super) const NONE: Path = Path { last: [0; HEIGHT_MAX], height: 0 };

    /// True if it leads somewhere.
    pub(super) fn is_some(&self) -> bool {
        self.height != 0
    }

    /// From now on it leads nowhere.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.height = 0;
    }
}

/// The list. Searches cost O(log n), steps forward O(1).
pub(super) struct SkipList {
    pub(super) nodes: Nodes,
    guide: Guide,
    comparator: ComparatorRef,
    bytewise: bool,
    /// Unit of the node before all others, with links on all levels and no version.
    head: u32,
    id: u64,
    /// Levels in use. Raised a few times in a list's life.
    height: CachePadded<AtomicUsize>,
}

impl SkipList {
    pub(super) fn new(comparator: ComparatorRef, account: Arc<Account>) -> Self {
        let guide = Guide::new(Arc::clone(&account));
        let nodes = Nodes::new(account);
        let head = nodes.create(HEIGHT_MAX, b"", Kind::Delete, b"").unit();
        Self {
            nodes,
            guide,
            bytewise: comparator.is_bytewise(),
            comparator,
            head,
            id: LISTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            height: CachePadded::new(AtomicUsize::new(1)),
        }
    }

    /// Makes a node and finds its place. See the module's header.
    pub(super) fn reserve(&self, key: &[u8], kind: Kind, value: &[u8]) -> Reserved {
        self.reserve_with_height(local::random_height(HEIGHT_MAX), key, kind, value)
    }

    pub(super) fn reserve_with_height(
        &self,
        height: usize,
        key: &[u8],
        kind: Kind,
        value: &[u8],
    ) -> Reserved {
        let node = self.nodes.create(height, key, kind, value);
        // The new version will be the newest of its key, or is unlikely to be far from it.
        let place = Place::before(key, Lsn::MAX);
        if height >= GUIDED_HEIGHT && self.bytewise {
            self.guide.advance(self);
        }
        let (from, top) = self.way_in(place, height);
        self.walk(from, top, 0, place, |level, last| {
            if level < height {
                // SAFETY: below the node's height.
                let link = unsafe { self.nodes.link(node, level) };
                link.store(last.unit(), Ordering::Relaxed);
            }
        });
        Reserved { list: self.id, unit: node.unit() }
    }

    /// Puts a reserved node into the list as version `lsn` of its key.
    ///
    /// # Panics
    /// If the node was reserved in another list.
    pub(super) fn publish(&self, reserved: Reserved, lsn: Lsn, batch: u32) {
        assert_eq!(reserved.list, self.id, "a node is published in the memtable that reserved it");
        debug_assert!(lsn < Lsn::MAX);
        // SAFETY: made by `reserve` of this list, by this thread or handed on by it.
        let node = unsafe { self.nodes.node(reserved.unit) };
        // SAFETY: `Reserved` is neither Clone nor Copy, so this is the first and only `publish` of
        // the node, and nobody else knows it. Test: loom_a_found_version_is_whole.
        unsafe { self.nodes.set_version(node, lsn, batch) };
        let height = self.nodes.height(node);
        if height > self.height.load(Ordering::Relaxed) {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        let place = Place::before(self.nodes.key(node), lsn);
        for level in 0..height {
            self.link_on(level, node, place);
        }
        self.nodes.arena.count_entry();
    }

    /// Links `node`, which is on all lower levels, on `level`.
    fn link_on(&self, level: usize, node: Node<'_>, place: Place<'_>) {
        // SAFETY: `publish` goes up to the node's height only.
        let own = unsafe { self.nodes.link(node, level) };
        // SAFETY: until the node is linked on this level, the link holds what `reserve` put there:
        // a node of this list that was seen on this level, before this place.
        let mut last = unsafe { self.nodes.node(own.load(Ordering::Relaxed)) };
        let mut steps = 0;
        loop {
            // SAFETY: `last` was met on this level.
            let link = unsafe { self.nodes.link(last, level) };
            let next = link.load(Ordering::Acquire);
            if next != 0 {
                // SAFETY: read from a link, with Acquire.
                let follower = unsafe { self.nodes.node(next) };
                if self.is_before(follower, place) {
                    last = follower;
                    steps += 1;
                    if steps == STEPS_MAX {
                        let top = self.height.load(Ordering::Relaxed).max(level + 1) - 1;
                        last = self.walk(self.head(), top, level, place, |_, _| ()).0;
                    }
                    continue;
                }
            }
            own.store(next, Ordering::Relaxed);
            // Release: whoever finds the node here finds its bytes and its links too.
            if link.compare_exchange(next, node.unit(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Where a search for `place` begins that needs at least `height` levels: a node before it, and the highest level to go
    /// along.
    #[inline]
    pub(super) fn way_in(&self, place: Place<'_>, height: usize) -> (Node<'_>, usize) {
        if let Some((unit, level)) = self.guide.before(place.key)
            && level + 1 >= height
        {
            // SAFETY: the guide was given it by `next_on`, and handed it on with Release and Acquire.
            let mut from = unsafe { self.nodes.node(unit) };
            for _ in 0..GUIDED_STEPS_MAX {
                // SAFETY: it was met on this level.
                let next = unsafe { self.nodes.link(from, level) }.load(Ordering::Acquire);
                // SAFETY: read from a link, with Acquire.
                match (next != 0).then(|| unsafe { self.nodes.node(next) }) {
                    Some(follower) if self.is_before_bytewise(follower, place) => from = follower,
                    _ => return (from, level),
                }
            }
            // Much came in there since the guide was made.
        }
        (self.head(), self.height.load(Ordering::Relaxed).max(height) - 1)
    }

    /// The first node at or after `place`.
    #[inline]
    pub(super) fn find(&self, place: Place<'_>) -> Option<Node<'_>> {
        self.find_from(self.way_in(place, 1), place)
    }

    /// The same, from where `way_in` said.
    #[inline]
    pub(super) fn find_from(&self, (from, top): (Node<'_>, usize), place: Place<'_>) -> Option<Node<'_>> {
        let next = self.walk(from, top, 0, place, |_, _| ()).1;
        // SAFETY: read from a link, with Acquire.
        (next != 0).then(|| unsafe { self.nodes.node(next) })
    }

    /// Bytes of the nodes and the guide. O(1).
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.nodes.arena.bytes() + self.guide.bytes()
    }

    /// The first node.
    pub(super) fn first(&self) -> Option<Node<'_>> {
        self.next(self.head())
    }

    /// The node after `node`, in O(1).
    #[inline]
    pub(super) fn next<'a>(&'a self, node: Node<'a>) -> Option<Node<'a>> {
        // SAFETY: every node has a level 0, and callers got theirs from a walk of this list.
        let next = unsafe { self.nodes.link(node, 0) }.load(Ordering::Acquire);
        // SAFETY: read from a link, with Acquire.
        (next != 0).then(|| unsafe { self.nodes.node(next) })
    }

    /// Fills `path` with the way to `place`.
    pub(super) fn find_path(&self, place: Place<'_>, path: &mut Path) {
        path.height = self.height.load(Ordering::Relaxed);
        let top = path.height - 1;
        self.walk(self.head(), top, 0, place, |level, last| path.last[level] = last.unit());
    }

    /// Fills `path` with the way past the last node.
    pub(super) fn find_path_to_end(&self, path: &mut Path) {
        path.height = self.height.load(Ordering::Relaxed);
        let top = path.height - 1;
        self.descend(self.head(), top, 0, |_| true, |level, last| path.last[level] = last.unit());
    }

    /// Steps to the node before the place of `path`, and turns `path` into the way to that node.
    /// `None`, and no path, if there is none. O(1) on average: only the levels on which the node
    /// is the last of the path are searched again.
    pub(super) fn step_back(&self, path: &mut Path) -> Option<Node<'_>> {
        let unit = path.last[0];
        if unit == self.head {
            path.height = 0;
            return None;
        }
        let kept = path.last[..path.height].iter().position(|&last| last != unit);
        // SAFETY: filled by a walk of this list.
        let node = unsafe { self.nodes.node(unit) };
        let (from, levels) = match kept {
            // SAFETY: as above.
            Some(level) => (unsafe { self.nodes.node(path.last[level]) }, level),
            None => (self.head(), path.height),
        };
        // `from` was met on level `levels` or is the head, so it is on the level below too.
        let place = Place::before(self.nodes.key(node), self.nodes.lsn(node));
        self.walk(from, levels - 1, 0, place, |level, last| path.last[level] = last.unit());
        Some(node)
    }

    /// The node of a unit that a walk of this list came by.
    ///
    /// # Safety
    /// `unit` is that of a node which this list's functions returned.
    #[inline]
    pub(super) unsafe fn node(&self, unit: u32) -> Node<'_> {
        // SAFETY: as the caller asserts.
        unsafe { self.nodes.node(unit) }
    }

    /// True if `key` is the key of `node`.
    #[inline]
    pub(super) fn is_key(&self, node: Node<'_>, key: &[u8]) -> bool {
        // Keys that compare equal are the same bytes, by the comparator's contract.
        self.nodes.key(node) == key
    }

    /// About how many versions, and how many of them deletes, lie from `from` on and before `to`; and whether that is
    /// exact. Counts along the highest level that has enough of them, so the cost is O(log n).
    pub(super) fn count(&self, from: Option<Place<'_>>, to: Option<Place<'_>>) -> (u64, u64, bool) {
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        loop {
            let top = self.height.load(Ordering::Relaxed) - 1;
            let before =
                from.map_or(self.head(), |from| self.walk(self.head(), top, level, from, |_, _| ()).0);
            let (seen, deletes) = (Cell::new(0u64), Cell::new(0u64));
            let counted = |node: Node<'_>| {
                let is_before = to.is_none_or(|to| self.is_before(node, to));
                if is_before {
                    seen.set(seen.get() + 1);
                    deletes.set(deletes.get() + u64::from(self.nodes.kind(node) == Kind::Delete));
                }
                is_before
            };
            self.descend(before, level, level, counted, |_, _| ());
            if level == 0 || seen.get() >= COUNTED_MIN {
                return (seen.get() << level, deletes.get() << level, level == 0);
            }
            level -= 1;
        }
    }

    pub(super) fn comparator(&self) -> &ComparatorRef {
        &self.comparator
    }

    /// The unit of the node before all others.
    pub(super) fn head_unit(&self) -> u32 {
        self.head
    }

    #[inline]
    fn head(&self) -> Node<'_> {
        // SAFETY: made in `new`.
        unsafe { self.nodes.node(self.head) }
    }

    /// True if `node` is before `place`.
    #[inline]
    fn is_before(&self, node: Node<'_>, place: Place<'_>) -> bool {
        if self.bytewise { self.is_before_bytewise(node, place) } else { self.is_before_custom(node, place) }
    }

    #[inline(always)]
    fn is_before_bytewise(&self, node: Node<'_>, place: Place<'_>) -> bool {
        let prefix = self.nodes.prefix(node);
        if prefix != place.prefix {
            return prefix < place.prefix;
        }
        match compare_tails(self.nodes.key(node), place.key) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => self.nodes.lsn(node).0 >= place.newer_from,
        }
    }

    fn is_before_custom(&self, node: Node<'_>, place: Place<'_>) -> bool {
        match self.comparator.compare(self.nodes.key(node), place.key) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => self.nodes.lsn(node).0 >= place.newer_from,
        }
    }

    /// Walks from a node that is before `place` and on level `top` down to level `bottom`. Calls
    /// `passed` with the last node before `place` of each level, top first; returns that of level
    /// `bottom` and the unit of the one after it.
    #[inline(always)]
    fn walk<'a>(
        &'a self,
        from: Node<'a>,
        top: usize,
        bottom: usize,
        place: Place<'_>,
        passed: impl FnMut(usize, Node<'a>),
    ) -> (Node<'a>, u32) {
        if self.bytewise {
            self.descend(from, top, bottom, |node| self.is_before_bytewise(node, place), passed)
        } else {
            self.descend(from, top, bottom, |node| self.is_before_custom(node, place), passed)
        }
    }

    #[inline(always)]
    fn descend<'a>(
        &'a self,
        from: Node<'a>,
        top: usize,
        bottom: usize,
        is_before: impl Fn(Node<'a>) -> bool,
        mut passed: impl FnMut(usize, Node<'a>),
    ) -> (Node<'a>, u32) {
        let mut last = from;
        let mut level = top;
        // A node known to be too far, found on the level above.
        let mut too_far = 0;
        loop {
            // SAFETY: `last` is `from`, or was met on this level or above.
            let next = unsafe { self.nodes.link(last, level) }.load(Ordering::Acquire);
            if next != too_far && next != 0 {
                // If `next` is too far, this is where the search goes on: load it meanwhile.
                if level > bottom {
                    // SAFETY: as above.
                    unsafe { self.nodes.prefetch_next(last, level - 1) };
                }
                // SAFETY: read from a link, with Acquire.
                let node = unsafe { self.nodes.node(next) };
                if is_before(node) {
                    last = node;
                    continue;
                }
            }
            too_far = next;
            passed(level, last);
            if level == bottom {
                return (last, next);
            }
            level -= 1;
        }
    }
}

impl Levels for SkipList {
    fn entries(&self) -> usize {
        self.nodes.arena.entries()
    }

    fn ends(&self) -> Option<(&[u8], &[u8])> {
        let mut path = Path::NONE;
        self.find_path_to_end(&mut path);
        let last = self.step_back(&mut path)?;
        Some((self.nodes.key(self.first()?), self.nodes.key(last)))
    }

    fn next_on(&self, level: usize, unit: u32) -> Option<(u32, &[u8])> {
        // SAFETY: the head, or returned by this function for the same level.
        let node = if unit == 0 { self.head() } else { unsafe { self.nodes.node(unit) } };
        // SAFETY: it was met on this level; the head is on all.
        let next = unsafe { self.nodes.link(node, level) }.load(Ordering::Acquire);
        // SAFETY: read from a link, with Acquire.
        (next != 0).then(|| (next, self.nodes.key(unsafe { self.nodes.node(next) })))
    }
}

/// The bytewise order of two keys whose (padded) first 8 bytes are equal.
#[inline]
fn compare_tails(a: &[u8], b: &[u8]) -> Order {
    if a.len() < PREFIX_BYTES || b.len() < PREFIX_BYTES {
        // What the longer one has more, within the padded bytes, is zeros: the shorter is its prefix.
        return a.len().cmp(&b.len());
    }
    let (mut a, mut b) = (&a[PREFIX_BYTES..], &b[PREFIX_BYTES..]);
    // Most keys differ within a few words; that is faster than a call.
    for _ in 0..4 {
        let (Some((x, rest_a)), Some((y, rest_b))) = (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
        else {
            break;
        };
        if x != y {
            return u64::from_be_bytes(*x).cmp(&u64::from_be_bytes(*y));
        }
        (a, b) = (rest_a, rest_b);
    }
    a.cmp(b)
}

#[cfg(test)]
impl SkipList {
    /// Builds the guide until there is no more to do.
    #[cfg(loom)]
    pub(super) fn build_guide(&self) {
        for _ in 0..self.entries() + 2 {
            self.guide.advance(self);
        }
    }

    /// The key at which a search for `key` would begin; `None` if at the head.
    #[cfg(loom)]
    pub(super) fn guided_from(&self, key: &[u8]) -> Option<&[u8]> {
        // SAFETY: as in `way_in`. Test: loom_a_node_that_the_guide_names_is_whole.
        self.guide.before(key).map(|(unit, _)| self.nodes.key(unsafe { self.nodes.node(unit) }))
    }

    /// Checks invariants 1 to 3 of a list at rest.
    pub(super) fn assert_sound(&self) {
        let units_on = |level: usize| {
            let mut units = Vec::new();
            // SAFETY: the head has all levels; then every node is met on `level`.
            let mut unit = unsafe { self.nodes.link(self.head(), level) }.load(Ordering::Acquire);
            while unit != 0 {
                units.push(unit);
                // SAFETY: as above.
                unit = unsafe { self.nodes.link(self.nodes.node(unit), level) }.load(Ordering::Acquire);
            }
            units
        };
        let lowest = units_on(0);
        assert_eq!(lowest.len(), self.nodes.arena.entries());
        for pair in lowest.windows(2) {
            // SAFETY: read from links.
            let (a, b) = unsafe { (self.nodes.node(pair[0]), self.nodes.node(pair[1])) };
            let place = Place::before(self.nodes.key(b), self.nodes.lsn(b));
            assert!(self.is_before(a, place), "out of order on level 0");
        }
        for level in 1..HEIGHT_MAX {
            // SAFETY: read from links.
            let tall = |unit: &u32| self.nodes.height(unsafe { self.nodes.node(*unit) }) > level;
            let expected: Vec<u32> = lowest.iter().copied().filter(tall).collect();
            assert_eq!(units_on(level), expected, "level {level} is not the tall part of level 0");
        }
    }
}
