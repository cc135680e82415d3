//! `shape`: a drawing of the tree, level by level.
//!
//! 1. With `--json`: `{"keyspaces":[{"name":...,"memory":{...},"levels":[{...},...]}]}`, the figures of the drawing.

use drumlin::Stats;
use serde_json::{Value, json};

use crate::args::Args;
use crate::failure::Result;
use crate::figures;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
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
