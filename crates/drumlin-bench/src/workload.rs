//! Workloads: what is done, to which keys, in which mix.
//!
//! Place: the table [`WORKLOADS`] names all of them; `drive` carries one out on an engine.
//!
//! 1. A name that db_bench or YCSB has means here what it means there; what a paper measured says which.
//! 2. Shares of a mix add up to one.
//!
//! Origin: RocksDB's db_bench; YCSB (Cooper et al., SoCC 2010); cLSM §5; FloDB §5.

use crate::keys::Choice;

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Sets a key.
    Put,
    /// Sets the next key that there is not yet.
    Insert,
    /// Gets a key.
    Get,
    /// Gets a key that is absent.
    GetAbsent,
    /// Gets several keys at once.
    GetMany,
    /// Reads a few records from a key on.
    Scan,
    /// Reads every record of the thread's part, in order; one operation is one record.
    Walk,
    /// The same downwards.
    WalkBack,
    /// Replaces a value by a function of it, atomically.
    Update,
    /// Sets a key if it is absent.
    PutIfAbsent,
    /// Removes a key.
    Delete,
}

impl Kind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Insert => "insert",
            Kind::Get => "get",
            Kind::GetAbsent => "get absent",
            Kind::GetMany => "multi-get",
            Kind::Scan => "scan",
            Kind::Walk => "record",
            Kind::WalkBack => "record, downwards",
            Kind::Update => "update",
            Kind::PutIfAbsent => "put if absent",
            Kind::Delete => "delete",
        }
    }

    /// True if it leaves something to flush.
    pub fn writes(self) -> bool {
        matches!(self, Kind::Put | Kind::Insert | Kind::Update | Kind::PutIfAbsent | Kind::Delete)
    }
}

/// What a workload needs to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// An empty store.
    Empty,
    /// A store with every key; it is filled first, untimed, if it is empty.
    Full,
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for help and reports.
    pub what: &'static str,
    /// What it begins with.
    pub begins: Begins,
    /// Which keys it takes.
    pub keys: Choice,
    /// What it does, and how often, as a share of all operations.
    pub mix: &'static [(Kind, f64)],
    /// One more thread writes as fast as it can, and is not measured.
    pub beside_writer: bool,
}

const fn one(
    name: &'static str,
    what: &'static str,
    begins: Begins,
    keys: Choice,
    kind: &'static [(Kind, f64)],
) -> Workload {
    Workload { name, what, begins, keys, mix: kind, beside_writer: false }
}

const ZIPF: Choice = Choice::Zipfian(0.99);

use Begins::{Empty, Full};
use Choice::{HotBlocks, HotKeys, Latest, Permuted, Sequence, Uniform};
use Kind::{Delete, Get, GetAbsent, GetMany, Insert, Put, PutIfAbsent, Scan, Update, Walk, WalkBack};

/// All workloads.
#[rustfmt::skip]
pub const WORKLOADS: &[Workload] = &[
    one("fillseq", "puts every key, in order", Empty, Sequence, &[(Put, 1.0)]),
    one("fillrandom", "puts random keys, some more than once", Empty, Uniform, &[(Put, 1.0)]),
    one("filluniquerandom", "puts every key once, in random order", Empty, Permuted, &[(Put, 1.0)]),
    one("overwrite", "puts random keys of a full store", Full, Uniform, &[(Put, 1.0)]),
    one("readseq", "reads all records in order", Full, Sequence, &[(Walk, 1.0)]),
    one("readreverse", "reads all records downwards", Full, Sequence, &[(WalkBack, 1.0)]),
    one("readrandom", "gets random keys", Full, Uniform, &[(Get, 1.0)]),
    one("readmissing", "gets random keys that are absent", Full, Uniform, &[(GetAbsent, 1.0)]),
    one("readhot", "gets keys, 90 % of them in 10 % of the blocks (cLSM)", Full,
        HotBlocks { operations: 0.9, blocks: 0.1 }, &[(Get, 1.0)]),
    one("multireadrandom", "gets random keys, several at once", Full, Uniform, &[(GetMany, 1.0)]),
    one("seekrandom", "scans a few records from a random key on", Full, Uniform, &[(Scan, 1.0)]),
    Workload { beside_writer: true, ..one("readwhilewriting", "gets random keys beside one thread that puts", Full, Uniform, &[(Get, 1.0)]) },
    Workload { beside_writer: true, ..one("seekrandomwhilewriting", "scans beside one thread that puts", Full, Uniform, &[(Scan, 1.0)]) },
    one("updaterandom", "reads, changes and writes random keys, atomically", Full, Uniform, &[(Update, 1.0)]),
    one("putifabsent", "puts random keys if they are absent (cLSM's RMW)", Empty, Uniform, &[(PutIfAbsent, 1.0)]),
    one("deleteseq", "removes every key, in order", Full, Sequence, &[(Delete, 1.0)]),
    one("deleterandom", "removes random keys", Full, Uniform, &[(Delete, 1.0)]),
    one("ycsba", "YCSB A: half gets, half puts", Full, ZIPF, &[(Get, 0.5), (Put, 0.5)]),
    one("ycsbb", "YCSB B: 95 % gets, 5 % puts", Full, ZIPF, &[(Get, 0.95), (Put, 0.05)]),
    one("ycsbc", "YCSB C: gets", Full, ZIPF, &[(Get, 1.0)]),
    one("ycsbd", "YCSB D: 95 % gets of the latest, 5 % inserts", Full, Latest(0.99), &[(Get, 0.95), (Insert, 0.05)]),
    one("ycsbe", "YCSB E: 95 % scans, 5 % inserts", Full, ZIPF, &[(Scan, 0.95), (Insert, 0.05)]),
    one("ycsbf", "YCSB F: half gets, half atomic updates", Full, ZIPF, &[(Get, 0.5), (Update, 0.5)]),
    one("mixbalanced", "50 % gets, 25 % puts, 25 % deletes (FloDB)", Full, Uniform, &[(Get, 0.5), (Put, 0.25), (Delete, 0.25)]),
    one("mixscan", "95 % puts, 5 % scans (FloDB)", Full, Uniform, &[(Put, 0.95), (Scan, 0.05)]),
    one("mixskewed", "half gets, half puts, 98 % of them on 2 % of the keys (FloDB)", Full,
        HotKeys { operations: 0.98, keys: 0.02 }, &[(Get, 0.5), (Put, 0.5)]),
];

impl Workload {
    /// The workload of this name.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// True if it leaves something to flush and merge.
    pub fn writes(&self) -> bool {
        self.mix.iter().any(|(kind, _)| kind.writes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_whole_and_every_name_is_one_workloads() {
        for (at, workload) in WORKLOADS.iter().enumerate() {
            let sum: f64 = workload.mix.iter().map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{}", workload.name);
            assert!(WORKLOADS[..at].iter().all(|other| other.name != workload.name));
            assert!(Workload::named(workload.name).is_some_and(|found| found.what == workload.what));
        }
        assert!(Workload::named("fillnothing").is_none());
    }
}
