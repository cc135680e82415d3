//! Tables that no level names any more, until their files are gone.
//!
//! Place: `db` marks a table obsolete when the edit that drops it is durable; its background workers
//! [`sweep`](super::Shelf::sweep) after jobs, and `close` buries whatever is left.
//!
//! Invariants:
//! 1. Nothing happens where a table's last holder lets go of it: that may be any thread that touches the epoch, a get
//!    among them, deep inside other code. The graveyard looks at its tables instead.
//! 2. A file is removed only when nobody holds its table, or when the store is closed and nobody may read it.
//! 3. A file that cannot be removed is left to the next open, as an orphan.
//!
//! Concurrency: one mutex around the list, with nothing taken and no file touched under it. A strong count of 0 is final:
//! the only weak references are the graveyard's, and it does not upgrade them.
//! Complexity: a sweep looks at every table that waits; those are the inputs of the last jobs, and what scans hold.
//! Tests: `table/tests/handle.rs`, tests/graveyard.rs.

use std::path::PathBuf;
use std::sync::Weak;

use crate::sync::Mutex;
use crate::table::{TableHandle, TableId};

/// A table that is to go.
pub(super) struct Grave {
    pub(super) table: Weak<TableHandle>,
    pub(super) id: TableId,
    pub(super) path: PathBuf,
}

/// The tables that are to go; see the module.
#[derive(Default)]
pub(super) struct Graveyard {
    waiting: Mutex<Vec<Grave>>,
}

impl Graveyard {
    /// Takes a table in.
    pub(super) fn add(&self, grave: Grave) {
        self.waiting.lock().push(grave);
    }

    /// Takes out the tables that nobody holds.
    pub(super) fn take_free(&self) -> Vec<Grave> {
        self.waiting.lock().extract_if(.., |grave| grave.table.strong_count() == 0).collect()
    }

    /// Takes out all.
    pub(super) fn take_all(&self) -> Vec<Grave> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Tables that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().len()
    }
}
