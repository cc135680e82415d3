//! Goals: what must hold of a measurement, beside what was found.
//!
//! Place: named in the table of `measurements`; judged for `page`.
//!
//! 1. A goal speaks of medians, and is judged in every run of its measurement that it speaks of.
//! 2. What cannot be judged, since there is no figure, is said to be so; it does not hold.
//!
//! Tests: `goals_tests.rs`.

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
    /// Memory that holds filters, in one run.
    Filters {
        /// At the end of this workload.
        workload: &'static str,
        /// Which run.
        run: u64,
        /// Bits of filter that a key has.
        bits: f64,
        /// At most, in percent of the filters of all keys.
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
                    let slept = row.wake_latest.map(|late| time(late.most));
                    let slept = slept.map(|late| format!(", where a thread that only slept was {late} late"));
                    Some((time(worst) + &slept.unwrap_or_default(), worst <= most_ms * 1e6))
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
                    let (reads, raw) = (&row.reads_by_round, &device(rows, row)?.reads_by_round);
                    // A round's two are measured in turn, and what the device gives differs more from one minute to the next.
                    let parts = reads.iter().zip(raw).map(|(reads, raw)| reads / raw * 100.0);
                    let part = Span::of(parts.collect())?.median;
                    let [reads, raw] =
                        [reads, raw].map(|of| Span::of(of.clone()).map(|of| grouped(of.median)));
                    Some((format!("{} of {} reads, {part:.1} % in turns", reads?, raw?), part >= least))
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
            Goal::Filters { workload, run, bits, most } => {
                let filters = |row: &Row| {
                    let part = row.filter_bytes?.median / (row.keys * bits / 8.0) * 100.0;
                    Some((format!("{part:.1} %"), part <= most))
                };
                (
                    format!("{workload}: at most {most:.0} % of the filters in memory"),
                    each(&in_run(workload, run), &filters),
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
#[path = "goals_tests.rs"]
mod tests;
