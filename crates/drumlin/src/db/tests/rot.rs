//! Every byte of every file of a small store is damaged in turn: whatever is read is exactly right,
//! or an error that names the file.
//!
//! In the log, what lies above the last durable mark and does not fit into a sector cannot be told
//! from a write that a power loss cut short: there the log ends, and says how much is behind.
//!
//! The light form damages a sample; `DRUMLIN_ROT_STRIDE=1` damages every byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::within;
use super::workload::{keyspace_options, open};
use crate::dice::Dice;
use crate::env::{FileSystem, Keep, MemFs};
use crate::error::{Error, Result};
use crate::options::KeyspaceOptions;
use crate::{Db, Keyspace};

pub(super) type Records = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn quiet() -> KeyspaceOptions {
    // No compaction: what it would rewrite is what is to be read.
    KeyspaceOptions { level0_tables: 100, block_bytes: 256, ..keyspace_options() }
}

fn put(keyspace: &Keyspace, records: &mut Records, number: u64, value: &str) {
    let key = format!("key-{number:04}").into_bytes();
    keyspace.put(&key, value).expect("put");
    records.insert((keyspace.name().to_string(), key), value.as_bytes().to_vec());
}

/// A store with tables on two levels, range tombstones, and a log that is needed.
pub(super) fn build(fs: &Arc<MemFs>) -> (Db, Records) {
    let db = open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open");
    let mut records = Records::new();
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name, quiet()).expect("keyspace"));
    for round in 0..3u64 {
        for (keyspace, offset) in keyspaces.iter().zip([0, 1]) {
            for number in 0..12 {
                put(keyspace, &mut records, number * 2 + round + offset, &format!("value {round} {number}"));
            }
            keyspace.delete_range("key-0004", "key-0006").expect("delete_range");
            keyspace.delete("key-0009").expect("delete");
            let name = keyspace.name();
            records.retain(|(k, key), _| {
                k != name
                    || !(&b"key-0004"[..].to_vec() <= key && key < &b"key-0006".to_vec())
                        && key != b"key-0009"
            });
        }
        match round {
            0 => db.compact().expect("compact"),
            1 => db.flush().expect("flush"),
            _ => {}
        }
    }
    (db, records)
}

/// True if everything was read and is right; false if an error named the file. Panics on wrong data.
fn check(db: &Db, records: &Records, damaged: &Path, context: &str) -> bool {
    let mut sound = true;
    let mut blame = |what: &str, error: &Error| match error {
        Error::Corruption(c) => {
            assert_eq!(c.path, damaged, "{context}: {what}: {error}");
            sound = false;
        }
        other => panic!("{context}: {what}: {other:?}"),
    };
    for name in ["a", "b"] {
        let keyspace = db.open_keyspace(name).unwrap_or_else(|e| panic!("{context}: {e}"));
        for number in 0..30 {
            let key = format!("key-{number:04}").into_bytes();
            match keyspace.get(&key) {
                Ok(found) => {
                    let expected = records.get(&(name.to_string(), key)).map(Vec::as_slice);
                    assert_eq!(found.as_deref(), expected, "{context}: get of {name}/{number}");
                }
                Err(error) => blame("get", &error),
            }
        }
        let mut expected = records.iter().filter(|((k, _), _)| k == name);
        match keyspace.iter() {
            Err(error) => blame("scan", &error),
            Ok(scan) => {
                let mut ended_well = true;
                for record in scan {
                    match record {
                        Ok((key, value)) => {
                            let ((_, k), v) =
                                expected.next().unwrap_or_else(|| panic!("{context}: a stranger"));
                            assert_eq!((&key[..], &value[..]), (&k[..], &v[..]), "{context}: scan");
                        }
                        Err(error) => {
                            blame("scan", &error);
                            ended_well = false;
                            break;
                        }
                    }
                }
                assert!(!ended_well || expected.next().is_none(), "{context}: the scan of {name} ends early");
            }
        }
    }
    let report = db.verify(&mut |_| {}).unwrap_or_else(|e| panic!("{context}: verify: {e}"));
    for problem in &report.problems {
        assert_eq!(problem.path, damaged, "{context}: {problem}");
    }
    let is_table = damaged.extension().is_some_and(|e| e == "tbl");
    assert!(!is_table || !report.is_sound(), "{context}: verify does not see it");
    sound && report.is_sound()
}

/// Opens; an error must be a corruption of the damaged file.
fn open_damaged(fs: &Arc<MemFs>, damaged: &Path, context: &str) -> Option<Db> {
    let opened: Result<Db> = open(&(fs.clone() as Arc<dyn FileSystem>));
    match opened {
        Ok(db) => Some(db),
        Err(Error::Corruption(c)) => {
            assert_eq!(c.path, damaged, "{context}: {c}");
            None
        }
        Err(other) => panic!("{context}: {other:?}"),
    }
}

/// The bytes to damage, and how.
pub(super) fn places(fs: &Arc<MemFs>, stride: u64) -> Vec<(PathBuf, u64, u8)> {
    let mut dice = Dice(11);
    let mut places = Vec::new();
    for path in fs.files() {
        let bytes = fs.contents(&path).expect("it is there");
        // Of a log, what was never written is left out but for some of it.
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1).min(bytes.len());
        let small = bytes.len() < 300;
        let mut at = if small { 0 } else { dice.below(stride) };
        while at < (used + 64).min(bytes.len()) as u64 {
            places.push((path.clone(), at, 1 << dice.below(8)));
            at += if small || stride == 1 { 1 } else { 1 + dice.below(2 * stride - 1) };
        }
    }
    places
}

pub(super) fn stride() -> u64 {
    super::rounds("DRUMLIN_ROT_STRIDE").unwrap_or(4).max(1)
}

#[test]
fn a_damaged_byte_of_a_closed_store_is_found_or_harmless() {
    let fs = MemFs::new();
    let (db, records) = build(&fs);
    db.close().expect("close");
    // Removes the inputs of compactions whose last reader has not gone yet.
    open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open").close().expect("close");
    within(Duration::from_secs(600), "rot", || {
        let mut found = BTreeMap::<String, (u64, u64)>::new();
        for (path, at, mask) in places(&fs, stride()) {
            let context = format!("{} byte {at} mask {mask:02x}", path.display());
            // Whether the machine was switched off meanwhile makes no difference.
            let fs =
                if at % 2 == 0 { fs.process_crash_clone() } else { fs.crash_clone(&mut |_| Keep::Whole) };
            fs.damage(&path, at, mask).expect("it is there");
            let sound =
                open_damaged(&fs, &path, &context).is_some_and(|db| check(&db, &records, &path, &context));
            let kind =
                path.extension().or(path.file_stem()).unwrap_or_default().to_string_lossy().into_owned();
            let count = found.entry(kind).or_default();
            *(if sound { &mut count.1 } else { &mut count.0 }) += 1;
        }
        println!("found, harmless: {found:?}");
        assert_eq!(found["tbl"].1, 0, "every byte of a table counts");
        assert!(found["log"].0 > 10, "{found:?}");
        assert_eq!(found["CURRENT"].1 + found["STORE"].1, 0, "{found:?}");
    });
}

/// What is expected of a log with a damaged byte, if the store opens.
fn check_log(db: &Db, marked: u64, written: u64, same_boot: bool, context: &str) {
    let keyspace = db.open_keyspace("a").expect("keyspace");
    let missing: Vec<u64> = (0..written)
        .filter(|number| {
            let found = keyspace.get(format!("{number:04}")).unwrap_or_else(|e| panic!("{context}: {e}"));
            match found {
                Some(value) => assert_eq!(&value[..], format!("value {number}").as_bytes(), "{context}"),
                None => return true,
            }
            false
        })
        .collect();
    assert!(missing.iter().all(|n| *n >= marked), "{context}: {missing:?}, though {marked} were durable");
    assert!(!same_boot || missing.is_empty(), "{context}: {missing:?}: nothing is lost by a death alone");
    let first = missing.first().copied().unwrap_or(written);
    assert!(missing.iter().copied().eq(first..written), "{context}: {missing:?}: not a prefix");
    let behind = (missing.len() as u64).saturating_sub(1);
    assert_eq!(db.stats().recovery.dropped_writes, behind, "{context}: it says how many are behind");
}

#[test]
fn a_damaged_log_record_is_corruption_below_a_mark_and_a_torn_tail_above() {
    let fs = MemFs::new();
    let db = open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open");
    let keyspace = db.keyspace("a", quiet()).expect("keyspace");
    let (marked, written) = (20, 40);
    for number in 0..written {
        keyspace.put(format!("{number:04}"), format!("value {number}")).expect("put");
        if number + 1 == marked {
            db.persist().expect("persist");
        }
    }
    let dead = fs.process_crash_clone();
    drop((keyspace, db));
    within(Duration::from_secs(600), "rot", || {
        let (mut corrupt, mut torn) = (0, 0);
        for (path, at, mask) in places(&dead, stride().min(3)) {
            let is_log = path.extension().is_some_and(|e| e == "log");
            for same_boot in [true, false] {
                let context = format!("{} byte {at} mask {mask:02x} same boot {same_boot}", path.display());
                let fs = if same_boot {
                    dead.process_crash_clone()
                } else {
                    dead.crash_clone(&mut |_| Keep::Whole)
                };
                fs.damage(&path, at, mask).expect("it is there");
                let Some(db) = open_damaged(&fs, &path, &context) else {
                    corrupt += 1;
                    continue;
                };
                assert!(db.verify(&mut |_| {}).expect("verify").is_sound(), "{context}");
                check_log(&db, marked, if is_log { written } else { marked }, same_boot, &context);
                let last = db.open_keyspace("a").expect("keyspace").get(format!("{:04}", written - 1));
                torn += u32::from(last.expect("get").is_none());
            }
        }
        assert!(corrupt > 50, "only {corrupt}");
        assert!(torn > 5, "only {torn}");
    });
}
