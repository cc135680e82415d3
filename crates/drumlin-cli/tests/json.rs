//! `--json`: answers, absent ones too, on standard output; errors on standard error; exit codes as ever.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;

use support::{Said, Store, drumlin};

#[test]
fn an_absent_key_is_an_answer_and_an_error_of_its_own_kind() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    let said = store.run(["--json", "get", "absent"]).fails(1);
    assert_eq!(said.text(), "{\"key\":\"absent\",\"value\":null}\n");
    assert_eq!(said.error().0, "absent");
    assert_eq!(store.run(["--json", "get", "k"]).json()["value"], "v");
}

#[test]
fn every_error_is_one_object_with_its_kind() {
    let store = Store::new();
    let kind = |code: i32, args: &[&str]| store.run(["--json"].iter().chain(args)).fails(code).error().0;
    assert_eq!(kind(1, &["get", "k"]), "no_store");
    assert_eq!(kind(1, &["load", "/no/such/file", "--format", "lines"]), "io");
    assert_eq!(kind(2, &["put", "--hex", "0", "v"]), "usage");
    assert_eq!(kind(2, &["nonsense"]), "usage");
    assert_eq!(kind(2, &["scan", "--limit", "many"]), "usage");
    assert_eq!(kind(1, &["--keyspace", "", "put", "k", "v"]), "invalid");
    assert!(!store.path().exists());
    store.run(["put", "k", "v"]).ok();
    assert_eq!(kind(1, &["--keyspace", "other", "count"]), "no_keyspace");
    assert_eq!(kind(1, &["cas", "k", "--expect", "w", "x"]), "not_swapped");
    let mut loading = store.loading();
    loading.give("a\n");
    loading.promised(1);
    assert_eq!(kind(1, &["count"]), "locked");
    loading.kill();
}

#[test]
fn corruption_is_told_in_json_with_exit_code_3() {
    let store = Store::loaded(20_000);
    store.run(["compact"]).ok();
    store.rot(".tbl").unwrap();
    for command in ["scan", "count", "verify"] {
        assert_eq!(store.run(["--json", command]).fails(3).error().0, "corruption");
    }
}

#[test]
fn a_load_tells_what_it_skipped_and_where_it_stopped() {
    let store = Store::new();
    let last = |said: &Said| said.text().lines().last().unwrap().to_string();
    let said = store.feed(["--json", "load", "-", "--format", "lines", "--skip-bad"], "a\n\nb\n\n");
    assert_eq!(last(&said), "{\"durable\":2,\"skipped\":2}");
    said.ok();
    let said = store.feed(["--json", "load", "-", "--format", "lines"], "a\nb\n\nc\n").fails(1);
    assert_eq!(last(&said), "{\"durable\":2}");
    let (kind, error) = said.error();
    assert_eq!((kind.as_str(), &error["durable"]), ("input", &2.into()));
    assert!(error["error"].as_str().unwrap().contains("line 3"), "{error}");
}

#[test]
fn names_in_figures_come_back_as_they_were_given() {
    let store = Store::new();
    for name in ["\u{e9}", "quo\"te\\", "line"] {
        store.run(["--keyspace", name, "put", "k", "v"]).ok();
        for command in ["stats", "shape"] {
            let figures = store.run(["--json", command]).json();
            let names = figures["keyspaces"].as_array().unwrap();
            assert!(names.iter().any(|k| k["name"] == name), "{command}: {figures}");
        }
    }
}

#[test]
fn help_tells_the_fields_that_answers_have() {
    let store = Store::loaded(100);
    fs::metadata(store.path()).unwrap();
    for command in ["stats", "shape", "verify", "count", "size"] {
        let help = Said::from(drumlin([command, "--help"]).output().unwrap());
        for field in store.run(["--json", command]).json().as_object().unwrap().keys() {
            assert!(help.text().contains(&format!("\"{field}\"")), "{command}: {field} is not in the help");
        }
    }
}

#[test]
fn what_is_skipped_is_told_in_json() {
    let store = Store::new();
    let args = ["--json", "load", "-", "--format", "lines", "--skip-bad"];
    let said = store.feed(args, format!("a\n\nb\n{}", "\n".repeat(30)));
    let notes: Vec<serde_json::Value> = said
        .err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {said:?}")))
        .collect();
    assert_eq!(notes.len(), 11, "ten lines, and that there are more: {said:?}");
    assert_eq!(
        (&notes[0]["line"], &notes[1]["line"], &notes[10]["line"]),
        (&2.into(), &4.into(), &serde_json::Value::Null)
    );
    assert!(
        notes.iter().all(|note| note["note"].as_str().is_some_and(|text| text.contains("standard input")))
    );
    assert!(said.text().ends_with("{\"durable\":2,\"skipped\":31}\n"), "{said:?}");
    said.ok();
}

#[test]
fn help_tells_the_fields_that_inspect_has() {
    let store = Store::loaded(2000);
    store.run(["compact"]).ok();
    let db = drumlin::Db::open(store.path(), drumlin::Options::default()).unwrap();
    db.open_keyspace("default").unwrap().delete_range("a", "b").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    store.run(["put", "k", "v"]).ok();
    let mut seen = std::collections::BTreeSet::new();
    for (path, _) in store.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = match path.extension().and_then(|end| end.to_str()) {
            Some("tbl") => "table",
            Some("log") => "log",
            _ if name.starts_with("MANIFEST") => "manifest",
            _ => continue,
        };
        let help = Said::from(drumlin(["inspect", kind, "--help"]).output().unwrap());
        let file = path.to_str().unwrap();
        let mut args = vec!["--json", "inspect", kind, file, "--records"];
        args.extend((kind == "table").then_some("--blocks"));
        let said = Said::from(drumlin(args).output().unwrap());
        for line in said.text().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            seen.insert(line["what"].as_str().unwrap().to_string());
            each_field(&line, &mut |field| {
                let field = field.trim_end_matches("_hex");
                assert!(help.text().contains(&format!("\"{field}\"")), "{kind}: {field} is not in the help");
            });
        }
        said.ok();
    }
    let all = ["block", "edit", "gap", "log", "manifest", "record", "table", "version"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

/// The names of all members of an object, and of those in it.
fn each_field(value: &serde_json::Value, told: &mut dyn FnMut(&str)) {
    match value {
        serde_json::Value::Object(members) => members.iter().for_each(|(name, value)| {
            told(name);
            each_field(value, told);
        }),
        serde_json::Value::Array(items) => items.iter().for_each(|item| each_field(item, told)),
        _ => {}
    }
}
