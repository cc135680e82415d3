//! Flush: a quiet generation becomes a table of level 0.
//!
//! Place: called by `db`'s background threads, in the order of the generations, with a cursor over each memtable
//! that is to go, newest first, and the range tombstones of each.
//!
//! What no snapshot can see any more is left behind, so that keys updated in memory a million times reach the
//! disk once. Deletes stay: older versions may lie in any table, or in a flush that is not installed yet.
//! Invariants, concurrency and tests: see `compaction`.

use std::sync::Arc;

use super::apart::{Apart, ValueRules};
use super::outputs::{Outputs, PartBounds};
use super::retain::Retention;
use super::{CompactionOutcome, JobContext};
use crate::error::Result;
use crate::iter::{Cursor, Merge, Tombstones};
use crate::layout::KeySpans;
use crate::table::ValueWindows;

/// Writes the versions of `cursors` (the newer memtable first) and `tombstones` to one table of level 0; to none
/// if there is nothing. Reads at bounds other than `context.snapshots` and `MAX` must not need the table.
pub fn run_flush<C: Cursor>(
    cursors: Vec<C>,
    tombstones: &[Arc<Tombstones>],
    context: &JobContext,
) -> Result<CompactionOutcome> {
    let comparator = context.table_options.comparator.clone();
    let mut memory = context.buffers.charge(Tombstones::join_bytes(tombstones));
    let rules =
        Retention::new(comparator.clone(), context.snapshots.clone(), tombstones, KeySpans::EVERYTHING);
    memory.set(rules.heap_bytes());
    let mut merge = Merge::new(comparator, cursors);
    let values = ValueRules { min_bytes: context.separated_bytes_min, ..ValueRules::default() };
    let apart = Apart::new(values, std::iter::empty(), ValueWindows::none(&context.shelf));
    let mut outputs = Outputs::new(context.clone(), 0, Arc::default(), apart);
    // One table, however large: level 0 counts tables, and each costs every read a look.
    let bounds = PartBounds {
        start: None,
        end: None,
        table_bytes: u64::MAX,
        memory_bytes: usize::MAX,
        below: &[],
        borders: &[],
        pile: &[],
        pile_keys: 0.0,
    };
    outputs.write(&mut merge, &rules, &bounds)?;
    outputs.keep()
}
