//! `stats`: figures about the store as it lies there.
//!
//! 1. What is printed for people is true of the store, whoever opened it. What this process has in memory and has
//!    done since it opened the store says nothing of it: that is left out, and in JSON it stands under `process`.

use std::fs;
use std::path::Path;

use drumlin::Stats;
use serde_json::{Value, json};

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::figures;
use crate::open;
use crate::output::Output;

/// Figures of the engine that are true of the store itself.
const OF_THE_STORE: [&str; 2] = ["keyspaces", "debt_bytes"];

pub fn run(args: &Args) -> Result<()> {
    let stats = open::read(args)?.stats();
    let log = log_files(args.db());
    let mut out = Output::new();
    if args.json {
        out.line(json(&stats, log)?)?;
    } else {
        out.text(&figures::store(&stats, args.db(), log))?;
    }
    out.finish()
}

/// Number and bytes of the log's files.
fn log_files(db: &Path) -> (u64, u64) {
    let entries = fs::read_dir(db.join("log")).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok()).filter(|found| found.is_file());
    files.fold((0, 0), |(files, bytes), found| (files + 1, bytes + found.len()))
}

fn json(stats: &Stats, log: (u64, u64)) -> Result<Value> {
    let all: Value = serde_json::from_str(&stats.to_json())
        .map_err(|error| Failure::Check(format!("the figures are no JSON: {error}")))?;
    let Value::Object(mut process) = all else { return Ok(all) };
    let tables = figures::tables(stats.keyspaces.iter());
    let mut store = json!({
        "tables": tables.tables,
        "table_bytes": tables.bytes,
        "log_files": log.0,
        "log_bytes": log.1,
        "position": stats.tail,
    });
    for name in OF_THE_STORE {
        store[name] = process.remove(name).unwrap_or_default();
    }
    store["process"] = Value::Object(process);
    Ok(store)
}
