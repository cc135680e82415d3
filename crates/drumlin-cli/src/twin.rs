//! Twin: a real store, filled as a simulated one was, and how far the two are from each other.
//!
//! Place: `simulate --real`.
//!
//! 1. Nothing is owed, and nothing is left in memory, when it is looked at: so it is of a simulation.
//! 2. Values do not compress, and blocks are not compressed: bytes are those that were asked for.

use std::thread;

use drumlin::simulation::{Level, Order, Point, Workload};
use drumlin::{Compression, KeyspaceOptions};
use drumlin_bench::drive::{self, Plan, Progress};
use drumlin_bench::engine;
use drumlin_bench::store::{Settings, Store};
use drumlin_bench::workload;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::Watcher;
use crate::scratch;

/// Seed of the keys.
const SEED: u64 = 42;

/// How it stands.
pub struct Twin {
    /// Bytes of tables written for each byte of keys and values that was put.
    pub write_amplification: f64,
    /// Its levels that have tables.
    pub levels: Vec<Level>,
}

/// Part of what was simulated by which the twin differs from it.
pub struct Difference {
    /// Of the bytes that were written: more, if positive.
    pub written: f64,
    /// Of the bytes that tables have.
    pub bytes: f64,
    /// Bytes that are on another level than they should, of all.
    pub shape: f64,
}

impl Twin {
    /// Fills a store of so much memory, and of memtables of so much, with `puts` of the workload, and looks at it.
    pub fn fill(
        args: &Args,
        options: &KeyspaceOptions,
        workload: &Workload,
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
            flushed: true,
            ..Settings::default()
        };
        let (fill, threads) = match workload.order {
            Order::Random => ("fillrandom", thread::available_parallelism().map_or(1, |n| n.get() as u64)),
            // Several would put several sequences.
            Order::Ascending => ("fillseq", 1),
        };
        let plan = Plan {
            keys: workload.keys,
            span: None,
            operations: puts,
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
        };
        let filled = filled(args, &settings, fill, &plan, &directory.path().join("store"));
        interrupt::check()?;
        filled.map_err(Failure::of_engine)
    }

    /// How far it is from what was simulated.
    pub fn difference(&self, simulated: &Point) -> Difference {
        let of = |levels: &[Level], number: usize| {
            levels.iter().find(|level| level.number == number).map_or(0, |level| level.bytes)
        };
        let sum = |levels: &[Level]| levels.iter().map(|level| level.bytes).sum::<u64>().max(1) as f64;
        let numbers = simulated.levels.iter().chain(&self.levels).map(|level| level.number).max();
        let moved: u64 = (0..=numbers.unwrap_or(0))
            .map(|number| of(&self.levels, number).abs_diff(of(&simulated.levels, number)))
            .sum();
        Difference {
            written: self.write_amplification / simulated.write_amplification - 1.0,
            bytes: sum(&self.levels) / sum(&simulated.levels) - 1.0,
            // What is on one level too much is missing on another.
            shape: moved as f64 / 2.0 / sum(&simulated.levels),
        }
    }
}

fn filled(
    args: &Args,
    settings: &Settings,
    fill: &str,
    plan: &Plan,
    directory: &std::path::Path,
) -> engine::Result<Twin> {
    std::fs::create_dir_all(directory)?;
    let store = Store::open(directory, settings)?;
    let workload = workload::Workload::named(fill).ok_or("there is no such workload")?;
    let measured = Watcher::new(args.quiet).followed(
        "a real store".into(),
        Some(plan.operations),
        |progress: &Progress| drive::drive(&store, workload, plan, progress),
    )?;
    let levels = store.levels()?.into_iter().enumerate().filter(|(_, level)| !level.tables.is_empty());
    let levels = levels
        .map(|(number, level)| Level {
            number,
            tables: level.tables.len(),
            bytes: level.tables.iter().map(|table| table.file_bytes).sum(),
            entries: level.tables.iter().map(|table| table.entries).sum(),
        })
        .collect();
    let traffic = measured.traffic.unwrap_or_default();
    store.close()?;
    let written = (traffic.written - traffic.logged) as f64;
    Ok(Twin { write_amplification: written / (measured.user_bytes as f64).max(1.0), levels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_another_level_is_counted_once() {
        let level = |number, bytes| Level { number, tables: 1, bytes, entries: 1 };
        let simulated = Point {
            puts: 1,
            write_amplification: 2.0,
            space_amplification: 1.0,
            runs: 2,
            reads_per_get: 1.0,
            reads_per_miss: 0.0,
            filter_bytes: 0,
            index_bytes: 0,
            largest_merge: 0,
            levels: vec![level(1, 40), level(2, 60)],
        };
        let twin = Twin { write_amplification: 2.2, levels: vec![level(0, 10), level(1, 30), level(2, 60)] };
        let Difference { written, bytes, shape } = twin.difference(&simulated);
        assert!((written - 0.1).abs() < 1e-9 && bytes == 0.0 && (shape - 0.1).abs() < 1e-9);
    }
}
