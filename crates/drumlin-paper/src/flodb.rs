//! FloDB's figures (Balmau et al., EuroSys 2017).
//!
//! Place: a part of the table that `lib` goes through.
//!
//! What is the same everywhere: keys of 8 bytes are 9 here, since the bench's keys are a number and a byte that tells absent
//! ones; the threads of a figure are those of this machine.

use drumlin_bench::engine::Result;

use crate::claim::{At, Check, Claim};
use crate::figure::{Axis, Figure, KEYS, RATE, SIZE, Scale, THREADS, Tell};
use crate::lab::{Engine, FOREVER, Lab, PEER_SERIES as PEERS, keys_per_second, latency};
use crate::parts;
use crate::point::Point;
use crate::sweep::{self, burst, memory, rate};

/// 300 GB of them.
const RECORDS: f64 = 300e9 / 264.0;

/// These, or the part of them that is asked for.
fn words(lab: &Lab<'_>, workloads: &str) -> String {
    let records = lab.setting.records(RECORDS);
    format!("--num {records} --key-size 9 --value-size 256 {FOREVER} --benchmarks {workloads}")
}

/// All engines by threads, with a memory component of 128 MiB.
fn by_threads(lab: &Lab<'_>, tell: &mut Tell<'_>, workloads: &str, told: sweep::Told) -> Result<()> {
    let words = |threads: u64| format!("{} {} --threads {threads}", words(lab, workloads), memory(128));
    sweep::threads(lab, tell, words, told)
}

/// Median latencies of eight readers and a writer, on a million records, or on all if they are fewer.
fn latencies(lab: &Lab<'_>, tell: &mut Tell<'_>, engine: Engine) -> Result<()> {
    let (readers, records) = (lab.setting.cores.min(8), lab.setting.records(RECORDS).min(1_000_000));
    for &size in &lab.setting.sizes {
        let words = format!(
            "--num {records} --key-size 9 --value-size 256 {FOREVER} --threads {readers} {} --benchmarks readwhilewriting",
            memory(size)
        );
        let line = lab.run(engine, &words)?;
        for kind in ["put", "get"] {
            let y = latency(&line, kind, "p50_ns")?;
            let series = format!("{kind} of {}", engine.series());
            tell(Point { series, x: size as f64, y, raw: line.clone() })?;
        }
    }
    Ok(())
}

fn scan_shares(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for share in [2u32, 5, 10, 20, 50] {
        let workload = if share == 5 { "mixscan".into() } else { format!("mixscan{share}") };
        let threads = lab.setting.threads_many();
        let words = format!("{} {} --threads {threads}", words(lab, &workload), memory(128));
        let line = lab.run(Engine::TwoTier, &words)?;
        let (operations, keys) = (rate(&line)?, keys_per_second(&line)?);
        tell(Point::new("operations", share.into(), operations))?;
        tell(Point { series: "keys".into(), x: share.into(), y: keys, raw: line })?;
    }
    Ok(())
}

/// By memory component, many threads.
fn by_size(lab: &Lab<'_>, tell: &mut Tell<'_>, workload: &str, told: sweep::Told) -> Result<()> {
    let threads = lab.setting.threads_many();
    let words = |_: u64| format!("{} --threads {threads}", words(lab, workload));
    sweep::sizes(lab, tell, &lab.engines(), words, told)
}

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "flodb",
        number: "3",
        shows: "a sorted memory component: median latencies by its size",
        differs: "our sorted memory, not RocksDB's; latencies as they are, not as parts of those at 128 MiB",
        x: SIZE,
        y: Axis { says: "median latency, ns", scale: Scale::Log10 },
        measure: |lab, tell| latencies(lab, tell, Engine::Sorted),
        claims: &[Claim {
            says: "with a skiplist, more memory makes writes slower (§2.3)",
            check: Check::Grows { series: "put of sorted", times: 1.1 },
        }],
    },
    Figure {
        paper: "flodb",
        number: "4",
        shows: "a hash as memory component: median latencies by its size",
        differs: "our hash, whose entries are sorted when the memory is frozen, not RocksDB's",
        x: SIZE,
        y: Axis { says: "median latency, ns", scale: Scale::Log10 },
        measure: |lab, tell| latencies(lab, tell, Engine::TwoTier),
        claims: &[Claim {
            says: "with a hash that is sorted before it goes to disk, more memory makes writes slower, too (§2.3)",
            check: Check::Grows { series: "put of two-tier", times: 1.1 },
        }],
    },
    Figure {
        paper: "flodb",
        number: "5",
        shows: "a concurrent hash alone, half gets and half puts",
        differs: "values of 8 bytes; a put makes a new node, as in the store",
        x: THREADS,
        y: RATE,
        measure: parts::hash,
        claims: &[Claim {
            says: "a modern hash scales: over 100 million operations a second with 40 threads (§4.1)",
            check: Check::Scales { series: "hash, 1.05 M", threads: 2, times: 1.5 },
        }],
    },
    Figure {
        paper: "flodb",
        number: "7",
        shows: "a concurrent skiplist alone, half gets and half puts, and the hash beside it",
        differs: "our skiplist, which has a guide; values of 8 bytes",
        x: THREADS,
        y: RATE,
        measure: parts::list,
        claims: &[Claim {
            says: "a skiplist is one to two orders of magnitude slower than a hash of the same size (§4.3)",
            check: Check::Times {
                at: At::Somewhere,
                series: "hash, 1.05 M",
                times: 10.0,
                of: &["skiplist, 1.05 M"],
            },
        }],
    },
    Figure {
        paper: "flodb",
        number: "8",
        shows: "inserts one by one and five at once, by how near the five are",
        differs: "all processors' threads; the paper does not say how many it had",
        x: Axis { says: "neighbourhood, keys", scale: Scale::Log10 },
        y: KEYS,
        measure: parts::neighbourhoods,
        claims: &[
            Claim {
                says: "the nearer the keys, the more a multi-insert gains (§4.3)",
                check: Check::GainsToTheLeft { series: "5 at once", of: "one by one" },
            },
            Claim {
                says: "where keys are near, a multi-insert is twice as fast (figure 8)",
                check: Check::Times { at: At::First, series: "5 at once", times: 2.0, of: &["one by one"] },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "9",
        shows: "writes only: half puts, half deletes",
        differs: "the rate until nothing is owed to the disk",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "mixwrites", rate),
        claims: &[
            Claim {
                says: "FloDB is 1.9 to 3.5 times the next best (§5.2)",
                check: Check::Times { at: At::Everywhere, series: "two-tier", times: 1.9, of: PEERS },
            },
            Claim {
                says: "one thread saturates what the disk takes: more threads gain nothing, and lose nothing (§5.2)",
                check: Check::Keeps { series: "two-tier", times: 0.9 },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "10",
        shows: "gets only, of a store that was filled in order",
        differs: "the data fit into the system's cache",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "fillseq,readrandom", rate),
        claims: &[
            Claim {
                says: "FloDB reads up to two orders of magnitude faster than LevelDB (§5.2)",
                check: Check::Times { at: At::Somewhere, series: "two-tier", times: 10.0, of: &["LevelDB"] },
            },
            Claim {
                says: "gets scale with the threads (§5.2)",
                check: Check::Scales { series: "two-tier", threads: 2, times: 1.5 },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "11",
        shows: "half gets, a quarter puts, a quarter deletes",
        differs: "",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "mixbalanced", rate),
        claims: &[Claim {
            says: "FloDB is the fastest (§5.2)",
            check: Check::Times { at: At::Everywhere, series: "two-tier", times: 1.0, of: PEERS },
        }],
    },
    Figure {
        paper: "flodb",
        number: "12",
        shows: "many readers and one writer: gets",
        differs: "the writer is beside the threads that are counted, and so are its puts",
        x: THREADS,
        y: RATE,
        measure: |lab, tell| by_threads(lab, tell, "readwhilewriting", rate),
        claims: &[Claim {
            says: "FloDB is the fastest (§5.2)",
            check: Check::Times { at: At::Everywhere, series: "two-tier", times: 1.0, of: PEERS },
        }],
    },
    Figure {
        paper: "flodb",
        number: "13",
        shows: "95 % puts, 5 % scans of 100 keys",
        differs: "",
        x: THREADS,
        y: KEYS,
        measure: |lab, tell| by_threads(lab, tell, "mixscan", keys_per_second),
        claims: &[Claim {
            says: "FloDB is the fastest (§5.2)",
            check: Check::Times { at: At::Everywhere, series: "two-tier", times: 1.0, of: PEERS },
        }],
    },
    Figure {
        paper: "flodb",
        number: "14",
        shows: "scans of 100 keys beside puts, by their share",
        differs: "",
        x: Axis { says: "scans, %", scale: Scale::Log2 },
        y: Axis { says: "operations and keys a second", scale: Scale::Log10 },
        measure: scan_shares,
        claims: &[
            Claim {
                says: "the more scans, the fewer operations (§5.2)",
                check: Check::Falls { series: "operations", times: 0.9 },
            },
            Claim {
                says: "the more scans, the more keys (§5.2)",
                check: Check::Grows { series: "keys", times: 1.1 },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "15",
        shows: "a burst of puts, by memory component",
        differs: "puts of a fixed set of keys; the log is on",
        x: SIZE,
        y: RATE,
        measure: |lab, tell| by_size(lab, tell, "fillrandom", burst),
        claims: &[
            Claim {
                says: "FloDB is 2.3 times the next best at every size (§5.3)",
                check: Check::Times { at: At::Everywhere, series: "two-tier", times: 2.3, of: PEERS },
            },
            Claim {
                says: "FloDB loses nothing as memory grows (§5.3)",
                check: Check::Keeps { series: "two-tier", times: 1.0 },
            },
            Claim {
                says: "one level only: the larger, the slower (§5.3)",
                check: Check::Falls { series: "sorted", times: 0.95 },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "16",
        shows: "half gets, half puts, 98 % on 2 % of the keys, by memory component",
        differs: "",
        x: SIZE,
        y: RATE,
        measure: |lab, tell| by_size(lab, tell, "mixskewed", rate),
        claims: &[
            Claim {
                says: "FloDB is 8 times the next best in the mean (§5.4)",
                check: Check::Times { at: At::Mean, series: "two-tier", times: 8.0, of: PEERS },
            },
            Claim {
                says: "and 17 times at best (§5.4)",
                check: Check::Times { at: At::Somewhere, series: "two-tier", times: 17.0, of: PEERS },
            },
        ],
    },
    Figure {
        paper: "flodb",
        number: "17",
        shows: "what the hash and the multi-insert each bring: puts, nothing persisted",
        differs: "the rate until all is sorted; each generation has a hash of its own, which goes with it",
        x: SIZE,
        y: RATE,
        measure: parts::components,
        claims: &[
            Claim {
                says: "without the hash it slows as memory grows (§5.5)",
                check: Check::Falls { series: "no hash", times: 1.0 },
            },
            Claim {
                says: "with it, it grows (§5.5)",
                check: Check::Grows { series: "hash, multi-inserts", times: 1.0 },
            },
            Claim {
                says: "one thread: 3.1 times as fast as without a hash (§5.5)",
                check: Check::Times {
                    at: At::Somewhere,
                    series: "hash, multi-inserts, 1 thread",
                    times: 3.1,
                    of: &["no hash, 1 thread"],
                },
            },
            Claim {
                says: "one thread: twice as fast as with simple inserts (§5.5)",
                check: Check::Times {
                    at: At::Somewhere,
                    series: "hash, multi-inserts, 1 thread",
                    times: 2.0,
                    of: &["hash, simple inserts, 1 thread"],
                },
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_the_names_that_claims_use() {
        assert_eq!([Engine::Sorted, Engine::TwoTier].map(Engine::series), ["sorted", "two-tier"]);
        assert_eq!(parts::named("hash", 1 << 20), "hash, 1.05 M");
        assert!(crate::lab::PEERS.iter().all(|peer| PEERS.contains(&peer.series())));
    }
}
