//! Index blocks: one fence per child (a data block, or an index block below), searched in place.
//!
//! Place: the writer fills an [`IndexBuilder`]; `resident` holds the root; gets and cursors search
//! an [`Index`] over the block's bytes, resident or cached.
//!
//! Invariants:
//! 1. Fence i is a position in internal order: every entry of child i lies at or before it, every
//!    entry of child i + 1 behind it. So the child to search for a target is the first whose fence
//!    is at or behind the target.
//! 2. A fence's LSN is 0 (behind all versions of its key) unless one key's versions span children.
//! 3. Children lie one behind the other in the file, without a gap.
//!
//! Under the order of bytes fences are as short as separates the children, their common prefix is
//! stored once, and the first eight bytes of each remainder lie in an array of their own, which a
//! search halves without branches and mostly without touching a key.
//!
//! Bytes (integers little endian, all arrays of `count`):
//! ```text
//! 0   count  u32            at least 1
//! 4   flags  u32            bit 0: heads; bit 1: lsns; others 0
//! 8   base   u64            offset of the first child in the file
//! 16  prefix length u32     0 without heads
//! 20  zero   u32
//! 24  ends      u64 each    offset behind each child, ascending
//!     heads     u64 each    (bit 0) first 8 remainder bytes as a big-endian number, padded with zeros
//!     lsns      u64 each    (bit 1) else every LSN is 0
//!     key ends  u32 each    end of each remainder within the remainders
//!     prefix | remainders
//! ```
//! Origin: sLSM §2.4 fence pointers, at a granularity μ of one block.
//! Tests: below and `table/tests/`.

use std::ops::Range;

use crate::encoding::{Decoder, Malformed};
use crate::key::{Lsn, Side, behind_prefix, equal_heads, key_prefix, shared_prefix};
use crate::table::block::Order;

const HEADER_BYTES: usize = 24;
const HEADS: u32 = 1;
const LSNS: u32 = 2;

/// Where a frame lies in the file, trailer included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Place {
    /// Offset behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The shortest key k with a ≤ k < b in the order of bytes, for a < b.
pub(super) fn separator<'a>(a: &'a [u8], b: &'a [u8]) -> &'a [u8] {
    let shared = shared_prefix(a, b);
    // b up to and with the first byte that differs is behind a; it must also be before b.
    if shared < a.len() && shared + 1 < b.len() { &b[..=shared] } else { a }
}

/// Collects fences.
pub(super) struct IndexBuilder {
    bytewise: bool,
    base: u64,
    ends: Vec<u64>,
    lsns: Vec<u64>,
    key_ends: Vec<usize>,
    keys: Vec<u8>,
}

impl IndexBuilder {
    /// A builder for children from offset `base` on.
    pub(super) fn new(bytewise: bool, base: u64) -> IndexBuilder {
        IndexBuilder {
            bytewise,
            base,
            ends: Vec::new(),
            lsns: Vec::new(),
            key_ends: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Adds the child that ends at offset `end`.
    pub(super) fn add(&mut self, key: &[u8], lsn: Lsn, end: u64) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        self.lsns.push(lsn.0);
        self.ends.push(end);
    }

    /// Adds every child of `next`, which begins where this one ends.
    pub(super) fn append(&mut self, next: &IndexBuilder) {
        for n in 0..next.ends.len() {
            self.add(next.key(n), Lsn(next.lsns[n]), next.ends[n]);
        }
    }

    /// The last fence; `None` without children.
    pub(super) fn last(&self) -> Option<(&[u8], Lsn)> {
        let last = self.ends.len().checked_sub(1)?;
        Some((self.key(last), Lsn(self.lsns[last])))
    }

    /// Bytes of the block, at most.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.keys.len() + self.ends.len() * 28
    }

    fn key(&self, n: usize) -> &[u8] {
        let start = if n == 0 { 0 } else { self.key_ends[n - 1] };
        &self.keys[start..self.key_ends[n]]
    }

    /// The finished block.
    pub(super) fn finish(&self) -> Vec<u8> {
        let count = self.ends.len();
        let has_lsns = self.lsns.iter().any(|&lsn| lsn != 0);
        // Sorted bytewise, all keys share what the first and the last share.
        let prefix = match (self.bytewise, count) {
            (false, _) | (_, 0) => &[][..],
            _ => &self.key(0)[..shared_prefix(self.key(0), self.key(count - 1))],
        };
        let mut out = Vec::with_capacity(self.bytes());
        out.extend((count as u32).to_le_bytes());
        let flags = if self.bytewise { HEADS } else { 0 } | if has_lsns { LSNS } else { 0 };
        out.extend(flags.to_le_bytes());
        out.extend(self.base.to_le_bytes());
        out.extend((prefix.len() as u32).to_le_bytes());
        out.extend([0; 4]);
        self.ends.iter().for_each(|end| out.extend(end.to_le_bytes()));
        if self.bytewise {
            (0..count).for_each(|n| out.extend(key_prefix(&self.key(n)[prefix.len()..]).to_le_bytes()));
        }
        if has_lsns {
            self.lsns.iter().for_each(|lsn| out.extend(lsn.to_le_bytes()));
        }
        let mut end = 0u32;
        for n in 0..count {
            end += (self.key(n).len() - prefix.len()) as u32;
            out.extend(end.to_le_bytes());
        }
        out.extend_from_slice(prefix);
        (0..count).for_each(|n| out.extend_from_slice(&self.key(n)[prefix.len()..]));
        out
    }
}

/// An index block being searched in place.
#[derive(Clone, Copy)]
pub(super) struct Index<'a> {
    base: u64,
    ends: &'a [[u8; 8]],
    heads: Option<&'a [[u8; 8]]>,
    lsns: Option<&'a [[u8; 8]]>,
    key_ends: &'a [[u8; 4]],
    prefix: &'a [u8],
    keys: &'a [u8],
}

/// One fence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fence<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) rest: &'a [u8],
    pub(super) lsn: Lsn,
}

impl Fence<'_> {
    /// The whole key.
    pub(super) fn key(&self) -> Vec<u8> {
        [self.prefix, self.rest].concat()
    }
}

impl<'a> Index<'a> {
    /// Finds the parts of an index block. O(1).
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Index<'a>, Malformed> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let mut header = Decoder::new(header);
        let (count, flags, base) = (header.u32()? as usize, header.u32()?, header.u64()?);
        let (prefix_bytes, zero) = (header.u32()? as usize, header.u32()?);
        let prefix_allowed = flags & HEADS != 0 || prefix_bytes == 0;
        if count == 0 || flags & !(HEADS | LSNS) != 0 || zero != 0 || !prefix_allowed {
            return Err(Malformed);
        }
        let mut rest = Decoder::new(rest);
        let ends = rest.take(count * 8)?.as_chunks().0;
        let heads = if flags & HEADS != 0 { Some(rest.take(count * 8)?.as_chunks().0) } else { None };
        let lsns = if flags & LSNS != 0 { Some(rest.take(count * 8)?.as_chunks().0) } else { None };
        let key_ends = rest.take(count * 4)?.as_chunks().0;
        let prefix = rest.take(prefix_bytes)?;
        Ok(Index { base, ends, heads, lsns, key_ends, prefix, keys: rest.rest() })
    }

    /// Checks what `parse` does not: that offsets ascend, keys are in order and heads are theirs. O(count).
    pub(super) fn validate(&self, order: Order<'_>) -> Result<(), Malformed> {
        if self.heads.is_some() != matches!(order, Order::Bytewise) {
            return Err(Malformed);
        }
        let mut end = self.base;
        let mut key_end = 0;
        for n in 0..self.len() {
            let place = self.place(n)?;
            if place.offset != end || place.end() <= end {
                return Err(Malformed);
            }
            end = place.end();
            let fence = self.fence(n)?;
            if self.heads.is_some_and(|heads| heads[n] != key_prefix(fence.rest).to_le_bytes()) {
                return Err(Malformed);
            }
            if let Some(before) = n.checked_sub(1) {
                let before = self.fence(before)?;
                // The common prefix, if there is one, says nothing about the order of bytes.
                let ordering = order.compare(before.rest, fence.rest);
                if ordering.then_with(|| fence.lsn.cmp(&before.lsn)).is_ge() {
                    return Err(Malformed);
                }
            }
            key_end += fence.rest.len();
        }
        if key_end == self.keys.len() { Ok(()) } else { Err(Malformed) }
    }

    /// Number of children.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Where the n-th child lies.
    #[inline]
    pub(super) fn place(&self, n: usize) -> Result<Place, Malformed> {
        let end = u64::from_le_bytes(*self.ends.get(n).ok_or(Malformed)?);
        let offset = if n == 0 { self.base } else { u64::from_le_bytes(self.ends[n - 1]) };
        Ok(Place { offset, bytes: end.checked_sub(offset).ok_or(Malformed)? })
    }

    /// The n-th fence.
    #[inline]
    pub(super) fn fence(&self, n: usize) -> Result<Fence<'a>, Malformed> {
        let end = u32::from_le_bytes(*self.key_ends.get(n).ok_or(Malformed)?) as usize;
        let start = if n == 0 { 0 } else { u32::from_le_bytes(self.key_ends[n - 1]) as usize };
        let rest = self.keys.get(start..end).ok_or(Malformed)?;
        let lsn = Lsn(self.lsns.map_or(0, |lsns| u64::from_le_bytes(lsns[n])));
        Ok(Fence { prefix: self.prefix, rest, lsn })
    }

    /// The first child that may hold an entry at or after (key, lsn); `len()` if none does.
    /// O(log count), nothing allocated.
    #[inline]
    pub(super) fn find(&self, order: Order<'_>, key: &[u8], lsn: Lsn) -> Result<usize, Malformed> {
        let Some(heads) = self.heads else {
            return self.partition(0, self.len(), |fence| {
                order.compare(fence.rest, key).then_with(|| lsn.cmp(&fence.lsn)).is_lt()
            });
        };
        let rest = match behind_prefix(key, self.prefix) {
            Ok(rest) => rest,
            Err(Side::Before) => return Ok(0),
            Err(Side::Behind) => return Ok(self.len()),
        };
        // Most often no head is the same, and nothing is left to compare.
        let Range { start, end } = equal_heads(heads, key_prefix(rest));
        self.partition(start, end, |fence| fence.rest.cmp(rest).then_with(|| lsn.cmp(&fence.lsn)).is_lt())
    }

    /// The first of low..high whose fence is not `before`, else `high`.
    fn partition(
        &self,
        mut low: usize,
        mut high: usize,
        before: impl Fn(Fence<'a>) -> bool,
    ) -> Result<usize, Malformed> {
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.fence(middle)?) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::key::{Bytewise, Comparator};

    struct Backwards;

    impl Comparator for Backwards {
        fn name(&self) -> &str {
            "backwards"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }

    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = vec![];
        for a in 0..6u8 {
            keys.push(vec![7, 7, a]);
            for b in 0..5u8 {
                keys.push([&[7, 7, a, 0, 0, 0, 0, 0, 0, 0, b][..], &vec![0; usize::from(b) * 3]].concat());
            }
        }
        keys.push(vec![7, 7, 255, 255, 255, 255, 255, 255, 255, 255, 255]);
        keys
    }

    #[test]
    fn a_separator_is_between_and_short() {
        let keys = keys();
        let mut sorted = keys.clone();
        sorted.extend([b"abc".to_vec(), b"abd".to_vec(), b"abde".to_vec(), b"b".to_vec(), b"".to_vec()]);
        sorted.sort();
        for (n, a) in sorted.iter().enumerate() {
            for b in &sorted[n + 1..] {
                let s = separator(a, b);
                assert!(a.as_slice() <= s && s < b.as_slice(), "{a:?} {s:?} {b:?}");
                assert!(s.len() <= a.len().max(shared_prefix(a, b) + 1));
            }
        }
        assert_eq!(separator(b"apple pie", b"banana"), b"b");
    }

    #[test]
    fn the_search_finds_what_a_walk_finds() {
        for bytewise in [true, false] {
            for with_lsns in [false, true] {
                let order = if bytewise { Order::Bytewise } else { Order::Custom(&Backwards) };
                let mut fences: Vec<(Vec<u8>, u64)> = vec![];
                for (n, key) in keys().into_iter().enumerate() {
                    if with_lsns && n % 3 == 0 {
                        fences.push((key.clone(), 9));
                        fences.push((key.clone(), 5));
                    }
                    fences.push((key, 0));
                }
                fences.sort_by(|a, b| order.compare(&a.0, &b.0).then(b.1.cmp(&a.1)));
                for count in [1, 2, 3, 7, fences.len()] {
                    let fences = &fences[..count];
                    let mut builder = IndexBuilder::new(bytewise, 100);
                    for (n, (key, lsn)) in fences.iter().enumerate() {
                        builder.add(key, Lsn(*lsn), 100 + 10 * (n as u64 + 1));
                    }
                    let bytes = builder.finish();
                    assert!(bytes.len() <= builder.bytes());
                    let index = Index::parse(&bytes).expect("parses");
                    index.validate(order).expect("valid");
                    assert_eq!(
                        index.place(count - 1),
                        Ok(Place { offset: 90 + 10 * count as u64, bytes: 10 })
                    );
                    let mut probes: Vec<Vec<u8>> = fences.iter().map(|f| f.0.clone()).collect();
                    probes.extend([
                        vec![],
                        vec![7],
                        vec![7, 7],
                        vec![8],
                        vec![7, 7, 2, 0],
                        vec![6],
                        vec![255; 20],
                    ]);
                    probes.extend(fences.iter().map(|f| [&f.0[..], &[0]].concat()));
                    for key in &probes {
                        for lsn in [0, 1, 5, 6, 9, 10] {
                            let expected = fences
                                .iter()
                                .position(|f| order.compare(&f.0, key).then(lsn.cmp(&f.1)).is_ge())
                                .unwrap_or(count);
                            assert_eq!(index.find(order, key, Lsn(lsn)), Ok(expected), "{key:?} at {lsn}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn damaged_index_blocks_never_panic() {
        let mut builder = IndexBuilder::new(true, 0);
        for (n, key) in keys().iter().enumerate() {
            builder.add(key, Lsn(n as u64 % 2), 10 * (n as u64 + 1));
        }
        let good = builder.finish();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xa5;
            for bytes in [&good[..at], &bad] {
                if let Ok(index) = Index::parse(bytes) {
                    let _ = index.validate(Order::Bytewise);
                    for key in keys() {
                        let _ = index.find(Order::of(&Bytewise), &key, Lsn(1)).and_then(|n| index.place(n));
                    }
                }
            }
        }
    }
}
