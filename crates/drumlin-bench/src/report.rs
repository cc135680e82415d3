//! Reports: one measured run as a line for people and as a line of JSON.
//!
//! Place: made by `session`, printed by whoever called it; `cargo x results` keeps the JSON.
//!
//! 1. Every line says what the figure hangs on: durability, batch, threads, memory, and what was owed when it was taken.
//! 2. The rate of a run that writes is that of the drained time; the burst stands beside it.
//! 3. A figure that was not taken is left out, never zero.

use std::fmt::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::drive::{Measured, Plan};
use crate::engine::{Holds, Traffic};
use crate::latency::Percentiles;
use crate::workload::{Kind, Workload};

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct OfKind {
    /// The kind.
    pub kind: &'static str,
    /// Its figures.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The engine.
    pub engine: &'static str,
    /// Its own settings.
    pub settings: String,
    /// The workload.
    pub workload: &'static str,
    /// Which round of several, from 1.
    pub round: u32,
    /// Keys there were.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Threads.
    pub threads: u64,
    /// Operations a second that were asked for: an open loop.
    pub asked_rate: Option<f64>,
    /// Puts in one batch; keys of one multi-get.
    pub batch: u64,
    /// What a write survives.
    pub durability: &'static str,
    /// The budget of all memory, in bytes.
    pub memory_bytes: u64,
    /// Operations done.
    pub operations: u64,
    /// Puts that a thread did beside, as fast as it could.
    pub beside: Option<u64>,
    /// Of gets, those that found something; of scans, records.
    pub found: u64,
    /// Until the last operation.
    pub burst_s: f64,
    /// Until nothing was owed.
    pub drained_s: f64,
    /// Operations a second: of the drained time where something was written.
    pub rate: f64,
    /// Operations a second until the last operation.
    pub burst_rate: f64,
    /// Bytes that compaction owed then.
    pub debt_bytes: Option<u64>,
    /// Records in memory that were in no order yet then.
    pub unsorted: Option<u64>,
    /// Bytes that it owed when the drained time ended.
    pub debt_left_bytes: Option<u64>,
    /// Seconds that writers were held back for what was owed, of all threads together.
    pub held_back_s: Option<f64>,
    /// In an open loop: how late a thread beside woke at the latest, in nanoseconds, that did nothing but sleep.
    pub wake_latest_ns: Option<u64>,
    /// Processor time of an operation, in microseconds, the background's included; in an open loop, what its threads need to sleep
    /// and wake, too.
    pub processor_us: f64,
    /// Bytes written to files for each byte of the user's.
    pub write_amplification: Option<f64>,
    /// The same without the log.
    pub table_write_amplification: Option<f64>,
    /// Reads of files for an operation.
    pub reads_per_operation: Option<f64>,
    /// Bytes read from files for an operation.
    pub read_bytes_per_operation: Option<f64>,
    /// Bytes that the system says went to a device.
    pub device_written: Option<u64>,
    /// Bytes that the system says came from a device.
    pub device_read: Option<u64>,
    /// Bytes of the store's files for each byte of the user's that is there.
    pub space_amplification: Option<f64>,
    /// Bytes of keys and values that were written.
    pub user_bytes: u64,
    /// Sorted files at the end (of an opened store: when it was opened).
    pub tables: Option<u64>,
    /// Their bytes.
    pub table_bytes: Option<u64>,
    /// Their bytes for each byte of the user's that is there.
    pub table_space_amplification: Option<f64>,
    /// Bytes of memory that hold what is in no such file.
    pub memtable_bytes: Option<u64>,
    /// Bytes of memory that hold filters of such files.
    pub filter_bytes: Option<u64>,
    /// Bytes of memory that open ones take besides.
    pub index_bytes: Option<u64>,
    /// Bytes of log that an open would read.
    pub log_bytes: Option<u64>,
    /// The most resident bytes during the run, mapped files included.
    pub resident_peak: Option<u64>,
    /// Latencies.
    pub latencies: Vec<OfKind>,
}

/// What is known of the engine beside the run.
pub struct About {
    /// Its name.
    pub engine: &'static str,
    /// Its settings.
    pub settings: String,
    /// What a write survives.
    pub durability: &'static str,
    /// The budget of all memory.
    pub memory_bytes: u64,
    /// Which round.
    pub round: u32,
    /// Bytes of the store's files at the end.
    pub files_bytes: Option<u64>,
    /// Keys in it, if that is known.
    pub live: Option<f64>,
    /// Where its data is.
    pub holds: Holds,
}

impl Line {
    /// The line of a run.
    pub fn of(workload: &Workload, plan: &Plan, measured: &Measured, about: About) -> Line {
        let record = (plan.key_bytes + plan.value_bytes) as f64;
        let operations = measured.operations.max(1) as f64;
        let user = measured.user_bytes as f64;
        let of_user = |bytes: u64| (user > 0.0).then(|| bytes as f64 / user);
        let live = about.live.filter(|live| *live > 0.0);
        let of_live =
            |bytes: Option<u64>| bytes.zip(live).map(|(bytes, live)| bytes as f64 / (live * record));
        let traffic = measured.traffic;
        let each = |bytes: fn(&Traffic) -> u64| traffic.map(|t| bytes(&t) as f64 / operations);
        let per_second = |time: Duration| measured.operations as f64 / time.as_secs_f64().max(1e-9);
        let (burst_rate, drained) = (per_second(measured.burst), per_second(measured.drained));
        Line {
            engine: about.engine,
            settings: about.settings,
            workload: workload.name,
            round: about.round,
            keys: plan.keys,
            key_bytes: plan.key_bytes,
            value_bytes: plan.value_bytes,
            threads: plan.threads,
            asked_rate: plan.rate,
            batch: if workload.takes_batches() { plan.batch } else { 1 },
            durability: about.durability,
            memory_bytes: about.memory_bytes,
            operations: measured.operations,
            beside: measured.beside,
            found: measured.found,
            burst_s: measured.burst.as_secs_f64(),
            drained_s: measured.drained.as_secs_f64(),
            rate: if workload.writes() { drained } else { burst_rate },
            burst_rate,
            debt_bytes: measured.debt_at_burst,
            unsorted: measured.unsorted_at_burst,
            debt_left_bytes: measured.debt_left,
            held_back_s: measured.held_back.map(|held| held.as_secs_f64()),
            wake_latest_ns: measured.wake_latest.map(|late| late.as_nanos() as u64),
            processor_us: measured.usage.processor.as_secs_f64() * 1e6 / operations,
            write_amplification: traffic.and_then(|t| of_user(t.written)),
            table_write_amplification: traffic.and_then(|t| of_user(t.written - t.logged)),
            reads_per_operation: each(|t| t.reads),
            read_bytes_per_operation: each(|t| t.read),
            device_written: measured.usage.written,
            device_read: measured.usage.read,
            space_amplification: of_live(about.files_bytes),
            user_bytes: measured.user_bytes,
            tables: about.holds.tables,
            table_bytes: about.holds.table_bytes,
            table_space_amplification: of_live(about.holds.table_bytes),
            memtable_bytes: about.holds.memtable_bytes,
            filter_bytes: about.holds.filter_bytes,
            index_bytes: about.holds.index_bytes,
            log_bytes: about.holds.log_bytes,
            resident_peak: measured.usage.resident_peak,
            latencies: measured
                .latencies
                .iter()
                .filter(|(_, latency)| latency.count() > 0)
                .map(|(kind, latency)| OfKind { kind: kind.name(), percentiles: latency.percentiles() })
                .collect(),
        }
    }
}

/// A number of nanoseconds, in the unit that suits it.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A number with its thousands parted.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of a thing.
fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number as f64), if number == 1 { "" } else { "s" })
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22} {:>12} ops/s", self.workload, grouped(self.rate))?;
        if self.user_bytes > 0 {
            write!(f, ", burst {}", grouped(self.burst_rate))?;
        }
        if let Some(debt) = self.debt_bytes {
            write!(f, " with {} owed", mib(debt))?;
        }
        if let Some(left) = self.debt_left_bytes.filter(|left| *left > 0) {
            write!(f, " and {} still owed at the end", mib(left))?;
        }
        if let Some(unsorted) = self.unsorted.filter(|unsorted| *unsorted > 0) {
            write!(f, ", {} records not sorted then", grouped(unsorted as f64))?;
        }
        if let Some(held) = self.held_back_s.filter(|held| *held > 0.0) {
            write!(f, ", writers held back for {held:.2} s")?;
        }
        if let Some(late) = self.wake_latest_ns {
            write!(f, ", a thread that only slept {} late at the latest", time(late as f64))?;
        }
        if let Some(puts) = self.beside {
            write!(f, ", beside {} puts", grouped(puts as f64))?;
        }
        write!(f, ", {:.2} µs of processor each", self.processor_us)?;
        writeln!(f)?;
        let finds = self.latencies.iter().any(|of| Kind::FINDING.iter().any(|kind| kind.name() == of.kind));
        let mut about = format!(
            "{} operations{} on {} keys of {} + {} bytes, {}, {} durability, batches of {}, {} of memory",
            grouped(self.operations as f64),
            if finds { format!(", {} found,", grouped(self.found as f64)) } else { String::new() },
            grouped(self.keys as f64),
            self.key_bytes,
            self.value_bytes,
            counted(self.threads, "thread"),
            self.durability,
            self.batch,
            mib(self.memory_bytes)
        );
        if let Some(rate) = self.asked_rate {
            write!(about, ", asked for {} a second", grouped(rate))?;
        }
        writeln!(f, "{:23}{about}\n{:23}{}", "", "", self.settings)?;
        let mut moved = Vec::new();
        if let Some(times) = self.write_amplification {
            moved.push(format!("write amplification {times:.2}"));
        }
        if let Some(times) = self.table_write_amplification {
            moved.push(format!("of tables alone {times:.2}"));
        }
        if let (Some(bytes), true) = (self.device_written, self.user_bytes > 0) {
            moved.push(format!("as the system counts {:.2}", bytes as f64 / self.user_bytes as f64));
        }
        if let (Some(reads), Some(bytes)) = (self.reads_per_operation, self.read_bytes_per_operation) {
            moved.push(format!("{reads:.3} file reads of {bytes:.0} bytes an operation"));
        }
        if let Some(times) = self.space_amplification {
            moved.push(format!("space amplification {times:.2}"));
        }
        if let Some(times) = self.table_space_amplification {
            moved.push(format!("of tables alone {times:.2}"));
        }
        if let Some(peak) = self.resident_peak {
            moved.push(format!("resident at most {}", mib(peak)));
        }
        if !moved.is_empty() {
            writeln!(f, "{:23}{}", "", moved.join(", "))?;
        }
        let held = [
            self.tables.map(|tables| counted(tables, "table")),
            self.memtable_bytes.map(|bytes| format!("{} in memtables", mib(bytes))),
            self.filter_bytes.map(|bytes| format!("{} in filters", mib(bytes))),
            self.log_bytes.map(|bytes| format!("{} of log", mib(bytes))),
        ];
        let held: Vec<String> = held.into_iter().flatten().collect();
        if !held.is_empty() {
            writeln!(f, "{:23}{}", "", held.join(", "))?;
        }
        for OfKind { kind, percentiles: p } in &self.latencies {
            let at = |ns: u64| time(ns as f64);
            writeln!(
                f,
                "{:23}{kind}: mean {}, p50 {}, p90 {}, p99 {}, p99.9 {}, p99.99 {}, max {}",
                "",
                time(p.mean_ns),
                at(p.p50_ns),
                at(p.p90_ns),
                at(p.p99_ns),
                at(p.p999_ns),
                at(p.p9999_ns),
                at(p.max_ns)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(
            (time(812.0), time(15_000.0), time(2.5e6)),
            ("812 ns".into(), "15.0 µs".into(), "2.5 ms".into())
        );
    }
}
