//! A run: range tombstones of a memtable that are asked together.
//!
//! Place: `tombstone_set` holds a sequence of runs and joins them. It calls `iter::Tombstones` for look-ups.
//!
//! A run is a *leaf*, the ranges of one write, or joined from others, its *parts*. Of each key it knows the newest
//! tombstone. A read below that one, of an old snapshot, goes on to the parts: of parts that were written one after the
//! other all but one are wholly below the read, or wholly above it.
//!
//! Invariants:
//! 1. The leaves below a run are the writes that were joined into it, each once.
//! 2. What covers a key in a part covers it in the run, by the newest LSN of all parts.
//! 3. A joined run holds committed writes only; a leaf knows the slot of its batch.
//!
//! Complexity: a run of n ranges has up to 2n fragments, and as many again for every level of parts below; a level has up to
//! `PARTS_MAX` times the runs of the one above. So O(n log n) bytes: about 1 KiB a range for 3000 with nothing in common. A look-up takes
//! O(log n) where the newest tombstone of the key answers, O(PARTS_MAX log² n) for older reads.
//! Concurrency: immutable. Bytes: charged before they are taken, given back when the run is dropped.
//! Tests: `tombstone_set`.

use std::sync::Arc;

use crate::budget::{Account, Charge};
use crate::iter::{Horizons, RangeTombstone, Tombstones};
use crate::key::{Comparator, Lsn};

/// Parts of parts are taken over, rather than the parts, while they are no more than this.
const PARTS_MAX: usize = 16;

/// The ranges of one write in one keyspace, cut and charged before its locks are taken.
pub struct ReservedRanges {
    ranges: Tombstones,
    charge: Charge,
}

impl ReservedRanges {
    /// Ranges [start, end), in any order, overlapping as they like; those that cover nothing are left out. O(n log n).
    pub(super) fn new(
        comparator: &dyn Comparator,
        account: &Arc<Account>,
        ranges: &[(&[u8], &[u8])],
    ) -> ReservedRanges {
        let keys: usize = ranges.iter().map(|(start, end)| start.len() + end.len()).sum();
        let mut charge = account.charge(2 * keys + ranges.len() * 2 * size_of::<RangeTombstone<&[u8]>>());
        let all = ranges.iter().map(|&(start, end)| RangeTombstone { start, end, lsn: Lsn::ZERO });
        let ranges = Tombstones::build(comparator, all.collect(), &Horizons::at(Lsn::MAX));
        charge.set(size_of::<Run>() + ranges.heap_bytes());
        ReservedRanges { ranges, charge }
    }

    /// True if they cover no key.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// See the module.
pub(super) struct Run {
    /// Of each key the newest.
    newest_of_key: Arc<Tombstones>,
    /// Least and greatest LSN.
    oldest: Lsn,
    newest: Lsn,
    /// Ranges of all leaves.
    ranges: usize,
    /// A leaf's slot, if it came with a batch.
    batch: Option<u32>,
    /// In the order of their publication; none if it is a leaf.
    parts: Vec<Arc<Run>>,
    /// Bytes held, by the parts too.
    bytes: usize,
    _charge: Charge,
}

impl Run {
    /// A leaf. O(ranges), without a comparison.
    pub fn leaf(mut reserved: ReservedRanges, lsn: Lsn, batch: Option<u32>) -> Run {
        reserved.ranges.set_lsn(lsn);
        Run {
            oldest: lsn,
            newest: lsn,
            ranges: reserved.ranges.fragments(),
            batch,
            parts: Vec::new(),
            bytes: size_of::<Run>() + reserved.ranges.heap_bytes(),
            newest_of_key: Arc::new(reserved.ranges),
            _charge: reserved.charge,
        }
    }

    /// Joins committed runs, in the order of their publication.
    pub fn joined(comparator: &dyn Comparator, account: &Arc<Account>, runs: &[Arc<Run>]) -> Run {
        let sets: Vec<Arc<Tombstones>> = runs.iter().map(|run| Arc::clone(&run.newest_of_key)).collect();
        let mut charge = account.charge(Tombstones::join_bytes(&sets));
        let newest_of_key = Tombstones::join(comparator, &sets, &Horizons::at(Lsn::MAX), (None, None));
        let are_few = runs.iter().map(|run| run.parts.len().max(1)).sum::<usize>() <= PARTS_MAX;
        let parts: Vec<Arc<Run>> = runs
            .iter()
            .flat_map(|run| {
                if are_few && !run.parts.is_empty() { &run.parts[..] } else { std::slice::from_ref(run) }
            })
            .cloned()
            .collect();
        let own = size_of::<Run>() + newest_of_key.heap_bytes() + parts.len() * size_of::<Arc<Run>>();
        charge.set(own);
        Run {
            newest_of_key: Arc::new(newest_of_key),
            oldest: runs.iter().map(|run| run.oldest).min().unwrap_or(Lsn::MAX),
            newest: runs.iter().map(|run| run.newest).max().unwrap_or(Lsn::ZERO),
            ranges: runs.iter().map(|run| run.ranges).sum(),
            batch: None,
            bytes: own + parts.iter().map(|part| part.bytes).sum::<usize>(),
            parts,
            _charge: charge,
        }
    }

    /// Ranges published.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Bytes held, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True once all its writes have taken effect.
    pub fn is_committed(&self, committed: &impl Fn(u32, Lsn) -> bool) -> bool {
        self.batch.is_none_or(|slot| committed(slot, self.newest))
    }

    /// Makes `best` the newest committed tombstone with LSN < `at` that covers `key`, if that is newer.
    pub fn newest_covering(
        &self,
        comparator: &dyn Comparator,
        key: &[u8],
        at: Lsn,
        committed: &impl Fn(u32, Lsn) -> bool,
        best: &mut Option<Lsn>,
    ) {
        if self.oldest >= at || Some(self.newest) <= *best {
            return;
        }
        let Some(lsn) = self.newest_of_key.newest_covering(comparator, key, Lsn::MAX) else { return };
        if lsn < at && self.is_committed(committed) {
            *best = (*best).max(Some(lsn));
            return;
        }
        for part in self.parts.iter().rev() {
            part.newest_covering(comparator, key, at, committed, best);
        }
    }

    /// Adds sets that together hold the newest tombstone of every key and horizon, committed or not; they may hold more.
    pub fn sets(&self, horizons: &Horizons, sets: &mut Vec<Arc<Tombstones>>) {
        if !horizons.sees(self.oldest) {
            return;
        }
        if horizons.of(self.oldest) == horizons.of(self.newest) {
            sets.push(Arc::clone(&self.newest_of_key));
            return;
        }
        self.parts.iter().for_each(|part| part.sets(horizons, sets));
    }
}
