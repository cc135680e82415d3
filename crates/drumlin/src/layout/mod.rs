//! Policies: which tables to merge next. Pure functions of the levels, the options and what running jobs hold.
//!
//! Place: `db`'s scheduler asks [`pick`] and runs the [`CompactionPlan`] by `compaction`; it paces writers by [`debt_bytes`].
//! Calls nothing that touches a file, so that a policy runs in a simulator.
//!
//! Parts: `span` (ranges of keys), `plan` (a compaction as a value), `running` (claims of jobs), `leveled` (the policy of
//! [`Layout::Leveled`]). A further layout is a further policy with these functions.
//!
//! The caller promises: every running job of the keyspace is in `running`, from the moment it was picked until the
//! levels show its outcome.
//!
//! Concurrency: pure. Tests: in the parts.

mod leveled;
mod plan;
mod running;
mod span;

pub use plan::CompactionPlan;
#[cfg(test)]
pub use plan::{Reason, hull, span_of};
pub use running::Running;
pub use span::{KeySpan, KeySpans};

use crate::key::Lsn;
use crate::options::{KeyspaceOptions, Layout};
use crate::version::Levels;

/// The most urgent compaction, or `None` if none is due or all that are due are in the way of running jobs.
/// `oldest_snapshot` is the smallest bound of a live snapshot, `Lsn::MAX` without one.
/// O(tables of the keyspace).
pub fn pick(
    levels: &Levels,
    options: &KeyspaceOptions,
    running: &Running,
    oldest_snapshot: Lsn,
) -> Option<CompactionPlan> {
    match options.layout {
        Layout::Leveled => leveled::pick(&leveled::Policy { levels, options, running, oldest_snapshot }),
    }
}

/// What [`pick_manual`] found.
#[derive(Debug)]
pub enum ManualPick {
    /// Run this, then ask again.
    Plan(CompactionPlan),
    /// What is left is in the way of running jobs: ask again when one has ended.
    Busy,
    /// The range is as small as it gets: all of it at the bottom level, and without tombstones but
    /// those that a snapshot holds on to.
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
    let bounds = leveled::Bounds { start, end };
    match options.layout {
        Layout::Leveled => {
            leveled::pick_manual(&leveled::Policy { levels, options, running, oldest_snapshot }, bounds)
        }
    }
}

/// Bytes that a level may hold before it is merged (0 at level 0, which counts tables), and how near it is to that: from 1
/// on it is due.
pub fn pressure_of(levels: &Levels, options: &KeyspaceOptions, level: usize) -> (u64, f64) {
    match options.layout {
        Layout::Leveled => leveled::pressure_of(levels, options, level),
    }
}

/// Bytes that compactions must still write before the layout is in shape, about. 0 if none is due.
pub fn debt_bytes(levels: &Levels, options: &KeyspaceOptions) -> u64 {
    match options.layout {
        Layout::Leveled => leveled::debt_bytes(levels, options),
    }
}
