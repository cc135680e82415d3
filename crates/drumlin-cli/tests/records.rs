//! `get`, `put`, `delete`, `cas`, `count`: one record at a time.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use support::{Said, Store, drumlin};

#[test]
fn get_prints_the_value_and_nothing_else() {
    let store = Store::new();
    assert_eq!(store.run(["put", "k", " a value\n"]).ok(), b"");
    assert_eq!(store.run(["get", "k"]).ok(), b" a value\n");
    assert_eq!(store.run(["put", "k", ""]).ok(), b"");
    assert_eq!(store.run(["get", "k"]).ok(), b"");
}

#[test]
fn get_of_an_absent_key_exits_1() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    let said = store.run(["get", "K"]).fails(1);
    assert_eq!(said.out, b"");
}

#[test]
fn keys_and_values_are_bytes() {
    let store = Store::new();
    let key = OsStr::from_bytes(b"\xff\xfe");
    let value = OsStr::from_bytes(b"-\x80\xff");
    store.run([OsStr::new("put"), key, value]).ok();
    assert_eq!(store.run([OsStr::new("get"), key]).ok(), value.as_bytes());
    assert_eq!(store.run([OsStr::new("scan")]).ok(), b"\xff\xfe\t-\x80\xff\n");
}

#[test]
fn delete_removes_and_may_be_repeated() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    assert_eq!(store.run(["delete", "k"]).ok(), b"");
    store.run(["get", "k"]).fails(1);
    store.run(["delete", "k"]).ok();
    assert_eq!(store.run(["count"]).ok(), b"0\n");
}

#[test]
fn cas_swaps_only_the_expected_value() {
    let store = Store::new();
    store.run(["cas", "k", "--absent", "one"]).ok();
    store.run(["cas", "k", "--absent", "two"]).fails(1);
    store.run(["cas", "k", "--expect", "two", "three"]).fails(1);
    assert_eq!(store.run(["get", "k"]).ok(), b"one");
    store.run(["cas", "k", "--expect", "one", "two"]).ok();
    assert_eq!(store.run(["get", "k"]).ok(), b"two");
    store.run(["cas", "missing", "--expect", "", "x"]).fails(1);
    store.run(["get", "missing"]).fails(1);
}

#[test]
fn cas_tells_an_empty_value_from_an_absent_key() {
    let store = Store::new();
    store.run(["put", "k", ""]).ok();
    store.run(["cas", "k", "--absent", "x"]).fails(1);
    store.run(["cas", "k", "--expect", "", "x"]).ok();
    assert_eq!(store.run(["get", "k"]).ok(), b"x");
}

#[test]
fn cas_without_an_expectation_is_misuse() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    store.run(["cas", "k", "v"]).fails(2);
    store.run(["cas", "k", "--absent", "--expect", "v", "w"]).fails(2);
    assert_eq!(store.run(["get", "k"]).ok(), b"v");
}

#[test]
fn count_prints_digits_only() {
    let store = Store::new();
    for i in 0..12 {
        store.run(["put".into(), OsString::from(format!("k{i}")), "v".into()]).ok();
    }
    assert_eq!(store.run(["count"]).ok(), b"12\n");
}

#[test]
fn keyspaces_are_apart() {
    let store = Store::new();
    store.run(["--keyspace", "a", "put", "k", "in a"]).ok();
    store.run(["--keyspace", "b", "put", "k", "in b"]).ok();
    assert_eq!(store.run(["--keyspace", "a", "get", "k"]).ok(), b"in a");
    assert_eq!(store.run(["get", "k", "--keyspace", "b"]).ok(), b"in b");
    store.run(["get", "k"]).fails(1);
    store.run(["--keyspace", "c", "count"]).fails(1);
    assert_eq!(store.run(["keyspaces"]).ok(), b"a\nb\n");
}

#[test]
fn keys_outside_the_limits_are_refused() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    let long = "k".repeat(64 * 1024 + 1);
    store.run(["put", &long, "v"]).fails(1);
    store.run(["put", &long[1..], "v"]).ok();
    assert_eq!(store.run(["count"]).ok(), b"2\n");
}

#[test]
fn json_answers_are_one_object() {
    let store = Store::new();
    let json = |args: &[&str]| -> serde_json::Value {
        let said = store.run(std::iter::once("--json").chain(args.iter().copied()));
        assert_eq!(said.out.iter().filter(|b| **b == b'\n').count(), 1, "{said:?}");
        serde_json::from_slice(&said.out).unwrap()
    };
    assert_eq!(json(&["put", "k", "v\"\n"])["ok"], true);
    let record = json(&["get", "k"]);
    assert_eq!((&record["key"], &record["value"]), (&"k".into(), &"v\"\n".into()));
    assert_eq!(json(&["count"])["count"], 1);
    assert_eq!(json(&["cas", "k", "--expect", "x", "y"])["swapped"], false);
    assert_eq!(json(&["cas", "k", "--absent", "y"])["current"], "v\"\n");
    assert_eq!(json(&["cas", "k", "--expect", "v\"\n", "y"])["swapped"], true);
    assert_eq!(json(&["delete", "k"])["ok"], true);
    assert_eq!(json(&["keyspaces"])["keyspaces"][0], "default");
}

#[test]
fn the_hint_for_an_absent_key_speaks_of_keys_as_the_user_does() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    let said = store.run(["get", "--hex", "00ff"]).fails(1);
    assert!(said.err.contains("scan --hex`"), "{said:?}");
    let said = store.run(["get", "absent"]).fails(1);
    assert!(said.err.contains("scan`"), "{said:?}");
}

#[test]
fn a_store_is_not_made_among_somebodys_files() {
    let directory = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut all = vec!["--db", directory.path().to_str().unwrap()];
        all.extend(args);
        Said::from(drumlin(all).output().unwrap())
    };
    std::fs::write(directory.path().join("notes.md"), "mine").unwrap();
    let said = run(&["put", "a", "b"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("other files"), "{said:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was made");
    // An empty file system has this; and what lies beside a store that is there harms nobody. Redis' words are understood.
    std::fs::remove_file(directory.path().join("notes.md")).unwrap();
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    run(&["set", "a", "b"]).ok();
    std::fs::write(directory.path().join("notes.md"), "mine").unwrap();
    run(&["put", "c", "d"]).ok();
    run(&["del", "a"]).ok();
    assert_eq!(run(&["count"]).text(), "1\n");
}

#[test]
fn a_keyspace_is_made_with_the_layout_that_is_asked_for() {
    let store = Store::new();
    store.run(["put", "k", "v", "--layout", "trie"]).ok();
    let said = store.run(["scan", "--prefix", "k"]).fails(1);
    assert!(said.err.contains("needs an order"), "{said:?}");
    // It is not asked for again, and may be.
    store.run(["put", "l", "w"]).ok();
    store.run(["put", "m", "x", "--layout", "trie"]).ok();
    store.run(["cas", "n", "--absent", "y"]).ok();
    assert_eq!(store.run(["count"]).ok(), b"4\n");
    let said = store.run(["put", "k", "v", "--layout", "leveled"]).fails(1);
    assert!(said.err.contains("has no order"), "{said:?}");
}
