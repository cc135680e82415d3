//! Reopening: a store closed or killed, opened again, and timed until it answers.
//!
//! Place: `session` calls it for workloads that open; everything is measured with the files in the system's cache.
//!
//! 1. A killed store is what a kill leaves: the files of an idle store, copied while it is open. Nothing that its process
//!    knows gets into the copy.
//! 2. The time ends with the first scan, which comes after the first get; each stands on the line by itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::drive::{Measured, Plan, see};
use crate::engine::{Engine, Holds, Result, Traffic};
use crate::keys::{key, mix};
use crate::latency::Latency;
use crate::session::Open;
use crate::usage::Usage;
use crate::workload::{Ended, Kind};

/// Where the copy of a killed store lies, in the directory of the store.
const KILLED: &str = "killed";

/// Ends `engine`, which has its store in `directory`, and opens the store `plan.operations` times (a killed one once). Also
/// tells where the data was when it was opened.
pub fn reopen(
    engine: Box<dyn Engine>,
    directory: &Path,
    open: &Open<'_>,
    ended: Ended,
    plan: &Plan,
) -> Result<(Measured, Holds)> {
    let held = engine.holds();
    let (place, times) = match ended {
        Ended::Closed => (directory.to_path_buf(), plan.operations.max(1)),
        Ended::Killed => {
            engine.settle()?;
            (copy(directory)?, 1)
        }
    };
    drop(engine);
    Usage::forget_peak();
    let before = Usage::now();
    let (mut opens, mut gets, mut scans) = (Latency::default(), Latency::default(), Latency::default());
    let (mut traffic, mut took, mut found) = (Some(Traffic::default()), Duration::ZERO, 0);
    for time in 0..times {
        let asked = key(mix(plan.seed ^ time) % plan.keys, plan.key_bytes);
        let began = Instant::now();
        let engine = open(&place)?;
        let opened = began.elapsed();
        found += u64::from(engine.get(&asked, &mut |_| ())?);
        let got = began.elapsed();
        engine.scan(&asked, plan.scan_length, false, &mut see)?;
        let scanned = began.elapsed();
        opens.note(opened);
        gets.note(got - opened);
        scans.note(scanned - got);
        took += scanned;
        traffic = traffic.zip(engine.traffic()).map(|(all, more)| all.plus(&more));
    }
    if ended == Ended::Killed {
        fs::remove_dir_all(&place)?;
    }
    let measured = Measured {
        operations: times,
        found,
        burst: took,
        drained: took,
        latencies: vec![(Kind::Open, opens), (Kind::Get, gets), (Kind::Scan, scans)],
        traffic,
        usage: Usage::now().since(&before),
        ..Measured::default()
    };
    Ok((measured, held))
}

/// Copies the files of a store into a directory within its own.
fn copy(directory: &Path) -> Result<PathBuf> {
    let to = directory.join(KILLED);
    // What an interrupted run left.
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    let mut left = vec![PathBuf::new()];
    while let Some(part) = left.pop() {
        fs::create_dir_all(to.join(&part))?;
        for entry in fs::read_dir(directory.join(&part))? {
            let (entry, name) = entry.map(|entry| (part.join(entry.file_name()), entry))?;
            match name.file_type()?.is_dir() {
                true if entry == Path::new(KILLED) => {}
                true => left.push(entry),
                false => drop(fs::copy(directory.join(&entry), to.join(&entry))?),
            }
        }
    }
    Ok(to)
}
