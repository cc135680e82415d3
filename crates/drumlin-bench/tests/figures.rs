//! Every workload runs on a small store, and its figures are those of what was done.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use clap::Parser;
use drumlin_bench::args::Bench;
use drumlin_bench::report::Line;
use drumlin_bench::session::{Contender, run};
use drumlin_bench::store::Store;
use drumlin_bench::workload::WORKLOADS;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: Bench,
}

fn lines(arguments: &[&str]) -> Vec<Line> {
    let directory = tempfile::tempdir().expect("a directory");
    let Program { bench } =
        Program::try_parse_from(["bench"].iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}"));
    let settings = bench.settings();
    let contender = Contender {
        name: "drumlin",
        directory: directory.path().join("drumlin"),
        open: Box::new(move |directory| Ok(Box::new(Store::open(directory, &settings)?))),
    };
    let mut lines = Vec::new();
    run(&bench, &[contender], false, &|_, _, _, _| (), &mut |line| {
        lines.push(line);
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
    lines
}

#[test]
fn every_workload_does_what_it_was_asked_for() {
    for workload in WORKLOADS {
        for threads in ["1", "3"] {
            let lines = lines(&[
                "--benchmarks",
                workload.name,
                "--num",
                "5000",
                "--memory",
                "16",
                "--threads",
                threads,
            ]);
            let [line] = &lines[..] else { panic!("{}: {} lines", workload.name, lines.len()) };
            assert_eq!(line.operations, 5000, "{}", workload.name);
            let counted: u64 = line.latencies.iter().map(|of| of.percentiles.count).sum();
            let is_walk = workload.name == "readseq" || workload.name == "readreverse";
            assert!(counted == if is_walk { threads.parse().expect("a number") } else { 5000 }, "{line:?}");
            assert!(line.rate > 0.0 && line.drained_s >= line.burst_s, "{line:?}");
            for of in &line.latencies {
                let p = &of.percentiles;
                assert!(p.p50_ns <= p.p99_ns && p.p99_ns <= p.max_ns && p.max_ns > 0, "{line:?}");
            }
        }
    }
}

#[test]
fn gets_find_what_there_is_and_only_that() {
    let names =
        "filluniquerandom,readrandom,readmissing,seekrandom,readseq,readreverse,multireadrandom,putifabsent";
    let lines = lines(&["--benchmarks", names, "--num", "4000", "--batch-size", "4"]);
    let found = |name: &str| lines.iter().find(|line| line.workload == name).expect("it ran").found;
    assert_eq!(found("readrandom"), 4000);
    assert_eq!(found("readmissing"), 0);
    assert_eq!(found("readseq"), 4000);
    assert_eq!(found("readreverse"), 4000);
    assert_eq!(found("multireadrandom"), 16_000);
    let scanned = found("seekrandom");
    assert!((39_500..=40_000).contains(&scanned), "{scanned}");
    let twice = found("putifabsent");
    assert!((1200..1800).contains(&twice), "of 4000 random keys of 4000 a third or so comes again: {twice}");
}

#[test]
fn amplification_is_what_the_files_grew_by() {
    let lines =
        lines(&["--benchmarks", "fillrandom", "--num", "300000", "--memory", "16", "--compression", "none"]);
    let line = &lines[0];
    let (all, tables) =
        (line.write_amplification.expect("counted"), line.table_write_amplification.expect("counted"));
    // The log takes the record and a header; 35 MB through 2 MiB memtables are merged more than once.
    assert!((1.0..1.6).contains(&(all - tables)), "{line:?}");
    assert!((1.0..20.0).contains(&tables), "{line:?}");
    assert!(line.space_amplification.is_some_and(|times| times > 0.5), "{line:?}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_when_an_operation_was_due() {
    let lines = lines(&["--benchmarks", "fillrandom", "--num", "2000", "--rate", "4000", "--threads", "2"]);
    let line = &lines[0];
    assert!((0.4..3.0).contains(&line.burst_s), "2000 operations at 4000 a second: {line:?}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let refused = |arguments: &[&str]| {
        let Program { bench } = Program::try_parse_from(["bench"].iter().chain(arguments)).expect("parses");
        bench.check().and_then(|()| bench.workloads().map(|_| ())).expect_err("it is refused")
    };
    assert!(refused(&["--benchmarks", "fillnothing"]).contains("there are fillseq, fillrandom"));
    assert!(refused(&["--key-size", "8"]).contains("9 or more"));
    assert!(refused(&["--rate", "0"]).contains("more than 0"));
    assert!(refused(&["--threads", "0"]).contains("1 or more"));
}
