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
use crate::failure::{Failure, Result};
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
        (true, true) => out.line(json!({"keyspaces": keyspaces(&stats)}))?,
        (true, false) => out.line(json(&stats, &log_files(args.db()))?)?,
        (false, true) => out.text(&figures::keyspaces(&stats))?,
        (false, false) => out.text(&figures::store(&stats, args.db(), &log_files(args.db())))?,
    }
    out.finish()
}

/// What lies in the log's directory.
fn log_files(db: &Path) -> LogFiles {
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

fn keyspaces(stats: &Stats) -> Value {
    let levels = |keyspace: &drumlin::KeyspaceStats| -> Value {
        let levels = keyspace.levels.iter();
        levels
            .map(|level| json!({"tables": level.tables, "bytes": level.bytes, "versions": level.entries}))
            .collect()
    };
    let keyspaces = stats.keyspaces.iter().map(|keyspace| {
        json!({
            "name": keyspace.name,
            "memtable_bytes": keyspace.memtable_bytes,
            "memtable_versions": keyspace.memtable_entries,
            "frozen_memtables": keyspace.frozen_memtables,
            "levels": levels(keyspace),
        })
    });
    keyspaces.collect()
}

fn json(stats: &Stats, log: &LogFiles) -> Result<Value> {
    let all: Value = serde_json::from_str(&stats.to_json())
        .map_err(|error| Failure::Check(format!("the figures are no JSON: {error}")))?;
    let Value::Object(mut process) = all else { return Ok(all) };
    for of_the_store in ["keyspaces", "debt_bytes"] {
        process.remove(of_the_store);
    }
    let tables = figures::tables(stats.keyspaces.iter());
    Ok(json!({
        "keyspaces": keyspaces(stats),
        "tables": tables.tables,
        "table_bytes": tables.bytes,
        "log_files": log.segments,
        "log_bytes": log.bytes,
        "ballast_bytes": log.ballast_bytes,
        "debt_bytes": stats.debt_bytes,
        "position": stats.tail,
        "process": process,
    }))
}
