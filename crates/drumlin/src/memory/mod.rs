//! The memory component: the newest versions of a keyspace, sorted, shared by all threads.
//!
//! Place: `db` owns one [`MemTable`] per generation; a flush turns one into a table.
//!
//! The nouns, each in its file:
//! - [`MemTable`] (`memtable`): what `db` sees. Versions and range tombstones of one generation.
//! - `SkipList` (`skiplist`): the ordered list; `Reserved` nodes become versions when published.
//! - `Guide` (`guide`): where in the list a search begins; a tree of `Signs` (`signs`).
//! - `KeyFilter` (`filter`): tells of most keys that are not there that they are not.
//! - `Gathered` (`bulk`): versions that are put into an empty memtable all at once.
//! - `Notes` (`notes`): what is sorted of nodes that are in no list yet.
//! - `TwoTier` (`two_tier`): the hash over the list, where a keyspace has one: a `Membuffer` (`membuffer`) of slots, and a
//!   `Backlog` (`backlog`) of what is not in the list yet, part by part of the order ([`Splits`], `splits`), and a `Payoff`
//!   (`payoff`), which tells when the detour is not worth it.
//! - `MemCursor` (`cursor`): a walk in internal order, both ways. `FlushCursor` (`flush_cursor`): one, forward, when nobody writes any more.
//! - `TombstoneSet` (`tombstone_set`): the range tombstones, under an epoch; a sequence of `Run`s (`tombstone_run`).
//!   [`ReservedRanges`] become one when published.
//! - `Nodes` (`node`): the layout of a node in memory.
//! - `Arrays` (`arrays`): what the filter and the hash grow by.
//! - `Arena` (`arena`): where nodes live; 32-bit addresses, no allocation per node.
//! - [`Pool`] (`pool`): what memtables are charged to, and the chunks that pass from one to the next.
//! - `local`: what a thread keeps for itself.
//!
//! Each file states its own invariants and orderings; together:
//! 1. Insert-only: no node is changed or removed before the whole memtable is dropped, so readers need no protection beyond
//!    holding it. Slots of the hash change.
//! 2. A get writes no shared memory and waits for nobody.
//! 3. What can be slow (space, copying, the search) is done in `reserve`, before the locks and the LSN of a put. Where a hash tier
//!    has no room for a key, or a snapshot needs the version before, the list is searched under the key's lock.

mod arena;
mod arrays;
mod backlog;
mod bulk;
mod cursor;
mod filter;
mod flush_cursor;
mod guide;
mod local;
#[cfg(loom)]
mod loom_shadow;
mod membuffer;
mod memtable;
mod multi_insert;
mod node;
mod notes;
mod payoff;
mod place;
mod pool;
mod signs;
mod skiplist;
mod splits;
mod tombstone_run;
mod tombstone_set;
mod two_tier;

#[cfg(all(test, not(loom)))]
mod bulk_tests;
#[cfg(all(test, not(loom)))]
mod flush_cursor_tests;
#[cfg(all(test, not(loom)))]
mod guide_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod memtable_tests;
#[cfg(all(test, not(loom)))]
mod skiplist_tests;
#[cfg(all(test, not(loom)))]
mod two_tier_tests;

pub use bulk::Gathered;
pub use cursor::MemCursor;
pub use memtable::MemTable;
pub use pool::Pool;
pub use splits::Splits;
pub use tombstone_run::ReservedRanges;
