//! Which tables are open, which of them have their filter, and which are closed when all that takes too much memory.
//!
//! Place: part of a [`super::Shelf`]; a table that is opened asks for room here, and is listed.
//!
//! Invariants:
//! 1. After a table was listed, the listed ones together hold at most the share, and are at most so many; if one alone is larger,
//!    it is closed too, and lives on only in the hands of who opened it.
//! 2. A table that was read since the hand passed it last is passed once more before it is closed.
//! 3. A closed table is opened again by its next read.
//! 4. A filter is loaded only where there is room for it beside all else (but for those that are opened at the same moment). Else
//!    tables that are all read, and do not fit together with their filters, would close one another, and each get read a whole
//!    filter and index. A table for whose filter there is no room is opened without it, which costs its gets a block at worst,
//!    and is closed at the first sweep that finds room.
//! 5. A filter that is of no use since clusters are asked for its table goes at the next sweep.
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
    tables: usize,
}

#[derive(Default)]
struct Ring {
    tables: VecDeque<Listed>,
    bytes: usize,
}

struct Listed {
    table: Weak<TableHandle>,
    bytes: usize,
    has_filter: bool,
    /// Bytes of the filter that it has in its file, and was opened without.
    lacks: usize,
}

impl Residents {
    /// None yet; together they may take `share` bytes, and be `tables_max`.
    pub(super) fn new(account: Arc<Account>, share: usize, tables_max: usize) -> Residents {
        let limits = Limits { bytes: share, tables: tables_max };
        Residents { account, limits, ring: Mutex::default() }
    }

    /// Bytes that open tables may hold.
    pub(super) fn bytes_max(&self) -> usize {
        self.limits.bytes
    }

    /// True if there is room for a table of so many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.ring.lock().fits(bytes, self.limits)
    }

    /// Lists a table that was opened, holds `parts`, and `lacks` so many bytes of a filter; closes cold ones if that is too much.
    pub(super) fn list(&self, table: Weak<TableHandle>, parts: Parts, lacks: usize) {
        let cold = {
            let mut ring = self.ring.lock();
            ring.add(Listed { table, bytes: parts.sum(), has_filter: parts.filter > 0, lacks });
            ring.turn(self.limits)
        };
        close(&cold);
    }

    /// Forgets tables that are gone, and closes those that have a filter for nothing, or lack one for which there is room now.
    pub(super) fn tidy(&self) {
        let mut ring = self.ring.lock();
        let told = ring.take_told();
        let bare = ring.take_bare(self.limits);
        drop(ring);
        close(&told);
        close(&bare);
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
        self.bytes += listed.bytes;
        self.tables.push_back(listed);
    }

    fn pop(&mut self) -> Option<Listed> {
        let listed = self.tables.pop_front()?;
        self.bytes -= listed.bytes;
        Some(listed)
    }

    fn fits(&self, bytes: usize, limits: Limits) -> bool {
        self.bytes.saturating_add(bytes) <= limits.bytes
    }

    /// Turns the hand until what is listed is within its limits; the tables to close: those that were not read since the hand
    /// passed them, then any.
    fn turn(&mut self, limits: Limits) -> Vec<Arc<TableHandle>> {
        let mut cold = Vec::new();
        let mut spared = self.tables.len();
        while self.bytes > limits.bytes || self.tables.len() > limits.tables {
            let Some(listed) = self.pop() else { break };
            match listed.table.upgrade() {
                None => {}
                Some(table) if spared > 0 && table.take_used() => {
                    spared -= 1;
                    self.add(listed);
                }
                Some(table) => cold.push(table),
            }
        }
        cold
    }

    /// Forgets those that are gone; those with a filter of no use, no longer listed.
    fn take_told(&mut self) -> Vec<Arc<TableHandle>> {
        let mut told = Vec::new();
        for _ in 0..self.tables.len() {
            let Some(listed) = self.pop() else { break };
            if listed.table.strong_count() == 0 {
                continue;
            }
            let table = listed.has_filter.then(|| listed.table.upgrade()).flatten();
            match table.filter(|table| table.is_told()) {
                Some(table) => told.push(table),
                None => self.add(listed),
            }
        }
        told
    }

    /// The tables whose missing filters fit together beside what there is, no longer listed.
    fn take_bare(&mut self, limits: Limits) -> Vec<Arc<TableHandle>> {
        let (mut bare, mut wanted) = (Vec::new(), 0);
        for _ in 0..self.tables.len() {
            let Some(listed) = self.pop() else { break };
            let whole = listed.bytes + listed.lacks;
            let is_wanted = listed.lacks > 0 && self.fits(wanted + whole, limits);
            let table = is_wanted.then(|| listed.table.upgrade()).flatten();
            match table.filter(|table| !table.is_told()) {
                Some(table) => {
                    wanted += whole;
                    bare.push(table);
                }
                None => self.add(listed),
            }
        }
        bare
    }
}
