//! Jobs side by side: what the background does and what is asked for by hand never hinder each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::within;
use super::workload::{keyspace_options, open};
use crate::env::{FileSystem, MemFs};

/// Regression: a compaction by hand looked at the levels before it looked at what was running, so it
/// could choose tables that a job had just replaced, and failed.
#[test]
fn compactions_by_hand_and_in_the_background_go_on_side_by_side() {
    within(Duration::from_secs(120), "compactions side by side", || {
        let fs: Arc<dyn FileSystem> = MemFs::new();
        let db = open(&fs).expect("open");
        let keyspace = db.keyspace("a", keyspace_options()).expect("keyspace");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0u64.. {
                    keyspace.put(format!("{}", number % 999), vec![number as u8; 900]).expect("put");
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(2) {
                if let Err(error) = db.compact() {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{error}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(db.verify(&mut |_| {}).expect("verify").is_sound());
    });
}
