//! Figures beside limits: which limit no store can pass in a workload, and how near it came.
//!
//! Place: printed by `bench --limits` behind the lines of the workloads.
//!
//! 1. A put cannot be faster than a copy into the log, nor, if it is to survive a power loss, than a sync.
//! 2. A get from memory cannot be faster than one cache miss; nor a scan.
//! 3. A walk over all records cannot be faster than reading their bytes.

use std::fmt::Write;

use super::{Limit, Unit};
use crate::report::{Line, grouped};
use crate::workload::{Kind, Workload};

/// The name of the limit of a workload, and how many of the limit's units one operation takes.
fn limit_of(line: &Line) -> Option<(&'static str, f64)> {
    let workload = Workload::named(line.workload)?;
    let is_walk = workload.mix.iter().any(|(kind, _)| matches!(kind, Kind::Walk | Kind::WalkBack));
    let record = (line.key_bytes + line.value_bytes) as f64;
    let batch = line.batch.max(1) as f64;
    Some(match line.durability {
        "Disk" if workload.writes() => ("sync", 1.0 / batch),
        _ if workload.writes() => ("log-copy", 1.0),
        _ if is_walk => ("read-memory", record),
        _ => ("chase-huge", 1.0),
    })
}

/// A row for each line that has a limit.
pub fn table(lines: &[Line], limits: &[Limit]) -> String {
    let mut text = format!(
        "{:22} {:12} {:>14}  {:16} {:>14} {:>8}\n",
        "workload", "engine", "ops/s", "limit", "ops/s", "part"
    );
    for line in lines {
        let Some((name, each)) = limit_of(line) else { continue };
        // A limit that was measured with one thread only is that of each thread, or of the one device.
        let with = |threads| limits.iter().find(|limit| limit.name == name && limit.threads == threads);
        let Some(limit) = with(line.threads as usize).or_else(|| with(1)) else { continue };
        let Some(figure) = limit.figure else { continue };
        let most = match limit.unit {
            Unit::Nanoseconds => 1e9 / figure * line.threads as f64,
            Unit::PerSecond | Unit::BytesPerSecond => figure / each,
        };
        let _ = writeln!(
            text,
            "{:22} {:12} {:>14}  {name:16} {:>14} {:>7.1}%",
            line.workload,
            line.engine,
            grouped(line.rate),
            grouped(most),
            line.rate / most * 100.0
        );
    }
    text
}
