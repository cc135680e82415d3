//! A compaction as a value: what goes in, where it goes, where it may be cut.
//!
//! Place: made by the policies (`leveled`), executed by `compaction::job`; tests print it.
//!
//! Invariants:
//! 1. `inputs` are all tables of the two levels that overlap the plan's span, but for tables of level 0 that are
//!    newer than every input of level 0. Hence everything outside that may hold an older version of a key of the
//!    inputs lies in `deeper`.
//! 2. The inputs of each level from 1 are neighbours: no other table of the level lies between them.
//! 3. No other running job writes to the output level within `span`.
//!
//! Concurrency: values. Tests: `leveled_tests.rs`.

use std::fmt;
use std::sync::Arc;

use crate::key::Comparator;
use crate::layout::{KeySpan, KeySpans};
use crate::table::{TableHandle, TableMeta};

/// Why a plan was made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// Level 0 has this many tables.
    Level0Tables(usize),
    /// A level has this many bytes for every byte of its target.
    LevelBytes(f64),
    /// A table has many tombstones for its entries.
    Tombstones,
    /// Somebody asked.
    Manual,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Level0Tables(tables) => write!(f, "{tables} tables at level 0"),
            Reason::LevelBytes(score) => write!(f, "{score:.2} of the level's target"),
            Reason::Tombstones => f.write_str("many tombstones"),
            Reason::Manual => f.write_str("asked for"),
        }
    }
}

/// What to merge, and into which level.
#[derive(Clone)]
pub struct CompactionPlan {
    /// The level that gets smaller.
    pub input_level: u32,
    /// The level that the outputs go to: the next one, or the same to rewrite a table in place.
    pub output_level: u32,
    /// By level, the shallower first; level 0 newest first, deeper ones by key.
    pub inputs: Vec<(u32, Vec<Arc<TableHandle>>)>,
    /// The smallest span that holds all inputs; the outputs stay within it.
    pub span: KeySpan,
    /// True if no deeper level has data within the plan's span.
    pub bottom: bool,
    /// Where the levels below the output may hold data, within the plan's span.
    pub deeper: KeySpans,
    /// The tables of the level below the output within the plan's span, by key: an output is cut
    /// before it overlaps too many of them.
    pub below: Vec<Arc<TableHandle>>,
    /// Keys, ascending, at which the job may be cut into parts of like size that run side by side.
    pub cuts: Vec<Vec<u8>>,
    /// True if the inputs overlap nothing and can change their level as they are.
    pub trivial_move: bool,
    /// Why.
    pub reason: Reason,
}

impl CompactionPlan {
    /// Every input with its level.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &Arc<TableHandle>)> {
        self.inputs.iter().flat_map(|(level, tables)| tables.iter().map(|table| (*level, table)))
    }

    /// Bytes of the inputs' files.
    pub fn input_bytes(&self) -> u64 {
        self.tables().map(|(_, table)| table.meta().file_bytes).sum()
    }
}

impl fmt::Display for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.trivial_move, self.input_level == self.output_level) {
            (true, _) => "move",
            (_, true) => "rewrite",
            _ => "merge",
        };
        write!(f, "{verb}")?;
        for (number, (level, tables)) in self.inputs.iter().enumerate() {
            write!(f, "{} L{level}{{", if number == 0 { "" } else { " +" })?;
            for (number, table) in tables.iter().enumerate() {
                write!(f, "{}{}", if number == 0 { "" } else { " " }, table.meta().id)?;
            }
            f.write_str("}")?;
        }
        write!(f, " -> L{}, {} bytes", self.output_level, self.input_bytes())?;
        if self.bottom {
            f.write_str(", bottom")?;
        }
        if !self.cuts.is_empty() {
            write!(f, ", {} parts", self.cuts.len() + 1)?;
        }
        write!(f, " ({})", self.reason)
    }
}

impl fmt::Debug for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The span of keys that a table may hold.
pub fn span_of(meta: &TableMeta) -> KeySpan {
    KeySpan { start: meta.smallest.clone(), end: meta.largest.clone(), end_exclusive: meta.largest_exclusive }
}

/// The smallest span that holds all `tables`; `None` for none.
pub fn hull<'a>(
    comparator: &dyn Comparator,
    tables: impl IntoIterator<Item = &'a Arc<TableHandle>>,
) -> Option<KeySpan> {
    let mut spans = tables.into_iter().map(|table| span_of(table.meta()));
    let mut hull = spans.next()?;
    spans.for_each(|span| hull.extend(comparator, &span));
    Some(hull)
}
