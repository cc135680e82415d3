//! Shape: how many buckets a table has, and which of them a place is at home in.
//!
//! Place: the writer makes one for the entries that it has; properties store it; searches and walks ask it.
//!
//! A table's buckets share out the span of places from its first key's to its last key's evenly, in order: so a walk bucket by
//! bucket is a walk by place, and a table is even whatever part of all places it spans.
//!
//! Invariants:
//! 1. `home` is monotone in the place, below the number of buckets, and the same for writer and reader: integers only.
//! 2. `start` of a bucket is the first place that is at home in it or behind.
//!
//! Complexity: a multiplication. Tests: below. Origin: LSM-trie §2.4.2, where the bucket is the hash's suffix modulo their number;
//! the difference: docs/design/trie.md.

/// Most buckets that a table has: their numbers are stored in two bytes.
pub(in crate::table) const BUCKETS_MAX: usize = u16::MAX as usize;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Shape {
    first: u64,
    last: u64,
    buckets: u32,
    /// Buckets for each place, times 2^64.
    factor: u128,
}

impl Shape {
    /// So many buckets, one at least, for the places from `first` to `last`.
    pub(in crate::table) fn new(first: u64, last: u64, buckets: usize) -> Shape {
        debug_assert!(first <= last && (1..=BUCKETS_MAX).contains(&buckets));
        let span = u128::from(last - first) + 1;
        Shape { first, last, buckets: buckets as u32, factor: ((buckets as u128) << 64) / span }
    }

    pub(in crate::table) fn buckets(&self) -> usize {
        self.buckets as usize
    }

    /// The last place of the table.
    pub(in crate::table) fn last(&self) -> u64 {
        self.last
    }

    /// True if the place lies within the table's span.
    #[inline]
    pub(in crate::table) fn spans(&self, place: u64) -> bool {
        (self.first..=self.last).contains(&place)
    }

    /// The bucket that a place within the span is at home in; of others the first or the last one.
    #[inline]
    pub(in crate::table) fn home(&self, place: u64) -> usize {
        let from_first = u128::from(place.clamp(self.first, self.last) - self.first);
        // Below buckets * 2^64: the factor is rounded down.
        ((from_first * self.factor) >> 64) as usize
    }

    /// The first place that is at home in a bucket, or in one behind; `None` if there is none.
    pub(in crate::table) fn start(&self, bucket: usize) -> Option<u64> {
        let from_first = ((bucket as u128) << 64).div_ceil(self.factor);
        let place = u128::from(self.first) + from_first;
        (place <= u128::from(self.last)).then_some(place as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn homes_ascend_and_starts_are_where_they_begin() {
        let mut dice = Dice(3);
        for round in 0..2000 {
            let (a, b) = (dice.next(), dice.next());
            let (first, last) = match round % 4 {
                0 => (a.min(b), a.max(b)),
                1 => (a, a.saturating_add(dice.below(100))),
                2 => (0, u64::MAX),
                _ => (a, a),
            };
            let buckets = 1 + dice.below([3, 100, BUCKETS_MAX as u64][round % 3]) as usize;
            let shape = Shape::new(first, last, buckets);
            assert_eq!(shape.home(first), 0);
            assert!(shape.home(last) < buckets);
            for _ in 0..20 {
                let bucket = dice.below(buckets as u64) as usize;
                let Some(start) = shape.start(bucket) else {
                    assert!(shape.home(last) < bucket);
                    continue;
                };
                assert!(shape.spans(start) && shape.home(start) >= bucket, "{shape:?} {bucket}");
                assert!(start == first || shape.home(start - 1) < bucket, "{shape:?} {bucket}");
            }
        }
    }

    #[test]
    fn places_are_shared_out_evenly() {
        let shape = Shape::new(1 << 60, 3 << 60, 1000);
        let mut dice = Dice(4);
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[shape.home((1 << 60) + dice.below(2 << 60))] += 1;
        }
        assert!(counts.iter().all(|count| (30..200).contains(count)), "{counts:?}");
    }
}
