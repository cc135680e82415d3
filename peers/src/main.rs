//! The program: other key-value engines beside Drumlin.
//!
//! Place: parses, makes a directory for the stores, and hands on to `contest`. README.md says how to build and run it.
//!
//! 1. What it has made is removed again, also after Ctrl-C. A directory that was named has to be empty, or not there.
// See the library.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use drumlin_bench::engine::{Error, Result};
use drumlin_peers::arguments::Arguments;
use drumlin_peers::{contest, memory};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    memory::in_huge_pages();
    memory::keep();
    let arguments = Arguments::parse();
    if arguments.bench.benchmarks == ["list"] {
        for workload in drumlin_bench::workload::WORKLOADS {
            println!("{:24} {}", workload.name, workload.what);
        }
        return ExitCode::SUCCESS;
    }
    if let Err(wrong) = arguments.check() {
        eprintln!("{wrong}");
        return ExitCode::from(2);
    }
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if STOP.load(Ordering::Relaxed) => ExitCode::from(130),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            STOP.store(true, Ordering::Relaxed);
        }
    });
    let mut out = std::io::stdout();
    match &arguments.db {
        Some(directory) => {
            refuse_what_is_there(directory)?;
            contest::run(arguments, directory, &mut out, &STOP)
        }
        None => {
            let made = tempfile::Builder::new().prefix("drumlin-peers-").tempdir()?;
            contest::run(arguments, made.path(), &mut out, &STOP)
        }
    }
}

/// Stores are removed with all that is in their directories.
fn refuse_what_is_there(directory: &Path) -> Result<()> {
    if std::fs::read_dir(directory).is_ok_and(|mut found| found.next().is_some()) {
        return Err(Error::from(format!("{} is not empty", directory.display())));
    }
    Ok(std::fs::create_dir_all(directory)?)
}
