//! Values: bytes that compress as much as was asked for.
//!
//! Place: one [`Values`] a thread, drawn from by `drive`.
//!
//! 1. At a ratio of 1 nothing in them compresses, and no two that are near each other are alike.
//!
//! Origin: db_bench's generator: a megabyte made once, of which each value is a window.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Bytes made once.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of which a part is random and the rest repeats it.
const PIECE_BYTES: usize = 100;

/// A source of values.
pub struct Values {
    pool: Vec<u8>,
    at: usize,
}

impl Values {
    /// A source whose values a perfect compressor takes to `ratio` of their bytes, from 0 to 1.
    pub fn new(ratio: f64, value_bytes_max: usize, seed: u64) -> Values {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x76616c);
        let mut pool = Vec::with_capacity(POOL_BYTES + value_bytes_max);
        let fresh = ((PIECE_BYTES as f64 * ratio.clamp(0.0, 1.0)) as usize).max(1);
        while pool.len() < POOL_BYTES + value_bytes_max {
            let start = pool.len();
            pool.extend((0..fresh).map(|_| random.random::<u8>()));
            for n in fresh..PIECE_BYTES {
                pool.push(pool[start + n % fresh]);
            }
        }
        let at = random.random_range(0..POOL_BYTES);
        Values { pool, at }
    }

    /// The next value.
    #[inline]
    pub fn next(&mut self, bytes: usize) -> &[u8] {
        if self.at + bytes > self.pool.len() {
            self.at = 0;
        }
        let value = &self.pool[self.at..self.at + bytes];
        self.at += bytes;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of neighbouring values that share no 8 bytes at the same place.
    #[test]
    fn values_are_as_long_as_asked_and_unlike_their_neighbours() {
        let mut values = Values::new(1.0, 400, 3);
        let mut before = values.next(100).to_vec();
        for n in 0..50_000 {
            let bytes = 1 + n % 400;
            let value = values.next(bytes);
            assert_eq!(value.len(), bytes);
            assert_ne!(value.get(..8.min(bytes)), before.get(..8.min(bytes)).filter(|_| bytes >= 8));
            before = value.to_vec();
        }
    }

    #[test]
    fn a_ratio_repeats_bytes() {
        let mut values = Values::new(0.5, 100, 3);
        values.at = 0;
        let value = values.next(100).to_vec();
        assert_eq!(value[..50], value[50..]);
    }
}
