//! Accounts: how many bytes of one kind a store holds, counted by whoever holds them.
//!
//! Place: memtables, open tables and jobs charge what they take and give it back when it is freed, not when it is no
//! longer needed: what waits for the epoch counts. `db` compares the sums with the budget.
//!
//! Invariants:
//! 1. An account's bytes are the sum of what is charged to it and not yet given back.
//! 2. A [`Charge`] gives back what it took when it is dropped, wherever that happens.
//!
//! Concurrency: one atomic sum, Relaxed: it orders nothing, and a figure a moment old is as good. It lies on a line of its
//! own, written once per block of an arena, per opened table, per step of a job; never by a get.
//! Tests: below, tests/memory.rs. The rules: docs/design/memory.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::CachePadded;

/// A sum of bytes.
#[derive(Debug)]
pub struct Account {
    bytes: CachePadded<AtomicUsize>,
    /// What they are to stay below.
    bound: usize,
}

impl Default for Account {
    fn default() -> Account {
        Account::bounded(usize::MAX)
    }
}

impl Account {
    /// One whose bytes are to stay below `bound`. Who charges sees to it.
    pub fn bounded(bound: usize) -> Account {
        Account { bytes: CachePadded::new(AtomicUsize::new(0)), bound }
    }

    /// Bytes that can be charged yet.
    pub fn room(&self) -> usize {
        self.bound.saturating_sub(self.bytes())
    }

    /// Bytes charged now.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges `bytes`.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` back that were charged.
    pub fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges `bytes` until the result is dropped.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.add(bytes);
        Charge { account: Arc::clone(self), bytes }
    }
}

/// Bytes charged to an account for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// Makes it `bytes`.
    pub fn set(&mut self, bytes: usize) {
        self.account.add(bytes);
        self.account.give_back(std::mem::replace(&mut self.bytes, bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_given_back() {
        let account = Arc::new(Account::default());
        let mut one = account.charge(10);
        let two = account.charge(5);
        assert_eq!(account.bytes(), 15);
        one.set(3);
        assert_eq!(account.bytes(), 8);
        drop(one);
        assert_eq!(account.bytes(), 5);
        drop(two);
        assert_eq!(account.bytes(), 0);
    }
}
