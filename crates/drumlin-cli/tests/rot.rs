//! Flipped bits in any file: found and named with exit code 3, or harmless; never a wrong answer.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use support::{Said, Store, lines};

/// Flips bits of every file in turn: at its beginning, where headers are, and spread over the rest.
fn flip_everywhere(store: &Store) {
    let truth = store.run(["scan"]).ok();
    let mut found = 0;
    for (path, bytes) in store.files() {
        if path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let places =
            (0..bytes.len()).step_by(5).take(20).chain((100..bytes.len()).step_by(1 + bytes.len() / 15));
        for place in places {
            let mut rotten = bytes.clone();
            rotten[place] ^= 1 << (place % 8);
            fs::write(&path, &rotten).unwrap();
            let verified = store.run(["verify"]);
            let scanned = store.run(["scan"]);
            if verified.code == Some(0) {
                assert!(
                    scanned.out == truth,
                    "{name} byte {place}: verify is content, and scan gives another answer"
                );
                scanned.ok();
                continue;
            }
            found += 1;
            let verified = verified.fails(3);
            let said = format!("{}{}", verified.text(), verified.err);
            assert!(said.contains(&name), "{name} byte {place} is not named: {said}");
            // A scan may not need the rotten bytes; if it does, it says so, behind what is right.
            assert!(truth.starts_with(&scanned.out), "{name} byte {place}: a wrong answer");
            if scanned.code != Some(0) {
                scanned.fails(3);
            } else {
                assert!(scanned.out == truth, "{name} byte {place}: an answer cut short");
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(found > 20, "only {found} flips were found at all");
    assert_eq!(store.run(["scan"]).ok(), truth);
}

#[test]
fn rot_in_any_file_of_a_closed_store_is_found_or_harmless() {
    let store = Store::loaded(3000);
    store.run(["compact"]).ok();
    store.feed(["load", "-", "--format", "lines"], "later\nlast\n").ok();
    flip_everywhere(&store);
}

#[test]
fn rot_in_a_table_is_named_with_file_and_block_and_exits_3() {
    let store = Store::loaded(20_000);
    store.run(["compact"]).ok();
    let file = store.rot(".tbl").expect("compacting makes a table");
    let said = store.run(["verify"]).fails(3);
    let line = said.text().lines().next().unwrap();
    assert!(line.contains(&file) && line.contains("block at byte "), "{said:?}");
    let said = store.run(["--json", "verify"]).fails(3);
    let report: serde_json::Value = serde_json::from_slice(&said.out).unwrap();
    assert_eq!(report["sound"], false);
    assert!(report["problems"][0]["file"].as_str().unwrap().ends_with(&file), "{report}");
    assert!(report["problems"][0]["offset"].is_u64(), "{report}");
    for command in [&["scan"][..], &["count"]] {
        let said = store.run(command).fails(3);
        assert!(said.err.contains(&file), "{command:?}: {said:?}");
    }
}

#[test]
fn a_get_that_meets_rot_exits_3() {
    let store = Store::loaded(20_000);
    store.run(["compact"]).ok();
    store.rot(".tbl").unwrap();
    let mut rotten = 0;
    for i in (0..20_000).step_by(199) {
        let said = store.run(["get", &format!("line-{i:06}")]);
        match said.code {
            Some(0) => assert_eq!(said.text(), lines(i + 1).lines().last().unwrap()),
            _ => {
                said.fails(3);
                rotten += 1;
            }
        }
    }
    // The rotten block may lie between two of these keys; what never happens is a wrong answer.
    assert!(rotten < 50, "one flipped bit may cost one block, not {rotten} of 101 keys");
}

/// Regression: a table that was gone made a get fail with 1, as if the system had failed; a log that
/// was gone made the store smaller, and `verify` called it sound.
#[test]
fn a_file_that_is_gone_is_named_and_exits_3() {
    let store = Store::loaded(20_000);
    store.feed(["load", "-", "--format", "lines"], "later\nlast\n").ok();
    let log: Vec<_> =
        store.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")).collect();
    assert!(!log.is_empty());
    log.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    for command in [&["verify"][..], &["count"], &["scan"]] {
        let said = store.run(command).fails(3);
        assert!(format!("{}{}", said.text(), said.err).contains(".log"), "{command:?}: {said:?}");
    }
    log.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    store.run(["compact"]).ok();
    let (table, _) = store
        .files()
        .into_iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "tbl"))
        .expect("compacting makes a table");
    fs::remove_file(&table).unwrap();
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    for command in [&["verify"][..], &["count"], &["scan"]] {
        let said = store.run(command).fails(3);
        assert!(format!("{}{}", said.text(), said.err).contains(&name), "{command:?}: {said:?}");
    }
}

/// Regression: the place at which opening ended was all that was told, and what it said of files and bytes was 0.
#[test]
fn a_store_that_cannot_be_opened_has_all_its_corrupt_files_named() {
    let store = Store::loaded(20_000);
    store.run(["compact"]).ok();
    let names = store.files().into_keys().filter_map(|path| Some(path.file_name()?.to_str()?.to_string()));
    let manifest = names.into_iter().find(|name| name.starts_with("MANIFEST-")).unwrap();
    let files = [store.rot(".tbl").unwrap(), store.rot(&manifest).unwrap()];
    let said = store.run(["verify"]).fails(3);
    for file in &files {
        let named = said.text().lines().any(|line| line.starts_with("corrupt: ") && line.contains(file));
        assert!(named, "{file}: {said:?}");
    }
    let told = |start: &str| said.text().lines().any(|line| line.starts_with(start));
    assert!(told("not checked: the manifest") && told("checked: ") && !told("sound"), "{said:?}");
    assert!(said.err.contains("2 corrupt places"), "{said:?}");
    let said = store.run(["--json", "verify"]).fails(3);
    let report: serde_json::Value = serde_json::from_slice(&said.out).unwrap();
    assert_eq!((&report["sound"], report["problems"].as_array().unwrap().len()), (&false.into(), 2));
    assert!(
        report["files"].as_u64().unwrap() >= 2 && report["bytes"].as_u64().unwrap() > 100_000,
        "{report}"
    );
    assert!(report["unchecked"][0].as_str().unwrap().contains("manifest"), "{report}");
}

/// A store in which merges are small and frequent, with one table in which a bit is flipped. Gives that table's name.
fn busy_and_rotten(store: &Store) -> String {
    let options = drumlin::Options { segment_bytes: 64 << 10, ..Default::default() };
    let small = drumlin::KeyspaceOptions {
        memtable_bytes: Some(64 << 10),
        table_bytes: 32 << 10,
        level0_tables: 2,
        ..Default::default()
    };
    let db = drumlin::Db::open(store.path(), options).unwrap();
    let keyspace = db.keyspace("default", small).unwrap();
    (0..2000).for_each(|i| keyspace.put(format!("line-{i:06}"), "x").unwrap());
    db.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    store.rot(".tbl").unwrap()
}

/// Records that a load puts beside the merges: a dozen memtables' worth.
const BESIDE: usize = 20_000;

/// Loads records, waits until the merges beside the load have come as far as they can, and only then gives it `last` and the
/// end of its input: by then one has met the rot, unless the machine was busy with other things. What the load said.
fn load_beside_rot(store: &Store, last: &str, code: i32) -> Said {
    for _ in 0..3 {
        let mut child = store.start(["load", "-", "--format", "tsv", "--key", "1", "--no-header"]);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(lines(BESIDE).as_bytes()).unwrap();
        wait_for_quiet(store);
        stdin.write_all(last.as_bytes()).unwrap();
        drop(stdin);
        let said: Said = child.wait_with_output().unwrap().into();
        if said.code == Some(3) {
            return said.fails(3);
        }
        assert_eq!(said.code, Some(code), "{said:?}");
    }
    panic!("no merge meets the rot, or nobody says so");
}

/// Waits until no table comes or goes.
fn wait_for_quiet(store: &Store) {
    let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "tbl");
    let names = || -> Vec<_> {
        let listed = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> = listed.filter(is_table).collect();
        names.sort();
        names
    };
    let (began, mut quiet_since, mut seen) = (Instant::now(), Instant::now(), names());
    while quiet_since.elapsed() < Duration::from_millis(400) && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
        let now = names();
        if now != seen {
            (quiet_since, seen) = (Instant::now(), now);
        }
    }
}

#[test]
fn a_load_whose_merges_meet_rot_exits_3_and_all_of_it_is_there() {
    let store = Store::new();
    let file = busy_and_rotten(&store);
    let said = load_beside_rot(&store, "zzz\tlast\n", 0);
    let told: Vec<&str> = said.err.lines().filter(|line| line.contains("corruption")).collect();
    assert_eq!(told.len(), 1, "{said:?}");
    assert!(told[0].contains(&file) && told[0].contains("at byte "), "{said:?}");
    assert_eq!(store.run(["get", "zzz"]).ok(), b"zzz\tlast");
    let end = lines(BESIDE);
    let (key, _) = end.trim_end().lines().last().unwrap().split_once('\t').unwrap();
    assert_eq!(store.run(["get", key]).ok(), end.trim_end().lines().last().unwrap().as_bytes());
}

#[test]
fn a_load_that_stops_for_another_reason_does_not_hide_the_rot() {
    let store = Store::new();
    let file = busy_and_rotten(&store);
    let said = load_beside_rot(&store, "\tno key\n", 1);
    let line = format!("line {}", BESIDE + 1);
    assert!(said.err.contains(&file) && said.err.contains(&line), "{said:?}");
}
