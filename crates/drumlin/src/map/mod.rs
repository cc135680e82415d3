//! The memory component's structures alone: concurrent maps without a log, snapshots or tables.
//!
//! Place: over `memory` and `commit`; for whoever measures them, and for whom a map in memory is enough. The store does not
//! use it.
//!
//! - [`SortedMap`] (`sorted`): the skiplist, with its guide and its filter.
//! - [`TieredMap`] (`tiered`): a hash over the skiplist.
//!
//! Invariants:
//! 1. A get shows the value of the last put of its key that had returned, or of one that is under way.
//! 2. Old values stay in memory until the map is dropped, as in a memtable: 32 GiB of nodes at most.
//!
//! Concurrency: any thread may call anything. Tests: below each.

mod sorted;
mod tiered;

pub use sorted::SortedMap;
pub use tiered::TieredMap;

use std::sync::Arc;

use crate::key::{KeyHasher, bytewise};
use crate::memory::MemTable;

/// A memtable that is charged to nobody else, in the order of bytes.
fn memtable() -> MemTable {
    MemTable::charged(bytewise(), KeyHasher::new(1), Arc::default())
}
