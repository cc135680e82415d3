//! Layouts of tables, their simulation, and the tuner.
//!
//! Place: the third part of the table.

use super::{LAYOUTS, LEVELDB, LMDB, ROCKSDB, SCANS};
use crate::comparisons;
use crate::goals::Goal;
use crate::measurements::Drawn::{Bars, No};
use crate::measurements::Measurement;
use crate::measurements::Program::{Bench, Peers, Simulate, Tune};

/// A run of a memory component and a layout: what YCSB has that needs no order, in the order in which it is to be done; B and C
/// find the store of A, and inserts come last.
macro_rules! unordered {
    ($memory:literal, $layout:literal) => {
        concat!("--component ", $memory, " --layout ", $layout, " --benchmarks ycsba,ycsbb,ycsbc,ycsbf,ycsbd")
    };
}

/// The same of a layout that has an order: with scans.
macro_rules! ordered {
    ($memory:literal, $layout:literal) => {
        concat!(unordered!($memory, $layout), ",ycsbe")
    };
}

/// See the module.
pub const MEASUREMENTS: &[Measurement] = &[
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
        with: "--layout trie --bloom-bits 16 --compression none --threads 2 --reads 200000 --direct-reads \
               --benchmarks readrandom,readmissing",
        // The second: filters are 96 MB. A trie keeps those of the levels of which half fit its share, so what lies
        // above the last level is to be a twentieth of the store: with tables as small for memtables as the paper's are, and
        // as many runs of the last level.
        runs: &[
            "--num 30000000 --memory 512 --memtable 16",
            "--num 48000000 --memory 72 --memtable 2 --table-size 2097152 --levels 3",
        ],
        rounds: 1,
        drawn: No,
        goals: &[
            Goal::Reads { workload: "readrandom", run: 0, most: 1.05 },
            Goal::Reads { workload: "readrandom", run: 1, most: 2.05 },
            Goal::Filters { workload: "readrandom", run: 1, bits: 16.0, most: 10.0 },
        ],
    },
    Measurement {
        name: "values-apart",
        shows: "long values apart from their keys, beside the same in tables: overwrites of half a GiB, three times",
        minutes: 6,
        program: Bench,
        with: "--compression none --memory 64 --memtable 8 --level1 16 --table-size 4194304 --seek-nexts 100 --duration 5 \
               --benchmarks overwrite,readrandom,seekrandom",
        runs: &[
            "--value-size 4096 --num 131072 --writes 393216",
            "--value-size 4096 --num 131072 --writes 393216 --values-apart 4096",
            "--value-size 4096 --num 131072 --writes 393216 --values-apart 4096 --values-space 125",
            "--value-size 16384 --num 32768 --writes 98304",
            "--value-size 16384 --num 32768 --writes 98304 --values-apart 4096",
        ],
        rounds: 3,
        drawn: Bars,
        goals: &[],
    },
    Measurement {
        name: "trie-device",
        shows: "trie: gets from the device beside its own reads, and beside puts in three mixes",
        minutes: 10,
        program: Bench,
        // Six times the memory; filters are in memory.
        with: "--layout trie --num 30000000 --bloom-bits 16 --compression none --memory 512 --memtable 16 --direct-reads",
        runs: &[
            // In turns on one store, and often: what the device gives differs from one pass to the next by more than gets may lose.
            "--threads 1 --reads 10000 --rounds 60 --benchmarks readrandom,readdevice",
            "--threads 16 --reads 50000 --rounds 60 --benchmarks readrandom,readdevice",
            "--threads 2 --writes 1000000000 --duration 20 --benchmarks mixget5,mixget50,mixget95",
        ],
        rounds: 1,
        drawn: Bars,
        goals: &[
            Goal::OfDevice { workload: "readrandom", run: 0, least: 90.0 },
            Goal::OfDevice { workload: "readrandom", run: 1, least: 95.0 },
            Goal::P99OfDevice { kind: "get", workload: "readrandom", run: 0, most: 3.0 },
            Goal::P99OfDevice { kind: "get", workload: "readrandom", run: 1, most: 3.0 },
        ],
    },
    Measurement {
        name: "trie-space",
        shows: "trie: 5 million keys, overwritten ten times, and put and deleted as often",
        minutes: 6,
        program: Bench,
        with: "--layout trie --num 5000000 --writes 50000000 --memory 128 --memtable 16 --threads 2",
        runs: &["--benchmarks overwrite", "--benchmarks mixwrites"],
        rounds: 1,
        drawn: No,
        // The bound of docs/design/layouts.md.
        goals: &[
            Goal::Space { workload: "overwrite", run: 0, most: 4.75 },
            Goal::Space { workload: "mixwrites", run: 1, most: 4.75 },
        ],
    },
    Measurement {
        name: "pairs",
        shows: "every memory component with every layout: YCSB A to F, a store of four times its memory, read past the page cache",
        minutes: 25,
        program: Bench,
        with: "--num 2000000 --memory 64 --direct-reads --threads 2 --duration 5 --reads 1000000000 --writes 1000000000",
        runs: &[
            ordered!("sorted", "leveled"),
            ordered!("sorted", "tiered"),
            ordered!("sorted", "lazy-leveled"),
            unordered!("sorted", "trie"),
            ordered!("two-tier", "leveled"),
            ordered!("two-tier", "tiered"),
            ordered!("two-tier", "lazy-leveled"),
            unordered!("two-tier", "trie"),
            ordered!("runs", "leveled"),
            ordered!("runs", "tiered"),
            ordered!("runs", "lazy-leveled"),
            unordered!("runs", "trie"),
        ],
        rounds: 3,
        drawn: No,
        goals: &[],
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
        with: "--num 2000000 --memory 128 --minutes 4 --grid 4",
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
