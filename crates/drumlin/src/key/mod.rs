//! Keys and versions: what is ordered, and how.
//!
//! Place: imported by every part above; imports nothing of the engine.
//!
//! A *version* of a key is (user key, [`Lsn`], [`Kind`], value). Versions are ordered by
//! user key ascending, then by LSN **descending**: the newest version of a key comes first.
//! That order is called the *internal order* everywhere in this crate.

mod comparator;
mod form;
mod hash;

pub use comparator::{BYTEWISE, Bytewise, Comparator, ComparatorRef, bytewise};
pub use form::KeyHash;
pub(crate) use form::{KeyBuffer, KeyForm, PLACE_BYTES, Placer, STORED_KEY_BYTES_MAX};
pub use hash::KeyHasher;

use std::fmt;
use std::ops::Range;

/// Longest user key, in bytes; what is stored of it may have a few more (`form`).
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Largest encoded batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// A log sequence number: a position in the log in units of 8 bytes.
///
/// It is at once a record's place in the log, its version and its cLSM timestamp.
/// Reads take an *exclusive* bound: a read at S sees the versions with LSN < S.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every version.
    pub const ZERO: Lsn = Lsn(0);
    /// After every version: a read at `MAX` sees the latest.
    pub const MAX: Lsn = Lsn(u64::MAX);
    /// No store gets here: 2^63 bytes of log. What is read and lies beyond is damage; below, the sums of a few positions
    /// do not overflow.
    pub const END: Lsn = Lsn(1 << 60);
    /// Bytes of log per LSN.
    pub const UNIT_BYTES: u64 = 8;
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Lsn::MAX { f.write_str("L∞") } else { write!(f, "L{}", self.0) }
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a version says about its key. The numbers are stored in logs and tables.
///
/// Must-understand rule: a reader that meets a kind below 0x80 that it does not know
/// must fail with a typed error; kinds from 0x80 on may be skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is absent as of this version (a tombstone).
    Delete = 0,
    /// The key has this value.
    Put = 1,
    /// Every key in [key, value) is absent as of this version.
    RangeDelete = 2,
    /// The key has the value that the reference in its place leads to: in tables alone.
    Apart = 4,
    // Reserved by docs/formats/decisions.md:
    // 3 merge operand, 5 put with expiry.
}

impl Kind {
    /// Decodes a stored kind; `None` for one that this build does not know.
    pub fn from_u8(byte: u8) -> Option<Kind> {
        match byte {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::RangeDelete),
            4 => Some(Kind::Apart),
            _ => None,
        }
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Delete => "delete",
            Kind::Put => "put",
            Kind::RangeDelete => "delete_range",
            Kind::Apart => "put, value apart",
        }
    }
}

/// The first eight bytes of a key as a number, short keys padded with zeros. In the order of bytes, two keys whose numbers
/// differ are in the order of their numbers. Test: the_prefix_orders_as_the_keys_do_wherever_two_differ.
#[inline]
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Of the prefixes of ascending keys, as little-endian bytes: those that are `target`; if none is, the empty range where they
/// would be. O(log n), without a branch that a processor cannot foretell.
#[inline]
pub(crate) fn equal_heads(heads: &[[u8; 8]], target: u64) -> Range<usize> {
    let is_below = |limit| move |at: usize| u64::from_le_bytes(heads[at]) < limit;
    let low = first_where_not(0..heads.len(), is_below(target));
    if heads.get(low).is_none_or(|head| u64::from_le_bytes(*head) != target) {
        return low..low;
    }
    let above = |above| first_where_not(low..heads.len(), is_below(above));
    low..target.checked_add(1).map_or(heads.len(), above)
}

/// The first number of a range for which `holds` does not, which holds for those before it and for none behind; its end if it holds for
/// all. O(log n), without a branch that a processor cannot foretell.
#[inline]
pub(crate) fn first_where_not(range: Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let mut base = range.start;
    let mut size = range.len();
    while size > 1 {
        let half = size / 2;
        base = if holds(base + half - 1) { base + half } else { base };
        size -= half;
    }
    base + usize::from(size > 0 && holds(base))
}

/// Where a key lies that does not begin as others do, in the order of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before all of them.
    Before,
    /// Behind all of them.
    Behind,
}

/// What is left of `key` behind `prefix`; or where it lies to all keys that begin with that.
#[inline]
pub(crate) fn behind_prefix<'k>(key: &'k [u8], prefix: &[u8]) -> Result<&'k [u8], Side> {
    let common = shared_prefix(key, prefix);
    if common == prefix.len() {
        return Ok(&key[common..]);
    }
    // Where the key ends first, it comes before.
    Err(if key.get(common) > prefix.get(common) { Side::Behind } else { Side::Before })
}

/// Length of the longest common prefix.
#[inline]
pub(crate) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk::<8>(), b[at..].first_chunk::<8>()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return at + (difference.trailing_zeros() as usize >> 3);
        }
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

/// Orders two versions by the internal order.
#[inline]
#[cfg(test)]
pub fn compare_versions(comparator: &dyn Comparator, a: (&[u8], Lsn), b: (&[u8], Lsn)) -> std::cmp::Ordering {
    comparator.compare(a.0, b.0).then_with(|| b.1.cmp(&a.1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_lies_before_a_prefix_behind_it_or_has_a_rest() {
        let letters = |n: usize| {
            (0..3usize.pow(n as u32))
                .map(move |m| (0..n).map(|at| (m / 3usize.pow(at as u32) % 3) as u8).collect())
        };
        let all: Vec<Vec<u8>> = (0..4).flat_map(letters).collect();
        for (key, prefix) in all.iter().flat_map(|key| all.iter().map(move |prefix| (key, prefix))) {
            let told = match key.strip_prefix(&prefix[..]) {
                Some(rest) => Ok(rest),
                None if key < prefix => Err(Side::Before),
                None => Err(Side::Behind),
            };
            assert_eq!(behind_prefix(key, prefix), told, "{key:?} {prefix:?}");
        }
    }
}
