//! The README's figures: that they are those of `docs/RESULTS.md`, which `cargo x results` made.
//!
//! Place: called by `tidy`.
//!
//! Rules:
//! 1. The README has the two marks, once each, whether there are figures yet or not.
//! 2. What stands between them is what stands between those of `docs/RESULTS.md`.

use std::path::Path;

use super::Finding;

const BEGIN: &str = "<!-- results: begin -->";
const END: &str = "<!-- results: end -->";

/// Judges the README of the tree at `root`.
pub fn check(root: &Path, findings: &mut Vec<Finding>) {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (readme, results) = (read("README.md"), read("docs/RESULTS.md"));
    if let Some((line, what)) = compare(&readme, &results) {
        findings.push(Finding::new(Path::new("README.md"), line, "results", what));
    }
}

/// What is wrong, and in which line.
fn compare(readme: &str, results: &str) -> Option<(usize, String)> {
    let marks = format!("{BEGIN} and {END}");
    let Some(shown) = region(readme) else { return Some((1, format!("it must have {marks}, once each"))) };
    let made = region(results).unwrap_or_default();
    let line = readme.lines().position(|line| line.contains(BEGIN)).unwrap_or(0) + 1;
    let what = "these figures are not those of docs/RESULTS.md: `cargo x results draw` writes both";
    (shown.trim() != made.trim()).then(|| (line, what.into()))
}

/// What stands between the marks.
fn region(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (inside, after) = rest.split_once(END)?;
    (!rest.contains(BEGIN) && !after.contains(END)).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_were_changed_by_hand_are_found() {
        let with = |inside: &str| format!("a\n{BEGIN}\n{inside}{END}\nb\n");
        assert_eq!(compare(&with("| 1 |\n"), &with("| 1 |\n")), None);
        assert_eq!(compare(&with(""), ""), None, "there are none yet");
        assert_eq!(compare(&with("| 2 |\n"), &with("| 1 |\n")).map(|(line, _)| line), Some(2));
        assert_eq!(compare(&with("| 2 |\n"), "").map(|(line, _)| line), Some(2));
        assert_eq!(compare("a\n", &with("| 1 |\n")).map(|(line, _)| line), Some(1));
        assert!(compare(&format!("{}{BEGIN}", with("")), "").is_some());
    }
}
