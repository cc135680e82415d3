//! `tour`: runs whole, twice, leaves a store to explore, and replaces nothing that is not a tour's.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;

use support::Store;

#[test]
fn tour_runs_checks_itself_and_can_be_repeated() {
    let store = Store::new();
    // Its words are its result: only bars are hidden.
    let said = store.run(["--quiet", "tour"]);
    let text = said.text().to_string();
    for part in ["Load", "Ask", "snapshots", "SIGKILL", "sound", "shape", "Explore it", "--prefix FR/Saint-"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    said.ok();
    assert_eq!(store.run(["--keyspace", "cities", "count"]).ok(), b"170391\n");
    assert_eq!(store.run(["--keyspace", "population", "count"]).ok(), b"170391\n");
    let berlin = store.run(["--keyspace", "cities", "get", "DE/Berlin/2950159"]).ok();
    assert_eq!(berlin, b"DE/Berlin/2950159\tBerlin\tDE\t16\t52.52437\t13.41053\t3426354\tEurope/Berlin");
    store.run(["verify"]).ok();

    let said = store.run(["--json", "--quiet", "tour"]);
    assert_eq!(said.err, "");
    let figures: serde_json::Value = serde_json::from_slice(&said.ok()).unwrap();
    assert_eq!(figures["loaded"], 170_391);
    assert!(figures["recovered"].as_u64() >= figures["promised"].as_u64());
    assert!(
        figures["promised"].as_u64().unwrap() >= 68_000 && figures["recovered"].as_u64().unwrap() < 170_391
    );
    assert!(figures["snapshots"].as_u64().unwrap() >= 10 && figures["births"].as_u64().unwrap() >= 1000);
    store.run(["verify"]).ok();

    store.run(["put", "my notes", "are mine"]).ok();
    let said = store.run(["tour"]).fails(1);
    assert!(said.err.contains("left as it is") && said.err.contains("default"), "{said:?}");
    assert_eq!(store.run(["get", "my notes"]).ok(), b"are mine");
}

#[test]
fn tour_leaves_a_foreign_directory_as_it_is() {
    let store = Store::new();
    store.run(["put", "mine", "v"]).ok();
    let before = store.files();
    let said = store.run(["tour"]).fails(1);
    assert!(said.err.contains("not made by a tour"), "{said:?}");
    assert!(store.files() == before);
}

#[test]
fn tour_leaves_an_earlier_tour_that_is_in_use() {
    let store = Store::new();
    fs::create_dir(store.path()).unwrap();
    let mut loading = store.loading();
    loading.give("a\n");
    loading.promised(1);
    let marker = include_str!("../src/tour/marker.txt");
    fs::write(store.path().join("TOUR.txt"), marker).unwrap();
    store.run(["tour"]).fails(1);
    loading.kill();
    assert_eq!(store.run(["get", "a"]).ok(), b"");
}
