//! `shape`: a drawing of the tree, level by level.
//!
//! 1. With `--json`: `{"keyspaces":[{"name":...,"memory":{...},"levels":[{...},...]}]}`, the figures of the drawing.
//! 2. With `--svg` a picture instead, which has every table; a file of that name is replaced.

use std::fs;
use std::path::Path;

use drumlin::Stats;
use serde_json::{Value, json};

use crate::args::{Args, Shape};
use crate::commands::stats::log_files;
use crate::failure::{Failure, Result};
use crate::figures;
use crate::open;
use crate::output::{Output, plural};
use crate::picture::{self, Shown};

pub fn run(args: &Args, shape: &Shape) -> Result<()> {
    if let Some(file) = &shape.svg {
        return draw(args, file);
    }
    let stats = open::stats(args)?;
    let mut out = Output::new();
    if args.json {
        out.line(json(&stats))?;
    } else {
        out.text(&figures::drawing(&stats))?;
    }
    out.finish()
}

fn json(stats: &Stats) -> Value {
    let keyspaces = stats.keyspaces.iter().map(|keyspace| {
        json!({
            "name": keyspace.name,
            "memory": {"bytes": figures::unflushed_bytes(keyspace), "versions": keyspace.memtable_versions},
            "levels": keyspace.levels,
        })
    });
    json!({"keyspaces": keyspaces.collect::<Value>()})
}

/// Draws the picture.
fn draw(args: &Args, file: &Path) -> Result<()> {
    let db = open::read(args)?;
    let stats = open::stats_of(&db, args)?;
    let levels = |name: &str| db.open_keyspace(name)?.levels();
    let levels: Vec<_> = stats.keyspaces.iter().map(|k| levels(&k.name)).collect::<drumlin::Result<_>>()?;
    let shown: Vec<_> =
        stats.keyspaces.iter().zip(&levels).map(|(stats, levels)| Shown { stats, levels }).collect();
    let svg = picture::svg(&args.db().display().to_string(), &shown, &log_files(args.db()));
    let mut out = Output::new();
    if file == Path::new("-") {
        out.bytes(svg.as_bytes())?;
        return out.finish();
    }
    fs::write(file, svg).map_err(|error| Failure::file("write", file, error))?;
    let tables = levels.iter().flatten().map(|level| level.tables.len() as u64).sum();
    if args.json {
        out.line(json!({"ok": true}))?;
    } else {
        out.line(format_args!("drew {} into {}", plural(tables, "table"), file.display()))?;
    }
    out.finish()
}
