//! Arrays that follow one another, each made when the one before is full: what a hash and a filter grow by.
//!
//! Place: `membuffer` and `filter` put into the last one, and seek in all.
//!
//! Invariants: one that is there stays there and keeps its place; and while one is being made, no other is. One that nobody
//! needs would be written from end to end when it goes, for the next memtable: by sixteen threads that was a gigabyte.
//!
//! Concurrency: any thread may call anything. Nobody waits: who finds another making one goes on with those there are. What is
//! added is published by its `OnceLock`, whole.
//! Tests: below, `filter`, `two_tier_tests`.

use std::sync::OnceLock;

use crate::sync::Mutex;

/// See the module. At most `MAX`.
pub(super) struct Arrays<A, const MAX: usize> {
    there: [OnceLock<A>; MAX],
    adding: Mutex<()>,
}

impl<A, const MAX: usize> Arrays<A, MAX> {
    /// One.
    pub(super) fn new(first: A) -> Self {
        let there = [const { OnceLock::new() }; MAX];
        let _ = there[0].set(first);
        Arrays { there, adding: Mutex::default() }
    }

    /// All of them, in order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &A> {
        self.there.iter().map_while(OnceLock::get)
    }

    /// Adds what `make` gives behind the first `there`, unless there is something, or somebody is making it, or it would be
    /// one too many.
    #[cold]
    pub(super) fn add(&self, there: usize, make: impl FnOnce() -> A) {
        let Some(next) = self.there.get(there) else { return };
        let Some(_adding) = self.adding.try_lock() else { return };
        if next.get().is_none() {
            let _ = next.set(make());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Regression: every thread that met a full array made the next one, and all but one gave theirs back.
    #[test]
    fn while_one_is_being_made_nobody_makes_another_and_nobody_waits() {
        let arrays = Arrays::<u32, 3>::new(1);
        arrays.add(1, || {
            std::thread::scope(|scope| {
                let second = scope.spawn(|| arrays.add(1, || panic!("it is being made")));
                second.join().expect("makes none");
            });
            2
        });
        arrays.add(1, || panic!("it is there"));
        assert!(arrays.iter().eq(&[1, 2]));
        arrays.add(2, || 3);
        arrays.add(3, || panic!("there is no place"));
        assert!(arrays.iter().eq(&[1, 2, 3]));
    }
}
