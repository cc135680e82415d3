//! `drumlin`: a Drumlin store from the command line.
//!
//! Place: the outermost shell; calls the crate `drumlin` and nothing inside it.
//! ```text
//! args      what can be said, with help  failure   what can go wrong, and the exit code
//! keys      keys as they are written     report    how that is told, with advice
//! value     the value to store           output    results, on standard output
//! commands  one file a command           progress  bars, on standard error
//! input     files to load, line by line  interrupt Ctrl-C, other signals
//! loader    records into a keyspace      figures   a store's figures in words
//! tour      the guided walk              escape    bytes as JSON
//! picture   its tree as a picture          scratch   a directory for what is measured
//! course    a simulation as a picture      twin      a real store beside it
//! closed    standard streams that are not there
//! ```
//! 1. Results go to standard output; progress, warnings and errors to standard error.
//! 2. Exit codes: 0 done, 1 failed or absent, 2 misuse, 3 stored bytes are wrong, 130 interrupted.
//! 3. A reader that closes standard output early (`| head`) ends the program quietly, with code 0.
//!    One that was closed from the beginning is an error.
//! 4. Commands that read open the store read-only.
//!
//! Tests: unit tests beside the code; `tests/` runs the binary, one file a group of commands.
#![deny(unsafe_code)]
// The rule that clock, files and threads are reached through `env` is the engine's. This crate is
// outside it: it reads the user's files, measures the user's time and talks to the user's terminal.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)]

mod advice;
mod args;
mod closed;
mod commands;
mod course;
mod escape;
mod failure;
mod figures;
mod help;
mod input;
mod interrupt;
mod keys;
mod loader;
mod open;
mod output;
mod picture;
mod progress;
mod report;
mod scratch;
mod tour;
mod twin;
mod value;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report::unparsed(&error),
    };
    let args = Arc::new(args);
    let at_interrupt = Arc::clone(&args);
    interrupt::install(move || {
        report::failed(&failure::Failure::Interrupted, &at_interrupt);
    });
    let result = commands::run(&args);
    interrupt::finished();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::failed(&failure, &args),
    }
}
