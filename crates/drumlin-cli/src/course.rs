//! The course of a simulation as a picture: how a layout writes, takes space, and is read, while puts go on.
//!
//! Place: `simulate --svg`.
//!
//! 1. Four panels over the same puts, which double from mark to mark; each begins at zero, and says what stands at the end.

use std::fmt::Write;

use drumlin::simulation::Point;
use drumlin_bench::canvas::{WIDTH, begin, line, text};

use crate::output::{bytes, count};

const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 150.0;
const TOP: f64 = 60.0;
const PANEL: f64 = 120.0;
const GAP: f64 = 34.0;

/// What a panel shows: its title, its figure at a point, and how that is said.
struct Panel {
    title: &'static str,
    of: fn(&Point) -> f64,
    says: fn(f64) -> String,
}

const PANELS: [Panel; 4] = [
    Panel {
        title: "bytes of tables written for each byte put",
        of: |point| point.write_amplification,
        says: |value| format!("{value:.2}"),
    },
    Panel {
        title: "bytes of tables for each byte that is live",
        of: |point| point.space_amplification,
        says: |value| format!("{value:.2}"),
    },
    Panel {
        title: "blocks that a get reads of a key that is not there",
        of: |point| point.reads_per_miss,
        says: |value| format!("{value:.3}"),
    },
    Panel {
        title: "bytes of filters and indexes",
        of: |point| (point.filter_bytes + point.index_bytes) as f64,
        says: |value| bytes(value as u64),
    },
];

/// The picture of these points, ascending by puts.
pub fn svg(title: &str, points: &[Point]) -> String {
    let height = TOP + PANELS.len() as f64 * (PANEL + GAP) + 20.0;
    let mut svg = begin(height, title);
    text(&mut svg, 16.0, 28.0, "ink b", "", title);
    let puts = |point: &Point| (point.puts.max(1) as f64).ln();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return svg + "</svg>\n" };
    let (from, to) = (puts(first), puts(last).max(puts(first) + 1e-9));
    let across = |of: f64| LEFT + (of - from) / (to - from) * (RIGHT - LEFT);
    for (number, panel) in PANELS.iter().enumerate() {
        let top = TOP + number as f64 * (PANEL + GAP);
        let bottom = top + PANEL;
        let most = points.iter().map(panel.of).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let up = |value: f64| bottom - value / most * PANEL;
        text(&mut svg, LEFT, top - 6.0, "fine s", "", panel.title);
        line(&mut svg, "l-fine", (LEFT, bottom), (RIGHT, bottom), "");
        line(&mut svg, "l-fine", (LEFT, top), (RIGHT, top), " stroke-opacity=\"0.3\"");
        text(&mut svg, LEFT - 6.0, top + 4.0, "fine s", " text-anchor=\"end\"", &(panel.says)(most));
        svg.push_str("<polyline class=\"l-e0\" stroke-width=\"2\" points=\"");
        for point in points {
            let _ = write!(svg, "{:.1},{:.1} ", across(puts(point)), up((panel.of)(point)));
        }
        svg.push_str("\"/>\n");
        let end = (panel.of)(last);
        text(&mut svg, RIGHT + 8.0, up(end) + 4.0, "e0 b", "", &(panel.says)(end));
    }
    let below = TOP + PANELS.len() as f64 * (PANEL + GAP) - GAP + 16.0;
    let marks = std::iter::successors(Some(last.puts), |puts| Some(puts / 16))
        .take_while(|puts| *puts >= first.puts.max(1));
    for mark in marks {
        let x = across((mark as f64).ln());
        text(&mut svg, x, below, "fine s", " text-anchor=\"middle\"", &count(mark));
    }
    text(&mut svg, (LEFT + RIGHT) / 2.0, below + 18.0, "fine s", " text-anchor=\"middle\"", "puts");
    svg.push_str("</svg>\n");
    svg
}
