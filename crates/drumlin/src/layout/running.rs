//! What running jobs read and write, so that no new plan gets in their way.
//!
//! Place: `db`'s scheduler keeps one per keyspace under its lock: `begin` when a plan is taken, `end` when the
//! job's edit is applied or the job has failed. The policies ask.
//!
//! Why tables alone are not enough: a job that merges two neighbours may write a table that spans the gap between
//! them; meanwhile a third table may come into that gap from above, and must not pass the job on its way down.
//!
//! Concurrency: a value under its owner's lock. Tests: `leveled_tests.rs`.

use std::collections::{HashMap, HashSet};

use crate::key::Comparator;
use crate::layout::{CompactionPlan, KeySpan};
use crate::table::TableId;

/// The inputs and output spans of running jobs.
#[derive(Clone, Debug, Default)]
pub struct Running {
    tables: HashSet<TableId>,
    /// Of each job, named by the first table that it reads, which no other one does.
    outputs: HashMap<TableId, Vec<(u32, KeySpan)>>,
}

/// What a plan's job is known by.
fn name_of(plan: &CompactionPlan) -> Option<TableId> {
    plan.tables().next().map(|(_, table)| table.meta().id)
}

impl Running {
    /// Nothing runs.
    pub fn new() -> Running {
        Running::default()
    }

    /// Claims the plan's inputs and its output span.
    pub fn begin(&mut self, plan: &CompactionPlan) {
        self.tables.extend(plan.tables().map(|(_, table)| table.meta().id));
        if let Some(name) = name_of(plan) {
            self.outputs.insert(name, plan.landings());
        }
    }

    /// Gives back what `begin` claimed for this plan.
    pub fn end(&mut self, plan: &CompactionPlan) {
        for (_, table) in plan.tables() {
            self.tables.remove(&table.meta().id);
        }
        if let Some(name) = name_of(plan) {
            self.outputs.remove(&name);
        }
    }

    /// Claims all that `other` claims.
    pub fn extend(&mut self, other: &Running) {
        self.tables.extend(&other.tables);
        self.outputs.extend(other.outputs.iter().map(|(name, outputs)| (*name, outputs.clone())));
    }

    /// True if one of the plan's inputs is claimed.
    pub fn shares(&self, plan: &CompactionPlan) -> bool {
        plan.tables().any(|(_, table)| self.reads(table.meta().id))
    }

    /// True if nothing runs.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.outputs.is_empty()
    }

    /// True if a job reads the table, and will remove it.
    pub fn reads(&self, table: TableId) -> bool {
        self.tables.contains(&table)
    }

    /// True if a job may write to `level` within `span`.
    pub fn writes(&self, comparator: &dyn Comparator, level: u32, span: &KeySpan) -> bool {
        let lands = |(output, other): &(u32, KeySpan)| *output == level && other.overlaps(comparator, span);
        self.outputs.values().flatten().any(lands)
    }
}
