//! Merge: what a merge of described tables leaves, by expectation.
//!
//! Place: `Simulation::carry_out`. A key's place is its part of the key space, from 0 to 1.
//!
//! Invariants:
//! 1. Stretches are disjoint, in order, and leave out nothing between the first input and the last.
//! 2. Pieces are as large as each other, but for those that end at a border, and have the stretches' entries, less those of a
//!    piece that would not have one.
//!
//! Complexity: O(T log T + T runs), T tables. Concurrency: values. Tests: those of `simulation`.

use crate::layout::CompactionPlan;
use crate::table::TableMeta;

/// A part of the key space, and how many entries lie evenly in it.
#[derive(Clone, Copy)]
pub struct Stretch {
    pub from: f64,
    pub to: f64,
    pub entries: f64,
}

impl Stretch {
    /// What a table spans.
    fn of(meta: &TableMeta) -> Stretch {
        Stretch { from: place(&meta.smallest), to: place(&meta.largest), entries: meta.entries as f64 }
    }

    /// Entries for each part of the space.
    fn density(&self) -> f64 {
        self.entries / (self.to - self.from).max(f64::MIN_POSITIVE)
    }
}

/// The place of a key that `key` made.
pub fn place(key: &[u8]) -> f64 {
    key.try_into().map_or(0, u64::from_be_bytes) as f64 / u64::MAX as f64
}

/// The key at a place.
pub fn key(place: f64) -> Vec<u8> {
    ((place * u64::MAX as f64) as u64).to_be_bytes().to_vec()
}

/// The parts of the key space between ends of the inputs and the borders, each with the keys that one of the inputs has, if there
/// are `keys` different ones in all.
pub fn stretches(plan: &CompactionPlan, borders: &[f64], keys: f64) -> Vec<Stretch> {
    let mut runs: Vec<Vec<Stretch>> = Vec::new();
    for (level, tables) in &plan.inputs {
        let tables = tables.iter().map(|table| Stretch::of(table.meta()));
        match level {
            0 => runs.extend(tables.map(|table| vec![table])),
            _ => runs.push(tables.collect()),
        }
    }
    let ends = runs.iter().flatten().flat_map(|table| [table.from, table.to]);
    let mut ends: Vec<f64> = ends.chain(borders.iter().copied()).collect();
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    let mut at = vec![0; runs.len()];
    let between = |pair: &[f64]| {
        let (from, to) = (pair[0], pair[1]);
        let mut absent = 1.0;
        for (run, at) in runs.iter().zip(&mut at) {
            while run.get(*at).is_some_and(|table| table.to <= from) {
                *at += 1;
            }
            if let Some(table) = run.get(*at).filter(|table| table.from < to) {
                absent *= (1.0 - table.density() / keys).max(0.0);
            }
        }
        Stretch { from, to, entries: (to - from) * keys * (1.0 - absent) }
    };
    ends.windows(2).map(between).collect()
}

/// Tables that are cut from stretches as these come.
pub struct Pieces {
    /// Entries of a whole table.
    full: f64,
    level: u32,
    /// The table that is being filled.
    open: Stretch,
    done: Vec<(u32, Stretch)>,
}

impl Pieces {
    /// None yet; of `full` entries each, from `from` on, for `level`.
    pub fn new(full: f64, from: f64, level: u32) -> Pieces {
        Pieces { full, level, open: Stretch { from, to: from, entries: 0.0 }, done: Vec::new() }
    }

    /// Those that come next begin at `border` and are for `level`.
    pub fn turn(&mut self, border: f64, level: u32) {
        self.end(border);
        self.level = level;
    }

    /// The next stretch, where the one before ended.
    pub fn add(&mut self, stretch: Stretch) {
        let Stretch { mut from, to, entries: mut rest } = stretch;
        // Sums of parts are off by a little: what is almost full is full, and what is almost nothing is the end.
        while self.open.entries + rest >= self.full * (1.0 - 1e-9) && rest > 0.0 {
            let taken = (self.full - self.open.entries).min(rest);
            rest -= taken;
            from = if rest < 1e-6 { to } else { (from + taken / stretch.density()).min(to) };
            self.open.entries += taken;
            self.end(from);
        }
        self.open.entries += rest;
        self.open.to = to;
    }

    /// All of them, each with its level.
    pub fn finish(mut self) -> Vec<(u32, Stretch)> {
        self.end(self.open.to);
        self.done
    }

    /// Ends the open table, which is left out if it has no entry.
    fn end(&mut self, at: f64) {
        if self.open.entries >= 1.0 && at > self.open.from {
            self.done.push((self.level, Stretch { to: at, ..self.open }));
        }
        self.open = Stretch { from: at, to: at, entries: 0.0 };
    }
}
