//! cLSM's figures (Golan-Gueta et al., EuroSys 2015).
//!
//! Place: a part of the table that `lib` goes through.
//!
//! What is the same everywhere: "sorted" is cLSM's memory component, "two-tier" FloDB's beside it. Keys of 8 bytes are 9 here.

use drumlin_bench::engine::Result;
use drumlin_bench::session::Open;
use drumlin_bench::store::Store;
use drumlin_bench::workload::Workload;

use crate::claim::{At, Check, Claim};
use crate::figure::{Axis, Figure, KEYS, RATE, SIZE, Scale, THREADS, Tell};
use crate::lab::{Engine, FOREVER, Lab, PEER_SERIES as PEERS, keys_per_second};
use crate::partitions::partitions;
use crate::point::Point;
use crate::striped::Striped;
use crate::sweep::{self, burst, memory, rate};

const P90: Axis = Axis { says: "latency of nine in ten, ns", scale: Scale::Log10 };

/// 150 GB of records of 8 and 256 bytes, or so much of it.
fn words(lab: &Lab<'_>, workload: &str, threads: u64) -> String {
    let records = lab.setting.records(150e9 / 264.0);
    let warm = if workload == "readhot" { "--warm" } else { "" };
    format!(
        "--num {records} --key-size 9 --value-size 256 {FOREVER} {warm} --threads {threads} --benchmarks {workload}"
    )
}

fn by_threads(lab: &Lab<'_>, tell: &mut Tell<'_>, workload: &str, told: sweep::Told) -> Result<()> {
    sweep::threads(lab, tell, |threads| format!("{} {}", words(lab, workload, threads), memory(128)), told)
}

fn by_rate(lab: &Lab<'_>, tell: &mut Tell<'_>, workload: &str, kind: &str) -> Result<()> {
    let words = |threads: u64| format!("{} {}", words(lab, workload, threads), memory(128));
    sweep::latency_over_rate(lab, tell, words, kind)
}

/// Parts of the partitioned store of figure 1.
const PARTS: u64 = 4;

/// The distribution of production, of 40 bytes and 1 KB.
fn production(lab: &Lab<'_>, threads: u64) -> String {
    let records = lab.setting.records(20.0 * 5e6 / 10.0);
    format!(
        "--num {records} --key-size 40 --value-size 1000 {FOREVER} {} --threads {threads} --benchmarks mixproduction",
        memory(128)
    )
}

fn one_or_four(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let workload = Workload::named("mixproduction").expect("it is in the table");
    // As many for each of the four.
    for &threads in lab.setting.threads.iter().filter(|threads| threads.is_multiple_of(PARTS)) {
        let words = production(lab, threads);
        let line = lab.run(Engine::Sorted, &words)?;
        tell(Point { series: "one store".into(), x: threads as f64, y: burst(&line)?, raw: line })?;
        let bench = lab.parse(&format!("{words} --component sorted"))?;
        let rate = partitions(lab, &bench, workload, PARTS)?;
        tell(Point::new("four stores", threads as f64, rate))?;
    }
    Ok(())
}

fn read_modify_write(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let of = |threads: u64| format!("{} {}", words(lab, "putifabsenthot", threads), memory(128));
    sweep::threads(lab, tell, of, rate)?;
    for &threads in &lab.setting.threads {
        let bench = lab.parse(&format!("{} --component sorted", of(threads)))?;
        let settings = bench.settings();
        let open: Box<Open<'_>> =
            Box::new(move |directory| Ok(Box::new(Striped::new(Store::open(directory, &settings)?))));
        let line = lab.run_with(&bench, "striped", open)?;
        tell(Point { series: "locks outside".into(), x: threads as f64, y: rate(&line)?, raw: line })?;
    }
    Ok(())
}

/// Filled in order, then written to at random, by the configuration of the benchmark there.
fn heavy_compaction(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let records = lab.setting.records(1e9);
    let of = |threads: u64| {
        format!(
            "--num {records} --key-size 10 --value-size 400 {FOREVER} {} --table-size {} --block-size {} \
             --threads {threads} --benchmarks fillseq,overwrite",
            memory(128),
            64 << 20,
            64 << 10
        )
    };
    sweep::threads(lab, tell, of, rate)
}

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "clsm",
        number: "1",
        shows: "one store for all threads, and four with a quarter each",
        differs: "four of our own stores, not of others; keys drawn by the distribution that the paper states, not from its logs",
        x: THREADS,
        y: RATE,
        measure: one_or_four,
        claims: &[Claim {
            says: "one large partition has a peak 25 % above four small ones (§2.2)",
            check: Check::Times { at: At::Peak, series: "one store", times: 1.25, of: &["four stores"] },
        }],
    },
    Figure {
        paper: "clsm",
        number: "5a",
        shows: "puts",
        differs: "the rate until nothing is owed to the disk",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "fillrandom", rate),
        claims: &[
            Claim {
                says: "puts scale 2.5 times, to 8 threads (§5.1)",
                check: Check::Scales { series: "sorted", threads: 8, times: 2.5 },
            },
            Claim {
                says: "80 % above the next best (§5.1)",
                check: Check::Times { at: At::Peak, series: "sorted", times: 1.8, of: PEERS },
            },
        ],
    },
    Figure {
        paper: "clsm",
        number: "5b",
        shows: "puts: latency by rate",
        differs: "the rate of the burst, to which the latencies belong",
        x: RATE,
        y: P90,
        measure: |lab, tell| by_rate(lab, tell, "fillrandom", "put"),
        claims: &[],
    },
    Figure {
        paper: "clsm",
        number: "6a",
        shows: "gets, 90 % in 10 % of the blocks",
        differs: "the data fit into the system's cache",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "readhot", rate),
        claims: &[
            Claim {
                says: "2.3 times the next best, peak to peak (§5.1)",
                check: Check::Times { at: At::Peak, series: "sorted", times: 2.3, of: PEERS },
            },
            Claim {
                says: "more threads than processors lose nothing (§5.1: to 128 threads)",
                check: Check::Keeps { series: "sorted", times: 1.0 },
            },
        ],
    },
    Figure {
        paper: "clsm",
        number: "6b",
        shows: "gets, 90 % in 10 % of the blocks: latency by rate",
        differs: "the data fit into the system's cache",
        x: RATE,
        y: P90,
        measure: |lab, tell| by_rate(lab, tell, "readhot", "get"),
        claims: &[],
    },
    Figure {
        paper: "clsm",
        number: "7a",
        shows: "half gets, half puts",
        differs: "",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "mixhot", rate),
        claims: &[Claim {
            says: "above all others, peak to peak (§5.1)",
            check: Check::Times { at: At::Peak, series: "sorted", times: 1.0, of: PEERS },
        }],
    },
    Figure {
        paper: "clsm",
        number: "7b",
        shows: "scans of 10 to 20 keys and puts, as many keys by each",
        differs: "",
        x: THREADS,
        y: KEYS,
        measure: |lab, tell| by_threads(lab, tell, "mixscanhot", keys_per_second),
        claims: &[Claim {
            says: "others are slower by more than 60 % (§5.1)",
            check: Check::Times { at: At::Peak, series: "sorted", times: 1.6, of: PEERS },
        }],
    },
    Figure {
        paper: "clsm",
        number: "8",
        shows: "half gets, half puts, by memory component",
        differs: "",
        x: SIZE,
        y: RATE,
        measure: |lab, tell| {
            let threads = lab.setting.threads_many();
            sweep::sizes(lab, tell, &lab.engines(), |_| words(lab, "mixhot", threads), rate)
        },
        claims: &[Claim {
            says: "it gains by memory, to 512 MB (§5.1)",
            check: Check::Grows { series: "sorted", times: 1.05 },
        }],
    },
    Figure {
        paper: "clsm",
        number: "9",
        shows: "put-if-absent, 90 % in 10 % of the blocks",
        differs: "the locks outside are around our own store",
        x: THREADS,
        y: RATE,
        measure: read_modify_write,
        claims: &[Claim {
            says: "2.5 times as fast as with striped locks outside (§5.1)",
            check: Check::Times {
                at: At::Peak,
                series: "sorted",
                times: 2.5,
                of: &["locks outside", "LevelDB", "RocksDB"],
            },
        }],
    },
    Figure {
        paper: "clsm",
        number: "10",
        shows: "the distribution of production: 90 % gets, 10 % of the keys for 75 % of the requests",
        differs: "keys drawn by the distribution that the paper states, not from its logs; one for its four",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| sweep::threads(lab, tell, |threads| production(lab, threads), rate),
        claims: &[Claim {
            says: "with many threads above all others (§5.2)",
            check: Check::Times { at: At::Last, series: "sorted", times: 1.0, of: PEERS },
        }],
    },
    Figure {
        paper: "clsm",
        number: "11",
        shows: "updates of a store that was filled in order, until all is merged",
        differs: "",
        x: THREADS,
        y: RATE,
        measure: heavy_compaction,
        claims: &[Claim {
            says: "with 16 threads as fast as RocksDB (§5.3)",
            check: Check::Times { at: At::Last, series: "sorted", times: 1.0, of: &["RocksDB"] },
        }],
    },
];
