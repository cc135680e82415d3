//! `get KEY`: the value's bytes, and nothing else.
//!
//! 1. No line end is added, but on a terminal. With `--json`: one object with key and value.
//! 2. An absent key prints nothing and exits 1; with `--json` its value is null.

use std::io::{self, IsTerminal};

use crate::args::{Args, Get};
use crate::failure::{Failure, Result};
use crate::open;
use crate::output::Output;

pub fn run(args: &Args, get: &Get) -> Result<()> {
    let key = get.form.key(&get.key)?;
    let (_db, keyspace) = open::read_keyspace(args)?;
    let value = keyspace.get(&key)?;
    let mut out = Output::new();
    if args.json {
        let mut line = Vec::new();
        match &value {
            Some(value) => get.form.push_record(&mut line, &key, Some(value)),
            None => {
                line.push(b'{');
                get.form.push_key(&mut line, &key);
                line.extend_from_slice(br#","value":null}"#);
            }
        }
        line.push(b'\n');
        out.bytes(&line)?;
    } else if let Some(value) = &value {
        out.bytes(value)?;
        if io::stdout().is_terminal() {
            out.bytes(b"\n")?;
        }
    }
    out.finish()?;
    match value {
        Some(_) => Ok(()),
        None => Err(Failure::Absent(format!("key not found: {}", get.form.readable(&key)))),
    }
}
