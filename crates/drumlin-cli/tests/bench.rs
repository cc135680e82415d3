//! `bench` and `limits`: every promised field is there, a user's files are left alone, and misuse is said.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;
use support::{Said, Store, drumlin};

fn run(args: &[&str]) -> Said {
    drumlin(args).output().unwrap().into()
}

fn objects(said: &Said) -> Vec<Value> {
    said.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A small run.
const SMALL: [&str; 4] = ["--num", "2000", "--memory", "16"];

#[test]
fn a_line_says_what_its_figure_hangs_on() {
    let said =
        run(&[&["bench", "--benchmarks", "fillrandom,readrandom", "--threads", "2"], &SMALL[..]].concat());
    let text = said.text();
    for part in [
        "fillrandom ",
        "readrandom ",
        " ops/s, burst ",
        " MiB owed",
        "2,000 operations on 2,000 keys of 16 + 100 bytes, 2 threads, Process durability, batches of 1, 16.0 MiB of memory",
        "2,000 operations, 2,000 found, on 2,000 keys",
        "blocks of 4096 bytes, Lz4, 10 filter bits a key, 2 background threads",
        "write amplification ",
        "of tables alone ",
        "file reads of ",
        "space amplification ",
        "resident at most ",
        "p99.99 ",
        ", max ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    said.ok();
}

#[test]
fn tables_are_read_from_the_device_if_that_is_asked() {
    const EXT4: u64 = 0xef53;
    let read = |more: &[&str]| {
        let small = [
            "--json",
            "bench",
            "--benchmarks",
            "readrandom",
            "--num",
            "100000",
            "--memory",
            "16",
            "--memtable",
            "1",
        ];
        let said = run(&[&small[..], more].concat());
        objects(&said)[0]["device_read"].as_u64().expect("the system tells")
    };
    let is_ext4 = rustix::fs::statfs(std::env::temp_dir().as_path()).unwrap().f_type as u64 == EXT4;
    let (buffered, direct) = (read(&[]), read(&["--direct-reads"]));
    assert!(direct > buffered + (8 << 20) || !is_ext4, "{direct} {buffered}");
}

#[test]
fn json_lines_have_the_fields_that_the_help_tells() {
    let said = run(&[
        &["--json", "bench", "--benchmarks", "fillrandom,readwhilewriting,open", "--rounds", "2"],
        &SMALL[..],
    ]
    .concat());
    let lines = objects(&said);
    let names: Vec<_> =
        lines.iter().map(|line| (line["round"].as_u64(), line["workload"].as_str())).collect();
    let right = |round| ["fillrandom", "readwhilewriting", "open"].map(|name| (Some(round), Some(name)));
    assert_eq!(names, [right(1), right(2)].concat());
    let help = run(&["bench", "--help"]);
    for line in &lines {
        for (field, value) in line.as_object().unwrap() {
            assert!(help.text().contains(&format!("\"{field}\"")), "{field} is not in the help");
            let may_be_absent = [
                "asked_rate",
                "beside",
                "debt_bytes",
                "unsorted",
                "debt_left_bytes",
                "held_back_s",
                "wake_latest_ns",
                "device_read",
            ];
            let writes = line["user_bytes"].as_u64().unwrap() > 0;
            let may_be_absent =
                may_be_absent.contains(&field.as_str()) || field.contains("amplification") && !writes;
            assert!(!value.is_null() || may_be_absent, "{field} of {line}");
        }
        for field in ["count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"] {
            assert!(line["latencies"][0][field].as_f64().unwrap() > 0.0, "{field} of {line}");
            assert!(help.text().contains(&format!("\"{field}\"")), "{field} is not in the help");
        }
        assert_eq!(line["durability"], "Process");
    }
    assert_eq!((&lines[0]["batch"], &lines[0]["memory_bytes"]), (&1.into(), &(16 << 20).into()));
    assert!(lines[1]["beside"].as_u64().unwrap() > 0);
    said.ok();
}

#[test]
fn the_list_names_every_workload_and_each_runs() {
    let names: Vec<String> = objects(&run(&["--json", "bench", "--benchmarks", "list"]))
        .iter()
        .map(|line| line["name"].as_str().unwrap().to_string())
        .collect();
    for name in ["fillseq", "fillsync", "readhot", "ycsba", "ycsbf", "mixbalanced", "mixskewed", "recover"] {
        assert!(names.iter().any(|other| other == name), "{name}");
    }
    let text = run(&["bench", "--benchmarks", "list"]);
    assert!(names.iter().all(|name| text.text().lines().any(|line| line.starts_with(&format!("{name} ")))));
    let said = run(&["--json", "bench", "--num", "500", "--benchmarks", &names.join(",")]);
    assert_eq!(objects(&said).len(), names.len());
    said.ok();
}

#[test]
fn misuse_is_said_before_anything_is_made() {
    let store = Store::new();
    for (args, part) in [
        (&["bench", "--benchmarks", "fillnothing"][..], "there is no workload fillnothing"),
        (&["bench", "--num", "0"], "--num is 0, but must be"),
        (&["bench", "--rate", "nan"], "--rate is NaN, but must be"),
        (&["bench", "--duration", "inf"], "--duration is inf, but must be"),
        (&["bench", "--duration=-1"], "--duration is -1, but must be"),
        (&["bench", "--threads", "1000000"], "--threads is 1000000, but must be"),
        (&["bench", "--compression-ratio", "2"], "--compression-ratio is 2, but must be"),
        (&["bench", "--memory", "1"], "memory_bytes is 1048576, but must be"),
        (&["limits", "--seconds", "inf"], "--seconds must be"),
        (&["limits", "--threads", "0"], "--threads must be"),
        (&["limits", "--threads", "2,0"], "--threads must be"),
        (&["bench", "--limits", "--limit", "sync,none"], "there is no limit none; there are fetch-add, "),
        (&["bench", "--limit", "sync"], "--limit changes nothing without --limits"),
        (&["limits", "--size", "0"], "--size must be"),
        (&["limits", "--only", "sync,none"], "there is no limit none; there are fetch-add, "),
    ] {
        let said = store.run(args).fails(2);
        assert!(said.err.contains(part), "{said:?}");
    }
    assert!(run(&["bench", "--use-existing-db"]).fails(2).err.contains("needs --db"));
    assert!(!store.path().exists());
}

#[test]
fn a_directory_that_is_not_empty_is_refused_and_untouched() {
    let store = Store::loaded(100);
    let said = store.run(["bench", "--num", "10"]).fails(1);
    assert!(said.err.contains("is not empty"), "{said:?}");
    assert_eq!(store.run(["count"]).text(), "100\n");
    // Nor is it taken for one that a bench left.
    let said = store.run(["bench", "--use-existing-db", "--num", "10"]).fails(1);
    assert!(said.err.contains("not one that a bench left"), "{said:?}");
    assert_eq!(store.run(["--json", "keyspaces"]).json()["keyspaces"], serde_json::json!(["default"]));
    let file = Store::new();
    fs::write(file.path(), "a file").unwrap();
    file.run(["bench", "--num", "10"]).fails(1);
    assert_eq!(fs::read(file.path()).unwrap(), b"a file");
}

#[test]
fn a_named_directory_keeps_the_store_and_it_is_measured_again() {
    let store = Store::new();
    let elsewhere = store.path().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, store.path()).unwrap();
    store.run([&["bench", "--benchmarks", "filluniquerandom"], &SMALL[..]].concat()).ok();
    assert!(fs::symlink_metadata(store.path()).unwrap().is_symlink(), "the place is the user's");
    assert!(elsewhere.join("CURRENT").exists());
    let again = ["--json", "bench", "--use-existing-db", "--layout", "tiered", "--benchmarks", "readrandom"];
    let line = store.run([&again[..], &SMALL[..]].concat()).json();
    assert_eq!(line["found"], 2000);
    assert!(
        line["settings"].as_str().is_some_and(|said| said.contains("level 1 of")),
        "as it was made: {line}"
    );
    let none = Store::new();
    fs::create_dir(none.path()).unwrap();
    none.run(["bench", "--use-existing-db", "--num", "10"]).fails(1);
    assert!(!none.path().join("CURRENT").exists(), "no store is made");
}

#[test]
fn the_line_of_an_open_loop_says_its_rate() {
    // That latencies count from when an operation was due is shown in tests/clock.rs of the bench, on an engine that stalls as
    // it is told.
    let args = ["--json", "bench", "--benchmarks", "fillsync", "--num", "300000", "--rate", "10000"];
    let line = run(&args).json();
    let syncs = &line["latencies"][0];
    let last = syncs["max_ns"].as_f64().unwrap() / 1e9;
    let took = line["burst_s"].as_f64().unwrap();
    assert!(last > 0.0 && last <= took, "{line}");
    assert!(line["processor_us"].as_f64() > Some(0.0) && line["asked_rate"] == 10_000.0, "{line}");
    let latest = line["wake_latest_ns"].as_f64().unwrap() / 1e9;
    assert!(latest > 0.0 && latest <= took && line["held_back_s"].is_number(), "{line}");
}

#[test]
fn figures_stand_beside_the_limits_of_the_machine() {
    let args = ["--json", "bench", "--limits", "--benchmarks", "fillrandom,readrandom", "--num", "2000"];
    let all = objects(&run(&args));
    let with = |field: &str| all.iter().filter(|line| !line[field].is_null()).cloned().collect::<Vec<_>>();
    let (parts, limits) = (with("part"), with("what"));
    assert!(limits.len() >= 15, "{limits:?}");
    let names: Vec<_> = parts.iter().map(|line| line["limit"].as_str().unwrap()).collect();
    assert_eq!(names, ["log-copy", "chase-huge"]);
    let some = objects(&run(&[&args[..], &["--limit", "chase-huge", "--threads", "2"]].concat()));
    let named = |line: &Value| Some((line["name"].as_str()?.to_string(), line["threads"].as_u64()?));
    let chase = |threads| ("chase-huge".to_string(), threads);
    assert_eq!(some.iter().filter_map(named).collect::<Vec<_>>(), [chase(1), chase(2)]);
    for part in &parts {
        let [rate, most, share] = ["rate", "at_most", "part"].map(|field| part[field].as_f64().unwrap());
        assert!(rate > 0.0 && (rate / most / share - 1.0).abs() < 1e-6, "{part}");
    }
}

#[test]
fn limits_are_told_in_text_and_in_json() {
    let store = Store::new();
    fs::create_dir(store.path()).unwrap();
    let said = store.run(["limits", "--seconds", "0.01", "--threads", "2", "--size", "16"]);
    for name in ["fetch-add", "checksum", "chase-huge", "log-copy-update", "read-device-128", "sync"] {
        assert!(said.text().lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {said:?}");
    }
    said.ok();
    assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
    let one = objects(&store.run([
        "--json",
        "limits",
        "--only",
        "checksum,sync",
        "--seconds",
        "0.01",
        "--size",
        "16",
    ]));
    let names: Vec<_> = one.iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"checksum") && names.iter().all(|name| ["checksum", "sync"].contains(name)),
        "{names:?}"
    );
    let said = run(&["limits", "--help"]);
    for limit in objects(&store.run(["--json", "limits", "--seconds", "0.01", "--size", "16"])) {
        assert!(limit["figure"].is_number() || limit["failure"].is_string(), "{limit}");
        for field in limit.as_object().unwrap().keys() {
            assert!(said.text().contains(&format!("\"{field}\"")), "{field} is not in the help");
        }
    }
}

#[test]
fn what_needs_an_order_is_not_measured_of_a_trie() {
    let said = run(&[&["bench", "--layout", "trie"], &SMALL[..]].concat());
    assert!(said.text().contains("readrandom ") && !said.text().contains("seekrandom"), "{said:?}");
    let said =
        run(&[&["bench", "--layout", "trie", "--benchmarks", "fillrandom,ycsbe"], &SMALL[..]].concat());
    let said = said.fails(2);
    assert!(said.out.is_empty() && said.err.contains("ycsbe needs an order"), "{said:?}");
}
