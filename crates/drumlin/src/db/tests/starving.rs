//! Background work that keeps failing: it is told, and hurts nothing but itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::within;
use super::workload::{keyspace_options, open};
use crate::env::{Fault, FaultyFs, FileSystem, MemFs, Operation};
use crate::error::Error;
use crate::{Db, Keyspace};

const LIMIT: Duration = Duration::from_secs(60);

fn tables(fs: &MemFs) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "tbl")).collect()
}

fn fill(db: &Db, keyspace: &Keyspace, round: u64) {
    for number in 0..100 {
        keyspace.put(format!("{number:04}"), format!("value {round} {number}").repeat(9)).expect("put");
    }
    db.flush().expect("only flushes are asked for, and they work");
}

/// A store of which one table is rotten, in the keyspace `rotten`, and a compaction of it has failed.
fn with_rot(fs: &Arc<MemFs>) -> (Db, [Keyspace; 2], PathBuf) {
    let db = open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open");
    let keyspaces = ["rotten", "well"].map(|name| db.keyspace(name, keyspace_options()).expect("keyspace"));
    fill(&db, &keyspaces[0], 0);
    let [table] = &tables(fs)[..] else { panic!("one flush, one table") };
    fs.damage(table, 100, 0x10).expect("it is there");
    for round in 1.. {
        fill(&db, &keyspaces[0], round);
        if db.stats().first_corruption.is_some() {
            break;
        }
        assert!(round < 1000, "a compaction meets the rot");
    }
    (db, keyspaces, table.clone())
}

/// Regression: the compaction with most to do was picked again and again, whether it could be done or not; the other
/// keyspaces' level 0 grew without end.
#[test]
fn rot_in_a_table_holds_up_no_other_keyspace_and_is_told() {
    within(LIMIT, "a store with rot", || {
        let fs = MemFs::new();
        let (db, [rotten, well], table) = with_rot(&fs);
        for round in 0..40 {
            fill(&db, &well, round);
        }
        let told = db.wait_for_idle().expect_err("not everything that is due can be done");
        assert!(matches!(&told, Error::Corruption(c) if c.path == table && c.offset.is_some()), "{told:?}");
        let stats = db.stats();
        let level0 = |name: &str| {
            stats.keyspaces.iter().find(|k| k.name == name).expect("it is there").levels[0].tables
        };
        assert!(level0("well") < keyspace_options().level0_tables, "{stats}");
        assert!(level0("rotten") > 1, "{stats}");
        let first = stats.first_corruption.clone().expect("told");
        assert_eq!((first.keyspace.as_str(), first.job), ("rotten", "compaction"));
        assert!(
            first.message.contains(&*table.to_string_lossy()) && first.message.contains("at byte"),
            "{first:?}"
        );
        assert!(first.count > 0, "{stats}");
        // By hand: each gets what it asked for.
        well.compact().expect("it is well");
        assert!(rotten.compact().expect_err("it is not").is_corruption());
        db.flush().expect("a flush reads no table");
        well.put("more", "1").expect("put");
        assert_eq!(well.get("0007").expect("get").as_deref(), Some("value 39 7".repeat(9).as_bytes()));
        assert!(rotten.get("0007").is_ok(), "the newest version is in another table");
        let closed = db.close().expect_err("nothing found is kept quiet");
        assert!(
            closed.is_corruption() && closed.to_string().contains(&*table.to_string_lossy()),
            "{closed:?}"
        );
        // And yet it is closed, cleanly.
        let db = open(&(fs.clone() as Arc<dyn FileSystem>)).expect("open again");
        assert_eq!(
            db.open_keyspace("well").expect("keyspace").get("more").expect("get").as_deref(),
            Some(&b"1"[..])
        );
    });
}

/// Regression: the failure of one job was told to whoever waited for another.
#[test]
fn a_job_that_fails_is_told_to_who_asked_for_it_and_goes_on_when_the_cause_is_gone() {
    within(LIMIT, "a device that fails", || {
        let inner = MemFs::new();
        let faulty = FaultyFs::new(inner.clone());
        let db = open(&(faulty.clone() as Arc<dyn FileSystem>)).expect("open");
        let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
        keyspace.put("k", "v").expect("put");
        faulty.fail_when(|call| {
            let table = call.path.extension().is_some_and(|e| e == "tbl" || e == "tmp");
            (table && call.operation == Operation::Append).then_some(Fault::Error(std::io::ErrorKind::Other))
        });
        assert!(matches!(db.flush(), Err(Error::Io { .. })));
        let told = db.stats().last_failure.expect("told");
        assert_eq!((told.keyspace.as_str(), told.job), ("a", "flush"));
        faulty.clear();
        db.flush().expect("tried again at once, and what failed before is not told again");
        db.wait_for_idle().expect("nothing is left undone");
        db.close().expect("what failed was done since");
    });
}
