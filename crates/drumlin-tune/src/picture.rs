//! The trade-off as a picture: what a read costs, beside what a write costs with all that the background does for it.
//!
//! Place: drawn by the command line where it is asked for.
//!
//! 1. Every candidate is a dot, in the colour of its layout; one that was measured has a ring; the choice is named, and so are
//!    the usual options.
//! 2. Every dot can be read: it has its figures as a tooltip.

use std::fmt::Write;

use drumlin_bench::canvas::{WIDTH, begin, escaped, line, short, text};

use crate::search::{Choice, Predicted};

const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = HEIGHT - 52.0;

/// A logarithmic axis.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let least = values.clone().fold(f64::MAX, f64::min) / 1.2;
        let most = values.fold(f64::MIN_POSITIVE, f64::max) * 1.2;
        Axis { least, most: most.max(least * 2.0), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// 1, 2 and 5 times powers of ten.
    fn marks(&self) -> Vec<f64> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(power)));
        all.filter(|mark| (self.least..=self.most).contains(mark)).collect()
    }
}

fn colour(predicted: &Predicted) -> &'static str {
    match predicted.candidate.kind().1 {
        "leveled" => "e2",
        "tiered" => "e1",
        "trie" => "e3",
        _ => "e0",
    }
}

/// The picture.
pub fn svg(workload: &str, choice: &Choice) -> String {
    let title = format!("What reads and writes cost, for {workload}");
    let mut svg = begin(HEIGHT, &title);
    text(&mut svg, 16.0, 26.0, "ink b", "", &title);
    let says = "a write with its merges, µs of processors, up; a read, across; predicted, scaled by what was measured";
    text(&mut svg, 16.0, 46.0, "fine s", "", says);
    let all = [("leveled", "e2"), ("tiered", "e1"), ("lazy-leveled", "e0"), ("trie", "e3")];
    let there = all.iter().filter(|(name, _)| choice.all.iter().any(|one| one.candidate.kind().1 == *name));
    for (n, (name, class)) in there.enumerate() {
        let x = 16.0 + n as f64 * 110.0;
        let _ = writeln!(svg, "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"60\" r=\"4\"/>", x + 4.0);
        text(&mut svg, x + 14.0, 64.0, "fine s", "", name);
    }
    let reads = Axis::new(choice.all.iter().map(|p| p.cost.read_us), LEFT, RIGHT);
    let writes = Axis::new(choice.all.iter().map(|p| p.cost.write_us), BOTTOM, TOP);
    for mark in reads.marks() {
        let x = reads.at(mark);
        line(&mut svg, "l-fine", (x, TOP), (x, BOTTOM), " stroke-opacity=\"0.25\"");
        text(&mut svg, x, BOTTOM + 18.0, "fine s", " text-anchor=\"middle\"", &format!("{mark}"));
    }
    for mark in writes.marks() {
        let y = writes.at(mark);
        line(&mut svg, "l-fine", (LEFT, y), (RIGHT, y), " stroke-opacity=\"0.25\"");
        text(&mut svg, LEFT - 8.0, y + 4.0, "fine s", " text-anchor=\"end\"", &format!("{mark}"));
    }
    // The measured ones last, on top.
    let mut order: Vec<&Predicted> = choice.all.iter().collect();
    order.sort_by_key(|p| p.measured.is_some());
    for p in order {
        let (x, y) = (reads.at(p.cost.read_us), writes.at(p.cost.write_us));
        let mut says = format!("{}: {} a second predicted", p.candidate, short(p.rate));
        if let Some(measured) = p.measured {
            let _ =
                write!(says, ", {} measured at {} of the size", short(measured.outcome.rate), measured.size);
        }
        let radius = if p.measured.is_some() { 4.0 } else { 2.0 };
        let opacity = if p.measured.is_some() { 1.0 } else { 0.35 };
        let _ = writeln!(
            svg,
            "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill-opacity=\"{opacity}\"><title>{}</title></circle>",
            colour(p),
            escaped(&says)
        );
        if p.measured.is_some() {
            let _ = writeln!(svg, "<circle class=\"l-ink\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>");
        }
    }
    for (name, of) in [("the usual options", &choice.usual), ("the choice", &choice.best)] {
        let (x, y) = (reads.at(of.cost.read_us), writes.at(of.cost.write_us));
        let (x, anchor) = if x > WIDTH / 2.0 { (x - 10.0, " text-anchor=\"end\"") } else { (x + 10.0, "") };
        text(&mut svg, x, y - 8.0, "ink b", anchor, name);
    }
    svg.push_str("</svg>\n");
    svg
}
