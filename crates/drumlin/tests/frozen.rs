//! With one thread frozen inside a put, at any pause point, the others go on: gets, recent
//! snapshots, and puts of other keys. A linearizable snapshot waits, and `stats` shows the stall.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test is outside the engine")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use drumlin::env::{Env, MemFs};
use drumlin::sync::failpoint;
use drumlin::{Db, Options};

/// Every pause point a put passes, and whether its LSN is drawn there.
const POINTS: [(&str, bool); 7] = [
    ("write::reserved", false),
    ("write::locked", false),
    ("write::announced", false),
    ("write::drawn", true),
    ("write::logged", true),
    ("write::gated", true),
    ("write::published", true),
];

#[test]
fn a_frozen_put_stops_nobody_else() {
    for (point, drawn) in POINTS {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let db = Db::open_with(Env::with_fs(MemFs::new()), "/store", options).expect("open");
        let keyspace = db.keyspace("k", Default::default()).expect("keyspace");
        keyspace.put("frozen", "before").expect("put");

        let (frozen, is_frozen) = mpsc::channel();
        let (thaw, thawed) = mpsc::channel::<()>();
        let thawed = std::sync::Mutex::new(thawed);
        failpoint::set(point, move || {
            if std::thread::current().name() == Some("frozen") {
                let _ = frozen.send(());
                let _ = thawed.lock().expect("one thread").recv_timeout(Duration::from_secs(30));
            }
        });
        let victim = {
            let keyspace = keyspace.clone();
            std::thread::Builder::new()
                .name("frozen".into())
                .spawn(move || keyspace.put("frozen", "after"))
                .expect("spawn")
        };
        is_frozen
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|_| panic!("{point} is not on the way of a put"));

        let start = Instant::now();
        let mut done = 0u32;
        while start.elapsed() < Duration::from_millis(700) {
            let key = format!("other-{done}");
            keyspace.put(&key, "x").expect("put of another key");
            assert!(keyspace.get(&key).expect("get").is_some());
            if done.is_multiple_of(64) {
                let recent = db.snapshot_recent().expect("snapshot_recent");
                assert!(recent.get(&keyspace, "frozen").expect("get").is_some());
                let held =
                    keyspace.get("frozen").expect("get of the frozen key never waits").expect("present");
                assert!(
                    held == "before" || (point == "write::published" && held == "after"),
                    "{point}: {held:?}"
                );
            }
            done += 1;
        }
        assert!(done > 500, "{point}: only {done} puts went through in 0.7 s");
        let stats = db.stats();
        assert_eq!(
            stats.completed < stats.tail,
            drawn || point == "write::announced",
            "{point}: the stall shows"
        );

        let (got, snapshot) = mpsc::channel();
        let waiter = {
            let db = db.clone();
            std::thread::spawn(move || {
                let snapshot = db.snapshot().expect("snapshot");
                let _ = got.send(());
                snapshot
            })
        };
        let waits = snapshot.recv_timeout(Duration::from_millis(200)).is_err();
        assert_eq!(
            waits,
            drawn || point == "write::announced",
            "{point}: a linearizable snapshot waits for a drawn LSN"
        );
        drop(thaw);
        victim.join().expect("no panic").expect("the put succeeds after all");
        let snapshot = waiter.join().expect("no panic");
        assert!(snapshot.get(&keyspace, "other-0").expect("get").is_some());
        assert_eq!(keyspace.get("frozen").expect("get").as_deref(), Some(&b"after"[..]));
        failpoint::clear(point);
        db.close().expect("close");
    }
}
