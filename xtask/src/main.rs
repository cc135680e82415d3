//! The project's menu of commands: `cargo x COMMAND`, the same by hand and in continuous integration.
//!
//! Place: run from anywhere inside the repository; calls cargo; imports nothing of the engine, so that
//! it builds in seconds and can judge a tree that does not compile.
#![deny(unsafe_code)]
// The menu is outside the engine: it lists files and starts processes by its nature.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod ci;
mod planted;
mod process;
mod soak;
mod tidy;
mod tree;

use std::process::ExitCode;

const MENU: &str = "\
cargo x COMMAND

  ci [STEP]...              what a change must pass, step by step with times
                            (fmt, tidy, clippy, doc, test, lazy, runs, loom, tour; all if none is named)
  tidy                      the style that a program can check; seconds, no build
  loom [FILTER]             the model-checked tests (default filter: loom_)
  soak [NAME [ROUNDS]]      the heavy tests; without a name, the list of them
  planted [NAME]...         plants one bug at a time and expects its test to fail
           [--list] [--no-baseline]
  results [NAME]...         measures what is named (all: hours), and writes docs/RESULTS.md and
          [--quick] [--again NAME] [--on DIR]         the README's table; `results list` names all

docs/HACKING.md says which command shows which promise.
";

/// Hands on to a crate of its own: what it takes to draw is no part of the menu.
fn results(arguments: &[String]) -> Result<(), String> {
    let mut command =
        process::cargo(&tree::root(), &["run", "--quiet", "--release", "-p", "drumlin-results", "--"]);
    process::show("results", command.args(arguments))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let outcome = match arguments.first().map(String::as_str) {
        Some("ci") => ci::run(rest),
        Some("tidy") => tidy::run(),
        Some("loom") => ci::loom(rest),
        Some("soak") => soak::run(rest),
        Some("planted") => planted::run(rest),
        Some("results") => results(rest),
        Some("help" | "--help" | "-h") | None => {
            print!("{MENU}");
            Ok(())
        }
        Some(other) => Err(format!("no such command: {other}\n\n{MENU}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
