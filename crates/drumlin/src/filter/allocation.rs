//! How many filter bits a key each of several runs gets, so that reads look into as few of them in vain as the bits allow.
//!
//! Place: `layout` asks for the runs that a keyspace has; a job's tables get what their level's run is given.
//!
//! A get of a key that is not there asks every run, and each lets it pass by its own rate of error; so the sum of the rates
//! is what it reads in vain. A bit more for each key of a small run is cheap, and takes as much from the sum as one for each
//! key of a large run. So the larger a run is, the more error it may have: about in proportion to its keys.
//!
//! Complexity: O(runs). Concurrency: pure. Tests: below.
//! Origin: Dayan, Athanassoulis, Idreos, *Monkey: Optimal Navigable Key-Value Store*, §4.1, with the rates of the filter that is
//! built, instead of those of a Bloom filter with as many probes as it likes.

use std::sync::OnceLock;

use super::{Span, error_of};

/// Bits a key come in steps of one of so many parts.
const STEPS_PER_BIT: usize = 4;
/// Beyond so many bits a key a filter of lines gets hardly better.
const BITS_MAX: usize = 32;
/// How often what a bit is worth is halved between two bounds.
const ROUNDS: usize = 60;

/// The error by steps of bits a key.
fn errors() -> &'static [f64] {
    static ERRORS: OnceLock<Vec<f64>> = OnceLock::new();
    ERRORS.get_or_init(|| {
        (0..=BITS_MAX * STEPS_PER_BIT)
            .map(|step| error_of(Span::Line, step as f64 / STEPS_PER_BIT as f64))
            .collect()
    })
}

/// Bits a key for each of these runs, of which (`runs`, `keys` of each) is told: no more than `bits_per_key` for all keys
/// together, and the least sum of errors.
pub fn allocate(runs: &[(f64, f64)], bits_per_key: f64) -> Vec<f64> {
    let keys: f64 = runs.iter().map(|(count, keys)| count * keys).sum();
    if keys <= 0.0 || bits_per_key <= 0.0 {
        return vec![bits_per_key; runs.len()];
    }
    // What a bit costs, in errors: with the dearest none is taken, with the cheapest all.
    let (mut dear, mut cheap) = (1.0f64, 1e-30f64);
    let taken =
        |price: f64| -> f64 { runs.iter().map(|&(count, keys)| count * keys * best(keys, price)).sum() };
    let given = keys * bits_per_key;
    for _ in 0..ROUNDS {
        let middle = (dear * cheap).sqrt();
        *(if taken(middle) > given { &mut cheap } else { &mut dear }) = middle;
    }
    // Steps of the two may lie apart: so much of the way from the one to the other.
    let (least, most) = (taken(dear), taken(cheap));
    let part = if most > least { ((given - least) / (most - least)).clamp(0.0, 1.0) } else { 0.0 };
    runs.iter().map(|&(_, keys)| best(keys, dear) * (1.0 - part) + best(keys, cheap) * part).collect()
}

/// The bits a key with the least error, if each bit costs so much.
fn best(keys: f64, price: f64) -> f64 {
    let cost = |(step, error): (usize, &f64)| error + price * keys * step as f64;
    let errors = errors();
    let least = (0..errors.len()).min_by(|&a, &b| cost((a, &errors[a])).total_cmp(&cost((b, &errors[b]))));
    least.unwrap_or(0) as f64 / STEPS_PER_BIT as f64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sum_of_errors(runs: &[(f64, f64)], bits: impl Fn(usize) -> f64) -> f64 {
        runs.iter().enumerate().map(|(n, (count, _))| count * error_of(Span::Line, bits(n))).sum()
    }

    #[test]
    fn it_spends_what_it_is_given_and_errs_less() {
        for ratio in [2.0, 4.0, 10.0] {
            for bits in [2.0, 5.0, 10.0, 16.0] {
                let runs: Vec<(f64, f64)> = (0..5).map(|n| (1.0, 1e4 * f64::powi(ratio, n))).collect();
                let got = allocate(&runs, bits);
                let keys: f64 = runs.iter().map(|(_, keys)| keys).sum();
                let mean = runs.iter().zip(&got).map(|((_, keys), bits)| keys * bits).sum::<f64>() / keys;
                assert!((mean - bits).abs() < 1e-6, "{mean} of {bits} bits, {got:?}");
                assert!(got.windows(2).all(|pair| pair[0] >= pair[1]), "the smaller the more: {got:?}");
                let (even, uneven) = (sum_of_errors(&runs, |_| bits), sum_of_errors(&runs, |n| got[n]));
                assert!(uneven < even * 0.8, "ratio {ratio}, {bits} bits: {uneven} against {even}");
            }
        }
    }

    #[test]
    fn runs_of_one_size_get_the_same_and_no_bits_are_none() {
        let got = allocate(&[(3.0, 100.0), (2.0, 100.0)], 10.0);
        assert!(got.iter().all(|bits| (bits - 10.0).abs() < 1e-9), "{got:?}");
        assert_eq!(allocate(&[(1.0, 5.0), (1.0, 500.0)], 0.0), [0.0, 0.0]);
        assert_eq!(allocate(&[(0.0, 0.0)], 7.5), [7.5]);
        assert_eq!(allocate(&[], 7.5), [0.0; 0]);
    }

    #[test]
    fn where_bits_are_few_the_largest_run_goes_without() {
        let got = allocate(&[(1.0, 1e3), (1.0, 1e6)], 0.01);
        assert!(got[0] > 5.0 && got[1] == 0.0, "{got:?}");
    }
}
