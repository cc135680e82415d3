//! Data blocks: entries that are searched where they lie.
//!
//! Place: the writer fills a [`BlockBuilder`]; gets search a [`Block`] in place ([`Block::find`]);
//! cursors walk it (`walk`).
//!
//! What is needed to find an entry stands at the front, in a few lines of cache that are loaded together: the bytes that all
//! keys begin with, once; two more bytes of each key; where each entry ends. A get halves the two-byte heads and then mostly
//! looks at the one entry that it wants.
//!
//! Invariants:
//! 1. Entries are strictly ascending in internal order.
//! 2. Under the order of bytes the prefix is the *longest* that all keys have in common, and each head is that of its key.
//!    The search depends on the second. Under another order there are neither.
//! 3. Parsing never panics: what does not fit is [`Malformed`].
//!
//! Bytes (integers little endian, arrays of `count`):
//! ```text
//! 0   count  u32          at least 1
//! 4   flags  u32          bit 0: heads; bit 1: ends of four bytes; others 0
//! 8   prefix length u32   0 without heads
//! 12  heads  u16 each     (bit 0) the first two bytes of each suffix as a big-endian number, padded with zeros
//!     ends   u16 or u32 each, offset behind each entry, from the first entry on
//!     prefix
//!     entries
//! entry = kind u8 | lsn varint | suffix length varint | suffix | value
//! ```
//! Origin: ours; sLSM §2.4's binary search between fences, carried on within the block.
//! Tests: below, `walk`, `table/tests/`.

use std::cmp::Ordering;
use std::ops::Range;

use crate::encoding::{Decoder, Malformed, get_varint, put_varint, varint_bytes};
use crate::key::{Comparator, Lsn, Side, behind_prefix, shared_prefix};

const HEADER_BYTES: usize = 12;
const HEADS: u32 = 1;
const WIDE: u32 = 2;
const HEAD_BYTES: usize = size_of::<u16>();
/// Bytes of entries that ends of two bytes can tell.
const NARROW_BYTES_MAX: usize = u16::MAX as usize;

/// Two bytes of a key, as a number in the order of bytes.
#[inline]
fn head(suffix: &[u8]) -> u16 {
    match suffix {
        [] => 0,
        [a] => u16::from_be_bytes([*a, 0]),
        [a, b, ..] => u16::from_be_bytes([*a, *b]),
    }
}

/// An entry that waits for its block's prefix.
struct Staged {
    key_end: usize,
    value_end: usize,
    lsn: Lsn,
    kind: u8,
}

/// Collects the entries of one block.
pub(super) struct BlockBuilder {
    bytewise: bool,
    /// Keys and values, one behind the other.
    staged: Vec<u8>,
    entries: Vec<Staged>,
    /// Length of what all keys have in common.
    prefix: usize,
    /// Bytes of the entries if they had whole keys.
    whole_bytes: usize,
    last_key: Vec<u8>,
    out: Vec<u8>,
}

impl BlockBuilder {
    /// A builder for keys in the order of bytes, or in another.
    pub(super) fn new(bytewise: bool) -> BlockBuilder {
        BlockBuilder {
            bytewise,
            staged: Vec::new(),
            entries: Vec::new(),
            prefix: 0,
            whole_bytes: 0,
            last_key: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Appends an entry; the caller keeps the order.
    pub(super) fn add(&mut self, key: &[u8], lsn: Lsn, kind: u8, value: &[u8]) {
        self.prefix = self.prefix_with(key);
        self.whole_bytes += whole_entry_bytes(key, lsn, value);
        self.staged.extend_from_slice(key);
        let key_end = self.staged.len();
        self.staged.extend_from_slice(value);
        self.entries.push(Staged { key_end, value_end: self.staged.len(), lsn, kind });
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    fn prefix_with(&self, key: &[u8]) -> usize {
        match self.entries.first() {
            _ if !self.bytewise => 0,
            None => key.len(),
            // The others lie between the first and this one.
            Some(first) => shared_prefix(&self.staged[..first.key_end], key).min(self.prefix),
        }
    }

    /// Bytes of the block if it were finished now, at most.
    pub(super) fn bytes(&self) -> usize {
        block_bytes(self.bytewise, self.entries.len(), self.prefix, self.whole_bytes)
    }

    /// The same with one entry more.
    pub(super) fn bytes_with(&self, key: &[u8], lsn: Lsn, value: &[u8]) -> usize {
        let whole_bytes = self.whole_bytes + whole_entry_bytes(key, lsn, value);
        block_bytes(self.bytewise, self.entries.len() + 1, self.prefix_with(key), whole_bytes)
    }

    /// Entries that it holds.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if it holds no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key added last.
    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The finished block; behind it as many zeros as `padding` says of its bytes.
    pub(super) fn finish(&mut self, padding: impl Fn(usize) -> usize) -> &[u8] {
        let count = self.entries.len();
        let wide = self.whole_bytes - count * self.prefix > NARROW_BYTES_MAX;
        let flags = if self.bytewise { HEADS } else { 0 } | if wide { WIDE } else { 0 };
        let out = &mut self.out;
        out.clear();
        for number in [count as u32, flags, self.prefix as u32] {
            out.extend(number.to_le_bytes());
        }
        let mut key_from = 0;
        if self.bytewise {
            for entry in &self.entries {
                out.extend(head(&self.staged[key_from + self.prefix..entry.key_end]).to_le_bytes());
                key_from = entry.value_end;
            }
        }
        let ends_at = out.len();
        let end_bytes = if wide { 4 } else { 2 };
        out.resize(ends_at + count * end_bytes, 0);
        out.extend_from_slice(&self.staged[..self.prefix]);
        let entries_at = out.len();
        key_from = 0;
        for (n, entry) in self.entries.iter().enumerate() {
            let suffix = &self.staged[key_from + self.prefix..entry.key_end];
            out.push(entry.kind);
            put_varint(out, entry.lsn.0);
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix);
            out.extend_from_slice(&self.staged[entry.key_end..entry.value_end]);
            let end = ((out.len() - entries_at) as u32).to_le_bytes();
            out[ends_at + n * end_bytes..][..end_bytes].copy_from_slice(&end[..end_bytes]);
            key_from = entry.value_end;
        }
        let zeros = padding(out.len());
        out.resize(out.len() + zeros, 0);
        &self.out
    }

    /// Starts the next block; memory beyond `keep` bytes is given back.
    pub(super) fn clear(&mut self, keep: usize) {
        for buffer in [&mut self.staged, &mut self.out] {
            buffer.clear();
            buffer.shrink_to(keep);
        }
        self.entries.clear();
        self.whole_bytes = 0;
        self.prefix = 0;
    }
}

/// Bytes of an entry with its whole key, at most.
fn whole_entry_bytes(key: &[u8], lsn: Lsn, value: &[u8]) -> usize {
    1 + varint_bytes(lsn.0) + varint_bytes(key.len() as u64) + key.len() + value.len()
}

fn block_bytes(bytewise: bool, count: usize, prefix: usize, whole_bytes: usize) -> usize {
    let entry_bytes = whole_bytes - count * prefix;
    let end_bytes = if entry_bytes > NARROW_BYTES_MAX { 4 } else { 2 };
    let head_bytes = if bytewise { HEAD_BYTES } else { 0 };
    HEADER_BYTES + count * (head_bytes + end_bytes) + prefix + entry_bytes
}

/// A block being read in place.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    heads: Option<&'a [[u8; HEAD_BYTES]]>,
    ends: Ends<'a>,
    prefix: &'a [u8],
    entries: &'a [u8],
    /// Where the entries begin in the block.
    entries_at: usize,
}

/// Where entries end.
#[derive(Clone, Copy)]
enum Ends<'a> {
    Narrow(&'a [[u8; 2]]),
    Wide(&'a [[u8; 4]]),
}

impl Ends<'_> {
    #[inline(always)]
    fn get(&self, n: usize) -> Option<usize> {
        match self {
            Ends::Narrow(ends) => ends.get(n).map(|end| u16::from_le_bytes(*end) as usize),
            Ends::Wide(ends) => ends.get(n).map(|end| u32::from_le_bytes(*end) as usize),
        }
    }
}

/// One entry; its key is the block's prefix, then `suffix`.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) suffix: &'a [u8],
    pub(super) lsn: Lsn,
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
    /// Where the value ends in the block.
    value_end: usize,
}

impl<'a> Entry<'a> {
    /// The entry of these bytes, which end at `end` in the block.
    #[inline(always)]
    pub(super) fn parse(bytes: &'a [u8], end: usize) -> Result<Entry<'a>, Malformed> {
        let kind = *bytes.first().ok_or(Malformed)?;
        let mut at = 1;
        let lsn = Lsn(get_varint(bytes, &mut at)?);
        let suffix_bytes = match bytes.get(at) {
            Some(&short) if short < 0x80 => {
                at += 1;
                short as usize
            }
            _ => usize::try_from(get_varint(bytes, &mut at)?).or(Err(Malformed))?,
        };
        let (suffix, value) = bytes[at..].split_at_checked(suffix_bytes).ok_or(Malformed)?;
        Ok(Entry { suffix, lsn, kind, value, value_end: end })
    }

    /// Where the value lies in the block.
    #[inline]
    pub(super) fn value_at(&self) -> Range<usize> {
        self.value_end - self.value.len()..self.value_end
    }
}

impl<'a> Block<'a> {
    /// Finds the parts of a block. O(1).
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Block<'a>, Malformed> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed)?;
        let mut header = Decoder::new(header);
        let (count, flags, prefix_bytes) = (header.u32()? as usize, header.u32()?, header.u32()? as usize);
        let prefix_allowed = flags & HEADS != 0 || prefix_bytes == 0;
        if count == 0 || flags & !(HEADS | WIDE) != 0 || !prefix_allowed {
            return Err(Malformed);
        }
        let mut rest = Decoder::new(rest);
        let heads =
            if flags & HEADS != 0 { Some(rest.take(count * HEAD_BYTES)?.as_chunks().0) } else { None };
        let ends = match flags & WIDE {
            0 => Ends::Narrow(rest.take(count * 2)?.as_chunks().0),
            _ => Ends::Wide(rest.take(count * 4)?.as_chunks().0),
        };
        let prefix = rest.take(prefix_bytes)?;
        let entries = rest.rest();
        Ok(Block { heads, ends, prefix, entries, entries_at: bytes.len() - entries.len() })
    }

    /// Number of entries; at least 1.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self.ends {
            Ends::Narrow(ends) => ends.len(),
            Ends::Wide(ends) => ends.len(),
        }
    }

    /// What every key begins with.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        self.prefix
    }

    /// Where the `n`-th entry begins in the block.
    pub(super) fn offset(&self, n: usize) -> Option<usize> {
        let start = n.checked_sub(1).map_or(Some(0), |before| self.ends.get(before))?;
        Some(self.entries_at + start)
    }

    /// The `n`-th entry.
    #[inline(always)]
    pub(super) fn entry(&self, n: usize) -> Result<Entry<'a>, Malformed> {
        let end = self.ends.get(n).ok_or(Malformed)?;
        let start = match n.checked_sub(1) {
            Some(before) => self.ends.get(before).ok_or(Malformed)?,
            None => 0,
        };
        Entry::parse(self.entries.get(start..end).ok_or(Malformed)?, self.entries_at + end)
    }

    /// Where its parts lie.
    pub(super) fn layout(&self) -> Layout {
        let count = self.len();
        let end_bytes = match self.ends {
            Ends::Narrow(_) => 2,
            Ends::Wide(_) => 4,
        };
        let prefix_at = self.entries_at - self.prefix.len();
        Layout { count, end_bytes, ends_at: prefix_at - count * end_bytes, entries_at: self.entries_at }
    }

    /// Checks what `parse` and `entry` do not: that behind the entries are zeros alone, the prefix is as long as can be, and heads
    /// are those of their keys. O(bytes).
    pub(super) fn validate(&self, order: Order<'_>) -> Result<(), Malformed> {
        if self.heads.is_some() != matches!(order, Order::Bytewise) {
            return Err(Malformed);
        }
        let last = self.len() - 1;
        let behind = self.ends.get(last).and_then(|end| self.entries.get(end..)).ok_or(Malformed)?;
        if behind.iter().any(|byte| *byte != 0) {
            return Err(Malformed);
        }
        let Some(heads) = self.heads else { return Ok(()) };
        for (n, stored) in heads.iter().enumerate() {
            if u16::from_le_bytes(*stored) != head(self.entry(n)?.suffix) {
                return Err(Malformed);
            }
        }
        match shared_prefix(self.entry(0)?.suffix, self.entry(last)?.suffix) {
            0 => Ok(()),
            _ => Err(Malformed),
        }
    }

    /// The first entry at or behind (key, lsn) in internal order; `len()` if there is none. O(log count).
    #[inline]
    pub(super) fn position(&self, order: Order<'_>, key: &[u8], lsn: Lsn) -> Result<usize, Malformed> {
        let (rest, low, high) = match (order, self.heads) {
            (Order::Bytewise, Some(heads)) => {
                let rest = match behind_prefix(key, self.prefix) {
                    Ok(rest) => rest,
                    Err(Side::Before) => return Ok(0),
                    Err(Side::Behind) => return Ok(self.len()),
                };
                let wanted = head(rest);
                let low = first_at_least(heads, wanted);
                // Versions of one key are all alike here.
                let high = wanted.checked_add(1).map_or(heads.len(), |above| first_at_least(heads, above));
                (rest, low, high)
            }
            (Order::Custom(_), None) => (key, 0, self.len()),
            _ => return Err(Malformed),
        };
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(middle)?;
            let before = order.compare(entry.suffix, rest).then_with(|| lsn.cmp(&entry.lsn)).is_lt();
            if before { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// The newest version of `key` with LSN ≤ `lsn`, if the block holds one. O(log count), nothing allocated.
    #[inline]
    pub(super) fn find(
        &self,
        order: Order<'_>,
        key: &[u8],
        lsn: Lsn,
    ) -> Result<Option<Entry<'a>>, Malformed> {
        let position = self.position(order, key, lsn)?;
        if position == self.len() {
            return Ok(None);
        }
        let entry = self.entry(position)?;
        Ok((key.strip_prefix(self.prefix) == Some(entry.suffix)).then_some(entry))
    }
}

/// Where the parts of a block lie that a walk needs, so that it parses a block once and not at every step.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout {
    /// Number of entries.
    pub(super) count: usize,
    /// Bytes of each of `ends`: 2 or 4.
    end_bytes: usize,
    ends_at: usize,
    /// Where the first entry begins.
    pub(super) entries_at: usize,
}

impl Layout {
    /// Where the `n`-th entry ends in the block, of which `bytes` are all.
    #[inline(always)]
    pub(super) fn end(&self, bytes: &[u8], n: usize) -> Result<usize, Malformed> {
        let rest = bytes.get(self.ends_at + n * self.end_bytes..).ok_or(Malformed)?;
        let end = match self.end_bytes {
            2 => u16::from_le_bytes(*rest.first_chunk().ok_or(Malformed)?) as usize,
            _ => u32::from_le_bytes(*rest.first_chunk().ok_or(Malformed)?) as usize,
        };
        Ok(self.entries_at + end)
    }
}

/// The first position whose head is at least `wanted`. Heads of a block of usual size are counted many at a time.
#[inline]
fn first_at_least(heads: &[[u8; HEAD_BYTES]], wanted: u16) -> usize {
    const COUNTED: usize = 256;
    let mut base = 0;
    let mut size = heads.len();
    while size > COUNTED {
        let half = size / 2;
        base = if u16::from_le_bytes(heads[base + half - 1]) < wanted { base + half } else { base };
        size -= half;
    }
    let below = heads[base..base + size].iter().map(|head| u16::from(u16::from_le_bytes(*head) < wanted));
    base + usize::from(below.sum::<u16>())
}

/// The order of keys, told apart once per search rather than once per comparison.
#[derive(Clone, Copy)]
pub(super) enum Order<'a> {
    /// The order of bytes.
    Bytewise,
    /// Somebody's own.
    Custom(&'a dyn Comparator),
}

impl<'a> Order<'a> {
    /// The order of a comparator.
    #[inline]
    pub(super) fn of(comparator: &'a dyn Comparator) -> Order<'a> {
        if comparator.is_bytewise() { Order::Bytewise } else { Order::Custom(comparator) }
    }

    /// Compares two keys.
    #[inline]
    pub(super) fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Order::Bytewise => a.cmp(b),
            Order::Custom(comparator) => comparator.compare(a, b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(keys: &[&[u8]], value_bytes: usize) -> (Vec<u8>, usize) {
        let mut builder = BlockBuilder::new(true);
        for (n, key) in keys.iter().enumerate() {
            let value = vec![n as u8; value_bytes];
            let expected = builder.bytes_with(key, Lsn(7), &value);
            builder.add(key, Lsn(7), 1, &value);
            assert_eq!(builder.bytes(), expected);
        }
        let most = builder.bytes();
        (builder.finish(|_| 0).to_vec(), most)
    }

    #[test]
    fn a_search_finds_what_a_walk_over_all_entries_finds() {
        let keys: Vec<&[u8]> = vec![
            b"aa", b"aa\0", b"aa\0\0", b"aab", b"aabc", b"aabcd", b"aabd", b"aac", b"aac\xff", b"aad\0\0",
        ];
        let probes: Vec<Vec<u8>> = keys
            .iter()
            .flat_map(|key| {
                [key.to_vec(), [*key, b"\0"].concat(), [*key, b"\xff"].concat(), key[..1].to_vec()]
            })
            .chain([vec![], b"a".to_vec(), b"b".to_vec(), b"aaa".to_vec()])
            .collect();
        for first in 0..keys.len() {
            for last in first + 1..=keys.len() {
                let (bytes, most) = built(&keys[first..last], 3);
                assert!(bytes.len() <= most);
                let block = Block::parse(&bytes).expect("whole");
                block.validate(Order::Bytewise).expect("sound");
                for key in &probes {
                    for (lsn, same_counts) in [(7, true), (8, true), (6, false)] {
                        let wanted = keys[first..last].partition_point(|k| {
                            k.cmp(&key.as_slice())
                                .then(if same_counts { Ordering::Equal } else { Ordering::Less })
                                .is_lt()
                        });
                        let at = block.position(Order::Bytewise, key, Lsn(lsn)).expect("sound");
                        assert_eq!(at, wanted, "{key:?} at {lsn} of {:?}", &keys[first..last]);
                        let found = block.find(Order::Bytewise, key, Lsn(lsn)).expect("sound").is_some();
                        assert_eq!(found, same_counts && keys[first..last].contains(&key.as_slice()));
                    }
                }
            }
        }
    }

    #[test]
    fn many_entries_and_large_ones_are_found() {
        for (count, value_bytes) in [(1, 70_000), (3, 70_000), (700, 0), (700, 5), (5000, 40)] {
            let keys: Vec<Vec<u8>> =
                (0..count).map(|n: u32| format!("key{:08}", n * 3).into_bytes()).collect();
            let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let (bytes, most) = built(&borrowed, value_bytes);
            assert!(bytes.len() <= most && most <= bytes.len() + 4 * borrowed.len());
            let block = Block::parse(&bytes).expect("whole");
            block.validate(Order::Bytewise).expect("sound");
            assert_eq!(block.len(), keys.len());
            for (n, key) in keys.iter().enumerate() {
                let entry = block.find(Order::Bytewise, key, Lsn(7)).expect("sound").expect("there");
                assert_eq!(entry.value, vec![n as u8; value_bytes]);
                assert_eq!(&bytes[entry.value_at()], entry.value);
                let between = [key.as_slice(), b"x"].concat();
                assert_eq!(block.position(Order::Bytewise, &between, Lsn(7)).expect("sound"), n + 1);
            }
        }
    }

    #[test]
    fn no_byte_makes_a_block_panic() {
        let keys: Vec<Vec<u8>> = (0..9).map(|n| format!("key{n}").into_bytes()).collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let (bytes, _) = built(&borrowed, 2);
        let read_all = |bytes: &[u8]| {
            let Ok(block) = Block::parse(bytes) else { return };
            let _ = block.validate(Order::Bytewise);
            for n in 0..block.len().min(100) {
                let _ = block.entry(n);
            }
            for key in &keys {
                let _ = block.find(Order::Bytewise, key, Lsn(7));
            }
        };
        for at in 0..bytes.len() {
            read_all(&bytes[..at]);
            for byte in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = byte;
                read_all(&changed);
            }
        }
    }
}
