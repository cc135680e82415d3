//! Multi-insert: several nodes put into a list at once, for less than each by itself.
//!
//! Place: `memtable` for batches, `two_tier` for what it sorts. It adds to `skiplist`.
//!
//! A search of a large list waits for memory at each step. Nodes that need not be near each other are sought side by side
//! ([`SkipList::insert_together`]): a step of all of them before the next step of any. Of nodes that are neighbours, each is sought
//! from the one before ([`SkipList::insert_behind`]).
//!
//! Invariants, concurrency: those of `skiplist`; each node goes in as one alone does. A place found early may be some nodes short
//! when its turn comes; linking walks on from it.
//! Origin: FloDB §4.3, Algorithm 1 (the path from key to key). Ours: side by side. What each is worth: docs/design/two-tier.md.
//! Tests: `skiplist_tests`, `memtable_tests`, `two_tier_tests`.

use crate::key::Lsn;

use super::node::Node;
use super::place::Place;
use super::skiplist::SkipList;

/// Nodes that [`SkipList::insert_behind`] passes from the node before.
const NEAR_STEPS_MAX: usize = 8;
/// Of the nodes that are put in behind one another the guide is told of one of so many: a search then passes half of them.
const TOLD_OF: u32 = 4;
/// Nodes that [`SkipList::insert_together`] takes at once.
pub(super) const TOGETHER_MAX: usize = 8;

/// Where nodes that come in the order of the list were put in last.
pub(super) struct Near<'l> {
    last: Option<Node<'l>>,
    /// Nodes that the guide was not told of since it was told of one.
    untold: u32,
}

impl Near<'_> {
    pub(super) const NOWHERE: Self = Near { last: None, untold: 0 };
}

impl SkipList {
    /// Puts in a node of [`SkipList::create_unlinked`] that has its version, behind the one that was put in before: with few
    /// steps where they are neighbours. (FloDB's multi-insert; the path is the node, and where that is too far, the guide.)
    /// True if it took no search.
    pub(super) fn insert_behind<'l>(&'l self, near: &mut Near<'l>, node: Node<'l>) -> bool {
        let place = Place::before(self.nodes.key(node), self.nodes.lsn(node));
        let mut leaf = 0;
        // Taller ones need their place on other levels, too.
        let is_low = self.nodes.height(node) == 1;
        let last = if is_low { self.walk_near(near, place) } else { None };
        match last {
            Some(last) => self.place_behind(last, node),
            None => leaf = self.find_place(node),
        }
        self.link_in(node);
        near.last = Some(node);
        near.untold += 1;
        if last.is_none() || near.untold >= TOLD_OF {
            near.untold = 0;
            self.add_to_guide(node, leaf);
        }
        last.is_some()
    }

    /// Puts in up to [`TOGETHER_MAX`] nodes of [`SkipList::create_unlinked`] that have their versions. The guide is asked for all
    /// of them level by level: what one search meets is loaded while the others take their step. `at_each` is called with the
    /// number of each node before others may see it.
    pub(super) fn insert_together(&self, nodes: &[Node<'_>], mut at_each: impl FnMut(usize)) {
        let mut searches = [(Place::before(b"", Lsn::MAX), None); TOGETHER_MAX];
        let searches = &mut searches[..nodes.len()];
        for (search, &node) in searches.iter_mut().zip(nodes) {
            search.0 = self.place_of_next(node);
        }
        if let Some(guide) = self.guide() {
            guide.approach_all(self, searches);
            for (place, hint) in searches.iter_mut() {
                *hint = hint.map(|hint| self.arrive(hint, *place));
            }
        }
        for (n, (&node, &(_, hint))) in nodes.iter().zip(&*searches).enumerate() {
            at_each(n);
            let leaf = self.find_place_by(hint, node);
            self.link_in(node);
            self.add_to_guide(node, leaf);
        }
    }

    /// The last node before `place`, if it is not far behind `near`.
    fn walk_near<'l>(&'l self, near: &Near<'l>, place: Place<'_>) -> Option<Node<'l>> {
        let mut last = near.last?;
        if !self.is_before(last, place) {
            return None;
        }
        for _ in 0..NEAR_STEPS_MAX {
            match self.next(last) {
                Some(follower) if self.is_before(follower, place) => last = follower,
                _ => return Some(last),
            }
        }
        None
    }
}
