//! Walking a block entry by entry, both ways.
//!
//! Place: [`super::TableCursor`] owns one and takes it from block to block.
//!
//! Invariants:
//! 1. While `is_on()`, `key` is the whole key of the entry at `at`, and its first `prefix_bytes` are the block's prefix.
//! 2. Every step is given the bytes of the block that was begun last. Given others, it is off, or on something that is in
//!    them: it never panics.
//!
//! A block is parsed once. A step either way decodes one entry, and of its key copies what the others do not begin with.
//! Nothing is allocated once the key's buffer has grown.
//! Tests: below.

use std::ops::Range;

use crate::encoding::Malformed;
use crate::key::{Lsn, key_prefix};
use crate::table::block::{Block, Entry, Layout, Order};

/// What most keys have behind their block's prefix, at most.
const SUFFIX_BYTES: usize = 48;

/// A position in a block that the caller passes to every step.
#[derive(Default)]
pub(super) struct Walk {
    on: bool,
    at: usize,
    layout: Layout,
    prefix_bytes: usize,
    /// Where the entry begins in the block; it ends where its value does.
    start: usize,
    key: Vec<u8>,
    lsn: Lsn,
    kind: u8,
    value: Range<usize>,
}

impl Walk {
    /// Forgets the position.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.on = false;
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

    /// Parses the block; off.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Result<Block<'a>, Malformed> {
        self.on = false;
        let block = Block::parse(bytes)?;
        self.layout = block.layout();
        self.key.clear();
        // Room for most keys at once.
        self.key.reserve(block.prefix().len() + SUFFIX_BYTES);
        self.key.extend_from_slice(block.prefix());
        self.prefix_bytes = block.prefix().len();
        Ok(block)
    }

    /// Moves to the `at`-th entry, which begins at `start`.
    #[inline(always)]
    fn enter(&mut self, at: usize, entry: Entry<'_>, start: usize) {
        self.key.truncate(self.prefix_bytes);
        self.key.extend_from_slice(entry.suffix);
        (self.at, self.start, self.lsn, self.kind) = (at, start, entry.lsn, entry.kind);
        self.value = entry.value_at();
        self.on = true;
    }

    /// Moves to the `at`-th entry of a block just begun.
    fn jump(&mut self, bytes: &[u8], at: usize) -> Result<(), Malformed> {
        let start = match at.checked_sub(1) {
            Some(before) => self.layout.end(bytes, before)?,
            None => self.layout.entries_at,
        };
        let end = self.layout.end(bytes, at)?;
        self.enter(at, Entry::parse(bytes.get(start..end).ok_or(Malformed)?, end)?, start);
        Ok(())
    }

    /// Moves to the first entry.
    pub(super) fn first(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.begin(bytes)?;
        self.jump(bytes, 0)
    }

    /// Moves to the last entry.
    pub(super) fn last(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let last = self.begin(bytes)?.len() - 1;
        self.jump(bytes, last)
    }

    /// Moves one entry forward; false (and off) behind the last.
    #[inline(always)]
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let (at, start) = (self.at + 1, self.value.end);
        self.on = false;
        if at < self.layout.count {
            let end = self.layout.end(bytes, at)?;
            self.enter(at, Entry::parse(bytes.get(start..end).ok_or(Malformed)?, end)?, start);
        }
        Ok(self.on)
    }

    /// Moves to the first entry of another key; false (and off) if the block has none, `key` being as it was.
    #[inline(always)]
    pub(super) fn next_key(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let (mut at, mut start) = (self.at + 1, self.value.end);
        self.on = false;
        while at < self.layout.count {
            let end = self.layout.end(bytes, at)?;
            let entry = Entry::parse(bytes.get(start..end).ok_or(Malformed)?, end)?;
            if differ(entry.suffix, &self.key[self.prefix_bytes..]) {
                self.enter(at, entry, start);
                break;
            }
            (at, start) = (at + 1, end);
        }
        Ok(self.on)
    }

    /// Kinds and values of the entries behind this one, up to one that is malformed.
    pub(super) fn behind<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = (u8, &'b [u8])> {
        let (layout, mut start) = (self.layout, self.value.end);
        (self.at + 1..layout.count).map_while(move |at| {
            let end = layout.end(bytes, at).ok()?;
            let entry = Entry::parse(bytes.get(start..end)?, end).ok()?;
            start = end;
            Some((entry.kind, &bytes[entry.value_at()]))
        })
    }

    /// Moves one entry back; false (and off) before the first.
    #[inline]
    pub(super) fn prev(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        self.on = false;
        if let Some(at) = self.at.checked_sub(1) {
            let end = self.start;
            let start = match at.checked_sub(1) {
                Some(before) => self.layout.end(bytes, before)?,
                None => self.layout.entries_at,
            };
            self.enter(at, Entry::parse(bytes.get(start..end).ok_or(Malformed)?, end)?, start);
        }
        Ok(self.on)
    }

    /// Moves to the first entry at or after (key, lsn); false (and off) if there is none.
    pub(super) fn seek(
        &mut self,
        bytes: &[u8],
        order: Order<'_>,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<bool, Malformed> {
        let block = self.begin(bytes)?;
        let at = block.position(order, key, lsn)?;
        if at < block.len() {
            self.jump(bytes, at)?;
        }
        Ok(self.on)
    }
}

/// True if two parts of keys differ, which eight bytes mostly tell.
#[inline(always)]
fn differ(a: &[u8], b: &[u8]) -> bool {
    key_prefix(a) != key_prefix(b) || a != b
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
        builder.finish(|_| 0).to_vec()
    }

    /// Keys of which the first eight bytes behind the prefix are alike, with versions; and one that is the prefix.
    #[test]
    fn a_walk_by_keys_meets_the_newest_version_of_every_key() {
        let keys: [&[u8]; 6] = [b"k", b"k12345678", b"k12345678\0", b"k12345678a", b"k12345678b", b"k2"];
        for versions in 1..12 {
            let mut builder = BlockBuilder::new(true);
            for (n, key) in keys.iter().enumerate() {
                for lsn in (1..=versions * (n as u64 % 3) + 1).rev() {
                    builder.add(key, Lsn(lsn), 1, b"");
                }
            }
            let bytes = builder.finish(|_| 0).to_vec();
            let mut walk = Walk::default();
            walk.first(&bytes).expect("sound");
            for (n, key) in keys.iter().enumerate() {
                assert_eq!((walk.key(), walk.lsn()), (*key, Lsn(versions * (n as u64 % 3) + 1)));
                assert_eq!(walk.next_key(&bytes).expect("sound"), n + 1 < keys.len());
            }
            assert!(!walk.is_on());
            assert_eq!(walk.key(), keys[keys.len() - 1], "as it was");
        }
    }

    #[test]
    fn a_walk_meets_every_entry_both_ways_and_in_the_next_block_too() {
        let mut walk = Walk::default();
        for (first, count) in [(0, 1), (7, 40), (100, 3), (899, 2)] {
            let bytes = block(first, count);
            let here = |walk: &Walk| {
                (String::from_utf8_lossy(walk.key()).into_owned(), bytes[walk.value()].to_vec())
            };
            let wanted = |n: u32| (format!("key{n:03}"), n.to_string().into_bytes());
            walk.first(&bytes).expect("sound");
            for n in first..first + count {
                assert_eq!(here(&walk), wanted(n));
                assert_eq!(walk.next(&bytes).expect("sound"), n + 1 < first + count);
            }
            assert!(!walk.is_on());
            walk.last(&bytes).expect("sound");
            for n in (first..first + count).rev() {
                assert_eq!(here(&walk), wanted(n));
                assert_eq!(walk.prev(&bytes).expect("sound"), n > first);
            }
            assert!(!walk.is_on());
            for n in first..first + count {
                let key = format!("key{n:03}");
                assert!(walk.seek(&bytes, Order::Bytewise, key.as_bytes(), Lsn(9)).expect("sound"));
                assert_eq!(here(&walk), wanted(n));
                let behind = walk.seek(&bytes, Order::Bytewise, key.as_bytes(), Lsn(8)).expect("sound");
                assert_eq!(behind, n + 1 < first + count);
            }
        }
    }
}
