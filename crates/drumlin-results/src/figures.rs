//! Figures: raw lines as medians, with the least and the most beside them.
//!
//! Place: made of what is kept; judged by `goals`, printed by `page`, drawn by `picture`.
//!
//! 1. A row is one engine at one workload in one run; its figures are over the rounds.
//! 2. Lines of a grid are no rows: they are shown apart.

use drumlin_bench::limits::{Limit, Unit, beside};
use drumlin_bench::medians::median;
use drumlin_bench::workload::Workload;
use serde_json::Value;

use crate::kept::Kept;

/// A median, and between what it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Span {
    /// Of figures, of which there is one at least.
    pub fn of(mut figures: Vec<f64>) -> Option<Span> {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        Some(Span { least, median: median(&figures), most })
    }
}

/// Percentiles that lines have, with their names.
pub const PERCENTILES: [(&str, &str); 6] = [
    ("p50_ns", "p50"),
    ("p90_ns", "p90"),
    ("p99_ns", "p99"),
    ("p999_ns", "p99.9"),
    ("p9999_ns", "p99.99"),
    ("max_ns", "max"),
];

/// Latencies of one kind of operation, in nanoseconds, over the rounds.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// The kind.
    pub kind: String,
    /// As [`PERCENTILES`] lists them.
    pub percentiles: [Span; PERCENTILES.len()],
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which run of the measurement.
    pub run: u64,
    /// The workload.
    pub workload: String,
    /// The engine.
    pub engine: String,
    /// Its own settings.
    pub settings: String,
    /// Threads.
    pub threads: u64,
    /// Rounds.
    pub rounds: usize,
    /// Operations a second.
    pub rate: Span,
    /// The same without what was owed.
    pub burst_rate: Option<Span>,
    /// Microseconds of processor an operation.
    pub processor_us: Option<Span>,
    /// Bytes written for each of the user's.
    pub write_amplification: Option<Span>,
    /// Bytes of tables written for each of the user's.
    pub table_write_amplification: Option<Span>,
    /// Bytes of tables for each of the user's that is there.
    pub table_space_amplification: Option<Span>,
    /// Reads of files for an operation.
    pub reads_per_operation: Option<Span>,
    /// Reads of files a second, round by round; none if they were not counted.
    pub reads_by_round: Vec<f64>,
    /// Resident bytes, at most.
    pub resident_peak: Option<Span>,
    /// Keys of the store.
    pub keys: f64,
    /// The budget of memory.
    pub memory_bytes: f64,
    /// Sorted files.
    pub tables: Option<Span>,
    /// Bytes of memory that hold filters.
    pub filter_bytes: Option<Span>,
    /// Bytes of log.
    pub log_bytes: Option<Span>,
    /// How late a thread beside an open loop woke that only slept, in nanoseconds.
    pub wake_latest: Option<Span>,
    /// Latencies by kind.
    pub latencies: Vec<Latencies>,
    /// The name of the machine's limits, and operations a second at most.
    pub limit: Option<(String, f64)>,
}

/// The rows of a measurement, in the order in which they came first.
pub fn rows(kept: &Kept) -> Vec<Row> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_string();
    let is_row = |line: &&Value| line["rate"].is_number() && line["grid"] != true && line["part"].is_null();
    let lines: Vec<&Value> = kept.lines.iter().filter(is_row).collect();
    let key =
        |line: &Value| (line["run"].as_u64().unwrap_or(0), text(line, "workload"), text(line, "engine"));
    let mut keys: Vec<(u64, String, String)> = Vec::new();
    for line in &lines {
        if !keys.contains(&key(line)) {
            keys.push(key(line));
        }
    }
    keys.into_iter()
        .filter_map(|of| {
            let same: Vec<&Value> = lines.iter().copied().filter(|line| key(line) == of).collect();
            let last = *same.last()?;
            let span = |name: &str| Span::of(same.iter().filter_map(|line| line[name].as_f64()).collect());
            let (run, workload, engine) = of;
            Some(Row {
                run,
                workload,
                engine,
                settings: text(last, "settings"),
                threads: last["threads"].as_u64().unwrap_or(1),
                rounds: same.len(),
                rate: span("rate")?,
                burst_rate: span("burst_rate"),
                processor_us: span("processor_us"),
                write_amplification: span("write_amplification"),
                table_write_amplification: span("table_write_amplification"),
                table_space_amplification: span("table_space_amplification"),
                reads_per_operation: span("reads_per_operation"),
                reads_by_round: same.iter().filter_map(|line| reads_of(line)).collect(),
                resident_peak: span("resident_peak"),
                keys: last["keys"].as_f64().unwrap_or(0.0),
                memory_bytes: last["memory_bytes"].as_f64().unwrap_or(0.0),
                tables: span("tables"),
                filter_bytes: span("filter_bytes"),
                log_bytes: span("log_bytes"),
                wake_latest: span("wake_latest_ns"),
                latencies: latencies(&same),
                limit: None,
            })
        })
        .collect()
}

/// Reads of files a second.
fn reads_of(line: &Value) -> Option<f64> {
    Some(line["rate"].as_f64()? * line["reads_per_operation"].as_f64()?)
}

fn latencies(lines: &[&Value]) -> Vec<Latencies> {
    let of = |line: &Value| line["latencies"].as_array().cloned().unwrap_or_default();
    let kinds = of(lines[0]);
    let kinds = kinds.iter().filter_map(|kind| kind["kind"].as_str());
    kinds
        .filter_map(|kind| {
            let all: Vec<Value> =
                lines.iter().flat_map(|line| of(line)).filter(|one| one["kind"] == *kind).collect();
            let span = |name: &str| Span::of(all.iter().filter_map(|one| one[name].as_f64()).collect());
            let mut percentiles = [Span { least: 0.0, median: 0.0, most: 0.0 }; PERCENTILES.len()];
            for (place, (name, _)) in percentiles.iter_mut().zip(PERCENTILES) {
                *place = span(name)?;
            }
            Some(Latencies { kind: kind.into(), percentiles })
        })
        .collect()
}

/// The machine's limits, as measured: each once a number of threads, the median where there were rounds.
pub fn limits(kept: &Kept) -> Vec<Limit> {
    let told = |line: &Value| serde_json::from_value(line.clone()).ok();
    let all: Vec<Limit> = kept.lines.iter().filter_map(told).collect();
    let same = |a: &Limit, b: &Limit| (&a.name, a.threads) == (&b.name, b.threads);
    let mut limits: Vec<Limit> = Vec::new();
    for limit in &all {
        if limits.iter().any(|other| same(other, limit)) {
            continue;
        }
        let of_rounds = all.iter().filter(|other| same(other, limit)).filter_map(|other| other.figure);
        let figure = Span::of(of_rounds.collect()).map(|span| span.median);
        limits.push(Limit { figure, ..limit.clone() });
    }
    limits
}

/// What a limit allows in a second, of all its threads together.
pub fn allowed(limits: &[Limit], name: &str, threads: u64) -> Option<f64> {
    let limit = limits.iter().find(|limit| limit.name == name && limit.threads as u64 == threads)?;
    match limit.unit {
        Unit::Nanoseconds => Some(threads as f64 * 1e9 / limit.figure?),
        Unit::PerSecond | Unit::BytesPerSecond => limit.figure,
        Unit::BitsPerKey => None,
    }
}

/// Sets the limits beside the rows of a measurement.
pub fn set_limits(rows: &mut [Row], kept: &Kept, limits: &[Limit]) {
    for row in rows {
        let line = kept
            .lines
            .iter()
            .find(|line| line["workload"] == row.workload.as_str() && line["rate"].is_number());
        let (Some(line), Some(workload)) = (line, Workload::named(&row.workload)) else { continue };
        if line["batch"].as_u64().is_some_and(|batch| batch > 1) {
            continue;
        }
        let record = [&line["key_bytes"], &line["value_bytes"]].map(|bytes| bytes.as_f64().unwrap_or(0.0));
        let durability = line["durability"].as_str().unwrap_or_default();
        row.limit = beside::at_most(workload, durability, row.threads, record.iter().sum(), limits);
    }
}

/// A setting that was tried before.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// In which run, from 0.
    pub run: u64,
    /// The engine.
    pub engine: String,
    /// The workload.
    pub workload: String,
    /// Keys of the store that it was tried on: the best few are tried once more on a larger one.
    pub keys: u64,
    /// The engine's settings.
    pub settings: String,
    /// Operations a second.
    pub rate: f64,
    /// It takes part.
    pub is_best: bool,
}

/// All that were tried.
pub fn grid(kept: &Kept) -> Vec<Tried> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_string();
    let tried = |line: &Value| Tried {
        run: line["run"].as_u64().unwrap_or(0),
        engine: text(line, "engine"),
        workload: text(line, "workload"),
        keys: line["keys"].as_u64().unwrap_or(0),
        settings: text(line, "settings"),
        rate: line["rate"].as_f64().unwrap_or(0.0),
        is_best: false,
    };
    let mut all: Vec<Tried> = kept.lines.iter().filter(|line| line["grid"] == true).map(tried).collect();
    for at in 0..all.len() {
        let one = &all[at];
        let same = all.iter().filter(|other| {
            (other.run, &other.engine, &other.workload) == (one.run, &one.engine, &one.workload)
        });
        // Of those on the largest store.
        let best = same.max_by(|a, b| a.keys.cmp(&b.keys).then(a.rate.total_cmp(&b.rate)));
        all[at].is_best = best == Some(one);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_medians_over_rounds_and_leave_the_grid_out() {
        let line = |run: u64, engine: &str, rate: f64, grid: bool| {
            json!({"run": run, "engine": engine, "keys": if rate < 850.0 { 2000 } else { 1000 }, "workload": "fillrandom", "threads": 2, "rate": rate, "grid": grid,
                   "key_bytes": 16, "value_bytes": 100, "durability": "Process", "batch": 1,
                   "settings": format!("{rate}"),
                   "latencies": [{"kind": "put", "p50_ns": rate, "p90_ns": 2, "p99_ns": 3, "p999_ns": 4,
                                  "p9999_ns": 5, "max_ns": 6}]})
        };
        let lines = vec![
            line(0, "B", 900.0, true),
            line(0, "B", 800.0, true),
            json!({"best": "900", "engine": "b", "workload": "fillrandom", "run": 0}),
            line(0, "A", 30.0, false),
            line(0, "B", 5.0, false),
            line(0, "A", 10.0, false),
            line(0, "A", 20.0, false),
            line(1, "A", 1.0, false),
        ];
        let kept = Kept { head: json!({}), at: 0, lines };
        let mut rows = rows(&kept);
        let names: Vec<_> = rows.iter().map(|row| (row.run, row.engine.as_str(), row.rounds)).collect();
        assert_eq!(names, [(0, "A", 3), (0, "B", 1), (1, "A", 1)]);
        assert_eq!(rows[0].rate, Span { least: 10.0, median: 20.0, most: 30.0 });
        assert_eq!(rows[0].latencies[0].percentiles[0].median, 20.0);
        assert!(rows[0].processor_us.is_none());
        let grid = grid(&kept);
        assert_eq!(
            grid.iter().map(|tried| tried.is_best).collect::<Vec<_>>(),
            [false, true],
            "the larger store tells"
        );
        let limit = json!({"name": "log-copy", "what": "", "threads": 2, "figure": 200.0, "unit": "per_second", "failure": null});
        let measured = Kept { lines: vec![limit], ..kept.clone() };
        set_limits(&mut rows, &kept, &limits(&measured));
        assert_eq!(rows[0].limit, Some(("log-copy".into(), 200.0)));
    }

    #[test]
    fn limits_are_medians_over_rounds_by_number_of_threads() {
        let limit = |threads: u64, figure: f64| json!({"run": 0, "name": "chase", "what": "", "threads": threads, "figure": figure, "unit": "nanoseconds", "failure": null});
        let rate = json!({"name": "sync", "what": "", "threads": 1, "figure": 50.0, "unit": "per_second", "failure": null});
        let lines = vec![limit(1, 90.0), limit(2, 120.0), limit(1, 100.0), rate, limit(1, 300.0)];
        let limits = limits(&Kept { head: json!({}), at: 0, lines });
        let short: Vec<_> = limits.iter().map(|limit| (limit.threads, limit.figure)).collect();
        assert_eq!(short, [(1, Some(100.0)), (2, Some(120.0)), (1, Some(50.0))]);
        assert_eq!(allowed(&limits, "chase", 1).map(f64::round), Some(1e7));
        assert_eq!(allowed(&limits, "chase", 2).map(f64::round), Some(16_666_667.0));
        assert_eq!((allowed(&limits, "sync", 1), allowed(&limits, "sync", 2)), (Some(50.0), None));
    }
}
