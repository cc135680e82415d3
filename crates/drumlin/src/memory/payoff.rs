//! Whether a memtable's hash pays: what it saved, told of by those who write to it and those who sort what it holds.
//!
//! Place: a part of `two_tier`, which lets the hash stand aside once it does not pay: then only keys that have a slot go there.
//! `db::tiering` asks before the next memtable is made.
//!
//! A version that goes through the hash costs its slot, its note, its share of a sort, and then its insertion into the list all
//! the same. It saves that insertion where the next version of its key comes first, and most of it where it goes in close behind
//! the one sorted before it, without a search. So it pays as long as one of these holds for [`SAVED_PERCENT`] of them. Where
//! keys come in order, an insertion costs next to nothing without it.
//!
//! Invariants:
//! 1. It is judged by [`TELLING`] versions that were moved, then by the next as many, until it did not pay; that is final.
//!
//! Concurrency: anybody may call anything. Counts are Relaxed: they are hints, and who loses some judges a little later or
//! otherwise. Never modelled: whether a version goes into the hash decides no answer.
//! Origin: ours. FloDB §5.2 switches its hash off by hand. Figures: docs/design/two-tier.md. Tests: below, `two_tier_tests`,
//! tests/two_tier.rs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::sync::CachePadded;

/// So many moved versions say whether it pays.
const TELLING: u64 = 1000;
/// Of a hundred versions so many must have saved something.
const SAVED_PERCENT: u64 = 33;
/// It does not pay if of a hundred versions so many come behind the one before.
const IN_ORDER_PERCENT: u64 = 90;
/// One key of so many is counted where it is displaced.
const COUNTED_OF: u64 = 16;

const UNKNOWN: u32 = 0;
const PAYS: u32 = 1;
const DOES_NOT: u32 = 2;

/// What became of some versions that were moved in one go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) versions: u64,
    /// Of these, how many went in close behind the one before.
    pub(super) near: u64,
    /// How many were looked at as they had come, and how many of them came behind the one before.
    pub(super) looked_at: u64,
    pub(super) in_order: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Payoff {
    verdict: CachePadded<AtomicU32>,
    /// Keys that were counted.
    displaced: CachePadded<AtomicU64>,
    moved: AtomicU64,
    near: AtomicU64,
    looked_at: AtomicU64,
    in_order: AtomicU64,
}

impl Payoff {
    /// A version of a key of this hash was displaced before anybody moved it.
    #[inline]
    pub(super) fn displaced(&self, hash: u64) {
        if (hash >> 32).is_multiple_of(COUNTED_OF) {
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Some were moved.
    pub(super) fn moved(&self, moved: Moved) {
        let of = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed) + more;
        of(&self.near, moved.near);
        of(&self.looked_at, moved.looked_at);
        of(&self.in_order, moved.in_order);
        if of(&self.moved, moved.versions) >= TELLING {
            self.judge();
        }
    }

    fn judge(&self) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let (moved, near) = (take(&self.moved), take(&self.near));
        let (looked_at, in_order) = (take(&self.looked_at), take(&self.in_order));
        let displaced = take(&self.displaced) * COUNTED_OF;
        if moved == 0 {
            // Somebody else does.
            return;
        }
        let saved = (near + displaced) * 100 >= (moved + displaced) * SAVED_PERCENT;
        let came_in_order = in_order * 100 >= looked_at.max(1) * IN_ORDER_PERCENT;
        self.verdict.fetch_max(if saved && !came_in_order { PAYS } else { DOES_NOT }, Ordering::Relaxed);
    }

    /// True once it did not pay.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) == DOES_NOT
    }

    /// Whether it paid so far; `None` if too few were moved to say.
    pub(super) fn paid(&self) -> Option<bool> {
        match self.verdict.load(Ordering::Relaxed) {
            UNKNOWN => None,
            verdict => Some(verdict == PAYS),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_pays_where_versions_are_displaced_or_sorted_together_but_not_in_order() {
        let judged = |displaced: u64, near: u64, in_order: u64| {
            let payoff = Payoff::default();
            (0..displaced).for_each(|n| payoff.displaced(n << 32));
            payoff.moved(Moved { versions: TELLING - 1, near, looked_at: 100, in_order });
            assert_eq!(payoff.paid(), None, "too few");
            payoff.moved(Moved { versions: 1, ..Moved::default() });
            assert_eq!(payoff.paid(), Some(!payoff.is_lost()));
            payoff.is_lost()
        };
        assert!(judged(0, 200, 50), "neither");
        assert!(!judged(0, 500, 50), "sorted together");
        assert!(!judged(1000, 0, 50), "displaced");
        assert!(judged(0, 900, 95), "in order");
    }

    #[test]
    fn once_it_did_not_pay_that_is_final() {
        let payoff = Payoff::default();
        let moved = |near| payoff.moved(Moved { versions: TELLING, near, looked_at: 100, in_order: 0 });
        moved(TELLING);
        assert_eq!(payoff.paid(), Some(true));
        moved(0);
        moved(TELLING);
        assert_eq!(payoff.paid(), Some(false));
    }
}
