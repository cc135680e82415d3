//! Which value files are collected, and by which merges.
//!
//! Place: `policy` asks for the files when it makes a plan, whatever for: every merge that meets one of them relocates its values.
//! Where that is not enough, tables that refer to them are rewritten where they are, the one first that refers to the most.
//!
//! The bound is on bytes of records for those that some table refers to (`ValueSeparation::space_percent`). Beyond it the files with the
//! most garbage are collected until the rest is within [`AIM`] of what it allows. Beyond [`URGENT`] of that, collecting goes before
//! other merges, in a balance with level 0: that fills, and writers are held back. A file goes when the last table that
//! refers to it was rewritten: until then what was relocated is there twice.
//!
//! Invariant: what is collected ends. A table that was rewritten refers to no file that was to be collected, and what it wrote has
//! no garbage; a file that is collected in part has more garbage than before, so it stays among the first. Level 0 is left alone: a flush
//! writes no garbage, and a file of which tables of level 0 know is known to no other.
//!
//! Complexity: O(files log files) a plan, O(tables) a pick. Concurrency: pure. Tests: below, `compaction::job_tests`, tests/values.rs.

use std::collections::HashSet;
use std::sync::Arc;

use super::plan::{CompactionPlan, Reason};
use super::policy::Policy;
use crate::options::KeyspaceOptions;
use crate::table::{TableId, TableMeta, ValueUse};
use crate::version::{Levels, ValueSpace};

/// Of the garbage that the bound allows, how much there may be when collecting is done.
const AIM: f64 = 0.75;
/// The same from which on collecting is urgent.
const URGENT: f64 = 1.25;

/// Bytes of records for each live one, at most. What lies apart though it is not to any more goes by the usual bound.
fn amplification_max(options: &KeyspaceOptions) -> f64 {
    f64::from(options.value_separation.unwrap_or_default().space_percent) / 100.0
}

/// The files that are to be collected.
pub(super) fn collected(levels: &Levels, options: &KeyspaceOptions) -> Arc<HashSet<TableId>> {
    let is_damaged = |file| levels.tables().next().is_some_and(|table| table.shelf().is_damaged(file));
    Arc::new(choose(levels.values(), amplification_max(options), &is_damaged))
}

/// Where there is more for each live byte than `most`: those with the most garbage for their size. One that is damaged would stay for
/// its damaged values, however often it is collected.
fn choose(space: &ValueSpace, most: f64, is_damaged: &dyn Fn(TableId) -> bool) -> HashSet<TableId> {
    if space.amplification() <= most {
        return HashSet::new();
    }
    let garbage = |file: &ValueUse| file.records_bytes().saturating_sub(file.bytes) as f64;
    let share = |file: &ValueUse| garbage(file) / file.records_bytes().max(1) as f64;
    let mut files: Vec<&ValueUse> = space.files().filter(|file| garbage(file) > 0.0).collect();
    files.retain(|file| !is_damaged(file.file));
    files.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let aim = space.live_bytes() as f64 * (1.0 + (most - 1.0) * AIM);
    let mut left = space.bytes() as f64;
    let needed = files.into_iter().take_while(|file| {
        let is_beyond = left > aim;
        left -= garbage(file);
        is_beyond
    });
    needed.map(|file| file.file).collect()
}

/// True if collecting goes before what else is to be merged: beyond what is urgent, the more so the fuller level 0 is; its overhang delays
/// writers, so both keep within some bounds.
pub(super) fn is_urgent(levels: &Levels, options: &KeyspaceOptions) -> bool {
    let garbage = (levels.values().amplification() - 1.0) / ((amplification_max(options) - 1.0) * URGENT);
    let level0 = levels.level(0).len() as f64 / options.level0_trigger() as f64;
    garbage > 1.0 && garbage.powi(4) > level0
}

/// Bytes that the table refers to in these files.
fn refers_to(meta: &TableMeta, files: &HashSet<TableId>) -> u64 {
    meta.values.iter().filter(|used| files.contains(&used.file)).map(|used| used.bytes).sum()
}

/// A plan that rewrites the table that refers to the most of what is to be collected, of those that no job reads.
pub(super) fn pick(policy: &Policy<'_>) -> Option<CompactionPlan> {
    let files = collected(policy.levels, policy.options);
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
    let files = collected(levels, options);
    if files.is_empty() {
        return 0;
    }
    let deeper = (1..levels.depth()).flat_map(|level| levels.level(level));
    deeper.map(|table| refers_to(table.meta(), &files)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refers(all: &[(u64, u64, u64)]) -> TableMeta {
        let used = |&(file, records_bytes, bytes): &(u64, u64, u64)| ValueUse {
            file: TableId(file),
            file_bytes: records_bytes + 16,
            hash: 1,
            records: bytes / 10,
            bytes,
        };
        TableMeta { values: all.iter().map(used).collect(), ..TableMeta::default() }
    }

    #[test]
    fn files_go_by_their_garbage_until_the_rest_is_within_the_bound() {
        let tables = [
            refers(&[(1, 1000, 100), (2, 1000, 500), (3, 1000, 1000)]),
            refers(&[(1, 1000, 300), (4, 1000, 900)]),
        ];
        let space = ValueSpace::of(tables.iter());
        assert_eq!((space.bytes(), space.live_bytes()), (4000, 2800));
        let ids = |most| {
            let mut ids: Vec<u64> = choose(&space, most, &|_| false).into_iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(1.5), [], "1.43 is within");
        assert_eq!(ids(1.4), [1], "600 of garbage: 3400 are left, 1.3 times");
        assert_eq!(ids(1.2), [1, 2], "2900 are left");
        assert_eq!(ids(1.02), [1, 2, 4]);
        assert!(choose(&ValueSpace::default(), 1.05, &|_| false).is_empty());
        let but_damaged = choose(&space, 1.2, &|file| file == TableId(1));
        assert_eq!(but_damaged, HashSet::from([TableId(2), TableId(4)]), "as much of the others as there is");
    }
}
