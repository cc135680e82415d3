//! Tests of `goals`: each holds from its bound on, in every run that it speaks of, and not without figures.

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
    assert!(run_of((0, 1), false, 0.5).says.contains("of threads 1 is at least 0.5 times that of threads 2"));
    assert!(!run_of((2, 0), false, 0.0).holds, "there is no such run");
    let part = |most| judged(Goal::P999 { kind: "put", engine: "RocksDB", most }, lines()).holds;
    assert!(part(1.0 / 3.0) && !part(0.3));
    let worst = |most_ms| judged(Goal::Worst { kind: "put", most_ms }, lines()).holds;
    assert!(worst(1.0) && !worst(0.9));
    let mut slept = line(0, OURS, 1, 400.0, 1e6);
    slept["wake_latest_ns"] = 700_000.into();
    let verdict = judged(Goal::Worst { kind: "put", most_ms: 0.9 }, vec![slept]);
    assert!(!verdict.holds && verdict.found.contains("only slept was 700.0 µs late"), "{}", verdict.found);
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
    filled["keys"] = 1_000_000.into();
    filled["filter_bytes"] = 200_000.into();
    let holds = |goal| judged(goal, vec![filled.clone()]).holds;
    let written = |most| holds(Goal::Written { workload: "fillrandom", most });
    assert!(written(4.2) && !written(4.0));
    let space = |run, most| holds(Goal::Space { workload: "fillrandom", run, most });
    assert!(space(1, 1.5) && !space(1, 1.4) && !space(0, 1.5));
    let reads = |run, most| holds(Goal::Reads { workload: "fillrandom", run, most });
    assert!(reads(1, 1.02) && !reads(1, 1.01) && !reads(0, 1.02));
    let filters = |run, most| holds(Goal::Filters { workload: "fillrandom", run, bits: 16.0, most });
    assert!(filters(1, 10.0) && !filters(1, 9.9) && !filters(0, 10.0));
}

#[test]
fn a_device_is_what_gets_of_the_same_run_are_judged_by() {
    let gets = |run: u64, rate: f64, p99: f64, kind: &str, workload: &str| {
        let mut line = line(run, OURS, 1, rate, 1.0);
        line["workload"] = workload.into();
        line["reads_per_operation"] = (if workload == "readdevice" { 1.0 } else { 1.2 }).into();
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
    assert_eq!(judged(of(0, 96.0), lines.clone()).found, "threads 1: 96 of 100 reads, 96.0 % in turns");
    assert!(judged(of(0, 95.9), lines.clone()).holds && !judged(of(0, 96.1), lines.clone()).holds);
    assert!(!judged(of(1, 95.0), lines.clone()).holds, "the device of its own run");
    let rounds = [(45.0, 50.0), (180.0, 200.0), (95.0, 100.0)].into_iter().flat_map(|(reads, raw)| {
        [gets(0, reads / 1.2, 300.0, "get", "readrandom"), gets(0, raw, 100.0, "block", "readdevice")]
    });
    let found = judged(of(0, 0.0), rounds.collect()).found;
    assert_eq!(found, "threads 1: 95 of 100 reads, 90.0 % in turns", "round by round");
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
    let recovers = |most_s_per_gib| judged(Goal::Recovers { most_s_per_gib }, vec![recovered.clone()]).holds;
    assert!(recovers(0.5) && !recovers(0.4));
}

#[test]
fn without_figures_nothing_holds() {
    let times = Goal::Times { workload: "fillrandom", engine: "RocksDB", least: 0.0 };
    assert!(!judged(times, vec![]).holds);
    let alone = judged(times, vec![line(0, OURS, 1, 1.0, 1.0)]);
    assert_eq!((alone.found.as_str(), alone.holds), ("threads 1: no figure", false));
}
