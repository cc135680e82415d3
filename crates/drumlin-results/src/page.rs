//! The page: what is kept as tables, pictures and verdicts, and the README's region.
//!
//! Place: made last by `main`, of kept files alone.
//!
//! 1. The table of peers stands between two marks in the page and in the README, and is the same there: `cargo x tidy`
//!    compares them.
//! 2. The table of pairs stands between the same marks in docs/choosing.md, where it is used, and nowhere else.
//! 3. Each measurement says by which commit and on which machine it was made; where all say the same, it is said once.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use drumlin_bench::canvas::short;
use drumlin_bench::machine::Machine;
use drumlin_bench::report::{grouped, time};
use drumlin_bench::workload::Workload;

use crate::comparisons::{self, Comparison};
use crate::figures::{self, PERCENTILES, Row};
use crate::goals::{Found, apart};
use crate::kept::{self, Kept, Place};
use crate::measurements::{Drawn, Measurement};
use crate::picture;
use crate::{Result, choosing};

/// Between these lines stands what is written by nobody's hand.
const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

/// Writes the page, the pictures and the README's region; gives the page's path.
pub fn write(place: &Place) -> Result<PathBuf> {
    let all = kept::all(place)?;
    let limits = all.iter().find(|(measurement, _)| measurement.name == "limits");
    let limits = limits.map(|(_, kept)| figures::limits(kept)).unwrap_or_default();
    let pictures = place.page.parent().and_then(|base| place.results.strip_prefix(base).ok());
    let pictures = pictures.unwrap_or(&place.results).to_path_buf();
    let (mut verdicts, mut body) = (String::new(), String::new());
    let (mut region, mut pairs) =
        (String::new(), String::from("Nothing is kept yet: `cargo x results pairs` measures it.\n"));
    for (measurement, kept) in &all {
        let mut rows = figures::rows(kept);
        let own = figures::limits(kept);
        let limits = if own.is_empty() { &limits } else { &own };
        figures::set_limits(&mut rows, kept, limits);
        let comparisons = comparisons::of(kept);
        for goal in measurement.goals {
            let found = Found { rows: &rows, comparisons: &comparisons, limits };
            let verdict = goal.judge(&found, measurement.runs);
            let holds = if verdict.holds { "yes" } else { "**no**" };
            let _ = writeln!(
                verdicts,
                "| [{}](#{}) | {} | {} | {holds} |",
                measurement.name, measurement.name, verdict.says, verdict.found
            );
        }
        section(&mut body, measurement, kept, &rows, &all, &pictures);
        let differs = |run: u64| differs(measurement, run);
        let svg = match measurement.drawn {
            Drawn::Bars => Some(picture::bars(measurement.shows, &rows, &differs)),
            Drawn::Latencies => Some(picture::latencies(measurement.shows, &rows)),
            Drawn::No => None,
        };
        if let Some(svg) = svg.filter(|_| !rows.is_empty()) {
            save(&place.results.join(format!("{}.svg", measurement.name)), &svg)?;
        }
        if measurement.name == "peers" {
            region = peers(kept, &rows);
        }
        if measurement.name == "pairs" {
            pairs = choosing::table(measurement, kept, &rows);
        }
    }
    let mut page = String::from(
        "# Results\n\nMade by `cargo x results` of the raw lines in `results/`; not to be edited. Figures are medians over \
         rounds, in which all engines take turns. A write figure's time ends when nothing is owed; the burst \
         before stands beside it. Keys have 16 bytes, values 100, which do not compress; a write survives the \
         process's death, if nothing else is said. `drumlin-peers` is `cargo run --release --manifest-path \
         peers/Cargo.toml --`.\n\n",
    );
    if place.readme.is_none() {
        page.push_str("**This was a quick run: it shows that everything can be measured, and no figure means anything.**\n\n");
    }
    for origin in origins(&all) {
        let _ = writeln!(page, "{origin}\n");
    }
    if !verdicts.is_empty() {
        let _ = write!(
            page,
            "## What must hold\n\n| measurement | must hold | found | holds |\n|---|---|---|---|\n{verdicts}\n"
        );
    }
    if all.is_empty() {
        page.push_str("Nothing is kept yet.\n");
    }
    if !region.is_empty() {
        let _ = write!(page, "## Beside other engines\n\n{BEGIN}\n{region}{END}\n\n");
    }
    page.push_str(body.trim_end());
    page.push('\n');
    save(&place.page, &page)?;
    for (path, region) in [(&place.readme, &region), (&place.choosing, &pairs)] {
        path.as_deref().map_or(Ok(()), |path| save_region(path, region))?;
    }
    Ok(place.page.clone())
}

/// Puts a region between the marks of a text that is written by hand.
fn save_region(path: &Path, region: &str) -> Result<()> {
    let text = fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let text = replaced(&text, region).ok_or_else(|| format!("{} has not both marks", path.display()))?;
    save(path, &text)
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|e| format!("make {}: {e}", directory.display()))?;
    }
    fs::write(path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

/// A text with its region replaced.
fn replaced(text: &str, region: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{region}{END}{after}"))
}

/// Machine and commit of a measurement.
fn origin(kept: &Kept) -> String {
    let commit = kept.head["commit"].as_str().unwrap_or("an unknown commit");
    let machine = Machine::words(&kept.head["machine"]);
    format!("Machine: {machine}. Commit: `{commit}`.")
}

/// All that there are.
fn origins(all: &[(&Measurement, Kept)]) -> BTreeSet<String> {
    all.iter().map(|(_, kept)| origin(kept)).collect()
}

/// The day of a time since 1970.
pub fn day(seconds: u64) -> String {
    // Days since 0000-03-01, in cycles of 400 years.
    let days = seconds / 86_400 + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{date:02}", cycle * 400 + year + u64::from(month <= 2))
}

/// What tells a run from others, beside its threads.
fn differs(measurement: &Measurement, run: u64) -> String {
    let words = measurement.runs.get(run as usize).copied().unwrap_or_default();
    apart(words, &["--threads"])
}

/// One measurement.
fn section(
    body: &mut String,
    measurement: &Measurement,
    kept: &Kept,
    rows: &[Row],
    all: &[(&Measurement, Kept)],
    pictures: &Path,
) {
    let Measurement { name, shows, .. } = measurement;
    let (first, rest) = shows.split_at(1);
    let rounds = match kept.head["rounds"].as_u64() {
        Some(1) | None => String::new(),
        Some(rounds) => format!(" {rounds} rounds."),
    };
    let _ = write!(body, "## {name}\n\n{}{rest}.{rounds} {}.\n", first.to_uppercase(), day(kept.at));
    if origins(all).len() > 1 {
        let _ = writeln!(body, "{}", origin(kept));
    }
    let commands = kept.head["commands"].as_array().cloned().unwrap_or_default();
    body.push_str("\n```sh\n");
    for command in commands.iter().filter_map(|command| command.as_str()) {
        let _ = writeln!(body, "{command}");
    }
    let _ = write!(body, "```\n\n");
    if measurement.drawn != Drawn::No && !rows.is_empty() {
        let _ = write!(body, "![{shows}]({}/{name}.svg)\n\n", pictures.display());
    }
    let comparisons = comparisons::of(kept);
    match (rows.is_empty(), comparisons.is_empty()) {
        (false, _) => {
            table(body, measurement, rows);
            if !figures::limits(kept).is_empty() {
                limits(body, kept);
            }
        }
        (true, false) => foretold(body, measurement, &comparisons),
        (true, true) => limits(body, kept),
    }
    grid(body, kept);
}

/// Medians, and what they hang on.
fn table(body: &mut String, measurement: &Measurement, rows: &[Row]) {
    body.push_str(
        "| workload | engine | ops/s | from .. to | burst | processor | written | resident | p50 | p99 | p99.9 | p99.99 | max |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in rows {
        let some = |figure: Option<String>| figure.unwrap_or_else(|| "–".into());
        let writes = Workload::named(&row.workload).is_some_and(Workload::writes);
        let latency = |at: usize| {
            // Of the longest ones the longest of all rounds.
            let of = |span: &figures::Span| if at + 1 == PERCENTILES.len() { span.most } else { span.median };
            let mut all = row.latencies.iter().map(|one| (&one.kind, of(&one.percentiles[at])));
            match row.latencies.len() {
                1 => some(all.next().map(|(_, ns)| time(ns))),
                _ => all.map(|(kind, ns)| format!("{kind} {}", time(ns))).collect::<Vec<_>>().join("<br>"),
            }
        };
        let span = match row.rounds {
            1 => "–".into(),
            _ => format!("{} .. {}", rate(row.rate.least), rate(row.rate.most)),
        };
        let _ = writeln!(
            body,
            "| {} | {} | {} | {span} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            picture::group(row, &differs(measurement, row.run)),
            row.engine,
            rate(row.rate.median),
            some(row.burst_rate.filter(|_| writes).map(|span| rate(span.median))),
            some(row.processor_us.map(|span| format!("{:.2} µs", span.median))),
            some(row.write_amplification.map(|span| format!("{:.1}x", span.median))),
            some(row.resident_peak.map(|span| format!("{:.0} MiB", span.most / f64::from(1 << 20)))),
            latency(0),
            latency(2),
            latency(3),
            latency(4),
            latency(5),
        );
    }
    body.push('\n');
    let mut settings: Vec<(&str, &str)> =
        rows.iter().map(|row| (row.engine.as_str(), row.settings.as_str())).collect();
    settings.sort_unstable();
    settings.dedup();
    for (engine, settings) in settings {
        let _ = writeln!(body, "- {engine}: {settings}");
    }
    body.push('\n');
}

/// What was foretold, and what was found.
fn foretold(body: &mut String, measurement: &Measurement, comparisons: &[Comparison]) {
    body.push_str("| run | figure | foretold | found | differs | of |\n|---|---|--:|--:|--:|---|\n");
    let figure = |figure: f64| if figure < 100.0 { format!("{figure:.2}") } else { grouped(figure) };
    for one in comparisons {
        let _ = writeln!(
            body,
            "| {} | {} | {} | {} | {:+.1} % | {} |",
            differs(measurement, one.run),
            one.what,
            figure(one.foretold),
            figure(one.found),
            one.differs() * 100.0,
            one.of
        );
    }
    body.push('\n');
}

/// A rate; what takes longer than a tenth of a second keeps its digits.
fn rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.3}") } else { grouped(rate) }
}

/// The machine's limits.
fn limits(body: &mut String, kept: &Kept) {
    body.push_str("| limit | threads | at most | what was done |\n|---|--:|--:|---|\n");
    for limit in figures::limits(kept) {
        let _ = writeln!(body, "| {} | {} | {} | {} |", limit.name, limit.threads, limit.told(), limit.what);
    }
    body.push('\n');
}

/// What was tried before.
fn grid(body: &mut String, kept: &Kept) {
    let tried = figures::grid(kept);
    if tried.is_empty() {
        return;
    }
    let mut from: Vec<&str> = kept.lines.iter().filter_map(|line| line["from"].as_str()).collect();
    from.dedup();
    if let Some(commit) = from.first() {
        let _ = writeln!(body, "Settings of other engines: those that were best on commit `{commit}`.\n");
    }
    body.push_str("<details><summary>Settings that were tried</summary>\n\n");
    body.push_str("| run | engine | workload | keys | ops/s | settings |\n|--:|---|---|--:|--:|---|\n");
    for figures::Tried { run, engine, workload, keys, settings, rate: per_second, is_best } in tried {
        let mark = if is_best { "**" } else { "" };
        let _ = writeln!(
            body,
            "| {} | {engine} | {workload} | {} | {mark}{}{mark} | {settings} |",
            run + 1,
            grouped(keys as f64),
            rate(per_second)
        );
    }
    body.push_str("\n</details>\n\n");
}

/// The table of peers: workloads and threads down, engines across.
fn peers(kept: &Kept, rows: &[Row]) -> String {
    let mut engines: Vec<&str> = Vec::new();
    for row in rows {
        if !engines.contains(&row.engine.as_str()) {
            engines.push(&row.engine);
        }
    }
    let mut text = format!("| a second | {} |\n|---|{}\n", engines.join(" | "), "--:|".repeat(engines.len()));
    let mut shown = Vec::new();
    for row in rows {
        let of = (&row.workload, row.threads);
        if shown.contains(&of) {
            continue;
        }
        shown.push(of);
        let same: Vec<&Row> = rows.iter().filter(|other| (&other.workload, other.threads) == of).collect();
        let best = same.iter().map(|row| row.rate.median).fold(0.0, f64::max);
        let cell = |engine: &&str| match same.iter().find(|row| row.engine == **engine) {
            Some(row) if row.rate.median >= best => format!("**{}**", short(row.rate.median)),
            Some(row) => short(row.rate.median),
            None => "–".into(),
        };
        let cells: Vec<String> = engines.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", picture::group(row, ""), cells.join(" | "));
    }
    let machine = Machine::words(&kept.head["machine"]);
    let _ = write!(text, "\n{machine}; {}, medians of {} rounds.\n", day(kept.at), kept.head["rounds"]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::named;
    use serde_json::json;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, right) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_735_689_600, "2025-01-01"),
        ] {
            assert_eq!(day(seconds), right);
        }
    }

    #[test]
    fn a_region_is_replaced_and_nothing_else() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let once = replaced(&text, "new\n").expect("both marks are there");
        assert_eq!(once, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(replaced(&once, "new\n"), Some(once));
        assert_eq!(replaced("no mark", "new\n"), None);
    }

    #[test]
    fn kept_lines_become_a_page_with_pictures_and_the_readmes_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let base = directory.path();
        let readme = base.join("README.md");
        fs::write(&readme, format!("before\n{BEGIN}\n{END}\nafter\n")).expect("written");
        let choosing = base.join("docs/choosing.md");
        fs::create_dir_all(base.join("docs")).expect("made");
        fs::write(&choosing, format!("in words\n{BEGIN}\n{END}\n")).expect("written");
        let place = Place {
            results: base.join("docs/results"),
            page: base.join("docs/RESULTS.md"),
            readme: Some(readme.clone()),
            choosing: Some(choosing.clone()),
            unfinished: base.join("unfinished"),
        };
        let empty = fs::read_to_string(write(&place).expect("a page without figures")).expect("read");
        assert!(empty.contains("Nothing is kept yet.") && !empty.contains(BEGIN));
        let pairs = || fs::read_to_string(&choosing).expect("read");
        assert!(pairs().starts_with("in words\n") && pairs().contains("`cargo x results pairs` measures it"));
        let line = |engine: &str, workload: &str, rate: f64, grid: bool| {
            json!({"run": 0, "engine": engine, "workload": workload, "threads": 1, "rate": rate, "burst_rate": rate,
                   "grid": grid, "settings": "as it comes", "memory_bytes": 1 << 29, "key_bytes": 16, "value_bytes": 100,
                   "durability": "Process", "batch": 1, "write_amplification": 2.0})
        };
        let lines = [
            line("RocksDB", "fillrandom", 2e5, true),
            line("Drumlin", "fillrandom", 8e5, false),
            line("RocksDB", "fillrandom", 1.5e5, false),
        ];
        let limit = json!({"name": "log-copy", "what": "copies", "threads": 1, "figure": 1e6, "unit": "per_second", "failure": null});
        fs::create_dir_all(&place.results).expect("made");
        for name in ["peers", "puts-64m", "limits", "pairs"] {
            let machine =
                json!({"processor": "P", "cores": 2, "memory_gib": 8, "system": "Linux 6", "files": "ext4"});
            let head = json!({"measurement": name, "commit": "abc", "machine": machine, "commands": ["peers --num 1"],
                              "rounds": 5, "at": 1_735_689_600});
            let mut text = format!("{head}\n");
            for line in lines
                .iter()
                .filter(|_| name != "limits")
                .chain([&limit].into_iter().filter(|_| name == "limits"))
            {
                let _ = writeln!(text, "{line}");
            }
            fs::write(place.results.join(format!("{name}.jsonl")), text).expect("written");
        }
        let page = fs::read_to_string(write(&place).expect("there is something")).expect("read");
        for part in [
            "Machine: P, 2 cores, 8 GiB of memory, Linux 6, ext4. Commit: `abc`.",
            "| [puts-64m](#puts-64m) | fillrandom: at least 4.0 times RocksDB | threads 1: 5.33 | yes |",
            "![all engines beside each other, a million records](results/peers.svg)",
            "| fillrandom, 1 thread | **800 k** | 150 k |",
            "| log-copy | 1 | 1,000,000/s | copies |",
            "| 1 | RocksDB | fillrandom | 0 | **200,000** | as it comes |",
            "2025-01-01",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let svg = fs::read_to_string(place.results.join("peers.svg")).expect("drawn");
        assert!(svg.contains("limit: log-copy 1.00 M/s"), "{svg}");
        let region = |text: &str| {
            text.split_once(BEGIN)
                .and_then(|(_, rest)| rest.split_once(END))
                .map(|(inside, _)| inside.to_string())
        };
        let readme = fs::read_to_string(&readme).expect("read");
        assert!(readme.starts_with("before\n") && readme.ends_with("after\n"));
        assert!(pairs().starts_with("in words\n") && pairs().contains("| sorted | leveled | **800 k** |"));
        assert_eq!(region(&readme), region(&page));
        assert!(named("peers").is_some_and(|peers| peers.drawn == Drawn::Bars));
    }
}
