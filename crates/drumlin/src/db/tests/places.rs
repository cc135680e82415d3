//! Directories of `level_paths`: each is one store's, and what another store or nobody known has in it is left alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::workload::{keyspace_options, options};
use crate::Db;
use crate::env::{Env, FileSystem, MemFs};
use crate::error::{Error, Result};
use crate::options::Options;

/// A store in `directory` whose tables of level 0 lie in `place`.
fn open(fs: &Arc<MemFs>, directory: &str, place: &str) -> Result<Db> {
    open_as(fs, directory, &[(0, place)], false)
}

fn open_as(fs: &Arc<MemFs>, directory: &str, places: &[(u32, &str)], read_only: bool) -> Result<Db> {
    let level_paths: BTreeMap<u32, PathBuf> =
        places.iter().map(|(level, place)| (*level, PathBuf::from(place))).collect();
    Db::open_with(Env::with_fs(fs.clone()), directory, Options { level_paths, read_only, ..options() })
}

fn put(db: &Db) {
    db.keyspace("a", keyspace_options()).expect("keyspace").put("k", "v").expect("put");
    db.flush().expect("flush");
}

fn get(db: &Db) -> Option<Vec<u8>> {
    db.open_keyspace("a").expect("keyspace").get("k").expect("get").map(|value| value.to_vec())
}

fn refusal(opened: Result<Db>) -> String {
    match opened {
        Err(Error::InvalidArgument(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn tables_in(fs: &MemFs, place: &str) -> Vec<PathBuf> {
    let is_table = |path: &PathBuf| path.starts_with(place) && path.extension().is_some_and(|e| e == "tbl");
    fs.files().into_iter().filter(is_table).collect()
}

/// Regression: the second of two stores with one directory removed the tables of the first, even of an open one.
#[test]
fn what_is_another_stores_is_refused_and_keeps_its_tables() {
    let fs = MemFs::new();
    let first = open(&fs, "/first", "/shared").expect("open");
    put(&first);
    let tables = tables_in(&fs, "/shared");
    assert_eq!(tables.len(), 1);
    let why = refusal(open(&fs, "/second", "/shared"));
    assert!(why.contains("/shared belongs to another store"), "{why}");
    let why = refusal(open(&fs, "/second", "/first"));
    assert!(why.contains("/first is another store's own"), "{why}");
    // Nor is a store made where it has its tables.
    let why = refusal(open_as(&fs, "/shared", &[], false));
    assert!(why.contains("/shared is a directory for levels of another store"), "{why}");
    assert_eq!(tables_in(&fs, "/shared"), tables);
    assert_eq!(get(&first).as_deref(), Some(&b"v"[..]));
    first.close().expect("close");
    assert!(refusal(open_as(&fs, "/second", &[(0, "/shared")], true)).contains("belongs to another"));
    let first = open_as(&fs, "/first", &[(0, "/shared")], true).expect("read only");
    assert_eq!(get(&first).as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_directory_that_lacks_its_tables_is_refused() {
    let fs = MemFs::new();
    let db = open(&fs, "/store", "/mnt/fast").expect("open");
    put(&db);
    db.close().expect("close");
    // As a mount point without its device looks: there, and empty.
    let files = fs.files().into_iter().filter(|path| path.starts_with("/mnt/fast"));
    let device: Vec<_> = files.map(|path| (fs.contents(&path).expect("there"), path)).collect();
    device.iter().for_each(|(_, path)| fs.remove(path).expect("there"));
    for read_only in [false, true] {
        let why = refusal(open_as(&fs, "/store", &[(0, "/mnt/fast")], read_only));
        assert!(why.contains("/mnt/fast has none of the 1 tables") && why.contains("mounted?"), "{why}");
    }
    assert!(fs.list(Path::new("/mnt/fast")).expect("list").is_empty(), "nothing was put there");
    device.iter().for_each(|(bytes, path)| fs.set_contents(path, bytes).expect("mounted again"));
    assert_eq!(get(&open(&fs, "/store", "/mnt/fast").expect("open")).as_deref(), Some(&b"v"[..]));
}

#[test]
fn tables_of_nobody_known_are_left_alone() {
    let fs = MemFs::new();
    let db = open(&fs, "/store", "/fast").expect("open");
    put(&db);
    db.close().expect("close");
    // A store from before directories had names: one that knows a table there takes the directory.
    fs.remove(Path::new("/fast/OWNER")).expect("there");
    let tables = tables_in(&fs, "/fast");
    let why = refusal(open(&fs, "/other", "/fast"));
    assert!(why.contains("/fast has tables of another store"), "{why}");
    assert_eq!(tables_in(&fs, "/fast"), tables);
    assert_eq!(get(&open(&fs, "/store", "/fast").expect("open")).as_deref(), Some(&b"v"[..]));
    assert!(refusal(open(&fs, "/other", "/fast")).contains("belongs to another store"));
}

#[test]
fn a_claim_that_is_cut_off_anywhere_is_made_up_for() {
    let fs = MemFs::new();
    let lost = Arc::new(crate::sync::Mutex::new(Vec::new()));
    let (watched, taken) = (Arc::downgrade(&fs), lost.clone());
    fs.set_hook(Some(Box::new(move |call| {
        if let Some(fs) = watched.upgrade().filter(|_| call.operation.writes()) {
            taken.lock().push((fs.crash_clone_random(call.number, 0.5), format!("{call:?}")));
        }
    })));
    let db = open(&fs, "/store", "/fast").expect("open");
    fs.set_hook(None);
    drop(db);
    let lost = std::mem::take(&mut *lost.lock());
    assert!(lost.iter().any(|(_, call)| call.contains("OWNER")), "the claim was watched");
    for (fs, call) in lost {
        let db = open(&fs, "/store", "/fast").unwrap_or_else(|e| panic!("{call}: {e}"));
        put(&db);
        assert!(get(&db).is_some(), "{call}");
        assert!(fs.exists(Path::new("/fast/OWNER")).expect("exists"), "{call}");
    }
}

#[test]
fn levels_that_there_are_not_and_paths_that_name_nothing_are_refused() {
    let fs = MemFs::new();
    assert!(refusal(open_as(&fs, "/store", &[(256, "/fast")], false)).contains("level 256"));
    assert!(refusal(open_as(&fs, "/store", &[(1, "")], false)).contains("no directory for level 1"));
    // The store's own directory may be named.
    put(&open_as(&fs, "/store", &[(0, "/store"), (1, "/store")], false).expect("open"));
    assert!(!fs.exists(Path::new("/store/OWNER")).expect("exists"));
}
