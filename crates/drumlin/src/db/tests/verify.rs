//! A verification names every corrupt place that it can reach, and says what it could not reach, whether the store
//! opens or not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::rot::{build, places, stride};
use super::within;
use super::workload::{STORE, open, options};
use crate::Db;
use crate::db::verify::{VerifyReport, verify_directory};
use crate::dice::Dice;
use crate::env::{Env, FileSystem, MemFs};
use crate::options::Options;

/// A closed store with several tables and a log that is needed.
fn closed() -> Arc<MemFs> {
    let fs = MemFs::new();
    build(&fs).0.close().expect("close");
    // Removes the inputs of compactions whose last reader has not gone yet.
    open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open").close().expect("close");
    fs
}

fn verify(fs: &Arc<MemFs>) -> VerifyReport {
    verify_directory(Env::with_fs(fs.clone()), Path::new(STORE), options(), &mut |_| {})
        .expect("it goes on to the end")
}

fn files(fs: &MemFs, part: &str) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
}

fn damage(fs: &MemFs, path: &Path, at: u64) {
    fs.damage(path, at, 1).expect("it is there");
}

fn named(report: &VerifyReport) -> BTreeSet<&Path> {
    report.problems.iter().map(|problem| problem.path.as_path()).collect()
}

fn expect(what: &str, report: &VerifyReport, paths: &[&Path], unchecked: &[&str]) {
    assert_eq!(named(report), paths.iter().copied().collect(), "{what}: {report:?}");
    assert_eq!(report.unchecked.len(), unchecked.len(), "{what}: {report:?}");
    for (said, expected) in report.unchecked.iter().zip(unchecked) {
        assert!(said.contains(expected), "{what}: {said} does not say {expected}");
    }
    assert!(!report.is_sound(), "{what}");
}

/// Regression: a store that could not be opened was reported with the one place that opening had come to, as if all else
/// were sound.
#[test]
fn each_corrupt_file_is_named_though_the_store_cannot_be_opened() {
    let sound = closed();
    let whole = verify(&sound);
    assert!(whole.is_sound(), "{whole:?}");
    let on_disk: u64 = whole.bytes;
    let tables = files(&sound, ".tbl");
    let [store, current, manifest] =
        ["STORE", "CURRENT", "MANIFEST"].map(|name| files(&sound, name).remove(0));
    assert!(tables.len() >= 4, "{tables:?}");
    let footer = |path: &Path| sound.contents(path).expect("there").len() as u64 - 20;
    let at_record = |log: &PathBuf| {
        let bytes = sound.contents(log).expect("there");
        bytes.windows(7).position(|at| at == b"value 2").map(|at| (log.clone(), at as u64))
    };
    let (log, record) = files(&sound, ".log").iter().find_map(at_record).expect("a log with records");
    let last_edit = sound.contents(&manifest).expect("there").len() as u64 / 2;

    let fs = sound.process_crash_clone();
    damage(&fs, &log, record);
    damage(&fs, &tables[0], 10);
    damage(&fs, &tables[1], footer(&tables[1]));
    let report = verify(&fs);
    expect("a record", &report, &[&log, &tables[0], &tables[1]], &["what says which blocks"]);
    let lost = sound.contents(&tables[1]).expect("there").len() as u64;
    assert_eq!((report.files, report.bytes), (whole.files - 1, on_disk - lost), "what was really read");

    // The header of the segment that has the records.
    let fs = sound.process_crash_clone();
    damage(&fs, &log, 3);
    damage(&fs, &tables[0], 10);
    expect("a log's header", &verify(&fs), &[&log, &tables[0]], &["its header"]);

    let fs = sound.process_crash_clone();
    damage(&fs, &manifest, last_edit);
    damage(&fs, &log, record);
    damage(&fs, &tables[0], 10);
    damage(&fs, &tables[2], footer(&tables[2]));
    let paths: [&Path; 4] = [&manifest, &log, &tables[0], &tables[2]];
    expect("a manifest", &verify(&fs), &paths, &["the manifest behind", "what says which blocks"]);

    let fs = sound.process_crash_clone();
    fs.remove(&current).expect("it is there");
    damage(&fs, &tables[1], 10);
    expect("CURRENT", &verify(&fs), &[&current, &tables[1]], &["the manifest behind"]);

    let fs = sound.process_crash_clone();
    damage(&fs, &store, 20);
    damage(&fs, &log, record);
    damage(&fs, &tables[3], 10);
    let report = verify(&fs);
    expect("STORE", &report, &[&store, &tables[3]], &["the manifest behind", "the log: the key"]);
    let held: u64 = tables.iter().map(|path| sound.contents(path).expect("there").len() as u64).sum();
    assert_eq!((report.files, report.bytes), (tables.len(), held), "tables, and no log");
}

/// One byte anywhere and one in a table: that of the table is never hidden by the other.
#[test]
fn no_damage_elsewhere_hides_a_corrupt_table() {
    let sound = closed();
    let tables = files(&sound, ".tbl");
    within(Duration::from_secs(600), "two rotten files", || {
        let mut dice = Dice(3);
        let (mut opens, mut does_not) = (0, 0);
        for (path, at, mask) in places(&sound, stride()) {
            let table = &tables[dice.below(tables.len() as u64) as usize];
            if *table == path {
                continue;
            }
            let context = format!("{} byte {at} mask {mask:02x}, {}", path.display(), table.display());
            let fs = sound.process_crash_clone();
            fs.damage(&path, at, mask).expect("it is there");
            damage(&fs, table, dice.below(sound.contents(table).expect("there").len() as u64));
            let report = verify(&fs);
            assert!(named(&report).contains(table.as_path()), "{context}: {report:?}");
            assert!(
                report.problems.iter().all(|p| p.path == path || p.path == *table),
                "{context}: {report:?}"
            );
            let opened = Db::open_with(
                Env::with_fs(fs.clone()),
                STORE,
                Options { read_only: true, create_if_missing: false, ..options() },
            );
            if opened.is_ok() {
                opens += 1;
            } else {
                assert!(named(&report).contains(path.as_path()), "{context}: {report:?}");
                does_not += 1;
            }
        }
        assert!(opens > 20 && does_not > 20, "{opens} open, {does_not} do not");
    });
}
