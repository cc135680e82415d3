//! Filter bits by level: what the tables that a job writes get, by the runs that there are when it is done.
//!
//! Place: `db` asks before a job; `compaction` gives each output the bits of its level.
//!
//! A run is a table of level 0, or a level below. A read meets it only where it lies: in a level of which a part of the keys
//! was merged into the next there are gaps. So a run of n entries that lies over a part f of the keys counts f times in what is
//! read in vain, and as n / f entries where it lies. How large a part is is told by the tables' entries.
//! Tables keep what they got: the next job that writes them goes by the runs of its time.
//!
//! By size, all together get no more bits than memory is sure to hold. A filter that memory does not hold is read anew for a get,
//! all of it, or not asked; with few bits for all, the deepest run is the first that goes without, where a read of a key that is
//! there has to look anyway.
//!
//! Complexity: O(tables log tables). Concurrency: a value. Tests: here, tests/filters.rs. Origin: see `filter::allocate`.

use std::collections::HashSet;

use crate::filter::{Grid, allocate};
use crate::key::Comparator;
use crate::options::{FilterAllocation, KeyspaceOptions};
use crate::table::{TableId, TableMeta};
use crate::version::{LEVEL_MAX, Levels};

use super::plan::span_of;
use super::tiered::Tiers;
use super::{CompactionPlan, KeySpan};

/// The fewest bits a key with which a trie's filters are held in memory, but for those who ask for fewer: a table errs for one get
/// of fifty then, where columns cost each a read.
const LEAST_BITS: f64 = 8.0;
/// And of those that are asked for, the least part. Tables keep what they got: of a store that grew until its last ones get so few,
/// the filters of its last tier take 1 + ln 2 times what all were to take; once that tier has columns, those
/// above take theirs besides, until tables with columns lie over all of the last tier's and its filters go.
const LEAST_PART: f64 = 0.5;

/// What an open table of a trie takes beside its filter: 1.93 KB in the mean of 5,800 small ones, of which clusters name 15 runs.
/// Large ones take more, but less of what their filters take.
const OPEN_TABLE_BYTES: u64 = 2048;

/// See the module.
#[derive(Clone, Debug)]
pub struct FilterBits {
    /// By level; deeper ones get the last.
    by_level: Vec<f64>,
    /// Of a trie: the columns of filters, by level, from the one on that memory does not hold.
    grids: Vec<Option<Grid>>,
}

/// What lies on a level.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Of the keys, the part that it lies over; of level 0 that of all tables together.
    part: f64,
    entries: f64,
}

/// How many entries lie where: each table's at its first key.
struct Ruler<'a> {
    comparator: &'a dyn Comparator,
    /// Ascending, with the entries of all before.
    marks: Vec<(&'a [u8], f64)>,
    all: f64,
}

impl<'a> Ruler<'a> {
    fn new(levels: &'a Levels, comparator: &'a dyn Comparator) -> Ruler<'a> {
        let of = |meta: &'a TableMeta| (&meta.smallest[..], meta.entries as f64);
        let mut marks: Vec<(&[u8], f64)> = levels.tables().map(|table| of(table.meta())).collect();
        marks.sort_by(|(a, _), (b, _)| comparator.compare(a, b));
        let mut all = 0.0;
        for (_, entries) in &mut marks {
            all += std::mem::replace(entries, all);
        }
        Ruler { comparator, marks, all }
    }

    /// The part of all entries that lies in the span.
    fn part(&self, span: &KeySpan) -> f64 {
        let before = |at: usize| self.marks.get(at).map_or(self.all, |(_, entries)| *entries);
        let from = self.marks.partition_point(|(key, _)| self.comparator.compare(key, &span.start).is_lt());
        let to = self.marks.partition_point(|(key, _)| !span.is_before(self.comparator, key));
        if self.all > 0.0 { (before(to) - before(from)) / self.all } else { 0.0 }
    }
}

impl FilterBits {
    /// The same for all.
    pub fn uniform(bits_per_key: f64) -> FilterBits {
        FilterBits { by_level: vec![bits_per_key], grids: Vec::new() }
    }

    /// As the levels are, for a memory that holds `bytes_max` of filters.
    pub fn of(levels: &Levels, options: &KeyspaceOptions, bytes_max: u64) -> FilterBits {
        FilterBits::new(levels, options, bytes_max, None, |_, _| {})
    }

    /// For a flush of about so many entries.
    pub fn of_flush(levels: &Levels, options: &KeyspaceOptions, bytes_max: u64, entries: u64) -> FilterBits {
        FilterBits::new(levels, options, bytes_max, None, |runs, _| {
            runs[0].part += 1.0;
            runs[0].entries += entries as f64;
        })
    }

    /// For a merge by this plan.
    pub fn of_merge(
        levels: &Levels,
        options: &KeyspaceOptions,
        bytes_max: u64,
        plan: &CompactionPlan,
    ) -> FilterBits {
        FilterBits::new(levels, options, bytes_max, Some(plan), |runs, ruler| {
            let moved: u64 = plan.tables().map(|(_, table)| table.meta().entries).sum();
            let whole = ruler.part(&plan.span).max(f64::MIN_POSITIVE);
            for (level, span) in plan.landings() {
                let needed = level as usize + 1;
                if runs.len() < needed {
                    runs.resize(needed, Run::default());
                }
                let part = ruler.part(&span);
                runs[level as usize].part += part;
                runs[level as usize].entries += moved as f64 * (part / whole).min(1.0);
            }
        })
    }

    /// For the levels without what `plan` takes from them, and with what `change` adds.
    fn new(
        levels: &Levels,
        options: &KeyspaceOptions,
        bytes_max: u64,
        plan: Option<&CompactionPlan>,
        change: impl FnOnce(&mut Vec<Run>, &Ruler<'_>),
    ) -> FilterBits {
        if options.filter_allocation == FilterAllocation::Uniform || !options.is_ordered() {
            return FilterBits::uniform(options.filter_bits_per_key);
        }
        let ruler = Ruler::new(levels, &*options.comparator);
        let mut runs = vec![Run::default(); levels.depth().max(1)];
        let taken: HashSet<TableId> =
            plan.iter().flat_map(|plan| plan.tables()).map(|(_, table)| table.meta().id).collect();
        for (level, run) in runs.iter_mut().enumerate() {
            for table in levels.level(level).iter().filter(|table| !taken.contains(&table.meta().id)) {
                run.part += ruler.part(&span_of(table.meta()));
                run.entries += table.meta().entries as f64;
            }
        }
        change(&mut runs, &ruler);
        let densities: Vec<(f64, f64)> =
            runs.iter().map(|run| (run.part, run.entries / run.part.max(f64::MIN_POSITIVE))).collect();
        let entries: f64 = runs.iter().map(|run| run.entries).sum();
        let bits = options.filter_bits_per_key.min(8.0 * bytes_max as f64 / entries.max(1.0));
        FilterBits { by_level: allocate(&densities, bits), grids: Vec::new() }
    }

    /// In a trie whose tables may take so many bytes of memory while they are open. Half of what other parts leave is for filters, and
    /// three sevenths at most: tables keep what they got (see [`LEAST_PART`]), and one that is opened without its filter costs each get a read.
    /// The tiers from the root down have theirs there, with as many bits as there is room for, as long as these are
    /// [`LEAST_BITS`] and [`LEAST_PART`] of all. Below, filters stand in columns, with all bits.
    pub fn with_memory(mut self, levels: &Levels, options: &KeyspaceOptions, table_bytes: u64) -> FilterBits {
        let Some(tiers) = Tiers::of(options) else { return self };
        let others = levels.tables().count() as u64 * OPEN_TABLE_BYTES;
        let filter_bytes = (table_bytes / 7 * 3).min(table_bytes.saturating_sub(others) / 2);
        let full = options.filter_bits_per_key;
        let least = full.min(LEAST_BITS).max(LEAST_PART * full);
        let (mut bits, mut all) = (full, 0);
        for (tier, (range, entries)) in tiers.of_trie(levels).enumerate() {
            all += entries;
            let fitting = full.min(8.0 * filter_bytes as f64 / all.max(1) as f64);
            if tier > 0 && fitting < least {
                let grid = |level| if level < range.start { None } else { tiers.grid(options, level) };
                self.grids = (0..=LEVEL_MAX as usize).map(grid).collect();
                self.by_level = [vec![bits; range.start], vec![full]].concat();
                return self;
            }
            bits = fitting.max(least);
            self.by_level = vec![bits];
        }
        self
    }

    /// The columns in which the filter of a table at this level is written, if it is to be.
    pub fn grid(&self, level: u32) -> Option<Grid> {
        self.grids.get(level as usize).copied().flatten()
    }

    /// Bits a key of a table at this level.
    pub fn at(&self, level: u32) -> f64 {
        let last = self.by_level.len() - 1;
        self.by_level[last.min(level as usize)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::lists::Sim;
    use crate::options::Layout;

    /// How many bits a key of level 1 gets more than one of level 2, which has two hundred keys.
    fn more_bits(level1: impl Iterator<Item = u64>) -> f64 {
        let mut sim = Sim::new(20, 100, 10);
        sim.options.filter_allocation = FilterAllocation::BySize;
        sim.place(1, &level1.collect::<Vec<u64>>());
        for first in (0..200).step_by(20) {
            sim.place(2, &(first..first + 20).collect::<Vec<u64>>());
        }
        let bits = FilterBits::of(&sim.levels, &sim.options, u64::MAX);
        bits.at(1) - bits.at(2)
    }

    #[test]
    fn filters_get_no_more_bits_than_memory_holds() {
        let mut sim = Sim::new(20, 1, 10);
        sim.options.filter_allocation = FilterAllocation::BySize;
        sim.options.filter_bits_per_key = 10.0;
        sim.place(1, &(0..10).map(|n| n * 20).collect::<Vec<u64>>());
        for first in (0..200).step_by(20) {
            sim.place(2, &(first..first + 20).collect::<Vec<u64>>());
        }
        let of = |bytes_max: u64| FilterBits::of(&sim.levels, &sim.options, bytes_max);
        let bytes = |bits: &FilterBits| (10.0 * bits.at(1) + 200.0 * bits.at(2)) / 8.0;
        for room in [15, 100, 262] {
            let bits = of(room);
            assert!((bytes(&bits) - room as f64).abs() < 1.0, "{room}: {bits:?}");
        }
        assert_eq!(of(0).at(1) + of(0).at(2), 0.0);
        assert!(of(5).at(2) == 0.0 && of(5).at(1) > 3.0, "the deepest goes without: {:?}", of(5));
        assert!((bytes(&of(u64::MAX)) - 262.5).abs() < 1.0, "no more than asked for: {:?}", of(u64::MAX));
        sim.options.filter_allocation = FilterAllocation::Uniform;
        let bits = FilterBits::of(&sim.levels, &sim.options, 15);
        assert_eq!((bits.at(1), bits.at(2)), (10.0, 10.0), "who asks for as many for all gets them");
    }

    #[test]
    fn a_tries_filters_are_in_memory_as_long_as_half_of_their_bits_are() {
        let mut sim = Sim::new(20, 1, 10);
        sim.options.layout = Layout::TRIE;
        sim.options.filter_bits_per_key = 16.0;
        // Tiers 1 and 2 begin here.
        sim.place(1, &(0..100).collect::<Vec<u64>>());
        sim.place(17, &(0..1000).collect::<Vec<u64>>());
        let tables = sim.levels.tables().count() as u64;
        let room = |bytes: u64| tables * OPEN_TABLE_BYTES + bytes * 2;
        let of = |bytes: u64| {
            let bits = FilterBits::uniform(16.0).with_memory(&sim.levels, &sim.options, room(bytes));
            [0, 1, 16, 17, 32].map(|level| (bits.at(level), bits.grid(level).is_some()))
        };
        let (held, columns) = ((16.0, false), (16.0, true));
        let fewer = |bits: f64| (bits, false);
        assert_eq!(of(2200), [held; 5]);
        assert_eq!(of(1650), [fewer(12.0); 5]);
        assert_eq!(of(1100), [fewer(8.0); 5]);
        assert_eq!(of(1099), [held, held, held, columns, columns]);
        assert_eq!(of(150), [fewer(12.0), fewer(12.0), fewer(12.0), columns, columns]);
        assert_eq!(of(99), [held, columns, columns, columns, columns]);
        sim.options.filter_bits_per_key = 10.0;
        let of = |bytes: u64| FilterBits::uniform(10.0).with_memory(&sim.levels, &sim.options, room(bytes));
        assert_eq!((of(1100).at(17), of(1100).grid(17)), (8.0, None));
        assert!(of(1099).grid(17).is_some(), "fewer than eight err too often");
        sim.options.layout = Layout::LAZY_LEVELED;
        assert_eq!(FilterBits::uniform(16.0).with_memory(&sim.levels, &sim.options, 0).at(17), 16.0);
    }

    #[test]
    fn a_run_with_gaps_is_as_small_as_it_is_dense() {
        let over_all = more_bits((0..20).map(|n| n * 10));
        assert!(over_all > 4.0, "a tenth over all keys: {over_all}");
        let over_few = more_bits(0..20);
        assert!((0.0..2.0).contains(&over_few), "a tenth over a tenth of them: {over_few}");
    }
}
