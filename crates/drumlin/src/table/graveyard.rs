//! Tables that no level names any more, until their files are gone.
//!
//! Place: `db` marks a table obsolete when the edit that drops it is durable; its background workers
//! [`sweep`](super::Shelf::sweep) after jobs, and `close` buries whatever is left.
//!
//! Invariants:
//! 1. Nothing happens where a reader lets go of a table: that may be any thread that touches the epoch, a get among them,
//!    deep inside other code. The graveyard holds every table, so what it is made of goes where the graveyard is swept.
//! 2. A file is removed only when nobody holds its table, or when the store is closed and nobody may read it.
//! 3. A file that cannot be removed is left to the next open, as an orphan; so is one that comes when all were buried.
//!
//! Concurrency: one mutex around the list, with nothing taken and no file touched under it. Who is the only holder stays
//! so: levels that name the table are gone, and the list of open tables, which has weak references, reads no file.
//! The tables hold the shelf, and it them, until they are swept: whoever has a shelf sweeps it at the end.
//! Complexity: a sweep looks at every table that waits; those are the inputs of the last jobs, and what scans hold.
//! Tests: `table/tests/handle.rs`, tests/graveyard.rs, tests/reclamation.rs.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::table::TableHandle;

/// The tables that are to go; see the module.
pub(super) struct Graveyard {
    /// `None` once all were buried.
    waiting: Mutex<Option<Vec<Arc<TableHandle>>>>,
}

impl Graveyard {
    /// Nothing yet.
    pub(super) fn new() -> Graveyard {
        Graveyard { waiting: Mutex::new(Some(Vec::new())) }
    }

    /// Takes a table in.
    pub(super) fn add(&self, table: Arc<TableHandle>) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.push(table);
        }
    }

    /// Takes out the tables that nobody else holds.
    pub(super) fn take_free(&self) -> Vec<Arc<TableHandle>> {
        let mut waiting = self.waiting.lock();
        waiting.iter_mut().flat_map(|all| all.extract_if(.., |table| Arc::strong_count(table) == 1)).collect()
    }

    /// Takes out all, and takes no more in.
    pub(super) fn take_all(&self) -> Vec<Arc<TableHandle>> {
        self.waiting.lock().take().unwrap_or_default()
    }

    /// Tables that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().as_ref().map_or(0, Vec::len)
    }
}
