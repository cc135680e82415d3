//! A session: rounds of workloads on one engine or several, taken in turns.
//!
//! Place: run by the command line with Drumlin, by the peers' program with all engines.
//!
//! 1. A round of every engine comes before the next round of any, so that a noisy minute hurts all alike.
//! 2. A workload that begins with an empty store gets a fresh one. One that needs every key finds them: what the workloads
//!    before left if that is a full store, else they are put first, untimed, in random order.
//!    With `--warm`, one that only reads finds in memory what fits there: all records were read once, in order, untimed.
//! 3. Stores that are only read are filled once, and stay open for all rounds. Others begin each round anew.
//! 4. Stores are removed as soon as they are done with, unless they are to stay; the directory itself stays where it is. A
//!    store that was there before is measured as it is: nothing is put first, and nothing removed.
//! 5. With `--touch`, memory is at hand before each workload that takes more of it: one that only reads finds what it reads.
//! 6. How many keys a store holds is counted where that is certain, or chance makes it so, and left unsaid where it is not.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::Bench;
use crate::drive::{Measured, Plan, Progress, drive};
use crate::engine::{Engine, Error, Result};
use crate::frames::touch;
use crate::keys::Choice;
use crate::reopen::reopen;
use crate::report::{About, Line};
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
    let watch = |progress: &Progress| watch(engine.0, what, plan.operations, progress);
    Progress::followed(watch, |progress| drive(engine.1, workload, plan, progress))
}

/// What the system counts the space of a file in.
const BLOCK: u64 = 512;

/// Bytes of all files under a directory, holes left out.
pub fn files_bytes(directory: &Path) -> Option<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).ok()? {
        let found = entry.ok()?;
        let about = found.metadata().ok()?;
        bytes += match about.is_dir() {
            true => files_bytes(&found.path())?,
            false => about.len().min(about.blocks() * BLOCK),
        };
    }
    Some(bytes)
}

/// Removes all that is in a directory, and makes it if it is missing.
fn clear(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// One engine's store within a round.
struct Stage<'a> {
    contender: &'a Contender<'a>,
    /// The store was there before, and stays.
    is_given: bool,
    engine: Option<Box<dyn Engine>>,
    /// Keys that it holds, if that is known: of random puts, as many as chance leaves there.
    live: Option<f64>,
}

impl Stage<'_> {
    fn fresh(&mut self) -> Result<()> {
        // Closed before its files go.
        self.engine = None;
        clear(&self.contender.directory)?;
        self.live = Some(0.0);
        Ok(())
    }

    fn engine(&mut self) -> Result<&dyn Engine> {
        if self.engine.is_none() {
            self.engine = Some((self.contender.open)(&self.contender.directory)?);
        }
        Ok(self.engine.as_deref().expect("made above"))
    }

    /// Brings the store to where `workload` begins.
    fn prepare(&mut self, workload: &Workload, plan: &Plan, watch: &Watch<'_>) -> Result<()> {
        let operations = match workload.begins {
            _ if self.is_given => return Ok(()),
            Begins::Empty => return self.fresh(),
            Begins::Full if self.live.is_some_and(|live| live >= plan.keys as f64) => return Ok(()),
            Begins::Full => plan.keys,
            Begins::Half => plan.keys / 2,
        };
        self.fresh()?;
        let fill = Workload::named("filluniquerandom").expect("it is in the table");
        let plan = Plan { operations, at_most: None, rate: None, batch: 1, ..plan.clone() };
        let name = self.contender.name;
        let filled = watched((name, self.engine()?), "filling", fill, &plan, watch)?;
        self.live = Some(filled.operations as f64);
        Ok(())
    }

    /// Reads every record once.
    fn warm(&mut self, plan: &Plan, watch: &Watch<'_>) -> Result<()> {
        let walk = Workload::named("readseq").expect("it is in the table");
        let plan = Plan { operations: plan.keys, at_most: None, rate: None, ..plan.clone() };
        let name = self.contender.name;
        watched((name, self.engine()?), "warming", walk, &plan, watch).map(drop)
    }
}

/// Keys in a store after so many operations on one that held `before`.
fn live_after(before: f64, workload: &Workload, keys: u64, operations: u64) -> Option<f64> {
    let (keys, count) = (keys as f64, operations as f64);
    let share = |of: &dyn Fn(Kind) -> bool| -> f64 {
        workload.mix.iter().filter(|(kind, _)| of(*kind)).map(|(_, share)| share).sum()
    };
    let inserts = share(&|kind| kind == Kind::Insert) * count;
    let deletes = share(&|kind| kind == Kind::Delete);
    let puts = share(&|kind| kind.writes() && ![Kind::Insert, Kind::Delete].contains(&kind));
    if deletes == 0.0 && (before >= keys || puts == 0.0) {
        return Some(before + inserts);
    }
    match workload.keys {
        Choice::Sequence | Choice::Permuted if before == 0.0 && deletes == 0.0 => Some(count.min(keys)),
        // Each write takes a key to what the share of puts is, and leaves the others as they are.
        Choice::Uniform if inserts == 0.0 => {
            let at_last = keys * puts / (puts + deletes);
            Some(at_last + (before - at_last) * (1.0 - 1.0 / keys).powf((puts + deletes) * count))
        }
        _ => None,
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
    let is_given = bench.use_existing_db;
    // Where each has a place of its own.
    let places: HashSet<&Path> = contenders.iter().map(|contender| contender.directory.as_path()).collect();
    let stays = places.len() == contenders.len() && workloads.iter().all(|workload| workload.only_reads());
    let stage = |contender| Stage { contender, is_given, engine: None, live: None };
    let mut stages: Vec<Stage<'_>> = contenders.iter().map(stage).collect();
    for round in 1..=bench.rounds {
        for stage in &mut stages {
            if !is_given && (round == 1 || !stays) {
                stage.fresh()?;
            }
            for (workload, pass) in workloads.iter().zip(u64::from(round) * workloads.len() as u64..) {
                let plan = Plan { pass, ..bench.plan(workload) };
                stage.prepare(workload, &plan, watch)?;
                if !workload.only_reads() {
                    touch(bench.touch << 20)?;
                } else if bench.warm {
                    stage.warm(&plan, watch)?;
                }
                let line = measure(stage, workload, &plan, bench, round, watch)?;
                on_line(line)?;
            }
            if stays && round < bench.rounds {
                continue;
            }
            stage.engine = None;
            if !(keep || is_given) {
                stage.fresh()?;
                // A mount point stays, empty.
                let _ = std::fs::remove_dir(&stage.contender.directory);
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
    let contender = stage.contender;
    let engine = stage.engine()?;
    let (name, settings) = (engine.name(), engine.settings());
    let (measured, holds) = match (workload.opens, stage.engine.take()) {
        (Some(ended), Some(engine)) => reopen(engine, &contender.directory, &contender.open, ended, plan)?,
        (_, taken) => {
            stage.engine = taken;
            let engine = stage.engine()?;
            let measured = watched((contender.name, engine), workload.name, workload, plan, watch)?;
            (measured, engine.holds())
        }
    };
    stage.live = stage.live.and_then(|live| live_after(live, workload, plan.keys, measured.operations));
    let about = About {
        engine: name,
        settings,
        durability: if workload.syncs() { "Disk" } else { bench.durability.name() },
        memory_bytes: (bench.memory as u64) << 20,
        round,
        files_bytes: files_bytes(&contender.directory),
        live: stage.live,
        holds,
    };
    Ok(Line::of(workload, plan, &measured, about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_where_that_is_certain() {
        let after = |before, name: &str, operations| {
            live_after(before, Workload::named(name).expect("it is there"), 1000, operations)
        };
        assert_eq!(after(0.0, "filluniquerandom", 400), Some(400.0));
        assert_eq!(after(0.0, "fillseq", 3000), Some(1000.0));
        let random = after(0.0, "fillrandom", 1000).expect("chance knows");
        assert!((632.0..633.0).contains(&random), "{random}");
        assert_eq!(after(1000.0, "overwrite", 50), Some(1000.0));
        assert_eq!(after(1000.0, "ycsbd", 1000), Some(1050.0));
        assert_eq!(after(500.0, "readrandom", 1000), Some(500.0));
        assert_eq!(after(1000.0, "deleterandom", 1), Some(999.0));
        assert_eq!(after(1000.0, "deleteseq", 1), None);
        let half = after(0.0, "mixwrites", 20_000).expect("chance knows");
        assert!((499.9..=500.0).contains(&half), "{half}");
        let fewer = after(0.0, "mixwrites", 1000).expect("chance knows");
        assert!((315.0..317.0).contains(&fewer), "half of those that were written: {fewer}");
        assert_eq!(after(500.0, "mixskewed", 1000), None);
    }
}
