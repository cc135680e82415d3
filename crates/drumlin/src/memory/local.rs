//! What each thread keeps for its inserts: its arena shard and a cheap random generator.
//!
//! Place: `arena` asks for the shard, `skiplist` for the height of a new node.
//!
//! Invariants:
//! 1. Nothing here is shared between threads after a thread's first call, so neither an insert
//!    nor a get touches another core's cache line for it.
//! 2. The random words decide shapes, never answers: any sequence gives a correct list.
//!
//! Origin: sLSM §2.2.1: the height is the number of trailing zeros of one random word, which is
//! geometric with p = 1/2 and costs no loop.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Odd constant of Weyl sequences: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Threads seen so far. Only numbers them; no protocol depends on it, so it is never modelled.
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// State of the generator; 0 until the thread's first call.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// The thread's number plus one; 0 until the thread's first call.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number: 0 for the first thread that asked, then 1, ...
#[inline]
pub(super) fn thread_number() -> u64 {
    let number = NUMBER.get();
    if number != 0 { number - 1 } else { first_call() }
}

#[cold]
fn first_call() -> u64 {
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    NUMBER.set(number + 1);
    number
}

/// Of so many nodes, as a power of two, one is higher than 1 where the guide finds level 0.
const SPARSE_LOG2: u32 = 5;

/// Levels by which a sparse list's level 1 is thinner than that of a dense one.
pub(super) const SPARSE_LEVELS: usize = SPARSE_LOG2 as usize - 1;

/// A height from 1 to `max`; each height is half as frequent as the one below.
#[inline]
pub(super) fn random_height(max: usize) -> usize {
    1 + (random_word() | 1 << (max - 1)).trailing_zeros() as usize
}

/// As [`random_height`], but all heights beyond 1 together are one of 32.
#[inline]
pub(super) fn random_height_sparse(max: usize) -> usize {
    let zeros = (random_word() | 1 << (max - 1 + SPARSE_LEVELS)).trailing_zeros() as usize;
    1 + zeros.saturating_sub(SPARSE_LEVELS)
}

/// 32 random bits.
#[inline]
fn random_word() -> u64 {
    let mut word = RANDOM.get();
    if word == 0 {
        word = seed(thread_number());
    }
    // xorshift64: three shifts, period 2^64 - 1, never 0.
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    RANDOM.set(word);
    // Every 1-bit of the multiplied word depends on all lower bits of the state; its high half is
    // the better one, so that is what the zeros are counted in.
    word.wrapping_mul(GOLDEN) >> 32
}

/// A non-zero start for thread `number`: the finalizer of SplitMix64, a bijection.
#[cold]
fn seed(number: u64) -> u64 {
    let mut word = (number + 1).wrapping_mul(GOLDEN);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_height_is_half_as_frequent_as_the_one_below() {
        const MAX: usize = 24;
        let rounds = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let mut count = [0u32; MAX + 1];
        for _ in 0..rounds {
            count[random_height(MAX)] += 1;
        }
        assert_eq!(count[0], 0);
        for (height, &seen) in count.iter().enumerate().skip(1).take(if cfg!(miri) { 1 } else { 10 }) {
            let expected = f64::from(rounds) / f64::from(1u32 << height);
            // Six standard deviations of a binomial count.
            let off = (f64::from(seen) - expected).abs();
            assert!(off < 6.0 * expected.sqrt(), "height {height}: {seen} for {expected}");
        }
    }

    #[test]
    fn one_node_of_32_is_tall_in_a_sparse_list() {
        let rounds = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let mut count = [0u32; 25];
        (0..rounds).for_each(|_| count[random_height_sparse(24)] += 1);
        for height in 1..if cfg!(miri) { 1 } else { 6 } {
            let beyond = f64::from(count[height + 1..].iter().sum::<u32>());
            let expected = f64::from(rounds) / f64::from(1u32 << (SPARSE_LEVELS + height));
            assert!((beyond - expected).abs() < 6.0 * expected.sqrt(), "{height}: {beyond} for {expected}");
        }
    }

    #[test]
    fn no_height_exceeds_the_limit() {
        assert!((0..1000).all(|_| random_height(1) == 1 && random_height_sparse(1) == 1));
        assert!((0..100_000).all(|_| random_height_sparse(3) <= 3));
        assert!((0..1000).all(|_| random_height(2) <= 2));
    }

    #[test]
    fn threads_draw_different_heights() {
        let draw = || (0..64).map(|_| random_height(24)).collect::<Vec<_>>();
        let here = draw();
        let there = std::thread::spawn(draw).join().expect("the thread only draws");
        assert_ne!(here, there);
    }
}
