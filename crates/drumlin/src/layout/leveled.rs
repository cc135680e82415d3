//! The leveled layout: overlapping tables at level 0, one sorted run per level below, each about
//! `level_ratio` times as large as the one above.
//!
//! Place: called by the functions of `layout`; reads tables' descriptions only, no file.
//!
//! The policy:
//! - Every level has a score: tables by `level0_tables` at level 0, bytes by the level's target below, not counting
//!   tables that a running job reads. The highest score from 1 on that a plan can be made for wins.
//! - From level 0 goes its oldest table that no job reads, with everything that the table overlaps there, and what that
//!   overlaps. If that exceeds [`INPUT_TABLES_MAX`] tables' worth of bytes, the newest of them stay.
//! - From a deeper level goes the table that brings the fewest bytes of the next level with it for each of its own;
//!   tombstones make it count as heavier. Neighbours that bring nothing further come along.
//! - Tables that meet nothing in the next level are moved as they are, unless that is the bottom and they hold tombstones
//!   that a rewrite would drop.
//! - When nothing is too large, a table moves down for its tombstones alone, if there are enough of them for what it
//!   meets, or if they are mostly ranges; and is rewritten at the bottom once no snapshot can need them. Both end: the one
//!   at the bottom, the other with a table without tombstones.
//!
//! Invariants: those of `plan`. Two jobs from level 0 never share a key: the later would find the earlier one's span, or
//! one of its tables, in its way. So level 1 gets them in order.
//!
//! Complexity: O(tables) comparisons per pick.
//! Concurrency: pure functions. Origin: LevelDB's levels, the choice by overlap as in RocksDB; none of the papers
//! says how to choose. Tests: `leveled_tests.rs`, a store of lists without a disk.

use std::ops::Range;
use std::sync::Arc;

use crate::key::{Comparator, Lsn};
use crate::layout::plan::{CompactionPlan, Reason, hull, span_of};
use crate::layout::{KeySpan, KeySpans, ManualPick, Running};
use crate::options::KeyspaceOptions;
use crate::table::{TableHandle, TableMeta};
use crate::version::Levels;

/// Bytes up to which a plan takes more than one table of its input level, in full tables.
const INPUT_TABLES_MAX: u64 = 24;
/// Tables of level 0 that a plan is tried to be built around, at most.
const LEVEL0_SEEDS_MAX: usize = 8;
/// Bytes of a table that may be moved as it is, at most, in full tables: a larger one would tie up a level.
const MOVED_TABLES_MAX: u64 = 8;
/// Parts that a job may be cut into, at most.
const PARTS_MAX: u64 = 16;
/// Bytes of a part, at least, in full tables.
const PART_TABLES_MIN: u64 = 2;
/// Entries read for each delete, at most, for a compaction to be worth it because of the deletes alone.
const READ_PER_DELETE_MAX: u64 = 4;
/// Deletes that a range tombstone counts as where tables are weighed by their tombstones.
const DELETES_PER_RANGE: u64 = 64;

/// What every step of a choice looks at.
pub(super) struct Policy<'a> {
    pub levels: &'a Levels,
    pub options: &'a KeyspaceOptions,
    pub running: &'a Running,
    /// The smallest bound of a live snapshot; `MAX` for none.
    pub oldest_snapshot: Lsn,
}

/// The plan for the most urgent work, if any is due and free to be done.
pub(super) fn pick(policy: &Policy<'_>) -> Option<CompactionPlan> {
    let mut due: Vec<(f64, usize)> = (0..policy.depth())
        .map(|level| (policy.score(level), level))
        .filter(|&(score, _)| score >= 1.0)
        .collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let by_size = due.into_iter().find_map(|(score, level)| match level {
        0 => policy.pick_level0(None, Reason::Level0Tables(policy.tables(0).len())),
        _ => policy.pick_level(level, Reason::LevelBytes(score)),
    });
    by_size.or_else(|| policy.pick_tombstones())
}

/// The next step of compacting `range` to the bottom.
pub(super) fn pick_manual(policy: &Policy<'_>, range: Bounds<'_>) -> ManualPick {
    let bottom = policy.bottom().max(1);
    let mut blocked = false;
    for level in 0..bottom {
        let mut wanted = policy.within(level, range).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let plan = match level {
            0 => policy.pick_level0(Some(range), Reason::Manual),
            _ => wanted.find_map(|at| policy.plan_run(level, at, Some(range), Reason::Manual)),
        };
        match plan {
            Some(plan) => return ManualPick::Plan(plan),
            None => blocked = true,
        }
    }
    for at in policy.within(bottom, range) {
        let table = &policy.tables(bottom)[at];
        if policy.rewrite_helps(table.meta()) {
            match policy.rewrite(bottom, at, Reason::Manual) {
                Some(plan) => return ManualPick::Plan(plan),
                None => blocked = true,
            }
        }
    }
    if blocked { ManualPick::Busy } else { ManualPick::Done }
}

/// Bytes that must be written before every level fits its target, about.
pub(super) fn debt_bytes(levels: &Levels, options: &KeyspaceOptions) -> u64 {
    let level_bytes = |level: usize| levels.level_bytes(level) as f64;
    let mut debt = 0.0;
    let mut carried = 0.0;
    if levels.level(0).len() >= options.level0_tables {
        carried = level_bytes(0);
        debt = carried + level_bytes(1).min(carried * options.level_ratio as f64);
    }
    for level in 1..levels.depth() {
        let bytes = level_bytes(level) + carried;
        let excess = bytes - target_bytes(options, level);
        carried = excess.max(0.0);
        let below = level_bytes(level + 1);
        let share = if bytes > 0.0 { (below / bytes).min(options.level_ratio as f64) } else { 0.0 };
        // At the last level the excess only changes its number.
        if below > 0.0 {
            debt += carried * (1.0 + share);
        }
    }
    debt as u64
}

/// The target of a level and its score, with whatever jobs are reading.
pub(super) fn pressure_of(levels: &Levels, options: &KeyspaceOptions, level: usize) -> (u64, f64) {
    if level == 0 {
        return (0, levels.level(0).len() as f64 / options.level0_tables.max(1) as f64);
    }
    let target = target_bytes(options, level);
    (target as u64, levels.level_bytes(level) as f64 / target.max(1.0))
}

/// The target of a level from 1.
fn target_bytes(options: &KeyspaceOptions, level: usize) -> f64 {
    options.level1_bytes as f64 * (options.level_ratio as f64).powi(level as i32 - 1)
}

fn bytes_of<'a>(tables: impl IntoIterator<Item = &'a Arc<TableHandle>>) -> u64 {
    tables.into_iter().map(|table| table.meta().file_bytes).sum()
}

/// Deletes, with range tombstones counted as several.
fn tombstones_of(meta: &TableMeta) -> u64 {
    meta.deletes.saturating_add(meta.range_tombstones.saturating_mul(DELETES_PER_RANGE))
}

/// A key range as a caller of `pick_manual` gives it: from `start` on, before `end`.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub start: Option<&'a [u8]>,
    pub end: Option<&'a [u8]>,
}

impl<'a> Policy<'a> {
    fn comparator(&self) -> &'a dyn Comparator {
        &*self.options.comparator
    }

    /// Levels that may have tables.
    fn depth(&self) -> usize {
        self.levels.depth()
    }

    fn tables(&self, level: usize) -> &'a [Arc<TableHandle>] {
        self.levels.level(level)
    }

    /// The deepest level with a table; 0 if none has.
    fn bottom(&self) -> usize {
        (0..self.depth()).rev().find(|&level| !self.tables(level).is_empty()).unwrap_or(0)
    }

    fn is_busy(&self, table: &TableHandle) -> bool {
        self.running.reads(table.meta().id)
    }

    fn input_bytes_max(&self) -> u64 {
        self.options.table_bytes.saturating_mul(INPUT_TABLES_MAX)
    }

    fn score(&self, level: usize) -> f64 {
        let tables = self.tables(level);
        if level == 0 {
            return tables.len() as f64 / self.options.level0_tables as f64;
        }
        let bytes = bytes_of(tables.iter().filter(|table| !self.is_busy(table)));
        bytes as f64 / target_bytes(self.options, level)
    }

    /// The neighbours in a level from 1 that overlap `span`, by index. O(log tables).
    fn overlapping(&self, level: usize, span: &KeySpan) -> Range<usize> {
        let (comparator, tables) = (self.comparator(), self.tables(level));
        let start = tables.partition_point(|table| table.meta().ends_before(comparator, &span.start));
        let count =
            tables[start..].partition_point(|table| !span.is_before(comparator, &table.meta().smallest));
        start..start + count
    }

    fn overlaps_bounds(&self, table: &TableHandle, bounds: Bounds<'_>) -> bool {
        table.meta().overlaps(self.comparator(), bounds.start, bounds.end, false)
    }

    /// The tables of a level that overlap `bounds`, by index.
    fn within<'b>(&'b self, level: usize, bounds: Bounds<'b>) -> impl Iterator<Item = usize> + 'b {
        let tables = self.tables(level).iter().enumerate();
        tables.filter(move |(_, table)| self.overlaps_bounds(table, bounds)).map(|(at, _)| at)
    }

    /// A plan that takes old tables of level 0 (of those in `bounds`) to level 1.
    fn pick_level0(&self, bounds: Option<Bounds<'_>>, reason: Reason) -> Option<CompactionPlan> {
        // Oldest first.
        let tables: Vec<&Arc<TableHandle>> = self.tables(0).iter().rev().collect();
        let seeds = tables.iter().enumerate().filter(|(_, table)| {
            !self.is_busy(table) && bounds.is_none_or(|bounds| self.overlaps_bounds(table, bounds))
        });
        seeds.take(LEVEL0_SEEDS_MAX).find_map(|(seed, _)| self.plan_level0(&tables, seed, bounds, reason))
    }

    /// A plan that takes the table at `seed` of level 0, which is given oldest first, with all that it must
    /// not leave behind: whatever stays is newer than all that it overlaps, or overlaps nothing.
    fn plan_level0(
        &self,
        tables: &[&Arc<TableHandle>],
        seed: usize,
        bounds: Option<Bounds<'_>>,
        reason: Reason,
    ) -> Option<CompactionPlan> {
        let comparator = self.comparator();
        let mut taken = vec![false; tables.len()];
        taken[seed] = true;
        let mut newest = seed;
        let mut span = span_of(tables[seed].meta());
        let mut bytes = tables[seed].meta().file_bytes;
        let mut at = 0;
        while at < tables.len() {
            let table = tables[at];
            let wanted = !taken[at]
                && (span_of(table.meta()).overlaps(comparator, &span)
                    || bounds.is_some_and(|bounds| self.overlaps_bounds(table, bounds)));
            // Newer ones may stay; older ones must come.
            if wanted && (at < newest || bytes < self.input_bytes_max()) {
                taken[at] = true;
                newest = newest.max(at);
                bytes += table.meta().file_bytes;
                span.extend(comparator, &span_of(table.meta()));
                at = 0;
            } else {
                at += 1;
            }
        }
        // Back to newest first.
        let newest_first = tables.iter().zip(&taken).rev();
        let inputs: Vec<Arc<TableHandle>> =
            newest_first.filter(|&(_, &taken)| taken).map(|(table, _)| Arc::clone(table)).collect();
        self.plan(0, inputs, &span, reason)
    }

    /// A plan for a level from 1 that is too large.
    fn pick_level(&self, level: usize, reason: Reason) -> Option<CompactionPlan> {
        let mut best: Option<(f64, Lsn, usize)> = None;
        for (at, table) in self.tables(level).iter().enumerate() {
            if self.is_busy(table) {
                continue;
            }
            let meta = table.meta();
            let span = span_of(meta);
            let below = &self.tables(level + 1)[self.overlapping(level + 1, &span)];
            let in_the_way = below.iter().any(|table| self.is_busy(table));
            if in_the_way || self.running.writes(self.comparator(), level as u32 + 1, &span) {
                continue;
            }
            let share = tombstones_of(meta).min(meta.entries.max(1)) as f64 / meta.entries.max(1) as f64;
            let cost = bytes_of(below) as f64 / (meta.file_bytes.max(1) as f64 * (1.0 + share));
            let candidate = (cost, meta.max_lsn, at);
            if best.is_none_or(|best| (candidate.0, candidate.1) < (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        let (_, _, at) = best?;
        self.plan_run(level, at, None, reason)
    }

    /// A plan that takes the table at `at` and such neighbours as cost little: those that bring nothing
    /// of the next level along that is not taken anyway, and those in `bounds`.
    fn plan_run(
        &self,
        level: usize,
        at: usize,
        bounds: Option<Bounds<'_>>,
        reason: Reason,
    ) -> Option<CompactionPlan> {
        let comparator = self.comparator();
        let tables = self.tables(level);
        if self.is_busy(&tables[at]) {
            return None;
        }
        let mut run = at..at + 1;
        let mut span = span_of(tables[at].meta());
        let mut bytes = tables[at].meta().file_bytes;
        loop {
            let below = self.overlapping(level + 1, &span);
            let left = run.start.checked_sub(1);
            let right = Some(run.end).filter(|&end| end < tables.len());
            let grown = [left, right].into_iter().flatten().find(|&at| {
                let table = &tables[at];
                let mut wider = span.clone();
                wider.extend(comparator, &span_of(table.meta()));
                let free = !below.is_empty() && self.overlapping(level + 1, &wider) == below;
                let wanted = bounds.is_some_and(|bounds| self.overlaps_bounds(table, bounds));
                let met = bytes_of(&self.tables(level + 1)[self.overlapping(level + 1, &wider)]);
                let fits = bytes + table.meta().file_bytes + met <= self.input_bytes_max();
                !self.is_busy(table) && fits && (free || wanted)
            });
            let Some(at) = grown else { break };
            run = run.start.min(at)..run.end.max(at + 1);
            span.extend(comparator, &span_of(tables[at].meta()));
            bytes += tables[at].meta().file_bytes;
        }
        self.plan(level, tables[run].to_vec(), &span, reason)
    }

    /// The plan that merges `inputs`, which span `span`, into the next level; `None` if a table there is busy.
    fn plan(
        &self,
        level: usize,
        inputs: Vec<Arc<TableHandle>>,
        span: &KeySpan,
        reason: Reason,
    ) -> Option<CompactionPlan> {
        let output = level + 1;
        let next = &self.tables(output)[self.overlapping(output, span)];
        let mut plan = self.plan_of(level, output, inputs, next, reason)?;
        let disjoint = plan.inputs[0].1.len() == 1 || level > 0;
        let drops = plan.bottom && plan.tables().any(|(_, table)| self.rewrite_helps(table.meta()));
        let bytes_max = self.options.table_bytes.saturating_mul(MOVED_TABLES_MAX);
        let fits = plan.tables().all(|(_, table)| table.meta().file_bytes <= bytes_max);
        plan.trivial_move = next.is_empty() && disjoint && fits && !drops;
        if plan.trivial_move {
            plan.cuts.clear();
        }
        Some(plan)
    }

    /// A plan that rewrites one table of the bottom level where it is.
    fn rewrite(&self, level: usize, at: usize, reason: Reason) -> Option<CompactionPlan> {
        self.plan_of(level, level, vec![self.tables(level)[at].clone()], &[], reason)
    }

    fn plan_of(
        &self,
        level: usize,
        output: usize,
        inputs: Vec<Arc<TableHandle>>,
        next: &[Arc<TableHandle>],
        reason: Reason,
    ) -> Option<CompactionPlan> {
        let comparator = self.comparator();
        let span = hull(comparator, inputs.iter().chain(next))?;
        if inputs.iter().chain(next).any(|table| self.is_busy(table))
            || self.running.writes(comparator, output as u32, &span)
        {
            return None;
        }
        let deeper = (output + 1..self.depth())
            .flat_map(|level| self.tables(level)[self.overlapping(level, &span)].iter())
            .map(|table| span_of(table.meta()))
            .collect();
        let deeper = KeySpans::new(comparator, deeper);
        let total = bytes_of(inputs.iter().chain(next));
        let cuts = match level {
            0 => self.cuts(next.iter(), total),
            _ => self.cuts(inputs.iter().chain(next), total),
        };
        let mut sources = vec![(level as u32, inputs)];
        if !next.is_empty() {
            sources.push((output as u32, next.to_vec()));
        }
        Some(CompactionPlan {
            input_level: level as u32,
            output_level: output as u32,
            inputs: sources,
            bottom: deeper.is_empty(),
            deeper,
            below: self.tables(output + 1)[self.overlapping(output + 1, &span)].to_vec(),
            span,
            cuts,
            trivial_move: false,
            reason,
        })
    }

    /// Starts of tables that cut `total` bytes into parts of like size, if the bytes are spread as those of
    /// `sorted` are, which do not overlap.
    fn cuts<'b>(&self, sorted: impl Iterator<Item = &'b Arc<TableHandle>>, total: u64) -> Vec<Vec<u8>> {
        let comparator = self.comparator();
        let mut starts: Vec<(&[u8], u64)> =
            sorted.map(|table| (table.meta().smallest.as_slice(), table.meta().file_bytes)).collect();
        starts.sort_by(|a, b| comparator.compare(a.0, b.0));
        let parts = (total / self.options.table_bytes.saturating_mul(PART_TABLES_MIN).max(1)).min(PARTS_MAX);
        let known: u64 = starts.iter().map(|(_, bytes)| bytes).sum();
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        let mut passed = 0;
        for (number, (start, bytes)) in starts.iter().enumerate() {
            let due = passed >= known * (cuts.len() as u64 + 1) / parts.max(1);
            let last = cuts.last().map_or(starts[0].0, |cut| cut);
            let advances = number > 0 && comparator.compare(last, start).is_lt();
            if advances && due && (cuts.len() as u64) + 1 < parts {
                cuts.push(start.to_vec());
            }
            passed += bytes;
        }
        cuts
    }

    /// A plan for a table whose tombstones free much for what merging it costs.
    fn pick_tombstones(&self) -> Option<CompactionPlan> {
        let bottom = self.bottom();
        for level in 1..=bottom {
            for (at, table) in self.tables(level).iter().enumerate() {
                let meta = table.meta();
                if tombstones_of(meta) == 0 {
                    continue;
                }
                let below = &self.tables(level + 1)[self.overlapping(level + 1, &span_of(meta))];
                let read: u64 = meta.entries + below.iter().map(|table| table.meta().entries).sum::<u64>();
                let mostly_ranges = meta.range_tombstones.saturating_mul(DELETES_PER_RANGE) >= meta.entries;
                if !mostly_ranges && meta.deletes.saturating_mul(READ_PER_DELETE_MAX) < read {
                    continue;
                }
                let plan = if level < bottom {
                    self.plan_run(level, at, None, Reason::Tombstones)
                } else {
                    self.rewrite_helps(meta).then(|| self.rewrite(level, at, Reason::Tombstones)).flatten()
                };
                if plan.is_some() {
                    return plan;
                }
            }
        }
        None
    }

    /// True if writing the table anew at the bottom leaves it without tombstones.
    fn rewrite_helps(&self, meta: &TableMeta) -> bool {
        tombstones_of(meta) > 0 && meta.max_lsn < self.oldest_snapshot
    }
}

#[cfg(test)]
#[path = "leveled_tests.rs"]
mod tests;
