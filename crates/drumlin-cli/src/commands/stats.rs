//! `stats`: figures about the store as it lies there; with `--json`, one object.

use crate::args::Args;
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
    let stats = open::read(args)?.stats();
    let mut out = Output::new();
    if args.json {
        out.line(stats.to_json())?;
    } else {
        out.text(&stats.to_string())?;
    }
    out.finish()
}
