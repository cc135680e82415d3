//! `size`: about how much an interval holds, from what the store knows without reading it.
//!
//! 1. Says how far off it may be; `count` counts.

use drumlin::ApproximateSize;
use serde_json::json;

use super::scan;
use crate::args::{Args, Size};
use crate::failure::Result;
use crate::open;
use crate::output::{Output, bytes, count, plural};

pub fn run(args: &Args, size: &Size) -> Result<()> {
    let interval = scan::interval_of(&size.interval)?;
    let (_db, keyspace) = open::read_keyspace(args)?;
    let found = match interval {
        Some(interval) => keyspace.approximate_size(interval)?,
        None => ApproximateSize::default(),
    };
    let mut out = Output::new();
    if args.json {
        out.line(json!(found))?;
    } else {
        out.text(&words(&found))?;
    }
    out.finish()
}

fn words(found: &ApproximateSize) -> String {
    let off = match found.versions_error {
        0 => "exactly".into(),
        error => format!(
            "mostly right to what a block of each table holds at either end; surely no more than {} off",
            count(error)
        ),
    };
    format!(
        "about {}\n{} ({off})\n{} of tables\n{} only in the log\n",
        plural(found.keys, "key"),
        plural(found.versions, "version"),
        bytes(found.table_bytes),
        bytes(found.memory_bytes)
    )
}
