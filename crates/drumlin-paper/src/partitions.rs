//! A part of the keys, of the memory and of the threads for each of several stores, side by side.
//!
//! Place: figure 1 of cLSM.

use std::sync::atomic::Ordering;

use drumlin_bench::args::Bench;
use drumlin_bench::drive::{Measured, Plan, Progress, drive};
use drumlin_bench::engine::Result;
use drumlin_bench::session::Watch;
use drumlin_bench::store::Store;
use drumlin_bench::workload::{Begins, Workload};

use crate::lab::Lab;

/// Operations a second of so many stores together, until the last of them.
pub fn partitions(lab: &Lab<'_>, bench: &Bench, workload: &Workload, parts: u64) -> Result<f64> {
    let mut bench = bench.clone();
    bench.num /= parts;
    bench.threads = (bench.threads / parts).max(1);
    bench.memory = (bench.memory / parts as usize).max(1);
    bench.memtable = bench.memtable.map(|mib| (mib / parts as usize).max(1));
    let directories: Vec<_> = (0..parts).map(|part| lab.scratch.join(format!("part-{part}"))).collect();
    let opened = directories.iter().map(|directory| Store::open(directory, &bench.settings()));
    let stores = opened.collect::<Result<Vec<Store>>>()?;
    if workload.begins != Begins::Empty {
        let fill = Workload::named("filluniquerandom").expect("it is in the table");
        let plan = Plan { operations: bench.num, at_most: None, rate: None, batch: 1, ..bench.plan(fill) };
        for store in &stores {
            watched(lab.watch, "filling", store, fill, &plan)?;
        }
    }
    let rates: Vec<Result<f64>> = std::thread::scope(|scope| {
        let running: Vec<_> = stores
            .iter()
            .zip(0..)
            .map(|(store, part)| {
                let plan = Plan { seed: bench.seed.wrapping_add(part), ..bench.plan(workload) };
                scope.spawn(move || -> Result<f64> {
                    let measured = watched(lab.watch, workload.name, store, workload, &plan)?;
                    Ok(measured.operations as f64 / measured.burst.as_secs_f64())
                })
            })
            .collect();
        running.into_iter().map(|one| one.join().expect("a worker's panic is the bench's")).collect()
    });
    drop(stores);
    for directory in directories {
        std::fs::remove_dir_all(directory)?;
    }
    rates.into_iter().sum()
}

/// Drives one of them, watched.
fn watched(
    watch: &Watch<'_>,
    what: &str,
    store: &Store,
    workload: &Workload,
    plan: &Plan,
) -> Result<Measured> {
    let progress = Progress::default();
    std::thread::scope(|scope| {
        scope.spawn(|| watch("drumlin", what, plan.operations, &progress));
        let measured = drive(store, workload, plan, &progress);
        progress.over.store(true, Ordering::Release);
        measured
    })
}
