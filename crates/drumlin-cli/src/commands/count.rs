//! `count`: the number of keys, of all or of an interval, in digits.
//!
//! 1. Counts by a scan of one moment, so it is exact, and takes time in proportion to what is counted.

use super::scan;
use crate::args::{Args, Count};
use crate::failure::Result;
use crate::interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Watcher;

/// Keys between two looks at the terminal.
const STRIDE: u64 = 4096;

pub fn run(args: &Args, wanted: &Count) -> Result<()> {
    let interval = scan::interval_of(&wanted.interval)?;
    let (_db, keyspace) = open::read_keyspace(args)?;
    let records = match interval {
        _ if wanted.interval.is_everything() => Some(keyspace.iter()?),
        Some(interval) => Some(keyspace.range(interval)?),
        None => None,
    };
    let mut keys = 0u64;
    if let Some(mut records) = records {
        let bar = Watcher::new(args.quiet).counter("counting");
        while records.next_ref()?.is_some() {
            keys += 1;
            if keys.is_multiple_of(STRIDE) {
                bar.at(keys);
                interrupt::check()?;
            }
        }
    }
    let mut out = Output::new();
    if args.json {
        out.line(format_args!(r#"{{"count":{keys}}}"#))?;
    } else {
        out.line(keys)?;
    }
    out.finish()
}
