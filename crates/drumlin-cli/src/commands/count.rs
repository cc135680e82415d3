//! `count`: the number of keys, in digits.
//!
//! 1. Counts by a scan of one moment, so it is exact, and takes time in proportion to the keyspace.

use crate::args::Args;
use crate::failure::Result;
use crate::interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Watcher;

/// Keys between two looks at the terminal.
const STRIDE: u64 = 4096;

pub fn run(args: &Args) -> Result<()> {
    let (_db, keyspace) = open::read_keyspace(args)?;
    let bar = Watcher::new(args.quiet).counter("counting");
    let mut keys = 0u64;
    let mut records = keyspace.iter()?;
    while records.next_ref()?.is_some() {
        keys += 1;
        if keys.is_multiple_of(STRIDE) {
            bar.at(keys);
            interrupt::check()?;
        }
    }
    drop(bar);
    let mut out = Output::new();
    if args.json {
        out.line(format_args!(r#"{{"count":{keys}}}"#))?;
    } else {
        out.line(keys)?;
    }
    out.finish()
}
