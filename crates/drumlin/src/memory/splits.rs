//! Where the order of keys is cut into parts that about as many writes go to.
//!
//! Place: `backlog` keeps notes of each part apart, so that a walk has only those parts sorted that it comes to; `db` takes the
//! splits of one generation from the one before.
//!
//! Invariants:
//! 1. Parts follow the order of bytes: of two keys the smaller one is in the same part, or one before. (Other orders have
//!    one part.)
//!
//! Concurrency: never changed. Complexity: O(log parts), in one or two lines of cache.
//! Origin: FloDB §4.3 cuts by the key's top bits; keys that begin alike are then in one part. Tests: below.

use crate::key::{Side, behind_prefix, key_prefix, shared_prefix};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splits {
    /// What the keys at which it is cut begin with.
    prefix: Box<[u8]>,
    /// The eight bytes behind that of each, ascending: the first of a part.
    heads: Box<[u64]>,
}

impl Splits {
    /// One part.
    pub fn none() -> Splits {
        Splits::default()
    }

    /// Parts by the first bits of a key: 2^bits (the paper's way).
    pub fn of_top_bits(bits: u32) -> Splits {
        debug_assert!(bits < u64::BITS);
        Splits {
            prefix: Box::default(),
            heads: (1..1 << bits).map(|n: u64| n << (u64::BITS - bits)).collect(),
        }
    }

    /// At most so many parts, cut at some of these keys, which are about as far apart; in any order.
    pub fn at(mut keys: Vec<&[u8]>, parts: usize) -> Splits {
        keys.sort_unstable();
        keys.dedup();
        let [first, .., last] = &keys[..] else { return Splits::none() };
        // Of all in between, too, since they are in order.
        let prefix = &first[..shared_prefix(first, last)];
        let chosen = (1..parts).map(|n| keys[n * keys.len() / parts]);
        let mut heads: Vec<u64> = chosen.map(|key| key_prefix(&key[prefix.len()..])).collect();
        heads.dedup();
        Splits { prefix: prefix.into(), heads: heads.into() }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.heads.len() + 1
    }

    /// The part of a key.
    #[inline]
    pub fn part_of(&self, key: &[u8]) -> usize {
        match self.head(key) {
            Ok(head) => self.heads.partition_point(|first| *first <= head),
            Err(Side::Before) => 0,
            Err(Side::Behind) => self.heads.len(),
        }
    }

    /// True if the key's part is `part` or one before it.
    #[inline]
    pub fn is_within(&self, key: &[u8], part: usize) -> bool {
        let Some(end) = self.heads.get(part) else { return true };
        match self.head(key) {
            Ok(head) => head < *end,
            Err(side) => side == Side::Before,
        }
    }

    #[inline]
    fn head(&self, key: &[u8]) -> Result<u64, Side> {
        behind_prefix(key, &self.prefix).map(key_prefix)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Keys that begin alike, and some around them.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<_> =
            (0..1000u32).map(|n| [b"user:".as_slice(), &(n * n).to_be_bytes()].concat()).collect();
        keys.extend(
            [&b""[..], b"a", b"user", b"user:", b"user:\xff\xff\xff\xff\xff", b"v", b"\xff"].map(Vec::from),
        );
        keys.sort();
        keys
    }

    #[test]
    fn parts_follow_the_order_of_keys() {
        let keys = keys();
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let inner = &all[4..all.len() - 3];
        // As a guide gives them: those before its first sign somewhere behind, and short ones among others.
        let mut shuffled = all.clone();
        shuffled.rotate_left(all.len() / 3);
        for splits in
            [Splits::none(), Splits::of_top_bits(4), Splits::at(inner.to_vec(), 16), Splits::at(shuffled, 16)]
        {
            let parts: Vec<_> = all.iter().map(|key| splits.part_of(key)).collect();
            assert!(parts.is_sorted(), "{splits:?}: {parts:?}");
            assert!(parts.iter().all(|part| *part < splits.parts()));
            for (key, part) in all.iter().zip(parts) {
                for other in 0..splits.parts() {
                    assert_eq!(splits.is_within(key, other), part <= other, "{splits:?}");
                }
            }
        }
    }

    #[test]
    fn parts_cut_at_keys_are_about_as_large() {
        let keys = keys();
        let inner: Vec<&[u8]> = keys[4..keys.len() - 3].iter().map(Vec::as_slice).collect();
        let splits = Splits::at(inner.clone(), 16);
        assert_eq!(splits.parts(), 16);
        let mut sizes = [0; 16];
        inner.iter().for_each(|key| sizes[splits.part_of(key)] += 1);
        assert!(sizes.iter().all(|size| (55..=70).contains(size)), "{sizes:?}");
        let mut by_bits = [0; 16];
        inner.iter().for_each(|key| by_bits[Splits::of_top_bits(4).part_of(key)] += 1);
        assert_eq!(by_bits[7], inner.len(), "keys that begin alike are in one part by their first bits");
    }

    #[test]
    fn few_or_equal_keys_make_few_parts() {
        assert_eq!(Splits::at(vec![], 8), Splits::none());
        assert_eq!(Splits::at(vec![b"a"], 8), Splits::none());
        assert_eq!(Splits::at(vec![b"a", b"b"], 8).parts(), 3);
        assert_eq!(Splits::at(vec![b"same", b"same", b"same"], 3), Splits::none());
    }
}
