//! The measurements: what is run, and what it has to show.
//!
//! Place: the table that `main` goes through; `run` carries one out, `goals` judges it.
//!
//! 1. Arguments are those of `drumlin bench` (or of the peers' program); `--quick` scales them, see [`scaled`].
//! 2. Where the runs of one measurement are compared with each other, they take turns.

use crate::comparisons;
use crate::goals::Goal;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `drumlin bench`.
    Bench,
    /// `drumlin limits`.
    Limits,
    /// The peers' program.
    Peers,
    /// `drumlin simulate`.
    Simulate,
    /// `drumlin tune`.
    Tune,
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// Medians as bars, from the least to the most.
    Bars,
    /// Percentiles of latencies.
    Latencies,
    /// Not at all.
    No,
}

/// Something to be measured.
#[derive(Debug)]
pub struct Measurement {
    /// Its name on the command line, and of its files.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// About how long it takes on two cores.
    pub minutes: u64,
    /// The program.
    pub program: Program,
    /// Arguments of every run.
    pub with: &'static str,
    /// Arguments of each run; one run if there are none.
    pub runs: &'static [&'static str],
    /// Rounds of each run. Runs of `drumlin bench` take turns round by round.
    pub rounds: u32,
    /// How it is drawn.
    pub drawn: Drawn,
    /// What must hold.
    pub goals: &'static [Goal],
}

use Drawn::{Bars, Latencies, No};
use Program::{Bench, Limits, Peers, Simulate, Tune};

/// MiB that are at hand when a workload begins, at most.
const TOUCHED_MAX: u64 = 4096;
/// Records for each MiB of files, in the system's memory as well: log and tables, written more than once.
const RECORDS_PER_MIB: u64 = 2048;
/// One thread, and two.
const THREADS: &[&str] = &["--threads 1", "--threads 2"];
/// Scans of two lengths, by one thread and by two.
const SCANS: &[&str] = &[
    "--threads 1 --seek-nexts 10",
    "--threads 1 --seek-nexts 20",
    "--threads 2 --seek-nexts 10",
    "--threads 2 --seek-nexts 20",
];
/// The layouts.
const LAYOUTS: &[&str] = &["--layout leveled", "--layout tiered", "--layout lazy-leveled"];
const ROCKSDB: &str = "RocksDB";
const ROCKSDB_TXN: &str = "RocksDB txn";
const LEVELDB: &str = "LevelDB";
const LMDB: &str = "LMDB";

/// The table, in the order of the page.
pub const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "limits",
        shows: "what the machine can do at most",
        minutes: 1,
        program: Limits,
        with: "--threads 2",
        runs: &[""],
        rounds: 1,
        drawn: No,
        goals: &[],
    },
    Measurement {
        name: "peers",
        shows: "all engines beside each other, a million records",
        minutes: 30,
        program: Peers,
        with: "--grid --engines drumlin,rocksdb,leveldb,lmdb,fjall,redb --num 1000000 --grid-num 200000 --reads \
               500000 --warm --memory 512 \
               --benchmarks fillrandom,readrandom,readmissing,seekrandom,readseq,updaterandom",
        runs: THREADS,
        rounds: 3,
        drawn: Bars,
        goals: &[],
    },
    Measurement {
        name: "puts-64m",
        shows: "puts, memory component of 64 MiB",
        minutes: 10,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb --num 5000000 --grid-num 1000000 --memory 512 --memtable 64 \
               --benchmarks fillrandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 4.0 }],
    },
    Measurement {
        name: "puts-1g",
        shows: "puts, memory component of 1 GiB",
        minutes: 30,
        program: Peers,
        // More than the component holds.
        with: "--component sorted \
               --grid --engines drumlin,rocksdb --num 10000000 --grid-num 1000000 --memory 4096 --memtable 1024 \
               --benchmarks fillrandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 3.0 }],
    },
    Measurement {
        name: "sustained",
        shows: "sustained puts, 30 million records, nothing owed at the end",
        minutes: 25,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb --num 30000000 --grid-num 1000000 --memory 512 --memtable 64 \
               --benchmarks fillrandom",
        runs: &["--threads 2"],
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 2.5 }],
    },
    Measurement {
        name: "threads",
        shows: "sustained puts by more threads than there are cores",
        minutes: 7,
        program: Bench,
        with: "--component sorted --num 30000000 --memory 512 --memtable 64 --benchmarks fillrandom",
        runs: &["--threads 2", "--threads 8"],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::RunOfRun { workload: "fillrandom", runs: (1, 0), is_burst: false, least: 0.9 },
            Goal::Memory { beyond_mib: 64 },
        ],
    },
    Measurement {
        name: "gets",
        shows: "gets and misses, 5 million records, all in cache",
        minutes: 30,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb,lmdb --num 5000000 --grid-num 1000000 --reads 2000000 --memory 2048 --warm \
               --benchmarks readrandom,readmissing",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "readrandom", engine: ROCKSDB, least: 4.0 },
            Goal::Times { workload: "readrandom", engine: LMDB, least: 1.0 },
            Goal::Times { workload: "readmissing", engine: ROCKSDB, least: 1.0 },
        ],
    },
    Measurement {
        name: "gets-memory",
        shows: "gets, 5 million records, all in the memory component",
        minutes: 12,
        program: Peers,
        // The settings that do not flush: memtables answer.
        with: "--component sorted \
               --grid --engines drumlin,rocksdb --setting drumlin=!flushed --setting rocksdb=!flushed --num 5000000 \
               --grid-num 1000000 --reads 2000000 --memory 6144 --memtable 2048 --benchmarks readrandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "readrandom", engine: ROCKSDB, least: 3.0 }],
    },
    Measurement {
        name: "scans",
        shows: "scans of 10 and of 20 records, a million records, all in cache",
        minutes: 20,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb,leveldb,lmdb --num 1000000 --grid-num 200000 --reads 300000 --memory \
               512 --warm --benchmarks seekrandom",
        runs: SCANS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "seekrandom", engine: LEVELDB, least: 1.0 }],
    },
    Measurement {
        name: "full-scan",
        shows: "all of 5 million records in order, from cache",
        minutes: 4,
        program: Bench,
        with: "--component sorted --num 5000000 --memory 2048 --warm --benchmarks readseq,readreverse",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::RatePerThread { workload: "readseq", least: 10e6 }, Goal::Memory { beyond_mib: 64 }],
    },
    Measurement {
        name: "rmw",
        shows: "read-modify-write and put-if-absent",
        minutes: 15,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb,rocksdb-txn --num 1000000 --grid-num 300000 --memory 512 --memtable 64 \
               --benchmarks putifabsent,updaterandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "putifabsent", engine: ROCKSDB, least: 5.0 },
            Goal::Times { workload: "updaterandom", engine: ROCKSDB, least: 5.0 },
            Goal::Times { workload: "putifabsent", engine: ROCKSDB_TXN, least: 5.0 },
            Goal::Times { workload: "updaterandom", engine: ROCKSDB_TXN, least: 5.0 },
        ],
    },
    Measurement {
        name: "open-loop",
        shows: "puts at 80 % of RocksDB's sustained rate, ten minutes long",
        minutes: 21,
        program: Peers,
        with: "--component sorted \
               --engines drumlin,rocksdb --num 30000000 --memory 512 --memtable 64 --threads 2 --benchmarks fillrandom \
               --setting {best of rocksdb in sustained} --rate {80% of RocksDB in sustained} --duration 600 --writes 1000000000",
        runs: &[""],
        rounds: 1,
        drawn: Latencies,
        goals: &[
            Goal::P999 { kind: "put", engine: ROCKSDB, most: 1.0 / 3.0 },
            Goal::Worst { kind: "put", most_ms: 10.0 },
        ],
    },
    Measurement {
        name: "disk",
        shows: "puts that survive a power loss, by one thread and by 16",
        minutes: 6,
        program: Peers,
        with: "--component sorted \
               --grid --engines drumlin,rocksdb --num 1000000 --memory 512 --durability disk --benchmarks fillrandom",
        runs: &["--threads 1 --writes 10000", "--threads 16 --writes 100000"],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 1.0 },
            Goal::RunOfRun { workload: "fillrandom", runs: (1, 0), is_burst: false, least: 4.0 },
        ],
    },
    Measurement {
        name: "open",
        shows: "from opening 10,000 tables to the first get and scan",
        minutes: 2,
        program: Bench,
        with: "--component sorted --num 10000000 --memory 512 --table-size 81920 --benchmarks open --reads 5",
        runs: &[""],
        rounds: 1,
        drawn: No,
        goals: &[Goal::Opens { tables: 10_000, most_s: 1.0 }, Goal::Memory { beyond_mib: 64 }],
    },
    Measurement {
        name: "recovery",
        shows: "recovery of a killed store, 1 GiB of log",
        minutes: 3,
        program: Bench,
        with: "--component sorted --num 8000000 --memory 6144 --memtable 2048 --benchmarks recover",
        runs: &[""],
        rounds: 5,
        drawn: No,
        goals: &[Goal::Recovers { most_s_per_gib: 3.0 }, Goal::Memory { beyond_mib: 64 }],
    },
    Measurement {
        name: "memory",
        shows: "resident memory while everything is done",
        minutes: 6,
        program: Bench,
        with: "--num 5000000 --threads 2 \
               --benchmarks fillrandom,overwrite,readrandom,seekrandom,updaterandom,readwhilewriting,mixscan",
        runs: &["--memory 64", "--memory 256", "--memory 1024"],
        rounds: 1,
        drawn: No,
        goals: &[Goal::Memory { beyond_mib: 64 }],
    },
    Measurement {
        name: "mixes",
        shows: "YCSB A to F and the papers' mixes",
        minutes: 15,
        program: Peers,
        with: "--engines drumlin,rocksdb,lmdb --num 1000000 --memory 512 --threads 2 \
               --benchmarks ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf,readhot,mixbalanced,mixscan,mixskewed",
        runs: &[""],
        rounds: 3,
        drawn: Bars,
        goals: &[],
    },
    Measurement {
        name: "two-tier-puts",
        shows: "two tiers: puts that memory holds",
        minutes: 15,
        program: Peers,
        // RocksDB tries memtables of 64 MiB, 256 MiB, and all that memory allows.
        with: "--grid --engines drumlin,rocksdb --component two-tier --num 5000000 --grid-num 1000000 --memory 8192 \
               --benchmarks fillrandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 10.0 }],
    },
    Measurement {
        name: "two-tier-sorted",
        shows: "two tiers and one: puts until all of memory is sorted",
        minutes: 8,
        program: Bench,
        with: "--num 5000000 --memory 8192 --memtable 2048 --sorted --benchmarks fillrandom",
        runs: &[
            "--component sorted --threads 1",
            "--component two-tier --threads 1",
            "--component sorted --threads 2",
            "--component two-tier --threads 2",
        ],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::RunOfRun { workload: "fillrandom", runs: (1, 0), is_burst: false, least: 2.0 },
            Goal::RunOfRun { workload: "fillrandom", runs: (3, 2), is_burst: false, least: 1.4 },
        ],
    },
    Measurement {
        name: "two-tier-sizes",
        shows: "two tiers and one: ten seconds of puts over the same keys, by the memory of the store",
        minutes: 25,
        program: Bench,
        with: "--num 2000000 --writes 1000000000 --duration 10 --threads 2 --benchmarks overwrite",
        runs: &[
            "--component sorted --memory 64",
            "--component two-tier --memory 64",
            "--component sorted --memory 256",
            "--component two-tier --memory 256",
            "--component sorted --memory 1024",
            "--component two-tier --memory 1024",
            "--component sorted --memory 4096",
            "--component two-tier --memory 4096",
            "--component sorted --memory 8192",
            "--component two-tier --memory 8192",
        ],
        rounds: 3,
        drawn: Bars,
        goals: &[
            Goal::RunOfRun { workload: "overwrite", runs: (3, 1), is_burst: true, least: 1.0 },
            Goal::RunOfRun { workload: "overwrite", runs: (5, 1), is_burst: true, least: 1.0 },
            Goal::RunOfRun { workload: "overwrite", runs: (7, 1), is_burst: true, least: 1.0 },
            Goal::RunOfRun { workload: "overwrite", runs: (9, 1), is_burst: true, least: 1.0 },
            Goal::Memory { beyond_mib: 64 },
        ],
    },
    Measurement {
        name: "two-tier-skewed",
        shows: "two tiers: half updates, 98 % of all operations on 2 % of the keys",
        minutes: 10,
        program: Peers,
        with: "--grid --engines drumlin,rocksdb --component two-tier --num 1000000 --grid-num 300000 --memory 512 \
               --benchmarks mixskewed",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "mixskewed", engine: ROCKSDB, least: 17.0 }],
    },
    Measurement {
        name: "two-tier-gets",
        shows: "two tiers: gets, 5 million records, all in the memory component",
        minutes: 8,
        program: Peers,
        with: "--grid --engines drumlin,lmdb --setting drumlin=!flushed --component two-tier --num 5000000 \
               --grid-num 1000000 --reads 2000000 --memory 8192 --memtable 2048 --benchmarks readrandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "readrandom", engine: LMDB, least: 1.0 }],
    },
    Measurement {
        name: "two-tier-rmw",
        shows: "two tiers: read-modify-write and put-if-absent",
        minutes: 15,
        program: Peers,
        with: "--grid --engines drumlin,rocksdb,leveldb --component two-tier --num 1000000 --grid-num 300000 \
               --memory 512 --memtable 64 --benchmarks putifabsent,updaterandom",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "putifabsent", engine: ROCKSDB, least: 5.0 },
            Goal::Times { workload: "updaterandom", engine: ROCKSDB, least: 5.0 },
            Goal::Times { workload: "putifabsent", engine: LEVELDB, least: 5.0 },
            Goal::Times { workload: "updaterandom", engine: LEVELDB, least: 5.0 },
        ],
    },
    Measurement {
        name: "two-tier-scans",
        shows: "two tiers: 95 % updates and 5 % scans of 100",
        minutes: 15,
        program: Peers,
        with: "--grid --engines drumlin,rocksdb,leveldb,lmdb --component two-tier --num 1000000 --grid-num 300000 \
               --reads 1000000 --writes 1000000 --memory 512 --benchmarks mixscan",
        runs: THREADS,
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "mixscan", engine: ROCKSDB, least: 3.0 },
            Goal::Times { workload: "mixscan", engine: LEVELDB, least: 3.0 },
            Goal::Times { workload: "mixscan", engine: LMDB, least: 3.0 },
        ],
    },
    Measurement {
        name: "two-tier-open-loop",
        shows: "two tiers: puts at 80 % of RocksDB's sustained rate, ten minutes long",
        minutes: 21,
        program: Peers,
        with: "--engines drumlin,rocksdb --component two-tier --num 30000000 --memory 512 --memtable 64 --threads 2 \
               --benchmarks fillrandom --setting {best of rocksdb in sustained} --rate {80% of RocksDB in sustained} \
               --duration 600 --writes 1000000000",
        runs: &[""],
        rounds: 1,
        drawn: Latencies,
        goals: &[
            Goal::P999 { kind: "put", engine: ROCKSDB, most: 1.0 / 3.0 },
            Goal::Worst { kind: "put", most_ms: 10.0 },
        ],
    },
    Measurement {
        name: "lazy-sustained",
        shows: "lazy-leveled: sustained puts, 30 million records, nothing owed at the end",
        minutes: 12,
        program: Peers,
        with: "--layout lazy-leveled \
               --grid --engines drumlin,rocksdb --num 30000000 --grid-num 1000000 --memory 512 --memtable 64 \
               --benchmarks fillrandom",
        runs: &["--threads 2"],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 3.0 },
            Goal::Written { workload: "fillrandom", most: 8.0 },
        ],
    },
    Measurement {
        name: "layout-written",
        shows: "the layouts: what 30 million puts write, beside RocksDB",
        minutes: 6,
        program: Peers,
        with: "--traffic --engines drumlin,rocksdb --num 30000000 --memory 512 --memtable 64 --threads 2 \
               --benchmarks fillrandom",
        runs: LAYOUTS,
        rounds: 1,
        drawn: No,
        goals: &[],
    },
    Measurement {
        name: "layout-space",
        shows: "the layouts: 5 million records, overwritten ten times",
        minutes: 6,
        program: Bench,
        with: "--num 5000000 --writes 50000000 --memory 128 --memtable 16 --threads 2 --benchmarks overwrite",
        runs: LAYOUTS,
        rounds: 1,
        drawn: No,
        // Bounds of docs/design/layouts.md.
        goals: &[
            Goal::Space { workload: "overwrite", run: 0, most: 1.5 },
            Goal::Space { workload: "overwrite", run: 1, most: 9.2 },
            Goal::Space { workload: "overwrite", run: 2, most: 1.9 },
            Goal::Written { workload: "overwrite", most: 8.0 },
        ],
    },
    Measurement {
        name: "lazy-scans",
        shows: "lazy-leveled: scans of 10 and of 20 records, a million records, all in cache, tables as puts left them",
        minutes: 10,
        program: Peers,
        with: "--layout lazy-leveled \
               --grid --engines drumlin,leveldb --num 1000000 --grid-num 200000 --reads 300000 --memory \
               512 --memtable 8 --warm --benchmarks seekrandom --setting leveldb=!merged",
        runs: SCANS,
        rounds: 5,
        drawn: Bars,
        goals: &[Goal::Times { workload: "seekrandom", engine: LEVELDB, least: 1.0 }],
    },
    Measurement {
        name: "lazy-scans-compact",
        shows: "lazy-leveled, merged into one run: scans of 10 and of 20 records",
        minutes: 10,
        program: Peers,
        with: "--layout lazy-leveled --compact \
               --grid --engines drumlin,leveldb,lmdb --num 1000000 --grid-num 200000 --reads 300000 --memory \
               512 --memtable 8 --warm --benchmarks seekrandom",
        runs: SCANS,
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "seekrandom", engine: LMDB, least: 0.6 },
            Goal::Times { workload: "seekrandom", engine: LEVELDB, least: 1.0 },
        ],
    },
    Measurement {
        name: "filters",
        shows: "gets over some 58 runs, with filters and without, from memory and from the device",
        minutes: 8,
        program: Bench,
        with: "--layout tiered --level0 1000 --memtable 4 --num 2000000 --benchmarks readrandom,readmissing",
        runs: &[
            "--memory 1024 --warm --reads 500000 --bloom-bits 10",
            "--memory 1024 --warm --reads 50000 --bloom-bits 0",
            "--memory 24 --direct-reads --reads 20000 --bloom-bits 10",
            "--memory 24 --direct-reads --reads 1000 --bloom-bits 0",
        ],
        rounds: 3,
        drawn: Bars,
        goals: &[
            Goal::RunOfRun { workload: "readrandom", runs: (0, 1), is_burst: false, least: 8.0 },
            Goal::RunOfRun { workload: "readmissing", runs: (2, 3), is_burst: false, least: 50.0 },
        ],
    },
    Measurement {
        name: "trie-sustained",
        shows: "trie: sustained puts, 30 million records, nothing owed at the end",
        minutes: 12,
        program: Peers,
        with: "--layout trie \
               --grid --engines drumlin,rocksdb --num 30000000 --grid-num 1000000 --memory 512 --memtable 64 \
               --benchmarks fillrandom",
        runs: &["--threads 2"],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 4.0 },
            Goal::Written { workload: "fillrandom", most: 5.6 },
        ],
    },
    Measurement {
        name: "trie-written",
        shows: "trie: what puts write, five levels deep",
        minutes: 5,
        program: Bench,
        // A table of the last level for 4096 memtables.
        with: "--layout trie --num 40000000 --memory 64 --memtable 1 --segment 1 --table-size 2097152 --bloom-bits 16 \
               --compression none --threads 2 --benchmarks filluniquerandom",
        runs: &[""],
        rounds: 1,
        drawn: No,
        goals: &[Goal::Written { workload: "filluniquerandom", most: 5.6 }],
    },
    Measurement {
        name: "trie-reads",
        shows: "trie: reads of a get from the device, with all filters in memory and with a tenth of them at most",
        minutes: 8,
        program: Bench,
        with: "--layout trie --num 30000000 --bloom-bits 16 --compression none --threads 2 --reads 200000 --direct-reads \
               --benchmarks readrandom,readmissing",
        // Of tables a store holds 9 of 32 parts of its memory; filters are 60 MB.
        runs: &["--memory 512 --memtable 16", "--memory 20 --memtable 2"],
        rounds: 1,
        drawn: No,
        goals: &[
            Goal::Reads { workload: "readrandom", run: 0, most: 1.05 },
            Goal::Reads { workload: "readrandom", run: 1, most: 2.05 },
        ],
    },
    Measurement {
        name: "simulation",
        shows: "what was simulated, beside a real store of 30 million records",
        minutes: 4,
        program: Simulate,
        with: "--records 30000000 --memory 256 --real",
        runs: &["--layout leveled", "--layout tiered", "--layout lazy-leveled", "--layout trie"],
        rounds: 1,
        drawn: No,
        goals: &[
            Goal::Foretold { what: comparisons::WRITTEN, within: 10.0 },
            Goal::Foretold { what: comparisons::BYTES, within: 10.0 },
            Goal::Foretold { what: comparisons::SHAPE, within: 10.0 },
        ],
    },
    Measurement {
        name: "tuner",
        shows: "what the tuner chose, beside a grid",
        minutes: 45,
        program: Tune,
        with: "--num 2000000 --memory 128 --minutes 4 --grid 5",
        runs: &[
            "--workload mixget30",
            "--workload ycsbb",
            "--workload ycsbe",
            "--workload mixskewed",
            "--workload mixscan20",
        ],
        rounds: 1,
        drawn: No,
        goals: &[
            Goal::Foretold { what: comparisons::OF_BEST, within: 10.0 },
            Goal::Foretold { what: comparisons::RATE, within: 30.0 },
        ],
    },
];

/// The measurement of this name.
pub fn named(name: &str) -> Option<&'static Measurement> {
    MEASUREMENTS.iter().find(|measurement| measurement.name == name)
}

impl Measurement {
    /// The arguments of a run, as given to the program; `quick` ones are scaled.
    pub fn arguments(&self, run: &str, quick: bool) -> Vec<String> {
        // What is to be filled in later stays one word.
        let text = format!("{} {run}", self.with);
        let mut words = Vec::new();
        for part in text.split_inclusive(['{', '}']) {
            match part.strip_suffix('}') {
                Some(inside) => words.push(format!("{{{inside}}}")),
                None => words.extend(part.trim_end_matches('{').split_whitespace().map(String::from)),
            }
        }
        match (quick, self.program) {
            (false, Program::Limits | Program::Simulate | Program::Tune) => words,
            (false, Program::Bench | Program::Peers) => {
                let touched = touched(&words).to_string();
                words.extend(["--touch".to_string(), touched]);
                words
            }
            (true, Program::Limits) => {
                words.extend(["--seconds", "0.05", "--size", "32"].map(String::from));
                words
            }
            (true, _) => scaled(words),
        }
    }

    /// Rounds of a run.
    pub fn rounds(&self, quick: bool) -> u32 {
        if quick { self.rounds.min(2) } else { self.rounds }
    }
}

/// MiB that a workload is about to use: the engine's, and the system's for its files.
fn touched(words: &[String]) -> u64 {
    let number = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    };
    let files = number("--num").map(|records| records / RECORDS_PER_MIB);
    number("--memory").zip(files).map_or(TOUCHED_MAX, |(memory, files)| (memory + files).min(TOUCHED_MAX))
}

/// Numbers of records, of operations and of seconds at a fiftieth, memory too, as far as a store can do with so little.
fn scaled(mut words: Vec<String>) -> Vec<String> {
    const PART: u64 = 50;
    for at in 1..words.len() {
        let least = match words[at - 1].as_str() {
            "--num" | "--grid-num" | "--records" | "--reads" | "--writes" | "--duration" | "--memtable" => 1,
            // A grid of seconds; of the peers it is a flag.
            "--minutes" | "--grid" if words[at].parse::<f64>().is_ok() => {
                words[at] = "0.02".into();
                continue;
            }
            "--memory" => 16,
            _ => continue,
        };
        if let Ok(number) = words[at].parse::<u64>() {
            // Small numbers are of another kind: how often to open.
            let smaller = if number < PART { number } else { (number / PART).max(least) };
            words[at] = smaller.to_string();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use drumlin_bench::args::Bench;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn every_measurement_is_one_that_the_bench_understands() {
        for (at, measurement) in MEASUREMENTS.iter().enumerate() {
            assert!(MEASUREMENTS[..at].iter().all(|other| other.name != measurement.name));
            if !matches!(measurement.program, super::Program::Bench | super::Program::Peers) {
                continue;
            }
            for run in measurement.runs {
                for quick in [false, true] {
                    let mut words = vec!["bench".to_string()];
                    let mut arguments = measurement.arguments(run, quick).into_iter();
                    while let Some(word) = arguments.next() {
                        match word.as_str() {
                            "--grid" | "--traffic" => {}
                            "--engines" | "--setting" | "--grid-num" => drop(arguments.next()),
                            word if word.starts_with('{') => words.push("1000".into()),
                            _ => words.push(word),
                        }
                    }
                    let Program { bench } =
                        Program::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
                    bench.check().and_then(|()| bench.workloads().map(drop)).expect(measurement.name);
                }
            }
        }
    }

    #[test]
    fn as_much_memory_is_at_hand_as_a_workload_takes() {
        let words = |name, run| named(name).expect("it is there").arguments(run, false).join(" ");
        assert!(words("peers", "--threads 1").ends_with("--touch 1000"));
        assert!(words("sustained", "--threads 2").ends_with("--touch 4096"));
        assert!(words("two-tier-sizes", "--component sorted --memory 64").ends_with("--touch 1040"));
    }

    #[test]
    fn a_quick_run_is_a_fiftieth() {
        let words = |run, quick| named("scans").expect("it is there").arguments(run, quick).join(" ");
        assert!(
            words("--threads 2", false)
                .contains("--num 1000000 --grid-num 200000 --reads 300000 --memory 512")
        );
        assert!(words("--threads 2", true).contains("--num 20000 --grid-num 4000 --reads 6000 --memory 16"));
        assert!(words("--threads 2", true).ends_with("--threads 2"));
        let open_loop = named("open-loop").expect("it is there").arguments("", false);
        for word in ["{best of rocksdb in sustained}", "{80% of RocksDB in sustained}"] {
            assert!(open_loop.contains(&word.to_string()), "{open_loop:?}");
        }
    }
}
