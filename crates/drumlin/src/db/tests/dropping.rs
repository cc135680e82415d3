//! A dropped keyspace among the writes of others.

use std::sync::Arc;
use std::time::Duration;

use super::within;
use super::workload::STORE;
use crate::Db;
use crate::env::{Env, MemFs, Operation};
use crate::error::{Error, Result};
use crate::options::{KeyspaceOptions, Options};
use crate::sync::Mutex;

fn open(fs: &Arc<MemFs>) -> Result<Db> {
    Db::open_with(Env::with_fs(fs.clone()), STORE, Options::default())
}

/// The log was synced up to a tail, and then the drop made durable. Who wrote to another keyspace in between, and found
/// the dropped one still there, came before the drop; a power loss kept the drop and took the write.
#[test]
fn what_was_written_while_a_keyspace_was_still_there_outlives_its_drop() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let [k, other] = ["k", "other"].map(|name| db.keyspace(name, KeyspaceOptions::default()).expect("makes"));
    k.put("a", "1").expect("puts");
    let before = Arc::new(Mutex::new(Vec::new()));
    let (told, writer) = (before.clone(), (k.clone(), other.clone()));
    // At each call of the drop's thread, a write of another thread, and whether the keyspace was there after it.
    fs.set_hook(Some(Box::new(move |call| {
        if std::thread::current().name() != Some("dropper") || !call.operation.writes() {
            return;
        }
        let (k, other) = writer.clone();
        let number = told.lock().len();
        let there = std::thread::spawn(move || {
            // It ends in a page that a sync up to its beginning leaves alone.
            other.put(format!("{number}"), vec![1; 10_000]).expect("puts");
            k.get("a").is_ok()
        });
        told.lock().push(there.join().expect("no panic"));
    })));
    within(Duration::from_secs(60), "a drop", || {
        let dropper = db.clone();
        let dropper = std::thread::Builder::new()
            .name("dropper".into())
            .spawn(move || dropper.drop_keyspace("k"))
            .expect("spawns");
        dropper.join().expect("no panic").expect("drops");
    });
    fs.set_hook(None);
    let lost = fs.crash_clone_random(0, 0.0);
    let reopened = open(&lost).expect("opens");
    assert!(reopened.open_keyspace("k").is_err(), "the drop is durable");
    let survivor = reopened.open_keyspace("other").expect("is there");
    let before = before.lock();
    assert!(before.len() > 2 && before[0], "{before:?}");
    for (number, _) in before.iter().enumerate().filter(|(_, there)| **there) {
        let found = survivor.get(format!("{number}")).expect("gets");
        assert!(found.is_some(), "write {number} of {} came before the drop, and is gone", before.len());
    }
}

/// A drop that fails never was: the keyspace is there again for everybody.
#[test]
fn a_drop_that_fails_leaves_the_keyspace_as_it_was() {
    let fs = MemFs::new();
    let db = open(&fs).expect("opens");
    let k = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
    k.put("a", "1").expect("puts");
    fs.set_fault_hook(Some(Box::new(|call| {
        let name = call.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let of_manifest = name.is_some_and(|name| name.starts_with("MANIFEST-"));
        (of_manifest && call.operation == Operation::Append).then_some(std::io::ErrorKind::StorageFull)
    })));
    let failed = db.drop_keyspace("k");
    assert!(failed.as_ref().is_err_and(Error::is_no_space), "{failed:?}");
    fs.set_fault_hook(None);
    k.put("b", "2").expect("puts");
    assert!(k.get("a").expect("gets").is_some());
    db.flush().expect("flushes");
    db.drop_keyspace("k").expect("drops");
    assert!(matches!(k.get("a"), Err(Error::Closed { .. })));
    assert!(db.keyspace("k", KeyspaceOptions::default()).expect("makes").get("a").expect("gets").is_none());
}

/// Regression: workers kept a note of every keyspace that there ever was.
#[test]
fn workers_forget_keyspaces_that_were_dropped() {
    let db = open(&MemFs::new()).expect("opens");
    for n in 0..20 {
        let name = format!("k{n}");
        let k = db.keyspace(&name, KeyspaceOptions::default()).expect("makes");
        k.put("a", "1").expect("puts");
        db.flush().expect("flushes");
        db.compact().expect("compacts");
        drop(k);
        db.drop_keyspace(&name).expect("drops");
    }
    // Whoever looks for work next forgets them.
    within(Duration::from_secs(20), "forgetting", move || {
        while !db.store.background.state.lock().compacting.is_empty() {
            db.store.background.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
