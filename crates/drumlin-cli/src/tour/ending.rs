//! Last sections: every checksum, the tree's shape, the figures, and where to go from here.

use std::path::Path;
use std::time::{Duration, Instant};

use drumlin::Db;

use crate::commands::verify;
use crate::failure::{Failure, Result};
use crate::figures;
use crate::output;
use crate::tour::{CITIES, POPULATION, Tour};

pub fn walk(tour: &mut Tour<'_>, db: &Db) -> Result<()> {
    tour.say.section("Verify every checksum")?;
    // A tree that is still moving makes no drawing.
    db.wait_for_idle()?;
    let bar = tour.watcher.bytes("verifying", 0);
    let began = Instant::now();
    let report = db.verify(&mut |progress| {
        bar.total(progress.bytes_total);
        bar.at(progress.bytes);
    })?;
    drop(bar);
    for problem in &report.problems {
        tour.say.line(verify::describe(problem))?;
    }
    if !report.problems.is_empty() {
        return Err(Failure::Corrupt(format!(
            "{} in the tour's store",
            output::plural(report.problems.len() as u64, "corrupt place")
        )));
    }
    tour.say.check(report.files > 0 && report.bytes > 0, || "verify read nothing".into())?;
    tour.say.line(format_args!(
        "  the manifest, and every byte of {} ({}), in {:.2} s: sound",
        output::plural(report.files as u64, "table"),
        output::bytes(report.bytes),
        began.elapsed().as_secs_f64()
    ))?;
    tour.say.figure("files", report.files as u64);
    tour.say.figure("file_bytes", report.bytes);

    tour.say.section("The shape of the tree")?;
    tour.say.line(
        "Writes go to the log and to memory, from there to tables in level 0 (L0), and by merging down the",
    )?;
    tour.say.line(
        "levels. Three keyspaces are left: the cities, their population, and what the killed process loaded.",
    )?;
    tour.say.line("")?;
    tour.say.block(&figures::drawing(&db.stats()))?;
    tour.say.section("Figures of the work before the kill")?;
    tour.say.block(&std::mem::take(&mut tour.stats))
}

/// Says where the store is and how to explore it.
pub fn farewell(tour: &mut Tour<'_>, took: Duration) -> Result<()> {
    let checks = tour.say.checks();
    tour.say.heading("Done")?;
    tour.say.line(format_args!(
        "All {} checks passed, in {:.1} s. The store is at {}. Explore it:",
        output::count(checks),
        took.as_secs_f64(),
        tour.args.db().display()
    ))?;
    let program = format!("{} --db {}", program(), output::quoted(&tour.args.db().display().to_string()));
    for example in [
        format!("--keyspace {CITIES} get DE/Berlin/2950159"),
        format!("--keyspace {CITIES} scan --prefix FR/Saint- --limit 10"),
        format!("--keyspace {CITIES} scan --from JP/ --to JP0 --reverse --limit 5 --format jsonl"),
        format!("--keyspace {POPULATION} get CN/Shanghai/1796236"),
        format!("--keyspace {POPULATION} count"),
        "keyspaces".into(),
        "shape".into(),
        "verify".into(),
    ] {
        tour.say.line(format_args!("    {program} {example}"))?;
    }
    tour.say.finish()
}

/// This program as the user may call it from here.
fn program() -> String {
    let Ok(program) = std::env::current_exe() else { return "drumlin".into() };
    let here = std::env::current_dir().unwrap_or_default();
    let shown = match program.strip_prefix(&here) {
        Ok(relative) => Path::new(".").join(relative),
        Err(_) => program.clone(),
    };
    output::quoted(&shown.display().to_string())
}
