//! `tune`: a choice that can be pasted and measured, and what cannot be tuned is refused.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use serde_json::Value;
use support::Store;

#[test]
fn what_is_chosen_can_be_pasted() {
    let store = Store::new();
    let file = store.file("mine.json", r#"{"mix": {"put": 1, "get": 2, "scan": 0.2}, "scan": 5}"#);
    let svg = store.file("tradeoff.svg", "");
    std::fs::create_dir(store.path()).expect("a directory");
    let (file, svg) = (file.to_str().expect("text"), svg.to_str().expect("text"));
    let small = ["--num", "20000", "--memory", "16", "--minutes", "0.03"];
    let words = ["--json", "tune", "--workload", file, "--svg", svg];
    let said = store.run(words.into_iter().chain(small));
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<Value> =
        said.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (choice, trials) = lines.split_last().expect("there are some");
    assert!(trials.iter().all(|trial| trial["rate"].as_f64() > Some(0.0)), "{trials:?}");
    assert!(trials.iter().any(|trial| trial["candidate"] == choice["choice"]["candidate"]));
    assert!(choice["rust"].as_str().is_some_and(|text| text.starts_with("KeyspaceOptions")));
    assert_eq!(std::fs::read_dir(store.path()).expect("there").count(), 0, "what was made is gone");
    assert!(std::fs::read_to_string(svg).is_ok_and(|text| text.ends_with("</svg>\n")));
    assert_eq!(choice["bench"], Value::Null, "the bench does not know what is in a file");
}

#[test]
fn what_is_chosen_can_be_measured_as_it_was_told() {
    let store = Store::new();
    std::fs::create_dir(store.path()).expect("a directory");
    let small = ["--num", "20000", "--memory", "16", "--minutes", "0.03"];
    let other = ["--value-size", "40", "--compression", "none", "--durability", "memory", "--seed", "7"];
    let said = store.run(["tune", "--workload", "ycsba"].into_iter().chain(small).chain(other)).ok();
    let said = String::from_utf8(said).expect("text");
    let line = said.lines().last().expect("it says something");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[..2], ["drumlin", "bench"], "{line}");
    assert!(
        line.contains("--value-size 40 --compression-ratio 0.5 --compression none --durability memory"),
        "{line}"
    );
    let measured = String::from_utf8(Store::new().run(words[1..].iter().copied()).ok()).expect("text");
    assert!(measured.contains("ycsba"), "{measured}");
}

#[test]
fn what_needs_no_order_may_be_a_trie() {
    let store = Store::new();
    std::fs::create_dir(store.path()).expect("a directory");
    let small = ["--num", "20000", "--memory", "16", "--minutes", "0.03", "--grid", "0.05"];
    let candidates = |more: &[&'static str]| {
        let words = ["--json", "tune", "--workload", "mixget30"];
        let said = store.run(words.iter().chain(&small).chain(more).copied());
        assert_eq!(said.code, Some(0), "{said:?}");
        let grid: Value = serde_json::from_str(said.text().lines().last().expect("a grid")).expect("JSON");
        let of = |one: &Value| one["candidate"].as_str().expect("text").to_string();
        let rows = |name: &str| grid[name].as_array().expect("rows").iter().map(of).collect::<Vec<_>>();
        [rows("grid"), rows("others")].concat()
    };
    let tries = |all: &[String]| all.iter().filter(|of| of.contains("trie 8x5")).count();
    assert!(tries(&candidates(&["--unordered"])) >= 4);
    assert!(!candidates(&[]).iter().any(|of| of.contains("trie")), "nobody said that order is not needed");
}

#[test]
fn what_cannot_be_tuned_is_refused() {
    let store = Store::new();
    for (words, why) in [
        (vec!["--workload", "nothing"], "no workload"),
        (vec!["--workload", "recover"], "nothing to tune"),
        (vec!["--workload", "ycsba", "--key-size", "3"], "--key-size"),
        (vec!["--workload", "ycsba", "--memory", "1"], "--memory"),
        (vec!["--workload", "ycsba", "--compression-ratio", "7"], "--compression-ratio"),
        (vec!["--workload", "ycsbe", "--unordered"], "ycsbe has operations that need an order (scan)"),
    ] {
        let said = store.run(["tune"].into_iter().chain(words));
        assert!(said.fails(2).err.contains(why), "{why}");
    }
}
