//! Points: what was measured, and their medians over rounds.
//!
//! Place: told by a figure's measuring; kept in a file, drawn, and judged as [`Curves`].

use drumlin_bench::medians::median;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Which curve it is of.
    pub series: String,
    /// Where it is across.
    pub x: f64,
    /// What was found.
    pub y: f64,
    /// All else that was measured, raw.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub raw: Value,
}

impl Point {
    /// One with nothing else.
    pub fn new(series: impl Into<String>, x: f64, y: f64) -> Point {
        Point { series: series.into(), x, y, raw: Value::Null }
    }
}

/// Rounds of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The least.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The most.
    pub most: f64,
}

/// The medians of one series, ascending across.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The series.
    pub name: String,
    /// Where, and what.
    pub points: Vec<(f64, Span)>,
}

impl Curve {
    /// The median there.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|(at, _)| *at == x).map(|(_, span)| span.median)
    }

    /// The medians, from left to right.
    pub fn medians(&self) -> impl DoubleEndedIterator<Item = f64> {
        self.points.iter().map(|(_, span)| span.median)
    }

    /// The highest median.
    pub fn peak(&self) -> f64 {
        self.medians().fold(f64::MIN, f64::max)
    }
}

/// All curves of a figure, in the order in which they were first told of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves(pub Vec<Curve>);

impl Curves {
    /// Of points of any number of rounds.
    pub fn of(points: &[Point]) -> Curves {
        let mut found: Vec<(&str, Vec<(f64, Vec<f64>)>)> = Vec::new();
        for point in points {
            let at = found.iter().position(|(name, _)| *name == point.series).unwrap_or_else(|| {
                found.push((&point.series, Vec::new()));
                found.len() - 1
            });
            let places = &mut found[at].1;
            match places.iter_mut().find(|(x, _)| *x == point.x) {
                Some((_, rounds)) => rounds.push(point.y),
                None => places.push((point.x, vec![point.y])),
            }
        }
        let curve = |(name, mut places): (&str, Vec<(f64, Vec<f64>)>)| {
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            let points = places.into_iter().map(|(x, mut rounds)| {
                rounds.sort_by(f64::total_cmp);
                let span = Span { least: rounds[0], median: median(&rounds), most: rounds[rounds.len() - 1] };
                (x, span)
            });
            Curve { name: name.into(), points: points.collect() }
        };
        Curves(found.into_iter().map(curve).collect())
    }

    /// The curve of this name.
    pub fn named(&self, name: &str) -> Option<&Curve> {
        self.0.iter().find(|curve| curve.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_medians_in_their_places() {
        let points = [("a", 2.0, 1.0), ("b", 1.0, 7.0), ("a", 1.0, 5.0), ("a", 2.0, 3.0), ("a", 2.0, 9.0)];
        let curves = Curves::of(&points.map(|(series, x, y)| Point::new(series, x, y)));
        let a = curves.named("a").expect("told of");
        assert_eq!(a.points[1], (2.0, Span { least: 1.0, median: 3.0, most: 9.0 }));
        assert_eq!((a.at(1.0), a.at(2.0), a.at(3.0), a.peak()), (Some(5.0), Some(3.0), None, 5.0));
        assert_eq!(a.medians().collect::<Vec<_>>(), [5.0, 3.0]);
        assert_eq!(curves.0.iter().map(|curve| curve.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
