//! Walking a memtable in internal order, both ways, while others insert.
//!
//! Place: made by `memtable`; a flush and every scan hold one per memtable. It calls `skiplist`.
//!
//! Invariants:
//! 1. Weakly consistent: a version that is present for the whole walk is visited, once; one that is
//!    published meanwhile may be or not. Keys come in order either way.
//! 2. It shows versions of batches that are not committed; who reads at a bound filters them by it.
//!
//! Concurrency: a cursor belongs to one thread at a time; any number of cursors and inserts may run.
//! A step forward follows one link, and starts to load the node behind. A step back uses the path of the last search: the
//! predecessors on each level, of which only those at the node left behind are searched again, O(1) on average.
//!
//! Origin: cLSM §3.2 (weakly consistent iterators). Tests: `skiplist_tests`, `loom_tests`.
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::iter::{Cursor, STEPS_BEFORE_SEEK};
use crate::key::{Kind, Lsn};

use super::guide::Hint;
use super::memtable::MemTable;
use super::node::Node;
use super::skiplist::{Path, Place};

/// A position in a memtable. Owned; keeps the memtable alive.
pub struct MemCursor {
    table: Arc<MemTable>,
    /// Unit of the present node; 0 off the ends.
    unit: u32,
    /// The way to the present node, if it was reached going back.
    path: Path,
    /// Where a seek under way goes on.
    hint: Option<Hint>,
}

impl MemCursor {
    pub(super) fn new(table: Arc<MemTable>) -> Self {
        Self { table, unit: 0, path: Path::NONE, hint: None }
    }

    /// The present node. Panics if there is none.
    #[inline]
    fn node(&self) -> Node<'_> {
        assert!(self.unit != 0, "the cursor is on no entry");
        // SAFETY: set from nodes of this list only. Test: every test that walks.
        unsafe { self.table.list.node(self.unit) }
    }

    /// The unit of the node that is entered; starts to load the one behind it.
    #[inline]
    fn arrived(&self, node: Option<Node<'_>>) -> u32 {
        let Some(node) = node else { return 0 };
        // SAFETY: every node has a level 0, and this one is linked there.
        unsafe { self.table.list.nodes.prefetch_next(node, 0) };
        node.unit()
    }

    fn step_back(&mut self) {
        self.unit = self.table.list.step_back(&mut self.path).map_or(0, Node::unit);
    }
}

impl Cursor for MemCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.path.forget();
        self.unit = self.table.list.first().map_or(0, Node::unit);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.table.list.find_path_to_end(&mut self.path);
        self.step_back();
        Ok(())
    }

    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.path.forget();
        self.unit = self.arrived(self.table.list.find(Place::before(key, lsn)));
        Ok(())
    }

    /// In two parts, each as long as it takes to load what a table asks for at the stage before.
    fn seek_stage(&mut self, key: &[u8], lsn: Lsn, stage: usize) -> Result<()> {
        let list = &self.table.list;
        let place = Place::before(key, lsn);
        match stage {
            1 => self.hint = list.hint(place),
            2 => {
                self.unit = self.arrived(list.find_from(self.hint, place));
                self.path.forget();
            }
            _ => {}
        }
        Ok(())
    }

    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.table.list.find_path(Place::after(key, lsn), &mut self.path);
        self.step_back();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let next = self.table.list.next(self.node());
        self.unit = self.arrived(next);
        self.path.forget();
        Ok(())
    }

    fn next_key(&mut self) -> Result<()> {
        let list = &self.table.list;
        let node = self.node();
        let mut next = list.next(node);
        let mut steps = 0;
        while let Some(same) = next.filter(|&next| list.nodes.key(next) == list.nodes.key(node)) {
            steps += 1;
            next = match steps {
                STEPS_BEFORE_SEEK => list.find(Place::after(list.nodes.key(node), Lsn::ZERO)),
                _ => list.next(same),
            };
        }
        self.unit = self.arrived(next);
        self.path.forget();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if !self.path.is_some() {
            let list = &self.table.list;
            let node = self.node();
            let place = Place::before(list.nodes.key(node), list.nodes.lsn(node));
            // Not through `self.node()`, which would borrow the path too.
            let mut path = Path::NONE;
            list.find_path(place, &mut path);
            self.path = path;
        }
        self.step_back();
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
