//! A device that is nearly full: what can be flushed is, writers wait for what that gives back, and for nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::full::{CAPACITY, check, record};
use super::within;
use super::workload::STORE;
use crate::env::{Env, FaultyFs, FileSystem, MemFs, Operation};
use crate::error::Result;
use crate::options::{KeyspaceOptions, Layout, Options};
use crate::{Db, Keyspace};

const SEGMENT: u64 = 1 << 20;
const BYTES: usize = 1000;

fn open<F: FileSystem + 'static>(fs: &Arc<F>) -> Result<Db> {
    let options = Options { memory_bytes: 256 << 20, segment_bytes: SEGMENT as usize, ..Options::default() };
    Db::open_with(Env::with_fs(fs.clone()), STORE, options)
}

fn put(keyspace: &Keyspace, numbers: std::ops::Range<u64>) -> Result<()> {
    numbers.into_iter().try_for_each(|number| {
        let (key, value) = record(number, BYTES);
        keyspace.put(key, value)
    })
}

/// Regressions: the log left as much room as it held, before anything was frozen; so nothing was ever frozen, and writes and
/// flushes failed though a small flush would have given back nearly all of the log. A flush by hand whose second pad found
/// no room failed, and did not wait for the flush that the first had begun.
#[test]
fn a_log_that_one_old_record_holds_is_given_back_on_a_device_with_little_room() {
    within(Duration::from_secs(60), "a scarce device", || {
        for by_hand in [false, true] {
            let fs = MemFs::new();
            let db = open(&fs).expect("opens");
            // Merges of runs would take the room that there is.
            let leveled = KeyspaceOptions { layout: Layout::Leveled, ..KeyspaceOptions::default() };
            let old = db.keyspace("old", leveled.clone()).expect("makes");
            let busy = KeyspaceOptions { memtable_bytes: Some(1 << 20), ..leveled };
            let busy = db.keyspace("busy", busy).expect("makes");
            old.put("one", "1").expect("puts");
            put(&busy, 0..9000).expect("puts");
            db.wait_for_idle().expect("idle");
            assert!(db.stats().log_live_bytes >= 9 * SEGMENT, "the old record holds it");
            drop((old, busy));
            db.close().expect("closes");

            fs.set_capacity(Some(fs.used_bytes() + 4 * SEGMENT));
            let slow = FaultyFs::new(fs.clone());
            slow.fail_when(|call| {
                if call.operation == Operation::Append && call.path.extension().is_some_and(|e| e != "log") {
                    std::thread::sleep(Duration::from_millis(20));
                }
                None
            });
            let db = open(&slow).expect("opens");
            let busy = db.open_keyspace("busy").expect("there");
            if by_hand {
                put(&busy, 9000..9001).expect("puts");
                db.flush()
                    .expect("flushes, and waits for what it froze to be flushed before the log grows again");
                // The log is cut behind the flush, before the job ends. What may stay: the segments of both pads, and the
                // two that are open ahead.
                db.store
                    .wait_until(|| Ok(db.stats().log_live_bytes <= 5 * SEGMENT))
                    .expect("it is given back");
            }
            put(&busy, 9001..12_000).expect("there is room once the old record is flushed");
            assert_eq!(
                db.open_keyspace("old").and_then(|k| k.get("one")).expect("gets").as_deref(),
                Some(&b"1"[..])
            );
            check(&busy, 9000, BYTES, "after all");
        }
    });
}

/// Regression: the log of a dropped keyspace was let go of by the next flush only, and where the device was full of it
/// there was none.
#[test]
fn dropping_a_keyspace_gives_its_log_back() {
    within(Duration::from_secs(60), "a device full of log", || {
        let fs = MemFs::new();
        let db = open(&fs).expect("opens");
        let doomed = db.keyspace("doomed", KeyspaceOptions::default()).expect("makes");
        let other = db.keyspace("other", KeyspaceOptions::default()).expect("makes");
        put(&doomed, 0..6000).expect("puts");
        fs.set_capacity(Some(fs.used_bytes() + SEGMENT / 2));
        let full = put(&doomed, 6000..20_000).expect_err("the device is full");
        assert!(full.is_no_space(), "{full}");
        db.drop_keyspace("doomed").expect("drops");
        put(&other, 0..2000).expect("there is room for two segments");
        check(&other, 2000, BYTES, "after the drop");
    });
}

/// Regression: a writer that had too large a record waited for as long as another gave the flushes something to do.
#[test]
fn a_record_that_never_fits_is_refused_though_small_ones_are_written_and_flushed() {
    within(Duration::from_secs(120), "a record that never fits", || {
        let fs = MemFs::new();
        fs.set_capacity(Some(CAPACITY));
        let db = open(&fs).expect("opens");
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("makes");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let small = scope.spawn(|| {
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    // A few keys over and over: their tables take no room, and each flush gives some log back.
                    match put(&keyspace, number % 100..number % 100 + 1) {
                        Ok(()) => number += 1,
                        Err(error) => assert!(error.is_no_space(), "{error}"),
                    }
                }
                number
            });
            for _ in 0..3 {
                let large = keyspace.put("large", vec![7; 2 * CAPACITY as usize]);
                assert!(large.as_ref().is_err_and(|error| error.is_no_space()), "{large:?}");
            }
            over.store(true, Ordering::Relaxed);
            assert!(small.join().expect("no panic") > 0, "small ones go on");
        });
    });
}
