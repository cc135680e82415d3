//! Which ways searches took, counted for tests: each is to be taken often where they say that it works.
//!
//! Place: told by `handle`; outside of tests it is nothing.
//! Concurrency: by thread.

/// A way that a search takes, or not.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) enum Way {
    /// On by a record that is held.
    Record,
    /// On by the record in a bucket that was read.
    Mark,
    /// Into the sorted part.
    Special,
    /// To a page of filters.
    Page,
}

#[cfg(not(test))]
#[inline(always)]
pub(in crate::table) fn took(_: Way) {}

#[cfg(test)]
pub(in crate::table) use counted::{taken, took};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    use super::Way;

    thread_local! {
        static TAKEN: Cell<[u64; 4]> = const { Cell::new([0; 4]) };
    }

    pub(in crate::table) fn took(way: Way) {
        let mut all = TAKEN.get();
        all[way as usize] += 1;
        TAKEN.set(all);
    }

    /// How often this thread took each, in their order.
    pub(in crate::table) fn taken() -> [u64; 4] {
        TAKEN.get()
    }
}
