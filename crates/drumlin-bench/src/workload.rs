//! Workloads: what is done, to which keys, in which mix.
//!
//! Place: the table [`WORKLOADS`] names all of them; `drive` carries one out on an engine.
//!
//! 1. A name that db_bench or YCSB has means here what it means there, but for this: numbers of operations are those of all
//!    threads together, reads find a full store whatever came before, and a change of a value is atomic.
//! 2. Shares of a mix add up to one.
//!
//! Origin: RocksDB's db_bench; YCSB (Cooper et al., SoCC 2010); cLSM §5; FloDB §5; mixgraph (Cao et al., FAST 2020).

use crate::keys::Choice;

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Sets a key.
    Put,
    /// Sets a key and waits until it survives a power loss.
    PutSynced,
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
    /// Reads a page of the store's table files, past the store.
    Block,
    /// Opens the store.
    Open,
}

impl Kind {
    /// Those that find something, or nothing.
    pub const FINDING: [Kind; 7] = [
        Kind::Get,
        Kind::GetAbsent,
        Kind::GetMany,
        Kind::Scan,
        Kind::Walk,
        Kind::WalkBack,
        Kind::PutIfAbsent,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::PutSynced => "synced put",
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
            Kind::Block => "block",
            Kind::Open => "open",
        }
    }

    /// True if it asks for more than single keys.
    pub fn needs_order(self) -> bool {
        matches!(self, Kind::Scan | Kind::Walk | Kind::WalkBack)
    }

    /// True if it leaves something to flush.
    pub fn writes(self) -> bool {
        use Kind::{Delete, Insert, Put, PutIfAbsent, PutSynced, Update};
        matches!(self, Put | PutSynced | Insert | Update | PutIfAbsent | Delete)
    }
}

/// What a workload needs to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// An empty store.
    Empty,
    /// A store with every key; it is filled first, untimed, unless it is full.
    Full,
    /// A new store with half of the keys, put in random order, untimed.
    Half,
}

/// How many records a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As many as were asked for.
    Asked,
    /// So many.
    Exactly(usize),
    /// From so many to so many, all alike.
    Between(usize, usize),
}

/// How a store ended that a workload opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was closed.
    Closed,
    /// Its process was killed: nothing was flushed, the log is all there is of the memtables.
    Killed,
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
    /// One more thread writes as fast as it can; its puts are counted and timed, and no part of the rate.
    pub beside_writer: bool,
    /// Records of a scan.
    pub scans: Length,
    /// It opens the store, asks for one key and one range, and does nothing else.
    pub opens: Option<Ended>,
}

const fn one(
    name: &'static str,
    what: &'static str,
    begins: Begins,
    keys: Choice,
    kind: &'static [(Kind, f64)],
) -> Workload {
    let (scans, opens) = (Length::Asked, None);
    Workload { name, what, begins, keys, mix: kind, beside_writer: false, scans, opens }
}

const ZIPF: Choice = Choice::Zipfian(0.99);
const HOT: Choice = HotBlocks { operations: 0.9, blocks: 0.1 };

use Begins::{Empty, Full, Half};
use Choice::{HotBlocks, HotKeys, Latest, Permuted, Power, Sequence, Uniform};
use Kind::{
    Block, Delete, Get, GetAbsent, GetMany, Insert, Open, Put, PutIfAbsent, PutSynced, Scan, Update, Walk,
    WalkBack,
};

/// All workloads.
#[rustfmt::skip]
pub const WORKLOADS: &[Workload] = &[
    one("fillseq", "puts every key, in order", Empty, Sequence, &[(Put, 1.0)]),
    one("fillrandom", "puts random keys, some more than once", Empty, Uniform, &[(Put, 1.0)]),
    one("filluniquerandom", "puts every key once, in random order", Empty, Permuted, &[(Put, 1.0)]),
    one("fillsync", "puts random keys, a thousandth as many, each synced", Empty, Uniform, &[(PutSynced, 1.0)]),
    one("overwrite", "puts random keys of a full store", Full, Uniform, &[(Put, 1.0)]),
    one("readseq", "reads all records in order", Full, Sequence, &[(Walk, 1.0)]),
    one("readreverse", "reads all records downwards", Full, Sequence, &[(WalkBack, 1.0)]),
    one("readrandom", "gets random keys", Full, Uniform, &[(Get, 1.0)]),
    one("readmissing", "gets random keys that are absent", Full, Uniform, &[(GetAbsent, 1.0)]),
    one("readdevice", "reads random 4 KiB pages of the table files, --batch-size at once, past the store: the device's own rate", Full, Uniform, &[(Block, 1.0)]),
    one("readhot", "gets keys, 90 % of them in 10 % of the blocks (cLSM)", Full, HOT, &[(Get, 1.0)]),
    one("multireadrandom", "gets random keys, --batch-size at once", Full, Uniform, &[(GetMany, 1.0)]),
    one("seekrandom", "scans a few records from a random key on", Full, Uniform, &[(Scan, 1.0)]),
    Workload { beside_writer: true, ..one("readwhilewriting", "gets random keys beside one thread that puts", Full, Uniform, &[(Get, 1.0)]) },
    Workload { beside_writer: true, ..one("seekrandomwhilewriting", "scans beside one thread that puts", Full, Uniform, &[(Scan, 1.0)]) },
    one("readrandomwriterandom", "90 % gets, 10 % puts of random keys", Full, Uniform, &[(Get, 0.9), (Put, 0.1)]),
    one("mixget5", "5 % gets, 95 % puts of random keys (LSM-trie)", Full, Uniform, &[(Get, 0.05), (Put, 0.95)]),
    one("mixget95", "95 % gets, 5 % puts of random keys (LSM-trie)", Full, Uniform, &[(Get, 0.95), (Put, 0.05)]),
    one("mixget10", "10 % gets, 90 % puts of random keys (sLSM)", Full, Uniform, &[(Get, 0.1), (Put, 0.9)]),
    one("mixget30", "30 % gets, 70 % puts of random keys (sLSM)", Full, Uniform, &[(Get, 0.3), (Put, 0.7)]),
    one("mixget50", "half gets, half puts of random keys (sLSM)", Full, Uniform, &[(Get, 0.5), (Put, 0.5)]),
    one("mixget70", "70 % gets, 30 % puts of random keys (sLSM)", Full, Uniform, &[(Get, 0.7), (Put, 0.3)]),
    one("updaterandom", "reads, changes and writes random keys, atomically", Full, Uniform, &[(Update, 1.0)]),
    one("putifabsent", "puts random keys if they are absent (cLSM's RMW)", Empty, Uniform, &[(PutIfAbsent, 1.0)]),
    one("deleteseq", "removes every key, in order", Full, Sequence, &[(Delete, 1.0)]),
    one("deleterandom", "removes random keys", Full, Uniform, &[(Delete, 1.0)]),
    one("mixgraph", "83 % gets, 14 % puts, 3 % scans, few keys popular by a power law", Full, Power,
        &[(Get, 0.83), (Put, 0.14), (Scan, 0.03)]),
    one("ycsba", "YCSB A: half gets, half puts", Full, ZIPF, &[(Get, 0.5), (Put, 0.5)]),
    one("ycsbb", "YCSB B: 95 % gets, 5 % puts", Full, ZIPF, &[(Get, 0.95), (Put, 0.05)]),
    one("ycsbc", "YCSB C: gets", Full, ZIPF, &[(Get, 1.0)]),
    one("ycsbd", "YCSB D: 95 % gets of the latest, 5 % inserts", Full, Latest(0.99), &[(Get, 0.95), (Insert, 0.05)]),
    Workload { scans: Length::Between(1, 100), ..one("ycsbe", "YCSB E: 95 % scans of 1 to 100 records, 5 % inserts", Full, ZIPF, &[(Scan, 0.95), (Insert, 0.05)]) },
    one("ycsbf", "YCSB F: half gets, half atomic updates", Full, ZIPF, &[(Get, 0.5), (Update, 0.5)]),
    one("mixbalanced", "50 % gets, 25 % puts, 25 % deletes (FloDB)", Half, Uniform, &[(Get, 0.5), (Put, 0.25), (Delete, 0.25)]),
    Workload { scans: Length::Exactly(100), ..one("mixscan", "95 % puts, 5 % scans of 100 records (FloDB)", Half, Uniform, &[(Put, 0.95), (Scan, 0.05)]) },
    Workload { scans: Length::Exactly(100), ..one("mixscan2", "98 % puts, 2 % scans of 100 records (FloDB)", Half, Uniform, &[(Put, 0.98), (Scan, 0.02)]) },
    Workload { scans: Length::Exactly(100), ..one("mixscan10", "90 % puts, 10 % scans of 100 records (FloDB)", Half, Uniform, &[(Put, 0.9), (Scan, 0.1)]) },
    Workload { scans: Length::Exactly(100), ..one("mixscan20", "80 % puts, 20 % scans of 100 records (FloDB)", Half, Uniform, &[(Put, 0.8), (Scan, 0.2)]) },
    Workload { scans: Length::Exactly(100), ..one("mixscan50", "50 % puts, 50 % scans of 100 records (FloDB)", Half, Uniform, &[(Put, 0.5), (Scan, 0.5)]) },
    one("mixwrites", "half puts, half deletes (FloDB)", Empty, Uniform, &[(Put, 0.5), (Delete, 0.5)]),
    one("mixhot", "half gets, half puts, 90 % in 10 % of the blocks (cLSM)", Full, HOT, &[(Get, 0.5), (Put, 0.5)]),
    Workload { scans: Length::Between(10, 20), ..one("mixscanhot", "94 % puts, 6 % scans of 10 to 20 records, 90 % in 10 % of the blocks (cLSM)", Full, HOT,
        &[(Put, 0.9375), (Scan, 0.0625)]) },
    one("putifabsenthot", "puts keys if they are absent, 90 % in 10 % of the blocks (cLSM)", Empty, HOT, &[(PutIfAbsent, 1.0)]),
    one("mixproduction", "90 % gets, 10 % puts, half on 1.5 % of the keys, 75 % on 10 %, some seen once (cLSM)", Full,
        Choice::HeavyTail, &[(Get, 0.9), (Put, 0.1)]),
    one("mixskewed", "half gets, half puts, 98 % of them on 2 % of the keys (FloDB)", Half,
        HotKeys { operations: 0.98, keys: 0.02 }, &[(Get, 0.5), (Put, 0.5)]),
    Workload { opens: Some(Ended::Closed), ..one("open", "opens the closed store, until the first get and scan", Full, Uniform, &[(Open, 1.0)]) },
    Workload { opens: Some(Ended::Killed), ..one("recover", "opens the store as a kill left it, until the first get and scan", Full, Uniform, &[(Open, 1.0)]) },
];

impl Workload {
    /// True if any of it asks for more than single keys.
    pub fn needs_order(&self) -> bool {
        self.mix.iter().any(|(kind, _)| kind.needs_order())
    }

    /// The workload of this name.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// Operations where none were asked for, with so many keys.
    pub fn operations(&self, keys: u64) -> u64 {
        match (self.opens, self.mix) {
            (Some(_), _) => 1,
            (None, [(PutSynced, _)]) => (keys / 1000).max(1),
            (None, _) => keys,
        }
    }

    /// True if it puts or removes every key once, in an order of its own: it is done when it has, however long that takes.
    pub fn is_of_every_key(&self) -> bool {
        self.writes() && matches!(self.keys, Sequence | Permuted)
    }

    /// True if one call may take several keys.
    pub fn takes_batches(&self) -> bool {
        matches!(self.mix, [(Put | GetMany | Block, _)])
    }

    /// True if it waits for a device at each write, whatever else was asked for.
    pub fn syncs(&self) -> bool {
        self.mix.iter().any(|(kind, _)| *kind == PutSynced)
    }

    /// True if it finds the store as it leaves it, open and unchanged.
    pub fn only_reads(&self) -> bool {
        !self.writes() && !self.beside_writer && self.opens.is_none()
    }

    /// True if it reads the store's files, past the store.
    pub fn is_of_device(&self) -> bool {
        self.mix.iter().any(|(kind, _)| *kind == Block)
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
