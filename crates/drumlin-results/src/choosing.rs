//! The table of docs/choosing.md: every memory component with every layout, by the workloads of YCSB.
//!
//! Place: made for `page` of what the measurement `pairs` keeps.
//!
//! 1. A row is a run, named by the memory component and the layout of its arguments; a column is a workload. What a layout cannot
//!    do has no figure.
//! 2. The best of a column, and what is within a tenth of it, is set in bold: rounds differ by as much.
//!
//! Tests: below.

use std::fmt::Write;

use drumlin_bench::canvas::short;
use drumlin_bench::machine::Machine;

use crate::figures::Row;
use crate::kept::Kept;
use crate::measurements::Measurement;
use crate::page::day;

/// As good as the best.
const ALIKE: f64 = 0.9;
/// Of the columns, the workload of which it is told what was written and what it takes.
const WRITES: &str = "ycsba";

/// The word behind an argument of a run.
fn argument<'a>(run: &'a str, name: &str) -> &'a str {
    let mut words = run.split_whitespace();
    words.find(|word| *word == name).and_then(|_| words.next()).unwrap_or_default()
}

/// The table.
pub fn table(measurement: &Measurement, kept: &Kept, rows: &[Row]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    workloads.sort_unstable();
    let best = |workload: &str| {
        let of = rows.iter().filter(|row| row.workload == workload).map(|row| row.rate.median);
        of.fold(0.0, f64::max)
    };
    let heads: Vec<String> =
        workloads.iter().map(|name| name.replacen("ycsb", "YCSB ", 1).to_uppercase()).collect();
    let mut text = format!(
        "| operations a second: memory | layout | {} | written | takes |\n|---|---|{}\n",
        heads.join(" | "),
        "--:|".repeat(workloads.len() + 2)
    );
    for (number, run) in measurement.runs.iter().enumerate() {
        let of =
            |workload: &str| rows.iter().find(|row| row.run == number as u64 && row.workload == workload);
        if !workloads.iter().any(|workload| of(workload).is_some()) {
            continue;
        }
        let rate = |workload: &&str| match of(workload).map(|row| row.rate.median) {
            Some(rate) if rate >= ALIKE * best(workload) => format!("**{}**", short(rate)),
            Some(rate) => short(rate),
            None => "–".into(),
        };
        let times = |figure: Option<f64>| figure.map_or_else(|| "–".into(), |times| format!("{times:.1}x"));
        let written = of(WRITES).and_then(|row| row.write_amplification).map(|span| span.median);
        let takes = of(WRITES).and_then(|row| row.table_space_amplification).map(|span| span.median);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            argument(run, "--component"),
            argument(run, "--layout"),
            workloads.iter().map(rate).collect::<Vec<_>>().join(" | "),
            times(written),
            times(takes)
        );
    }
    let machine = Machine::words(&kept.head["machine"]);
    let _ = writeln!(
        text,
        "\nIn bold: the best of a column, and what is within a tenth of it. *Written*: bytes written, the log's among them, for each \
         byte of the user's, in YCSB A; *takes*: bytes of tables for each byte of the user's, behind it. {machine}; {}, medians of \
         {} rounds.",
        day(kept.at),
        kept.head["rounds"]
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows;
    use crate::measurements::named;
    use serde_json::json;

    #[test]
    fn a_row_is_a_pair_and_what_it_cannot_do_has_no_figure() {
        let pairs = named("pairs").expect("it is there");
        let line = |run: u64, workload: &str, rate: f64| {
            json!({"run": run, "engine": "Drumlin", "workload": workload, "threads": 2, "rate": rate,
                   "write_amplification": 2.0 + run as f64, "table_space_amplification": 1.25})
        };
        let mut lines = Vec::new();
        for (run, words) in pairs.runs.iter().enumerate().take(4) {
            for workload in argument(words, "--benchmarks").split(',') {
                let rate = if workload == "ycsbe" { 2e4 } else { 1e5 + 2e4 * run as f64 };
                lines.push(line(run as u64, workload, rate));
            }
        }
        let head = json!({"machine": {"processor": "P", "cores": 2}, "rounds": 3});
        let kept = Kept { head, at: 1_735_689_600, lines };
        let text = table(pairs, &kept, &rows(&kept));
        for part in [
            "| operations a second: memory | layout | YCSB A | YCSB B | YCSB C | YCSB D | YCSB E | YCSB F | written | takes |",
            "| sorted | leveled | 100 k | 100 k | 100 k | 100 k | **20.0 k** | 100 k | 2.0x | 1.2x |",
            "| sorted | trie | **160 k** | **160 k** | **160 k** | **160 k** | – | **160 k** | 5.0x | 1.2x |",
            "2025-01-01, medians of 3 rounds.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("| sorted")).count(), 4);
        assert!(!text.contains("two-tier"), "what was not measured has no row");
    }

    #[test]
    fn all_pairs_are_measured_and_a_trie_is_asked_for_no_scan() {
        let pairs = named("pairs").expect("it is there");
        let mut all: Vec<(&str, &str)> = Vec::new();
        for run in pairs.runs {
            let layout = argument(run, "--layout");
            all.push((argument(run, "--component"), layout));
            assert_eq!(argument(run, "--benchmarks").contains("ycsbe"), layout != "trie", "{run}");
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
    }
}
