//! Comparisons: what a program foretold, beside what it found by itself.
//!
//! Place: made of the kept lines of `drumlin simulate --real` and `drumlin tune --grid`; judged by `goals`, printed by `page`.
//!
//! 1. A run says one thing at most under one name.

use serde_json::Value;

use crate::kept::Kept;

/// The rate of what was chosen.
pub const RATE: &str = "operations a second";
/// The rate of what was chosen, beside the best of a grid.
pub const OF_BEST: &str = "operations a second of the best of a grid";
/// Bytes of tables written for each byte of the user's.
pub const WRITTEN: &str = "write amplification";
/// Bytes of tables.
pub const BYTES: &str = "bytes of tables";
/// Bytes of their tier.
pub const SHAPE: &str = "bytes that are of the tier foretold";

/// A figure that was foretold, and what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Which run of the measurement.
    pub run: u64,
    /// Which figure.
    pub what: &'static str,
    /// As it was foretold; of the best of a grid, as that was measured.
    pub foretold: f64,
    /// As it was.
    pub found: f64,
    /// Of what: the candidate that was chosen.
    pub of: String,
}

impl Comparison {
    /// By which part of what was foretold it differs.
    pub fn differs(&self) -> f64 {
        self.found / self.foretold - 1.0
    }
}

/// All that a measurement has.
pub fn of(kept: &Kept) -> Vec<Comparison> {
    let mut all = Vec::new();
    for line in &kept.lines {
        let run = line["run"].as_u64().unwrap_or(0);
        let mut add = |what, of: &str, figures: Option<(f64, f64)>| {
            let of = of.to_string();
            all.extend(figures.map(|(foretold, found)| Comparison { run, what, foretold, found, of }));
        };
        let differs = |name: &str| line["real"]["differs"][name].as_f64();
        if let Some(written) = line["real"]["write_amplification"].as_f64() {
            add(WRITTEN, "", differs("written").map(|more| (written / (1.0 + more), written)));
            let bytes = line["real"]["table_bytes"].as_f64();
            add(BYTES, "", bytes.zip(differs("bytes")).map(|(bytes, more)| (bytes / (1.0 + more), bytes)));
            add(SHAPE, "", differs("shape").map(|elsewhere| (1.0, 1.0 - elsewhere)));
        }
        let chosen = &line["choice"];
        let figure = |name: &str| chosen["measured"][name].as_f64();
        add(
            RATE,
            chosen["candidate"].as_str().unwrap_or_default(),
            figure("predicted_rate").zip(figure("rate")),
        );
        let of_grid = grid_of(line);
        add(
            OF_BEST,
            of_grid.as_ref().map_or("", |(best, ..)| best),
            of_grid.as_ref().map(|(_, best, chosen)| (*best, *chosen)),
        );
    }
    all
}

/// The best of a grid with its rate, and the rate of what was chosen.
fn grid_of(line: &Value) -> Option<(String, f64, f64)> {
    let best = line["grid"].as_array()?.first()?;
    let rate = best["rate"].as_f64()?;
    Some((best["candidate"].as_str()?.into(), rate, rate * line["choice_of_best"].as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_found_in_what_the_commands_say() {
        let lines = vec![
            json!({"run": 0, "puts": 1}),
            json!({"run": 0, "real": {"write_amplification": 4.4, "table_bytes": 108.0,
                   "differs": {"written": 0.1, "bytes": 0.08, "shape": 0.05}}}),
            json!({"run": 1, "choice": {"candidate": "a", "measured": {"predicted_rate": 100.0, "rate": 80.0}}}),
            json!({"run": 1, "grid": [{"candidate": "b", "rate": 100.0}, {"candidate": "a", "rate": 90.0}], "choice_of_best": 0.9}),
        ];
        let all = of(&Kept { head: json!({}), at: 0, lines });
        let short: Vec<(u64, &str, i64, &str)> = all
            .iter()
            .map(|one| (one.run, one.what, (one.differs() * 1000.0).round() as i64, one.of.as_str()))
            .collect();
        assert_eq!(
            short,
            [
                (0, WRITTEN, 100, ""),
                (0, BYTES, 80, ""),
                (0, SHAPE, -50, ""),
                (1, RATE, -200, "a"),
                (1, OF_BEST, -100, "b")
            ]
        );
        assert!((all[1].foretold - 100.0).abs() < 1e-9 && all[4].found == 90.0);
    }
}
