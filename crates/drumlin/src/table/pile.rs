//! The filters of a pile: what the clusters of its tables have of one another, for a table that comes to lie over them.
//!
//! Place: `compaction` asks for them before it finishes such a table.
//!
//! The newest tables of a pile have the filters of those under them, so mostly one of them is read, or one a stretch of columns.
//! A table without columns of the grid is left out, and one whose columns cannot be read: it is asked by its own filter.
//!
//! Complexity: reads the clusters of the newest tables once. Tests: `table/tests/cluster.rs`.

use std::sync::Arc;

use crate::filter::Grid;
use crate::key::key_prefix;
use crate::table::TableHandle;
use crate::table::hashed::{Columns, Row};

/// The columns from that of the place `first` to that of `last` of the tables in `pile`, which is given newest first; of those in
/// other containers, whose columns have the same numbers, none.
pub fn pile_columns(pile: &[Arc<TableHandle>], grid: Grid, first: u64, last: u64) -> Vec<Columns> {
    let container = grid.container(first);
    let (first, last) = (grid.column(first), grid.column(last));
    let is_inside =
        |table: &&Arc<TableHandle>| grid.container(key_prefix(&table.meta().smallest)) == container;
    let pile: Vec<&Arc<TableHandle>> = pile.iter().filter(is_inside).collect();
    let mut all: Vec<Columns> = Vec::new();
    for table in &pile {
        let meta = table.meta();
        let from = grid.column(key_prefix(&meta.smallest)).max(first);
        let to = grid.column(key_prefix(&meta.largest)).min(last);
        let of_table = |columns: &&Columns| columns.row.table == meta.id;
        let known: u32 = all.iter().filter(of_table).map(|columns| within(&columns.row, from, to)).sum();
        if from > to || known > to - from {
            continue;
        }
        // Nothing is lost without them, and whoever reads the table hears what is wrong with it.
        for columns in table.columns(grid).unwrap_or_default() {
            let Some(columns) = columns.within(first, last) else { continue };
            let row = &columns.row;
            let is_there = |table: &&Arc<TableHandle>| table.meta().id == row.table;
            let covers = |other: &Columns| {
                other.row.table == row.table && other.row.first <= row.first && row.last <= other.row.last
            };
            if pile.iter().any(is_there) && !all.iter().any(covers) {
                all.push(columns);
            }
        }
    }
    all
}

/// How many columns of a row lie from `first` to `last`.
fn within(row: &Row, first: u32, last: u32) -> u32 {
    (row.last.min(last) + 1).saturating_sub(row.first.max(first))
}
