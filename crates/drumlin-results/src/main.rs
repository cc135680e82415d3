//! The project's figures: `cargo x results` runs the measurements of a table, keeps what they said and draws it.
//!
//! Place: started by `cargo x results`; runs the release builds of `drumlin` and, where other engines take part, of the
//! peers' workspace; writes `docs/results/`, `docs/RESULTS.md` and the marked regions of the README and of `docs/choosing.md`.
//! ```text
//! measurements  what is measured, and what it must show   table     all that are
//! run           one measurement, run by run               figures   raw lines as medians
//! kept          raw lines, and what they were made by     page      RESULTS.md and the README's region
//! choosing      the table of docs/choosing.md
//! found         settings that an earlier grid found        picture   bars and latencies as SVG
//! comparisons   what a program foretold, and what it was  goals     what was found, beside what must hold
//! ```
//! 1. What was measured with the same code, settings and machine is not measured again, unless it is asked for.
//! 2. The page and the pictures are made of the kept lines alone, so that they can be made again without measuring.
//! 3. With `--quick` nothing in the tree is written.
//!
//! Tests: beside the code; `page` takes kept lines to a page with its pictures.
#![deny(unsafe_code)]
// The tool is outside the engine: it starts processes, reads the clock and writes the project's files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod choosing;
mod comparisons;
mod figures;
mod found;
mod goals;
mod kept;
mod measurements;
mod page;
mod picture;
mod run;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use drumlin_bench::machine::Machine;
use indicatif::{ProgressBar, ProgressStyle};

use kept::{Made, Place};
use measurements::Measurement;

/// What goes wrong is told in words.
type Result<T, E = String> = std::result::Result<T, E>;

/// Runs the project's measurements, keeps their figures and draws them
#[derive(Parser)]
#[command(name = "cargo x results")]
struct Args {
    /// What to measure: names, `list` to see them all, or `draw` to make the page of what is kept [default: all]
    names: Vec<String>,
    /// Everything at a fiftieth of its size, kept below the target directory: shows that it works, and nothing else
    #[arg(long)]
    quick: bool,
    /// Measure this again, though it is there
    #[arg(long, value_name = "NAME")]
    again: Vec<String>,
    /// Other engines have the settings that were best when this was measured last by the same arguments, and go through no grid
    #[arg(long)]
    found: bool,
    /// Where stores are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// The peers' program, if it is built already
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
}

fn main() -> ExitCode {
    match results(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("results: {why}");
            ExitCode::FAILURE
        }
    }
}

fn results(args: &Args) -> Result<()> {
    if args.names == ["list"] {
        for measurement in measurements::all() {
            println!("{:18} {:>4} min  {}", measurement.name, measurement.minutes, measurement.shows);
        }
        return Ok(());
    }
    let root = root();
    let place = if args.quick { Place::quick(&root) } else { Place::of(&root) };
    if args.names != ["draw"] {
        measure(args, &root, &place)?;
    }
    let page = page::write(&place)?;
    println!("{}", page.display());
    Ok(())
}

/// Runs what is asked for and not there.
fn measure(args: &Args, root: &Path, place: &Place) -> Result<()> {
    let chosen = choose(&args.names)?;
    if let Some(unknown) = args.again.iter().find(|name| measurements::named(name).is_none()) {
        return Err(format!("there is no measurement {unknown}; `list` names them"));
    }
    let stores = args.on.clone().unwrap_or_else(std::env::temp_dir);
    let machine = Machine::here(&stores).map_err(|e| e.to_string())?;
    let code = kept::code(root);
    if machine.files == "tmpfs" && !args.quick {
        return Err(format!("{} is in memory (tmpfs): --on names another place", stores.display()));
    }
    let mut programs = run::Programs::new(root, &stores, args.peers.clone());
    let bar = bar(chosen.iter().map(|measurement| measurement.minutes).sum());
    let mut failures = Vec::new();
    for measurement in chosen {
        bar.set_prefix(measurement.name);
        let again = args.again.iter().any(|name| name == measurement.name);
        let told = Made::new(measurement, &code, &machine, args.quick, args.found, place).and_then(|made| {
            if again || !place.has(&made) {
                run::run(measurement, &made, place, &mut programs, again, &bar)?;
            }
            Ok(())
        });
        if let Err(why) = told {
            bar.suspend(|| eprintln!("{}: {why}", measurement.name));
            failures.push(measurement.name);
        }
        bar.inc(measurement.minutes);
    }
    bar.finish_and_clear();
    if failures.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failures.join(", "))) }
}

fn choose(names: &[String]) -> Result<Vec<&'static Measurement>> {
    if names.is_empty() {
        return Ok(measurements::all().collect());
    }
    let named = |name: &String| {
        measurements::named(name).ok_or_else(|| format!("there is no measurement {name}; `list` names them"))
    };
    names.iter().map(named).collect()
}

/// A bar in minutes, as the table of measurements estimates them.
fn bar(minutes: u64) -> ProgressBar {
    let bar = ProgressBar::new(minutes);
    let style =
        ProgressStyle::with_template("{prefix:>16} [{bar:20}] {pos}/{len} min, {elapsed} gone  {wide_msg}");
    bar.set_style(style.expect("the template is well formed").progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// The root of the repository, two levels above this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it lies two levels below").to_path_buf()
}
