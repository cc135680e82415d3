//! Blocks that the thread has read from table files.
//!
//! Place: counted where a block is read that was not cached; asked by whoever wants to know what an operation read.
//! Concurrency: each thread has its own.

use std::cell::Cell;

thread_local! {
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Counts a block.
pub(super) fn block_was_read() {
    // Of a thread that is being torn down nobody asks.
    let _ = READ.try_with(|read| read.set(read.get() + 1));
}

/// Blocks that this thread has read.
pub fn blocks_read() -> u64 {
    READ.try_with(Cell::get).unwrap_or(0)
}
