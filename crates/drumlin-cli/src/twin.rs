//! Twin: a real store, filled as a simulated one was, and how far the two are from each other.
//!
//! Place: `simulate --real`.
//!
//! 1. After as many puts as a memtable holds it waits until nothing is owed, as a simulation does after each flush. Keys in order are
//!    put all at once, since two runs of a sequence would be the same keys twice: their tables are moved, and nothing is owed either.
//!    What is left in memory at the end is written, too.
//! 2. Values do not compress, and blocks are not compressed: bytes are those that were asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, thread};

use drumlin::simulation::{Level, Order, Simulation, Workload};
use drumlin::{Compression, KeyspaceOptions};
use drumlin_bench::drive::{self, Plan, Progress};
use drumlin_bench::engine::{self, Engine};
use drumlin_bench::store::{Settings, Store};
use drumlin_bench::workload;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::Watcher;
use crate::scratch;

/// Seed of the keys.
const SEED: u64 = 42;

/// Bytes of tables by tier, over the second half of all puts, in the mean: merges take much at once, so that a moment says little.
#[derive(Default)]
pub struct TierBytes {
    bytes: BTreeMap<usize, f64>,
    points: u32,
}

impl TierBytes {
    /// Adds a moment: tiers, of which some may be the same, with their bytes.
    pub fn add(&mut self, tiers: impl Iterator<Item = (usize, u64)>) {
        self.points += 1;
        tiers.for_each(|(tier, bytes)| *self.bytes.entry(tier).or_default() += bytes as f64);
    }

    /// Bytes of all tiers.
    pub fn bytes(&self) -> f64 {
        self.bytes.values().sum::<f64>() / f64::from(self.points.max(1))
    }

    /// Of all bytes, those of one tier.
    fn part(&self, tier: usize) -> f64 {
        self.bytes.get(&tier).copied().unwrap_or(0.0) / self.bytes.values().sum::<f64>().max(1.0)
    }
}

/// How it was.
pub struct Twin {
    /// Bytes of tables written for each byte of keys and values that was put.
    pub write_amplification: f64,
    /// Its levels that have tables, at the end.
    pub levels: Vec<Level>,
    /// How they were.
    pub course: TierBytes,
}

/// Part of what was simulated by which the twin differs from it.
pub struct Difference {
    /// Of the bytes that were written: more, if positive.
    pub written: f64,
    /// Of the bytes that tables have.
    pub bytes: f64,
    /// Bytes that are of another tier than they should be, of all.
    pub shape: f64,
}

impl Twin {
    /// Fills a store of so much memory, and of memtables of so much, with `puts` of the simulation's workload, and looks at it.
    pub fn fill(
        args: &Args,
        simulation: &Simulation,
        (options, workload): (&KeyspaceOptions, &Workload),
        (memory_bytes, memtable_bytes): (usize, usize),
        puts: u64,
    ) -> Result<Twin> {
        let directory = scratch::directory(args.db_named(), "drumlin-simulate-")?;
        let too_large = |_| Failure::Usage("this machine has no such memory".into());
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(too_large);
        let settings = Settings {
            memory_bytes,
            memtable_bytes: Some(memtable_bytes),
            layout: options.layout,
            level0_tables: options.level0_tables,
            level1_bytes: options.level1_bytes,
            level_ratio: options.level_ratio,
            table_bytes: options.table_bytes,
            block_bytes: options.block_bytes,
            filter_bits: options.filter_bits_per_key,
            compression: Compression::None,
            ..Settings::default()
        };
        let (fill, threads, together) = match workload.order {
            Order::Random => {
                let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
                ("fillrandom", threads, workload.memtable_puts)
            }
            // Several would put several sequences, and so would several times.
            Order::Ascending => ("fillseq", 1, puts),
        };
        let plan = Plan {
            keys: workload.keys,
            span: None,
            operations: together,
            at_most: None,
            threads,
            rate: None,
            batch: 1,
            together: 1,
            scan_length: 1,
            key_bytes: bytes(workload.key_bytes)?,
            value_bytes: bytes(workload.value_bytes)?,
            compression_ratio: 1.0,
            block_keys: 1,
            seed: SEED,
            pass: 0,
        };
        let watcher = Watcher::new(args.quiet);
        let filled = watcher.followed("a real store".into(), Some(puts), |progress| {
            let store = directory.path().join("store");
            filled(&settings, fill, &plan, puts, &store, &|level| simulation.tier_of(level), progress)
        });
        interrupt::check()?;
        filled.map_err(Failure::of_engine)
    }

    /// How far it is from what was simulated.
    pub fn difference(&self, written: f64, simulated: &TierBytes) -> Difference {
        let tiers: BTreeSet<usize> =
            self.course.bytes.keys().chain(simulated.bytes.keys()).copied().collect();
        let moved = tiers.iter().map(|tier| (self.course.part(*tier) - simulated.part(*tier)).abs());
        Difference {
            written: self.write_amplification / written - 1.0,
            bytes: self.course.bytes() / simulated.bytes() - 1.0,
            // What is of one tier too much is missing of another.
            shape: moved.sum::<f64>() / 2.0,
        }
    }
}

/// Fills a store by as many puts as the plan has at a time, until there are `puts`; before the next nothing is owed.
fn filled(
    settings: &Settings,
    fill: &str,
    plan: &Plan,
    puts: u64,
    directory: &Path,
    tier_of: &dyn Fn(usize) -> usize,
    progress: &Progress,
) -> engine::Result<Twin> {
    fs::create_dir_all(directory)?;
    let store = Store::open(directory, settings)?;
    let workload = workload::Workload::named(fill).ok_or("there is no such workload")?;
    let (mut done, mut user_bytes, mut course) = (0, 0, TierBytes::default());
    while done < puts {
        interrupt::check().map_err(|_| "it was stopped")?;
        let plan = Plan { operations: plan.operations.min(puts - done), seed: SEED + done, ..plan.clone() };
        let measured = drive::drive(&store, workload, &plan, progress)?;
        done += plan.operations;
        user_bytes += measured.user_bytes;
        if done * 2 >= puts {
            course.add(levels(&store)?.iter().map(|level| (tier_of(level.number), level.bytes)));
        }
    }
    store.flush()?;
    store.settle()?;
    let traffic = store.traffic().unwrap_or_default();
    let levels = levels(&store)?;
    store.close()?;
    let written = (traffic.written - traffic.logged) as f64;
    Ok(Twin { write_amplification: written / (user_bytes as f64).max(1.0), levels, course })
}

fn levels(store: &Store) -> engine::Result<Vec<Level>> {
    let levels = store.levels()?.into_iter().enumerate().filter(|(_, level)| !level.tables.is_empty());
    Ok(levels
        .map(|(number, level)| Level {
            number,
            tables: level.tables.len(),
            bytes: level.tables.iter().map(|table| table.file_bytes).sum(),
            entries: level.tables.iter().map(|table| table.entries).sum(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_another_tier_is_counted_once() {
        let course = |moments: &[[(usize, u64); 2]]| {
            let mut course = TierBytes::default();
            moments.iter().for_each(|tiers| course.add(tiers.iter().copied()));
            course
        };
        let simulated = course(&[[(1, 30), (2, 70)], [(1, 50), (2, 50)]]);
        assert!((simulated.bytes() - 100.0).abs() < 1e-9);
        let twin = Twin {
            write_amplification: 2.2,
            levels: Vec::new(),
            course: course(&[[(0, 11), (1, 33)], [(2, 33), (2, 33)]]),
        };
        let Difference { written, bytes, shape } = twin.difference(2.0, &simulated);
        assert!((written - 0.1).abs() < 1e-9 && (bytes + 0.45).abs() < 1e-9 && (shape - 0.1).abs() < 1e-9);
    }
}
