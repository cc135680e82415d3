//! The search: from all candidates to one.
//!
//! Place: run by the command line, which shows every step. Tests: below, tests/tune.rs.
//!
//! 1. All candidates are predicted at full size. Two dozen, or as many as there is time for, are measured small: the best of each
//!    memory component and layout, then ever sparser down the list, as neighbours differ by less than a trial tells.
//! 2. Of those measured the best third goes on, at four times the size, until it is the full one; there the last few are left.
//! 3. A prediction is the model's, by how a candidate stood in earlier trials beside what the model says, the others likewise, and by how
//!    fast *the others* are in the same trials: the model's prices are those of one machine, and a machine is slow for minutes and
//!    then fast again. Nothing measured of a candidate at a size goes into what is predicted of it there.
//! 4. The usual options take part to the end, and are the choice unless another is faster beyond what trials of the same differ by:
//!    its slowest beats their fastest. Nobody is told to change what need not be changed.

use std::path::Path;
use std::time::Duration;

use drumlin_bench::drive::Progress;
use drumlin_bench::engine::Result;

use crate::candidate::Candidate;
use crate::model::{Cost, Model};
use crate::trial::{self, Outcome};
use crate::wanted::Wanted;

/// Candidates that are measured first, at most: what more of them take is taken from the time of each.
const FIRST_MAX: usize = 24;
/// Candidates that are measured at full size.
const LAST: usize = 3;
/// How often they are measured: of two that are the same, all trials of one are faster than all of the other once in twenty times.
const LAST_ROUNDS: usize = 3;
/// How often those before them are, there and back: a machine that grows faster all the while favours nobody.
const ROUNDS: usize = 2;
/// Of a grid, so many are measured again, so often, in turns: the best of twenty that were measured once is the luckiest.
const GRID_LAST: usize = 5;
const GRID_ROUNDS: usize = 3;
/// So many times as large is each next size, and one of so many candidates comes to it.
const GROWTH: f64 = 4.0;
const STAY_OF: f64 = 3.0;
/// So many times as fast as with the usual options something is worth to be told of.
const WORTH: f64 = 1.03;
/// The smallest size, as a part of the full one, and the least memory there.
const SMALLEST: f64 = 1.0 / 16.0;
const MEMORY_MIN: f64 = (16 << 20) as f64;
/// Records a second that a store is filled with, about: to reckon what a trial takes.
const FILL_RATE: f64 = 400_000.0;
/// Seconds that a trial measures at least, and at most.
const SECONDS_MIN: f64 = 0.5;
const SECONDS_MAX: f64 = 20.0;

/// One that was predicted.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// Which.
    pub candidate: Candidate,
    /// What operations cost at full size: by the model, and at the end by how far off that was in the median.
    pub cost: Cost,
    /// Operations a second, likewise.
    pub rate: f64,
    /// What was measured, at the size last measured.
    pub measured: Option<Measured>,
    /// How it stood in each trial, beside the model and the others: 1 is as the median did.
    stood: Vec<f64>,
}

impl Predicted {
    /// How it stands: in the geometric mean of its trials and of one more in which it stood as the model says. A trial tells no more
    /// of what the model does not know than the machine's pace hides.
    fn standing(&self) -> f64 {
        let sum: f64 = self.stood.iter().map(|stood| stood.ln()).sum();
        (sum / (self.stood.len() + 1) as f64).exp()
    }
}

/// What was measured of a candidate.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The size, as a part of the full one.
    pub size: f64,
    /// Operations a second that were predicted, by the model, what was measured of it before, and what is measured of others beside it.
    pub predicted: f64,
    /// The same by the model alone.
    pub modelled: f64,
    /// What the trials said, in the mean.
    pub outcome: Outcome,
    /// Operations a second of the slowest trial and of the fastest.
    pub slowest: f64,
    /// See `slowest`.
    pub fastest: f64,
}

impl Measured {
    /// True if it is faster by enough to be told of, beyond what trials differ by.
    fn beats(&self, other: &Measured) -> bool {
        self.outcome.rate > other.outcome.rate * WORTH && self.slowest > other.fastest
    }
}

/// What the search tells while it goes on.
pub trait Watch {
    /// So many candidates are predicted.
    fn predicted(&mut self, done: usize) -> Result<()>;
    /// So many are measured now, at this part of the full size, for so long each.
    fn stage(&mut self, count: usize, size: f64, time: Duration) -> Result<()>;
    /// Carries out a trial, watched.
    fn trial(&mut self, what: &str, run: &mut dyn FnMut(&Progress) -> Result<Outcome>) -> Result<Outcome>;
    /// One was measured.
    fn measured(&mut self, of: &Candidate, measured: &Measured) -> Result<()>;
}

/// What the search came to.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The best, measured at full size (or the largest that there was time for).
    pub best: Predicted,
    /// The usual options, measured likewise.
    pub usual: Predicted,
    /// What was faster in the mean than these, if no more than trials differ by: then they are the best.
    pub doubtful: Option<Predicted>,
    /// All, the best predicted first.
    pub all: Vec<Predicted>,
}

/// Searches for so long, about; stores are made in `directory`.
pub fn run(wanted: &Wanted, time: Duration, directory: &Path, watch: &mut dyn Watch) -> Result<Choice> {
    let mut model = Model::default();
    let mut all = predict(&mut model, wanted, watch)?;
    let smallest = SMALLEST.max(MEMORY_MIN / wanted.fixed.memory_bytes as f64).min(1.0);
    let stages = 1 + (1.0 / smallest).log(GROWTH).ceil() as usize;
    let of_stage = time.as_secs_f64() / stages as f64;
    let usual = all.iter().position(|p| p.candidate == Candidate::default());
    let usual = usual.ok_or("the usual options are not among the candidates")?;
    let mut left = first(&all, of_stage, &wanted.scaled(smallest));
    for stage in 1..=stages {
        let size = if stage == stages { 1.0 } else { smallest * GROWTH.powi(stage as i32 - 1) };
        if stage == stages {
            left.truncate(LAST);
        }
        if !left.contains(&usual) {
            left.push(usual);
        }
        let scaled = wanted.scaled(size);
        // In turns: what disturbs one disturbs all.
        let rounds = if stage == stages { LAST_ROUNDS } else { ROUNDS };
        let fill = scaled.records as f64 / FILL_RATE;
        let seconds = (of_stage / (left.len() * rounds) as f64 - fill).clamp(SECONDS_MIN, SECONDS_MAX);
        watch.stage(left.len(), size, Duration::from_secs_f64(seconds))?;
        let mut modelled = Vec::new();
        for &place in &left {
            modelled.push(model.cost(&all[place].candidate, &scaled)?.rate(&scaled));
        }
        let mut outcomes = vec![Vec::new(); left.len()];
        for round in 0..rounds {
            let there = 0..left.len();
            let order: Vec<usize> = if round % 2 == 0 { there.collect() } else { there.rev().collect() };
            for number in order {
                let candidate = all[left[number]].candidate;
                let time = Duration::from_secs_f64(seconds);
                let mut run = |progress: &Progress| {
                    trial::run(&candidate, &scaled, time, &directory.join("store"), progress)
                };
                outcomes[number].push(watch.trial(&candidate.to_string(), &mut run)?);
            }
        }
        let standings: Vec<f64> = left.iter().map(|&place| all[place].standing()).collect();
        let outcomes: Vec<(Outcome, Vec<Outcome>)> = outcomes.into_iter().map(|of| (mean(&of), of)).collect();
        let off: Vec<f64> =
            outcomes.iter().zip(&modelled).map(|((of, _), modelled)| of.rate / modelled).collect();
        for (number, (&place, (outcome, trials))) in left.iter().zip(&outcomes).enumerate() {
            let of_others = (0..off.len()).filter(|&other| other != number);
            let pace = median(&of_others.map(|other| off[other] / standings[other]).collect::<Vec<_>>());
            let rates = || trials.iter().map(|trial| trial.rate);
            let measured = Measured {
                size,
                predicted: modelled[number] * standings[number] * pace,
                modelled: modelled[number],
                outcome: *outcome,
                slowest: rates().fold(f64::INFINITY, f64::min),
                fastest: rates().fold(0.0, f64::max),
            };
            watch.measured(&all[place].candidate, &measured)?;
            all[place].measured = Some(measured);
            all[place].stood.push(off[number] / median(&off));
        }
        left.sort_by(|&a, &b| rate(&all[b]).total_cmp(&rate(&all[a])));
        left.truncate(((left.len() as f64 / STAY_OF).ceil() as usize).max(LAST));
    }
    let beats = |place: usize| {
        all[place].measured.zip(all[usual].measured).is_some_and(|(this, usual)| this.beats(&usual))
    };
    let best = left.iter().copied().find(|&place| beats(place)).unwrap_or(usual);
    let doubtful = left.first().copied().filter(|&first| best == usual && first != usual);
    let off = |p: &Predicted| p.measured.map(|measured| measured.outcome.rate / measured.modelled);
    let factor = median(&all.iter().filter_map(off).collect::<Vec<_>>());
    for predicted in &mut all {
        predicted.rate *= factor;
        predicted.cost = predicted.cost.times(1.0 / factor);
    }
    let of = |place: usize| all[place].clone();
    let (best, usual, doubtful) = (of(best), of(usual), doubtful.map(of));
    all.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    Ok(Choice { best, usual, doubtful, all })
}

/// What a search of everything would have found.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The choice, then the best of a small grid; with the means of the trials in which they were measured in turns.
    pub last: Vec<(Candidate, Outcome)>,
    /// The others of the grid, as they were measured before that.
    pub others: Vec<(Candidate, Outcome)>,
}

/// Measures a small grid at full size for so many seconds each, then the best of it beside the choice.
pub fn grid(
    wanted: &Wanted,
    choice: &Choice,
    time: Duration,
    directory: &Path,
    watch: &mut dyn Watch,
) -> Result<Grid> {
    let mut all = Candidate::grid(wanted.unordered);
    all.retain(|candidate| *candidate != choice.best.candidate);
    let trial = |candidate: &Candidate, watch: &mut dyn Watch| {
        let mut run =
            |progress: &Progress| trial::run(candidate, wanted, time, &directory.join("store"), progress);
        watch.trial(&candidate.to_string(), &mut run)
    };
    let mut others = Vec::new();
    for candidate in all {
        others.push((candidate, trial(&candidate, watch)?));
    }
    others.sort_by(|(_, a), (_, b)| b.rate.total_cmp(&a.rate));
    let best = others.drain(..GRID_LAST.min(others.len())).map(|(candidate, _)| candidate);
    let last: Vec<Candidate> = std::iter::once(choice.best.candidate).chain(best).collect();
    let mut outcomes = vec![Vec::new(); last.len()];
    for _ in 0..GRID_ROUNDS {
        for (candidate, outcomes) in last.iter().zip(&mut outcomes) {
            outcomes.push(trial(candidate, watch)?);
        }
    }
    let last = last.into_iter().zip(outcomes.iter().map(|outcomes| mean(outcomes))).collect();
    Ok(Grid { last, others })
}

fn mean(outcomes: &[Outcome]) -> Outcome {
    let count = outcomes.len() as f64;
    let written: Option<f64> = outcomes.iter().map(|outcome| outcome.write_amplification).sum();
    Outcome {
        rate: outcomes.iter().map(|outcome| outcome.rate).sum::<f64>() / count,
        write_amplification: written.map(|sum| sum / count),
    }
}

fn rate(of: &Predicted) -> f64 {
    of.measured.map_or(0.0, |measured| measured.outcome.rate)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(1.0)
}

/// All, the best first.
fn predict(model: &mut Model, wanted: &Wanted, watch: &mut dyn Watch) -> Result<Vec<Predicted>> {
    let candidates = Candidate::all(wanted.unordered);
    let mut all = Vec::with_capacity(candidates.len());
    for (done, candidate) in candidates.iter().enumerate() {
        watch.predicted(done)?;
        let cost = model.cost(candidate, wanted)?;
        all.push(Predicted {
            candidate: *candidate,
            cost,
            rate: cost.rate(wanted),
            measured: None,
            stood: Vec::new(),
        });
    }
    all.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    Ok(all)
}

/// Those that are measured first, by their places: see the module.
fn first(all: &[Predicted], seconds: f64, scaled: &Wanted) -> Vec<usize> {
    let each = (SECONDS_MIN + scaled.records as f64 / FILL_RATE) * ROUNDS as f64;
    let most = ((seconds / each) as usize).clamp(LAST, FIRST_MAX);
    let mut kinds = Vec::new();
    let mut chosen: Vec<usize> = (0..all.len())
        .filter(|&place| {
            let kind = all[place].candidate.kind();
            !kinds.contains(&kind) && {
                kinds.push(kind);
                true
            }
        })
        .collect();
    let rest: Vec<usize> = (0..all.len()).filter(|place| !chosen.contains(place)).collect();
    let steps = (0..).scan(0, |place, step| Some(std::mem::replace(place, *place + step + 1)));
    chosen.extend(steps.take_while(|place| *place < rest.len()).map(|place: usize| rest[place]));
    chosen.truncate(most);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_trials_differ_by_is_no_reason_to_change_options() {
        let of = |rates: [f64; 3]| Measured {
            size: 1.0,
            predicted: 1.0,
            modelled: 1.0,
            outcome: Outcome { rate: rates.iter().sum::<f64>() / 3.0, write_amplification: None },
            slowest: rates[0],
            fastest: rates[2],
        };
        let usual = of([90.0, 100.0, 110.0]);
        assert!(of([111.0, 112.0, 113.0]).beats(&usual));
        assert!(!of([109.0, 130.0, 150.0]).beats(&usual), "one of them was no faster");
        assert!(!of([100.0, 101.0, 102.0]).beats(&of([99.0, 99.0, 99.0])), "not worth it");
        assert!(!usual.beats(&usual));
    }
}
