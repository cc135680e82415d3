//! Walking a memtable that nobody writes to any more, once and forward, for its flush.
//!
//! Place: made by `memtable` for `db`'s flushes, which drop it when they are done. It calls `two_tier` and `skiplist`.
//!
//! What the hash tier holds goes into no list: part by part of the order it is noted, sorted, and walked beside the list. So a
//! version that is flushed soon after it was put costs no search, no links, and no place in the list's filter. Whoever else comes,
//! a scan, settles for himself meanwhile.
//!
//! Invariants:
//! 1. Every version whose write was complete when the walk began is met, in internal order; once, or more often with one LSN where the
//!    list has it, too, or a slot was noted twice. When a part begins, first notes are taken of what is not known to be in the list, whatever state its slot is in, and then
//!    the list is searched anew: what was done before the notes were taken is linked by then (`backlog`: Release after the link, Acquire
//!    here), what was not is among them.
//! 2. A part ends when its notes do and the list's next node is of another one. All that lies between the last entry and the next part's
//!    first was met: by a note or in the list.
//!
//! Concurrency: a cursor belongs to one thread; any number of cursors of either kind, and gets, may run. No put may.
//! Complexity: O(n log n) numbers for what is sorted, a step O(1), a part O(log n).
//! Origin: ours. FloDB §4.2 moves all that the hash holds to the list before it is flushed. Tests: `flush_cursor_tests`.
#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::iter::Cursor;
use crate::key::{Kind, Lsn};

use super::memtable::MemTable;
use super::node::Node;
use super::place::Place;
use super::two_tier::Held;

/// Nodes so far ahead are loaded already.
const NODES_AHEAD: usize = 8;

/// Nodes that are kept of those that are met, about: where their keys lie the next memtable is cut.
const SAMPLED: usize = 1024;

/// A position in a memtable that is being flushed. Owned; keeps the memtable alive.
pub struct FlushCursor {
    table: Arc<MemTable>,
    /// What the hash holds of the present part; none if there is no hash.
    held: Option<Held>,
    part: usize,
    /// The note that comes next, or is the present entry's.
    at: usize,
    /// The node of the list that comes next, or is the present one; 0 at its end.
    listed: u32,
    /// The present node; 0 off the end.
    unit: u32,
    is_listed: bool,
    /// Every so many-th node, and how many are to come before the next of them.
    sample: Vec<u32>,
    sampled_of: usize,
    until_sampled: usize,
}

impl FlushCursor {
    pub(super) fn new(table: Arc<MemTable>) -> FlushCursor {
        let sampled_of = (table.entries() / SAMPLED).max(1);
        FlushCursor {
            table,
            held: None,
            part: 0,
            at: 0,
            listed: 0,
            unit: 0,
            is_listed: false,
            sample: Vec::new(),
            sampled_of,
            until_sampled: sampled_of,
        }
    }

    /// The present node. Panics if there is none.
    #[inline]
    fn node(&self) -> Node<'_> {
        assert!(self.unit != 0, "the cursor is on no entry");
        self.node_at(self.unit)
    }

    #[inline]
    fn node_at(&self, unit: u32) -> Node<'_> {
        // SAFETY: units are of notes and links of this memtable only. Test: flush_cursor_tests.
        unsafe { self.table.list.node(unit) }
    }

    fn parts(&self) -> usize {
        self.table.tier.as_ref().map_or(1, |tier| tier.splits().parts())
    }

    /// Begins a part behind `last`, which was the last entry: at the first place of all, if there was none.
    fn begin(&mut self, part: usize, last: u32) {
        let table = Arc::clone(&self.table);
        (self.part, self.at) = (part, 0);
        // One part's at a time.
        self.held = None;
        self.held = table.tier.as_ref().map(|tier| tier.held(&table.list, part));
        let listed = match last {
            0 => table.list.first(),
            last => {
                let last = self.node_at(last);
                table.list.find(Place::after(table.list.nodes.key(last), table.list.nodes.lsn(last)))
            }
        };
        self.listed = listed.map_or(0, Node::unit);
    }

    /// Goes to whatever comes next of the notes and the list, in this part or a later one; `last` is the entry before.
    fn arrive(&mut self, last: u32) {
        loop {
            let noted = self.held.as_ref().and_then(|held| held.notes().get(self.at)).map(|note| note.unit());
            let listed = (self.listed != 0).then_some(self.listed);
            let is_listed = match (noted, listed) {
                (None, None) => None,
                (Some(_), None) => Some(false),
                (None, Some(listed)) => self.is_of_part(listed).then_some(true),
                (Some(noted), Some(listed)) => Some(self.precedes(listed, noted)),
            };
            match is_listed {
                Some(is_listed) => {
                    self.is_listed = is_listed;
                    self.unit = if is_listed { self.listed } else { noted.unwrap_or(0) };
                    self.until_sampled -= 1;
                    if self.until_sampled == 0 {
                        self.until_sampled = self.sampled_of;
                        self.sample.push(self.unit);
                    }
                    return self.load_ahead();
                }
                None if self.part + 1 < self.parts() => self.begin(self.part + 1, last),
                None => {
                    self.unit = 0;
                    if let Some(tier) = &self.table.tier {
                        tier.keep_sample(std::mem::take(&mut self.sample));
                    }
                    return;
                }
            }
        }
    }

    /// True if a node is of the present part or one before.
    #[inline]
    fn is_of_part(&self, unit: u32) -> bool {
        let Some(tier) = &self.table.tier else { return true };
        tier.splits().is_within(self.table.list.nodes.key(self.node_at(unit)), self.part)
    }

    /// True if one node comes before another, or is the same version.
    #[inline]
    fn precedes(&self, a: u32, b: u32) -> bool {
        let list = &self.table.list;
        let (a, b) = (self.node_at(a), self.node_at(b));
        let keys = list.comparator().compare(list.nodes.key(a), list.nodes.key(b));
        keys.then_with(|| list.nodes.lsn(b).cmp(&list.nodes.lsn(a))) != Ordering::Greater
    }

    /// Starts to load what comes soon.
    #[inline]
    fn load_ahead(&self) {
        let list = &self.table.list;
        if self.is_listed {
            // SAFETY: every node has a level 0, and this one is linked there.
            unsafe { list.nodes.prefetch_next_value(self.node()) };
        } else if let Some(soon) = self.held.as_ref().and_then(|held| held.notes().get(self.at + NODES_AHEAD))
        {
            list.nodes.prefetch_like(self.node_at(soon.unit()), self.node());
        }
    }

    fn only_forward<T>() -> Result<T> {
        Err(Error::invalid("what is flushed is walked once, from its beginning"))
    }
}

impl Cursor for FlushCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.sample.clear();
        self.begin(0, 0);
        self.arrive(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        FlushCursor::only_forward()
    }

    fn seek(&mut self, _key: &[u8], _lsn: Lsn) -> Result<()> {
        FlushCursor::only_forward()
    }

    fn seek_back(&mut self, _key: &[u8], _lsn: Lsn) -> Result<()> {
        FlushCursor::only_forward()
    }

    fn next(&mut self) -> Result<()> {
        let last = self.node().unit();
        if self.is_listed {
            self.listed = self.table.list.next(self.node_at(last)).map_or(0, Node::unit);
        } else {
            self.at += 1;
        }
        self.arrive(last);
        Ok(())
    }

    fn next_key(&mut self) -> Result<()> {
        let last = self.node().unit();
        let nodes = &Arc::clone(&self.table).list.nodes;
        while self.valid() && nodes.key(self.node()) == nodes.key(self.node_at(last)) {
            self.next()?;
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        FlushCursor::only_forward()
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
