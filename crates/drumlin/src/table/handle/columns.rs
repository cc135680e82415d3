//! What clusters of filters say of a table, and what the table has of such.
//!
//! Place: a get asks the cluster of the newest table of a pile, and takes along what it says of the others; a table that is
//! written over a pile takes up the columns of the tables in it (`table::pile`).
//!
//! A table that was written while memory held the filters of its level has no columns. The first one that has, and comes to lie
//! over it, makes them of its keys. From then on its own filter is of no use: it is *told of*, holds no filter and fewer records of
//! migration when it is opened next, and is closed at the next sweep if it holds one. (If the job that made them fails, it is asked
//! without a filter until another one has made them anew. Told by the first get that hears of it, filters stayed too long: 11.5 % of them
//! where 2.8 do, result `trie-reads`.)
//!
//! Invariant: columns that are made of keys have all keys of the table that lie in them, so a cluster may deny by them.
//!
//! Concurrency: as that of the table; the bit is only ever set, and costs no answer if it is set late, or early.
//! Tests: `table/tests/cluster.rs`. Origin: LSM-trie §2.4.3.

use std::sync::atomic::Ordering;

use super::search::{Blocks, Missed};
use super::{Role, TableHandle};
use crate::error::Result;
use crate::filter::Grid;
use crate::iter::Cursor;
use crate::key::{Lsn, key_prefix};
use crate::table::cursor::{CursorOptions, TableCursor};
use crate::table::hashed::{self, Cluster, Columns, Verdicts, Way, columns_between, took};
use crate::table::resident::Resident;

impl TableHandle {
    /// True if a cluster said that the table does not have the key.
    #[inline]
    pub(super) fn is_denied_by(&self, known: &Verdicts) -> bool {
        let verdict = known.of(self.meta.id);
        if verdict.is_some() && !self.is_told() {
            self.hot.told.store(true, Ordering::Relaxed);
        }
        verdict == Some(false)
    }

    /// True if clusters are asked for it: its own filter is of no use.
    #[inline]
    pub(in crate::table) fn is_told(&self) -> bool {
        self.hot.told.load(Ordering::Relaxed)
    }

    /// Whether the table may have the key by its cluster of filters, or which block is not in memory.
    #[cold]
    pub(super) fn ask(
        &self,
        resident: &Resident,
        cluster: &Cluster,
        key: &[u8],
        known: &mut Verdicts,
        blocks: &impl Blocks,
    ) -> Result<std::result::Result<bool, Missed>> {
        if let Some(told) = known.of(self.meta.id) {
            return Ok(Ok(told));
        }
        let Ok((place, _)) = hashed::split(key) else { return Ok(Ok(false)) };
        let Some(page) = cluster.page_of(place) else { return Ok(Ok(false)) };
        let at = cluster.place(page);
        took(Way::Page);
        let Some(body) = blocks.at(at, Role::Data)? else {
            return Ok(Err(Missed { place: at, role: Role::Data }));
        };
        cluster.ask(page, &body, place, known).map_err(resident.malformed(at))?;
        Ok(Ok(known.of(self.meta.id).unwrap_or(true)))
    }

    /// The filters that the table has in columns of this grid: its own, and those of tables under it; none if it has no such.
    pub(in crate::table) fn columns(&self, grid: Grid) -> Result<Option<Vec<Columns>>> {
        let resident = self.resident()?;
        match resident.cluster() {
            Some(cluster) if cluster.grid == grid => {
                cluster.rows(|page| resident.read(cluster.place(page)).map(|body| body.to_vec())).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The columns from `first` to `last` of a container, made of the table's keys. Reads these entries.
    pub(in crate::table) fn columns_of_keys(
        &self,
        grid: Grid,
        container: u64,
        first: u32,
        last: u32,
    ) -> Result<Columns> {
        let options = CursorOptions { fill_cache: false, ..CursorOptions::default() };
        let mut cursor = TableCursor::on_resident(self, self.resident()?, options);
        cursor.seek(&grid.place(container, first).to_be_bytes(), Lsn::MAX)?;
        let mut places = Vec::new();
        while cursor.valid() {
            let place = key_prefix(cursor.key());
            if grid.container(place) != container || grid.column(place) > last {
                break;
            }
            places.push(place);
            cursor.next_key()?;
        }
        self.hot.told.store(true, Ordering::Relaxed);
        Ok(columns_between(self.meta.id, grid, &places, self.options.filter_bits_per_key, first, last))
    }
}
