//! `stats`, `shape` and `compact`: what they tell is true of the store, and has units.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use drumlin::KeyspaceOptions;
use support::Store;

#[test]
fn stats_tell_what_is_true_of_the_store_and_not_what_a_fresh_process_has_not_done() {
    let store = Store::loaded(2000);
    let said = store.run(["stats"]);
    assert!(said.text().contains("2,000 versions"), "{said:?}");
    store.run(["compact"]).ok();
    let said = store.run(["stats"]);
    let text = said.text();
    for part in ["1 table,", "2,000 versions", "KiB", "0 versions", "log "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for of_tables in ["keys                about 2,000", "bytes of files for each that is alive"] {
        assert!(text.contains(of_tables), "{of_tables}: {text}");
    }
    for since_open in ["flush", "cache", "stall", "budget", "snapshot", "longest"] {
        assert!(!text.contains(since_open), "{since_open} says nothing of the store: {text}");
    }
    let defaults = KeyspaceOptions::default();
    for (name, form) in [("memory", defaults.memory.to_string()), ("layout", defaults.layout.to_string())] {
        assert!(text.contains(&format!("  {name:<20}{form}\n")), "{name} {form}: {text}");
    }
    let figures = store.run(["--json", "stats"]).json();
    assert_eq!((&figures["tables"], &figures["keyspaces"][0]["name"]), (&1.into(), &"default".into()));
    for form in ["memory", "layout"] {
        assert!(figures["keyspaces"][0][form]["kind"].is_string(), "{figures}");
    }
    let bytes = |name: &str| figures[name].as_u64().unwrap();
    assert!(bytes("table_bytes") > 1000 && bytes("log_files") > 0, "{figures}");
    assert!(
        figures["space_amplification"].as_f64().is_some_and(|space| space > 0.1 && space < 3.0),
        "{figures}"
    );
    assert_eq!(
        (&figures["keyspaces"][0]["keys"], &figures["process"]["latencies"]),
        (&2000.into(), &serde_json::json!([]))
    );
    for since_open in ["flushes", "cache_bytes", "stalls"] {
        assert!(figures.get(since_open).is_none() && figures["process"][since_open].is_u64(), "{figures}");
    }
}

#[test]
fn stats_tell_that_a_killed_store_has_records_in_the_log_alone() {
    let store = Store::new();
    store.load_and_kill(&["a", "b", "c"]);
    let said = store.run(["stats"]);
    assert!(
        said.text().lines().any(|l| l.contains("only in the log") && l.ends_with(" 3 versions")),
        "{said:?}"
    );
}

#[test]
fn the_drawing_has_bars_units_and_a_legend() {
    let store = Store::loaded(20_000);
    let before = store.run(["shape"]);
    let bar = |text: &str, row: &str| -> usize {
        let line = text.lines().find(|l| l.trim_start().starts_with(row)).unwrap_or_else(|| panic!("{text}"));
        line.chars().filter(|c| *c == '█').count()
    };
    assert_eq!(bar(before.text(), "memory "), 40, "{before:?}");
    let compacted = store.run(["compact"]);
    let shape = store.run(["shape"]);
    assert_eq!(compacted.text(), shape.text());
    assert_eq!((bar(shape.text(), "memory "), bar(shape.text(), "L1 ")), (0, 40), "{shape:?}");
    for part in ["KiB", "1 table,", "20,000 versions", "The longest bar is", "A version is one write"] {
        assert!(shape.text().contains(part), "{part}: {shape:?}");
    }
}

#[test]
fn one_is_singular_everywhere() {
    let store = Store::new();
    store.run(["put", "k", "v"]).ok();
    store.run(["compact"]).ok();
    store.run(["--keyspace", "b", "put", "k", "v"]).ok();
    let mut said = String::new();
    for command in ["stats", "shape", "verify", "compact"] {
        said.push_str(store.run([command]).text());
    }
    let words: Vec<&str> = said.split_whitespace().collect();
    for pair in words.windows(2) {
        let plural = ["tables", "versions", "files", "records"].iter().any(|noun| pair[1].starts_with(noun));
        assert!(pair[0] != "1" || !plural, "{pair:?}: {said}");
    }
    let said = store.feed(["load", "-", "--format", "lines"], "a\n");
    assert!(said.text().starts_with("loaded 1 record ("), "{said:?}");
}

/// Verify counted segments alone and the tables with them, `stats` all that lay beside the log: after a kill the two
/// told of different numbers of files, by the ballast. (Segments that are no longer needed are not read; a closed store
/// has none.)
#[test]
fn verify_and_stats_count_alike() {
    let store = Store::loaded(20_000);
    store.run(["compact"]).ok();
    // As a kill may leave it.
    std::fs::write(store.path().join("log/ballast.tmp"), [0; 5000]).unwrap();
    let (stats, verified) = (store.run(["--json", "stats"]).json(), store.run(["--json", "verify"]).json());
    for figure in ["tables", "log_files"] {
        assert!(
            stats[figure].as_u64().unwrap() > 0 && stats[figure] == verified[figure],
            "{figure}: {stats} {verified}"
        );
    }
    let sum = stats["table_bytes"].as_u64().unwrap() + stats["log_bytes"].as_u64().unwrap();
    assert_eq!(verified["bytes"], sum, "{stats} {verified}");
    let in_log = |ending: &str| -> u64 {
        let files = store.files();
        files.iter().filter(|(p, _)| p.to_string_lossy().ends_with(ending)).map(|(_, b)| b.len() as u64).sum()
    };
    assert_eq!(stats["log_bytes"], in_log(".log"));
    assert_eq!(stats["ballast_bytes"], 5000);
    let said = store.run(["stats"]);
    assert!(said.text().contains("  ballast "), "{said:?}");
    assert!(said.text().contains("1 table,"), "{said:?}");
    let verified = store.run(["verify"]);
    assert!(verified.text().contains("1 table and 1 log file ("), "{verified:?}");
}

#[test]
fn a_version_is_called_so_in_every_output() {
    let store = Store::loaded(2000);
    store.run(["compact"]).ok();
    for args in [&["stats"][..], &["shape"], &["--json", "stats"], &["--json", "shape"], &["stats", "--help"]]
    {
        let said = store.run(args);
        assert!(said.text().contains("versions") && !said.text().contains("entries"), "{said:?}");
    }
    let figures = store.run(["--json", "stats"]).json();
    assert_eq!(figures["keyspaces"][0]["levels"][1]["versions"], 2000);
    assert_eq!(figures["keyspaces"][0]["memtable_versions"], 0);
}

/// Names and keys with all that XML and text can trip over; level 0 with tables over each other, and a level below.
#[test]
fn the_picture_is_xml_with_every_table() {
    let store = Store::new();
    let options = drumlin::Options { segment_bytes: 64 << 10, ..Default::default() };
    let small = drumlin::KeyspaceOptions {
        table_bytes: 16 << 10,
        level0_tables: 50,
        compression: drumlin::Compression::None,
        ..Default::default()
    };
    let db = drumlin::Db::open(store.path(), options).unwrap();
    let keyspace = db.keyspace("<a> & \"b\" '\u{e9}\u{ffff}", small).unwrap();
    let key = |n: u32| [&b"\x00<&\xff\x1b]]>"[..], format!("{n:05}").as_bytes()].concat();
    (0..5000).for_each(|n| keyspace.put(key(n), format!("{n:020}")).unwrap());
    keyspace.compact().unwrap();
    for round in 0..4 {
        (0..600).for_each(|n| keyspace.put(key(n * (round + 1)), "x").unwrap());
        (0..100).for_each(|n| keyspace.delete(key(n * 7)).unwrap());
        db.flush().unwrap();
    }
    keyspace.put(key(1), "in memory").unwrap();
    db.keyspace("empty", Default::default()).unwrap();
    let levels = keyspace.levels().unwrap();
    assert!(levels[0].tables.len() == 4 && levels[1].tables.len() > 1, "{levels:?}");
    let mut ids: Vec<u64> = levels.iter().flat_map(|level| &level.tables).map(|table| table.id).collect();
    drop(keyspace);
    db.close().unwrap();
    let file = store.file("tree.svg", "");
    let said = store.run(["shape", "--svg", file.to_str().unwrap()]);
    assert!(said.text().starts_with(&format!("drew {} tables into ", ids.len())), "{said:?}");
    said.ok();
    let svg = std::fs::read_to_string(&file).unwrap();
    let xml = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
    let mut drawn: Vec<u64> =
        xml.descendants().filter_map(|node| node.attribute("data-table")?.parse().ok()).collect();
    ids.sort_unstable();
    drawn.sort_unstable();
    assert_eq!(drawn, ids);
    // Every box lies within the picture, and those of one level below level 0 beside each other.
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    };
    let width = number(&xml.root_element(), "width");
    for rect in xml.descendants().filter(|node| node.has_tag_name("rect") && node.attribute("x").is_some()) {
        let (x, wide) = (number(&rect, "x"), number(&rect, "width"));
        assert!(x >= 0.0 && wide > 0.0 && x + wide <= width, "{rect:?}");
    }
    for name in ["<a> & \"b\" '", "empty", "score"] {
        let found = xml.descendants().any(|node| node.text().is_some_and(|text| text.contains(name)));
        assert!(found, "{name}");
    }
    let said = store.run(["shape", "--svg", "-"]);
    assert_eq!(said.text(), svg);
    store.run(["--json", "shape", "--svg", "/no/such/directory/t.svg"]).fails(1);
}
