//! What `load --json` has printed survives SIGKILL, and what survives is a prefix of the file.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use support::Store;

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

#[test]
fn ctrl_c_ends_a_load_with_130_and_keeps_what_was_promised() {
    use rustix::process::{Pid, Signal, kill_process};
    let store = Store::new();
    let mut loading = store.loading();
    for number in 0..5000 {
        loading.give(&line_of(number));
    }
    loading.promised(5000);
    let began = Instant::now();
    kill_process(Pid::from_child(&loading.child), Signal::INT).unwrap();
    // If it waits for input by now, the end of the grace period ends it.
    assert_eq!(loading.child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(recovered(&store), (0..5000).collect::<Vec<_>>());
}
