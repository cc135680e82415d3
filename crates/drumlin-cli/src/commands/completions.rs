//! `completions SHELL`: a completion script on standard output.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Result;
use crate::output::Output;

pub fn run(shell: Shell) -> Result<()> {
    // Written to memory first: the generator panics where a pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "drumlin", &mut script);
    let mut out = Output::new();
    out.bytes(&script)?;
    out.finish()
}
