//! Commands about the whole store: `keyspaces`, `stats`, `shape`, `verify`, `compact`; reading without
//! touching.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;

use support::Store;

const READS: [&[&str]; 10] = [
    &["get", "line-000001"],
    &["count"],
    &["scan"],
    &["scan", "--reverse", "--limit", "3", "--format", "jsonl"],
    &["keyspaces"],
    &["stats"],
    &["--json", "stats"],
    &["shape"],
    &["verify"],
    &["--json", "verify"],
];

#[test]
fn reading_changes_no_byte_of_a_closed_store() {
    let store = Store::loaded(2000);
    let before = store.files();
    for read in READS {
        store.run(read).ok();
        assert!(store.files() == before, "{read:?} changed the store");
    }
}

#[test]
fn reading_changes_no_byte_of_a_store_after_a_kill() {
    let store = Store::new();
    store.load_and_kill(&["line-000001", "b", "c"]);
    let before = store.files();
    for read in READS {
        store.run(read).ok();
        assert!(store.files() == before, "{read:?} changed the store");
    }
    assert_eq!(store.run(["scan", "--keys-only"]).ok(), b"b\nc\nline-000001\n");
}

#[test]
fn reading_creates_nothing() {
    let store = Store::new();
    for command in
        READS.iter().copied().chain([&["delete", "k"][..], &["compact"], &["cas", "k", "--expect", "a", "b"]])
    {
        store.run(command).fails(1);
        assert!(!store.path().exists(), "{command:?} created the store");
    }
    fs::create_dir(store.path()).unwrap();
    for command in READS {
        store.run(command).fails(1);
        assert!(store.files().is_empty(), "{command:?} created files");
    }
    store.run(["put", "line-000001", "v"]).ok();
    let before = store.files();
    store.run(["--keyspace", "other", "count"]).fails(1);
    assert!(store.files() == before);
    assert_eq!(store.run(["keyspaces"]).ok(), b"default\n");
}

#[test]
fn verify_is_content_with_a_sound_store_also_after_a_kill() {
    let store = Store::loaded(2000);
    let said = store.run(["verify"]);
    assert!(said.text().starts_with("sound: "), "{said:?}");
    said.ok();
    store.run(["compact"]).ok();
    store.load_and_kill(&["x", "y"]);
    store.run(["verify"]).ok();
    let report: serde_json::Value = serde_json::from_slice(&store.run(["--json", "verify"]).ok()).unwrap();
    assert_eq!(report["sound"], true);
    assert!(report["tables"].as_u64().unwrap() > 0 && report["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn compact_keeps_every_record() {
    let store = Store::loaded(5000);
    let before = store.run(["scan"]).ok();
    assert!(!store.run(["compact"]).ok().is_empty());
    assert_eq!(store.run(["scan"]).ok(), before);
    store.run(["--keyspace", "default", "compact"]).ok();
    store.run(["--keyspace", "other", "compact"]).fails(1);
    store.run(["verify"]).ok();
}

#[test]
fn stats_and_shape_are_for_people_and_for_programs() {
    let store = Store::loaded(2000);
    store.run(["compact"]).ok();
    assert!(store.run(["stats"]).ok().ends_with(b"\n"));
    let stats: serde_json::Value = serde_json::from_slice(&store.run(["--json", "stats"]).ok()).unwrap();
    assert!(stats.is_object());
    let shape = store.run(["shape"]);
    assert!(shape.text().contains("default"), "{shape:?}");
    shape.ok();
    let shape: serde_json::Value = serde_json::from_slice(&store.run(["--json", "shape"]).ok()).unwrap();
    assert_eq!(shape["keyspaces"][0]["name"], "default", "{shape}");
}

#[test]
fn a_store_in_use_is_refused_to_a_second_writer() {
    let store = Store::new();
    let mut loading = store.loading();
    loading.give("a\n");
    loading.promised(1);
    let said = store.run(["put", "k", "v"]).fails(1);
    assert!(said.err.contains("in use"), "{said:?}");
    loading.kill();
    store.run(["put", "k", "v"]).ok();
    assert_eq!(store.run(["count"]).ok(), b"2\n");
}
