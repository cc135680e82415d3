//! How many hold something that goes with the last of them.
//!
//! Place: in the head of every block (`block`) and of every chunk (`slab`).
//!
//! Invariant: `leave` is true once, for the last of those that were counted, and then all that the others did with the
//! thing is done.
//!
//! Concurrency: up with Relaxed, by who is a holder itself or has the thing under a lock; down with Release, and the last
//! loads with Acquire: what anybody read of the thing lies before its memory goes. `is_one` loads with Acquire for the
//! same reason: whoever is alone may write.
//! Tests: `loom_tests`: weakened to Relaxed, each of the three fails.

use crate::sync::atomic::{AtomicU32, Ordering};

/// A count of holders; see the module.
pub(super) struct Holders(AtomicU32);

impl Holders {
    /// One: whoever makes it.
    pub(super) fn one() -> Holders {
        Holders(AtomicU32::new(1))
    }

    /// One more.
    #[inline]
    pub(super) fn join(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "references are made and never dropped");
    }

    /// True if nobody else is left.
    #[inline]
    pub(super) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// One less. True for the last one.
    #[inline]
    pub(super) fn leave(&self) -> bool {
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        self.0.load(Ordering::Acquire);
        true
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed) as usize
    }
}
