//! A store's figures in words, and its tree as a drawing.
//!
//! Place: used by `stats`, `shape`, `compact` and `tour`; the figures come from `Db::stats`.
//!
//! 1. Bytes have units and counts have commas, by the helpers of `output` alone.
//! 2. All bars of a drawing have one scale, which is written below it.
//! 3. A memtable without versions counts as no bytes: what it has is room it took in advance.

use std::fmt::Write;
use std::path::Path;

use drumlin::{KeyspaceStats, LevelStats, Stats, ValueStats};

use crate::output::{bytes, count, plural};

/// Cells of the longest bar.
const BAR_CELLS: usize = 40;
/// Parts of a cell, by eighths.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// What lies in the log's directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFiles {
    /// Segments.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of the ballast, which holds no data.
    pub ballast_bytes: u64,
}

/// What is true of the store, whoever opened it.
pub fn store(stats: &Stats, db: &Path, log: &LogFiles) -> String {
    let all = tables(stats.keyspaces.iter());
    let unflushed: u64 = stats.keyspaces.iter().map(|k| k.memtable_versions).sum();
    let mut text = format!("store {}\n", db.display());
    let mut line = |name: &str, figure: String| text.push_str(&format!("  {name:<20}{figure}\n"));
    line("keyspaces", count(stats.keyspaces.len() as u64));
    line("tables", level(&all));
    line("log", format!("{}, {}", plural(log.segments, "file"), bytes(log.bytes)));
    if log.ballast_bytes > 0 {
        line("ballast", format!("{}, given up when the device is full", bytes(log.ballast_bytes)));
    }
    line("keys", format!("about {}", count(stats.keyspaces.iter().map(|k| k.keys).sum())));
    if let Some(space) = stats.space_amplification() {
        line("space", format!("about {space:.2} bytes of files for each that is alive"));
    }
    line("only in the log", plural(unflushed, "version"));
    line("waiting for merge", bytes(stats.debt_bytes));
    if let Some(why) = &stats.poisoned {
        line("read-only", why.clone());
    }
    text + &keyspaces(stats)
}

/// The keyspaces of the store, level by level.
pub fn keyspaces(stats: &Stats) -> String {
    let mut text = String::new();
    for keyspace in &stats.keyspaces {
        text.push_str(&format!("keyspace {}\n", keyspace.name));
        let mut line = |name: &str, figure: String| text.push_str(&format!("  {name:<20}{figure}\n"));
        line("memory", keyspace.memory.to_string());
        line("layout", keyspace.layout.to_string());
        line("keys", format!("about {}", count(keyspace.keys)));
        line("only in the log", plural(keyspace.memtable_versions, "version"));
        for (number, found) in in_use(&keyspace.levels) {
            line(&format!("level {number}"), level(found));
        }
        if keyspace.values.files > 0 {
            line("values", values(&keyspace.values));
        }
    }
    text
}

/// What this process has in memory and has done since it opened the store.
pub fn process(stats: &Stats) -> String {
    let mut text = String::new();
    let mut line = |name: &str, figure: String| text.push_str(&format!("{name:<16}{figure}\n"));
    line(
        "memory",
        format!("{} of a budget of {}", bytes(stats.memory_bytes()), bytes(stats.memory_budget_bytes)),
    );
    line(
        "",
        format!(
            "memtables {}, cached blocks {}, open tables {}, jobs {}",
            bytes(stats.memtable_bytes),
            bytes(stats.cache_bytes),
            bytes(stats.table_resident_bytes),
            bytes(stats.job_bytes)
        ),
    );
    line("writes", format!("up to position {} of the log", count(stats.tail)));
    line("flushes", format!("{}, {} written", count(stats.flushes), bytes(stats.flushed_bytes)));
    line(
        "compactions",
        format!(
            "{}, {} read, {} written",
            count(stats.compactions),
            bytes(stats.compaction_read_bytes),
            bytes(stats.compaction_written_bytes)
        ),
    );
    line(
        "held back",
        format!("{}, {:.1} s together", plural(stats.stalls, "write"), stats.stalled_ns as f64 / 1e9),
    );
    if let Some(moved) = stats.write_amplification() {
        let what = format!("{moved:.1} bytes to log and tables for each of {}", bytes(stats.written_bytes));
        line("write", what);
    }
    if let Some(reads) = stats.reads_per_get() {
        line("read", format!("{reads:.3} blocks from files for each get"));
    }
    for (n, found) in stats.latencies.iter().enumerate() {
        let took = [found.p50_ns, found.p99_ns, found.max_ns].map(time);
        let kind = format!("about {} {:<10}", count(found.operations), found.operation.replace('_', " "));
        let name = if n == 0 { "times" } else { "" };
        line(name, format!("{kind:>31} half in {}, 99 % in {}, longest {}", took[0], took[1], took[2]));
    }
    text
}

/// A time for people.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// The tree: a bar for each level in proportion to its bytes.
pub fn drawing(stats: &Stats) -> String {
    let longest = stats.keyspaces.iter().flat_map(|k| rows(k).into_iter().map(|row| row.bytes)).max();
    let longest = longest.unwrap_or(0);
    let mut text = String::new();
    for keyspace in &stats.keyspaces {
        let all = tables([keyspace].into_iter());
        let _ = writeln!(text, "{}: {}", keyspace.name, level(&all));
        for row in rows(keyspace) {
            let bar = bar(row.bytes, longest);
            let room = " ".repeat(BAR_CELLS - bar.chars().count());
            let _ = writeln!(text, "  {:<7} {bar}{room} {:>11}  {}", row.name, bytes(row.bytes), row.holds);
        }
        text.push('\n');
    }
    if longest == 0 {
        text.push_str("Nothing is stored yet.\n");
        return text;
    }
    let _ = writeln!(text, "The longest bar is {}.", bytes(longest));
    text.push_str(
        "  memory   what is in the log, but in no table yet\n\
         \x20 L0       tables as they were written from memory; they may overlap\n\
         \x20 L1...    merged tables; those of a level lie one behind the other by their keys, and\n\
         \x20          the deeper the level, the older they are\n\
         \x20 values   files of long values, apart from their keys\n\
         A version is one write of a key: a put or a delete. Old ones go when levels are merged.\n",
    );
    text
}

/// The tables of some keyspaces together.
pub fn tables<'s>(keyspaces: impl Iterator<Item = &'s KeyspaceStats>) -> LevelStats {
    keyspaces.flat_map(|k| &k.levels).fold(LevelStats::default(), |all, level| LevelStats {
        tables: all.tables + level.tables,
        bytes: all.bytes + level.bytes,
        versions: all.versions + level.versions,
    })
}

/// Bytes in memory that no table holds yet.
pub fn unflushed_bytes(keyspace: &KeyspaceStats) -> u64 {
    if keyspace.memtable_versions == 0 { 0 } else { keyspace.memtable_bytes }
}

/// One line of a drawing.
struct Row {
    name: String,
    bytes: u64,
    holds: String,
}

/// Level 0, and those that have tables: tiered layouts use few of many.
fn in_use(levels: &[LevelStats]) -> impl Iterator<Item = (usize, &LevelStats)> {
    levels.iter().enumerate().filter(|(number, level)| *number == 0 || level.tables > 0)
}

fn rows(keyspace: &KeyspaceStats) -> Vec<Row> {
    let memory = Row {
        name: "memory".into(),
        bytes: unflushed_bytes(keyspace),
        holds: plural(keyspace.memtable_versions, "version"),
    };
    let levels = in_use(&keyspace.levels).map(|(number, level)| Row {
        name: format!("L{number}"),
        bytes: level.bytes,
        holds: format!("{}, {}", plural(level.tables as u64, "table"), plural(level.versions, "version")),
    });
    let apart = (keyspace.values.files > 0).then(|| Row {
        name: "values".into(),
        bytes: keyspace.values.bytes,
        holds: values(&keyspace.values),
    });
    std::iter::once(memory).chain(levels).chain(apart).collect()
}

/// Value files.
fn values(found: &ValueStats) -> String {
    let all = plural(found.files as u64, "file");
    format!(
        "{all}, {} for {} of {}",
        bytes(found.bytes),
        plural(found.records, "value"),
        bytes(found.live_bytes)
    )
}

/// A bar of at most [`BAR_CELLS`] cells; the least of it is seen.
fn bar(bytes: u64, longest: u64) -> String {
    let eighths = (u128::from(bytes) * BAR_CELLS as u128 * 8).div_ceil(u128::from(longest.max(1))) as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

fn level(level: &LevelStats) -> String {
    format!(
        "{}, {}, {}",
        plural(level.tables as u64, "table"),
        bytes(level.bytes),
        plural(level.versions, "version")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_the_least_is_seen() {
        let cells = |bytes| bar(bytes, 80_000).chars().count();
        assert_eq!((cells(0), cells(1), cells(40_000), cells(80_000)), (0, 1, BAR_CELLS / 2, BAR_CELLS));
        assert_eq!(bar(1, 80_000), "▏");
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(u64::MAX, u64::MAX).chars().count(), BAR_CELLS);
    }

    #[test]
    fn a_drawing_has_units_plurals_and_a_legend() {
        let level = |tables, bytes| LevelStats { tables, bytes, versions: tables as u64 };
        let stats = Stats {
            keyspaces: vec![
                KeyspaceStats {
                    name: "a".into(),
                    levels: vec![level(1, 1 << 20), level(2, 10 << 20)],
                    memtable_bytes: 4096,
                    ..KeyspaceStats::default()
                },
                KeyspaceStats { name: "b".into(), ..KeyspaceStats::default() },
            ],
            ..Stats::default()
        };
        let drawing = drawing(&stats);
        for part in [
            "a: 3 tables, 11.0 MiB, 3 versions",
            "1 table, 1 version",
            "The longest bar is 10.0 MiB.",
            "b: 0 tables",
        ] {
            assert!(drawing.contains(part), "{part}: {drawing}");
        }
        let memory = drawing.lines().find(|line| line.contains("memory")).unwrap();
        assert!(memory.contains(" 0 B "), "room taken in advance is no data: {memory}");
    }
}
