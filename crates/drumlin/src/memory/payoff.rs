//! Whether a memtable's hash pays: what it saved, told of by those who write to it and those who sort what it holds.
//!
//! Place: a part of `two_tier`, which lets the hash stand aside once it does not pay: then only keys that have a slot go there.
//! `db::tiering` asks before the next memtable is made.
//!
//! A version that goes through the hash costs its slot, its note, its share of a sort, and then its insertion into the list all
//! the same. It saves that insertion where the next version of its key comes first, and most of it where it goes in close behind
//! the one sorted before it, without a search, and all of it where it is flushed before anybody walks there. So it pays as long as one of these holds for [`SAVED_PERCENT`] of them. Where
//! keys come in order, an insertion costs next to nothing without it.
//!
//! Invariants:
//! 1. It is judged by [`TELLING`] versions that were moved, then by the next as many, until it did not pay; that is final. What
//!    was displaced counts from the beginning on: a walk moves in a moment what was spared others for long.
//!
//! Concurrency: anybody may call anything, and nobody waits: of two who tell at once what they moved one is not heard. Counts
//! are Relaxed. Never modelled: whether a version goes into the hash decides no answer.
//! Origin: ours. FloDB §5.2 switches its hash off by hand. Figures: docs/design/two-tier.md. Tests: below, `two_tier_tests`,
//! tests/two_tier.rs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::key::Lsn;
use crate::sync::CachePadded;

/// So many moved versions say whether it pays.
const TELLING: u64 = 1000;
/// Of a hundred versions so many must have saved something.
const SAVED_PERCENT: u64 = 33;
/// It does not pay if of a hundred versions so many come behind the one before.
const IN_ORDER_PERCENT: u64 = 90;
/// One displaced version of so many is counted.
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

/// What was moved since the last judgement, and in all.
#[derive(Default)]
struct Window {
    since: Moved,
    versions: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Payoff {
    verdict: CachePadded<AtomicU32>,
    /// Versions that were counted.
    displaced: CachePadded<AtomicU64>,
    window: Mutex<Window>,
}

impl Payoff {
    /// A version was displaced before anybody moved or copied it, by that of this LSN.
    #[inline]
    pub(super) fn displaced(&self, by: Lsn) {
        // LSNs are some way apart, often the same.
        if by.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (COUNTED_OF - 1) == 0 {
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Some were moved.
    pub(super) fn moved(&self, moved: Moved) {
        let Ok(mut window) = self.window.try_lock() else { return };
        window.versions += moved.versions;
        let since = &mut window.since;
        since.versions += moved.versions;
        since.near += moved.near;
        since.looked_at += moved.looked_at;
        since.in_order += moved.in_order;
        if since.versions >= TELLING {
            let since = std::mem::take(since);
            self.judge(since, window.versions);
        }
    }

    fn judge(&self, since: Moved, moved_ever: u64) {
        let displaced = self.displaced.load(Ordering::Relaxed) * COUNTED_OF;
        let saved = since.near * 100 >= since.versions * SAVED_PERCENT
            || displaced * 100 >= (moved_ever + displaced) * SAVED_PERCENT;
        let came_in_order = since.in_order * 100 >= since.looked_at.max(1) * IN_ORDER_PERCENT;
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
            (0..displaced).for_each(|n| payoff.displaced(Lsn(n * 17)));
            payoff.moved(Moved { versions: TELLING - 1, near, looked_at: 100, in_order });
            assert_eq!(payoff.paid(), None, "too few");
            payoff.moved(Moved { versions: 1, ..Moved::default() });
            assert_eq!(payoff.paid(), Some(!payoff.is_lost()));
            payoff.is_lost()
        };
        assert!(judged(0, 200, 50), "neither");
        assert!(!judged(0, 500, 50), "sorted together");
        assert!(!judged(2000, 0, 50), "displaced");
        assert!(judged(100, 0, 50), "hardly displaced");
        assert!(judged(0, 900, 95), "in order");
    }

    /// The hot keys of a minute, then a walk through all that came besides.
    #[test]
    fn what_was_displaced_before_a_walk_counts_in_all_of_it() {
        let payoff = Payoff::default();
        (0..100_000).for_each(|n| payoff.displaced(Lsn(n * 19)));
        (0..20).for_each(|_| payoff.moved(Moved { versions: TELLING, looked_at: 100, ..Moved::default() }));
        assert_eq!(payoff.paid(), Some(true));
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
