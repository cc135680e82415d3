//! `bench`: measures the store on this machine.
//!
//! 1. What is measured is a store of its own: in a directory that is removed again, also after Ctrl-C, or in `--db`,
//!    where it stays.
//! 2. A line is printed as soon as its workload is done; medians follow where there were several rounds.
//! 3. With `--json`: one object a workload and round; with `--limits` then one a limit, and one a figure beside its limit.

use std::path::{Path, PathBuf};
use std::{fs, io};

use drumlin_bench::args::Bench;
use drumlin_bench::drive::Progress;
use drumlin_bench::limits::{Ground, beside, beside::Beside};
use drumlin_bench::session::{self, Contender};
use drumlin_bench::store::Store;
use drumlin_bench::workload::WORKLOADS;
use drumlin_bench::{engine, medians};
use serde_json::json;
use tempfile::TempDir;

use super::limits;
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::progress::Watcher;
use crate::report::{self, Note};
use crate::scratch;

pub fn run(args: &Args, bench: &Bench) -> Result<()> {
    let mut out = Output::new();
    if bench.benchmarks == ["list"] {
        list(args, &mut out)?;
        return out.finish();
    }
    bench.check().and_then(|()| bench.workloads().map(drop)).map_err(Failure::Usage)?;
    let place = Place::of(args, bench)?;
    if is_in_memory(&place.directory) {
        let text = format!("{} is in memory (tmpfs): --db names another place", place.directory.display());
        report::note(&Note::new(text), args.json);
    }
    let settings = bench.settings();
    let contender = Contender {
        name: "drumlin",
        directory: place.directory.clone(),
        open: Box::new(move |directory| Ok(Box::new(Store::open(directory, &settings)?))),
    };
    let watcher = Watcher::new(args.quiet);
    let watch = |_: &str, what: &str, total: u64, progress: &Progress| {
        watcher.follow(what.into(), Some(total), progress);
    };
    let (mut lines, mut failed) = (Vec::new(), None);
    let measured = session::run(bench, &[contender], place.stays, &watch, &mut |line| {
        let printed = interrupt::check().and_then(|()| {
            if args.json {
                out.line(json!(line))?
            } else {
                out.text(&line.to_string())?
            }
            out.flush()
        });
        lines.push(line);
        printed.map_err(|failure| {
            failed = Some(failure);
            engine::Error::from("it could not be told")
        })
    });
    // What went wrong after Ctrl-C took the store away went wrong because of it.
    interrupt::check()?;
    match (failed, measured) {
        (Some(failure), _) => return Err(failure),
        (None, Err(error)) => return Err(Failure::of_engine(error)),
        (None, Ok(())) => {}
    }
    if bench.rounds > 1 && !args.json {
        out.text(&medians::table(&lines))?;
    }
    if bench.limits {
        let beside = if place.stays { Some(place.directory.as_path()) } else { place.directory.parent() };
        let ground = Ground::new(beside.unwrap_or(Path::new(".")), bench.threads as usize);
        let wanted = |name: &str| bench.limit.is_empty() || bench.limit.iter().any(|one| one == name);
        let limits = limits::measure(&ground, args, &wanted, &mut |limit| {
            if args.json { out.line(json!(limit)) } else { Ok(()) }
        })?;
        let rows: Vec<Beside> = lines.iter().filter_map(|line| beside::of(line, &limits)).collect();
        match args.json {
            true => rows.iter().try_for_each(|row| out.line(json!(row)))?,
            false => out.text(&beside::table(&rows))?,
        }
    }
    out.finish()
}

/// Names the workloads.
fn list(args: &Args, out: &mut Output) -> Result<()> {
    WORKLOADS.iter().try_for_each(|workload| match args.json {
        true => out.line(json!({"name": workload.name, "what": workload.what})),
        false => out.line(format!("{:24} {}", workload.name, workload.what)),
    })
}

/// Where the store is made.
struct Place {
    directory: PathBuf,
    stays: bool,
    /// Removed when dropped.
    _temporary: Option<TempDir>,
}

impl Place {
    fn of(args: &Args, bench: &Bench) -> Result<Place> {
        match args.db_named() {
            Some(directory) if bench.use_existing_db => Place::existing(directory),
            None if bench.use_existing_db => {
                Err(Failure::Usage("--use-existing-db needs --db, the store to measure".into()))
            }
            Some(directory) => Place::given(directory),
            None => Place::temporary(),
        }
    }

    fn existing(directory: &Path) -> Result<Place> {
        let found = fs::read_dir(directory);
        found.map_err(|source| Failure::file("read", directory, source))?;
        Ok(Place { directory: directory.into(), stays: true, _temporary: None })
    }

    fn given(directory: &Path) -> Result<Place> {
        match fs::read_dir(directory).map(|mut found| found.next().is_some()) {
            Ok(true) => {
                return Err(Failure::Refused(format!(
                    "{} is not empty, and a bench makes a store of its own; --use-existing-db measures the one that is there",
                    directory.display()
                )));
            }
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::file("read", directory, error)),
        }
        Ok(Place { directory: directory.into(), stays: true, _temporary: None })
    }

    fn temporary() -> Result<Place> {
        let made = scratch::directory(None, "drumlin-bench-")?;
        Ok(Place { directory: made.path().join("store"), stays: false, _temporary: Some(made) })
    }
}

/// Whether files there are memory.
fn is_in_memory(directory: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    let there = directory.ancestors().find_map(|at| rustix::fs::statfs(at).ok());
    there.is_some_and(|found| found.f_type as u64 == TMPFS)
}
