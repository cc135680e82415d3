//! The leveled layout: overlapping tables at level 0, one sorted run per level below, each about
//! `level_ratio` times as large as the one above.
//!
//! Place: called by the functions of `layout`; reads tables' descriptions only, no file.
//!
//! The policy:
//! - Every level has a score: tables by `level0_tables` at level 0, bytes by the level's target below, not counting
//!   tables that a running job reads. The highest score from 1 on that a plan can be made for wins.
//! - From level 0 goes its oldest table that no job reads, with everything that the table overlaps there, and what that
//!   overlaps. If that exceeds `INPUT_TABLES_MAX` tables' worth of bytes, the newest of them stay.
//! - From a deeper level goes the table that brings the fewest bytes of the next level with it for each of its own;
//!   tombstones make it count as heavier. Neighbours that bring nothing further come along.
//! - Tables that meet nothing in the next level are moved as they are, unless that is the bottom and they hold tombstones
//!   that a rewrite would drop.
//! - When nothing is too large, a table moves down for its tombstones alone, if there are enough of them for what it
//!   meets, or if they are mostly ranges; and is rewritten at the bottom once no snapshot can need them. Both end: the one
//!   at the bottom, the other with a table without tombstones.
//!
//! - What another layout left deeper than a level that could hold everything comes up to that one.
//!
//! Invariants: those of `plan`. Two jobs from level 0 never share a key: the later would find the earlier one's span, or
//! one of its tables, in its way. So level 1 gets them in order.
//!
//! Complexity: O(tables) comparisons per pick.
//! Concurrency: pure functions. Origin: LevelDB's levels, the choice by overlap as in RocksDB; none of the papers
//! says how to choose. Tests: `leveled_tests.rs`, a store of lists without a disk.

use super::policy::{Bounds, Inputs, Policy, bytes_of, tombstones_of, tombstones_pay};
use crate::key::Lsn;
use crate::layout::ManualPick;
use crate::layout::plan::{CompactionPlan, Reason, span_of};
use crate::options::KeyspaceOptions;
use crate::version::Levels;

/// Levels below the one that could hold everything, at most: what lies deeper was left there by another layout, or by data that
/// is gone.
const SPARE_LEVELS: usize = 2;

/// The plan for the most urgent work, if any is due and free to be done.
pub(super) fn pick(policy: &Policy<'_>) -> Option<CompactionPlan> {
    let mut due: Vec<(f64, usize)> = (0..policy.depth())
        .map(|level| (policy.score(level), level))
        .filter(|&(score, _)| score >= 1.0)
        .collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let by_size = due.into_iter().find_map(|(score, level)| match level {
        0 => policy.leave_level0(None, Reason::Level0Tables(policy.tables(0).len())),
        _ => policy.pick_level(level, Reason::LevelBytes(score)),
    });
    by_size.or_else(|| policy.pick_too_deep().flatten()).or_else(|| policy.pick_tombstones())
}

/// The next step of compacting `range` to the bottom.
pub(super) fn pick_manual(policy: &Policy<'_>, range: Bounds<'_>) -> ManualPick {
    match policy.pick_too_deep() {
        None => {}
        Some(Some(plan)) => return ManualPick::Plan(plan),
        // Nothing is taken down meanwhile to where it would have to come up from.
        Some(None) => return ManualPick::Busy,
    }
    let bottom = policy.bottom().max(1);
    let mut blocked = false;
    for level in 0..bottom {
        let mut wanted = policy.within(level, range).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let plan = match level {
            0 => policy.leave_level0(Some(range), Reason::Manual),
            _ => wanted.find_map(|at| policy.plan_run(level, at, Some(range), Reason::Manual)),
        };
        match plan {
            Some(plan) => return ManualPick::Plan(plan),
            None => blocked = true,
        }
    }
    for at in policy.within(bottom, range) {
        let table = &policy.tables(bottom)[at];
        if policy.rewrite_helps(table.meta()) || policy.brings_back(table.meta()) {
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

impl Policy<'_> {
    fn score(&self, level: usize) -> f64 {
        let tables = self.tables(level);
        if level == 0 {
            return tables.len() as f64 / self.options.level0_tables as f64;
        }
        let bytes = bytes_of(tables.iter().filter(|table| !self.is_busy(table)));
        bytes as f64 / target_bytes(self.options, level)
    }

    /// A plan that takes old tables of level 0 (of those in `bounds`) to level 1.
    fn leave_level0(&self, bounds: Option<Bounds<'_>>, reason: Reason) -> Option<CompactionPlan> {
        self.pick_level0(bounds, |inputs, span| {
            let next = self.tables(1)[self.overlapping(1, span)].to_vec();
            self.plan_of(vec![(0, inputs), (1, next)], 1, reason)
        })
    }

    /// A plan that brings what lies too deep up to the level that could hold everything; `None` if nothing does,
    /// `Some(None)` if all that does is in the way of running jobs.
    fn pick_too_deep(&self) -> Option<Option<CompactionPlan>> {
        let all = bytes_of(self.levels.tables()) as f64;
        let fitting = (1..self.depth()).find(|&level| target_bytes(self.options, level) >= all)?;
        if self.bottom() <= fitting + SPARE_LEVELS {
            return None;
        }
        let deep = |inputs: &Inputs| inputs.iter().any(|(level, _)| *level as usize > fitting + SPARE_LEVELS);
        let components = self.components(fitting..self.depth()).into_iter();
        let plans = components
            .filter(|component| deep(&component.inputs))
            .find_map(|component| self.plan_of(component.inputs, fitting, Reason::TooDeep));
        Some(plans)
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
        let next = self.tables(level + 1)[self.overlapping(level + 1, &span)].to_vec();
        self.plan_of(vec![(level as u32, tables[run].to_vec()), (level as u32 + 1, next)], level + 1, reason)
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
                if !tombstones_pay(meta, read) {
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
}

#[cfg(test)]
#[path = "leveled_tests.rs"]
mod tests;
