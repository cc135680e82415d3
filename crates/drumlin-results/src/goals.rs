//! Goals: what must hold of a measurement, beside what was found.
//!
//! Place: named in the table of `measurements`; judged for `page`.
//!
//! 1. A goal speaks of medians, and is judged in every run of its measurement that it speaks of.
//! 2. What cannot be judged, since there is no figure, is said to be so; it does not hold.

use drumlin_bench::report::{grouped, time};
use drumlin_bench::workload::{Kind, Workload};

use drumlin_bench::limits::Limit;

use crate::comparisons::Comparison;
use crate::figures::{Row, Span, allowed};

/// The engine whose goals these are.
pub const OURS: &str = "Drumlin";

/// What must hold.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// So many times the rate of another engine.
    Times {
        /// At this workload.
        workload: &'static str,
        /// The other engine.
        engine: &'static str,
        /// At least.
        least: f64,
    },
    /// The rate of one run, as a multiple of that of another.
    RunOfRun {
        /// At this workload.
        workload: &'static str,
        /// Places of the two in the measurement's runs.
        runs: (u64, u64),
        /// Of the bursts, whatever is owed behind them.
        is_burst: bool,
        /// At least.
        least: f64,
    },
    /// Operations a second of each thread.
    RatePerThread {
        /// At this workload.
        workload: &'static str,
        /// At least.
        least: f64,
    },
    /// The latency that 999 of a thousand keep, as a part of another engine's.
    P999 {
        /// Of this kind of operation.
        kind: &'static str,
        /// The other engine.
        engine: &'static str,
        /// At most.
        most: f64,
    },
    /// The worst latency, in milliseconds, of every round.
    Worst {
        /// Of this kind of operation.
        kind: &'static str,
        /// At most.
        most_ms: f64,
    },
    /// So many tables are opened in so many seconds, the first get and scan included.
    Opens {
        /// At least so many.
        tables: u64,
        /// At most.
        most_s: f64,
    },
    /// Seconds for each GiB of log, the first get and scan included.
    Recovers {
        /// At most.
        most_s_per_gib: f64,
    },
    /// Bytes of tables written for each byte of the user's.
    Written {
        /// At this workload.
        workload: &'static str,
        /// At most.
        most: f64,
    },
    /// Bytes of tables for each byte of the user's that is there, in one run.
    Space {
        /// At this workload.
        workload: &'static str,
        /// Which run.
        run: u64,
        /// At most.
        most: f64,
    },
    /// Reads of files in a second, as a part of those that the device gives in the same run.
    OfDevice {
        /// At this workload.
        workload: &'static str,
        /// Which run.
        run: u64,
        /// At least, in percent.
        least: f64,
    },
    /// The latency that 99 of a hundred keep, as a multiple of that of the device's own reads in the same run.
    P99OfDevice {
        /// Of this kind of operation.
        kind: &'static str,
        /// At this workload.
        workload: &'static str,
        /// Which run.
        run: u64,
        /// At most.
        most: f64,
    },
    /// The rate as a part of one of the machine's limits.
    OfLimit {
        /// At this workload.
        workload: &'static str,
        /// The limit.
        limit: &'static str,
        /// By so many threads, the limit's and the workload's.
        threads: u64,
        /// At least, in percent.
        least: f64,
    },
    /// How much faster more threads are than one, as a part of how much faster a limit of the machine is with as many. Runs
    /// of more threads than the machine has cores are left out.
    Scales {
        /// At this workload.
        workload: &'static str,
        /// The limit.
        limit: &'static str,
        /// At least, in percent.
        least: f64,
    },
    /// Reads of files for an operation, in one run.
    Reads {
        /// At this workload.
        workload: &'static str,
        /// Which run.
        run: u64,
        /// At most.
        most: f64,
    },
    /// What was found, as near as this to what was foretold.
    Foretold {
        /// Which figure: of `comparisons`.
        what: &'static str,
        /// In percent of what was foretold.
        within: f64,
    },
    /// Resident memory beyond the budget.
    Memory {
        /// At most.
        beyond_mib: u64,
    },
}

/// What a measurement found.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// Its figures.
    pub rows: &'a [Row],
    /// What was foretold, beside what was.
    pub comparisons: &'a [Comparison],
    /// The machine's limits: those that it measured itself, if any, or those that are kept.
    pub limits: &'a [Limit],
}

/// What was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What must hold.
    pub says: String,
    /// What was found, in each run.
    pub found: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Goal {
    /// Judges what was found in a measurement of these runs.
    pub fn judge(&self, found: &Found<'_>, runs: &[&str]) -> Verdict {
        let Found { rows, comparisons, limits } = *found;
        let each = |rows: &[&Row], judge: &dyn Fn(&Row) -> Option<(String, bool)>| each(rows, runs, judge);
        let ours = |workload: &str| {
            rows.iter().filter(|row| row.engine == OURS && row.workload == workload).collect::<Vec<_>>()
        };
        let in_run = |workload: &str, run: u64| {
            ours(workload).into_iter().filter(|row| row.run == run).collect::<Vec<_>>()
        };
        let (says, found): (String, Vec<(String, bool)>) = match *self {
            Goal::Times { workload, engine, least } => {
                let times = |row: &Row| {
                    let other = other(rows, row, engine)?;
                    let times = row.rate.median / other.rate.median;
                    Some((format!("{times:.2}"), times >= least))
                };
                (format!("{workload}: at least {least:.1} times {engine}"), each(&ours(workload), &times))
            }
            Goal::RunOfRun { workload, runs: (run, of), is_burst, least } => {
                let rate = |run: u64| {
                    let row = *ours(workload).iter().find(|row| row.run == run)?;
                    Some(if is_burst { row.burst_rate? } else { row.rate }.median)
                };
                let name = |run: u64| apart(runs.get(run as usize).unwrap_or(&""), &[]);
                let found =
                    rate(run).zip(rate(of)).map(|(run, of)| (format!("{:.2}", run / of), run / of >= least));
                let what = if is_burst { "the burst" } else { "the rate" };
                (
                    format!(
                        "{workload}: {what} of {} is at least {least:.1} times that of {}",
                        name(run),
                        name(of)
                    ),
                    found.into_iter().collect(),
                )
            }
            Goal::RatePerThread { workload, least } => {
                let rate = |row: &Row| {
                    let rate = row.rate.median / row.threads as f64;
                    Some((grouped(rate), rate >= least))
                };
                (
                    format!("{workload}: at least {} a second and thread", grouped(least)),
                    each(&ours(workload), &rate),
                )
            }
            Goal::P999 { kind, engine, most } => {
                let part = |row: &Row| {
                    let other = percentile(other(rows, row, engine)?, kind, P999)?;
                    let own = percentile(row, kind, P999)?;
                    let times = own.median / other.median;
                    Some((format!("{} against {}", time(own.median), time(other.median)), times <= most))
                };
                let own = rows.iter().filter(|row| row.engine == OURS).collect::<Vec<_>>();
                (format!("p99.9 of a {kind}: at most {most:.2} of {engine}'s"), each(&own, &part))
            }
            Goal::Worst { kind, most_ms } => {
                let worst = |row: &Row| {
                    let worst = percentile(row, kind, WORST)?.most;
                    Some((time(worst), worst <= most_ms * 1e6))
                };
                let own = rows.iter().filter(|row| row.engine == OURS).collect::<Vec<_>>();
                (format!("no {kind} above {most_ms:.0} ms"), each(&own, &worst))
            }
            Goal::Opens { tables, most_s } => {
                let opened = |row: &Row| {
                    let (there, took) = (row.tables?.median, 1.0 / row.rate.median);
                    let found = format!("{} tables in {took:.2} s", grouped(there));
                    Some((found, there >= tables as f64 && took <= most_s))
                };
                (
                    format!(
                        "{} tables, to the first get and scan: at most {most_s:.0} s",
                        grouped(tables as f64)
                    ),
                    each(&ours("open"), &opened),
                )
            }
            Goal::Recovers { most_s_per_gib } => {
                let recovered = |row: &Row| {
                    let gib = row.log_bytes?.median / f64::from(1 << 30);
                    let took = 1.0 / row.rate.median / gib;
                    Some((format!("{took:.2} s a GiB, of {gib:.2} GiB"), took <= most_s_per_gib))
                };
                (
                    format!("recovery: at most {most_s_per_gib:.0} s a GiB of log"),
                    each(&ours("recover"), &recovered),
                )
            }
            Goal::Written { workload, most } => {
                let written = |row: &Row| {
                    let times = row.table_write_amplification?.median;
                    Some((format!("{times:.2}"), times <= most))
                };
                (
                    format!("{workload}: tables written at most {most:.1} times, without the log"),
                    each(&ours(workload), &written),
                )
            }
            Goal::Space { workload, run, most } => {
                let space = |row: &Row| {
                    let times = row.table_space_amplification?.most;
                    Some((format!("{times:.2}"), times <= most))
                };
                (
                    format!("{workload}: tables of at most {most:.2} bytes for each of the user's"),
                    each(&in_run(workload, run), &space),
                )
            }
            Goal::OfDevice { workload, run, least } => {
                let part = |row: &Row| {
                    let reads = row.rate.median * row.reads_per_operation?.median;
                    let raw = device(rows, row)?.rate.median;
                    let part = reads / raw * 100.0;
                    let found = format!("{} of {} reads, {part:.0} %", grouped(reads), grouped(raw));
                    Some((found, part >= least))
                };
                (
                    format!("{workload}: at least {least:.0} % of the device's reads a second"),
                    each(&in_run(workload, run), &part),
                )
            }
            Goal::P99OfDevice { kind, workload, run, most } => {
                let times = |row: &Row| {
                    let own = percentile(row, kind, P99)?.median;
                    let raw = percentile(device(rows, row)?, Kind::Block.name(), P99)?.median;
                    let found = format!("{} against {}", time(own), time(raw));
                    Some((found, own <= most * raw))
                };
                (
                    format!("p99 of a {kind}: at most {most:.1} times that of the device's reads"),
                    each(&in_run(workload, run), &times),
                )
            }
            Goal::OfLimit { workload, limit, threads, least } => {
                let part = |row: &Row| {
                    let part = row.rate.median / allowed(limits, limit, threads)? * 100.0;
                    Some((format!("{part:.0} %"), part >= least))
                };
                let by_threads: Vec<&Row> =
                    ours(workload).into_iter().filter(|row| row.threads == threads).collect();
                let by = if threads == 1 { "one thread".into() } else { format!("{threads} threads") };
                (
                    format!("{workload} by {by}: at least {least:.0} % of the limit {limit}"),
                    each(&by_threads, &part),
                )
            }
            Goal::Scales { workload, limit, least } => {
                let alone = ours(workload).into_iter().find(|row| row.threads == 1);
                let scales = |row: &Row| {
                    let own = row.rate.median / alone?.rate.median;
                    let most = allowed(limits, limit, row.threads)? / allowed(limits, limit, 1)?;
                    let part = own / most * 100.0;
                    Some((format!("{own:.2} times against {most:.2}, {part:.0} %"), part >= least))
                };
                let more: Vec<&Row> = ours(workload).into_iter().filter(|row| row.threads > 1).collect();
                (
                    format!("{workload}: scales by at least {least:.0} % of what the limit {limit} does"),
                    each(&more, &scales),
                )
            }
            Goal::Reads { workload, run, most } => {
                let reads = |row: &Row| {
                    let times = row.reads_per_operation?.median;
                    Some((format!("{times:.3}"), times <= most))
                };
                (
                    format!("{workload}: at most {most:.2} reads of files for each"),
                    each(&in_run(workload, run), &reads),
                )
            }
            Goal::Foretold { what, within } => {
                let found = comparisons.iter().filter(|one| one.what == what).map(|one| {
                    let differs = one.differs() * 100.0;
                    (of_run(one.run, runs, format!("{differs:+.0} %")), differs.abs() <= within)
                });
                (format!("{what}: within {within:.0} % of what was foretold"), found.collect())
            }
            Goal::Memory { beyond_mib } => {
                let beyond = |row: &Row| Some(row.resident_peak?.most - row.memory_bytes);
                // Of each run the workload that took the most.
                let own = || rows.iter().filter(|row| row.engine == OURS);
                let worst: Vec<&Row> = own()
                    .filter(|row| own().all(|other| other.run != row.run || beyond(other) <= beyond(row)))
                    .collect();
                let judge = |row: &Row| {
                    let mib = beyond(row)? / f64::from(1 << 20);
                    let budget = row.memory_bytes / f64::from(1 << 20);
                    let found = format!("{} with {budget:.0} MiB: {mib:+.0} MiB", row.workload);
                    Some((found, mib <= beyond_mib as f64))
                };
                (format!("resident: at most the budget and {beyond_mib} MiB"), each(&worst, &judge))
            }
        };
        let holds = !found.is_empty() && found.iter().all(|(_, holds)| *holds);
        let texts: Vec<String> = found.into_iter().map(|(text, _)| text).collect();
        Verdict { says, found: texts.join("; "), holds }
    }
}

/// Places in [`crate::figures::PERCENTILES`].
const P99: usize = 2;
const P999: usize = 3;
const WORST: usize = 5;

/// The row of another engine that did the same.
fn other<'a>(rows: &'a [Row], row: &Row, engine: &str) -> Option<&'a Row> {
    rows.iter()
        .find(|other| (other.run, &other.workload, other.engine.as_str()) == (row.run, &row.workload, engine))
}

/// The row of the device's own reads, in the same run.
fn device<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let of_device = |other: &&Row| Workload::named(&other.workload).is_some_and(Workload::is_of_device);
    rows.iter().filter(|other| other.run == row.run && other.engine == OURS).find(of_device)
}

fn percentile(row: &Row, kind: &str, place: usize) -> Option<Span> {
    row.latencies
        .iter()
        .find(|latencies| latencies.kind == kind)
        .map(|latencies| latencies.percentiles[place])
}

/// What was found in each run; where there are several, with what tells them apart.
fn each(rows: &[&Row], runs: &[&str], judge: &dyn Fn(&Row) -> Option<(String, bool)>) -> Vec<(String, bool)> {
    let one = |row: &&Row| {
        let (text, holds) = judge(row).unwrap_or_else(|| ("no figure".into(), false));
        (of_run(row.run, runs, text), holds)
    };
    rows.iter().map(one).collect()
}

/// The arguments of a run in words, without those in `without` and their values: what tells it from others. Which workloads it has,
/// and how much of them is done, does not.
pub fn apart(run: &str, without: &[&str]) -> String {
    const SIZES: [&str; 4] = ["--benchmarks", "--reads", "--writes", "--duration"];
    let (mut words, mut rest) = (run.split_whitespace(), Vec::new());
    while let Some(word) = words.next() {
        match SIZES.contains(&word) || without.contains(&word) {
            true => drop(words.next()),
            false => rest.push(word),
        }
    }
    rest.join(" ").replace("--", "")
}

/// What was found in a run, behind what tells it from others.
fn of_run(run: u64, runs: &[&str], text: String) -> String {
    match runs.get(run as usize).filter(|_| runs.len() > 1).map(|run| apart(run, &[])) {
        Some(words) if !words.is_empty() => format!("{words}: {text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparisons;
    use crate::figures::{limits, rows};
    use crate::kept::Kept;
    use serde_json::{Value, json};

    fn judged(goal: Goal, lines: Vec<Value>) -> Verdict {
        let kept = Kept { head: json!({}), at: 0, lines };
        let (rows, comparisons, limits) = (rows(&kept), comparisons::of(&kept), limits(&kept));
        let found = Found { rows: &rows, comparisons: &comparisons, limits: &limits };
        goal.judge(&found, &["--threads 1", "--threads 2 --benchmarks fillrandom"])
    }

    fn line(run: u64, engine: &str, threads: u64, rate: f64, worst: f64) -> Value {
        json!({"run": run, "engine": engine, "workload": "fillrandom", "threads": threads, "rate": rate,
               "burst_rate": rate * rate,
               "memory_bytes": 1 << 20, "resident_peak": (2 << 20), "log_bytes": 1u64 << 30, "tables": 7,
               "latencies": [{"kind": "put", "p50_ns": 1, "p90_ns": 1, "p99_ns": 1, "p999_ns": worst / 2.0,
                              "p9999_ns": 1, "max_ns": worst}]})
    }

    #[test]
    fn goals_hold_from_their_bound_on_and_in_every_run() {
        let lines = || {
            vec![
                line(0, OURS, 1, 400.0, 1e6),
                line(0, "RocksDB", 1, 100.0, 3e6),
                line(1, OURS, 2, 800.0, 1e6),
                line(1, "RocksDB", 2, 250.0, 4e6),
            ]
        };
        let times = |least| judged(Goal::Times { workload: "fillrandom", engine: "RocksDB", least }, lines());
        assert!(times(3.2).holds);
        assert_eq!(times(3.5).found, "threads 1: 4.00; threads 2: 3.20");
        assert!(!times(3.5).holds, "it must hold with two threads, too");
        let run_of = |runs, is_burst, least| {
            judged(Goal::RunOfRun { workload: "fillrandom", runs, is_burst, least }, lines())
        };
        assert!(run_of((1, 0), false, 2.0).holds && !run_of((1, 0), false, 2.1).holds);
        assert!(run_of((1, 0), true, 4.0).holds && !run_of((1, 0), true, 4.1).holds);
        assert!(
            run_of((0, 1), false, 0.5).says.contains("of threads 1 is at least 0.5 times that of threads 2")
        );
        assert!(!run_of((2, 0), false, 0.0).holds, "there is no such run");
        let part = |most| judged(Goal::P999 { kind: "put", engine: "RocksDB", most }, lines()).holds;
        assert!(part(1.0 / 3.0) && !part(0.3));
        let worst = |most_ms| judged(Goal::Worst { kind: "put", most_ms }, lines()).holds;
        assert!(worst(1.0) && !worst(0.9));
        let rate = |least| judged(Goal::RatePerThread { workload: "fillrandom", least }, lines()).holds;
        assert!(rate(400.0) && !rate(401.0));
        let memory = |beyond_mib| judged(Goal::Memory { beyond_mib }, lines()).holds;
        assert!(memory(1) && !memory(0));
    }

    #[test]
    fn tables_are_judged_by_what_was_written_and_by_what_they_take() {
        let mut filled = line(1, OURS, 1, 2.0, 1.0);
        filled["table_write_amplification"] = 4.2.into();
        filled["table_space_amplification"] = 1.5.into();
        filled["reads_per_operation"] = 1.02.into();
        let holds = |goal| judged(goal, vec![filled.clone()]).holds;
        let written = |most| holds(Goal::Written { workload: "fillrandom", most });
        assert!(written(4.2) && !written(4.0));
        let space = |run, most| holds(Goal::Space { workload: "fillrandom", run, most });
        assert!(space(1, 1.5) && !space(1, 1.4) && !space(0, 1.5));
        let reads = |run, most| holds(Goal::Reads { workload: "fillrandom", run, most });
        assert!(reads(1, 1.02) && !reads(1, 1.01) && !reads(0, 1.02));
    }

    #[test]
    fn a_device_is_what_gets_of_the_same_run_are_judged_by() {
        let gets = |run: u64, rate: f64, p99: f64, kind: &str, workload: &str| {
            let mut line = line(run, OURS, 1, rate, 1.0);
            line["workload"] = workload.into();
            line["reads_per_operation"] = 1.2.into();
            line["latencies"][0]["kind"] = kind.into();
            line["latencies"][0]["p99_ns"] = p99.into();
            line
        };
        let lines = vec![
            gets(0, 80.0, 300.0, "get", "readrandom"),
            gets(0, 100.0, 100.0, "block", "readdevice"),
            gets(1, 80.0, 300.0, "get", "readrandom"),
            gets(1, 1000.0, 50.0, "block", "readdevice"),
        ];
        let of = |run, least| Goal::OfDevice { workload: "readrandom", run, least };
        assert_eq!(judged(of(0, 96.0), lines.clone()).found, "threads 1: 96 of 100 reads, 96 %");
        assert!(judged(of(0, 95.9), lines.clone()).holds && !judged(of(0, 96.1), lines.clone()).holds);
        assert!(!judged(of(1, 95.0), lines.clone()).holds, "the device of its own run");
        let p99 = |run, most| Goal::P99OfDevice { kind: "get", workload: "readrandom", run, most };
        assert!(judged(p99(0, 3.0), lines.clone()).holds && !judged(p99(0, 2.9), lines.clone()).holds);
        assert_eq!(judged(p99(1, 3.0), lines.clone()).found, "threads 2: 300 ns against 50 ns");
        assert!(!judged(of(0, 0.0), lines[..1].to_vec()).holds, "without the device there is nothing to say");
    }

    #[test]
    fn limits_are_what_rates_and_their_scaling_are_judged_by() {
        let limit = |threads: u64, figure: f64| json!({"name": "log-copy", "what": "", "threads": threads, "figure": figure, "unit": "per_second", "failure": null});
        let lines =
            vec![line(0, OURS, 1, 60.0, 1.0), line(1, OURS, 2, 90.0, 1.0), limit(1, 100.0), limit(2, 200.0)];
        let of = |threads, least| {
            let goal = Goal::OfLimit { workload: "fillrandom", limit: "log-copy", threads, least };
            judged(goal, lines.clone())
        };
        assert!(of(1, 60.0).holds && !of(1, 61.0).holds && of(2, 45.0).holds && !of(2, 46.0).holds);
        assert_eq!(of(2, 46.0).found, "threads 2: 45 %");
        assert!(!of(4, 0.0).holds, "nobody measured it");
        let scales =
            |least| judged(Goal::Scales { workload: "fillrandom", limit: "log-copy", least }, lines.clone());
        assert_eq!(scales(75.0).found, "threads 2: 1.50 times against 2.00, 75 %");
        assert!(scales(75.0).holds && !scales(75.1).holds);
        let alone = vec![line(0, OURS, 1, 60.0, 1.0), limit(1, 100.0)];
        let goal = Goal::Scales { workload: "fillrandom", limit: "log-copy", least: 0.0 };
        assert!(!judged(goal, alone).holds, "one number of threads says nothing of scaling");
    }

    #[test]
    fn a_run_is_named_by_what_tells_it_from_others() {
        let named = |run: &str| of_run(0, &[run, ""], "1".into());
        assert_eq!(named("--threads 16 --writes 100000"), "threads 16: 1");
        assert_eq!(
            named("--memory 24 --direct-reads --reads 7 --bloom-bits 0"),
            "memory 24 direct-reads bloom-bits 0: 1"
        );
        assert_eq!(named("--benchmarks overwrite"), "1", "its goal says of which workload it speaks");
        assert_eq!(of_run(0, &["--threads 2"], "1".into()), "1", "there are no others");
    }

    #[test]
    fn what_was_foretold_is_judged_in_every_run() {
        let chosen = |run: u64, rate: f64| json!({"run": run, "choice": {"measured": {"predicted_rate": 100.0, "rate": rate}}});
        let lines = vec![chosen(0, 105.0), chosen(1, 75.0)];
        let within = |within| judged(Goal::Foretold { what: comparisons::RATE, within }, lines.clone());
        assert_eq!(within(25.0).found, "threads 1: +5 %; threads 2: -25 %");
        assert!(within(25.0).holds && !within(24.0).holds);
        assert!(!judged(Goal::Foretold { what: comparisons::SHAPE, within: 99.0 }, lines).holds);
    }

    #[test]
    fn opening_is_judged_by_what_was_there() {
        let mut opened = line(0, OURS, 1, 2.0, 1.0);
        opened["workload"] = "open".into();
        let opens = |tables, most_s| judged(Goal::Opens { tables, most_s }, vec![opened.clone()]).holds;
        assert!(opens(7, 0.5) && !opens(8, 0.5) && !opens(7, 0.4));
        let mut recovered = opened.clone();
        recovered["workload"] = "recover".into();
        let recovers =
            |most_s_per_gib| judged(Goal::Recovers { most_s_per_gib }, vec![recovered.clone()]).holds;
        assert!(recovers(0.5) && !recovers(0.4));
    }

    #[test]
    fn without_figures_nothing_holds() {
        let times = Goal::Times { workload: "fillrandom", engine: "RocksDB", least: 0.0 };
        assert!(!judged(times, vec![]).holds);
        let alone = judged(times, vec![line(0, OURS, 1, 1.0, 1.0)]);
        assert_eq!((alone.found.as_str(), alone.holds), ("threads 1: no figure", false));
    }
}
