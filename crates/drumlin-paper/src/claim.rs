//! Claims: what a paper says of a figure, as a check that says whether it holds.
//!
//! Place: beside each figure in the paper's table; judged when its points are there.
//!
//! 1. A check looks at the medians and at nothing else.
//! 2. What cannot be judged (a series was not measured, the machine has too few cores) does not hold and does not fail.
//! 3. Where several series stand for "the others", the best of them counts.

use crate::point::{Curve, Curves, Span};

/// A sentence and its check.
#[derive(Debug)]
pub struct Claim {
    /// What the paper says, and where.
    pub says: &'static str,
    /// What is looked at.
    pub check: Check,
}

/// Where a series is compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At every place.
    Everywhere,
    /// At one place, where it is best for the series.
    Somewhere,
    /// At the first place.
    First,
    /// At the last place.
    Last,
    /// The highest with the highest.
    Peak,
    /// In the mean over all places.
    Mean,
}

/// What must be so.
#[derive(Debug)]
pub enum Check {
    /// There the series is so many times the best of the others, or more.
    Times {
        /// Where.
        at: At,
        /// The series.
        series: &'static str,
        /// How many times.
        times: f64,
        /// The others.
        of: &'static [&'static str],
    },
    /// The last is so many times the first, or more.
    Grows {
        /// The series.
        series: &'static str,
        /// How many times.
        times: f64,
    },
    /// The last is so many times the first, or less.
    Falls {
        /// The series.
        series: &'static str,
        /// How many times.
        times: f64,
    },
    /// No place is below so many times the first.
    Keeps {
        /// The series.
        series: &'static str,
        /// How many times.
        times: f64,
    },
    /// No place is above this.
    AtMost {
        /// The series.
        series: &'static str,
        /// The most.
        most: f64,
    },
    /// At `threads` across it is so many times what it is at one; on a machine with so many cores.
    Scales {
        /// The series.
        series: &'static str,
        /// Across.
        threads: u64,
        /// How many times.
        times: f64,
    },
    /// What the series is to the other one is the more, the further to the left: more at the first than at the last place.
    GainsToTheLeft {
        /// The series.
        series: &'static str,
        /// The other.
        of: &'static str,
    },
}

/// Whether a claim holds, with what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Holds(String),
    /// It does not.
    Fails(String),
    /// Nobody can say, here.
    NotJudged(String),
}

impl Verdict {
    /// In one word, for programs and people.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Holds(_) => "holds",
            Verdict::Fails(_) => "fails",
            Verdict::NotJudged(_) => "not judged",
        }
    }

    /// What was found.
    pub fn found(&self) -> &str {
        match self {
            Verdict::Holds(found) | Verdict::Fails(found) | Verdict::NotJudged(found) => found,
        }
    }

    fn least(found: f64, times: f64, at: String) -> Verdict {
        let text = format!("{found:.2} times{at}");
        if found >= times { Verdict::Holds(text) } else { Verdict::Fails(text) }
    }
}

impl Claim {
    /// Judges it on a machine with so many cores.
    pub fn judge(&self, curves: &Curves, cores: u64) -> Verdict {
        match self.check.judge(curves, cores) {
            Ok(verdict) => verdict,
            Err(why) => Verdict::NotJudged(why),
        }
    }
}

impl Check {
    fn judge(&self, curves: &Curves, cores: u64) -> Result<Verdict, String> {
        let curve = |name: &str| {
            let found = curves.named(name).filter(|curve| !curve.points.is_empty());
            found.ok_or_else(|| format!("{name} was not measured"))
        };
        let ends = |name: &str| -> Result<(f64, f64), String> {
            let curve = curve(name)?;
            match (curve.medians().next(), curve.medians().next_back()) {
                (Some(first), Some(last)) if curve.points.len() > 1 => Ok((first, last)),
                _ => Err(format!("{name} was measured at one place only")),
            }
        };
        Ok(match *self {
            Check::Times { at: At::Peak, series, times, of } => {
                let others = others(curves, of)?.into_iter().map(Curve::peak).fold(f64::MIN, f64::max);
                Verdict::least(curve(series)?.peak() / others, times, ", highest to highest".into())
            }
            Check::Times { at, series, times, of } => {
                let ratios = ratios(curves, series, of)?;
                let by_ratio = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
                let found = match at {
                    At::Everywhere => ratios.iter().min_by(by_ratio),
                    At::Somewhere => ratios.iter().max_by(by_ratio),
                    At::First => ratios.first(),
                    At::Last => ratios.last(),
                    At::Mean | At::Peak => None,
                };
                match found {
                    Some((x, ratio)) => Verdict::least(*ratio, times, format!(" at {x}")),
                    None => {
                        let mean = ratios.iter().map(|(_, ratio)| ratio).sum::<f64>() / ratios.len() as f64;
                        Verdict::least(mean, times, format!(" in the mean of {} places", ratios.len()))
                    }
                }
            }
            Check::Grows { series, times } => {
                let (first, last) = ends(series)?;
                Verdict::least(last / first, times, " from the first to the last".into())
            }
            Check::Falls { series, times } => {
                let (first, last) = ends(series)?;
                let found = format!("{:.2} times from the first to the last", last / first);
                if last / first <= times { Verdict::Holds(found) } else { Verdict::Fails(found) }
            }
            Check::Keeps { series, times } => {
                let (first, _) = ends(series)?;
                let least = curve(series)?.medians().fold(f64::MAX, f64::min);
                Verdict::least(least / first, times, " the first at the lowest".into())
            }
            Check::AtMost { series, most } => {
                let highest = curve(series)?.peak();
                let found = format!("{highest:.3} at the highest");
                if highest <= most { Verdict::Holds(found) } else { Verdict::Fails(found) }
            }
            Check::Scales { series, threads, times } => {
                if cores < threads {
                    return Err(format!("it takes {threads} cores, and here are {cores}"));
                }
                let curve = curve(series)?;
                let at = |threads: u64| {
                    curve.at(threads as f64).ok_or_else(|| format!("not measured with {threads} threads"))
                };
                Verdict::least(at(threads)? / at(1)?, times, format!(" from 1 to {threads} threads"))
            }
            Check::GainsToTheLeft { series, of } => {
                let ratios = ratios(curves, series, &[of])?;
                match ratios[..] {
                    [(_, first), .., (_, last)] => {
                        let found = format!("{first:.2} times at the left, {last:.2} at the right");
                        if first > last { Verdict::Holds(found) } else { Verdict::Fails(found) }
                    }
                    _ => return Err("measured at one place only".into()),
                }
            }
        })
    }
}

/// Those of these series that were measured.
fn others<'a>(curves: &'a Curves, of: &[&str]) -> Result<Vec<&'a Curve>, String> {
    let found: Vec<&Curve> = of.iter().filter_map(|name| curves.named(name)).collect();
    match found.is_empty() {
        true => Err(format!("{} took no part", of.join(", "))),
        false => Ok(found),
    }
}

/// At each place that it shares with one of the others: where, and how many times the best of them it is.
fn ratios(curves: &Curves, series: &str, of: &[&str]) -> Result<Vec<(f64, f64)>, String> {
    let others = others(curves, of)?;
    let curve = curves.named(series).ok_or_else(|| format!("{series} was not measured"))?;
    let ratio = |&(x, span): &(f64, Span)| {
        let best = others.iter().filter_map(|other| other.at(x)).max_by(f64::total_cmp)?;
        Some((x, span.median / best))
    };
    let found: Vec<_> = curve.points.iter().filter_map(ratio).collect();
    if found.is_empty() { Err("nothing was measured at one place".into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    /// "up" is 1, 2, 4 at 1, 2, 4; "flat" is 1 everywhere, "low" a half.
    fn curves() -> Curves {
        let mut points = Vec::new();
        for x in [1.0, 2.0, 4.0] {
            points.push(Point::new("up", x, x));
            points.push(Point::new("flat", x, 1.0));
            points.push(Point::new("low", x, 0.5));
        }
        Curves::of(&points)
    }

    fn word(check: Check) -> &'static str {
        Claim { says: "", check }.judge(&curves(), 2).word()
    }

    const REST: &[&str] = &["flat", "low", "absent"];

    /// Every check, just so far that it holds, and just further.
    #[test]
    fn each_check_holds_as_far_as_it_goes() {
        for (just, word_then) in [(1.0, "holds"), (1.001, "fails")] {
            let with = |check: fn(f64) -> Check, most: f64| assert_eq!(word(check(most * just)), word_then);
            with(|times| Check::Times { at: At::Everywhere, series: "up", times, of: REST }, 1.0);
            with(|times| Check::Times { at: At::Somewhere, series: "up", times, of: REST }, 4.0);
            with(|times| Check::Times { at: At::First, series: "up", times, of: REST }, 1.0);
            with(|times| Check::Times { at: At::Last, series: "up", times, of: REST }, 4.0);
            with(|times| Check::Times { at: At::Peak, series: "up", times, of: REST }, 4.0);
            with(|times| Check::Times { at: At::Mean, series: "up", times, of: REST }, 7.0 / 3.0);
            with(|times| Check::Grows { series: "up", times }, 4.0);
            with(|times| Check::Keeps { series: "up", times }, 1.0);
            with(|times| Check::Scales { series: "up", threads: 2, times }, 2.0);
            with(|times| Check::Falls { series: "flat", times: 1.0 / times }, 1.0);
        }
        assert_eq!(word(Check::Falls { series: "up", times: 3.9 }), "fails");
        assert_eq!(word(Check::AtMost { series: "up", most: 4.0 }), "holds");
        assert_eq!(word(Check::AtMost { series: "up", most: 3.9 }), "fails");
        assert_eq!(word(Check::GainsToTheLeft { series: "flat", of: "up" }), "holds");
        assert_eq!(word(Check::GainsToTheLeft { series: "up", of: "flat" }), "fails");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        for check in [
            Check::Times { at: At::Everywhere, series: "up", times: 1.0, of: &["absent"] },
            Check::Times { at: At::Peak, series: "absent", times: 1.0, of: REST },
            Check::Grows { series: "absent", times: 1.0 },
            Check::Scales { series: "up", threads: 4, times: 1.0 },
        ] {
            assert_eq!(word(check), "not judged");
        }
        let one = Curves::of(&[Point::new("up", 1.0, 1.0)]);
        let claim = Claim { says: "", check: Check::Grows { series: "up", times: 1.0 } };
        assert_eq!(claim.judge(&one, 2).word(), "not judged");
    }
}
