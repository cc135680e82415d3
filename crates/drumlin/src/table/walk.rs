//! Walking a block entry by entry, both ways.
//!
//! Place: [`super::TableCursor`] owns one and takes it from block to block.
//!
//! Invariants:
//! 1. While `is_on()`, `key` is the whole key of the entry at `at`; its first bytes are the block's prefix whenever
//!    `primed`.
//!
//! A step either way decodes one entry. Nothing is allocated once the key's buffer has grown.
//! Tests: below.

use std::ops::Range;

use crate::encoding::Malformed;
use crate::key::Lsn;
use crate::table::block::{Block, Order};

/// A position in a block that the caller passes to every step.
#[derive(Default)]
pub(super) struct Walk {
    on: bool,
    /// The key begins with the prefix of the block.
    primed: bool,
    at: usize,
    key: Vec<u8>,
    lsn: Lsn,
    kind: u8,
    value: Range<usize>,
}

impl Walk {
    /// Forgets the position; the next block is another one.
    pub(super) fn reset(&mut self) {
        self.on = false;
        self.primed = false;
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

    #[inline(always)]
    fn enter(&mut self, block: Block<'_>, at: usize) -> Result<(), Malformed> {
        self.on = false;
        let entry = block.entry(at)?;
        if self.primed {
            self.key.truncate(block.prefix().len());
        } else {
            self.key.clear();
            self.key.extend_from_slice(block.prefix());
            self.primed = true;
        }
        self.key.extend_from_slice(entry.suffix);
        (self.at, self.lsn, self.kind, self.value) = (at, entry.lsn, entry.kind, entry.value_at());
        self.on = true;
        Ok(())
    }

    /// Moves to the first entry.
    pub(super) fn first(&mut self, block: Block<'_>) -> Result<(), Malformed> {
        self.enter(block, 0)
    }

    /// Moves to the last entry.
    pub(super) fn last(&mut self, block: Block<'_>) -> Result<(), Malformed> {
        self.enter(block, block.len() - 1)
    }

    /// Moves one entry forward; false (and off) behind the last.
    #[inline]
    pub(super) fn next(&mut self, block: Block<'_>) -> Result<bool, Malformed> {
        self.on = self.at + 1 < block.len();
        if self.on {
            self.enter(block, self.at + 1)?;
        }
        Ok(self.on)
    }

    /// Moves one entry back; false (and off) before the first.
    #[inline]
    pub(super) fn prev(&mut self, block: Block<'_>) -> Result<bool, Malformed> {
        self.on = self.at > 0;
        if self.on {
            self.enter(block, self.at - 1)?;
        }
        Ok(self.on)
    }

    /// Moves to the first entry at or after (key, lsn); false (and off) if there is none.
    pub(super) fn seek(
        &mut self,
        block: Block<'_>,
        order: Order<'_>,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<bool, Malformed> {
        self.on = false;
        let at = block.position(order, key, lsn)?;
        if at < block.len() {
            self.enter(block, at)?;
        }
        Ok(self.on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::block::BlockBuilder;

    fn block(first: u32, count: u32) -> Vec<u8> {
        let mut builder = BlockBuilder::new(true);
        for n in first..first + count {
            builder.add(format!("key{n:03}").as_bytes(), Lsn(9), 1, n.to_string().as_bytes());
        }
        builder.finish().to_vec()
    }

    #[test]
    fn a_walk_meets_every_entry_both_ways_and_in_the_next_block_too() {
        let mut walk = Walk::default();
        for (first, count) in [(0, 1), (7, 40), (100, 3), (899, 2)] {
            let bytes = block(first, count);
            let block = Block::parse(&bytes).expect("whole");
            walk.reset();
            let here = |walk: &Walk| {
                (String::from_utf8_lossy(walk.key()).into_owned(), bytes[walk.value()].to_vec())
            };
            let wanted = |n: u32| (format!("key{n:03}"), n.to_string().into_bytes());
            walk.first(block).expect("sound");
            for n in first..first + count {
                assert_eq!(here(&walk), wanted(n));
                assert_eq!(walk.next(block).expect("sound"), n + 1 < first + count);
            }
            assert!(!walk.is_on());
            walk.last(block).expect("sound");
            for n in (first..first + count).rev() {
                assert_eq!(here(&walk), wanted(n));
                assert_eq!(walk.prev(block).expect("sound"), n > first);
            }
            assert!(!walk.is_on());
            for n in first..first + count {
                let key = format!("key{n:03}");
                assert!(walk.seek(block, Order::Bytewise, key.as_bytes(), Lsn(9)).expect("sound"));
                assert_eq!(here(&walk), wanted(n));
                let behind = walk.seek(block, Order::Bytewise, key.as_bytes(), Lsn(8)).expect("sound");
                assert_eq!(behind, n + 1 < first + count);
            }
        }
    }
}
