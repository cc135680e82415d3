//! The contest: every engine over its grid, then the best of each against the others in turns.
//!
//! Place: called by `main` with what was asked for; `drumlin_bench::session` carries it out.
//!
//! 1. Without a grid, every engine takes part with its first setting, in one session over all workloads.
//! 2. With one, every setting of an engine goes once through all workloads. If that was on smaller stores, the best few at
//!    each workload go through it once more on such as were asked for; those that only read, through all of them. Then each
//!    workload has a session of its own, in which each engine has the setting that was best at that workload; workloads that only
//!    read share one where these are the same.
//! 3. A figure is printed as soon as it is there. With `--json`: an object a line; those of the grid have `"grid": true`, and
//!    one with `"best"` says what takes part.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use drumlin_bench::args::Bench;
use drumlin_bench::drive::Progress;
use drumlin_bench::engine::{Error, Result};
use drumlin_bench::medians;
use drumlin_bench::report::{Line, grouped};
use drumlin_bench::session::{self, Contender};
use serde_json::json;

use crate::arguments::Arguments;
use crate::memory;
use crate::setting::{Contestant, Setting};

/// So many settings that were best on a smaller store are tried on one of the size that was asked for.
const FINALISTS: usize = 3;

/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An engine with its settings.
struct Side {
    contestant: &'static Contestant,
    settings: Vec<Setting>,
    /// Which of them is the best at each workload, in the order of the workloads.
    best: Vec<usize>,
}

/// A contest that goes on.
struct Contest<'a> {
    arguments: &'a Arguments,
    directory: PathBuf,
    out: &'a mut dyn Write,
    stop: &'static AtomicBool,
}

/// Carries out what was asked for, in `directory`, and tells of it; until `stop` is set.
pub fn run(
    arguments: &Arguments,
    directory: &Path,
    out: &mut dyn Write,
    stop: &'static AtomicBool,
) -> Result<()> {
    let contestants = arguments.check()?;
    let workloads = arguments.bench.workloads()?.len();
    let terms = arguments.terms();
    let side = |contestant: &&'static Contestant| -> Result<Side> {
        let mut settings = (contestant.settings)(&terms);
        for (_, text) in arguments.setting.iter().filter(|(engine, _)| engine == contestant.name) {
            // One that is called just so is meant alone: its name may be the beginning of others'.
            let is_name = settings.iter().any(|setting| setting.name == *text);
            settings.retain(|setting| match text.strip_prefix('!') {
                Some(text) => !setting.name.contains(text),
                None if is_name => setting.name == *text,
                None => setting.name.contains(text.as_str()),
            });
        }
        if settings.is_empty() {
            return Err(Error::from(format!("{} has no such setting", contestant.name)));
        }
        Ok(Side { contestant, settings, best: vec![0; workloads] })
    };
    let mut sides: Vec<Side> = contestants.iter().map(side).collect::<Result<_>>()?;
    let mut contest = Contest { arguments, directory: directory.into(), out, stop };
    let lines = if arguments.grid {
        for side in &mut sides {
            contest.grid(side)?;
        }
        let mut lines = Vec::new();
        for (benchmarks, best) in shared(&arguments.bench, &sides)? {
            let bench = Bench { benchmarks, ..arguments.bench.clone() };
            lines.extend(contest.session(&bench, sides.iter().zip(best), false)?);
        }
        lines
    } else {
        contest.session(&arguments.bench, sides.iter().map(|side| (side, 0)), false)?
    };
    if arguments.bench.rounds > 1 && !arguments.json {
        write!(contest.out, "\n{}", medians::table(&lines))?;
    }
    Ok(contest.out.flush()?)
}

/// The workloads that have a session together, and the setting that each side has in it.
fn shared(bench: &Bench, sides: &[Side]) -> Result<Vec<(Vec<String>, Vec<usize>)>> {
    let mut sessions: Vec<(Vec<String>, Vec<usize>, bool)> = Vec::new();
    for (at, (name, workload)) in bench.benchmarks.iter().zip(bench.workloads()?).enumerate() {
        let best: Vec<usize> = sides.iter().map(|side| side.best[at]).collect();
        let reads = workload.only_reads();
        match sessions.iter_mut().find(|(_, others, may_join)| reads && *may_join && *others == best) {
            Some((names, ..)) => names.push(name.clone()),
            None => sessions.push((vec![name.clone()], best, reads)),
        }
    }
    Ok(sessions.into_iter().map(|(names, best, _)| (names, best)).collect())
}

/// The settings of a session at its `at`th of so many workloads, the best first.
fn ranked(lines: &[Line], at: usize, workloads: usize) -> Vec<usize> {
    let mut rates: Vec<(usize, f64)> =
        lines.iter().skip(at).step_by(workloads).map(|line| line.rate).enumerate().collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    rates.into_iter().map(|(setting, _)| setting).collect()
}

impl Contest<'_> {
    /// Takes every setting of an engine through all workloads, once, and notes which is best at each.
    fn grid(&mut self, side: &mut Side) -> Result<()> {
        if side.settings.len() == 1 {
            return Ok(());
        }
        let asked = &self.arguments.bench;
        let num = self.arguments.grid_num.unwrap_or(asked.num).min(asked.num);
        let most = |operations: Option<u64>| operations.map(|operations| operations.min(num));
        let bench =
            Bench { rounds: 1, num, reads: most(asked.reads), writes: most(asked.writes), ..asked.clone() };
        let all = 0..side.settings.len();
        let lines = self.session(&bench, all.map(|setting| (&*side, setting)), true)?;
        let workloads = bench.workloads()?;
        // By workload, the best first.
        let mut ranks: Vec<Vec<usize>> =
            (0..workloads.len()).map(|at| ranked(&lines, at, workloads.len())).collect();
        if num < asked.num {
            ranks.iter_mut().for_each(|rank| rank.truncate(FINALISTS));
            let reads = |at: &usize| workloads[*at].only_reads();
            let (together, apart): (Vec<usize>, Vec<usize>) = (0..workloads.len()).partition(reads);
            let groups = std::iter::once(together).chain(apart.into_iter().map(|at| vec![at]));
            for group in groups.filter(|group| !group.is_empty()) {
                self.finals(side, &group, &mut ranks)?;
            }
        }
        side.best = ranks.iter().map(|rank| rank.first().copied().unwrap_or_default()).collect();
        self.tell_grid(side, &lines)
    }

    /// The finalists of these workloads at all of them, on stores of the size that was asked for; puts the best ones first.
    fn finals(&mut self, side: &Side, group: &[usize], ranks: &mut [Vec<usize>]) -> Result<()> {
        let mut finalists: Vec<usize> = group.iter().flat_map(|at| ranks[*at].iter().copied()).collect();
        finalists.sort_unstable();
        finalists.dedup();
        let asked = &self.arguments.bench;
        let benchmarks = group.iter().map(|at| asked.benchmarks[*at].clone()).collect();
        let bench = Bench { rounds: 1, benchmarks, ..asked.clone() };
        let lines = self.session(&bench, finalists.iter().map(|setting| (side, *setting)), true)?;
        for (number, at) in group.iter().enumerate() {
            let rank = ranked(&lines, number, group.len());
            ranks[*at] = rank.into_iter().map(|finalist| finalists[finalist]).collect();
        }
        Ok(())
    }

    fn tell_grid(&mut self, side: &Side, lines: &[Line]) -> Result<()> {
        let names = &self.arguments.bench.benchmarks;
        if self.arguments.json {
            for (name, best) in names.iter().zip(&side.best) {
                let best = &side.settings[*best].name;
                writeln!(
                    self.out,
                    "{}",
                    json!({"best": best, "engine": side.contestant.name, "workload": name})
                )?;
            }
        } else {
            let mut text = format!("grid of {}, ops/s; * takes part\n", side.contestant.name);
            for name in names {
                let _ = write!(text, "{name:>20}");
            }
            for (number, (setting, figures)) in
                side.settings.iter().zip(lines.chunks(names.len())).enumerate()
            {
                text.push('\n');
                for (line, best) in figures.iter().zip(&side.best) {
                    let mark = if *best == number { "*" } else { "" };
                    let _ = write!(text, "{:>20}", format!("{mark}{}", grouped(line.rate)));
                }
                let _ = write!(text, "  {}", setting.name);
            }
            writeln!(self.out, "{text}\n")?;
        }
        Ok(self.out.flush()?)
    }

    /// Rounds of these engines with these settings. In a grid, only JSON tells every figure.
    fn session<'s>(
        &mut self,
        bench: &Bench,
        sides: impl Iterator<Item = (&'s Side, usize)>,
        is_grid: bool,
    ) -> Result<Vec<Line>> {
        let contender = |(side, setting): (&'s Side, usize)| Contender {
            name: side.contestant.name,
            directory: self.directory.join(side.contestant.name),
            open: Box::new(move |directory| {
                // Not where the time of opening is taken.
                if std::fs::read_dir(directory)?.next().is_none() {
                    memory::give_back();
                }
                (side.settings[setting].open)(directory)
            }),
        };
        let contenders: Vec<Contender<'_>> = sides.map(contender).collect();
        let (stop, json) = (self.stop, self.arguments.json);
        let watch = move |_: &str, _: &str, _: u64, progress: &Progress| {
            while !progress.over.load(Ordering::Acquire) {
                progress.stop.store(stop.load(Ordering::Relaxed), Ordering::Relaxed);
                thread::sleep(LOOK_EVERY);
            }
        };
        let mut lines = Vec::new();
        session::run(bench, &contenders, false, &watch, &mut |line| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::from("interrupted"));
            }
            if json {
                let mut object = json!(line);
                if is_grid && let Some(fields) = object.as_object_mut() {
                    fields.insert("grid".into(), true.into());
                }
                writeln!(self.out, "{object}")?;
            } else if !is_grid {
                write!(self.out, "{}: {}\n{line}", line.engine, line.settings)?;
            }
            self.out.flush()?;
            lines.push(line);
            Ok(())
        })?;
        Ok(lines)
    }
}
