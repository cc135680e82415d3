//! Which value files are collected, and by which merges.
//!
//! Place: `policy` asks for the files when it makes a plan, whatever for: every merge that meets one of them takes its values along.
//! Where that is not enough, tables that refer to them are rewritten where they are, the one first that refers to the most.
//!
//! The bound is on files of records for those that some table refers to (`ValueSeparation::space_percent`). Beyond it by a quarter of
//! what is allowed, collecting goes before all other merges: then level 0 fills, and writers are held back.
//!
//! Invariant: what is collected ends. A table that was rewritten refers to no file that was to be collected, and what it wrote has
//! no garbage. Level 0 is left alone: a flush writes no garbage, and a file of which tables of level 0 know is known to no other.
//!
//! Complexity: O(files log files) a plan, O(tables) a pick. Concurrency: pure. Tests: `leveled_tests.rs`, tests/values.rs.

use std::collections::HashSet;
use std::sync::Arc;

use super::plan::{CompactionPlan, Reason};
use super::policy::Policy;
use crate::options::{KeyspaceOptions, ValueSeparation};
use crate::table::{TableId, TableMeta};
use crate::version::Levels;

/// Bytes of records for each live one, at most.
fn most(options: &KeyspaceOptions) -> f64 {
    // What lies apart though it is not to any more goes by the usual bound.
    let separation = options.value_separation.unwrap_or_default();
    let ValueSeparation { space_percent, .. } = separation;
    f64::from(space_percent) / 100.0
}

/// The files that are to be collected.
pub(super) fn garbage(levels: &Levels, options: &KeyspaceOptions) -> Arc<HashSet<TableId>> {
    Arc::new(levels.values().collected(most(options)))
}

/// True if collecting goes before everything else.
pub(super) fn is_urgent(levels: &Levels, options: &KeyspaceOptions) -> bool {
    levels.values().amplification() > 1.0 + (most(options) - 1.0) * 1.25
}

/// Bytes that the table refers to in these files.
fn refers_to(meta: &TableMeta, files: &HashSet<TableId>) -> u64 {
    meta.values.iter().filter(|used| files.contains(&used.file)).map(|used| used.bytes).sum()
}

/// A plan that rewrites the table that refers to the most of what is to be collected, of those that no job reads.
pub(super) fn pick(policy: &Policy<'_>) -> Option<CompactionPlan> {
    let files = garbage(policy.levels, policy.options);
    if files.is_empty() {
        return None;
    }
    let reason = Reason::Values(policy.levels.values().amplification());
    let mut tables: Vec<(u64, usize, usize)> = Vec::new();
    for level in 1..policy.depth() {
        let of_level = policy.tables(level).iter().enumerate().filter(|(_, table)| !policy.is_busy(table));
        tables.extend(of_level.map(|(at, table)| (refers_to(table.meta(), &files), level, at)));
    }
    tables.retain(|(bytes, ..)| *bytes > 0);
    tables.sort_unstable_by(|a, b| b.cmp(a));
    tables.into_iter().find_map(|(_, level, at)| policy.rewrite(level, at, reason))
}

/// Bytes that collecting must still write, about.
pub(super) fn debt_bytes(levels: &Levels, options: &KeyspaceOptions) -> u64 {
    let files = garbage(levels, options);
    if files.is_empty() {
        return 0;
    }
    let deeper = (1..levels.depth()).flat_map(|level| levels.level(level));
    deeper.map(|table| refers_to(table.meta(), &files)).sum()
}
