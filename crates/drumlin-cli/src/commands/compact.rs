//! `compact`: merges every level of one keyspace (if `--keyspace` is given) or of all.
//!
//! 1. Prints the shape afterwards; with `--json`, `{"ok":true}`.

use crate::args::Args;
use crate::failure::Result;
use crate::figures;
use crate::open;
use crate::output::Output;
use crate::progress::Watcher;

pub fn run(args: &Args) -> Result<()> {
    let db = open::change(args)?;
    let bar = Watcher::new(args.quiet).counter("compacting");
    let compacted = match args.keyspace_named() {
        Some(name) => db.open_keyspace(name).and_then(|keyspace| keyspace.compact()),
        None => db.compact(),
    };
    let shape = compacted.map(|()| figures::drawing(&db.stats()));
    drop(bar);
    let shape = open::close_after(db, shape.map_err(Into::into))?;
    let mut out = Output::new();
    if args.json {
        out.line(r#"{"ok":true}"#)?;
    } else {
        out.text(&shape)?;
    }
    out.finish()
}
