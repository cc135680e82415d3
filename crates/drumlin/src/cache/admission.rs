//! Which blocks that were read are worth a place in a full cache.
//!
//! Place: one per [`super::BlockCache`], asked of each block that was read when the cache is full but for a sixteenth.
//!
//! Where gets find few of their blocks, to keep each of them costs more than it spares: it is copied to memory that no processor has at
//! hand, and another one is sought that goes. Then one of [`LOTTERY`] is kept, and each that is asked for again soon. Of gets that fall
//! anywhere the same share finds its block as if all were kept: it is the share of the store that the cache holds.
//! Where one of [`WORTH`] finds its own, or would, as far as the marks tell, all are kept: gets that come in order ask for a block
//! many times in a row, and of a skewed load the cache learns at once. Looks for leaves of indexes count, too, and mostly find theirs: in
//! a store whose tables are so large that their indexes have leaves, all are kept.
//!
//! Invariant: what it says changes what is kept, and never an answer.
//! Concurrency: Relaxed throughout, hints; a mark may be lost. Complexity: O(1), a byte looked at; a byte for each [`MARK_BYTES`].
//! Origin: a small filter of what was seen before, in front of a cache, is TinyLFU's doorkeeper; when to ask it is ours:
//! docs/design/memory.md. Tests: `admission_tests`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::sync::CachePadded;

/// One of so many is kept in any case: of a load that has changed the cache is to learn.
const LOTTERY: u64 = 16;
/// Offers between two decisions.
const WINDOW: u64 = 1024;
/// If one of so many looks finds its block, it is worth it to keep them all.
const WORTH: u64 = 4;
/// Bytes of the cache, as large as it may become, for a mark: of blocks of 4 KiB about as many offers are remembered as an eighth of those
/// in it.
const MARK_BYTES: usize = 32 << 10;
/// Marks, at least and at most.
const MARKS: (usize, usize) = (64, 64 << 10);

/// See the module.
pub(super) struct Admission {
    /// Of what was offered last, by hash: some bits of that.
    marks: Box<[AtomicU8]>,
    /// Few are kept.
    is_strict: AtomicBool,
    window: CachePadded<Window>,
}

#[derive(Default)]
struct Window {
    /// Blocks that were offered, ever.
    offers: AtomicU64,
    /// Of these, in this window, those that had a mark.
    again: AtomicU64,
    /// Hits of the cache when the window began.
    hits: AtomicU64,
}

impl Admission {
    /// Of a cache of so many bytes.
    pub(super) fn new(capacity: usize) -> Admission {
        let marks = (capacity / MARK_BYTES).clamp(MARKS.0, MARKS.1).next_power_of_two();
        Admission {
            marks: (0..marks).map(|_| AtomicU8::new(0)).collect(),
            is_strict: AtomicBool::new(false),
            window: CachePadded::default(),
        }
    }

    /// Whether to keep a block of this hash; `hits`: those of the cache, ever.
    pub(super) fn admits(&self, hash: u64, hits: impl Fn() -> u64) -> bool {
        let mark = &self.marks[(hash >> 8) as usize & (self.marks.len() - 1)];
        // Never zero, which nothing was offered as.
        let bits = (hash as u8) | 1;
        let again = mark.load(Ordering::Relaxed) == bits;
        if again {
            self.window.again.fetch_add(1, Ordering::Relaxed);
        } else {
            mark.store(bits, Ordering::Relaxed);
        }
        let offers = self.window.offers.fetch_add(1, Ordering::Relaxed) + 1;
        if offers.is_multiple_of(WINDOW) {
            self.decide(hits());
        }
        again || !self.is_strict.load(Ordering::Relaxed) || offers.is_multiple_of(LOTTERY)
    }

    /// Ends a window.
    fn decide(&self, hits: u64) {
        let found = hits.saturating_sub(self.window.hits.swap(hits, Ordering::Relaxed));
        let again = self.window.again.swap(0, Ordering::Relaxed);
        // What was offered was looked for, and not found.
        let looks = found + WINDOW;
        self.is_strict.store((found + again).saturating_mul(WORTH) < looks, Ordering::Relaxed);
    }
}
