//! `paper`: a paper's figures, measured anew, and what it says of them.
//!
//! 1. What is measured is in directories that are removed again, also after Ctrl-C. Raw points and pictures are in `--out`,
//!    as far as they were measured.
//! 2. A claim that does not hold is told like one that does: that is no failure of the command.
//! 3. With `--json`: one object a point, then one a claim.

use std::fs;

use drumlin_bench::drive::Progress;
use drumlin_bench::engine;
use drumlin_bench::machine::Machine;
use drumlin_paper::args::Paper;
use drumlin_paper::figure::Figure;
use drumlin_paper::kept::Kept;
use drumlin_paper::lab::Lab;
use drumlin_paper::point::{Curves, Point};
use drumlin_paper::{chart, table};
use serde_json::json;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress::Watcher;
use crate::scratch;

/// A run of more operations ends by the clock: there is no telling how far it is.
const COUNTED_MAX: u64 = 1 << 36;

pub fn run(args: &Args, paper: &Paper) -> Result<()> {
    let mut out = Output::new();
    if paper.figure == ["list"] {
        list(args, paper, &mut out)?;
        return out.finish();
    }
    let figures = paper.figures().map_err(Failure::Usage)?;
    let base = args.db_named().map_or_else(std::env::temp_dir, Into::into);
    let machine = Machine::here(&base).map_err(Failure::of_engine)?;
    let setting = paper.setting(machine.cores as u64, machine.memory_gib << 10).map_err(Failure::Usage)?;
    let scratch = scratch::directory(Some(&base), "drumlin-paper-")?;
    let watcher = Watcher::new(args.quiet);
    let watch = |engine: &str, what: &str, total: u64, progress: &Progress| {
        let total = Some(total).filter(|total| *total < COUNTED_MAX);
        watcher.follow(format!("{engine}: {what}"), total, progress);
    };
    let peers = paper.peers.as_deref();
    let lab = Lab { setting: &setting, scratch: scratch.path(), peers, watch: &watch };
    for figure in figures {
        measure(args, paper, figure, &lab, &machine, &mut out)?;
    }
    out.finish()
}

/// One figure: its rounds, then its table, picture and verdicts.
fn measure(
    args: &Args,
    paper: &Paper,
    figure: &Figure,
    lab: &Lab<'_>,
    machine: &Machine,
    out: &mut Output,
) -> Result<()> {
    let mut kept = Kept::begin(&paper.out, figure, lab.setting, machine).map_err(Failure::of_engine)?;
    let (mut points, mut failed) = (Vec::new(), None);
    for round in 1..=lab.setting.rounds {
        let measured = (figure.measure)(lab, &mut |point: Point| {
            kept.add(round, &point)?;
            let told = interrupt::check().and_then(|()| match args.json {
                true => {
                    out.line(json!({
                        "paper": figure.paper, "figure": figure.number, "round": round,
                        "series": point.series, "x": point.x, "y": point.y,
                    }))?;
                    out.flush()
                }
                false => Ok(()),
            });
            points.push(point);
            told.map_err(|failure| {
                failed = Some(failure);
                engine::Error::from("it could not be told")
            })
        });
        interrupt::check()?;
        match (failed.take(), measured) {
            (Some(failure), _) => return Err(failure),
            (None, Err(error)) => return Err(Failure::of_engine(error)),
            (None, Ok(())) => {}
        }
    }
    let curves = Curves::of(&points);
    let picture = kept.path().with_extension("svg");
    let drawn = fs::write(&picture, chart::svg(figure, &curves));
    drawn.map_err(|source| Failure::file("write", &picture, source))?;
    if !args.json {
        out.line(format!("Figure {}: {}", figure.number, figure.shows))?;
        if !figure.differs.is_empty() {
            out.line(format!("Not as in the paper: {}", figure.differs))?;
        }
        out.text(&table::table(figure, &curves))?;
    }
    for claim in figure.claims {
        let verdict = claim.judge(&curves, lab.setting.cores);
        let (word, found) = (verdict.word(), verdict.found());
        match args.json {
            true => out.line(json!({
                "paper": figure.paper, "figure": figure.number,
                "claim": claim.says, "verdict": word, "found": found,
            }))?,
            false => out.line(format!("{word:>10}: {} - {found}", claim.says))?,
        }
    }
    if !args.json {
        out.line(format!("{}, {}\n", kept.path().display(), picture.display()))?;
    }
    out.flush()
}

/// Names the figures.
fn list(args: &Args, paper: &Paper, out: &mut Output) -> Result<()> {
    let mut all = drumlin_paper::figures().filter(|figure| figure.paper == paper.name.text());
    all.try_for_each(|figure| match args.json {
        true => out.line(json!({"paper": figure.paper, "figure": figure.number, "shows": figure.shows})),
        false => out.line(format!("{:4} {}", figure.number, figure.shows)),
    })
}
