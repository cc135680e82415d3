//! Hit and miss counts, striped so that threads do not share a cache line.
//!
//! Place: one per [`super::BlockCache`]. Concurrency: relaxed additions to the thread's stripe;
//! sums are exact once the threads are quiet. Tests: `cache/tests.rs`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sync::CachePadded;

/// Stripes; threads beyond that share.
const STRIPES: usize = 64;

#[derive(Default)]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Hits and misses.
pub(super) struct Counters {
    stripes: Box<[CachePadded<Stripe>]>,
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

impl Counters {
    pub(super) fn new() -> Counters {
        Counters { stripes: (0..STRIPES).map(|_| CachePadded::default()).collect() }
    }

    #[inline]
    pub(super) fn count(&self, hit: bool) {
        // A thread that is being torn down has no stripe of its own any more.
        let stripe = &self.stripes[STRIPE.try_with(|&stripe| stripe).unwrap_or(0)];
        if hit { &stripe.hits } else { &stripe.misses }.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hits(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.hits.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn misses(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.misses.load(Ordering::Relaxed)).sum()
    }
}
