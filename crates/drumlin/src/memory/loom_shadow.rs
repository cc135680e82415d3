//! What the model checker sees of the nodes: links as its own atomics, and a cell for each node's
//! bytes that objects to a read which no write happens before.
//!
//! Place: `node`, under `--cfg loom` only. The bytes themselves stay in the arena.

use std::cell::RefCell;

use loom::cell::UnsafeCell;

use crate::sync::atomic::AtomicU32;

use super::node::HEIGHT_MAX;

/// Nodes of one modelled list, its head included.
const NODES_MAX: usize = 6;

struct Entry {
    links: [AtomicU32; HEIGHT_MAX],
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
        let entry =
            || Entry { links: std::array::from_fn(|_| AtomicU32::new(0)), bytes: UnsafeCell::new(()) };
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

    pub(super) fn link(&self, unit: u32, level: usize) -> &AtomicU32 {
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
