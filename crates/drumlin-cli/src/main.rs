//! `drumlin`: a Drumlin store from the command line.
//!
//! Place: the outermost shell; calls the crate `drumlin` and nothing inside it.
//! ```text
//! args      what can be said             failure   what can go wrong, and the exit code
//! commands  one file a command           output    results, on standard output
//! input     files to load, line by line  progress  bars, on standard error
//! loader    records into a keyspace
//! tour      the guided walk              interrupt Ctrl-C, SIGTERM
//! ```
//! 1. Results go to standard output; progress, warnings and errors to standard error.
//! 2. Exit codes: 0 done, 1 failed or absent, 2 misuse, 3 stored bytes are wrong, 130 interrupted.
//! 3. A reader that closes standard output early (`| head`) ends the program quietly, with code 0.
//! 4. Commands that read open the store read-only.
//!
//! Tests: unit tests beside the code; `tests/` runs the binary, one file a group of commands.
#![deny(unsafe_code)]
// The rule that clock, files and threads are reached through `env` is the engine's. This crate is
// outside it: it reads the user's files, measures the user's time and talks to the user's terminal.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)]

mod args;
mod commands;
mod escape;
mod failure;
mod input;
mod interrupt;
mod loader;
mod open;
mod output;
mod progress;
mod tour;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    interrupt::install(|| output::tell("interrupted"));
    let result = commands::run(&args);
    interrupt::finished();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                output::tell(&message);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
