//! What the model checker sees of the nodes: links as its own atomics, and a cell for each node's
//! bytes that objects to a read which no write happens before.
//!
//! Place: `node`, under `--cfg loom` only. The bytes themselves stay in the arena.
//!
//! Loom 0.7 keeps only the last access to each atomic when it decides which orders to try: the load
//! with which a thread prepares its own compare-and-swap hides an earlier load of another thread,
//! and the order "swap first, then that load" is never run. (Two threads, one that loads, one that
//! loads and swaps: one execution instead of three.) So each access to a link first adds to a
//! *witness* word of that link: two additions never commute, every order is tried. They are
//! Relaxed and order nothing themselves.

use std::cell::RefCell;

use loom::cell::UnsafeCell;

use crate::sync::atomic::{AtomicU32, Ordering};

use super::node::HEIGHT_MAX;

/// Nodes of one modelled list, its head included.
const NODES_MAX: usize = 5;

/// A link that shows each access to the checker; the part of `AtomicU32` that the list uses.
pub(super) struct Link {
    unit: AtomicU32,
    witness: AtomicU32,
}

impl Link {
    pub(super) fn new(unit: u32) -> Self {
        Self { unit: AtomicU32::new(unit), witness: AtomicU32::new(0) }
    }

    pub(super) fn load(&self, ordering: Ordering) -> u32 {
        self.witness.fetch_add(1, Ordering::Relaxed);
        self.unit.load(ordering)
    }

    pub(super) fn store(&self, unit: u32, ordering: Ordering) {
        self.witness.fetch_add(1, Ordering::Relaxed);
        self.unit.store(unit, ordering);
    }

    pub(super) fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.witness.fetch_add(1, Ordering::Relaxed);
        self.unit.compare_exchange(current, new, success, failure)
    }
}

struct Entry {
    links: [Link; HEIGHT_MAX],
    bytes: UnsafeCell<()>,
}

pub(super) struct Shadow {
    entries: [Entry; NODES_MAX],
    /// The unit of each entry in use. Loom runs one thread at a time and switches only at its own
    /// operations, so a plain cell does.
    units: RefCell<Vec<u32>>,
}

// SAFETY: see `units`. Test: every test of `loom_tests`.
#[allow(unsafe_code)]
unsafe impl Sync for Shadow {}

impl Shadow {
    pub(super) fn new() -> Self {
        let entry = || Entry { links: std::array::from_fn(|_| Link::new(0)), bytes: UnsafeCell::new(()) };
        Self { entries: std::array::from_fn(|_| entry()), units: RefCell::default() }
    }

    /// Follows the node at `unit`, which the calling thread is making.
    pub(super) fn add(&self, unit: u32) {
        let mut units = self.units.borrow_mut();
        units.push(unit);
        assert!(units.len() <= NODES_MAX, "the model has too many nodes");
        let index = units.len() - 1;
        drop(units);
        self.entries[index].bytes.with_mut(|_| ());
    }

    fn entry(&self, unit: u32) -> &Entry {
        let index = self.units.borrow().iter().position(|&u| u == unit);
        &self.entries[index.expect("a link names a node")]
    }

    pub(super) fn link(&self, unit: u32, level: usize) -> &Link {
        &self.entry(unit).links[level]
    }

    /// The calling thread reads the node's bytes.
    pub(super) fn read(&self, unit: u32) {
        self.entry(unit).bytes.with(|_| ());
    }

    /// The calling thread writes the node's bytes.
    pub(super) fn write(&self, unit: u32) {
        self.entry(unit).bytes.with_mut(|_| ());
    }
}
