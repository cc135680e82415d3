//! What was reckoned of some tables, and need not be reckoned again while they lie together.
//!
//! Place: of [`Levels`](super::Levels), which give it on to those that an edit makes of them; `layout` keeps the garbage of piles in it.
//!
//! Why: a trie of a terabyte has thousands of piles, of which a job changes a few, and each look for work asks for all of them, under
//! the scheduler's lock.
//!
//! Invariant: a name stands for what the number was reckoned from, so a number is never wrong, only forgotten.
//! Concurrency: a mutex, held for a look. Complexity: O(1); at most twice as many numbers as there are tables, and some.
//! Tests: `layout::tiered::tests::garbage_is_reckoned_once_for_each_pile`.

use std::collections::HashMap;

use crate::sync::Mutex;

/// So many numbers are kept, however few tables there are.
const KEPT_MIN: usize = 1024;

/// Numbers by name.
#[derive(Default)]
pub struct Memo {
    numbers: Mutex<HashMap<u64, f64>>,
}

impl Memo {
    /// The number of this name, reckoned if nobody did before. All are forgotten when there are too many for so many tables.
    pub fn number(&self, name: u64, tables: usize, reckon: impl FnOnce() -> f64) -> f64 {
        if let Some(number) = self.numbers.lock().get(&name) {
            return *number;
        }
        let number = reckon();
        let mut numbers = self.numbers.lock();
        if numbers.len() >= KEPT_MIN.max(2 * tables) {
            numbers.clear();
        }
        numbers.insert(name, number);
        number
    }

    /// How many are kept.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.numbers.lock().len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_reckoned_once_and_all_are_forgotten_when_there_are_many() {
        let memo = Memo::default();
        let number = |name| memo.number(name, 600, || name as f64 / 2.0);
        assert!((0..1200).all(|name| number(name) == name as f64 / 2.0));
        assert_eq!(memo.number(7, 600, || unreachable!("it is known")), 3.5);
        assert_eq!(memo.kept(), 1200);
        assert_eq!((number(1200), memo.kept()), (600.0, 1));
        assert_eq!(memo.number(7, 600, || 8.0), 8.0, "it was forgotten");
    }
}
