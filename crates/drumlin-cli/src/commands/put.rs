//! `put KEY VALUE|-`: makes the store and the keyspace if they are missing.
//!
//! 1. Prints nothing; with `--json`, `{"ok":true}`.

use crate::args::{Args, Put};
use crate::failure::Result;
use crate::open;
use crate::output::Output;
use crate::value;

pub fn run(args: &Args, put: &Put) -> Result<()> {
    let key = put.form.key(&put.key)?;
    let value = value::read(&put.value)?;
    let (db, keyspace) = open::write_keyspace(args, &put.made)?;
    let put = keyspace.put(&key, &value);
    open::close_after(db, put.map_err(Into::into))?;
    let mut out = Output::new();
    if args.json {
        out.line(r#"{"ok":true}"#)?;
    }
    out.finish()
}
