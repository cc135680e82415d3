//! `simulate`: what is foretold hangs together, and what cannot be is refused.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use serde_json::Value;
use support::{Said, Store, drumlin};

/// The rows of a simulation.
fn rows(store: &Store, arguments: &[&str]) -> Vec<Value> {
    let all = ["--json", "simulate"].iter().chain(arguments);
    let said = store.run(all.copied());
    said.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_simulation_tells_rows_that_hang_together() {
    let store = Store::new();
    let rows = rows(&store, &["--layout", "lazy-leveled", "--records", "50000000", "--keys", "10000000"]);
    assert!(rows.len() >= 5, "{rows:?}");
    for pair in rows.windows(2) {
        assert!(pair[0]["puts"].as_u64() < pair[1]["puts"].as_u64());
    }
    let last = rows.last().expect("there is one");
    let figure = |name: &str| last[name].as_f64().expect(name);
    assert!(figure("puts") >= 5e7);
    assert!((1.0..9.0).contains(&figure("write_amplification")), "{last}");
    assert!((1.0..1.7).contains(&figure("space_amplification")), "{last}");
    assert!((1.0..1.5).contains(&figure("reads_per_get")) && figure("reads_per_miss") < 0.3, "{last}");
    let levels = last["levels"].as_array().expect("levels");
    let entries: u64 = levels.iter().filter_map(|level| level["entries"].as_u64()).sum();
    assert!((10_000_000..16_000_000).contains(&entries), "{last}");
    assert_eq!(levels.last().map(|level| &level["level"]), Some(&63.into()));
}

#[test]
fn a_simulation_is_drawn() {
    let store = Store::new();
    let svg = store.file("course.svg", "");
    let svg = svg.to_str().expect("text");
    let said = store.run(["simulate", "--records", "5000000", "--ascending", "--svg", svg]);
    let text = said.text();
    let drawn = std::fs::read_to_string(svg).expect("it is there");
    let document = roxmltree::Document::parse(&drawn).expect("XML");
    let lines: Vec<_> = document.descendants().filter(|node| node.has_tag_name("polyline")).collect();
    let points = lines[0].attribute("points").map(|points| points.split(' ').count());
    assert!(lines.len() == 4 && points > Some(5), "{drawn}");
    assert!(text.contains("largest merge") && text.contains('█') && text.contains(" tables"), "{text}");
}

#[test]
fn a_real_store_is_as_it_was_foretold() {
    let run = |arguments: &[&str]| -> Said { drumlin(arguments).output().expect("starts").into() };
    for layout in ["leveled", "tiered", "lazy-leveled"] {
        let small = ["--records", "400000", "--memory", "32", "--table-size", "2097152", "--real"];
        let level1: &[&str] = if layout == "leveled" { &["--level1", "16"] } else { &[] };
        let said = run(&[&["--json", "simulate", "--layout", layout], &small[..], level1].concat());
        let last: Value = serde_json::from_str(said.text().lines().last().expect("a line")).expect("JSON");
        let real = &last["real"];
        let differs = |name: &str| real["differs"][name].as_f64().expect(name).abs();
        assert!(real["write_amplification"].as_f64().is_some_and(|written| written > 1.0), "{real}");
        assert!(
            differs("written") < 0.25 && differs("bytes") < 0.2 && differs("shape") < 0.2,
            "{layout}: {real}"
        );
    }
    let said = run(&["simulate", "--records", "400000", "--memory", "32", "--ascending", "--real"]);
    assert!(said.text().contains("A real store, filled likewise: written 1."), "{said:?}");
}

#[test]
fn what_no_store_can_have_is_wrong_usage() {
    let store = Store::new();
    for wrong in [["--runs", "1"], ["--percent", "0"], ["--table-size", "99999999999999"], ["--memory", "0"]]
    {
        let said =
            store.run(["simulate", "--layout", "tiered", "--records", "10"].iter().chain(&wrong).copied());
        assert_eq!(said.code, Some(2), "{wrong:?}: {said:?}");
    }
    for (layout, flag) in [
        ("leveled", ["--runs", "3"]),
        ("tiered", ["--level-ratio", "5"]),
        ("lazy-leveled", ["--level1", "64"]),
        ("trie", ["--level0", "8"]),
        ("trie", ["--key-size", "0"]),
    ] {
        let said =
            store.run(["simulate", "--records", "10", "--layout", layout].iter().chain(&flag).copied());
        assert_eq!(said.code, Some(2), "{layout} {flag:?}: {said:?}");
    }
    let said = store.run(["--keyspace", "k", "simulate"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn filters_that_memory_does_not_hold_are_remarked_on() {
    let store = Store::new();
    let simulated = |memory: &str| {
        let asked = ["simulate", "--layout", "trie", "--records", "20000000", "--memory", memory];
        store.run(asked).err
    };
    assert!(simulated("64").contains("the filters take"), "{}", simulated("64"));
    assert_eq!(simulated("1024"), "");
}
