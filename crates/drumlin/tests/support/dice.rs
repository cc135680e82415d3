//! The random numbers of all tests: SplitMix64, so that a seed repeats a failure.
//!
//! Place: the tests beside the engine's parts have it as `crate::dice`, the others as `support::dice`.
#![allow(dead_code)] // Each test file uses its part.

/// A seeded source of random numbers.
pub struct Dice(pub u64);

impl Dice {
    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
