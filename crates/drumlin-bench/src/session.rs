//! A session: rounds of workloads on one engine or several, taken in turns.
//!
//! Place: run by the command line with Drumlin, by the peers' program with all engines.
//!
//! 1. A round of every engine comes before the next round of any, so that a noisy minute hurts all alike.
//! 2. A workload that begins with an empty store gets a fresh one. One that needs every key finds them: what the workloads
//!    before left if that is a full store, else they are put first, untimed, in random order.
//! 3. The peak of resident memory is that since the store was opened.
//! 4. Stores are removed as soon as they are done with, unless they are to stay. One that was there before is measured as
//!    it is: nothing is put first, and nothing removed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::args::Bench;
use crate::drive::{Measured, Plan, Progress, drive};
use crate::engine::{Engine, Error, Result};
use crate::report::{About, Line};
use crate::usage::forget_peak;
use crate::workload::{Begins, Kind, Workload};

/// Opens an engine in a directory.
pub type Open<'a> = dyn Fn(&Path) -> Result<Box<dyn Engine>> + 'a;

/// An engine that takes part.
pub struct Contender<'a> {
    /// Its name.
    pub name: &'static str,
    /// Where its stores are made. All that is there goes, unless an existing store is to be measured.
    pub directory: PathBuf,
    /// Opens it.
    pub open: Box<Open<'a>>,
}

/// Watches a workload, on a thread of its own: until it is over.
pub type Watch<'a> = dyn Fn(&str, &str, u64, &Progress) + Sync + 'a;

/// Drives, watched.
fn watched(
    engine: (&str, &dyn Engine),
    what: &str,
    workload: &Workload,
    plan: &Plan,
    watch: &Watch<'_>,
) -> Result<Measured> {
    let progress = Progress::default();
    std::thread::scope(|scope| {
        scope.spawn(|| watch(engine.0, what, plan.operations, &progress));
        let measured = drive(engine.1, workload, plan, &progress);
        progress.over.store(true, Ordering::Release);
        measured
    })
}

/// What the system counts the space of a file in.
const BLOCK: u64 = 512;

/// Bytes of all files under a directory, holes left out.
pub fn files_bytes(directory: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).ok()? {
        let found = entry.ok()?;
        let about = found.metadata().ok()?;
        bytes += if about.is_dir() {
            files_bytes(&found.path())?
        } else {
            about.len().min(about.blocks() * BLOCK)
        };
    }
    Some(bytes)
}

/// One engine's store within a round.
struct Stage<'a> {
    contender: &'a Contender<'a>,
    /// The store was there before, and stays.
    is_given: bool,
    engine: Option<Box<dyn Engine>>,
    /// Every key is there.
    is_full: bool,
}

impl Stage<'_> {
    fn fresh(&mut self) -> Result<()> {
        // Closed before its files go.
        self.engine = None;
        match std::fs::remove_dir_all(&self.contender.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        std::fs::create_dir_all(&self.contender.directory)?;
        self.is_full = false;
        Ok(())
    }

    fn engine(&mut self) -> Result<&dyn Engine> {
        if self.engine.is_none() {
            forget_peak();
            self.engine = Some((self.contender.open)(&self.contender.directory)?);
        }
        Ok(self.engine.as_deref().expect("made above"))
    }

    /// Brings the store to where `workload` begins.
    fn prepare(&mut self, workload: &Workload, plan: &Plan, watch: &Watch<'_>) -> Result<()> {
        match workload.begins {
            _ if self.is_given => Ok(()),
            Begins::Empty => self.fresh(),
            Begins::Full if self.is_full => Ok(()),
            Begins::Full => {
                self.fresh()?;
                let fill = Workload::named("filluniquerandom").expect("it is in the table");
                let plan =
                    Plan { operations: plan.keys, at_most: None, rate: None, batch: 1, ..plan.clone() };
                let name = self.contender.name;
                watched((name, self.engine()?), "filling", fill, &plan, watch)?;
                self.is_full = true;
                Ok(())
            }
        }
    }
}

/// Carries out all workloads of `bench` on all contenders, and calls `on_line` for each that is done. The stores of the last
/// round stay if `keep`.
pub fn run(
    bench: &Bench,
    contenders: &[Contender<'_>],
    keep: bool,
    watch: &Watch<'_>,
    on_line: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<()> {
    bench.check().map_err(Error::from)?;
    let workloads = bench.workloads().map_err(Error::from)?;
    for round in 1..=bench.rounds {
        for contender in contenders {
            let is_given = bench.use_existing_db;
            let mut stage = Stage { contender, is_given, engine: None, is_full: false };
            if !is_given {
                stage.fresh()?;
            }
            for workload in &workloads {
                let plan = bench.plan(workload);
                stage.prepare(workload, &plan, watch)?;
                let line = measure(&mut stage, workload, &plan, bench, round, watch)?;
                on_line(line)?;
            }
            if !(keep || is_given) {
                stage.fresh()?;
                std::fs::remove_dir(&contender.directory)?;
            }
        }
    }
    Ok(())
}

fn measure(
    stage: &mut Stage<'_>,
    workload: &Workload,
    plan: &Plan,
    bench: &Bench,
    round: u32,
    watch: &Watch<'_>,
) -> Result<Line> {
    let name = stage.contender.name;
    let engine = stage.engine()?;
    let measured = watched((name, engine), workload.name, workload, plan, watch)?;
    let about = About {
        engine: engine.name(),
        settings: engine.settings(),
        durability: bench.durability.name(),
        memory_bytes: (bench.memory as u64) << 20,
        round,
        files_bytes: files_bytes(&stage.contender.directory),
    };
    let line = Line::of(workload, plan, &measured, about);
    // What is put once is all there; what is put at random is not, and what is deleted is not.
    let puts_all = workload.name == "filluniquerandom" || workload.name == "fillseq";
    let removes = workload.mix.iter().any(|(kind, _)| *kind == Kind::Delete);
    stage.is_full = (stage.is_full || puts_all && measured.operations >= plan.keys) && !removes;
    Ok(line)
}
