//! Latencies: how long operations took, from the median to the worst.
//!
//! Place: one [`Latency`] a thread and kind of operation, joined when the threads are done; shown by `report`.
//!
//! 1. Every operation is counted. Nanoseconds are kept to three digits, and the worst exactly.
//! 2. In an open loop they count from the time an operation was to begin, not from when its thread came to it: else
//!    a stall hides all that should have begun meanwhile (coordinated omission).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer ones count as this long in the percentiles.
const LONGEST: Duration = Duration::from_secs(3600);

/// Durations of many operations.
#[derive(Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    worst_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        let histogram =
            Histogram::new_with_max(LONGEST.as_nanos() as u64, 3).expect("the bounds are in order");
        Latency { histogram, worst_ns: 0 }
    }
}

/// What there is to say of them, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many there are.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Half are at most this long.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// 99 of a hundred.
    pub p99_ns: u64,
    /// 999 of a thousand.
    pub p999_ns: u64,
    /// 9,999 of ten thousand.
    pub p9999_ns: u64,
    /// All.
    pub max_ns: u64,
}

impl Latency {
    /// Counts one.
    #[inline]
    pub fn note(&mut self, took: Duration) {
        let ns = took.as_nanos() as u64;
        self.histogram.saturating_record(ns);
        self.worst_ns = self.worst_ns.max(ns);
    }

    /// Joins those of another thread.
    pub fn join(&mut self, other: &Latency) {
        self.histogram += &other.histogram;
        self.worst_ns = self.worst_ns.max(other.worst_ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The figures.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.worst_ns);
        Percentiles {
            count: self.count(),
            mean_ns: self.histogram.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: self.worst_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_where_they_should_be() {
        let (mut even, mut odd) = (Latency::default(), Latency::default());
        for n in 1..=10_000u64 {
            let side = if n % 2 == 0 { &mut even } else { &mut odd };
            side.note(Duration::from_nanos(n * 1000));
        }
        even.join(&odd);
        let found = even.percentiles();
        let near = |found: u64, right: u64| found.abs_diff(right) <= right / 500;
        assert_eq!(found.count, 10_000);
        assert!(near(found.p50_ns, 5_000_000) && near(found.p99_ns, 9_900_000), "{found:?}");
        assert!(near(found.p9999_ns, 9_999_000) && found.max_ns == 10_000_000, "{found:?}");
        assert!((found.mean_ns - 5_000_500.0).abs() < 10_000.0, "{found:?}");
    }

    #[test]
    fn one_that_took_longer_than_any_bound_is_not_lost() {
        let mut latency = Latency::default();
        latency.note(LONGEST * 2);
        assert_eq!(latency.percentiles().max_ns, LONGEST.as_nanos() as u64 * 2);
    }
}
