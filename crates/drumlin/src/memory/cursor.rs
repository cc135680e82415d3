//! Walking a memtable in internal order, both ways, while others insert.
//!
//! Place: made by `memtable`; every scan holds one per memtable (a flush has one of its own, `flush_cursor`). It calls `skiplist`.
//!
//! Invariants:
//! 1. Weakly consistent: a version that is present for the whole walk is visited, once, or twice if the list has a copy; one
//!    that is published meanwhile may be or not. Keys come in order either way.
//! 2. It shows versions of batches that are not committed; who reads at a bound filters them by it.
//! 3. Where there is a hash tier, the part of the order that the present node is in was settled when the cursor came there, and
//!    so were all parts that it walked through.
//!
//! Concurrency: a cursor belongs to one thread at a time; any number of cursors and inserts may run.
//! A step forward follows one link, and starts to load the node behind. A step back uses the path of the last search: the
//! predecessors on each level, of which only those at the node left behind are searched again, O(1) on average.
//!
//! Origin: cLSM §3.2 (weakly consistent iterators). Tests: `skiplist_tests`, `loom_tests`.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::iter::{Cursor, STEPS_BEFORE_SEEK};
use crate::key::{Kind, Lsn};

use super::guide::Hint;
use super::memtable::MemTable;
use super::node::Node;
use super::place::Place;
use super::skiplist::{Path, SkipList};

/// A position in a memtable. Owned; keeps the memtable alive.
pub struct MemCursor {
    table: Arc<MemTable>,
    /// Unit of the present node; 0 off the ends.
    unit: u32,
    /// The way to the present node, if it was reached going back.
    path: Path,
    /// Where a seek under way goes on.
    hint: Option<Hint>,
    /// Parts of the hash tier that are settled; empty without one.
    settled: Range<usize>,
}

impl MemCursor {
    pub(super) fn new(table: Arc<MemTable>) -> Self {
        Self { table, unit: 0, path: Path::NONE, hint: None, settled: 0..0 }
    }

    /// The present node. Panics if there is none.
    #[inline]
    fn node(&self) -> Node<'_> {
        assert!(self.unit != 0, "the cursor is on no entry");
        // SAFETY: set from nodes of this list only. Test: every test that walks.
        unsafe { self.table.list.node(self.unit) }
    }

    /// The unit of the node that is entered; starts to load the one behind it, and its value.
    #[inline]
    fn arrived(&self, node: Option<Node<'_>>) -> u32 {
        let Some(node) = node else { return 0 };
        // SAFETY: every node has a level 0, and this one is linked there.
        unsafe { self.table.list.nodes.prefetch_next_value(node) };
        node.unit()
    }

    /// Goes to the node that `locate` finds: behind a place whose part is settled.
    #[inline]
    fn arrive(&mut self, locate: impl Fn(&SkipList) -> Option<Node<'_>>) {
        let table = &*self.table;
        let mut node = locate(&table.list);
        if let Some(tier) = &table.tier {
            let splits = tier.splits();
            loop {
                let key = node.map(|node| table.list.nodes.key(node));
                if key.map_or(self.settled.end == splits.parts(), |key| {
                    splits.is_within(key, self.settled.end - 1)
                }) {
                    break;
                }
                // What is in between, if anything, is nearer.
                let end = key.map_or(splits.parts(), |key| splits.part_of(key) + 1);
                table.settle_parts(tier, self.settled.end..end);
                self.settled.end = end;
                node = locate(&table.list);
            }
        }
        self.unit = self.arrived(node);
    }

    /// Settles the part of a key, from which a walk begins.
    #[inline]
    fn settle_at(&mut self, key: &[u8]) {
        if let Some(tier) = &self.table.tier {
            self.settle_part(tier.splits().part_of(key));
        }
    }

    /// Settles a part, from which a walk begins.
    fn settle_part(&mut self, part: usize) {
        if let Some(tier) = &self.table.tier
            && !self.settled.contains(&part)
        {
            self.table.settle_parts(tier, part..part + 1);
            self.settled = part..part + 1;
        }
    }

    /// Goes to the node before the path, which `find_path` finds again if there may be a nearer one.
    fn arrive_back(&mut self, find_path: impl Fn(&SkipList, &mut Path)) {
        let table = &*self.table;
        let mut node = table.list.step_back(&mut self.path);
        if let Some(tier) = &table.tier {
            loop {
                let part = node.map_or(0, |node| tier.splits().part_of(table.list.nodes.key(node)));
                if part >= self.settled.start {
                    break;
                }
                // As in `arrive`.
                table.settle_parts(tier, part..self.settled.start);
                self.settled.start = part;
                find_path(&table.list, &mut self.path);
                node = table.list.step_back(&mut self.path);
            }
        }
        self.unit = node.map_or(0, Node::unit);
    }
}

/// The place of the node at `unit`, which this list's functions returned.
#[inline]
fn place_of(list: &SkipList, unit: u32) -> Place<'_> {
    // SAFETY: as the caller asserts. Test: every test that walks.
    let node = unsafe { list.node(unit) };
    Place::before(list.nodes.key(node), list.nodes.lsn(node))
}

impl Cursor for MemCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.path.forget();
        self.settle_part(0);
        self.arrive(SkipList::first);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.settle_part(self.table.tier.as_ref().map_or(0, |tier| tier.splits().parts() - 1));
        self.table.list.find_path_to_end(&mut self.path);
        self.arrive_back(SkipList::find_path_to_end);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.path.forget();
        self.settle_at(key);
        self.arrive(|list| list.find(Place::before(key, lsn)));
        Ok(())
    }

    /// In two parts, each as long as it takes to load what a table asks for at the stage before.
    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        let place = Place::before(key, lsn);
        match stage {
            1 => {
                self.settle_at(key);
                self.hint = self.table.list.hint(place);
            }
            2 => {
                let hint = self.hint;
                self.arrive(|list| list.find_from(hint, place));
                self.path.forget();
            }
            _ => {}
        }
        Ok(())
    }

    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.settle_at(key);
        let find = |list: &SkipList, path: &mut Path| list.find_path(Place::after(key, lsn), path);
        find(&self.table.list, &mut self.path);
        self.arrive_back(find);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let unit = self.node().unit();
        // SAFETY: the present node's.
        self.arrive(|list| list.next(unsafe { list.node(unit) }));
        self.path.forget();
        Ok(())
    }

    fn next_key(&mut self) -> Result<()> {
        let unit = self.node().unit();
        self.arrive(|list| {
            // SAFETY: the present node's.
            let node = unsafe { list.node(unit) };
            let mut next = list.next(node);
            let mut steps = 0;
            while let Some(same) = next.filter(|&next| list.nodes.key(next) == list.nodes.key(node)) {
                steps += 1;
                next = match steps {
                    STEPS_BEFORE_SEEK => list.find(Place::after(list.nodes.key(node), Lsn::ZERO)),
                    _ => list.next(same),
                };
            }
            next
        });
        self.path.forget();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let unit = self.node().unit();
        let find = |list: &SkipList, path: &mut Path| list.find_path(place_of(list, unit), path);
        if !self.path.is_some() {
            find(&self.table.list, &mut self.path);
        }
        self.arrive_back(find);
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.unit != 0
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.table.list.nodes.key(self.node())
    }

    #[inline]
    fn lsn(&self) -> Lsn {
        self.table.list.nodes.lsn(self.node())
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.table.list.nodes.kind(self.node())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.table.list.nodes.value(self.node())
    }
}
