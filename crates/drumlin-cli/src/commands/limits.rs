//! `limits`: what the machine can do at most, beside which figures of a store mean something.
//!
//! 1. Files are made where `--db` says, or in the system's temporary directory, and removed.
//! 2. With `--json`: one object a limit, as soon as it is measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use drumlin_bench::args::THREADS_MAX;
use drumlin_bench::engine;
use drumlin_bench::limits::{self, Ground, Limit};
use serde_json::json;

use crate::args::{Args, Limits};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress::Watcher;

pub fn run(args: &Args, asked: &Limits) -> Result<()> {
    let mut threads = asked.threads.clone();
    if threads.is_empty() {
        threads.push(std::thread::available_parallelism().map_or(1, Into::into));
    }
    if threads.iter().any(|threads| !(1..=THREADS_MAX as usize).contains(threads)) {
        return Err(Failure::Usage(format!("--threads must be from 1 to {THREADS_MAX}")));
    }
    if !(1e-3..=1e6).contains(&asked.seconds) {
        return Err(Failure::Usage("--seconds must be from 0.001 to 1000000".into()));
    }
    limits::check(&asked.only).map_err(Failure::Usage)?;
    if !(1..=1 << 20).contains(&asked.size) {
        return Err(Failure::Usage("--size must be from 1 to 1048576".into()));
    }
    let place: PathBuf = args.db_named().map_or_else(std::env::temp_dir, Path::to_path_buf);
    if !place.is_dir() {
        return Err(Failure::Refused(format!(
            "{} is no directory: limits are measured in one",
            place.display()
        )));
    }
    let (time, bytes) = (Duration::from_secs_f64(asked.seconds), asked.size << 20);
    let mut ground = Ground::new(&place, 1);
    (ground.time, ground.far_bytes, ground.file_bytes, ground.threads) = (time, bytes, bytes, threads);
    let mut out = Output::new();
    if !args.json {
        out.line(format!("{:24} {:>3} {:>16}  what was done", "limit", "on", "at most"))?;
    }
    let wanted = |name: &str| asked.only.is_empty() || asked.only.iter().any(|one| one == name);
    measure(&ground, args, &wanted, &mut |limit| {
        if args.json {
            out.line(json!(limit))?
        } else {
            out.line(limit)?
        }
        out.flush()
    })?;
    out.finish()
}

/// Measures the limits that are wanted and shows each.
pub fn measure(
    ground: &Ground,
    args: &Args,
    wanted: &dyn Fn(&str) -> bool,
    show: &mut dyn FnMut(&Limit) -> Result<()>,
) -> Result<Vec<Limit>> {
    let bar = Watcher::new(args.quiet).counter("limits");
    let (mut limits, mut failed) = (Vec::new(), None);
    let measured = limits::run(ground, wanted, &mut |limit| {
        bar.at(limits.len() as u64 + 1);
        let mut shown = interrupt::check();
        if shown.is_ok() {
            bar.aside(|| shown = show(&limit));
        }
        limits.push(limit);
        shown.map_err(|failure| {
            failed = Some(failure);
            engine::Error::from("it could not be told")
        })
    });
    match (failed, measured) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(Failure::of_engine(error)),
        (None, Ok(())) => Ok(limits),
    }
}
