//! The sums that a cache, its shards and its chunks keep together.
//!
//! Place: one per [`super::BlockCache`]; chunks hold it, too, since they may outlive the cache.
//! Concurrency: see `budget`. Tests: `cache/tests.rs`.

use crate::budget::Account;

/// Bytes by what holds them; see the module.
#[derive(Default)]
pub(super) struct Accounts {
    /// Blocks that were evicted and are not freed yet.
    pub(super) garbage: Account,
    /// Blocks that lie outside of chunks, until they are freed.
    pub(super) outside: Account,
    /// Chunks, until they are unmapped.
    pub(super) chunks: Account,
}
