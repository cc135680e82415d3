//! What `load --json` has printed survives SIGKILL, and what survives is a prefix of the file.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Said, Store};

/// The keys in the store, in the order in which `line_of` numbers them.
fn recovered(store: &Store) -> Vec<u64> {
    let keys = String::from_utf8(store.run(["scan", "--keys-only"]).ok()).unwrap();
    let mut numbers: Vec<u64> = keys.lines().map(number_of).collect();
    numbers.sort_unstable();
    numbers
}

/// Lines whose byte order is not their order in the file.
fn line_of(number: u64) -> String {
    format!("{:02}-{number:08}\n", number * 37 % 100)
}

fn number_of(key: &str) -> u64 {
    key[3..].parse().unwrap()
}

#[test]
fn a_slow_writer_is_told_before_the_program_waits_for_more() {
    let store = Store::new();
    let mut loading = store.loading();
    let mut given = 0;
    for step in [1, 2, 1, 500, 3000] {
        for number in given..given + step {
            loading.give(&line_of(number));
        }
        given += step;
        // The input stays open and says no more: the promise for all of it must come by itself.
        loading.promised(given);
    }
    loading.kill();
    assert_eq!(recovered(&store), (0..given).collect::<Vec<_>>());
}

#[test]
fn half_a_line_is_no_record_yet() {
    let store = Store::new();
    let mut loading = store.loading();
    loading.give("one\ntw");
    loading.promised(1);
    loading.kill();
    assert_eq!(store.run(["scan", "--keys-only"]).ok(), b"one\n");
}

#[test]
fn promises_survive_sigkill_in_the_middle_of_a_load() {
    const LINES: u64 = 300_000;
    let text: String = (0..LINES).map(line_of).collect();
    let mut in_the_middle = 0;
    for round in 0..6u64 {
        let store = Store::new();
        let mut loading = store.loading();
        let mut stdin = loading.take_stdin();
        let bytes = text.clone();
        // It ends with an error when the reader is killed.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(bytes.as_bytes())));
        let enough = 1 + round * 9001;
        let mut promised = 0;
        while promised < enough {
            promised = loading.promise().expect("it must not end by itself so early");
        }
        loading.kill();
        while let Some(more) = loading.promise() {
            assert!(more >= promised, "promises only grow");
            promised = more;
        }
        feeder.join().unwrap();
        let found = recovered(&store);
        assert!(found.len() as u64 >= promised, "round {round}: {promised} promised, {} found", found.len());
        assert!(found.iter().copied().eq(0..found.len() as u64), "round {round}: not a prefix");
        in_the_middle += u32::from((found.len() as u64) < LINES);
        // The store goes on, and holds both.
        store.feed(["load", "-", "--format", "lines"], "after\n").ok();
        assert_eq!(store.run(["count"]).text(), format!("{}\n", found.len() + 1));
        store.run(["verify"]).ok();
    }
    assert!(in_the_middle >= 5, "only {in_the_middle} of 6 kills came in the middle of a load");
}

/// Sends a signal to a `load` that has put what it was given, and waits for more.
fn signalled(signal: Signal, format: &[&str], text: &str, durable: u64) -> Said {
    let store = Store::new();
    let mut child = store.start(["load", "-", "--json", "--format"].iter().chain(format));
    // Kept open: it is the waiting that the signal must end.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let promise = format!("{{\"durable\":{durable}}}\n");
    let mut line = String::new();
    while line != promise {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it must not end by itself");
    }
    let began = Instant::now();
    kill_process(Pid::from_child(&child), signal).unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    assert!(began.elapsed() < Duration::from_secs(30));
    drop(stdin);
    assert_eq!(store.run(["count"]).text(), format!("{durable}\n"));
    store.run(["verify"]).ok();
    said
}

/// Whether this process, and so its children, ignore a signal from the beginning.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn a_load_that_was_told_to_survive_a_hangup_does() {
    let store = Store::new();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$PROGRAM\" --db \"$DB\" --json load - --format lines"]);
    command.env("PROGRAM", env!("CARGO_BIN_EXE_drumlin")).env("DB", store.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for (record, promise) in [("a\n", "{\"durable\":1}\n"), ("b\n", "{\"durable\":2}\n")] {
        stdin.write_all(record.as_bytes()).unwrap();
        line.clear();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, promise);
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(store.run(["count"]).ok(), b"2\n");
}

#[test]
fn a_signal_ends_a_load_that_waits_for_input_with_130_and_says_what_is_durable() {
    // A SIGHUP that is ignored stays so; then this run has nothing to show about it.
    let hangup = if is_ignored(Signal::HUP) { Signal::TERM } else { Signal::HUP };
    for (signal, format, text, durable) in [
        (Signal::INT, &["lines"][..], "a\nb\nc\nhalf a li", 3),
        (hangup, &["lines"], "a\nb\nc\n", 3),
        (Signal::TERM, &["lines"], "a\n", 1),
        (Signal::INT, &["csv", "--key", "1", "--no-header"], "a,1\n\"b\n", 1),
    ] {
        let said = signalled(signal, format, text, durable).fails(130);
        let noun = if durable == 1 { "1 record is durable" } else { "3 records are durable" };
        assert!(said.err.contains("interrupted") && said.err.contains(noun), "{said:?}");
    }
}

#[test]
fn a_signal_before_the_first_line_makes_no_store() {
    let store = Store::new();
    for format in [&["lines"][..], &["tsv", "--key", "id"]] {
        let mut command = store.command(["load", "-", "--format"].iter().chain(format));
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        // A signal that comes before the program listens kills it, which is as good.
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let said: Said = child.wait_with_output().unwrap().into();
        drop(stdin);
        assert!(matches!(said.code, Some(130) | None), "{said:?}");
        assert!(!store.path().exists());
    }
}

#[test]
fn ctrl_c_ends_a_load_with_130_and_keeps_what_was_promised() {
    let store = Store::new();
    let mut loading = store.loading();
    for number in 0..5000 {
        loading.give(&line_of(number));
    }
    loading.promised(5000);
    let began = Instant::now();
    kill_process(Pid::from_child(&loading.child), Signal::INT).unwrap();
    assert_eq!(loading.child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(recovered(&store), (0..5000).collect::<Vec<_>>());
}
