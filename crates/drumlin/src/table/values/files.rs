//! The value files of a store that tables refer to: who holds them, and when they go.
//!
//! Place: of the [`Shelf`](crate::table::Shelf). Table handles join when they are made, leave when no level names them any more, and
//! let go when they are dropped.
//!
//! Invariants:
//! 1. There is one [`ValueFile`] for a file, whoever refers to it.
//! 2. A file is garbage when no handle holds it, and none that a level names did: the handles of a job's outputs join before its
//!    inputs leave, so none comes to a file that all have left. Files of a store that is closed have tables that never left: they stay.
//! 3. Garbage is removed where the graveyard is swept, not where a reader lets go.
//!
//! Concurrency: one mutex, with no file touched and nothing dropped under it that locks. Tests: `table/tests/values.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ValueFile, ValueUse};
use crate::sync::Mutex;
use crate::table::TableId;

/// A file and who holds it.
struct Held {
    file: Arc<ValueFile>,
    /// Handles that have not been dropped.
    holders: usize,
    /// Of these, those that a level names or will name.
    live: usize,
}

#[derive(Default)]
struct State {
    held: BTreeMap<TableId, Held>,
    garbage: Vec<Arc<ValueFile>>,
    /// Open ones, the one opened first in front.
    open: VecDeque<TableId>,
}

/// All of them; see the module.
pub(in crate::table) struct ValueFiles {
    dir: PathBuf,
    state: Mutex<State>,
    open_max: usize,
}

impl ValueFiles {
    /// None yet, in `dir`; so many may be open at a time.
    pub(in crate::table) fn new(dir: &Path, open_max: usize) -> ValueFiles {
        ValueFiles { dir: dir.into(), state: Mutex::default(), open_max: open_max.max(1) }
    }

    /// Where they are.
    pub(in crate::table) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files of `uses`, for a table that a level names or will name.
    pub(in crate::table) fn join(&self, uses: &[ValueUse]) -> Box<[Arc<ValueFile>]> {
        if uses.is_empty() {
            return Box::default();
        }
        let mut state = self.state.lock();
        let join = |used: &ValueUse| {
            let new = || Held { file: ValueFile::new(&self.dir, used), holders: 0, live: 0 };
            let held = state.held.entry(used.file).or_insert_with(new);
            held.holders += 1;
            held.live += 1;
            held.file.clone()
        };
        uses.iter().map(join).collect()
    }

    /// The file of this id, if a table holds it.
    pub(in crate::table) fn get(&self, id: TableId) -> Option<Arc<ValueFile>> {
        self.state.lock().held.get(&id).map(|held| held.file.clone())
    }

    /// No level names the table any more that holds `files`.
    pub(in crate::table) fn leave(&self, files: &[Arc<ValueFile>]) {
        if files.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for file in files {
            if let Some(held) = state.held.get_mut(&file.id()) {
                held.live -= 1;
            }
        }
    }

    /// The table is dropped that held `files`.
    pub(in crate::table) fn let_go(&self, files: &[Arc<ValueFile>]) {
        if files.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for file in files {
            let id = file.id();
            let Some(held) = state.held.get_mut(&id) else { continue };
            held.holders -= 1;
            if held.holders > 0 {
                continue;
            }
            state.open.retain(|open| *open != id);
            if let Some(last) = state.held.remove(&id)
                && last.live == 0
            {
                state.garbage.push(last.file);
            }
        }
    }

    /// Takes out what is to be removed; of a closed store, also what a reader still holds.
    pub(in crate::table) fn take_garbage(&self, is_closed: bool) -> Vec<Arc<ValueFile>> {
        let mut state = self.state.lock();
        let mut garbage = std::mem::take(&mut state.garbage);
        if is_closed {
            let left = state.held.extract_if(.., |_, held| held.live == 0);
            garbage.extend(left.map(|(_, held)| held.file));
        }
        garbage
    }

    /// A file was opened: beyond as many as there may be, the one that was opened first is closed.
    pub(super) fn opened(&self, id: TableId) {
        let closes: Vec<Arc<ValueFile>> = {
            let mut state = self.state.lock();
            if !state.open.contains(&id) {
                state.open.push_back(id);
            }
            let beyond = state.open.len().saturating_sub(self.open_max);
            let first: Vec<TableId> = state.open.drain(..beyond).collect();
            first.iter().filter_map(|id| state.held.get(id)).map(|held| held.file.clone()).collect()
        };
        closes.iter().for_each(|file| file.close());
    }
}
