//! A concurrent, insert-only, ordered list of versions with express lanes.
//!
//! Place: the sorted tier inside `memtable`; `cursor` walks it. It calls `node`.
//!
//! Every node is on level 0; half of the nodes of a level are on the next one too, but of level 0, where there is a guide,
//! one of 32. A search runs along the highest level until the next node would be too far, goes one level down, and so on.
//!
//! Invariants:
//! 1. Level 0 holds every published version, in internal order (user key ascending, LSN descending): once, or twice where a
//!    hash tier had it copied (`two_tier`). It alone decides what a get or a cursor answers.
//! 2. A node is linked bottom-up: whoever meets it on a level finds it linked on all lower ones.
//! 3. Each level's nodes, at every moment, are in order: a node goes in by one compare-and-swap of its predecessor's link from
//!    its successor to itself, and nodes are never taken out, so a node once seen before a position stays before it.
//! 4. No two versions have the same key and LSN, but for those copies, which are alike; the caller sees to it (a key's LSN is
//!    drawn under its lock).
//!
//! Inserting takes two steps, so that little is left to do while locks are held and an LSN is in flight. `reserve` allocates
//! and fills the node, searches its place (this is where the cache misses are), and remembers the predecessor of each level in
//! that level's own, still unused link. `publish` checks each remembered predecessor against its present successor, walks on
//! if others came in between, searches anew if too many did, and swaps. It never allocates.
//!
//! A list that is empty and nobody else's may be filled by `bulk` instead, which links nodes in their order without a search.
//!
//! Concurrency: any number of threads may call anything; nothing waits, nothing is retried for ever (a failed compare-and-swap
//! means another insert went through).
//! - link: Release compare-and-swap in `publish`, Acquire load in every walk. It publishes the node's bytes and its own links.
//! - `height`: Relaxed; it only says where to begin.
//! - get and cursors write no shared memory.
//!
//! Origin: cLSM §3.3 (items go into the lists one at a time, bottom up; only the lowest decides) and sLSM §2.2. Ours:
//! remembered predecessors; the compare that is skipped when the next node on a lower level is the one just found too far; the
//! loading ahead of both ways a search can go on; searches side by side.
//!
//! Keys in the order of bytes are found by the guide: it names the node before a place, or one close to it, and the search
//! walks on from there on level 0. What it names is compared like any other node, so a wrong hint costs time only. The other
//! levels are for when it does not lead there.
//! Tests: `skiplist_tests` (a model; threads, also under the thread sanitizer), `loom_tests` (every ordering named above,
//! weakened to Relaxed, fails one of them).
#![allow(unsafe_code)]

use std::cell::Cell;
use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;

use super::pool::Pool;
use crate::key::{ComparatorRef, Kind, Lsn};
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicUsize, Ordering};

use super::arena::Arena;
use super::guide::{self, Guide, Hint};
use super::local;
use super::node::{HEIGHT_MAX, Node, Nodes, PREFIX_BYTES};
use super::place::Place;

/// Nodes that `publish` passes on one level before it searches from the top: about what a search costs.
const STEPS_MAX: usize = 16;

/// Nodes that a search passes from where the guide leads it before it begins at the head.
const GUIDED_STEPS_MAX: usize = 32;
/// Nodes of a level by which those of level 0 are told: a sixteenth off, in the mean.
const COUNTED_MIN: u64 = 256;

/// Numbers the lists of this process; identity only, never modelled.
static LISTS: PlainAtomicU64 = PlainAtomicU64::new(1);

/// A node that is filled but not in the list. It may be dropped: its space is then unused until the memtable goes.
#[derive(Debug)]
#[must_use = "a reserved node is in no list until it is published"]
pub struct Reserved {
    /// The list whose arena holds the node.
    list: u64,
    unit: u32,
    /// Where the guide has its neighbours; 0 if that is not known.
    leaf: u32,
    /// Its links remember its place.
    is_placed: bool,
    hash: u64,
}

impl Reserved {
    /// The hash of its key, as it was given.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// A version that others see; [`SkipList::tell_guide`] is still to follow, if it is in the list.
#[derive(Debug)]
pub struct Published(Option<Reserved>);

impl Published {
    /// In no list.
    pub(super) const IN_SLOT: Published = Published(None);

    /// True if the hash tier has it, false if the list has.
    #[inline]
    pub fn is_in_slot(&self) -> bool {
        self.0.is_none()
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
    /// The guide is used: it knows the order of bytes only. Models have it where they are about it.
    guided: bool,
    comparator: ComparatorRef,
    bytewise: bool,
    /// Unit of the node before all others, with links on all levels and no version.
    head: u32,
    id: u64,
    /// Levels in use. Raised a few times in a list's life.
    height: CachePadded<AtomicUsize>,
}

impl SkipList {
    pub(super) fn new(comparator: ComparatorRef, pool: Arc<Pool>) -> Self {
        let nodes = Nodes::new(pool);
        let head = nodes.create(HEIGHT_MAX, b"", Kind::Delete, b"").unit();
        Self {
            nodes,
            guide: Guide::new(),
            guided: comparator.is_bytewise() && !cfg!(loom),
            bytewise: comparator.is_bytewise(),
            comparator,
            head,
            id: LISTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            height: CachePadded::new(AtomicUsize::new(1)),
        }
    }

    /// Makes a node and finds its place. See the module's header.
    pub(super) fn reserve(&self, key: &[u8], hash: u64, kind: Kind, value: &[u8]) -> Reserved {
        let node = self.create_unlinked(key, kind, value);
        Reserved { list: self.id, unit: node.unit(), leaf: self.find_place(node), is_placed: true, hash }
    }

    /// The same without a place: for [`SkipList::give_version`].
    #[inline]
    pub(super) fn reserve_unplaced(&self, key: &[u8], hash: u64, kind: Kind, value: &[u8]) -> Reserved {
        Reserved {
            list: self.id,
            unit: self.create_unlinked(key, kind, value).unit(),
            leaf: 0,
            is_placed: false,
            hash,
        }
    }

    #[cfg(all(test, loom))]
    pub(super) fn reserve_with_height(
        &self,
        height: usize,
        key: &[u8],
        kind: Kind,
        value: &[u8],
    ) -> Reserved {
        let node = self.nodes.create(height, key, kind, value);
        Reserved { list: self.id, unit: node.unit(), leaf: self.find_place(node), is_placed: true, hash: 0 }
    }

    /// Has the links of a node that nobody else knows remember the node before it, level by level. The guide's leaf, or 0.
    pub(super) fn find_place(&self, node: Node<'_>) -> u32 {
        self.find_place_by(self.hint(self.place_of_next(node)), node)
    }

    /// The same by what the guide said.
    #[inline]
    pub(super) fn find_place_by(&self, hint: Option<Hint>, node: Node<'_>) -> u32 {
        let place = self.place_of_next(node);
        let height = self.nodes.height(node);
        let remember = |level, last: Node<'_>| {
            if level < height {
                // SAFETY: below the node's height.
                let link = unsafe { self.nodes.link(node, level) };
                link.store(last.unit(), Ordering::Relaxed);
            }
        };
        let guided = hint.and_then(|hint| self.follow(hint, place));
        if let Some((last, _)) = guided {
            remember(0, last);
        }
        let bottom = usize::from(guided.is_some());
        if height > bottom {
            let top = self.height.load(Ordering::Relaxed).max(height) - 1;
            self.walk(self.head(), top, bottom, place, remember);
        }
        hint.map_or(0, |hint| hint.leaf)
    }

    /// The place of a node that is in no list, about: its version will be the newest of its key, or is unlikely to be far from it.
    #[inline]
    pub(super) fn place_of_next<'a>(&'a self, node: Node<'a>) -> Place<'a> {
        Place::before(self.nodes.key(node), Lsn::MAX)
    }

    /// Makes a node that is in no list: for `bulk`.
    #[inline]
    pub(super) fn create_unlinked(&self, key: &[u8], kind: Kind, value: &[u8]) -> Node<'_> {
        self.nodes.create(self.random_height(), key, kind, value)
    }

    /// The same with its version.
    #[inline]
    pub(super) fn new_version(&self, key: &[u8], kind: Kind, value: &[u8], lsn: Lsn, batch: u32) -> Node<'_> {
        let node = self.create_unlinked(key, kind, value);
        // SAFETY: just made, and nobody else knows it. Test: many_threads_put_insert_and_get.
        unsafe { self.nodes.set_version(node, lsn, batch) };
        node
    }

    /// Puts a node of [`SkipList::create_unlinked`] that has its version into the list, by a search.
    pub(super) fn insert_unlinked(&self, node: Node<'_>) {
        let leaf = self.find_place(node);
        self.link_in(node);
        self.add_to_guide(node, leaf);
    }

    /// The guide finds level 0: the other levels are for when it cannot.
    #[inline]
    fn random_height(&self) -> usize {
        if cfg!(loom) {
            // Models repeat exactly.
            return 1;
        }
        if self.guided { local::random_height_sparse(HEIGHT_MAX) } else { local::random_height(HEIGHT_MAX) }
    }

    /// Tells the guide of a node that is in the list; `leaf` is where it belongs, or 0.
    #[inline]
    pub(super) fn add_to_guide(&self, node: Node<'_>, leaf: u32) {
        if self.guided {
            let place = Place::before(self.nodes.key(node), self.nodes.lsn(node));
            self.guide.add(self, leaf, node.unit(), place);
        }
    }

    /// The guide, if keys are in an order that it knows.
    pub(super) fn guide(&self) -> Option<&Guide> {
        self.guided.then_some(&self.guide)
    }

    /// Puts a reserved node into the list as version `lsn` of its key.
    ///
    /// # Panics
    /// If the node was reserved in another list.
    pub(super) fn publish(&self, reserved: Reserved, lsn: Lsn, batch: u32) -> Published {
        self.give_version(&reserved, lsn, batch);
        self.publish_version(reserved)
    }

    /// Makes a reserved node version `lsn` of its key; once, and before anybody else knows it.
    ///
    /// # Panics
    /// If the node was reserved in another list.
    #[inline]
    pub(super) fn give_version(&self, reserved: &Reserved, lsn: Lsn, batch: u32) -> Node<'_> {
        assert_eq!(reserved.list, self.id, "a node is published in the memtable that reserved it");
        debug_assert!(lsn < Lsn::MAX);
        // SAFETY: made by `reserve` of this list, by this thread or handed on by it.
        let node = unsafe { self.nodes.node(reserved.unit) };
        // SAFETY: `Reserved` is neither Clone nor Copy, and who publishes one gives it up or calls this once: nobody else
        // knows the node. Test: loom_a_found_version_is_whole.
        unsafe { self.nodes.set_version(node, lsn, batch) };
        node
    }

    /// Puts a reserved node that has its version into the list, with a place or without.
    pub(super) fn publish_version(&self, mut reserved: Reserved) -> Published {
        // SAFETY: made by this list; nobody else knows it yet.
        let node = unsafe { self.nodes.node(reserved.unit) };
        if !reserved.is_placed {
            reserved.leaf = self.find_place(node);
        }
        self.link_in(node);
        Published(Some(reserved))
    }

    /// Has a node on level 0 alone, that nobody else knows, remember that it comes behind `last`.
    #[inline]
    pub(super) fn place_behind(&self, last: Node<'_>, node: Node<'_>) {
        debug_assert_eq!(self.nodes.height(node), 1);
        // SAFETY: every node has a level 0.
        unsafe { self.nodes.link(node, 0) }.store(last.unit(), Ordering::Relaxed);
    }

    /// Puts a node into the list that has its version and remembers its place.
    pub(super) fn link_in(&self, node: Node<'_>) {
        let height = self.nodes.height(node);
        self.raise(height);
        let place = Place::before(self.nodes.key(node), self.nodes.lsn(node));
        for level in 0..height {
            self.link_on(level, node, place);
        }
        self.nodes.arena.count_entry();
    }

    /// Keys that are about as far apart, in their order mostly: so many or more, if the guide knows so many. O(as many).
    pub(super) fn sample(&self, wanted: usize) -> impl Iterator<Item = &[u8]> {
        let units = self.guide.sample(self, wanted);
        // SAFETY: the guide names nodes of this list.
        units.into_iter().map(|unit| self.nodes.key(unsafe { self.nodes.node(unit) }))
    }

    /// Tells the guide of a node. O(1), but for a division of O(log n) now and then; may allocate.
    pub(super) fn tell_guide(&self, Published(published): &Published) {
        let Some(published) = published else { return };
        assert_eq!(published.list, self.id, "the guide of a list is told of its own nodes");
        // SAFETY: published in this list.
        self.add_to_guide(unsafe { self.nodes.node(published.unit) }, published.leaf);
    }

    /// So many levels are in use.
    #[inline]
    pub(super) fn raise(&self, height: usize) {
        if height > self.height.load(Ordering::Relaxed) {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
    }

    /// Links `node`, which is on all lower levels, on `level`.
    fn link_on(&self, level: usize, node: Node<'_>, place: Place<'_>) {
        // SAFETY: `publish` goes up to the node's height only.
        let own = unsafe { self.nodes.link(node, level) };
        // SAFETY: until the node is linked on this level, the link holds what `reserve` put there: a node of this list that was
        // seen on this level, before this place.
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

    /// Where the guide says that `place` is; starts to load the nodes that it names.
    #[inline]
    pub(super) fn hint(&self, place: Place<'_>) -> Option<Hint> {
        if !self.guided {
            return None;
        }
        let hint = self.guide.approach(self, place)?;
        Some(self.arrive(hint, place))
    }

    /// Where the guide's leaf says that `place` is; starts to load the nodes that it names.
    #[inline]
    pub(super) fn arrive(&self, hint: Hint, place: Place<'_>) -> Hint {
        let hint = self.guide.arrive(self, hint, place);
        for unit in [hint.before, hint.behind] {
            // SAFETY: the guide was told of it when it was linked, and handed it on with Release and Acquire.
            self.nodes.prefetch(unsafe { self.nodes.node(if unit == 0 { self.head } else { unit }) });
        }
        hint
    }

    /// The last node before `place`, and the unit of the one after it; `None` if the hint does not lead near it.
    #[inline]
    fn follow(&self, hint: Hint, place: Place<'_>) -> Option<(Node<'_>, u32)> {
        let mut last = self.head();
        if hint.before != 0 {
            // SAFETY: as above.
            last = unsafe { self.nodes.node(hint.before) };
            if !self.is_before_bytewise(last, place) {
                // Somebody was changing what led here.
                return None;
            }
        }
        for _ in 0..GUIDED_STEPS_MAX {
            // SAFETY: every node has a level 0.
            let next = unsafe { self.nodes.link(last, 0) }.load(Ordering::Acquire);
            // SAFETY: read from a link, with Acquire.
            match (next != 0).then(|| unsafe { self.nodes.node(next) }) {
                Some(follower) if self.is_before_bytewise(follower, place) => last = follower,
                _ => return Some((last, next)),
            }
        }
        // Much came in there that the guide was not told of.
        None
    }

    /// The first node at or after `place`.
    #[inline]
    pub(super) fn find(&self, place: Place<'_>) -> Option<Node<'_>> {
        self.find_from(self.hint(place), place)
    }

    /// The same for the place that a node was reserved for.
    ///
    /// # Panics
    /// If the node was reserved in another list.
    pub(super) fn find_reserved(&self, reserved: &Reserved, place: Place<'_>) -> Option<Node<'_>> {
        assert_eq!(reserved.list, self.id, "a node's place is in the list that reserved it");
        assert!(reserved.is_placed, "a node that has no place is found by its key");
        // SAFETY: made by `reserve` of this list. Every node has a level 0, whose link names a node that was before the place
        // then, and so is now: `publish` has not been called, or there would be no `Reserved`.
        let mut last = unsafe {
            self.nodes.node(self.nodes.link(self.nodes.node(reserved.unit), 0).load(Ordering::Relaxed))
        };
        for _ in 0..STEPS_MAX {
            match self.next(last) {
                Some(follower) if self.is_before(follower, place) => last = follower,
                found => return found,
            }
        }
        self.find(place)
    }

    /// The same, from where `hint` said.
    #[inline]
    pub(super) fn find_from(&self, hint: Option<Hint>, place: Place<'_>) -> Option<Node<'_>> {
        let next = match hint.and_then(|hint| self.follow(hint, place)) {
            Some((_, next)) => next,
            None => {
                let top = self.height.load(Ordering::Relaxed) - 1;
                self.walk(self.head(), top, 0, place, |_, _| ()).1
            }
        };
        // SAFETY: read from a link, with Acquire.
        (next != 0).then(|| unsafe { self.nodes.node(next) })
    }

    /// Bytes of the nodes and the guide. O(1).
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.nodes.arena.bytes()
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

    /// Steps to the node before the place of `path`, and turns `path` into the way to that node. `None`, and no path, if there
    /// is none. O(1) on average: only the levels on which the node is the last of the path are searched again.
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
    /// exact. Counts along the highest level that has enough of them: O(log n), and some thousands of steps at most.
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
                let thinner = if self.guided && level > 0 { level + local::SPARSE_LEVELS } else { level };
                return (seen.get() << thinner, deletes.get() << thinner, level == 0);
            }
            level -= 1;
        }
    }

    pub(super) fn comparator(&self) -> &ComparatorRef {
        &self.comparator
    }

    /// Which list of the process it is.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// True if keys are in the order of their bytes.
    pub(super) fn is_bytewise(&self) -> bool {
        self.bytewise
    }

    #[inline]
    pub(super) fn head(&self) -> Node<'_> {
        // SAFETY: made in `new`.
        unsafe { self.nodes.node(self.head) }
    }

    /// True if `node` is before `place`.
    #[inline]
    pub(super) fn is_before(&self, node: Node<'_>, place: Place<'_>) -> bool {
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

    /// Walks from a node that is before `place` and on level `top` down to level `bottom`. Calls `passed` with the last node
    /// before `place` of each level, top first; returns that of level `bottom` and the unit of the one after it.
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

impl guide::Nodes for SkipList {
    #[inline]
    fn is_before(&self, unit: u32, place: Place<'_>) -> bool {
        // SAFETY: the guide was told of it when it was linked, and handed it on with Release and Acquire.
        self.is_before_bytewise(unsafe { self.nodes.node(unit) }, place)
    }

    fn place_of(&self, unit: u32) -> Place<'_> {
        // SAFETY: as above.
        let node = unsafe { self.nodes.node(unit) };
        Place::before(self.nodes.key(node), self.nodes.lsn(node))
    }

    fn arena(&self) -> &Arena {
        &self.nodes.arena
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
    /// Bytes of the guide's arrays.
    #[cfg(not(loom))]
    pub(super) fn guide_bytes(&self) -> usize {
        self.guide.bytes(self)
    }

    /// From now on the guide is used under the model checker, too.
    #[cfg(loom)]
    pub(super) fn use_guide(&mut self) {
        self.guided = true;
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
