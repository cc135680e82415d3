//! Tiering: whether the next memtable of a keyspace has a hash, for how many keys, and where its order is cut into parts.
//!
//! Place: a part of `keyspace`; asked when a generation begins, told when one is flushed.
//!
//! A hash pays where keys come in no order and are walked seldom: what comes in order goes into the list near what came
//! before, and what is sorted for a walk at once has only made a detour. Whoever asked for a hash gets one for the first
//! memtable. When one is flushed whose hash did not pay, the next few have none; then it is tried again, and if it still does not
//! pay, after twice as many.
//!
//! Concurrency: under the keyspace's lock, some times for each generation.
//! Origin: FloDB §5.2 switches its hash off by hand where it loads in order. Tests: below, tests/two_tier.rs.

use std::sync::Arc;

use crate::key::KeyHasher;
use crate::memory::{MemTable, Splits};
use crate::options::KeyspaceOptions;

use super::memory::Memory;

/// Memtables without a hash after one that did not pay, at first and at most.
const WITHOUT_FIRST: u32 = 4;
const WITHOUT_MAX: u32 = 64;

/// What a flushed memtable says of those to come.
#[derive(Default)]
pub(crate) struct Lesson {
    splits: Option<Arc<Splits>>,
    keys: Option<usize>,
    hash_paid: Option<bool>,
}

impl Lesson {
    /// What this one says. It takes a while: not under a lock.
    pub fn of(memory: &Memory, options: &KeyspaceOptions, flushed: &MemTable) -> Lesson {
        if !options.memory.has_hash() {
            return Lesson::default();
        }
        let splits = memory.learns_parts().then(|| Arc::new(flushed.splits(memory.parts(options))));
        Lesson { splits, keys: flushed.hash_keys(), hash_paid: flushed.hash_paid() }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Tiering {
    /// Where the keys of what was flushed last are cut.
    splits: Option<Arc<Splits>>,
    /// Keys that the last hash got.
    keys: usize,
    /// Memtables to come that have no hash.
    without: u32,
    /// How many there were the last time, 0 if the last hash paid.
    patience: u32,
}

impl Tiering {
    /// The next memtable.
    pub fn next(&mut self, memory: &Memory, options: &KeyspaceOptions, hasher: KeyHasher) -> MemTable {
        if options.memory.has_hash() && self.without > 0 {
            self.without -= 1;
            return memory.sorted_memtable(options, hasher);
        }
        let splits = self.splits.clone().unwrap_or_else(|| memory.first_splits(options));
        memory.memtable_like(options, hasher, &splits, self.keys)
    }

    /// One was flushed that says so.
    pub fn learn(&mut self, lesson: Lesson) {
        self.splits = lesson.splits.or_else(|| self.splits.take());
        self.keys = lesson.keys.unwrap_or(self.keys);
        self.note(lesson.hash_paid);
    }

    /// Whether a hash paid; `None` if there was none, or too little in it.
    fn note(&mut self, paid: Option<bool>) {
        match paid {
            None => {}
            Some(true) => (self.without, self.patience) = (0, 0),
            Some(false) => {
                self.patience = (self.patience * 2).clamp(WITHOUT_FIRST, WITHOUT_MAX);
                self.without = self.patience;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_does_not_pay_is_tried_ever_less_often() {
        let mut tiering = Tiering::default();
        let mut pauses = Vec::new();
        for paid in [Some(false), Some(false), None, Some(false), Some(true), Some(false)] {
            tiering.note(paid);
            pauses.push(tiering.without);
        }
        assert_eq!(pauses, [4, 8, 8, 16, 0, 4]);
        (0..10).for_each(|_| tiering.note(Some(false)));
        assert_eq!(tiering.without, WITHOUT_MAX);
    }
}
