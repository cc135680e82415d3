//! Pictures: bars of rates and lines of latencies, each an SVG file of its own.
//!
//! Place: drawn for `page` from `figures`.
//!
//! 1. A picture needs nothing beside itself, and is readable on light and on dark ground: it brings its own, by the reader's
//!    choice of colours.
//! 2. Every figure that is drawn is also written. A bar ends at the median; the whisker goes from the least to the most.
//! 3. Each workload has a scale of its own, from zero. A limit of the machine that lies beyond it is named at the edge.

use std::fmt::Write;

use drumlin_bench::canvas::{WIDTH, begin, escaped, line, short, text};
use drumlin_bench::report::time;

use crate::figures::{PERCENTILES, Row};
use crate::goals::OURS;

/// Where bars begin and how far they may go.
const LEFT: f64 = 110.0;
const SPAN: f64 = 440.0;
const BAR: f64 = 16.0;
const STEP: f64 = 24.0;
const HEAD: f64 = 34.0;
const MARGIN: f64 = 16.0;

/// A limit up to so many times the longest bar is drawn to scale.
const LIMIT_TO_SCALE: f64 = 1.5;

/// The class of an engine's colour: always the same, whoever takes part.
fn class(engine: &str) -> &'static str {
    match engine {
        OURS => "e0",
        "RocksDB" => "e1",
        "LMDB" => "e2",
        "LevelDB" => "e3",
        "fjall" => "e4",
        "redb" => "e5",
        _ => "e6",
    }
}

/// What rows of one run and workload are called.
pub fn group(row: &Row, differs: &str) -> String {
    let threads = if row.threads == 1 { "1 thread".into() } else { format!("{} threads", row.threads) };
    match differs {
        "" => format!("{}, {threads}", row.workload),
        differs => format!("{}, {threads}, {differs}", row.workload),
    }
}

/// Bars of rates; `differs` says what tells a run from those with as many threads.
pub fn bars(what: &str, rows: &[Row], differs: &dyn Fn(u64) -> String) -> String {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| (group[0].run, &group[0].workload) == (row.run, &row.workload)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    // Runs of one workload beside each other.
    let first = |group: &Vec<&Row>| rows.iter().position(|row| row.workload == group[0].workload);
    groups.sort_by_key(|group| (first(group), group[0].run));
    let height = MARGIN * 2.0 + groups.iter().map(|group| HEAD + group.len() as f64 * STEP).sum::<f64>();
    let mut svg = begin(height, what);
    let mut y = MARGIN;
    for group in &groups {
        let same = || rows.iter().filter(|row| row.workload == group[0].workload);
        let longest = same().map(|row| row.rate.most).fold(0.0, f64::max);
        let limits = same().filter_map(|row| row.limit.as_ref().map(|limit| limit.1));
        let full =
            limits.filter(|limit| *limit <= longest * LIMIT_TO_SCALE).fold(longest, f64::max).max(1e-9);
        text(&mut svg, MARGIN, y + 20.0, "ink b", "", &self::group(group[0], &differs(group[0].run)));
        let (top, bottom) = (y + HEAD - 4.0, y + HEAD + group.len() as f64 * STEP - 4.0);
        if let Some((name, limit)) = &group[0].limit {
            let words = format!("{name} {}/s", short(*limit));
            if *limit <= full {
                let x = LEFT + limit / full * SPAN;
                line(&mut svg, "l-limit", (x, top), (x, bottom), " stroke-dasharray=\"4 3\"");
            }
            let words = if *limit <= full {
                format!("limit: {words}")
            } else {
                format!("limit: {words}, far to the right")
            };
            text(&mut svg, WIDTH - MARGIN, y + 20.0, "limit s", " text-anchor=\"end\"", &words);
        }
        y += HEAD;
        for row in group {
            let x = |rate: f64| LEFT + rate / full * SPAN;
            let (class, middle) = (class(&row.engine), y + BAR / 2.0);
            text(&mut svg, LEFT - 8.0, y + 13.0, "ink", " text-anchor=\"end\"", &row.engine);
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
                (x(row.rate.median) - LEFT).max(1.0)
            );
            if row.rounds > 1 {
                line(&mut svg, "l-ink", (x(row.rate.least), middle), (x(row.rate.most), middle), "");
                for end in [row.rate.least, row.rate.most] {
                    line(&mut svg, "l-ink", (x(end), middle - 4.0), (x(end), middle + 4.0), "");
                }
            }
            let burst = row.burst_rate.filter(|burst| burst.median > row.rate.median * 1.005);
            let burst = burst.map_or(String::new(), |burst| format!("  (burst {})", short(burst.median)));
            let words = format!("{}/s{burst}", short(row.rate.median));
            text(&mut svg, x(row.rate.most) + 8.0, y + 13.0, "ink", "", &words);
            y += STEP;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Percentiles of latencies, the slower the higher, each step ten times as long.
pub fn latencies(what: &str, rows: &[Row]) -> String {
    const HEIGHT: f64 = 360.0;
    const BOTTOM: f64 = HEIGHT - 34.0;
    const TOP: f64 = 40.0;
    /// Where lines end; names stand behind.
    const RIGHT: f64 = WIDTH - 170.0;
    let lines: Vec<(&Row, &crate::figures::Latencies)> =
        rows.iter().flat_map(|row| row.latencies.iter().map(move |one| (row, one))).collect();
    let all = || lines.iter().flat_map(|(_, one)| one.percentiles.iter());
    let least = all().map(|span| span.least).fold(f64::MAX, f64::min).max(1.0).log10().floor();
    let most = all().map(|span| span.most).fold(1.0, f64::max).log10().ceil().max(least + 1.0);
    let y = |ns: f64| BOTTOM - (ns.max(1.0).log10() - least) / (most - least) * (BOTTOM - TOP);
    let x = |at: usize| LEFT + at as f64 / (PERCENTILES.len() - 1) as f64 * (RIGHT - LEFT);
    let mut svg = begin(HEIGHT, what);
    for power in least as i32..=most as i32 {
        let at = y(10f64.powi(power));
        line(&mut svg, "l-fine", (LEFT, at), (RIGHT, at), " stroke-opacity=\"0.3\"");
        text(&mut svg, LEFT - 8.0, at + 4.0, "fine s", " text-anchor=\"end\"", &time(10f64.powi(power)));
    }
    for (at, (_, name)) in PERCENTILES.iter().enumerate() {
        text(&mut svg, x(at), HEIGHT - 14.0, "fine s", " text-anchor=\"middle\"", name);
    }
    let mut ends: Vec<f64> = Vec::new();
    for (row, one) in &lines {
        let class = class(&row.engine);
        let points: Vec<String> = (one.percentiles.iter().enumerate())
            .map(|(at, span)| format!("{:.1},{:.1}", x(at), y(span.median)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"l-{class}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
        for (at, span) in one.percentiles.iter().enumerate() {
            line(&mut svg, &format!("l-{class}"), (x(at), y(span.least)), (x(at), y(span.most)), "");
            let _ = writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
                x(at),
                y(span.median),
                escaped(&format!("{} {}: {}", row.engine, PERCENTILES[at].1, time(span.median)))
            );
        }
        // Names keep clear of each other.
        let worst = one.percentiles[PERCENTILES.len() - 1].median;
        let mut at = y(worst) + 4.0;
        while ends.iter().any(|end| (end - at).abs() < 16.0) {
            at += 4.0;
        }
        ends.push(at);
        let words = format!("{}, {}: {}", row.engine, one.kind, time(worst));
        text(&mut svg, RIGHT + 10.0, at, class, "", &words);
    }
    text(&mut svg, MARGIN, 24.0, "ink b", "", what);
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows;
    use crate::kept::Kept;
    use serde_json::json;

    fn drawn() -> Vec<Row> {
        let line = |engine: &str, rate: f64| {
            json!({"run": 0, "engine": engine, "workload": "fillrandom", "threads": 2, "rate": rate, "burst_rate": rate * 2.0,
                   "latencies": [{"kind": "put", "p50_ns": 1e3, "p90_ns": 2e3, "p99_ns": 3e3, "p999_ns": 1e6,
                                  "p9999_ns": 2e6, "max_ns": 9e6}]})
        };
        let lines = vec![line("Drumlin", 1e6), line("Drumlin", 2e6), line("A & <B>", 5e5)];
        let mut rows = rows(&Kept { head: json!({}), at: 0, lines });
        rows[0].limit = Some(("log-copy".into(), 1e8));
        rows
    }

    /// Elements are closed, and nothing is outside the picture.
    fn is_sound(svg: &str) {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("A & <B>") && svg.contains("A &amp; &lt;B&gt;"));
        assert!(!svg.contains("href") && svg.contains("prefers-color-scheme:dark"));
        for number in svg.split(" x=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let x: f64 = number.parse().expect("a number");
            assert!((0.0..=WIDTH).contains(&x), "{x}");
        }
    }

    #[test]
    fn bars_are_sound_and_as_long_as_their_medians() {
        let svg = bars("puts", &drawn(), &|_| String::new());
        is_sound(&svg);
        let widths: Vec<f64> = svg
            .split("<rect class=\"e")
            .skip(1)
            .filter_map(|rest| rest.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        // The longest goes to 2 M.
        assert_eq!(widths, [330.0, 110.0]);
        for words in [
            "1.50 M/s  (burst 3.00 M)",
            "500 k/s",
            "log-copy 100 M/s, far to the right",
            "fillrandom, 2 threads",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }

    #[test]
    fn latencies_are_sound() {
        let svg = latencies("puts", &drawn());
        is_sound(&svg);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("Drumlin, put: 9.0 ms") && svg.contains(">p99.99<"));
    }
}
