//! sLSM's figures (Szanto, 2018), by the sections of its chapter 3.
//!
//! Place: a part of the table that `lib` goes through.
//!
//! What is the same everywhere: the store is `Memory::Runs` over `Layout::Tiered`, with the paper's μ (512 bytes), D (20) and ε
//! (0.001, which is 15.5 bits a key here); runs are of MiB, since a run is no smaller than a segment of the log, which the paper has
//! not; keys are of 9 bytes and values of 8, where the paper has integers.

use drumlin_bench::engine::Result;

use crate::claim::{At, Check, Claim};
use crate::figure::{Axis, Figure, RATE, Scale, THREADS, Tell};
use crate::lab::{FOREVER, Lab, field, latency};
use crate::point::Point;
use crate::sweep::rate;

/// Records of the paper's data.
const RECORDS: f64 = 100e6;
/// The paper's ε.
const BLOOM: &str = "--bloom-bits 15.5";
/// Its D and m, with that.
const TIERS: &str = "--layout tiered --runs 20 --percent 100 --bloom-bits 15.5";
/// Runs in memory where they are not across: memory of 512 MiB is enough for all that are measured.
const RUNS: u64 = 8;

/// Words for this many records, and the rest of the paper's settings.
fn words(records: u64) -> String {
    format!(
        "--num {records} --key-size 9 --value-size 8 --block-size 512 --table-size 4194304 --memory 512 --segment 1 {FOREVER}"
    )
}

/// Runs in memory, of so many MiB each.
fn runs(count: u64, mib: u64) -> String {
    format!("--component runs --memory-runs {count} --memtable {}", count * mib)
}

/// Puts of random keys, then gets, at one place of a sweep.
fn puts_and_gets(lab: &Lab<'_>, tell: &mut Tell<'_>, x: f64, words: &str, of: &str) -> Result<()> {
    for line in lab.run_all(&format!("{words} --benchmarks fillrandom,readrandom"))? {
        let kind = if line["workload"] == "readrandom" { "gets" } else { "puts" };
        let y = rate(&line)?;
        tell(Point { series: format!("{kind}{of}"), x, y, raw: line })?;
    }
    Ok(())
}

fn by_runs(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for count in [2, 4, 8, 16, 32, 64] {
        let words = format!("{} {TIERS} {}", words(lab.setting.records(RECORDS)), runs(count, 1));
        puts_and_gets(lab, tell, count as f64, &words, "")?;
    }
    Ok(())
}

fn by_runs_and_size(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for count in [2, 8, 32] {
        for mib in [1, 4] {
            let words = format!("{} {TIERS} {}", words(lab.setting.records(RECORDS)), runs(count, mib));
            puts_and_gets(lab, tell, count as f64, &words, &format!(", runs of {mib} MiB"))?;
        }
    }
    Ok(())
}

fn by_tiers(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for count in [2, 4, 8, 16, 31] {
        for percent in [50, 75, 100] {
            let words = format!(
                "{} {} --layout tiered --runs {count} --percent {percent} {BLOOM}",
                words(lab.setting.records(RECORDS)),
                runs(RUNS, 1)
            );
            puts_and_gets(lab, tell, f64::from(count), &words, &format!(", m {percent} %"))?;
        }
    }
    Ok(())
}

/// Bits a key, with which filters err as in the paper's cases: one in 10, 100, 1000, and so on.
const BITS: [f64; 5] = [4.8, 9.9, 15.5, 21.9, 29.5];

fn by_filters(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    // A million of each, on as many runs as there can be.
    let records = lab.setting.records(RECORDS).min(1_000_000);
    let tiers = "--layout tiered --runs 31 --percent 100";
    for bits in BITS {
        for (with, told) in [(bits, ""), (0.0, ", no filters")] {
            let words = format!("{} {tiers} --bloom-bits {with} {}", words(records), runs(2, 1));
            puts_and_gets(lab, tell, bits, &words, told)?;
        }
    }
    Ok(())
}

fn by_length(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for length in [10, 100, 1000, 10_000] {
        let words = format!("{} {TIERS} {}", words(lab.setting.records(RECORDS)), runs(RUNS, 1));
        let lines = lab.run_all(&format!("{words} --seek-nexts {length} --benchmarks seekrandom"))?;
        for line in lines {
            let y = field(&line, "found")? / field(&line, "burst_s")?;
            tell(Point { series: "records".into(), x: f64::from(length), y, raw: line })?;
        }
    }
    Ok(())
}

fn by_records(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for part in [0.01, 0.1, 1.0] {
        let records = lab.setting.records(RECORDS * part);
        let words = format!("{} {TIERS} {}", words(records), runs(RUNS, 1));
        // Every record, however long it takes.
        for line in lab.run_all(&format!("{words} --benchmarks filluniquerandom,readrandom"))? {
            let kind = if line["workload"] == "readrandom" { "gets" } else { "puts" };
            let y = rate(&line)?;
            tell(Point { series: kind.into(), x: RECORDS * part, y, raw: line })?;
        }
    }
    Ok(())
}

fn by_share(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for (share, workload) in [
        (10, "mixget10"),
        (30, "mixget30"),
        (50, "mixget50"),
        (70, "mixget70"),
        (90, "readrandomwriterandom"),
    ] {
        for count in [4, 64] {
            let words = format!("{} {TIERS} {}", words(lab.setting.records(RECORDS)), runs(count, 1));
            let lines = lab.run_all(&format!("{words} --benchmarks {workload}"))?;
            for line in lines {
                let y = rate(&line)?;
                tell(Point { series: format!("{count} runs"), x: f64::from(share), y, raw: line })?;
            }
        }
    }
    Ok(())
}

/// Keys that are put or asked for, as parts of all.
const SPANS: [f64; 5] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0];

fn span(records: u64, part: f64) -> u64 {
    ((records as f64 * part) as u64).max(1)
}

fn by_put_keys(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    let records = lab.setting.records(RECORDS);
    for part in SPANS {
        let span = span(records, part);
        let words = format!("{} {TIERS} {} --span {span}", words(records), runs(RUNS, 1));
        for line in lab.run_all(&format!("{words} --benchmarks fillrandom"))? {
            let y = rate(&line)?;
            tell(Point { series: "puts".into(), x: span as f64, y, raw: line })?;
        }
    }
    Ok(())
}

/// Gets of the first keys of a full store.
fn gets(lab: &Lab<'_>, threads: u64, part: f64) -> Result<(u64, f64, serde_json::Value)> {
    let records = lab.setting.records(RECORDS);
    let span = span(records, part);
    let words = format!("{} {TIERS} {} --span {span} --threads {threads}", words(records), runs(RUNS, 1));
    let lines = lab.run_all(&format!("{words} --benchmarks readrandom"))?;
    let line = lines.into_iter().next_back().ok_or("there was nothing to measure")?;
    Ok((span, rate(&line)?, line))
}

fn by_got_keys(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for part in SPANS {
        let (span, y, raw) = gets(lab, 1, part)?;
        tell(Point { series: "gets".into(), x: span as f64, y, raw })?;
    }
    Ok(())
}

fn by_threads(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for &threads in &lab.setting.threads {
        for (part, series) in [(1e-3, "gets of a thousandth of the keys"), (1.0, "gets of all keys")] {
            let (_, y, raw) = gets(lab, threads, part)?;
            tell(Point { series: series.into(), x: threads as f64, y, raw })?;
        }
    }
    Ok(())
}

fn by_merge_threads(lab: &Lab<'_>, tell: &mut Tell<'_>) -> Result<()> {
    for background in [1u32, 2] {
        let words = format!("{} {TIERS} {}", words(lab.setting.records(RECORDS)), runs(RUNS, 1));
        let lines = lab.run_all(&format!("{words} --background {background} --benchmarks fillrandom"))?;
        for line in lines {
            let longest = latency(&line, "put", "max_ns")?;
            let busy = field(&line, "processor_us")? * field(&line, "rate")? / 1e4;
            let x = f64::from(background);
            tell(Point { series: "longest put, µs".into(), x, y: longest / 1e3, raw: line.clone() })?;
            tell(Point { series: "processors in use, %".into(), x, y: busy, raw: line })?;
        }
    }
    Ok(())
}

/// Runs in memory, doubled.
const MEMORY_RUNS: Axis = Axis { says: "runs in memory", scale: Scale::Log2 };
/// Keys that are taken.
const TAKEN: Axis = Axis { says: "keys that are taken", scale: Scale::Log10 };

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure {
        paper: "slsm",
        number: "3.1",
        shows: "puts and gets, by the number of runs in memory",
        differs: "runs of 1 MiB, not of 800 elements",
        x: MEMORY_RUNS,
        y: RATE,
        measure: by_runs,
        claims: &[
            Claim {
                says: "more runs in memory make insertions faster (§3.1)",
                check: Check::Grows { series: "puts", times: 1.1 },
            },
            Claim { says: "and lookups slower (§3.1)", check: Check::Falls { series: "gets", times: 0.9 } },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.2",
        shows: "puts and gets, by the number of runs in memory and their size",
        differs: "runs of 1 and 4 MiB",
        x: MEMORY_RUNS,
        y: RATE,
        measure: by_runs_and_size,
        claims: &[
            Claim {
                says: "larger runs make insertions faster (§3.2)",
                check: Check::Times {
                    at: At::Mean,
                    series: "puts, runs of 4 MiB",
                    times: 1.0,
                    of: &["puts, runs of 1 MiB"],
                },
            },
            Claim {
                says: "and lookups slower (§3.2)",
                check: Check::Times {
                    at: At::Mean,
                    series: "gets, runs of 1 MiB",
                    times: 1.0,
                    of: &["gets, runs of 4 MiB"],
                },
            },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.3",
        shows: "puts and gets, by the runs of a tier and the part of them that is merged",
        differs: "",
        x: Axis { says: "runs of a tier", scale: Scale::Log2 },
        y: RATE,
        measure: by_tiers,
        claims: &[Claim {
            says: "where less is merged, lookups slow down as tiers have more runs (§3.3)",
            check: Check::Falls { series: "gets, m 50 %", times: 1.0 },
        }],
    },
    Figure {
        paper: "slsm",
        number: "3.4",
        shows: "puts and gets with filters and without",
        differs: "the filters of tables: those of memtables are always there; each pair has a run of its own",
        x: Axis { says: "filter bits a key", scale: Scale::Linear },
        y: RATE,
        measure: by_filters,
        claims: &[
            Claim {
                says: "filters make lookups 94 times as fast (§3.4: from 3,634 to over 340,000 a second)",
                check: Check::Times {
                    at: At::Somewhere,
                    series: "gets",
                    times: 94.0,
                    of: &["gets, no filters"],
                },
            },
            Claim {
                says: "insertions are no slower for them (§3.4)",
                check: Check::Times { at: At::Mean, series: "puts", times: 0.95, of: &["puts, no filters"] },
            },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.5",
        shows: "scans, by their length",
        differs: "records a second, which do not fall where time is linear in the length",
        x: Axis { says: "records of a scan", scale: Scale::Log10 },
        y: Axis { says: "records a second", scale: Scale::Log10 },
        measure: by_length,
        claims: &[Claim {
            says: "a range query takes time linear in its length (§3.5)",
            check: Check::Keeps { series: "records", times: 1.0 },
        }],
    },
    Figure {
        paper: "slsm",
        number: "3.6",
        shows: "puts and gets, by the size of the data",
        differs: "every record is put once",
        x: Axis { says: "records in the paper's scale", scale: Scale::Log10 },
        y: RATE,
        measure: by_records,
        claims: &[
            Claim {
                says: "insertions slow down no more than logarithmically (§3.6)",
                check: Check::Keeps { series: "puts", times: 0.5 },
            },
            Claim { says: "so do lookups (§3.6)", check: Check::Keeps { series: "gets", times: 0.5 } },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.7",
        shows: "gets beside puts, by their share, with few runs in memory and with many",
        differs: "4 and 64 runs of 1 MiB, not 20 and 200 of 800 elements; operations a second, not the time of a number of them",
        x: Axis { says: "gets, %", scale: Scale::Linear },
        y: RATE,
        measure: by_share,
        claims: &[
            Claim {
                says: "where most are insertions, many runs are an order of magnitude faster (§3.7)",
                check: Check::Times { at: At::First, series: "64 runs", times: 10.0, of: &["4 runs"] },
            },
            Claim {
                says: "with many runs it slows down steeply as lookups become more (§3.7)",
                check: Check::Falls { series: "64 runs", times: 0.5 },
            },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.8.1",
        shows: "puts, by how many keys they take",
        differs: "keys that are all alike, not around zero by a normal distribution",
        x: TAKEN,
        y: RATE,
        measure: by_put_keys,
        claims: &[Claim {
            says: "the more keys, the slower: insertions drop precipitously (§3.8.1)",
            check: Check::Falls { series: "puts", times: 0.5 },
        }],
    },
    Figure {
        paper: "slsm",
        number: "3.8.2",
        shows: "gets of a full store, by how many keys they take",
        differs: "keys that are all alike, side by side",
        x: TAKEN,
        y: RATE,
        measure: by_got_keys,
        claims: &[Claim {
            says: "the fewer keys lookups take, the faster they are (§3.8.2)",
            check: Check::Falls { series: "gets", times: 0.9 },
        }],
    },
    Figure {
        paper: "slsm",
        number: "3.9.1",
        shows: "gets of a full store, by threads, of few keys and of all",
        differs: "the data fit into the system's cache",
        x: THREADS,
        y: RATE,
        measure: by_threads,
        claims: &[
            Claim {
                says: "lookups scale with the threads (§3.9.1)",
                check: Check::Scales { series: "gets of all keys", threads: 2, times: 1.5 },
            },
            Claim {
                says: "clustered ones do so, too (§3.9.1)",
                check: Check::Scales { series: "gets of a thousandth of the keys", threads: 2, times: 1.5 },
            },
        ],
    },
    Figure {
        paper: "slsm",
        number: "3.9.2",
        shows: "the longest put and the processors in use, by background threads",
        differs: "with one thread flushes wait for merges, not puts for both, as in the paper's store without a thread for them",
        x: Axis { says: "background threads", scale: Scale::Linear },
        y: Axis { says: "µs; %", scale: Scale::Log10 },
        measure: by_merge_threads,
        claims: &[
            Claim {
                says: "with a thread for merges the longest wait of an insertion is shorter (§3.9.2)",
                check: Check::Falls { series: "longest put, µs", times: 1.0 },
            },
            Claim {
                says: "and the processors are used more (§3.9.2)",
                check: Check::Grows { series: "processors in use, %", times: 1.0 },
            },
        ],
    },
];
