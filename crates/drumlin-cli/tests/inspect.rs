//! `inspect`: a file alone is enough, what is wrong exits 3 with its offset, and what is right is shown all the same.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Said, Store, drumlin, lines};

/// A closed store with a table, and records that are in its log alone.
fn store() -> Store {
    let store = Store::loaded(3000);
    store.run(["compact"]).ok();
    store.feed(["load", "-", "--format", "lines"], "later\nlast\n").ok();
    store
}

fn file(store: &Store, part: &str) -> PathBuf {
    let files = store.files();
    files.into_keys().find(|path| path.to_string_lossy().contains(part)).unwrap()
}

fn kinds(store: &Store) -> [(&'static str, PathBuf); 3] {
    [("table", file(store, ".tbl")), ("log", file(store, ".log")), ("manifest", file(store, "MANIFEST-"))]
}

fn inspect(kind: &str, file: &Path, more: &[&str]) -> Said {
    let mut args = vec!["inspect", kind, file.to_str().unwrap()];
    args.extend(more);
    drumlin(args).output().unwrap().into()
}

fn objects(said: &Said) -> Vec<Value> {
    said.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn values_apart_are_shown_in_their_file_and_in_the_table_that_refers_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("db");
    let bench = "--num 100 --value-size 5000 --values-apart 4096 --compression none --compact --benchmarks fillrandom";
    let mut args = vec!["--db", db.to_str().unwrap(), "bench"];
    args.extend(bench.split(' '));
    Said::from(drumlin(args).output().unwrap()).ok();
    let named = |end: &str| {
        let entries = fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().ends_with(end)).collect::<Vec<_>>()
    };
    let (values, tables) = (named(".val"), named(".tbl"));
    assert!(!values.is_empty() && !tables.is_empty());
    let said = inspect("values", &values[0], &["--records", "--json"]);
    let found = objects(&said);
    let whole = found.last().unwrap();
    assert_eq!((&whole["what"], whole["records"].as_u64()), (&"values".into(), Some(found.len() as u64 - 1)));
    assert!(found.iter().any(|line| line["value_bytes"] == 5000), "{said:?}");
    assert!(inspect("values", &values[0], &[]).text().ends_with("sound: every checksum is right\n"));
    let said = inspect("table", &tables[0], &["--records", "--json"]);
    let number: u64 = values[0].file_name().unwrap().to_str().unwrap()[..8].parse().unwrap();
    let versions = objects(&said).into_iter().filter(|line| line["what"] == "version");
    let apart: Vec<Value> = versions.filter(|line| line["apart"]["file"] == number).collect();
    assert!(!apart.is_empty() && apart.iter().all(|line| line["value_bytes"] == 5000), "{said:?}");
    assert!(inspect("table", &tables[0], &["--records"]).text().contains("of value file"));
    Said::from(drumlin(["--db", db.to_str().unwrap(), "verify"]).output().unwrap()).ok();
    let mut bytes = fs::read(&values[0]).unwrap();
    bytes[100] ^= 1;
    fs::write(&values[0], bytes).unwrap();
    let said = inspect("values", &values[0], &[]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.text().contains("cannot be read"), "{said:?}");
}

#[test]
fn each_file_of_a_sound_store_is_shown_and_exits_0() {
    let store = store();
    for (kind, file) in kinds(&store) {
        let said = inspect(kind, &file, &[]);
        assert!(said.text().ends_with("sound: every checksum is right\n"), "{said:?}");
        assert!(said.text().contains(file.to_str().unwrap()), "{said:?}");
        said.ok();
    }
    let (_, table) = &kinds(&store)[0];
    let said = inspect("table", table, &["--blocks", "--records", "--json"]);
    let found = objects(&said);
    let keys: Vec<String> = found
        .iter()
        .filter(|line| line["what"] == "version")
        .map(|line| line["key"].as_str().unwrap().to_string())
        .collect();
    let truth: Vec<String> =
        lines(3000).lines().map(|line| line.split('\t').next().unwrap().to_string()).collect();
    assert_eq!(keys, truth);
    let whole = found.last().unwrap();
    let blocks = found.iter().filter(|line| line["what"] == "block").count();
    assert_eq!((&whole["data"]["versions"], &whole["data"]["blocks"]), (&3000.into(), &blocks.into()));
    assert!(whole["filter"]["false_positives"].as_f64().unwrap() < 0.02, "{whole}");
    let (_, log) = &kinds(&store)[1];
    let said = inspect("log", log, &["--records"]);
    for part in ["put later,", "put last,", "close", "the session was closed here"] {
        assert!(said.text().contains(part), "{part}: {said:?}");
    }
    let (_, manifest) = &kinds(&store)[2];
    let said = inspect("manifest", manifest, &["--json"]);
    let state = &objects(&said).pop().unwrap()["state"];
    assert_eq!(state["keyspaces"][0]["levels"][1][0]["entries"], 3000, "{state}");
}

/// The keys of a trie stand behind their hashes, which are told where keys would say nothing.
#[test]
fn a_trie_is_shown_by_its_hashes_and_with_its_options() {
    let store = Store::new();
    store.feed(["load", "-", "--format", "lines", "--layout", "trie"], lines(3000)).ok();
    store.run(["compact"]).ok();
    let [(_, table), _, (_, manifest)] = &kinds(&store);
    let said = inspect("table", table, &["--records", "--limit", "1"]);
    assert!(said.text().contains(" put     line-"), "{said:?}");
    let of_table: String = said.text().lines().filter(|line| line.contains("holds")).collect();
    let (_, hashes) = of_table.split_once(", hashes ").expect(&of_table);
    let (smallest, largest) = hashes.split_once(" to ").expect(hashes);
    let [smallest, largest] = [smallest, largest].map(|hash| u64::from_str_radix(hash, 16).expect(hash));
    assert!(smallest < largest, "{hashes}");
    let said = inspect("manifest", manifest, &["--records"]);
    assert!(said.text().contains(": trie (5 levels, 8 runs a container), "), "{said:?}");
    assert!(said.text().contains(&format!(", hashes {hashes}")), "{said:?}");
    let said = inspect("manifest", manifest, &["--json"]);
    let keyspaces = &objects(&said).pop().unwrap()["state"]["keyspaces"];
    let options = &keyspaces[0]["options"];
    assert_eq!(
        (&options["layout"]["kind"], &options["block_bytes"]),
        (&"trie".into(), &4096.into()),
        "{options}"
    );
}

#[test]
fn keys_are_in_hexadecimal_if_asked_and_pieces_end_at_the_limit() {
    let store = store();
    let (_, table) = &kinds(&store)[0];
    let said = inspect("table", table, &["--records", "--hex", "--limit", "2"]);
    let first: String = b"line-000000".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(said.text().contains(&first) && !said.text().contains("line-0"), "{said:?}");
    assert!(said.text().contains("... 2,998 more"), "{said:?}");
    let said = inspect("table", table, &["--records", "--hex", "--limit", "2", "--json"]);
    let found = objects(&said);
    assert_eq!((found.len(), &found[0]["key_hex"]), (3, &first.into()));
}

#[test]
fn a_damaged_byte_exits_3_with_its_offset_and_the_rest_is_shown() {
    let store = store();
    for (kind, file) in kinds(&store) {
        let whole = fs::read(&file).unwrap();
        // In a block; in a record; in an edit.
        let place = match kind {
            "table" => whole.len() / 3,
            "log" => 4096 + 20,
            _ => 100,
        };
        let mut rotten = whole.clone();
        rotten[place] ^= 0x10;
        fs::write(&file, &rotten).unwrap();
        let said = inspect(kind, &file, &["--json", "--records"]).fails(3);
        assert_eq!(said.error().0, "corruption");
        let found = objects(&said);
        let problem = &found.last().unwrap()["problems"][0];
        let offset = problem["offset"].as_u64().unwrap() as usize;
        assert!(offset <= place && place < offset + 8192, "{kind}: {problem}");
        assert!(problem["file"].as_str().unwrap().ends_with(file.file_name().unwrap().to_str().unwrap()));
        assert!(found.len() > 2, "{kind}: what is right is shown: {said:?}");
        let said = inspect(kind, &file, &[]).fails(3);
        assert!(said.text().contains(&format!("block at byte {offset}: ")), "{said:?}");
        fs::write(&file, &whole).unwrap();
    }
}

/// Bytes flipped and ends cut off all over: never a panic, never a wrong exit, and never content about what `verify` finds.
#[test]
fn no_bytes_are_too_wrong_to_be_looked_at() {
    let store = store();
    for (kind, file) in kinds(&store) {
        let whole = fs::read(&file).unwrap();
        let spots = (0..whole.len())
            .step_by(1 + whole.len() / 25)
            .chain(0..4)
            .chain(whole.len() - 64..whole.len() - 60);
        for place in spots {
            let mut rotten = whole.clone();
            rotten[place] ^= 0x81;
            let cut = whole[..place].to_vec();
            for (bytes, how) in [(rotten, "flipped"), (cut, "cut")] {
                fs::write(&file, &bytes).unwrap();
                let said = inspect(kind, &file, &[]);
                if said.code != Some(0) {
                    said.fails(3);
                } else if kind == "table" {
                    panic!("byte {place} {how}, and the table is called sound");
                }
            }
        }
        fs::write(&file, &whole).unwrap();
    }
    for kind in ["table", "log", "manifest"] {
        for bytes in [&b""[..], b"no file of a store", &[0xff; 9000]] {
            let stranger = store.file("stranger", bytes);
            inspect(kind, &stranger, &[]).fails(3);
        }
        let said = inspect(kind, Path::new("/no/such/file"), &["--json"]).fails(1);
        assert_eq!(said.error().0, "io", "{kind}");
    }
}

#[test]
fn a_file_alone_is_enough_or_what_is_lacking_is_told() {
    let store = store();
    for (kind, file) in kinds(&store) {
        let alone = store.file(file.file_name().unwrap().to_str().unwrap(), fs::read(&file).unwrap());
        let said = inspect(kind, &alone, &[]);
        if kind == "table" {
            said.ok();
            continue;
        }
        let said = said.fails(1);
        assert!(said.text().contains("not checked: ") && said.text().contains("STORE"), "{said:?}");
        // With the store named, all of it can be checked.
        store.run(["inspect", kind, alone.to_str().unwrap()]).ok();
    }
}

#[test]
fn what_a_kill_leaves_is_no_damage() {
    let store = Store::new();
    store.load_and_kill(&["a", "b", "c"]);
    let said = inspect("log", &file(&store, ".log"), &["--records"]);
    assert!(said.text().contains("put c,") && said.text().contains("nothing was written here"), "{said:?}");
    said.ok();
}

#[test]
fn a_file_of_another_kind_is_not_called_corrupt() {
    let store = store();
    for (kind, path) in kinds(&store) {
        for (other, _) in kinds(&store).into_iter().filter(|(other, _)| *other != kind) {
            let said = inspect(other, &path, &[]);
            assert_eq!(said.code, Some(2), "{said:?}");
            assert!(said.err.contains(&format!("drumlin inspect {kind} ")), "{said:?}");
        }
    }
}
