//! What every policy looks at, and the steps that all of them share.
//!
//! Place: made by the functions of `layout`, asked by `leveled` and `tiered`; reads tables' descriptions only, no file.
//!
//! Invariants: [`Policy::plan_of`] makes no plan that breaks those of `plan`, whatever it is asked for: then it gives none.
//!
//! Borders: under the tiered layouts outputs are cut where tables of the deepest run begin, so that what lies above a table of
//! that run overlaps it alone, and falls into components as small as that. Borders are kept nowhere: whoever writes the deepest
//! run anew reads all that lies above it there. A border that is gone costs a larger component once, and nothing else.
//!
//! Complexity: as each says; levels are searched by key, but for level 0, which is looked through.
//! Concurrency: pure functions. Tests: those of the policies.

use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::key::{Comparator, Lsn};
use crate::layout::plan::{Border, CompactionPlan, Reason, hull, span_of};
use crate::layout::tiered::Tiers;
use crate::layout::{KeySpan, KeySpans, Running, values};
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

/// Borders of a keyspace, about, at most: with more tables in the deepest run, some of them are none.
const BORDERS_MAX: usize = 256;

/// What a choice is made of.
pub(super) struct Policy<'a> {
    pub levels: &'a Levels,
    pub options: &'a KeyspaceOptions,
    pub running: &'a Running,
    /// The smallest bound of a live snapshot; `MAX` for none.
    pub oldest_snapshot: Lsn,
}

/// A key range as a caller of `pick_manual` gives it: from `start` on, before `end`.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub start: Option<&'a [u8]>,
    pub end: Option<&'a [u8]>,
}

/// Tables by level, the shallower first; level 0 newest first, deeper ones by key.
pub(super) type Inputs = Vec<(u32, Vec<Arc<TableHandle>>)>;

/// Bytes of the tables' files.
pub(super) fn bytes_of<'a>(tables: impl IntoIterator<Item = &'a Arc<TableHandle>>) -> u64 {
    tables.into_iter().map(|table| table.meta().file_bytes).sum()
}

/// Deletes, and versions that only a snapshot needs, if anybody.
fn dead_of(meta: &TableMeta) -> u64 {
    meta.deletes.saturating_add(meta.hidden)
}

/// The same, with range tombstones counted as several.
pub(super) fn tombstones_of(meta: &TableMeta) -> u64 {
    dead_of(meta).saturating_add(meta.range_tombstones.saturating_mul(DELETES_PER_RANGE))
}

/// True if the table's tombstones are worth a merge that reads so many entries.
pub(super) fn tombstones_pay(meta: &TableMeta, read: u64) -> bool {
    let mostly_ranges = meta.range_tombstones.saturating_mul(DELETES_PER_RANGE) >= meta.entries;
    tombstones_of(meta) > 0 && (mostly_ranges || dead_of(meta).saturating_mul(READ_PER_DELETE_MAX) >= read)
}

impl<'a> Policy<'a> {
    pub fn comparator(&self) -> &'a dyn Comparator {
        &*self.options.comparator
    }

    /// Levels that may have tables.
    pub fn depth(&self) -> usize {
        self.levels.depth()
    }

    pub fn tables(&self, level: usize) -> &'a [Arc<TableHandle>] {
        self.levels.level(level)
    }

    /// The deepest level with a table; 0 if none has.
    pub fn bottom(&self) -> usize {
        self.depth().saturating_sub(1)
    }

    pub fn is_busy(&self, table: &TableHandle) -> bool {
        self.running.reads(table.meta().id)
    }

    /// Bytes of a plan's inputs beyond which nothing is taken that need not be.
    pub fn input_bytes_max(&self) -> u64 {
        self.options.table_bytes.saturating_mul(INPUT_TABLES_MAX)
    }

    /// The neighbours in a level from 1 that overlap `span`, by index. O(log tables).
    pub fn overlapping(&self, level: usize, span: &KeySpan) -> Range<usize> {
        let (comparator, tables) = (self.comparator(), self.tables(level));
        let start = tables.partition_point(|table| table.meta().ends_before(comparator, &span.start));
        let count =
            tables[start..].partition_point(|table| !span.is_before(comparator, &table.meta().smallest));
        start..start + count
    }

    pub fn overlaps_bounds(&self, table: &TableHandle, bounds: Bounds<'_>) -> bool {
        table.meta().overlaps(self.comparator(), bounds.start, bounds.end, false)
    }

    /// The tables of a level that overlap `bounds`, by index.
    pub fn within<'b>(&'b self, level: usize, bounds: Bounds<'b>) -> impl Iterator<Item = usize> + 'b {
        let tables = self.tables(level).iter().enumerate();
        tables.filter(move |(_, table)| self.overlaps_bounds(table, bounds)).map(|(at, _)| at)
    }

    /// Old tables of level 0, of those in `bounds`, that make a plan as `plan_of` asks for.
    pub fn pick_level0(
        &self,
        bounds: Option<Bounds<'_>>,
        plan_of: impl Fn(Vec<Arc<TableHandle>>, &KeySpan) -> Option<CompactionPlan>,
    ) -> Option<CompactionPlan> {
        // Oldest first.
        let tables: Vec<&Arc<TableHandle>> = self.tables(0).iter().rev().collect();
        let seeds = tables.iter().enumerate().filter(|(_, table)| {
            !self.is_busy(table) && bounds.is_none_or(|bounds| self.overlaps_bounds(table, bounds))
        });
        seeds.take(LEVEL0_SEEDS_MAX).find_map(|(seed, _)| {
            let (inputs, span) = self.level0_around(&tables, seed, bounds);
            plan_of(inputs, &span)
        })
    }

    /// The table at `seed` of level 0, which is given oldest first, with all that it must not leave behind: whatever stays
    /// is newer than all that it overlaps, or overlaps nothing. Newest first, with the span.
    fn level0_around(
        &self,
        tables: &[&Arc<TableHandle>],
        seed: usize,
        bounds: Option<Bounds<'_>>,
    ) -> (Vec<Arc<TableHandle>>, KeySpan) {
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
        let newest_first = tables.iter().zip(&taken).rev();
        (newest_first.filter(|&(_, &taken)| taken).map(|(table, _)| Arc::clone(table)).collect(), span)
    }

    /// True if some running job writes to one of the levels within `span`.
    pub fn is_written(&self, mut levels: impl Iterator<Item = usize>, span: &KeySpan) -> bool {
        levels.any(|level| self.running.writes(self.comparator(), level as u32, span))
    }

    /// True if the tables can be given another level as they are.
    fn can_move(&self, plan: &CompactionPlan) -> bool {
        let [(level, tables)] = &plan.inputs[..] else { return false };
        let disjoint = *level > 0 || tables.len() == 1;
        let drops = plan.bottom && tables.iter().any(|table| self.rewrite_helps(table.meta()))
            || tables.iter().any(|table| self.brings_back(table.meta()));
        let bytes_max = self.options.table_bytes.saturating_mul(MOVED_TABLES_MAX);
        let fits = tables.iter().all(|table| table.meta().file_bytes <= bytes_max);
        // Level 0 waits for the room: what is to be written anew is so another time.
        let pays = plan.reason == Reason::Room || (fits && !drops);
        *level != plan.output_level && plan.borders.is_empty() && disjoint && pays
    }

    /// The plan that merges `inputs` into `output`, or moves them there where nothing is in the way; `None` if a job is, or a
    /// table that is no input. O(levels x log tables + inputs).
    pub fn plan_of(&self, inputs: Inputs, output: usize, reason: Reason) -> Option<CompactionPlan> {
        self.plan_with(inputs, output, Vec::new(), reason)
    }

    /// As [`Policy::plan_of`], cut at borders. Whoever asks answers for the levels that lie deeper behind some of them.
    pub fn plan_with(
        &self,
        inputs: Inputs,
        output: usize,
        borders: Vec<Border>,
        reason: Reason,
    ) -> Option<CompactionPlan> {
        let comparator = self.comparator();
        let inputs: Inputs = inputs.into_iter().filter(|(_, tables)| !tables.is_empty()).collect();
        let all = || inputs.iter().flat_map(|(_, tables)| tables);
        let span = hull(comparator, all())?;
        let (first, last) = (inputs.first()?.0 as usize, inputs.last()?.0 as usize);
        let shallowest = borders.iter().map(|border| border.level as usize).fold(output, usize::min);
        let last = last.max(shallowest);
        // What stays on the first level is newer than what leaves it, unless the outputs come to lie beside it.
        let passed = if shallowest > first { first + 1..=last } else { shallowest.max(1)..=last };
        let stays = |level: usize| {
            let taken =
                inputs.iter().find(|(of, _)| *of as usize == level).map_or(0, |(_, tables)| tables.len());
            self.overlapping(level, &span).len() != taken
        };
        if all().any(|table| self.is_busy(table))
            || self.is_written(passed.clone(), &span)
            || passed.clone().any(stays)
        {
            return None;
        }
        let deeper = (last + 1..self.depth())
            .flat_map(|level| self.tables(level)[self.overlapping(level, &span)].iter())
            .map(|table| span_of(table.meta()))
            .collect();
        let deeper = KeySpans::new(comparator, deeper);
        let sorted = inputs.iter().filter(|(level, _)| *level > 0).flat_map(|(_, tables)| tables);
        let cuts = self.cuts(sorted, bytes_of(all()));
        // In a trie what lies under the outputs in their piles, which are free above them: the filters of these go with them.
        let pile = Tiers::of(self.options).map_or(0..0, |tiers| tiers.under(shallowest));
        let of_level = |level: usize| self.tables(level)[self.overlapping(level, &span)].iter();
        let pile = pile.flat_map(of_level).cloned().collect();
        let mut plan = CompactionPlan {
            input_level: first as u32,
            output_level: output as u32,
            inputs,
            bottom: deeper.is_empty(),
            deeper: Arc::new(deeper),
            below: self.tables(last + 1)[self.overlapping(last + 1, &span)].into(),
            pile,
            borders: borders.into(),
            span,
            cuts,
            collected: values::collected(self.levels, self.options),
            trivial_move: false,
            reason,
        };
        plan.trivial_move = self.can_move(&plan);
        if plan.trivial_move {
            plan.cuts.clear();
        }
        Some(plan)
    }

    /// Where outputs above the deepest run are cut: where its tables begin within `span`, that itself excepted. O(tables of the
    /// run in it).
    pub fn borders(&self, span: &KeySpan) -> Vec<Vec<u8>> {
        let deepest = self.bottom();
        let (comparator, tables) = (self.comparator(), self.tables(deepest));
        // Of a key alone it hangs whether it is one of the few: so fewer borders are some of the more.
        let mask = (tables.len() / BORDERS_MAX).next_power_of_two() as u64 - 1;
        let starts = tables[self.overlapping(deepest, span)].iter().map(|table| &table.meta().smallest);
        let within = starts.filter(|key| comparator.compare(key, &span.start).is_gt());
        within.filter(|key| XxHash3_64::oneshot(key) & mask == 0).cloned().collect()
    }

    /// A plan that rewrites one table where it is.
    pub fn rewrite(&self, level: usize, at: usize, reason: Reason) -> Option<CompactionPlan> {
        self.plan_of(vec![(level as u32, vec![self.tables(level)[at].clone()])], level, reason)
    }

    /// True if writing the table anew brings values back that are not to lie apart any more.
    pub fn brings_back(&self, meta: &TableMeta) -> bool {
        self.options.value_separation.is_none() && !meta.values.is_empty()
    }

    /// True if writing the table anew at the bottom leaves it without tombstones and old versions.
    pub fn rewrite_helps(&self, meta: &TableMeta) -> bool {
        tombstones_of(meta) > 0 && meta.max_lsn < self.oldest_snapshot
    }

    /// Starts of tables that cut `total` bytes into parts of like size, if the bytes are spread as those of `tables` are.
    fn cuts<'b>(&self, tables: impl Iterator<Item = &'b Arc<TableHandle>>, total: u64) -> Vec<Vec<u8>> {
        let comparator = self.comparator();
        let mut starts: Vec<(&[u8], u64)> =
            tables.map(|table| (table.meta().smallest.as_slice(), table.meta().file_bytes)).collect();
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

    /// What the tables of these levels from 1 fall into that no key joins, by key.
    pub fn components(&self, levels: Range<usize>) -> Vec<Component> {
        let comparator = self.comparator();
        let end = levels.end.min(self.depth());
        let mut tables: Vec<(u32, &Arc<TableHandle>)> = (levels.start.min(end)..end)
            .flat_map(|level| self.tables(level).iter().map(move |table| (level as u32, table)))
            .collect();
        tables.sort_by(|a, b| comparator.compare(&a.1.meta().smallest, &b.1.meta().smallest));
        let mut components: Vec<Component> = Vec::new();
        for (level, table) in tables {
            let span = span_of(table.meta());
            match components.last_mut().filter(|last| last.span.overlaps(comparator, &span)) {
                Some(last) => {
                    last.span.extend(comparator, &span);
                    last.add(level, table);
                }
                None => {
                    let mut component = Component { span, inputs: Vec::new() };
                    component.add(level, table);
                    components.push(component);
                }
            }
        }
        components
    }
}

/// Tables of some levels that overlap each other, one by way of others; no other table of these levels overlaps any of them.
pub(super) struct Component {
    pub span: KeySpan,
    /// By level, the shallower first; by key.
    pub inputs: Inputs,
}

impl Component {
    fn add(&mut self, level: u32, table: &Arc<TableHandle>) {
        match self.inputs.binary_search_by_key(&level, |(level, _)| *level) {
            Ok(at) => self.inputs[at].1.push(table.clone()),
            Err(at) => self.inputs.insert(at, (level, vec![table.clone()])),
        }
    }

    /// Takes over another one, which comes behind it and has tables on the same levels.
    pub fn join(&mut self, comparator: &dyn Comparator, other: Component) {
        self.span.extend(comparator, &other.span);
        for ((_, tables), (_, more)) in self.inputs.iter_mut().zip(other.inputs) {
            tables.extend(more);
        }
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.inputs.iter().flat_map(|(_, tables)| tables)
    }
}
