//! Points as text: a row for each place across, a column for each series.
//!
//! Place: printed by the command line.

use std::fmt::Write;

use drumlin_bench::canvas::short;

use crate::figure::Figure;
use crate::point::Curves;

/// The table of a figure.
pub fn table(figure: &Figure, curves: &Curves) -> String {
    let mut places: Vec<f64> =
        curves.0.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let width = |name: &str| name.chars().count().max(10);
    let mut text = format!("{:>14}", figure.x.says);
    for curve in &curves.0 {
        let _ = write!(text, "  {:>1$}", curve.name, width(&curve.name));
    }
    let _ = writeln!(text, "   ({})", figure.y.says);
    let first = figure.x.says.chars().count().max(14);
    for x in places {
        let _ = write!(text, "{:>first$}", number(x));
        for curve in &curves.0 {
            let told = curve.at(x).map_or(String::new(), number);
            let _ = write!(text, "  {told:>0$}", width(&curve.name));
        }
        text.push('\n');
    }
    text
}

/// A number for people: large ones short, small ones with their digits.
pub fn number(value: f64) -> String {
    match value {
        value if value >= 1e4 => short(value),
        value if value == value.trunc() => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    #[test]
    fn a_table_has_all_there_is_and_blanks_for_the_rest() {
        let figure = crate::figures().next().expect("there are some");
        let points = [Point::new("a", 1.0, 12.5), Point::new("b", 2.0, 123_456.0)];
        let text = table(figure, &Curves::of(&points));
        let rows: Vec<Vec<&str>> = text.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows[0].contains(&"a") && rows[0].contains(&"b"));
        assert_eq!((&rows[1][..], &rows[2][..]), (&["1", "12.50"][..], &["2", "123", "k"][..]), "{text}");
    }
}
