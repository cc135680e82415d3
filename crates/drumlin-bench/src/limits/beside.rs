//! Figures beside limits: what no store can pass in a workload on this machine, and how near it came.
//!
//! Place: printed by `bench --limits` behind the lines of the workloads; `cargo x results` draws the limits.
//!
//! 1. A put cannot be faster than a copy into the log; if it is to survive a power loss, than its share of a sync; if it is
//!    not logged, than a change of a line of memory.
//! 2. A get or a scan cannot be faster than one cache miss; an update, than a miss and a put; a delete, than a put.
//! 3. A walk over all records cannot be faster than reading their bytes.
//! 4. A mix cannot be faster than its parts together. Of calls that take several keys nothing is said: they overlap misses; nor of
//!    reads past the store, which are a limit themselves.
//!
//! Tests: below; the table is printed in `tests/bench.rs` of the command line.

use std::fmt::Write;

use serde::Serialize;

use super::{Limit, Unit};
use crate::report::{Line, grouped};
use crate::workload::{Kind, Workload};

/// A figure and its limit.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The workload.
    pub workload: &'static str,
    /// The engine.
    pub engine: &'static str,
    /// Which round.
    pub round: u32,
    /// Operations a second.
    pub rate: f64,
    /// The names of the limits that bound it.
    pub limit: String,
    /// Operations a second that no store passes.
    pub at_most: f64,
    /// The part of it that was reached.
    pub part: f64,
}

/// The limits of one operation of a kind.
fn limits_of(kind: Kind, durability: &str) -> &'static [&'static str] {
    let put: &[&str] = match durability {
        "Disk" => &["sync"],
        "Memory" => &["update-line-huge"],
        _ => &["log-copy"],
    };
    match (kind, put) {
        (Kind::Get | Kind::GetAbsent | Kind::Scan, _) => &["chase-huge"],
        (Kind::Walk | Kind::WalkBack, _) => &["read-memory"],
        (Kind::Update, ["log-copy"]) => &["chase-huge", "log-copy"],
        (Kind::PutSynced, _) => &["sync"],
        (Kind::GetMany | Kind::Open | Kind::Block, _) => &[],
        _ => put,
    }
}

/// Seconds that one unit of a limit takes, all threads together, for a record of so many bytes.
fn seconds(limits: &[Limit], name: &str, threads: u64, record_bytes: f64) -> Option<f64> {
    let with =
        |threads: u64| limits.iter().find(|limit| limit.name == name && limit.threads as u64 == threads);
    // A limit that was measured with one thread only is that of each thread, or of the one device.
    let limit = with(threads).or_else(|| with(1))?;
    let figure = limit.figure?;
    Some(match limit.unit {
        Unit::Nanoseconds => figure / 1e9 / threads as f64,
        Unit::BytesPerSecond => record_bytes / figure,
        // One sync is enough for all threads that wait.
        Unit::PerSecond if name == "sync" => 1.0 / figure / threads as f64,
        Unit::PerSecond => 1.0 / figure,
        Unit::BitsPerKey => return None,
    })
}

/// The names of the limits of a workload, and how many operations a second they allow; if that is known.
pub fn at_most(
    workload: &Workload,
    durability: &str,
    threads: u64,
    record_bytes: f64,
    limits: &[Limit],
) -> Option<(String, f64)> {
    let (mut names, mut each) = (Vec::new(), 0.0);
    for (kind, share) in workload.mix {
        let bounds = limits_of(*kind, durability);
        if bounds.is_empty() {
            return None;
        }
        for name in bounds {
            each += share * seconds(limits, name, threads, record_bytes)?;
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    Some((names.join(" + "), 1.0 / each))
}

/// The limit of a line, if one is known.
pub fn of(line: &Line, limits: &[Limit]) -> Option<Beside> {
    let workload = Workload::named(line.workload)?;
    if line.batch > 1 {
        return None;
    }
    let record_bytes = (line.key_bytes + line.value_bytes) as f64;
    let (limit, at_most) = at_most(workload, line.durability, line.threads, record_bytes, limits)?;
    Some(Beside {
        workload: line.workload,
        engine: line.engine,
        round: line.round,
        rate: line.rate,
        limit,
        at_most,
        part: line.rate / at_most,
    })
}

/// A row for each line that has a limit.
pub fn table(rows: &[Beside]) -> String {
    let mut text = format!(
        "{:22} {:12} {:>14}  {:24} {:>14} {:>8}\n",
        "workload", "engine", "ops/s", "limit", "ops/s", "part"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "{:22} {:12} {:>14}  {:24} {:>14} {:>7.1}%",
            row.workload,
            row.engine,
            grouped(row.rate),
            row.limit,
            grouped(row.at_most),
            row.part * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Bench;
    use crate::drive::Measured;
    use crate::report::About;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        bench: Bench,
    }

    /// The limit of a thousand operations in a second.
    fn limit(workload: &str, arguments: &[&str]) -> Option<Beside> {
        let Program { bench } = Program::try_parse_from(["bench"].iter().chain(arguments)).expect("parses");
        let workload = Workload::named(workload).expect("it is there");
        let second = Duration::from_secs(1);
        let measured = Measured { operations: 1000, burst: second, drained: second, ..Measured::default() };
        let about = About {
            engine: "a",
            settings: String::new(),
            durability: bench.durability.name(),
            memory_bytes: 0,
            round: 1,
            files_bytes: None,
            live: None,
            holds: Default::default(),
        };
        let figure = |name, unit, threads, figure| Limit {
            name: std::borrow::Cow::Borrowed(name),
            what: "".into(),
            threads,
            figure: Some(figure),
            unit,
            failure: None,
        };
        let limits = [
            figure("log-copy", Unit::PerSecond, 1, 10_000.0),
            figure("log-copy", Unit::PerSecond, 2, 15_000.0),
            figure("chase-huge", Unit::Nanoseconds, 1, 50_000.0),
            figure("read-memory", Unit::BytesPerSecond, 1, 116e4),
            figure("sync", Unit::PerSecond, 1, 500.0),
        ];
        of(&Line::of(workload, &bench.plan(workload), &measured, about), &limits)
    }

    #[test]
    fn limits_are_those_of_what_is_done() {
        let at_most = |workload: &str, arguments: &[&str]| {
            limit(workload, arguments).map(|beside| beside.at_most.round())
        };
        assert_eq!(at_most("fillrandom", &[]), Some(10_000.0));
        assert_eq!(at_most("fillrandom", &["--threads", "2"]), Some(15_000.0));
        assert_eq!(at_most("fillrandom", &["--threads", "16", "--durability", "disk"]), Some(8000.0));
        assert_eq!(at_most("fillrandom", &["--batch-size", "10"]), None);
        assert_eq!(at_most("readrandom", &["--threads", "2"]), Some(40_000.0));
        assert_eq!(at_most("readseq", &[]), Some(10_000.0));
        // Half of 100 µs and half of 50 µs.
        assert_eq!(at_most("ycsba", &[]), Some(13_333.0));
        assert_eq!(limit("ycsba", &[]).expect("known").limit, "chase-huge + log-copy");
        assert_eq!(limit("fillrandom", &[]).expect("known").part, 0.1);
        assert_eq!(at_most("open", &[]), None);
    }
}
