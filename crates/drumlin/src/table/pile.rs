//! The filters of a pile: what the clusters of its tables have of one another, for a table that comes to lie over them.
//!
//! Place: `compaction` asks for them before it finishes such a table.
//!
//! The newest tables of a pile have the filters of those under them, so mostly one of them is read, or one a stretch of columns.
//! Those of a table that has none, as far as none of these names it, are made of its keys: memory held the filters of the level until now, or
//! again for a while, and else its own would have to stay there beside the pages. A table whose columns cannot be read is left out: it
//! is asked by its own filter.
//!
//! Complexity: reads the clusters of the newest tables once; each entry of a table without columns once in its life, about.
//! Tests: `table/tests/cluster.rs`.

use std::sync::Arc;

use crate::error::Result;
use crate::filter::Grid;
use crate::key::key_prefix;
use crate::table::hashed::{Columns, Row};
use crate::table::{TableHandle, TableId};

/// The columns from that of the place `first` to that of `last` of the tables in `pile`, which is given newest first; of those in
/// other containers, whose columns have the same numbers, none. Before each table, whose entries it may read, it asks `go_on`.
///
/// # Errors
/// That of `go_on`.
pub fn pile_columns(
    pile: &[Arc<TableHandle>],
    grid: Grid,
    first: u64,
    last: u64,
    go_on: impl Fn() -> Result<()>,
) -> Result<Vec<Columns>> {
    let container = grid.container(first);
    let (first, last) = (grid.column(first), grid.column(last));
    let bounds = |table: &TableHandle| {
        let meta = table.meta();
        (key_prefix(&meta.smallest), key_prefix(&meta.largest))
    };
    let is_inside = |table: &&Arc<TableHandle>| {
        let (smallest, largest) = bounds(table);
        (grid.container(smallest), grid.container(largest)) == (container, container)
    };
    let pile: Vec<&Arc<TableHandle>> = pile.iter().filter(is_inside).collect();
    let span = |table: &TableHandle| {
        let (smallest, largest) = bounds(table);
        (grid.column(smallest).max(first), grid.column(largest).min(last))
    };
    let mut all: Vec<Columns> = Vec::new();
    for table in &pile {
        let meta = table.meta();
        let (from, to) = span(table);
        let of_table = |columns: &&Columns| columns.row.table == meta.id;
        let known: u32 = all.iter().filter(of_table).map(|columns| within(&columns.row, from, to)).sum();
        if from > to || known > to - from {
            continue;
        }
        go_on()?;
        let found = match table.columns(grid) {
            Ok(None) => gaps(&all, meta.id, from, to)
                .map(|(from, to)| table.columns_of_keys(grid, container, from, to))
                .collect(),
            Ok(Some(columns)) => Ok(columns),
            Err(error) => Err(error),
        };
        // Nothing is lost without them, and whoever reads the table hears what is wrong with it.
        for columns in found.unwrap_or_default() {
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
    Ok(all)
}

/// The stretches of columns from `from` to `to` of which the table has no row.
fn gaps(rows: &[Columns], table: TableId, from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
    let rows = rows.iter().map(|columns| columns.row).filter(|row| row.table == table);
    let mut rows: Vec<Row> = rows.filter(|row| within(row, from, to) > 0).collect();
    rows.sort_unstable_by_key(|row| row.first);
    let mut next = from;
    let mut gaps = Vec::new();
    for row in &rows {
        if next < row.first {
            gaps.push((next, row.first - 1));
        }
        next = next.max(row.last.saturating_add(1));
    }
    gaps.into_iter().chain((next <= to).then_some((next, to)))
}

/// How many columns of a row lie from `first` to `last`.
fn within(row: &Row, first: u32, last: u32) -> u32 {
    (row.last.min(last) + 1).saturating_sub(row.first.max(first))
}
