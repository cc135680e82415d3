//! Medians over rounds: one row for each engine and workload.
//!
//! Place: made of all lines of a session, printed at its end.
//!
//! 1. A median is of rates, with the least and the most beside it: one figure alone tells nothing on a noisy machine.

use std::fmt::Write;

use crate::report::{Line, grouped};

/// The rows, in the order in which engines and workloads came first.
pub fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:22} {:12} {:>14} {:>30} {:>14}\n",
        "workload", "engine", "median ops/s", "from .. to", "burst"
    );
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for line in lines {
        let of = (line.workload, line.engine);
        if shown.contains(&of) {
            continue;
        }
        shown.push(of);
        let same = || lines.iter().filter(|other| (other.workload, other.engine) == of);
        let sorted = |figure: fn(&Line) -> f64| {
            let mut figures: Vec<f64> = same().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let (rates, bursts) = (sorted(|line| line.rate), sorted(|line| line.burst_rate));
        let span = format!("{} .. {}", grouped(rates[0]), grouped(rates[rates.len() - 1]));
        let _ = writeln!(
            text,
            "{:22} {:12} {:>14} {span:>30} {:>14}",
            of.0,
            of.1,
            grouped(median(&rates)),
            grouped(median(&bursts))
        );
    }
    text
}

/// The median of sorted figures, of which there is one at least.
pub fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(median(&[1.0]), 1.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
