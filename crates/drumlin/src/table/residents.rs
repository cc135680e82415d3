//! Which tables are open, which of them have their filter, and which are closed when all that takes too much memory.
//!
//! Place: part of a [`super::Shelf`]; a table that is opened asks for room here, and is listed.
//!
//! Invariants:
//! 1. After a table was listed, the listed ones together hold at most the share, and are at most so many; if one alone is larger,
//!    it is closed too, and lives on only in the hands of who opened it.
//! 2. A table that was read since the hand passed it last is passed once more before it is closed.
//! 3. A closed table is opened again by its next read.
//! 4. Filters take at most two thirds of the share (by one more for each table that is opened at the same moment), and none goes
//!    for another: else tables that are all read, and whose filters do not fit together, would close one another, and each get
//!    read a whole filter. A table for whose filter there is no room is opened without it, which costs its gets a block at worst,
//!    and is closed at the first sweep that finds room.
//!
//! Concurrency: a mutex around the ring, taken by who opened a table (it did I/O anyway) and by sweeps; tables are closed
//! after it is given back. A get takes no part: it sets the table's own bit if it is clear.
//! Origin: CLOCK. Tests: `table/tests/handle.rs`, tests/memory.rs.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::budget::Account;
use crate::sync::Mutex;
use crate::table::TableHandle;
use crate::table::resident::Parts;

/// The open tables; see the module.
pub(super) struct Residents {
    /// Bytes that open tables hold, closed ones included while somebody still reads them.
    pub(super) account: Arc<Account>,
    limits: Limits,
    ring: Mutex<Ring>,
}

/// What open tables may come to.
#[derive(Clone, Copy)]
struct Limits {
    bytes: usize,
    filters: usize,
    tables: usize,
}

#[derive(Default)]
struct Ring {
    tables: VecDeque<Listed>,
    bytes: usize,
    /// Of that, bytes of filters.
    filters: usize,
}

struct Listed {
    table: Weak<TableHandle>,
    parts: Parts,
    /// Bytes of the filter that it has in its file, and was opened without.
    lacks: usize,
}

impl Residents {
    /// None yet; together they may take `share` bytes, and be `tables_max`.
    pub(super) fn new(account: Arc<Account>, share: usize, tables_max: usize) -> Residents {
        let limits = Limits { bytes: share, filters: share / 3 * 2, tables: tables_max };
        Residents { account, limits, ring: Mutex::default() }
    }

    /// True if there is room for a filter of so many bytes.
    pub(super) fn has_room(&self, filter_bytes: usize) -> bool {
        self.ring.lock().fits(filter_bytes, self.limits)
    }

    /// Lists a table that was opened, holds `parts`, and `lacks` so many bytes of a filter; closes cold ones if that is too much.
    pub(super) fn list(&self, table: Weak<TableHandle>, parts: Parts, lacks: usize) {
        let cold = {
            let mut ring = self.ring.lock();
            ring.add(Listed { table, parts, lacks });
            ring.turn(self.limits)
        };
        close(&cold);
    }

    /// Forgets tables that are gone, and closes those that lack a filter for which there is room now.
    pub(super) fn tidy(&self) {
        let cold = {
            let mut ring = self.ring.lock();
            ring.forget_dead();
            ring.take_bare(self.limits)
        };
        close(&cold);
    }
}

fn close(tables: &[Arc<TableHandle>]) {
    if !tables.is_empty() {
        tables.iter().for_each(|table| table.evict());
        crossbeam_epoch::pin().flush();
    }
}

impl Ring {
    fn add(&mut self, listed: Listed) {
        self.bytes += listed.parts.sum();
        self.filters += listed.parts.filter;
        self.tables.push_back(listed);
    }

    fn pop(&mut self) -> Option<Listed> {
        let listed = self.tables.pop_front()?;
        self.bytes -= listed.parts.sum();
        self.filters -= listed.parts.filter;
        Some(listed)
    }

    fn fits(&self, filter_bytes: usize, limits: Limits) -> bool {
        self.filters + filter_bytes <= limits.filters
    }

    /// Turns the hand until what is listed is within its limits; the tables to close.
    fn turn(&mut self, limits: Limits) -> Vec<Arc<TableHandle>> {
        let mut cold = Vec::new();
        let mut spared = self.tables.len();
        while (self.bytes > limits.bytes || self.tables.len() > limits.tables)
            && let Some(listed) = self.pop()
        {
            let Some(table) = listed.table.upgrade() else { continue };
            if spared > 0 && table.take_used() {
                spared -= 1;
                self.add(listed);
                continue;
            }
            cold.push(table);
        }
        cold
    }

    fn forget_dead(&mut self) {
        for _ in 0..self.tables.len() {
            match self.pop() {
                Some(listed) if listed.table.strong_count() > 0 => self.add(listed),
                _ => {}
            }
        }
    }

    /// The tables whose missing filters fit together beside what there is, no longer listed.
    fn take_bare(&mut self, limits: Limits) -> Vec<Arc<TableHandle>> {
        let (mut bare, mut wanted) = (Vec::new(), 0);
        for _ in 0..self.tables.len() {
            let Some(listed) = self.pop() else { break };
            if listed.lacks > 0 && self.fits(wanted + listed.lacks, limits) {
                wanted += listed.lacks;
                bare.extend(listed.table.upgrade());
            } else {
                self.add(listed);
            }
        }
        bare
    }
}
