//! How long operations take, and what they move: histograms fed by a part of the operations.
//!
//! Place: of the store; gets, writes and scans ask [`Timing::sample`], jobs and syncs are all timed. `stats` reads it.
//!
//! Invariants:
//! 1. An operation that is not timed costs one count down in the thread's own memory: it reads no clock and writes nothing
//!    that threads share. One that is timed writes to one of a few stripes.
//! 2. What was timed counts for all operations of its thread since the one before that was: sums are of all operations, but
//!    for the last few of each thread. The gaps vary, so that no pattern of operations hides from them.
//! 3. A thread's first operations are all timed, so that few of them are figures, too.
//!
//! The histogram is an own array of counters, eight to each power of two: what a library would add (a recorder a thread, a
//! lock to collect them, or a shared counter) is what an operation must not pay for, and an eighth is fine enough.
//!
//! Concurrency: relaxed counters; exact once the threads are quiet. Tests: below, tests/latencies.rs.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::env::Clock;
use crate::sync::CachePadded;
use crate::table::blocks_read;

/// Operations of a thread that are all timed before gaps begin.
const DENSE: u32 = 256;
/// Operations from one that is timed to the next: from so many on, as many more at most, less one.
const GAP_MIN: u32 = 64;
const GAP_SPREAD: u32 = 128;
/// Stripes; threads beyond that share.
const STRIPES: usize = 4;
/// Counters to a power of two, as bits.
const FINE_BITS: u32 = 3;
/// From 2^41 ns on, some 37 minutes, all times are one.
const BITS_MAX: u32 = 41;
const BUCKETS: usize = ((BITS_MAX - FINE_BITS + 1) << FINE_BITS) as usize;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Get,
    MultiGet,
    Put,
    Update,
    Batch,
    Scan,
    Flush,
    Compaction,
    LogSync,
}

impl Timed {
    const ALL: [Timed; 9] = [
        Timed::Get,
        Timed::MultiGet,
        Timed::Put,
        Timed::Update,
        Timed::Batch,
        Timed::Scan,
        Timed::Flush,
        Timed::Compaction,
        Timed::LogSync,
    ];

    fn name(self) -> &'static str {
        match self {
            Timed::Get => "get",
            Timed::MultiGet => "multi_get",
            Timed::Put => "put",
            Timed::Update => "update",
            Timed::Batch => "batch",
            Timed::Scan => "scan",
            Timed::Flush => "flush",
            Timed::Compaction => "compaction",
            Timed::LogSync => "log_sync",
        }
    }
}

/// How long the operations of one kind took since the store was opened. Percentiles are of all operations, as told by those
/// that were timed, and up to an eighth too high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LatencyStats {
    /// `get`, `multi_get` (one call, of however many keys), `put` (a delete, too), `update` (all that reads and then writes),
    /// `batch` (a range delete, too), `scan` (up to its first record), `flush`, `compaction`, or `log_sync`.
    pub operation: &'static str,
    /// How many there were, about: two hundred may be missing for each thread.
    pub operations: u64,
    /// How many of them were timed.
    pub timed: u64,
    /// The mean, in nanoseconds.
    pub mean_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 90 % of them took no longer.
    pub p90_ns: u64,
    /// 99 % of them took no longer.
    pub p99_ns: u64,
    /// 99.9 % of them took no longer.
    pub p999_ns: u64,
    /// The longest that was timed.
    pub max_ns: u64,
}

/// An operation that is timed.
pub(crate) struct Began {
    at: Duration,
    /// Operations that it stands for.
    weight: u32,
    blocks_read: u64,
}

/// The times of one kind of operation.
struct Histogram {
    /// Operations, by how long they took.
    buckets: [AtomicU64; BUCKETS],
    timed: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    /// Bytes of keys and values that they wrote.
    bytes: AtomicU64,
    /// Blocks that they read from files.
    blocks_read: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            timed: AtomicU64::default(),
            sum_ns: AtomicU64::default(),
            max_ns: AtomicU64::default(),
            bytes: AtomicU64::default(),
            blocks_read: AtomicU64::default(),
        }
    }
}

type Stripe = [Histogram; Timed::ALL.len()];

/// The times of all operations of a store.
pub(crate) struct Timing {
    stripes: Box<[CachePadded<Stripe>]>,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { stripes: (0..STRIPES).map(|_| CachePadded::default()).collect() }
    }
}

/// A thread's count down.
struct Countdown {
    /// Operations up to the next that is timed.
    left: Cell<u32>,
    /// What that will stand for.
    gap: Cell<u32>,
    timed: Cell<u32>,
    stripe: Cell<usize>,
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTDOWN: Countdown = const {
        Countdown { left: Cell::new(1), gap: Cell::new(1), timed: Cell::new(0), stripe: Cell::new(usize::MAX) }
    };
}

impl Timing {
    /// Something if this operation is one to be timed: to be given to [`Timing::record`] at its end.
    #[inline]
    pub fn sample(&self, clock: &dyn Clock) -> Option<Began> {
        let countdown = |countdown: &Countdown| {
            let left = countdown.left.get() - 1;
            countdown.left.set(left);
            left == 0
        };
        // A thread that is being torn down times nothing.
        if COUNTDOWN.try_with(countdown).unwrap_or(false) { Some(begin(clock)) } else { None }
    }

    /// An operation of a kind that is always timed.
    pub fn begin(&self, clock: &dyn Clock) -> Began {
        Began { at: clock.now(), weight: 1, blocks_read: blocks_read() }
    }

    /// Counts an operation that was timed, and the bytes of keys and values that it wrote.
    #[cold]
    pub fn record(&self, kind: Timed, began: &Began, bytes: u64, clock: &dyn Clock) {
        let ns = u64::try_from(clock.now().saturating_sub(began.at).as_nanos()).unwrap_or(u64::MAX);
        let stripe = COUNTDOWN.try_with(stripe_of).unwrap_or(0);
        let found = &self.stripes[stripe][kind as usize];
        let weight = u64::from(began.weight);
        let add = |counter: &AtomicU64, what: u64| {
            counter.fetch_add(what.saturating_mul(weight), Ordering::Relaxed);
        };
        add(&found.buckets[bucket_of(ns)], 1);
        found.timed.fetch_add(1, Ordering::Relaxed);
        add(&found.sum_ns, ns);
        if ns > found.max_ns.load(Ordering::Relaxed) {
            found.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
        if bytes > 0 {
            add(&found.bytes, bytes);
        }
        let read = blocks_read().wrapping_sub(began.blocks_read);
        if read > 0 {
            add(&found.blocks_read, read);
        }
    }

    /// The kinds of which there were any.
    pub fn latencies(&self) -> Vec<LatencyStats> {
        Timed::ALL.iter().map(|&kind| self.of(kind)).filter(|found| found.timed > 0).collect()
    }

    /// Bytes of keys and values that were written, about.
    pub fn written_bytes(&self) -> u64 {
        [Timed::Put, Timed::Update, Timed::Batch].iter().map(|&kind| self.sum(kind, |h| &h.bytes)).sum()
    }

    /// Blocks that gets of one key read from files, about.
    pub fn blocks_read_by_gets(&self) -> u64 {
        self.sum(Timed::Get, |h| &h.blocks_read)
    }

    fn sum(&self, kind: Timed, counter: impl Fn(&Histogram) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|stripe| counter(&stripe[kind as usize]).load(Ordering::Relaxed)).sum()
    }

    fn of(&self, kind: Timed) -> LatencyStats {
        let buckets: Vec<u64> = (0..BUCKETS).map(|n| self.sum(kind, |h| &h.buckets[n])).collect();
        let operations: u64 = buckets.iter().sum();
        let max_ns =
            self.stripes.iter().map(|stripe| stripe[kind as usize].max_ns.load(Ordering::Relaxed)).max();
        let max_ns = max_ns.unwrap_or(0);
        let at = |share: f64| {
            let rank = ((operations as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = buckets.iter().position(|&count| {
                seen += count;
                seen >= rank
            });
            found.map_or(max_ns, |n| end_of(n).min(max_ns))
        };
        LatencyStats {
            operation: kind.name(),
            operations,
            timed: self.sum(kind, |h| &h.timed),
            mean_ns: self.sum(kind, |h| &h.sum_ns) / operations.max(1),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns,
        }
    }
}

/// Begins to time, and chooses the next operation of the thread to be timed.
#[cold]
fn begin(clock: &dyn Clock) -> Began {
    let choose = |countdown: &Countdown| {
        let weight = countdown.gap.get();
        let timed = countdown.timed.get().wrapping_add(1);
        countdown.timed.set(timed);
        // The high bits of the product are spread evenly.
        let varied = timed.wrapping_mul(0x9e37_79b9) >> (u32::BITS - GAP_SPREAD.trailing_zeros());
        let gap = if timed < DENSE { 1 } else { GAP_MIN + varied };
        countdown.gap.set(gap);
        countdown.left.set(gap);
        weight
    };
    let weight = COUNTDOWN.try_with(choose).unwrap_or(1);
    Began { at: clock.now(), weight, blocks_read: blocks_read() }
}

fn stripe_of(countdown: &Countdown) -> usize {
    if countdown.stripe.get() == usize::MAX {
        countdown.stripe.set(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES);
    }
    countdown.stripe.get()
}

/// The counter of a time.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    let bits = u64::BITS - ns.leading_zeros();
    match bits.checked_sub(FINE_BITS + 1) {
        None => ns as usize,
        Some(shift) => ((shift as usize) << FINE_BITS) + (ns >> shift) as usize,
    }
}

/// The longest time of a counter.
fn end_of(bucket: usize) -> u64 {
    let fine = 1usize << FINE_BITS;
    match bucket.checked_sub(2 * fine) {
        None => bucket as u64,
        Some(_) => {
            let shift = bucket / fine - 1;
            (((bucket % fine + fine + 1) as u64) << shift) - 1
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Goes on by a step whenever it is asked.
    struct Steps(AtomicU64, u64);

    impl Clock for Steps {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.fetch_add(self.1, Ordering::Relaxed))
        }

        fn wall(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn every_time_has_its_counter_and_none_is_an_eighth_off() {
        let mut last = 0;
        for ns in (0..4096).chain((12..63).flat_map(|bits| {
            let power = 1u64 << bits;
            [power - 1, power, power + power / 8 - 1, power + power / 8, power + power / 2]
        })) {
            let bucket = bucket_of(ns);
            assert!(bucket < BUCKETS && bucket >= last, "{ns}");
            if ns < 1 << BITS_MAX {
                assert!(end_of(bucket) >= ns && end_of(bucket) <= ns + ns / 8, "{ns}: {}", end_of(bucket));
                assert!(bucket == 0 || end_of(bucket - 1) < ns || bucket_of(ns - 1) == bucket, "{ns}");
            }
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    /// In a thread of its own, whose count down begins anew.
    #[test]
    fn few_operations_ask_the_clock_and_all_are_counted() {
        let worker = std::thread::spawn(|| {
            let (timing, clock) = (Timing::default(), Steps(AtomicU64::new(0), 1000));
            for n in 0..100_000u64 {
                if let Some(began) = timing.sample(&clock) {
                    timing.record(
                        if n % 2 == 0 { Timed::Get } else { Timed::Put },
                        &began,
                        n % 2 * 10,
                        &clock,
                    );
                }
            }
            let asked = clock.0.load(Ordering::Relaxed) / 1000;
            assert!((1_400..2_200).contains(&asked), "{asked} times");
            let found = timing.latencies();
            let counts: Vec<u64> = found.iter().map(|kind| kind.operations).collect();
            assert!(counts.iter().sum::<u64>().abs_diff(100_000) < 192, "{counts:?}");
            // Neither hides from the gaps.
            assert!(counts.iter().all(|count| count.abs_diff(50_000) < 8_000), "{counts:?}");
            assert!(timing.written_bytes().abs_diff(counts[1] * 10) == 0);
            assert_eq!((found[0].operation, found[0].p50_ns, found[0].max_ns), ("get", 1000, 1000));
            assert_eq!(found[0].mean_ns, 1000);
        });
        worker.join().unwrap();
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let (timing, clock) = (Timing::default(), Steps(AtomicU64::new(0), 0));
        for ns in 1..=10_000u64 {
            let began = timing.begin(&clock);
            clock.0.fetch_add(ns * 100, Ordering::Relaxed);
            timing.record(Timed::Flush, &began, 0, &clock);
        }
        let found = timing.latencies().pop().unwrap();
        assert_eq!((found.operation, found.operations, found.timed), ("flush", 10_000, 10_000));
        for (told, truth) in [
            (found.p50_ns, 500_000),
            (found.p90_ns, 900_000),
            (found.p99_ns, 990_000),
            (found.p999_ns, 999_000),
            (found.max_ns, 1_000_000),
        ] {
            assert!(told >= truth && told <= truth + truth / 8, "{told} for {truth}: {found:?}");
        }
        assert_eq!(found.mean_ns, 500_050);
    }
}
