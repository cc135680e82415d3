//! The gate: what tells writers, who never look at the tail, that the open log is getting short.
//!
//! Place: `Shared` has one; `room` sets it under the state's lock; every writer looks at it.
//!
//! Invariant: when `rethink` has returned, every record that ends beyond its threshold was seen by it,
//! or sees the threshold (and then calls `Shared::attend`). `rethink` stores the threshold and then
//! loads the tail; a writer draws its LSN and then loads the threshold: a store and a load against a
//! draw and a load, all SeqCst, so at least one of the two sees the other. (The model checker knows
//! SeqCst of fences only, so there it is given fences.)
//!
//! Tests: `loom_tests`.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::fence_for_the_checker;

/// Threshold and gate; part of the cache line that every write reads.
pub(super) struct Gate {
    /// A record that ends beyond this has to call `Shared::attend`.
    attention_at: AtomicU64,
    /// There may be no room even for small records: `ensure_room` has to look.
    closed: AtomicBool,
}

impl Gate {
    /// Open, and everything calls for attention.
    pub(super) fn new() -> Gate {
        Gate { attention_at: AtomicU64::new(0), closed: AtomicBool::new(false) }
    }

    /// True if small records may be drawn without a look at the log's state.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// True if the writer of a record that ends at `end`, which it has drawn, has to attend.
    #[inline(always)]
    pub(super) fn is_passed_by(&self, end: u64) -> bool {
        fence_for_the_checker();
        end > self.attention_at.load(Ordering::SeqCst)
    }

    /// Closes it for good.
    pub(super) fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        self.attention_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// Sets both. Beyond `gate_at` the gate is closed; beyond `more_at` the opener has work, and is
    /// told, since no writer will tell it once the threshold is raised. `tail` loads the tail SeqCst.
    /// One caller at a time.
    pub(super) fn rethink(&self, tail: impl Fn() -> u64, gate_at: u64, more_at: u64, tell_opener: impl Fn()) {
        loop {
            let now = tail();
            let threshold = match (now > gate_at, now > more_at) {
                (true, _) => u64::MAX,
                (false, true) => gate_at,
                (false, false) => gate_at.min(more_at),
            };
            if now > more_at {
                tell_opener();
            }
            self.closed.store(now > gate_at, Ordering::Release);
            self.attention_at.store(threshold, Ordering::SeqCst);
            fence_for_the_checker();
            if tail() <= threshold {
                return;
            }
        }
    }
}
