//! Which tables are open, and which of them are closed when their indexes and filters take too much memory.
//!
//! Place: part of a [`super::Shelf`]; a table that was opened is listed here.
//!
//! Invariants:
//! 1. After a table was listed, the listed ones together hold at most the share; if one alone is larger, it is closed too,
//!    and lives on only in the hands of who opened it.
//! 2. A table that was read since the hand passed it last is passed once more before it is closed.
//! 3. A closed table is opened again by its next read.
//!
//! Concurrency: a mutex around the ring, taken by who opened a table (it did I/O anyway) and by sweeps; tables are closed
//! after it is given back. A get takes no part: it sets the table's own bit if it is clear.
//! Origin: CLOCK. Tests: `table/tests/handle.rs`, tests/memory.rs.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::budget::Account;
use crate::sync::Mutex;
use crate::table::TableHandle;

/// The open tables; see the module.
pub(super) struct Residents {
    /// Bytes that open tables hold, closed ones included while somebody still reads them.
    pub(super) account: Arc<Account>,
    share: usize,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    tables: VecDeque<Listed>,
    bytes: usize,
}

struct Listed {
    table: Weak<TableHandle>,
    bytes: usize,
}

impl Residents {
    /// None yet; together they may take `share` bytes.
    pub(super) fn new(account: Arc<Account>, share: usize) -> Residents {
        Residents { account, share, ring: Mutex::default() }
    }

    /// Lists a table that was opened and holds `bytes`; closes cold ones if that is too much.
    pub(super) fn list(&self, table: Weak<TableHandle>, bytes: usize) {
        let cold = {
            let mut ring = self.ring.lock();
            ring.bytes += bytes;
            ring.tables.push_back(Listed { table, bytes });
            ring.turn(self.share)
        };
        if !cold.is_empty() {
            cold.iter().for_each(|table| table.evict());
            crossbeam_epoch::pin().flush();
        }
    }

    /// Forgets tables that are gone.
    pub(super) fn forget_dead(&self) {
        let mut ring = self.ring.lock();
        ring.tables.retain(|listed| listed.table.strong_count() > 0);
        ring.bytes = ring.tables.iter().map(|listed| listed.bytes).sum();
    }
}

impl Ring {
    /// Turns the hand until what is listed fits; the tables to close.
    fn turn(&mut self, share: usize) -> Vec<Arc<TableHandle>> {
        let mut cold = Vec::new();
        let mut spared = self.tables.len();
        while self.bytes > share
            && let Some(listed) = self.tables.pop_front()
        {
            let Some(table) = listed.table.upgrade() else {
                self.bytes -= listed.bytes;
                continue;
            };
            if spared > 0 && table.take_used() {
                spared -= 1;
                self.tables.push_back(listed);
                continue;
            }
            self.bytes -= listed.bytes;
            cold.push(table);
        }
        cold
    }
}
