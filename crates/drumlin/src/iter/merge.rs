//! One cursor over many: the children's versions in internal order.
//!
//! Place: scans of `db` join memtables, level-0 tables and levels; `compaction` joins the inputs of
//! a job. Calls nothing but the children.
//!
//! Shape: slot 0 holds the child whose entry is current, the other slots a binary heap of the rest
//! (children of slot i at 2i and 2i + 1, root at 1). A child that yields many entries in a row stays
//! in slot 0 at the price of one comparison an entry, with the root: runs from one child are the rule,
//! since a level is about ten times as large as the one above. Each slot caches the entry's LSN
//! and, in bytewise order, the first eight bytes of its key, so that most comparisons call no child.
//!
//! Invariants:
//! 1. Every valid child has exactly one slot; slot 0 precedes (or equals) every other.
//! 2. All children stand at or behind the current entry in the direction of the last seek.
//! 3. An entry (key, LSN) that several children hold is visited once: that of the earliest child.
//! 4. After an error the cursor is invalid until the next seek.
//!
//! A seek takes all children through each of its stages together, so that they wait for memory at the same time.
//! A move against the direction of the last seek is allowed and seeks every child again.
//! No allocation per entry; a turn copies one key.
//!
//! Complexity for k children: seek O(k) child seeks; move one child move and 1 to 2 + 2 log2 k comparisons.
//! Concurrency: as its children, one thread at a time; `Send`.
//! Origin: sLSM Algorithm 1 (HeapMerge); we walk both ways, and the separate slot for the current child, leaving a key whole
//! and the stages of a seek are ours.
//! Tests: `merge_tests.rs`.

use std::cmp::Ordering;

use crate::error::Result;
use crate::iter::{Cursor, SEEK_STAGES};
use crate::key::{Comparator, ComparatorRef, Kind, Lsn, key_prefix};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Back,
}

/// Where a child stands, with what decides most comparisons.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The key's first eight bytes, big endian, padded with zeros; 0 unless the order is bytewise.
    prefix: u64,
    lsn: Lsn,
    child: u32,
}

/// A cursor over the union of its children's entries.
pub struct Merge<C> {
    comparator: ComparatorRef,
    bytewise: bool,
    children: Vec<C>,
    heads: Vec<Head>,
    direction: Direction,
    duplicates: u64,
    /// Scratch for the key at a turn of direction.
    turning_key: Vec<u8>,
}

impl<C: Cursor> Merge<C> {
    /// Joins `children`; of equal entries the one of the earlier child counts.
    /// Invalid until the first seek, which every child gets too.
    pub fn new(comparator: ComparatorRef, children: Vec<C>) -> Merge<C> {
        Merge {
            bytewise: comparator.is_bytewise(),
            comparator,
            heads: Vec::with_capacity(children.len()),
            children,
            direction: Direction::Forward,
            duplicates: 0,
            turning_key: Vec::new(),
        }
    }

    /// Entries passed over so far because an earlier child held them too.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Seeks every child by `seek` and orders them anew.
    fn seek_all(&mut self, direction: Direction, mut seek: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.direction = direction;
        self.heads.clear();
        for (number, child) in self.children.iter_mut().enumerate() {
            if let Err(error) = seek(child) {
                self.heads.clear();
                return Err(error);
            }
            if child.valid() {
                self.heads.push(head_of(child, number as u32, self.bytewise));
            }
        }
        let (heads, order) = self.parts();
        for slot in (1..=heads.len().saturating_sub(1) / 2).rev() {
            order.sift_down(heads, slot);
        }
        order.settle(heads);
        Ok(())
    }

    fn parts(&mut self) -> (&mut Vec<Head>, Order<'_, C>) {
        let order = Order {
            comparator: &*self.comparator,
            bytewise: self.bytewise,
            back: self.direction == Direction::Back,
            children: &self.children,
        };
        (&mut self.heads, order)
    }

    /// Leaves the current entry, and the same entry wherever another child holds it.
    #[inline]
    fn leave(&mut self, step: impl Fn(&mut C) -> Result<()> + Copy) -> Result<()> {
        let top = self.heads[0];
        while let Some(&other) = self.heads.get(1) {
            // A version's LSN is the place of its log record: different children hold the same LSN
            // only for a duplicate or for two keys of one batch.
            if other.lsn != top.lsn || other.prefix != top.prefix || !self.same_key(top, other) {
                break;
            }
            self.step(1, step)?;
            self.duplicates += 1;
        }
        self.step(0, step)
    }

    fn same_key(&self, a: Head, b: Head) -> bool {
        let (a, b) = (self.children[a.child as usize].key(), self.children[b.child as usize].key());
        a == b || (!self.bytewise && self.comparator.compare(a, b) == Ordering::Equal)
    }

    /// Moves the child in `slot` (0 or 1) by a `step` and restores the order.
    #[inline]
    fn step(&mut self, slot: usize, step: impl Fn(&mut C) -> Result<()>) -> Result<()> {
        let number = self.heads[slot].child;
        let child = &mut self.children[number as usize];
        if let Err(error) = step(child) {
            self.heads.clear();
            return Err(error);
        }
        if child.valid() {
            self.heads[slot] = head_of(child, number, self.bytewise);
            let (heads, order) = self.parts();
            if slot == 0 {
                order.settle(heads)
            } else {
                order.sift_down(heads, 1)
            }
            return Ok(());
        }
        if self.heads.len() == 1 {
            self.heads.clear();
            return Ok(());
        }
        // Slot 0 is refilled from the root; the root from the last slot.
        self.heads[0] = self.heads[usize::from(slot == 0)];
        self.heads.swap_remove(1);
        let (heads, order) = self.parts();
        order.sift_down(heads, 1);
        Ok(())
    }

    /// Turns around on the current entry. False if the turn itself already moved, which happens
    /// only if a child no longer finds the entry it stood on.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<bool> {
        let lsn = self.lsn();
        let mut key = std::mem::take(&mut self.turning_key);
        key.clear();
        key.extend_from_slice(self.key());
        let sought = match direction {
            Direction::Forward => self.seek(&key, lsn),
            Direction::Back => self.seek_back(&key, lsn),
        };
        let same = self.valid() && self.lsn() == lsn && self.key() == key;
        self.turning_key = key;
        sought.map(|()| same)
    }
}

#[inline]
fn head_of<C: Cursor>(child: &C, number: u32, bytewise: bool) -> Head {
    let prefix = if bytewise { key_prefix(child.key()) } else { 0 };
    Head { prefix, lsn: child.lsn(), child: number }
}

/// What is needed to compare two slots.
struct Order<'a, C> {
    comparator: &'a dyn Comparator,
    bytewise: bool,
    back: bool,
    children: &'a [C],
}

impl<C: Cursor> Order<'_, C> {
    /// True if `a` is visited before `b`.
    #[inline]
    fn precedes(&self, a: &Head, b: &Head) -> bool {
        let keys = if a.prefix != b.prefix { a.prefix.cmp(&b.prefix) } else { self.compare_keys(a, b) };
        let versions = keys.then_with(|| b.lsn.cmp(&a.lsn));
        let visits = if self.back { versions.reverse() } else { versions };
        visits.then_with(|| a.child.cmp(&b.child)) == Ordering::Less
    }

    #[inline]
    fn compare_keys(&self, a: &Head, b: &Head) -> Ordering {
        let (a, b) = (self.children[a.child as usize].key(), self.children[b.child as usize].key());
        if self.bytewise { a.cmp(b) } else { self.comparator.compare(a, b) }
    }

    /// Exchanges slot 0 with the root if the root precedes it.
    #[inline]
    fn settle(&self, heads: &mut [Head]) {
        if heads.len() > 1 && self.precedes(&heads[1], &heads[0]) {
            heads.swap(0, 1);
            self.sift_down(heads, 1);
        }
    }

    /// Restores the heap below `slot`, whose head may come too late for its place.
    fn sift_down(&self, heads: &mut [Head], mut slot: usize) {
        loop {
            let mut first = 2 * slot;
            if first >= heads.len() {
                return;
            }
            if first + 1 < heads.len() && self.precedes(&heads[first + 1], &heads[first]) {
                first += 1;
            }
            if !self.precedes(&heads[first], &heads[slot]) {
                return;
            }
            heads.swap(slot, first);
            slot = first;
        }
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    fn seek_first(&mut self) -> Result<()> {
        self.seek_all(Direction::Forward, C::seek_first)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.seek_all(Direction::Back, C::seek_last)
    }

    fn seek(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        for stage in 0..SEEK_STAGES - 1 {
            for child in &mut self.children {
                if let Err(error) = child.seek_stage(key, lsn, stage) {
                    self.heads.clear();
                    return Err(error);
                }
            }
        }
        self.seek_all(Direction::Forward, |child| child.seek_stage(key, lsn, SEEK_STAGES - 1))
    }

    fn seek_back(&mut self, key: &[u8], lsn: Lsn) -> Result<()> {
        self.seek_all(Direction::Back, |child| child.seek_back(key, lsn))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Back && !self.turn(Direction::Forward)? {
            return Ok(());
        }
        self.leave(C::next)
    }

    #[inline]
    fn next_key(&mut self) -> Result<()> {
        if self.direction == Direction::Back
            && !self.turn(Direction::Forward)?
            && !(self.valid() && self.key() == self.turning_key)
        {
            return Ok(());
        }
        let top = self.heads[0];
        // All that stand on this key come before the others: each leaves it when it is the root.
        while let Some(&other) = self.heads.get(1) {
            if other.prefix != top.prefix || !self.same_key(top, other) {
                break;
            }
            self.step(1, C::next_key)?;
        }
        self.step(0, C::next_key)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward && !self.turn(Direction::Back)? {
            return Ok(());
        }
        self.leave(C::prev)
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.heads.is_empty()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.children[self.heads[0].child as usize].key()
    }

    #[inline]
    fn lsn(&self) -> Lsn {
        self.heads[0].lsn
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.children[self.heads[0].child as usize].kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.heads[0].child as usize].value()
    }

    fn load_value(&mut self) -> Result<()> {
        self.children[self.heads[0].child as usize].load_value()
    }

    #[inline]
    fn is_in_use(&self) -> bool {
        self.children[self.heads[0].child as usize].is_in_use()
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
pub(crate) mod tests;
