//! Walking a block entry by entry, both ways.
//!
//! Place: [`super::TableCursor`] owns one per block it is in; gets under a custom order borrow one
//! per thread.
//!
//! Invariants:
//! 1. While `is_on()`, `key` is the whole key of the entry at `offset()`.
//! 2. `back` holds consecutive entries of one interval; its last one is used only if it ends where
//!    the current entry starts, so it is right even after steps forward.
//!
//! Forward steps decode one entry; a step back decodes an interval once and then hands its
//! entries out from the end. Nothing is allocated once the buffers have grown.
//! Tests: below.

use std::cell::Cell;
use std::ops::Range;

use crate::encoding::Malformed;
use crate::key::{Comparator, Lsn};
use crate::table::block::{Block, Entry};

/// A position in a block that the caller passes to every step.
#[derive(Default)]
pub(super) struct Walk {
    on: bool,
    key: Vec<u8>,
    at: usize,
    next: usize,
    lsn: Lsn,
    kind: u8,
    value: Range<usize>,
    back: Vec<Back>,
    back_keys: Vec<u8>,
}

/// An entry decoded on the way to a later one.
struct Back {
    at: usize,
    next: usize,
    key_from: usize,
    lsn: Lsn,
    kind: u8,
    value: Range<usize>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Walk>>> = const { Cell::new(None) };
}

impl Walk {
    /// Lends the thread's walk. A comparator that reads a table itself just gets another one.
    pub(super) fn with_scratch<R>(body: impl FnOnce(&mut Walk) -> R) -> R {
        let mut walk = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
        walk.reset();
        let result = body(&mut walk);
        // A thread that is being torn down keeps nothing.
        let _ = SCRATCH.try_with(|scratch| scratch.set(Some(walk)));
        result
    }

    /// Forgets the position; the next block is another one.
    pub(super) fn reset(&mut self) {
        self.on = false;
        self.back.clear();
    }

    /// True if on an entry.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(super) fn lsn(&self) -> Lsn {
        self.lsn
    }

    #[inline]
    pub(super) fn kind(&self) -> u8 {
        self.kind
    }

    /// Where the value lies in the block.
    #[inline]
    pub(super) fn value(&self) -> Range<usize> {
        self.value.clone()
    }

    /// Where the entry lies in the block.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn enter(&mut self, at: usize, entry: &Entry<'_>) -> Result<(), Malformed> {
        if entry.shared > self.key.len() {
            self.on = false;
            return Err(Malformed);
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.suffix);
        self.at = at;
        self.next = entry.next;
        self.lsn = entry.lsn;
        self.kind = entry.kind;
        self.value = entry.value_at..entry.next;
        self.on = true;
        Ok(())
    }

    fn enter_restart(&mut self, block: Block<'_>, restart: usize) -> Result<(), Malformed> {
        self.key.clear();
        let at = block.restart(restart);
        self.enter(at, &block.entry(at)?)
    }

    /// Moves to the first entry.
    pub(super) fn first(&mut self, block: Block<'_>) -> Result<(), Malformed> {
        self.enter_restart(block, 0)
    }

    /// Moves to the last entry.
    pub(super) fn last(&mut self, block: Block<'_>) -> Result<(), Malformed> {
        self.at = block.entry_bytes();
        match self.prev(block)? {
            true => Ok(()),
            false => Err(Malformed),
        }
    }

    /// Moves one entry forward; false (and off) behind the last.
    #[inline]
    pub(super) fn next(&mut self, block: Block<'_>) -> Result<bool, Malformed> {
        if self.next >= block.entry_bytes() {
            self.on = false;
            return Ok(false);
        }
        let at = self.next;
        let entry = block.entry(at).inspect_err(|_| self.on = false)?;
        self.enter(at, &entry)?;
        Ok(true)
    }

    /// Moves one entry back; false (and off) before the first.
    pub(super) fn prev(&mut self, block: Block<'_>) -> Result<bool, Malformed> {
        self.on = false;
        if self.back.last().is_none_or(|back| back.next != self.at) {
            self.decode_interval_before(block, self.at)?;
        }
        let Some(back) = self.back.pop() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(self.back_keys.get(back.key_from..).ok_or(Malformed)?);
        self.back_keys.truncate(back.key_from);
        (self.at, self.next, self.lsn, self.kind, self.value) =
            (back.at, back.next, back.lsn, back.kind, back.value);
        self.on = true;
        Ok(true)
    }

    /// Fills `back` with the entries of the last interval that starts before `end`, up to `end`.
    fn decode_interval_before(&mut self, block: Block<'_>, end: usize) -> Result<(), Malformed> {
        self.back.clear();
        self.back_keys.clear();
        let (mut low, mut high) = (0, block.restarts());
        while low < high {
            let middle = low + (high - low) / 2;
            if block.restart(middle) < end { low = middle + 1 } else { high = middle }
        }
        let Some(interval) = low.checked_sub(1) else { return Ok(()) };
        let mut at = block.restart(interval);
        let mut last_key = 0..0;
        while at < end {
            let entry = block.entry(at)?;
            if entry.shared > last_key.len() {
                return Err(Malformed);
            }
            let key_from = self.back_keys.len();
            self.back_keys.extend_from_within(last_key.start..last_key.start + entry.shared);
            self.back_keys.extend_from_slice(entry.suffix);
            last_key = key_from..self.back_keys.len();
            let value = entry.value_at..entry.next;
            self.back.push(Back { at, next: entry.next, key_from, lsn: entry.lsn, kind: entry.kind, value });
            at = entry.next;
        }
        if at == end { Ok(()) } else { Err(Malformed) }
    }

    /// Moves to the first entry at or after (key, lsn); false (and off) if there is none.
    pub(super) fn seek<C: Comparator + ?Sized>(
        &mut self,
        block: Block<'_>,
        comparator: &C,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<bool, Malformed> {
        self.on = false;
        let behind = block.restarts_before(comparator, key, lsn)?;
        if behind == 0 {
            self.enter_restart(block, 0)?;
            return Ok(true);
        }
        self.enter_restart(block, behind - 1)?;
        loop {
            if !self.next(block)? {
                return Ok(false);
            }
            let order = comparator.compare(&self.key, key).then_with(|| lsn.cmp(&self.lsn));
            if order.is_ge() {
                return Ok(true);
            }
        }
    }
}
