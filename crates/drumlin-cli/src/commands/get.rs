//! `get KEY`: the value's bytes, and nothing else.
//!
//! 1. No line end is added. With `--json`: one object with key and value.
//! 2. An absent key prints nothing and exits 1.

use std::ffi::OsStr;

use crate::args::{self, Args};
use crate::escape;
use crate::failure::{Failure, Result};
use crate::open;
use crate::output::Output;

pub fn run(args: &Args, key: &OsStr) -> Result<()> {
    let key = args::bytes(key);
    let (_db, keyspace) = open::read_keyspace(args)?;
    let Some(value) = keyspace.get(key)? else {
        return Err(Failure::No(format!("key not found: {}", escape::readable(key))));
    };
    let mut out = Output::new();
    if args.json {
        let mut line = Vec::new();
        escape::push_record(&mut line, key, Some(&value));
        line.push(b'\n');
        out.bytes(&line)?;
    } else {
        out.bytes(&value)?;
    }
    out.finish()
}
