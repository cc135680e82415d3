//! Horizons: which versions the same reads see.
//!
//! Place: `tombstones` keeps the newest of each horizon; scans make one for their snapshot, `compaction` one for all live
//! snapshots and the present.
//!
//! Reads happen at some bounds only, and a read at S sees what has an LSN < S. The *horizon* of an LSN is the smallest
//! bound above it: the earliest read that sees the LSN. Of two deletions of a key in one horizon no read sees the older
//! without the newer, so the newer does for both.
//!
//! Concurrency: values. Tests: below, and through every test of `tombstones` and `compaction::retain`.

use crate::key::Lsn;

/// The bounds of all reads that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Horizons {
    /// Ascending, each once; never empty.
    bounds: Vec<Lsn>,
}

impl Horizons {
    /// One read, at `bound`.
    pub fn at(bound: Lsn) -> Horizons {
        Horizons { bounds: vec![bound] }
    }

    /// Reads at `snapshots`, in any order, and at the present.
    pub fn of_snapshots(mut snapshots: Vec<Lsn>) -> Horizons {
        snapshots.push(Lsn::MAX);
        snapshots.sort_unstable();
        snapshots.dedup();
        Horizons { bounds: snapshots }
    }

    /// The number of `lsn`'s horizon, 0 for the lowest. O(log bounds).
    #[inline]
    pub fn of(&self, lsn: Lsn) -> usize {
        self.bounds.partition_point(|&s| s <= lsn)
    }

    /// True if some read sees `lsn`.
    #[inline]
    pub fn sees(&self, lsn: Lsn) -> bool {
        self.bounds.last().is_some_and(|&last| lsn < last)
    }

    /// True if there is one horizon for every LSN below MAX.
    #[inline]
    pub fn is_one(&self) -> bool {
        self.bounds.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_is_the_first_read_that_sees_the_lsn() {
        let reads = Horizons::of_snapshots(vec![Lsn(9), Lsn(4), Lsn(9)]);
        let numbers: Vec<usize> =
            [0, 3, 4, 8, 9, 1 << 60].into_iter().map(|lsn| reads.of(Lsn(lsn))).collect();
        assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
        assert!(reads.sees(Lsn(1 << 60)) && !reads.is_one());
        let one = Horizons::at(Lsn(4));
        assert!(one.sees(Lsn(3)) && !one.sees(Lsn(4)) && one.is_one());
        assert_eq!((one.of(Lsn(3)), one.of(Lsn(4))), (0, 1));
    }
}
