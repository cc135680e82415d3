//! Every workload runs on a small store, and its figures are those of what was done.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod runs;

use clap::Parser;
use drumlin_bench::report::Line;
use drumlin_bench::workload::WORKLOADS;
use runs::{Program, lines};

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
            let asked = workload.operations(5000);
            assert_eq!(line.operations, asked, "{}", workload.name);
            let counted: u64 = line.latencies.iter().map(|of| of.percentiles.count).sum();
            let right = match workload.name {
                "readseq" | "readreverse" => threads.parse().expect("a number"),
                // An open, a get, a scan.
                "open" | "recover" => 3,
                _ => asked + line.beside.unwrap_or(0),
            };
            assert_eq!(counted, right, "{line:?}");
            assert_eq!(line.debt_left_bytes.unwrap_or(0), 0, "{line:?}");
            assert_eq!(line.beside.is_some_and(|puts| puts > 0), workload.beside_writer, "{line:?}");
            assert!(line.rate > 0.0 && line.drained_s >= line.burst_s, "{line:?}");
            for of in &line.latencies {
                let p = &of.percentiles;
                assert!(p.p50_ns <= p.p99_ns && p.p99_ns <= p.max_ns && p.max_ns > 0, "{line:?}");
            }
        }
    }
}

#[test]
fn what_was_read_before_is_not_read_from_files_again() {
    let reads = |warm: &[&str]| {
        let fixed = ["--benchmarks", "readrandom", "--num", "100000", "--memory", "128", "--memtable", "4"];
        lines(&[&fixed, warm].concat())[0].reads_per_operation.expect("it is counted")
    };
    let (cold, warm) = (reads(&[]), reads(&["--warm"]));
    assert!(cold > 0.01 && warm < cold / 10.0, "{cold} reads a get, {warm} after all was read once");
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
    assert_eq!(found("multireadrandom"), 4000);
    let scanned = found("seekrandom");
    assert!((39_500..=40_000).contains(&scanned), "{scanned}");
    let twice = found("putifabsent");
    assert!((1200..1800).contains(&twice), "of 4000 random keys of 4000 a third or so comes again: {twice}");
}

#[test]
fn the_device_is_read_as_the_store_reads_it_and_as_often_as_was_asked() {
    for (more, threads) in [(&["--layout", "trie", "--direct-reads"][..], 2), (&[], 1)] {
        let threads = threads.to_string();
        let fixed = ["--benchmarks", "readrandom,readdevice", "--num", "100000", "--memory", "16", "--reads"];
        let lines = lines(&[&fixed[..], &["3000", "--threads", &threads], more].concat());
        let [gets, device] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((gets.found, device.found, device.operations), (3000, 0, 3000));
        assert_eq!((device.reads_per_operation, device.read_bytes_per_operation), (Some(1.0), Some(4096.0)));
        assert_eq!((device.latencies.len(), device.latencies[0].kind), (1, "block"));
        assert!(gets.reads_per_operation.is_some_and(|reads| reads > 0.1), "{gets:?}");
        assert_eq!(device.tables, gets.tables, "nothing is flushed where there are tables");
    }
    let together = ["--benchmarks", "multireadrandom,readdevice", "--batch-size", "8", "--num", "100000"];
    let more = ["--memory", "16", "--reads", "3000", "--layout", "trie", "--direct-reads"];
    let lines_together = lines(&[&together[..], &more].concat());
    let [gets, device] = &lines_together[..] else { panic!("{lines_together:?}") };
    assert_eq!((gets.found, device.found, device.operations, device.batch), (3000, 0, 3000, 8));
    assert_eq!((device.reads_per_operation, device.read_bytes_per_operation), (Some(1.0), Some(4096.0)));
    assert!(gets.reads_per_operation.is_some_and(|reads| (0.1..1.2).contains(&reads)), "{gets:?}");
    let lines = lines(&["--benchmarks", "readdevice,readrandom", "--num", "2000"]);
    assert!(
        lines[0].tables > Some(0) && lines[1].found == 2000,
        "what was in memory is in tables: {lines:?}"
    );
}

#[test]
fn a_multi_get_counts_for_its_keys_and_a_put_of_a_mix_for_one() {
    let lines =
        lines(&["--benchmarks", "multireadrandom,ycsba,fillseq", "--num", "4000", "--batch-size", "4"]);
    let [gets, mix, puts] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((gets.operations, gets.latencies[0].percentiles.count, gets.batch), (4000, 1000, 4));
    assert_eq!((mix.operations, mix.batch), (4000, 1));
    let put = mix.latencies.iter().find(|of| of.kind == "put").expect("half of them");
    assert_eq!(mix.user_bytes, put.percentiles.count * 116);
    assert_eq!(
        (puts.operations, puts.latencies[0].percentiles.count, puts.user_bytes),
        (4000, 1000, 464_000)
    );
}

#[test]
fn scans_are_as_long_as_the_workload_says() {
    let lines =
        lines(&["--benchmarks", "seekrandom,ycsbe", "--num", "20000", "--reads", "2000", "--writes", "2000"]);
    let each = |line: &Line| {
        let scans = line.latencies.iter().find(|of| of.kind == "scan").expect("some").percentiles.count;
        line.found as f64 / scans as f64
    };
    assert!((9.9..=10.0).contains(&each(&lines[0])), "{:?}", lines[0]);
    assert!((48.0..53.0).contains(&each(&lines[1])), "1 to 100 records, all alike: {:?}", lines[1]);
}

#[test]
fn a_store_that_was_killed_is_recovered_from_its_log() {
    let lines = lines(&["--benchmarks", "open,recover", "--num", "20000", "--memory", "64"]);
    for line in &lines {
        assert_eq!((line.found, line.tables), (1, Some(0)), "all of it was in memory: {line:?}");
        assert!(line.log_bytes.is_some_and(|bytes| bytes > 20_000 * 116), "{line:?}");
    }
    // The copy has gone, and the store is still there.
    let lines = self::lines(&["--benchmarks", "recover,readrandom", "--num", "5000"]);
    assert_eq!(lines[1].found, 5000);
}

#[test]
fn amplification_is_what_the_files_grew_by() {
    let lines =
        lines(&["--benchmarks", "fillrandom", "--num", "300000", "--memory", "16", "--compression", "none"]);
    let line = &lines[0];
    let (all, tables) =
        (line.write_amplification.expect("counted"), line.table_write_amplification.expect("counted"));
    // The log takes the record and a header, and pads while memory is short; 35 MB through 2 MiB memtables are merged more than once.
    assert!((1.0..2.5).contains(&(all - tables)), "{line:?}");
    assert!((1.0..20.0).contains(&tables), "{line:?}");
    // Of the keys a third or so was put twice; the log, and tables that wait for their merge, come on top.
    assert!(line.space_amplification.is_some_and(|times| (0.9..8.0).contains(&times)), "{line:?}");
}

#[test]
fn the_time_of_a_write_figure_ends_when_nothing_is_owed() {
    let lines = lines(&["--benchmarks", "fillrandom", "--num", "300000", "--memory", "16"]);
    let line = &lines[0];
    assert_eq!(line.debt_left_bytes, Some(0), "{line:?}");
    assert!(line.drained_s > line.burst_s && line.rate < line.burst_rate, "{line:?}");
    assert!((line.rate * line.drained_s / 300_000.0 - 1.0).abs() < 1e-6, "{line:?}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_when_an_operation_was_due() {
    let lines = lines(&["--benchmarks", "fillrandom", "--num", "2000", "--rate", "4000", "--threads", "2"]);
    let line = &lines[0];
    assert!((0.4..60.0).contains(&line.burst_s), "2000 operations at 4000 a second: {line:?}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let refused = |arguments: &[&str]| {
        let Program { bench } = Program::try_parse_from(["bench"].iter().chain(arguments)).expect("parses");
        bench.check().and_then(|()| bench.workloads().map(|_| ())).expect_err("it is refused")
    };
    assert!(refused(&["--benchmarks", "fillnothing"]).contains("there are fillseq, fillrandom"));
    assert!(refused(&["--key-size", "8"]).contains("9 or more"));
    assert!(refused(&["--rate", "0"]).contains("--rate is 0, but must be from"));
    assert!(refused(&["--threads", "0"]).contains("--threads is 0, but must be from 1"));
    assert!(refused(&["--layout", "tiered", "--percent", "500"]).contains("--percent is 500, but must be"));
    assert!(refused(&["--drain", "5"]).contains("--background is 2"));
    for (changes_nothing, without) in [("--runs", "--layout tiered"), ("--memory-runs", "--component runs")] {
        assert!(refused(&[changes_nothing, "4"]).contains(without), "{changes_nothing}");
    }
}
