//! The tiered layouts: runs that lie over one another, merged with each other and not with what is below; lazy-leveled has one
//! run at the bottom that everything above is merged into.
//!
//! Place: called by the functions of `layout`; reads tables' descriptions only, no file.
//!
//! A level from 1 holds one run, and older runs lie deeper: so every get, scan and job finds the order of versions where it is
//! under any layout. A tier is a row of levels, twice as many as it may hold runs (D): while the older ones are merged, newer
//! ones come to lie above. Level 0 is the tier before the first. With D = 8:
//! ```text
//! level  0      flushed tables           tier 0
//! levels 1-16   at most 8 runs, or 16    tier 1     a run of each: about `level0_tables` memtables
//! levels 17-32  .. while 8 are merged    tier 2     .. 8 times as much
//! levels 33-63                           tier 3     .. 64 times; the last tier takes what is left of the levels
//! level  63     the last run, lazy-leveled only
//! ```
//! The policy:
//! - A component is what overlaps, one table by way of another; components are judged each by itself, so that keys that come in
//!   order are not merged, and a part of the keys that is written much does not take the others along.
//! - Where the runs of a component are D or more, the `merged_percent` oldest (the paper's m) are merged into one run of the next
//!   tier: on its deepest level such that this and all above it are free there. In the last tier, into the place of the
//!   oldest of them.
//! - Level 0 goes to tier 1 as in the leveled layout, without what lies there.
//! - Outputs are cut at borders (`policy`), so that components stay small; neighbours that are due are merged together up to
//!   [`JOINED_TABLES`] tables' worth of bytes.
//! - A run that has no room above it though there is some below is moved down.
//! - Trie: a tier is a row of the trie's levels, and keys stand behind their places. Outputs are cut where the containers of their
//!   tier begin, each an eighth of the one above; so a component lies in one container, and is merged into its eight children
//!   when its runs are D. The last tier takes all levels that are left, and what lies there is not merged by its number until it
//!   has half of them. A pile under which nothing lies is merged into itself when half of it is garbage (`table::Sample`); a
//!   third, if nothing else is due. What snapshots need is none.
//! - Lazy-leveled: where what lies above the last run has more than `upper_percent` of its bytes, or of its entries, which counts
//!   deletes for what they hide, all of it from level 1 on is merged into the last run.
//!
//! Space: a live byte, and in each tier D - 1 runs' worth of versions of it that are not live; trie: twice what is live, and D runs
//! of each container that has something below; lazy-leveled: `upper_percent` of
//! the last run, level 0, and while a merge goes on, what it reads.
//!
//! Invariants: those of `plan`.
//! Complexity: O(tables log tables) comparisons per pick.
//! Concurrency: pure functions. Origin: sLSM §2.4 (runs, D, m, tombstones that end at a new deepest level); lazy leveling is
//! Dostoevsky's; the trie is LSM-trie's (§2.3). Tests: `tiered_tests.rs`.

use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::policy::{Bounds, Component, Inputs, Policy, bytes_of, tombstones_of, tombstones_pay};
use crate::env::PAGE_BYTES as BUCKET_BYTES;
use crate::filter::Grid;
use crate::key::{Lsn, key_prefix};
use crate::layout::plan::{Border, CompactionPlan, Reason, hull};
use crate::layout::{KeySpan, ManualPick};
use crate::options::{KeyspaceOptions, Layout};
use crate::table::{Sample, TableHandle, TableMeta};
use crate::version::{LEVEL_MAX, Levels};

/// Bytes up to which components that are due are merged together, in full tables.
const JOINED_TABLES: u64 = 4;
/// The share of garbage from which on a trie's container is collected at once,
const GARBAGE_MAX: f64 = 0.5;
/// and that from which on it is, when there is nothing else to do.
const GARBAGE_IDLE: f64 = 1.0 / 3.0;
/// The deepest level, but for tries: where lazy-leveled stores have their last run.
const LAST: usize = 63;

/// How levels are divided.
#[derive(Clone, Copy)]
pub(super) struct Tiers {
    /// Runs that a tier may hold (D).
    runs: usize,
    /// Of these, how many are merged at a time.
    merged: usize,
    /// Lazy-leveled: what may lie above the last run, as a share of it.
    upper: Option<f64>,
    /// Trie: its levels, level 0 as one of them.
    trie: Option<usize>,
}

/// Bits of a place by which a container's children differ.
const FAN_OUT_BITS: usize = 3;

impl Tiers {
    /// As the layout says; `None` if it has no tiers.
    pub fn of(options: &KeyspaceOptions) -> Option<Tiers> {
        match options.layout {
            Layout::Leveled => None,
            Layout::Tiered { runs, merged_percent } => {
                let merged = (runs * usize::from(merged_percent)).div_ceil(100);
                // Less than two is no merge.
                Some(Tiers { runs, merged: merged.clamp(2.min(runs), runs), upper: None, trie: None })
            }
            Layout::Trie { levels, runs, .. } => {
                Some(Tiers { runs, merged: runs, upper: None, trie: Some(levels.into()) })
            }
            Layout::LazyLeveled { runs, upper_percent } => {
                let upper = Some(f64::from(upper_percent) / 100.0);
                Some(Tiers { runs, merged: runs, upper, trie: None })
            }
        }
    }

    /// Levels of tiers end before this one.
    fn end(self) -> usize {
        match (self.trie, self.upper) {
            (Some(_), _) => LEVEL_MAX as usize + 1,
            (None, Some(_)) => LAST,
            (None, None) => LAST + 1,
        }
    }

    /// How many tiers there are from tier 1 on.
    fn count(self) -> usize {
        match self.trie {
            Some(levels) => levels - 1,
            None => ((self.end() - 1) / (2 * self.runs)).max(1),
        }
    }

    /// The columns of filters at a level of a trie, of about a bucket's keys each; `None` without a trie, and at level 0.
    pub fn grid(self, options: &KeyspaceOptions, level: usize) -> Option<Grid> {
        let tier = self.of_level(level);
        self.trie.filter(|_| tier > 0)?;
        let columns = (options.table_bytes / BUCKET_BYTES as u64).next_power_of_two();
        Some(Grid { skip: (FAN_OUT_BITS * tier) as u8, bits: (columns.ilog2() as u8).clamp(1, 20) })
    }

    /// The tiers of a trie from the root down: the levels of each, and the entries that lie there. None without a trie.
    pub fn of_trie(self, levels: &Levels) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
        let tiers = if self.trie.is_some() { 0..self.count() + 1 } else { 0..0 };
        tiers.map(move |tier| {
            let range = if tier == 0 { 0..1 } else { self.levels(tier) };
            let of_level = |level| levels.level(level).iter().map(|table| table.meta().entries).sum::<u64>();
            (range.clone(), range.map(of_level).sum())
        })
    }

    /// Containers of a level: in a trie as many as its tier's places differ by; else all is one.
    pub fn containers(self, level: usize) -> u64 {
        if self.trie.is_some() { 1 << (FAN_OUT_BITS * self.of_level(level)) } else { 1 }
    }

    /// Where what goes to a tier is cut within `span`, its start excepted: in a trie where the containers begin.
    fn cuts(self, policy: &Policy<'_>, tier: usize, span: &KeySpan) -> Vec<Vec<u8>> {
        match self.trie {
            Some(_) => containers_within(tier, span),
            None if policy.bottom() >= self.levels(tier).start => policy.borders(span),
            None => Vec::new(),
        }
    }

    /// The levels of a tier from 1 on.
    fn levels(self, tier: usize) -> Range<usize> {
        let start = 1 + (tier - 1) * 2 * self.runs;
        let end = if tier == self.count() { self.end() } else { start + 2 * self.runs };
        start..end
    }

    /// In a trie the levels of a level's tier that lie under it; else none.
    pub fn under(self, level: usize) -> Range<usize> {
        match self.of_level(level) {
            tier if tier > 0 && self.trie.is_some() => level + 1..self.levels(tier).end,
            _ => 0..0,
        }
    }

    /// The tier that a level is of: level 0 and the last run are one each.
    pub fn of_level(self, level: usize) -> usize {
        (1..=self.count())
            .find(|tier| level < self.levels(*tier).end)
            .map_or(self.count() + 1, |tier| tier * level.min(1))
    }
}

/// The first keys of the containers of a trie's tier that begin within `span` and behind its start.
fn containers_within(tier: usize, span: &KeySpan) -> Vec<Vec<u8>> {
    let shift = u64::BITS as usize - FAN_OUT_BITS * tier;
    let (first, last) = (key_prefix(&span.start) >> shift, key_prefix(&span.end) >> shift);
    (first + 1..=last).map(|container| (container << shift).to_be_bytes().to_vec()).collect()
}

/// The same as borders of what all goes to one level.
fn container_borders(tier: usize, span: &KeySpan, level: usize) -> Vec<Border> {
    containers_within(tier, span).into_iter().map(|key| Border { key, level: level as u32 }).collect()
}

/// Something that is due.
enum Due {
    Level0,
    /// The runs of a component of a tier.
    Runs(usize, Component),
    /// What lies above the last run, and that.
    Upper(Component),
    /// The whole pile of a trie's container under which nothing lies: much of it is garbage, or it is too high.
    Pile(Reason, Component),
}

/// The plan for the most urgent work, if any is due and free to be done.
pub(super) fn pick(policy: &Policy<'_>, tiers: Tiers) -> Option<CompactionPlan> {
    let mut due = due(policy, tiers);
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let by_runs = due.into_iter().find_map(|(score, due)| match due {
        Due::Level0 => leave_level0(policy, tiers, None, Reason::Level0Tables(policy.tables(0).len())),
        Due::Runs(tier, component) => merge(policy, tiers, tier, component),
        Due::Upper(component) => policy.plan_of(component.inputs, LAST, Reason::Upper(score)),
        Due::Pile(reason, component) => collect(policy, tiers, reason, component),
    });
    by_runs.or_else(|| pick_tombstones(policy))
}

/// A plan that merges the pile of a container into itself.
fn collect(
    policy: &Policy<'_>,
    tiers: Tiers,
    reason: Reason,
    component: Component,
) -> Option<CompactionPlan> {
    let oldest = component.inputs.last()?.0 as usize;
    // Where the number of runs was changed, a level may be of another tier than when it was written: one of larger containers.
    let borders = container_borders(tiers.of_level(oldest), &component.span, oldest);
    policy.plan_with(component.inputs, oldest, borders, reason)
}

/// The share of a pile that is of no use to anybody; 0 if it cannot be collected: something lies below, or it is one run.
fn garbage(policy: &Policy<'_>, tiers: Tiers, tier: usize, component: &Component) -> f64 {
    let mut below = tiers.levels(tier).end..policy.depth();
    if component.inputs.len() < 2 || below.any(|level| !policy.overlapping(level, &component.span).is_empty())
    {
        return 0.0;
    }
    let name = component.tables().fold(0, |name, table| {
        let age = Age::of(table.meta(), policy.oldest_snapshot) as u64;
        XxHash3_64::oneshot_with_seed(name ^ age, &table.meta().id.0.to_le_bytes())
    });
    policy.levels.reckoned(name, || {
        let entries = |table: &Arc<TableHandle>| table.meta().entries as f64;
        let all: f64 = component.tables().map(entries).sum();
        let of_age =
            |age| component.tables().filter(move |t| Age::of(t.meta(), policy.oldest_snapshot) == age);
        let shares = [Age::Old, Age::New].map(|age| {
            // Level by level the newer are first, and those of one level have no key in common.
            let samples: Vec<&Sample> = of_age(age).map(|table| &table.meta().sample).collect();
            Sample::garbage(&samples).unwrap_or(0.0) * of_age(age).map(entries).sum::<f64>()
        });
        shares.iter().sum::<f64>() / all.max(1.0)
    })
}

/// How a table's versions lie to the oldest snapshot. Of what was overwritten or deleted, that alone is garbage of which it needs
/// nothing: what lies under its own age. Of tables that have versions of both ages nothing counts: a pile that was collected
/// while a snapshot is held is one, and would else be collected again with each run that comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    /// No snapshot needs what is hidden here.
    Old,
    Both,
    /// No snapshot sees any of it, but later ones.
    New,
}

impl Age {
    fn of(meta: &TableMeta, oldest_snapshot: Lsn) -> Age {
        match (meta.max_lsn < oldest_snapshot, meta.min_lsn >= oldest_snapshot) {
            (true, _) => Age::Old,
            (_, true) => Age::New,
            _ => Age::Both,
        }
    }
}

/// What is due, each with by how much: from 1 on; and below that, what is to be done when nothing is.
fn due(policy: &Policy<'_>, tiers: Tiers) -> Vec<(f64, Due)> {
    let mut all = Vec::new();
    let level0 = policy.tables(0).len() as f64 / policy.options.level0_trigger() as f64;
    if level0 >= 1.0 {
        all.push((level0, Due::Level0));
    }
    for tier in 1..=tiers.count() {
        let components = policy.components(tiers.levels(tier)).into_iter().map(|component| {
            let is_free = |inputs: &&(u32, Vec<Arc<TableHandle>>)| !is_level_busy(policy, inputs);
            let runs = component.inputs.iter().filter(is_free).count();
            (runs as f64 / tiers.runs as f64, component)
        });
        let of_tier = |(score, component)| (score, Due::Runs(tier, component));
        if tiers.trie.is_none() {
            all.extend(joined(policy, components).map(of_tier));
            continue;
        }
        // Containers are merged apart, side by side.
        all.extend(components.filter_map(|(score, component)| {
            let share = garbage(policy, tiers, tier, &component);
            let runs = component.inputs.len();
            if share > GARBAGE_MAX {
                Some((score.max(1.0) + share, Due::Pile(Reason::Garbage(share), component)))
            } else if tier < tiers.count() {
                (score >= 1.0).then(|| of_tier((score, component)))
            } else if runs > tiers.levels(tier).len() / 2 {
                // It only grows, but there is an end to its levels.
                Some((score, Due::Pile(Reason::Runs(runs), component)))
            } else {
                (share > GARBAGE_IDLE).then_some((share, Due::Pile(Reason::Garbage(share), component)))
            }
        }));
    }
    if let Some(share) = tiers.upper {
        let components = policy.components(1..LAST + 1).into_iter().map(|component| {
            // What a job is about to bring, or takes away, is left where it is, with what lies above.
            let is_writing = |level: &usize| policy.is_written(std::iter::once(*level), &component.span);
            let written = (1..LAST).rev().find(is_writing);
            let busy = component.inputs.iter().rev().find(|inputs| is_level_busy(policy, inputs));
            let first = written.max(busy.map(|(level, _)| *level as usize)).map_or(0, |level| level + 1);
            let inputs = component.inputs.into_iter().filter(|(level, _)| *level as usize >= first).collect();
            let rest = Component { span: component.span, inputs };
            (upper_score(&rest, share), rest)
        });
        all.extend(joined(policy, components).map(|(score, component)| (score, Due::Upper(component))));
    }
    all
}

/// Those of the components, given by key, that have a score of 1 or more; neighbours as one, as long as they are small.
fn joined<'a>(
    policy: &'a Policy<'_>,
    components: impl Iterator<Item = (f64, Component)> + 'a,
) -> impl Iterator<Item = (f64, Component)> + 'a {
    let bytes_max = policy.options.table_bytes.saturating_mul(JOINED_TABLES);
    let mut components = components.peekable();
    std::iter::from_fn(move || {
        let (mut score, mut first) = components.find(|(score, _)| *score >= 1.0)?;
        let mut bytes = bytes_of(first.tables());
        while let Some((next, component)) = components.next_if(|(next, component)| {
            // Over what another layer covers in part, both would be in the way of each other.
            let levels =
                |component: &Component| component.inputs.iter().map(|(level, _)| *level).collect::<Vec<_>>();
            *next >= 1.0
                && bytes + bytes_of(component.tables()) <= bytes_max
                && levels(component) == levels(&first)
        }) {
            bytes += bytes_of(component.tables());
            score = score.max(next);
            first.join(policy.comparator(), component);
        }
        Some((score, first))
    })
}

fn is_level_busy(policy: &Policy<'_>, (_, tables): &(u32, Vec<Arc<TableHandle>>)) -> bool {
    tables.iter().any(|table| policy.is_busy(table))
}

/// What lies above the last run, as a share of what may.
fn upper_score(component: &Component, share: f64) -> f64 {
    let (mut upper, mut last) = ((0.0, 0.0), (0.0, 0.0));
    for (level, tables) in &component.inputs {
        let sum = if *level as usize == LAST { &mut last } else { &mut upper };
        sum.0 += bytes_of(tables) as f64;
        sum.1 += tables.iter().map(|table| entries_of(table.meta())).sum::<f64>();
    }
    let of = |upper: f64, last: f64| if upper > 0.0 { upper / (last * share).max(1.0) } else { 0.0 };
    of(upper.0, last.0).max(of(upper.1, last.1))
}

/// Entries, with a range tombstone as one that may hide many.
fn entries_of(meta: &TableMeta) -> f64 {
    meta.entries.saturating_sub(meta.deletes.saturating_add(meta.hidden)) as f64 + tombstones_of(meta) as f64
}

/// A plan that takes old tables of level 0 (of those in `bounds`) to tier 1.
fn leave_level0(
    policy: &Policy<'_>,
    tiers: Tiers,
    bounds: Option<Bounds<'_>>,
    reason: Reason,
) -> Option<CompactionPlan> {
    policy.pick_level0(bounds, |inputs, _| descend(policy, tiers, vec![(0, inputs)], 1, reason))
}

/// A plan that merges the oldest runs of a component into the next tier.
fn merge(policy: &Policy<'_>, tiers: Tiers, tier: usize, component: Component) -> Option<CompactionPlan> {
    let mut inputs = component.inputs;
    let reason = Reason::Runs(inputs.len());
    inputs.drain(..inputs.len().saturating_sub(tiers.merged));
    let oldest = inputs.last()?.0 as usize;
    if tier == tiers.count() {
        return policy.plan_of(inputs, oldest, reason);
    }
    descend(policy, tiers, inputs, tier + 1, reason)
}

/// A plan that merges the inputs into a tier, between each two borders onto the deepest level where there is room; or that makes
/// room where there is none.
fn descend(
    policy: &Policy<'_>,
    tiers: Tiers,
    inputs: Inputs,
    tier: usize,
    reason: Reason,
) -> Option<CompactionPlan> {
    let whole = hull(policy.comparator(), inputs.iter().flat_map(|(_, tables)| tables))?;
    let cuts = tiers.cuts(policy, tier, &whole);
    let mut borders: Vec<Border> = Vec::with_capacity(cuts.len());
    let mut first = None;
    for at in 0..=cuts.len() {
        let mut span = whole.clone();
        if let Some(start) = at.checked_sub(1) {
            span.start.clone_from(&cuts[start]);
        }
        if let Some(end) = cuts.get(at) {
            span.end.clone_from(end);
            span.end_exclusive = true;
        }
        let Some(level) = room(policy, tiers, tier, &span) else {
            return make_room(policy, tiers, tier, &span);
        };
        match at.checked_sub(1) {
            None => first = Some(level),
            Some(start) => borders.push(Border { key: cuts[start].clone(), level: level as u32 }),
        }
    }
    let mut plan = policy.plan_with(inputs, first?, borders, reason)?;
    if tiers.trie.is_some() && !plan.trivial_move {
        // Within a container a cut would leave two tables where one is enough.
        plan.cuts = cuts;
    }
    Some(plan)
}

/// The deepest level of a tier such that `span` is free there and on those above it.
fn room(policy: &Policy<'_>, tiers: Tiers, tier: usize, span: &KeySpan) -> Option<usize> {
    let is_free = |level: &usize| {
        policy.overlapping(*level, span).is_empty() && !policy.is_written(std::iter::once(*level), span)
    };
    tiers.levels(tier).take_while(is_free).last()
}

/// A plan that moves something in a tier down to the deepest level that is free under it, of a component that is in the way of
/// `span`. If nothing of it can be moved, every table of it lies on another one, down to the tier's last level, and so many
/// runs are due to be merged, in a trie's last tier since half of its levels were taken.
fn make_room(policy: &Policy<'_>, tiers: Tiers, tier: usize, span: &KeySpan) -> Option<CompactionPlan> {
    let levels = tiers.levels(tier);
    let moved = |level: u32, tables: &[Arc<TableHandle>]| {
        let whole = hull(policy.comparator(), tables)?;
        let is_free = |below: &usize| {
            policy.overlapping(*below, &whole).is_empty()
                && !policy.is_written(std::iter::once(*below), &whole)
        };
        let below = (level as usize + 1..levels.end).take_while(is_free).last()?;
        policy.plan_of(vec![(level, tables.to_vec())], below, Reason::Room)
    };
    let in_the_way = policy.components(levels.clone()).into_iter();
    in_the_way.filter(|component| component.span.overlaps(policy.comparator(), span)).find_map(|component| {
        // All of a level, or one table whose own keys are free.
        component.inputs.iter().rev().find_map(|(level, tables)| {
            moved(*level, tables).or_else(|| tables.chunks(1).find_map(|table| moved(*level, table)))
        })
    })
}

/// A plan for a table of the deepest level whose tombstones no snapshot needs any more.
fn pick_tombstones(policy: &Policy<'_>) -> Option<CompactionPlan> {
    let bottom = policy.bottom();
    policy.tables(bottom).iter().enumerate().filter(|_| bottom > 0).find_map(|(at, table)| {
        let meta = table.meta();
        let pays = tombstones_pay(meta, meta.entries) && policy.rewrite_helps(meta);
        pays.then(|| policy.rewrite(bottom, at, Reason::Tombstones)).flatten()
    })
}

/// The next step of compacting `range` into one run.
pub(super) fn pick_manual(policy: &Policy<'_>, tiers: Tiers, range: Bounds<'_>) -> ManualPick {
    let mut is_blocked = policy.within(0, range).next().is_some();
    if is_blocked && let Some(plan) = leave_level0(policy, tiers, Some(range), Reason::Manual) {
        return ManualPick::Plan(plan);
    }
    let deepest = policy.bottom();
    for component in policy.components(1..LEVEL_MAX as usize + 1) {
        if !component.tables().any(|table| policy.overlaps_bounds(table, range)) {
            continue;
        }
        let bottom = component.inputs.last().map_or(LAST, |(level, _)| *level as usize);
        let output = match (tiers.upper, tiers.trie) {
            (Some(_), _) => LAST,
            // What lies side by side on one level is one run, wherever that is.
            (None, Some(_)) if component.inputs.len() > 1 => tiers.levels(tiers.of_level(deepest)).end - 1,
            (None, _) => bottom,
        };
        let is_one = component.inputs.len() == 1 && bottom == output;
        let plan = if is_one {
            let helps = |at: &usize| {
                let meta = policy.tables(output)[*at].meta();
                policy.rewrite_helps(meta) || policy.brings_back(meta)
            };
            let mut within = policy.overlapping(output, &component.span).filter(helps).peekable();
            if within.peek().is_none() {
                continue;
            }
            within.find_map(|at| policy.rewrite(output, at, Reason::Manual))
        } else {
            let borders = match tiers.trie {
                Some(_) => container_borders(tiers.of_level(deepest), &component.span, output),
                None => Vec::new(),
            };
            policy.plan_with(component.inputs, output, borders, Reason::Manual)
        };
        match plan {
            Some(plan) => return ManualPick::Plan(plan),
            None => is_blocked = true,
        }
    }
    if is_blocked { ManualPick::Busy } else { ManualPick::Done }
}

/// Bytes that must be merged before nothing is due, about.
pub(super) fn debt_bytes(policy: &Policy<'_>, tiers: Tiers) -> u64 {
    let bytes = |due: (f64, Due)| match due.1 {
        Due::Level0 => bytes_of(policy.tables(0)),
        Due::Runs(_, component) | Due::Upper(component) | Due::Pile(_, component) => {
            bytes_of(component.tables())
        }
    };
    due(policy, tiers).into_iter().filter(|(score, _)| *score >= 1.0).map(bytes).sum()
}

/// How near a level is to being merged: by its tier's runs; the last run, by what lies above.
pub(super) fn pressure_of(levels: &Levels, options: &KeyspaceOptions, tiers: Tiers, level: usize) -> f64 {
    if level == 0 {
        return levels.level(0).len() as f64 / options.level0_trigger() as f64;
    }
    if let Some(share) = tiers.upper.filter(|_| level == LAST) {
        let upper: u64 = (1..LAST).map(|level| levels.level_bytes(level)).sum();
        return upper as f64 / (levels.level_bytes(LAST) as f64 * share).max(1.0);
    }
    let of = (1..=tiers.count()).map(|tier| tiers.levels(tier)).find(|levels| levels.contains(&level));
    let runs = of.map_or(0, |all| all.filter(|&level| !levels.level(level).is_empty()).count());
    runs as f64 / tiers.runs as f64
}

#[cfg(test)]
#[path = "tiered_tests.rs"]
mod tests;
