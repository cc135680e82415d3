//! `put KEY VALUE`: makes the store and the keyspace if they are missing.
//!
//! 1. Prints nothing; with `--json`, `{"ok":true}`.

use std::ffi::OsStr;

use crate::args::{self, Args};
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args, key: &OsStr, value: &OsStr) -> Result<()> {
    let (db, keyspace) = open::write_keyspace(args)?;
    let put = keyspace.put(args::bytes(key), args::bytes(value));
    open::close_after(db, put.map_err(Into::into))?;
    let mut out = Output::new();
    if args.json {
        out.line(r#"{"ok":true}"#)?;
    }
    out.finish()
}
