//! Memory in two tiers.
//!
//! Place: the second part of the table.

use super::{LEVELDB, LMDB, ROCKSDB, THREADS};
use crate::goals::Goal;
use crate::measurements::Drawn::{Bars, Latencies};
use crate::measurements::Measurement;
use crate::measurements::Program::{Bench, Peers};

/// See the module.
pub const MEASUREMENTS: &[Measurement] = &[
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
        goals: &[
            Goal::Times { workload: "fillrandom", engine: ROCKSDB, least: 10.0 },
            Goal::OfLimit { workload: "fillrandom", limit: "log-copy-update", threads: 1, least: 55.0 },
            Goal::OfLimit { workload: "fillrandom", limit: "log-copy-update", threads: 2, least: 45.0 },
        ],
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
               --duration 10 --reads 1000000000 --writes 1000000000 --benchmarks mixskewed",
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
        name: "two-tier-scaling",
        shows: "two tiers: puts that are not logged and gets, all in memory, by number of threads, beside the machine's limits",
        minutes: 4,
        program: Bench,
        with: "--component two-tier --durability memory --num 5000000 --reads 10000000 --memory 6144 --memtable 2048 \
               --limits --limit chase-huge,update-line-huge --benchmarks filluniquerandom,readrandom",
        runs: &["--threads 1", "--threads 2", "--threads 4", "--threads 8", "--threads 16"],
        rounds: 5,
        drawn: Bars,
        goals: &[
            Goal::Scales { workload: "filluniquerandom", limit: "update-line-huge", least: 75.0 },
            Goal::Scales { workload: "readrandom", limit: "chase-huge", least: 75.0 },
        ],
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
];
