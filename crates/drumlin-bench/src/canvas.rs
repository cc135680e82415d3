//! Canvas: the ground on which pictures are drawn, SVG that needs nothing beside itself.
//!
//! Place: used by the project's results and by the papers' figures.
//!
//! 1. A picture is readable on light and on dark ground: it brings its own, by the reader's choice of colours.
//! 2. It is XML whatever the words are.

use std::fmt::Write;

/// Pixels across.
pub const WIDTH: f64 = 820.0;

/// Colours on light ground, then on dark: ground, ink, fine ink, limit; then engines, our own first.
const COLOURS: [(&str, &str, &str); 11] = [
    ("ground", "#ffffff", "#16181d"),
    ("ink", "#1c1f24", "#e8eaed"),
    ("fine", "#6b7280", "#9aa3af"),
    ("limit", "#b42318", "#f97066"),
    ("e0", "#0b6e4f", "#3ecf9b"),
    ("e1", "#c2571a", "#f2994a"),
    ("e2", "#3f6fb5", "#7fb0f5"),
    ("e3", "#8a5fb0", "#c39be8"),
    ("e4", "#9a7d0a", "#e3c341"),
    ("e5", "#b03a6f", "#ee82b0"),
    ("e6", "#4d6670", "#9fb8c3"),
];

/// The beginning of a picture so many pixels high.
pub fn begin(height: f64, what: &str) -> String {
    let mut style = String::from("text{font:13px system-ui,sans-serif}.b{font-weight:600}.s{font-size:11px}");
    let mut dark = String::new();
    for (name, on_light, on_dark) in COLOURS {
        let _ = write!(style, ".{name}{{fill:{on_light}}}.l-{name}{{stroke:{on_light};fill:none}}");
        let _ = write!(dark, ".{name}{{fill:{on_dark}}}.l-{name}{{stroke:{on_dark};fill:none}}");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{what}\">\n<style>{style}@media(prefers-color-scheme:dark){{{dark}}}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n",
        what = escaped(what)
    )
}

/// Text as it stands in XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Words at a place, with classes and further attributes.
pub fn text(svg: &mut String, x: f64, y: f64, class: &str, more: &str, words: &str) {
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{more}>{}</text>", escaped(words));
}

/// A straight line.
pub fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64), more: &str) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"{more}/>",
        from.0, from.1, to.0, to.1
    );
}

/// A rate for people: 12.3 k, 4.56 M.
pub fn short(rate: f64) -> String {
    match rate {
        rate if rate >= 99.95e6 => format!("{:.0} M", rate / 1e6),
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 99.95e3 => format!("{:.0} k", rate / 1e3),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_short() {
        let all = [7.0, 999.0, 1234.0, 99_999.0, 123_456.0, 1_234_567.0, 123_456_789.0].map(short);
        assert_eq!(all, ["7", "999", "1.2 k", "100 k", "123 k", "1.23 M", "123 M"]);
    }

    #[test]
    fn words_are_no_markup() {
        let mut svg = begin(10.0, "a < \"b\"");
        text(&mut svg, 1.0, 2.0, "ink", "", "c & d");
        assert!(svg.contains("a &lt; &quot;b&quot;") && svg.contains(">c &amp; d<"), "{svg}");
    }
}
