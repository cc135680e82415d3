//! `delete KEY`: the key is absent afterwards, whether it was there or not.
//!
//! 1. Creates neither store nor keyspace: deleting in what is not there is a mistake.
//! 2. Prints nothing; with `--json`, `{"ok":true}`.

use crate::args::{Args, Delete};
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args, delete: &Delete) -> Result<()> {
    let key = delete.form.key(&delete.key)?;
    let db = open::change(args)?;
    let deleted = db.open_keyspace(args.keyspace()).and_then(|keyspace| keyspace.delete(&key));
    open::close_after(db, deleted.map_err(Into::into))?;
    let mut out = Output::new();
    if args.json {
        out.line(r#"{"ok":true}"#)?;
    }
    out.finish()
}
