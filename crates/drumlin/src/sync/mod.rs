//! Atomics and locks: the standard ones, or a model checker's under `--cfg loom`.
//!
//! Place: used by `commit`, `log`, `memory` and whatever else is model-checked.
//! Waiting is done here and nowhere else: a short spin, then a park on the word waited for.

/// Atomic types and orderings.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(not(loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

pub mod failpoint;
mod lock;
mod park;
mod prefetch;

pub use lock::{Condvar, Mutex, MutexGuard};
pub use park::{park_until, spin_until, wake_all};
pub(crate) use prefetch::prefetch;

pub use crossbeam_utils::CachePadded;

/// Stands between a store (or a draw) and a load that are both SeqCst and must not change places. They
/// do not; but the model checker takes SeqCst accesses for AcqRel and knows the order of fences only.
/// Nothing in the product.
#[inline(always)]
pub(crate) fn fence_for_the_checker() {
    #[cfg(loom)]
    atomic::fence(atomic::Ordering::SeqCst);
}
