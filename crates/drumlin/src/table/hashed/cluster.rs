//! Clusters: the filters of a table and of those that lie under it, column by column, so that one read asks them all.
//!
//! Place: the writer makes one where memory does not hold the filters of a level; `handle` reads the page of a key, and
//! [`Verdicts`] take along what it says of the other tables.
//!
//! A cluster is a number of pages of the device. A page has some columns in a row; of each *row* that is in it, as many small
//! filters: a row is a table, or a stretch of one. Rows are in order: first those of the table itself, then those that older
//! clusters have of the tables under it. The table's own row is its filter: it has no other one.
//!
//! Invariants:
//! 1. A table that a cluster does not name, or not in the column of a key, is asked by its own. So what came or went beside a
//!    running job costs reads, and no answer.
//! 2. Where two rows of a table have a column in common, they say the same: both were copied from its own.
//!
//! Complexity: a page is found by arithmetic over the rows. Written: each table under the new one once more, 2 bytes a key.
//! Bytes: docs/formats/hashed-table.md. Tests: `table/tests/cluster.rs`. Origin: LSM-trie §2.4.3.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::encoding::{FileDecoder, Malformed, put_varint};
use crate::error::Result;
use crate::filter::{self, Grid};
use crate::table::TableId;
use crate::table::index::Place;

use super::bucket::{BODY_BYTES, BUCKET_BYTES};

/// Rows of a cluster, at most.
const ROWS_MAX: usize = 4096;

/// A stretch of columns of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub table: TableId,
    pub probes: u8,
    /// Bytes of each column.
    pub bytes: u16,
    /// First and last column.
    pub first: u32,
    pub last: u32,
}

impl Row {
    fn columns(&self) -> usize {
        (self.last - self.first) as usize + 1
    }

    /// True if a page of the columns from `first` to `last` has it.
    fn is_in(&self, first: u32, last: u32) -> bool {
        self.first <= last && first <= self.last
    }
}

/// A row with its columns, one behind the other.
#[derive(Clone, Debug)]
pub struct Columns {
    pub row: Row,
    pub data: Vec<u8>,
}

impl Columns {
    /// Those from the column `first` to `last`, if there are any.
    pub fn within(mut self, first: u32, last: u32) -> Option<Columns> {
        if !self.row.is_in(first, last) {
            return None;
        }
        let bytes = usize::from(self.row.bytes);
        let (first, last) = (self.row.first.max(first), self.row.last.min(last));
        self.data.drain(..(first - self.row.first) as usize * bytes);
        (self.row.first, self.row.last) = (first, last);
        self.data.truncate(self.row.columns() * bytes);
        self.data.shrink_to_fit();
        Some(self)
    }

    /// False only if no key of the row lies at the place.
    pub fn may_contain(&self, place: u64, grid: Grid) -> bool {
        let (column, bytes) = (grid.column(place), usize::from(self.row.bytes));
        let Some(at) = column.checked_sub(self.row.first).filter(|_| column <= self.row.last) else {
            return false;
        };
        filter::column_may_contain(&self.data[at as usize * bytes..][..bytes], place, self.row.probes)
    }
}

/// Where the pages of a cluster lie and what is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::table) struct Cluster {
    pub grid: Grid,
    /// First and last column.
    first: u32,
    last: u32,
    /// Columns of a page.
    per_page: u32,
    /// Where the first page lies.
    offset: u64,
    rows: Vec<Row>,
}

/// What clusters said of tables: false where a key is not.
#[derive(Default)]
pub struct Verdicts(SmallVec<[(TableId, bool); 16]>);

impl Verdicts {
    /// What is known of a table.
    #[inline]
    pub fn of(&self, table: TableId) -> Option<bool> {
        self.0.iter().find(|(of, _)| *of == table).map(|(_, may)| *may)
    }
}

/// The columns of a table's own keys, by their places in order; about so many bits for each. `None` if the keys are of several
/// containers, as those of a table may be that was written while the trie had another number of runs: of these some columns
/// have the same number.
pub(in crate::table) fn columns_of(
    table: TableId,
    grid: Grid,
    places: &[u64],
    bits_per_key: f64,
) -> Option<Columns> {
    let (first, last) = (*places.first()?, *places.last()?);
    if grid.container(first) != grid.container(last) {
        return None;
    }
    Some(columns_between(table, grid, places, bits_per_key, grid.column(first), grid.column(last)))
}

/// The same in the columns from `first` to `last` of a container, in which all of the places are; there may be none.
pub(in crate::table) fn columns_between(
    table: TableId,
    grid: Grid,
    places: &[u64],
    bits_per_key: f64,
    first: u32,
    last: u32,
) -> Columns {
    // Keys for each column of the part of the grid that they span.
    let width = (u64::MAX >> grid.skip) as f64 / f64::from(1u32 << grid.bits);
    let span = places.last().zip(places.first()).map_or(0, |(last, first)| last - first);
    let spanned = (span as f64 / width).max(1.0);
    let bits = places.len() as f64 / spanned * bits_per_key;
    let bytes = ((bits / 8.0).ceil() as usize).clamp(1, BODY_BYTES);
    let row = Row { table, probes: filter::probes(bits_per_key), bytes: bytes as u16, first, last };
    let mut data = vec![0; row.columns() * bytes];
    for place in places {
        let at = (grid.column(*place) - first) as usize * bytes;
        filter::set(&mut data[at..at + bytes], *place, row.probes);
    }
    Columns { row, data }
}

impl Cluster {
    /// A cluster of `rows`, whose first is that of the table itself. Where they do not all fit into the page of a column, those go
    /// that have the fewest columns, and are asked by their own. The rows that are in it, in its order, and what they make, to
    /// lie at `offset`.
    pub fn new(grid: Grid, mut rows: Vec<Columns>, offset: u64) -> Option<(Cluster, Vec<Columns>)> {
        let own = rows.first()?.row;
        let (first, last) = (own.first, own.last);
        rows.retain(|columns| columns.row.is_in(first, last));
        rows.truncate(ROWS_MAX);
        let of_rows = rows.iter().map(|columns| columns.row).collect();
        let mut cluster = Cluster { grid, first, last, per_page: 1, offset, rows: of_rows };
        for page in 0..cluster.pages() {
            while cluster.page_bytes(page) > BODY_BYTES {
                let (from, to) = cluster.columns_of_page(page);
                let others = cluster.rows.iter().enumerate().skip(1).filter(|(_, row)| row.is_in(from, to));
                let shown = |row: &Row| row.last.min(last) - row.first.max(first);
                let (least, _) = others.min_by_key(|(at, row)| (shown(row), Reverse(*at)))?;
                cluster.rows.remove(least);
                rows.remove(least);
            }
        }
        let fits = |per_page: &u32| {
            let probe = Cluster { per_page: *per_page, ..cluster.clone() };
            (0..probe.pages()).all(|page| probe.page_bytes(page) <= BODY_BYTES)
        };
        // The most that all pages have room for: more columns take more bytes.
        let most = (BODY_BYTES as u32 / u32::from(own.bytes)).max(1);
        let (mut good, mut bad) = (1, most + 1);
        while good + 1 < bad {
            let middle = (good + bad) / 2;
            if fits(&middle) { good = middle } else { bad = middle }
        }
        cluster.per_page = good;
        Some((cluster, rows))
    }

    pub fn pages(&self) -> usize {
        (self.last - self.first) as usize / self.per_page as usize + 1
    }

    fn columns_of_page(&self, page: usize) -> (u32, u32) {
        let first = self.first + page as u32 * self.per_page;
        (first, (first + self.per_page - 1).min(self.last))
    }

    fn page_bytes(&self, page: usize) -> usize {
        let (first, last) = self.columns_of_page(page);
        let bytes = |row: &Row| usize::from(row.bytes) * self.per_page as usize;
        self.rows.iter().filter(|row| row.is_in(first, last)).map(bytes).sum()
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        (self.pages() * BUCKET_BYTES) as u64
    }

    /// Where a page lies.
    pub fn place(&self, page: usize) -> Place {
        Place { offset: self.offset + (page * BUCKET_BYTES) as u64, bytes: BUCKET_BYTES as u64 }
    }

    /// Writes the body of a page into `out`; `rows` are those that the cluster was made of.
    pub fn page(&self, page: usize, rows: &[Columns], out: &mut Vec<u8>) {
        out.clear();
        let (first, last) = self.columns_of_page(page);
        for Columns { row, data } in rows.iter().filter(|columns| columns.row.is_in(first, last)) {
            let bytes = usize::from(row.bytes);
            for column in first..first + self.per_page {
                match (row.first..=row.last).contains(&column) {
                    true => out.extend_from_slice(&data[(column - row.first) as usize * bytes..][..bytes]),
                    false => out.resize(out.len() + bytes, 0),
                }
            }
        }
        out.resize(BODY_BYTES, 0);
    }

    /// The page of a place's column; `None` if the table has none.
    #[inline]
    pub fn page_of(&self, place: u64) -> Option<usize> {
        let column = self.grid.column(place);
        (self.first..=self.last).contains(&column).then(|| ((column - self.first) / self.per_page) as usize)
    }

    /// Notes what a page says of a place, of each table that it names and of which nothing is known.
    pub fn ask(
        &self,
        page: usize,
        body: &[u8],
        place: u64,
        verdicts: &mut Verdicts,
    ) -> Result<(), Malformed> {
        let (first, last) = self.columns_of_page(page);
        let column = self.grid.column(place);
        let mut at = 0;
        for row in self.rows.iter().filter(|row| row.is_in(first, last)) {
            let bytes = usize::from(row.bytes);
            if (row.first..=row.last).contains(&column) && verdicts.of(row.table).is_none() {
                let from = at + (column - first) as usize * bytes;
                let filter = body.get(from..from + bytes).ok_or(Malformed)?;
                verdicts.0.push((row.table, filter::column_may_contain(filter, place, row.probes)));
            }
            at += bytes * self.per_page as usize;
        }
        Ok(())
    }

    /// The rows, with their columns within the cluster's, of all pages' bodies in order.
    pub fn rows(&self, mut body: impl FnMut(usize) -> Result<Vec<u8>>) -> Result<Vec<Columns>> {
        let within =
            |row: &Row| Row { first: row.first.max(self.first), last: row.last.min(self.last), ..*row };
        let empty = |row: &Row| {
            let row = within(row);
            Columns { row, data: Vec::with_capacity(row.columns() * usize::from(row.bytes)) }
        };
        let mut all: Vec<Columns> = self.rows.iter().map(empty).collect();
        for page in 0..self.pages() {
            let body = body(page)?;
            let (first, last) = self.columns_of_page(page);
            let mut at = 0;
            for Columns { row, data } in all.iter_mut().filter(|columns| columns.row.is_in(first, last)) {
                let bytes = usize::from(row.bytes);
                let (from, to) = (row.first.max(first), row.last.min(last));
                let from = at + (from - first) as usize * bytes;
                let to = at + (to - first + 1) as usize * bytes;
                data.extend_from_slice(&body[from..to]);
                at += bytes * self.per_page as usize;
            }
        }
        Ok(all)
    }

    /// The tables that it names, with the columns of each.
    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// As a field.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = [
            self.grid.skip.into(),
            self.grid.bits.into(),
            self.first.into(),
            self.last.into(),
            self.per_page.into(),
            self.offset,
            self.rows.len() as u64,
        ];
        let rows = self.rows.iter().flat_map(|row| {
            [row.table.0, row.probes.into(), row.bytes.into(), row.first.into(), row.last.into()]
        });
        head.into_iter().chain(rows).for_each(|number| put_varint(&mut out, number));
        out
    }

    /// Reads the field back. What cannot be a cluster is corruption.
    pub fn decode(field: &mut FileDecoder<'_>) -> Result<Cluster> {
        let mut head = [0; 7];
        for number in &mut head {
            *number = field.varint()?;
        }
        let [skip, bits, first, last, per_page, offset, rows] = head;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let grid = Grid { skip: skip.min(255) as u8, bits: bits.min(255) as u8 };
        let mut cluster = Cluster {
            grid,
            first: small(first),
            last: small(last),
            per_page: small(per_page),
            offset,
            rows: Vec::new(),
        };
        let columns = if grid.is_sound() { 1u32 << grid.bits } else { 0 };
        let is_sound = cluster.first <= cluster.last
            && cluster.last < columns
            && (1..=BODY_BYTES as u32).contains(&cluster.per_page)
            && offset % BUCKET_BYTES as u64 == 0
            && offset < 1 << 60
            && (1..=ROWS_MAX as u64).contains(&rows);
        if !is_sound {
            return Err(field.corrupt("a table cannot have such a cluster of filters"));
        }
        // Held as long as the table is open, and many of them.
        cluster.rows.reserve_exact(rows as usize);
        for _ in 0..rows {
            let mut numbers = [0; 5];
            for number in &mut numbers {
                *number = field.varint()?;
            }
            let [table, probes, bytes, first, last] = numbers;
            let row = Row {
                table: TableId(table),
                probes: probes.min(255) as u8,
                bytes: bytes.min(u64::from(u16::MAX)) as u16,
                first: small(first),
                last: small(last),
            };
            let is_sound = (1..=filter::COLUMN_PROBES_MAX).contains(&row.probes)
                && (1..=BODY_BYTES).contains(&usize::from(row.bytes))
                && row.first <= row.last
                && row.last < columns
                && row.is_in(cluster.first, cluster.last);
            if !is_sound {
                return Err(field.corrupt("a cluster of filters cannot have such a row"));
            }
            cluster.rows.push(row);
        }
        if !(0..cluster.pages()).all(|page| cluster.page_bytes(page) <= BODY_BYTES) {
            return Err(field.corrupt("the rows of a cluster of filters do not fit its pages"));
        }
        Ok(cluster)
    }

    pub fn heap_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }
}
