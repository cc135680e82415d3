//! `cas KEY --expect V|--absent VALUE`: sets the value if the present one is the expected one.
//!
//! 1. A mismatch changes nothing, says what is there, and exits 1.
//! 2. Only `--absent` makes a missing store or keyspace: nothing there can hold an expected value.
//! 3. With `--json`: `{"swapped":true}`, or `{"swapped":false,"current":...}` (null if absent).

use crate::args::{self, Args, Cas};
use crate::escape;
use crate::failure::{Failure, Result};
use crate::open;
use crate::output::Output;
use crate::value;

pub fn run(args: &Args, cas: &Cas) -> Result<()> {
    let key = cas.form.key(&cas.key)?;
    let value = value::read(&cas.value)?;
    let (db, outcome) = match cas.expect.as_deref().map(args::bytes) {
        Some(expected) => {
            let db = open::change(args)?;
            let keyspace = db.open_keyspace(args.keyspace());
            (db, keyspace.and_then(|keyspace| keyspace.compare_and_swap(&key, Some(expected), Some(&value))))
        }
        None => {
            let (db, keyspace) = open::write_keyspace(args, &args::Made::default())?;
            (db, keyspace.compare_and_swap(&key, None, Some(&value)))
        }
    };
    let outcome = open::close_after(db, outcome.map_err(Into::into))?;
    let mut out = Output::new();
    match outcome {
        drumlin::Cas::Swapped => {
            if args.json {
                out.line(r#"{"swapped":true}"#)?;
            }
            out.finish()
        }
        drumlin::Cas::Mismatch { current } => {
            if args.json {
                let mut line = br#"{"swapped":false,"#.to_vec();
                match &current {
                    Some(value) => escape::push_member(&mut line, "current", value),
                    None => line.extend_from_slice(br#""current":null"#),
                }
                line.extend_from_slice(b"}\n");
                out.bytes(&line)?;
            }
            out.finish()?;
            let key = cas.form.readable(&key);
            Err(Failure::NotSwapped(match current {
                Some(value) => {
                    format!(
                        "not swapped: {key} holds {}; --expect that to swap it",
                        escape::shortened(&value)
                    )
                }
                None => format!("not swapped: {key} is absent; use --absent to set it"),
            }))
        }
    }
}
