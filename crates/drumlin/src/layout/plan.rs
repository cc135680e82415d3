//! A compaction as a value: what goes in, where it goes, where it may be cut.
//!
//! Place: made by the policies (`leveled`, `tiered`), executed by `compaction::job`; tests print it.
//!
//! Invariants:
//! 1. Between the first level of the inputs and the deeper one of their last level and the output, that included, every table
//!    that overlaps the plan's span is an input. Of the first level others may stay, if the outputs go deeper: at level 0 all of
//!    them are newer than the inputs that they overlap, and no two overlap on any other level. Hence everything that stays above
//!    is newer than the inputs, and everything outside that may hold an older version of one of their keys lies in `deeper`.
//! 2. An output above its inputs has no table of its span between.
//! 3. No other running job writes within `span` to a level that the plan's tables pass or come to.
//!
//! Concurrency: values. Tests: `leveled_tests.rs`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::key::Comparator;
use crate::layout::{KeySpan, KeySpans};
use crate::table::{TableHandle, TableId, TableMeta};

/// Why a plan was made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// Level 0 has this many tables.
    Level0Tables(usize),
    /// A level has this many bytes for every byte of its target.
    LevelBytes(f64),
    /// A table has many tombstones for its entries.
    Tombstones,
    /// Runs of a tier lie over one another.
    Runs(usize),
    /// A tier has no room above its runs.
    Room,
    /// What lies above the last run, for each byte or entry that may.
    Upper(f64),
    /// The share of a pile that is of no use to anybody.
    Garbage(f64),
    /// Bytes of value files for those that tables refer to there.
    Values(f64),
    /// Tables lie deeper than the data needs.
    TooDeep,
    /// Somebody asked.
    Manual,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Level0Tables(tables) => write!(f, "{tables} tables at level 0"),
            Reason::LevelBytes(score) => write!(f, "{score:.2} of the level's target"),
            Reason::Tombstones => f.write_str("many tombstones"),
            Reason::Runs(runs) => write!(f, "{runs} runs of a tier"),
            Reason::Room => f.write_str("room for more runs"),
            Reason::Upper(score) => write!(f, "{score:.2} of what may lie above the last run"),
            Reason::Garbage(share) => write!(f, "{share:.2} of it garbage"),
            Reason::Values(space) => write!(f, "value files {space:.2} times what is live"),
            Reason::TooDeep => f.write_str("deeper than the data needs"),
            Reason::Manual => f.write_str("asked for"),
        }
    }
}

/// Where outputs are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Border {
    /// The first key behind it.
    pub key: Vec<u8>,
    /// The level that what lies behind it goes to, up to the next one.
    pub level: u32,
}

/// What to merge, and into which level.
#[derive(Clone)]
pub struct CompactionPlan {
    /// The level that gets smaller.
    pub input_level: u32,
    /// The level that the outputs go to, up to the first border: a deeper one, or the same to rewrite tables in place; a shallower one where what lies too
    /// deep is brought back.
    pub output_level: u32,
    /// By level, the shallower first; level 0 newest first, deeper ones by key.
    pub inputs: Vec<(u32, Vec<Arc<TableHandle>>)>,
    /// The smallest span that holds all inputs; the outputs stay within it.
    pub span: KeySpan,
    /// True if no level below the inputs and the output has data within the plan's span.
    pub bottom: bool,
    /// Where the levels below the inputs and the output may hold data, within the plan's span.
    pub deeper: Arc<KeySpans>,
    /// The tables of the level below these within the plan's span, by key: an output is cut
    /// before it overlaps too many of them.
    pub below: Box<[Arc<TableHandle>]>,
    /// In a trie, the tables of the containers that the outputs come to, newest first: they come to lie over them.
    pub pile: Box<[Arc<TableHandle>]>,
    /// By key, ascending, where outputs are cut in any case, and to which level they go from there on: see `policy`.
    pub borders: Box<[Border]>,
    /// Keys, ascending, at which the job may be cut into parts of like size that run side by side.
    pub cuts: Vec<Vec<u8>>,
    /// Value files whose values are written anew where an input refers to them.
    pub collected: Arc<HashSet<TableId>>,
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

    /// Where outputs may come to lie: levels, each with a part of the plan's span. Neighbours on one level are one.
    pub fn landings(&self) -> Vec<(u32, KeySpan)> {
        let mut landings = vec![(self.output_level, self.span.clone())];
        for border in &self.borders {
            let (level, last) = landings.last_mut().expect("there is the first");
            if *level != border.level {
                let behind = KeySpan { start: border.key.clone(), ..last.clone() };
                (last.end, last.end_exclusive) = (border.key.clone(), true);
                landings.push((border.level, behind));
            }
        }
        landings
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
