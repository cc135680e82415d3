//! No thread that reads or writes frees anything large or removes a file.
//!
//! One test, alone in its process: the epoch is the process's, and what a store leaves there when it is dropped is freed by
//! whoever comes by.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

mod support {
    pub mod tables;
}

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use drumlin::env::{Env, MemFs, Operation};
use drumlin::{Db, failpoint};
use support::tables::{STORE, eventually, named, small, tables};

/// Names of the threads that come by a pause point.
fn passers(point: &'static str) -> Arc<Mutex<Vec<String>>> {
    let names = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&names);
    failpoint::set(point, move || {
        let name = std::thread::current().name().unwrap_or("nameless").to_string();
        record.lock().unwrap_or_else(|failed| failed.into_inner()).push(name);
    });
    names
}

#[test]
fn no_reader_frees_or_removes_anything_large_and_every_file_goes() {
    let freed = [passers("memtable::dropped"), passers("table::dropped")];
    let fs = MemFs::new();
    let removed_by = Arc::new(Mutex::new(Vec::<String>::new()));
    let record = Arc::clone(&removed_by);
    fs.set_hook(Some(Box::new(move |call| {
        if call.operation == Operation::Remove && call.path.extension().is_some_and(|e| e == "tbl") {
            let name = std::thread::current().name().unwrap_or("nameless").to_string();
            record.lock().unwrap_or_else(|failed| failed.into_inner()).push(name);
        }
    })));
    let (options, keyspace_options) = small();
    let db = Db::open_with(Env::with_fs(fs.clone()), STORE, options).expect("opens");
    let keyspace = db.keyspace("k", keyspace_options).expect("makes");
    let done = AtomicBool::new(false);
    let reads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (keyspace, done, reads) = (&keyspace, &done, &reads);
            std::thread::Builder::new()
                .name(format!("reader-{reader}"))
                .spawn_scoped(scope, move || {
                    let mut n = reader;
                    while !done.load(Ordering::Relaxed) {
                        n = (n * 31 + 7) % 4000;
                        keyspace.get(format!("key{n:05}")).expect("gets");
                        if n % 16 == 0 {
                            keyspace.range(format!("key{n:05}")..).expect("scans").take(50).for_each(drop);
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .expect("spawns");
        }
        std::thread::Builder::new()
            .name("writer".into())
            .spawn_scoped(scope, || {
                for n in 0..30_000u64 {
                    keyspace.put(format!("key{:05}", n * 7919 % 4000), vec![n as u8; 150]).expect("puts");
                }
            })
            .expect("spawns")
            .join()
            .expect("writes");
        done.store(true, Ordering::Relaxed);
    });
    db.wait_for_idle().expect("idle");
    eventually("tables that no level names stay", || tables(&fs).len() == named(&db));
    let removed_by = removed_by.lock().expect("sound");
    assert!(removed_by.len() > 5, "{} tables came and went", removed_by.len());
    assert!(reads.load(Ordering::Relaxed) > 1000);
    let strangers: Vec<_> = removed_by.iter().filter(|name| !name.starts_with("drumlin-bg")).collect();
    assert!(strangers.is_empty(), "files removed by {strangers:?}");
    for (what, freed) in ["memtables", "tables"].iter().zip(freed) {
        let freed = freed.lock().expect("sound");
        let users = freed.iter().filter(|name| name.starts_with("reader-") || *name == "writer").count();
        assert!(freed.len() > 5, "{} {what} went", freed.len());
        assert_eq!(users, 0, "{what} freed by those who read and write, of {}", freed.len());
    }
}
