//! The store beside other engines and by itself, with memory in one tier where nothing else is said.
//!
//! Place: the first part of the table.

use super::{LEVELDB, LMDB, ROCKSDB, ROCKSDB_TXN, SCANS, THREADS};
use crate::goals::Goal;
use crate::measurements::Drawn::{Bars, Latencies, No};
use crate::measurements::Measurement;
use crate::measurements::Program::{Bench, Limits, Peers};

/// See the module.
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
        minutes: 12,
        program: Peers,
        with: "--engines drumlin,rocksdb,lmdb --num 1000000 --memory 512 --threads 2 \
               --duration 5 --reads 1000000000 --writes 1000000000 \
               --benchmarks ycsba,ycsbb,ycsbc,ycsbd,ycsbe,ycsbf,readhot,mixbalanced,mixscan,mixskewed",
        runs: &[""],
        rounds: 3,
        drawn: Bars,
        goals: &[],
    },
];
