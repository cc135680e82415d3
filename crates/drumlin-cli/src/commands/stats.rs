//! `stats`: figures about the store as it lies there.
//!
//! 1. What is printed for people is true of the store, whoever opened it. What this process has in memory and has
//!    done since it opened the store says nothing of it: that is left out, and in JSON it stands under `process`.
//! 2. With `--keyspace`: the figures of that keyspace, and none of the store.
//! 3. The log is its segments, the files that `verify` reads and counts; the ballast holds no data.

use std::fs;
use std::path::Path;

use drumlin::Stats;
use serde_json::{Value, json};

use crate::args::Args;
use crate::failure::Result;
use crate::figures::{self, LogFiles};
use crate::open;
use crate::output::Output;

/// What a segment's name ends with.
const SEGMENT: &str = "log";

pub fn run(args: &Args) -> Result<()> {
    let stats = open::stats(args)?;
    let mut out = Output::new();
    let one = args.keyspace_named().is_some();
    match (args.json, one) {
        (true, true) => out.line(json!({"keyspaces": stats.keyspaces}))?,
        (true, false) => out.line(json(&stats, &log_files(args.db())))?,
        (false, true) => out.text(&figures::keyspaces(&stats))?,
        (false, false) => out.text(&figures::store(&stats, args.db(), &log_files(args.db())))?,
    }
    out.finish()
}

/// What lies in the log's directory.
pub fn log_files(db: &Path) -> LogFiles {
    let mut log = LogFiles::default();
    for entry in fs::read_dir(db.join("log")).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        if !found.is_file() {
            continue;
        }
        if entry.path().extension().is_some_and(|extension| extension == SEGMENT) {
            log.segments += 1;
            log.bytes += found.len();
        } else {
            log.ballast_bytes += found.len();
        }
    }
    log
}

fn json(stats: &Stats, log: &LogFiles) -> Value {
    let mut process = json!(stats);
    if let Some(process) = process.as_object_mut() {
        for of_the_store in ["keyspaces", "debt_bytes"] {
            process.remove(of_the_store);
        }
        process.insert("write_amplification".into(), json!(stats.write_amplification()));
        process.insert("reads_per_get".into(), json!(stats.reads_per_get()));
    }
    let tables = figures::tables(stats.keyspaces.iter());
    json!({
        "keyspaces": stats.keyspaces,
        "tables": tables.tables,
        "table_bytes": tables.bytes,
        "log_files": log.segments,
        "log_bytes": log.bytes,
        "ballast_bytes": log.ballast_bytes,
        "debt_bytes": stats.debt_bytes,
        "space_amplification": stats.space_amplification(),
        "position": stats.tail,
        "process": process,
    })
}
