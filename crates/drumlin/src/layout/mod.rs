//! Policies: which tables to merge next. Pure functions of the levels, the options and what running jobs hold.
//!
//! Place: `db`'s scheduler asks [`pick`] and runs the [`CompactionPlan`] by `compaction`; it paces writers by [`debt_bytes`].
//! Calls nothing that touches a file, so that a policy runs in a simulator.
//!
//! Parts: `span` (ranges of keys), `plan` (a compaction as a value), `running` (claims of jobs), `policy` (what all policies
//! share), `values` (which value files are collected), `leveled` (the policy of [`Layout::Leveled`]), `tiered` (that of all others), `filters` (the filter bits of what a job
//! writes). A further layout is a further policy with these functions. Policies may change while a store is open: every one takes the levels
//! as another left them.
//!
//! The caller promises: every running job of the keyspace is in `running`, from the moment it was picked until the
//! levels show its outcome.
//!
//! Concurrency: pure. Tests: in the parts.

mod filters;
mod leveled;
#[cfg(test)]
mod lists;
mod plan;
mod policy;
mod running;
mod span;
mod tiered;
mod values;

pub use filters::FilterBits;
pub use plan::{Border, CompactionPlan};
#[cfg(test)]
pub use plan::{Reason, hull, span_of};
pub use running::Running;
pub use span::{KeySpan, KeySpans};

use crate::key::Lsn;
use crate::options::KeyspaceOptions;
#[cfg(doc)]
use crate::options::Layout;
use crate::version::Levels;
use policy::{Bounds, Policy};
use tiered::Tiers;

/// The most urgent compaction, or `None` if none is due or all that are due are in the way of running jobs.
/// `oldest_snapshot` is the smallest bound of a live snapshot, `Lsn::MAX` without one.
/// O(tables of the keyspace).
pub fn pick(
    levels: &Levels,
    options: &KeyspaceOptions,
    running: &Running,
    oldest_snapshot: Lsn,
) -> Option<CompactionPlan> {
    let policy = Policy { levels, options, running, oldest_snapshot };
    let of_layout = || match Tiers::of(options) {
        None => leveled::pick(&policy),
        Some(tiers) => tiered::pick(&policy, tiers),
    };
    if values::is_urgent(levels, options) {
        values::pick(&policy).or_else(of_layout)
    } else {
        of_layout().or_else(|| values::pick(&policy))
    }
}

/// What [`pick_manual`] found.
#[derive(Debug)]
pub enum ManualPick {
    /// Run this, then ask again.
    Plan(CompactionPlan),
    /// What is left is in the way of running jobs: ask again when one has ended.
    Busy,
    /// The range is as small as it gets: no two tables overlap in it, and there are no tombstones but those that a snapshot holds
    /// on to.
    Done,
}

/// The next step of compacting the keys from `start` (inclusive) to `end` (exclusive); `None` is unbounded.
/// Asked again and again, with nothing else going on, it ends with [`ManualPick::Done`].
pub fn pick_manual(
    levels: &Levels,
    options: &KeyspaceOptions,
    running: &Running,
    oldest_snapshot: Lsn,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> ManualPick {
    let bounds = Bounds { start, end };
    let policy = Policy { levels, options, running, oldest_snapshot };
    match Tiers::of(options) {
        None => leveled::pick_manual(&policy, bounds),
        Some(tiers) => tiered::pick_manual(&policy, tiers, bounds),
    }
}

/// Bytes that a level may hold before it is merged (0 where tables or runs count), and how near it is to that: from 1 on it is
/// due.
pub fn pressure_of(levels: &Levels, options: &KeyspaceOptions, level: usize) -> (u64, f64) {
    match Tiers::of(options) {
        None => leveled::pressure_of(levels, options, level),
        Some(tiers) => (0, tiered::pressure_of(levels, options, tiers, level)),
    }
}

/// The tier that a level is of, counted from 0: in the leveled layout each is one.
pub fn tier_of(options: &KeyspaceOptions, level: usize) -> usize {
    Tiers::of(options).map_or(level, |tiers| tiers.of_level(level))
}

/// Containers of a level, which are alike in a trie: one in any other layout.
pub fn containers_at(options: &KeyspaceOptions, level: usize) -> u64 {
    Tiers::of(options).map_or(1, |tiers| tiers.containers(level))
}

/// Bytes that compactions must still write before the layout is in shape, about. 0 if none is due, while what the oldest
/// snapshot needs is kept.
pub fn debt_bytes(levels: &Levels, options: &KeyspaceOptions, oldest_snapshot: Lsn) -> u64 {
    let of_tables = match Tiers::of(options) {
        None => leveled::debt_bytes(levels, options),
        Some(tiers) => {
            let policy = Policy { levels, options, running: &Running::new(), oldest_snapshot };
            tiered::debt_bytes(&policy, tiers)
        }
    };
    of_tables + values::debt_bytes(levels, options)
}
