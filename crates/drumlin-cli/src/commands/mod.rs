//! One file a command; here only the way to each.
//!
//! Place: called by `main`.

mod bench;
mod cas;
mod compact;
mod completions;
mod count;
mod delete;
mod get;
mod inspect;
mod keyspaces;
mod limits;
mod load;
mod paper;
mod put;
mod scan;
mod shape;
mod simulate;
mod size;
mod stats;
mod tune;
pub mod verify;

use crate::args::{Args, Command};
use crate::failure::Result;
use crate::tour;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    args.check()?;
    match &args.command {
        Command::Load(load) => load::run(args, load),
        Command::Get(get) => get::run(args, get),
        Command::Put(put) => put::run(args, put),
        Command::Delete(delete) => delete::run(args, delete),
        Command::Cas(cas) => cas::run(args, cas),
        Command::Count(wanted) => count::run(args, wanted),
        Command::Size(size) => size::run(args, size),
        Command::Scan(scan) => scan::run(args, scan),
        Command::Keyspaces => keyspaces::run(args),
        Command::Stats => stats::run(args),
        Command::Shape(shape) => shape::run(args, shape),
        Command::Verify => verify::run(args),
        Command::Inspect(inspect) => inspect::run(args, inspect),
        Command::Compact => compact::run(args),
        Command::Bench(bench) => bench::run(args, bench),
        Command::Limits(limits) => limits::run(args, limits),
        Command::Paper(paper) => paper::run(args, paper),
        Command::Simulate(simulate) => simulate::run(args, simulate),
        Command::Tune(tune) => tune::run(args, tune),
        Command::Tour => tour::run(args),
        Command::Completions { shell } => completions::run(*shell),
    }
}
