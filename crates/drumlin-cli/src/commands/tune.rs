//! `tune`: finds the options of a keyspace for a workload.
//!
//! 1. Every candidate that is measured is told as soon as it was, with what was predicted before; then what to paste.
//! 2. Stores are in a directory that is removed again, also after Ctrl-C.
//! 3. With `--json`: one object a trial, then one for the choice.

use std::fs;
use std::thread;
use std::time::Duration;

use drumlin_bench::drive::Progress;
use drumlin_bench::engine;
use drumlin_bench::store::Settings;
use drumlin_tune::candidate::Candidate;
use drumlin_tune::search::{self, Choice, Grid, Measured, Predicted};
use drumlin_tune::trial::Outcome;
use drumlin_tune::wanted::{self, Wanted};
use drumlin_tune::{paste, picture};
use serde_json::{Value, json};

use crate::args::{Args, Tune};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::{Output, count};
use crate::progress::Watcher;
use crate::scratch;

pub fn run(args: &Args, tune: &Tune) -> Result<()> {
    let wanted = wanted_by(tune)?;
    let scratch = scratch::directory(args.db_named(), "drumlin-tune-")?;
    let mut out = Output::new();
    let mut told = Told { args, watcher: Watcher::new(args.quiet), out: &mut out, failed: None };
    let time = Duration::from_secs_f64(tune.minutes * 60.0);
    let choice = search::run(&wanted, time, scratch.path(), &mut told);
    let seconds = Duration::from_secs_f64(tune.grid.unwrap_or(0.0));
    let grid = match (&choice, tune.grid) {
        (Ok(choice), Some(_)) => Some(search::grid(&wanted, choice, seconds, scratch.path(), &mut told)),
        _ => None,
    };
    let failed = told.failed.take();
    // What went wrong after Ctrl-C took the stores away went wrong because of it.
    interrupt::check()?;
    let choice = match (failed, choice) {
        (Some(failure), _) => return Err(failure),
        (None, Err(error)) => return Err(Failure::of_engine(error)),
        (None, Ok(choice)) => choice,
    };
    tell(args, &mut out, &wanted, &choice)?;
    if let Some(grid) = grid {
        tell_grid(args, &mut out, &grid.map_err(Failure::of_engine)?)?;
    }
    if let Some(file) = &tune.svg {
        fs::write(file, picture::svg(wanted.workload.name, &choice))
            .map_err(|error| Failure::file("write", file, error))?;
        if !args.json {
            out.line(format_args!("\ndrew {} candidates into {}", choice.all.len(), file.display()))?;
        }
    }
    out.finish()
}

fn wanted_by(tune: &Tune) -> Result<Wanted> {
    let workload = wanted::workload(&tune.workload).map_err(Failure::Usage)?;
    if tune.unordered {
        wanted::check_unordered(workload).map_err(Failure::Usage)?;
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let refuse = |why: &str| Err(Failure::Usage(why.into()));
    if tune.key_size < 9 || tune.key_size > 1 << 16 {
        return refuse(
            "--key-size must be from 9 to 65536: eight bytes are the number, and one tells absent keys",
        );
    }
    if tune.num == 0
        || tune.memory < 16
        || !(tune.minutes > 0.0 && tune.minutes <= 1e6)
        || tune.threads == Some(0)
    {
        return refuse("--num, --threads and --minutes must be positive, and --memory 16 or more");
    }
    if !(0.0..=1.0).contains(&tune.compression_ratio) {
        return refuse("--compression-ratio must be from 0 to 1");
    }
    if tune.grid.is_some_and(|seconds| !(seconds > 0.0 && seconds <= 1e6)) {
        return refuse("--grid must be positive");
    }
    let usual = Settings::default();
    Ok(Wanted {
        workload,
        records: tune.num,
        key_bytes: tune.key_size,
        value_bytes: tune.value_size,
        compression_ratio: tune.compression_ratio,
        threads: tune.threads.unwrap_or(processors as u64),
        processors,
        fixed: Settings {
            memory_bytes: tune.memory << 20,
            durability: tune.durability.of_store(),
            compression: tune.compression.of_store(),
            ..usual
        },
        unordered: tune.unordered,
        seed: tune.seed,
    })
}

/// Tells of the search while it goes on.
struct Told<'a> {
    args: &'a Args,
    watcher: Watcher,
    out: &'a mut Output,
    failed: Option<Failure>,
}

impl Told<'_> {
    /// What could not be told ends the search.
    fn keep(&mut self, told: Result<()>) -> engine::Result<()> {
        told.map_err(|failure| {
            self.failed = Some(failure);
            engine::Error::from("it could not be told")
        })
    }

    fn line(&mut self, of: &Candidate, measured: &Measured) -> Result<()> {
        interrupt::check()?;
        let Measured { size, predicted, outcome, .. } = measured;
        if self.args.json {
            self.out.line(json!({
                "candidate": of.to_string(),
                "size": size,
                "predicted_rate": predicted,
                "rate": outcome.rate,
                "table_write_amplification": outcome.write_amplification,
            }))?;
        } else {
            self.out.line(format_args!(
                "{:60} {:>12} {:>12} {:>8}",
                of.to_string(),
                count(*predicted as u64),
                count(outcome.rate as u64),
                written(outcome)
            ))?;
        }
        self.out.flush()
    }

    fn head(&mut self, number: usize, size: f64, time: Duration) -> Result<()> {
        if !self.args.json {
            self.out.line(format_args!(
                "\n{:60} {:>12} {:>12} {:>8}",
                format!(
                    "{number} candidates, {:.0} % of the size, {:.1} s each",
                    size * 100.0,
                    time.as_secs_f64()
                ),
                "predicted/s",
                "measured/s",
                "written"
            ))?;
            self.out.flush()?;
        }
        Ok(())
    }
}

fn written(outcome: &Outcome) -> String {
    outcome.write_amplification.map_or_else(|| "-".into(), |times| format!("{times:.2}"))
}

impl search::Watch for Told<'_> {
    fn predicted(&mut self, done: usize) -> engine::Result<()> {
        if done.is_multiple_of(64) {
            let checked = interrupt::check();
            self.keep(checked)?;
        }
        Ok(())
    }

    fn stage(&mut self, number: usize, size: f64, time: Duration) -> engine::Result<()> {
        let told = self.head(number, size, time);
        self.keep(told)
    }

    fn trial(
        &mut self,
        what: &str,
        run: &mut dyn FnMut(&Progress) -> engine::Result<Outcome>,
    ) -> engine::Result<Outcome> {
        self.watcher.followed(what.into(), None, run)
    }

    fn measured(&mut self, of: &Candidate, measured: &Measured) -> engine::Result<()> {
        let told = self.line(of, measured);
        self.keep(told)
    }
}

/// The choice, and what to paste.
fn tell(args: &Args, out: &mut Output, wanted: &Wanted, choice: &Choice) -> Result<()> {
    let memory = wanted.fixed.memory_bytes;
    if args.json {
        return out.line(json!({
            "choice": figures(&choice.best),
            "usual": figures(&choice.usual),
            "doubtful": choice.doubtful.as_ref().map(figures),
            "candidates": choice.all.len(),
            "rust": paste::rust(&choice.best.candidate, memory),
            "arguments": paste::arguments(&choice.best.candidate, memory),
            "bench": paste::bench(&choice.best.candidate, wanted),
        }));
    }
    let rate = |of: &Predicted| of.measured.map_or(0.0, |measured| measured.outcome.rate);
    let rates = |of: &Predicted| {
        let (slowest, fastest) =
            of.measured.map_or((0.0, 0.0), |measured| (measured.slowest, measured.fastest));
        format!(
            "{} a second (from {} to {})",
            count(rate(of) as u64),
            count(slowest as u64),
            count(fastest as u64)
        )
    };
    let (candidates, best) = (count(choice.all.len() as u64), &choice.best);
    if best.candidate == choice.usual.candidate {
        out.line(format_args!(
            "\nOf {candidates} candidates none is better than the usual options: {}.",
            rates(best)
        ))?;
        if let Some(doubtful) = &choice.doubtful {
            out.line(format_args!(
                "No more than trials differ by: {}: {}.",
                doubtful.candidate,
                rates(doubtful)
            ))?;
        }
    } else {
        out.line(format_args!(
            "\nOf {candidates} candidates the best is: {}\n{}, {:.2} times as many as with the usual options: {}.",
            best.candidate,
            rates(best),
            rate(best) / rate(&choice.usual).max(1.0),
            rates(&choice.usual),
        ))?;
    }
    let is_in_memory = |measured: &Measured| measured.outcome.write_amplification == Some(0.0);
    if best.measured.as_ref().is_some_and(is_in_memory) {
        out.line("Nothing was written to tables: what is said of layouts, filters and blocks was not put to the test.")?;
    }
    if !best.candidate.options(memory).is_ordered() {
        out.line("A trie has no order, and a keyspace is made with it or without, for good: ranges and prefixes are refused.")?;
    }
    out.line("")?;
    out.line(paste::rust(&choice.best.candidate, memory))?;
    match paste::bench(&choice.best.candidate, wanted) {
        Some(line) => out.line(format_args!("\n{line}")),
        None => Ok(()),
    }
}

/// All that was measured without asking, the best first, and where the choice stands.
fn tell_grid(args: &Args, out: &mut Output, grid: &Grid) -> Result<()> {
    let Some((choice, chosen)) = grid.last.first() else { return Ok(()) };
    let mut sorted = grid.last.clone();
    sorted.sort_by(|(_, a), (_, b)| b.rate.total_cmp(&a.rate));
    let of_best = chosen.rate / sorted[0].1.rate;
    if args.json {
        let rows = |of: &[(Candidate, Outcome)]| -> Value {
            of.iter()
                .map(|(of, outcome)| json!({"candidate": of.to_string(), "rate": outcome.rate}))
                .collect()
        };
        return out.line(json!({
            "grid": rows(&sorted), "others": rows(&grid.others), "choice_of_best": of_best,
        }));
    }
    out.line(format_args!(
        "\nThe choice beside the best of a grid, at full size, in turns: {:.2} of the best; then the others, measured once.\n",
        of_best
    ))?;
    for (of, outcome) in sorted.iter().chain(&grid.others) {
        let mark = if of == choice { "  the choice" } else { "" };
        let said = of.to_string();
        out.line(format_args!("{said:60} {:>12} {:>8}{mark}", count(outcome.rate as u64), written(outcome)))?;
    }
    Ok(())
}

fn figures(of: &Predicted) -> Value {
    let measured = of.measured.map(|measured| {
        json!({
            "size": measured.size,
            "predicted_rate": measured.predicted,
            "rate": measured.outcome.rate,
            "slowest": measured.slowest,
            "fastest": measured.fastest,
            "table_write_amplification": measured.outcome.write_amplification,
        })
    });
    json!({"candidate": of.candidate.to_string(), "measured": measured})
}
