//! What value files hold, and how much of it is of use: a sum over the descriptions of tables.
//!
//! Place: of [`Levels`](super::Levels), which keep one; policies ask which files are worth collecting, statistics and verification what
//! there is.
//!
//! Invariant: a file is listed iff a table refers to it. What no table refers to is garbage; a version that was overwritten
//! counts as live until its entry is merged away.
//!
//! Concurrency: values. Tests: below.

use std::collections::{BTreeMap, HashSet};

use crate::table::{TableId, TableMeta, ValueUse};

/// All files of a keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSpace {
    /// Each with what all tables together refer to in it.
    files: BTreeMap<TableId, ValueUse>,
}

impl ValueSpace {
    /// Of these tables.
    pub fn of<'a>(tables: impl Iterator<Item = &'a TableMeta>) -> ValueSpace {
        let mut space = ValueSpace::default();
        for used in tables.flat_map(|meta| &meta.values) {
            let file = space.files.entry(used.file).or_default();
            let (records, bytes) = (file.records + used.records, file.bytes + used.bytes);
            *file = ValueUse { records, bytes, ..*used };
        }
        space
    }

    /// The files, by id, each with what all tables together refer to in it.
    pub fn files(&self) -> impl Iterator<Item = &ValueUse> {
        self.files.values()
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.files().map(|file| file.records_bytes()).sum()
    }

    /// Of these, bytes that some table refers to.
    pub fn live_bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }

    /// Bytes for each that is live; 1 where there are none.
    pub fn amplification(&self) -> f64 {
        let live = self.live_bytes();
        if live == 0 { 1.0 } else { self.bytes() as f64 / live as f64 }
    }

    /// If there are more bytes for those that are live than `most`, the files that are to be collected: those with the most garbage, until
    /// the rest is a quarter below that. One that is collected in part has more garbage than before, so it stays among them.
    pub fn collected(&self, most: f64) -> HashSet<TableId> {
        if self.amplification() <= most {
            return HashSet::new();
        }
        let garbage_share =
            |file: &ValueUse| file.garbage_bytes() as f64 / file.records_bytes().max(1) as f64;
        let mut files: Vec<&ValueUse> = self.files().filter(|file| file.garbage_bytes() > 0).collect();
        files.sort_by(|a, b| garbage_share(b).total_cmp(&garbage_share(a)));
        let aim = self.live_bytes() as f64 * (1.0 + (most - 1.0) * 0.75);
        let mut left = self.bytes() as f64;
        let needed = files.into_iter().take_while(|file| {
            let is_beyond = left > aim;
            left -= file.garbage_bytes() as f64;
            is_beyond
        });
        needed.map(|file| file.file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(all: &[(u64, u64, u64)]) -> TableMeta {
        let used = |&(file, records_bytes, bytes): &(u64, u64, u64)| ValueUse {
            file: TableId(file),
            file_bytes: records_bytes + 16,
            hash: 1,
            records: bytes / 10,
            bytes,
        };
        TableMeta { values: all.iter().map(used).collect(), ..TableMeta::default() }
    }

    #[test]
    fn files_go_by_their_garbage_until_the_rest_is_within_the_bound() {
        let tables = [
            uses(&[(1, 1000, 100), (2, 1000, 500), (3, 1000, 1000)]),
            uses(&[(1, 1000, 300), (4, 1000, 900)]),
        ];
        let space = ValueSpace::of(tables.iter());
        assert_eq!((space.bytes(), space.live_bytes()), (4000, 2800));
        let ids = |most| {
            let mut ids: Vec<u64> = space.collected(most).into_iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(1.5), [], "1.43 is within");
        assert_eq!(ids(1.4), [1], "600 of garbage: 3400 are left, 1.3 times");
        assert_eq!(ids(1.2), [1, 2], "2900 are left");
        assert_eq!(ids(1.02), [1, 2, 4]);
        assert!(ValueSpace::default().collected(1.05).is_empty());
    }
}
