//! `scan`: intervals, directions, limits, and how records are printed.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use support::Store;

fn store() -> Store {
    let store = Store::new();
    store
        .feed(["load", "-", "--format", "tsv", "--key", "1", "--no-header"], "a\t1\nb\t2\nba\t3\nc\t4\n")
        .ok();
    store
}

fn keys(store: &Store, args: &[&str]) -> String {
    let said = store.run(["scan", "--keys-only"].iter().chain(args));
    String::from_utf8(said.ok()).unwrap().trim_end().replace('\n', " ")
}

#[test]
fn the_interval_holds_from_and_not_to_in_both_directions() {
    let store = store();
    assert_eq!(keys(&store, &[]), "a b ba c");
    assert_eq!(keys(&store, &["--from", "b", "--to", "c"]), "b ba");
    assert_eq!(keys(&store, &["--from", "b", "--to", "c", "--reverse"]), "ba b");
    assert_eq!(keys(&store, &["--from", "b"]), "b ba c");
    assert_eq!(keys(&store, &["--to", "ba", "--reverse"]), "b a");
    assert_eq!(keys(&store, &["--from", "c", "--to", "a"]), "");
    assert_eq!(keys(&store, &["--from", "b", "--to", "b"]), "");
    assert_eq!(keys(&store, &["--from", "", "--to", ""]), "");
}

#[test]
fn prefix_cuts_the_interval() {
    let store = store();
    assert_eq!(keys(&store, &["--prefix", "b"]), "b ba");
    assert_eq!(keys(&store, &["--prefix", "b", "--reverse"]), "ba b");
    assert_eq!(keys(&store, &["--prefix", "b", "--from", "ba", "--to", "z"]), "ba");
    assert_eq!(keys(&store, &["--prefix", "b", "--from", "c"]), "");
    assert_eq!(keys(&store, &["--prefix", "x"]), "");
    assert_eq!(keys(&store, &["--prefix", ""]), "a b ba c");
    let count = |args: &[&str]| store.run(["count"].iter().chain(args)).text().to_string();
    assert_eq!(count(&["--prefix", "b"]), "2\n");
    assert_eq!(count(&["--from", "b", "--to", "c"]), "2\n");
    assert_eq!(count(&["--prefix", "b", "--from", "c"]), "0\n");
    assert_eq!(count(&["--hex", "--prefix", "62"]), "2\n");
}

#[test]
fn limit_counts_from_where_the_scan_begins() {
    let store = store();
    assert_eq!(keys(&store, &["--limit", "2"]), "a b");
    assert_eq!(keys(&store, &["--limit", "2", "--reverse"]), "c ba");
    assert_eq!(keys(&store, &["--limit", "0"]), "");
    assert_eq!(keys(&store, &["--limit", "99"]), "a b ba c");
    store.run(["scan", "--limit", "-1"]).fails(2);
}

#[test]
fn records_are_key_tab_value_as_they_are() {
    let store = Store::new();
    let value = OsStr::from_bytes(b"x\xff\ty ");
    store.run([OsStr::new("put"), OsStr::new("k"), value]).ok();
    assert_eq!(store.run(["scan"]).ok(), b"k\tx\xff\ty \n");
    assert_eq!(store.run(["scan", "--keys-only"]).ok(), b"k\n");
    assert_eq!(store.run(["scan", "--format", "raw"]).ok(), b"k\tx\xff\ty \n");
}

#[test]
fn jsonl_escapes_what_raw_cannot_show() {
    let store = Store::new();
    store.run(["put", "a\nb", "tab\t\"quote\""]).ok();
    store.run([OsStr::new("put"), OsStr::from_bytes(b"\xff"), OsStr::new("v")]).ok();
    let lines =
        "{\"key\":\"a\\nb\",\"value\":\"tab\\t\\\"quote\\\"\"}\n{\"key_hex\":\"ff\",\"value\":\"v\"}\n";
    assert_eq!(store.run(["scan", "--format", "jsonl"]).text(), lines);
    assert_eq!(store.run(["--json", "scan"]).text(), lines);
    assert_eq!(
        store.run(["scan", "--format", "jsonl", "--keys-only", "--reverse"]).text(),
        "{\"key_hex\":\"ff\"}\n{\"key\":\"a\\nb\"}\n"
    );
}

#[test]
fn size_tells_of_an_interval_what_a_scan_would_find() {
    let store = Store::loaded(20_000);
    let size = |args: &[&str]| store.run(["--json", "size"].iter().chain(args)).json();
    for compacted in [false, true] {
        if compacted {
            store.run(["compact"]).ok();
        }
        let all = size(&[]);
        assert_eq!(
            (&all["keys"], &all["versions"], &all["versions_error"]),
            (&20_000.into(), &20_000.into(), &0.into())
        );
        let bytes = if compacted { "table_bytes" } else { "memory_bytes" };
        assert!(all[bytes].as_u64().unwrap() > 100_000, "{all}");
        let part = size(&["--prefix", "line-005"]);
        let keys = part["keys"].as_u64().unwrap();
        assert!((700..1300).contains(&keys), "{part}");
        assert_eq!(size(&["--from", "line-005", "--to", "line-006"]), part);
        assert_eq!(size(&["--hex", "--prefix", "6c696e652d303035"]), part);
        let few = size(&["--from", "b", "--to", "a"]);
        assert_eq!(few["versions"], 0);
    }
    let said = store.run(["size"]);
    assert!(said.text().starts_with("about 20,000 keys\n20,000 versions (exactly)\n"), "{said:?}");
}
