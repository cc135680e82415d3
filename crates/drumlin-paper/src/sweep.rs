//! Sweeps: whole stores over threads or memory, all engines at each place in turns.
//!
//! Place: the figures of `flodb` and `clsm` that are of whole stores.

use drumlin_bench::engine::Result;
use serde_json::Value;

use crate::figure::Tell;
use crate::lab::{Engine, Lab, field, latency};
use crate::point::Point;

/// What is told of a run.
pub type Told = fn(&Value) -> Result<f64>;

/// Operations a second, until nothing is owed.
pub fn rate(line: &Value) -> Result<f64> {
    field(line, "rate")
}

/// Operations a second, until the last of them.
pub fn burst(line: &Value) -> Result<f64> {
    field(line, "burst_rate")
}

/// All engines with each number of threads.
pub fn threads(lab: &Lab<'_>, tell: &mut Tell<'_>, words: impl Fn(u64) -> String, told: Told) -> Result<()> {
    for &threads in &lab.setting.threads {
        for engine in lab.engines() {
            let line = lab.run(engine, &words(threads))?;
            tell(Point { series: engine.series().into(), x: threads as f64, y: told(&line)?, raw: line })?;
        }
    }
    Ok(())
}

/// The same with the rate across, and the latency of nine in ten upwards.
pub fn latency_over_rate(
    lab: &Lab<'_>,
    tell: &mut Tell<'_>,
    words: impl Fn(u64) -> String,
    kind: &str,
) -> Result<()> {
    for &threads in &lab.setting.threads {
        for engine in lab.engines() {
            let line = lab.run(engine, &words(threads))?;
            let (x, y) = (burst(&line)?, latency(&line, kind, "p90_ns")?);
            tell(Point { series: engine.series().into(), x, y, raw: line })?;
        }
    }
    Ok(())
}

/// Engines with each memory component, in MiB, and the memory that goes with it.
pub fn sizes(
    lab: &Lab<'_>,
    tell: &mut Tell<'_>,
    engines: &[Engine],
    words: impl Fn(u64) -> String,
    told: Told,
) -> Result<()> {
    for &size in &lab.setting.sizes {
        for &engine in engines {
            let line = lab.run(engine, &format!("{} {}", words(size), memory(size)))?;
            tell(Point { series: engine.series().into(), x: size as f64, y: told(&line)?, raw: line })?;
        }
    }
    Ok(())
}

/// A memory component, and all memory: a store's memtable has a quarter of that at most.
pub fn memory(size: u64) -> String {
    format!("--memtable {size} --memory {}", size * 4)
}
