//! `shape`: a drawing of the tree, level by level.
//!
//! 1. With `--json`: `{"keyspaces":[{"name":...,"memory":{...},"levels":[{...},...]}]}`, the figures of the drawing.

use drumlin::Stats;

use crate::args::Args;
use crate::escape;
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
    let db = open::read(args)?;
    let mut out = Output::new();
    if args.json {
        out.bytes(&json(&db.stats()))?;
    } else {
        out.text(&db.shape())?;
    }
    out.finish()
}

fn json(stats: &Stats) -> Vec<u8> {
    let mut line = br#"{"keyspaces":["#.to_vec();
    for (at, keyspace) in stats.keyspaces.iter().enumerate() {
        line.extend_from_slice(if at > 0 { &br#",{"name":"#[..] } else { br#"{"name":"# });
        escape::push_string(&mut line, &keyspace.name);
        let levels: Vec<String> = keyspace
            .levels
            .iter()
            .map(|l| format!(r#"{{"tables":{},"bytes":{},"versions":{}}}"#, l.tables, l.bytes, l.entries))
            .collect();
        let rest = format!(
            r#","memory":{{"bytes":{},"versions":{}}},"levels":[{}]}}"#,
            keyspace.memtable_bytes,
            keyspace.memtable_entries,
            levels.join(",")
        );
        line.extend_from_slice(rest.as_bytes());
    }
    line.extend_from_slice(b"]}\n");
    line
}
