//! Points as a picture: a line for each series, with its name at its end, in the shape of the paper's figure.
//!
//! Place: drawn by the command line when a figure is measured.
//!
//! 1. A point is the median of its rounds; where there are several, a bar goes from the least to the most.
//! 2. Every point can be read: it has its figure as a tooltip.

use std::fmt::Write;

use drumlin_bench::canvas::{WIDTH, begin, escaped, line, text};

use crate::figure::{Axis, Figure, Scale};
use crate::point::{Curve, Curves, Span};
use crate::table::number;

const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
/// Where lines end; names stand behind.
const RIGHT: f64 = WIDTH - 190.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = HEIGHT - 48.0;
/// Names keep so far from each other, up and down.
const NAMES_APART: f64 = 16.0;
/// Marks along an axis, at most about so many.
const MARKS: usize = 8;

/// Colours that there are for series: see the canvas.
const COLOURS: usize = 7;

/// An axis with its ends: where on the picture a value is, and which values are marked.
struct Ruler {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Ruler {
    fn new(axis: Axis, values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Ruler {
        let most = values.clone().fold(f64::MIN, f64::max);
        let least = values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min);
        let (least, most) = match axis.scale {
            Scale::Linear => (0.0, if most > 0.0 { most * 1.05 } else { 1.0 }),
            _ if least > most => (1.0, 10.0),
            _ if least == most => (least / 2.0, most * 2.0),
            Scale::Log2 => (least, most),
            Scale::Log10 => (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil())),
        };
        Ruler { scale: axis.scale, least, most, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.least) / (self.most - self.least),
            _ => (value.max(self.least) / self.least).ln() / (self.most / self.least).ln(),
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn marks(&self) -> Vec<f64> {
        let all: Vec<f64> = match self.scale {
            Scale::Linear => {
                // The step is 1, 2 or 5 times a power of ten.
                let rough = (self.most - self.least) / MARKS as f64;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough);
                let step = step.unwrap_or(rough);
                (0..=(self.most / step) as usize).map(|n| n as f64 * step).collect()
            }
            Scale::Log2 => between(2.0, self.least, self.most),
            Scale::Log10 => between(10.0, self.least, self.most),
        };
        let each = all.len().div_ceil(MARKS + 2).max(1);
        all.into_iter().step_by(each).collect()
    }
}

/// `least` times powers of `base`, up to `most`.
fn between(base: f64, least: f64, most: f64) -> Vec<f64> {
    let all = std::iter::successors(Some(least), |value| Some(value * base));
    all.take_while(|value| *value <= most * 1.001).collect()
}

/// The picture of a figure.
pub fn svg(figure: &Figure, curves: &Curves) -> String {
    let title = format!("{}, figure {}: {}", name_of(figure.paper), figure.number, figure.shows);
    let mut svg = begin(HEIGHT, &title);
    let all = || curves.0.iter().flat_map(|curve| curve.points.iter());
    let xs: Vec<f64> = all().map(|(x, _)| *x).collect();
    let ys: Vec<f64> = all().flat_map(|(_, span)| [span.least, span.most]).collect();
    let across = Ruler::new(figure.x, xs.iter().copied(), LEFT, RIGHT);
    let up = Ruler::new(figure.y, ys.iter().copied(), BOTTOM, TOP);
    text(&mut svg, 16.0, 26.0, "ink b", "", &title);
    text(&mut svg, 16.0, 46.0, "fine s", "", figure.y.says);
    text(&mut svg, (LEFT + RIGHT) / 2.0, HEIGHT - 10.0, "fine s", " text-anchor=\"middle\"", figure.x.says);
    for mark in up.marks() {
        let y = up.at(mark);
        line(&mut svg, "l-fine", (LEFT, y), (RIGHT, y), " stroke-opacity=\"0.3\"");
        text(&mut svg, LEFT - 8.0, y + 4.0, "fine s", " text-anchor=\"end\"", &number(mark));
    }
    for mark in across.marks() {
        let x = across.at(mark);
        line(&mut svg, "l-fine", (x, BOTTOM), (x, BOTTOM + 4.0), "");
        text(&mut svg, x, BOTTOM + 18.0, "fine s", " text-anchor=\"middle\"", &number(mark));
    }
    let mut names: Vec<f64> = Vec::new();
    for (nth, curve) in curves.0.iter().enumerate() {
        draw(&mut svg, curve, &format!("e{}", nth % COLOURS), (&across, &up), &mut names);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, curve: &Curve, class: &str, (across, up): (&Ruler, &Ruler), names: &mut Vec<f64>) {
    let place = |(x, span): &(f64, Span)| format!("{:.1},{:.1}", across.at(*x), up.at(span.median));
    let places: Vec<String> = curve.points.iter().map(place).collect();
    let _ =
        writeln!(svg, "<polyline class=\"l-{class}\" stroke-width=\"2\" points=\"{}\"/>", places.join(" "));
    for (x, span) in &curve.points {
        let at = across.at(*x);
        line(svg, &format!("l-{class}"), (at, up.at(span.least)), (at, up.at(span.most)), "");
        let told = format!("{} at {}: {}", curve.name, number(*x), number(span.median));
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle>",
            up.at(span.median),
            escaped(&told)
        );
    }
    let Some((_, last)) = curve.points.last() else { return };
    let at = apart_from(names, up.at(last.median) + 4.0);
    names.push(at);
    text(svg, RIGHT + 10.0, at, &format!("{class} s"), "", &curve.name);
}

/// The place on the picture nearest to `wish` that keeps clear of those that are taken.
fn apart_from(taken: &[f64], wish: f64) -> f64 {
    let steps = (0..200).map(|step| f64::from(step) * 2.0);
    let mut places = steps.flat_map(|step| [wish - step, wish + step]);
    let is_free = |at: &f64| taken.iter().all(|other| (other - at).abs() >= NAMES_APART);
    places.find(|at| (TOP..HEIGHT).contains(at) && is_free(at)).unwrap_or(wish)
}

fn name_of(paper: &str) -> &'static str {
    match paper {
        "flodb" => "FloDB",
        _ => "cLSM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    /// It is XML, nothing is outside of it, and each series has its line, whatever was measured.
    #[test]
    fn every_figure_can_be_drawn() {
        let of = |ys: &[f64]| -> Curves {
            let point = |(nth, y): (usize, &f64)| Point::new("a & <b>", f64::from(1u32 << nth), *y);
            let mut points: Vec<Point> = ys.iter().enumerate().map(point).collect();
            points.push(Point::new("other", 1.0, 3.0));
            Curves::of(&points)
        };
        for figure in crate::figures() {
            for curves in [of(&[1e3, 2e6, 5e5]), of(&[0.0]), of(&[7.0, 7.0]), Curves::default()] {
                let svg = svg(figure, &curves);
                let parsed = roxmltree::Document::parse(&svg).expect("it is XML");
                assert_eq!(svg.matches("<polyline").count(), curves.0.len());
                for node in parsed.descendants() {
                    for (name, most) in [("x", WIDTH), ("cx", WIDTH), ("y", HEIGHT), ("cy", HEIGHT)] {
                        if let Some(value) = node.attribute(name) {
                            let value: f64 = value.parse().expect("a number");
                            assert!((0.0..=most).contains(&value), "{name} {value}: {svg}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn marks_are_round_and_within() {
        let linear = Axis { says: "", scale: Scale::Linear };
        let ruler = Ruler::new(linear, [1.0, 870_000.0].into_iter(), 0.0, 100.0);
        let marks = ruler.marks();
        assert!(marks.len() > 4 && marks.len() < 12 && marks[1] == 200_000.0, "{marks:?}");
        assert_eq!((ruler.at(0.0), marks[0]), (0.0, 0.0));
        let doubling = Axis { says: "", scale: Scale::Log2 };
        let doubled = Ruler::new(doubling, [64.0, 8192.0].into_iter(), 0.0, 70.0);
        assert_eq!(doubled.marks().len(), 8);
        assert!((doubled.at(128.0) - 10.0).abs() < 1e-9);
    }
}
